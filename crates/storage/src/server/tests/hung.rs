//! Targets whose disk does not answer.

use super::*;
use crate::target::DEPTH_MAX;
use crate::watch::Limits;
use strake_base::disk::HeldDisk;

/// A server with one target on a disk that may be held, which has one group of one copy.
fn server(dir: &tempfile::TempDir) -> (Arc<StorageServer>, Arc<HeldDisk>) {
    let disk = Arc::new(HeldDisk::new(Arc::new(RealDisk::new(dir.path()).unwrap())));
    let target = |id| MapTarget { id, server: 1, up: true, ..MapTarget::default() };
    let group = |id| Group { id: id - 1, epoch: 1, members: vec![id], ..Group::default() };
    let map = ClusterMap {
        cluster: "c".into(),
        epoch: 1,
        servers: vec![Server { id: 1, up: true, ..Server::default() }],
        targets: [1, 2].map(target).to_vec(),
        groups: [1, 2].map(group).to_vec(),
        ..ClusterMap::default()
    };
    let map = MapView::fixed(Callers::new(CallerOptions::default()), map);
    let stores = vec![(TargetId(1), store_on(disk.clone(), "1"))];
    let server = StorageServer::with_clock(stores, key(), map, Arc::new(FixedClock));
    (Arc::new(server), disk)
}

/// Gives it target 2, on a disk that answers, which has another such group.
fn add_another(server: &Arc<StorageServer>, dir: &tempfile::TempDir) {
    std::fs::create_dir(dir.path().join("2")).unwrap();
    server.add_target(TargetId(2), store(dir, "2"));
}

/// A copy of a part of chunk 0 of one target to a chunk of another one, or of the same.
async fn copy(server: Arc<StorageServer>, from: u32, to: u32, index: u64) -> Result<()> {
    let copy = msg::Copy {
        to: msg::Range { chunk: chunk(index), offset: 100, len: 1_000 },
        from: msg::Range { chunk: chunk(0), offset: 0, len: 1_000 },
        from_target: from,
        from_capability: key().mint(&capability(Rights::READ)),
        from_group: from - 1,
    };
    let capability = key().mint(&capability(Rights::READ_WRITE));
    let (group, op) = (to - 1, Some(StorageOp::Copy(copy)));
    let request = StorageRequest { target: to, group, capability, op, ..StorageRequest::default() };
    server.call(request, Bytes::new()).await.map(drop)
}

async fn call(server: &Arc<StorageServer>, op: StorageOp, payload: Bytes) -> Result<Bytes> {
    let capability = key().mint(&capability(Rights::READ_WRITE));
    let request =
        StorageRequest { target: 1, capability, op: Some(op), ..StorageRequest::default() };
    server.call(request, payload).await.map(|(_, payload)| payload)
}

async fn write(server: Arc<StorageServer>, index: u64) -> Result<()> {
    let data = bytes(1, 4_096);
    let write = msg::Write { chunk: chunk(index), offset: 0, crc: crc(&data), durable: false };
    call(&server, StorageOp::Write(write), data).await.map(drop)
}

async fn read(server: &Arc<StorageServer>, index: u64) -> Result<Bytes> {
    let read = msg::Read { chunk: chunk(index), offset: 0, len: 4_096 };
    call(server, StorageOp::Read(read), Bytes::new()).await
}

/// A sync, of a client's number if it has one.
async fn sync(server: Arc<StorageServer>, seq: Option<u64>) -> Result<()> {
    let capability = key().mint(&capability(Rights::READ_WRITE));
    let attempt = seq.map(|seq| msg::Attempt { client: 5, seq, settled: 1 });
    let op = Some(StorageOp::Sync(msg::FileRef { volume: VOLUME, ino: INO }));
    let request =
        StorageRequest { target: 1, capability, attempt, op, ..StorageRequest::default() };
    server.call(request, Bytes::new()).await.map(drop)
}

/// Returns when something waits for a disk that is held.
async fn until_waited_for(disk: &Arc<HeldDisk>) {
    let disk = disk.clone();
    tokio::task::spawn_blocking(move || disk.until_waited_for(1)).await.unwrap();
}

/// Looks as heartbeats do, until the disk hangs or does so no more.
async fn watch(server: &Arc<StorageServer>, hangs: bool) {
    while server.silent_ms(TargetId(1)).is_some() != hangs {
        server.watch_disks();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// From now on the disk answers nothing, which is noticed soon.
fn hold(server: &Arc<StorageServer>, disk: &HeldDisk) {
    server.local(TargetId(1)).unwrap().watch.set_limits(Limits::HELD);
    disk.hold();
}

async fn go_on(server: &Arc<StorageServer>, disk: &HeldDisk) {
    server.local(TargetId(1)).unwrap().watch.set_limits(Limits::LET_GO);
    disk.go_on();
    watch(server, false).await;
}

/// A write with a number, of a client that has given up nothing.
async fn write_once(server: Arc<StorageServer>, index: u64) -> Result<()> {
    let data = bytes(2, 4_096);
    let write = msg::Write { chunk: chunk(index), offset: 0, crc: crc(&data), durable: false };
    let capability = key().mint(&capability(Rights::READ_WRITE));
    let attempt = Some(msg::Attempt { client: 5, seq: 1, settled: 1 });
    let op = Some(StorageOp::Write(write));
    let request =
        StorageRequest { target: 1, capability, attempt, op, ..StorageRequest::default() };
    server.call(request, data).await.map(drop)
}

/// A write is begun, and the disk hangs meanwhile. What its client is told.
async fn begun_on_a_disk_that_hangs(server: &Arc<StorageServer>, disk: &Arc<HeldDisk>) -> Error {
    write(server.clone(), 0).await.unwrap();
    hold(server, disk);
    let begun = tokio::spawn(write_once(server.clone(), 1));
    until_waited_for(disk).await;
    watch(server, true).await;
    begun.await.unwrap().unwrap_err()
}

/// It was waited for without an end, with the room for its payload: those to eight disks had all the room of a server, and no
/// call with a payload reached the others.
#[tokio::test]
async fn a_write_that_has_begun_on_a_disk_that_hangs_is_answered_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    let told = begun_on_a_disk_that_hangs(&server, &disk).await;
    assert_eq!(told.kind, ErrorKind::Unavailable, "{told}");
    let again = write_once(server.clone(), 1).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::NotCurrent, "it is under way: {again}");
    // Who waits to be alone in the group waits for it, and keeps no further write waiting.
    let gate = server.gates.of(TargetId(1), GroupId(0));
    let alone = tokio::spawn(async move { drop(gate.close().await) });
    tokio::task::yield_now().await;
    let refused = write(server.clone(), 2).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    go_on(&server, &disk).await;
    alone.await.unwrap();
    while let Err(under_way) = write_once(server.clone(), 1).await {
        assert_eq!(under_way.kind, ErrorKind::NotCurrent, "{under_way}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(read(&server, 1).await.unwrap(), bytes(2, 4_096));
}

/// The first answer said so, which may have come too late, and all later ones that it is under way.
#[tokio::test]
async fn who_asks_again_for_a_write_that_a_hanging_disk_has_begun_hears_of_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    begun_on_a_disk_that_hangs(&server, &disk).await;
    for _ in 0..2 {
        let again = write_once(server.clone(), 1).await.unwrap_err();
        assert_eq!(again.kind, ErrorKind::NotCurrent, "it is under way: {again}");
        assert!(again.detail.contains("its disk does not answer"), "{again}");
    }
    go_on(&server, &disk).await;
}

/// What such writes hold in memory had no bound but the turns of all targets: 256 MiB for each disk that hung.
#[tokio::test]
async fn a_write_that_has_begun_on_a_disk_that_hangs_keeps_its_room_while_others_have_too_much() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    write(server.clone(), 0).await.unwrap();
    let others = server.late.clone().try_acquire_many_owned(LATE_BYTES_MAX as u32).unwrap();
    hold(&server, &disk);
    let begun = tokio::spawn(write(server.clone(), 1));
    until_waited_for(&disk).await;
    watch(&server, true).await;
    // The write has looked at the disk, too, when this has.
    let target = server.local(TargetId(1)).unwrap();
    target.while_disk_answers(std::future::pending::<()>()).await.unwrap_err();
    assert!(!begun.is_finished());
    drop(others);
    assert_eq!(begun.await.unwrap().unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(server.late.available_permits(), LATE_BYTES_MAX - 4_096);
    go_on(&server, &disk).await;
    while server.late.available_permits() < LATE_BYTES_MAX {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(read(&server, 1).await.unwrap(), bytes(1, 4_096));
}

/// All that was sent to it waited for ever, and held slots and room that calls to healthy disks needed.
#[tokio::test]
async fn what_is_asked_of_a_disk_that_hangs_is_refused_and_what_has_begun_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    write(server.clone(), 0).await.unwrap();
    hold(&server, &disk);
    let writes: Vec<_> =
        (1..=DEPTH_MAX as u64 + 8).map(|nth| tokio::spawn(write(server.clone(), nth))).collect();
    watch(&server, true).await;
    let refused =
        [write(server.clone(), 0).await.unwrap_err(), read(&server, 0).await.unwrap_err()];
    for refused in refused {
        assert_eq!(refused.kind, ErrorKind::Unavailable);
        let path = dir.path().canonicalize().unwrap().display().to_string();
        assert!(refused.detail.contains(&format!("target 1 ({path})")), "{refused}");
    }
    // Those that wait for their turn hear it, too, and those that have begun.
    for write in writes {
        let refused = write.await.unwrap().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    }
    go_on(&server, &disk).await;
    let target = server.local(TargetId(1)).unwrap();
    while target.store.stat().chunks < 1 + DEPTH_MAX as u64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    write(server.clone(), 0).await.unwrap();
    assert_eq!(read(&server, 0).await.unwrap(), bytes(1, 4_096));
}

/// Its disk was looked at no more, so that who had begun something there was never refused, and the target never closed.
#[tokio::test]
async fn who_waits_for_the_disk_of_a_target_that_is_served_no_more_hears_that_it_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    write(server.clone(), 0).await.unwrap();
    hold(&server, &disk);
    let begun = tokio::spawn(write(server.clone(), 1));
    until_waited_for(&disk).await;
    server.forget_target(TargetId(1));
    let refused = begun.await.unwrap().unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    disk.go_on();
}

/// Each had one of the turns of the whole server until its disk ended it.
#[tokio::test]
async fn copies_that_have_begun_on_a_disk_that_hangs_leave_their_turns_to_other_targets() {
    let (dir, another) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, disk) = server(&dir);
    add_another(&server, &another);
    write(server.clone(), 0).await.unwrap();
    hold(&server, &disk);
    let begin = |nth| tokio::spawn(copy(server.clone(), 1, 1, nth));
    let begun: Vec<_> = (1..=COPIES_MAX as u64).map(begin).collect();
    until_waited_for(&disk).await;
    watch(&server, true).await;
    copy(server.clone(), 2, 2, 1).await.unwrap();
    go_on(&server, &disk).await;
    for copy in begun {
        copy.await.unwrap().unwrap();
    }
}

/// It waited for what the disk had not ended, with its turn, whatever target it was for.
#[tokio::test]
async fn a_copy_from_a_disk_that_hangs_does_not_wait_for_what_was_begun_there_before_a_fence() {
    let (dir, another) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, disk) = server(&dir);
    add_another(&server, &another);
    write(server.clone(), 0).await.unwrap();
    hold(&server, &disk);
    let begun = tokio::spawn(write(server.clone(), 1));
    until_waited_for(&disk).await;
    watch(&server, true).await;
    assert_eq!(begun.await.unwrap().unwrap_err().kind, ErrorKind::Unavailable);
    server.map().fence(VolumeId(VOLUME), &[SessionId(9)]).await.unwrap();
    let refused = copy(server.clone(), 1, 2, 1).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    go_on(&server, &disk).await;
    copy(server.clone(), 1, 2, 1).await.unwrap();
}

/// Its caller may ask another member; it changes nothing however late it ends.
#[tokio::test]
async fn a_read_that_waits_for_a_disk_that_hangs_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    write(server.clone(), 0).await.unwrap();
    hold(&server, &disk);
    let waiting = tokio::spawn({
        let server = server.clone();
        async move { read(&server, 0).await }
    });
    watch(&server, true).await;
    assert_eq!(waiting.await.unwrap().unwrap_err().kind, ErrorKind::Unavailable);
    go_on(&server, &disk).await;
    assert_eq!(read(&server, 0).await.unwrap(), bytes(1, 4_096));
}

/// It could not be told from one that nobody works on, and its client gave it up.
#[tokio::test(start_paused = true)]
async fn of_a_sync_that_takes_long_the_target_says_that_it_is_at_work_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    write(server.clone(), 0).await.unwrap();
    disk.hold();
    let time = async {
        for _ in 0..1_000 {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::select! {
        synced = sync(server.clone(), None) => synced.unwrap_err(),
        () = time => panic!("it says nothing"),
    };
    assert_eq!(told.kind, ErrorKind::NotCurrent, "{told}");
    disk.go_on();
    sync(server, None).await.unwrap();
}

/// Each of them held one of the turns, also when nobody waited for it any more, and reads and writes waited behind them.
#[tokio::test]
async fn syncs_that_wait_for_a_disk_leave_its_turns_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    write(server.clone(), 0).await.unwrap();
    disk.hold();
    let ask = |seq| tokio::spawn(sync(server.clone(), Some(seq)));
    let syncs: Vec<_> = (0..2 * DEPTH_MAX as u64).map(ask).collect();
    until_waited_for(&disk).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let target = server.local(TargetId(1)).unwrap();
    let other = tokio::time::timeout(Duration::from_secs(60), target.run(|_| Ok(())));
    other.await.expect("there are turns").unwrap();
    disk.go_on();
    for sync in syncs {
        sync.await.unwrap().unwrap();
    }
}

/// Each attempt had to wait for what others had written since the one before: under a steady load none ended in time.
#[tokio::test]
async fn who_asks_again_for_a_sync_hears_that_what_was_begun_for_him_first_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let (server, disk) = server(&dir);
    write(server.clone(), 0).await.unwrap();
    disk.hold();
    let asked = tokio::spawn(sync(server.clone(), Some(1)));
    until_waited_for(&disk).await;
    asked.abort();
    assert!(asked.await.is_err(), "it is not done yet");
    disk.go_on();
    // The next one begins when that has ended.
    sync(server.clone(), None).await.unwrap();
    write(server.clone(), 1).await.unwrap();
    disk.hold();
    let again = tokio::time::timeout(Duration::from_secs(60), sync(server.clone(), Some(1)));
    again.await.expect("it asks for nothing new").unwrap();
    disk.go_on();
}

/// It was waited for no longer than a write is, and counted as failed.
#[tokio::test(start_paused = true)]
async fn a_write_is_made_although_its_sync_takes_long_and_is_not_called_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _disk) = server(&dir);
    let target = server.local(TargetId(1)).unwrap();
    let turn = target.syncs.try_turn().unwrap();
    let data = bytes(1, 4_096);
    let write = msg::Write { chunk: chunk(0), offset: 0, crc: crc(&data), durable: true };
    let capability = key().mint(&capability(Rights::READ_WRITE));
    let op = Some(StorageOp::Write(write));
    let request = StorageRequest { target: 1, capability, op, ..StorageRequest::default() };
    match server.call(request, data.clone()).await.unwrap().0.answer {
        Some(StorageAnswer::Done(done)) => assert!(!done.durable),
        other => panic!("{other:?}"),
    }
    drop(turn);
    sync(server.clone(), None).await.unwrap();
    assert_eq!(read(&server, 0).await.unwrap(), data);
}
