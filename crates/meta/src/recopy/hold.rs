//! Having a file held still by who has it open: no client reads or writes it, and what was written to it is on the disks of
//! the groups where it lies.

use super::spare::{Users, open_by, users};
use crate::ctx::Ctx;
use crate::recopies::{Hold, UnderWay};
use crate::session::Session;
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Ino, Result};
use tokio::time::{Instant, timeout_at};

/// How long clients are waited for: each first sends what was written there.
const WAIT: Duration = Duration::from_secs(3);
/// How often they are asked: an answer may be lost on its way to them.
const ASK: Duration = Duration::from_millis(250);
/// Numbers of a millisecond, as a power of two.
const NUMBERS_PER_MS_BITS: u32 = 16;

/// A file is held still until this is dropped.
pub(super) struct Still<'a> {
    ctx: &'a Ctx,
    ino: Ino,
    file: &'a UnderWay,
    hold: Arc<Hold>,
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.file.release();
    }
}

impl Still<'_> {
    /// Why it is not held still by all who have it open; `None`: it is.
    pub async fn hindrance(&self) -> Result<Option<String>> {
        Ok(match users(self.ctx, self.ino).await? {
            Users::Unknown(why) => Some(why),
            Users::Open(users) => {
                let moving = self.moving(&users);
                (!moving.is_empty())
                    .then(|| format!("{}, and not held still there", open_by(&moving)))
            }
        })
    }

    fn moving(&self, users: &[Arc<Session>]) -> Vec<Arc<Session>> {
        users.iter().filter(|session| !self.hold.has(session.id)).cloned().collect()
    }
}

/// Asks all who have a file open to hold it still, and waits for them; or why it cannot be had. No lock may be held: who
/// sends what was written takes them.
pub(super) async fn hold_still<'a>(
    ctx: &'a Ctx,
    ino: Ino,
    file: &'a UnderWay,
) -> Result<std::result::Result<Still<'a>, String>> {
    // Greater than any of before a start: nobody takes it for an earlier one.
    let number = (ctx.core.wall_ms() << NUMBERS_PER_MS_BITS) | ctx.volume.recopies.next_number();
    let hold = file.hold(number);
    let still = Still { ctx, ino, file, hold: hold.clone() };
    let until = Instant::now() + WAIT;
    loop {
        let (heard, closed) = (hold.heard.notified(), ctx.volume.sessions.told.notified());
        let moving = match users(ctx, ino).await? {
            Users::Unknown(why) => return Ok(Err(why)),
            Users::Open(users) => still.moving(&users),
        };
        if moving.is_empty() {
            return Ok(Ok(still));
        }
        let now = Instant::now();
        if now >= until {
            return Ok(Err(format!("{}, and not held still there", open_by(&moving))));
        }
        moving.iter().for_each(|session| session.holder.ask_to_hold(ino, number));
        // Heard or not: it is looked at again.
        let told = async {
            tokio::select! { () = heard => {}, () = closed => {} }
        };
        let _ = timeout_at((now + ASK).min(until), told).await;
    }
}
