//! What is asked of a database while it is busy goes together into the next request.

use super::{Outcome, Result};
use bytes::Bytes;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Makes something for those who wait, until nobody can ask any more. All who ask while one is being made share the next.
pub async fn share<T, F: Future<Output = Result<T>>>(
    mut waiting: mpsc::UnboundedReceiver<oneshot::Sender<Result<Arc<T>>>>,
    make: impl Fn() -> F,
) {
    while let Some(first) = waiting.recv().await {
        // Who asks from here on may want to see what is committed from here on.
        let mut all = vec![first];
        while let Ok(next) = waiting.try_recv() {
            all.push(next);
        }
        let made = make().await.map(Arc::new);
        for one in all {
            let _gone = one.send(made.clone());
        }
    }
}

/// A commit that waits for its turn.
pub trait Queued {
    /// The keys that it writes, and their values; `None` deletes.
    fn writes(&self) -> impl Iterator<Item = (&Vec<u8>, &Option<Bytes>)>;

    /// Who waits for it.
    fn into_answer(self) -> oneshot::Sender<Result<Outcome>>;
}

/// Commits that can go together: no key in two of them, and of several no more keys, and bytes of keys and values, than so
/// many. The others keep their order.
pub fn next_batch<C: Queued>(
    waiting: &mut VecDeque<C>,
    keys_max: usize,
    bytes_max: usize,
) -> Vec<C> {
    let mut taken: HashSet<Vec<u8>> = HashSet::new();
    let (mut batch, mut later) = (Vec::new(), VecDeque::new());
    let mut bytes = 0;
    while let Some(commit) = waiting.pop_front() {
        let length = |(key, value): (&Vec<u8>, &Option<Bytes>)| {
            key.len() + value.as_ref().map_or(0, Bytes::len)
        };
        let own: usize = commit.writes().map(length).sum();
        let is_too_much =
            taken.len() + commit.writes().count() > keys_max || bytes + own > bytes_max;
        if !batch.is_empty() && is_too_much {
            later.push_back(commit);
            break;
        }
        if commit.writes().any(|(key, _)| taken.contains(key)) {
            later.push_back(commit);
            continue;
        }
        bytes += own;
        taken.extend(commit.writes().map(|(key, _)| key.clone()));
        batch.push(commit);
    }
    later.append(waiting);
    *waiting = later;
    batch
}

/// Tells those who wait how it ended.
pub fn tell<C: Queued>(commits: impl IntoIterator<Item = C>, result: &Result<Outcome>) {
    for commit in commits {
        let _gone = commit.into_answer().send(result.clone());
    }
}
