//! One operation's view of a volume: what it reads, what it writes, and the commit.
//!
//! Reads come from the operation's own writes, from the caches, or from one snapshot of the store.
//! A commit that has begun goes on to its end, so a request whose caller goes away never leaves one
//! half known. That is so of what is written through [`Tx`] alone: a lock of an application, the end of a session, and what
//! the server writes by itself (`Volume::write`) are given up with their caller.

mod commit;
mod effects;
mod underway;

pub(crate) use commit::each_attributes;

use crate::attributes::attributes;
use crate::borrow::Borrowed;
use crate::cache::Ticket;
use crate::core::Core;
use crate::ctx::Ctx;
use crate::keys;
use crate::locks::inodes::Held;
use crate::records::{self, Entry, Inode, Mark, Order, Shard};
use crate::stored::{decoded, store_error};
use bytes::Bytes;
use effects::Effects;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use strake_engine::kv::Transaction;
use strake_types::{Error, ErrorKind, Ino, Result, Timestamp};
use strake_wire::message::common::Attributes;

/// Bits of a cookie that name the shard it was given by.
const COOKIE_SHARD_BITS: u32 = 8;
/// Keys of one question to the store.
const KEYS_MAX: usize = 4096;

/// The moment before the snapshot was taken, by each cache.
#[derive(Clone, Copy, Default)]
struct Tickets {
    inodes: Ticket,
    shards: Ticket,
    entries: Ticket,
}

/// One operation's view of the volume: reads come from its own writes, the caches, or the store.
pub(crate) struct Tx<'a> {
    /// What the request brought.
    pub ctx: &'a Ctx,
    /// The time to stamp. It is taken when the locks are held: what others have changed under them before is not of a later one.
    pub now: Timestamp,
    held: Held,
    /// Of other shares.
    borrowed: Borrowed,
    kv: Option<Transaction>,
    tickets: Tickets,
    inodes: Vec<(Ino, Option<Arc<Inode>>)>,
    shards: Vec<((Ino, u16), Option<Shard>)>,
    entries: Vec<(u128, Option<Entry>)>,
    /// What was looked for beforehand; the lock of its directory is held.
    looked_for: HashMap<u128, Option<Entry>>,
    /// A key and the value that only this transaction gives it.
    witness: Option<(Vec<u8>, Option<Bytes>)>,
    /// Inodes of which others see a change.
    seen: Vec<Ino>,
    effects: Effects,
    inodes_delta: i64,
    bytes_delta: i64,
}

impl<'a> Tx<'a> {
    /// A view for reading only.
    pub fn reader(ctx: &'a Ctx) -> Self {
        Tx {
            ctx,
            now: ctx.now(),
            held: Held::default(),
            borrowed: Borrowed::default(),
            kv: None,
            tickets: Tickets::default(),
            inodes: Vec::new(),
            shards: Vec::new(),
            entries: Vec::new(),
            looked_for: HashMap::new(),
            witness: None,
            seen: Vec::new(),
            effects: Effects::default(),
            inodes_delta: 0,
            bytes_delta: 0,
        }
    }

    /// A view for a mutation that holds these locks. Nobody else writes what they cover, so the
    /// snapshot is taken only when the store is needed.
    pub fn begin(ctx: &'a Ctx, held: Held) -> Self {
        Tx { held, ..Self::reader(ctx) }
    }

    /// The same, of one that has borrowed inodes of other shares as well.
    pub fn with_borrowed(self, borrowed: Borrowed) -> Self {
        Tx { borrowed, ..self }
    }

    /// The number of a new inode below a directory.
    pub async fn new_ino(&self, dir: Ino) -> Result<Ino> {
        match self.borrowed.child() {
            Some(ino) => Ok(ino),
            None => self.ctx.volume.new_ino(dir).await,
        }
    }

    /// The store, as it was when this was first called.
    pub async fn kv(&mut self) -> Result<&mut Transaction> {
        if self.kv.is_none() {
            let core = &self.ctx.core;
            self.tickets = Tickets {
                inodes: core.inodes.ticket(),
                shards: core.shards.ticket(),
                entries: core.entries.ticket(),
            };
            let kv = Transaction::begin(&*self.ctx.volume.kv).await.map_err(store_error)?;
            self.kv = Some(kv);
        }
        let none = || Error::with(ErrorKind::Io, "a transaction without a snapshot");
        self.kv.as_mut().ok_or_else(none)
    }

    /// A value straight from the store, decoded.
    pub async fn get<T: Message + Default>(&mut self, key: &[u8]) -> Result<Option<T>> {
        decoded(key, self.kv().await?.get(key).await.map_err(store_error)?)
    }

    /// The same of several keys, in their order, with as few questions as there can be.
    pub async fn get_many<T: Message + Default>(
        &mut self,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<T>>> {
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_MAX) {
            let values = self.kv().await?.multi_get(some).await.map_err(store_error)?;
            for (key, value) in some.iter().zip(values) {
                found.push(decoded(key, value)?);
            }
        }
        Ok(found)
    }

    /// Sets a key that has no cache.
    pub async fn put(&mut self, key: Vec<u8>, body: &impl Message) -> Result<()> {
        let value = records::encode(body);
        self.kv().await?.put(key, value);
        Ok(())
    }

    /// Removes a key that has no cache.
    pub async fn delete(&mut self, key: Vec<u8>) -> Result<()> {
        self.kv().await?.delete(key);
        Ok(())
    }

    /// Begins again with a new scope unless the lock of this inode is held.
    pub fn need_lock(&self, ino: Ino) -> Result<()> {
        match self.held.has(ino) || self.borrowed.has(ino) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Conflict)),
        }
    }

    /// Takes the locks of further inodes of this share, unless somebody has one of them.
    pub fn lock_more(&mut self, inodes: &[Ino]) -> bool {
        self.ctx.core.locks.try_more(&mut self.held, self.ctx.volume.id, inodes)
    }

    /// What is read from now on is as it is now, when more is locked. Nothing has been written.
    pub fn look_anew(&mut self) {
        self.kv = None;
        self.now = self.ctx.now();
    }

    /// True if this view changes the record of an inode.
    pub fn has_changed(&self, ino: Ino) -> bool {
        self.inodes.iter().any(|(staged, _)| *staged == ino)
    }

    /// An inode, if it exists.
    pub async fn find_inode(&mut self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        if let Some((_, staged)) = self.inodes.iter().find(|(staged, _)| *staged == ino) {
            return Ok(staged.clone());
        }
        let core = &self.ctx.core;
        if !self.ctx.is_here(ino) {
            let key = keys::inode(self.ctx.home(ino), ino);
            return Ok(self.get::<Inode>(&key).await?.map(Arc::new));
        }
        let place = Core::inode_key(self.ctx.volume.opening, ino);
        if let Some(inode) = core.inodes.get(place) {
            return Ok(Some(inode));
        }
        let key = keys::inode(self.ctx.volume.id, ino);
        let value = self.kv().await?.get(&key).await.map_err(store_error)?;
        let Some(value) = value else { return Ok(None) };
        let inode = Arc::new(records::decode_to_keep::<Inode>(&key, &value)?);
        core.inodes.fill(place, inode.clone(), self.tickets.inodes);
        Ok(Some(inode))
    }

    /// An inode that must exist; Stale if it does not.
    pub async fn inode(&mut self, ino: Ino) -> Result<Arc<Inode>> {
        let gone = || Error::new(ErrorKind::Stale);
        self.find_inode(ino).await?.ok_or_else(gone)
    }

    /// A directory that an operation on names begins at: NotFound if it is gone.
    pub async fn directory(&mut self, ino: Ino) -> Result<Arc<Inode>> {
        let gone = || Error::new(ErrorKind::NotFound);
        as_directory(self.find_inode(ino).await?.ok_or_else(gone)?)
    }

    /// Writes an inode. What others see of it has changed: its version goes one step further, so
    /// that a client can tell its own changes from those of others.
    pub async fn put_inode(&mut self, mut inode: Inode) -> Result<Arc<Inode>> {
        inode.version += 1;
        self.seen.push(inode.id());
        self.put_unseen(inode).await
    }

    /// Writes an inode of which nobody sees a change.
    pub async fn put_unseen(&mut self, inode: Inode) -> Result<Arc<Inode>> {
        let ino = inode.id();
        let key = keys::inode(self.ctx.home(ino), ino);
        let value = records::encode(&inode);
        self.witness = Some((key.clone(), Some(value.clone())));
        self.kv().await?.put(key, value);
        let inode = Arc::new(inode);
        stage(&mut self.inodes, ino, Some(inode.clone()));
        Ok(inode)
    }

    /// Removes an inode's record.
    pub async fn delete_inode(&mut self, ino: Ino) -> Result<()> {
        let key = keys::inode(self.ctx.home(ino), ino);
        self.witness = Some((key.clone(), None));
        self.seen.push(ino);
        self.kv().await?.delete(key);
        stage(&mut self.inodes, ino, None);
        if self.ctx.is_here(ino) {
            self.effects.gone.push(ino);
        }
        Ok(())
    }

    /// A directory entry.
    pub async fn entry(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Entry>> {
        let core = &self.ctx.core;
        let place = core.entry_key(self.ctx.volume.opening, dir, name);
        if let Some((_, staged)) = self.entries.iter().find(|(staged, _)| *staged == place) {
            return Ok(*staged);
        }
        if !self.ctx.is_here(dir) {
            return self.get::<Entry>(&keys::entry(self.ctx.home(dir), dir, name)).await;
        }
        if let Some(entry) =
            core.entries.get(place).or_else(|| self.looked_for.get(&place).copied())
        {
            return Ok(entry);
        }
        let entry = self.get::<Entry>(&keys::entry(self.ctx.volume.id, dir, name)).await?;
        core.entries.fill(place, entry, self.tickets.entries);
        Ok(entry)
    }

    /// Looks for several names of a directory, whose lock is held, with one question to the store, for those who ask for
    /// one after the other.
    pub async fn look_for_entries(&mut self, dir: Ino, names: &[&[u8]]) -> Result<()> {
        let (core, volume, opening) = (&self.ctx.core, self.ctx.volume.id, self.ctx.volume.opening);
        let place = |name: &[u8]| core.entry_key(opening, dir, name);
        let unknown = |name: &&&[u8]| core.entries.get(place(name)).is_none();
        let unknown: Vec<&[u8]> = names.iter().filter(unknown).copied().collect();
        if unknown.len() < 2 {
            return Ok(());
        }
        let keys: Vec<_> = unknown.iter().map(|name| keys::entry(volume, dir, name)).collect();
        let found = self.get_many::<Entry>(&keys).await?;
        for (name, entry) in unknown.into_iter().zip(found) {
            core.entries.fill(place(name), entry, self.tickets.entries);
            self.looked_for.insert(place(name), entry);
        }
        Ok(())
    }

    /// Looks for several inodes of this share with one question to the store, for those who ask for one after the other.
    pub async fn look_for_inodes(&mut self, inodes: &[Ino]) -> Result<()> {
        let (core, volume, opening) = (&self.ctx.core, self.ctx.volume.id, self.ctx.volume.opening);
        let is_unknown = |ino: &&Ino| core.inodes.get(Core::inode_key(opening, **ino)).is_none();
        let unknown: Vec<Ino> = inodes.iter().filter(is_unknown).copied().collect();
        if unknown.len() < 2 {
            return Ok(());
        }
        let keys: Vec<_> = unknown.iter().map(|ino| keys::inode(volume, *ino)).collect();
        let values = self.kv().await?.multi_get(&keys).await.map_err(store_error)?;
        for ((ino, key), value) in unknown.into_iter().zip(&keys).zip(values) {
            if let Some(value) = value {
                let inode = Arc::new(records::decode_to_keep(key, &value)?);
                core.inodes.fill(Core::inode_key(opening, ino), inode, self.tickets.inodes);
            }
        }
        Ok(())
    }

    /// True if a name in a directory leads to an inode.
    pub async fn leads(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<bool> {
        if name.is_empty() {
            return Ok(false);
        }
        Ok(self.entry(dir, name).await?.is_some_and(|entry| entry.ino == ino.0))
    }

    /// An entry was removed by its key, because it stands in no directory.
    pub fn forget_entry(&mut self, dir: Ino, name: &[u8]) {
        let place = self.ctx.core.entry_key(self.ctx.volume.opening, dir, name);
        stage(&mut self.entries, place, None);
        self.seen.push(dir);
    }

    /// Corrects the counts of a guard shard; nobody sees a change of the directory.
    pub async fn set_counts(
        &mut self,
        dir: Ino,
        index: u16,
        entries: u64,
        subdirs: u64,
    ) -> Result<()> {
        let shard = self.shard(dir, index).await?;
        self.store_shard(dir, index, Shard { entries, subdirs, ..shard }).await
    }

    /// Adds an entry to a directory, with its counts and times.
    pub async fn add_entry(
        &mut self,
        dir: &Inode,
        name: &Bytes,
        ino: Ino,
        kind: u32,
    ) -> Result<()> {
        let index = shard_of(dir, name);
        let mut shard = self.shard(dir.id(), index).await?;
        shard.entries += 1;
        shard.subdirs += u64::from(is_dir(kind));
        shard.last_cookie += 1;
        let cookie = shard.last_cookie << COOKIE_SHARD_BITS | u64::from(index);
        self.put_shard(dir.id(), index, shard).await?;
        self.write_entry(dir.id(), name, Entry { ino: ino.0, kind, cookie }).await
    }

    /// Removes an entry from a directory, with its counts and times.
    pub async fn remove_entry(&mut self, dir: &Inode, name: &[u8], entry: Entry) -> Result<()> {
        let index = shard_of(dir, name);
        let mut shard = self.shard(dir.id(), index).await?;
        shard.entries = shard.entries.saturating_sub(1);
        shard.subdirs = shard.subdirs.saturating_sub(u64::from(is_dir(entry.kind)));
        self.put_shard(dir.id(), index, shard).await?;
        let volume = self.ctx.home(dir.id());
        self.delete(keys::entry(volume, dir.id(), name)).await?;
        self.delete(keys::order(volume, dir.id(), entry.cookie)).await?;
        let place = self.ctx.core.entry_key(self.ctx.volume.opening, dir.id(), name);
        stage(&mut self.entries, place, None);
        Ok(())
    }

    /// Lets an entry name another inode; it keeps its place in the directory.
    pub async fn change_entry(
        &mut self,
        dir: &Inode,
        name: &Bytes,
        old: Entry,
        ino: Ino,
        kind: u32,
    ) -> Result<()> {
        let index = shard_of(dir, name);
        let mut shard = self.shard(dir.id(), index).await?;
        shard.subdirs += u64::from(is_dir(kind));
        shard.subdirs = shard.subdirs.saturating_sub(u64::from(is_dir(old.kind)));
        self.put_shard(dir.id(), index, shard).await?;
        self.write_entry(dir.id(), name, Entry { ino: ino.0, kind, ..old }).await
    }

    /// Gives an entry another name in the same directory; it keeps its place there.
    pub async fn rename_entry(
        &mut self,
        dir: &Inode,
        from: &[u8],
        to: &Bytes,
        entry: Entry,
    ) -> Result<()> {
        let index = shard_of(dir, from);
        if index != shard_of(dir, to) {
            self.remove_entry(dir, from, entry).await?;
            return self.add_entry(dir, to, Ino(entry.ino), entry.kind).await;
        }
        let shard = self.shard(dir.id(), index).await?;
        self.put_shard(dir.id(), index, shard).await?;
        self.delete(keys::entry(self.ctx.home(dir.id()), dir.id(), from)).await?;
        let place = self.ctx.core.entry_key(self.ctx.volume.opening, dir.id(), from);
        stage(&mut self.entries, place, None);
        self.write_entry(dir.id(), to, entry).await
    }

    async fn write_entry(&mut self, dir: Ino, name: &Bytes, entry: Entry) -> Result<()> {
        let volume = self.ctx.home(dir);
        let order = Order { name: name.clone(), ino: entry.ino, kind: entry.kind };
        self.put(keys::entry(volume, dir, name), &entry).await?;
        self.put(keys::order(volume, dir, entry.cookie), &order).await?;
        let place = self.ctx.core.entry_key(self.ctx.volume.opening, dir, name);
        stage(&mut self.entries, place, Some(entry));
        Ok(())
    }

    /// A guard shard of a directory.
    pub async fn shard(&mut self, dir: Ino, index: u16) -> Result<Shard> {
        if let Some((_, staged)) = self.shards.iter().find(|(at, _)| *at == (dir, index)) {
            return Ok(staged.unwrap_or_default());
        }
        let core = &self.ctx.core;
        if !self.ctx.is_here(dir) {
            let key = keys::shard(self.ctx.home(dir), dir, index);
            return Ok(self.get::<Shard>(&key).await?.unwrap_or_default());
        }
        let place = Core::shard_key(self.ctx.volume.opening, dir, index);
        if let Some(shard) = core.shards.get(place) {
            return Ok(shard);
        }
        let key = keys::shard(self.ctx.volume.id, dir, index);
        let shard = self.get::<Shard>(&key).await?.unwrap_or_default();
        core.shards.fill(place, shard, self.tickets.shards);
        Ok(shard)
    }

    /// All guard shards of a directory as one: counts added up, the latest times.
    pub async fn shard_total(&mut self, dir: &Inode) -> Result<Shard> {
        let mut total = self.shard(dir.id(), 0).await?;
        for index in 1..dir.shards() {
            total = total.with(&self.shard(dir.id(), index).await?);
        }
        Ok(total)
    }

    /// Writes a guard shard whose entries have changed.
    async fn put_shard(&mut self, dir: Ino, index: u16, mut shard: Shard) -> Result<()> {
        shard.mtime = self.now.into();
        shard.ctime = shard.mtime;
        self.store_shard(dir, index, shard).await
    }

    /// The guard shards of a new directory.
    pub async fn make_shards(&mut self, dir: &Inode) -> Result<()> {
        for index in 0..dir.shards() {
            self.put_shard(dir.id(), index, Shard::default()).await?;
        }
        Ok(())
    }

    /// Gives a directory another mtime.
    pub async fn set_dir_mtime(&mut self, dir: &Inode, mtime: Timestamp) -> Result<()> {
        for index in 0..dir.shards() {
            let mut shard = self.shard(dir.id(), index).await?;
            shard.mtime = mtime.into();
            shard.ctime = self.now.into();
            self.store_shard(dir.id(), index, shard).await?;
        }
        Ok(())
    }

    async fn store_shard(&mut self, dir: Ino, index: u16, mut shard: Shard) -> Result<()> {
        shard.version += 1;
        self.seen.push(dir);
        let key = keys::shard(self.ctx.home(dir), dir, index);
        let value = records::encode(&shard);
        self.witness = Some((key.clone(), Some(value.clone())));
        self.kv().await?.put(key, value);
        stage(&mut self.shards, (dir, index), Some(shard));
        Ok(())
    }

    /// Removes the guard shards of an empty directory.
    pub async fn delete_shards(&mut self, dir: &Inode) -> Result<()> {
        for index in 0..dir.shards() {
            self.delete(keys::shard(self.ctx.home(dir.id()), dir.id(), index)).await?;
            stage(&mut self.shards, (dir.id(), index), None);
        }
        Ok(())
    }

    /// What `stat` shows of an inode.
    pub async fn attributes(&mut self, inode: &Inode) -> Result<Attributes> {
        let shard = match inode.is_dir() && inode.nlink > 0 {
            true => Some(self.shard_total(inode).await?),
            false => None,
        };
        Ok(attributes(inode, shard.as_ref(), self.ctx))
    }

    /// Puts an inode into the queue of delayed work.
    pub async fn enqueue(&mut self, inode: &mut Inode) -> Result<()> {
        self.enqueue_for(inode, 0).await
    }

    /// As [`Tx::enqueue`]; unless it is there already, its time comes in so many milliseconds.
    pub async fn enqueue_for(&mut self, inode: &mut Inode, later_ms: u64) -> Result<()> {
        match inode.queued_ms {
            0 => self.requeue_for(inode, later_ms).await,
            _ => Ok(()),
        }
    }

    /// As [`Tx::enqueue_for`], anew where it is there already: who has found it before that finds that it is another time.
    pub async fn requeue_for(&mut self, inode: &mut Inode, later_ms: u64) -> Result<()> {
        let before = inode.queued_ms;
        self.dequeue(inode).await?;
        let at = self.ctx.core.wall_ms().max(1) + later_ms;
        inode.queued_ms = at + u64::from(at == before);
        let home = self.ctx.home(inode.id());
        self.put(keys::queue(home, inode.queued_ms, inode.id()), &Mark {}).await?;
        self.effects.queued = true;
        self.effects.due |= later_ms == 0;
        Ok(())
    }

    /// Takes an inode out of the queue.
    pub async fn dequeue(&mut self, inode: &mut Inode) -> Result<()> {
        if inode.queued_ms != 0 {
            let home = self.ctx.home(inode.id());
            self.delete(keys::queue(home, inode.queued_ms, inode.id())).await?;
            inode.queued_ms = 0;
        }
        Ok(())
    }

    /// The session opens a file, and may write to it, if the transaction commits.
    pub fn opens(&mut self, ino: Ino, writes: bool) {
        let Ctx { session, incarnation, seq, .. } = self.ctx;
        if let Some(session) = session {
            self.effects.opens.push((session.clone(), ino, writes, *incarnation, *seq));
        }
    }

    /// The session closes a file once that it opened in this incarnation, if the transaction commits.
    pub fn closes(&mut self, ino: Ino, incarnation: u64) {
        if let Some(session) = &self.ctx.session {
            self.effects.closes.push((session.clone(), ino, incarnation));
        }
    }

    /// Inodes and bytes that the share of an inode has more afterwards.
    pub fn count(&mut self, ino: Ino, inodes: i64, bytes: i64) {
        if !self.borrowed.count(self.ctx.home(ino), inodes, bytes) {
            self.inodes_delta += inodes;
            self.bytes_delta += bytes;
        }
    }
}

fn stage<K: PartialEq, V>(staged: &mut Vec<(K, V)>, key: K, value: V) {
    match staged.iter_mut().find(|(at, _)| *at == key) {
        Some((_, old)) => *old = value,
        None => staged.push((key, value)),
    }
}

/// An inode that must be a directory.
pub(crate) fn as_directory(inode: Arc<Inode>) -> Result<Arc<Inode>> {
    match inode.is_dir() {
        true => Ok(inode),
        false => Err(Error::new(ErrorKind::NotDirectory)),
    }
}

fn is_dir(kind: u32) -> bool {
    kind == strake_types::FileKind::Directory as u32
}

/// The guard shard that counts a name.
pub(crate) fn shard_of(dir: &Inode, name: &[u8]) -> u16 {
    match dir.shards() {
        1 => 0,
        shards => (records::checksum(name) % u32::from(shards)) as u16,
    }
}
