//! Changes of names that wait for the same directory go into one transaction.
//!
//! Each of them changes the guard of its directory, so two cannot be committed side by side, and a store that takes a
//! millisecond for a commit would make a thousand files a second in one directory. Here those that find the directory
//! locked gather, whichever clients they are of. One task waits for the lock in their place, carries all of them out, one
//! after the other on one view, and commits once. What is refused is refused when that has succeeded: it may rest on what
//! others of them have done. What cannot go with others, or finds that the store has moved on, goes its own way.

use crate::borrow::{home_of, lock_here};
use crate::core::Core;
use crate::ctx::Ctx;
use crate::ledger::Ledger;
use crate::locks::inodes::Held;
use crate::merge_queue::{Answer, Change, Place, Waiting};
use crate::own::WRITTEN_BYTES_MAX;
use crate::txn::Mutation;
use crate::view::Tx;
use std::sync::Arc;
use strake_base::task;
use strake_engine::kv::WRITE_BYTES;
use strake_types::{Error, ErrorKind, Ino, Result, name};
use strake_wire::message::meta::{MetaAnswer, Name};
use tokio::sync::oneshot;

/// Most changes in a transaction.
const CHANGES_MAX: usize = 256;
/// Most bytes of their names and of what links among them lead to: stores have bounds, too.
const BYTES_MAX: usize = 256 << 10;

impl Change {
    /// The names in the directory that it is about.
    fn names(&self) -> [Option<&Name>; 2] {
        match self {
            Change::Create(op) => [Some(&op.at), None],
            Change::Link(op) => [Some(&op.to), None],
            Change::Rename(op) => [Some(&op.from), Some(&op.to)],
            Change::Unlink(op) => [Some(&op.at), None],
        }
    }

    /// Bytes that it brings along.
    fn bytes(&self) -> usize {
        let target = if let Change::Create(op) = self { op.target.len() } else { 0 };
        self.names().iter().flatten().map(|at| at.name.len()).sum::<usize>() + target
    }

    /// True if it would have to write to what is there, or to lock what is elsewhere, or is refused for its name; or if it
    /// is done sooner by itself (0062).
    fn is_alone(&self, ctx: &Ctx) -> bool {
        let strange = |at: &&Name| name::check(&at.name).is_err() || name::is_dot(&at.name);
        if self.names().iter().flatten().any(strange) {
            return true;
        }
        let known = |at: &Name| {
            let place = ctx.core.entry_key(ctx.volume.opening, Ino(at.parent), &at.name);
            matches!(ctx.core.entries.get(place), Some(Some(_)))
        };
        // Of several clients each recalls what others believe, which takes longer than any commit.
        let at_once = ctx.volume.kv.commits_at_once() && ctx.volume.sessions.len() < 2;
        match self {
            Change::Create(op) => {
                home_of(ctx, op) != ctx.volume.id || (!op.exclusive && known(&op.at))
            }
            Change::Rename(op) => {
                at_once || op.from.parent != op.to.parent || (op.exchange && op.no_replace)
            }
            Change::Link(_) | Change::Unlink(_) => at_once,
        }
    }

    /// The inodes that it changes beside the directory and what it makes.
    async fn touches(&self, tx: &mut Tx<'_>) -> Result<Vec<Ino>> {
        let mut touched = Vec::new();
        match self {
            Change::Create(_) => {}
            Change::Link(op) => touched.push(Ino(op.ino)),
            Change::Rename(_) | Change::Unlink(_) => {
                for at in self.names().into_iter().flatten() {
                    let entry = tx.entry(Ino(at.parent), &at.name).await?;
                    touched.extend(entry.map(|entry| Ino(entry.ino)));
                }
            }
        }
        Ok(touched)
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Answer {
        match self {
            Change::Create(op) => op.run(tx).await,
            Change::Link(op) => op.run(tx).await,
            Change::Rename(op) => op.run(tx).await,
            Change::Unlink(op) => op.run(tx).await,
        }
    }

    /// It takes more room in the store than it frees.
    fn takes_room(&self) -> bool {
        match self {
            Change::Create(op) => op.takes_room(),
            Change::Link(op) => op.takes_room(),
            Change::Rename(op) => op.takes_room(),
            Change::Unlink(op) => op.takes_room(),
        }
    }
}

/// Carries out a change of names in a directory with others that wait for it. `None`: it has to go its own way.
pub(crate) async fn with_others(
    ctx: &Ctx,
    dir: u64,
    change: impl FnOnce() -> Change,
) -> Option<Answer> {
    let (place, session) =
        (Place { opening: ctx.volume.opening, dir: Ino(dir) }, ctx.session.clone()?);
    let Core { locks, merge_queue, .. } = &*ctx.core;
    ctx.ledger()?;
    let alone = !locks.is_taken(ctx.volume.id, place.dir) || ctx.behind.is_some();
    if alone || !ctx.is_here(place.dir) {
        return None;
    }
    let op = change();
    if op.is_alone(ctx) {
        return None;
    }
    let (sender, answer) = oneshot::channel();
    let (keeper, cred) = (ctx.keeper.clone(), ctx.cred.clone());
    let Ctx { incarnation, seq, answered, .. } = *ctx;
    let is_first = merge_queue.add(
        place,
        Waiting { session, incarnation, keeper, cred, seq, answered, op, answer: sender },
    );
    if is_first {
        task::spawn(carry_out_all(ctx.clone(), place));
    }
    answer.await.ok()
}

/// Carries out all that wait in a place when its lock is free, whoever of them goes away.
async fn carry_out_all(like: Ctx, place: Place) {
    let mut locked = lock_here(&like, &[place.dir]).await;
    let mut batch = like.core.merge_queue.take(place);
    loop {
        let later = batch.split_off(together(&batch));
        match locked {
            Ok(held) => carry_out(&like, place.dir, batch, held).await,
            Err(error) => refuse(batch.into_iter().map(|one| one.answer), &error),
        }
        if later.is_empty() {
            return;
        }
        batch = later;
        locked = lock_here(&like, &[place.dir]).await;
    }
}

/// Makes changes that their client has answered already, all of them in one directory: as many, from the first on, as go into
/// one transaction. None: the first has to go its own way.
pub(crate) async fn in_order(asked: &[(Ctx, Change)]) -> Vec<MetaAnswer> {
    let Some((first, _)) = asked.first() else { return Vec::new() };
    let Some(behind) = first.behind else { return Vec::new() };
    let Ok(held) = lock_here(first, &behind.dirs).await else { return Vec::new() };
    let Some(answers) = carried_out(asked, held).await else { return Vec::new() };
    let made: Vec<_> = answers.list.into_iter().map_while(|answer| answer?.ok()).collect();
    if let (Some((last, _)), Some(answer)) = (asked.get(made.len().wrapping_sub(1)), made.last()) {
        let ledger = last.ledger().into_iter();
        ledger.for_each(|ledger| ledger.ended(last.seq, last.answered, &Ok(answer.clone())));
    }
    made
}

/// Tells those of which nothing was done why.
fn refuse(senders: impl Iterator<Item = oneshot::Sender<Answer>>, error: &Error) {
    for sender in senders {
        let _ = sender.send(Err(error.clone()));
    }
}

/// How many of these go into one transaction, one at least.
fn together(batch: &[Waiting]) -> usize {
    let mut bytes = 0;
    let fits = |one: &&Waiting| {
        bytes += one.op.bytes();
        bytes <= BYTES_MAX
    };
    batch.iter().take(CHANGES_MAX).take_while(fits).count().max(1).min(batch.len())
}

/// Carries out changes in one directory, whose lock is held at first; `like`: the request of one of them.
async fn carry_out(like: &Ctx, dir: Ino, batch: Vec<Waiting>, held: Held) {
    let request = |one: Waiting| {
        let Waiting { session, incarnation, keeper, cred, seq, answered, op, answer } = one;
        let leases = keeper.as_ref().map_or(0, |keeper| keeper.number);
        let (session, own) = (Some(session), Ctx::own(&like.core, &like.volume));
        let ctx = Ctx { session, incarnation, leases, keeper, cred, seq, answered, ..own };
        ((ctx, op), answer)
    };
    let (asked, senders): (Vec<_>, Vec<_>) = batch.into_iter().map(request).unzip();
    let (mut left, mut senders, mut held) = (&asked[..], senders.into_iter(), held);
    while let Some(Answers { list, held: locked }) = carried_out(left, held).await {
        left = &left[list.len()..];
        for (answer, sender) in list.into_iter().zip(senders.by_ref()) {
            if let Some(answer) = answer {
                // Who has gone away asks again, and finds it in the ledger.
                let _ = sender.send(answer);
            }
        }
        drop(locked);
        if left.is_empty() {
            return;
        }
        held = match lock_here(like, &[dir]).await {
            Ok(held) => held,
            // By himself each would wait as long once more.
            Err(error) => return refuse(senders, &error),
        };
    }
}

/// Not if its session is over, nor if an earlier call of it has been carried out since this one began, nor if its client
/// has given it up.
fn is_to_be_carried_out(ctx: &Ctx) -> bool {
    let lives = ctx.session.as_ref().is_some_and(|session| session.check().is_ok());
    let is_new = |ledger: &Arc<Ledger>| {
        !ledger.is_stored(ctx.seq) && !ledger.is_in_doubt(ctx.seq) && !ledger.is_over(ctx.seq)
    };
    lives && ctx.ledger().is_some_and(is_new) && ctx.check_behind().is_ok()
}

/// Asks the store once for all names, takes the locks of what they lead to as far as nobody has them, and asks once for
/// that, too: what is read from then on is as it is under all locks.
async fn look_ahead(tx: &mut Tx<'_>, asked: &[(Ctx, Change)]) -> Result<()> {
    let names: Vec<&Name> = asked.iter().flat_map(|(_, op)| op.names()).flatten().collect();
    let Some(first) = names.first() else { return Ok(()) };
    let bytes: Vec<&[u8]> = names.iter().map(|at| &at.name[..]).collect();
    tx.look_for_entries(Ino(first.parent), &bytes).await?;
    let mut locked = Vec::new();
    for (ctx, op) in asked {
        let touched = op.touches(tx).await?;
        if touched.iter().all(|ino| ctx.is_here(*ino)) && tx.lock_more(&touched) {
            locked.extend(touched);
        }
    }
    if !locked.is_empty() {
        tx.look_anew();
        tx.look_for_inodes(&locked).await?;
    }
    Ok(())
}

/// True of a create that opens, and may cut, a file: more is done around that than is done here. It may have got its name
/// by another change on this view.
async fn opens_what_is_there(tx: &mut Tx<'_>, op: &Change) -> bool {
    let Change::Create(op) = op else { return false };
    let found = tx.entry(Ino(op.at.parent), &op.at.name).await;
    !op.exclusive && !matches!(found, Ok(None))
}

/// True if what a change touches beside the directory is locked, and no other change on this view has touched it; and no
/// other session has it leased exclusively.
async fn has_to_itself(tx: &mut Tx<'_>, op: &Change) -> bool {
    let Ok(touched) = op.touches(tx).await else { return false };
    let (leases, own) = (&tx.ctx.volume.leases, tx.ctx.session_id());
    touched.iter().all(|ino| {
        tx.need_lock(*ino).is_ok()
            && !tx.has_changed(*ino)
            && !leases.is_exclusive_to_others(own, *ino)
    })
}

/// One for each that asked, but for the last ones where those did not fit. After a commit the directory stays locked until
/// this is dropped.
struct Answers {
    list: Vec<Option<Answer>>,
    held: Held,
}

/// `None`: nothing was done.
async fn carried_out(asked: &[(Ctx, Change)], held: Held) -> Option<Answers> {
    let (first, _) = asked.first()?;
    let creates = asked.iter().filter(|(_, op)| matches!(op, Change::Create(_))).count();
    if creates > 0 {
        first.volume.have_inos(creates).await.ok()?;
    }
    let mut tx = Tx::begin(first, held);
    look_ahead(&mut tx, asked).await.ok()?;
    let has_room = first.volume.kv.check_room().is_ok();
    let mut list = Vec::with_capacity(asked.len());
    let mut replied = 0;
    // None before those in front of it.
    let in_order = first.behind.is_some();
    for (ctx, op) in asked {
        // What a directory hands down (an ACL, a list of targets) may be thousands for each, and so may xattrs that go.
        let weight = tx.bytes() + WRITE_BYTES * tx.written() + replied;
        if weight >= WRITTEN_BYTES_MAX {
            break;
        }
        tx.ctx = ctx;
        tx.now = if in_order { ctx.now() } else { tx.now };
        let can = is_to_be_carried_out(ctx) && (has_room || !op.takes_room());
        if !can || opens_what_is_there(&mut tx, op).await || !has_to_itself(&mut tx, op).await {
            if in_order {
                break;
            }
            list.push(None);
            continue;
        }
        let before = tx.mark();
        list.push(match op.run(&mut tx).await {
            Err(_) if tx.mark() != before => return None,
            // By itself it says why, if it is refused.
            Err(_) if in_order => break,
            Err(error) if error.kind == ErrorKind::Conflict => None,
            answer => {
                replied += answer.as_ref().map_or(0, MetaAnswer::encoded_len);
                Some(answer)
            }
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
            return Some(Answers { list, held: Held::default() });
        }
    };
    if count > 1 {
        first.core.metrics.merged.increment(count);
    }
    Some(Answers { list, held })
}

#[cfg(test)]
mod tests;
