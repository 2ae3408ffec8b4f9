//! Calls that can be decoded and make no sense: every service answers them, most often with an error,
//! and goes on. The arguments are random; files, targets and rights are those there are, so that the
//! numbers get as far as they can.

use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use strake_client::VolumeOptions;
use strake_engine::kv::memory::MemoryKv;
use strake_tests::decoders::{manager_requests, meta_requests, storage_requests};
use strake_tests::local::{LocalCluster, Names};
use strake_types::{Ino, SessionId, TargetId, VolumeId};
use strake_wire::capability::{Capability, Rights};
use strake_wire::frame::crc32c;
use strake_wire::member::ManagerOfMap;
use strake_wire::message::common::{AttrChange, Cred};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp, MetaReply, MetaRequest, NameChange};
use strake_wire::message::storage::{self, Chunk, StorageAnswer, StorageOp, StorageRequest};
use strake_wire::service::{ManagerService, MetaService, StorageService};

/// Rounds, each with every operation.
const ROUNDS: u64 = 1000;
/// Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The volume `main`.
const VOLUME: u32 = 1;

/// Carries out a call; a panic or a hang fails the test with the request.
async fn answered<T: Send + 'static>(
    request: &impl std::fmt::Debug,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    match tokio::time::timeout(PATIENCE, tokio::spawn(call)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => panic!("{error} over {request:?}"),
        Err(_) => panic!("no answer to {request:?}"),
    }
}

async fn cluster() -> LocalCluster {
    LocalCluster::start(Names::Memory(MemoryKv::new()), 1 << 20).await
}

/// Picks by a number.
fn of<T: Clone>(all: &[T], number: u64) -> T {
    all[(number % all.len() as u64) as usize].clone()
}

/// What is there to be meant: directories and files, and the names of some.
struct Known {
    inos: Vec<u64>,
    names: Vec<Bytes>,
}

impl Known {
    fn name(&self, name: &mut meta::Name) {
        let number = name.parent.wrapping_add(name.name.len() as u64);
        name.parent = of(&self.inos, number / 5);
        // Others are made on the way.
        if !number.is_multiple_of(4) {
            name.name = of(&self.names, number);
        }
    }

    fn ino(&self, ino: &mut u64) {
        *ino = of(&self.inos, *ino);
    }

    fn aim(&self, op: &mut MetaOp) {
        use MetaOp::*;
        match op {
            OpenSession(_) | RenewSession(_) | CloseSession(_) | VolumeStat(_) | Recalls(_)
            | ListClients(_) | EvictClient(_) | Borrow(_) | GiveBack(_) => {}
            Lookup(name) => self.name(name),
            GetAttr(v) => self.ino(&mut v.ino),
            ReadLink(v) | MoveOut(v) | ListXattr(v) | Sync(v) | GetTemplate(v) | ReadInline(v)
            | Describe(v) | Settle(v) => self.ino(&mut v.ino),
            SetAttr(v) => self.ino(&mut v.ino),
            Told(v) => self.ino(&mut v.ino),
            Claim(v) => self.ino(&mut v.ino),
            Create(v) => {
                self.name(&mut v.at);
                v.kind = 1 + v.kind % 8;
            }
            Link(v) => {
                self.ino(&mut v.ino);
                self.name(&mut v.to);
            }
            Unlink(v) => self.name(&mut v.at),
            Rename(v) => {
                self.name(&mut v.from);
                self.name(&mut v.to);
            }
            Open(v) => self.ino(&mut v.ino),
            ReadDir(v) => self.ino(&mut v.ino),
            Publish(v) => self.ino(&mut v.ino),
            WriteInline(v) => self.ino(&mut v.ino),
            GetXattr(v) | SetXattr(v) | RemoveXattr(v) => self.ino(&mut v.ino),
            SetLock(v) | GetLock(v) => {
                self.ino(&mut v.ino);
                v.kind %= 4;
                v.wait_ms = 0;
            }
            SetTemplate(v) => self.ino(&mut v.ino),
            Check(v) => v.lost_found = 0,
            Behind(v) => {
                for change in &mut v.changes {
                    self.ino(&mut change.ino);
                    match &mut change.change {
                        Some(NameChange::Unlink(v)) => self.name(&mut v.at),
                        Some(NameChange::Rename(v)) => {
                            self.name(&mut v.from);
                            self.name(&mut v.to);
                        }
                        None => {}
                    }
                }
            }
        }
    }

    /// Learns the files that an answer shows.
    fn learn(&mut self, reply: MetaReply) {
        let attr = match reply.answer {
            Some(MetaAnswer::Entry(attr)) => attr,
            Some(MetaAnswer::Created(created)) => created.attr,
            _ => return,
        };
        if !self.inos.contains(&attr.ino) && self.inos.len() < 40 {
            self.inos.push(attr.ino);
        }
    }
}

async fn session(meta: &Arc<dyn MetaService>) -> u64 {
    let op = Some(MetaOp::OpenSession(meta::OpenSession::default()));
    let request = MetaRequest { volume: VOLUME, op, ..MetaRequest::default() };
    match meta.call(request).await.unwrap().answer {
        Some(MetaAnswer::Session(session)) => session.session,
        other => panic!("{other:?}"),
    }
}

/// Closes a session, unless nonsense has: who answers no recall is waited for.
async fn close(meta: &Arc<dyn MetaService>, session: u64) {
    let op = Some(MetaOp::CloseSession(meta::Nothing::default()));
    let request = MetaRequest { volume: VOLUME, session, op, ..MetaRequest::default() };
    let _closed_before = meta.call(request).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_about_names_and_attributes_is_answered() {
    let cluster = cluster().await;
    let meta = cluster.view().meta_for(VolumeId(VOLUME)).unwrap();
    let names = ["file", "directory", "link", ".", "..", "node"].map(Bytes::from).into();
    let mut known = Known { inos: vec![Ino::ROOT.0], names };
    let (mut good, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let session = session(&meta).await;
        for mut request in meta_requests(seed) {
            (request.volume, request.session, request.seq) = (VOLUME, session, 0);
            if !seed.is_multiple_of(5) {
                request.incarnation = 0;
            }
            if !seed.is_multiple_of(3) {
                request.cred = Cred::default();
            }
            let mut op = request.op.take().unwrap();
            known.aim(&mut op);
            let ends = matches!(op, MetaOp::CloseSession(_));
            request.op = Some(op);
            // With its session closed, nothing after it would get far.
            if ends && !seed.is_multiple_of(10) {
                continue;
            }
            let (meta, call) = (Arc::clone(&meta), request.clone());
            match answered(&request, async move { meta.call(call).await }).await {
                Ok(reply) => {
                    good += 1;
                    known.learn(reply);
                }
                Err(_) => refused += 1,
            }
        }
        close(&meta, session).await;
    }
    println!("{good} carried out, {refused} refused, {} files known", known.inos.len());
    assert!(good > ROUNDS && refused > ROUNDS);
    let change = AttrChange { mode: Some(0o755), ..AttrChange::default() };
    let ino = Ino::ROOT.0;
    let op = MetaOp::SetAttr(meta::SetAttr { ino, change, writable_handle: false });
    let session = session(&meta).await;
    let request = MetaRequest { volume: VOLUME, session, op: Some(op), ..MetaRequest::default() };
    meta.call(request).await.unwrap();
    assert!(cluster.volume(VolumeOptions::default()).await.close().await.is_ok());
}

fn aim_chunk(chunk: &mut Chunk) {
    *chunk = Chunk { volume: VOLUME, ino: 2 + chunk.ino % 3, index: chunk.index % 4 };
}

fn aim_file(volume: &mut u32, ino: &mut u64) {
    (*volume, *ino) = (VOLUME, 2 + *ino % 3);
}

/// A payload that fits what is written, most often.
fn aim(op: &mut StorageOp, targets: &[u32]) -> Bytes {
    use StorageOp::*;
    match op {
        Read(v) => aim_chunk(&mut v.chunk),
        Write(v) => {
            aim_chunk(&mut v.chunk);
            let payload = Bytes::from(vec![v.crc as u8; v.offset as usize % 70_000]);
            v.crc = crc32c(&payload);
            return payload;
        }
        WriteMany(v) => {
            aim_file(&mut v.volume, &mut v.ino);
            let payload = Bytes::from(vec![7; v.lens.len() * 5_000]);
            if v.ino != 2 {
                let count = v.lens.len();
                v.lens = vec![5_000; count];
                v.indices.resize(count, 3);
                v.offsets.resize(count, 4_000);
                v.crcs = vec![crc32c(&payload[..5_000.min(payload.len())]); count];
            }
            return payload;
        }
        Truncate(v) => aim_file(&mut v.volume, &mut v.ino),
        Punch(v) | Allocate(v) | Damage(v) => aim_chunk(&mut v.chunk),
        Lose(v) => {
            aim_chunk(&mut v.chunk);
            // What is lost on purpose would be found, and counted as damage below.
            v.blocks.clear();
        }
        Repair(v) => aim_chunk(&mut v.chunk),
        Copy(v) => {
            aim_chunk(&mut v.to.chunk);
            aim_chunk(&mut v.from.chunk);
            v.from_target = of(targets, u64::from(v.from_target));
        }
        Extents(chunk) => aim_chunk(chunk),
        Sync(v) => aim_file(&mut v.volume, &mut v.ino),
        Chunks(v) => aim_file(&mut v.volume, &mut v.ino),
        Sums(chunk) => aim_chunk(chunk),
        Cut(v) => aim_chunk(&mut v.chunk),
        Stat(_) | Scrub(_) | Adopt(_) | Settle(_) | Digests(_) | Promise(_) | Remember(_)
        | Compare(_) | Census(_) | AddTarget(_) => {}
        DropVolume(v) => v.volume = VOLUME,
    }
    Bytes::new()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_about_contents_is_answered() {
    let cluster = cluster().await;
    let view = cluster.view();
    let targets: Vec<u32> = view.current().targets.iter().map(|t| t.id).collect();
    let storage: Arc<dyn StorageService> = view.storage_of(TargetId(targets[0])).unwrap();
    let everything = Capability {
        volume: VolumeId(VOLUME),
        ino: Ino(0),
        rights: Rights::READ_WRITE,
        session: SessionId(0),
        expires_unix_ms: u64::MAX,
    };
    let capability = cluster.capability_key().mint(&everything);
    let (mut good, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        for mut request in storage_requests(seed) {
            request.target = of(&targets, seed);
            request.capability = capability.clone();
            if seed % 4 != 0 {
                (request.group, request.forward, request.epoch) = (request.group % 4, None, 0);
            }
            // What is fenced later than anybody knows is refused whatever it is.
            if !seed.is_multiple_of(7) {
                request.fenced = 0;
            }
            let payload = match &mut request.op {
                Some(StorageOp::Copy(copy)) => {
                    copy.from_capability = capability.clone();
                    aim(request.op.as_mut().unwrap(), &targets)
                }
                Some(StorageOp::DropVolume(_)) if seed % 20 != 0 => continue,
                op => aim(op.as_mut().unwrap(), &targets),
            };
            let (storage, call) = (Arc::clone(&storage), request.clone());
            let answer = answered(&request, async move { storage.call(call, payload).await });
            match answer.await {
                Ok(_) => good += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{good} carried out, {refused} refused");
    assert!(good > ROUNDS && refused > ROUNDS);
    for target in targets {
        let op = Some(StorageOp::Stat(storage::TargetStatRequest {}));
        let request = StorageRequest { target, op, ..StorageRequest::default() };
        let (reply, _) = storage.call(request, Bytes::new()).await.unwrap();
        let Some(StorageAnswer::Stat(stat)) = reply.answer else { panic!("{reply:?}") };
        assert_eq!((stat.poisoned.as_str(), stat.corrupt), ("", 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_about_the_cluster_is_answered() {
    let cluster = cluster().await;
    let manager: Arc<dyn ManagerService> = Arc::new(ManagerOfMap(cluster.view()));
    let (mut good, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        for request in manager_requests(seed) {
            let (manager, call) = (Arc::clone(&manager), request.clone());
            match answered(&request, async move { manager.call(call).await }).await {
                Ok(_) => good += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{good} carried out, {refused} refused");
    assert!(good > ROUNDS && refused > ROUNDS);
    assert!(cluster.view().refresh().await.is_ok());
}
