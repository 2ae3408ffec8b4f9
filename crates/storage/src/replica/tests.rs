mod moves;

use super::Replica;
use super::ranges::{Area, Ranges};
use crate::StorageServer;
use crate::watch::Limits;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strake_base::clock::{Clock, SystemClock};
use strake_base::disk::sim::SimDisk;
use strake_base::disk::{Disk, HeldDisk, RealDisk};
use strake_base::random::SplitMix64;
use strake_engine::chunk::{ChunkOptions, ChunkStore, Identity};
use strake_types::limits::CHUNK_BYTES_MAX;
use strake_types::{
    Error, ErrorKind, GroupId, Ino, Result, ServerId, SessionId, TargetId, VolumeId,
};
use strake_wire::caller::{CallerOptions, Callers, LocalServices};
use strake_wire::capability::{Capability, CapabilityKey, Rights};
use strake_wire::frame::crc32c;
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::manager::{
    ClusterMap, Group, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest, MapAnswer, Resynced,
    Server, Target, Used, Voucher,
};
use strake_wire::message::storage as msg;
use strake_wire::message::storage::{StorageAnswer, StorageOp, StorageReply, StorageRequest};
use strake_wire::service::{ManagerService, StorageService};
use tokio::runtime::Runtime;

mod cut;
mod damage;
mod failing;
mod fences;
mod first;
mod hung;
mod level;
mod missed;
mod promises;
mod recover;
mod room;
mod sources;

const GROUP: GroupId = GroupId::of_class(3, 0);
const MEMBERS: u32 = 3;
const BLOCK: usize = 4096;

/// What the manager would decide is decided by the test.
struct Manager {
    map: Mutex<ClusterMap>,
    away: Mutex<bool>,
    /// Takes no note of who says that it leaves, but for this: how often.
    ignored: Mutex<Option<u32>>,
    /// It gives each its newest map once more, and answers nothing else.
    fades: Mutex<bool>,
    /// Of which groups it was told that they are used, as often as it was.
    used: Mutex<Vec<Used>>,
    /// It does not answer that.
    thinks: Mutex<bool>,
    /// It takes this member out when it hears that somebody waits.
    given_up: Mutex<Option<u32>>,
    /// It needs each member whose disk hangs: they go on, in a new epoch.
    needs: Mutex<bool>,
    /// It is of a release that takes no note of a primary whose disk hangs.
    older: AtomicBool,
    /// The primary that has said last that another member may lead.
    yielded: Mutex<Option<Resynced>>,
    /// Members that it does not answer.
    unheard: Mutex<HashSet<u32>>,
    /// What it has heard last of a member that was to join, if it could not.
    joined: Mutex<Option<Resynced>>,
}

/// The manager, as a member hears it; 0 is the client.
struct Ear {
    of: u32,
    manager: Arc<Manager>,
}

#[async_trait]
impl ManagerService for Ear {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        if self.manager.unheard.lock().contains(&self.of) {
            return Err(ErrorKind::Unavailable.into());
        }
        self.manager.call(request).await
    }
}

impl Manager {
    /// Asks the primary to let another member lead: a new map, and no new epoch of the group.
    fn ask_to_hand_over(&self) {
        let mut map = self.map.lock();
        map.epoch += 1;
        map.groups[0].hand_over = map.groups[0].epoch;
    }

    /// Changes the group; a new epoch.
    fn decide(&self, change: impl FnOnce(&mut Group)) {
        let mut map = self.map.lock();
        map.epoch += 1;
        let group = &mut map.groups[0];
        group.epoch += 1;
        change(group);
    }

    fn take_out(&self, member: u32) {
        self.decide(|group| {
            group.in_sync.retain(|m| *m != member);
            group.joining.retain(|m| *m != member);
        });
    }

    fn let_join(&self, member: u32) {
        self.decide(|group| group.joining.push(member));
    }

    fn note_used(&self, said: Used) -> Result<()> {
        self.used.lock().push(said);
        let mut map = self.map.lock();
        if !map.groups[0].in_sync.contains(&said.target) {
            return Err(ErrorKind::StaleMap.into());
        }
        map.epoch += 1;
        map.groups[0].never_used = false;
        Ok(())
    }

    fn members(&self) -> Vec<u32> {
        self.map.lock().groups[0].members.clone()
    }

    fn in_sync(&self) -> Vec<u32> {
        self.map.lock().groups[0].in_sync.clone()
    }
}

#[async_trait]
impl ManagerService for Manager {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        if *self.away.lock() {
            return Err(ErrorKind::Unavailable.into());
        }
        let fades = *self.fades.lock();
        let answer = match request.op.unwrap() {
            ManagerOp::Resynced(_) if fades => return Err(ErrorKind::Unavailable.into()),
            ManagerOp::Resynced(report) if report.hands_over => {
                *self.yielded.lock() = Some(report);
                ManagerAnswer::Epoch(0)
            }
            ManagerOp::GetMap(get) => {
                let map = self.map.lock();
                if fades && map.epoch <= get.known_epoch {
                    return Err(ErrorKind::Unavailable.into());
                }
                let is_newer = map.epoch > get.known_epoch;
                ManagerAnswer::Map(if is_newer {
                    MapAnswer::of(&map)
                } else {
                    MapAnswer::default()
                })
            }
            ManagerOp::Resynced(report) => {
                let leaves =
                    report.failed && self.map.lock().groups[0].leaving.contains(&report.member);
                if let Some(ignored) = self.ignored.lock().as_mut().filter(|_| leaves) {
                    *ignored += 1;
                    return Ok(ManagerAnswer::Epoch(0).into());
                }
                let group = self.map.lock().groups[0].clone();
                let is_now = group.epoch == report.epoch && group.joining.contains(&report.member);
                if report.failed && is_now {
                    *self.joined.lock() = Some(report.clone());
                }
                let needed = report.hangs && *self.needs.lock();
                if self.map.lock().groups[0].epoch == report.epoch {
                    self.decide(|group| {
                        if !needed {
                            reported(group, &report)
                        }
                    });
                }
                ManagerAnswer::Epoch(0)
            }
            ManagerOp::Used(said) => {
                while *self.thinks.lock() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                self.note_used(said)?;
                ManagerAnswer::Epoch(0)
            }
            ManagerOp::Stalled(said) => {
                let given_up = self.given_up.lock().take();
                if let Some(member) = given_up {
                    let group = self.map.lock().groups[0].clone();
                    assert_eq!((said.group, said.epoch), (group.id, group.epoch));
                    assert!(group.in_sync.contains(&said.target));
                    self.take_out(member);
                }
                ManagerAnswer::Epoch(self.map.lock().epoch)
            }
            other => panic!("{other:?}"),
        };
        let hears_hangs = !self.older.load(Ordering::Relaxed);
        Ok(ManagerReply { answer: Some(answer), hears_hangs, ..ManagerReply::default() })
    }
}

/// What becomes of a group by a report.
fn reported(group: &mut Group, report: &Resynced) {
    group.joining.retain(|m| *m != report.member);
    if report.failed {
        group.in_sync.retain(|m| *m != report.member);
        if group.leaving.contains(&report.member) {
            group.leaving.clear();
            group.members.retain(|m| *m != report.member);
        }
        return;
    }
    let (primary, all) = (group.in_sync[0], group.members.clone());
    group.in_sync.push(report.member);
    group.in_sync.sort_by_key(|member| all.iter().position(|m| m == member));
    group.word = report.word;
    let voucher = |(target, boot)| Voucher { target, boot };
    let vouchers = [(primary, report.primary_boot), (report.member, report.member_boot)];
    group.vouchers = vouchers.map(voucher).to_vec();
}

/// At which member what fails, and how.
type Fails = (u32, fn(&StorageOp) -> bool, ErrorKind);

/// Which questions a test means.
type Which = fn(&StorageOp) -> bool;

/// Which members reach which; 0 is the client.
#[derive(Default)]
struct Net {
    cut: Mutex<HashSet<(u32, u32)>>,
    /// Who answers nobody,
    silent: Mutex<HashSet<u32>>,
    /// and what was sent to them.
    unheard: Mutex<Vec<(u32, StorageOp)>>,
    /// Who does not hear whose answers.
    deaf: Mutex<HashSet<(u32, u32)>>,
    /// Members are of a release that does not know of writes that are to be durable, nor says what is reserved.
    older: AtomicBool,
    /// How often members were asked to sync.
    syncs: AtomicU64,
    /// The numbers under which they were: who hears one again waits for what was begun for it.
    sync_numbers: Mutex<HashSet<u64>>,
    /// A member that answers none after so many.
    syncs_wait: Mutex<Option<(u32, u64)>>,
    /// How often members were asked for the checksums of a chunk.
    sums: AtomicU64,
    /// Who asks for those of the chunk of this index waits,
    sums_wait: Mutex<Option<u64>>,
    /// and so many have.
    sums_asked: AtomicU64,
    /// What fails of what primaries ask and send,
    fails: Mutex<Option<Fails>>,
    /// and so often it has.
    failed: AtomicU64,
    /// A member that is at work on what, and answers the rest,
    slow: Mutex<Option<(u32, Which)>>,
    /// how often it was sent that,
    slow_calls: AtomicU64,
    /// and how often it was told what is settled meanwhile, or asked whether it is there.
    looks: AtomicU64,
}

/// A member while it runs. Its tasks are in a runtime of its own, with which they end at once.
struct Life {
    server: Arc<StorageServer>,
    runtime: Runtime,
}

/// The members that run, by number.
type Lives = Arc<Mutex<Vec<Option<Life>>>>;

/// What a member or the client has of another member.
struct Link {
    from: u32,
    to: u32,
    net: Arc<Net>,
    servers: Lives,
}

impl Link {
    /// Waits while the answer to what is asked is held back.
    async fn await_sums(&self, op: Option<&StorageOp>) {
        let Some(StorageOp::Sums(chunk)) = op else { return };
        self.net.sums.fetch_add(1, Ordering::Relaxed);
        if *self.net.sums_wait.lock() != Some(chunk.index) {
            return;
        }
        self.net.sums_asked.fetch_add(1, Ordering::Relaxed);
        while *self.net.sums_wait.lock() == Some(chunk.index) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits while the member is at work on what it is sent.
    async fn await_slow(&self, op: Option<&StorageOp>) {
        let slow = *self.net.slow.lock();
        let is_meant =
            |((member, is_slow), op): ((u32, Which), &StorageOp)| member == self.to && is_slow(op);
        if slow.zip(op).is_some_and(is_meant) {
            self.net.slow_calls.fetch_add(1, Ordering::Relaxed);
        }
        loop {
            let slow = *self.net.slow.lock();
            match (slow.filter(|(member, _)| *member == self.to), op) {
                (Some((_, is_slow)), Some(op)) if is_slow(op) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                (Some(_), Some(StorageOp::Settle(_))) => {
                    self.net.looks.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                _ => return,
            }
        }
    }

    /// Fails as the store of the member would, which hears of it.
    async fn check_store(&self, request: &StorageRequest) -> Result<()> {
        let fails = *self.net.fails.lock();
        let Some((to, fails, kind)) = fails.filter(|_| request.forward.is_some()) else {
            return Ok(());
        };
        let Some(op) = request.op.as_ref().filter(|op| to == self.to && fails(op)) else {
            return Ok(());
        };
        self.net.failed.fetch_add(1, Ordering::Relaxed);
        let error = Error::new(kind);
        let server = self.servers.lock()[to as usize].as_ref().map(|life| life.server.clone());
        if let Some(server) = server {
            let target = server.local(TargetId(to)).unwrap();
            let replica = server.replica(&target, GroupId(request.group), 0).await?;
            replica.note_answered(request.epoch, op, Some(&error));
        }
        Err(error)
    }

    fn check(&self) -> Result<()> {
        match self.net.cut.lock().contains(&(self.from, self.to)) {
            true => Err(ErrorKind::Unavailable.into()),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl StorageService for Link {
    async fn call(
        &self,
        mut request: StorageRequest,
        payload: Bytes,
    ) -> Result<(StorageReply, Bytes)> {
        self.check()?;
        if self.net.silent.lock().contains(&self.to) {
            self.net.unheard.lock().extend(request.op.clone().map(|op| (self.to, op)));
        }
        while self.net.silent.lock().contains(&self.to) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.await_sums(request.op.as_ref()).await;
        self.await_slow(request.op.as_ref()).await;
        self.check_store(&request).await?;
        if request.forward.is_some() && matches!(request.op, Some(StorageOp::Sync(_))) {
            let nth = self.net.syncs.fetch_add(1, Ordering::Relaxed);
            self.net.sync_numbers.lock().extend(request.attempt.map(|attempt| attempt.seq));
            let waits = |&(member, answered): &(u32, u64)| member == self.to && nth >= answered;
            while self.net.syncs_wait.lock().as_ref().is_some_and(waits) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        if request.forward.is_some() && self.net.older.load(Ordering::Relaxed) {
            request.op = request.op.map(StorageOp::not_durable);
        }
        let gone = || Error::new(ErrorKind::Unavailable);
        let call = {
            let lives = self.servers.lock();
            let Life { server, runtime } = lives[self.to as usize].as_ref().ok_or_else(gone)?;
            let server = server.clone();
            runtime.spawn(async move { server.call(request, payload).await })
        };
        let mut answer = call.await.map_err(|_| gone())?;
        if let (true, Ok((reply, _))) = (self.net.older.load(Ordering::Relaxed), &mut answer) {
            forget_reserved(reply);
        }
        // An answer may be lost, too.
        self.check()?;
        if self.net.deaf.lock().contains(&(self.from, self.to)) {
            return Err(gone());
        }
        answer
    }
}

/// The answer as an earlier release gives it.
fn forget_reserved(reply: &mut StorageReply) {
    match &mut reply.answer {
        Some(StorageAnswer::Digests(page)) => page.reserved.clear(),
        Some(StorageAnswer::Sums(sums)) => sums.reserved = None,
        _ => {}
    }
}

struct Bench {
    dir: tempfile::TempDir,
    manager: Arc<Manager>,
    net: Arc<Net>,
    servers: Lives,
    client: Arc<MapView>,
    seq: Mutex<u64>,
    group: GroupId,
    /// Bytes that the members started from now on may hold.
    capacity: Mutex<Option<u64>>,
    /// The disks of the members that run.
    disks: Mutex<HashMap<u32, Arc<HeldDisk>>>,
    /// Those of them that are simulated.
    simulated: Mutex<HashMap<u32, SimDisk>>,
}

fn key() -> CapabilityKey {
    CapabilityKey::new([7; 32])
}

impl Bench {
    async fn start() -> Bench {
        Self::start_with(GROUP, &[1, 2, 3]).await
    }

    /// Servers of one target each, and one group, of some of them.
    async fn start_with(group: GroupId, members: &[u32]) -> Bench {
        let all: Vec<u32> = (1..=MEMBERS).collect();
        let server = |&id: &u32| Server { id, up: true, ..Server::default() };
        let target = |&id: &u32| Target { id, server: id, up: true, ..Target::default() };
        let map = ClusterMap {
            cluster: "c".into(),
            epoch: 1,
            servers: all.iter().map(server).collect(),
            targets: all.iter().map(target).collect(),
            groups: vec![Group {
                id: group.0,
                epoch: 1,
                members: members.to_vec(),
                in_sync: members.to_vec(),
                ..Group::default()
            }],
            ..ClusterMap::default()
        };
        let manager = Arc::new(Manager {
            map: Mutex::new(map),
            away: Mutex::default(),
            ignored: Mutex::default(),
            fades: Mutex::default(),
            used: Mutex::default(),
            thinks: Mutex::default(),
            given_up: Mutex::default(),
            needs: Mutex::default(),
            older: AtomicBool::default(),
            yielded: Mutex::default(),
            unheard: Mutex::default(),
            joined: Mutex::default(),
        });
        let (net, servers) = (Arc::<Net>::default(), Lives::default());
        servers.lock().resize_with(MEMBERS as usize + 1, || None);
        let client = view(0, &manager, &net, &servers).await;
        let dir = tempfile::tempdir().unwrap();
        let (seq, capacity, disks) = (Mutex::new(0), Mutex::default(), Mutex::default());
        let simulated = Mutex::default();
        let bench =
            Bench { dir, manager, net, servers, client, seq, group, capacity, disks, simulated };
        for id in all {
            std::fs::create_dir(bench.dir.path().join(id.to_string())).unwrap();
            bench.format(id);
            bench.start_member(id).await;
        }
        bench
    }

    fn disk(&self, id: u32) -> Arc<dyn Disk> {
        if let Some(disk) = self.simulated.lock().get(&id) {
            return disk.process();
        }
        Arc::new(RealDisk::new(&self.dir.path().join(id.to_string())).unwrap())
    }

    fn format(&self, id: u32) {
        let uuid = format!("{id:032x}");
        let identity = Identity { cluster: "0c".repeat(16), uuid, target: 0 };
        ChunkStore::format(&self.disk(id), &identity, &ChunkOptions::default()).unwrap();
    }

    /// Gives a member another disk, a simulated one.
    async fn simulate(&self, id: u32) -> SimDisk {
        self.lose(id);
        let disk = SimDisk::new(1, 1 << 30);
        self.simulated.lock().insert(id, disk.clone());
        self.format(id);
        self.start_member(id).await;
        self.manager.let_join(id);
        self.until_in_sync(&[1, 2, 3]).await;
        disk
    }

    async fn start_member(&self, id: u32) {
        let store = loop {
            // The life before may not have ended yet.
            let capacity_bytes = *self.capacity.lock();
            let options = ChunkOptions { capacity_bytes, ..ChunkOptions::default() };
            let disk = Arc::new(HeldDisk::new(self.disk(id)));
            self.disks.lock().insert(id, disk.clone());
            match ChunkStore::open(disk, options) {
                Ok(store) => break Arc::new(store),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let parts = (self.manager.clone(), self.net.clone(), self.servers.clone());
        let started = runtime.spawn(async move {
            let view = view(id, &parts.0, &parts.1, &parts.2).await;
            StorageServer::new(vec![(TargetId(id), store)], key(), view)
        });
        let server = Arc::new(started.await.unwrap());
        server.local(TargetId(id)).unwrap().watch.set_limits(Limits::PATIENT);
        server.lease().renew(SystemClock::default().monotonic(), 1_000_000_000);
        let beats = Arc::downgrade(&server);
        runtime.spawn(async move {
            while let Some(server) = beats.upgrade() {
                server.watch_disks();
                server.wake_replicas();
                drop(server);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        self.servers.lock()[id as usize] = Some(Life { server, runtime });
    }

    fn server(&self, id: u32) -> Arc<StorageServer> {
        self.servers.lock()[id as usize].as_ref().unwrap().server.clone()
    }

    fn kill(&self, id: u32) {
        let life = self.servers.lock()[id as usize].take();
        life.unwrap().runtime.shutdown_background();
    }

    /// A member dies, and no longer counts.
    fn lose(&self, id: u32) {
        self.kill(id);
        self.manager.take_out(id);
    }

    fn cut(&self, a: u32, b: u32) {
        self.net.cut.lock().extend([(a, b), (b, a)]);
    }

    fn request(&self, target: u32, op: StorageOp) -> StorageRequest {
        let capability = key().mint(&Capability {
            volume: VolumeId(1),
            ino: Ino(2),
            rights: Rights::READ_WRITE,
            session: SessionId(1),
            expires_unix_ms: u64::MAX,
        });
        let epoch = self.manager.map.lock().groups[0].epoch;
        StorageRequest {
            target,
            group: self.group.0,
            epoch,
            capability,
            op: Some(op),
            ..StorageRequest::default()
        }
    }

    fn attempt(&self) -> msg::Attempt {
        let mut seq = self.seq.lock();
        *seq += 1;
        msg::Attempt { client: 5, seq: *seq, settled: 1 }
    }

    async fn send(
        &self,
        request: StorageRequest,
        payload: Bytes,
    ) -> Result<(StorageAnswer, Bytes)> {
        let service = self.client.storage_of(TargetId(request.target)).unwrap();
        let (reply, payload) = service.call(request, payload).await?;
        Ok((reply.answer.unwrap(), payload))
    }

    /// A copy of the beginning of a chunk, as a target has it, to that of another one.
    fn copy_request(
        &self,
        at: u32,
        attempt: msg::Attempt,
        (from_target, from): (u32, u64),
        to: u64,
        len: u64,
    ) -> StorageRequest {
        let range = |index| msg::Range { chunk: chunk(index), offset: 0, len };
        let op = StorageOp::Copy(msg::Copy {
            to: range(to),
            from: range(from),
            from_target,
            from_capability: self.request(at, StorageOp::Extents(chunk(from))).capability,
            from_group: self.group.0,
        });
        StorageRequest { attempt: Some(attempt), ..self.request(at, op) }
    }

    /// A change by the client, whatever becomes of it.
    async fn change(&self, op: StorageOp, data: Bytes) -> Result<()> {
        let primary = self.manager.in_sync()[0];
        let request = StorageRequest { attempt: Some(self.attempt()), ..self.request(primary, op) };
        self.send(request, data).await.map(drop)
    }

    async fn write_to(
        &self,
        target: u32,
        attempt: msg::Attempt,
        block: u64,
        fill: u8,
    ) -> Result<()> {
        let data = Bytes::from(vec![fill; BLOCK]);
        let (chunk, offset) = (chunk(0), block * BLOCK as u64);
        let op = StorageOp::Write(msg::Write { chunk, offset, crc: crc32c(&data), durable: false });
        let request = StorageRequest { attempt: Some(attempt), ..self.request(target, op) };
        self.send(request, data).await.map(drop)
    }

    /// Makes a change of block 0 of which the primary reaches 2 but not 3: 2 has it, and nobody is told
    /// that it is made. Its attempt, and who waits for it.
    async fn half_made(self: &Arc<Self>) -> (msg::Attempt, tokio::task::JoinHandle<Result<()>>) {
        self.cut(1, 3);
        let attempt = self.attempt();
        let bench = self.clone();
        let half = tokio::spawn(async move { bench.write_to(1, attempt, 0, 2).await });
        self.until(async || self.read_from(2, 0).await.err()).await;
        (attempt, half)
    }

    /// Writes as a client does: to the primary, until it is done.
    async fn write(&self, block: u64, fill: u8) {
        let attempt = self.attempt();
        loop {
            let primary = self.manager.in_sync()[0];
            match self.write_to(primary, attempt, block, fill).await {
                Ok(()) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    async fn read_from(&self, target: u32, block: u64) -> Result<u8> {
        let (offset, len) = (block * BLOCK as u64, BLOCK as u64);
        let op = StorageOp::Read(msg::Read { chunk: chunk(0), offset, len });
        let (_, data) = self.send(self.request(target, op), Bytes::new()).await?;
        Ok(data.first().copied().unwrap_or(0))
    }

    /// What a member says of a block as soon as it knows what is settled.
    async fn read_settled(&self, target: u32, block: u64) -> Result<u8> {
        let unsettled = |read: &Result<u8>| {
            read.as_ref().is_err_and(|error| error.kind == ErrorKind::NotCurrent)
        };
        let read = async || Some(self.read_from(target, block).await).filter(|r| !unsettled(r));
        self.until(read).await
    }

    /// Reads from one member, as soon as it may answer.
    async fn read(&self, target: u32, block: u64) -> u8 {
        self.until(async || self.read_from(target, block).await.ok()).await
    }

    /// Finds this in a block at each of these members.
    async fn reads_at(&self, members: impl IntoIterator<Item = u32>, block: u64, fill: u8) {
        for member in members {
            assert_eq!(self.read(member, block).await, fill, "block {block} at {member}");
        }
    }

    /// Half a minute: what hangs is given up only after seconds, and machines are slow.
    async fn until<T>(&self, mut what: impl AsyncFnMut() -> Option<T>) -> T {
        for _ in 0..6_000 {
            match what().await {
                Some(value) => return value,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        panic!("in vain");
    }

    /// True if a member has said once that it answers nobody any more in an epoch.
    async fn has_resigned(&self, member: u32) -> bool {
        self.replica(member).await.state.lock().resigned.is_some()
    }

    async fn replica(&self, member: u32) -> Arc<Replica> {
        let server = self.server(member);
        let target = server.local(TargetId(member)).unwrap();
        server.replica(&target, self.group, 0).await.unwrap()
    }

    /// From now on a member waits for others for as long as they take to answer.
    async fn wait_long(&self, member: u32) {
        self.replica(member).await.waits_long.store(true, Ordering::Relaxed);
    }

    async fn until_in_sync(&self, members: &[u32]) {
        self.until(async || (self.manager.in_sync() == members).then_some(())).await;
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A store writes when it is closed: where a test has failed its disk may be held.
        self.disks.lock().values().for_each(|disk| disk.go_on());
        for life in self.servers.lock().drain(..).flatten() {
            life.runtime.shutdown_background();
        }
    }
}

async fn view(from: u32, manager: &Arc<Manager>, net: &Arc<Net>, servers: &Lives) -> Arc<MapView> {
    let callers = Callers::new(CallerOptions::default());
    for to in 1..=MEMBERS {
        let link = Link { from, to, net: net.clone(), servers: servers.clone() };
        let services = LocalServices { storage: Some(Arc::new(link)), ..LocalServices::default() };
        callers.register_local(ServerId(to), services);
    }
    let ear = Arc::new(Ear { of: from, manager: manager.clone() });
    MapView::connect(callers, ManagerSource::Local(ear), 1_000).await.unwrap()
}

fn chunk(index: u64) -> msg::Chunk {
    msg::Chunk { volume: 1, ino: 2, index }
}

/// Cuts the file.
fn cut_from(from_index: u64, last_chunk_len: Option<u64>) -> msg::Truncate {
    msg::Truncate { volume: 1, ino: 2, from_index, last_chunk_len, to_index: None }
}

#[tokio::test]
async fn what_is_acknowledged_is_at_all_members_and_any_of_them_answers() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.write(0, 2).await;
    bench.write(9, 3).await;
    for member in 1..=MEMBERS {
        assert_eq!((bench.read(member, 0).await, bench.read(member, 9).await), (2, 3));
    }
    let refused = bench.write_to(2, bench.attempt(), 0, 4).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::StaleMap, "not the primary");
}

#[tokio::test]
async fn a_lost_member_is_waited_for_until_it_is_taken_out_and_is_made_equal_when_it_returns() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.kill(3);
    let writer = tokio::spawn({
        let bench = bench.clone();
        async move { bench.write(0, 2).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!writer.is_finished(), "not everywhere");
    bench.manager.take_out(3);
    writer.await.unwrap();
    for block in 1..40 {
        bench.write(block, 7).await;
    }
    bench.start_member(3).await;
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    for block in 1..40 {
        assert_eq!(bench.read(3, block).await, 7);
    }
    assert_eq!(bench.read(3, 0).await, 2);
}

/// Each change waited for it for ten seconds, as for one that counts.
#[tokio::test]
async fn a_member_that_joins_and_takes_no_change_is_not_waited_for_and_joins_anew() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.manager.take_out(3);
    bench.write(0, 2).await;
    bench.wait_long(1).await;
    bench.net.silent.lock().insert(3);
    bench.manager.let_join(3);
    // Much sooner than the hour that it would wait for an answer.
    let written = tokio::time::timeout(Duration::from_secs(60), bench.write(0, 3));
    written.await.expect("it does not count yet");
    let joins = || !bench.manager.map.lock().groups[0].joining.is_empty();
    bench.until(async || (!joins()).then_some(())).await;
    assert_eq!(bench.manager.in_sync(), [1, 2], "it was reported as failed");
    bench.net.silent.lock().clear();
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    assert_eq!(bench.read(3, 0).await, 3);
}

#[tokio::test]
async fn a_member_that_is_not_in_sync_answers_nobody() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.manager.take_out(2);
    bench.write(0, 2).await;
    bench.until(async || bench.read_from(2, 0).await.err()).await;
    for _ in 0..50 {
        assert_eq!(bench.read_from(2, 0).await.unwrap_err().kind, ErrorKind::NotCurrent);
    }
}

#[tokio::test]
async fn a_half_made_change_is_seen_by_nobody_and_is_settled_by_the_next_primary() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.reads_at(1..=MEMBERS, 0, 1).await;
    let (attempt, half) = bench.half_made().await;
    assert_eq!(bench.read(3, 0).await, 1, "there the change never came");
    bench.lose(1);
    half.abort();
    let settled = bench.read(2, 0).await;
    assert_eq!(bench.read(3, 0).await, settled, "whatever it is, it is the same everywhere");
    assert_eq!(bench.read(2, 0).await, settled);
    // The client sends it again to the new primary, which has it already.
    bench.write(0, 3).await;
    bench.write_to(2, attempt, 0, 2).await.unwrap();
    assert_eq!(bench.read(2, 0).await, 3, "a change is made once");
}

#[tokio::test]
async fn a_change_that_an_unfinished_recovery_has_written_over_is_made_again() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let (attempt, half) = bench.half_made().await;
    bench.kill(1);
    // 3 is the next primary. It makes 2's copy equal to its own, and does not come to the end of that.
    bench.cut(2, 3);
    bench.manager.decide(|group| group.in_sync = vec![3, 2]);
    half.abort();
    let old = Bytes::from(vec![1; BLOCK]);
    let crc = crc32c(&old);
    let write = msg::Write { chunk: chunk(0), offset: 0, crc, durable: false };
    let mut over = bench.request(2, StorageOp::Write(write));
    let reign = over.epoch;
    over.forward = Some(msg::Forward { number: 1, settled: 0, reign });
    bench.server(2).call(over, old).await.unwrap();
    bench.kill(3);
    bench.manager.decide(|group| group.in_sync = vec![2]);
    assert_eq!(bench.read(2, 0).await, 1);
    bench.write_to(2, attempt, 0, 2).await.unwrap();
    assert_eq!(bench.read(2, 0).await, 2, "it was answered, so it is made");
}

#[tokio::test]
async fn a_primary_that_was_cut_off_acknowledges_nothing() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.cut(1, 2);
    bench.cut(1, 3);
    let old = bench.request(1, StorageOp::Sync(msg::FileRef { volume: 1, ino: 2 }));
    let attempt = bench.attempt();
    let lone = tokio::spawn({
        let bench = bench.clone();
        async move { bench.write_to(1, attempt, 0, 2).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    bench.manager.take_out(1);
    bench.write(0, 3).await;
    assert!(lone.await.unwrap().is_err());
    assert!(bench.send(old, Bytes::new()).await.is_err());
    assert_eq!((bench.read(2, 0).await, bench.read(3, 0).await), (3, 3));
    // It comes back with bytes that nobody else has.
    bench.net.cut.lock().clear();
    bench.manager.let_join(1);
    bench.until_in_sync(&[1, 2, 3]).await;
    assert_eq!(bench.read(1, 0).await, 3);
}

#[tokio::test]
async fn without_the_manager_members_grant_each_other_the_lease() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    assert_eq!(bench.read(2, 0).await, 1);
    *bench.manager.away.lock() = true;
    // New servers have no lease of the manager, and the epoch is still theirs.
    for id in 1..=MEMBERS {
        bench.server(id).lease().end();
    }
    assert_eq!((bench.read(1, 0).await, bench.read(2, 0).await), (1, 1));
    bench.cut(2, 3);
    tokio::time::sleep(super::follow::PROMISE).await;
    bench.until(async || bench.read_from(2, 0).await.err()).await;
    assert_eq!(bench.read_from(2, 0).await.unwrap_err().kind, ErrorKind::NotCurrent);
    assert_eq!(bench.read(1, 0).await, 1, "it reaches all");
}

/// Who had asked it for the lease waited for its answer, although the manager had given another one meanwhile.
#[tokio::test]
async fn a_reader_does_not_wait_for_a_silent_member_when_the_manager_is_back() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    assert_eq!(bench.read(2, 0).await, 1);
    bench.net.silent.lock().insert(3);
    for id in [1, 2] {
        bench.server(id).lease().end();
    }
    let reads = [1, 2].map(|id| {
        let bench = bench.clone();
        tokio::spawn(async move { bench.read_from(id, 0).await })
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(reads.iter().all(|read| !read.is_finished()), "nobody says that they may");
    for id in [1, 2] {
        let server = bench.server(id);
        server.lease().renew(server.lease().now(), 60_000);
        assert!(server.lease().holds());
    }
    for read in reads {
        // Much sooner than members are given up.
        let read = tokio::time::timeout(super::MEMBER_WAIT / 2, read).await;
        assert_eq!(read.unwrap().unwrap().unwrap(), 1);
    }
}

/// What it has read may be older than what others have read in an epoch of which it had not heard.
#[tokio::test]
async fn who_waits_for_a_lease_answers_only_in_the_epoch_in_which_it_has_read() {
    for id in [1, 2] {
        let bench = Arc::new(Bench::start().await);
        bench.write(0, 1).await;
        assert_eq!(bench.read(2, 0).await, 1);
        bench.net.silent.lock().insert(3);
        let server = bench.server(id);
        server.lease().end();
        let read = tokio::spawn({
            let bench = bench.clone();
            async move { bench.read_from(id, 0).await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!read.is_finished());
        bench.manager.take_out(3);
        server.map().refresh().await.unwrap();
        server.lease().renew(server.lease().now(), 60_000);
        let read = tokio::time::timeout(super::MEMBER_WAIT / 2, read).await;
        let error = read.unwrap().unwrap().unwrap_err();
        assert!(matches!(error.kind, ErrorKind::NotCurrent | ErrorKind::StaleMap), "{error}");
        assert_eq!(bench.read(id, 0).await, 1, "asked again, it does");
    }
}

/// A member is dead and the manager waits for three seconds until it takes it out; but somebody wants to read what is
/// under way to it.
#[tokio::test]
async fn the_manager_is_told_that_a_reader_waits_for_a_silent_member() {
    for members in [&[1, 2, 3][..], &[1, 2]] {
        let group = GroupId::of_class(members.len() as u32, 0);
        let bench = Arc::new(Bench::start_with(group, members).await);
        bench.write(0, 1).await;
        bench.kill(2);
        let attempt = bench.attempt();
        let written = tokio::spawn({
            let bench = bench.clone();
            async move { bench.write_to(1, attempt, 0, 2).await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!written.is_finished());
        *bench.manager.given_up.lock() = Some(2);
        assert_eq!(bench.read(1, 0).await, 2);
        written.await.unwrap().unwrap();
        assert!(bench.manager.given_up.lock().is_none());
    }
}

/// The primary is dead, and each of the others has something of it that they may not show.
#[tokio::test]
async fn the_manager_is_told_that_a_reader_waits_for_a_silent_primary() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    assert_eq!(bench.read(2, 0).await, 1, "it is told what is settled");
    bench.cut(1, 3);
    let attempt = bench.attempt();
    let lone = tokio::spawn({
        let bench = bench.clone();
        async move { bench.write_to(1, attempt, 0, 2).await }
    });
    bench.until(async || bench.read_from(2, 0).await.err()).await;
    bench.kill(1);
    assert!(lone.await.unwrap().is_err());
    *bench.manager.given_up.lock() = Some(1);
    assert_eq!(bench.read(2, 0).await, 2, "what it had is made everywhere");
    assert_eq!(bench.read(3, 0).await, 2);
}

#[tokio::test]
async fn a_cut_and_a_deleted_chunk_reach_the_member_that_was_away() {
    let bench = Bench::start().await;
    let wide = |index: u64, fill: u8| {
        let data = Bytes::from(vec![fill; 3 * BLOCK]);
        let op = StorageOp::Write(msg::Write {
            chunk: chunk(index),
            offset: 0,
            crc: crc32c(&data),
            durable: false,
        });
        (StorageRequest { attempt: Some(bench.attempt()), ..bench.request(1, op) }, data)
    };
    for index in 0..4 {
        let (request, data) = wide(index, 5);
        bench.send(request, data).await.unwrap();
    }
    bench.lose(3);
    let cut = cut_from(2, Some(100));
    bench
        .until(async || {
            bench.send(bench.request(1, StorageOp::Truncate(cut)), Bytes::new()).await.ok()
        })
        .await;
    bench.start_member(3).await;
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    let chunks = bench
        .until(async || {
            let op = StorageOp::Chunks(msg::ChunksOf { volume: 1, ino: 2, from: 0, max: 0 });
            bench.send(bench.request(3, op), Bytes::new()).await.ok()
        })
        .await;
    let StorageAnswer::Chunks(list) = chunks.0 else { panic!("{chunks:?}") };
    assert_eq!((list.indices, list.lens), (vec![0, 1], vec![3 * BLOCK as u64, 100]));
}

#[tokio::test]
async fn overlapping_changes_wait_for_each_other_in_order() {
    let ranges = Ranges::default();
    let area = |offset, len| Area::of_range(&msg::Range { chunk: chunk(3), offset, len });
    let first = ranges.take(area(0, 10), true).await;
    let reader = tokio::spawn({
        let ranges = ranges.clone();
        async move { drop(ranges.take(area(5, 1), false).await) }
    });
    drop(ranges.take(area(10, 5), true).await);
    tokio::task::yield_now().await;
    assert!(!reader.is_finished());
    drop(first);
    reader.await.unwrap();
    let readers = (ranges.take(area(0, 9), false).await, ranges.take(area(3, 9), false).await);
    let writer = ranges.clone();
    let writer = tokio::spawn(async move { drop(writer.take(area(4, 1), true).await) });
    tokio::task::yield_now().await;
    assert!(!writer.is_finished());
    drop(readers);
    writer.await.unwrap();
}

fn parts(indices: &[u64], offsets: &[u64], lens: &[u64]) -> msg::WriteMany {
    let (indices, offsets, lens) = (indices.to_vec(), offsets.to_vec(), lens.to_vec());
    let crcs = lens.iter().map(|_| 0).collect();
    msg::WriteMany { volume: 1, ino: 2, indices, offsets, lens, crcs }
}

#[test]
fn parts_in_any_order_overlap_with_what_has_a_byte_of_one_of_them() {
    let many = StorageOp::WriteMany(parts(&[3, 1, 1, 1], &[8, 30, 10, 15], &[4, 10, 10, 10]));
    let many = Area::checked(&many, 34).unwrap();
    let meets = |index, offset, len| {
        let area = Area::of_range(&msg::Range { chunk: chunk(index), offset, len });
        assert_eq!(area.overlaps(&many), many.overlaps(&area));
        many.overlaps(&area)
    };
    for (index, offset, len) in [(1, 10, 1), (1, 24, 1), (1, 39, 9), (3, 0, 9), (1, 0, 100)] {
        assert!(meets(index, offset, len), "{index} {offset}+{len}");
    }
    for (index, offset, len) in [(1, 0, 10), (1, 25, 5), (1, 40, 99), (2, 8, 9), (3, 12, 1)] {
        assert!(!meets(index, offset, len), "{index} {offset}+{len}");
    }
    assert!(many.in_blocks().overlaps(&many));
    assert_eq!(many.chunks().unwrap().len(), 2);
}

#[test]
fn an_area_says_which_bytes_of_a_chunk_it_touches() {
    let many = StorageOp::WriteMany(parts(&[3, 1, 1, 1], &[8, 30, 10, 15], &[4, 10, 10, 10]));
    let many = Area::checked(&many, 34).unwrap();
    assert_eq!(many.within(chunk(1).into()), [10..25, 30..40]);
    assert!(many.within(chunk(2).into()).is_empty());
    let third = 8..12;
    assert_eq!(many.within(chunk(3).into()), [third]);
    let whole = 0..CHUNK_BYTES_MAX;
    let file = Area::of_file(1, 2, 4);
    assert!(file.within(chunk(3).into()).is_empty());
    assert_eq!(file.within(chunk(5).into()), std::slice::from_ref(&whole));
    let one = Area::of_chunk(chunk(5).into());
    assert_eq!(one.within(chunk(5).into()), [whole]);
    assert!(one.within(msg::Chunk { ino: 3, ..chunk(5) }.into()).is_empty());
}

/// The chunks of a part that was said to be of 2^64 bytes were listed one by one: the primary ran out of memory.
#[tokio::test]
async fn parts_that_no_chunk_can_have_are_refused_and_the_group_goes_on() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    let endless = parts(&[0], &[0], &[u64::MAX]);
    let behind = parts(&[0], &[u64::MAX], &[2]);
    let uneven = parts(&[0, 1], &[0], &[1, 1]);
    let none = vec![0; 20_000];
    let countless = parts(&none, &none, &none);
    let short = parts(&[0], &[0], &[BLOCK as u64]);
    let refused = [
        (endless, ErrorKind::Invalid),
        (behind, ErrorKind::Invalid),
        (uneven, ErrorKind::Malformed),
        (countless, ErrorKind::Malformed),
        (short, ErrorKind::Malformed),
    ];
    for (many, kind) in refused {
        let answer = bench.change(StorageOp::WriteMany(many), Bytes::new()).await;
        assert_eq!(answer.unwrap_err().kind, kind);
    }
    let cut = cut_from(1, Some(u64::MAX));
    let answer = bench.change(StorageOp::Truncate(cut), Bytes::new()).await;
    assert_eq!(answer.unwrap_err().kind, ErrorKind::Invalid);
    bench.write(0, 2).await;
    bench.reads_at(1..=MEMBERS, 0, 2).await;
}

/// A member and the manager were lost together: each change stayed with its payload after its client had been told to
/// ask again, and the primary ran out of memory.
#[tokio::test]
async fn changes_that_nobody_waits_for_any_more_are_bounded() {
    const BYTES: usize = 8 << 20;
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.cut(1, 3);
    let (primary, data) = (bench.server(1), Bytes::from(vec![2; BYTES]));
    let write = async |index, attempt| {
        let write =
            msg::Write { chunk: chunk(index), offset: 0, crc: crc32c(&data), durable: false };
        let op = StorageOp::Write(write);
        let request = StorageRequest { attempt: Some(attempt), ..bench.request(1, op) };
        // Its client does not wait for long.
        let call = primary.call(request, data.clone());
        tokio::time::timeout(Duration::from_millis(100), call).await.ok().map(Result::err)
    };
    let mut answer = None;
    for index in 1..=40 {
        answer = write(index, bench.attempt()).await;
        if answer.is_some() {
            break;
        }
    }
    let refused = answer.expect("a bound").expect("that refuses");
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    assert!(refused.to_string().contains("have waited in vain"), "{refused}");
    assert_eq!(bench.read_from(1, 9).await.unwrap(), 0, "readers are not refused");
    bench.net.cut.lock().clear();
    bench.write(0, 3).await;
    assert_eq!(bench.read(3, 0).await, 3);
}

/// Its number was known to the primary alone, which had died: the next one copied again.
#[tokio::test]
async fn a_copy_is_not_done_again_by_the_next_primary_over_what_came_after_it() {
    copy_twice(GROUP).await;
}

/// The same, as the only copy moves.
#[tokio::test]
async fn a_copy_is_not_done_again_where_the_only_copy_has_moved_to() {
    copy_twice(GroupId::of_class(1, 0)).await;
}

/// Has the next primary of a group asked for a copy that the one before has made.
async fn copy_twice(group: GroupId) {
    let bench = Bench::start_with(group, &[1, 2, 3]).await;
    // All of what is copied is there, or the source ends before.
    for (index, from_len) in [(1, BLOCK as u64), (2, 2 * BLOCK as u64)] {
        let primary = bench.manager.in_sync()[0];
        bench.write(0, 1).await;
        let attempt = bench.attempt();
        let copy = async |at: u32| {
            let request = bench.copy_request(at, attempt, (at, 0), index, from_len);
            bench.send(request, Bytes::new()).await.map(drop)
        };
        copy(primary).await.unwrap();
        bench.lose(primary);
        let next = bench.manager.in_sync()[0];
        let later = Bytes::from(vec![9; BLOCK]);
        let crc = crc32c(&later);
        let write = msg::Write { chunk: chunk(index), offset: 0, crc, durable: false };
        let written = async || bench.change(StorageOp::Write(write), later.clone()).await.ok();
        bench.until(written).await;
        copy(next).await.unwrap();
        let read = msg::Read { chunk: chunk(index), offset: 0, len: BLOCK as u64 };
        let read = bench.request(next, StorageOp::Read(read));
        let (_, data) = bench.send(read, Bytes::new()).await.unwrap();
        assert_eq!(data, later, "chunk {index}");
    }
}

/// One writer per block writes 1, 2, 3, ...; readers ask any member. Members are killed, cut off from
/// each other, taken out and brought back, as a manager would, in an order that follows from a seed.
async fn storm(seed: u64, bench: Bench, happen: impl AsyncFn(&Bench, &mut SplitMix64)) {
    let bench = Arc::new(bench);
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged: Arc<[AtomicU64; 4]> = Arc::default();
    let seen: Arc<[AtomicU64; 4]> = Arc::default();
    let mut tasks = tokio::task::JoinSet::new();
    for block in 0..4 {
        let (bench, stop) = (bench.clone(), stop.clone());
        let acknowledged = acknowledged.clone();
        tasks.spawn(async move {
            for value in 1.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                bench.write_value(block, value).await;
                acknowledged[block as usize].store(value, Ordering::SeqCst);
            }
        });
    }
    for reader in 0..3 {
        let (bench, stop, mut random) =
            (bench.clone(), stop.clone(), SplitMix64::new(seed + reader));
        let (acknowledged, seen) = (acknowledged.clone(), seen.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let (member, block) = (random.below(3) as u32 + 1, random.below(4));
                let at = block as usize;
                let least =
                    acknowledged[at].load(Ordering::SeqCst).max(seen[at].load(Ordering::SeqCst));
                match bench.read_value(member, block).await {
                    Ok(value) => {
                        assert!(value >= least, "seed {seed}: {value} after {least} at {member}");
                        seen[at].fetch_max(value, Ordering::SeqCst);
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
    }
    let mut random = SplitMix64::new(seed);
    for _ in 0..12 {
        happen(&bench, &mut random).await;
    }
    assert!(bench.bring_back(4_000).await, "seed {seed}: not all are in sync again");
    stop.store(true, Ordering::SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    for block in 0..4 {
        let value = acknowledged[block as usize].load(Ordering::SeqCst);
        assert!(value > 0, "seed {seed}: nothing was written");
        for member in bench.manager.members() {
            let read = bench.until(async || bench.read_value(member, block).await.ok()).await;
            assert_eq!(read, value, "seed {seed}: block {block} at member {member}");
        }
    }
}

impl Bench {
    async fn write_value(&self, block: u64, value: u64) {
        let attempt = self.attempt();
        let mut data = vec![0; BLOCK];
        data[..8].copy_from_slice(&value.to_le_bytes());
        let data = Bytes::from(data);
        let (chunk, offset) = (chunk(block), block * BLOCK as u64);
        let op = StorageOp::Write(msg::Write { chunk, offset, crc: crc32c(&data), durable: false });
        loop {
            let primary = self.manager.in_sync()[0];
            let request = self.request(primary, op.clone());
            let request = StorageRequest { attempt: Some(attempt), ..request };
            match self.send(request, data.clone()).await {
                Ok(_) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    async fn read_value(&self, target: u32, block: u64) -> Result<u64> {
        let (offset, len) = (block * BLOCK as u64, BLOCK as u64);
        let op = StorageOp::Read(msg::Read { chunk: chunk(block), offset, len });
        let (_, data) = self.send(self.request(target, op), Bytes::new()).await?;
        Ok(data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// Something happens to a member that is in sync, and the manager does what it must.
    async fn misfortune(&self, random: &mut SplitMix64) {
        let pause =
            |random: &mut SplitMix64| tokio::time::sleep(Duration::from_millis(random.below(60)));
        pause(random).await;
        let in_sync = self.manager.in_sync();
        let victim = in_sync[random.below(in_sync.len() as u64) as usize];
        let alone = in_sync.len() == 1;
        match random.below(4) {
            3 if in_sync.len() > 1 => {
                self.rot(victim, random.below(4));
                for block in 0..4 {
                    // It may be away: then its return or the next reader sees to it.
                    let _ended = self.repair(block).await;
                }
            }
            0 => {
                self.kill(victim);
                pause(random).await;
                if !alone {
                    self.manager.take_out(victim);
                }
                pause(random).await;
                self.start_member(victim).await;
                match alone {
                    // It alone was in sync, and still is: a new epoch for its new life.
                    true => self.manager.decide(|group| group.in_sync = vec![victim]),
                    false => self.manager.let_join(victim),
                }
            }
            1 if !alone => {
                let other = victim % MEMBERS + 1;
                self.cut(victim, other);
                pause(random).await;
                // Its lease is over before it is taken out, and it has the new map before it gets
                // another.
                let server = self.server(victim);
                server.lease().end();
                self.manager.take_out(victim);
                pause(random).await;
                self.net.cut.lock().clear();
                server.map().refresh().await.unwrap();
                server.lease().renew(SystemClock::default().monotonic(), 1_000_000_000);
                drop(server);
                self.manager.let_join(victim);
            }
            _ => {
                // A hiccup that the manager never hears of.
                let other = victim % MEMBERS + 1;
                self.cut(victim, other);
                pause(random).await;
                self.net.cut.lock().clear();
            }
        }
        let patience = random.below(200);
        self.bring_back(patience).await;
    }

    /// Lets who is out join, again if it fails, until all are in sync or the patience is over.
    async fn bring_back(&self, patience: u64) -> bool {
        for _ in 0..patience {
            let group = self.manager.map.lock().groups[0].clone();
            let is_out = |m: &u32| !group.in_sync.contains(m) && !group.joining.contains(m);
            match group.members.iter().copied().find(is_out) {
                Some(member) => self.manager.let_join(member),
                None if group.joining.is_empty() && group.leaving.is_empty() => return true,
                None => {}
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_no_read_goes_back_whatever_happens_to_members() {
    for seed in seeds() {
        let storm = storm(seed, Bench::start().await, Bench::misfortune);
        let over = tokio::time::timeout(Duration::from_secs(60), storm).await;
        over.unwrap_or_else(|_| panic!("seed {seed}: it does not end"));
    }
}

/// The seed that is asked for, or a few new ones.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("STRAKE_STORM_SEED").ok().and_then(|seed| seed.parse().ok());
    let random = std::collections::hash_map::RandomState::new();
    let first = std::hash::BuildHasher::hash_one(&random, 0) >> 32;
    given.map_or(first..first + 2, |seed: u64| seed..seed + 1)
}

mod safety;
