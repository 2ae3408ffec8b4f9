//! Another number of copies for files there are, while they are in use: docs/design/0043.
//!
//! A file is copied from the groups of its layout to those of another one, and its inode is switched
//! over in one transaction, under its lock, if nobody can have changed it meanwhile and nobody has it
//! open. Who holds a file open knows its old layout, so the switch waits for that; who opens it later
//! learns the new one.
//!
//! * [`crate::recopies`] — what is under way, in memory.
//! * `work` — one file: begin, copy, switch or give up.
//! * `spare` — chunks that no layout names, until they are deleted; what lost clients may still use.

mod spare;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use spare::{clear, looks_after, note_lost};

use crate::ctx::Ctx;
use crate::recopies::{Begin, Outcome, UnderWay};
use std::time::Duration;
use strake_base::task;
use strake_types::limits::COPIES_MAX;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, Recopied, Recopy, RecopyState};

/// An answer comes within this time, whether the file is ready or not.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// See [`MetaOp::Recopy`](strake_wire::message::meta::MetaOp::Recopy).
pub(crate) async fn recopy(ctx: &Ctx, op: &Recopy) -> Result<MetaAnswer> {
    if ctx.cred.uid != 0 {
        return Err(Error::new(ErrorKind::NotPermitted));
    }
    if !(1..=COPIES_MAX).contains(&op.copies) {
        let detail = format!("copies must be 1 to {COPIES_MAX}");
        return Err(Error::with(ErrorKind::Invalid, detail));
    }
    let ino = Ino(op.ino);
    let file = match ctx.volume.recopies.begin(ino, op.copies) {
        Begin::Full => return Ok(under_way(&UnderWay::default())),
        Begin::Running(file) => file,
        Begin::New(file) => {
            let own = ctx.system();
            let (order, running) = (*op, file.clone());
            task::spawn(async move {
                let outcome = work::run(&own, &order, &running).await;
                running.end(own.core.monotonic_ms(), outcome);
            });
            file
        }
    };
    match tokio::time::timeout(ANSWER_WITHIN, file.ended()).await {
        Err(_) => Ok(under_way(&file)),
        Ok(outcome) => {
            ctx.volume.recopies.forget(ino, &file);
            outcome.map(|outcome| ended(&file, outcome))
        }
    }
}

fn under_way(file: &UnderWay) -> MetaAnswer {
    answer(file, RecopyState::UnderWay, String::new())
}

fn ended(file: &UnderWay, outcome: Outcome) -> MetaAnswer {
    match outcome {
        Outcome::Done => answer(file, RecopyState::Done, String::new()),
        Outcome::Unchanged => answer(file, RecopyState::Unchanged, String::new()),
        Outcome::Waits(why) => answer(file, RecopyState::Waits, why),
    }
}

fn answer(file: &UnderWay, state: RecopyState, detail: String) -> MetaAnswer {
    let (copied, bytes) = file.progress();
    MetaAnswer::Recopied(Recopied { state: state as u32, copied, bytes, detail })
}
