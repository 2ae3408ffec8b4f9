//! Opening and closing a volume, and what all its operations share.

use crate::api::VolumeOptions;
use crate::copies::Moves;
use crate::file::deferred::Deferred;
use crate::file::dense::Dense;
use crate::file::shared::Asked;
use crate::file::{Core, FileState};
use crate::inodes::Inodes;
use crate::leases::{Leases, follow_recalls};
use crate::members::Members;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::ops::dirs::PagesAhead;
use crate::ops::locks::{GivenUp, Held, SERVER_WAITS_MAX};
use crate::ops::space::SpaceCache;
use crate::pace::Paces;
use crate::session::Session;
use crate::share::Share;
use crate::unsynced::Left;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_base::task;
use strake_types::{
    ChunkId, ChunkIndex, Credentials, Error, ErrorKind, Ino, Result, Shares, VolumeId,
};
use strake_wire::attempts::Attempts;
use strake_wire::map::MapView;
use strake_wire::message::manager;
use strake_wire::waits::Waits;
use tokio::sync::Semaphore;

/// How often the background tasks look for something to do.
const TICK: Duration = Duration::from_secs(1);

/// A mounted volume. Cheap to share: doors hold one `Arc` of it.
///
/// Every method is safe to call from many tasks at once. A future that is dropped before it is ready
/// leaves the operation either done or not done.
pub struct Volume {
    /// Itself, for what goes on though nobody waits for it.
    pub(crate) own: Weak<Volume>,
    map: Arc<MapView>,
    id: VolumeId,
    name: String,
    options: VolumeOptions,
    inline_bytes_max: u64,
    clock: Arc<dyn Clock>,
    /// Which inode is in which share.
    shares: Shares,
    /// What there is of each.
    parts: Vec<Share>,
    /// Epoch of the map up to which sessions are known to be fenced.
    fenced: AtomicU64,
    attempts: Attempts,
    members: Members,
    pub(crate) moves: Moves,
    inodes: Inodes,
    /// The time last told by [`Volume::now`], in nanoseconds.
    told_ns: AtomicU64,
    left: Left,
    pub(crate) deferred: Deferred,
    memory: Memory,
    paces: Arc<Paces>,
    /// Files with something that the background task must look after.
    busy: parking_lot::Mutex<HashMap<Ino, Arc<FileState>>>,
    /// Files of which something may be read ahead.
    read_ahead: parking_lot::Mutex<Vec<Weak<FileState>>>,
    pub(crate) space: SpaceCache,
    pub(crate) pages_ahead: PagesAhead,
    pub(crate) locked: Held,
    pub(crate) given_up: GivenUp,
    /// Places among those who wait at servers for a lock.
    pub(crate) lock_waits: Arc<Semaphore>,
    pub(crate) waits: Waits,
    pub(crate) asked: Asked,
    pub(crate) dense: parking_lot::Mutex<Dense>,
    metrics: Metrics,
    background: parking_lot::Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

impl Volume {
    /// Opens a volume by its name. Must be called within a tokio runtime: the volume keeps a
    /// background task there until it is closed.
    pub async fn connect(
        map: Arc<MapView>,
        name: &str,
        options: VolumeOptions,
    ) -> Result<Arc<Volume>> {
        let spec = find(&map, name).await?;
        let attempts = Attempts::new()?;
        let leases = options.leases && !options.exclusive;
        let volume = Arc::new_cyclic(|own| Volume {
            own: own.clone(),
            id: VolumeId(spec.id),
            name: name.to_string(),
            inline_bytes_max: u64::from(
                spec.spec.inline_bytes_max.unwrap_or(strake_types::limits::INLINE_BYTES_DEFAULT),
            ),
            clock: options.clock.clone(),
            shares: spec.shares(),
            parts: Share::all(spec.shares(), leases, attempts.client()),
            fenced: AtomicU64::new(0),
            attempts,
            members: Members::default(),
            moves: Moves::default(),
            inodes: Inodes::new(),
            told_ns: AtomicU64::new(0),
            left: Left::default(),
            deferred: Deferred::default(),
            memory: Memory::new(options.memory_bytes),
            paces: Arc::default(),
            busy: parking_lot::Mutex::default(),
            read_ahead: parking_lot::Mutex::default(),
            space: SpaceCache::default(),
            pages_ahead: PagesAhead::default(),
            locked: Held::default(),
            given_up: GivenUp::default(),
            lock_waits: Arc::new(Semaphore::new(SERVER_WAITS_MAX)),
            waits: Waits::default(),
            asked: Asked::default(),
            dense: parking_lot::Mutex::default(),
            metrics: Metrics::new(),
            background: parking_lot::Mutex::default(),
            map,
            options,
        });
        volume.open_sessions().await?;
        let weak = || Arc::downgrade(&volume);
        let mut tasks = vec![task::spawn(look_after_files(weak()))];
        for at in 0..volume.parts.len() {
            tasks.push(task::spawn(stay_alive(weak(), at)));
            tasks.push(task::spawn(close_unheard(weak(), at)));
            if volume.keeps_leases() {
                tasks.push(task::spawn(follow_recalls(weak(), at)));
            }
        }
        volume.background.lock().extend(tasks);
        Ok(volume)
    }

    /// Sends and publishes everything, then ends the session. The volume must not be used after it.
    pub async fn close(self: &Arc<Self>) -> Result<()> {
        self.pages_ahead.close();
        let synced = self.sync_all().await;
        self.background.lock().drain(..).for_each(|task| task.abort());
        let ended = self.close_sessions().await;
        synced.and(ended)
    }

    /// How much of what was written no target has acknowledged yet.
    pub fn unsent_bytes(&self) -> usize {
        self.memory.dirty_bytes()
    }

    /// How many changes of names that were answered no metadata server has made yet.
    pub fn unsent_names(&self) -> usize {
        self.parts().iter().map(|share| share.leases.behind.count()).sum()
    }

    /// The volume's id.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// The volume's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its shares.
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// What people call a share of it.
    pub(crate) fn called(&self, share: VolumeId) -> String {
        match self.shares.count {
            1 => format!("volume {}", self.name),
            _ => format!("share {} of volume {}", self.shares.index(share), self.name),
        }
    }

    /// How it was opened.
    pub fn options(&self) -> &VolumeOptions {
        &self.options
    }

    /// The cluster as this client sees it.
    pub fn map(&self) -> &Arc<MapView> {
        &self.map
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// All shares, in their order.
    pub(crate) fn parts(&self) -> &[Share] {
        &self.parts
    }

    /// True if two inodes are in one share.
    pub(crate) fn are_together(&self, one: Ino, other: Ino) -> bool {
        self.shares.are_together(one, other)
    }

    /// The share that an inode is in.
    pub(crate) fn share_of(&self, ino: Ino) -> &Share {
        &self.parts[self.shares.index_of(ino) as usize]
    }

    /// One of the shares.
    pub(crate) fn part_of(&self, share: VolumeId) -> &Share {
        &self.parts[self.shares.index(share) as usize]
    }

    /// By which id requests to targets name an inode's volume: its share's.
    pub(crate) fn home(&self, ino: Ino) -> VolumeId {
        self.shares.of(ino)
    }

    /// A chunk of a file, as requests to targets name it.
    pub(crate) fn chunk(&self, ino: Ino, index: ChunkIndex) -> ChunkId {
        ChunkId { volume: self.home(ino), ino, index }
    }

    /// Our session with the server of an inode.
    pub(crate) fn session(&self, ino: Ino) -> &Session {
        &self.share_of(ino).session
    }

    /// Sessions are fenced up to this epoch of the map.
    pub(crate) fn learn_fenced(&self, epoch: u64) {
        self.fenced.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Up to which epoch of the map sessions are fenced, as far as is known. Targets are told: whatever
    /// follows from what a metadata server has answered comes after what they had been allowed.
    pub(crate) fn fenced(&self) -> u64 {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Numbers of changes on targets.
    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// How members of groups answer reads.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    pub(crate) fn inodes(&self) -> &Inodes {
        &self.inodes
    }

    /// What is leased to this mount, in the share of an inode.
    pub(crate) fn leases(&self, ino: Ino) -> &Leases {
        &self.share_of(ino).leases
    }

    /// The time, later than whenever this was called before: what happens first has the earlier time.
    pub(crate) fn now(&self) -> Duration {
        let clock = self.clock.monotonic().as_nanos() as u64;
        let next = |told: u64| Some(clock.max(told + 1));
        let told = self.told_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        Duration::from_nanos(told.map_or(clock, |told| clock.max(told + 1)))
    }

    /// What files that are closed have not made durable.
    pub(crate) fn left(&self) -> &Left {
        &self.left
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn paces(&self) -> &Arc<Paces> {
        &self.paces
    }

    /// Files up to this length may lie inside their inode.
    pub(crate) fn inline_bytes_max(&self) -> u64 {
        self.inline_bytes_max
    }

    /// Makes the background task look after a file.
    pub(crate) fn mark_busy(&self, file: &Arc<FileState>) {
        if !std::mem::replace(&mut file.core().busy, true) {
            self.busy.lock().insert(file.ino(), Arc::clone(file));
        }
    }

    /// Files that have something unsent or unpublished.
    pub(crate) fn busy_files(&self) -> Vec<Arc<FileState>> {
        self.busy.lock().values().cloned().collect()
    }

    /// Forgets files that have nothing left to look after.
    pub(crate) fn drop_idle(&self) {
        let mut idle = Vec::new();
        self.busy.lock().retain(|_, file| {
            let rests = file.rest_if_idle();
            idle.extend(rests.then(|| Arc::clone(file)));
            !rests
        });
        idle.iter().for_each(|file| self.forget_if_closed(file));
    }

    /// Makes the background task look after what is about to be read ahead of a file.
    pub(crate) fn note_read_ahead(&self, file: &Arc<FileState>, core: &mut Core) {
        if !std::mem::replace(&mut core.ahead.is_listed, true) {
            self.read_ahead.lock().push(Arc::downgrade(file));
        }
    }

    /// Forgets what was read ahead and nobody has used for a while.
    pub(crate) fn drop_read_ahead(&self, now: Duration) {
        // Whoever notes a file has its core.
        let mut files = std::mem::take(&mut *self.read_ahead.lock());
        files.retain(|file| file.upgrade().is_some_and(|file| file.core().ahead.drop_old(now)));
        self.read_ahead.lock().append(&mut files);
    }

    pub(crate) fn root_cred(&self) -> Credentials {
        Credentials { checked: true, ..Credentials::root() }
    }
}

async fn find(map: &MapView, name: &str) -> Result<manager::Volume> {
    let look = || {
        let map = map.current();
        map.living().find(|v| v.spec.name == name).cloned()
    };
    if let Some(volume) = look() {
        return Ok(volume);
    }
    map.refresh().await?;
    look().ok_or_else(|| {
        let names: Vec<_> = map.current().living().map(|v| v.spec.name.clone()).collect();
        let detail = format!(
            "volume \"{name}\" (there is: {}); `strake volume create {name}` makes one",
            names.join(", ")
        );
        Error::with(ErrorKind::NotFound, detail)
    })
}

/// Each second: sends what is old, publishes lengths. Ends with the volume.
async fn look_after_files(volume: Weak<Volume>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(volume) = volume.upgrade() else { return };
        volume.tick_files();
    }
}

/// Each second: reports closed files of a share and renews the session when it is time. Ends with the volume.
async fn stay_alive(volume: Weak<Volume>, share: usize) {
    let mut ticks: u64 = 0;
    loop {
        tokio::time::sleep(TICK).await;
        let Some(volume) = volume.upgrade() else { return };
        ticks += 1;
        volume.tick_session(&volume.parts[share], ticks).await;
    }
}

/// Each second: closes what was opened of a share for somebody who had given up. Apart from its session, as that may take
/// long. Ends with the volume.
async fn close_unheard(volume: Weak<Volume>, share: usize) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(volume) = volume.upgrade() else { return };
        volume.close_unheard(&volume.parts[share]).await;
    }
}
