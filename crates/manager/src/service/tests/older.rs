//! A manager whose data are from a backup, and servers that know a later map.

use super::*;

/// Two storage servers, and one without targets, each in its first life.
async fn three() -> (Bench, Vec<Join>) {
    let (bench, mut joins) = (Bench::new().await, Vec::new());
    for (nth, uuids) in [(1_u32, &["x"][..]), (2, &["y"][..]), (3, &[][..])] {
        let join = Join { life: u64::from(nth), ..server(&format!("h{nth}:1"), uuids) };
        let joined = bench.join(join.clone()).await.unwrap();
        assert_eq!(joined.server, nth);
        joins.push(again(&join, &joined));
    }
    (bench, joins)
}

impl Bench {
    /// A heartbeat of a server that goes by the map of this epoch.
    async fn beat_by(&self, server: u32, epoch: u64) {
        let beat = Heartbeat { server, epoch, ..Heartbeat::default() };
        self.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    }

    /// Servers that are shown as such that may know more than the manager.
    async fn ahead(&self) -> Vec<u32> {
        let servers = self.map().await.servers;
        servers.iter().filter(|server| server.ahead).map(|server| server.id).collect()
    }
}

/// They refused what was asked by the older map until they were started again, and nobody was told.
#[tokio::test]
async fn storage_servers_that_live_on_beside_older_data_are_shown_until_they_join() {
    let (mut bench, joins) = three().await;
    let epoch = bench.map().await.epoch;
    bench.restart().await;
    bench.beat_by(1, epoch).await;
    assert!(bench.ahead().await.is_empty());
    bench.beat_by(1, epoch + 100).await;
    assert_eq!(bench.ahead().await, [1, 2], "the third holds nothing");
    bench.restart().await;
    assert_eq!(bench.ahead().await, [1, 2], "it is not forgotten");
    bench.join(Join { life: 11, ..joins[0].clone() }).await.unwrap();
    assert_eq!(bench.ahead().await, [2]);
    // It was cut off, and knows a later one still.
    bench.beat_by(2, epoch + 200).await;
    assert_eq!(bench.ahead().await, [2], "the first has begun anew since");
    bench.join(Join { life: 12, ..joins[1].clone() }).await.unwrap();
    assert!(bench.ahead().await.is_empty());
}

#[tokio::test]
async fn no_server_is_ahead_of_a_manager_that_goes_on_with_what_the_one_before_has_stored() {
    let (mut bench, joins) = three().await;
    for join in joins {
        bench.create(named(&format!("of{}", join.server))).await.unwrap();
        bench.join(join).await.unwrap();
        let epoch = bench.map().await.epoch;
        bench.restart().await;
        for server in 1..=3 {
            bench.beat_by(server, epoch).await;
        }
        assert!(bench.ahead().await.is_empty());
    }
}

/// Acknowledged files were gone, and the cluster was fine.
#[tokio::test]
async fn storage_servers_are_shown_where_the_database_of_a_metadata_server_has_gone_back() {
    let (mut bench, joins) = three().await;
    bench.restart().await;
    let epoch = bench.map().await.epoch;
    let beat = Heartbeat { server: 3, gone_back: true, ..Heartbeat::default() };
    bench.ask(ManagerOp::Heartbeat(beat.clone())).await.unwrap();
    assert_eq!(bench.ahead().await, [1, 2], "the third holds nothing");
    let behind = bench.map().await.epoch;
    assert!(
        behind > epoch + 1000,
        "who knows maps that are lost takes none of these for one of them"
    );
    bench.join(Join { life: 11, ..joins[0].clone() }).await.unwrap();
    assert_eq!(bench.ahead().await, [2]);
    // Another one has met it later.
    bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    assert_eq!(bench.ahead().await, [2], "the first has begun anew since");
}

/// All were marked by each of its heartbeats, also those that had been started anew.
#[tokio::test]
async fn a_server_that_older_data_do_not_know_marks_nobody() {
    let (mut bench, _) = three().await;
    bench.restart().await;
    let beat = Heartbeat { server: 4, gone_back: true, ..Heartbeat::default() };
    let error = bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSession);
    assert!(bench.ahead().await.is_empty());
}
