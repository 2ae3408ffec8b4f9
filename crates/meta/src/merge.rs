//! Creates that wait for the same directory go into one transaction.
//!
//! Each new name changes the guard of its directory, so two of them cannot be committed side by side, and a store that takes
//! a millisecond for a commit would make a thousand files a second in one directory. Here those of one client that find
//! the directory locked gather. Who gets its lock next carries all of them out, one after the other on one view,
//! and commits once. What is refused is refused when that has succeeded: it may rest on what others of them have made. What
//! cannot go with others, or finds that the store has moved on, goes its own way.

use crate::core::Core;
use crate::ctx::Ctx;
use crate::locks::inodes::Held;
use crate::txn::Mutation;
use crate::view::Tx;
use parking_lot::Mutex;
use std::collections::HashMap;
use strake_base::task;
use strake_types::{ErrorKind, Ino, Result, VolumeId, name};
use strake_wire::message::meta::{Create, MetaAnswer};
use tokio::sync::oneshot;

/// Most creates in a transaction.
const CREATES_MAX: usize = 256;

type Answer = Result<MetaAnswer>;

/// Which creates may go together: those in one directory of one client, which then has the same leases for all.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    volume: VolumeId,
    dir: Ino,
    session: u64,
    incarnation: u64,
    leases: Option<u64>,
}

/// One that waits.
struct Waiting {
    ctx: Ctx,
    op: Create,
    /// Dropped, it goes its own way.
    answer: oneshot::Sender<Answer>,
}

/// All that wait.
#[derive(Default)]
pub(crate) struct Merges {
    waiting: Mutex<HashMap<Place, Vec<Waiting>>>,
}

impl Merges {
    fn add(&self, place: Place, waiting: Waiting) {
        self.waiting.lock().entry(place).or_default().push(waiting);
    }

    /// The first of those that wait, and still want to know.
    fn take(&self, place: Place) -> Vec<Waiting> {
        let mut all = self.waiting.lock();
        let Some(waiting) = all.get_mut(&place) else { return Vec::new() };
        waiting.retain(|one| !one.answer.is_closed());
        let later = waiting.split_off(waiting.len().min(CREATES_MAX));
        let first = std::mem::replace(waiting, later);
        if waiting.is_empty() {
            all.remove(&place);
        }
        first
    }
}

impl Place {
    fn of(ctx: &Ctx, op: &Create) -> Option<Self> {
        let session = ctx.session.as_ref().filter(|_| ctx.seq != 0 && !op.at.name.is_empty())?;
        Some(Place {
            volume: ctx.volume.id,
            dir: Ino(op.at.parent),
            session: session.id,
            incarnation: ctx.incarnation,
            leases: ctx.keeper.as_ref().map(|keeper| keeper.number),
        })
    }
}

/// Carries out a create with others that wait for its directory. `None`: it has to go its own way.
pub(crate) async fn create(ctx: &Ctx, op: &Create) -> Option<Answer> {
    let place = Place::of(ctx, op)?;
    let Core { locks, merges, .. } = &*ctx.core;
    if !locks.is_taken(place.volume, place.dir) {
        return None;
    }
    if name::check(&op.at.name).is_err() {
        return None;
    }
    let (sender, mut answer) = oneshot::channel();
    merges.add(place, Waiting { ctx: ctx.clone(), op: op.clone(), answer: sender });
    let only = [place.dir];
    let held = tokio::select! {
        biased;
        answer = &mut answer => return answer.ok(),
        held = locks.lock(place.volume, &only) => held,
    };
    let batch = merges.take(place);
    if !batch.is_empty() {
        // To its end, whoever of them goes away.
        task::spawn(carry_out(batch, held));
    }
    answer.await.ok()
}

async fn carry_out(batch: Vec<Waiting>, held: Held) {
    let (asked, senders): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|one| ((one.ctx, one.op), one.answer)).unzip();
    let Some(answers) = carried_out(&asked, held).await else { return };
    for (sender, answer) in senders.into_iter().zip(answers.list) {
        if let Some(answer) = answer {
            // Who has gone away asks again, and finds it in the ledger.
            let _ = sender.send(answer);
        }
    }
}

/// One for each that asked; until this is dropped the directory stays locked.
struct Answers {
    list: Vec<Option<Answer>>,
    _held: Held,
}

/// `None`: nothing was done.
async fn carried_out(asked: &[(Ctx, Create)], held: Held) -> Option<Answers> {
    let (first, _) = asked.first()?;
    let session = first.session.as_ref()?;
    if session.check().is_err() || first.core.kv.is_full() {
        return None;
    }
    let mut tx = Tx::begin(first, held);
    let names: Vec<&[u8]> = asked.iter().map(|(_, op)| &op.at.name[..]).collect();
    tx.look_for_entries(Ino(asked[0].1.at.parent), &names).await.ok()?;
    let mut list = Vec::with_capacity(asked.len());
    for (ctx, op) in asked {
        tx.ctx = ctx;
        let before = tx.mark();
        list.push(match op.run(&mut tx).await {
            Err(_) if tx.mark() != before => return None,
            Err(error) if error.kind == ErrorKind::Conflict => None,
            answer => Some(answer),
        });
    }
    let made = asked.iter().zip(&mut list);
    let mut made: Vec<(&Ctx, &mut MetaAnswer)> = made
        .filter_map(|((ctx, _), answer)| Some((ctx, answer.as_mut()?.as_mut().ok()?)))
        .collect();
    let count = made.len() as u64;
    let held = match tx.commit_all(&mut made).await {
        Ok(held) => held?,
        Err(error) => {
            for answer in &mut list {
                // It may have been carried out. What was refused is looked at again.
                *answer = answer.take().filter(Result::is_ok).map(|_| Err(error.clone()));
            }
            return Some(Answers { list, _held: Held::default() });
        }
    };
    first.core.metrics.merged.increment(count);
    Some(Answers { list, _held: held })
}

#[cfg(test)]
mod tests;
