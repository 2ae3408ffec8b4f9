//! What all sessions together have open: by how many a file is, and who may write to it, without asking each.

use super::{Session, Sessions};
use std::collections::{BTreeSet, HashMap};
use strake_types::Ino;

/// By whom a file is open.
#[derive(Default)]
struct Uses {
    /// How often, over all sessions.
    count: u32,
    /// The sessions that may write to it.
    writers: BTreeSet<u64>,
}

/// The files that are open.
#[derive(Default)]
pub(super) struct AllOpens(HashMap<Ino, Uses>);

impl AllOpens {
    pub fn contains(&self, ino: Ino) -> bool {
        self.0.contains_key(&ino)
    }

    /// A file is open so often more, and this session may write to it.
    pub fn add(&mut self, ino: Ino, count: u32, writer: Option<u64>) {
        let uses = self.0.entry(ino).or_default();
        uses.count += count;
        uses.writers.extend(writer);
    }

    /// A session does not have a file open for writing any more.
    pub fn writes_no_more(&mut self, ino: Ino, session: u64) {
        if let Some(uses) = self.0.get_mut(&ino) {
            uses.writers.remove(&session);
        }
    }

    /// A file is open so often less; true if it is so by nobody.
    pub fn take(&mut self, ino: Ino, by: u32) -> bool {
        match self.0.get_mut(&ino) {
            Some(uses) if uses.count > by => {
                uses.count -= by;
                false
            }
            _ => {
                self.0.remove(&ino);
                true
            }
        }
    }
}

impl Sessions {
    /// True if somebody else has a file open. Who has not come back after a restart is told of the caller when he does.
    pub fn others_hold(&self, session: &Session, ino: Ino) -> bool {
        self.held_by_others(ino, Some(session)) > 0
    }

    /// True if somebody else has a file open and may write to it. Who has not come back after a restart does not
    /// count: that is of no use to those who keep nothing of every file meanwhile.
    pub fn others_write(&self, session: &Session, ino: Ino) -> bool {
        let opens = self.opens.lock();
        opens.0.get(&ino).is_some_and(|uses| uses.writers.iter().any(|id| *id != session.id))
    }

    /// True if somebody but `own` has a file open for writing, or may have it so and has not come back yet or not heard of it.
    pub fn may_others_write(&self, own: Option<&Session>, ino: Ino) -> bool {
        let others = || self.writers(ino).into_iter().any(|id| own.is_none_or(|own| own.id != id));
        self.is_unknown(ino) || others()
    }

    /// False if nobody but `own` has a file open, or may have it open: mostly, and quickly said.
    pub(super) fn may_others_hold(&self, ino: Ino, own: Option<&Session>) -> bool {
        // Before those who are here: who has just come back is among them.
        self.somebody_absent() || self.held_by_others(ino, own) > 0
    }

    /// The sessions that have a file open and may write to it.
    pub(super) fn writers(&self, ino: Ino) -> Vec<u64> {
        let opens = self.opens.lock();
        opens.0.get(&ino).into_iter().flat_map(|uses| &uses.writers).copied().collect()
    }

    /// How often all but `own` have a file open.
    fn held_by_others(&self, ino: Ino, own: Option<&Session>) -> u32 {
        let opens = self.opens.lock();
        let all = opens.0.get(&ino).map_or(0, |uses| uses.count);
        let count = |own: &Session| own.opens.lock().counts.get(&ino).map_or(0, |open| open.count);
        all.saturating_sub(own.map_or(0, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use std::sync::Arc;
    use strake_base::random::SplitMix64;

    /// One that opens, closes, comes back or ends.
    fn act(sessions: &Sessions, own: &Session, incarnation: &mut u64, random: &mut SplitMix64) {
        let ino = random.below(3);
        match random.below(200) {
            0 => sessions.end(own),
            1..20 => {
                *incarnation += 1;
                let writable = if random.percent(50) { vec![ino] } else { Vec::new() };
                sessions.resume(own, &[ino, 2], &writable, *incarnation);
            }
            20..110 => {
                sessions.close(own, Ino(ino), *incarnation);
            }
            110..120 => {
                sessions.wakes(own, Ino(ino), *incarnation);
            }
            _ => {
                let (writes, seq) = (random.percent(30), random.below(50));
                sessions.open(own, Ino(ino), writes, *incarnation, seq);
            }
        }
    }

    /// Each open of a file that others have open asked every session.
    #[test]
    fn who_may_write_is_known_by_file_whatever_is_opened_and_closed() {
        for seed in 0..50 {
            let mut random = SplitMix64::new(seed);
            let sessions = Sessions::default();
            let new = |id| Session::new(id, "test".into(), Ledger::default(), 100, false);
            let some: Vec<Arc<Session>> =
                (1..=4).map(|id| Arc::new(new(id).keeping_leases(true))).collect();
            some.iter().for_each(|one| sessions.insert(one.clone()));
            let mut incarnations = [0; 4];
            for _ in 0..300 {
                let nth = random.below(4) as usize;
                act(&sessions, &some[nth], &mut incarnations[nth], &mut random);
                for ino in (0..3).map(Ino) {
                    let writes = |one: &&Arc<Session>| one.has(ino, |open| open.writes);
                    for own in &some {
                        let others = || some.iter().filter(|one| one.id != own.id);
                        let held = others().any(|one| one.has(ino, |_| true));
                        assert_eq!(sessions.others_hold(own, ino), held, "seed {seed}");
                        let writers: Vec<u64> = others().filter(writes).map(|one| one.id).collect();
                        assert_eq!(sessions.others_write(own, ino), !writers.is_empty());
                        let asked = sessions.holding_back(ino, Some(own), false, 0);
                        let asked: Vec<u64> = asked.iter().map(|one| one.id).collect();
                        assert_eq!(asked, writers, "seed {seed}");
                    }
                    assert_eq!(sessions.may_write(ino), some.iter().any(|one| writes(&one)));
                }
            }
            some.iter().for_each(|one| sessions.end(one));
            assert!(sessions.opens.lock().0.is_empty());
        }
    }
}
