//! Which loans of a share there are.

use crate::keys;
use crate::records::LoanRecord;
use crate::stored::{decoded, store_error};
use parking_lot::Mutex;
use std::collections::HashMap;
use strake_engine::kv::Snapshot;
use strake_types::{Result, VolumeId};
use strake_wire::message::meta::{GiveBack, Loan};
use tokio::sync::{Notify, oneshot};

/// Loans at one time.
pub(crate) const SLOTS: u8 = 64;
/// Numbers for directories that are made one after the other with one loan.
pub(crate) const CHILDREN_MAX: u32 = 32;

/// The loans of a share.
#[derive(Default)]
pub(crate) struct Loans {
    state: Mutex<State>,
    /// A slot is free again.
    freed: Notify,
}

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
    /// A loan begins, as soon as there is a slot for it.
    pub async fn begin(&self) -> Loan {
        loop {
            let freed = self.freed.notified();
            if let Some(loan) = self.try_begin() {
                return loan;
            }
            freed.await;
        }
    }

    fn try_begin(&self) -> Option<Loan> {
        let mut state = self.state.lock();
        let (slot, stored) = state.free.pop()?;
        state.last += 1;
        Some(Loan { number: state.last, slot: slot.into(), stored, ..Loan::default() })
    }

    /// A slot in which this number is stored is free.
    pub fn end(&self, loan: &Loan, stored: u64) {
        {
            let mut state = self.state.lock();
            state.lent.remove(&loan.number);
            state.free.push((loan.slot as u8, stored));
        }
        self.freed.notify_waiters();
    }

    /// True while so many slots are free that a borrower may keep one: others never wait for what nobody uses.
    pub fn are_few(&self) -> bool {
        self.state.lock().free.len() >= usize::from(SLOTS / 2)
    }

    /// Ends all loans: whoever waits for one to be given back looks for himself what has become of its change.
    pub fn call_in(&self) {
        for (number, (_, keeper)) in &mut self.state.lock().lent {
            if let Some(keeper) = keeper.take() {
                let _ = keeper.send(GiveBack { number: *number, ..GiveBack::default() });
            }
        }
    }

    /// True if nothing is lent.
    pub fn are_over(&self) -> bool {
        self.state.lock().lent.is_empty()
    }

    /// Inodes and bytes that a share has more in a snapshot by changes that are not counted yet.
    pub async fn uncounted(&self, id: VolumeId, snapshot: &dyn Snapshot) -> Result<(i64, i64)> {
        let lent = |(number, (slot, _)): (&u64, &(u8, _))| (*number, *slot);
        let lent: Vec<(u64, u8)> = self.state.lock().lent.iter().map(lent).collect();
        let (mut inodes, mut bytes) = (0, 0);
        if lent.is_empty() {
            return Ok((inodes, bytes));
        }
        let slots: Vec<_> = lent.iter().map(|(_, slot)| keys::loan(id, *slot)).collect();
        let found = snapshot.multi_get(&slots).await.map_err(store_error)?;
        for (((number, _), key), value) in lent.into_iter().zip(&slots).zip(found) {
            let stored: Option<LoanRecord> = decoded(key, value)?;
            if let Some(made) = stored.filter(|stored| stored.number == number && stored.made) {
                (inodes, bytes) = (inodes + made.inodes, bytes + made.bytes);
            }
        }
        Ok((inodes, bytes))
    }

    /// Nothing is lent; this number is stored in all slots.
    pub fn reset(&self, last: u64) {
        let free = (0..SLOTS).map(|slot| (slot, last)).collect();
        *self.state.lock() = State { free, last, lent: HashMap::new() };
        self.freed.notify_waiters();
    }

    /// A loan is given: whoever takes it back says so there.
    pub fn given(&self, loan: &Loan, keeper: oneshot::Sender<GiveBack>) {
        self.state.lock().lent.insert(loan.number, (loan.slot as u8, Some(keeper)));
    }

    /// Who waits for a loan to be given back.
    pub fn keeper(&self, number: u64) -> Option<oneshot::Sender<GiveBack>> {
        self.state.lock().lent.get_mut(&number).and_then(|(_, keeper)| keeper.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_finds_no_slot_free_waits_for_one() {
        let loans = Loans::default();
        loans.reset(5);
        let mut first = None;
        for _ in 0..SLOTS {
            first = Some(loans.begin().await);
        }
        let first = first.unwrap();
        let late = loans.begin();
        futures::pin_mut!(late);
        assert!(futures::poll!(late.as_mut()).is_pending());
        loans.end(&first, 9);
        let late = late.await;
        assert_eq!((late.slot, late.stored, late.number), (first.slot, 9, first.number + 1));
    }
}
