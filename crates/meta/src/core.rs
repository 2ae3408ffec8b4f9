//! What all operations share: the store, the cluster, the caches, the locks, the volumes.

use crate::MetaOptions;
use crate::cache::Cache;
use crate::cluster::Settings;
use crate::ledger::Ledger;
use crate::locks::inodes::InodeLocks;
use crate::merges::Merges;
use crate::metrics::Metrics;
use crate::records::{self, Inode, Locks, Number, SessionRecord, Shard, Stat};
use crate::session::Session;
use crate::volume::Volume;
use crate::{keys, keys::Kind};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;
use strake_base::clock::Clock;
use strake_base::task;
use strake_engine::kv::{Kv, KvError, Outcome, Snapshot, Transaction};
use strake_types::limits::LEASE_MS_AT_SERVER;
use strake_types::{Error, ErrorKind, FileKind, Ino, Result, SessionId, Timestamp, VolumeId};
use strake_wire::attempts::Attempts;
use strake_wire::capability::CapabilityKey;
use strake_wire::map::MapView;
use strake_wire::message::manager;
use tokio::sync::Notify;

/// Numbers reserved at a time.
const BLOCK: u64 = 4096;
/// Which number under `N` counts inodes.
const NUMBER_INODES: u8 = 0;
/// Which number under `N` counts sessions.
const NUMBER_SESSIONS: u8 = 1;
/// How often a small transaction of the server's own is tried again.
const OWN_TRIES_MAX: u32 = 100;
/// Pairs read at a time.
const SCAN_PAGE: usize = 1000;

/// What all operations share.
pub(crate) struct Core {
    /// The store.
    pub kv: Arc<dyn Kv>,
    /// The cluster map.
    pub map: Arc<MapView>,
    /// Numbers of what we change on targets.
    pub attempts: Attempts,
    /// Signs capabilities.
    pub key: CapabilityKey,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Limits and times.
    pub options: MetaOptions,
    /// Decoded inodes.
    pub inodes: Cache<Arc<Inode>>,
    /// Guard shards of directories.
    pub shards: Cache<Shard>,
    /// Directory entries, also those known not to be.
    pub entries: Cache<Option<records::Entry>>,
    /// Locks of operations.
    pub locks: InodeLocks,
    /// Creates that wait to be carried out together.
    pub merges: Merges,
    /// There may be work for the background task.
    pub work: Notify,
    /// Counters and histograms.
    pub metrics: Metrics,
    /// The volumes in use.
    volumes: RwLock<HashMap<VolumeId, Arc<Volume>>>,
    /// One volume is taken into use at a time.
    opening: tokio::sync::Mutex<()>,
    /// Two independent keyed hashes name an entry in the cache.
    hashes: (RandomState, RandomState),
}

impl Core {
    /// A server without volumes.
    pub fn new(
        kv: Arc<dyn Kv>,
        map: Arc<MapView>,
        key: CapabilityKey,
        clock: Arc<dyn Clock>,
        options: MetaOptions,
    ) -> Result<Self> {
        Ok(Core {
            kv,
            map,
            attempts: Attempts::new()?,
            key,
            clock,
            inodes: Cache::new(options.cached_inodes_max),
            shards: Cache::new(options.cached_inodes_max),
            entries: Cache::new(options.cached_entries_max),
            options,
            locks: InodeLocks::default(),
            merges: Merges::default(),
            work: Notify::new(),
            metrics: Metrics::new(),
            volumes: RwLock::default(),
            opening: tokio::sync::Mutex::default(),
            hashes: (RandomState::new(), RandomState::new()),
        })
    }

    /// Where an inode is in its cache.
    pub fn inode_key(volume: VolumeId, ino: Ino) -> u128 {
        u128::from(volume.0) << 64 | u128::from(ino.0)
    }

    /// Where a directory's shard is in its cache.
    pub fn shard_key(volume: VolumeId, dir: Ino, shard: u16) -> u128 {
        u128::from(shard) << 96 | Self::inode_key(volume, dir)
    }

    /// Where a directory entry is in its cache. The two hashes are keyed, so nobody can make two
    /// names that meet.
    pub fn entry_key(&self, volume: VolumeId, dir: Ino, name: &[u8]) -> u128 {
        let place = (volume.0, dir.0, name);
        u128::from(self.hashes.0.hash_one(place)) << 64 | u128::from(self.hashes.1.hash_one(place))
    }

    /// The time to stamp on inodes.
    pub fn now(&self) -> Timestamp {
        let wall = self.clock.wall();
        Timestamp { seconds: wall.as_secs() as i64, nanos: wall.subsec_nanos() }
    }

    /// Milliseconds since 1970.
    pub fn wall_ms(&self) -> u64 {
        self.clock.wall().as_millis() as u64
    }

    /// Milliseconds since some moment, for deadlines.
    pub fn monotonic_ms(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }

    /// When a session that was heard of now expires.
    pub fn deadline_ms(&self) -> u64 {
        self.monotonic_ms() + self.options.lease_ms
    }

    /// The volumes in use.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.read().values().cloned().collect()
    }

    /// True if the volume is this server's.
    pub fn serves(&self, volume: &manager::Volume) -> bool {
        let own = self.options.server;
        own.0 == 0 || volume.meta_server == own.0
    }

    /// The settings of a volume by the newest map.
    fn settings(&self, id: VolumeId) -> Option<Result<Settings>> {
        let map = self.map.current();
        let found = map.volumes.iter().find(|volume| volume.id == id.0)?;
        if !self.serves(found) {
            let detail = format!("volume {id} is served by server {}", found.meta_server);
            return Some(Err(Error::with(ErrorKind::StaleMap, detail)));
        }
        Some(Settings::of(&map, found))
    }

    /// Takes a volume out of use.
    pub fn forget_volume(&self, id: VolumeId) {
        if let Some(volume) = self.volumes.write().remove(&id) {
            volume.recopies.stop();
        }
    }

    /// A volume, with settings as new as the map.
    pub async fn volume(self: &Arc<Self>, id: VolumeId) -> Result<Arc<Volume>> {
        let found = self.volumes.read().get(&id).cloned();
        let Some(volume) = found else { return self.open_volume(id).await };
        if volume.settings().epoch.0 != self.map.current().epoch {
            let settings = self.settings(id).ok_or_else(|| no_volume(id))??;
            volume.set_settings(settings);
        }
        match volume.settings().deleting {
            true => Err(no_volume(id)),
            false => Ok(volume),
        }
    }

    async fn open_volume(self: &Arc<Self>, id: VolumeId) -> Result<Arc<Volume>> {
        let _one = self.opening.lock().await;
        if let Some(volume) = self.volumes.read().get(&id).cloned() {
            return Ok(volume);
        }
        let mut settings = self.settings(id);
        if settings.is_none() {
            self.map.refresh().await?;
            settings = self.settings(id);
        }
        let settings = settings.ok_or_else(|| no_volume(id))??;
        if settings.deleting {
            return Err(no_volume(id));
        }
        let volume = Arc::new(Volume::new(id, settings));
        self.make_root(&volume).await?;
        self.load_counts(&volume).await?;
        self.load_sessions(&volume).await?;
        self.volumes.write().insert(id, volume.clone());
        self.work.notify_one();
        Ok(volume)
    }

    async fn make_root(&self, volume: &Volume) -> Result<()> {
        let (inode_key, shard_key) =
            (keys::inode(volume.id, Ino::ROOT), keys::shard(volume.id, Ino::ROOT, 0));
        let now = self.now().into();
        let root = Inode {
            ino: Ino::ROOT.0,
            kind: FileKind::Directory as u32,
            mode: 0o755,
            nlink: 2,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            version: 1,
            parent: Ino::ROOT.0,
            ..Inode::default()
        };
        let shard = Shard { mtime: now, ctime: now, version: 1, ..Shard::default() };
        self.own_transaction(Some(&inode_key), |found, tx| {
            if found.is_none() {
                tx.put(inode_key.clone(), records::encode(&root));
                tx.put(shard_key.clone(), records::encode(&shard));
            }
            Ok(())
        })
        .await
    }

    async fn load_counts(self: &Arc<Self>, volume: &Arc<Volume>) -> Result<()> {
        let key = keys::volume_stat(volume.id);
        let snapshot = self.kv.snapshot().await.map_err(store_error)?;
        let stored: Option<Stat> = get(&*snapshot, &key).await?;
        // Whatever ends this process from here on, the counts stored are not to be believed.
        let stat = stored.unwrap_or_default();
        self.put(key, records::encode(&Stat { clean: false, ..stat })).await?;
        volume.counts.add(stat.inodes as i64, stat.bytes as i64);
        if stat.clean {
            volume.counts.set_exact();
            return Ok(());
        }
        let (core, volume) = (self.clone(), volume.clone());
        task::spawn(async move {
            match core.recount(&volume, snapshot, stat).await {
                Ok(()) => volume.counts.set_exact(),
                Err(error) => tracing::error!("counting volume {}: {error}", volume.id),
            }
        });
        Ok(())
    }

    /// Counts what was there when the volume was taken into use, and corrects the stored counts by
    /// it; what has changed since is counted as it changes.
    async fn recount(
        &self,
        volume: &Volume,
        snapshot: Arc<dyn Snapshot>,
        stored: Stat,
    ) -> Result<()> {
        let (inodes, bytes) = self.count(volume.id, &*snapshot).await?;
        volume.counts.add(inodes - stored.inodes as i64, bytes - stored.bytes as i64);
        Ok(())
    }

    /// Inodes and bytes of contents. A record that cannot be read counts as an inode without contents.
    pub async fn count(&self, volume: VolumeId, snapshot: &dyn Snapshot) -> Result<(i64, i64)> {
        let (mut inodes, mut bytes) = (0, 0);
        scan(snapshot, &keys::prefix(Kind::Inode, volume), |key, value| {
            inodes += 1;
            bytes += records::decode(key, value).map_or(0, |inode: Inode| inode.occupied as i64);
            Ok(())
        })
        .await?;
        Ok((inodes, bytes))
    }

    async fn load_sessions(&self, volume: &Volume) -> Result<()> {
        let snapshot = self.kv.snapshot().await.map_err(store_error)?;
        let grace_ms = self.monotonic_ms() + 2 * self.options.lease_ms;
        let mut found = Vec::new();
        scan(&*snapshot, &keys::prefix(Kind::Session, volume.id), |key, value| {
            let id = keys::last_id(key).ok_or_else(|| records::corrupt(key, "has no id"))?;
            let record: SessionRecord = records::decode(key, value)?;
            found.push((id, record));
            Ok(())
        })
        .await?;
        let keep = found.iter().filter(|(_, record)| record.leases).map(|(id, _)| *id);
        volume.leases.expect(keep.collect(), &*self.clock);
        volume.sessions.be_patient_until(self.monotonic_ms() + LEASE_MS_AT_SERVER);
        for (id, record) in found {
            let mut seqs = Vec::new();
            let prefix = keys::prefix_of(Kind::Result, volume.id, id);
            scan(&*snapshot, &prefix, |key, _| {
                seqs.extend(keys::last_id(key));
                Ok(())
            })
            .await?;
            let ledger = Ledger::with(seqs);
            let session = Session::new(id, record.client, ledger, grace_ms, true)
                .keeping_leases(record.leases);
            session.holder.count_from(self.wall_ms());
            if self.map.is_fenced(volume.id, SessionId(id)) {
                session.lose();
            }
            volume.sessions.insert(Arc::new(session));
        }
        for (kind, flock) in [(Kind::Flock, true), (Kind::Posix, false)] {
            scan(&*snapshot, &keys::prefix(kind, volume.id), |key, value| {
                let (ino, session) =
                    keys::two_ids(key).ok_or_else(|| records::corrupt(key, "has no ids"))?;
                let locks: Locks = records::decode(key, value)?;
                volume.ranges.set(flock, Ino(ino), session, locks.held);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// A number for a new inode below `dir`.
    pub async fn new_ino(&self, volume: &Volume, dir: Ino) -> Result<Ino> {
        loop {
            if let Some(counter) = volume.inodes.lock().take() {
                return Ok(keys::child_ino(dir, counter));
            }
            let _one = self.opening.lock().await;
            if volume.inodes.lock().clone().take().is_some() {
                continue;
            }
            let next = self.reserve(volume.id, NUMBER_INODES, BLOCK).await?;
            if next + BLOCK > keys::COUNTER_MAX {
                return Err(Error::with(ErrorKind::NoSpace, "inode numbers are used up"));
            }
            let mut block = volume.inodes.lock();
            (block.next, block.end) = (next, next + BLOCK);
        }
    }

    /// An id for a new session.
    pub async fn new_session_id(&self, volume: &Volume) -> Result<u64> {
        self.reserve(volume.id, NUMBER_SESSIONS, 1).await
    }

    async fn reserve(&self, volume: VolumeId, which: u8, count: u64) -> Result<u64> {
        let key = keys::number(volume, which);
        let mut first = 0;
        self.own_transaction(Some(&key), |stored, tx| {
            let number: Option<Number> = stored.map(|v| records::decode(&key, &v)).transpose()?;
            first = number.map_or(2, |n| n.next);
            tx.put(key.clone(), records::encode(&Number { next: first + count }));
            Ok(())
        })
        .await?;
        Ok(first)
    }

    /// Sets a key, whatever it was.
    pub async fn put(&self, key: Vec<u8>, value: Bytes) -> Result<()> {
        self.write(vec![(key, Some(value))]).await
    }

    /// Sets or deletes keys, whatever they were.
    pub async fn write(&self, writes: Vec<(Vec<u8>, Option<Bytes>)>) -> Result<()> {
        self.own_transaction(None, |_, tx| {
            for (key, value) in &writes {
                match value {
                    Some(value) => tx.put(key.clone(), value.clone()),
                    None => tx.delete(key.clone()),
                }
            }
            Ok(())
        })
        .await
    }

    /// Runs a transaction that may be repeated freely, because it writes the same whether or not an
    /// earlier try got through. `body` gets the value of `read`.
    async fn own_transaction(
        &self,
        read: Option<&[u8]>,
        mut body: impl FnMut(Option<Bytes>, &mut Transaction) -> Result<()> + Send,
    ) -> Result<()> {
        for turn in 0..OWN_TRIES_MAX {
            let mut tx = Transaction::begin(&*self.kv).await.map_err(store_error)?;
            let found = match read {
                Some(key) => tx.get(key).await.map_err(store_error)?,
                None => None,
            };
            body(found, &mut tx)?;
            match tx.commit(&*self.kv).await.map_err(store_error)? {
                Outcome::Committed => return Ok(()),
                Outcome::Conflict | Outcome::Unknown => backoff(turn).await,
            }
        }
        Err(Error::with(ErrorKind::Unavailable, "metadata store: too many conflicts"))
    }
}

/// Waits a little before a transaction is tried again; the first time it does not.
pub(crate) async fn backoff(turn: u32) {
    if turn > 0 {
        let ms = 1 << turn.min(6);
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }
}

/// A value of the store, decoded.
pub(crate) async fn get<T: prost::Message + Default>(
    snapshot: &dyn Snapshot,
    key: &[u8],
) -> Result<Option<T>> {
    let value = snapshot.get(key).await.map_err(store_error)?;
    value.map(|value| records::decode(key, &value)).transpose()
}

/// Visits all pairs whose keys begin with `prefix`.
pub(crate) async fn scan(
    snapshot: &dyn Snapshot,
    prefix: &[u8],
    mut visit: impl FnMut(&Bytes, &Bytes) -> Result<()> + Send,
) -> Result<()> {
    let end = keys::end_of(prefix);
    let end = end.as_ref().map(Vec::as_slice);
    let mut from = Bound::Included(prefix.to_vec());
    loop {
        let start = from.as_ref().map(Vec::as_slice);
        let page = snapshot.scan(start, end, SCAN_PAGE).await.map_err(store_error)?;
        for (key, value) in &page {
            visit(key, value)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == SCAN_PAGE => from = Bound::Excluded(last.to_vec()),
            _ => return Ok(()),
        }
    }
}

/// An error of the store in the words of the file system.
pub(crate) fn store_error(error: KvError) -> Error {
    let kind = match &error {
        KvError::Corrupt { .. } => ErrorKind::Corrupt,
        KvError::Full { .. } => ErrorKind::NoSpace,
        KvError::Poisoned { .. } | KvError::Io { .. } => ErrorKind::Io,
        KvError::InUse { .. }
        | KvError::Unreachable { .. }
        | KvError::Refused { .. }
        | KvError::OtherOwner { .. }
        | KvError::TakenOver { .. }
        | KvError::Newer { .. }
        | KvError::Older { .. }
        | KvError::OtherEngine { .. } => ErrorKind::Unavailable,
    };
    Error::with(kind, error.to_string())
}

fn no_volume(id: VolumeId) -> Error {
    let detail = format!("volume {id} does not exist; see `strake volume list`");
    Error::with(ErrorKind::NotFound, detail)
}
