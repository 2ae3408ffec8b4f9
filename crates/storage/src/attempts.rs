//! A change is made once, however often its client has to send it: a late duplicate must not overwrite
//! what is newer.

use crate::order::Whose;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use strake_base::is_broken;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::capability::is_clients;
use strake_wire::message::storage::{Attempt, AttemptTable};

/// Clients remembered; beyond, the one that was heard longest ago is forgotten.
const CLIENTS_MAX: usize = 16_384;
/// Clients of one session: it has one. Who makes up others would have all forgotten that is remembered of anybody else.
const CLIENTS_OF_SESSION_MAX: usize = 64;
/// Changes remembered of one client above those it calls settled.
const CHANGES_MAX: usize = 64 << 10;
/// Changes remembered of all, some 20 bytes each; beyond, the client with the most of them loses the older half.
const CHANGES_OF_ALL_MAX: usize = 2 << 20;
/// Changes of one table, more than one client has: they take a megabyte of a message at most.
const TABLE_MAX: usize = 100_000;

#[derive(Default)]
struct Client {
    /// All changes with smaller numbers are over.
    settled: u64,
    done: BTreeSet<u64>,
    running: BTreeSet<u64>,
    /// The session in which it began a change last, if it is known here.
    whose: Option<Whose>,
    /// When it was heard, in calls.
    heard: u64,
}

#[derive(Default)]
struct Inner {
    calls: u64,
    clients: HashMap<u64, Client>,
    /// Those that have nothing under way, by when they were heard: the first is the next to be forgotten.
    idle: BTreeSet<(u64, u64)>,
    /// How many of them began a change in which session last.
    of_sessions: HashMap<Whose, usize>,
    /// Changes remembered as done, of all clients together.
    changes: usize,
}

/// What the clients of one target have sent.
#[derive(Default)]
pub(crate) struct Attempts {
    inner: Mutex<Inner>,
}

/// A change under way; another attempt at it may begin when it is dropped.
pub(crate) struct Running<'a> {
    attempts: &'a Attempts,
    /// `None`: it may be made more than once.
    attempt: Option<Attempt>,
}

fn over(attempt: Attempt, why: &str) -> Error {
    let detail = format!("change {} of client {:x} {why}", attempt.seq, attempt.client);
    Error::with(ErrorKind::NotCurrent, detail)
}

impl Attempts {
    /// Begins a change of a session, if it is one's; it may have a number. `None`: it was made before.
    pub fn begin(
        &self,
        attempt: Option<Attempt>,
        whose: Option<Whose>,
    ) -> Result<Option<Running<'_>>> {
        let begun = |attempt| Ok(Some(Running { attempts: self, attempt }));
        let forgetful = is_broken("requests-are-remembered");
        let Some(attempt) = attempt.filter(|_| !forgetful) else { return begun(None) };
        let refused = |why: &str| Err(over(attempt, why));
        let mut inner = self.inner.lock();
        // Metadata servers that follow each other show the same session, and each is a client of its own.
        let whose = whose.filter(|(_, session)| is_clients(*session));
        if whose.is_some_and(|whose| !inner.admits(attempt.client, whose)) {
            let detail = format!("client {:x}: its session has too many clients", attempt.client);
            return Err(Error::with(ErrorKind::Busy, detail));
        }
        inner.heard(attempt);
        if let Some(whose) = whose {
            inner.belong(attempt.client, whose);
        }
        let Inner { clients, idle, .. } = &mut *inner;
        let client = clients.entry(attempt.client).or_default();
        if attempt.seq < client.settled {
            return refused("is over for its client");
        }
        if client.done.contains(&attempt.seq) {
            strake_base::count_case("change-made-before");
            return Ok(None);
        }
        if !client.running.insert(attempt.seq) {
            return refused("is still under way");
        }
        idle.remove(&(client.heard, attempt.client));
        begun(Some(attempt))
    }

    /// Fails if the client of a change has given it up.
    pub fn check(&self, attempt: Attempt) -> Result<()> {
        let inner = self.inner.lock();
        let settled = inner.clients.get(&attempt.client).map_or(0, |client| client.settled);
        match attempt.seq < settled {
            true => Err(over(attempt, "is over for its client")),
            false => Ok(()),
        }
    }

    /// A change has been made here, on behalf of the group's primary.
    pub fn note(&self, attempt: Attempt) {
        let mut inner = self.inner.lock();
        let client = inner.heard(attempt);
        if attempt.seq >= client.settled && client.done.insert(attempt.seq) {
            inner.changes += 1;
            inner.forget_beyond(CHANGES_OF_ALL_MAX);
        }
    }

    /// Everything that is remembered, in tables that fit into a message each.
    pub fn tables(&self) -> Vec<AttemptTable> {
        let inner = self.inner.lock();
        let (mut tables, mut table) = (Vec::new(), AttemptTable::default());
        for (id, client) in &inner.clients {
            if table.seqs.len() + client.done.len() > TABLE_MAX {
                tables.push(std::mem::take(&mut table));
            }
            table.clients.push(*id);
            table.settled.push(client.settled);
            table.counts.push(client.done.len() as u32);
            table.seqs.extend(&client.done);
        }
        tables.push(table);
        tables
    }

    /// Remembers what another member does, too.
    pub fn take_over(&self, table: &AttemptTable) -> Result<()> {
        let mut seqs = table.seqs.as_slice();
        let malformed = || Error::with(ErrorKind::Malformed, "a table of changes does not fit");
        let clients = table.clients.iter().zip(&table.settled).zip(&table.counts);
        for ((&client, &settled), &count) in clients {
            let (done, rest) = seqs.split_at_checked(count as usize).ok_or_else(malformed)?;
            done.iter().for_each(|&seq| self.note(Attempt { client, seq, settled }));
            seqs = rest;
        }
        Ok(())
    }
}

impl Inner {
    /// False if a session has as many clients as it may, and this is none of them.
    fn admits(&self, client: u64, whose: Whose) -> bool {
        // Who is known takes no room. A mount has a session for each share, and one number.
        if self.clients.contains_key(&client) {
            return true;
        }
        self.of_sessions.get(&whose).is_none_or(|own| *own < CLIENTS_OF_SESSION_MAX)
    }

    /// Forgets changes if so many are remembered: of the client that has the most, since others must not suffer from it.
    fn forget_beyond(&mut self, most: usize) {
        if self.changes <= most {
            return;
        }
        let Some(client) = self.clients.values_mut().max_by_key(|client| client.done.len()) else {
            return;
        };
        let Some(&middle) = client.done.iter().nth(client.done.len() / 2) else { return };
        let kept = client.done.split_off(&middle);
        let forgotten = std::mem::replace(&mut client.done, kept);
        self.changes -= forgotten.len();
    }

    /// Forgets who was heard longest ago, if there are too many and it has nothing under way.
    fn make_room(&mut self) {
        if self.clients.len() < CLIENTS_MAX {
            return;
        }
        let Some((_, oldest)) = self.idle.pop_first() else { return };
        let Some(forgotten) = self.clients.remove(&oldest) else { return };
        self.changes -= forgotten.done.len();
        self.leave(forgotten.whose);
    }

    /// One client less has begun its last change in a session.
    fn leave(&mut self, whose: Option<Whose>) {
        if let Some(whose) = whose
            && let Entry::Occupied(mut own) = self.of_sessions.entry(whose)
        {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    /// A client that was heard begins a change in a session.
    fn belong(&mut self, id: u64, whose: Whose) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let before = client.whose.replace(whose);
        if before != Some(whose) {
            self.leave(before);
            *self.of_sessions.entry(whose).or_default() += 1;
        }
    }

    fn heard(&mut self, attempt: Attempt) -> &mut Client {
        self.calls += 1;
        let calls = self.calls;
        if !self.clients.contains_key(&attempt.client) {
            self.make_room();
        }
        let client = self.clients.entry(attempt.client).or_default();
        if client.running.is_empty() {
            self.idle.remove(&(client.heard, attempt.client));
            self.idle.insert((calls, attempt.client));
        }
        client.heard = calls;
        let before = client.done.len();
        if attempt.settled > client.settled {
            client.settled = attempt.settled;
            client.done = client.done.split_off(&attempt.settled);
        }
        while client.done.len() > CHANGES_MAX {
            client.done.pop_first();
        }
        self.changes -= before - client.done.len();
        client
    }
}

impl Running<'_> {
    /// Fails if its client has given it up.
    pub fn check(&self) -> Result<()> {
        self.attempt.map_or(Ok(()), |attempt| self.attempts.check(attempt))
    }

    /// Its number, if it is made once.
    pub fn attempt(&self) -> Option<Attempt> {
        self.attempt
    }

    /// The change is made.
    pub fn succeed(self) {
        self.attempt.into_iter().for_each(|attempt| self.attempts.note(attempt));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt else { return };
        let mut inner = self.attempts.inner.lock();
        let Inner { clients, idle, .. } = &mut *inner;
        if let Some(client) = clients.get_mut(&attempt.client) {
            client.running.remove(&attempt.seq);
            if client.running.is_empty() {
                idle.insert((client.heard, attempt.client));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::{Epoch, SessionId, VolumeId};
    use strake_wire::capability::reign;

    fn attempt(seq: u64, settled: u64) -> Option<Attempt> {
        Some(Attempt { client: 9, seq, settled })
    }

    fn kind(attempts: &Attempts, attempt: Option<Attempt>) -> Option<ErrorKind> {
        attempts.begin(attempt, None).err().map(|e| e.kind)
    }

    #[test]
    fn a_change_is_made_once() {
        let attempts = Attempts::default();
        let first = attempts.begin(attempt(1, 1), None).unwrap().unwrap();
        assert_eq!(kind(&attempts, attempt(1, 1)), Some(ErrorKind::NotCurrent), "under way");
        first.succeed();
        assert!(attempts.begin(attempt(1, 1), None).unwrap().is_none(), "made");
        drop(attempts.begin(attempt(2, 1), None).unwrap().unwrap());
        drop(
            attempts.begin(attempt(2, 1), None).unwrap().expect("it failed, so it may begin again"),
        );
        assert!(attempts.begin(attempt(3, 3), None).unwrap().is_some());
        assert_eq!(kind(&attempts, attempt(1, 1)), Some(ErrorKind::NotCurrent), "over");
        attempts.note(attempt(4, 3).unwrap());
        assert!(attempts.begin(attempt(4, 3), None).unwrap().is_none(), "made for the primary");
        let other = Attempts::default();
        let tables = attempts.tables();
        other.take_over(&tables[0]).unwrap();
        assert!(other.begin(attempt(4, 3), None).unwrap().is_none(), "made where it learnt that");
        let cut = AttemptTable { seqs: Vec::new(), ..tables[0].clone() };
        assert_eq!(other.take_over(&cut).unwrap_err().kind, ErrorKind::Malformed);
    }

    /// One message did not hold what a busy target remembers: nobody could lead its groups after that.
    #[test]
    fn what_is_remembered_is_told_in_tables_that_fit_into_messages() {
        let attempts = Attempts::default();
        let last = CHANGES_MAX as u64;
        for client in 1..=2 {
            (1..=last).for_each(|seq| attempts.note(Attempt { client, seq, settled: 1 }));
        }
        let tables = attempts.tables();
        assert_eq!(tables.len(), 2);
        assert!(tables.iter().all(|table| table.seqs.len() <= TABLE_MAX));
        let other = Attempts::default();
        tables.iter().for_each(|table| other.take_over(table).unwrap());
        for (client, seq) in [(1, 1), (1, last), (2, 1), (2, last)] {
            assert!(
                other.begin(Some(Attempt { client, seq, settled: 1 }), None).unwrap().is_none()
            );
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let attempts = Attempts::default();
        for client in 0..3 * CLIENTS_MAX as u64 {
            attempts.note(Attempt { client, seq: 1, settled: 1 });
        }
        assert!(attempts.inner.lock().clients.len() <= CLIENTS_MAX);
        for seq in 1..2 * CHANGES_MAX as u64 {
            attempts.note(attempt(seq, 1).unwrap());
        }
        assert!(attempts.inner.lock().clients[&9].done.len() <= CHANGES_MAX + 1);
    }

    /// Its entries took the places of all others, and a late duplicate of what these had sent was made again.
    #[test]
    fn a_session_that_makes_up_clients_has_nobody_elses_changes_forgotten() {
        let attempts = Attempts::default();
        let begin = |client, session| {
            let attempt = Attempt { client, seq: 1, settled: 1 };
            let whose = Some((VolumeId(1), session));
            attempts.begin(Some(attempt), whose).map(|new| new.map(Running::succeed))
        };
        let (honest, other) = (SessionId(1), SessionId(2));
        assert_eq!(begin(0, honest), Ok(Some(())));
        let made_up = 1..=2 * CLIENTS_MAX as u64;
        let begun = made_up.filter(|client| begin(*client, other).is_ok()).count();
        assert_eq!(begun, CLIENTS_OF_SESSION_MAX);
        assert_eq!(begin(9_999, other).unwrap_err().kind, ErrorKind::Busy);
        assert_eq!(begin(0, honest), Ok(None), "it is remembered");
        assert_eq!(begin(1, other), Ok(None), "also of the other one what it had");
        assert_eq!(begin(10_000, SessionId(3)), Ok(Some(())), "others go on");
        // Metadata servers are as many as they were started.
        for client in 20_000..20_000 + 2 * CLIENTS_OF_SESSION_MAX as u64 {
            assert_eq!(begin(client, reign(Epoch(7))), Ok(Some(())));
        }
    }

    /// Of more clients than are remembered each change had the whole table looked through, twice.
    #[test]
    fn who_was_heard_longest_ago_is_forgotten_and_nobody_with_a_change_under_way() {
        let attempts = Attempts::default();
        let begin = |client| {
            let attempt = Attempt { client, seq: 1, settled: 1 };
            attempts.begin(Some(attempt), Some((VolumeId(1), SessionId(client + 1)))).unwrap()
        };
        let under_way = begin(0).unwrap();
        (1..CLIENTS_MAX as u64).for_each(|client| begin(client).unwrap().succeed());
        assert!(begin(1).is_none(), "heard again, so that the next one is the oldest");
        begin(CLIENTS_MAX as u64).unwrap().succeed();
        under_way.succeed();
        assert!(begin(0).is_none(), "it is remembered");
        let inner = attempts.inner.lock();
        assert!((0..=CLIENTS_MAX as u64).all(|id| (id == 2) != inner.clients.contains_key(&id)));
        assert_eq!((inner.idle.len(), inner.of_sessions.len()), (CLIENTS_MAX, CLIENTS_MAX));
    }

    /// A client may go on in another session, which it has opened since, and remains one.
    #[test]
    fn a_client_that_changes_its_session_counts_once() {
        let attempts = Attempts::default();
        for session in 1..=3 {
            for client in 1..=CLIENTS_OF_SESSION_MAX as u64 {
                let attempt = Attempt { client, seq: session, settled: 1 };
                let whose = Some((VolumeId(1), SessionId(session)));
                attempts.begin(Some(attempt), whose).unwrap().unwrap().succeed();
            }
        }
        let inner = attempts.inner.lock();
        assert_eq!(inner.clients.len(), CLIENTS_OF_SESSION_MAX);
        assert_eq!(inner.changes, 3 * CLIENTS_OF_SESSION_MAX);
    }

    /// Each of thousands of clients might have 65,536 changes remembered: gigabytes.
    #[test]
    fn the_client_with_the_most_changes_gives_way_where_all_have_too_many() {
        let attempts = Attempts::default();
        let note = |client, seq, settled| attempts.note(Attempt { client, seq, settled });
        (1..=10).for_each(|seq| note(1, seq, 1));
        (1..=100).for_each(|seq| note(2, seq, 1));
        let mut inner = attempts.inner.lock();
        inner.forget_beyond(110);
        assert_eq!((inner.changes, inner.clients[&2].done.len()), (110, 100));
        inner.forget_beyond(109);
        assert_eq!((inner.changes, inner.clients[&1].done.len()), (60, 10));
        assert_eq!(inner.clients[&2].done.first(), Some(&51), "the newer half stays");
        drop(inner);
        note(1, 11, 11);
        note(1, 11, 11);
        assert_eq!(attempts.inner.lock().changes, 51);
    }
}
