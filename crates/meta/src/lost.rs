//! Clients that are lost: fenced at the storage servers, and then what they held is given back.
//!
//! Who was not heard of for the time of a lease, or was evicted, may live on all the same, cut off, with writes
//! in its memory and in the network. Nobody gets its locks before those can do no harm: first the map says that
//! the session is fenced, then the lengths of its files are settled, as far as what it wrote has arrived. What
//! arrives from then on is refused by any storage server that is asked something by somebody who knows of the
//! fence (`StorageRequest::fenced`), and everybody who asks this server for anything does
//! (docs/design/0051-fencing.md).

use crate::contents;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::ops::sessions::end;
use crate::recopy;
use crate::session::Session;
use crate::volume::Volume;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Ino, Result, SessionId};
use tokio::time::timeout;

/// How long the manager, and the storage servers of a client's files, may take to answer before they are asked
/// again.
const TRY_WAIT: Duration = Duration::from_secs(10);
/// How long lengths that cannot be settled hold up what is given back.
const SETTLE_MS_MAX: u64 = 60_000;

/// Ends the sessions of a volume that are over. What fails is tried again at the next call.
pub(crate) async fn end_all(core: &Arc<Core>, volume: &Arc<Volume>) -> Result<()> {
    let lost = volume.sessions.expired(core.monotonic_ms());
    for session in &lost {
        if session.lose(core.monotonic_ms()) {
            tracing::info!(
                "volume {}: session {} of {} is over",
                volume.id,
                session.id,
                session.client
            );
        }
    }
    let ids = lost.iter().map(|session| SessionId(session.id));
    let unfenced: Vec<_> = ids.filter(|id| !core.map.is_fenced(volume.id, *id)).collect();
    if !unfenced.is_empty() {
        in_time("the manager", core.map.fence(volume.id, &unfenced)).await?;
    }
    for session in &lost {
        if is_settled(core, volume, session).await {
            recopy::note_lost(core, volume, session).await?;
            end(core, volume, session).await?;
        }
    }
    Ok(())
}

/// What a lost client had written counts, as far as it has arrived: its files are as long as that. False if
/// that is to be tried again.
async fn is_settled(core: &Arc<Core>, volume: &Arc<Volume>, session: &Session) -> bool {
    let ctx = Ctx::own(core, volume);
    let mut files: BTreeSet<Ino> = volume.sessions.held(session).into_iter().collect();
    files.extend(volume.ranges.of_session(session.id).into_iter().map(|(_, ino)| ino));
    let settle = async {
        for ino in files {
            let about = |e: Error| Error::with(e.kind, format!("inode {ino}: {e}"));
            contents::settle_length(&ctx, ino).await.map_err(about)?;
        }
        Ok(())
    };
    let Err(error) = in_time("the storage servers", settle).await else { return true };
    let waited_ms = session.lost_for_ms(core.monotonic_ms()).unwrap_or(0);
    let gives_up = waited_ms >= SETTLE_MS_MAX;
    let then = if gives_up { "what it held is given back" } else { "trying again" };
    tracing::warn!(
        "volume {}: lengths of the files of {}, which is lost: {error}; {then}",
        volume.id,
        session.client
    );
    gives_up
}

async fn in_time(who: &str, work: impl Future<Output = Result<()>>) -> Result<()> {
    let late = |_| Error::with(ErrorKind::Unavailable, format!("{who} did not answer in time"));
    timeout(TRY_WAIT, work).await.map_err(late)?
}
