//! Commits: one task writes, and what is asked for while a transaction is under way goes together into the
//! next (group commit).
//!
//! Each transaction of TiKV writes the claim of the part first, with a number, `seq`. So the claim is what decides
//! whether the transaction happened, and its receipt: where no answer came it tells what happened; and by writing
//! another number there we make sure that a transaction which is still on its way never will.
//!
//! A transaction of which the client may have left something out ([`lookups`]) is written once more, with all that was
//! in it, until nothing can be missing. Nobody is given a timestamp to read as of in the meantime.

use crate::Hub;
use crate::cluster::{Fault, begin, give_up};
use crate::failure::{failure, is_conflict};
use crate::keys::Keys;
use crate::lookups;
use crate::moment::Moment;
use crate::records::{Claim, wrap};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::group::{Queued, next_batch, tell};
use strake_engine::kv::{KvError, Outcome, Pause, Result, Writes};
use tikv_client::{Error, TimestampExt, Transaction};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// Commits that may wait to be taken up.
pub const WAITING_MAX: usize = 1024;
/// Keys, and bytes of keys and values, in a transaction of several commits. The more bytes, the longer its locks stay if
/// its answer is lost: six seconds for so many. Nobody settles it before, for which he has ten. A single commit may be larger,
/// and there is as much more time to settle it: see [`more_time_for`].
const BATCH_KEYS_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 1 << 20;
/// How often a transaction that lost a race is tried again.
const RACES_MAX: u32 = 10;
/// Longest time for which TiKV's client has locks stay, and the shortest.
const LOCKED_MS_MAX: u64 = 20_000;
const LOCKED_MS_MIN: u64 = 3_000;

/// What the writer is asked to do.
pub enum Ask {
    /// To commit.
    Commit(Commit),
    /// To find out what has become of a commit whose answer was lost.
    Settle(oneshot::Sender<Result<()>>),
}

/// A commit, and the time that its snapshot shows.
pub struct Commit {
    pub writes: Writes,
    pub moment: Arc<Moment>,
    pub answer: oneshot::Sender<Result<Outcome>>,
}

impl Queued for Commit {
    fn writes(&self) -> impl Iterator<Item = (&Vec<u8>, &Option<Bytes>)> {
        self.writes.iter()
    }

    fn into_answer(self) -> oneshot::Sender<Result<Outcome>> {
        self.answer
    }
}

/// Asks the writer to settle what is in doubt.
pub async fn settle(hub: &Hub, writer: &mpsc::Sender<Ask>) -> Result<()> {
    let (tell, told) = oneshot::channel();
    writer.send(Ask::Settle(tell)).await.map_err(|_| hub.cluster.closed())?;
    told.await.map_err(|_| hub.cluster.closed())?
}

/// The writing task's own.
pub struct Writer {
    hub: Arc<Hub>,
    /// What the claim says, once nothing is in doubt.
    last: u64,
    /// The next number; none is used twice.
    next: u64,
    /// A transaction that may or may not have happened.
    doubt: Option<Doubt>,
}

/// Its number, and what it writes.
struct Doubt {
    seq: u64,
    writes: Vec<(Vec<u8>, Option<Bytes>)>,
    /// Something of it may be there, and something not.
    is_torn: bool,
}

impl Doubt {
    fn keys(&self) -> Vec<Vec<u8>> {
        self.writes.iter().map(|(key, _)| key.clone()).collect()
    }

    /// Bytes of what TiKV is sent of it, as far as that counts.
    fn bytes(&self, keys: &Keys) -> u64 {
        let length = |(key, value): &(Vec<u8>, Option<Bytes>)| {
            keys.data(key).len() + value.as_ref().map_or(0, |value| 1 + value.len())
        };
        self.writes.iter().map(length).sum::<usize>() as u64
    }
}

/// How long the locks of a transaction of so many bytes stay, in milliseconds: of `n` MiB six seconds times the root of `n`.
fn locked_ms(bytes: u64) -> u64 {
    let squared = (6_000 * 6_000_u64).saturating_mul(bytes) >> 20;
    squared.isqrt().clamp(LOCKED_MS_MIN, LOCKED_MS_MAX)
}

/// By how much the locks of so many bytes outlast those of a full batch.
fn more_time_for(bytes: u64) -> Duration {
    Duration::from_millis(locked_ms(bytes).saturating_sub(locked_ms(BATCH_BYTES_MAX as u64)))
}

/// How a transaction ended.
enum Ended {
    Committed,
    /// Nothing was written, and it may well be at another try.
    LostRace,
    /// No answer came, or this one, and it may have happened.
    Unsure(KvError),
    /// Nothing was written.
    Failed(KvError),
}

impl Writer {
    pub fn new(hub: Arc<Hub>) -> Self {
        Self { hub, last: 0, next: 1, doubt: None }
    }

    /// Writes until nobody can ask any more.
    pub async fn run(mut self, mut asked: mpsc::Receiver<Ask>) {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                match asked.recv().await {
                    Some(ask) => self.take(ask, &mut waiting).await,
                    None => return,
                }
            }
            while waiting.len() < WAITING_MAX {
                let Ok(ask) = asked.try_recv() else { break };
                self.take(ask, &mut waiting).await;
            }
            let mut batch = next_batch(&mut waiting, BATCH_KEYS_MAX, BATCH_BYTES_MAX);
            let result = self.carry_out(&mut batch).await;
            tell(batch, &result);
        }
    }

    async fn take(&mut self, ask: Ask, waiting: &mut VecDeque<Commit>) {
        match ask {
            Ask::Commit(commit) => waiting.push_back(commit),
            Ask::Settle(tell) => {
                let deadline = self.settling_deadline();
                let _gone = tell.send(self.settle(deadline).await.map(|_| ()));
            }
        }
    }

    /// Commits a batch; those against which something stands are told so and leave it.
    async fn carry_out(&mut self, batch: &mut Vec<Commit>) -> Result<Outcome> {
        // What is in doubt from before may need longer than usual.
        let deadline = self.settling_deadline();
        let mut races = 0;
        while races <= RACES_MAX {
            self.settle(deadline).await?;
            self.refuse_losers(batch);
            if batch.is_empty() {
                break;
            }
            match self.attempt(batch, deadline).await {
                Ended::Committed => {
                    self.hub.room.note_found();
                    return Ok(Outcome::Committed);
                }
                Ended::LostRace => races += 1,
                Ended::Unsure(error) => {
                    if matches!(error, KvError::Full { .. }) {
                        self.hub.room.note_full();
                    }
                    match self.settle(self.settling_deadline()).await {
                        Ok(true) => return Ok(Outcome::Committed),
                        Ok(false) if matches!(error, KvError::Unreachable { .. }) => races += 1,
                        Ok(false) => return Err(error),
                        Err(error) => {
                            tracing::warn!("the answer to a commit was lost: {error}");
                            return Ok(Outcome::Unknown);
                        }
                    }
                }
                Ended::Failed(error) => return Err(error),
            }
        }
        Ok(Outcome::Conflict)
    }

    /// Tells those commits of which a key has been written since their snapshot.
    fn refuse_losers(&self, batch: &mut Vec<Commit>) {
        let is_lost = |commit: &Commit| {
            let at = commit.moment.at();
            commit.moment.is_too_old_to_commit()
                || commit.writes.keys().any(|key| self.hub.horizon.is_written_since(key, at))
        };
        let (losers, others) = std::mem::take(batch).into_iter().partition(is_lost);
        *batch = others;
        tell(losers, &Ok(Outcome::Conflict));
    }

    /// One transaction for the whole batch.
    async fn attempt(&mut self, batch: &[Commit], deadline: Instant) -> Ended {
        let (transaction, claim) = match self.begin(deadline).await {
            Ok(begun) => begun,
            Err(error) => return Ended::Failed(error),
        };
        if claim.seq != self.last {
            let cause = format!("its claim says {}, not {}", claim.seq, self.last);
            return Ended::Failed(self.hub.cluster.corrupt(&cause));
        }
        let writes = batch.iter().flat_map(|commit| &commit.writes);
        let writes = writes.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.write(transaction, writes).await
    }

    /// Writes these keys and the claim. Where that leaves a doubt, it is noted.
    async fn write(
        &mut self,
        mut transaction: Transaction,
        writes: Vec<(Vec<u8>, Option<Bytes>)>,
    ) -> Ended {
        let (seq, before) = (self.next, lookups::failed());
        self.next += 1;
        if let Err(error) = self.fill(&mut transaction, seq, &writes).await {
            return Ended::Failed(failure(self.hub.cluster.shown(), &error));
        }
        let mut doubt = Doubt { seq, writes, is_torn: false };
        let hub = self.hub.clone();
        let _calm = hub.calm.write().await;
        let ended = timeout(hub.cluster.wait, transaction.commit()).await;
        doubt.is_torn = lookups::failed() != before;
        let error = match ended {
            Ok(Ok(at)) if !doubt.is_torn => {
                // It wrote something, so it has a time.
                let at = at.unwrap_or_else(|| transaction.start_timestamp());
                self.last = seq;
                hub.horizon.note(doubt.keys(), at.version());
                return Ended::Committed;
            }
            // Found before anything is committed.
            Ok(Err(error)) if is_conflict(&error) => {
                give_up(transaction);
                return Ended::LostRace;
            }
            Ok(Ok(_)) => hub.cluster.unreachable("PD could not be asked for a region"),
            Ok(Err(error)) => failure(hub.cluster.shown(), &error),
            Err(_) => hub.cluster.unreachable("no answer to a commit"),
        };
        tracing::debug!("commit {seq}: {error}");
        // Its locks stay: if it was committed, the rest of it is. Who meets them finds that out, or waits until they are old.
        self.doubt = Some(doubt);
        hub.in_doubt.store(true, Ordering::SeqCst);
        Ended::Unsure(error)
    }

    /// A transaction of now, and what the claim says in it.
    async fn begin(&self, deadline: Instant) -> Result<(Transaction, Claim)> {
        let key = &self.hub.claim;
        let begun = self.hub.cluster.ask(deadline, |client| async move {
            let mut transaction = begin(&client).await?;
            let found = transaction.get(key.clone()).await?;
            Ok::<_, Fault>((transaction, found))
        });
        let (transaction, found) = begun.await?;
        Ok((transaction, self.hub.check(found)?))
    }

    /// The claim comes first, so the transaction has happened when that is written.
    async fn fill(
        &self,
        transaction: &mut Transaction,
        seq: u64,
        writes: &[(Vec<u8>, Option<Bytes>)],
    ) -> Result<(), Error> {
        transaction.put(self.hub.claim.clone(), self.claim(seq)).await?;
        let keys = self.hub.cluster.keys();
        for (key, value) in writes {
            match value {
                Some(value) => transaction.put(keys.data(key), wrap(value)).await?,
                None => transaction.delete(keys.data(key)).await?,
            }
        }
        Ok(())
    }

    fn claim(&self, seq: u64) -> Vec<u8> {
        let (writer, host) = (self.hub.writer, self.hub.host.clone());
        Claim { writer, seq, host }.text()
    }

    /// Until when what is in doubt is waited for: its locks are old by then, where the cluster answers.
    fn settling_deadline(&self) -> Instant {
        let keys = self.hub.cluster.keys();
        let bytes = self.doubt.as_ref().map_or(0, |doubt| doubt.bytes(keys));
        self.hub.cluster.deadline() + more_time_for(bytes)
    }

    /// Finds out whether the transaction in doubt has happened; after this it never will if it has not.
    /// True if one was in doubt and has happened.
    async fn settle(&mut self, deadline: Instant) -> Result<bool> {
        let mut pause = Pause::default();
        let happened = loop {
            let settled = match &self.doubt {
                None => return Ok(false),
                Some(Doubt { is_torn: true, .. }) => self.mend(deadline).await,
                Some(Doubt { seq, .. }) => self.find_out(*seq, deadline).await,
            };
            match settled {
                Ok(happened) => break happened,
                Err(error) => pause.after(error, deadline).await?,
            }
        };
        self.doubt = None;
        self.hub.in_doubt.store(false, Ordering::SeqCst);
        Ok(happened)
    }

    /// Writes all of a transaction that may have been torn once more, and so makes it happen.
    async fn mend(&mut self, deadline: Instant) -> Result<bool> {
        let writes = self.doubt.as_ref().map(|doubt| doubt.writes.clone()).unwrap_or_default();
        let (transaction, _) = self.begin(deadline).await?;
        match self.write(transaction, writes).await {
            Ended::Committed => Ok(true),
            Ended::LostRace => Err(self.hub.cluster.unreachable("others write its claim")),
            Ended::Unsure(error) => {
                // What was torn before may be so still.
                self.doubt.iter_mut().for_each(|doubt| doubt.is_torn = true);
                Err(error)
            }
            Ended::Failed(error) => Err(error),
        }
    }

    async fn find_out(&mut self, seq: u64, deadline: Instant) -> Result<bool> {
        let (found, at) = self.seal(seq, deadline).await?;
        self.last = found;
        if let (true, Some(doubt)) = (found == seq, &self.doubt) {
            // When exactly it was committed is not known; before this at any rate.
            self.hub.horizon.note(doubt.keys(), at);
        }
        Ok(found == seq)
    }

    /// What the claim says from now on, and a time at which it does: the number in doubt, or a later one, which is
    /// written there if it is not yet. Nothing that began before can write the claim after that.
    async fn seal(&mut self, doubt: u64, deadline: Instant) -> Result<(u64, u64)> {
        let (mut transaction, claim) = self.begin(deadline).await?;
        let at = transaction.start_timestamp().version();
        if claim.seq >= doubt {
            return Ok((claim.seq, at));
        }
        let instead = self.next;
        self.next += 1;
        let (shown, before) = (self.hub.cluster.shown(), lookups::failed());
        let put = transaction.put(self.hub.claim.clone(), self.claim(instead)).await;
        put.map_err(|error| failure(shown, &error))?;
        match timeout(self.hub.cluster.wait, transaction.commit()).await {
            Ok(Ok(_)) if lookups::failed() == before => Ok((instead, at)),
            Ok(Ok(_)) => Err(self.hub.cluster.unreachable("PD could not be asked for a region")),
            Ok(Err(error)) => Err(failure(shown, &error)),
            Err(_) => Err(self.hub.cluster.unreachable("no answer to a commit")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The locks of a commit of more than 2.8 MiB outlasted the ten seconds for settling it, and what had become of it stayed
    /// unknown.
    #[test]
    fn there_is_more_time_to_settle_a_commit_than_its_locks_stay() {
        let usual = Duration::from_secs(10);
        for kib in [0, 1, 100, 1024, 2048, 2900, 8192, 100 << 10] {
            let locked = Duration::from_millis(locked_ms(kib << 10));
            assert!(usual + more_time_for(kib << 10) > locked, "{kib} KiB");
        }
        assert_eq!(more_time_for(BATCH_BYTES_MAX as u64), Duration::ZERO);
        let at_4_mib = (locked_ms(4 << 20), more_time_for(4 << 20));
        assert_eq!(at_4_mib, (12_000, Duration::from_secs(6)));
    }
}
