//! The end of an inode: when its last name goes, and when nobody has it open any more.

use crate::keys::{self, Kind};
use crate::records::Inode;
use crate::view::Tx;
use std::ops::Bound;
use strake_types::{Ino, Result};

/// Most extended attributes an inode can have, with room to spare.
const XATTRS_SCAN: usize = 1024;

/// How long a file that was replaced can still be opened by its inode. A name that is replaced is there at every
/// moment: who has looked it up just before opens the old file, as on a local file system. (Who has looked
/// up a name that is removed looks again, and learns that.)
pub(crate) const REPLACED_STAYS_MS: u64 = 1_000;

/// Takes a name away from an inode that is no directory. Returns the inode after it; with its last
/// name it is deleted: now, or (while it is open, has chunks, or `stays_ms` are not over) by the reaper.
pub(crate) async fn drop_name(
    tx: &mut Tx<'_>,
    inode: &Inode,
    parent: Ino,
    name: &[u8],
    stays_ms: u64,
) -> Result<Inode> {
    let mut inode = inode.clone();
    inode.nlink = inode.nlink.saturating_sub(1);
    inode.ctime = tx.now.into();
    let home = tx.ctx.home(inode.id());
    if inode.linked {
        tx.delete(keys::link(home, inode.id(), parent, name)).await?;
    }
    if inode.nlink > 0 {
        return Ok((*tx.put_inode(inode).await?).clone());
    }
    inode.nameless = false;
    // Who has a file of another share open is known there.
    let may_be_open = home != tx.ctx.volume.id || tx.ctx.volume.sessions.may_hold(inode.id());
    if stays_ms > 0 || inode.has_chunks() || may_be_open {
        // Anew, where a cut has it wait already: who has found it in the queue has made the cut durable, and not this.
        tx.requeue_for(&mut inode, stays_ms).await?;
        return Ok((*tx.put_inode(inode).await?).clone());
    }
    erase(tx, &inode).await?;
    inode.version += 1;
    Ok(inode)
}

/// Removes the records of an inode that has no name, no user and no chunks.
pub(crate) async fn erase(tx: &mut Tx<'_>, inode: &Inode) -> Result<()> {
    let volume = tx.ctx.home(inode.id());
    if !inode.is_dir() && inode.length > 0 && (inode.inline || !inode.is_file()) {
        tx.delete(keys::contents(volume, inode.id())).await?;
    }
    if inode.xattrs > 0 {
        let prefix = keys::prefix_of(Kind::Xattr, volume, inode.ino);
        let end = keys::end_of(&prefix);
        let end = end.as_ref().map(Vec::as_slice);
        let kv = tx.kv().await?;
        let found = kv.scan(Bound::Included(&prefix), end, XATTRS_SCAN).await;
        for (key, _) in found.map_err(crate::stored::store_error)? {
            kv.delete(key.to_vec());
        }
    }
    if inode.queued_ms != 0 {
        tx.delete(keys::queue(volume, inode.queued_ms, inode.id())).await?;
    }
    tx.count(inode.id(), -1, -(inode.occupied as i64));
    tx.delete_inode(inode.id()).await
}
