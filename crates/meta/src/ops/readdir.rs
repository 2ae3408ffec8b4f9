//! A page of a directory: one scan of its entries in cookie order, and with attributes a second
//! one of its children's inodes, which lie together. What lies elsewhere, and the shards of directories among them, is
//! one question more each.

use crate::attributes::attributes;
use crate::ctx::Ctx;
use crate::keys;
use crate::records::{self, Inode, Order, Shard};
use crate::stored::store_error;
use crate::view::Tx;
use bytes::Bytes;
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use strake_types::access::{EXECUTE, READ};
use strake_types::{Ino, Result};
use strake_wire::message::meta::{DirEntry, MetaAnswer, Page, ReadDir};

/// Most entries of a page, whatever is asked for.
const PAGE_MAX: u32 = 4096;
/// Bytes of names and attributes after which a page ends.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// What a page with attributes takes at most of a message.
const CUT_BYTES_MAX: usize = 2 << 20;
/// Shards that are asked for at once: of the directories of a page there may be a million.
const SHARDS_MAX: usize = 4096;
/// About what the attributes of an entry add to a page.
const ATTRIBUTES_BYTES: usize = 150;

/// Answers with the entries after a cookie. The whole page is of one moment; but for one who keeps leases
/// the attributes are of a later one.
pub(crate) async fn readdir(ctx: &Ctx, op: &ReadDir) -> Result<MetaAnswer> {
    let leased = ctx.lease(Ino(op.ino));
    let mut tx = Tx::reader(ctx);
    let dir = tx.directory(Ino(op.ino)).await?;
    ctx.check(&dir, READ)?;
    let limit = op.limit.clamp(1, PAGE_MAX) as usize;
    let (mut entries, mut end) = entries(&mut tx, &dir, op, limit).await?;
    // Attributes are for those who may search the directory.
    if op.plus && ctx.check(&dir, EXECUTE).is_ok() {
        let own = ctx.session_id();
        let is_others = |e: &DirEntry| ctx.volume.leases.is_exclusive_to_others(own, Ino(e.ino));
        let others: HashSet<u64> =
            entries.iter().filter(|entry| is_others(entry)).map(|entry| entry.ino).collect();
        match &ctx.keeper {
            None => add_attributes(&mut tx, &dir, &mut entries).await?,
            Some(_) => {
                // Its snapshot is given back before another is asked for.
                drop(tx);
                add_leased(ctx, &dir, &mut entries).await?;
            }
        }
        // Names in these may have changed, and their times, before anybody has told: they are asked for by themselves.
        entries.iter_mut().filter(|e| others.contains(&e.ino)).for_each(|e| e.attr = None);
        end &= cut(&mut entries);
    }
    Ok(MetaAnswer::Page(Page { entries, end, parent: dir.parent, leased }))
}

/// Ends a page where its attributes are large: each may have a list of a thousand groups. False: there was more. Leases on
/// what is cut stay: the client may have had them before, and believes them.
fn cut(entries: &mut Vec<DirEntry>) -> bool {
    let (mut bytes, all) = (0, entries.len());
    let fits = |entry: &&DirEntry| {
        bytes += entry.encoded_len();
        bytes <= CUT_BYTES_MAX
    };
    let count = entries.iter().take_while(fits).count().max(1);
    entries.truncate(count);
    entries.len() == all
}

/// Attributes for one who keeps leases: they are read after those were entered.
async fn add_leased(ctx: &Ctx, dir: &Inode, entries: &mut [DirEntry]) -> Result<()> {
    let leased: Vec<bool> = entries.iter().map(|entry| ctx.lease(Ino(entry.ino))).collect();
    add_attributes(&mut Tx::reader(ctx), dir, entries).await?;
    for (entry, leased) in entries.iter_mut().zip(leased) {
        if entry.attr.is_none() {
            ctx.give_back(Ino(entry.ino));
        }
        let attr = entry.attr.take().map(|attr| ctx.leased(attr, leased));
        // Its last name is gone since the names were read.
        entry.attr = attr.filter(|attr| attr.nlink > 0);
    }
    Ok(())
}

async fn entries(
    tx: &mut Tx<'_>,
    dir: &Inode,
    op: &ReadDir,
    limit: usize,
) -> Result<(Vec<DirEntry>, bool)> {
    // A server's own walks come by directories of other shares.
    let volume = tx.ctx.home(dir.id());
    let (from, last) =
        (keys::order(volume, dir.id(), op.after), keys::order(volume, dir.id(), u64::MAX));
    let range = (Bound::Excluded(from.as_slice()), Bound::Included(last.as_slice()));
    let kv = tx.kv().await?;
    let pairs = kv.scan(range.0, range.1, limit + 1).await.map_err(store_error)?;
    let mut entries = Vec::with_capacity(pairs.len());
    let mut bytes = 0;
    for (key, value) in &pairs {
        if entries.len() == limit || bytes > PAGE_BYTES_MAX {
            return Ok((entries, false));
        }
        let order: Order = records::decode(key, value)?;
        let cookie = keys::last_id(key).ok_or_else(|| records::corrupt(key, "has no cookie"))?;
        bytes += order.name.len() + if op.plus { ATTRIBUTES_BYTES } else { 32 };
        let Order { name, ino, kind } = order;
        entries.push(DirEntry { name, ino, kind, cookie, attr: None });
    }
    Ok((entries, true))
}

/// Attributes by the page's own snapshot, not by the caches.
async fn add_attributes(tx: &mut Tx<'_>, dir: &Inode, entries: &mut [DirEntry]) -> Result<()> {
    let mut inodes = scan_children(tx, dir, entries).await?;
    add_others(tx, entries, &mut inodes).await?;
    let shards = shards_of(tx, entries, &inodes).await?;
    for entry in entries {
        let inode = inodes.get(&entry.ino);
        entry.attr = inode.map(|inode| attributes(inode, shards.get(&entry.ino), tx.ctx));
    }
    Ok(())
}

/// The inodes of the page that lie elsewhere.
async fn add_others(
    tx: &mut Tx<'_>,
    entries: &[DirEntry],
    inodes: &mut HashMap<u64, Inode>,
) -> Result<()> {
    let all = entries.iter().map(|entry| Ino(entry.ino));
    let others = all.filter(|ino| !inodes.contains_key(&ino.0));
    let keys: Vec<_> = others.map(|ino| keys::inode(tx.ctx.home(ino), ino)).collect();
    let found = tx.get_many::<Inode>(&keys).await?;
    inodes.extend(found.into_iter().flatten().map(|inode| (inode.ino, inode)));
    Ok(())
}

/// What the shards of each directory of the page say, taken together.
async fn shards_of(
    tx: &mut Tx<'_>,
    entries: &[DirEntry],
    inodes: &HashMap<u64, Inode>,
) -> Result<HashMap<u64, Shard>> {
    let found = entries.iter().filter_map(|entry| inodes.get(&entry.ino));
    let dirs = found.filter(|inode| inode.is_dir());
    let dirs: Vec<(Ino, u16)> = dirs.map(|dir| (dir.id(), dir.shards())).collect();
    let mut places = dirs.into_iter().flat_map(|(dir, count)| (0..count).map(move |at| (dir, at)));
    let mut totals: HashMap<u64, Shard> = HashMap::new();
    loop {
        let some: Vec<(Ino, u16)> = places.by_ref().take(SHARDS_MAX).collect();
        if some.is_empty() {
            return Ok(totals);
        }
        let key = |(dir, index): &(Ino, u16)| keys::shard(tx.ctx.home(*dir), *dir, *index);
        let keys: Vec<_> = some.iter().map(key).collect();
        let stored = tx.get_many::<Shard>(&keys).await?;
        for ((dir, index), shard) in some.into_iter().zip(stored) {
            let shard = shard.unwrap_or_default();
            let before = totals.get(&dir.0).filter(|_| index > 0);
            let total = before.map_or(shard, |total| total.with(&shard));
            totals.insert(dir.0, total);
        }
    }
}

/// The inodes of the page that lie among the directory's children, by one scan. Others between
/// them (moved here or linked elsewhere) are skipped; if there are too many, the scan ends early.
async fn scan_children(
    tx: &mut Tx<'_>,
    dir: &Inode,
    entries: &[DirEntry],
) -> Result<HashMap<u64, Inode>> {
    let shares = tx.ctx.settings.shares;
    let lies_near = |ino: &u64| keys::lies_in(&shares, dir.id(), Ino(*ino));
    let near = entries.iter().map(|e| e.ino).filter(lies_near);
    let (Some(first), Some(last)) = (near.clone().min(), near.clone().max()) else {
        return Ok(HashMap::new());
    };
    let volume = tx.ctx.volume.id;
    let (from, to) = (keys::inode(volume, Ino(first)), keys::inode(volume, Ino(last)));
    let limit = near.count() * 2;
    let kv = tx.kv().await?;
    let pairs = kv.scan(Bound::Included(&from), Bound::Included(&to), limit).await;
    let decode = |(key, value): (Bytes, Bytes)| {
        records::decode::<Inode>(&key, &value).map(|inode| (inode.ino, inode))
    };
    pairs.map_err(store_error)?.into_iter().map(decode).collect()
}

#[cfg(test)]
mod tests;
