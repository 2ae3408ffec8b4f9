//! Targets that have left the cluster, in directories that the flags of their server name still.
//!
//! After `target remove` and `target replace` the flags are as they were, and the first directory cannot be left out: it holds
//! `node.json` and the metadata. So what has left is neither opened nor missed. Which has, only the manager knows; until it has
//! said so, the reason is kept why a known target cannot be had.

use super::identity::{Node, TargetRecord};
use super::stores::{self, Target};
use super::{NodeOptions, open_targets};
use crate::failure::{Failure, Outcome};
use std::path::{Path, PathBuf};
use strake_base::disk::RealDisk;
use strake_engine::chunk::Identity;
use strake_wire::message::manager::ClusterMap;

/// What lies in the directories that the flags name, while it is not known yet what has left.
#[derive(Default)]
pub struct Looked {
    /// Those that are there, or are to be made.
    pub targets: Vec<Target>,
    /// Those that are known and cannot be had, and why.
    missing: Vec<(TargetRecord, Failure)>,
}

/// Looks at the directories; neither opens nor writes anything.
pub fn look(options: &NodeOptions, node: &Node) -> Outcome<Looked> {
    let mut looked = Looked::default();
    if !options.roles.storage {
        return Ok(looked);
    }
    stores::check_distinct(&options.targets)?;
    for path in &options.targets {
        match Target::look(path, node, options.new_disks) {
            Ok(target) => looked.targets.push(target),
            Err(failure) => match node.target_at(path).filter(|record| record.target != 0) {
                Some(record) => looked.missing.push((record.clone(), failure)),
                None => return Err(failure),
            },
        }
    }
    stores::count_sharing(&looked.targets);
    stores::check_room(&looked.targets)?;
    Ok(looked)
}

impl Looked {
    /// Opens them; one that cannot be opened may have left because of that.
    pub async fn open(self, disk_rate: Option<u64>) -> Outcome<Self> {
        let Self { targets, mut missing } = self;
        let mut opened = Vec::new();
        for (target, outcome) in stores::open_all(targets, disk_rate).await? {
            match outcome {
                Ok(()) => opened.push(target),
                Err(failure) => missing.push((target.record(), failure)),
            }
        }
        Ok(Self { targets: opened, missing })
    }

    /// What to say where the manager cannot be asked: rather what is wrong here, if something is.
    pub fn rather(&self, failure: Failure) -> Failure {
        self.missing.first().map_or(failure, |(_, missing)| missing.clone())
    }

    /// Those that this server has, now that it is known what has left. What has left is not missed; `node` remembers it while a
    /// flag names its directory, so that no new target begins there unasked.
    pub async fn staying(
        self,
        options: &NodeOptions,
        node: &mut Node,
        map: &ClusterMap,
    ) -> Outcome<Vec<Target>> {
        let Self { targets, missing } = self;
        let has_left = |t: &Target| t.cluster == map.cluster && map.has_left(t.id.0, &t.uuid);
        let (left, mut targets): (Vec<_>, Vec<_>) = targets.into_iter().partition(has_left);
        for record in left.iter().map(Target::record) {
            warn(&record, &holds(&record.path));
        }
        let mut others = Vec::new();
        for (record, failure) in &missing {
            if !map.has_left(record.target, &record.uuid) {
                return Err(failure.clone());
            }
            let held = holds(&record.path);
            match &held {
                Holds::Target(uuid) if *uuid != record.uuid => {
                    others.push(look_anew(record, node, options)?);
                }
                // A new one is to begin there, and cannot.
                Holds::Other if options.new_disks => return Err(failure.clone()),
                _ => warn(record, &held),
            }
        }
        targets.extend(open_targets(others, options.disk_rate).await?);
        stores::count_sharing(&targets);
        forget(node, &options.targets, &targets, map);
        let had_some = !left.is_empty() || !missing.is_empty();
        if had_some && targets.is_empty() && !node.targets.iter().any(|record| record.added) {
            tracing::warn!(
                "no target of this server is in the cluster any more; to give it one: strake target add {} DIR",
                options.name
            );
        }
        Ok(targets)
    }
}

/// Takes what has left out of `node`, but for what keeps the place of a directory that is `named` and has no target now. Of what
/// was added [`super::added`] tells.
fn forget(node: &mut Node, named: &[PathBuf], here: &[Target], map: &ClusterMap) {
    let keeps_place = |record: &TargetRecord| {
        named.contains(&record.path) && !here.iter().any(|target| target.path == record.path)
    };
    let has_left = |record: &TargetRecord| map.has_left(record.target, &record.uuid);
    node.targets.retain(|record| record.added || !has_left(record) || keeps_place(record));
}

/// What is in a directory in which a target was.
pub enum Holds {
    /// A target with this uuid.
    Target(String),
    /// Something else, or nobody knows what.
    Other,
    Nothing,
}

/// Looks at such a directory.
pub fn holds(path: &Path) -> Holds {
    let found = RealDisk::new(path).ok().and_then(|disk| Identity::read(&disk).ok()?);
    let is_empty = || std::fs::read_dir(path).is_ok_and(|mut names| names.next().is_none());
    match found {
        Some(found) => Holds::Target(found.uuid),
        None if !path.exists() || is_empty() => Holds::Nothing,
        None => Holds::Other,
    }
}

/// Looks at the directory of one that has left, as if that had never been there.
fn look_anew(record: &TargetRecord, node: &Node, options: &NodeOptions) -> Outcome<Target> {
    let others = node.targets.iter().filter(|other| other.path != record.path).cloned().collect();
    Target::look(&record.path, &Node { targets: others, ..node.clone() }, options.new_disks)
}

fn warn(record: &TargetRecord, held: &Holds) {
    let (target, shown) = (record.target, record.path.display());
    match held {
        Holds::Target(uuid) if *uuid == record.uuid => tracing::warn!(
            "{shown} holds target {target}, which has left the cluster, and is not opened; its directory can be deleted"
        ),
        Holds::Nothing => tracing::info!(
            "target {target} was in {shown} and has left the cluster; a new one begins there with --new-disks only"
        ),
        _ => tracing::warn!(
            "target {target} was in {shown} and has left the cluster; what is there now is not known, and is left alone"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::{Target as Listed, TargetSpec};

    const OURS: &str = "0123456789abcdef0123456789abcdef";

    fn uuid(number: u32) -> String {
        format!("{number:032x}")
    }

    /// A cluster that has given out targets 1 to 3, and of which the first has left.
    fn map() -> ClusterMap {
        let listed = |id| {
            let spec = TargetSpec { target: id, uuid: uuid(id), ..TargetSpec::default() };
            Listed { id, server: 1, spec, ..Listed::default() }
        };
        let targets = [2, 3].map(listed).into();
        ClusterMap { cluster: OURS.into(), targets, next_target: 4, ..ClusterMap::default() }
    }

    fn record(path: &Path, number: u32) -> TargetRecord {
        TargetRecord { path: path.into(), uuid: uuid(number), target: number, added: false }
    }

    fn put(path: &Path, cluster: &str, number: u32) {
        std::fs::create_dir_all(path).unwrap();
        let identity = Identity { cluster: cluster.into(), uuid: uuid(number), target: number };
        identity.write(&RealDisk::new(path).unwrap()).unwrap();
    }

    /// A server remembered every number that it had been given, and was refused for ever.
    #[test]
    fn only_what_was_given_out_and_is_listed_no_more_has_left() {
        let map = map();
        assert!(map.has_left(1, &uuid(1)));
        assert!(!map.has_left(2, &uuid(2)), "it is there");
        assert!(!map.has_left(2, &uuid(9)), "another one has its number");
        assert!(!map.has_left(4, &uuid(4)), "nobody was given that number");
        assert!(!map.has_left(0, &uuid(0)), "it is a new one");
        let older = ClusterMap { next_target: 0, ..map };
        assert!(!older.has_left(1, &uuid(1)), "a manager that does not say");
    }

    #[test]
    fn a_record_stays_as_long_as_it_keeps_a_named_directory_from_a_new_target() {
        let top = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| top.path().join(name));
        let targets = vec![record(&paths[0], 1), record(&paths[1], 2)];
        let mut node = Node { cluster: OURS.into(), server: 1, targets, ..Node::default() };
        let whole = node.clone();
        forget(&mut node, &paths[..2], &[], &map());
        assert_eq!(node, whole);
        forget(&mut node, &paths[1..], &[], &map());
        assert_eq!(node.targets, [record(&paths[1], 2)]);
        // A new disk has taken the place.
        let mut node = whole;
        let new = Target::look(&paths[0], &Node::default(), false).unwrap();
        forget(&mut node, &paths, &[new], &map());
        assert_eq!(node.targets, [record(&paths[1], 2)]);
    }

    /// It was said of all that lay there that it can be deleted.
    #[test]
    fn what_is_in_the_place_of_one_that_has_left_is_looked_at() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("target");
        assert!(matches!(holds(&path), Holds::Nothing));
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(holds(&path), Holds::Nothing));
        std::fs::write(path.join("holiday.jpg"), "x").unwrap();
        assert!(matches!(holds(&path), Holds::Other));
        let held = || match holds(&path) {
            Holds::Target(uuid) => uuid,
            _ => panic!("a target"),
        };
        put(&path, OURS, 1);
        assert_eq!(held(), uuid(1));
        put(&path, OURS, 3);
        assert_eq!(held(), uuid(3));
    }
}
