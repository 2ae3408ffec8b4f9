//! What the metadata server was told of an open file, and may not have on its disk yet: until a sync.

use std::time::Duration;
use strake_types::Timestamp;

/// What was told so long before the server was heard last is on disk: a journal is synced each second, and takes no more after a
/// sync that fails. (One that lasts longer than this is not thought of.)
const AGE_MAX: Duration = Duration::from_secs(60);

/// What can be told once more.
#[derive(Clone, Copy, Default)]
pub(super) struct Again {
    /// The file is so long at least.
    pub(super) length: u64,
    /// When contents were written last.
    pub(super) mtime: Option<Timestamp>,
    pub(super) drop_setid: bool,
    /// The range of the contents inside the inode.
    pub(super) inline: Option<(usize, usize)>,
}

/// What is lost.
pub(super) struct Lost {
    /// To be told once more.
    pub(super) again: Option<Again>,
    /// There is something beside that.
    pub(super) more: bool,
}

/// What may get lost of an open file.
#[derive(Default)]
pub(crate) struct Volatile {
    /// How often something was told, or lost.
    marks: u64,
    again: Again,
    /// When that was told last; `None`: there is nothing.
    told: Option<Duration>,
    /// When something was told last that cannot be told once more.
    once: Option<Duration>,
}

impl Again {
    fn and(self, later: Again) -> Again {
        let inline = match (self.inline, later.inline) {
            (Some((from, to)), Some((start, end))) => Some((from.min(start), to.max(end))),
            (one, other) => one.or(other),
        };
        Again {
            length: self.length.max(later.length),
            mtime: later.mtime.or(self.mtime),
            drop_setid: self.drop_setid || later.drop_setid,
            inline,
        }
    }
}

impl Volatile {
    /// How much has been told.
    pub(crate) fn mark(&self) -> u64 {
        self.marks
    }

    /// Something was told; `None`: it cannot be told once more, nor can what was told before it, which it may have undone.
    pub(super) fn note(&mut self, again: Option<Again>, now: Duration) {
        self.marks += 1;
        match again {
            Some(again) => (self.again, self.told) = (self.again.and(again), Some(now)),
            None => {
                self.give_up();
                self.once = Some(now);
            }
        }
    }

    /// The file was cut when it was opened.
    pub(crate) fn note_cut(&mut self, now: Duration) {
        self.note(None, now);
    }

    /// Others may change the file: what was told is not told once more.
    pub(crate) fn give_up(&mut self) {
        self.once = self.once.max(self.told.take());
        self.again = Again::default();
    }

    /// All is on disk that had been told when there was so much.
    pub(crate) fn synced(&mut self, mark: u64) {
        if self.marks == mark {
            *self = Volatile { marks: mark, ..Volatile::default() };
        }
    }

    /// The server, `heard` last then, may have lost what it was told last.
    pub(super) fn lose(&mut self, heard: Duration) -> Lost {
        // No sync that has begun covers what is told once more.
        let marks = self.marks + 1;
        let lost = std::mem::replace(self, Volatile { marks, ..Volatile::default() });
        let is_recent = |at: &Duration| heard.saturating_sub(*at) < AGE_MAX;
        let again = lost.told.filter(is_recent).map(|_| lost.again);
        Lost { again, more: lost.once.filter(is_recent).is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn length(length: u64) -> Option<Again> {
        Some(Again { length, ..Again::default() })
    }

    #[test]
    fn what_a_sync_covers_is_what_was_told_before_it() {
        let mut volatile = Volatile::default();
        volatile.note(length(5), at(1));
        let mark = volatile.mark();
        volatile.note(length(4), at(2));
        volatile.synced(mark);
        assert_eq!((volatile.told, volatile.again.length), (Some(at(2)), 5));
        volatile.synced(volatile.mark());
        assert!(volatile.told.is_none() && volatile.again.length == 0);
        volatile.note(length(7), at(3));
        let mark = volatile.mark();
        assert_eq!(volatile.lose(at(3)).again.unwrap().length, 7);
        volatile.note(length(8), at(4));
        volatile.synced(mark + 1);
        assert_eq!(volatile.again.length, 8, "what was lost is no part of it");
    }

    /// A length of before a cut would have made the file longer again.
    #[test]
    fn what_was_told_before_a_cut_is_not_told_again_after_it() {
        let mut volatile = Volatile::default();
        volatile.note(length(100), at(1));
        volatile.note(None, at(2));
        volatile.note(length(10), at(3));
        let lost = volatile.lose(at(3));
        assert_eq!((lost.again.unwrap().length, lost.more), (10, true));
        assert!(volatile.lose(at(3)).again.is_none(), "once");
    }

    /// The machine takes its time to start.
    #[test]
    fn what_counts_is_how_long_the_server_was_heard_after_it_was_told() {
        for (heard, lost) in [(1, true), (60, true), (61, false)] {
            let mut volatile = Volatile::default();
            volatile.note(length(5), at(1));
            assert_eq!(volatile.lose(at(heard)).again.is_some(), lost, "{heard}");
        }
    }
}
