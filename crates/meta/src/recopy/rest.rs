//! Having those rest who may write to a file: what they had written is there, and they ask where it lies before they write
//! again.

use crate::ctx::Ctx;
use crate::view::Tx;
use std::time::Duration;
use strake_types::{Consistency, Ino};
use tokio::time::{Instant, timeout_at};

/// How long those are waited for who may write: who writes all the time does not rest.
const REST_WAIT: Duration = Duration::from_secs(1);
/// How often they are asked: an answer may be lost on its way to them, and a file be idle a moment later.
const ASK: Duration = Duration::from_millis(250);
/// How long those are waited for who may only defer to close the file. What lies where a file was that nobody has open goes
/// at once.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// Has those close a file who only defer that, and asks those who may write to it whether they rest; waits a moment for both.
/// No lock may be held: who is about to write waits for it.
pub(super) async fn have_rest(ctx: &Ctx, ino: Ino) {
    let (core, sessions) = (&ctx.core, &ctx.volume.sessions);
    if !sessions.may_hold(ino) || sessions.is_unknown(ino) || sessions.to_rest(ino).is_none() {
        return;
    }
    // Of one of which everybody writes his part nothing is leased: who has it open keeps it where it is, whether he rests or not.
    match Tx::reader(ctx).inode(ino).await {
        Ok(inode) if inode.consistency() != Consistency::Parallel => {}
        _ => return,
    }
    ctx.volume.leases.recall(ino, &*core.clock);
    let began = Instant::now();
    loop {
        let told = sessions.told.notified();
        let Some(busy) = sessions.to_rest(ino) else { return };
        let until = began + if busy.is_empty() { CLOSE_WAIT } else { REST_WAIT };
        let now = Instant::now();
        if !sessions.may_hold(ino) || now >= until {
            return;
        }
        busy.iter().for_each(|session| sessions.ask_to_rest(session, ino, core.wall_ms()));
        // Told or not: it is looked at again.
        let _ = timeout_at((now + ASK).min(until), told).await;
    }
}
