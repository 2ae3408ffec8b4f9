//! When something was taken back that answers under way may still tell otherwise.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use strake_types::Ino;

/// What was asked longer ago brings no lease: notes need be kept no longer.
pub(crate) const ANSWER_AGE_MAX: Duration = Duration::from_secs(4);
/// Most inodes noted; beyond, what was asked before the oldest note was made brings no lease.
const NOTES_MAX: usize = 4_096;

/// When an inode was last taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// A recall was followed: nothing that was asked before is believed.
    pub recalled: Duration,
    /// A change by this mount ended: names are not believed, nor attributes unless they are newer than
    /// those known.
    pub changed: Duration,
}

/// The notes of some inodes. They outlive whatever else is known of those.
#[derive(Default)]
pub(crate) struct Notes {
    notes: HashMap<Ino, Note>,
    /// When each was made, the oldest first; an inode may be here more than once.
    order: VecDeque<(Duration, Ino)>,
    /// Nothing that was asked before is believed, of any inode.
    floor: Duration,
}

impl Notes {
    /// The note of an inode, at least that of all.
    pub fn of(&self, ino: Ino) -> Note {
        let note = self.notes.get(&ino).copied().unwrap_or_default();
        Note { recalled: note.recalled.max(self.floor), changed: note.changed.max(self.floor) }
    }

    /// Changes the note of an inode at a time, which is not before that of any other.
    pub fn note(&mut self, ino: Ino, now: Duration, change: impl FnOnce(&mut Note)) {
        change(self.notes.entry(ino).or_default());
        if self.order.back() != Some(&(now, ino)) {
            self.order.push_back((now, ino));
        }
        while let Some(&(made, old)) = self.order.front() {
            let aged = made + ANSWER_AGE_MAX < now;
            if !aged && self.order.len() <= NOTES_MAX {
                return;
            }
            self.order.pop_front();
            let last = |note: &Note| note.recalled.max(note.changed) <= made;
            if self.notes.get(&old).is_some_and(last) {
                self.notes.remove(&old);
            }
            if !aged {
                self.floor = self.floor.max(made);
            }
        }
    }

    /// Nothing that was asked before is believed.
    pub fn note_all(&mut self, now: Duration) {
        self.floor = self.floor.max(now);
        self.notes.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn recall(notes: &mut Notes, ino: u64, at: Duration) {
        notes.note(Ino(ino), at, |note| note.recalled = at);
    }

    #[test]
    fn a_note_is_kept_as_long_as_an_answer_may_be_under_way() {
        let mut notes = Notes::default();
        recall(&mut notes, 1, ms(10));
        notes.note(Ino(1), ms(20), |note| note.changed = ms(20));
        assert_eq!(notes.of(Ino(1)), Note { recalled: ms(10), changed: ms(20) });
        recall(&mut notes, 2, ms(4_015));
        assert_eq!(notes.of(Ino(1)).recalled, ms(10), "the inode was noted again");
        recall(&mut notes, 2, ms(4_021));
        assert_eq!(notes.of(Ino(1)), Note::default());
        assert_eq!((notes.notes.len(), notes.order.len()), (1, 2));
    }

    #[test]
    fn too_many_notes_become_one_for_all() {
        let mut notes = Notes::default();
        for nth in 1..=NOTES_MAX as u64 + 1 {
            recall(&mut notes, nth, Duration::from_micros(nth));
        }
        assert_eq!(notes.of(Ino(u64::MAX)).recalled, Duration::from_micros(1));
        assert_eq!(notes.notes.len(), NOTES_MAX);
        notes.note_all(ms(50));
        assert_eq!(notes.of(Ino(3)), Note { recalled: ms(50), changed: ms(50) });
    }
}
