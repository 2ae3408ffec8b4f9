//! A metadata server over a store in memory, with storage servers that are a map, for the tests of
//! this crate.

use crate::ops::orphan::REPLACED_STAYS_MS;
use crate::{MetaOptions, MetaServer};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use strake_base::clock::Clock;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Alone, Kv};
use strake_types::layout::Placement;
use strake_types::{
    ChunkIndex, Credentials, Error, ErrorKind, FileKind, GroupId, Ino, Layout, Result, ServerId,
    Shares, VolumeId,
};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::capability::{CapabilityKey, Rights};
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::common::{AttrChange, Attributes, Template};
use strake_wire::message::manager::{
    ClusterMap, Fenced, Group, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest, MapAnswer,
    Server, Target, TargetSpec, Volume, VolumeSpec,
};
use strake_wire::message::meta::*;
use strake_wire::message::storage::{
    CensusPage, Chunk, ChunkList, ChunksOf, Done, ExtentList, StorageAnswer, StorageOp,
    StorageReply, StorageRequest, Truncate,
};
use strake_wire::service::{ManagerService, MetaService, Services, StorageService};

/// Targets of the test cluster: 11, 12, 13, ..., one group each.
const TARGETS: u32 = 3;

/// A clock that tests move; each look at it moves it a little.
#[derive(Default)]
pub struct TestClock {
    micros: AtomicU64,
    /// By how much more.
    step_ms: AtomicU64,
    /// By how much the time of day was set ahead.
    set_ahead_ms: AtomicU64,
}

impl TestClock {
    /// Lets time go by.
    pub fn advance_ms(&self, ms: u64) {
        self.micros.fetch_add(ms * 1000, Ordering::SeqCst);
    }

    /// Each look at it moves it by so much.
    pub fn step_ms(&self, ms: u64) {
        self.step_ms.store(ms, Ordering::SeqCst);
    }

    /// Sets the time of day ahead.
    pub fn set_ahead_ms(&self, ms: u64) {
        self.set_ahead_ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn now(&self) -> Duration {
        let step = 1 + 1_000 * self.step_ms.load(Ordering::SeqCst);
        Duration::from_micros(self.micros.fetch_add(step, Ordering::SeqCst))
    }
}

impl Clock for TestClock {
    fn monotonic(&self) -> Duration {
        self.now()
    }

    fn wall(&self) -> Duration {
        let ahead = Duration::from_millis(self.set_ahead_ms.load(Ordering::SeqCst));
        self.now() + Duration::from_secs(1_000_000) + ahead
    }
}

/// Chunks by target, inode and index.
type Chunks = BTreeMap<(u32, u64, u64), Vec<u8>>;

/// What the chunks of a group on a target are kept under: 11, 12, 13 for groups of one copy, 111, 112,
/// 113 for those of two, of which only the primary is played.
fn place(target: u32, group: u32) -> u32 {
    target + 100 * (GroupId(group).copies() - 1)
}

/// Starts and lengths of what is reserved in chunks.
type Reserved = BTreeMap<(u32, u64, u64), Vec<(u64, u64)>>;

/// Which operations are refused.
type Refuses = fn(&StorageOp) -> bool;

/// All storage servers of the cluster.
pub struct FakeStorage {
    key: CapabilityKey,
    pub chunks: Mutex<Chunks>,
    /// Of chunks that there are, behind their contents.
    pub reserved: Mutex<Reserved>,
    /// Starts and lengths of holes in chunks, ascending.
    pub holes: Mutex<Reserved>,
    /// Chunks of one page of a list: few, so that there are several.
    pub page_chunks: AtomicUsize,
    pub dropped: Mutex<Vec<u32>>,
    pub away: AtomicBool,
    /// This target is away; 0: none.
    pub target_away: AtomicU32,
    /// All targets are poisoned: they take no changes.
    pub poisoned: AtomicBool,
    /// They have no room for anything.
    pub full: AtomicBool,
    /// How often they were asked for something.
    pub calls: AtomicU64,
    /// This target says nothing; 0: none.
    pub target_silent: AtomicU32,
    /// And that to syncs only.
    pub silent_at_syncs: AtomicBool,
    /// Target, epoch and number of what was asked with a number.
    pub numbered: Mutex<Vec<(u32, u64, u64)>>,
    /// How long targets take for an answer.
    pub slow_ms: AtomicU64,
    /// What syncs have made durable.
    durable: Mutex<Chunks>,
    boot: AtomicU64,
    /// What is not done.
    pub refuses: Mutex<Option<Refuses>>,
    /// Copies, and drops of volumes, wait for it.
    pub gate: tokio::sync::Mutex<()>,
    /// Those that have come to it.
    pub at_gate: AtomicU64,
    /// The power fails when the next sync comes, before it is done.
    pub fails_at_sync: AtomicBool,
}

impl FakeStorage {
    fn new(key: CapabilityKey) -> Self {
        Self {
            key,
            chunks: Mutex::default(),
            reserved: Mutex::default(),
            holes: Mutex::default(),
            page_chunks: AtomicUsize::new(2),
            dropped: Mutex::default(),
            away: AtomicBool::new(false),
            target_away: AtomicU32::new(0),
            poisoned: AtomicBool::new(false),
            full: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            target_silent: AtomicU32::new(0),
            silent_at_syncs: AtomicBool::new(false),
            numbered: Mutex::default(),
            slow_ms: AtomicU64::new(0),
            durable: Mutex::default(),
            boot: AtomicU64::new(1),
            refuses: Mutex::new(None),
            gate: tokio::sync::Mutex::new(()),
            at_gate: AtomicU64::new(0),
            fails_at_sync: AtomicBool::new(false),
        }
    }

    /// As if everything had been synced.
    pub fn make_durable(&self) {
        *self.durable.lock() = self.chunks.lock().clone();
    }

    /// What nobody has synced is gone.
    pub fn lose_power(&self) {
        *self.chunks.lock() = self.durable.lock().clone();
        self.boot.fetch_add(1, Ordering::SeqCst);
    }
}

/// Writes into a chunk at a place.
fn put(chunks: &mut Chunks, (place, chunk): (u32, &Chunk), offset: u64, bytes: &[u8]) {
    let chunk = chunks.entry((place, chunk.ino, chunk.index)).or_default();
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    chunk.resize(chunk.len().max(end), 0);
    chunk[start..end].copy_from_slice(bytes);
}

/// Cuts a file at a place.
fn truncate(chunks: &mut Chunks, place: u32, cut: &Truncate) {
    chunks.retain(|key, _| (key.0, key.1) != (place, cut.ino) || key.2 < cut.from_index);
    if let Some(len) = cut.last_chunk_len
        && let Some(last) = chunks.get_mut(&(place, cut.ino, cut.from_index - 1))
    {
        last.truncate(len as usize);
    }
}

/// Bytes of these ranges of a chunk.
fn bytes_in(ranges: &Reserved, key: (u32, u64, u64)) -> u64 {
    ranges.get(&key).into_iter().flatten().map(|(_, len)| len).sum()
}

/// Starts and lengths of what lies between holes before an end.
fn between(holes: &[(u64, u64)], end: u64) -> (Vec<u64>, Vec<u64>) {
    let mut at = 0;
    let data = holes.iter().copied().chain([(end, 0)]).map(|(start, len)| {
        let before = std::mem::replace(&mut at, start + len);
        (before, start.saturating_sub(before))
    });
    data.filter(|(_, len)| *len > 0).unzip()
}

/// All chunks that a target has after a cursor.
fn census_of(chunks: &Chunks, target: u32, after: Option<Chunk>) -> CensusPage {
    let after = after.filter(|after| after.volume > 0).map(|after| (after.ino, after.index));
    let is_own = |key: &(u32, u64, u64)| key.0 % 100 == target && Some((key.1, key.2)) > after;
    let mut own: Vec<_> = chunks.iter().filter(|&(key, _)| is_own(key)).collect();
    own.sort_by_key(|(key, _)| (key.1, key.2));
    let group = |place: u32| GroupId::of_class(1 + place / 100, place % 100 - 11).0;
    let chunk = |key: &(u32, u64, u64)| Chunk { volume: 1, ino: key.1, index: key.2 };
    CensusPage {
        chunks: own.iter().map(|&(key, _)| chunk(key)).collect(),
        groups: own.iter().map(|&(key, _)| group(key.0)).collect(),
        lens: own.iter().map(|(_, bytes)| bytes.len() as u64).collect(),
        next: None,
    }
}

impl FakeStorage {
    /// A page of the chunks of a file.
    fn page_of(&self, chunks: &Chunks, place: u32, of: ChunksOf) -> ChunkList {
        let most = self.page_chunks.load(Ordering::SeqCst);
        let (reserved, holes) = (self.reserved.lock(), self.holes.lock());
        let mut page = ChunkList::default();
        let own = chunks.range((place, of.ino, of.from)..=(place, of.ino, u64::MAX));
        for (key, bytes) in own.take(most) {
            let len = bytes.len() as u64;
            page.indices.push(key.2);
            page.lens.push(len);
            page.occupied.push(len - bytes_in(&holes, *key));
            page.reserved.push(bytes_in(&reserved, *key));
        }
        let last = page.indices.last().filter(|_| page.indices.len() == most);
        page.next = last.map(|last| last + 1);
        page
    }

    /// What holds data in a chunk, and what is reserved.
    fn extents_of(&self, chunks: &Chunks, key: (u32, u64, u64)) -> ExtentList {
        let of = |ranges: &Mutex<Reserved>| ranges.lock().get(&key).cloned().unwrap_or_default();
        let len = chunks.get(&key).map_or(0, Vec::len) as u64;
        let (starts, lens) = between(&of(&self.holes), len);
        let (reserved_starts, reserved_lens) = of(&self.reserved).into_iter().unzip();
        ExtentList { starts, lens, reserved_starts, reserved_lens }
    }

    /// Says nothing, refuses or waits, as a test wants it.
    async fn let_in(&self, request: &StorageRequest) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(attempt) = request.attempt {
            self.numbered.lock().push((request.target, request.epoch, attempt.seq));
        }
        let is_change = request.op.as_ref().is_some_and(StorageOp::is_change);
        if is_change && self.poisoned.load(Ordering::SeqCst) {
            return Err(ErrorKind::Poisoned.into());
        }
        if self.full.load(Ordering::SeqCst) {
            return Err(ErrorKind::NoSpace.into());
        }
        let target_away = self.target_away.load(Ordering::SeqCst);
        if self.away.load(Ordering::SeqCst) || request.target == target_away {
            return Err(ErrorKind::Unavailable.into());
        }
        let answers = self.silent_at_syncs.load(Ordering::SeqCst) && !request.is_sync();
        while !answers && request.target == self.target_silent.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let slow_ms = self.slow_ms.load(Ordering::SeqCst);
        if slow_ms > 0 {
            tokio::time::sleep(Duration::from_millis(slow_ms)).await;
        }
        let refuses = *self.refuses.lock();
        if request.op.as_ref().is_some_and(|op| refuses.is_some_and(|refuses| refuses(op))) {
            return Err(ErrorKind::Unavailable.into());
        }
        if matches!(request.op, Some(StorageOp::Copy(_) | StorageOp::DropVolume(_))) {
            self.at_gate.fetch_add(1, Ordering::SeqCst);
            drop(self.gate.lock().await);
        }
        Ok(())
    }
}

#[async_trait]
impl StorageService for FakeStorage {
    async fn call(&self, request: StorageRequest, payload: Bytes) -> Result<(StorageReply, Bytes)> {
        self.let_in(&request).await?;
        let right = self.key.verify(&request.capability, 0)?;
        assert!(right.rights.allow(Rights::READ_WRITE));
        if matches!(request.op, Some(StorageOp::Sync(_)))
            && self.fails_at_sync.swap(false, Ordering::SeqCst)
        {
            self.lose_power();
        }
        let mut chunks = self.chunks.lock();
        let target = place(request.target, request.group);
        let boot = self.boot.load(Ordering::SeqCst);
        let mut answer = StorageAnswer::Done(Done { boot, ..Done::default() });
        match request.op.ok_or(ErrorKind::Malformed)? {
            StorageOp::Write(write) => {
                put(&mut chunks, (target, &write.chunk), write.offset, &payload);
            }
            StorageOp::Copy(copy) => {
                let from = place(copy.from_target, copy.from_group);
                let key = (from, copy.from.chunk.ino, copy.from.chunk.index);
                let source = chunks.get(&key).cloned().unwrap_or_default();
                let end = (copy.from.offset + copy.from.len).min(source.len() as u64);
                let bytes = source.get(copy.from.offset as usize..end as usize).unwrap_or_default();
                put(&mut chunks, (target, &copy.to.chunk), copy.to.offset, bytes);
            }
            StorageOp::Truncate(cut) => {
                truncate(&mut chunks, target, &cut);
            }
            StorageOp::Sync(_) => *self.durable.lock() = chunks.clone(),
            StorageOp::Chunks(of) => {
                answer = StorageAnswer::Chunks(self.page_of(&chunks, target, of));
            }
            StorageOp::Extents(chunk) => {
                let key = (target, chunk.ino, chunk.index);
                answer = StorageAnswer::Extents(self.extents_of(&chunks, key));
            }
            StorageOp::Allocate(range) => {
                let key = (target, range.chunk.ino, range.chunk.index);
                chunks.entry(key).or_default();
                self.reserved.lock().entry(key).or_default().push((range.offset, range.len));
            }
            StorageOp::Cut(cut) => {
                assert_eq!(cut.length, None);
                chunks.remove(&(target, cut.chunk.ino, cut.chunk.index));
            }
            StorageOp::Census(from) => {
                answer = StorageAnswer::Census(census_of(&chunks, request.target, from.after));
            }
            StorageOp::DropVolume(_) => {
                self.dropped.lock().push(target);
                chunks.retain(|key, _| key.0 != target);
            }
            other => panic!("unexpected: {other:?}"),
        }
        Ok((StorageReply { answer: Some(answer) }, Bytes::new()))
    }
}

/// The manager: a map that tests change.
pub struct FakeManager {
    pub map: Mutex<ClusterMap>,
    /// It fences nobody now.
    pub away: AtomicBool,
    /// It does not tell the map now.
    pub silent: AtomicBool,
}

#[async_trait]
impl ManagerService for FakeManager {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        match request.op {
            Some(ManagerOp::GetMap(_)) if self.silent.load(Ordering::SeqCst) => {
                Err(ErrorKind::Unavailable.into())
            }
            Some(ManagerOp::GetMap(_)) => {
                let answer = MapAnswer::of(&self.map.lock());
                Ok(ManagerAnswer::Map(answer).into())
            }
            Some(ManagerOp::Fence(fence)) => {
                if self.away.load(Ordering::SeqCst) {
                    return Err(ErrorKind::Unavailable.into());
                }
                let mut map = self.map.lock();
                map.epoch += 1;
                let epoch = map.epoch;
                let fenced = |session| Fenced { volume: fence.volume, session, epoch };
                map.fenced.extend(fence.sessions.into_iter().map(fenced));
                Ok(ManagerAnswer::Epoch(epoch).into())
            }
            _ => Err(ErrorKind::NotSupported.into()),
        }
    }
}

/// Volume 1 on three targets.
pub fn cluster_map() -> ClusterMap {
    let target = |id| Target {
        id,
        server: 1,
        spec: TargetSpec { target: id, ..TargetSpec::default() },
        up: true,
        drains: false,
    };
    ClusterMap {
        cluster: "test".into(),
        epoch: 1,
        servers: vec![Server { id: 1, meta: true, up: true, ..Server::default() }],
        targets: (11..11 + TARGETS).map(target).collect(),
        groups: groups(),
        volumes: vec![volume(1, "main")],
        ..ClusterMap::default()
    }
}

/// One of one copy and one of two for each target to lead.
fn groups() -> Vec<Group> {
    let led = |copies: u32, ordinal: u32| Group {
        id: GroupId::of_class(copies, ordinal).0,
        epoch: 1,
        members: (0..copies).map(|at| 11 + (ordinal + at) % TARGETS).collect(),
        ..Group::default()
    };
    (1..=2).flat_map(|copies| (0..TARGETS).map(move |ordinal| led(copies, ordinal))).collect()
}

/// A volume of the test cluster.
pub fn volume(id: u32, name: &str) -> Volume {
    let template = Template { chunk_size: Some(65_536), ..Template::default() };
    let spec = VolumeSpec { name: name.into(), template: Some(template), ..VolumeSpec::default() };
    Volume { id, spec, meta_server: 1, ..Volume::default() }
}

/// A share of a volume of the test cluster.
pub fn share_of(first: u32, name: &str, share: u32, count: u32) -> Volume {
    let mut volume = Volume { share, ..volume(first + share, name) };
    volume.spec.shares = (count > 1).then_some(count);
    volume
}

/// A server and what is around it.
pub struct World {
    pub kv: Arc<dyn Kv>,
    pub map: Arc<MapView>,
    pub manager: Arc<FakeManager>,
    pub storage: Arc<FakeStorage>,
    pub clock: Arc<TestClock>,
    pub server: Arc<MetaServer>,
    pub options: MetaOptions,
    callers: Arc<Callers>,
    /// The shares of the volume, all of this server.
    pub shares: Shares,
    /// A session with each share but the first.
    more_sessions: Vec<u64>,
    /// The session of [`World::root`] and [`World::user`].
    pub session: u64,
    /// The last number that a call of [`User::numbered`] had.
    pub numbers: AtomicU64,
}

/// Options under which nothing waits long.
pub fn options() -> MetaOptions {
    MetaOptions {
        server: ServerId(1),
        lease_ms: 30_000,
        storage_wait_ms: 20,
        tick_ms: 5,
        loan_kept_ms: 20,
        ..MetaOptions::default()
    }
}

impl World {
    /// A new volume on a calm store.
    pub async fn new() -> Self {
        Self::on(Arc::new(MemoryKv::new().at_once())).await
    }

    /// A volume on this store.
    pub async fn on(kv: Arc<dyn Kv>) -> Self {
        Self::with(kv, options()).await
    }

    /// A volume on this store, with these options.
    pub async fn with(kv: Arc<dyn Kv>, options: MetaOptions) -> Self {
        Self::of_shares(kv, options, 1).await
    }

    /// The same, of several shares.
    pub async fn of_shares(kv: Arc<dyn Kv>, options: MetaOptions, count: u32) -> Self {
        let key = CapabilityKey::new([7; 32]);
        let storage = Arc::new(FakeStorage::new(key.clone()));
        let callers = Callers::new(CallerOptions::default());
        let services = Services { storage: Some(storage.clone()), ..Services::default() };
        callers.register_local(ServerId(1), services);
        let mut map = cluster_map();
        map.volumes = (0..count).map(|share| share_of(1, "main", share, count)).collect();
        let (away, silent) = Default::default();
        let manager = FakeManager { map: Mutex::new(map), away, silent };
        let manager = Arc::new(manager);
        let source = ManagerSource::Local(manager.clone());
        let map = MapView::connect(callers.clone(), source, 1000).await.unwrap();
        let clock = Arc::new(TestClock::default());
        let server = MetaServer::start(
            Arc::new(Alone(kv.clone())),
            map.clone(),
            key,
            clock.clone(),
            options.clone(),
        );
        let server = server.await.unwrap();
        let shares = Shares { first: VolumeId(1), count };
        let more_sessions = Vec::new();
        let mut world = World {
            kv,
            map,
            manager,
            storage,
            clock,
            server,
            options,
            callers,
            shares,
            more_sessions,
            session: 0,
            numbers: AtomicU64::new(0),
        };
        world.register();
        world.session = world.open_session(0, &[]).await.session;
        for share in world.shares.all().skip(1) {
            let session = world.open_session_at(share, 0, &[], false).await.session;
            world.more_sessions.push(session);
        }
        world
    }

    /// The server is the one that other shares are asked of.
    fn register(&self) {
        let (storage, meta) = (Some(self.storage.clone() as _), Some(self.server.clone() as _));
        let services = Services { storage, meta, ..Services::default() };
        self.callers.register_local(ServerId(1), services);
    }

    /// The sessions with other shares live on, however long nothing is asked there.
    pub async fn renew_shares(&self) {
        for (share, session) in self.shares.all().skip(1).zip(&self.more_sessions) {
            let (volume, session) = (share.0, *session);
            let op = Some(MetaOp::RenewSession(RenewSession::default()));
            let request = MetaRequest { volume, session, op, ..MetaRequest::default() };
            self.server.call(request).await.unwrap();
        }
    }

    /// Goes on with the sessions of other shares after a restart.
    pub async fn resume_shares(&self) {
        for (share, session) in self.shares.all().skip(1).zip(&self.more_sessions) {
            assert!(self.open_session_at(share, *session, &[], false).await.resumed);
        }
    }

    /// The server works no more, as after a kill, and has nothing under way.
    pub async fn halt(&self) {
        self.server.halt().await;
        self.until(async || self.server.under_way() == 0).await;
    }

    /// Another server on the same store, as after a kill: nothing is said to the old one.
    pub async fn killed(self) -> Self {
        let key = CapabilityKey::new([7; 32]);
        self.halt().await;
        let World { kv, map, clock, options, .. } = &self;
        let (k, m, c, o) =
            (Arc::new(Alone(kv.clone())), map.clone(), clock.clone(), options.clone());
        let server = MetaServer::start(k, m, key, c, o).await.unwrap();
        let world = World { server, ..self };
        world.register();
        world
    }

    /// Another server on the same store, after an orderly stop.
    pub async fn restarted(self) -> Self {
        self.server.stop().await.unwrap();
        self.killed().await
    }

    /// Opens or resumes a session.
    pub async fn open_session(&self, resume: u64, open: &[u64]) -> Session {
        self.open_session_of(resume, open, false).await
    }

    /// As [`World::open_session`], of a client that keeps leases or does not.
    pub async fn open_session_of(&self, resume: u64, open: &[u64], leases: bool) -> Session {
        self.open_session_at(VolumeId(1), resume, open, leases).await
    }

    /// The same, with one of the shares.
    pub async fn open_session_at(
        &self,
        share: VolumeId,
        resume: u64,
        open: &[u64],
        leases: bool,
    ) -> Session {
        let (client, open) = ("test".into(), open.to_vec());
        let (writable, claims) = (open.clone(), leases);
        let op = OpenSession { client, resume, open, writable, claims, ..OpenSession::default() };
        let op = Some(MetaOp::OpenSession(op));
        let leases = u64::from(leases);
        let request = MetaRequest { volume: share.0, leases, op, ..MetaRequest::default() };
        match self.server.call(request).await.unwrap().answer {
            Some(MetaAnswer::Session(session)) => session,
            other => panic!("{other:?}"),
        }
    }

    /// Root.
    pub fn root(&self) -> User<'_> {
        User {
            world: self,
            cred: Credentials::root(),
            session: self.session,
            leases: false,
            numbered: false,
        }
    }

    /// Somebody else.
    pub fn user(&self, uid: u32, gid: u32) -> User<'_> {
        let cred = Credentials { uid, gid, groups: Vec::new(), checked: false };
        User { world: self, cred, session: self.session, leases: false, numbered: false }
    }

    /// The map says of all targets whether they are there.
    pub async fn set_targets_up(&self, up: bool) {
        self.set_targets(|target| target.up = up).await;
    }

    /// The map says of this target that it is away, and of no other.
    pub async fn set_target_away(&self, away: u32) {
        self.set_targets(|target| target.up = target.id != away).await;
    }

    /// All targets are poisoned, or are no more, and the map says so.
    pub async fn poison_targets(&self, poisoned: bool) {
        self.storage.poisoned.store(poisoned, Ordering::SeqCst);
        let why = if poisoned { "EIO" } else { "" };
        self.set_targets(|target| target.spec.poisoned = why.into()).await;
    }

    /// The map says of the disks of all targets whether they hang.
    pub async fn set_disks_hang(&self, hang: bool) {
        self.set_targets(|target| target.spec.silent_ms = hang.then_some(1_000)).await;
    }

    /// Of a thousand bytes of a target so many are free, and the map says so.
    pub async fn set_free(&self, id: u32, free_bytes: u64) {
        let set = |target: &mut Target| {
            if target.id == id {
                (target.spec.total_bytes, target.spec.free_bytes) = (1_000, free_bytes);
            }
        };
        self.set_targets(set).await;
    }

    async fn set_targets(&self, set: impl Fn(&mut Target)) {
        {
            let mut map = self.manager.map.lock();
            map.targets.iter_mut().for_each(set);
            map.epoch += 1;
        }
        self.map.refresh().await.unwrap();
    }

    /// The map says that these are the groups.
    pub async fn set_groups(&self, groups: Vec<Group>) {
        {
            let mut map = self.manager.map.lock();
            map.groups = groups;
            map.epoch += 1;
        }
        self.map.refresh().await.unwrap();
    }

    /// A file of which "se" is left of "secret", as is committed, while its targets are away: they have not cut it.
    pub async fn cut_while_away(&self, root: &User<'_>) -> u64 {
        let ino = root.file(1, "f").await.unwrap();
        root.write(ino, 0, b"secret").await.unwrap();
        root.move_out(ino).await.unwrap();
        self.storage.away.store(true, Ordering::SeqCst);
        assert_eq!(kind(root.truncate(ino, 2).await), ErrorKind::Unavailable);
        ino
    }

    /// The chunk of a file is on the target where its layout has it.
    pub async fn put_chunk(&self, ino: u64, index: u64, len: usize) {
        let attr = self.root().at(0).getattr(ino).await.unwrap();
        let layout: Layout = attr.layout.unwrap().try_into().unwrap();
        let group = Placement::new(layout).group_of(ChunkIndex(index));
        self.storage.chunks.lock().insert((11 + group.0, ino, index), vec![1; len]);
    }

    /// A client opens a file, tells of 10 bytes, and has written on to the second chunk, of which it has told
    /// nobody. How long the file is by that.
    pub async fn write_untold(&self, writer: &User<'_>, ino: u64) -> u64 {
        writer.open(ino, BOTH).await.unwrap();
        writer.move_out(ino).await.unwrap();
        writer.publish(Publish { ino, length_min: 10, ..Publish::default() }).await.unwrap();
        self.put_chunk(ino, 1, 100).await;
        65_536 + 100
    }

    /// Waits until the background task has brought something about.
    pub async fn until(&self, what: impl AsyncFn() -> bool) {
        for _ in 0..6_000 {
            if what().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it did not come about within 30 s");
    }

    /// Waits until nothing waits to be done later, not even for its time to come.
    pub async fn all_done(&self) {
        self.clock.advance_ms(REPLACED_STAYS_MS + 1);
        self.until(async || self.keys(b'G').await == 0).await;
    }

    /// Inodes of all shares.
    pub async fn inodes(&self) -> u64 {
        let mut inodes = 0;
        for share in self.shares.all() {
            let op = Some(MetaOp::VolumeStat(Nothing {}));
            let request = MetaRequest { volume: share.0, op, ..MetaRequest::default() };
            match self.server.call(request).await.unwrap().answer {
                Some(MetaAnswer::VolumeStat(stat)) => inodes += stat.inodes,
                other => panic!("{other:?}"),
            }
        }
        inodes
    }

    /// How often a file of the first share counts as open.
    pub async fn opens(&self, ino: u64) -> u32 {
        let volume = self.server.core().volume(VolumeId(1)).await.unwrap();
        volume.sessions.users_of(Ino(ino)).iter().map(|(_, count)| count).sum()
    }

    /// Number of keys whose first byte is `kind`.
    pub async fn keys(&self, kind: u8) -> usize {
        use std::ops::Bound;
        let snapshot = self.kv.snapshot().await.unwrap();
        let (from, to) = ([kind], [kind + 1]);
        let found = snapshot.scan(Bound::Included(&from), Bound::Excluded(&to), 100_000).await;
        found.unwrap().len()
    }
}

/// Somebody who asks.
#[derive(Clone)]
pub struct User<'a> {
    pub world: &'a World,
    pub cred: Credentials,
    pub session: u64,
    /// It keeps leases.
    pub leases: bool,
    /// Its calls have numbers, as those of clients.
    pub numbered: bool,
}

impl User<'_> {
    /// As the kernel of a mount that has checked permissions.
    pub fn checked(mut self) -> Self {
        self.cred.checked = true;
        self
    }

    /// With supplementary groups.
    pub fn in_groups(mut self, groups: &[u32]) -> Self {
        self.cred.groups = groups.to_vec();
        self
    }

    /// As one whose calls have numbers.
    pub fn numbered(mut self) -> Self {
        self.numbered = true;
        self
    }

    /// As a client that keeps leases.
    pub fn leasing(mut self) -> Self {
        self.leases = true;
        self
    }

    /// In another session.
    pub fn at(mut self, session: u64) -> Self {
        self.session = session;
        self
    }

    /// What is recalled from one who has followed so far.
    pub async fn recalls(&self, followed: u64) -> Recalled {
        match self.call(MetaOp::Recalls(Recalls { followed, ..Recalls::default() })).await {
            Ok(MetaAnswer::Recalled(recalled)) => recalled,
            other => panic!("{other:?}"),
        }
    }

    pub async fn call(&self, op: MetaOp) -> Result<MetaAnswer> {
        let next = || self.world.numbers.fetch_add(1, Ordering::SeqCst) + 1;
        self.call_seq(if self.numbered { next() } else { 0 }, 0, op).await
    }

    pub async fn call_seq(&self, seq: u64, answered: u64, op: MetaOp) -> Result<MetaAnswer> {
        self.call_giving_up(&[], seq, answered, op).await
    }

    /// The same, of one that has given up these calls.
    pub async fn call_giving_up(
        &self,
        given_up: &[u64],
        seq: u64,
        answered: u64,
        op: MetaOp,
    ) -> Result<MetaAnswer> {
        let shares = self.world.shares;
        let share = op.place().map_or(0, |ino| shares.index_of(ino));
        let session = match share {
            0 => self.session,
            other => self.world.more_sessions[other as usize - 1],
        };
        let request = MetaRequest {
            volume: shares.first.0 + share,
            session,
            seq,
            answered,
            cred: (&self.cred).into(),
            leases: u64::from(self.leases),
            incarnation: 0,
            closed: None,
            given_up: given_up.to_vec(),
            op: Some(op),
        };
        let reply = self.world.server.call(request).await?;
        Ok(reply.answer.expect("an answer"))
    }

    async fn entry(&self, op: MetaOp) -> Result<Attributes> {
        match self.call(op).await? {
            MetaAnswer::Entry(attr) => Ok(attr),
            MetaAnswer::Named(named) => Ok(named.attr),
            other => panic!("{other:?}"),
        }
    }

    async fn done(&self, op: MetaOp) -> Result<()> {
        match self.call(op).await? {
            MetaAnswer::Done(_) => Ok(()),
            other => panic!("{other:?}"),
        }
    }

    pub async fn lookup(&self, parent: u64, name: &str) -> Result<Attributes> {
        self.entry(MetaOp::Lookup(at(parent, name))).await
    }

    pub async fn getattr(&self, ino: u64) -> Result<Attributes> {
        self.entry(MetaOp::GetAttr(Look { ino, ..Look::default() })).await
    }

    pub async fn make(&self, op: Create) -> Result<Created> {
        match self.call(MetaOp::Create(op)).await? {
            MetaAnswer::Created(created) => Ok(created),
            other => panic!("{other:?}"),
        }
    }

    /// A regular file that is not opened.
    pub async fn file(&self, parent: u64, name: &str) -> Result<u64> {
        Ok(self.make(new(parent, name, FileKind::File, 0o644)).await?.attr.ino)
    }

    pub async fn mkdir(&self, parent: u64, name: &str) -> Result<u64> {
        Ok(self.make(new(parent, name, FileKind::Directory, 0o755)).await?.attr.ino)
    }

    pub async fn unlink(&self, parent: u64, name: &str) -> Result<Attributes> {
        self.entry(MetaOp::Unlink(Unlink { at: at(parent, name), directory: false })).await
    }

    pub async fn rmdir(&self, parent: u64, name: &str) -> Result<Attributes> {
        self.entry(MetaOp::Unlink(Unlink { at: at(parent, name), directory: true })).await
    }

    pub async fn link(&self, ino: u64, parent: u64, name: &str) -> Result<Attributes> {
        self.entry(MetaOp::Link(Link { ino, to: at(parent, name) })).await
    }

    pub async fn rename(&self, from: (u64, &str), to: (u64, &str)) -> Result<Renamed> {
        self.rename_with(from, to, false, false).await
    }

    pub async fn rename_with(
        &self,
        from: (u64, &str),
        to: (u64, &str),
        no_replace: bool,
        exchange: bool,
    ) -> Result<Renamed> {
        let (from, to) = (at(from.0, from.1), at(to.0, to.1));
        match self.call(MetaOp::Rename(Rename { from, to, no_replace, exchange })).await? {
            MetaAnswer::Renamed(renamed) => Ok(renamed),
            other => panic!("{other:?}"),
        }
    }

    pub async fn setattr(&self, ino: u64, change: AttrChange) -> Result<Attributes> {
        self.entry(MetaOp::SetAttr(SetAttr { ino, change, writable_handle: false })).await
    }

    pub async fn chmod(&self, ino: u64, mode: u32) -> Result<Attributes> {
        self.setattr(ino, AttrChange { mode: Some(mode), ..AttrChange::default() }).await
    }

    pub async fn truncate(&self, ino: u64, length: u64) -> Result<Attributes> {
        self.setattr(ino, AttrChange { length: Some(length), ..AttrChange::default() }).await
    }

    pub async fn open(&self, ino: u64, mode: OpenMode) -> Result<Opened> {
        match self.call(MetaOp::Open(Open { ino, mode })).await? {
            MetaAnswer::Opened(opened) => Ok(opened),
            other => panic!("{other:?}"),
        }
    }

    pub async fn close(&self, ino: u64) -> Result<()> {
        self.done(MetaOp::RenewSession(RenewSession {
            closed: vec![ino],
            ..RenewSession::default()
        }))
        .await
    }

    pub async fn write(&self, ino: u64, offset: u64, data: &[u8]) -> Result<Attributes> {
        let data = Bytes::copy_from_slice(data);
        self.entry(MetaOp::WriteInline(WriteInline { ino, offset, data, ..WriteInline::default() }))
            .await
    }

    pub async fn read(&self, ino: u64) -> Result<Option<Bytes>> {
        match self.call(MetaOp::ReadInline(Inode { ino })).await? {
            MetaAnswer::Opened(opened) => Ok(opened.inline),
            other => panic!("{other:?}"),
        }
    }

    pub async fn move_out(&self, ino: u64) -> Result<Attributes> {
        self.entry(MetaOp::MoveOut(Inode { ino })).await
    }

    pub async fn publish(&self, publish: Publish) -> Result<Attributes> {
        self.entry(MetaOp::Publish(publish)).await
    }

    pub async fn page(&self, ino: u64, after: u64, limit: u32, plus: bool) -> Result<Page> {
        match self.call(MetaOp::ReadDir(ReadDir { ino, after, limit, plus })).await? {
            MetaAnswer::Page(page) => Ok(page),
            other => panic!("{other:?}"),
        }
    }

    /// All names of a directory, in cookie order.
    pub async fn names(&self, ino: u64) -> Vec<String> {
        let page = self.page(ino, 0, 4096, false).await.unwrap();
        assert!(page.end);
        page.entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect()
    }

    pub async fn setxattr(&self, ino: u64, name: &str, value: &[u8]) -> Result<()> {
        self.done(MetaOp::SetXattr(xattr(ino, name, value))).await
    }

    pub async fn getxattr(&self, ino: u64, name: &str) -> Result<Bytes> {
        self.bytes(MetaOp::GetXattr(xattr(ino, name, b""))).await
    }

    pub async fn removexattr(&self, ino: u64, name: &str) -> Result<()> {
        self.done(MetaOp::RemoveXattr(xattr(ino, name, b""))).await
    }

    pub async fn bytes(&self, op: MetaOp) -> Result<Bytes> {
        match self.call(op).await? {
            MetaAnswer::Bytes(bytes) => Ok(bytes),
            other => panic!("{other:?}"),
        }
    }

    pub async fn stat(&self) -> VolumeStat {
        match self.call(MetaOp::VolumeStat(Nothing {})).await.unwrap() {
            MetaAnswer::VolumeStat(stat) => stat,
            other => panic!("{other:?}"),
        }
    }

    pub async fn sync(&self, ino: u64) -> Result<()> {
        self.done(MetaOp::Sync(Inode { ino })).await
    }

    pub async fn set_lock(&self, lock: Lock) -> Result<()> {
        self.done(MetaOp::SetLock(lock)).await
    }
}

/// A user of a session that keeps leases, and follows what is recalled from now on.
pub async fn leasing(world: &World) -> User<'_> {
    let user = world.root().at(world.open_session_of(0, &[], true).await.session).leasing();
    assert_eq!(user.recalls(0).await, Recalled::default(), "the leases begin at once");
    user
}

pub fn at(parent: u64, name: &str) -> Name {
    Name { parent, name: Bytes::copy_from_slice(name.as_bytes()) }
}

pub fn xattr(ino: u64, name: &str, value: &[u8]) -> Xattr {
    let name = Bytes::copy_from_slice(name.as_bytes());
    Xattr { ino, name, value: Bytes::copy_from_slice(value), ..Xattr::default() }
}

/// A new inode that must not exist yet.
pub fn new(parent: u64, name: &str, kind: FileKind, mode: u32) -> Create {
    let at = at(parent, name);
    Create { at, kind: kind as u32, mode, exclusive: true, ..Create::default() }
}

/// Reading and writing.
pub const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// The kind of an error.
pub fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(Error { kind, .. }) => kind,
    }
}
