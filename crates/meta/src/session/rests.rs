//! Who has a file open and rests: he does not write to it before he has asked where it lies (docs/design/0043).

use super::{Open, Session, Sessions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_types::Ino;

/// Numbers of questions in a millisecond, at most, as a power of two.
const NUMBERS_PER_MS_BITS: u32 = 16;

impl Open {
    /// The client may write, and knows where the file lies: what it said before counts for nothing.
    pub(super) fn wake(&mut self) {
        (self.rests, self.to_rest) = (false, 0);
    }
}

impl Session {
    /// The client has said whether it asks where a file lies (`OpenSession::moves`). Who keeps no leases cannot be told when
    /// to.
    pub fn says_moves(&self, moves: bool) {
        self.moves.store(moves && self.keeps_leases, Ordering::Release);
    }

    /// True if it can be asked, and would.
    fn moves(&self) -> bool {
        self.moves.load(Ordering::Acquire) && !self.is_lost()
    }
}

impl Sessions {
    /// Those for whom a file must lie where it does: who has it open and goes on by what he knows, or writes to it and does not
    /// rest; where nothing is leased (`unleased`), who has it open. Who is lost is about to be noted as such.
    pub fn staying(&self, ino: Ino, unleased: bool) -> Vec<Arc<Session>> {
        if !self.opens.lock().contains(ino) {
            return Vec::new();
        }
        let stays = |session: &&Arc<Session>| {
            let moves = session.moves() && !unleased;
            session.has(ino, |open| !moves || open.writes && !open.rests)
        };
        self.all.read().values().filter(stays).cloned().collect()
    }

    /// Those who have to rest before a file may lie elsewhere; `None`: it has to stay for others, whatever they do.
    pub fn to_rest(&self, ino: Ino) -> Option<Vec<Arc<Session>>> {
        let staying = self.staying(ino, false);
        staying.iter().all(|session| session.moves()).then_some(staying)
    }

    /// Asks a session whether it rests, with what it fetches next.
    pub fn ask_to_rest(&self, session: &Session, ino: Ino, wall_ms: u64) {
        let number = {
            let mut own = session.opens.lock();
            let Some(open) = own.counts.get_mut(&ino) else { return };
            if open.to_rest == 0 {
                // Unlike any of before a start: an answer to that one may still be on its way.
                let nth = self.next_question() & ((1 << NUMBERS_PER_MS_BITS) - 1);
                open.to_rest = (wall_ms << NUMBERS_PER_MS_BITS) | nth;
            }
            open.to_rest
        };
        session.holder.ask_to_rest(ino, number);
    }

    /// A session is about to write to a file. False if it does not have it open in this incarnation.
    pub fn wakes(&self, session: &Session, ino: Ino, incarnation: u64) -> bool {
        let mut opens = self.opens.lock();
        let mut own = session.opens.lock();
        let then = own.incarnation;
        let Some(open) = own.counts.get_mut(&ino).filter(|_| then == incarnation) else {
            return false;
        };
        open.writes = true;
        open.wake();
        opens.add(ino, 0, Some(session.id));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use strake_wire::message::meta::Told;

    const INO: Ino = Ino(9);

    fn session(sessions: &Sessions, id: u64, moves: bool) -> Arc<Session> {
        let session = Session::new(id, "test".into(), Ledger::default(), 100, false);
        let session = Arc::new(session.keeping_leases(true));
        session.says_moves(moves);
        sessions.insert(session.clone());
        session
    }

    fn number(session: &Session) -> u64 {
        session.opens.lock().counts[&INO].to_rest
    }

    fn rest(sessions: &Sessions, session: &Session, number: u64) {
        let told = Told { ino: INO.0, number, rests: true, ..Told::default() };
        sessions.tells(session, &told, 0);
    }

    fn staying(sessions: &Sessions) -> Vec<u64> {
        sessions.staying(INO, false).iter().map(|session| session.id).collect()
    }

    /// What it was said of is over: its client knows where the file lies, and may be writing there.
    #[test]
    fn who_has_woken_does_not_rest_by_what_he_said_before() {
        let sessions = Sessions::default();
        let writer = session(&sessions, 1, true);
        sessions.open(&writer, INO, true, 0, 0);
        rest(&sessions, &writer, 0);
        assert_eq!(staying(&sessions), [1], "it was not asked");
        let by_asking = |sessions: &Sessions, writer: &Session| {
            assert!(sessions.wakes(writer, INO, 0));
        };
        let by_opening = |sessions: &Sessions, writer: &Session| {
            sessions.open(writer, INO, true, 0, 0);
        };
        // The first answer was lost, and it has rested since.
        let by_sending_again = |sessions: &Sessions, writer: &Session| {
            sessions.open(writer, INO, true, 0, 5);
        };
        sessions.open(&writer, INO, true, 0, 5);
        for wakes in [by_asking as fn(&Sessions, &Session), by_opening, by_sending_again] {
            sessions.ask_to_rest(&writer, INO, 7);
            let asked = number(&writer);
            rest(&sessions, &writer, asked);
            assert!(staying(&sessions).is_empty());
            sessions.open(&writer, INO, false, 0, 0);
            assert!(staying(&sessions).is_empty(), "to read it is no reason");
            wakes(&sessions, &writer);
            rest(&sessions, &writer, asked);
            assert_eq!(staying(&sessions), [1], "a late copy");
            sessions.ask_to_rest(&writer, INO, 7);
            assert_ne!(number(&writer), asked);
            rest(&sessions, &writer, asked);
            assert_eq!(staying(&sessions), [1], "it is of an earlier question");
        }
        sessions.resume(&writer, &[INO.0], &[INO.0], 1);
        assert_eq!(staying(&sessions), [1], "nobody knows what it has done since");
        assert!(!sessions.wakes(&writer, INO, 0) && sessions.wakes(&writer, INO, 1));
    }

    #[test]
    fn a_file_stays_for_those_who_do_not_ask_where_it_lies() {
        let sessions = Sessions::default();
        let (reader, writer) = (session(&sessions, 1, true), session(&sessions, 2, true));
        sessions.open(&reader, INO, false, 0, 0);
        sessions.open(&writer, INO, true, 0, 0);
        let to_rest = || sessions.to_rest(INO).map(|busy| busy.len());
        assert_eq!((staying(&sessions), to_rest()), (vec![2], Some(1)));
        assert_eq!(sessions.staying(INO, true).len(), 2, "nobody is told of anything");
        let old = session(&sessions, 3, false);
        sessions.open(&old, INO, false, 0, 0);
        assert_eq!((staying(&sessions).len(), to_rest()), (2, None), "it is of no use");
        sessions.close(&old, INO, 0);
        writer.lose();
        assert_eq!((staying(&sessions), to_rest()), (vec![2], None), "it is noted as lost first");
    }
}
