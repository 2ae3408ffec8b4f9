//! A client begins, is alive, and ends.

use super::lock::give_back;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys::{self, Kind};
use crate::ledger::Ledger;
use crate::own::WRITES_MAX;
use crate::records::{self, SessionRecord};
use crate::session::Session as Client;
use crate::stored::store_error;
use crate::view::Tx;
use crate::volume::Volume;
use std::ops::Bound;
use std::sync::Arc;
use strake_types::limits::RELEASE_CHARS_MAX;
use strake_types::{Consistency, ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Nothing, OpenSession, RenewSession, Session};

/// Longest name of a client that is kept.
const CLIENT_BYTES_MAX: usize = 256;

/// A client begins, or goes on with an earlier session: then its locks are still held, and of the
/// files that it names each is open once. Not with that of another client: where metadata was put back as it was before, one
/// number has been given to two. Nor by a request of before the last with which it went on.
pub(crate) async fn open(ctx: &Ctx, op: &OpenSession) -> Result<MetaAnswer> {
    let (core, volume) = (&ctx.core, &ctx.volume);
    let lease_ms = core.options.lease_ms;
    op.open.iter().for_each(|ino| volume.recopies.touch(Ino(*ino)));
    if op.resume != 0
        && let Some(session) = volume.sessions.get(op.resume).filter(|s| s.check().is_ok())
        && session.may_be_of(op.mount)
        && session.may_go_on_in(op.incarnation)
    {
        session.renew(core.deadline_ms());
        session.note_use();
        session.is_of(op.mount);
        let claims = note_said(&session, op);
        session.holder.resume(ctx.leases);
        volume.sessions.resume(&session, &op.open, &op.writable, op.incarnation);
        core.has_work(volume);
        let shared = shared_ones(ctx, &session, &op.writable).await?;
        let session = session.id;
        let (resumed, with_writes, behind) = (true, true, true);
        let answer = Session { session, lease_ms, resumed, shared, claims, with_writes, behind };
        return Ok(MetaAnswer::Session(answer));
    }
    let session = begin(ctx, op).await?;
    let claims = note_said(&session, op);
    volume.sessions.resume(&session, &op.open, &op.writable, op.incarnation);
    for unheard in volume.sessions.unheard_before(&session) {
        if let Err(error) = end(core, volume, &unheard).await {
            tracing::debug!(
                "session {}, of which nobody has heard, ends later: {error}",
                unheard.id
            );
        }
    }
    let session = session.id;
    let (with_writes, behind) = (true, true);
    let rest = Session::default();
    Ok(MetaAnswer::Session(Session { session, lease_ms, claims, with_writes, behind, ..rest }))
}

/// What a client says of itself. True if it asks before it reads or writes what others may have claimed.
fn note_said(session: &Client, op: &OpenSession) -> bool {
    session.says_moves(op.moves);
    session.says_behind(op.behind);
    *session.release.lock() = op.release.chars().take(RELEASE_CHARS_MAX).collect();
    session.minds_claims(op.claims)
}

/// A new session. Where it was asked for before, and the answer was lost, it is the one of then: in two of them its client would
/// have its files open twice, and others would wait for what nobody tells.
async fn begin(ctx: &Ctx, op: &OpenSession) -> Result<Arc<Client>> {
    let (core, volume) = (&ctx.core, &ctx.volume);
    if let Some(session) = volume.sessions.begun(op.mount, op.incarnation)? {
        session.renew(core.deadline_ms());
        return Ok(session);
    }
    let id = volume.new_session_id().await?;
    let client: String = op.client.chars().take(CLIENT_BYTES_MAX).collect();
    // After a restart it is waited for until what was leased to it is over.
    let leases = ctx.leases > 0;
    let since_ms = core.wall_ms();
    let (name, mount) = (client.clone(), op.mount);
    let record =
        SessionRecord { client: name, since_ms, leases, mount, ..SessionRecord::default() };
    let value = records::encode(&record);
    volume.put(keys::session(volume.id, id), value).await?;
    // Its id is not given to another client when the power is lost.
    volume.sync().await?;
    let session = Client::new(id, client, Ledger::default(), core.deadline_ms(), false);
    let session = Arc::new(session.keeping_leases(leases).begun_in(op.incarnation));
    session.is_of(op.mount);
    // A copy of the request may have come meanwhile, or a later one.
    let entered = volume.sessions.enter(session);
    if !entered.as_ref().is_ok_and(|entered| entered.id == id) {
        volume.write(vec![(keys::session(volume.id, id), None)]).await?;
    }
    entered
}

/// Those of the files that a client goes on with and may write to which others have open: who opened one while it
/// was away had nobody to ask for what it holds back. After its files are counted, so that of two who open one at
/// the same time one at least learns of the other.
async fn shared_ones(ctx: &Ctx, session: &Client, writable: &[u64]) -> Result<Vec<u64>> {
    let mut shared = Vec::new();
    for ino in writable.iter().copied().map(Ino) {
        if !ctx.volume.sessions.others_hold(session, ino) {
            continue;
        }
        match Tx::reader(ctx).inode(ino).await {
            Ok(inode) if inode.consistency() == Consistency::Strict => shared.push(ino.0),
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::Stale => {}
            Err(error) => return Err(error),
        }
    }
    Ok(shared)
}

/// A client is alive, and has closed these files.
pub(crate) async fn renew(ctx: &Ctx, op: &RenewSession) -> Result<MetaAnswer> {
    let session = ctx.need_session()?;
    if !session.is_news(op.number) {
        return Ok(MetaAnswer::Done(Nothing {}));
    }
    let close = |ino: &u64| ctx.volume.sessions.close(session, Ino(*ino), op.incarnation);
    let closed = op.closed.iter().map(close);
    if closed.fold(false, |any, free| any | free) {
        ctx.core.has_work(&ctx.volume);
    }
    Ok(MetaAnswer::Done(Nothing {}))
}

/// A client ends.
pub(crate) async fn close(ctx: &Ctx) -> Result<MetaAnswer> {
    let session = ctx.need_session()?;
    end(&ctx.core, &ctx.volume, session).await?;
    Ok(MetaAnswer::Done(Nothing {}))
}

/// Ends a session: it is refused from now on, and what it held is given back.
pub(crate) async fn end(core: &Core, volume: &Volume, session: &Client) -> Result<()> {
    volume.sessions.end(session);
    volume.leases.end(&session.holder);
    for (flock, ino) in volume.ranges.of_session(session.id) {
        let _held = core.locks.lock(volume.id, &[ino]).await;
        give_back(volume, flock, ino, session.id).await?;
    }
    delete_prefix(volume, &keys::prefix_of(Kind::Result, volume.id, session.id)).await?;
    volume.write(vec![(keys::session(volume.id, session.id), None)]).await?;
    volume.sessions.remove(session);
    core.has_work(volume);
    Ok(())
}

/// Deletes all keys that begin with `prefix`, in transactions of bounded size.
pub(crate) async fn delete_prefix(volume: &Volume, prefix: &[u8]) -> Result<()> {
    let end = keys::end_of(prefix);
    let to = end.as_ref().map(Vec::as_slice);
    loop {
        let snapshot = volume.kv.snapshot().await.map_err(store_error)?;
        let pairs = snapshot.scan(Bound::Included(prefix), to, WRITES_MAX).await;
        let keys: Vec<_> = pairs.map_err(store_error)?.into_iter().map(|(key, _)| key).collect();
        // Who holds a snapshot and asks for another waits for others that do the same: a store gives so many and no more.
        drop(snapshot);
        let found = keys.len();
        volume.write(keys.into_iter().map(|key| (key.to_vec(), None)).collect()).await?;
        if found < WRITES_MAX {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
