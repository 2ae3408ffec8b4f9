//! Calls to groups of targets, tried again under one number while servers are away.
//!
//! When the primary of a group of several members does not answer, the map is watched, as by clients: as soon as it shows
//! another primary or epoch the call is given up and sent again. Who asks may hold the lock of an inode: a server that hangs is
//! to cost its lease, and not the time that a call may take. What it is to do late it refuses by its epoch.

use crate::core::{Core, backoff};
use crate::volume::Reign;
use bytes::Bytes;
use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;
use strake_types::error::Advice;
use strake_types::{Epoch, Error, ErrorKind, GroupId, Ino, Result, TargetId};
use strake_wire::map::Route;
use strake_wire::message::storage::{Done, StorageAnswer, StorageOp, StorageRequest};
use strake_wire::waits::{SILENT_MS_MAX, Wait, Waiting, Waits};
use tokio::time::{Instant, timeout};

/// A call that has waited so long makes the server look at the map.
const WATCH_MS: u64 = 300;
/// People are told of one that has waited so long.
const TELL_AFTER: Duration = Duration::from_millis(SILENT_MS_MAX);

/// A file's part in a group.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// The volume, and in whose name.
    pub reign: Reign,
    /// The file.
    pub ino: Ino,
    /// The group.
    pub group: GroupId,
    /// Copies that must be in sync; 0: as many as there are.
    pub min_copies: u32,
}

/// As [`ask_group`]. From which boot it has answered, as [`Done::boot`] has it.
pub(crate) async fn on_group(
    core: &Core,
    part: Part,
    op: StorageOp,
    payload: Bytes,
) -> Result<u64> {
    match ask_group(core, part, op, payload).await? {
        Some(StorageAnswer::Done(Done { boot, .. })) => Ok(boot),
        _ => Ok(0),
    }
}

/// Sends one operation to a group; tries again while a server is away, within the limit of the
/// options.
pub(crate) async fn ask_group(
    core: &Core,
    part: Part,
    mut op: StorageOp,
    payload: Bytes,
) -> Result<Option<StorageAnswer>> {
    let Part { reign, ino, group, min_copies } = part;
    let volume = reign.volume;
    let until = Instant::now() + Duration::from_millis(core.options.storage_wait_ms);
    let mut turn: u32 = 1;
    // Under one number: what was sent before must not cut what is written after.
    let number = core.attempts.begin();
    let known = core.in_use(volume);
    let since = core.clock.monotonic();
    let mut said: Option<Waiting<'_>> = None;
    let mut say = |why: &(dyn Display + Sync)| {
        let what = format!("the target of group {group}: {why}");
        match &said {
            Some(waiting) => waiting.change(what),
            None => said = known.as_ref().map(|known| tell(core, &known.waits, part, since, what)),
        }
    };
    loop {
        // Where the source of a copy is may change as well.
        if let StorageOp::Copy(copy) = &mut op
            && let Ok((target, _)) = core.map.primary_of(GroupId(copy.from_group))
        {
            copy.from_target = target.0;
        }
        let request = StorageRequest {
            group: group.0,
            attempt: op.is_numbered().then(|| number.stamp()),
            min_copies,
            ..request(core, reign, ino, op.clone())
        };
        let route = core.map.route(group);
        let sent = match &route {
            Ok(route) => {
                let asked = attempt(core, group, route, request, payload.clone());
                heard(asked, core.clock.monotonic() - since, || say(&"no answer")).await
            }
            Err(error) => Err(error.clone()),
        };
        let error = match sent {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        // Whoever serves the volume now does it, or has done so.
        if core.map.is_fenced(volume, reign.session()) {
            let detail = format!("volume {volume} is served by another server");
            return Err(Error::with(ErrorKind::StaleMap, detail));
        }
        // Where the group has moved there is another one to ask.
        let over = Instant::now() >= until && core.map.route(group).ok() == route.ok();
        if over || error.advice() == Advice::GiveUp {
            return Err(error);
        }
        // Ever more seldom.
        if turn.is_power_of_two() {
            tracing::info!("volume {volume} inode {ino}: waiting for group {group}: {error}");
        }
        if core.clock.monotonic() >= since + TELL_AFTER {
            say(&error);
        }
        // The map may have changed; if nobody can tell, the next try says so.
        let _ = core.map.refresh().await;
        backoff(turn).await;
        turn += 1;
    }
}

/// Says to whoever asks that a call waits.
fn tell<'a>(
    core: &'a Core,
    waits: &'a Waits,
    part: Part,
    since: Duration,
    what: String,
) -> Waiting<'a> {
    let (file, limit_ms) = (Some(part.ino), core.options.storage_wait_ms);
    waits.begin(Wait { what, file, since, limit_ms }, &*core.clock)
}

/// What comes of an attempt, which begins when the call has `lasted` so long. That there is no answer is said once the call lasts for
/// long, and of an attempt from then on when it is quiet for as long: each one that is refused is quiet for a moment.
async fn heard<T>(attempt: impl Future<Output = T>, lasted: Duration, say: impl FnOnce()) -> T {
    let mut attempt = pin!(attempt);
    let quiet = TELL_AFTER.checked_sub(lasted).filter(|quiet| !quiet.is_zero());
    match timeout(quiet.unwrap_or(TELL_AFTER), &mut attempt).await {
        Ok(ended) => ended,
        Err(_) => {
            say();
            attempt.await
        }
    }
}

/// One attempt at a group, until another one is to be made.
async fn attempt(
    core: &Core,
    group: GroupId,
    route: &Route,
    request: StorageRequest,
    payload: Bytes,
) -> Result<Option<StorageAnswer>> {
    let asked = ask_primary(core, (route.primary, route.epoch), request, payload);
    if route.members == 1 {
        return asked.await;
    }
    // A call that is given up is dropped. A server, also one in this process, comes to the end of what it has begun.
    tokio::select! {
        biased;
        answer = asked => answer,
        error = given_up(core, group, route) => Err(error),
    }
}

/// Waits until a call that was sent just now is to be given up, and says why.
async fn given_up(core: &Core, group: GroupId, route: &Route) -> Error {
    tokio::time::sleep(Duration::from_millis(WATCH_MS)).await;
    core.map.moved(group, route).await;
    Error::with(ErrorKind::StaleMap, format!("group {group} has left epoch {}", route.epoch))
}

/// One attempt at a group's primary, however long it takes.
pub(crate) async fn ask_primary(
    core: &Core,
    (target, epoch): (TargetId, Epoch),
    request: StorageRequest,
    payload: Bytes,
) -> Result<Option<StorageAnswer>> {
    let request = StorageRequest { target: target.0, epoch: epoch.0, ..request };
    let called = core.map.storage_of(target)?.call(request, payload).await;
    // The right is ours, not that of whoever has asked us.
    let (reply, _) = called.map_err(|error| match error.kind {
        ErrorKind::BadCapability => Error::with(ErrorKind::Unavailable, error.detail),
        _ => error,
    })?;
    Ok(reply.answer)
}

/// What a target is shown for a file, or (0) for all of the volume.
pub(crate) fn right_to(core: &Core, reign: Reign, ino: Ino) -> Bytes {
    core.key.mint_reign(reign.since, reign.volume, ino, core.wall_ms())
}

/// A request about a file, or (0) about all of the volume, without its place.
pub(crate) fn request(core: &Core, reign: Reign, ino: Ino, op: StorageOp) -> StorageRequest {
    let capability = right_to(core, reign, ino);
    let fenced = core.map.fenced_epoch().0;
    StorageRequest { capability, fenced, op: Some(op), ..StorageRequest::default() }
}

#[cfg(test)]
mod tests;
