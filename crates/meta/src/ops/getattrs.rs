//! Attributes of many inodes at once: one scan, as the children of a directory lie together.

use super::readdir::stored_attributes;
use crate::ctx::Ctx;
use crate::keys;
use crate::records::{self, Inode};
use crate::stored::store_error;
use crate::view::Tx;
use std::collections::HashMap;
use std::ops::Bound;
use strake_engine::kv::Pair;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{Around, DirEntry, MetaAnswer, Page};

/// Most inodes of an answer, whatever is asked for.
const INODES_MAX: u32 = 1024;

/// Answers with what `stat` shows of each. As with [`getattr`](super::getattr), nobody needs a permission for that.
pub(crate) async fn getattrs(ctx: &Ctx, op: &Around) -> Result<MetaAnswer> {
    let found = siblings(&mut Tx::reader(ctx), op).await?;
    let inos: Vec<Ino> = found.iter().filter_map(|(key, _)| keys::last_id(key)).map(Ino).collect();
    // What is leased has to be read after that was entered.
    let leased: Vec<bool> = inos.iter().map(|&ino| ctx.lease(ino)).collect();
    let mut tx = Tx::reader(ctx);
    let read = siblings(&mut tx, op).await?;
    let read = read.into_iter().map(|(key, value)| {
        records::decode::<Inode>(&key, &value).map(|inode| (inode.id(), inode))
    });
    let mut inodes: HashMap<Ino, Inode> = read.collect::<Result<_>>()?;
    let mut entries = Vec::with_capacity(inos.len());
    for (ino, leased) in inos.into_iter().zip(leased) {
        let Some(inode) = inodes.remove(&ino).filter(|inode| inode.nlink > 0) else {
            ctx.give_back(ino);
            continue;
        };
        let attr = ctx.leased(stored_attributes(&mut tx, &inode).await?, leased);
        let (ino, kind) = (inode.ino, inode.kind);
        entries.push(DirEntry {
            name: bytes::Bytes::new(),
            ino,
            kind,
            cookie: 0,
            attr: Some(attr),
        });
    }
    Ok(MetaAnswer::Page(Page { entries, end: true, parent: 0, leased: false }))
}

async fn siblings(tx: &mut Tx<'_>, op: &Around) -> Result<Vec<Pair>> {
    let (from, to) = keys::siblings(tx.ctx.volume.id, Ino(op.ino), op.before);
    let limit = op.limit.clamp(1, INODES_MAX) as usize;
    let pairs = tx.kv().await?.scan(Bound::Included(&from), Bound::Included(&to), limit).await;
    pairs.map_err(store_error)
}

#[cfg(test)]
mod tests;
