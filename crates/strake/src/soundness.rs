//! What is damaged, told by the names of files.

use crate::cluster;
use crate::failure::Outcome;
use crate::output;
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_storage::soundness::Finding;
use strake_types::{Credentials, Ino, VolumeId};
use strake_wire::map::MapView;

/// Finds the files that findings are about. What cannot be told stays without a path.
pub async fn name_files(map: &Arc<MapView>, findings: &mut [Finding]) -> Outcome {
    let mut files: BTreeMap<u32, BTreeMap<Ino, Vec<String>>> = BTreeMap::new();
    for finding in findings.iter() {
        files.entry(finding.chunk.volume.0).or_default().entry(finding.chunk.ino).or_default();
    }
    for (id, inodes) in &mut files {
        let current = map.current();
        let of_volume = current.living_with(VolumeId(*id));
        let Some(name) = of_volume.map(|v| v.spec.name.clone()) else { continue };
        let volume = cluster::open_volume(map.clone(), &name, "scrub").await?;
        for (ino, paths) in inodes {
            match volume.describe(&Credentials::root(), *ino).await {
                Ok(about) => paths.extend(about.paths.iter().map(|p| path_in(&name, p))),
                Err(error) => tracing::debug!("inode {ino} of volume {name}: {error}"),
            }
        }
        volume.close().await?;
    }
    for finding in findings {
        let inodes = files.get(&finding.chunk.volume.0);
        let paths = inodes.and_then(|inodes| inodes.get(&finding.chunk.ino));
        finding.paths = paths.cloned().unwrap_or_default();
    }
    Ok(())
}

/// `:/VOLUME/PATH`, as verbs take it.
pub fn path_in(volume: &str, path: &[u8]) -> String {
    format!(":/{volume}/{}", output::text_of(path).trim_start_matches('/'))
}
