//! Members whose store fails for good, the primary too.

use super::*;

impl Bench {
    /// From now on what a member asks its own store as the primary fails so, or not any more.
    async fn break_own(&self, member: u32, how: Option<ErrorKind>) {
        self.replica(member).await.state.lock().failing.broken = how;
    }

    /// All have a block, and the disk of one makes nothing durable any more.
    async fn start_without_syncs(member: u32) -> Bench {
        let bench = Bench::start().await;
        let disk = bench.simulate(member).await;
        bench.write(0, 1).await;
        disk.set_syncs_fail(true);
        bench
    }

    /// Has the members of a primary make durable what they have.
    async fn sync_by(&self, primary: u32) -> Result<()> {
        let sync = StorageOp::Sync(msg::FileRef { volume: 1, ino: 2 });
        self.send(self.request(primary, sync), Bytes::new()).await.map(drop)
    }

    /// A change that fails half-way at the primary, which then makes what there is of it equal.
    fn begin_to_fail(self: &Arc<Self>) -> tokio::task::JoinHandle<Result<()>> {
        let bench = self.clone();
        tokio::spawn(async move { bench.fail_behind(1, 2).await })
    }
}

/// It asked itself again and again, and nobody could touch what the change had touched for as long as the reign lasted.
#[tokio::test]
async fn a_primary_whose_own_store_fails_at_what_a_change_has_left_goes_and_others_lead() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.break_own(1, Some(ErrorKind::Io)).await;
    let failing = bench.begin_to_fail();
    bench.until_in_sync(&[2, 3]).await;
    assert!(bench.has_resigned(1).await);
    failing.await.unwrap().unwrap_err();
    bench.write(1, 3).await;
    for member in [2, 3] {
        assert_eq!((bench.read(member, 0).await, bench.read(member, 1).await), (1, 3), "{member}");
    }
}

/// It could not lead, and nobody else was asked to: the whole group stood still.
#[tokio::test]
async fn a_new_primary_whose_own_store_fails_in_its_recovery_goes_and_the_next_one_leads() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    let (_attempt, half) = bench.half_made().await;
    bench.break_own(2, Some(ErrorKind::Io)).await;
    bench.lose(1);
    half.abort();
    bench.until_in_sync(&[3]).await;
    assert!(bench.has_resigned(2).await);
    bench.write(1, 3).await;
    assert_eq!((bench.read(3, 0).await, bench.read(3, 1).await), (1, 3));
}

/// The manager has nobody else: it is to go on as soon as its store answers.
#[tokio::test]
async fn a_primary_that_is_needed_goes_on_when_its_store_fails_no_more() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    *bench.manager.needs.lock() = true;
    let epoch = || bench.manager.map.lock().groups[0].epoch;
    let before = epoch();
    bench.break_own(1, Some(ErrorKind::Io)).await;
    let failing = bench.begin_to_fail();
    bench.until(async || (epoch() > before).then_some(())).await;
    assert_eq!(bench.manager.in_sync(), [1, 2, 3]);
    bench.break_own(1, None).await;
    failing.await.unwrap().unwrap_err();
    bench.write(1, 3).await;
    bench.reads_at(1..=MEMBERS, 1, 3).await;
}

/// It was taken out by the word of the primary alone: with a lease it answered readers still, also with what others wrote over.
#[tokio::test]
async fn a_member_that_cannot_sync_answers_nobody_before_it_is_taken_out() {
    let bench = Bench::start_without_syncs(3).await;
    // Those that go on have synced, or in the next epoch are to be asked again.
    let _synced = bench.sync_by(1).await;
    bench.until_in_sync(&[1, 2]).await;
    assert!(bench.has_resigned(3).await);
    assert_eq!(bench.read(2, 0).await, 1);
}

/// Its client was told EIO, though the others had everything, and one of them led and synced it a second later.
#[tokio::test]
async fn a_primary_that_cannot_sync_leaves_that_to_the_others() {
    let bench = Bench::start_without_syncs(1).await;
    let refused = bench.sync_by(1).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotCurrent, "{refused}");
    bench.manager.take_out(1);
    bench.until(async || bench.sync_by(2).await.ok()).await;
    assert_eq!(bench.read(2, 0).await, 1);
}

/// Only those in sync take themselves out: changes waited for as long as it took to make it equal, and then to find that out.
#[tokio::test]
async fn a_member_that_joins_and_counts_is_not_waited_for_when_its_damage_is_not_mended() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.manager.take_out(3);
    *bench.net.syncs_wait.lock() = Some((3, 1));
    bench.manager.let_join(3);
    // It has everything, and has synced that: from now on it counts, and is to sync again.
    bench.until(async || (bench.net.syncs.load(Ordering::Relaxed) > 1).then_some(())).await;
    let is_write: fn(&StorageOp) -> bool = |op| matches!(op, StorageOp::Write(_));
    *bench.net.fails.lock() = Some((3, is_write, ErrorKind::Corrupt));
    let write = tokio::spawn({
        let bench = bench.clone();
        async move { bench.write(0, 2).await }
    });
    let joins = || !bench.manager.map.lock().groups[0].joining.is_empty();
    bench.until(async || (!joins()).then_some(())).await;
    assert_eq!(bench.manager.in_sync(), [1, 2]);
    write.await.unwrap();
    bench.reads_at([1, 2], 0, 2).await;
}
