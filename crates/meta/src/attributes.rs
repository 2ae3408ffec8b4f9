//! What `stat` shows of an inode.

use crate::ctx::Ctx;
use crate::layout;
use crate::records::{Inode, Shard, later};
use strake_types::Layout;
use strake_wire::message::common::Attributes;

/// What a directory's length grows by with each entry.
const ENTRY_BYTES: u64 = 64;

fn has_no_xattrs(inode: &Inode) -> bool {
    inode.xattrs == 0 && inode.acl_access.is_empty() && inode.acl_default.is_empty()
}

/// What `stat` shows of an inode and, if it is a directory, its shards taken together.
pub(crate) fn attributes(inode: &Inode, shard: Option<&Shard>, ctx: &Ctx) -> Attributes {
    let mut attr = Attributes {
        ino: inode.ino,
        kind: inode.kind,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        rdev: inode.rdev,
        length: inode.length,
        occupied: inode.occupied,
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        btime: inode.btime,
        version: ctx.core.losses().told(inode.version),
        inline: inode.inline,
        no_xattrs: has_no_xattrs(inode),
        leased: false,
        name_leased: false,
        exclusive: 0,
        layout: inode.layout.clone(),
    };
    if let Some(shard) = shard {
        attr.nlink = 2 + u32::try_from(shard.subdirs).unwrap_or(u32::MAX - 2);
        attr.length = shard.entries * ENTRY_BYTES;
        attr.mtime = shard.mtime;
        attr.ctime = later(attr.ctime, shard.ctime);
        attr.version += shard.version;
    }
    if inode.is_dir() {
        let layout = layout::for_children(inode, &ctx.settings, &ctx.core.map).ok();
        // A map that does not know yet what another server has set there says nothing that can be understood.
        let layout = layout.filter(Layout::has_groups);
        attr.layout = layout.map(|layout| (&layout).into());
    }
    attr
}
