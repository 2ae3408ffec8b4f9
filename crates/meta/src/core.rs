//! What all operations share: the store, the cluster, the caches, the locks, the volumes.

use crate::MetaOptions;
use crate::cache::Cache;
use crate::cluster::Settings;
use crate::count::Recounts;
use crate::full::FullNow;
use crate::hearing::Hearing;
use crate::ledger::{self, Ledger};
use crate::locks::inodes::InodeLocks;
use crate::losses::{self, Losses};
use crate::merge_queue::MergeQueue;
use crate::metrics::Metrics;
use crate::records::{self, Inode, Locks, Raw, SessionRecord, Shard, Stat};
use crate::session::Session;
use crate::stored::{get, is_empty, scan, store_error};
use crate::volume::{Opening, Volume};
use crate::{keys, keys::Kind};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use strake_base::clock::Clock;
use strake_engine::kv::{Part, Snapshot, Store, dump};
use strake_types::layout::GroupTables;
use strake_types::limits::LEASE_MS_AT_SERVER;
use strake_types::{
    Error, ErrorKind, FileKind, GroupId, Ino, Layout, Result, ServerId, SessionId, Timestamp,
    VolumeId,
};
use strake_wire::attempts::Attempts;
use strake_wire::capability::CapabilityKey;
use strake_wire::map::MapView;
use strake_wire::message::manager::{self, ClusterMap};
use tokio::sync::{Notify, OnceCell};

/// Most inodes kept decoded in memory, and as many guard shards.
const INODES_MAX: usize = 200_000;
/// Exclusive leases given in a millisecond, at most, as a power of two: each server numbers them from when it starts.
const EXCLUSIVE_PER_MS_BITS: u32 = 16;
/// Most directory entries kept in memory.
const ENTRIES_MAX: usize = 400_000;

/// What all operations share.
pub(crate) struct Core {
    /// The store: volumes are parts of it.
    pub store: Arc<dyn Store>,
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
    pub merge_queue: MergeQueue,
    /// There may be work for [`crate::reaper`].
    pub work: Notify,
    /// There may be something for [`crate::upkeep`].
    pub attention: Notify,
    /// Since when clients are heard.
    pub hearing: Hearing,
    /// Counters and histograms.
    pub metrics: Metrics,
    /// The volumes in use.
    volumes: RwLock<HashMap<VolumeId, Arc<Volume>>>,
    /// The groups there are, by the map of an epoch: all volumes share them.
    tables: Mutex<Option<(u64, GroupTables)>>,
    /// The groups that new files leave out.
    pub full: FullNow,
    /// What the store said when a volume was last not taken into use because it has no room; empty: that was not why.
    pub full_at_open: Mutex<String>,
    /// Volumes that are counted since nobody knows what they hold.
    recounts: Recounts,
    /// One volume is taken into use at a time.
    opening: tokio::sync::Mutex<()>,
    /// That one.
    being_opened: Mutex<Option<VolumeId>>,
    /// How often one was.
    openings: AtomicU32,
    /// How often the store may have lost what clients had been told; known before a volume is in use.
    losses: OnceCell<Losses>,
    /// Commits under way.
    pub under_way: AtomicUsize,
    /// Two independent keyed hashes name an entry in the cache.
    hashes: (RandomState, RandomState),
}

impl Core {
    /// A server without volumes.
    pub fn new(
        store: Arc<dyn Store>,
        map: Arc<MapView>,
        key: CapabilityKey,
        clock: Arc<dyn Clock>,
        options: MetaOptions,
    ) -> Result<Self> {
        Ok(Core {
            store,
            map,
            attempts: Attempts::new()?,
            key,
            clock,
            options,
            inodes: Cache::new(INODES_MAX),
            shards: Cache::new(INODES_MAX),
            entries: Cache::new(ENTRIES_MAX),
            locks: InodeLocks::default(),
            merge_queue: MergeQueue::default(),
            work: Notify::new(),
            attention: Notify::new(),
            hearing: Hearing::new(),
            metrics: Metrics::new(),
            volumes: RwLock::default(),
            tables: Mutex::default(),
            full: FullNow::default(),
            full_at_open: Mutex::default(),
            recounts: Recounts::default(),
            opening: tokio::sync::Mutex::default(),
            being_opened: Mutex::default(),
            openings: AtomicU32::new(0),
            losses: OnceCell::new(),
            under_way: AtomicUsize::new(0),
            hashes: (RandomState::new(), RandomState::new()),
        })
    }

    /// Where an inode is in its cache.
    pub fn inode_key(opening: Opening, ino: Ino) -> u128 {
        u128::from(opening.0) << 64 | u128::from(ino.0)
    }

    /// Where a directory's shard is in its cache.
    pub fn shard_key(opening: Opening, dir: Ino, shard: u16) -> u128 {
        u128::from(shard) << 96 | Self::inode_key(opening, dir)
    }

    /// Where a directory entry is in its cache. The two hashes are keyed, so nobody can make two
    /// names that meet.
    pub fn entry_key(&self, opening: Opening, dir: Ino, name: &[u8]) -> u128 {
        let place = (opening.0, dir.0, name);
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

    /// True if a client that was silent for the time of a lease could have been heard all that time.
    pub fn has_heard_for_a_lease(&self) -> bool {
        self.hearing.for_a_lease(self.monotonic_ms(), self.options.lease_ms)
    }

    /// The volumes in use.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.read().values().cloned().collect()
    }

    /// True if the volume is this server's.
    pub fn serves(&self, volume: &manager::Volume) -> bool {
        let own = self.options.server;
        own.0 == 0 || volume.meta_server == own.0 && volume.leaving == 0
    }

    /// Fails unless nobody else can be serving what the map says is ours.
    pub fn check_tenure(&self) -> Result<()> {
        let holds = self.options.tenure.as_ref().is_none_or(|tenure| tenure.holds());
        if holds || strake_base::is_broken("tenure-is-needed") {
            return Ok(());
        }
        let detail = "this metadata server has not heard of the manager for too long, and another may \
             serve the volume by now";
        Err(Error::with(ErrorKind::Unavailable, detail))
    }

    /// There is, or may be, something for [`crate::reaper`] in a volume, at once.
    pub fn has_work(&self, volume: &Volume) {
        volume.chores.note();
        self.work.notify_one();
    }

    /// The settings of a volume by the newest map.
    fn settings(&self, id: VolumeId) -> Option<Result<Settings>> {
        let map = self.map.current();
        let found = map.volume(id)?;
        if !self.serves(found) {
            return Some(Err(not_ours(found, self.options.server)));
        }
        Some(self.settings_of(&map, found))
    }

    /// The settings of a volume of a map.
    pub fn settings_of(&self, map: &ClusterMap, volume: &manager::Volume) -> Result<Settings> {
        let mut known = self.tables.lock();
        let of_epoch = known.take().filter(|(epoch, _)| *epoch == map.epoch);
        let of_map = || GroupTables::of(map.groups.iter().map(|group| GroupId(group.id)));
        let (_, tables) = known.insert(of_epoch.unwrap_or_else(|| (map.epoch, of_map())));
        Settings::of(map, volume, *tables)
    }

    /// Takes a volume out of use, if it is in use. Who waits for news of it is told to ask elsewhere.
    pub fn forget_volume(&self, id: VolumeId) -> Option<Arc<Volume>> {
        let volume = self.volumes.write().remove(&id)?;
        close(&volume);
        Some(volume)
    }

    /// The same, unless it was taken into use anew since.
    fn let_go(&self, volume: &Arc<Volume>) {
        let mut volumes = self.volumes.write();
        if volumes.get(&volume.id).is_some_and(|now| Arc::ptr_eq(now, volume)) {
            volumes.remove(&volume.id);
            drop(volumes);
            close(volume);
        }
    }

    /// True if the newest map says that this server has served a volume since then, and does.
    fn is_ours(&self, volume: &Volume) -> bool {
        let map = self.map.current();
        let found = map.volume(volume.id);
        let since = volume.settings().owned_since;
        // One that is in no map is in an older one than ours.
        found.is_none_or(|known| self.serves(known) && known.owned_since == since.0)
    }

    /// Takes out of use what another server serves by the newest map.
    pub fn let_others_go(&self) {
        let epoch = self.map.current().epoch;
        // One that was looked at by this map is ours.
        let is_old = |volume: &&Arc<Volume>| volume.settings().epoch.0 != epoch;
        for volume in self.volumes().iter().filter(is_old).filter(|v| !self.is_ours(v)) {
            self.let_go(volume);
        }
    }

    /// The volumes in use, as long as the tenure holds: without it they may be another server's by now.
    pub fn volumes_held(&self) -> Vec<Arc<Volume>> {
        self.check_tenure().map_or_else(|_| Vec::new(), |()| self.volumes())
    }

    /// A volume that is in use, whoever serves it by now.
    pub fn in_use(&self, id: VolumeId) -> Option<Arc<Volume>> {
        self.volumes.read().get(&id).cloned()
    }

    /// A volume, with settings as new as the map.
    pub async fn volume(self: &Arc<Self>, id: VolumeId) -> Result<Arc<Volume>> {
        self.check_tenure()?;
        let Some(volume) = self.in_use(id) else { return Box::pin(self.open_volume(id)).await };
        let is_taken_over = volume.kv.is_taken_over();
        if is_taken_over || volume.settings().epoch.0 != self.map.current().epoch {
            let settings = self.settings(id).ok_or_else(|| no_volume(id))?;
            if is_taken_over || !self.is_ours(&volume) {
                // Another server has served it meanwhile, or does.
                self.let_go(&volume);
                settings?;
                return Box::pin(self.open_volume(id)).await;
            }
            volume.set_settings(settings?);
        }
        match volume.settings().deleting {
            true => Err(deleted(id)),
            false => Ok(volume),
        }
    }

    async fn open_volume(self: &Arc<Self>, id: VolumeId) -> Result<Arc<Volume>> {
        let _one = self.opening.lock().await;
        let opened = self.in_use(id);
        if let Some(volume) = opened.filter(|volume| self.is_ours(volume)) {
            return Ok(volume);
        }
        // Before the map is looked at: from then on this server is one that serves it.
        let _coming = Coming::begin(&self.being_opened, id);
        let mut settings = self.settings(id);
        if settings.is_none() {
            self.map.refresh().await?;
            settings = self.settings(id);
        }
        let settings = settings.ok_or_else(|| no_volume(id))??;
        if settings.deleting {
            return Err(deleted(id));
        }
        self.take_into_use(id, settings).await
    }

    async fn take_into_use(&self, id: VolumeId, settings: Settings) -> Result<Arc<Volume>> {
        let volume = Arc::new(self.part(id, settings).await?);
        if volume.settings().shares.count > 1 {
            self.begin_loans(&volume).await?;
        }
        if volume.settings().shares.first == id {
            self.make_root(&volume).await?;
        }
        self.load_sessions(&volume).await?;
        // Last of all: it may begin to count.
        self.load_counts(&volume).await?;
        // All of that took its time, and the database does not know whose turn it is.
        if !self.is_ours(&volume) {
            let detail = format!("volume {id} is served by another server");
            return Err(Error::with(ErrorKind::StaleMap, detail));
        }
        self.check_tenure()?;
        self.volumes.write().insert(id, volume.clone());
        self.work.notify_one();
        self.attention.notify_one();
        Ok(volume)
    }

    /// Ids of the volumes in use, and of the one that is about to be. What another server serves by the newest map is
    /// none of them from now on.
    pub fn served(&self) -> Vec<u32> {
        self.let_others_go();
        // In the order in which one becomes the other.
        let coming = *self.being_opened.lock();
        let served = self.volumes.read();
        served.keys().copied().chain(coming).map(|id| id.0).collect()
    }

    /// The layout of a new file, not on what is nearly full where there is enough beside it.
    pub fn around_full(&self, layout: Layout) -> Layout {
        self.full.by(&self.map.current()).avoid(layout)
    }

    /// Opens the part of the store that a volume is. Refused where the store was moved elsewhere, or may be just now.
    pub async fn part(&self, id: VolumeId, settings: Settings) -> Result<Volume> {
        self.check_tenure()?;
        let kv = self.store.open(Part::Volume(id.0)).await.map_err(store_error)?;
        let open = match self.store.is_shared() {
            true => dump::check_led(&*kv).await,
            // Nobody else has it while this process does, and where no manager leads by it the marks would stay.
            false => dump::check_open(&*kv).await,
        };
        open.map_err(store_error)?;
        let opening = Opening(self.openings.fetch_add(1, Ordering::Relaxed));
        let volume = Volume::new(id, settings, kv, opening);
        self.losses.get_or_try_init(|| losses::begin(&volume, &*self.store)).await?;
        Ok(volume)
    }

    /// How often the store may have lost what clients had been told.
    pub fn losses(&self) -> Losses {
        self.losses.get().copied().unwrap_or_default()
    }

    /// What an earlier server of a share has lent is over.
    async fn begin_loans(&self, volume: &Volume) -> Result<()> {
        if self.store.spans_parts() {
            return volume.begin_loans().await;
        }
        let detail = format!(
            "volume {} has several shares, and its metadata is in {}, which cannot bear that; move it to PostgreSQL or etcd (strake \
             meta export, strake meta import)",
            volume.id,
            self.store.name()
        );
        Err(Error::with(ErrorKind::NotSupported, detail))
    }

    async fn make_root(&self, volume: &Volume) -> Result<()> {
        let (inode_key, shard_key) =
            (keys::inode(volume.id, Ino::ROOT), keys::shard(volume.id, Ino::ROOT, 0));
        let now = self.now().into();
        let (uid, gid) = self.options.root_owner;
        let root = Inode {
            ino: Ino::ROOT.0,
            kind: FileKind::Directory as u32,
            mode: 0o755,
            uid,
            gid,
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
        volume
            .own_transaction(Some(&inode_key), |found, tx| {
                if found.is_none() {
                    tx.put(inode_key.clone(), records::encode(&root));
                    tx.put(shard_key.clone(), records::encode(&shard));
                }
                Ok(())
            })
            .await
    }

    async fn load_counts(&self, volume: &Arc<Volume>) -> Result<()> {
        let key = keys::volume_stat(volume.id);
        let snapshot = volume.kv.snapshot().await.map_err(store_error)?;
        let stored: Result<Option<Stat>> = get(&*snapshot, &key).await;
        drop(snapshot);
        let stored = match stored {
            // All is counted, as after an unclean end.
            Err(error) if error.kind == ErrorKind::Corrupt => None,
            stored => stored?,
        };
        // Whatever ends this process from here on, the counts stored are not to be believed; and what was emptied is in use again.
        let stat = stored.unwrap_or_default();
        let dirty = Stat { inodes: stat.inodes, bytes: stat.bytes, ..Stat::default() };
        volume.put(key, records::encode(&dirty)).await?;
        volume.counts.add(stat.inodes as i64, stat.bytes as i64);
        if stat.clean {
            stat.uncounted.iter().for_each(|ino| volume.uncounted.note(Ino(*ino)));
            volume.counts.set_exact();
            return Ok(());
        }
        self.recounts.begin(volume.clone());
        Ok(())
    }

    /// Nobody knows whether a change was made by which a volume holds more or less.
    pub fn doubt_counts(&self, volume: &Arc<Volume>) {
        volume.counts.doubt();
        self.recounts.begin(volume.clone());
    }

    async fn load_sessions(&self, volume: &Volume) -> Result<()> {
        let snapshot = volume.kv.snapshot().await.map_err(store_error)?;
        let grace_ms = self.monotonic_ms() + self.options.lease_ms;
        let mut found = Vec::new();
        scan(&*snapshot, &keys::prefix(Kind::Session, volume.id), |key, value| {
            let id = keys::last_id(key).ok_or_else(|| records::corrupt(key, "has no id"))?;
            let record: SessionRecord = records::decode(key, value)?;
            found.push((id, record));
            Ok(())
        })
        .await?;
        volume.sessions.be_patient_until(self.monotonic_ms() + LEASE_MS_AT_SERVER);
        volume.leases.number_exclusive_from(self.wall_ms() << EXCLUSIVE_PER_MS_BITS);
        let mut replies: HashMap<u64, Replies> = HashMap::new();
        replies.extend(found.iter().map(|(id, _)| (*id, Replies::default())));
        load_replies(&*snapshot, volume.id, &mut replies).await?;
        for (id, record) in found {
            let Replies { seqs, made } = replies.remove(&id).unwrap_or_default();
            volume.sessions.may_not_have_heard(id, made);
            let ledger = Ledger::with(seqs);
            let session = Session::new(id, record.client, ledger, grace_ms, true)
                .keeping_leases(record.leases);
            let session = if record.behind { session.was_behind() } else { session };
            session.is_of(record.mount);
            if record.claims {
                session.note_claims();
            }
            session.holder.count_from(self.wall_ms());
            if record.leases {
                volume.leases.expect(&session.holder, &*self.clock);
            }
            if self.map.is_fenced(volume.id, SessionId(id)) {
                session.lose();
            }
            volume.sessions.insert(Arc::new(session));
        }
        for (kind, flock) in [(Kind::Flock, true), (Kind::Posix, false)] {
            if !flock && strake_base::is_broken("range-locks-outlive-servers") {
                continue;
            }
            let mut found: BTreeMap<(u64, u64), Vec<_>> = BTreeMap::new();
            scan(&*snapshot, &keys::prefix(kind, volume.id), |key, value| {
                let ids = keys::two_ids(key).ok_or_else(|| records::corrupt(key, "has no ids"))?;
                let locks: Locks = records::decode(key, value)?;
                // What is left of one that is over is held by nobody.
                if volume.sessions.get(ids.1).is_some() {
                    found.entry(ids).or_default().push((keys::lock_page(key), locks.held));
                }
                Ok(())
            })
            .await?;
            for ((ino, session), stored) in found {
                volume.ranges.load(flock, Ino(ino), session, stored);
            }
        }
        Ok(())
    }
}

/// What is stored of the replies to a session.
#[derive(Default)]
struct Replies {
    /// Their numbers.
    seqs: Vec<u64>,
    /// Files without names that were made with them, and by which.
    made: Vec<(Ino, u64)>,
}

/// Finds the replies to these sessions, with one scan: a question for each session would hold up all other volumes.
async fn load_replies(
    snapshot: &dyn Snapshot,
    volume: VolumeId,
    sessions: &mut HashMap<u64, Replies>,
) -> Result<()> {
    // A file without a name waits in the queue. Where there is none no reply is looked into: there may be very many.
    let some_nameless = !is_empty(snapshot, &keys::prefix(Kind::Queue, volume)).await?;
    scan(snapshot, &keys::prefix(Kind::Result, volume), |key, value| {
        let Some((id, seq)) = keys::two_ids(key) else { return Ok(()) };
        // What is left of a session that is over is nobody's.
        let Some(replies) = sessions.get_mut(&id) else { return Ok(()) };
        replies.seqs.push(seq);
        if some_nameless {
            // Whoever asks for a damaged one learns of that.
            let reply: Option<Raw> = records::decode(key, value).ok();
            let nameless = reply.and_then(|reply| ledger::made_nameless(&reply.bytes));
            replies.made.extend(nameless.map(|ino| (ino, seq)));
        }
        Ok(())
    })
    .await
}

fn close(volume: &Volume) {
    volume.recopies.stop();
    volume.sessions.holders().iter().for_each(|holder| holder.release());
}

/// A volume that is being taken into use, until this is dropped.
struct Coming<'a>(&'a Mutex<Option<VolumeId>>);

impl<'a> Coming<'a> {
    fn begin(place: &'a Mutex<Option<VolumeId>>, id: VolumeId) -> Self {
        *place.lock() = Some(id);
        Self(place)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// Waits a little before a transaction is tried again; the first time it does not.
pub(crate) async fn backoff(turn: u32) {
    if turn > 0 {
        let ms = 1 << turn.min(6);
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }
}

fn not_ours(volume: &manager::Volume, own: ServerId) -> Error {
    let (id, server, leaving) = (volume.id, volume.meta_server, volume.leaving);
    if server == own.0 {
        let detail = format!("volume {id} is being handed over by server {leaving}");
        return Error::with(ErrorKind::Unavailable, detail);
    }
    Error::with(ErrorKind::StaleMap, format!("volume {id} is served by server {server}"))
}

/// Not that something is not there: a program that lists the root would take that for its end.
fn deleted(id: VolumeId) -> Error {
    Error::with(ErrorKind::Stale, format!("volume {id} was deleted"))
}

fn no_volume(id: VolumeId) -> Error {
    let detail = format!("volume {id} does not exist; see `strake volume list`");
    Error::with(ErrorKind::NotFound, detail)
}
