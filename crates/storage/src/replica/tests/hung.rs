//! Members whose disk does not answer.

use super::*;
use tokio::task::JoinHandle;

impl Bench {
    /// From now on the disk of a member answers nothing.
    fn hold(&self, member: u32) -> Arc<HeldDisk> {
        let target = self.server(member).local(TargetId(member)).unwrap();
        target.watch.set_limits(Limits::HELD);
        let disk = self.disks.lock()[&member].clone();
        disk.hold();
        disk
    }

    /// It answers again.
    async fn let_go_on(&self, member: u32, disk: &HeldDisk) {
        let target = self.server(member).local(TargetId(member)).unwrap();
        target.watch.set_limits(Limits::LET_GO);
        disk.go_on();
        self.until(async || {
            self.server(member).silent_ms(TargetId(member)).is_none().then_some(())
        })
        .await;
    }

    /// The same, and the manager lets the member join: no more can be told it from one that was away.
    async fn go_on(&self, member: u32, disk: &HeldDisk) {
        self.let_go_on(member, disk).await;
        self.manager.let_join(member);
        self.until_in_sync(&[1, 2, 3]).await;
    }

    /// A write of a block that is sent to a member once, whatever becomes of it.
    fn begin_write(self: &Arc<Self>, target: u32, block: u64, fill: u8) -> JoinHandle<Result<()>> {
        let (bench, attempt) = (self.clone(), self.attempt());
        tokio::spawn(async move { bench.write_to(target, attempt, block, fill).await })
    }
}

/// It was silent for changes, and nobody took it out as long as its server spoke: no write of the group ended.
#[tokio::test]
async fn a_member_whose_disk_hangs_is_taken_out_and_the_write_ends() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let disk = bench.hold(3);
    let write = bench.begin_write(1, 0, 2);
    bench.until_in_sync(&[1, 2]).await;
    write.await.unwrap().unwrap();
    bench.write(1, 3).await;
    bench.go_on(3, &disk).await;
    for member in 1..=MEMBERS {
        assert_eq!((bench.read(member, 0).await, bench.read(member, 1).await), (2, 3), "{member}");
    }
}

/// The same, of the one that everybody asks. What it had begun alone is made there late, and nobody may read it.
#[tokio::test]
async fn a_primary_whose_disk_hangs_is_taken_out_and_what_it_makes_late_counts_for_nothing() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let disk = bench.hold(1);
    let write = bench.begin_write(1, 0, 2);
    bench.until_in_sync(&[2, 3]).await;
    let told = write.await.unwrap().unwrap_err();
    assert!(matches!(told.kind, ErrorKind::NotCurrent | ErrorKind::Unavailable), "{told}");
    assert_eq!(bench.read(2, 0).await, 1);
    bench.write(0, 3).await;
    bench.write(1, 4).await;
    bench.go_on(1, &disk).await;
    for member in 1..=MEMBERS {
        assert_eq!((bench.read(member, 0).await, bench.read(member, 1).await), (3, 4), "{member}");
    }
}

/// Its client waited for as long as a sync may take, although others went on.
#[tokio::test]
async fn a_sync_that_waits_for_a_disk_that_hangs_ends_with_the_members_that_go_on() {
    for hung in [1, 3] {
        let bench = Arc::new(Bench::start().await);
        bench.write(0, 1).await;
        let disk = bench.hold(hung);
        let sync = StorageOp::Sync(msg::FileRef { volume: 1, ino: 2 });
        let others: Vec<u32> = (1..=MEMBERS).filter(|member| *member != hung).collect();
        let synced = bench.send(bench.request(1, sync.clone()), Bytes::new()).await;
        // One that is sent so late that the member is out already is of an old epoch.
        let is_late = synced.as_ref().is_err_and(|error| error.kind == ErrorKind::StaleMap);
        assert!(synced.is_ok() == (hung != 1) || is_late, "{synced:?}");
        bench.until_in_sync(&others).await;
        let again = async || {
            bench.send(bench.request(others[0], sync.clone()), Bytes::new()).await.ok().map(drop)
        };
        bench.until(again).await;
        bench.go_on(hung, &disk).await;
    }
}

/// Its client was told that it is at work on the sync, and waited for 20 minutes.
#[tokio::test]
async fn a_member_that_does_not_answer_is_told_from_one_that_is_at_work_on_a_sync() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    let server = bench.server(1);
    let target = server.local(TargetId(1)).unwrap();
    let primary = server.replica(&target, GROUP, 0).await.unwrap();
    let disk = bench.disks.lock()[&2].clone();
    disk.hold();
    assert_eq!(primary.silent_member(None).await, None);
    disk.go_on();
    bench.cut(1, 3);
    let (_, silent) = primary.silent_member(None).await.expect("nobody reaches it");
    assert_eq!(silent.kind, ErrorKind::Unavailable);
    assert!(silent.detail.contains("target 3 is to sync"), "{silent}");
}

/// What it takes a disk to sync all that was sent to it has no limit, and the sync was given up after 90 s: it never joined. Then it was
/// waited for when it counted already, and so did each client that synced.
#[tokio::test]
async fn a_member_that_joins_is_waited_for_while_it_is_at_work_on_its_sync_and_clients_are_not() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.manager.take_out(3);
    bench.write(0, 2).await;
    let server = bench.server(1);
    let primary = server.replica(&server.local(TargetId(1)).unwrap(), GROUP, 0).await.unwrap();
    *primary.short_syncs.lock() = Some(Duration::from_millis(500));
    *bench.net.syncs_wait.lock() = Some((3, 0));
    bench.manager.let_join(3);
    bench.until(async || (bench.net.syncs.load(Ordering::Relaxed) > 2).then_some(())).await;
    assert_eq!(bench.manager.map.lock().groups[0].joining, [3]);
    // A busy machine may be slow, too.
    *primary.short_syncs.lock() = Some(Duration::from_secs(60));
    bench.write(0, 3).await;
    let sync = StorageOp::Sync(msg::FileRef { volume: 1, ino: 2 });
    bench.send(bench.request(1, sync), Bytes::new()).await.unwrap();
    assert_eq!(bench.manager.map.lock().groups[0].joining, [3], "still");
    *primary.short_syncs.lock() = None;
    *bench.net.syncs_wait.lock() = None;
    bench.until_in_sync(&[1, 2, 3]).await;
    assert_eq!(bench.read(3, 0).await, 3);
}

/// Where nobody else counts it had a second from when it was sent a change: where its disk took longer it began anew, each time.
#[tokio::test]
async fn a_member_that_joins_and_is_slow_is_waited_for_while_it_says_that_it_is_there() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.manager.take_out(2);
    bench.manager.take_out(3);
    bench.write(0, 2).await;
    bench.wait_long(1).await;
    let primary = bench.replica(1).await;
    // A busy machine may be slow, too.
    *primary.short_syncs.lock() = Some(Duration::from_secs(60));
    *bench.net.syncs_wait.lock() = Some((3, 0));
    bench.manager.let_join(3);
    // It has everything, and does not count before it has synced that.
    bench.until(async || (bench.net.syncs.load(Ordering::Relaxed) > 0).then_some(())).await;
    let is_write: fn(&StorageOp) -> bool = |op| matches!(op, StorageOp::Write(_));
    *bench.net.slow.lock() = Some((3, is_write));
    let write = tokio::spawn({
        let bench = bench.clone();
        async move { bench.write(0, 3).await }
    });
    // What was settled before it may be told meanwhile.
    bench.until(async || (bench.net.looks.load(Ordering::Relaxed) > 2).then_some(())).await;
    assert_eq!(bench.manager.map.lock().groups[0].joining, [3]);
    *bench.net.slow.lock() = None;
    write.await.unwrap();
    *bench.net.syncs_wait.lock() = None;
    bench.until_in_sync(&[1, 3]).await;
    assert_eq!(bench.read(3, 0).await, 3);
}

/// Nor is it waited for if nobody reaches it.
#[tokio::test]
async fn a_member_that_joins_and_falls_silent_while_it_syncs_joins_no_more() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.manager.take_out(3);
    let server = bench.server(1);
    let primary = server.replica(&server.local(TargetId(1)).unwrap(), GROUP, 0).await.unwrap();
    *primary.short_syncs.lock() = Some(Duration::from_millis(500));
    *bench.net.syncs_wait.lock() = Some((3, 0));
    bench.manager.let_join(3);
    bench.until(async || (bench.net.syncs.load(Ordering::Relaxed) > 0).then_some(())).await;
    bench.net.silent.lock().insert(3);
    let joins = || !bench.manager.map.lock().groups[0].joining.is_empty();
    bench.until(async || (!joins()).then_some(())).await;
    assert_eq!(bench.manager.in_sync(), [1, 2]);
    bench.write(0, 2).await;
}

/// Of those in sync it has everything, too: taken out, it would not be asked when it answers again.
#[tokio::test]
async fn a_member_alone_in_sync_stays_when_its_disk_hangs() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.manager.take_out(2);
    bench.manager.take_out(3);
    bench.write(0, 2).await;
    bench.write(1, 4).await;
    let disk = bench.hold(1);
    let write = bench.begin_write(1, 0, 3);
    let target = TargetId(1);
    bench.until(async || bench.server(1).silent_ms(target)).await;
    let refused = bench.until(async || bench.read_from(1, 1).await.err()).await;
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    assert!(refused.detail.contains("target 1 ("), "{refused}");
    tokio::time::sleep(Limits::HELD.said_after * 3).await;
    assert_eq!(bench.manager.in_sync(), [1]);
    bench.let_go_on(1, &disk).await;
    write.await.unwrap().unwrap();
    assert_eq!(bench.read(1, 0).await, 3);
}

/// It was told that its write is under way, and nothing of the disk.
#[tokio::test]
async fn who_asks_a_member_alone_in_sync_again_for_what_its_disk_has_begun_hears_of_the_disk() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.manager.take_out(2);
    bench.manager.take_out(3);
    bench.write(0, 2).await;
    let disk = bench.hold(1);
    let attempt = bench.attempt();
    let begun = tokio::spawn({
        let bench = bench.clone();
        async move { bench.write_to(1, attempt, 0, 3).await }
    });
    bench.until(async || bench.server(1).silent_ms(TargetId(1))).await;
    let again = bench.write_to(1, attempt, 0, 3).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::NotCurrent, "it is under way: {again}");
    assert!(again.detail.contains("its disk does not answer"), "{again}");
    bench.let_go_on(1, &disk).await;
    begun.await.unwrap().unwrap();
}

/// Each of them took itself out of each epoch after five seconds, for ever, and all of these were stored.
#[tokio::test]
async fn members_that_all_hang_stay_in_sync_and_serve_when_their_disks_answer() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    *bench.manager.needs.lock() = true;
    let epoch = || bench.manager.map.lock().groups[0].epoch;
    let before = epoch();
    let disks = [1, 2, 3].map(|member| (member, bench.hold(member)));
    for member in 1..=MEMBERS {
        let reader = bench.clone();
        tokio::spawn(async move { reader.read_from(member, 0).await });
        bench.until(async || bench.server(member).silent_ms(TargetId(member))).await;
    }
    bench.until(async || (epoch() > before).then_some(())).await;
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    for (member, disk) in &disks {
        bench.let_go_on(*member, disk).await;
    }
    bench.write(0, 2).await;
    bench.reads_at(1..=MEMBERS, 0, 2).await;
}

/// It answered nobody any more, and the manager left it where it was: nobody served the group, also when the disk did again.
#[tokio::test]
async fn a_primary_goes_only_if_the_manager_says_that_it_hears_of_it() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.manager.older.store(true, Ordering::Relaxed);
    let disk = bench.hold(1);
    let write = bench.begin_write(1, 0, 2);
    bench.until(async || bench.server(1).silent_ms(TargetId(1))).await;
    tokio::time::sleep(Limits::HELD.said_after * 5).await;
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    bench.let_go_on(1, &disk).await;
    write.await.unwrap().unwrap();
    assert_eq!(bench.read(1, 0).await, 2);
}
