//! Counts of the volume.

use crate::ctx::Ctx;
use crate::keys;
use crate::volume::Counts;
use std::time::Duration;
use strake_types::Result;
use strake_wire::message::meta::{MetaAnswer, VolumeStat};

/// How long to wait for the count that follows an unclean stop.
const COUNT_WAIT_MS: u64 = 1_000;
/// How often to look whether it has ended.
const COUNT_POLL_MS: u64 = 20;

/// Answers with inodes and bytes. After an unclean stop all is counted again in the background;
/// a request waits a little for that, and then answers by the counts last stored.
pub(crate) async fn volume_stat(ctx: &Ctx) -> Result<MetaAnswer> {
    let counts = &ctx.volume.counts;
    are_exact(counts).await;
    let (inodes, bytes) = counts.get();
    Ok(MetaAnswer::VolumeStat(VolumeStat {
        inodes,
        bytes,
        inodes_free: keys::COUNTER_MAX.saturating_sub(inodes),
        sessions: ctx.volume.sessions.len() as u64,
    }))
}

/// True if all is counted, or comes to be soon.
pub(crate) async fn are_exact(counts: &Counts) -> bool {
    for _ in 0..COUNT_WAIT_MS / COUNT_POLL_MS {
        if counts.is_exact() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(COUNT_POLL_MS)).await;
    }
    counts.is_exact()
}
