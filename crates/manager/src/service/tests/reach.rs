//! Servers that are heard and not reached.

use super::copies::{TWO, sets};
use super::*;
use crate::options::Ways;
use std::collections::BTreeMap;
use strake_types::GroupId;
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::server::{Identity, Listener, serve};
use strake_wire::service::Services;

const SECOND: Duration = Duration::from_secs(1);

/// Servers that send heartbeats five times a second, with leases of 0.7 s, and at which the manager looks every second.
struct Looking {
    bench: Bench,
    servers: Vec<(Join, Joined)>,
}

impl Looking {
    /// So many that have groups of two copies.
    async fn at(servers: u32) -> Self {
        let (bench, servers) = Bench::with_two_copies(servers).await;
        let looking = Self { bench, servers };
        // The leases that nobody asked for end.
        for _ in 0..4 {
            assert_eq!(looking.second(&[]).await, [0; 0]);
        }
        looking
    }

    /// A second at whose beginning these are not reached. Whose heartbeats are refused then, all or some.
    async fn second(&self, unreached: &[u32]) -> Vec<u32> {
        let manager = &self.bench.manager;
        for part in 0..10 {
            for (server, _) in manager.due_looks(part) {
                let end = match unreached.contains(&server) {
                    true => Err("connection refused".to_owned()),
                    false => Ok(()),
                };
                manager.note_look((server, self.bench.clock.monotonic(), end));
            }
        }
        let mut refused = BTreeSet::new();
        for _ in 0..5 {
            self.bench.clock.pass(200);
            for (join, joined) in &self.servers {
                if self.is_refused(again(join, joined)).await {
                    refused.insert(joined.server);
                }
            }
            manager.watch().await.unwrap();
        }
        refused.into_iter().collect()
    }

    /// A server sends a heartbeat. True if that is refused.
    async fn is_refused(&self, Join { server, targets, .. }: Join) -> bool {
        let beat = Heartbeat { server, targets, lease_ms: 700, ..Heartbeat::default() };
        let sent = self.bench.ask(ManagerOp::Heartbeat(beat)).await;
        let error = sent.err();
        assert!(
            error.iter().all(|error| error.detail.contains("cannot reach it at ")),
            "{error:?}"
        );
        error.is_some()
    }

    /// What a server says of itself.
    fn of(&self, server: usize) -> Join {
        let (join, joined) = &self.servers[server - 1];
        again(join, joined)
    }

    async fn group(&self) -> message::Group {
        self.bench.map().await.group(GroupId(TWO)).unwrap().clone()
    }

    async fn up(&self) -> Vec<bool> {
        self.bench.map().await.servers.iter().map(|server| server.up).collect()
    }
}

/// It was up for ever, and all that have a copy there waited for it until they failed.
#[tokio::test]
async fn who_is_heard_and_not_reached_is_taken_out_as_one_that_is_silent_and_comes_back_as_one() {
    let looking = Looking::at(3).await;
    for _ in 0..3 {
        assert_eq!(looking.second(&[1]).await, [0; 0], "one that is silent has as long");
    }
    assert_eq!(
        (sets(&looking.group().await), looking.up().await),
        ((&[1, 2][..], &[][..]), vec![true; 3])
    );
    assert_eq!(looking.second(&[1]).await, [1]);
    assert_eq!(sets(&looking.group().await), (&[2][..], &[][..]));
    let servers = looking.bench.map().await.servers;
    assert_eq!(servers.iter().map(|one| one.up).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(
        servers.iter().map(|one| &*one.unreached).collect::<Vec<_>>(),
        ["connection refused", "", ""]
    );
    // Also when it has been refused for longer than others are remembered that say nothing.
    for _ in 0..9 {
        assert_eq!(looking.second(&[1]).await, [1]);
    }
    for _ in 0..3 {
        assert_eq!(looking.second(&[]).await, [1], "once alone may be chance");
    }
    assert_eq!(looking.second(&[]).await, [0; 0]);
    assert_eq!(sets(&looking.group().await), (&[2][..], &[1][..]));
    assert_eq!(looking.up().await, [true; 3]);
    assert_eq!(looking.bench.map().await.servers[0].unreached, "");
}

/// Until its lease is over it may answer readers.
#[tokio::test]
async fn who_is_not_reached_is_not_taken_out_before_the_lease_that_it_got_last_is_over() {
    let looking = Looking::at(3).await;
    for _ in 0..3 {
        looking.second(&[1]).await;
    }
    let Looking { bench, servers } = &looking;
    let began = bench.clock.monotonic();
    bench.manager.note_look((1, began, Err("no answer".into())));
    for passed in [200, 400, 600, 800] {
        bench.clock.pass(200);
        bench.beat_of(&servers[1].0, &servers[1].1).await;
        bench.beat_of(&servers[2].0, &servers[2].1).await;
        bench.manager.watch().await.unwrap();
        let in_sync = bench.manager.inner.lock().state.groups[&TWO].in_sync.clone();
        assert_eq!(in_sync.contains(&1), passed < 700, "after {passed} ms");
    }
}

#[tokio::test]
async fn a_manager_that_reaches_hardly_anybody_takes_nobody_out_and_says_whom_it_does_not_reach() {
    for (servers, unreached) in [(4, &[1, 2][..]), (2, &[1][..]), (1, &[1][..])] {
        let looking = match servers {
            1 => {
                let (bench, mut servers) = Bench::with_two_copies(2).await;
                bench.ask(ManagerOp::Leave(Leave { server: 2, life: 0 })).await.unwrap();
                servers.truncate(1);
                Looking { bench, servers }
            }
            _ => Looking::at(servers).await,
        };
        for _ in 0..8 {
            assert_eq!(looking.second(unreached).await, [0; 0], "of {servers}");
        }
        let map = looking.bench.map().await;
        let why = |id: u32| if unreached.contains(&id) { "connection refused" } else { "" };
        let shown = map.servers.iter().take(servers as usize);
        assert!(shown.clone().all(|server| server.up && server.unreached == why(server.id)));
        assert_eq!(shown.count(), servers as usize);
    }
}

/// A network that loses some, or a server that is late now and then.
#[tokio::test]
async fn who_is_reached_now_and_then_stays() {
    let looking = Looking::at(3).await;
    for _ in 0..5 {
        for unreached in [&[1][..], &[1], &[1], &[]] {
            assert_eq!(looking.second(unreached).await, [0; 0]);
        }
    }
    assert_eq!(
        (sets(&looking.group().await), looking.up().await),
        ((&[1, 2][..], &[][..]), vec![true; 3])
    );
}

/// Answers lie where it has not read them yet.
#[tokio::test]
async fn while_the_manager_stood_still_nobody_was_unreached() {
    let looking = Looking::at(3).await;
    let manager = &looking.bench.manager;
    let began = looking.bench.clock.monotonic();
    looking.bench.clock.pass(60_000);
    for _ in 0..5 {
        manager.note_look((1, began, Err("no answer".into())));
    }
    assert_eq!(looking.second(&[]).await, [0; 0]);
    assert_eq!(looking.bench.map().await.servers[0].unreached, "");
}

/// Its address may be another one now.
#[tokio::test]
async fn a_server_that_joins_again_is_looked_at_anew() {
    let looking = Looking::at(3).await;
    for _ in 0..4 {
        looking.second(&[3]).await;
    }
    for _ in 0..16 {
        looking.bench.clock.pass(200);
        for server in [1, 2] {
            assert!(!looking.is_refused(looking.of(server)).await);
        }
        looking.bench.manager.watch().await.unwrap();
    }
    let moved = Join { address: "elsewhere:1".into(), ..looking.of(3) };
    looking.bench.join(moved).await.unwrap();
    for passed in 0..4 {
        assert_eq!(looking.second(&[3]).await, [0; 0]);
        let why = if passed < 3 { "" } else { "connection refused" };
        assert_eq!(looking.bench.map().await.servers[2].unreached, why, "after {passed} s");
    }
}

/// Both copies were cut, and nobody answered for what they held.
#[tokio::test]
async fn of_a_group_of_which_no_copy_is_reached_none_is_refused() {
    let looking = Looking::at(5).await;
    for _ in 0..9 {
        assert_eq!(looking.second(&[1, 2]).await, [0; 0]);
    }
    assert_eq!(
        (sets(&looking.group().await), looking.up().await),
        ((&[1, 2][..], &[][..]), vec![true; 5])
    );
    let servers = looking.bench.map().await.servers;
    let told: Vec<_> = servers.iter().map(|server| !server.unreached.is_empty()).collect();
    assert_eq!(told, [true, true, false, false, false]);
    // The other copy of each of these is reached.
    let looking = Looking::at(5).await;
    for _ in 0..3 {
        looking.second(&[1, 3]).await;
    }
    assert_eq!(looking.second(&[1, 3]).await, [1, 3]);
}

/// One that has no copy of anything was refused, and its targets did not answer for groups that were never used.
#[tokio::test]
async fn who_is_in_sync_in_no_group_of_several_copies_is_not_refused() {
    let bench = Bench::new().await;
    let mut servers = Vec::new();
    for nth in 1..=3 {
        let join = server(&format!("h{nth}:1"), &[&format!("t{nth}")]);
        servers.push((join.clone(), bench.join(join).await.unwrap()));
    }
    let looking = Looking { bench, servers };
    for _ in 0..9 {
        assert_eq!(looking.second(&[3]).await, [0; 0]);
    }
    assert_eq!(looking.bench.map().await.servers[2].unreached, "connection refused");
}

/// Nobody answered for the group, although one that has everything was well.
#[tokio::test]
async fn who_is_refused_is_heard_again_when_the_other_copy_falls_silent() {
    let looking = Looking::at(4).await;
    for _ in 0..3 {
        looking.second(&[1]).await;
    }
    let Looking { bench, .. } = &looking;
    bench.manager.note_look((1, bench.clock.monotonic(), Err("no answer".into())));
    bench.manager.watch().await.unwrap();
    for passed in (200..=4_000).step_by(200) {
        bench.clock.pass(200);
        for server in [3, 4] {
            assert!(!looking.is_refused(looking.of(server)).await);
        }
        let refused = looking.is_refused(looking.of(1)).await;
        assert!(refused || passed > 3_000, "after {passed} ms");
        bench.manager.watch().await.unwrap();
    }
    assert_eq!(sets(&looking.group().await), (&[1][..], &[][..]));
}

/// It was refused and heard in turn, as often as the disk of the other one changed its mind.
#[tokio::test]
async fn who_was_refused_and_is_heard_again_is_not_refused_at_once() {
    let looking = Looking::at(4).await;
    for _ in 0..3 {
        looking.second(&[1]).await;
    }
    let Looking { bench, .. } = &looking;
    bench.manager.note_look((1, bench.clock.monotonic(), Err("no answer".into())));
    bench.manager.watch().await.unwrap();
    assert!(looking.is_refused(looking.of(1)).await);
    let mut hangs = looking.of(2);
    hangs.targets[0].silent_ms = Some(20_000);
    looking.is_refused(hangs).await;
    bench.manager.watch().await.unwrap();
    for passed in [200, 400, 600, 800, 1_000, 1_200] {
        bench.clock.pass(200);
        for server in 2..=4 {
            looking.is_refused(looking.of(server)).await;
        }
        bench.manager.watch().await.unwrap();
        assert_eq!(looking.is_refused(looking.of(1)).await, passed >= 1_000, "after {passed} ms");
    }
}

/// One lost answer of another one made the manager suspect its own network.
#[tokio::test]
async fn who_is_refused_stays_so_when_one_look_at_another_server_fails() {
    let looking = Looking::at(3).await;
    for _ in 0..4 {
        looking.second(&[1]).await;
    }
    assert_eq!(looking.second(&[1, 2]).await, [1]);
    assert_eq!(looking.second(&[1]).await, [1]);
    assert_eq!(looking.up().await, [false, true, true]);
}

/// It lives: two processes had leases for one target.
#[tokio::test]
async fn a_copy_of_a_server_that_is_cut_is_refused_while_that_one_is_heard() {
    let looking = Looking::at(3).await;
    for _ in 0..9 {
        looking.second(&[1]).await;
    }
    assert_eq!(looking.up().await, [false, true, true]);
    let copy = Join { address: "elsewhere:1".into(), ..looking.of(1) };
    let unnumbered = Join { server: 0, ..copy.clone() };
    for join in [copy, unnumbered, server("elsewhere:1", &["t1"]), server("h1:1", &["t4"])] {
        let error = looking.bench.join(join).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    }
}

/// Notes who is looked at.
#[derive(Default)]
struct Noted(Mutex<BTreeMap<String, u32>>);

#[async_trait]
impl Ways for Noted {
    async fn reach(&self, _server: u32, address: &str) -> Result<()> {
        *self.0.lock().entry(address.to_owned()).or_default() += 1;
        // One that does not answer keeps nobody waiting.
        if address == "b:1" { std::future::pending().await } else { Ok(()) }
    }
}

#[tokio::test(start_paused = true)]
async fn the_manager_looks_at_all_that_it_hears_by_the_network() {
    let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
    let noted = Arc::new(Noted::default());
    let clock = Arc::new(TestClock::default());
    let options = ManagerOptions {
        clock: clock.clone(),
        ways: Some(noted.clone()),
        ..ManagerOptions::default()
    };
    let manager = Manager::start(kv.clone(), options).await.unwrap();
    let bench = Bench { kv, clock, manager };
    for (address, uuid) in [("a:1", "x"), ("b:1", "y"), ("unix:/c", "z")] {
        bench.join(server(address, &[uuid])).await.unwrap();
    }
    // Its own server is always reached.
    bench.join(Join { manager: true, ..server("d:1", &["w"]) }).await.unwrap();
    let looks = bench.manager.look_back();
    assert!(tokio::time::timeout(3 * SECOND + SECOND / 2, looks).await.is_err());
    let looked: Vec<_> = noted.0.lock().clone().into_iter().collect();
    let known = |address: &str, times: u32| (address.to_owned(), times);
    assert_eq!(looked, [known("a:1", 4), known("b:1", 1)], "one at a time");
}

struct ByCallers(Arc<Callers>);

#[async_trait]
impl Ways for ByCallers {
    async fn reach(&self, _server: u32, address: &str) -> Result<()> {
        self.0.reach(address).await
    }
}

/// All looks that waited for the one connection failed with it: that was three, and the server was taken for unreached.
#[tokio::test]
async fn a_server_whose_first_connection_comes_too_late_is_reached_by_the_next() {
    let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
    let ways = Arc::new(ByCallers(Callers::new(CallerOptions::default())));
    let options = ManagerOptions { ways: Some(ways), ..ManagerOptions::default() };
    let manager = Manager::start(kv.clone(), options).await.unwrap();
    let bench = Bench { kv, clock: Arc::default(), manager };
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    bench.join(server(&listener.address(), &["x"])).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    let serves = async {
        tokio::time::sleep(3 * SECOND + SECOND / 2).await;
        serve(listener, Services::default(), Identity::default(), stopped).await;
    };
    let beats = async {
        loop {
            bench.beat(1).await.unwrap();
            tokio::time::sleep(SECOND / 5).await;
        }
    };
    let all = async {
        tokio::select! {
            () = serves => {}
            () = beats => {}
            () = bench.manager.look_back() => {}
        }
    };
    assert!(tokio::time::timeout(5 * SECOND, all).await.is_err());
    assert_eq!(bench.manager.inner.lock().live.why_unreached(1), "");
}
