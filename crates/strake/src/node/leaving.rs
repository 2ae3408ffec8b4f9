//! Targets that leave the cluster while their server runs, as by `target remove` and `target replace`: they are served no more, and
//! closed. Of those that left before the server began, [`super::left`] and [`super::added`] tell.

use super::add::Adder;
use super::stores::Target;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_types::TargetId;
use strake_wire::message::manager::ClusterMap;
use tokio::task::spawn_blocking;

/// Time between two looks whether anybody uses a target still.
const PAUSE: Duration = Duration::from_millis(200);

/// Withdraws those that leave, as long as there is who adds others.
pub async fn watch(adder: Weak<Adder>) {
    let Some(mut maps) = adder.upgrade().map(|adder| adder.map.watch()) else { return };
    // That of now counts, too.
    maps.mark_changed();
    let mut listed = BTreeSet::new();
    while maps.changed().await.is_ok() {
        let Some(adder) = adder.upgrade() else { return };
        let _turn = adder.turn.lock().await;
        let (targets, map) = (adder.targets.all(), adder.map.current());
        for target in leaving(targets, &mut listed, &map) {
            adder.withdraw(&target);
            tokio::spawn(close(target));
        }
    }
}

/// Those of `targets` that have left by this map. An earlier one had `listed` them: one that is about to enter has its number, and
/// no map has it yet.
fn leaving(
    targets: Vec<Arc<Target>>,
    listed: &mut BTreeSet<TargetId>,
    map: &ClusterMap,
) -> Vec<Arc<Target>> {
    let numbers: HashSet<u32> = map.targets.iter().map(|target| target.id).collect();
    let is_listed = |target: &Arc<Target>| numbers.contains(&target.id.0);
    let (here, missing): (Vec<_>, Vec<_>) = targets.into_iter().partition(is_listed);
    listed.extend(here.iter().map(|target| target.id));
    let leaves =
        |target: &Arc<Target>| map.has_left(target.id.0, &target.uuid) && listed.remove(&target.id);
    missing.into_iter().filter(leaves).collect()
}

/// Closes a target when nobody uses it any more. That writes to its disk, for which no task is to wait.
async fn close(target: Arc<Target>) {
    while is_used(&target) {
        tokio::time::sleep(PAUSE).await;
    }
    let (id, shown) = (target.id, target.path.display().to_string());
    if spawn_blocking(move || drop(target)).await.is_ok() {
        tracing::info!("target {id} has left the cluster and is closed; {shown} can be deleted");
    }
}

/// True if somebody else has it, or its store.
fn is_used(target: &Arc<Target>) -> bool {
    let is_open = target.store.as_ref().is_some_and(|store| Arc::strong_count(store) > 1);
    is_open || Arc::strong_count(target) > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::identity::Node;
    use std::path::Path;
    use strake_base::disk::{Disk, RealDisk};
    use strake_wire::message::manager::Target as Listed;

    fn target(top: &Path, number: u32) -> Target {
        let path = top.join(number.to_string());
        let mut target = Target::look(&path, &Node::default(), false).unwrap();
        target.id = TargetId(number);
        target
    }

    fn map(numbers: &[u32], next_target: u32) -> ClusterMap {
        let listed = |&id: &u32| Listed { id, ..Listed::default() };
        let targets = numbers.iter().map(listed).collect();
        ClusterMap { targets, next_target, ..ClusterMap::default() }
    }

    #[test]
    fn who_was_in_an_earlier_map_and_is_in_this_one_no_more_leaves() {
        let top = tempfile::tempdir().unwrap();
        let targets: Vec<_> = [1, 2, 3].map(|number| Arc::new(target(top.path(), number))).into();
        let mut listed = BTreeSet::new();
        let mut leave = |numbers: &[u32], next_target| -> Vec<u32> {
            let left = leaving(targets.clone(), &mut listed, &map(numbers, next_target));
            left.iter().map(|target| target.id.0).collect()
        };
        let nobody: [u32; 0] = [];
        assert_eq!(leave(&[1, 2], 4), nobody, "the third is about to enter");
        assert_eq!(leave(&[1, 2, 3], 4), nobody);
        assert_eq!(leave(&[1], 2), nobody, "a manager whose data are older than the others");
        assert_eq!(leave(&[1], 0), nobody, "one that does not say which numbers it has given out");
        assert_eq!(leave(&[1, 3], 4), [2]);
        assert_eq!(leave(&[1, 3], 4), nobody, "once");
    }

    /// Who held it last, perhaps a task, waited for its disk.
    #[tokio::test]
    async fn a_target_that_has_left_is_closed_when_nobody_uses_it_any_more() {
        let top = tempfile::tempdir().unwrap();
        let mut left = target(top.path(), 1);
        left.format(&"ab".repeat(16), TargetId(1), None).unwrap();
        let disk = RealDisk::new(&left.path).unwrap();
        let used = left.store.clone();
        let mut closing = tokio::spawn(close(Arc::new(left)));
        tokio::time::timeout(2 * PAUSE, &mut closing).await.unwrap_err();
        drop(used);
        closing.await.unwrap();
        assert!(disk.lock().is_ok(), "it is closed");
    }
}
