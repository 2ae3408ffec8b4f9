//! What is damaged, told by the names of files.

use crate::asked::{AT_ONCE, Asked};
use crate::cluster;
use crate::failure::Outcome;
use crate::output;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_storage::soundness::Finding;
use strake_types::{Credentials, Ino, VolumeId};
use strake_wire::map::MapView;

/// Findings of a volume, by the file that they are about.
type Files<'a> = BTreeMap<Ino, Vec<&'a mut Finding>>;

/// Finds the files that findings are about, and notes each as it is found: whoever waits no longer has what is known by then.
/// What cannot be told stays without a path; of volumes that do not answer the first is told.
pub async fn name_files<'a>(
    map: &Arc<MapView>,
    findings: impl IntoIterator<Item = &'a mut Finding>,
) -> Outcome {
    let mut volumes: BTreeMap<u32, Files<'a>> = BTreeMap::new();
    for finding in findings {
        let (volume, ino) = (finding.chunk.volume.0, finding.chunk.ino);
        volumes.entry(volume).or_default().entry(ino).or_default().push(finding);
    }
    let asked = Asked::of(map);
    let mut looks = Vec::new();
    for (id, files) in volumes {
        looks.push(find_paths(map, &asked, VolumeId(id), files));
    }
    let answers: Vec<Outcome> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    answers.into_iter().collect()
}

/// Finds the paths of files of a volume.
async fn find_paths(
    map: &Arc<MapView>,
    asked: &Asked<'_>,
    id: VolumeId,
    files: Files<'_>,
) -> Outcome {
    let name = map.current().living_with(id).map(|volume| volume.spec.name.clone());
    let Some(name) = name else { return Ok(()) };
    let opened = cluster::open_volume(map.clone(), &name, "scrub");
    let volume = asked.answer(&name, opened).await?;
    let root = Credentials::root();
    for (ino, findings) in files {
        let described = async { Outcome::Ok(volume.describe(&root, ino).await) };
        // Who is silent would not answer for the others, nor be told that we leave.
        match asked.answer(&name, described).await? {
            Ok(about) => {
                let paths: Vec<_> = about.paths.iter().map(|path| path_in(&name, path)).collect();
                findings.into_iter().for_each(|finding| finding.paths.clone_from(&paths));
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::tests::half_away;
    use strake_types::{ChunkId, ChunkIndex};
    use strake_wire::message::scrubs::ScrubFate;

    /// It was waited for, longer than a status may take: no file of any volume was named.
    #[tokio::test]
    async fn a_volume_whose_server_is_away_is_told_at_once() {
        let chunk =
            |volume| ChunkId { volume: VolumeId(volume), ino: Ino(7), index: ChunkIndex(0) };
        let finding = |volume| Finding {
            target: 1,
            group: 1,
            chunk: chunk(volume),
            fate: ScrubFate::Lost,
            different: false,
            detail: String::new(),
            paths: Vec::new(),
        };
        // There is no volume 3 any more.
        let mut findings = [finding(3), finding(1)];
        let error = name_files(&half_away(), &mut findings).await.unwrap_err();
        assert_eq!(error.cause, "volume away: its metadata server is away");
        assert!(findings.iter().all(|one| one.paths.is_empty()));
    }
}
