//! What members do, and do not, for those to whom they have promised to do nothing without them.

use super::*;
use crate::replica::Stage;

/// From now on a promise to a member runs, until the test ends it.
pub(super) fn promise(replica: &Replica, member: u32) {
    let until = replica.common.clock.monotonic() + Duration::from_secs(3_600);
    replica.state.lock().promised.insert(TargetId(member), until);
}

/// All hear that a member joins.
async fn let_join_and_tell(bench: &Bench, member: u32) {
    bench.manager.let_join(member);
    for id in 1..=MEMBERS {
        // It may have come already, and then nothing does.
        drop(bench.server(id).map().refresh().await);
    }
}

/// It promised to do nothing without 3, and 2, which was in sync in an epoch of which neither had heard, did: 3 went on answering with
/// what was overwritten.
#[tokio::test]
async fn a_primary_that_counts_a_joining_member_promises_nobody() {
    let bench = Bench::start().await;
    bench.manager.take_out(2);
    bench.write(0, 1).await;
    *bench.manager.fades.lock() = true;
    let_join_and_tell(&bench, 2).await;
    let primary = bench.replica(1).await;
    let counts = || primary.state.lock().counts_joining();
    bench.until(async || counts().then_some(())).await;
    assert_eq!(bench.read(3, 0).await, 1);
    let read = msg::Read { chunk: chunk(0), offset: 0, len: BLOCK as u64 };
    let read = bench.request(3, StorageOp::Read(read));
    bench.manager.unheard.lock().extend([1, 3]);
    *bench.manager.fades.lock() = false;
    bench.manager.decide(|group| {
        group.in_sync = vec![2];
        group.joining.clear();
    });
    bench.write(0, 2).await;
    bench.server(3).lease().end();
    let refused = bench.send(read, Bytes::new()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotCurrent, "{refused}");
}

/// It did at once, and could lead while somebody read by that promise.
#[tokio::test]
async fn a_joining_member_counts_only_when_no_promise_of_the_primary_runs() {
    let bench = Bench::start().await;
    bench.manager.take_out(2);
    bench.write(0, 1).await;
    let primary = bench.replica(1).await;
    promise(&primary, 3);
    bench.net.syncs.store(0, Ordering::Relaxed);
    bench.manager.let_join(2);
    bench.until(async || (bench.net.syncs.load(Ordering::Relaxed) > 0).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.manager.in_sync(), [1, 3], "it is equal, and waits");
    bench.write(0, 2).await;
    primary.state.lock().promised.clear();
    bench.until_in_sync(&[1, 2, 3]).await;
    assert_eq!(bench.read(2, 0).await, 2);
}

/// It counted although nobody could hear of it, and its primary, which promises nobody any more then, alone answered readers for as
/// long as the manager was away.
#[tokio::test]
async fn a_joining_member_counts_only_while_the_manager_may_hear_of_it() {
    let bench = Bench::start().await;
    bench.manager.take_out(2);
    bench.write(0, 1).await;
    let primary = bench.replica(1).await;
    *bench.manager.fades.lock() = true;
    for id in [1, 3] {
        bench.server(id).lease().end();
    }
    bench.net.syncs.store(0, Ordering::Relaxed);
    let_join_and_tell(&bench, 2).await;
    bench.until(async || (bench.net.syncs.load(Ordering::Relaxed) > 0).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let counts = || primary.state.lock().counts_joining();
    assert!(!counts(), "it is equal, and waits");
    assert_eq!(bench.read(3, 0).await, 1);
    *bench.manager.fades.lock() = false;
    let lease = bench.server(1).lease();
    lease.renew(lease.now(), 1_000_000_000);
    bench.until_in_sync(&[1, 2, 3]).await;
}

/// It had synced before it waited: who synced when it counted waited for all that it had been sent meanwhile.
#[tokio::test]
async fn a_joining_member_that_may_not_count_for_long_syncs_again_before() {
    let bench = Bench::start().await;
    bench.manager.take_out(2);
    bench.write(0, 1).await;
    let primary = bench.replica(1).await;
    promise(&primary, 3);
    *primary.short_syncs.lock() = Some(Duration::from_millis(500));
    bench.manager.let_join(2);
    let numbers = || bench.net.sync_numbers.lock().len();
    bench.until(async || (numbers() > 2).then_some(())).await;
    assert_eq!(bench.manager.in_sync(), [1, 3], "it waits still");
    *primary.short_syncs.lock() = None;
    primary.state.lock().promised.clear();
    bench.until_in_sync(&[1, 2, 3]).await;
}

/// A recovery did, and 2 showed its readers what 3, which read by the promise, did not have.
#[tokio::test]
async fn a_new_primary_makes_nothing_equal_while_a_promise_runs() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    assert_eq!(bench.read(2, 0).await, 1);
    bench.cut(1, 2);
    bench.cut(1, 3);
    let attempt = bench.attempt();
    let lone = tokio::spawn({
        let bench = bench.clone();
        async move { bench.write_to(1, attempt, 0, 2).await }
    });
    let primary = bench.replica(1).await;
    let is_made = || {
        let state = primary.state.lock();
        state.unsettled.values().any(|entry| entry.stage == Stage::Applied)
    };
    bench.until(async || is_made().then_some(())).await;
    promise(&primary, 3);
    bench.manager.take_out(3);
    for id in [1, 2] {
        bench.server(id).map().refresh().await.unwrap();
    }
    let epoch = bench.manager.map.lock().groups[0].epoch;
    let recovers = || {
        let state = primary.state.lock();
        state.reign.as_ref().is_some_and(|reign| reign.since == epoch && reign.recovering)
    };
    bench.until(async || recovers().then_some(())).await;
    lone.abort();
    bench.net.cut.lock().clear();
    for _ in 0..50 {
        assert_eq!(bench.read_from(2, 0).await.unwrap(), 1, "3 may show that still");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    primary.state.lock().promised.clear();
    assert_eq!((bench.read(1, 0).await, bench.read(2, 0).await), (2, 2));
}
