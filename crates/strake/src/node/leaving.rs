//! Targets that leave the cluster while their server runs, as by `target remove` and `target replace`: they are served no more, and
//! closed. Of those that left before the server began, [`super::left`] and [`super::added`] tell.

use super::add::Adder;
use super::identity::{Node, TargetRecord};
use super::left::{Holds, holds};
use super::stores::Target;
use crate::failure::Outcome;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_types::TargetId;
use strake_wire::message::manager::ClusterMap;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time between two looks whether anybody uses a target still.
const PAUSE: Duration = Duration::from_millis(200);
/// After so long it is told that a target is used still.
const PATIENCE: Duration = Duration::from_secs(60);

/// Withdraws those that leave, as long as there is who adds others.
pub async fn watch(adder: Weak<Adder>) {
    let Some(mut maps) = adder.upgrade().map(|adder| adder.map.watch()) else { return };
    // That of now counts, too.
    maps.mark_changed();
    let mut seen = Seen::default();
    while maps.changed().await.is_ok() {
        let Some(adder) = adder.upgrade() else { return };
        let _turn = adder.turn.lock().await;
        let leaving = seen.leaving(adder.targets.all(), &adder.map.current());
        let records: Vec<_> = leaving.iter().map(|target| target.record()).collect();
        for target in leaving {
            adder.withdraw(&target);
            tokio::spawn(close(target));
        }
        if records.is_empty() {
            continue;
        }
        let home = adder.home.clone();
        if let Ok(Err(failure)) = spawn_blocking(move || note_numbers(&home, &records)).await {
            tracing::warn!(
                "what has left the cluster may be let in again at the next start: {failure}"
            );
        }
    }
}

/// What the maps have said until now.
#[derive(Default)]
struct Seen {
    /// Targets of this server that one has listed.
    listed: BTreeSet<TargetId>,
    /// The largest number that one has called the next.
    next_target: u32,
    /// A later one knew of fewer, or had given a number of these to another target: the manager's data are older than they were.
    went_back: bool,
}

impl Seen {
    /// Those of `targets` that have left by this map, and that an earlier one had listed: one that is about to enter has its number,
    /// and no map has it yet. None once a manager has older data than another one had: it knows nothing of those that came since,
    /// and gives their numbers to others.
    fn leaving(&mut self, targets: Vec<Arc<Target>>, map: &ClusterMap) -> Vec<Arc<Target>> {
        let listed: HashMap<_, _> = map.targets.iter().map(|t| (t.id, &*t.spec.uuid)).collect();
        let is_listed = |target: &Arc<Target>| listed.get(&target.id.0) == Some(&&*target.uuid);
        let (here, missing): (Vec<_>, Vec<_>) = targets.into_iter().partition(is_listed);
        // 0 is that of a release which does not say.
        let knows_fewer = (1..self.next_target).contains(&map.next_target);
        let is_anothers = |target: &Arc<Target>| {
            self.listed.contains(&target.id) && listed.contains_key(&target.id.0)
        };
        if (knows_fewer || missing.iter().any(is_anothers)) && !self.went_back {
            self.went_back = true;
            tracing::warn!(
                "the manager's data are older than they were: until this server is restarted it closes no target that leaves"
            );
        }
        self.next_target = self.next_target.max(map.next_target);
        self.listed.extend(here.iter().map(|target| target.id));
        if self.went_back {
            return Vec::new();
        }
        let leaves = |target: &Arc<Target>| {
            map.has_left(target.id.0, &target.uuid) && self.listed.remove(&target.id)
        };
        missing.into_iter().filter(leaves).collect()
    }
}

/// Notes the numbers of targets that have left of which nobody had heard that they had entered ([`Adder`]): the next start would
/// let them in again.
fn note_numbers(home: &Path, left: &[TargetRecord]) -> Outcome {
    let mut node = Node::read(home)?;
    for record in node.targets.iter_mut().filter(|record| record.target == 0) {
        let known = left.iter().find(|target| target.uuid == record.uuid);
        record.target = known.map_or(0, |target| target.target);
    }
    node.write(home)
}

/// Closes a target when nobody uses it any more, and tells of it.
async fn close(target: Arc<Target>) {
    let TargetRecord { path, uuid, target: id, .. } = target.record();
    let mut closing = std::pin::pin!(close_unused(target));
    let held = match timeout(PATIENCE, &mut closing).await {
        Ok(held) => held,
        Err(_waits) => {
            tracing::warn!(
                "target {id} has left the cluster, and calls to its disk are under way still: it is closed when they end, or \
                 its server is restarted"
            );
            closing.await
        }
    };
    match held {
        Some(Holds::Target(found)) if found == uuid => tracing::info!(
            "target {id} has left the cluster and is closed; {} can be deleted",
            path.display()
        ),
        // Another one may have taken its place meanwhile.
        Some(_) => tracing::info!("target {id} has left the cluster and is closed"),
        None => {}
    }
}

/// Closes a target when nobody uses it any more. What is in its directory then.
async fn close_unused(target: Arc<Target>) -> Option<Holds> {
    while is_used(&target) {
        tokio::time::sleep(PAUSE).await;
    }
    // That writes to its disk, for which no task is to wait.
    let closed = spawn_blocking(move || {
        let path = target.path.clone();
        drop(target);
        holds(&path)
    });
    closed.await.ok()
}

/// True if somebody else has it, or its store.
fn is_used(target: &Arc<Target>) -> bool {
    let is_open = target.store.as_ref().is_some_and(|store| Arc::strong_count(store) > 1);
    is_open || Arc::strong_count(target) > 1
}

#[cfg(test)]
mod tests;
