//! Locks of applications: POSIX record locks and flocks.

use crate::borrow::lock_here;
use crate::contents;
use crate::ctx::Ctx;
use crate::keys;
use crate::ledger::Begin;
use crate::locks::inodes::Held;
use crate::locks::pages::Page;
use crate::locks::ranges::{Change, Range, Waiting};
use crate::records::{self, HeldLock, Locks};
use crate::txn::late;
use crate::view::Tx;
use crate::volume::Volume;
use bytes::Bytes;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Lock, MetaAnswer, Nothing};
use tokio::time::{Instant, timeout_at};

/// Longest time that one request waits; the client then asks again.
const WAIT_MS_MAX: u32 = 1_000;

/// What a request asks for.
enum Wish {
    Unlock,
    Lock,
}

fn parse(ctx: &Ctx, op: &Lock) -> Result<(Wish, Range)> {
    let session = ctx.need_session()?.id;
    let (wish, exclusive) = match op.kind {
        0 => (Wish::Unlock, false),
        1 => (Wish::Lock, false),
        2 => (Wish::Lock, true),
        other => return Err(Error::with(ErrorKind::Malformed, format!("lock kind {other}"))),
    };
    if op.start > op.end {
        return Err(Error::new(ErrorKind::Invalid));
    }
    let (start, end) = if op.flock { (0, u64::MAX) } else { (op.start, op.end) };
    let lock = HeldLock { owner: op.owner, pid: op.pid, start, end, exclusive };
    Ok((wish, Range { session, lock }))
}

/// Takes, changes or releases a lock; waits for it as long as is asked for. Who waits for a flock has none until it is granted.
/// A request with a number is carried out once: a copy that comes late must not lock, or unlock, what has changed hands
/// since. Its answer is only remembered in memory, as long as this server has the volume: a copy that comes to another
/// server, or to this one when it has got the volume back, is of an incarnation of the session that is over
/// (`Session::is_outdated`).
pub(crate) async fn set_lock(ctx: &Ctx, op: &Lock) -> Result<MetaAnswer> {
    let Some(ledger) = ctx.ledger() else { return carry_out(ctx, op).await };
    let _running = match ledger.begin(ctx.seq).await {
        Begin::New(running) => running,
        Begin::Idle(_, answer) => return (*answer).clone(),
        Begin::Repeat(_) | Begin::Late => return Err(late()),
    };
    let answer = carry_out(ctx, op).await;
    ledger.ended(ctx.seq, ctx.answered, &answer);
    answer
}

async fn carry_out(ctx: &Ctx, op: &Lock) -> Result<MetaAnswer> {
    let (wish, range) = parse(ctx, op)?;
    let ino = Ino(op.ino);
    match wish {
        // Also of a file that is gone.
        Wish::Unlock => {
            let _held = lock_settled(ctx, op.flock, ino).await?;
            apply(ctx, op.flock, ino, &range, Change::Unlock).await?;
        }
        Wish::Lock => {
            ctx.need_session()?.will_need_fence();
            Tx::reader(ctx).inode(ino).await?;
            take(ctx, op, ino, &range).await?;
        }
    }
    if ctx.settings.sync_always {
        ctx.volume.sync().await?;
    }
    Ok(MetaAnswer::Done(Nothing {}))
}

async fn take(ctx: &Ctx, op: &Lock, ino: Ino, range: &Range) -> Result<()> {
    let ranges = &ctx.volume.ranges;
    let until = Instant::now() + Duration::from_millis(op.wait_ms.min(WAIT_MS_MAX).into());
    let mut waiting: Option<Waiting<'_>> = None;
    loop {
        {
            let _held = lock_settled(ctx, op.flock, ino).await?;
            if ctx.ledger().is_some_and(|ledger| ledger.is_over(ctx.seq)) {
                // Its client has given it up while it waited, and may have unlocked: nobody would ever give it back.
                drop(waiting);
                ranges.end_wait(op.flock, ino, range);
                return Err(late());
            }
            if ranges.conflict(op.flock, ino, range).is_none() {
                // Who gets it may write at once, by what he has open, and what he writes must not be cut: where a server died
                // in the middle of a cut, that is done again.
                contents::finish_cut_at_once(ctx, ino).await?;
                apply(ctx, op.flock, ino, range, Change::Lock).await?;
                drop(waiting);
                ranges.end_wait(op.flock, ino, range);
                return Ok(());
            }
            if op.flock && op.wait_ms > 0 && waiting.is_none() && ranges.has(op.flock, ino, range) {
                // As on Linux: two that share a lock, and each want it alone, would wait for each other for ever.
                apply(ctx, op.flock, ino, range, Change::Unlock).await?;
            }
        }
        if op.wait_ms == 0 {
            // The first request of an attempt waits for nothing: what its owner waited for before it has given up.
            ranges.end_wait(op.flock, ino, range);
            return Err(Error::new(ErrorKind::WouldBlock));
        }
        let begun = waiting.get_or_insert_with(|| ranges.wait(op.flock, ino, range));
        if begun.is_in_circle() {
            drop(waiting);
            ranges.end_wait(op.flock, ino, range);
            return Err(Error::new(ErrorKind::Deadlock));
        }
        let changed = begun.changed.notified();
        futures::pin_mut!(changed);
        changed.as_mut().enable();
        // What changed before the wait began is seen here.
        if ranges.conflict(op.flock, ino, range).is_none() {
            continue;
        }
        if timeout_at(until, changed).await.is_err() {
            return Err(Error::new(ErrorKind::WouldBlock));
        }
    }
}

/// Locks an inode, and makes the store have the locks on it that the table has, where the answer to a commit was lost:
/// they were granted to nobody, and what was to be given back is held. Otherwise a lock that only the store has could be
/// another's as well by the time that it is read back.
async fn lock_settled(ctx: &Ctx, flock: bool, ino: Ino) -> Result<Held> {
    let held = lock_here(ctx, &[ino]).await?;
    let volume = &ctx.volume;
    for (session, pages) in volume.ranges.unsettled(flock, ino) {
        let place = Place { flock, ino, session };
        let writes = pages.iter().map(|(page, locks)| place.record(volume, *page, locks));
        volume.overwrite(writes.collect()).await?;
        volume.ranges.settle(flock, ino, session);
    }
    Ok(held)
}

/// Stores what a change makes of the session's locks on the file, then says so to others. If nobody knows whether that
/// failed, or its caller goes away, whoever locks the inode next settles what is so.
async fn apply(ctx: &Ctx, flock: bool, ino: Ino, range: &Range, change: Change) -> Result<()> {
    let (ranges, session) = (&ctx.volume.ranges, range.session);
    ranges.unsettle(flock, ino, session, []);
    // After that: whoever ends the session gives back what it may have locked.
    if let Err(over) = ctx.need_session()?.check() {
        ranges.settle(flock, ino, session);
        return Err(over);
    }
    let plan = ranges.plan(flock, ino, range, change);
    ranges.unsettle(flock, ino, session, plan.records.iter().map(|(page, _)| *page));
    let place = Place { flock, ino, session };
    let writes = plan.records.iter().map(|(page, locks)| place.record(&ctx.volume, *page, locks));
    let (writes, mut in_doubt) = (writes.collect(), false);
    let written = ctx.volume.write_many_noting(writes, &mut in_doubt).await;
    match written {
        Ok(()) => ranges.make(flock, ino, session, plan),
        Err(_) if in_doubt => {}
        // As when the store is full.
        Err(_) => ranges.settle(flock, ino, session),
    }
    written
}

/// A session that ends gives back its locks on a file, and what it may have locked. The file is locked.
pub(crate) async fn give_back(volume: &Volume, flock: bool, ino: Ino, session: u64) -> Result<()> {
    let pages = volume.ranges.stored(flock, ino, session);
    let place = Place { flock, ino, session };
    let writes = pages.into_iter().map(|page| place.record(volume, page, &[]));
    volume.overwrite(writes.collect()).await?;
    volume.ranges.forget(flock, ino, session);
    Ok(())
}

/// Whose locks on which file.
struct Place {
    flock: bool,
    ino: Ino,
    session: u64,
}

impl Place {
    /// The key and the value under which a page of them is stored.
    fn record(&self, volume: &Volume, page: Page, locks: &[HeldLock]) -> (Vec<u8>, Option<Bytes>) {
        let value = || records::encode(&Locks { held: locks.to_vec() });
        let key = keys::lock(volume.id, self.flock, self.ino, self.session, page);
        (key, (!locks.is_empty()).then(value))
    }
}

/// Answers with the first lock that conflicts, if there is one.
pub(crate) async fn get_lock(ctx: &Ctx, op: &Lock) -> Result<MetaAnswer> {
    let (wish, range) = parse(ctx, op)?;
    if matches!(wish, Wish::Unlock) {
        return Err(Error::new(ErrorKind::Invalid));
    }
    let found = ctx.volume.ranges.conflict(op.flock, Ino(op.ino), &range);
    Ok(match found {
        None => MetaAnswer::Done(Nothing {}),
        Some(Range { lock, .. }) => MetaAnswer::Lock(Lock {
            ino: op.ino,
            owner: lock.owner,
            pid: lock.pid,
            start: lock.start,
            end: lock.end,
            kind: if lock.exclusive { 2 } else { 1 },
            flock: op.flock,
            wait_ms: 0,
        }),
    })
}

#[cfg(test)]
mod tests;
