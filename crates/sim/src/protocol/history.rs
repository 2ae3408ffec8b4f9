//! What clients have seen of the register, and whether any order of their operations explains it.
//!
//! The register is linearizable as long as there is a *world*: a value of the register, and which of
//! the writes that have no answer yet took effect already, that agrees with all that was seen. All
//! worlds are followed at once. A read removes those with another value, an answered write those in
//! which it has not happened; a write without an answer may happen at any moment. Reads here begin and
//! end in one step: a longer one allows more, so it finds nothing that these do not.

use super::ids::{CLIENTS, Epoch, Names, Value};

/// Values are smaller than this.
pub const VALUES: u8 = 8;
/// One world for each value and each set of clients whose write has happened.
const SETS: u8 = 1 << CLIENTS;

/// The write of each client that has no answer yet.
pub type Pending = [Option<Value>; CLIENTS];

/// A promise that was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Somebody read what no order of the operations explains.
    ReadBack = 1,
    /// Two members acknowledged in one epoch.
    TwoPrimaries = 2,
    /// A primary acknowledged in an epoch that was over what the next one does not have.
    LateAcknowledgement = 4,
}

/// What an observer of all clients knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct History {
    /// Bit `value * SETS + set`: this world is possible.
    worlds: u32,
    /// Bit `value`: its write was answered.
    pub answered: u8,
    /// Bit `value`: older than something that was synced, so it may not come back.
    pub gone: u8,
    /// The last epoch in which a write was acknowledged, and by whom.
    pub last: (Epoch, u8),
    /// On whom the group is being refounded, and whether that loses writes that were not synced.
    refounding: Option<(u8, bool)>,
    /// [`Violation`]s, as bits.
    violations: u8,
}

impl Default for History {
    /// The register holds 0, and nothing was done.
    fn default() -> Self {
        Self { worlds: 1, answered: 1, gone: 0, last: (0, 0), refounding: None, violations: 0 }
    }
}

impl History {
    /// Notes a promise that was not kept.
    pub fn violate(&mut self, violation: Violation) {
        self.violations |= violation as u8;
    }

    /// Whether this promise was broken.
    pub fn violated(&self, violation: Violation) -> bool {
        self.violations & violation as u8 != 0
    }

    /// Whether all promises were kept.
    pub fn is_sound(&self) -> bool {
        self.violations == 0
    }

    /// A client began a write; it is among the pending ones already.
    pub fn invoked(&mut self, pending: &Pending) {
        self.happen(pending);
    }

    /// The write of this client was answered; it is still among the pending ones.
    pub fn returned(&mut self, client: usize, pending: &Pending) {
        let happened = self.worlds & with(client);
        if let Some(value) = pending[client] {
            self.answered |= 1 << value;
        }
        // The client's bit is free for its next write.
        self.keep(happened >> (1 << client));
    }

    /// Somebody read this value.
    pub fn read(&mut self, value: Value, pending: &Pending) {
        self.keep(self.worlds & of(value));
        self.happen(pending);
    }

    /// Whether a read of this value could be explained.
    pub fn explains(&self, value: Value) -> bool {
        self.worlds & of(value) != 0
    }

    /// The group is refounded on this member. It takes effect when the member acts in that epoch;
    /// until then those of earlier epochs may still answer.
    pub fn refounds(&mut self, member: usize, lost: bool) {
        let before = self.refounding.is_some_and(|(_, lost)| lost);
        self.refounding = Some((member as u8, lost || before));
    }

    /// Whether this member's next epoch is one that was refounded on it.
    pub fn takes_effect(&self, member: usize) -> bool {
        self.refounding.is_some_and(|(on, _)| usize::from(on) == member)
    }

    /// Whether writes that were not synced are about to be lost.
    pub fn loses(&self) -> bool {
        self.refounding.is_some_and(|(_, lost)| lost)
    }

    /// The group has been refounded. Nobody remembers requests any more: a write that has no answer
    /// yet may happen once more. After a loss of power the register holds what was on the disk.
    pub fn refounded(&mut self, value: Value, pending: &Pending) {
        if self.loses() {
            self.worlds = of(value);
            for (client, write) in pending.iter().enumerate() {
                if write.is_none() {
                    self.worlds &= !with(client);
                }
            }
        }
        for client in 0..CLIENTS {
            self.worlds |= (self.worlds & with(client)) >> (1 << client);
        }
        self.refounding = None;
        self.happen(pending);
    }

    /// The same with other numbers for the members.
    pub fn renamed(self, names: &Names) -> Self {
        let (epoch, by) = self.last;
        // In epoch 0 nobody acknowledges anything.
        let by = if epoch == 0 { by } else { names[usize::from(by)] as u8 };
        let refounding = self.refounding.map(|(on, lost)| (names[usize::from(on)] as u8, lost));
        Self { last: (epoch, by), refounding, ..self }
    }

    fn keep(&mut self, worlds: u32) {
        self.worlds = worlds;
        if worlds == 0 {
            self.violate(Violation::ReadBack);
        }
    }

    /// Adds the worlds in which pending writes happen now, in any order.
    fn happen(&mut self, pending: &Pending) {
        loop {
            let before = self.worlds;
            for (client, write) in pending.iter().enumerate() {
                let Some(value) = *write else { continue };
                for set in (0..SETS).filter(|set| set & (1 << client) == 0) {
                    if self.worlds & every(set) != 0 {
                        self.worlds |= 1 << (value * SETS + (set | 1 << client));
                    }
                }
            }
            if self.worlds == before {
                return;
            }
        }
    }
}

/// All worlds in which the register holds this value.
fn of(value: Value) -> u32 {
    ((1 << SETS) - 1) << (value * SETS)
}

/// All worlds in which exactly these clients' writes have happened.
fn every(set: u8) -> u32 {
    (0..VALUES).map(|value| 1 << (value * SETS + set)).sum()
}

/// All worlds in which this client's write has happened.
fn with(client: usize) -> u32 {
    (0..SETS).filter(|set| set & (1 << client) != 0).map(every).sum()
}
