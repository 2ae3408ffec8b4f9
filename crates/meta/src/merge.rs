//! Creates that wait for the same directory go into one transaction.
//!
//! Each new name changes the guard of its directory, so two of them cannot be committed side by side, and a store that takes
//! a millisecond for a commit would make a thousand files a second in one directory. Here those that find the directory
//! locked gather, whichever clients they are of. One task waits for the lock in their place, carries all of them out, one
//! after the other on one view, and commits once. What is refused is refused when that has succeeded: it may rest on what
//! others of them have made. What cannot go with others, or finds that the store has moved on, goes its own way.

use crate::borrow::{home_of, lock_here};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::ledger::Ledger;
use crate::locks::inodes::Held;
use crate::merges::{Answer, Place, Waiting};
use crate::txn::Mutation;
use crate::view::Tx;
use strake_base::task;
use strake_types::{ErrorKind, Ino, Result, name};
use strake_wire::message::meta::{Create, MetaAnswer};
use tokio::sync::oneshot;

/// Most creates in a transaction.
const CREATES_MAX: usize = 256;
/// Most bytes of their names and of what links among them lead to: stores have bounds, too.
const BYTES_MAX: usize = 256 << 10;

/// Where a create waits; `None`: it is not merged.
fn place_of(ctx: &Ctx, op: &Create) -> Option<Place> {
    let alone = op.at.name.is_empty() || home_of(ctx, op) != ctx.volume.id;
    ctx.ledger().filter(|_| !alone)?;
    Some(Place { opening: ctx.volume.opening, dir: Ino(op.at.parent) })
}

/// Carries out a create with others that wait for its directory. `None`: it has to go its own way.
pub(crate) async fn create(ctx: &Ctx, op: &Create) -> Option<Answer> {
    let place = place_of(ctx, op)?;
    let session = ctx.session.clone()?;
    let Core { locks, merges, .. } = &*ctx.core;
    if !locks.is_taken(ctx.volume.id, place.dir) {
        return None;
    }
    let known =
        || ctx.core.entries.get(ctx.core.entry_key(ctx.volume.opening, place.dir, &op.at.name));
    if name::check(&op.at.name).is_err() || (!op.exclusive && matches!(known(), Some(Some(_)))) {
        return None;
    }
    let (sender, answer) = oneshot::channel();
    let (keeper, cred, op) = (ctx.keeper.clone(), ctx.cred.clone(), op.clone());
    let Ctx { incarnation, now, seq, answered, .. } = *ctx;
    let is_first = merges.add(
        place,
        Waiting { session, incarnation, keeper, cred, now, seq, answered, op, answer: sender },
    );
    if is_first {
        task::spawn(carry_out_all(ctx.clone(), place));
    }
    answer.await.ok()
}

/// Carries out all that wait in a place when its lock is free, whoever of them goes away.
async fn carry_out_all(like: Ctx, place: Place) {
    let mut locked = lock_here(&like, &[place.dir]).await;
    let mut batch = like.core.merges.take(place);
    loop {
        let later = batch.split_off(together(&batch));
        match locked {
            Ok(held) => carry_out(&like, batch, held).await,
            Err(error) => {
                for one in batch {
                    let _ = one.answer.send(Err(error.clone()));
                }
            }
        }
        if later.is_empty() {
            return;
        }
        batch = later;
        locked = lock_here(&like, &[place.dir]).await;
    }
}

/// How many of these go into one transaction, one at least.
fn together(batch: &[Waiting]) -> usize {
    let mut bytes = 0;
    let fits = |one: &&Waiting| {
        bytes += one.op.at.name.len() + one.op.target.len();
        bytes <= BYTES_MAX
    };
    batch.iter().take(CREATES_MAX).take_while(fits).count().max(1).min(batch.len())
}

/// Carries out creates of one directory; `like`: the request of one of them.
async fn carry_out(like: &Ctx, batch: Vec<Waiting>, held: Held) {
    let request = |one: Waiting| {
        let Waiting { session, incarnation, keeper, cred, now, seq, answered, op, answer } = one;
        let leases = keeper.as_ref().map_or(0, |keeper| keeper.number);
        let (session, own) = (Some(session), Ctx::own(&like.core, &like.volume));
        let ctx = Ctx { session, incarnation, leases, keeper, cred, now, seq, answered, ..own };
        ((ctx, op), answer)
    };
    let (asked, senders): (Vec<_>, Vec<_>) = batch.into_iter().map(request).unzip();
    let Some(answers) = carried_out(&asked, held).await else { return };
    for (sender, answer) in senders.into_iter().zip(answers.list) {
        if let Some(answer) = answer {
            // Who has gone away asks again, and finds it in the ledger.
            let _ = sender.send(answer);
        }
    }
}

/// Not if its session is over, nor if an earlier call of it has been carried out since this one began.
fn is_to_be_carried_out(ctx: &Ctx) -> bool {
    let lives = ctx.session.as_ref().is_some_and(|session| session.check().is_ok());
    let is_new = |ledger: &Ledger| !ledger.is_stored(ctx.seq) && !ledger.is_in_doubt(ctx.seq);
    lives && ctx.ledger().is_some_and(is_new)
}

/// One for each that asked. After a commit the directory stays locked until this is dropped.
struct Answers {
    list: Vec<Option<Answer>>,
    _held: Held,
}

/// `None`: nothing was done.
async fn carried_out(asked: &[(Ctx, Create)], held: Held) -> Option<Answers> {
    let (first, _) = asked.first()?;
    if first.volume.kv.check_room().is_err() {
        return None;
    }
    first.volume.have_inos(asked.len()).await.ok()?;
    let mut tx = Tx::begin(first, held);
    let names: Vec<&[u8]> = asked.iter().map(|(_, op)| &op.at.name[..]).collect();
    tx.look_for_entries(Ino(asked[0].1.at.parent), &names).await.ok()?;
    let mut list = Vec::with_capacity(asked.len());
    for (ctx, op) in asked {
        if !is_to_be_carried_out(ctx) {
            list.push(None);
            continue;
        }
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
        // One of them alone may find room.
        Err(error) if error.kind == ErrorKind::NoSpace => return None,
        Err(error) => {
            for answer in &mut list {
                // It may have been carried out. What was refused is looked at again.
                *answer = answer.take().filter(Result::is_ok).map(|_| Err(error.clone()));
            }
            return Some(Answers { list, _held: Held::default() });
        }
    };
    if count > 1 {
        first.core.metrics.merged.increment(count);
    }
    Some(Answers { list, _held: held })
}

#[cfg(test)]
mod tests;
