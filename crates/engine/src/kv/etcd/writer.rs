//! Commits: one task writes, and what is asked for while a transaction of etcd is under way goes together into
//! the next (group commit).
//!
//! Only we write our part, so whether two commits are in each other's way is found out here, without asking. Keys that others
//! write as well (`contended`) are conditions of the transaction, in which such a commit is alone. Each
//! transaction puts its number into our receipt, if the part is still ours and if the receipt is still the one that
//! its predecessor left. So where no answer came the receipt tells what happened; and by writing another number
//! there we make sure that a transaction which is still on its way never will.

use super::super::conflicts::RecentWrites;
use super::super::group::tell;
use super::super::pause::Pause;
use super::super::{KvError, Outcome, Result};
use super::commits::{Ask, Commit, WAITING_MAX, next_batch};
use super::failure::Failed;
use super::hub::{Hub, version};
use super::messages::{
    Compare, DeleteRangeRequest, KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use super::records::{read_receipt, receipt};
use bytes::Bytes;
use std::collections::VecDeque;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Bytes of a transaction for several commits. etcd takes 1.5 MiB unless told otherwise.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// It is not made smaller than this, however little the members take.
const BATCH_BYTES_MIN: usize = 16 << 10;
/// How often it is looked whether there is room again.
const FULL_LOOK: Duration = Duration::from_secs(2);
/// The revision of a receipt that is not there.
const NONE: i64 = 0;

/// The writing task's own.
pub struct Writer {
    hub: Arc<Hub>,
    recent: RecentWrites,
    /// The revision that wrote our receipt last, once nothing is in doubt.
    last: i64,
    /// The next number; none is used twice.
    next: u64,
    doubt: Option<Doubt>,
    /// The receipt was to be taken away, and nobody knows whether it was, or will be.
    may_be_taken_away: bool,
    /// The revision at which it was known last that there is none.
    gone_at: i64,
    batch_bytes_max: usize,
}

/// What a transaction writes beside the receipt.
#[derive(Default)]
struct Change {
    writes: Vec<RequestOp>,
    /// Of the keys.
    hashes: Vec<u64>,
    conditions: Vec<Compare>,
}

/// A transaction that may or may not have happened.
struct Doubt {
    number: u64,
    /// Of the keys that it writes.
    hashes: Vec<u64>,
    /// etcd is done with it: it does not happen later.
    is_over: bool,
}

/// What became of it. That does not change any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Happened,
    Never,
    /// Nobody can tell.
    Untold,
}

/// What was found out about a transaction in doubt.
struct Found {
    fate: Fate,
    /// The revision that wrote our receipt last.
    last: i64,
    /// The revision at which it happened, or the newest at which it can have.
    at: i64,
}

/// How a transaction ended.
enum Ended {
    Committed,
    /// It may have happened.
    Unsure,
    /// Nothing was written: a key that others write as well was written since.
    Conflict,
    /// Nothing was written: it has too many bytes.
    TooLarge(Failed),
    Failed(KvError),
}

impl Writer {
    pub fn new(hub: Arc<Hub>) -> Self {
        let (recent, last) =
            (RecentWrites::new(version(hub.claim.revision)), hub.claim.receipt_revision);
        let (next, doubt, batch_bytes_max) = (1, None, BATCH_BYTES_MAX);
        let (may_be_taken_away, gone_at) = (false, NONE);
        Self { hub, recent, last, next, doubt, may_be_taken_away, gone_at, batch_bytes_max }
    }

    /// What [`Commit::new`] wants.
    pub fn hasher(&self) -> RandomState {
        self.recent.hasher()
    }

    /// Writes until nobody can ask any more.
    pub async fn run(mut self, mut asked: mpsc::Receiver<Ask>) {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                match self.next_ask(&mut asked).await {
                    Some(ask) => self.take(ask, &mut waiting).await,
                    None => return,
                }
            }
            while waiting.len() < WAITING_MAX {
                let Ok(ask) = asked.try_recv() else { break };
                self.take(ask, &mut waiting).await;
            }
            if waiting.is_empty() {
                continue;
            }
            let mut batch = next_batch(&mut waiting, self.batch_bytes_max);
            let result = self.carry_out(&mut batch, &mut waiting).await;
            tell(batch, &result);
            // The others have waited as long, and would one after the other wait as long again.
            if let Err(error @ KvError::Unreachable { .. }) = result {
                tell(std::mem::take(&mut waiting), &Err(error));
            }
        }
    }

    /// What is asked next. Until then it is looked, where there was no room, whether there is some.
    async fn next_ask(&mut self, asked: &mut mpsc::Receiver<Ask>) -> Option<Ask> {
        while self.hub.is_full() && !self.hub.is_taken_over() {
            match tokio::time::timeout(FULL_LOOK, asked.recv()).await {
                Ok(ask) => return ask,
                Err(_) => {
                    let deadline = self.hub.cluster.deadline();
                    if self.settle(deadline).await.is_ok() {
                        let _still_full = self.advance(Change::default(), deadline).await;
                    }
                }
            }
        }
        asked.recv().await
    }

    async fn take(&mut self, ask: Ask, waiting: &mut VecDeque<Commit>) {
        match ask {
            Ask::Commit(commit) => waiting.push_back(commit),
            Ask::Settle(tell_settled) => {
                let settled = self.settle(self.hub.cluster.deadline()).await.map(|_| ());
                if let Err(error) = &settled {
                    tell(std::mem::take(waiting), &Err(error.clone()));
                }
                let _gone = tell_settled.send(settled);
            }
            Ask::Confirm(tell_confirmed) => {
                let _gone = tell_confirmed.send(self.confirm().await);
            }
        }
    }

    /// Commits a batch; those against which something stands are told so and leave it.
    async fn carry_out(
        &mut self,
        batch: &mut Vec<Commit>,
        waiting: &mut VecDeque<Commit>,
    ) -> Result<Outcome> {
        let deadline = self.hub.cluster.deadline();
        loop {
            self.hub.check_history()?;
            self.settle(deadline).await?;
            self.refuse_losers(batch);
            if batch.is_empty() {
                return Ok(Outcome::Conflict);
            }
            let change = self.change(batch);
            if change.writes.is_empty() {
                return Ok(Outcome::Committed);
            }
            self.see_to_receipt(deadline).await?;
            match self.advance(change, deadline).await {
                Ended::Committed => return Ok(Outcome::Committed),
                Ended::Conflict => return Ok(Outcome::Conflict),
                Ended::Unsure => match self.settle(deadline).await {
                    Ok(Fate::Happened) => return Ok(Outcome::Committed),
                    Ok(Fate::Untold) => return Ok(Outcome::Unknown),
                    Ok(Fate::Never) if self.hub.is_full() => return Err(self.full()),
                    Ok(Fate::Never) if Instant::now() < deadline => {}
                    Ok(Fate::Never) => {
                        return Err(self.hub.cluster.unreachable("it gives no answers to commits"));
                    }
                    Err(error) => {
                        tracing::warn!("the answer to a commit was lost: {error}");
                        return Ok(Outcome::Unknown);
                    }
                },
                Ended::TooLarge(failed) => {
                    if batch.len() == 1 {
                        return Err(self.too_large(&failed, batch[0].bytes));
                    }
                    // Members that were told to take less than usual.
                    self.batch_bytes_max = (self.batch_bytes_max / 2).max(BATCH_BYTES_MIN);
                    let rest = batch.drain(1..).rev();
                    rest.for_each(|commit| waiting.push_front(commit));
                }
                Ended::Failed(error) => return Err(error),
            }
        }
    }

    /// Puts a receipt that is gone, by itself: a write that found none could find none again, when it comes late.
    async fn see_to_receipt(&mut self, deadline: Instant) -> Result<()> {
        while self.last == NONE {
            self.put_receipt(deadline).await?;
            if self.last == NONE && self.hub.is_full() {
                return Err(self.full());
            }
            if self.last == NONE && Instant::now() >= deadline {
                return Err(self.hub.cluster.unreachable("it gives no answers to commits"));
            }
        }
        Ok(())
    }

    async fn confirm(&mut self) -> Result<()> {
        let deadline = self.hub.cluster.deadline();
        self.settle(deadline).await?;
        self.put_receipt(deadline).await
    }

    /// Puts the next receipt and nothing else, if there is room.
    async fn put_receipt(&mut self, deadline: Instant) -> Result<()> {
        match self.advance(Change::default(), deadline).await {
            Ended::Committed => Ok(()),
            Ended::Unsure | Ended::Conflict => self.settle(deadline).await.map(|_| ()),
            Ended::TooLarge(failed) => Err(failed.into_error(self.hub.cluster.shown())),
            Ended::Failed(error) => Err(error),
        }
    }

    /// What a batch writes.
    fn change(&self, batch: &[Commit]) -> Change {
        let writes = batch.iter().flat_map(|commit| &commit.writes);
        Change {
            writes: writes.map(|(key, value)| self.op(key, value.as_ref())).collect(),
            hashes: batch.iter().flat_map(|commit| &commit.hashes).copied().collect(),
            conditions: batch.iter().flat_map(Commit::conditions).collect(),
        }
    }

    fn op(&self, key: &[u8], value: Option<&Bytes>) -> RequestOp {
        let key = self.hub.keys.map(key);
        match value {
            Some(value) => RequestOp::put(key, value.clone()),
            None => RequestOp::delete(key),
        }
    }

    fn full(&self) -> KvError {
        Failed::Full.into_error(self.hub.cluster.shown())
    }

    fn too_large(&self, failed: &Failed, bytes: usize) -> KvError {
        let cause = match failed {
            Failed::TooLarge(cause) => cause,
            _ => "it has too many bytes",
        };
        let cause = format!("it does not take a change of about {} KiB ({cause})", bytes >> 10);
        Failed::TooLarge(cause).into_error(self.hub.cluster.shown())
    }

    /// Tells those commits of which a key has been written since their snapshot.
    fn refuse_losers(&self, batch: &mut Vec<Commit>) {
        let lost = |commit: &Commit| self.recent.conflict(commit.since, &commit.hashes);
        let (losers, others) = std::mem::take(batch).into_iter().partition(lost);
        *batch = others;
        tell(losers, &Ok(Outcome::Conflict));
    }

    /// One transaction, which leaves the next receipt, if the part is ours and the receipt the last one.
    async fn advance(&mut self, change: Change, deadline: Instant) -> Ended {
        let Change { writes, hashes, conditions } = change;
        // A receipt that is not there may come and go: that tells nothing about a transaction that comes late.
        assert!(self.last != NONE || writes.is_empty(), "writes without a receipt before them");
        let may_conflict = !conditions.is_empty();
        let (mut txn, number) = self.receipt_txn(writes);
        txn.compare.extend(conditions);
        let least = self.hub.met() + 1;
        let failed = match self.hub.cluster.write(&txn, deadline).await {
            Ok(done) if done.succeeded => match self.hub.meet(done.revision(), least) {
                Ok(()) => {
                    self.last = done.revision();
                    self.hub.note_full(false);
                    self.note(self.last, &hashes);
                    return Ended::Committed;
                }
                Err(error) => Failed::Unsure(error.to_string()),
            },
            Ok(refused) => return self.refused(&refused, least - 1, may_conflict),
            Err(failed) => failed,
        };
        let is_over = match failed {
            Failed::Unsure(cause) => {
                tracing::debug!("commit {number}: {cause}");
                false
            }
            Failed::Full => {
                self.hub.note_full(true);
                true
            }
            Failed::TooLarge(_) => return Ended::TooLarge(failed),
            failed => return Ended::Failed(self.hub.cluster.error(failed).await),
        };
        self.doubt = Some(Doubt { number, hashes, is_over });
        self.hub.in_doubt.store(true, Ordering::SeqCst);
        Ended::Unsure
    }

    /// What makes the receipt the next one; if it cannot, it looks at claim and receipt.
    fn receipt_txn(&mut self, writes: Vec<RequestOp>) -> (TxnRequest, u64) {
        let number = self.next;
        self.next += 1;
        let claim = &self.hub.claim;
        let mut success = RequestOp::nested(writes);
        success.push(RequestOp::put(claim.receipt.clone(), receipt(number)));
        let look = |key: &Bytes| RequestOp::range(RangeRequest::one(key.clone()));
        let txn = TxnRequest {
            compare: vec![
                Compare::is(claim.key.clone(), claim.revision),
                Compare::holds(claim.key.clone(), claim.record.clone()),
                Compare::is(claim.receipt.clone(), self.last),
            ],
            success,
            failure: vec![look(&claim.key), look(&claim.receipt)],
        };
        (txn, number)
    }

    /// Why a transaction was not carried out although nothing was in doubt.
    fn refused(&mut self, refused: &TxnResponse, least: i64, may_conflict: bool) -> Ended {
        // In this order: where etcd has gone back to before the opening, the claim is not ours either.
        let met = self.hub.meet(refused.revision(), least);
        if let Err(error) = met.and_then(|()| self.hub.check_claim(refused.found(0))) {
            return Ended::Failed(error);
        }
        match (refused.found(1), self.last) {
            // It is the one that was asked for: a key was written since.
            (Some(found), last) if may_conflict && found.mod_revision == last => {
                return Ended::Conflict;
            }
            // A bare one that was given up came late. Every write asks for the very revision of the one before it.
            (Some(late), NONE) => match read_receipt(self.hub.cluster.shown(), &late.value) {
                Ok(number) if number < self.next && late.mod_revision > self.gone_at => {
                    self.last = late.mod_revision;
                }
                Ok(_) => return Ended::Failed(self.changed()),
                Err(error) => return Ended::Failed(error),
            },
            // So did what takes it away.
            (None, _) if self.may_be_taken_away => {
                (self.last, self.gone_at) = (NONE, refused.revision());
            }
            _ => return Ended::Failed(self.changed()),
        }
        Ended::Unsure
    }

    fn changed(&self) -> KvError {
        self.hub.changed("the receipt of our last change is not there")
    }

    /// Notes what was written at a revision.
    fn note(&mut self, revision: i64, hashes: &[u64]) {
        let oldest = self.hub.horizon.advance(version(revision));
        self.recent.note(version(revision), hashes, oldest);
    }

    /// Finds out whether the transaction in doubt has happened; after this it never will if it has not.
    async fn settle(&mut self, deadline: Instant) -> Result<Fate> {
        let Some(doubt) = self.doubt.take() else { return Ok(Fate::Never) };
        let mut pause = Pause::default();
        let found = loop {
            let error = match self.find_out(&doubt, deadline).await {
                Ok(found) => break found,
                Err(failed) => failed,
            };
            if let Err(error) = pause.after(error, deadline).await {
                self.doubt = Some(doubt);
                return Err(error);
            }
        };
        self.last = found.last;
        if self.last == NONE {
            self.gone_at = found.at;
        }
        if found.fate != Fate::Never {
            self.note(found.at, &doubt.hashes);
        }
        self.hub.in_doubt.store(false, Ordering::SeqCst);
        Ok(found.fate)
    }

    async fn find_out(&mut self, doubt: &Doubt, deadline: Instant) -> Result<Found> {
        self.hub.check_history()?;
        let least = self.hub.met();
        if doubt.is_over {
            let look = RangeRequest::one(self.hub.claim.receipt.clone());
            return match self.hub.cluster.range(&look, deadline).await {
                Ok(found) => {
                    self.hub.meet_read(found.revision(), least)?;
                    self.judge(doubt, found.kvs.first(), found.revision())
                }
                Err(failed) => Err(self.hub.cluster.error(failed).await),
            };
        }
        let (exchange, _) = self.receipt_txn(Vec::new());
        match self.hub.cluster.write(&exchange, deadline).await {
            Ok(done) if done.succeeded => {
                self.hub.meet(done.revision(), least + 1)?;
                self.hub.note_full(false);
                Ok(Found { fate: Fate::Never, last: done.revision(), at: done.revision() })
            }
            Ok(refused) => {
                self.hub.meet(refused.revision(), least)?;
                self.hub.check_claim(refused.found(0)).or_else(|error| match error {
                    // What has become of it is told all the same.
                    KvError::TakenOver { .. } => Ok(()),
                    error => Err(error),
                })?;
                self.judge(doubt, refused.found(1), refused.revision())
            }
            Err(Failed::Full) => self.take_receipt_away(doubt, deadline).await,
            Err(failed) => Err(self.hub.cluster.error(failed).await),
        }
    }

    /// Where there is no room for another receipt, none does as well: the transaction in doubt does not find the one
    /// that it waits for.
    async fn take_receipt_away(&mut self, doubt: &Doubt, deadline: Instant) -> Result<Found> {
        self.hub.note_full(true);
        let least = self.hub.met();
        let key = self.hub.claim.receipt.clone();
        let delete = DeleteRangeRequest { key, prev_kv: true };
        match self.hub.cluster.delete(&delete, deadline).await {
            Ok(done) => {
                let seen = done.header.as_ref().map_or(0, |header| header.revision);
                self.hub.meet(seen, least)?;
                let found = self.judge(doubt, done.prev_kvs.first(), seen)?;
                Ok(Found { last: NONE, at: seen, ..found })
            }
            Err(failed) => {
                self.may_be_taken_away = true;
                Err(self.hub.cluster.error(failed).await)
            }
        }
    }

    /// What a receipt says of the transaction in doubt. It is gone where we took it away and were not told, or where many
    /// have written the part since.
    fn judge(&self, doubt: &Doubt, receipt: Option<&KeyValue>, seen: i64) -> Result<Found> {
        let Some(receipt) = receipt else {
            return Ok(Found { fate: Fate::Untold, last: NONE, at: seen });
        };
        if receipt.mod_revision < self.last {
            return Err(self.changed());
        }
        let number = read_receipt(self.hub.cluster.shown(), &receipt.value)?;
        let fate = match number {
            happened if happened == doubt.number => Fate::Happened,
            // A bare one of before, which came late and found none: ours was there, or was taken away without it.
            before if before < doubt.number && receipt.mod_revision != self.last => Fate::Untold,
            _ => Fate::Never,
        };
        Ok(Found { fate, last: receipt.mod_revision, at: receipt.mod_revision })
    }
}
