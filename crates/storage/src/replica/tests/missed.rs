//! Members that the manager hears, and that do not take what their primary sends them.

use super::*;
use strake_wire::message::manager::Missed;

impl Bench {
    /// What the server of a primary tells the manager of a member, as soon as it is so.
    async fn until_told(&self, primary: u32, is_so: impl Fn(&Missed) -> bool) -> Missed {
        self.until(async || self.server(primary).missed().into_iter().find(&is_so)).await
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
