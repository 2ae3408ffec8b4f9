//! Sessions: who is connected, until when, and what they hold open.
//!
//! Opens are counted in memory only. After a restart the sessions are read back from the store and
//! get a grace time to come back and tell what they hold open; until each has come back or has
//! expired, no file without a name is deleted ([`Sessions::may_hold`]).

mod begins;
mod behind;
mod opens;
mod questions;
mod rests;
mod uses;

use crate::claims::{Claims, Minds};
use crate::leases::Holder;
use crate::ledger::Ledger;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::Wait;
use tokio::sync::Notify;
use uses::AllOpens;

/// One client's session.
pub(crate) struct Session {
    /// Its id.
    pub id: u64,
    /// Who the client is, for people.
    pub client: String,
    /// Replies to its mutations.
    pub ledger: Arc<Ledger>,
    /// What is leased to it.
    pub holder: Arc<Holder>,
    /// Which client that is, in its sessions with other shares as well; 0: it has not said so to this server.
    mount: AtomicU64,
    /// Monotonic time at which it expires.
    deadline_ms: AtomicU64,
    /// It keeps leases, and so can be asked for something.
    keeps_leases: bool,
    /// Whether its client asks before it reads or writes what others may have claimed.
    pub minds: Minds,
    /// It may have claims on files, or may have had some of an earlier server.
    claims: AtomicBool,
    /// Its exclusive leases on directories.
    behind: behind::Behind,
    /// Its client asks where a file lies before it goes by that.
    moves: AtomicBool,
    /// In which incarnation its client began it; 0: nobody knows.
    begun_in: u64,
    /// Something was asked for in it: its client has heard of it.
    used: AtomicBool,
    /// It was read back after a restart and has not come back yet.
    absent: AtomicBool,
    /// When it is over others must be safe from it: it was given a capability or a lock, or was evicted.
    fence_needed: AtomicBool,
    /// It is over, and what it held is about to be given back.
    lost: AtomicBool,
    /// Of a lost one: what is known of the lengths of its files.
    pub settling: Mutex<Settling>,
    /// It was taken out: what is still under way in it opens and locks nothing.
    ended: AtomicBool,
    /// Number of its last report of closed files.
    reported: AtomicU64,
    /// Of which release its client says that it is, for people.
    pub release: Mutex<String>,
    /// What waited there when it last asked for recalls.
    pub waits: Mutex<Vec<Wait>>,
    /// What had waited there shortly before.
    pub waited: Mutex<Vec<Wait>>,
    opens: Mutex<Opens>,
}

/// How far the lengths of a lost session's files are settled.
#[derive(Default)]
pub(crate) struct Settling {
    /// Monotonic time at which that began.
    pub since_ms: Option<u64>,
    /// Files of which nothing more is to be done.
    pub done: HashSet<Ino>,
    /// Files that have another version though nobody said how long they are. They are asked for that as long as anything is.
    pub given_up: HashSet<Ino>,
}

/// The files that a session holds open, and how often.
#[derive(Default)]
struct Opens {
    /// Counted in this incarnation of the session: what another one opens or closes is not among them.
    incarnation: u64,
    counts: HashMap<Ino, Open>,
    /// Numbers of the requests that count among them, closed since or not, until their client has heard of them.
    numbers: BTreeSet<u64>,
}

/// How a session holds a file open.
#[derive(Clone, Copy, Default)]
struct Open {
    count: u32,
    /// It may write.
    writes: bool,
    /// It tells each write before that returns.
    tells: bool,
    /// Its kernel may keep pages of what it writes.
    keeps_pages: bool,
    /// Number of the last question whether it does; 0: none.
    asked: u64,
    /// Number of the last question what it holds back, which leaves it its claims; 0: none.
    looked: u64,
    /// Up to which of these questions it has told that.
    shown: u64,
    /// Number of the last question whether it rests; 0: none since it woke.
    to_rest: u64,
    /// It does: nothing of what was written is unknown here, and it asks before it writes again.
    rests: bool,
}

impl Session {
    /// A session that lives until `deadline_ms` if it does not come back.
    pub fn new(id: u64, client: String, ledger: Ledger, deadline_ms: u64, absent: bool) -> Self {
        Session {
            id,
            client,
            ledger: Arc::new(ledger),
            holder: Holder::new(id),
            mount: AtomicU64::new(0),
            keeps_leases: false,
            minds: Minds::default(),
            claims: AtomicBool::new(false),
            behind: behind::Behind::default(),
            moves: AtomicBool::new(false),
            deadline_ms: AtomicU64::new(deadline_ms),
            begun_in: 0,
            used: AtomicBool::new(false),
            absent: AtomicBool::new(absent),
            // What an earlier server has given it nobody knows.
            fence_needed: AtomicBool::new(absent),
            lost: AtomicBool::new(false),
            settling: Mutex::default(),
            ended: AtomicBool::new(false),
            reported: AtomicU64::new(0),
            release: Mutex::default(),
            waits: Mutex::default(),
            waited: Mutex::default(),
            opens: Mutex::default(),
        }
    }

    /// It keeps leases, or not.
    pub fn keeping_leases(mut self, keeps: bool) -> Self {
        self.keeps_leases = keeps;
        self
    }

    /// The client has said which it is; 0: it has not, and is who it was.
    pub fn is_of(&self, mount: u64) {
        if mount != 0 {
            self.mount.store(mount, Ordering::Relaxed);
        }
    }

    /// Which client that is; 0: nobody knows.
    pub fn mount(&self) -> u64 {
        self.mount.load(Ordering::Relaxed)
    }

    /// The client has said whether it minds claims: of who keeps no leases that is not believed.
    pub fn minds_claims(&self, minds: bool) -> bool {
        self.minds.says(minds && self.keeps_leases)
    }

    /// It is granted claims, or may have been.
    pub fn note_claims(&self) {
        self.claims.store(true, Ordering::Release);
    }

    /// True if that was said.
    pub fn may_have_claims(&self) -> bool {
        self.claims.load(Ordering::Acquire)
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
        !self.lost.swap(true, Ordering::SeqCst)
    }

    /// True if it is lost.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// It gets a capability or a lock, or is evicted.
    pub fn will_need_fence(&self) {
        // Whoever finds the session alive after this is seen by the one who ends it.
        self.fence_needed.swap(true, Ordering::SeqCst);
    }

    /// True if others must be safe from it when it is over. Commands that only ask for names are no danger.
    pub fn needs_fence(&self) -> bool {
        self.keeps_leases || self.fence_needed.load(Ordering::SeqCst)
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

    /// True if it has a file open in such a way.
    fn has(&self, ino: Ino, how: impl Fn(&Open) -> bool) -> bool {
        self.opens.lock().counts.get(&ino).is_some_and(how)
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
    /// What all sessions together have open. Lock order: before a session's own map.
    opens: Mutex<AllOpens>,
    /// Files without a name that are open by a reply of before a restart, which may have to be given again: to which
    /// session, and under which number.
    unheard: Mutex<HashMap<Ino, (u64, u64)>>,
    /// What of files is claimed. Lock order: after a session's own map.
    pub claims: Claims,
    /// Somebody holds nothing back any more.
    pub told: Notify,
    /// How often sessions were asked to tell something.
    questions: AtomicU64,
    /// Until when (monotonic) those are waited for that were there before a restart and have not come back.
    patience_ms: AtomicU64,
    /// A session was absent when this was looked at last.
    had_absent: AtomicBool,
    /// Who may have changed names by what an earlier server has leased.
    unsure: behind::Unsure,
}

impl Sessions {
    /// Enters a session.
    pub fn insert(&self, session: Arc<Session>) {
        let mut all = self.all.write();
        self.had_absent.fetch_or(session.is_absent(), Ordering::AcqRel);
        self.count_unsure(&session);
        all.insert(session.id, session);
    }

    /// A session may not have heard that files without a name are open for it: each with the number of the reply.
    pub fn may_not_have_heard(&self, session: u64, made: Vec<(Ino, u64)>) {
        self.unheard.lock().extend(made.into_iter().map(|(ino, seq)| (ino, (session, seq))));
    }

    /// True as long as that may be so of a file.
    fn is_unheard(&self, ino: Ino) -> bool {
        let mut unheard = self.unheard.lock();
        let Some(&(session, seq)) = unheard.get(&ino) else { return false };
        let waits = self.get(session).is_some_and(|session| !session.ledger.is_over(seq));
        if !waits {
            unheard.remove(&ino);
        }
        waits
    }

    /// Those who are absent are waited for until then, and may be late after that.
    pub fn be_patient_until(&self, time_ms: u64) {
        self.patience_ms.store(time_ms, Ordering::Relaxed);
    }

    /// The session with this id.
    pub fn get(&self, id: u64) -> Option<Arc<Session>> {
        self.all.read().get(&id).cloned()
    }

    /// The session of a client that has said which it is: the last one, if it goes on and its client is there.
    pub fn of_mount(&self, mount: u64) -> Option<Arc<Session>> {
        let all = self.all.read();
        let own = all.values().filter(|session| mount != 0 && session.mount() == mount);
        let last = own.max_by_key(|session| session.id);
        last.filter(|session| session.check().is_ok() && !session.is_absent()).cloned()
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
        for (ino, open) in std::mem::take(&mut own.counts) {
            opens.writes_no_more(ino, session.id);
            opens.take(ino, open.count);
        }
        self.claims.end(session.id);
        self.told.notify_waiters();
    }

    /// Takes a session out that has ended.
    pub fn remove(&self, session: &Session) {
        self.is_sure(session);
        self.all.write().remove(&session.id);
    }

    /// A new incarnation of a session holds these files open, each once. What it held before and does not
    /// name is closed. Returns files that nobody has open any more. A request that comes a second time, or
    /// after a later one, changes nothing.
    pub fn resume(
        &self,
        session: &Session,
        open: &[u64],
        writable: &[u64],
        incarnation: u64,
    ) -> Vec<Ino> {
        let mut opens = self.opens.lock();
        let mut own = session.opens.lock();
        let late = incarnation != 0 && incarnation <= own.incarnation;
        if late || session.ended.load(Ordering::Acquire) {
            return Vec::new();
        }
        own.incarnation = incarnation;
        // Whoever waits for an answer to one of them counts once more than what is named.
        own.numbers.clear();
        let writable: HashSet<_> = writable.iter().collect();
        let before = std::mem::take(&mut own.counts);
        before.keys().for_each(|ino| opens.writes_no_more(*ino, session.id));
        for &ino in open {
            // Until it is asked, and says otherwise.
            let keeps_pages = true;
            let writes = writable.contains(&ino);
            let open = Open { count: 1, writes, keeps_pages, ..Open::default() };
            let is_new = own.counts.insert(Ino(ino), open).is_none();
            opens.add(Ino(ino), is_new.into(), writes.then_some(session.id));
            if writes && session.may_have_claims() {
                self.claims.may_have_been_granted(Ino(ino), session.id);
            }
        }
        session.absent.store(false, Ordering::Release);
        // Its claims on the others stay: it has forgotten them, but not what it holds back by them.
        let gone = before.keys().filter(|ino| !own.counts.contains_key(*ino));
        gone.for_each(|ino| self.claims.give_up(*ino, session.id));
        self.told.notify_waiters();
        before.into_iter().filter(|(ino, open)| opens.take(*ino, open.count)).map(|h| h.0).collect()
    }

    /// Grants a session a range of a file that it has open for writing in this incarnation ([`Claims::grant`]).
    pub fn grant(
        &self,
        session: &Session,
        incarnation: u64,
        (ino, needed, most): (Ino, Range<u64>, u64),
        now_ms: u64,
    ) -> Option<u64> {
        let mut own = session.opens.lock();
        let then = own.incarnation;
        let open = own.counts.get_mut(&ino).filter(|open| open.writes && then == incarnation)?;
        if open.asked != 0 && !open.tells {
            // Its answer, which is on its way, would give this up.
            return None;
        }
        if !self.claims.has(ino, session.id) {
            // A late copy of an earlier answer gives nothing up: the next question has another number.
            open.asked = 0;
        }
        self.claims.grant(ino, session.id, needed, most, now_ms)
    }

    /// True if a session may be granted something of a file that [may be claimed](Self::may_be_claimed): others write to it as
    /// well, or did when it was granted what it still has. Beside one who was alone from the beginning, or whom somebody who
    /// reads has called back, those who read now and then would wait for all that he holds back.
    pub fn may_claim(&self, session: &Session, ino: Ino) -> bool {
        let goes_on = || self.claims.has(ino, session.id);
        (self.others_write(session, ino) || goes_on()) && self.may_be_claimed(ino)
    }

    /// True if those who write to a file may claim something of it: everybody who has it open may write, and asks before he
    /// reads or writes; and nobody may have it open of whom that is not known. Who only reads would wait, each time, for all
    /// that they hold back.
    pub fn may_be_claimed(&self, ino: Ino) -> bool {
        let may = |other: &Arc<Session>| match other.minds.is_so() {
            true => !other.has(ino, |open| !open.writes),
            false => !other.has(ino, |_| true),
        };
        !self.somebody_absent() && self.all.read().values().all(may)
    }

    /// The sessions that have claims on a file, or may have some of an earlier server: what one holds back by these that has
    /// the file alone is nobody's concern.
    pub fn claimants(&self, ino: Ino) -> Vec<Arc<Session>> {
        let holders = self.claims.holders(ino).into_iter();
        let holders = holders.filter_map(|(id, known)| Some((self.get(id)?, known)));
        let matters =
            holders.filter(|(holder, known)| *known || self.may_others_hold(ino, Some(holder)));
        matters.map(|(holder, _)| holder).collect()
    }

    /// Who has not come back after a restart, is still waited for, and may have claims.
    pub fn absent_claimants(&self, now_ms: u64) -> Vec<Arc<Session>> {
        if now_ms >= self.patience_ms.load(Ordering::Relaxed) || !self.somebody_absent() {
            return Vec::new();
        }
        let may = |other: &&Arc<Session>| other.is_absent() && other.may_have_claims();
        self.all.read().values().filter(may).cloned().collect()
    }

    /// True if nobody may go by a lease on a file: something of it is claimed, or may be by who has not come back yet.
    pub fn is_claimed(&self, ino: Ino, now_ms: u64) -> bool {
        // Before what is claimed: who has just come back has that by then.
        if !self.absent_claimants(now_ms).is_empty() && self.opens.lock().contains(ino) {
            return true;
        }
        self.claims.any(ino) && !self.claimants(ino).is_empty()
    }

    /// Who but `own` may hold back something written to a file: who has it open for writing, and who may have and
    /// has not come back yet; where it is `known` who has it open, only if he may have had claims. Not who keeps no leases:
    /// he cannot be asked.
    pub fn holding_back(
        &self,
        ino: Ino,
        own: Option<&Session>,
        known: bool,
        now_ms: u64,
    ) -> Vec<Arc<Session>> {
        let own = own.map_or(0, |own| own.id);
        let waits = now_ms < self.patience_ms.load(Ordering::Relaxed) && self.somebody_absent();
        let writers = self.writers(ino);
        let all = self.all.read();
        // Whoever is absent has not said what he has open.
        let some: Vec<&Arc<Session>> = match waits {
            true => all.values().collect(),
            false => writers.iter().filter_map(|id| all.get(id)).collect(),
        };
        let others = some.into_iter().filter(|one| one.id != own && one.keeps_leases);
        let may = |session: &&Arc<Session>| {
            let absent = waits && session.is_absent() && (!known || session.may_have_claims());
            absent || session.has(ino, |open| open.writes && !open.tells)
        };
        others.filter(may).cloned().collect()
    }

    /// True if the session has to tell each write to a file: it may write to it, and somebody else has it open or
    /// may have it open; or it has said that it does, and is taken at its word as long as it has the file open.
    pub fn has_to_tell(&self, session: &Session, ino: Ino) -> bool {
        let open = session.opens.lock().counts.get(&ino).copied().unwrap_or_default();
        if open.tells {
            return true;
        }
        let all = || self.all.read();
        let others_absent =
            || all().values().any(|other| other.id != session.id && other.is_absent());
        // Before those who are here: who has just come back is among them.
        open.writes && (self.somebody_absent() && others_absent() || self.others_hold(session, ino))
    }

    /// True if the session has to tell each write to a file, and its kernel keeps nothing of what it writes: it was
    /// opened when that was known, or only to write.
    pub fn writes_through(&self, session: &Session, ino: Ino) -> bool {
        let open = session.opens.lock().counts.get(&ino).copied().unwrap_or_default();
        let asked = open.asked != 0 && !open.tells;
        !asked && !open.keeps_pages && self.has_to_tell(session, ino)
    }

    /// The files that a session holds open.
    pub fn held(&self, session: &Session) -> Vec<Ino> {
        session.opens.lock().counts.keys().copied().collect()
    }

    /// True if the session holds the file open.
    pub fn holds(&self, session: &Session, ino: Ino) -> bool {
        session.has(ino, |_| true)
    }

    /// True if the session holds the file open and may write to it.
    pub fn writes(&self, session: &Session, ino: Ino) -> bool {
        session.has(ino, |open| open.writes)
    }

    /// Every session, and how often it has the file open.
    pub fn users_of(&self, ino: Ino) -> Vec<(Arc<Session>, u32)> {
        let all = self.all.read();
        let opens = |s: &Arc<Session>| s.opens.lock().counts.get(&ino).map_or(0, |open| open.count);
        all.values().map(|session| (session.clone(), opens(session))).collect()
    }

    /// True if somebody has the file open, or may have it open and has not come back yet or not heard of it.
    pub fn may_hold(&self, ino: Ino) -> bool {
        self.is_unknown(ino) || self.opens.lock().contains(ino)
    }

    /// True if somebody has the file open for writing, or may have it open and has not come back yet or not heard of it.
    pub fn may_write(&self, ino: Ino) -> bool {
        self.is_unknown(ino) || !self.writers(ino).is_empty()
    }

    /// True if somebody may have a file open of whom nobody knows: he has not come back yet, or not heard of it. To be looked at
    /// before those who are here: who has just come back, or heard of it, is among them.
    pub fn is_unknown(&self, ino: Ino) -> bool {
        self.is_unheard(ino) || self.somebody_absent()
    }

    /// True while a session from before a restart has neither come back nor expired.
    pub fn somebody_absent(&self) -> bool {
        if !self.had_absent.load(Ordering::Acquire) {
            return false;
        }
        let all = self.all.read();
        let some = all.values().any(|s| s.is_absent());
        self.had_absent.store(some, Ordering::Release);
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

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
        sessions.open(&a, Ino(9), true, 0, 0);
        sessions.open(&a, Ino(9), true, 0, 0);
        sessions.open(&b, Ino(9), true, 0, 0);
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
        sessions.open(&a, Ino(9), true, 0, 0);
        assert!(sessions.resume(&a, &[9], &[], 0).is_empty());
        assert!(!sessions.may_hold(Ino(9)));
    }

    #[test]
    fn everything_may_be_open_while_a_session_is_absent() {
        let sessions = Sessions::default();
        let a = session(&sessions, 1, true);
        assert!(sessions.may_hold(Ino(3)));
        assert!(sessions.resume(&a, &[9, 9], &[], 0).is_empty());
        assert!(!sessions.may_hold(Ino(3)));
        assert!(sessions.close(&a, Ino(9), 0));
    }

    /// It was found neither among those who are here nor, a moment later, among those who are absent: a file without a name
    /// that it had open was deleted.
    #[test]
    fn who_comes_back_while_others_look_who_has_a_file_open_is_found_by_all() {
        type Look = fn(&Sessions, &Session) -> bool;
        // Open by who comes back alone, and by somebody else as well.
        const ALONE: Ino = Ino(8);
        const SHARED: Ino = Ino(9);
        let looks: [Look; 6] = [
            |sessions, _| sessions.may_hold(ALONE),
            |sessions, _| sessions.may_write(ALONE),
            |sessions, here| sessions.may_others_write(Some(here), ALONE),
            |sessions, here| sessions.may_others_hold(ALONE, Some(here)),
            |sessions, here| sessions.has_to_tell(here, SHARED),
            |sessions, _| sessions.is_claimed(SHARED, 0),
        ];
        for round in 0..looks.len() * 50 {
            let nth = round % looks.len();
            let sessions = Sessions::default();
            sessions.be_patient_until(1);
            let (here, back) = (session(&sessions, 1, false), session(&sessions, 2, true));
            back.note_claims();
            sessions.open(&here, SHARED, true, 0, 0);
            let begins = Barrier::new(2);
            let found = thread::scope(|scope| {
                // Whoever looks for those who are absent waits here.
                let all = sessions.all.write();
                let look = scope.spawn(|| {
                    begins.wait();
                    looks[nth](&sessions, &here)
                });
                begins.wait();
                (0..100).for_each(|_| thread::yield_now());
                let named = [ALONE.0, SHARED.0];
                sessions.resume(&back, &named, &named, 1);
                drop(all);
                look.join().unwrap()
            });
            assert!(found, "look {nth}");
        }
    }

    #[test]
    fn a_resumed_session_closes_what_it_does_not_name() {
        let sessions = Sessions::default();
        let a = session(&sessions, 1, false);
        sessions.open(&a, Ino(4), true, 0, 0);
        sessions.open(&a, Ino(5), true, 0, 0);
        assert_eq!(sessions.resume(&a, &[5], &[], 0), [Ino(4)]);
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
        sessions.resume(&a, &[9], &[], 2);
        assert!(a.is_outdated(1) && !a.is_outdated(2));
        assert!(!sessions.close(&a, Ino(9), 1), "it is in the list that came later");
        sessions.open(&a, Ino(8), true, 1, 0);
        assert!(!sessions.may_hold(Ino(8)), "its client asks again");
        sessions.open(&a, Ino(7), true, 2, 0);
        for late in [1, 2] {
            assert!(sessions.resume(&a, &[9], &[], late).is_empty());
            assert!(sessions.may_hold(Ino(7)), "the request {late} came before");
        }
        assert!(sessions.close(&a, Ino(9), 2));
    }
}
