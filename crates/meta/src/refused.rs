//! Files of which targets have more than the metadata store would be told, for want of room: they wait to be cut.

use crate::in_turn::InTurn;
use parking_lot::Mutex;
use strake_types::Ino;

/// Files that wait, at most. What others have behind their ends `strake fsck` finds.
const FILES_MAX: usize = 65_536;

#[derive(Default)]
struct Waiting {
    in_turn: InTurn<()>,
    /// That there were too many has been said.
    said: bool,
}

/// The files of a volume that wait.
#[derive(Default)]
pub(crate) struct Refused(Mutex<Waiting>);

impl Refused {
    /// A file is to be cut. True, once, where there are too many.
    pub fn note(&self, ino: Ino) -> bool {
        let mut waiting = self.0.lock();
        let files = &mut waiting.in_turn.files;
        if files.len() < FILES_MAX || files.contains_key(&ino) {
            files.insert(ino, ());
            return false;
        }
        !std::mem::replace(&mut waiting.said, true)
    }

    /// It is, or will be by itself.
    pub fn forget(&self, ino: Ino) {
        self.0.lock().in_turn.files.remove(&ino);
    }

    /// True if a file waits.
    pub fn has(&self, ino: Ino) -> bool {
        self.0.lock().in_turn.files.contains_key(&ino)
    }

    /// The next ones, so many at most.
    pub fn next(&self, files_max: usize) -> Vec<Ino> {
        self.0.lock().in_turn.next(files_max, |()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_comes_to_its_turn() {
        let refused = Refused::default();
        (1..=5).for_each(|ino| assert!(!refused.note(Ino(ino))));
        assert_eq!(refused.next(2), [Ino(1), Ino(2)]);
        assert_eq!(refused.next(2), [Ino(3), Ino(4)]);
        refused.forget(Ino(1));
        assert_eq!(refused.next(9), [Ino(5), Ino(2), Ino(3), Ino(4)]);
        assert!(refused.has(Ino(2)) && !refused.has(Ino(1)));
    }

    #[test]
    fn that_there_are_too_many_is_said_once() {
        let refused = Refused::default();
        (0..FILES_MAX as u64).for_each(|ino| assert!(!refused.note(Ino(ino))));
        assert!(!refused.note(Ino(0)), "it is among them");
        let more = Ino(u64::MAX);
        assert!(refused.note(more) && !refused.note(more) && !refused.has(more));
        refused.forget(Ino(0));
        assert!(!refused.note(more) && refused.has(more));
    }
}
