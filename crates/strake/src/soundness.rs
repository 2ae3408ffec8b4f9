//! What is damaged, told by the names of files.

use crate::cluster;
use crate::failure::Outcome;
use crate::output;
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_storage::soundness::Finding;
use strake_types::{Credentials, Ino, VolumeId};
use strake_wire::map::MapView;

/// Finds the files that findings are about. What cannot be told stays without a path; of volumes that cannot be opened
/// the first is told.
pub async fn name_files(map: &Arc<MapView>, findings: &mut [Finding]) -> Outcome {
    let mut files: BTreeMap<u32, BTreeMap<Ino, Vec<String>>> = BTreeMap::new();
    for finding in findings.iter() {
        files.entry(finding.chunk.volume.0).or_default().entry(finding.chunk.ino).or_default();
    }
    let mut named: Outcome = Ok(());
    for (id, inodes) in &mut files {
        named = named.and(find_paths(map, VolumeId(*id), inodes).await);
    }
    for finding in findings {
        let inodes = files.get(&finding.chunk.volume.0);
        let paths = inodes.and_then(|inodes| inodes.get(&finding.chunk.ino));
        finding.paths = paths.cloned().unwrap_or_default();
    }
    named
}

/// Finds the paths of inodes of a volume.
async fn find_paths(
    map: &Arc<MapView>,
    id: VolumeId,
    inodes: &mut BTreeMap<Ino, Vec<String>>,
) -> Outcome {
    let name = map.current().living_with(id).map(|volume| volume.spec.name.clone());
    let Some(name) = name else { return Ok(()) };
    let opened = cluster::open_volume(map.clone(), &name, "scrub").await;
    let volume = opened.map_err(|failure| failure.about(&format!("volume {name}")))?;
    for (ino, paths) in inodes {
        match volume.describe(&Credentials::root(), *ino).await {
            Ok(about) => paths.extend(about.paths.iter().map(|path| path_in(&name, path))),
            Err(error) => tracing::debug!("inode {ino} of volume {name}: {error}"),
        }
    }
    cluster::leave_volume(&volume).await;
    Ok(())
}

/// `:/VOLUME/PATH`, as verbs take it.
pub fn path_in(volume: &str, path: &[u8]) -> String {
    format!(":/{volume}/{}", output::text_of(path).trim_start_matches('/'))
}
