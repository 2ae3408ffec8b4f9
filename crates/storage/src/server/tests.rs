mod adding;
mod cut;
mod hung;
mod turns;
mod walks;

use super::*;
use std::time::Duration;
use strake_base::disk::{Disk, RealDisk};
use strake_engine::chunk::{ChunkOptions, Identity};
use strake_types::{Ino, SessionId};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::capability::{Capability, Rights};
use strake_wire::message::manager::{ClusterMap, Group, Server, Target as MapTarget};
use strake_wire::server::{Identity as WireIdentity, Listener, Services, serve};
use tokio::sync::watch;

const VOLUME: u32 = 1;
const INO: u64 = 77;
const NOW: Duration = Duration::from_secs(1_000);

struct FixedClock;

impl Clock for FixedClock {
    fn monotonic(&self) -> Duration {
        NOW
    }

    fn wall(&self) -> Duration {
        NOW
    }
}

fn key() -> CapabilityKey {
    CapabilityKey::new([3; 32])
}

fn capability(rights: Rights) -> Capability {
    Capability {
        volume: VolumeId(VOLUME),
        ino: Ino(INO),
        rights,
        session: SessionId(1),
        expires_unix_ms: NOW.as_millis() as u64 + 1,
    }
}

fn chunk(index: u64) -> msg::Chunk {
    msg::Chunk { volume: VOLUME, ino: INO, index }
}

fn crc(data: &[u8]) -> u32 {
    strake_wire::frame::crc32c(data)
}

fn store(dir: &tempfile::TempDir, name: &str) -> Arc<ChunkStore> {
    store_on(Arc::new(RealDisk::new(&dir.path().join(name)).unwrap()), name)
}

/// What asks for at most so many chunks of the file, from an index on.
fn chunks_from(from: u64, max: u32) -> msg::ChunksOf {
    msg::ChunksOf { volume: VOLUME, ino: INO, from, max }
}

/// Cuts the file.
fn cut_from(from_index: u64, last_chunk_len: Option<u64>) -> msg::Truncate {
    msg::Truncate { volume: VOLUME, ino: INO, from_index, last_chunk_len, to_index: None }
}

fn store_on(disk: Arc<dyn Disk>, name: &str) -> Arc<ChunkStore> {
    let identity = Identity { cluster: "0c".repeat(16), uuid: name.repeat(32), target: 0 };
    let options = ChunkOptions::default();
    ChunkStore::format(&disk, &identity, &options).unwrap();
    Arc::new(ChunkStore::open(disk, options).unwrap())
}

/// Two servers over loopback: server 1 with targets 1 and 2, server 2 with target 3.
struct Cluster {
    map: Arc<MapView>,
    /// What each server knows of the cluster.
    views: Vec<Arc<MapView>>,
    _stop: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["1", "2", "3"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let listeners = [
            Listener::bind("127.0.0.1:0").await.unwrap(),
            Listener::bind("127.0.0.1:0").await.unwrap(),
        ];
        let server = |id: u32| {
            let address = listeners[id as usize - 1].address();
            Server { id, address, up: true, name: format!("s{id}"), ..Server::default() }
        };
        let group = |id| Group { id: id - 1, epoch: 1, members: vec![id], ..Group::default() };
        let target = |id, server| MapTarget { id, server, up: true, ..MapTarget::default() };
        let map = ClusterMap {
            cluster: "c".into(),
            epoch: 1,
            servers: vec![server(1), server(2)],
            targets: vec![target(1, 1), target(2, 1), target(3, 2)],
            groups: (1..=3).map(group).collect(),
            ..ClusterMap::default()
        };
        let view = || MapView::fixed(Callers::new(CallerOptions::default()), map.clone());
        let (stop, stopped) = watch::channel(false);
        let own = [vec![(1, "1"), (2, "2")], vec![(3, "3")]];
        let views = vec![view(), view()];
        for ((listener, targets), view) in listeners.into_iter().zip(own).zip(&views) {
            let stores = targets.iter().map(|(id, name)| (TargetId(*id), store(&dir, name)));
            let clock = Arc::new(FixedClock);
            let storage = StorageServer::with_clock(stores.collect(), key(), view.clone(), clock);
            let services = Services { storage: Some(Arc::new(storage)), ..Services::default() };
            let identity = WireIdentity { cluster: "c".into(), name: "test".into() };
            tokio::spawn(serve(listener, services, identity, stopped.clone()));
        }
        Self { map: view(), views, _stop: stop, _dir: dir }
    }

    async fn call_as(
        &self,
        encoded: Bytes,
        target: u32,
        op: StorageOp,
        payload: Bytes,
    ) -> Result<(StorageAnswer, Bytes)> {
        let service = self.map.storage_of(TargetId(target)).unwrap();
        let request = StorageRequest {
            target,
            group: target - 1,
            capability: encoded,
            op: Some(op),
            ..StorageRequest::default()
        };
        let (reply, payload) = service.call(request, payload).await?;
        Ok((reply.answer.unwrap(), payload))
    }

    async fn call(&self, target: u32, op: StorageOp, payload: Bytes) -> (StorageAnswer, Bytes) {
        let encoded = key().mint(&capability(Rights::READ_WRITE));
        self.call_as(encoded, target, op, payload).await.unwrap()
    }

    async fn write(&self, target: u32, index: u64, offset: u64, data: &Bytes) {
        let write = msg::Write { chunk: chunk(index), offset, crc: crc(data), durable: false };
        self.call(target, StorageOp::Write(write), data.clone()).await;
    }

    async fn read(&self, target: u32, index: u64, offset: u64, len: u64) -> Bytes {
        let read = msg::Read { chunk: chunk(index), offset, len };
        let (answer, data) = self.call(target, StorageOp::Read(read), Bytes::new()).await;
        assert_eq!(answer, StorageAnswer::Data(msg::Data { crc: crc(&data) }));
        data
    }
}

fn bytes(seed: u8, len: usize) -> Bytes {
    (0..len).map(|i| (i / 97) as u8 ^ (i as u8) ^ seed).collect()
}

#[tokio::test]
async fn what_is_written_is_read_back_whatever_its_size() {
    let cluster = Cluster::start().await;
    for (index, len) in [1usize, 4096, 100_000, 1 << 20, 8 << 20].into_iter().enumerate() {
        let data = bytes(index as u8, len);
        cluster.write(1, index as u64, 0, &data).await;
        assert!(cluster.read(1, index as u64, 0, len as u64).await == data);
        let tail = cluster.read(1, index as u64, len as u64 / 2, 8 << 20).await;
        assert!(tail == data.slice(len / 2..));
    }
    assert!(cluster.read(1, 99, 0, 4096).await.is_empty());
}

#[tokio::test]
async fn parts_are_written_to_their_chunks_and_must_fit_their_payload() {
    let cluster = Cluster::start().await;
    let (a, b) = (bytes(1, 4_096), bytes(2, 500));
    let many = msg::WriteMany {
        volume: VOLUME,
        ino: INO,
        indices: vec![7, 3],
        offsets: vec![10, 20_000],
        lens: vec![4_096, 500],
        crcs: vec![crc(&a), crc(&b)],
    };
    let payload = Bytes::from([&a[..], &b[..]].concat());
    cluster.call(1, StorageOp::WriteMany(many.clone()), payload.clone()).await;
    assert_eq!(cluster.read(1, 7, 10, 4_096).await, a);
    assert_eq!(cluster.read(1, 3, 20_000, 500).await, b);
    let short = msg::WriteMany { lens: vec![4_096, 499], ..many.clone() };
    let long = msg::WriteMany { lens: vec![4_096, 501], ..many.clone() };
    let uneven = msg::WriteMany { crcs: vec![crc(&a)], ..many.clone() };
    let garbled = msg::WriteMany { crcs: vec![crc(&a), 0], ..many };
    let expected =
        [ErrorKind::Malformed, ErrorKind::Malformed, ErrorKind::Malformed, ErrorKind::Garbled];
    for (bad, kind) in [short, long, uneven, garbled].into_iter().zip(expected) {
        let right = key().mint(&capability(Rights::READ_WRITE));
        let answer = cluster.call_as(right, 1, StorageOp::WriteMany(bad), payload.clone()).await;
        assert_eq!(answer.unwrap_err().kind, kind);
    }
}

#[tokio::test]
async fn what_changes_contents_and_what_syncs_them_names_the_boot() {
    let cluster = Cluster::start().await;
    let data = bytes(1, 4_096);
    let range = msg::Range { chunk: chunk(0), offset: 0, len: 4_096 };
    let many = msg::WriteMany {
        volume: VOLUME,
        ino: INO,
        indices: vec![0],
        offsets: vec![0],
        lens: vec![4_096],
        crcs: vec![crc(&data)],
    };
    let copy = msg::Copy {
        to: msg::Range { chunk: chunk(1), ..range },
        from: range,
        from_target: 1,
        from_capability: key().mint(&capability(Rights::READ)),
        from_group: 0,
    };
    let cut = cut_from(1, None);
    let ops = [
        (
            StorageOp::Write(msg::Write {
                chunk: chunk(0),
                offset: 0,
                crc: crc(&data),
                durable: false,
            }),
            data.clone(),
        ),
        (StorageOp::WriteMany(many), data),
        (StorageOp::Copy(copy), Bytes::new()),
        (StorageOp::Punch(range), Bytes::new()),
        (StorageOp::Allocate(range), Bytes::new()),
        (StorageOp::Truncate(cut), Bytes::new()),
        (StorageOp::Sync(msg::FileRef { volume: VOLUME, ino: INO }), Bytes::new()),
    ];
    let mut boots = Vec::new();
    for (op, payload) in ops {
        let (answer, _) = cluster.call(1, op, payload).await;
        let StorageAnswer::Done(msg::Done { boot, .. }) = answer else { panic!("{answer:?}") };
        boots.push(boot);
    }
    assert!(boots[0] != 0 && boots.iter().all(|boot| *boot == boots[0]), "{boots:?}");
}

#[tokio::test]
async fn a_write_says_that_it_is_durable_where_that_was_asked_for() {
    let cluster = Cluster::start().await;
    let data = bytes(1, 4_096);
    for durable in [false, true] {
        let write = msg::Write { chunk: chunk(0), offset: 0, crc: crc(&data), durable };
        let (answer, _) = cluster.call(1, StorageOp::Write(write), data.clone()).await;
        let StorageAnswer::Done(done) = answer else { panic!("{answer:?}") };
        assert_eq!((done.durable, done.boot != 0), (durable, true));
    }
}

/// Earlier releases took such lengths: as the cut was refused, nobody could open the file any more.
#[tokio::test]
async fn a_cut_in_a_chunk_that_cannot_be_cuts_nothing() {
    let cluster = Cluster::start().await;
    let data = bytes(5, 4_096);
    cluster.write(1, 0, 0, &data).await;
    let cut = cut_from((1 << 40) + 1, Some(1));
    cluster.call(1, StorageOp::Truncate(cut), Bytes::new()).await;
    assert!(cluster.read(1, 0, 0, 4_096).await == data);
}

#[tokio::test]
async fn a_file_is_cut_punched_listed_and_dropped() {
    let cluster = Cluster::start().await;
    let data = bytes(5, 1 << 20);
    for index in 0..4 {
        cluster.write(1, index, 0, &data).await;
    }
    let cut = cut_from(2, Some(100));
    cluster.call(1, StorageOp::Truncate(cut), Bytes::new()).await;
    let file = msg::FileRef { volume: VOLUME, ino: INO };
    let listed = async |from, max| {
        let op = StorageOp::Chunks(chunks_from(from, max));
        match cluster.call(1, op, Bytes::new()).await.0 {
            StorageAnswer::Chunks(list) => (list.indices, list.lens, list.next),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(listed(0, 0).await, (vec![0, 1], vec![1 << 20, 100], None));
    assert_eq!(listed(0, 1).await, (vec![0], vec![1 << 20], Some(1)));
    assert_eq!(listed(1, 1).await, (vec![1], vec![100], Some(2)));
    // Those that were deleted are passed over.
    assert_eq!(listed(2, 0).await, (vec![], vec![], None));
    assert!(listed(2, 1).await.0.is_empty());
    let hole = msg::Range { chunk: chunk(0), offset: 0, len: 1 << 19 };
    cluster.call(1, StorageOp::Punch(hole), Bytes::new()).await;
    assert!(cluster.read(1, 0, 0, 1 << 19).await.iter().all(|&b| b == 0));
    assert!(cluster.read(1, 0, 1 << 19, 1 << 19).await == data.slice(1 << 19..));
    cluster.call(1, StorageOp::Sync(file), Bytes::new()).await;
    let stat = StorageOp::Stat(msg::TargetStatRequest {});
    let (answer, _) = cluster.call(1, stat.clone(), Bytes::new()).await;
    let StorageAnswer::Stat(stat) = answer else { panic!("{answer:?}") };
    assert_eq!((stat.chunks, stat.poisoned.as_str()), (2, ""));
    let all = key().mint(&Capability { ino: Ino(0), ..capability(Rights::WRITE) });
    let whole = StorageOp::DropVolume(msg::FileRef { volume: VOLUME, ino: 0 });
    cluster.call_as(all, 1, whole, Bytes::new()).await.unwrap();
    assert!(cluster.read(1, 0, 0, 4096).await.is_empty());
}

#[tokio::test]
async fn a_range_is_copied_within_a_target_between_targets_and_between_servers() {
    let cluster = Cluster::start().await;
    let data = bytes(9, 6 << 20);
    cluster.write(1, 0, 0, &data).await;
    for (nth, to) in [1u32, 2, 3].into_iter().enumerate() {
        let index = 10 + nth as u64;
        // What was there before must not show through where the source has ended.
        cluster.write(to, index, 0, &bytes(1, 8 << 20)).await;
        let len = 8 << 20;
        let request = msg::Copy {
            to: msg::Range { chunk: chunk(index), offset: 0, len },
            from: msg::Range { chunk: chunk(0), offset: 4096, len },
            from_target: 1,
            from_capability: key().mint(&capability(Rights::READ)),
            from_group: 0,
        };
        cluster.call(to, StorageOp::Copy(request), Bytes::new()).await;
        let copied = cluster.read(to, index, 0, len).await;
        let (head, rest) = copied.split_at((6 << 20) - 4096);
        assert!(head == &data[4096..], "to target {to}");
        assert!(rest.iter().all(|&b| b == 0), "to target {to}");
    }
}

#[tokio::test]
async fn a_copy_needs_the_right_to_read_its_source() {
    let cluster = Cluster::start().await;
    cluster.write(1, 0, 0, &bytes(9, 4096)).await;
    for to in [1, 2, 3] {
        let request = msg::Copy {
            to: msg::Range { chunk: chunk(1), offset: 0, len: 4096 },
            from: msg::Range { chunk: chunk(0), offset: 0, len: 4096 },
            from_target: 1,
            from_capability: key().mint(&capability(Rights::WRITE)),
            from_group: 0,
        };
        let encoded = key().mint(&capability(Rights::READ_WRITE));
        let op = StorageOp::Copy(request);
        let refused = cluster.call_as(encoded, to, op, Bytes::new()).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::BadCapability, "to target {to}");
    }
}

#[tokio::test]
async fn forged_expired_and_foreign_capabilities_are_refused() {
    let cluster = Cluster::start().await;
    let data = bytes(2, 4096);
    cluster.write(1, 0, 0, &data).await;
    let other_ino = Capability { ino: Ino(INO + 1), ..capability(Rights::READ_WRITE) };
    let other_volume = Capability { volume: VolumeId(9), ..capability(Rights::READ_WRITE) };
    let expired =
        Capability { expires_unix_ms: NOW.as_millis() as u64, ..capability(Rights::READ_WRITE) };
    let mut stretched = key().mint(&capability(Rights::READ)).to_vec();
    stretched[1] = 3;
    let forger = CapabilityKey::new([4; 32]);
    let refused = [
        Bytes::new(),
        Bytes::from(stretched),
        forger.mint(&capability(Rights::READ_WRITE)),
        key().mint(&other_ino),
        key().mint(&other_volume),
        key().mint(&expired),
    ];
    let write = msg::Write { chunk: chunk(0), offset: 0, crc: crc(&data), durable: false };
    for encoded in refused {
        let op = StorageOp::Write(write);
        let error = cluster.call_as(encoded, 1, op, data.clone()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadCapability);
    }
    let late = cluster.call_as(key().mint(&expired), 1, StorageOp::Write(write), data.clone());
    let late = late.await.unwrap_err().to_string();
    assert!(late.starts_with("server s1 (127.0.0.1:"), "whose clock it is by: {late}");
    let reader = key().mint(&capability(Rights::READ));
    let op = StorageOp::Write(write);
    let error = cluster.call_as(reader.clone(), 1, op, data.clone()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadCapability);
    // One file's capability does not drop a volume.
    let own = key().mint(&capability(Rights::READ_WRITE));
    let op = StorageOp::DropVolume(msg::FileRef { volume: VOLUME, ino: INO });
    let error = cluster.call_as(own, 1, op, Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadCapability);
    assert!(cluster.read(1, 0, 0, 4096).await == data);
}

/// The servers of this cluster have a map each, which nobody changes: a sender who knows more is told so.
#[tokio::test]
async fn what_a_fenced_session_sends_is_refused_as_soon_as_somebody_knows() {
    let cluster = Cluster::start().await;
    let data = bytes(2, 4096);
    let client =
        |session| Capability { session: SessionId(session), ..capability(Rights::READ_WRITE) };
    let write = StorageOp::Write(msg::Write {
        chunk: chunk(0),
        offset: 0,
        crc: crc(&data),
        durable: false,
    });
    let sent = async |session, fenced| {
        let request = StorageRequest {
            target: 1,
            capability: key().mint(&client(session)),
            fenced,
            op: Some(write.clone()),
            ..StorageRequest::default()
        };
        let service = cluster.map.storage_of(TargetId(1)).unwrap();
        service.call(request, data.clone()).await.map(drop).map_err(|error| error.kind)
    };
    assert_eq!(sent(5, 0).await, Ok(()));
    assert_eq!(sent(6, 2).await, Err(ErrorKind::Unavailable), "the map there is of epoch 1");
    cluster.views[0].fence(VolumeId(VOLUME), &[SessionId(5)]).await.unwrap();
    assert_eq!(sent(5, 0).await, Err(ErrorKind::BadCapability));
    assert_eq!(sent(6, 2).await, Ok(()));
    let of_another_volume = VolumeId(VOLUME + 1);
    cluster.views[0].fence(of_another_volume, &[SessionId(6)]).await.unwrap();
    assert_eq!(sent(6, 3).await, Ok(()));
}

#[tokio::test]
async fn damaged_payloads_impossible_ranges_and_unknown_targets_are_refused() {
    let cluster = Cluster::start().await;
    let encoded = key().mint(&capability(Rights::READ_WRITE));
    let data = bytes(2, 4096);
    let damaged = msg::Write { chunk: chunk(0), offset: 0, crc: crc(&data) ^ 1, durable: false };
    let beyond =
        msg::Write { chunk: chunk(0), offset: u64::MAX - 5, crc: crc(&data), durable: false };
    let long = msg::Read {
        chunk: chunk(0),
        offset: 0,
        len: strake_types::limits::PAYLOAD_BYTES_MAX as u64 + 1,
    };
    let refused = [
        (StorageOp::Write(damaged), data.clone(), ErrorKind::Garbled),
        (StorageOp::Write(beyond), data.clone(), ErrorKind::Invalid),
        (StorageOp::Read(long), Bytes::new(), ErrorKind::Invalid),
    ];
    for (op, payload, kind) in refused {
        let error = cluster.call_as(encoded.clone(), 1, op, payload).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
    }
    let service = cluster.map.storage_of(TargetId(1)).unwrap();
    let request = StorageRequest { target: 3, capability: encoded, ..StorageRequest::default() };
    let error = service.call(request, Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::StaleMap);
    assert_eq!(
        cluster.map.storage_of(TargetId(8)).err().map(|e| e.kind),
        Some(ErrorKind::StaleMap)
    );
}

/// A server of the targets 1 and 2, each alone in its group 0 or 1.
fn server_of_two_targets(dir: &tempfile::TempDir) -> StorageServer {
    let target = |name: &str| {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        (TargetId(name.parse().unwrap()), store(dir, name))
    };
    let group = |id| Group { id: id - 1, epoch: 1, members: vec![id], ..Group::default() };
    let map = ClusterMap { epoch: 1, groups: vec![group(1), group(2)], ..ClusterMap::default() };
    let view = MapView::fixed(Callers::new(CallerOptions::default()), map);
    let stores = vec![target("1"), target("2")];
    StorageServer::with_clock(stores, key(), view, Arc::new(FixedClock))
}

/// All targets of a server were walked over every second for what was to be cleared away from one of them.
#[tokio::test]
async fn before_it_is_time_only_targets_are_walked_over_from_which_something_is_to_go() {
    let dir = tempfile::tempdir().unwrap();
    let server = server_of_two_targets(&dir);
    let to_clear = || server.to_clear().iter().map(|target| target.id.0).collect::<Vec<_>>();
    for id in [1, 2] {
        server.gates.of(TargetId(id), GroupId(id - 1)).fill();
    }
    assert!(to_clear().is_empty());
    server.gates.of(TargetId(1), GroupId(1)).fill();
    assert_eq!(to_clear(), [1]);
}
