//! Locks on the bytes of a file, asked for without waiting. A `flock` is one on a file of a single byte.

use super::{Object, Verdict};
use std::collections::BTreeMap;

/// What is asked for on a range of bytes, from the first up to and without the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A lock that others may share.
    Share(u8, u8),
    /// A lock that nobody else has.
    Exclude(u8, u8),
    /// No lock.
    Unlock(u8, u8),
}

/// Who asks, and for what.
pub type Asked = (u32, Ask);

/// Locks by byte and owner; true: nobody else has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Locks(BTreeMap<(u8, u32), bool>);

/// An operation on locks: the owner is a process. It is told whether it was done; otherwise another
/// holds a lock in the way, and the owner keeps those that it had.
pub type Operation = super::Operation<Locks>;

/// Whether a history of a file that nobody has locked at first can have happened.
pub fn judge(history: &[Operation]) -> Verdict {
    super::judge(Locks::default(), history)
}

impl Object for Locks {
    type Ask = Asked;
    type Told = bool;
    type Step = ();

    fn after(
        &self,
        (owner, ask): &Asked,
        told: &bool,
        _step: Option<&()>,
    ) -> Vec<(Self, Option<()>)> {
        let (from, to, exclusive) = match *ask {
            Ask::Share(from, to) => (from, to, Some(false)),
            Ask::Exclude(from, to) => (from, to, Some(true)),
            Ask::Unlock(from, to) => (from, to, None),
        };
        let conflicts = |(&(byte, other), &held): (&(u8, u32), &bool)| {
            let both = exclusive.is_some_and(|exclusive| exclusive || held);
            (from..to).contains(&byte) && other != *owner && both
        };
        let refused = self.0.iter().any(conflicts);
        if refused == *told {
            return Vec::new();
        }
        let mut next = self.clone();
        if !refused {
            next.0.retain(|(byte, other), _| *other != *owner || !(from..to).contains(byte));
            next.0.extend((from..to).filter_map(|byte| Some(((byte, *owner), exclusive?))));
        }
        vec![(next, None)]
    }

    fn only_looks(_ask: &Asked, told: &bool) -> bool {
        !told
    }
}
