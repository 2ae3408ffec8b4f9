//! What the writer is asked to do, and which commits go together into one transaction.

use super::super::conflicts::RecentWrites;
use super::super::group::Queued;
use super::super::{Outcome, Result, Writes};
use super::hub::Hub;
use super::messages::Compare;
use bytes::Bytes;
use std::collections::{HashSet, VecDeque};
use std::hash::RandomState;
use tokio::sync::{mpsc, oneshot};

/// Commits that may wait to be taken up.
pub const WAITING_MAX: usize = 1024;
/// What a write has beside its key and its value: the store's name, lengths, and what kind it is.
pub const WRITE_BYTES: usize = 112;

/// What the writer is asked to do.
pub enum Ask {
    /// To commit.
    Commit(Commit),
    /// To find out what has become of a commit whose answer was lost.
    Settle(oneshot::Sender<Result<()>>),
    /// To make sure that etcd has not gone back to an earlier state.
    Confirm(oneshot::Sender<Result<()>>),
}

/// A commit.
pub struct Commit {
    /// The version of its snapshot.
    pub since: u64,
    pub writes: Writes,
    /// Keys of etcd that others may write, too.
    contended: Vec<Bytes>,
    pub hashes: Vec<u64>,
    pub bytes: usize,
    answer: oneshot::Sender<Result<Outcome>>,
}

impl Commit {
    pub fn new(
        since: u64,
        writes: Writes,
        contended: Vec<Bytes>,
        hasher: &RandomState,
        answer: oneshot::Sender<Result<Outcome>>,
    ) -> Self {
        let hashes = RecentWrites::hashes(hasher, &writes);
        let length = |(key, value): (&Vec<u8>, &Option<Bytes>)| {
            WRITE_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len)
        };
        let bytes = writes.iter().map(length).sum();
        Self { since, writes, contended, hashes, bytes, answer }
    }

    /// One that writes nothing: those before it are over when it is.
    fn barrier(answer: oneshot::Sender<Result<Outcome>>) -> Self {
        let (writes, contended, hashes) = (Writes::new(), Vec::new(), Vec::new());
        Self { since: u64::MAX, writes, contended, hashes, bytes: 0, answer }
    }

    /// It comes after all that were asked for before it, and shares its transaction with none.
    fn is_alone(&self) -> bool {
        !self.contended.is_empty() || self.writes.is_empty()
    }

    /// That nobody has written since what others may write.
    pub fn conditions(&self) -> impl Iterator<Item = Compare> {
        let since = i64::try_from(self.since).unwrap_or(i64::MAX - 1);
        self.contended.iter().map(move |key| Compare::unchanged(key.clone(), Bytes::new(), since))
    }
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
    ask(hub, writer, Ask::Settle).await
}

/// Returns when all commits that were asked for before are carried out, or never will be.
pub async fn drain(hub: &Hub, writer: &mpsc::Sender<Ask>) -> Result<()> {
    ask(hub, writer, |tell| Ask::Commit(Commit::barrier(tell))).await.map(|_| ())
}

/// Asks the writer whether etcd still has all that was met.
pub async fn confirm(hub: &Hub, writer: &mpsc::Sender<Ask>) -> Result<()> {
    ask(hub, writer, Ask::Confirm).await
}

async fn ask<T>(
    hub: &Hub,
    writer: &mpsc::Sender<Ask>,
    what: fn(oneshot::Sender<Result<T>>) -> Ask,
) -> Result<T> {
    let (tell, told) = oneshot::channel();
    let closed = || hub.cluster.unreachable("the store is being closed");
    writer.send(what(tell)).await.map_err(|_| closed())?;
    told.await.map_err(|_| closed())?
}

/// Commits that can go into one transaction: no key in two of them. The others keep their order.
pub fn next_batch(waiting: &mut VecDeque<Commit>, bytes_max: usize) -> Vec<Commit> {
    let mut taken: HashSet<u64> = HashSet::new();
    let (mut batch, mut later) = (Vec::new(), VecDeque::new());
    let mut bytes = 0;
    while let Some(commit) = waiting.pop_front() {
        if commit.is_alone() {
            match batch.is_empty() {
                true => batch.push(commit),
                false => later.push_back(commit),
            }
            break;
        }
        if !batch.is_empty() && bytes + commit.bytes > bytes_max {
            later.push_back(commit);
            break;
        }
        // A later one must not overtake one of the same key.
        let is_free = !commit.hashes.iter().any(|hash| taken.contains(hash));
        taken.extend(&commit.hashes);
        match is_free {
            true => {
                bytes += commit.bytes;
                batch.push(commit);
            }
            false => later.push_back(commit),
        }
    }
    later.append(waiting);
    *waiting = later;
    batch
}
