//! Clients that are lost: fenced at the storage servers, and then what they held is given back.
//!
//! Who was not heard of for the time of a lease, or was evicted, may live on all the same, cut off, with writes
//! in its memory and in the network. Nobody gets its locks before those can do no harm: first the map says that
//! the session is fenced, then the lengths of its files are settled, as far as what it wrote has arrived. What
//! arrives from then on is refused by any storage server that is asked something by somebody who knows of the
//! fence (`StorageRequest::fenced`), and everybody who asks this server for anything does
//! (docs/design/0051-fencing.md).

use crate::core::Core;
use crate::ctx::Ctx;
use crate::lengths;
use crate::ops::sessions::end;
use crate::patience::Patience;
use crate::recopy;
use crate::session::Session;
use crate::volume::Volume;
use futures::stream::{self, StreamExt};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_types::{Error, ErrorKind, Ino, Result, SessionId};
use tokio::time::timeout;

/// How long the manager, and the storage servers of a client's files, may take to answer before they are asked
/// again.
const TRY_WAIT: Duration = Duration::from_secs(10);
/// Sessions given back, and files of each settled, at the same time.
const PARALLEL: usize = 16;
/// How long lengths that cannot be settled hold up what is given back; and once more for so long, at most, giving that up does.
const SETTLE_MS_MAX: u64 = 60_000;

/// Ends the sessions of a volume that are over. What fails is tried again at the next call.
pub(crate) async fn end_all(core: &Arc<Core>, volume: &Arc<Volume>) -> Result<()> {
    let (now_ms, heard) = (core.monotonic_ms(), core.has_heard_for_a_lease());
    let is_over = |session: &Session| session.is_lost() || heard && session.expired(now_ms);
    let is_fenced = |session: &Session| core.map.is_fenced(volume.id, SessionId(session.id));
    let mut lost = volume.sessions.all();
    // A fence that was asked for before a restart may be entered after it.
    lost.retain(|session| is_over(session) || is_fenced(session));
    for session in lost.iter().filter(|session| session.lose()) {
        if session.expired(now_ms) {
            strake_base::count_case("session-over-by-silence");
        }
        tracing::info!(
            "volume {}: session {} of {} is over",
            volume.id,
            session.id,
            session.client
        );
    }
    let unfenced = lost.iter().filter(|session| session.needs_fence() && !is_fenced(session));
    let unfenced: Vec<_> = unfenced.map(|session| SessionId(session.id)).collect();
    if !unfenced.is_empty() {
        in_time("the manager", core.map.fence(volume.id, &unfenced)).await?;
    }
    // One whose files lie where nobody answers holds up no other; and who does not answer is waited for once, and not for each
    // client: meanwhile no session of any volume ends.
    let patience = &lengths::patience();
    let finds_no_room = &AtomicBool::new(false);
    let given_back = stream::iter(lost).for_each_concurrent(PARALLEL, |session| async move {
        if let Err(error) = give_back(core, volume, &session, patience, finds_no_room).await {
            tracing::warn!(
                "volume {}: what {} held, which is lost: {error}; trying again",
                volume.id,
                session.client
            );
        }
    });
    given_back.await;
    volume.lost_find_no_room.store(finds_no_room.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(())
}

/// The error is what is to be told of it. `finds_no_room` is set where the store has none.
async fn give_back(
    core: &Arc<Core>,
    volume: &Arc<Volume>,
    session: &Session,
    patience: &Patience,
    finds_no_room: &AtomicBool,
) -> Result<()> {
    let settled = settle(core, volume, session, patience);
    if let Err(error) = in_time("the storage servers", settled).await {
        let since_ms = session.settling.lock().since_ms.unwrap_or_default();
        let waited_ms = core.monotonic_ms().saturating_sub(since_ms);
        if waited_ms < SETTLE_MS_MAX {
            return Err(error);
        }
        let client = &session.client;
        tracing::warn!("volume {}: lengths of files of {client} are not known: {error}", volume.id);
        let given_up = || session.settling.lock().given_up.len();
        let before = given_up();
        if let Err(error) = in_time("the metadata store", give_up(core, volume, session)).await {
            // There may be thousands, and what the store did not take it may take the next time.
            if given_up() > before && waited_ms < 2 * SETTLE_MS_MAX {
                return Err(error);
            }
            tracing::warn!("volume {}: some may show what was before it: {error}", volume.id);
        }
    }
    if session.holder.believes(core.monotonic_ms()) {
        // Who was evicted may not have heard of it yet. What is changed meanwhile is recalled from it as from others.
        return Ok(());
    }
    let stored = async {
        recopy::note_lost(core, volume, session).await?;
        end(core, volume, session).await
    };
    let stored = stored.await;
    if stored.as_ref().is_err_and(|error| error.kind == ErrorKind::NoSpace) {
        finds_no_room.store(true, Ordering::Relaxed);
        // There may be hundreds, and a full store stays so for long: it is told of the first.
        if volume.lost_find_no_room.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
    }
    stored
}

/// What a lost client had written counts, as far as it has arrived: its files are as long as that. Goes on where
/// the last call has ended.
async fn settle(
    core: &Arc<Core>,
    volume: &Arc<Volume>,
    session: &Session,
    patience: &Patience,
) -> Result<()> {
    let ctx = &Ctx::own(core, volume);
    session.settling.lock().since_ms.get_or_insert(core.monotonic_ms());
    let settled = stream::iter(unsettled(volume, session)).map(|(ino, may_write)| async move {
        let about = |e: Error| Error::with(e.kind, format!("inode {ino}: {e}"));
        lengths::settle(ctx, ino, may_write, patience).await.map_err(about)?;
        session.settling.lock().done.insert(ino);
        Ok(())
    });
    settled.buffer_unordered(PARALLEL).fold(Ok(()), first_wins).await
}

/// All is done that can be, whatever becomes of the others: the first error of those that there are.
async fn first_wins(so_far: Result<()>, one: Result<()>) -> Result<()> {
    so_far.and(one)
}

/// Files of a lost client that are not settled, and whether it may have written to them.
fn unsettled(volume: &Volume, session: &Session) -> Vec<(Ino, bool)> {
    let sessions = &volume.sessions;
    let mut files: BTreeSet<Ino> = sessions.held(session).into_iter().collect();
    files.extend(volume.ranges.of_session(session.id).into_iter().map(|(_, ino)| ino));
    let settling = session.settling.lock();
    let left = files.into_iter().filter(|ino| !settling.done.contains(ino));
    // It may not have come back after a restart, and what is known of it is what it had locked.
    left.map(|ino| (ino, sessions.writes(session, ino) || !sessions.holds(session, ino))).collect()
}

/// What storage servers do not say is not waited for any more. What it may have written over they have all the same. Goes on
/// where the last call has ended.
async fn give_up(core: &Arc<Core>, volume: &Arc<Volume>, session: &Session) -> Result<()> {
    let ctx = &Ctx::own(core, volume);
    let mut files = unsettled(volume, session);
    {
        let settling = session.settling.lock();
        files.retain(|(ino, may_write)| *may_write && !settling.given_up.contains(ino));
    }
    let given_up = stream::iter(files).map(|(ino, _)| async move {
        lengths::give_up(ctx, ino).await?;
        session.settling.lock().given_up.insert(ino);
        Ok(())
    });
    given_up.buffer_unordered(PARALLEL).fold(Ok(()), first_wins).await
}

async fn in_time(who: &str, work: impl Future<Output = Result<()>>) -> Result<()> {
    let late = |_| {
        Error::with(ErrorKind::Unavailable, format!("{who} did not answer in time (strake status)"))
    };
    timeout(TRY_WAIT, work).await.map_err(late)?
}
