//! Operations on one directory whose requests and answers cross in any way, beside changes by others: what is believed of a
//! name is what the server has, unless a change of that name by this mount has been carried out and not answered yet.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Names that there may be.
const NAMES: u8 = 5;
/// Entries of a page.
const PAGE: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Wish {
    Create(u8),
    Unlink(u8),
    Rename(u8, u8),
    Lookup(u8),
    List,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request is sent.
    Ask(Wish),
    /// One that was sent is carried out.
    Serve(usize),
    /// The answer to one that was carried out arrives.
    Learn(usize),
    /// Somebody else creates or removes a name.
    Change(u8),
    /// So much time goes by that notes are forgotten.
    Wait,
    /// The end of a change elsewhere is not known.
    Doubt,
}

fn step() -> impl Strategy<Value = Step> {
    let wish = prop_oneof![
        (0..NAMES).prop_map(Wish::Create),
        (0..NAMES).prop_map(Wish::Unlink),
        (0..NAMES, 0..NAMES).prop_map(|(from, to)| Wish::Rename(from, to)),
        (0..NAMES).prop_map(Wish::Lookup),
        Just(Wish::List),
        Just(Wish::List),
    ];
    prop_oneof![
        6 => wish.prop_map(Step::Ask),
        6 => (0..8usize).prop_map(Step::Serve),
        6 => (0..8usize).prop_map(Step::Learn),
        1 => (0..NAMES).prop_map(Step::Change),
        1 => Just(Step::Wait),
        1 => Just(Step::Doubt),
    ]
}

fn name_of(name: u8) -> Name {
    Name { parent: 1, name: Bytes::from(vec![b'a' + name]) }
}

/// A request under way.
struct Sent {
    op: MetaOp,
    names: Vec<u8>,
    asked: Duration,
    answer: Option<MetaAnswer>,
}

/// The directory, and this mount's part of it.
struct World {
    leases: Leases,
    names: BTreeMap<u8, u64>,
    next: u64,
    now: u64,
    /// Where the last page that was learnt has ended; 0: the next one is the first.
    listed: u64,
    sent: Vec<Sent>,
}

impl World {
    fn new() -> Self {
        let leases = leases();
        leases.extend(ms(1_000_000));
        let (names, sent) = (BTreeMap::new(), Vec::new());
        Self { leases, names, next: 100, now: 10, listed: 0, sent }
    }

    fn inode(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn ask(&mut self, wish: Wish) {
        let (op, names) = match wish {
            Wish::Create(name) => {
                (MetaOp::Create(Create { at: name_of(name), ..Create::default() }), vec![name])
            }
            Wish::Unlink(name) => {
                (MetaOp::Unlink(Unlink { at: name_of(name), directory: false }), vec![name])
            }
            Wish::Rename(from, to) => {
                let rename = Rename { from: name_of(from), to: name_of(to), ..Rename::default() };
                (MetaOp::Rename(rename), vec![from, to])
            }
            Wish::Lookup(name) => (MetaOp::Lookup(name_of(name)), Vec::new()),
            Wish::List => {
                let read = ReadDir { ino: 1, after: self.listed, limit: 2, plus: false };
                (MetaOp::ReadDir(read), Vec::new())
            }
        };
        if self.sent.len() < 8 {
            self.sent.push(Sent { op, names, asked: ms(self.now), answer: None });
        }
    }

    /// What the server does and says; `None`: it refuses.
    fn serve(&mut self, op: &MetaOp) -> Option<MetaAnswer> {
        let key = |at: &Name| at.name[0] - b'a';
        let parent = Some(attr(1, self.now));
        Some(match op {
            MetaOp::Create(create) => {
                let known = self.names.get(&key(&create.at)).copied();
                let ino = known.unwrap_or_else(|| self.inode());
                self.names.insert(key(&create.at), ino);
                let (attr, created) = (attr(ino, 1), known.is_none());
                MetaAnswer::Created(Created { attr, created, opened: None, parent })
            }
            MetaOp::Unlink(unlink) => {
                let ino = self.names.remove(&key(&unlink.at))?;
                MetaAnswer::Named(Named { attr: attr(ino, 2), parent })
            }
            MetaOp::Rename(rename) => {
                let (from, to) = (key(&rename.from), key(&rename.to));
                let ino = *self.names.get(&from)?;
                let other = self.names.get(&to).copied();
                if other != Some(ino) {
                    self.names.remove(&from);
                    self.names.insert(to, ino);
                }
                let other = other.map(|other| attr(other, 2));
                let (moved, new_parent) = (attr(ino, 2), None);
                MetaAnswer::Renamed(Renamed { moved, other, parent, new_parent })
            }
            MetaOp::Lookup(at) => match self.names.get(&key(at)) {
                Some(ino) => MetaAnswer::Entry(attr(*ino, 1)),
                None => MetaAnswer::Missing(Nothing {}),
            },
            MetaOp::ReadDir(read) => {
                let mut entries: Vec<DirEntry> = self
                    .names
                    .iter()
                    .map(|(name, ino)| DirEntry {
                        name: name_of(*name).name,
                        ino: *ino,
                        cookie: u64::from(*name) + 1,
                        ..DirEntry::default()
                    })
                    .filter(|entry| entry.cookie > read.after)
                    .collect();
                let end = entries.len() <= PAGE;
                entries.truncate(PAGE);
                MetaAnswer::Page(Page { entries, end, parent: 1, leased: true })
            }
            _ => return None,
        })
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask(wish) => self.ask(wish),
            Step::Serve(nth) => {
                let waiting: Vec<usize> =
                    (0..self.sent.len()).filter(|nth| self.sent[*nth].answer.is_none()).collect();
                let Some(&nth) = waiting.get(nth % waiting.len().max(1)) else { return };
                let op = self.sent[nth].op.clone();
                match self.serve(&op) {
                    Some(answer) => self.sent[nth].answer = Some(answer),
                    None => drop(self.sent.remove(nth)),
                }
            }
            Step::Learn(nth) => {
                let answered: Vec<usize> =
                    (0..self.sent.len()).filter(|nth| self.sent[*nth].answer.is_some()).collect();
                let Some(&nth) = answered.get(nth % answered.len().max(1)) else { return };
                let Sent { op, asked, answer, .. } = self.sent.remove(nth);
                let Some(answer) = answer else { return };
                if let MetaAnswer::Page(page) = &answer {
                    let last = page.entries.last().map_or(0, |entry| entry.cookie);
                    self.listed = if page.end { 0 } else { last };
                }
                self.leases.learn(&op, &answer, asked, ms(self.now));
            }
            Step::Wait => {
                self.now += 4_001;
                // A note on an inode of the same shard.
                self.leases.forget(&[Ino(1 + SHARDS as u64)], ms(self.now));
            }
            Step::Doubt => self.leases.forget_all(ms(self.now)),
            Step::Change(name) => {
                // The server recalls first, and waits until that is followed.
                self.leases.forget(&[Ino(1)], ms(self.now));
                if self.names.remove(&name).is_none() {
                    let ino = self.inode();
                    self.names.insert(name, ino);
                }
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for name in 0..NAMES {
            let crosses = |sent: &Sent| sent.answer.is_some() && sent.names.contains(&name);
            if self.sent.iter().any(crosses) {
                continue;
            }
            let believed = self.leases.name(Ino(1), &name_of(name).name, ms(self.now));
            let is = self.names.get(&name).map(|ino| Ino(*ino));
            prop_assert!(
                believed.is_none_or(|leads| leads == is),
                "{name}: {believed:?}, is {is:?}"
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_believed_of_a_name_is_so(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.now += 1;
            world.take(step);
            world.check()?;
        }
    }
}
