//! Having those rest who may write to a file: what they had written is there, and they ask where it lies before they write
//! again.

use crate::ctx::Ctx;
use std::time::Duration;
use strake_types::Ino;
use tokio::time::{Instant, timeout_at};

/// How long they are waited for: who writes all the time does not rest.
const WAIT: Duration = Duration::from_secs(1);
/// How often they are asked: an answer may be lost on its way to them, and a file be idle a moment later.
const ASK: Duration = Duration::from_millis(250);

/// Asks all who may write to a file whether they rest, and waits a moment for that. No lock may be held: who is about to
/// write waits for it.
pub(super) async fn have_rest(ctx: &Ctx, ino: Ino) {
    let (core, sessions) = (&ctx.core, &ctx.volume.sessions);
    let until = Instant::now() + WAIT;
    loop {
        let told = sessions.told.notified();
        let busy = sessions.to_rest(ino);
        let now = Instant::now();
        if busy.is_empty() || now >= until {
            return;
        }
        busy.iter().for_each(|session| sessions.ask_to_rest(session, ino, core.wall_ms()));
        // Told or not: it is looked at again.
        let _ = timeout_at((now + ASK).min(until), told).await;
    }
}
