//! The clients of a volume, for administrators.

use crate::ctx::Ctx;
use crate::session::Session;
use prost::Message;
use std::collections::HashSet;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::meta::{Client, ClientList, ClientRef, MetaAnswer, Nothing};

/// Bytes of clients with what they wait for; of those after them it is left out.
const WAITS_BYTES_MAX: usize = 2 << 20;

/// Answers with all clients.
pub(crate) fn list(ctx: &Ctx) -> Result<MetaAnswer> {
    ctx.need_root()?;
    let mut sessions = ctx.volume.sessions.all();
    sessions.sort_by_key(|session| session.id);
    let mut bytes = 0;
    let clients = sessions.iter().map(|session| {
        let mut client = client(ctx, session);
        bytes += client.encoded_len();
        if bytes > WAITS_BYTES_MAX {
            // There are so many that wait that nobody reads of all of them.
            (client.waits, client.waited) = Default::default();
        }
        client
    });
    let clients = clients.collect();
    let waits = ctx.volume.waits.told(ctx.core.clock.monotonic());
    Ok(MetaAnswer::Clients(ClientList { clients, waits }))
}

/// Ends a client's session as if its time were over; what it held is given back soon after.
pub(crate) fn evict(ctx: &Ctx, op: &ClientRef) -> Result<MetaAnswer> {
    ctx.need_root()?;
    let none = || {
        let detail = format!("no client has session {} (strake client list)", op.session);
        Error::with(ErrorKind::NotFound, detail)
    };
    let session = ctx.volume.sessions.get(op.session).ok_or_else(none)?;
    session.will_need_fence();
    session.lose();
    tracing::warn!("volume {}: {} is evicted", ctx.volume.id, session.client);
    ctx.core.attention.notify_one();
    Ok(MetaAnswer::Done(Nothing {}))
}

fn client(ctx: &Ctx, session: &Session) -> Client {
    let (core, volume) = (&ctx.core, &ctx.volume);
    let locks = volume.ranges.of_session(session.id).into_iter();
    let locked: HashSet<_> = locks.map(|(_, ino)| ino).collect();
    Client {
        session: session.id,
        name: session.client.clone(),
        silent_ms: core.deadline_ms().saturating_sub(session.deadline_ms()),
        open: volume.sessions.held(session).len() as u64,
        locked: locked.len() as u64,
        leased: session.holder.len() as u64,
        absent: session.is_absent(),
        lost: session.is_lost(),
        mount: session.mount(),
        waits: session.waits.lock().clone(),
        waited: session.waited.lock().clone(),
        release: session.release.lock().clone(),
    }
}

#[cfg(test)]
mod tests;
