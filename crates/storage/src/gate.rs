//! Groups that one target has alone: how they become groups of several members, and back.
//!
//! Such a group needs neither numbers nor leases, so its operations go straight to the target's store,
//! each with a [`Pass`] of the group's gate. While a group moves to another target it has several
//! members for the time, and what orders its changes then is a replica. A replica that begins closes
//! the gate once: whoever has come in before ends first, and whoever comes later looks at the map
//! inside and finds the replica. What is cleared away goes through the same gate.

use crate::target::Target;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_base::random::mixed;
use strake_types::{Epoch, Error, ErrorKind, GroupId, TargetId};
use strake_wire::message::manager::Group;
use tokio::sync::{OnceCell, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Each time so many gates were made, those that nobody needs are taken away.
const SWEEP_EVERY: usize = 1024;

/// Who uses a group's chunks on a target without a replica.
#[derive(Default)]
pub(crate) struct Gate {
    lock: Arc<RwLock<()>>,
    /// The manager knows that the group is used.
    pub used: OnceCell<()>,
    /// Nothing is under way inside of sessions that were fenced up to this epoch of the map.
    fenced: AtomicU64,
    /// Something may have come, whether or not it was counted since.
    filled: AtomicBool,
}

/// As long as somebody has one, no replica of the group begins on the target, and nothing is cleared
/// away.
#[derive(Clone)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    _inside: Arc<OwnedRwLockReadGuard<()>>,
}

/// The gates of a server, by target and group.
#[derive(Default)]
pub(crate) struct Gates(Mutex<HashMap<(TargetId, GroupId), Arc<Gate>>>);

impl Gate {
    /// Waits for a replica that begins, or for who clears away.
    pub async fn enter(self: Arc<Self>) -> Pass {
        let inside = Arc::new(self.lock.clone().read_owned().await);
        Pass { gate: self, _inside: inside }
    }

    /// Waits until nobody is inside who came in before the map said which sessions are fenced up to this
    /// epoch. Whoever comes later looks at that map.
    pub async fn fence(&self, epoch: Epoch) {
        if self.fenced.load(Ordering::Acquire) < epoch.0 {
            let _alone = self.lock.write().await;
            self.fenced.fetch_max(epoch.0, Ordering::Release);
        }
    }

    /// Waits until nobody is inside.
    pub async fn close(&self) -> OwnedRwLockWriteGuard<()> {
        self.lock.clone().write_owned().await
    }

    /// Something may come from now on.
    pub fn fill(&self) {
        // Of many changes the first says it: a write would cost the others the line of the cache.
        if !self.filled.load(Ordering::Acquire) {
            self.filled.store(true, Ordering::Release);
        }
    }

    /// Nothing is there any more, or somebody else remembers that something may be.
    pub fn empty(&self) {
        self.filled.store(false, Ordering::Release);
    }

    /// Nobody has it but the gates of the server, nor is inside, and another one would do as well.
    fn is_idle(self: &Arc<Self>) -> bool {
        let (gates, insides) = (Arc::strong_count(self), Arc::strong_count(&self.lock));
        let remembers = self.filled.load(Ordering::Acquire) || self.used.initialized();
        gates == 1 && insides == 1 && !remembers
    }
}

impl Pass {
    /// The gate that was passed.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Gates {
    /// The gate of a group on a target. The group may be one that does not exist: any client can ask about it.
    pub fn of(&self, target: TargetId, group: GroupId) -> Arc<Gate> {
        let mut gates = self.0.lock();
        if let Some(known) = gates.get(&(target, group)) {
            return known.clone();
        }
        if (gates.len() + 1).is_multiple_of(SWEEP_EVERY) {
            gates.retain(|_, gate| !gate.is_idle());
        }
        gates.entry((target, group)).or_default().clone()
    }

    /// Where something may have come since this server began, and was not seen to be gone.
    pub fn filled(&self) -> BTreeSet<(TargetId, GroupId)> {
        let gates = self.0.lock();
        let filled = gates.iter().filter(|(_, gate)| gate.filled.load(Ordering::Acquire));
        filled.map(|(place, _)| *place).collect()
    }
}

/// What a target's answers for a group of one copy name as their boot. A group that has moved goes on
/// with the word that it had before, as long as the target speaks from the boot from which it took
/// over.
pub(crate) fn word_of(group: Option<&Group>, target: &Target) -> u64 {
    let boot = target.store.boot();
    let Some(group) = group.filter(|group| group.word != 0) else { return boot };
    let vouches =
        |v: &strake_wire::message::manager::Voucher| (v.target, v.boot) == (target.id.0, boot);
    match group.vouchers.iter().any(vouches) {
        true => group.word,
        false => mixed(group.word ^ boot).max(1),
    }
}

/// Refuses what is asked of a target about a group of which it is no member.
pub(crate) fn no_member(target: TargetId, group: GroupId) -> Error {
    let detail = format!("target {target} is no member of group {group}");
    Error::with(ErrorKind::StaleMap, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asked about groups that do not exist, for which nobody has to show a right, had the memory grow for ever.
    #[tokio::test]
    async fn gates_that_nobody_needs_do_not_stay() {
        let gates = Gates::default();
        let of = |group| gates.of(TargetId(1), GroupId(group));
        of(0).fill();
        of(1).used.set(()).unwrap();
        let inside = (of(2).enter().await, of(3).close().await);
        let known = of(4);
        (5..10_000).for_each(|group| drop(of(group)));
        let left = gates.0.lock();
        assert!(left.len() <= SWEEP_EVERY, "{}", left.len());
        assert!((0..5).all(|group| left.contains_key(&(TargetId(1), GroupId(group)))));
        drop((inside, known));
    }
}
