//! Two processes with the number of one server: one of them has a copy of the other's data directory.

use super::*;

impl Bench {
    /// A heartbeat of the process that has joined so.
    async fn beat_as(&self, join: &Join) -> Result<ManagerAnswer> {
        let Join { server, address, targets, .. } = join.clone();
        let beat = Heartbeat { server, address, targets, ..Heartbeat::default() };
        self.ask(ManagerOp::Heartbeat(beat)).await
    }

    async fn refused(&self, join: &Join) -> Error {
        let told = self.beat_as(join).await.unwrap_err();
        assert_eq!(told.kind, ErrorKind::Overtaken, "{told}");
        told
    }

    async fn only(&self) -> message::Server {
        self.map().await.servers.remove(0)
    }
}

/// A server in its first life, and a copy of it elsewhere in another.
async fn two(bench: &Bench) -> (Join, Join) {
    let first = Join { life: 7, ..server("a:1", &["x"]) };
    let joined = bench.join(first.clone()).await.unwrap();
    let first = again(&first, &joined);
    bench.beat_as(&first).await.unwrap();
    let copy = Join { address: "b:1".into(), life: 8, ..first.clone() };
    (first, copy)
}

fn of_generation(join: &Join, generation: u64) -> Join {
    let mut join = join.clone();
    join.targets[0].generation = Some(generation);
    join
}

/// Both went on under the number, and when the copy had gone all were sent to where it had been, for ever.
#[tokio::test]
async fn who_was_silent_while_a_copy_joined_is_told_to_end_and_its_next_join_puts_all_right() {
    let bench = Bench::new().await;
    let (first, copy) = two(&bench).await;
    bench.clock.pass(3_001);
    bench.join(copy.clone()).await.unwrap();
    for _ in 0..2 {
        let told = bench.refused(&first).await.detail;
        // After the last semicolon comes what to do.
        let (why, next) = told.rsplit_once("; ").unwrap();
        assert!(why.contains("runs as server 1 at b:1"), "{told}");
        assert!(next.starts_with("if that one has") && next.contains("was restored"), "{told}");
        bench.beat_as(&copy).await.unwrap();
    }
    let shown = bench.only().await;
    assert_eq!((shown.address.as_str(), shown.up), ("b:1", true));
    bench.clock.pass(3_001);
    bench.refused(&first).await;
    assert!(!bench.only().await.up, "what is refused keeps nobody alive");
    let next = Join { life: 9, ..first.clone() };
    bench.join(next.clone()).await.unwrap();
    bench.beat_as(&next).await.unwrap();
    let shown = bench.only().await;
    assert_eq!((shown.address.as_str(), shown.up), ("a:1", true));
    bench.refused(&copy).await;
}

/// It was taken back in without a Join, with disks that lacked what the copy had acknowledged.
#[tokio::test]
async fn who_was_overtaken_comes_back_with_no_disk_that_is_older_than_that_of_the_copy() {
    let bench = Bench::new().await;
    let first = Join { life: 7, ..of_generation(&server("a:1", &["x"]), 0) };
    let joined = bench.join(first.clone()).await.unwrap();
    assert_eq!(joined.generations, [1]);
    let first = of_generation(&again(&first, &joined), 1);
    bench.beat_as(&first).await.unwrap();
    bench.clock.pass(3_001);
    let copy = Join { address: "b:1".into(), life: 8, ..first.clone() };
    let joined = bench.join(copy.clone()).await.unwrap();
    assert_eq!(joined.generations, [2]);
    bench.beat_as(&of_generation(&copy, 2)).await.unwrap();
    bench.ask(ManagerOp::Leave(Leave { server: 1, life: 8 })).await.unwrap();
    bench.refused(&first).await;
    let error = bench.join(Join { life: 9, ..first }).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongPeer, "{error}");
    assert!(error.detail.contains("is older than when its server last started"), "{error}");
}

/// A manager that has just begun to lead took the one that it heard first for the other.
#[tokio::test]
async fn who_has_joined_last_is_known_to_each_manager_and_nobody_else_is_refused() {
    let mut bench = Bench::new().await;
    let (first, copy) = two(&bench).await;
    bench.restart().await;
    bench.refused(&copy).await;
    bench.beat_as(&first).await.unwrap();
    // Its next life, and then a Join of the earlier one, which was under way.
    for life in [9, 7] {
        bench.join(Join { life, ..first.clone() }).await.unwrap();
        bench.beat_as(&first).await.unwrap();
    }
    let earlier_release = Join { address: String::new(), ..copy };
    bench.beat_as(&earlier_release).await.unwrap();
    // Another server has taken its address.
    bench.clock.pass(3_001);
    bench.join(server("a:1", &["y"])).await.unwrap();
    bench.beat_as(&first).await.unwrap();
}

/// The one that had joined last was taken out by what the other said as it ended, and others went on without it while its lease ran: a
/// manager that had begun since knew no lives.
#[tokio::test]
async fn who_was_overtaken_takes_nobody_out_when_it_leaves_at_a_manager_that_has_begun_since() {
    let mut bench = Bench::new().await;
    let (_, copy) = two(&bench).await;
    bench.clock.pass(3_001);
    bench.join(copy.clone()).await.unwrap();
    bench.restart().await;
    bench.beat_as(&copy).await.unwrap();
    for (life, up) in [(7, true), (8, false)] {
        bench.ask(ManagerOp::Leave(Leave { server: 1, life })).await.unwrap();
        assert_eq!(bench.only().await.up, up, "life {life}");
    }
}

/// `strake status` was fine, whichever of the two the administrator looked for.
#[tokio::test]
async fn a_process_that_asks_to_join_under_the_number_of_a_server_that_is_heard_is_shown() {
    let bench = Bench::new().await;
    let (first, copy) = two(&bench).await;
    assert_eq!(bench.only().await.rival, "");
    let error = bench.join(copy.clone()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    assert_eq!(bench.only().await.rival, "b:1");
    bench.clock.pass(3_001);
    bench.beat_as(&first).await.unwrap();
    assert_eq!(bench.only().await.rival, "", "it asks no more");
    bench.join(copy.clone()).await.unwrap_err();
    bench.clock.pass(3_001);
    bench.join(copy).await.unwrap();
    assert_eq!(bench.only().await.rival, "", "it was let in");
}
