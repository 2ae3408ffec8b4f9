//! Whether a directory entry leads where it says.

use super::{Findings, Mend};
use crate::keys;
use crate::records::{Entry, Inode, Mark, Order};
use crate::view::Tx;
use bytes::Bytes;
use strake_types::{Ino, Result};

/// Judges a name in a directory.
pub(crate) async fn judge(
    tx: &mut Tx<'_>,
    dir: Ino,
    name: &Bytes,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let Some(entry) = tx.entry(dir, name).await? else { return Ok(()) };
    let shown = String::from_utf8_lossy(name).into_owned();
    let Some(parent) = tx.find_inode(dir).await?.filter(|parent| parent.is_dir()) else {
        if mend.is_some() {
            let volume = tx.ctx.volume.id;
            tx.delete(keys::entry(volume, dir, name)).await?;
            tx.delete(keys::order(volume, dir, entry.cookie)).await?;
            tx.forget_entry(dir, name);
        }
        let detail = format!("name {shown:?} stands in inode {dir}, which is no directory");
        found.add("entry-without-directory", entry.ino, detail, mend.is_some());
        return Ok(());
    };
    let Some(inode) = tx.find_inode(Ino(entry.ino)).await? else {
        if mend.is_some() {
            tx.need_lock(dir)?;
            tx.remove_entry(&parent, name, entry).await?;
        }
        let detail = format!("name {shown:?} leads to inode {}, which does not exist", entry.ino);
        found.add("entry-without-inode", dir.0, detail, mend.is_some());
        return Ok(());
    };
    if mend.is_some() {
        tx.need_lock(inode.id())?;
    }
    if inode.kind != entry.kind {
        if mend.is_some() {
            tx.change_entry(&parent, name, entry, inode.id(), inode.kind).await?;
        }
        let detail = format!("name {shown:?} calls it something else than it is");
        found.add("entry-of-wrong-kind", inode.ino, detail, mend.is_some());
    }
    listed(tx, dir, name, entry, &inode, mend, found).await?;
    hinted(tx, &parent, name, &inode, mend, found).await
}

/// Each name stands in its directory a second time, by its place.
async fn listed(
    tx: &mut Tx<'_>,
    dir: Ino,
    name: &Bytes,
    entry: Entry,
    inode: &Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let key = keys::order(tx.ctx.volume.id, dir, entry.cookie);
    let order = tx.get::<Order>(&key).await?;
    if order.is_some_and(|order| order.name == *name && order.ino == inode.ino) {
        return Ok(());
    }
    if mend.is_some() {
        let order = Order { name: name.clone(), ino: inode.ino, kind: inode.kind };
        tx.put(key, &order).await?;
    }
    let detail = "a listing of its directory does not show it".into();
    found.add("entry-not-listed", inode.ino, detail, mend.is_some());
    Ok(())
}

/// An inode knows the names it has: one by itself, more by records of their own.
async fn hinted(
    tx: &mut Tx<'_>,
    dir: &Inode,
    name: &Bytes,
    inode: &Inode,
    mend: Option<Mend>,
    found: &mut Findings,
) -> Result<()> {
    let (volume, ino) = (tx.ctx.home(inode.id()), inode.id());
    let known = inode.parent == dir.ino && inode.name == *name;
    let mut mended = inode.clone();
    let (what, detail) = if inode.is_dir() {
        if known {
            return Ok(());
        }
        if tx.leads(Ino(inode.parent), &inode.name, ino).await? {
            if mend.is_some()
                && let Some(entry) = tx.entry(dir.id(), name).await?
            {
                tx.remove_entry(dir, name, entry).await?;
            }
            let detail = format!("a directory with a second name in inode {}", dir.ino);
            found.add("directory-with-two-names", inode.ino, detail, mend.is_some());
            return Ok(());
        }
        (mended.parent, mended.name) = (dir.ino, name.clone());
        ("wrong-parent", format!("it does not know that it lies in inode {}", dir.ino))
    } else if inode.nlink == 0 {
        (mended.nlink, mended.nameless, mended.linked) = (1, false, false);
        (mended.parent, mended.name) = (dir.ino, name.clone());
        if mend.is_some() && mended.cut_from.is_none() {
            tx.dequeue(&mut mended).await?;
        }
        ("wrong-nlink", "it has a name and was to be deleted".to_owned())
    } else if inode.linked {
        let key = keys::link(volume, ino, dir.id(), name);
        if tx.get::<Mark>(&key).await?.is_some() {
            return Ok(());
        }
        if mend.is_some() {
            tx.put(key, &Mark {}).await?;
        }
        ("name-not-known", "it does not know one of its names".to_owned())
    } else if known {
        return Ok(());
    } else if tx.leads(Ino(inode.parent), &inode.name, ino).await? {
        if mend.is_some() {
            let first = keys::link(volume, ino, Ino(inode.parent), &inode.name);
            tx.put(first, &Mark {}).await?;
            tx.put(keys::link(volume, ino, dir.id(), name), &Mark {}).await?;
        }
        mended.linked = true;
        ("name-not-known", "it does not know that it has a second name".to_owned())
    } else {
        (mended.parent, mended.name) = (dir.ino, name.clone());
        ("wrong-parent", format!("it does not know that it lies in inode {}", dir.ino))
    };
    if mend.is_some() {
        tx.put_inode(mended).await?;
    }
    found.add(what, inode.ino, detail, mend.is_some());
    Ok(())
}
