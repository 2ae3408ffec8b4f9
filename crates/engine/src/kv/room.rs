//! What is known of the room in a database.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How often a database that was full is tried.
const TRY_PAUSE: Duration = Duration::from_secs(2);
/// How long it is called full after the last commit that found no room: where nobody writes, nobody finds out that there is some
/// again.
const TOLD: Duration = Duration::from_secs(60);

/// Whether commits find room in a database.
///
/// It may come from elsewhere, and nobody tells. So now and then one that takes room is let through to a database that was
/// full, and what becomes of it tells. A small write of our own would tell less: it finds a place in a page where a larger
/// one needs another page.
#[derive(Default)]
pub struct Room {
    /// `None`: the last commit found room.
    lack: Mutex<Option<Lack>>,
}

/// That there was none.
#[derive(Clone, Copy)]
struct Lack {
    /// When the last commit met that.
    met: Instant,
    /// When the next one is let through.
    next_try: Instant,
}

impl Room {
    /// Notes that a commit found room.
    pub fn note_found(&self) {
        *self.lack.lock() = None;
    }

    /// Notes that a commit found none.
    pub fn note_full(&self) {
        self.note_full_at(Instant::now());
    }

    /// True if what takes room is to be refused. Where it is not, although there was none, the caller is the one who tries.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.refuses_at(Instant::now())
    }

    /// True if the last commit found none, and that is not long ago. Who asks that tries nothing.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full_at(Instant::now())
    }

    fn note_full_at(&self, now: Instant) {
        let mut lack = self.lack.lock();
        let next_try = lack.map_or(now + TRY_PAUSE, |lack| lack.next_try);
        *lack = Some(Lack { met: now, next_try });
    }

    fn refuses_at(&self, now: Instant) -> bool {
        match &mut *self.lack.lock() {
            None => false,
            Some(lack) if now < lack.next_try => true,
            Some(lack) => {
                lack.next_try = now + TRY_PAUSE;
                false
            }
        }
    }

    fn is_full_at(&self, now: Instant) -> bool {
        self.lack.lock().is_some_and(|lack| now < lack.met + TOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_who_ask_a_full_database_one_is_let_through_now_and_then() {
        let (room, start) = (Room::default(), Instant::now());
        let later = |tries: u32| start + TRY_PAUSE * tries;
        assert!(!room.refuses_at(start));
        room.note_full_at(start);
        assert!(room.refuses_at(start));
        assert!(!room.refuses_at(later(1)));
        assert!(room.refuses_at(later(1)), "another tries already");
        // What goes on failing meanwhile keeps nobody from trying.
        room.note_full_at(later(1));
        assert!(!room.refuses_at(later(2)));
        room.note_found();
        assert!(!room.refuses_at(later(2)) && !room.refuses_at(later(2)));
    }

    #[test]
    fn who_only_tells_of_a_full_database_takes_nobody_s_turn_to_try() {
        let (room, start) = (Room::default(), Instant::now());
        let next = start + TRY_PAUSE;
        assert!(!room.is_full_at(start));
        room.note_full_at(start);
        assert!(room.is_full_at(start) && room.is_full_at(next));
        assert!(!room.refuses_at(next) && room.is_full_at(next), "it is still tried");
        room.note_full_at(next);
        assert!(room.is_full_at(start + TOLD));
        assert!(!room.is_full_at(next + TOLD), "nobody writes any more");
        room.note_full_at(next + TOLD);
        room.note_found();
        assert!(!room.is_full_at(next + TOLD));
    }
}
