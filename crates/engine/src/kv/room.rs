//! What is known of the room in a database.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How often a database that was full is tried.
const TRY_PAUSE: Duration = Duration::from_secs(2);
/// For how long it is told that a commit found no room: longer than until the next one meets that, as long as anybody tries.
const TOLD: Duration = Duration::from_secs(10);

/// Whether commits find room in a database.
///
/// It may come from elsewhere, and nobody tells. So now and then one that takes room is let through to a database that was
/// full, and what becomes of it tells. A small write of our own would tell less: it finds a place in a page where a larger
/// one needs another page.
#[derive(Default)]
pub struct Room {
    /// When the next one is let through; `None`: the last commit found room.
    next_try: Mutex<Option<Instant>>,
    /// When a commit found none last, whatever others have found since.
    met: Mutex<Option<Instant>>,
}

impl Room {
    /// Notes that a commit found room.
    pub fn note_found(&self) {
        *self.next_try.lock() = None;
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

    /// True if a commit found none a moment ago: people are told so. Who asks that takes nobody's turn to try.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full_at(Instant::now())
    }

    fn note_full_at(&self, now: Instant) {
        self.next_try.lock().get_or_insert(now + TRY_PAUSE);
        *self.met.lock() = Some(now);
    }

    fn refuses_at(&self, now: Instant) -> bool {
        let mut next_try = self.next_try.lock();
        let Some(at) = *next_try else { return false };
        if now < at {
            return true;
        }
        *next_try = Some(now + TRY_PAUSE);
        false
    }

    fn is_full_at(&self, now: Instant) -> bool {
        self.met.lock().is_some_and(|met| now < met + TOLD)
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

    /// In a full PostgreSQL what is small finds a place now and then: the alarm came and went. And who met it once was told of it
    /// for long, with nobody to try.
    #[test]
    fn that_a_database_is_full_is_told_while_commits_meet_it_whatever_others_find() {
        let (room, mut now) = (Room::default(), Instant::now());
        assert!(!room.is_full_at(now));
        for _ in 0..10 {
            room.note_full_at(now);
            assert!(room.is_full_at(now));
            room.note_found();
            assert!(!room.refuses_at(now) && room.is_full_at(now));
            now += TRY_PAUSE;
            assert!(room.is_full_at(now));
        }
        room.note_full_at(now);
        assert!(room.is_full_at(now + TRY_PAUSE));
        assert!(!room.refuses_at(now + TRY_PAUSE), "who asked that took nobody's turn");
        assert!(!room.is_full_at(now + TOLD));
    }
}
