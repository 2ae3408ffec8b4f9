//! Which loans of a share there are.

use crate::keys;
use crate::records::LoanRecord;
use crate::stored::get;
use parking_lot::Mutex;
use std::collections::HashMap;
use strake_engine::kv::Snapshot;
use strake_types::{Error, ErrorKind, Result, VolumeId};
use strake_wire::message::meta::{GiveBack, Loan};
use tokio::sync::oneshot;

/// Loans at one time.
pub(crate) const SLOTS: u8 = 64;

/// The loans of a share.
#[derive(Default)]
pub(crate) struct Loans(Mutex<State>);

#[derive(Default)]
struct State {
    /// Slots that nobody has, and the number that is stored in each.
    free: Vec<(u8, u64)>,
    /// The number of the last loan.
    last: u64,
    /// Who waits for each to be given back. It stays here until what it has changed is counted.
    lent: HashMap<u64, (u8, Option<oneshot::Sender<GiveBack>>)>,
}

impl Loans {
    /// A loan begins.
    pub fn begin(&self) -> Result<Loan> {
        let mut state = self.0.lock();
        let full = || Error::with(ErrorKind::Unavailable, "too much of this share is lent");
        let (slot, stored) = state.free.pop().ok_or_else(full)?;
        state.last += 1;
        Ok(Loan { number: state.last, slot: slot.into(), stored, ino: 0 })
    }

    /// A slot in which this number is stored is free.
    pub fn end(&self, loan: &Loan, stored: u64) {
        let mut state = self.0.lock();
        state.lent.remove(&loan.number);
        state.free.push((loan.slot as u8, stored));
    }

    /// True if nothing is lent.
    pub fn are_over(&self) -> bool {
        self.0.lock().lent.is_empty()
    }

    /// Inodes and bytes that a share has more in a snapshot by changes that are not counted yet.
    pub async fn uncounted(&self, id: VolumeId, snapshot: &dyn Snapshot) -> Result<(i64, i64)> {
        let lent = |(number, (slot, _)): (&u64, &(u8, _))| (*number, *slot);
        let lent: Vec<(u64, u8)> = self.0.lock().lent.iter().map(lent).collect();
        let (mut inodes, mut bytes) = (0, 0);
        for (number, slot) in lent {
            let stored: Option<LoanRecord> = get(snapshot, &keys::loan(id, slot)).await?;
            if let Some(made) = stored.filter(|stored| stored.number == number && stored.made) {
                (inodes, bytes) = (inodes + made.inodes, bytes + made.bytes);
            }
        }
        Ok((inodes, bytes))
    }

    /// Nothing is lent; this number is stored in all slots.
    pub fn reset(&self, last: u64) {
        let free = (0..SLOTS).map(|slot| (slot, last)).collect();
        *self.0.lock() = State { free, last, lent: HashMap::new() };
    }

    /// A loan is given: whoever takes it back says so there.
    pub fn given(&self, loan: &Loan, keeper: oneshot::Sender<GiveBack>) {
        self.0.lock().lent.insert(loan.number, (loan.slot as u8, Some(keeper)));
    }

    /// Who waits for a loan to be given back.
    pub fn keeper(&self, number: u64) -> Option<oneshot::Sender<GiveBack>> {
        self.0.lock().lent.get_mut(&number).and_then(|(_, keeper)| keeper.take())
    }
}
