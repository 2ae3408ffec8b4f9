//! Loans that this share keeps for the next new directory in another share.
//!
//! Nobody knows of a directory that is about to be made: a loan for it locks and recalls nothing, it is a number and a slot. So it
//! is as good for the next one, as long as the slot says what the last one left there, and is given back when its numbers
//! or its time are over.

use crate::records::LoanRecord;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use strake_types::{Epoch, VolumeId};
use strake_wire::message::meta::{GiveBack, Loan};
use tokio::time::Instant;

/// A loan as its borrower has it.
#[derive(Clone)]
pub(crate) struct OnLoan {
    /// What the lender said.
    pub loan: Loan,
    /// Since which epoch of the map the lender had its server.
    pub since: Option<Epoch>,
    /// Numbers that are left for new directories.
    pub numbers: Range<u64>,
    /// What the last change that was made with it has left in its slot.
    pub noted: Option<LoanRecord>,
    /// It is kept no longer.
    pub until: Instant,
}

impl OnLoan {
    /// True if a slot holds what was left there last: the lender has not ended the loan.
    pub fn lasts(&self, stored: Option<LoanRecord>) -> bool {
        match self.noted {
            Some(_) => stored == self.noted,
            None => stored.is_some_and(|stored| stored.number == self.loan.stored),
        }
    }

    /// What its slot is to hold when one more change is made, by which the lender's share has so many inodes and bytes more.
    pub fn note(&self, inodes: i64, bytes: i64) -> LoanRecord {
        let before = self.noted.unwrap_or_default();
        LoanRecord {
            number: self.loan.number,
            made: true,
            inodes: before.inodes + inodes,
            bytes: before.bytes + bytes,
            over: false,
        }
    }

    /// What the lender is told in the end. Not `certain`: nobody knows what has become of the last change.
    pub fn end(&self, certain: bool) -> GiveBack {
        let LoanRecord { inodes, bytes, .. } = self.noted.unwrap_or_default();
        let made = certain.then_some(self.noted.is_some());
        GiveBack { number: self.loan.number, made, inodes, bytes }
    }
}

/// Loans that wait for their next use. Who lends gives no more that can be kept than half of its slots.
#[derive(Default)]
pub(crate) struct Kept(Mutex<HashMap<VolumeId, Vec<OnLoan>>>);

impl Kept {
    /// One of a share that has had its server since this epoch.
    pub fn take(&self, share: VolumeId, since: Option<Epoch>) -> Option<OnLoan> {
        let mut kept = self.0.lock();
        let (of_share, now) = (kept.get_mut(&share)?, Instant::now());
        let nth = of_share.iter().rposition(|loan| loan.since == since && now < loan.until)?;
        Some(of_share.swap_remove(nth))
    }

    /// Keeps a loan of which nothing is under way. False: it is of no use any more.
    pub fn put(&self, share: VolumeId, loan: &OnLoan) -> bool {
        let mut kept = self.0.lock();
        // Under the lock: whoever looks for it when its time is over finds it, or it is not put here.
        let good = !loan.numbers.is_empty() && Instant::now() < loan.until;
        if good {
            kept.entry(share).or_default().push(loan.clone());
        }
        good
    }

    /// Keeps none of a share any more: its lender ends them.
    pub fn forget(&self, share: VolumeId) {
        self.0.lock().remove(&share);
    }

    /// That one, if it is here.
    pub fn remove(&self, share: VolumeId, number: u64) -> Option<OnLoan> {
        let mut kept = self.0.lock();
        let of_share = kept.get_mut(&share)?;
        let nth = of_share.iter().position(|kept| kept.loan.number == number)?;
        Some(of_share.swap_remove(nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SHARE: VolumeId = VolumeId(2);
    const SINCE: Option<Epoch> = Some(Epoch(4));

    fn on_loan(numbers: Range<u64>) -> OnLoan {
        let loan = Loan { number: 9, slot: 1, stored: 5, ..Loan::default() };
        let until = Instant::now() + Duration::from_secs(1);
        OnLoan { loan, since: SINCE, numbers, noted: None, until }
    }

    fn stored(number: u64) -> Option<LoanRecord> {
        Some(LoanRecord { number, ..LoanRecord::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_loan_is_kept_for_its_time_and_while_it_has_numbers() {
        let kept = Kept::default();
        // Such is what a lender gives who knows of no further uses.
        assert!(!kept.put(SHARE, &on_loan(Range::default())), "it has no numbers left");
        assert!(kept.put(SHARE, &on_loan(3..4)));
        assert!(kept.take(VolumeId(3), SINCE).is_none(), "it is of another share");
        assert!(kept.take(SHARE, Some(Epoch(5))).is_none(), "its lender is gone");
        let taken = kept.take(SHARE, SINCE).unwrap();
        assert!(kept.take(SHARE, SINCE).is_none(), "it is in use");
        assert!(kept.put(SHARE, &taken));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(kept.take(SHARE, SINCE).is_none() && !kept.put(SHARE, &taken), "its time is over");
        assert!(kept.remove(SHARE, 9).is_some() && kept.remove(SHARE, 9).is_none());
        assert!(kept.put(SHARE, &on_loan(3..4)));
        kept.forget(SHARE);
        assert!(kept.take(SHARE, SINCE).is_none());
    }

    #[tokio::test]
    async fn a_loan_lasts_while_its_slot_is_as_its_last_change_left_it() {
        let mut loan = on_loan(3..9);
        assert!(loan.lasts(stored(5)) && !loan.lasts(stored(9)) && !loan.lasts(None));
        assert_eq!(loan.end(true).made, Some(false));
        loan.noted = Some(loan.note(1, 10));
        loan.noted = Some(loan.note(1, 0));
        assert!(loan.lasts(loan.noted) && !loan.lasts(stored(5)) && !loan.lasts(stored(9)));
        let ended = loan.noted.map(|noted| LoanRecord { over: true, ..noted });
        assert!(!loan.lasts(ended), "its lender has ended it");
        let told = GiveBack { number: 9, made: Some(true), inodes: 2, bytes: 10 };
        assert_eq!(loan.end(true), told);
        assert_eq!(loan.end(false).made, None);
    }
}
