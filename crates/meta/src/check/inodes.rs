//! Whether an inode has the names, counts and contents that it says.

use super::{Findings, Mend};
use crate::keys::{self, Kind};
use crate::ops::rename::TOPOLOGY;
use crate::records::{self, Entry, Inode, Mark};
use crate::stored::store_error;
use crate::view::{Tx, shard_of};
use bytes::Bytes;
use std::collections::HashSet;
use std::ops::Bound;
use strake_types::layout::Placement;
use strake_types::{ErrorKind, FileKind, GroupId, Ino, Layout, Result};

/// Keys read at a time.
const SCAN_PAGE: usize = 1000;

/// Judges an inode.
pub(crate) async fn judge(
    tx: &mut Tx<'_>,
    ino: Ino,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let Some(inode) = tx.find_inode(ino).await? else { return Ok(()) };
    if mend.is_some() {
        tx.need_lock(ino)?;
    }
    let mut mended = (*inode).clone();
    match inode.is_dir() {
        true => directory(tx, &mut mended, mend, found).await?,
        false => file(tx, &mut mended, mend, found).await?,
    }
    xattrs(tx, &mut mended, mend, found).await?;
    contents(tx, &inode, found).await?;
    if mend.is_some() && mended != *inode {
        tx.put_inode(mended).await?;
    }
    Ok(())
}

/// Whether a directory is where it says, leads to the root, and counts its entries right.
async fn directory(
    tx: &mut Tx<'_>,
    dir: &mut Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    if dir.id() != Ino::ROOT {
        let named = tx.leads(Ino(dir.parent), &dir.name, dir.id()).await?;
        let rooted = named && leads_to_root(tx, dir).await?;
        if named && !rooted {
            // Two directories that were moved while it was walked up look like it, too.
            tx.need_lock(TOPOLOGY)?;
            let detail = "a directory that lies below itself".to_owned();
            if let (Some(mend), Some(parent)) = (mend, tx.find_inode(Ino(dir.parent)).await?)
                && mend.lost_found.is_some()
                && tx.ctx.is_here(parent.id())
            {
                tx.need_lock(parent.id())?;
                if let Some(entry) = tx.entry(parent.id(), &dir.name).await? {
                    let name = dir.name.clone();
                    tx.remove_entry(&parent, &name, entry).await?;
                }
            }
            name_it(tx, dir, mend, ("directory-below-itself", detail), found).await?;
        } else if !named {
            let detail = "a directory without a name".to_owned();
            name_it(tx, dir, mend, (NAMELESS, detail), found).await?;
        }
    }
    count_entries(tx, dir, mend, found).await
}

/// Nobody can be asked about some chunks of a file.
pub(super) const AWAY: &str = "chunks-away";
/// As clients know it: they make the directory in which it gets a name.
pub(crate) const NAMELESS: &str = "inode-without-name";

/// What an inode that has no name is called among the lost and found.
pub(super) fn lost_name(ino: u64) -> Bytes {
    format!("#{ino}").into()
}

/// Gives an inode that has none a name among the lost and found, if there is such a directory.
async fn name_it(
    tx: &mut Tx<'_>,
    inode: &mut Inode,
    mend: Option<Mend>,
    (what, detail): (&str, String),
    found: &mut Findings,
) -> Result<()> {
    let into = mend.and_then(|mend| mend.lost_found).filter(|dir| *dir != inode.id());
    if let Some(dir) = into {
        tx.need_lock(dir)?;
        let dir = tx.directory(dir).await?;
        let name = lost_name(inode.ino);
        if tx.entry(dir.id(), &name).await?.is_none() {
            tx.add_entry(&dir, &name, inode.id(), inode.kind).await?;
        }
        (inode.parent, inode.name, inode.nameless) = (dir.ino, name, false);
        if !inode.is_dir() {
            (inode.nlink, inode.linked) = (1, false);
        }
    }
    found.add(what, inode.ino, detail, into.is_some());
    Ok(())
}

/// False for a directory that lies below itself, or above which one does.
pub(super) async fn leads_to_root(tx: &mut Tx<'_>, dir: &Inode) -> Result<bool> {
    let mut seen = HashSet::from([dir.ino]);
    let mut at = Ino(dir.parent);
    while at != Ino::ROOT {
        if !seen.insert(at.0) {
            return Ok(false);
        }
        // One above it that is missing, has no name or cannot be read is found by itself.
        match tx.find_inode(at).await {
            Ok(Some(above)) => at = Ino(above.parent),
            Ok(None) => return Ok(true),
            Err(error) if error.kind == ErrorKind::Corrupt => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// What one guard shard should say.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    entries: u64,
    subdirs: u64,
    last_cookie: u64,
}

async fn count_entries(
    tx: &mut Tx<'_>,
    dir: &Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let mut counts = vec![Count::default(); usize::from(dir.shards())];
    let prefix = keys::prefix_of(Kind::Entry, tx.ctx.volume.id, dir.ino);
    let end = keys::end_of(&prefix);
    let mut from = Bound::Included(prefix.clone());
    loop {
        let (start, end) = (from.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        let page = tx.kv().await?.scan(start, end, SCAN_PAGE).await.map_err(store_error)?;
        for (key, value) in &page {
            let entry: Entry = records::decode(key, value)?;
            let count = &mut counts[usize::from(shard_of(dir, keys::name_after_id(key)))];
            count.entries += 1;
            count.subdirs += u64::from(entry.kind == FileKind::Directory as u32);
        }
        match page.last() {
            Some((last, _)) if page.len() == SCAN_PAGE => from = Bound::Excluded(last.to_vec()),
            _ => break,
        }
    }
    for (index, count) in (0..).zip(counts) {
        let key = keys::shard(tx.ctx.volume.id, dir.id(), index);
        // Of the same moment as the entries: what is in memory is newer.
        let stored = tx.get::<records::Shard>(&key).await?;
        let shard = stored.unwrap_or_default();
        if stored.is_some() && (shard.entries, shard.subdirs) == (count.entries, count.subdirs) {
            continue;
        }
        if mend.is_some() {
            tx.set_counts(dir.id(), index, count.entries, count.subdirs).await?;
        }
        let detail = format!(
            "it counts {} entries and {} directories, and has {} and {}",
            shard.entries, shard.subdirs, count.entries, count.subdirs
        );
        found.add("wrong-counts", dir.ino, detail, mend.is_some());
    }
    Ok(())
}

/// Whether a file has as many names as it says.
async fn file(
    tx: &mut Tx<'_>,
    inode: &mut Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    queued(tx, inode, mend, found).await?;
    if inode.nlink == 0 {
        return Ok(());
    }
    let names = match inode.linked {
        true => linked_names(tx, inode, mend, found).await?,
        false => u32::from(tx.leads(Ino(inode.parent), &inode.name.clone(), inode.id()).await?),
    };
    if names == 0 {
        let detail = "a file without a name".to_owned();
        return name_it(tx, inode, mend, (NAMELESS, detail), found).await;
    }
    if inode.nlink != names {
        let detail = format!("it says that it has {} names, and has {names}", inode.nlink);
        found.add("wrong-nlink", inode.ino, detail, mend.is_some());
        inode.nlink = names;
    }
    Ok(())
}

/// The names of a file that has a record for each; records of names that are not there go.
async fn linked_names(
    tx: &mut Tx<'_>,
    inode: &Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<u32> {
    let mut names = 0;
    for key in keys_of(tx, Kind::Link, inode.ino).await? {
        let Some((_, parent)) = keys::two_ids(&key) else { continue };
        if tx.leads(Ino(parent), keys::name_after_two_ids(&key), inode.id()).await? {
            names += 1;
            continue;
        }
        if mend.is_some() {
            tx.delete(key.to_vec()).await?;
        }
        let shown = String::from_utf8_lossy(keys::name_after_two_ids(&key)).into_owned();
        let detail = format!("it knows of a name {shown:?} in inode {parent} that is not there");
        found.add("name-not-there", inode.ino, detail, mend.is_some());
    }
    Ok(names)
}

/// What is to be deleted or cut stands in the queue of those who do that.
async fn queued(
    tx: &mut Tx<'_>,
    inode: &mut Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let key = keys::queue(tx.ctx.volume.id, inode.queued_ms, inode.id());
    let waits = inode.queued_ms != 0 && tx.get::<Mark>(&key).await?.is_some();
    let must = inode.nlink == 0 || inode.cut_from.is_some();
    if waits || (!must && inode.queued_ms == 0) {
        return Ok(());
    }
    if mend.is_some() {
        inode.queued_ms = 0;
        if must {
            tx.enqueue(inode).await?;
        }
    }
    let detail = match inode.nlink {
        0 => "a deleted file that nobody would ever take away",
        _ => "it waits to be cut, and nobody would ever do it",
    };
    found.add("not-in-queue", inode.ino, detail.into(), mend.is_some());
    Ok(())
}

async fn xattrs(
    tx: &mut Tx<'_>,
    inode: &mut Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let (mut count, mut bytes) = (0, 0);
    for key in keys_of(tx, Kind::Xattr, inode.ino).await? {
        let value = tx.get::<records::Raw>(&key).await?.unwrap_or_default();
        count += 1;
        bytes += (keys::name_after_id(&key).len() + value.bytes.len()) as u32;
    }
    if (inode.xattrs, inode.xattr_bytes) != (count, bytes) {
        let detail = format!(
            "it says that it has {} extended attributes of {} bytes, and has {count} of {bytes}",
            inode.xattrs, inode.xattr_bytes
        );
        found.add("wrong-xattr-counts", inode.ino, detail, mend.is_some());
        (inode.xattrs, inode.xattr_bytes) = (count, bytes);
    }
    Ok(())
}

/// Whether the contents can be there: inside the inode, or on targets that live.
async fn contents(tx: &mut Tx<'_>, inode: &Inode, found: &mut Findings) -> Result<()> {
    let symlink = inode.file_kind() == FileKind::Symlink;
    if symlink && inode.length > 0 {
        let key = keys::contents(tx.ctx.volume.id, inode.id());
        if tx.get::<records::Raw>(&key).await?.is_none() {
            let detail = "a symbolic link that does not know where it leads".into();
            found.add("contents-missing", inode.ino, detail, false);
        }
    }
    if !inode.is_file() || inode.inline || inode.length == 0 {
        return Ok(());
    }
    let layout = inode.layout.clone().and_then(|layout| Layout::try_from(layout).ok());
    let Some(layout) = layout else {
        let detail = "nothing says where its chunks lie".into();
        found.add("layout-missing", inode.ino, detail, false);
        return Ok(());
    };
    let map = tx.ctx.core.map.current();
    let up: HashSet<u32> = map.targets.iter().filter(|t| t.up).map(|target| target.id).collect();
    let serves = |group: &GroupId| {
        map.group(*group).is_some_and(|group| group.in_sync().iter().any(|id| up.contains(id)))
    };
    let groups = Placement::new(layout).groups_below(inode.length);
    let away: Vec<GroupId> = groups.into_iter().filter(|group| !serves(group)).collect();
    if let Some(detail) = told_away(&away) {
        found.add(AWAY, inode.ino, detail, false);
    }
    Ok(())
}

/// What is said of groups of a file that nobody serves; nothing, if there is none.
pub(super) fn told_away(groups: &[GroupId]) -> Option<String> {
    let (first, others) = groups.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        1 => ", and those of another group".to_owned(),
        more => format!(", and those of {more} other groups"),
    };
    Some(format!("every target that has chunks of it in group {first} is away{others}"))
}

/// The keys of a kind that belong to an inode.
async fn keys_of(tx: &mut Tx<'_>, kind: Kind, ino: u64) -> Result<Vec<Bytes>> {
    let prefix = keys::prefix_of(kind, tx.ctx.volume.id, ino);
    let end = keys::end_of(&prefix);
    let end = end.as_ref().map(Vec::as_slice);
    let kv = tx.kv().await?;
    let found = kv.scan(Bound::Included(&prefix), end, usize::MAX).await.map_err(store_error)?;
    Ok(found.into_iter().map(|(key, _)| key).collect())
}
