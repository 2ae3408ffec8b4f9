//! Targets that were added while the server ran: `node.json` remembers them, so that the server opens
//! them again although its flags do not name them.

use super::NodeOptions;
use super::add::{TARGET, enter};
use super::identity::{Node, TargetRecord};
use super::stores::{Target, same_place};
use crate::failure::{Failure, Outcome};
use std::path::PathBuf;
use strake_base::disk::RealDisk;
use strake_engine::chunk::Identity;
use strake_types::ErrorKind;
use strake_wire::message::manager::{ClusterMap, GetMap, ManagerAnswer, ManagerOp, ManagerRequest};
use strake_wire::service::ManagerService;

/// What becomes of one that was added.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It is opened.
    Open,
    /// It was made but did not enter the cluster any more: now it does.
    Enter,
    /// It has left the cluster, and is still there.
    Stranger,
    /// It has left the cluster, or never came, and nothing is there.
    Forget,
}

/// A directory that the flags name is theirs: without them it is not opened again.
pub fn leave_to_flags(node: &mut Node, given: &[PathBuf]) {
    for record in node.targets.iter_mut().filter(|record| record.added) {
        record.added = !given.iter().any(|path| same_place(path, &record.path));
    }
}

/// Looks at all that were added, as far as they are to be opened. Those that have left the cluster
/// are forgotten.
pub async fn look(
    options: &NodeOptions,
    node: &mut Node,
    manager: &dyn ManagerService,
) -> Outcome<Vec<Target>> {
    let added: Vec<TargetRecord> = node.targets.iter().filter(|r| r.added).cloned().collect();
    check_without(options, &added)?;
    if added.is_empty() || !options.roles.storage {
        return Ok(Vec::new());
    }
    let map = map_of(manager).await?;
    let mut targets = Vec::new();
    for record in added {
        let path = &record.path;
        if is_left_out(options, &record) {
            tracing::info!("{} is left out", path.display());
            continue;
        }
        match fate(&record, node.server, &map) {
            Fate::Open => targets.push(Target::look(path, node, options.new_disks)?),
            Fate::Enter => {
                let target = Target::look(path, node, false)?;
                match enter(manager, node.server, &target.spec()).await {
                    Ok(_) => targets.push(target),
                    Err(error) => tracing::warn!("{} is not opened: {error}", path.display()),
                }
            }
            Fate::Stranger => tracing::warn!(
                "{} holds a target that is not in the cluster any more, and is not opened; delete it \
                 there to use the disk again (strake target add)",
                path.display()
            ),
            Fate::Forget => node.targets.retain(|known| known.path != *path),
        }
    }
    Ok(targets)
}

fn is_left_out(options: &NodeOptions, record: &TargetRecord) -> bool {
    options.without.iter().any(|dir| same_place(&dir.join(TARGET), &record.path))
}

/// `--without` names directories that were added.
fn check_without(options: &NodeOptions, added: &[TargetRecord]) -> Outcome {
    let unknown =
        |dir: &&PathBuf| !added.iter().any(|record| same_place(&dir.join(TARGET), &record.path));
    match options.without.iter().find(unknown) {
        Some(dir) => Err(Failure::usage(format!(
            "--without {}: no target was added there while the server ran",
            dir.display()
        ))
        .next("leave --without out; a directory behind --data is left out by not naming it there")),
        None => Ok(()),
    }
}

fn fate(record: &TargetRecord, server: u32, map: &ClusterMap) -> Fate {
    let known = map.targets.iter().find(|target| target.spec.uuid == record.uuid);
    if known.is_some_and(|target| target.server == server) {
        return Fate::Open;
    }
    let found = RealDisk::new(&record.path).ok().and_then(|disk| Identity::read(&disk).ok()?);
    match found {
        Some(found) if found.uuid != record.uuid => Fate::Forget,
        Some(_) if known.is_none() && record.target == 0 => Fate::Enter,
        Some(_) => Fate::Stranger,
        None => Fate::Forget,
    }
}

async fn map_of(manager: &dyn ManagerService) -> Outcome<ClusterMap> {
    let op = Some(ManagerOp::GetMap(GetMap::default()));
    let answer = manager.call(ManagerRequest { op }).await?.answer;
    let map = match answer {
        Some(ManagerAnswer::Map(answer)) => answer.decoded()?,
        _ => None,
    };
    map.ok_or_else(|| strake_types::Error::from(ErrorKind::Malformed).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use strake_wire::message::manager::{Target as Listed, TargetSpec};

    const UUID: &str = "00000000000000000000000000000001";

    fn record(path: &Path, target: u32) -> TargetRecord {
        TargetRecord { path: path.into(), uuid: UUID.into(), target, added: true }
    }

    #[test]
    fn what_was_added_is_opened_unless_it_has_left_the_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let spec = TargetSpec { target: 5, uuid: UUID.into(), ..TargetSpec::default() };
        let listed = Listed { id: 5, server: 1, spec, ..Listed::default() };
        let map = ClusterMap { targets: vec![listed], ..ClusterMap::default() };
        let (gone, all) = (ClusterMap::default(), [0, 5]);
        // Its disk may be missing: who looks at it says so.
        assert!(all.iter().all(|&number| fate(&record(dir.path(), number), 1, &map) == Fate::Open));
        let missing = all.map(|number| fate(&record(dir.path(), number), 1, &gone));
        assert_eq!(missing, [Fate::Forget, Fate::Forget]);
        let identity = Identity { cluster: "ab".repeat(16), uuid: UUID.into(), target: 5 };
        identity.write(&RealDisk::new(dir.path()).unwrap()).unwrap();
        let there = all.map(|number| fate(&record(dir.path(), number), 1, &gone));
        assert_eq!(there, [Fate::Enter, Fate::Stranger]);
        let elsewhere = all.map(|number| fate(&record(dir.path(), number), 2, &map));
        assert_eq!(elsewhere, [Fate::Stranger, Fate::Stranger]);
    }

    #[test]
    fn a_directory_that_the_flags_name_is_theirs() {
        let paths = ["/a/target", "/b/target"].map(PathBuf::from);
        let targets = paths.iter().map(|path| record(path, 1)).collect();
        let mut node = Node { targets, ..Node::default() };
        leave_to_flags(&mut node, &paths[1..]);
        assert_eq!(node.targets.iter().map(|r| r.added).collect::<Vec<_>>(), [true, false]);
    }
}
