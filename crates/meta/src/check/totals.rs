//! What a volume says that it holds, against all its inodes.
//!
//! Both are of one moment, in which no change is half counted; then the inodes of that moment are counted in
//! the background, however much changes meanwhile, and a difference is as wrong then as now.

use super::{Findings, Mend};
use crate::count::{count, moment};
use crate::ctx::Ctx;
use crate::ops::volume_stat::are_exact;
use crate::volume::Audit;
use bytes::Bytes;
use std::time::Duration;
use strake_base::task;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::meta::{Check, Checked};
use tokio::sync::watch;

/// How long one answer waits for the end of the count.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// What says that it has not come yet.
const COUNTING: &[u8] = b"counting";

/// Begins to count, or tells what has come of it.
pub(super) async fn page(ctx: &Ctx, op: &Check, mend: Option<Mend>) -> Result<Checked> {
    let mut slot = ctx.volume.audit.lock().await;
    // Whoever began it did not come back.
    slot.take_if(|audit| op.after.is_empty() && audit.counted.borrow().is_some());
    let audit = match slot.as_mut() {
        Some(audit) => audit,
        None => slot.insert(begin(ctx).await?),
    };
    let counted = match audit.ended().await {
        Some(counted) => counted,
        None => return Ok(Checked { next: Bytes::from_static(COUNTING), ..Checked::default() }),
    };
    let told = audit.told;
    *slot = None;
    let counted = counted?;
    let mut found = Findings::default();
    if counted != told {
        if mend.is_some() {
            ctx.volume.counts.add(counted.0 - told.0, counted.1 - told.1);
        }
        let detail = format!(
            "it says {} inodes and {} bytes of contents, and has {} and {}",
            told.0, told.1, counted.0, counted.1
        );
        found.add("wrong-totals", 0, detail, mend.is_some());
    }
    Ok(Checked { looked_at: 1, problems: found.problems, ..Checked::default() })
}

impl Audit {
    /// What was counted; `None`: not all yet.
    async fn ended(&mut self) -> Option<Result<(i64, i64)>> {
        let stopped = || Err(Error::with(ErrorKind::Busy, "the count was stopped; try again"));
        let ended = self.counted.wait_for(Option::is_some);
        let ended = tokio::time::timeout(ANSWER_WAIT, ended).await.ok()?;
        ended.map_or_else(|_| Some(stopped()), |counted| counted.clone())
    }
}

async fn begin(ctx: &Ctx) -> Result<Audit> {
    let counts = &ctx.volume.counts;
    if !are_exact(counts).await {
        let detail = "it is being counted since its server ended uncleanly; try again later";
        return Err(Error::with(ErrorKind::Busy, detail));
    }
    let (told, snapshot) = moment(&ctx.volume).await?;
    let (result, counted) = watch::channel(None);
    let volume = ctx.volume.id;
    task::spawn(async move {
        result.send_replace(Some(count(volume, &*snapshot, |_| ()).await));
    });
    Ok(Audit { told, counted })
}
