//! Sessions: who is connected, until when, and what they hold open.
//!
//! Opens are counted in memory only. After a restart the sessions are read back from the store and
//! get a grace time to come back and tell what they hold open; until each has come back or has
//! expired, no file without a name is deleted ([`Sessions::may_hold`]).

use crate::leases::Holder;
use crate::ledger::Ledger;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_types::{Error, ErrorKind, Ino, Result};

/// One client's session.
pub(crate) struct Session {
    /// Its id.
    pub id: u64,
    /// Who the client is, for people.
    pub client: String,
    /// Replies to its mutations.
    pub ledger: Ledger,
    /// What is leased to it.
    pub holder: Arc<Holder>,
    /// Monotonic time at which it expires.
    deadline_ms: AtomicU64,
    /// It was read back after a restart and has not come back yet.
    absent: AtomicBool,
    /// It is over, and what it held is about to be given back.
    lost: AtomicBool,
    /// Of a lost one: what is known of the lengths of its files.
    pub settling: Mutex<Settling>,
    /// It was taken out: what is still under way in it opens and locks nothing.
    ended: AtomicBool,
    /// Number of its last report of closed files.
    reported: AtomicU64,
    opens: Mutex<Opens>,
}

/// How far the lengths of a lost session's files are settled.
#[derive(Default)]
pub(crate) struct Settling {
    /// Monotonic time at which that began.
    pub since_ms: Option<u64>,
    /// Files of which nothing more is to be done.
    pub done: HashSet<Ino>,
}

/// The files that a session holds open, and how often.
#[derive(Default)]
struct Opens {
    /// Counted in this incarnation of the session: what another one opens or closes is not among them.
    incarnation: u64,
    counts: HashMap<Ino, u32>,
}

impl Session {
    /// A session that lives until `deadline_ms` if it does not come back.
    pub fn new(id: u64, client: String, ledger: Ledger, deadline_ms: u64, absent: bool) -> Self {
        Session {
            id,
            client,
            ledger,
            holder: Holder::new(id),
            deadline_ms: AtomicU64::new(deadline_ms),
            absent: AtomicBool::new(absent),
            lost: AtomicBool::new(false),
            settling: Mutex::default(),
            ended: AtomicBool::new(false),
            reported: AtomicU64::new(0),
            opens: Mutex::default(),
        }
    }

    /// It is alive: it lives until `deadline_ms`.
    pub fn renew(&self, deadline_ms: u64) {
        self.deadline_ms.store(deadline_ms, Ordering::Relaxed);
    }

    /// True if a request of this incarnation has to wait until the client has said what it has open: what it
    /// opened would not be counted.
    pub fn is_outdated(&self, incarnation: u64) -> bool {
        self.is_absent() || self.opens.lock().incarnation != incarnation
    }

    /// True if it was there before a restart and has not come back.
    pub fn is_absent(&self) -> bool {
        self.absent.load(Ordering::Acquire)
    }

    /// It is over: its client is refused from now on. True if it was not before.
    pub fn lose(&self) -> bool {
        !self.lost.swap(true, Ordering::AcqRel)
    }

    /// True if it is lost.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// True if what it held is being given back.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Fails if nothing is to be done in it any more.
    pub fn check(&self) -> Result<()> {
        if self.is_lost() || self.has_ended() {
            return Err(Error::with(ErrorKind::NoSession, format!("session {} is over", self.id)));
        }
        Ok(())
    }

    /// False if a report of closed files was there before; 0: one without a number.
    pub fn is_news(&self, number: u64) -> bool {
        number == 0 || self.reported.fetch_max(number, Ordering::AcqRel) < number
    }

    /// Monotonic time at which it expires.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms.load(Ordering::Relaxed)
    }

    /// True if its time is over.
    pub fn expired(&self, now_ms: u64) -> bool {
        self.deadline_ms.load(Ordering::Relaxed) <= now_ms
    }
}

/// The sessions of a volume.
#[derive(Default)]
pub(crate) struct Sessions {
    all: RwLock<HashMap<u64, Arc<Session>>>,
    /// How often each file is open, over all sessions. Lock order: before a session's own map.
    opens: Mutex<HashMap<Ino, u32>>,
}

impl Sessions {
    /// Enters a session.
    pub fn insert(&self, session: Arc<Session>) {
        self.all.write().insert(session.id, session);
    }

    /// The session with this id.
    pub fn get(&self, id: u64) -> Option<Arc<Session>> {
        self.all.read().get(&id).cloned()
    }

    /// What is leased to each session.
    pub fn holders(&self) -> Vec<Arc<Holder>> {
        self.all.read().values().map(|session| session.holder.clone()).collect()
    }

    /// Every session.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.all.read().values().cloned().collect()
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.all.read().len()
    }

    /// A session opens nothing any more, and what it held open is closed.
    pub fn end(&self, session: &Session) {
        let mut opens = self.opens.lock();
        let mut own = session.opens.lock();
        session.ended.store(true, Ordering::Release);
        for (ino, count) in std::mem::take(&mut own.counts) {
            take(&mut opens, ino, count);
        }
    }

    /// Takes a session out that has ended.
    pub fn remove(&self, session: &Session) {
        self.all.write().remove(&session.id);
    }

    /// A new incarnation of a session holds these files open, each once. What it held before and does not
    /// name is closed. Returns files that nobody has open any more. A request that comes a second time, or
    /// after a later one, changes nothing.
    pub fn resume(&self, session: &Session, open: &[u64], incarnation: u64) -> Vec<Ino> {
        let mut opens = self.opens.lock();
        let mut own = session.opens.lock();
        let late = incarnation != 0 && incarnation <= own.incarnation;
        if late || session.ended.load(Ordering::Acquire) {
            return Vec::new();
        }
        own.incarnation = incarnation;
        let before = std::mem::take(&mut own.counts);
        for &ino in open {
            if own.counts.insert(Ino(ino), 1).is_none() {
                *opens.entry(Ino(ino)).or_default() += 1;
            }
        }
        session.absent.store(false, Ordering::Release);
        before
            .into_iter()
            .filter(|(ino, count)| take(&mut opens, *ino, *count))
            .map(|h| h.0)
            .collect()
    }

    /// The session has opened a file in this incarnation.
    pub fn open(&self, session: &Session, ino: Ino, incarnation: u64) {
        let mut opens = self.opens.lock();
        let mut own = session.opens.lock();
        let ended = session.ended.load(Ordering::Acquire);
        if own.incarnation == incarnation && !ended {
            *opens.entry(ino).or_default() += 1;
            *own.counts.entry(ino).or_default() += 1;
        }
    }

    /// The session has closed a file once that it opened in this incarnation. True if nobody has it open any
    /// more.
    pub fn close(&self, session: &Session, ino: Ino, incarnation: u64) -> bool {
        let mut opens = self.opens.lock();
        let mut own = session.opens.lock();
        if own.incarnation != incarnation || !own.counts.contains_key(&ino) {
            return false;
        }
        take(&mut own.counts, ino, 1);
        take(&mut opens, ino, 1)
    }

    /// The files that a session holds open.
    pub fn held(&self, session: &Session) -> Vec<Ino> {
        session.opens.lock().counts.keys().copied().collect()
    }

    /// True if the session holds the file open.
    pub fn holds(&self, session: &Session, ino: Ino) -> bool {
        session.opens.lock().counts.contains_key(&ino)
    }

    /// Every session, and how often it has the file open.
    pub fn users_of(&self, ino: Ino) -> Vec<(Arc<Session>, u32)> {
        let all = self.all.read();
        let opens = |s: &Arc<Session>| s.opens.lock().counts.get(&ino).copied().unwrap_or(0);
        all.values().map(|session| (session.clone(), opens(session))).collect()
    }

    /// True if somebody has the file open, or may have it open and has not come back yet.
    pub fn may_hold(&self, ino: Ino) -> bool {
        self.opens.lock().contains_key(&ino) || self.somebody_absent()
    }

    /// True while a session from before a restart has neither come back nor expired.
    pub fn somebody_absent(&self) -> bool {
        self.all.read().values().any(|s| s.is_absent())
    }
}

/// Lowers a count; true if it is gone.
fn take(counts: &mut HashMap<Ino, u32>, ino: Ino, by: u32) -> bool {
    match counts.get_mut(&ino) {
        Some(count) if *count > by => {
            *count -= by;
            false
        }
        _ => {
            counts.remove(&ino);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(sessions: &Sessions, id: u64, absent: bool) -> Arc<Session> {
        let session = Session::new(id, "test".into(), Ledger::default(), 100, absent);
        let session = Arc::new(session);
        sessions.insert(session.clone());
        session
    }

    #[test]
    fn a_file_is_free_when_the_last_session_has_closed_it() {
        let sessions = Sessions::default();
        let (a, b) = (session(&sessions, 1, false), session(&sessions, 2, false));
        sessions.open(&a, Ino(9), 0);
        sessions.open(&a, Ino(9), 0);
        sessions.open(&b, Ino(9), 0);
        assert!(!sessions.close(&a, Ino(9), 0));
        assert!(!sessions.close(&a, Ino(9), 0));
        assert!(!sessions.close(&a, Ino(9), 0), "closed once too often");
        assert!(sessions.may_hold(Ino(9)));
        sessions.end(&b);
        assert!(!sessions.may_hold(Ino(9)));
    }

    /// It once counted for ever, and the file was never deleted.
    #[test]
    fn what_is_still_under_way_when_a_session_ends_opens_nothing() {
        let sessions = Sessions::default();
        let a = session(&sessions, 1, false);
        sessions.end(&a);
        assert!(a.check().is_err());
        sessions.open(&a, Ino(9), 0);
        assert!(sessions.resume(&a, &[9], 0).is_empty());
        assert!(!sessions.may_hold(Ino(9)));
    }

    #[test]
    fn everything_may_be_open_while_a_session_is_absent() {
        let sessions = Sessions::default();
        let a = session(&sessions, 1, true);
        assert!(sessions.may_hold(Ino(3)));
        assert!(sessions.resume(&a, &[9, 9], 0).is_empty());
        assert!(!sessions.may_hold(Ino(3)));
        assert!(sessions.close(&a, Ino(9), 0));
    }

    #[test]
    fn a_resumed_session_closes_what_it_does_not_name() {
        let sessions = Sessions::default();
        let a = session(&sessions, 1, false);
        sessions.open(&a, Ino(4), 0);
        sessions.open(&a, Ino(5), 0);
        assert_eq!(sessions.resume(&a, &[5], 0), [Ino(4)]);
        assert!(!a.expired(99) && a.expired(100));
        a.renew(200);
        assert!(!a.expired(100));
    }

    /// A report of before a restart once took a file for closed that the client had just said it has open, and
    /// the file got another layout under its writer.
    #[test]
    fn what_an_earlier_incarnation_opens_and_closes_is_not_counted() {
        let sessions = Sessions::default();
        let a = session(&sessions, 1, true);
        sessions.resume(&a, &[9], 2);
        assert!(a.is_outdated(1) && !a.is_outdated(2));
        assert!(!sessions.close(&a, Ino(9), 1), "it is in the list that came later");
        sessions.open(&a, Ino(8), 1);
        assert!(!sessions.may_hold(Ino(8)), "its client asks again");
        sessions.open(&a, Ino(7), 2);
        for late in [1, 2] {
            assert!(sessions.resume(&a, &[9], late).is_empty());
            assert!(sessions.may_hold(Ino(7)), "the request {late} came before");
        }
        assert!(sessions.close(&a, Ino(9), 2));
    }
}
