//! How far cuts of very many chunks have come that have not ended.

use parking_lot::Mutex;
use std::collections::HashMap;
use strake_types::{GroupId, Ino};

/// How far a cut has come in a group.
#[derive(Clone, Copy)]
pub(crate) struct Half {
    /// The last chunk that is left.
    pub left: u64,
    /// From which boot that was said: after another one, what was cut may be back.
    pub boot: u64,
}

/// Cuts that go on when their clients ask again. What is written behind what is left is not cut then. Of others, as after a
/// restart of this server, all behind the new end is cut once more.
#[derive(Default)]
pub(crate) struct HalfCuts(Mutex<HashMap<(Ino, GroupId), Half>>);

impl HalfCuts {
    /// The cut of a file is to go on from there.
    pub fn note(&self, ino: Ino, group: GroupId, half: Half) {
        self.0.lock().insert((ino, group), half);
    }

    /// Where it goes on. Should it fail, it begins anew.
    pub fn take(&self, ino: Ino, group: GroupId) -> Option<Half> {
        self.0.lock().remove(&(ino, group))
    }

    /// The file is to be cut elsewhere, or deleted.
    pub fn forget(&self, ino: Ino) {
        self.0.lock().retain(|(of, _), _| *of != ino);
    }
}
