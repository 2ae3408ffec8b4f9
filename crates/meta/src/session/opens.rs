//! How often a session has a file open. Each request that opens one counts once in an incarnation of its session, however
//! often it is sent, and whether its answer is made anew or was stored: so does its client count, who closes each once.

use super::{Opens, Session, Sessions};
use crate::ledger::Ledger;
use std::sync::atomic::Ordering;
use strake_types::Ino;

/// Most numbers remembered of one session; a request that is forgotten counts once more if it is sent again.
const NUMBERS_MAX: usize = 65_536;

impl Opens {
    /// Notes that the request with this number counts (0: it has none). False if it does already.
    fn note(&mut self, seq: u64, ledger: &Ledger) -> bool {
        let counts = seq == 0 || self.numbers.insert(seq);
        while self.numbers.len() > NUMBERS_MAX
            || self.numbers.first().is_some_and(|seq| ledger.is_over(*seq))
        {
            self.numbers.pop_first();
        }
        counts
    }
}

impl Session {
    /// True if the request with this number has opened a file, which counts in this incarnation.
    pub fn has_opened(&self, incarnation: u64, seq: u64) -> bool {
        let own = self.opens.lock();
        own.incarnation == incarnation && own.numbers.contains(&seq)
    }
}

impl Sessions {
    /// The session has opened a file in this incarnation by the request with this number, and may write to it.
    pub fn open(&self, session: &Session, ino: Ino, writes: bool, incarnation: u64, seq: u64) {
        self.add(session, ino, writes, incarnation, |own| own.note(seq, &session.ledger));
    }

    /// The same, for an answer that is given again. True if it counts from now on; not what it did before, nor where the
    /// answer is wanted no more.
    pub fn open_again(&self, session: &Session, ino: Ino, incarnation: u64, seq: u64) -> bool {
        let ledger = &session.ledger;
        let counts = |own: &mut Opens| !ledger.is_over(seq) && own.note(seq, ledger);
        // Nobody remembers how it was opened: where another handle of the session only reads, this one may write.
        self.add(session, ino, true, incarnation, counts)
    }

    fn add(
        &self,
        session: &Session,
        ino: Ino,
        writes: bool,
        incarnation: u64,
        counts: impl FnOnce(&mut Opens) -> bool,
    ) -> bool {
        let mut opens = self.opens.lock();
        let mut own = session.opens.lock();
        if own.incarnation != incarnation || session.ended.load(Ordering::Acquire) {
            return false;
        }
        let counts = counts(&mut own);
        // A late copy of what is closed already opens nothing.
        if counts || own.counts.contains_key(&ino) {
            opens.add(ino, counts.into(), writes.then_some(session.id));
            let open = own.counts.entry(ino).or_default();
            (open.count, open.writes) = (open.count + u32::from(counts), open.writes | writes);
            if writes {
                open.wake();
            }
        }
        counts
    }

    /// What the request with this number has opened is closed: it fails, and counts anew if it is sent again. True if nobody
    /// has the file open any more.
    pub fn take_back(&self, session: &Session, ino: Ino, incarnation: u64, seq: u64) -> bool {
        let mut own = session.opens.lock();
        if own.incarnation == incarnation {
            own.numbers.remove(&seq);
        }
        drop(own);
        self.close(session, ino, incarnation)
    }

    /// The session has closed a file once that it opened in this incarnation. True if nobody has it open any
    /// more.
    pub fn close(&self, session: &Session, ino: Ino, incarnation: u64) -> bool {
        let mut opens = self.opens.lock();
        let mut own = session.opens.lock();
        let then = own.incarnation;
        let Some(open) = own.counts.get_mut(&ino) else { return false };
        if then != incarnation {
            return false;
        }
        open.count -= 1;
        if open.count == 0 {
            own.counts.remove(&ino);
            opens.writes_no_more(ino, session.id);
            self.claims.give_up(ino, session.id);
            self.told.notify_waiters();
        }
        opens.take(ino, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(9);

    fn session() -> (Sessions, Session) {
        (Sessions::default(), Session::new(1, "test".into(), Ledger::default(), 100, false))
    }

    fn count(session: &Session) -> u32 {
        session.opens.lock().counts.get(&INO).map_or(0, |open| open.count)
    }

    /// Of those that were answered again one counted for all.
    #[test]
    fn each_request_counts_once_in_an_incarnation_in_whatever_order_it_is_answered() {
        let (sessions, own) = session();
        [1, 2].into_iter().for_each(|seq| sessions.open(&own, INO, true, 0, seq));
        assert!([2, 1].into_iter().all(|seq| !sessions.open_again(&own, INO, 0, seq)));
        sessions.open(&own, INO, true, 0, 1);
        assert_eq!(count(&own), 2);
        sessions.resume(&own, &[INO.0], &[], 1);
        assert!(!own.has_opened(0, 1) && !own.has_opened(1, 1));
        assert!([2, 1].into_iter().all(|seq| sessions.open_again(&own, INO, 1, seq)));
        assert!([1, 2].into_iter().all(|seq| !sessions.open_again(&own, INO, 1, seq)));
        assert!(!sessions.open_again(&own, INO, 0, 3), "it is of an earlier incarnation");
        assert!(own.has_opened(1, 1) && !own.has_opened(1, 3));
        assert_eq!(count(&own), 3, "one more of each than was named");
        assert!((0..3).map(|_| sessions.close(&own, INO, 1)).eq([false, false, true]));
        assert!(!sessions.open_again(&own, INO, 1, 1));
        assert!(!sessions.may_hold(INO), "a late copy opens nothing");
    }

    #[test]
    fn what_was_taken_back_counts_when_it_is_sent_again() {
        let (sessions, own) = session();
        [1, 2].into_iter().for_each(|seq| sessions.open(&own, INO, true, 0, seq));
        assert!(!sessions.take_back(&own, INO, 1, 2), "of another incarnation");
        assert!(own.has_opened(0, 2) && count(&own) == 2);
        assert!(!sessions.take_back(&own, INO, 0, 2));
        assert!(!own.has_opened(0, 2) && count(&own) == 1);
        assert!(sessions.open_again(&own, INO, 0, 2) && !sessions.open_again(&own, INO, 0, 1));
        assert_eq!(count(&own), 2);
    }

    #[test]
    fn numbers_are_remembered_until_the_client_has_heard_of_them() {
        let (sessions, own) = session();
        let last = NUMBERS_MAX as u64 + 1;
        (1..=last).for_each(|seq| sessions.open(&own, INO, false, 0, seq));
        assert!(!own.has_opened(0, 1), "there is a bound to them");
        assert!(own.has_opened(0, 2) && own.has_opened(0, last));
        own.ledger.heard(last, &[]);
        sessions.open(&own, INO, false, 0, last + 1);
        assert_eq!(own.opens.lock().numbers.len(), 1, "all others were answered");
        assert!(!sessions.open_again(&own, INO, 0, last), "nobody waits for it");
        assert_eq!(u64::from(count(&own)), last + 1);
    }
}
