//! Cuts in steps: of very many chunks a group cuts so many at a time, and says what is left. Each step has a bound of its own, so
//! a cut of any length ends while it gets on.

use super::{Part, ask_group, on_group};
use crate::core::Core;
use crate::half_cuts::Half;
use bytes::Bytes;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::storage::{FileRef, StorageAnswer, StorageOp, Truncate};

/// How often a change is made that a target then loses with its power.
const CHANGES_MAX: u32 = 4;

/// Cuts what a file has in a group, or what is left of that (`half`). After each step but the last `goes_on` is told how far it
/// is, and may end it. From which boot it was answered, as [`on_group`]: all of it from the same.
pub(super) async fn cut(
    core: &Core,
    part: Part,
    cut: Truncate,
    half: Option<Half>,
    goes_on: impl Fn(Half) -> Result<()>,
) -> Result<u64> {
    let to_index = half.map(|half| half.left);
    let mut rest = Truncate { in_steps: true, to_index, ..cut };
    let mut first = half.map(|half| half.boot);
    loop {
        let answer = ask_group(core, part, StorageOp::Truncate(rest), Bytes::new()).await?;
        let Some(StorageAnswer::Done(done)) = answer else { return Ok(0) };
        let boot = *first.get_or_insert(done.boot);
        if boot != done.boot && boot != 0 && done.boot != 0 {
            let detail = format!("group {} lost power: what was cut may be back", part.group);
            return Err(Error::with(ErrorKind::Unavailable, detail));
        }
        let Some(left) = done.left else { return Ok(boot) };
        if rest.to_index.is_some_and(|before| left >= before) {
            let detail = format!("group {}: a cut does not get on at chunk {left}", part.group);
            return Err(Error::with(ErrorKind::Malformed, detail));
        }
        rest.to_index = Some(left);
        goes_on(Half { left, boot })?;
    }
}

/// Makes a change in a group until a sync is answered from the boots that have it.
pub(super) async fn durably(
    core: &Core,
    part: Part,
    change: StorageOp,
    payload: Bytes,
) -> Result<()> {
    let (volume, ino, group) = (part.reign.volume, part.ino, part.group);
    let sync = StorageOp::Sync(FileRef { volume: volume.0, ino: ino.0 });
    for _ in 0..CHANGES_MAX {
        let changed = match &change {
            StorageOp::Truncate(all) => cut(core, part, *all, None, |_| Ok(())).await?,
            other => on_group(core, part, other.clone(), payload.clone()).await?,
        };
        let synced = on_group(core, part, sync.clone(), Bytes::new()).await?;
        if changed == synced || changed == 0 || synced == 0 {
            return Ok(());
        }
        tracing::warn!("volume {volume} inode {ino}: group {group} lost power: once more");
    }
    let detail = format!("volume {volume} inode {ino}: group {group} loses power again and again");
    Err(Error::with(ErrorKind::Io, detail))
}
