use super::{CALLS_MAX, COPIES_MAX, LaneKind, Peer, PeerOptions, SYNCS_MAX, VAIN_MS_MIN};
use crate::buffer::BufferPool;
use crate::caller::Callers;
use crate::frame::{Draft, FrameKind, crc32c};
use crate::hello::{self, Hello};
use crate::link::{FrameReader, Outbox};
use crate::message::manager::{Heartbeat, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest};
use crate::message::meta::{
    Claim, Lock, Look, MetaAnswer, MetaOp, MetaRequest, Publish, Recalls, Told,
};
use crate::message::storage::{
    Chunk, Copy, Data, FileRef, Forward, Read, Settle, StorageAnswer, StorageOp, StorageReply,
    StorageRequest, Write,
};
use crate::options::CallerOptions;
use crate::service::{ManagerService, MetaService, StorageService};
use crate::tests::{Running, callers, options, pattern, server_at};
use crate::transport::Listener;
use bytes::Bytes;
use futures::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strake_types::{ErrorKind, Result};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

async fn meta(service: &Arc<dyn MetaService>, session: u64, seq: u64) -> Result<u64> {
    let reply = service.call(MetaRequest { session, seq, ..MetaRequest::default() }).await?;
    let Some(MetaAnswer::Bytes(bytes)) = reply.answer else { panic!("{reply:?}") };
    Ok(u64::from_le_bytes(bytes[..].try_into().unwrap()))
}

async fn read(service: &Arc<dyn StorageService>, offset: u64, len: u64) -> Result<Bytes> {
    let op = Some(StorageOp::Read(Read { chunk: Chunk::default(), offset, len }));
    let (reply, payload) =
        service.call(StorageRequest { op, ..StorageRequest::default() }, Bytes::new()).await?;
    assert_eq!(reply.answer, Some(StorageAnswer::Data(Data { crc: crc32c(&payload) })));
    Ok(payload)
}

async fn write(service: &Arc<dyn StorageService>, data: Bytes) -> Result<()> {
    write_as(service, None, data).await
}

async fn write_as(
    service: &Arc<dyn StorageService>,
    forward: Option<Forward>,
    data: Bytes,
) -> Result<()> {
    let write = Write { chunk: Chunk::default(), offset: 0, crc: crc32c(&data), durable: false };
    let op = Some(StorageOp::Write(write));
    let request = StorageRequest { op, forward, ..StorageRequest::default() };
    let (reply, payload) = service.call(request, data).await?;
    assert_eq!(reply.answer, Some(StorageAnswer::Data(Data { crc: write.crc })));
    assert!(payload.is_empty());
    Ok(())
}

async fn many_concurrent_calls(address: &str) {
    let server = Running::start(address, "c").await;
    let callers = callers(60_000);
    let entry = server.entry();
    let (storage, names) = (callers.storage(&entry), callers.meta(&entry));
    let tasks: Vec<_> = (0..48u64)
        .map(|i| {
            let (storage, names) = (storage.clone(), names.clone());
            tokio::spawn(async move {
                for len in [0, 1, 4096, 300_000, 1 << 20, 8 << 20].into_iter().skip(i as usize % 3)
                {
                    assert_eq!(meta(&names, i % 2 * 5, i).await.unwrap(), i);
                    let data = pattern(i, len);
                    write(&storage, data.clone()).await.unwrap();
                    assert!(read(&storage, i, len).await.unwrap() == data);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_with_large_payloads_at_once_over_tcp() {
    many_concurrent_calls("127.0.0.1:0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_with_large_payloads_at_once_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    many_concurrent_calls(&format!("unix:{}", path.display())).await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_slow_call_does_not_hold_up_those_behind_it() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let names = callers(60_000).meta(&server.entry());
    let stuck = tokio::spawn({
        let names = names.clone();
        async move { meta(&names, 2, 0).await }
    });
    for seq in 0..100 {
        assert_eq!(meta(&names, 0, seq).await.unwrap(), seq);
    }
    assert!(!stuck.is_finished());
    stuck.abort();
}

/// Calls without an answer that have all slots of the control lane, or wait for one.
async fn take_all_slots(names: &Arc<dyn MetaService>) -> Vec<JoinHandle<Result<u64>>> {
    assert_eq!(meta(names, 0, 7).await.unwrap(), 7);
    let begun = Arc::new(AtomicUsize::new(0));
    let stuck: Vec<_> = (0..2 * CALLS_MAX)
        .map(|_| {
            let (names, begun) = (names.clone(), begun.clone());
            tokio::spawn(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                meta(&names, 2, 0).await
            })
        })
        .collect();
    // The connection stands: whoever has begun has a slot, or waits for one.
    while begun.load(Ordering::SeqCst) < stuck.len() {
        tokio::task::yield_now().await;
    }
    stuck
}

/// What takes all slots may itself wait for a recall to be followed.
#[tokio::test]
async fn a_request_for_recalls_does_not_wait_behind_calls_that_take_all_slots() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let names = callers(60_000).meta(&server.entry());
    let stuck = take_all_slots(&names).await;
    let other = meta(&names, 0, 1);
    futures::pin_mut!(other);
    let op = Some(MetaOp::Recalls(Recalls::default()));
    tokio::select! {
        biased;
        _ = &mut other => panic!("there is no slot for it"),
        reply = names.call(MetaRequest { seq: 5, op, ..MetaRequest::default() }) => {
            assert!(reply.unwrap().answer.is_some());
        }
    }
    stuck.iter().for_each(JoinHandle::abort);
}

/// They took all slots, and the unlock that they waited for had none.
#[tokio::test]
async fn a_call_does_not_wait_behind_waits_for_locks() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let names = callers(20_000).meta(&server.entry());
    let lock = MetaOp::SetLock(Lock { wait_ms: 1_000, ..Lock::default() });
    // In this session nobody is answered.
    let wait = MetaRequest { session: 2, op: Some(lock), ..MetaRequest::default() };
    let mut waits = join_all((0..2 * CALLS_MAX).map(|_| names.call(wait.clone())));
    tokio::select! {
        biased;
        _ = &mut waits => panic!("nobody answers them"),
        answer = meta(&names, 0, 7) => assert_eq!(answer.unwrap(), 7),
    }
}

/// Of two clients that wait for each other neither would come to tell anything.
#[tokio::test]
async fn what_is_told_does_not_wait_behind_those_who_wait_until_others_tell() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let names = callers(20_000).meta(&server.entry());
    let look = |to_read, told| MetaOp::GetAttr(Look { to_read, told, ..Look::default() });
    let ops = [look(true, false), look(false, true), MetaOp::Claim(Claim::default())];
    // In this session nobody is answered.
    let wait = |op: MetaOp| MetaRequest { session: 2, op: Some(op), ..MetaRequest::default() };
    let requests = (0..2 * CALLS_MAX).map(|nth| wait(ops[nth % ops.len()].clone()));
    let mut waits = join_all(requests.map(|request| names.call(request)));
    for op in [MetaOp::Told(Told::default()), MetaOp::Publish(Publish::default())] {
        tokio::select! {
            biased;
            _ = &mut waits => panic!("nobody answers them"),
            reply = names.call(MetaRequest { op: Some(op), ..MetaRequest::default() }) => {
                assert!(reply.unwrap().answer.is_some());
            }
        }
    }
}

fn sync_of(ino: u64, forward: Option<Forward>) -> StorageRequest {
    let op = Some(StorageOp::Sync(FileRef { volume: 0, ino }));
    StorageRequest { op, forward, ..StorageRequest::default() }
}

/// So many syncs that do not end.
async fn sync_for_ever(service: &Arc<dyn StorageService>, forward: Option<Forward>, many: usize) {
    let sync = sync_of(2, forward);
    join_all((0..many).map(|_| service.call(sync.clone(), Bytes::new()))).await;
}

/// Those of a slow disk took all slots, and what others read was late.
#[tokio::test]
async fn a_small_read_does_not_wait_behind_syncs() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let storage = callers(20_000).storage(&server.entry());
    tokio::select! {
        biased;
        () = sync_for_ever(&storage, None, 2 * SYNCS_MAX) => panic!("nobody answers them"),
        data = read(&storage, 7, 100) => assert!(data.unwrap() == pattern(7, 100)),
    }
}

/// Those of another disk of the server had no turn until the first ones were told that it takes long.
#[tokio::test]
async fn a_sync_does_not_wait_behind_hundreds_of_a_slow_disk() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let storage = callers(20_000).storage(&server.entry());
    tokio::select! {
        biased;
        () = sync_for_ever(&storage, None, SYNCS_MAX - 1) => panic!("nobody answers them"),
        synced = storage.call(sync_of(3, None), Bytes::new()) => assert!(synced.is_ok()),
    }
}

/// The server goes on with them, each in one of its slots.
#[tokio::test]
async fn a_small_read_does_not_wait_behind_syncs_that_were_given_up() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let storage = callers(20_000).storage(&server.entry());
    for _ in 0..3 {
        let syncs = sync_for_ever(&storage, None, 2 * SYNCS_MAX);
        let given_up = timeout(Duration::from_millis(300), syncs).await;
        assert!(given_up.is_err(), "nobody answers them");
    }
    assert!(read(&storage, 7, 100).await.unwrap() == pattern(7, 100));
    assert!(server.fake.storage_calls.load(Ordering::SeqCst) <= SYNCS_MAX + 1);
}

/// So many copies that do not end.
async fn copy_for_ever(service: &Arc<dyn StorageService>, many: usize) {
    let op = Some(StorageOp::Copy(Copy { from_target: 2, ..Copy::default() }));
    let copy = StorageRequest { op, ..StorageRequest::default() };
    join_all((0..many).map(|_| service.call(copy.clone(), Bytes::new()))).await;
}

/// Those of a few `cp` waited for each other in all slots, and what others read of any disk of that server was late.
#[tokio::test]
async fn a_small_read_does_not_wait_behind_copies() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let storage = callers(20_000).storage(&server.entry());
    tokio::select! {
        biased;
        () = copy_for_ever(&storage, 2 * CALLS_MAX) => panic!("nobody answers them"),
        data = read(&storage, 7, 100) => assert!(data.unwrap() == pattern(7, 100)),
    }
}

/// Their slots were free here and not at the server, which then read nothing more: syncs waited as well.
#[tokio::test]
async fn no_call_waits_behind_copies_that_were_given_up() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let storage = callers(20_000).storage(&server.entry());
    for _ in 0..3 {
        let copies = copy_for_ever(&storage, 2 * CALLS_MAX);
        let given_up = timeout(Duration::from_millis(300), copies).await;
        assert!(given_up.is_err(), "nobody answers them");
    }
    assert!(read(&storage, 7, 100).await.unwrap() == pattern(7, 100));
    assert!(storage.call(sync_of(3, None), Bytes::new()).await.is_ok());
    assert!(server.fake.storage_calls.load(Ordering::SeqCst) <= COPIES_MAX + 2);
}

/// Members of groups on other disks of the same server got no write from their primaries.
#[tokio::test]
async fn what_is_forwarded_does_not_wait_behind_syncs() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let storage = callers(20_000).storage(&server.entry());
    let forward = Some(Forward::default());
    tokio::select! {
        biased;
        () = sync_for_ever(&storage, forward, 2 * CALLS_MAX) => panic!("nobody answers them"),
        written = write_as(&storage, forward, pattern(7, 4096)) => written.unwrap(),
    }
}

/// Who took none of hundreds of changes was not asked, and taken for one that does not answer.
#[tokio::test]
async fn a_look_whether_a_member_is_there_does_not_wait_behind_what_is_forwarded_to_it() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let callers = callers(20_000);
    let (names, storage) = (callers.meta(&server.entry()), callers.storage(&server.entry()));
    // They go by the same lane, and in this session nobody is answered.
    let op = Some(MetaOp::Recalls(Recalls::default()));
    let wait = MetaRequest { session: 2, op, ..MetaRequest::default() };
    let mut waits = join_all((0..2 * CALLS_MAX).map(|_| names.call(wait.clone())));
    let (op, forward) = (Some(StorageOp::Settle(Settle::default())), Some(Forward::default()));
    let look = StorageRequest { op, forward, ..StorageRequest::default() };
    tokio::select! {
        biased;
        _ = &mut waits => panic!("nobody answers them"),
        said = storage.call(look, Bytes::new()) => assert!(said.is_ok()),
    }
}

async fn beat(manager: &Arc<dyn ManagerService>) -> Result<ManagerReply> {
    let op = Some(ManagerOp::Heartbeat(Heartbeat::default()));
    manager.call(ManagerRequest { op }).await
}

/// A server whose calls to targets took all slots did not get a beat through, and was declared dead.
#[tokio::test]
async fn a_beat_does_not_wait_behind_calls_that_take_all_slots() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let callers = callers(60_000);
    let (names, manager) = (callers.meta(&server.entry()), callers.manager(&server.entry()));
    let stuck = take_all_slots(&names).await;
    let other = meta(&names, 0, 1);
    futures::pin_mut!(other);
    tokio::select! {
        biased;
        _ = &mut other => panic!("there is no slot for it"),
        reply = beat(&manager) => {
            assert_eq!(reply.unwrap().answer, Some(ManagerAnswer::Epoch(0)));
        }
    }
    stuck.iter().for_each(JoinHandle::abort);
}

/// The next caller, after the exchange of hellos.
async fn greeted(listener: &Listener) -> (FrameReader, Arc<Outbox>) {
    let stream = listener.accept().await.unwrap().establish().await.unwrap().stream;
    let mut reader = FrameReader::new(stream.clone(), BufferPool::new(0));
    hello::receive(&mut reader).await.unwrap();
    let mine = Draft::message(&Hello::new("c", "test server", false)).unwrap();
    hello::send(&*stream, mine).await.unwrap();
    let (outbox, _) = Outbox::new(stream);
    (reader, outbox)
}

/// Beats followed one that was in vain into the same black hole for 20 s, and the server was declared dead.
#[tokio::test]
async fn after_a_beat_in_vain_the_next_one_goes_by_another_connection() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.address();
    let came = Arc::new(Notify::new());
    let comes = came.clone();
    let _server = tokio::spawn(async move {
        let mut silent = greeted(&listener).await;
        silent.0.header().await.unwrap().unwrap();
        comes.notify_one();
        let (mut reader, outbox) = greeted(&listener).await;
        let header = reader.header().await.unwrap().unwrap();
        reader.body(&header).await.unwrap();
        let reply = Draft::message(&ManagerReply::from(ManagerAnswer::Epoch(7))).unwrap();
        let reply = reply.seal(FrameKind::Reply, header.service, header.request);
        assert!(outbox.send(reply, Default::default()).is_some());
        (silent, reader)
    });
    let manager = callers(60_000).manager_at(&address);
    let limit = Duration::from_millis(2 * VAIN_MS_MIN);
    let mut in_vain = Box::pin(beat(&manager));
    tokio::select! {
        _ = &mut in_vain => panic!("nobody answers it"),
        () = came.notified() => {}
    }
    assert!(tokio::time::timeout(limit, in_vain).await.is_err());
    let reply = beat(&manager).await.unwrap();
    assert_eq!(reply.answer, Some(ManagerAnswer::Epoch(7)));
}

/// Takes writes, each after a pause, and answers them.
async fn take_writes(mut reader: FrameReader, outbox: Arc<Outbox>, pause_ms: u64) -> Option<()> {
    loop {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let header = reader.header().await.ok()??;
        reader.body(&header).await.ok()?;
        let crc = crc32c(&reader.payload(&header).await.ok()?);
        let answer = Some(StorageAnswer::Data(Data { crc }));
        let reply = Draft::message(&StorageReply { answer }).unwrap();
        let reply = reply.seal(FrameKind::Reply, header.service, header.request);
        outbox.send(reply, Default::default())?;
    }
}

/// The storage at an address, with one lane for data.
fn narrow(address: &str, call_timeout_ms: u64) -> Arc<dyn StorageService> {
    let options = CallerOptions { bulk_lanes: 1, call_timeout_ms, ..options() };
    Callers::new(options).storage(&server_at(address))
}

/// All that was behind what passes in the time of a call was called late, and sent once more, for ever.
#[tokio::test]
async fn what_waits_for_its_turn_on_a_slow_connection_is_not_late() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    // Longer than a busy machine stands still.
    let limit = Duration::from_secs(10);
    let storage = narrow(&listener.address(), limit.as_millis() as u64);
    let _server = tokio::spawn(async move {
        let (reader, outbox) = greeted(&listener).await;
        take_writes(reader, outbox, 150).await
    });
    let (data, began) = (pattern(7, 1 << 20), Instant::now());
    let written = join_all((0..80).map(|_| write(&storage, data.clone()))).await;
    assert!(began.elapsed() > limit, "the last ones waited for long");
    assert_eq!(written.into_iter().find(Result::is_err), None);
}

/// It went before all that was sent after it, though nobody waited for it.
#[tokio::test]
async fn what_is_given_up_before_its_turn_is_not_sent() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let storage = narrow(&listener.address(), 60_000);
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let taken = Arc::new(AtomicUsize::new(0));
    let _server = tokio::spawn({
        let (begun, go_on, taken) = (begun.clone(), go_on.clone(), taken.clone());
        async move {
            let (mut reader, outbox) = greeted(&listener).await;
            let mut next = reader.header().await;
            begun.notify_one();
            go_on.notified().await;
            while let Ok(Some(header)) = next {
                reader.skip(&header).await.unwrap();
                taken.fetch_add(1, Ordering::SeqCst);
                next = reader.header().await;
            }
            drop(outbox);
        }
    });
    let data = pattern(7, 1 << 20);
    let mut writes = Box::pin(join_all((0..100).map(|_| write(&storage, data.clone()))));
    tokio::select! {
        _ = &mut writes => panic!("nobody answers them"),
        () = begun.notified() => {}
    }
    assert!(timeout(Duration::from_millis(500), writes).await.is_err(), "nobody answers them");
    go_on.notify_one();
    let all_that_comes = async {
        let mut before = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            match taken.load(Ordering::SeqCst) {
                now if now > 0 && now == before => break now,
                now => before = now,
            }
        }
    };
    let came =
        timeout(Duration::from_secs(60), all_that_comes).await.expect("what was begun comes");
    assert!(came < 100, "{came} came");
}

#[tokio::test]
async fn errors_come_back_with_kind_and_detail() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let names = callers(60_000).meta(&server.entry());
    let error = meta(&names, 1, 0).await.unwrap_err();
    assert_eq!((error.kind, error.detail.as_ref()), (ErrorKind::NotFound, "as the test wishes"));
    // A service that panics answers too, and the connection lives on.
    assert_eq!(meta(&names, 3, 0).await.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(meta(&names, 0, 7).await.unwrap(), 7);
}

#[tokio::test]
async fn a_call_without_an_answer_ends_as_unavailable() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let names = callers(100).meta(&server.entry());
    let error = meta(&names, 2, 0).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.detail.contains("no answer within 100 ms"), "{error}");
    // The next one is answered; on a busy machine not the first time within 100 ms.
    let answered = async {
        while meta(&names, 0, 7).await.ok() != Some(7) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), answered).await.unwrap();
}

#[tokio::test]
async fn calls_go_on_after_the_server_was_restarted() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let address = server.address.clone();
    let names = callers(60_000).meta(&server.entry());
    assert_eq!(meta(&names, 0, 1).await.unwrap(), 1);
    server.stop().await;
    assert_eq!(meta(&names, 0, 2).await.unwrap_err().kind, ErrorKind::Unavailable);
    let server = Running::start(&address, "c").await;
    let answered = async {
        while meta(&names, 0, 3).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), answered).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn calls_in_flight_are_answered_before_a_server_stops() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let names = callers(60_000).meta(&server.entry());
    meta(&names, 0, 0).await.unwrap();
    let slow = tokio::spawn({
        let names = names.clone();
        async move { meta(&names, 200, 5).await }
    });
    while server.fake.meta_calls.load(Ordering::SeqCst) < 2 {
        assert!(!slow.is_finished(), "the server never had it");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    server.stop().await;
    assert_eq!(slow.await.unwrap().unwrap(), 5);
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable_and_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let names = callers(60_000).meta(&server_at(&address));
    for _ in 0..3 {
        let error = meta(&names, 0, 0).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.detail.contains(&address), "{error}");
    }
    let nowhere = callers(60_000).meta(&server_at(""));
    assert_eq!(meta(&nowhere, 0, 0).await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_of_another_cluster_is_refused_by_name() {
    let server = Running::start("127.0.0.1:0", "ours").await;
    let callers = callers(60_000);
    callers.set_cluster("theirs");
    let error = meta(&callers.meta(&server.entry()), 0, 0).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongPeer);
    assert!(error.detail.contains("ours") && error.detail.contains("theirs"), "{error}");
    assert!(error.detail.contains(&server.address), "{error}");
}

#[tokio::test]
async fn closing_the_address_book_fails_calls_in_flight() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let callers = callers(60_000);
    let names = callers.meta(&server.entry());
    assert_eq!(meta(&names, 0, 1).await.unwrap(), 1);
    let stuck = tokio::spawn(async move { meta(&names, 2, 0).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    callers.close();
    assert_eq!(stuck.await.unwrap().unwrap_err().kind, ErrorKind::Unavailable);
}

/// Also while nothing is under way: who is alone uses the first lane for anything else.
#[test]
fn writes_that_are_forwarded_go_by_the_lane_of_their_group() {
    let options = PeerOptions::new(CallerOptions { bulk_lanes: 2, ..CallerOptions::default() });
    let peer = Peer::new("127.0.0.1:1", Arc::new(options));
    let nth = |kind| peer.bulk.iter().position(|lane| std::ptr::eq(lane, peer.lane(kind)));
    assert_eq!(nth(LaneKind::Bulk), Some(0));
    assert_eq!([0, 1, 2, 3].map(|group| nth(LaneKind::BulkInTurn(group))), [0, 1, 0, 1].map(Some));
}

/// It was told as if its object were its cause.
#[test]
fn an_error_of_a_newer_kind_says_after_its_object_that_it_is_one() {
    assert_eq!(hello::remote_error(u32::MAX, b"disk 3").to_string(), "disk 3: input/output error");
    let known = hello::remote_error(ErrorKind::Io as u32, b"disk 3 is dead");
    assert_eq!(known.to_string(), "disk 3 is dead");
}
