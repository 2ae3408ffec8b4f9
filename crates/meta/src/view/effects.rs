//! What only memory knows of a change.

use crate::core::Core;
use crate::session::Session;
use crate::volume::Volume;
use std::sync::Arc;
use strake_types::Ino;

/// What comes of a change in memory once it is made, whoever waits for it.
#[derive(Default)]
pub(super) struct Effects {
    /// Whose files are opened, whether for writing, in which incarnation of the session, and by which number;
    pub opens: Vec<(Arc<Session>, Ino, bool, u64, u64)>,
    /// and closed that were opened in this incarnation.
    pub closes: Vec<(Arc<Session>, Ino, u64)>,
    /// Inodes that are gone.
    pub gone: Vec<Ino>,
    /// Something is to be done later,
    pub queued: bool,
    /// or at once.
    pub due: bool,
}

impl Effects {
    /// They come about.
    pub fn bring_about(&self, core: &Core, volume: &Volume) {
        self.gone.iter().for_each(|ino| volume.leases.forget(*ino));
        for (session, ino, writes, incarnation, seq) in &self.opens {
            volume.sessions.open(session, *ino, *writes, *incarnation, *seq);
        }
        let mut work = self.due;
        for (session, ino, incarnation) in &self.closes {
            work |= volume.sessions.close(session, *ino, *incarnation);
        }
        if self.queued {
            // What has time is found at the next turn.
            volume.chores.note();
        }
        if work {
            core.has_work(volume);
        }
    }
}
