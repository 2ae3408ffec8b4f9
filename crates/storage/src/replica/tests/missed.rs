//! Members that the manager hears, and that do not take what their primary sends them.

use super::*;
use crate::replica::MEMBER_WAIT;
use crate::replica::spread::COUNTED_PART;
use crate::replica::sync::LOOK_WAIT;
use strake_wire::message::manager::{Doubt, Missed, Resign};
use tokio::task::JoinHandle;

impl Bench {
    /// What the server of a primary tells the manager of a member, as soon as it is so.
    async fn until_told(&self, primary: u32, is_so: impl Fn(&Missed) -> bool) -> Missed {
        self.until(async || self.server(primary).missed().into_iter().find(&is_so)).await
    }

    /// The manager asks a member to go from an epoch.
    fn ask_to_resign(&self, member: u32, epoch: u64) {
        let resign = Resign { group: self.group.0, epoch, member };
        self.server(member).ask_to_resign(&[resign]);
    }

    fn epoch(&self) -> u64 {
        self.manager.map.lock().groups[0].epoch
    }

    /// A write that the first member is sent once; answers as soon as that misses another one.
    async fn waiting_write(self: &Arc<Self>) -> JoinHandle<Result<()>> {
        let (writer, attempt) = (self.clone(), self.attempt());
        let write = tokio::spawn(async move { writer.write_to(1, attempt, 0, 2).await });
        self.until_told(1, |told| told.silent).await;
        write
    }
}

/// Its lease lasted, so no write of the group ended, and nobody said why.
#[tokio::test]
async fn a_member_that_its_primary_does_not_reach_is_told_until_it_takes_what_it_is_sent() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let (_attempt, half) = bench.half_made().await;
    let told = bench.until_told(1, |told| told.silent).await;
    let epoch = bench.manager.map.lock().groups[0].epoch;
    assert_eq!((told.group, told.epoch, told.member), (GROUP.0, epoch, 3));
    assert_eq!(bench.manager.in_sync(), [1, 2, 3], "it may answer readers");
    bench.net.cut.lock().clear();
    bench.write(1, 3).await;
    half.await.unwrap().unwrap();
    bench.until(async || bench.server(1).missed().is_empty().then_some(())).await;
}

/// It said in its log that it cannot lead yet, and to the manager nothing.
#[tokio::test]
async fn a_new_primary_tells_of_a_member_that_it_does_not_reach() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.cut(2, 3);
    bench.lose(1);
    assert_eq!(bench.until_told(2, |told| told.silent).await.member, 3);
}

/// The network was looked at, and nothing was wrong with it.
#[tokio::test]
async fn a_member_that_is_slow_is_told_as_one_that_says_that_it_is_there() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let is_write: Which = |op| matches!(op, StorageOp::Write(_));
    *bench.net.slow.lock() = Some((3, is_write));
    let (attempt, writer) = (bench.attempt(), bench.clone());
    let write = tokio::spawn(async move { writer.write_to(1, attempt, 0, 2).await });
    assert_eq!(bench.until_told(1, |told| !told.silent).await.member, 3);
    *bench.net.slow.lock() = None;
    drop(write.await.unwrap());
}

/// It was named when its answer was late, as one whose disk is slow.
#[tokio::test]
async fn a_member_that_is_silent_is_told_before_its_answer_is_late() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.net.silent.lock().insert(3);
    let (attempt, writer) = (bench.attempt(), bench.clone());
    let write = tokio::spawn(async move { writer.write_to(1, attempt, 0, 2).await });
    let told = bench.until_told(1, |told| told.member == 3);
    tokio::time::timeout(MEMBER_WAIT, told).await.expect("it does not say that it is there");
    bench.until_told(1, |told| told.silent).await;
    bench.net.silent.lock().clear();
    bench.write(0, 3).await;
    drop(write.await);
}

/// Each change asked for itself.
#[tokio::test]
async fn what_a_slow_member_is_sent_is_sent_once_and_it_is_asked_by_one_for_all_whether_it_is_there()
 {
    const WRITES: u64 = 20;
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let primary = bench.replica(1).await;
    let is_told = || {
        let state = primary.state.lock();
        let reign = state.reign.as_ref();
        reign.is_some_and(|reign| reign.told == reign.settled()).then_some(())
    };
    bench.until(async || is_told()).await;
    let is_write: Which = |op| matches!(op, StorageOp::Write(_));
    *bench.net.slow.lock() = Some((3, is_write));
    let looks = || bench.net.looks.load(Ordering::Relaxed);
    let before = looks();
    let writes = (0..WRITES).map(|block| {
        let (attempt, writer) = (bench.attempt(), bench.clone());
        tokio::spawn(async move { writer.write_to(1, attempt, block, 2).await })
    });
    let writes: Vec<_> = writes.collect();
    tokio::time::sleep(MEMBER_WAIT / COUNTED_PART).await;
    bench.until(async || (looks() > before).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = looks() - before;
    assert!(asked < WRITES / 2, "{asked}");
    assert_eq!(bench.net.slow_calls.load(Ordering::Relaxed), WRITES);
    *bench.net.slow.lock() = None;
    for write in writes {
        write.await.unwrap().unwrap();
    }
    bench.reads_at(1..=MEMBERS, 0, 2).await;
}

/// Its answer waited for the epoch, that for the change, and that for the disk: the network was taken for cut.
#[tokio::test]
async fn a_member_whose_disk_is_slow_says_that_it_is_there_while_an_epoch_waits_for_that() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let disk = bench.disks.lock()[&3].clone();
    disk.hold();
    let (attempt, writer) = (bench.attempt(), bench.clone());
    let write = tokio::spawn(async move { writer.write_to(1, attempt, 0, 2).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    bench.manager.decide(|_| {});
    let next = tokio::spawn({
        let bench = bench.clone();
        async move { bench.write(1, 3).await }
    });
    bench.until_told(1, |told| told.member == 3).await;
    // It has been asked by then.
    tokio::time::sleep(LOOK_WAIT + Duration::from_secs(1)).await;
    assert!(bench.server(1).missed().iter().all(|told| !told.silent));
    disk.go_on();
    next.await.unwrap();
    drop(write.await);
    bench.reads_at(1..=MEMBERS, 1, 3).await;
}

/// Of two groups of two servers that did not reach each other writes waited for the first, and then as long for the second.
#[tokio::test]
async fn a_member_that_the_manager_doubts_is_told_as_silent_if_it_is_although_nothing_is_sent_to_it()
 {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    let epoch = bench.epoch();
    let doubt = Doubt { group: bench.group.0, epoch, member: 3, primary: 1 };
    bench.server(1).doubt(&[doubt]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.server(1).missed(), []);
    bench.cut(1, 3);
    let told = async || {
        bench.server(1).doubt(&[doubt]);
        bench.server(1).missed().into_iter().find(|told| told.silent)
    };
    assert_eq!(bench.until(told).await.member, 3);
    bench.net.cut.lock().clear();
    bench.write(0, 2).await;
    bench.until(async || bench.server(1).missed().is_empty().then_some(())).await;
}

/// The manager took the way for whole: it let it join in each group, again and again.
#[tokio::test]
async fn of_a_member_that_joins_in_vain_the_manager_hears_whether_it_was_silent() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    let is_digests: Which = |op| matches!(op, StorageOp::Digests(_));
    for is_cut in [true, false] {
        bench.manager.take_out(3);
        bench.write(0, 2).await;
        match is_cut {
            true => bench.cut(1, 3),
            false => *bench.net.fails.lock() = Some((3, is_digests, ErrorKind::Io)),
        }
        bench.manager.let_join(3);
        let joined = async || bench.manager.joined.lock().take();
        assert_eq!(bench.until(joined).await.silent, is_cut);
        bench.net.cut.lock().clear();
    }
}

/// It was silent for its primary and heard by the manager, so no write of the group ended.
#[tokio::test]
async fn a_member_that_is_asked_to_go_answers_nobody_and_the_write_that_waits_for_it_ends() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.cut(1, 3);
    let write = bench.waiting_write().await;
    bench.ask_to_resign(3, bench.epoch() - 1);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.manager.in_sync(), [1, 2, 3], "of an epoch that is over");
    bench.ask_to_resign(3, bench.epoch());
    bench.server(3).ask_to_resign(&[]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.manager.in_sync(), [1, 2, 3], "it was asked no more");
    bench.ask_to_resign(3, bench.epoch());
    bench.until_in_sync(&[1, 2]).await;
    write.await.unwrap().unwrap();
    assert!(bench.has_resigned(3).await);
    assert_eq!((bench.read(1, 0).await, bench.read(2, 0).await), (2, 2));
    bench.read_from(3, 0).await.expect_err("it is out");
    bench.net.cut.lock().clear();
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    assert_eq!(bench.read(3, 0).await, 2);
}

#[tokio::test]
async fn a_primary_that_is_asked_to_go_leaves_its_write_to_the_next_one() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.cut(1, 3);
    let write = bench.waiting_write().await;
    bench.ask_to_resign(1, bench.epoch());
    bench.until_in_sync(&[2, 3]).await;
    let told = write.await.unwrap().unwrap_err();
    assert!(matches!(told.kind, ErrorKind::NotCurrent | ErrorKind::StaleMap), "{told}");
    bench.write(0, 3).await;
    assert_eq!((bench.read(2, 0).await, bench.read(3, 0).await), (3, 3));
    bench.read_from(1, 0).await.expect_err("it is out");
}

/// Whoever led next did not have it, and its client would have been told of a loss.
#[tokio::test]
async fn a_primary_that_has_acknowledged_something_alone_says_so_and_does_not_go() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.cut(1, 3);
    bench.write_early(1, 2).await;
    assert!(bench.until_told(1, |told| told.silent).await.early);
    bench.ask_to_resign(1, bench.epoch());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!bench.has_resigned(1).await);
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    bench.ask_to_resign(3, bench.epoch());
    bench.until_in_sync(&[1, 2]).await;
    assert_eq!(bench.read(1, 0).await, 2);
    bench.until(async || bench.server(1).missed().is_empty().then_some(())).await;
}
