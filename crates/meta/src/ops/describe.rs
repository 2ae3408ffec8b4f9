//! Where an inode has its names, and who uses it: for administrators.

use crate::ctx::Ctx;
use crate::keys::{self, Kind};
use crate::records::Inode;
use crate::stored::store_error;
use crate::view::Tx;
use bytes::Bytes;
use std::collections::HashSet;
use std::ops::Bound;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{self, Description, Holder, MetaAnswer};

/// Names of one file that are told.
const NAMES_MAX: usize = 64;
/// Directories above each other that are gone through: a path of one letter each is longer than any
/// that an application can name.
const DEPTH_MAX: usize = 8192;

/// Answers with an inode's paths and users. Paths pass through directories that not everybody may
/// look into, so only root is told, and who runs the server.
pub(crate) async fn describe(ctx: &Ctx, op: &meta::Inode) -> Result<MetaAnswer> {
    ctx.need_reader()?;
    let ino = Ino(op.ino);
    let paths = paths(ctx, ino).await?;
    let users = ctx.volume.sessions.users_of(ino).into_iter();
    let holders = users.map(|(session, opens)| Holder {
        session: session.id,
        client: session.client.clone(),
        opens,
        locks: ctx.volume.ranges.count(ino, session.id) as u32,
        absent: session.is_absent(),
    });
    let mut holders: Vec<Holder> = holders.filter(|h| h.opens > 0 || h.locks > 0).collect();
    holders.sort_by_key(|holder| holder.session);
    Ok(MetaAnswer::Description(Description { paths, holders }))
}

/// The paths of an inode, without the first `/`.
pub(crate) async fn paths(ctx: &Ctx, ino: Ino) -> Result<Vec<Bytes>> {
    let mut tx = Tx::reader(ctx);
    let inode = tx.inode(ino).await?;
    let mut paths = Vec::new();
    for (parent, name) in names(&mut tx, &inode).await? {
        paths.extend(path(&mut tx, parent, name).await?);
    }
    Ok(paths)
}

/// The names that lead to an inode, each with its directory.
async fn names(tx: &mut Tx<'_>, inode: &Inode) -> Result<Vec<(Ino, Bytes)>> {
    let mut names = vec![(Ino(inode.parent), inode.name.clone())];
    if inode.linked {
        let volume = tx.ctx.home(inode.id());
        let prefix = keys::prefix_of(Kind::Link, volume, inode.ino);
        let end = keys::end_of(&prefix);
        let kv = tx.kv().await?;
        let end = end.as_ref().map(Vec::as_slice);
        let found = kv.scan(Bound::Included(&prefix), end, NAMES_MAX).await.map_err(store_error)?;
        let named = found.iter().filter_map(|(key, _)| {
            let (_, parent) = keys::two_ids(key)?;
            Some((Ino(parent), key.slice_ref(keys::name_after_two_ids(key))))
        });
        names = named.collect();
    }
    // What an inode remembers of its name is a hint: the entry decides.
    let mut sound = Vec::new();
    for (parent, name) in names {
        let entry = match name.is_empty() {
            true => None,
            false => tx.entry(parent, &name).await?,
        };
        if inode.id() == Ino::ROOT || entry.is_some_and(|entry| entry.ino == inode.ino) {
            sound.push((parent, name));
        }
    }
    Ok(sound)
}

/// The path of a name; none if a directory above it has gone meanwhile.
async fn path(tx: &mut Tx<'_>, mut dir: Ino, name: Bytes) -> Result<Option<Bytes>> {
    let mut parts = vec![name];
    let mut seen = HashSet::new();
    while dir != Ino::ROOT {
        if parts.len() > DEPTH_MAX || !seen.insert(dir) {
            return Ok(None);
        }
        let Some(inode) = tx.find_inode(dir).await? else { return Ok(None) };
        let entry = tx.entry(Ino(inode.parent), &inode.name).await?;
        if entry.is_none_or(|entry| entry.ino != dir.0) {
            return Ok(None);
        }
        parts.push(inode.name.clone());
        dir = Ino(inode.parent);
    }
    parts.reverse();
    Ok(Some(parts.join(&b'/').into()))
}

#[cfg(test)]
mod tests;
