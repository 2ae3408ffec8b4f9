mod copies;
mod late;
mod lives;
mod missed;
mod older;
mod owners;
mod power;
mod reach;
mod recopies;
mod scrubs;
mod used;

use super::*;
use crate::testing::TestClock;
use crate::testing::lines::Lines;
use strake_base::clock::Clock;
use strake_base::task;
use strake_engine::kv::memory::MemoryKv;
use strake_types::limits::{FULL_CHARS_MAX, RELEASE_CHARS_MAX};
use strake_types::{Epoch, VolumeId};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::capability::reign;
use strake_wire::map::MapView;
use strake_wire::message::common::Template;
use strake_wire::message::jobs::{JobKind, Plan};
use strake_wire::message::manager::{self as message, ClusterMap, Leave, VolumeName, VolumeSpec};

/// It went on with what it knew, and stored another map under the same epoch.
#[tokio::test]
async fn a_change_whose_commit_was_lost_with_the_store_is_known_when_it_is_back() {
    let kv = MemoryKv::new();
    let clock = Arc::new(TestClock::default());
    let manager = start(&(Arc::new(kv.clone()) as Arc<dyn Kv>), &clock).await;
    let mut bench = Bench { kv: Arc::new(kv.clone()), clock, manager };
    kv.get_lost_at_commit();
    for _ in 0..2 {
        let error = bench.join(server("a:1", &["x"])).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    }
    kv.come_back();
    bench.join(server("b:1", &["y"])).await.unwrap();
    let map = bench.map().await;
    assert_eq!(map.servers.len(), 2);
    bench.restart().await;
    let stored = bench.map().await;
    assert_eq!((stored.epoch, stored.servers.len()), (map.epoch, 2));
}

/// It said so five times a second, for as long as a server was silent.
#[tokio::test]
async fn a_manager_that_can_store_nothing_says_so_ever_more_seldom() {
    let kv = MemoryKv::new();
    let clock = Arc::new(TestClock::default());
    let manager = start(&(Arc::new(kv.clone()) as Arc<dyn Kv>), &clock).await;
    let bench = Bench { kv: Arc::new(kv.clone()), clock, manager };
    kv.get_lost_at_commit();
    bench.join(server("a:1", &["x"])).await.unwrap_err();
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    let mut failed = 0;
    for _ in 0..8 {
        failed = bench.manager.note(failed).await;
    }
    assert_eq!((failed, lines.count("cannot note who lives")), (8, 4));
    kv.come_back();
    assert_eq!(bench.manager.note(failed).await, 0);
}

/// A rebalance that a new leader was asked for ended as done: nobody had told it yet what lies where.
#[tokio::test(start_paused = true)]
async fn nothing_is_planned_before_targets_have_said_what_they_hold() {
    let mut bench = Bench::new().await;
    let first = server("a:1", &["x", "y"]);
    let joined = bench.join(first.clone()).await.unwrap();
    let plan = Plan { kind: JobKind::Rebalance as u32, dry_run: true, ..Plan::default() };
    for _ in 0..2 {
        for _ in 0..2 {
            let error = bench.ask(ManagerOp::Plan(plan.clone())).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("has not said yet what it holds"), "{error}");
            bench.join(again(&first, &joined)).await.unwrap();
        }
        bench.beat(joined.server).await.unwrap();
        bench.ask(ManagerOp::Plan(plan.clone())).await.unwrap();
        bench.restart().await;
    }
}

/// A rebalance took a target whose server had just started for an empty one, and filled it up.
#[tokio::test(start_paused = true)]
async fn nothing_is_planned_before_servers_that_have_started_have_counted_what_they_hold() {
    let bench = Bench::new().await;
    let first = server("a:1", &["x"]);
    let joined = bench.join(first.clone()).await.unwrap();
    let beat = async |uncounted: bool| {
        let mut targets = again(&first, &joined).targets;
        targets[0].uncounted = uncounted;
        let beat = Heartbeat { server: joined.server, targets, ..Heartbeat::default() };
        bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    };
    let plan = Plan { kind: JobKind::Rebalance as u32, dry_run: true, ..Plan::default() };
    beat(true).await;
    let error = bench.ask(ManagerOp::Plan(plan.clone())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("has not counted yet what it holds"), "{error}");
    beat(false).await;
    bench.ask(ManagerOp::Plan(plan)).await.unwrap();
}

/// Nobody could see which servers still were of a release that was to go. Then one that had not spoken yet counted as such a one.
#[tokio::test]
async fn servers_are_shown_with_the_release_that_they_say() {
    let bench = Bench::new().await;
    let first = server("a:1", &["x"]);
    let joined = bench.join(first.clone()).await.unwrap();
    let shown = async || bench.map().await.servers[0].release.clone();
    assert_eq!(shown().await, None);
    // The second is of an earlier one, which does not say.
    for release in ["0.1.0 (1a)", "", "0.1.0 (2b)"] {
        let (server, release) = (joined.server, release.to_owned());
        let beat = Heartbeat { server, release: release.clone(), ..Heartbeat::default() };
        bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
        assert_eq!(shown().await, Some(release));
    }
    let (server, release) = (joined.server, "0".repeat(10_000));
    let beat = Heartbeat { server, release, ..Heartbeat::default() };
    bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    assert_eq!(shown().await.unwrap().len(), RELEASE_CHARS_MAX);
    bench.join(again(&first, &joined)).await.unwrap();
    assert_eq!(shown().await, None, "in its next life it has not spoken yet");
}

/// All changes failed, and nobody was told: the cluster was fine.
#[tokio::test]
async fn a_server_whose_metadata_store_is_full_is_shown_with_what_that_says() {
    let bench = Bench::new().await;
    let first = server("a:1", &["x"]);
    let joined = bench.join(first.clone()).await.unwrap();
    let shown = async || bench.map().await.servers[0].full.clone();
    let say = async |full: &str| {
        let (server, full) = (joined.server, full.to_owned());
        let beat = Heartbeat { server, full, ..Heartbeat::default() };
        bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    };
    for full in ["no space left; make some", "", "no space left"] {
        say(full).await;
        assert_eq!(shown().await, full);
    }
    say(&"0".repeat(10_000)).await;
    assert_eq!(shown().await.len(), FULL_CHARS_MAX);
    bench.join(again(&first, &joined)).await.unwrap();
    assert_eq!(shown().await, "", "in its next life it has not met that yet");
}

/// It is made of a copy, while servers are heard and others change the cluster.
#[tokio::test]
async fn a_plan_takes_back_nothing_that_has_changed_while_it_was_made() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    let plan = Plan { kind: JobKind::Scrub as u32, ..Plan::default() };
    let mut planned = std::pin::pin!(bench.ask(ManagerOp::Plan(plan)));
    let begun = tokio::select! {
        biased;
        planned = &mut planned => Some(planned),
        () = std::future::ready(()) => None,
    };
    bench.create(named("work")).await.unwrap();
    let planned = match begun {
        Some(planned) => planned,
        None => planned.await,
    };
    let ManagerAnswer::Jobs(list) = planned.unwrap() else { panic!("no jobs") };
    assert_eq!(list.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [1]);
    assert!(bench.map().await.volumes.iter().any(|volume| volume.spec.name == "work"));
    assert!(bench.manager.inner.lock().state.jobs.contains_key(&1));
}

/// Where something changes all the time each plan came too late, and none was ever entered.
#[tokio::test]
async fn a_plan_is_entered_however_often_the_cluster_changes_meanwhile() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    let manager = bench.manager.clone();
    let _changes = task::spawn_owned(async move {
        for nth in 0_u32.. {
            let spec = VolumeSpec { sync_always: Some(nth.is_multiple_of(2)), ..named("main") };
            let request = ManagerRequest { op: Some(ManagerOp::SetVolume(spec)) };
            manager.call(request).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let plan = Plan { kind: JobKind::Scrub as u32, ..Plan::default() };
    let planned = bench.ask(ManagerOp::Plan(plan)).await.unwrap();
    let ManagerAnswer::Jobs(list) = planned else { panic!("{planned:?}") };
    assert_eq!(list.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [1]);
    assert!(bench.manager.inner.lock().state.jobs.contains_key(&1));
}

/// The last of these plans was made while nobody could change anything: a dead member stayed, and writers waited, for minutes.
#[tokio::test]
async fn others_change_the_cluster_while_a_plan_is_made_the_last_time_too() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    bench.plan_while_all_changes(Plan { kind: JobKind::Scrub as u32, ..Plan::default() }).await;
    assert!(bench.manager.inner.lock().state.jobs.contains_key(&1));
}

/// The moves of a plan that always came too late.
#[tokio::test]
async fn moves_are_entered_however_often_the_cluster_changes_while_they_are_planned() {
    let bench = Bench::new().await;
    for (address, uuid) in [("a:1", "x"), ("b:1", "y")] {
        let joined = bench.join(server(address, &[uuid])).await.unwrap();
        bench.beat(joined.server).await.unwrap();
    }
    let drain = Plan { kind: JobKind::Drain as u32, targets: vec![1], ..Plan::default() };
    let is_synced = bench.plan_while_all_changes(drain).await;
    let state = bench.manager.inner.lock().state.clone();
    let moves: Vec<_> = state.jobs[&1].items.iter().map(|item| (item.from, item.to)).collect();
    assert_eq!(moves, [(1, 2)]);
    assert!(state.targets[&1].drains);
    let main = state.volumes.values().find(|volume| volume.spec.name == "main").unwrap();
    assert_eq!(main.spec.sync_always.unwrap_or(false), is_synced, "nothing is taken back");
}

/// A manager on a store that outlives it.
struct Bench {
    kv: Arc<dyn Kv>,
    clock: Arc<TestClock>,
    manager: Arc<Manager>,
}

impl Bench {
    async fn new() -> Bench {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let clock = Arc::new(TestClock::default());
        let manager = start(&kv, &clock).await;
        Bench { kv, clock, manager }
    }

    async fn restart(&mut self) {
        self.manager = start(&self.kv, &self.clock).await;
    }

    async fn ask(&self, op: ManagerOp) -> Result<ManagerAnswer> {
        let reply = self.manager.call(ManagerRequest { op: Some(op) }).await?;
        Ok(reply.answer.unwrap())
    }

    async fn join(&self, join: Join) -> Result<Joined> {
        match self.ask(ManagerOp::Join(join)).await? {
            ManagerAnswer::Joined(joined) => Ok(joined),
            other => panic!("{other:?}"),
        }
    }

    async fn map(&self) -> ClusterMap {
        match self.ask(ManagerOp::GetMap(GetMap::default())).await.unwrap() {
            ManagerAnswer::Map(answer) => answer.decoded().unwrap().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a job, and changes a volume again and again until there is one. What that was set to last.
    async fn plan_while_all_changes(&self, plan: Plan) -> bool {
        let mut planned = std::pin::pin!(self.ask(ManagerOp::Plan(plan)));
        let mut sync_always = false;
        loop {
            tokio::select! {
                biased;
                planned = &mut planned => {
                    assert!(matches!(planned.unwrap(), ManagerAnswer::Jobs(_)));
                    return sync_always;
                }
                () = std::future::ready(()) => {}
            }
            sync_always = !sync_always;
            let spec = VolumeSpec { sync_always: Some(sync_always), ..named("main") };
            let change = self.ask(ManagerOp::SetVolume(spec));
            let changed = tokio::time::timeout(Duration::from_secs(20), change).await;
            changed.expect("nobody keeps it from that").unwrap();
            tokio::task::yield_now().await;
        }
    }

    async fn create(&self, spec: VolumeSpec) -> Result<message::Volume> {
        match self.ask(ManagerOp::CreateVolume(spec)).await? {
            ManagerAnswer::Volume(volume) => Ok(volume),
            other => panic!("{other:?}"),
        }
    }

    async fn beat(&self, server: u32) -> Result<ManagerAnswer> {
        self.ask(ManagerOp::Heartbeat(Heartbeat {
            server,
            targets: Vec::new(),
            ..Heartbeat::default()
        }))
        .await
    }
}

async fn start(kv: &Arc<dyn Kv>, clock: &Arc<TestClock>) -> Arc<Manager> {
    let options = ManagerOptions { clock: clock.clone(), ..ManagerOptions::default() };
    Manager::start(kv.clone(), options).await.unwrap()
}

fn target(uuid: &str) -> TargetSpec {
    TargetSpec {
        uuid: uuid.into(),
        path: format!("/{uuid}"),
        total_bytes: 100,
        ..Default::default()
    }
}

fn server(address: &str, uuids: &[&str]) -> Join {
    Join {
        address: address.into(),
        meta: true,
        targets: uuids.iter().map(|uuid| target(uuid)).collect(),
        name: format!("host of {address}"),
        ..Join::default()
    }
}

/// Groups of so many copies are to be there, led by these targets, too.
fn prepare(copies: u32, targets: &[u32]) -> ManagerOp {
    let targets = targets.to_vec();
    ManagerOp::PrepareCopies(message::PrepareCopies { copies, targets })
}

fn named(name: &str) -> VolumeSpec {
    VolumeSpec { name: name.into(), ..VolumeSpec::default() }
}

/// What the server says when it comes back with what it was told.
fn again(first: &Join, joined: &Joined) -> Join {
    let mut join = first.clone();
    join.server = joined.server;
    join.cluster = joined.cluster.clone();
    for (spec, &id) in join.targets.iter_mut().zip(&joined.targets) {
        spec.target = id;
    }
    join
}

#[tokio::test]
async fn a_new_cluster_begins_with_the_volume_main() {
    let bench = Bench::new().await;
    let map = bench.map().await;
    assert_eq!(map.cluster.len(), 32);
    assert_eq!((map.volumes[0].id, map.volumes[0].spec.name.as_str()), (1, "main"));
    assert_eq!(map.volumes[0].meta_server, 0);
    bench.join(server("a:1", &["x"])).await.unwrap();
    assert_eq!(bench.map().await.volumes[0].meta_server, 1);
}

#[tokio::test]
async fn servers_targets_and_groups_get_their_numbers_once() {
    let mut bench = Bench::new().await;
    let (first, second) = (server("a:1", &["x", "y"]), server("b:1", &["z"]));
    let one = bench.join(first.clone()).await.unwrap();
    let two = bench.join(second).await.unwrap();
    assert_eq!((one.server, one.targets.as_slice()), (1, &[1, 2][..]));
    assert_eq!((two.server, two.targets.as_slice()), (2, &[3][..]));
    assert_eq!(one.capability_key.len(), 32);
    let members: Vec<_> = bench.map().await.groups.into_iter().map(|g| g.members).collect();
    assert_eq!(members, [[1], [2], [3]]);
    bench.restart().await;
    let back = bench.join(again(&first, &one)).await.unwrap();
    assert_eq!(back, one);
    // Its own directory was lost: the targets say who it is.
    let mut lost = again(&first, &one);
    (lost.server, lost.cluster) = (0, String::new());
    assert_eq!(bench.join(lost).await.unwrap(), one);
    assert_eq!(bench.map().await.groups.len(), 3);
}

#[tokio::test]
async fn a_server_that_runs_gets_a_target_in_two_steps_that_may_be_repeated() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    bench.join(server("b:1", &["y"])).await.unwrap();
    bench.ask(prepare(2, &[])).await.unwrap();
    let ask = async |server, uuid, number| {
        let spec = TargetSpec { target: number, ..target(uuid) };
        bench.ask(ManagerOp::AddTarget(message::AddTarget { server, spec, boot: "b".into() })).await
    };
    let groups = bench.map().await.groups.len();
    assert_eq!(ask(1, "z", 0).await.unwrap(), ManagerAnswer::Target(3));
    assert_eq!(bench.map().await.targets.len(), 2, "nobody is sent there yet");
    for _ in 0..2 {
        assert_eq!(ask(1, "z", 3).await.unwrap(), ManagerAnswer::Target(3));
    }
    let map = bench.map().await;
    assert!(map.targets[2].up && map.targets[2].server == 1, "{:?}", map.targets);
    let led = map.groups.iter().filter(|group| group.members[0] == 3).count();
    assert_eq!((map.groups.len(), led), (groups + 2, 2), "one of each class");
    // One that was not made in the end leaves a number that nobody uses.
    assert_eq!(ask(2, "lost", 0).await.unwrap(), ManagerAnswer::Target(4));
    assert_eq!(ask(2, "w", 0).await.unwrap(), ManagerAnswer::Target(5));
    let refused = [
        ask(9, "v", 0).await,
        ask(2, "z", 0).await,
        ask(2, "z", 3).await,
        ask(1, "z", 1).await,
        ask(2, "v", 77).await,
        ask(2, "v", 1).await,
        ask(2, "", 0).await,
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(bench.map().await.groups.len(), groups + 2);
}

/// New files were laid over groups of all targets that there had ever been.
#[tokio::test]
async fn who_comes_when_a_target_is_emptied_leads_no_group_until_somebody_names_it() {
    let bench = Bench::new().await;
    for (address, uuid) in [("a:1", "x"), ("b:1", "y")] {
        let joined = bench.join(server(address, &[uuid])).await.unwrap();
        bench.beat(joined.server).await.unwrap();
    }
    let drain = Plan { kind: JobKind::Drain as u32, targets: vec![1], ..Plan::default() };
    bench.ask(ManagerOp::Plan(drain)).await.unwrap();
    bench.join(server("c:1", &["z"])).await.unwrap();
    let map = bench.map().await;
    assert_eq!((map.targets.len(), map.groups.len()), (3, 2));
    bench.ask(prepare(1, &[3])).await.unwrap();
    let map = bench.map().await;
    assert_eq!((map.groups.len(), map.groups[2].members.as_slice()), (3, &[3][..]));
    bench.join(server("d:1", &["w"])).await.unwrap();
    assert_eq!(bench.map().await.groups.len(), 3, "three stay");
}

#[tokio::test]
async fn a_target_that_its_server_comes_without_is_down() {
    let bench = Bench::new().await;
    let first = server("a:1", &["x", "y"]);
    let joined = bench.join(first.clone()).await.unwrap();
    let up = async || bench.map().await.targets.iter().map(|t| t.up).collect::<Vec<_>>();
    assert_eq!(up().await, [true, true]);
    let mut without = again(&first, &joined);
    without.targets.pop();
    bench.clock.pass(10_000);
    bench.join(without).await.unwrap();
    assert_eq!(up().await, [true, false]);
}

#[tokio::test]
async fn a_join_that_the_manager_did_not_finish_is_repeated_without_harm() {
    let bench = Bench::new().await;
    let first = bench.join(server("a:1", &["x"])).await.unwrap();
    // The server died before it wrote down its number: same uuid, no number.
    bench.clock.pass(10_000);
    let second = bench.join(server("a:1", &["x"])).await.unwrap();
    assert_eq!(first, second, "it is the same server, too");
    let map = bench.map().await;
    assert_eq!((map.targets.len(), map.servers.len()), (1, 1), "nobody is left who never comes");
}

#[tokio::test]
async fn what_belongs_to_another_cluster_is_refused() {
    let bench = Bench::new().await;
    let mut join = server("a:1", &["x"]);
    join.cluster = "f".repeat(32);
    assert_eq!(bench.join(join.clone()).await.unwrap_err().kind, ErrorKind::WrongPeer);
    join.cluster = String::new();
    join.server = 7;
    assert_eq!(bench.join(join.clone()).await.unwrap_err().kind, ErrorKind::WrongPeer);
    join.server = 0;
    join.targets[0].target = 9;
    assert_eq!(bench.join(join).await.unwrap_err().kind, ErrorKind::WrongPeer);
    assert!(bench.map().await.servers.is_empty(), "a refused join changes nothing");
}

#[tokio::test]
async fn a_copied_disk_and_a_taken_address_are_refused_while_the_first_is_alive() {
    let bench = Bench::new().await;
    let first = server("a:1", &["x"]);
    let joined = bench.join(first.clone()).await.unwrap();
    for join in [server("b:1", &["x"]), server("a:1", &["y"]), server("b:1", &["y", "y"])] {
        let error = bench.join(join).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy, "{error}");
        let commands = ["strake target list", "strake server list"];
        assert!(commands.iter().any(|command| error.detail.contains(command)), "{error}");
    }
    // A copy of the target alone, whose server does not say who it is.
    let mut copy = Join { address: "b:1".into(), ..again(&first, &joined) };
    copy.server = 0;
    let error = bench.join(copy).await.unwrap_err();
    assert!(
        error.kind == ErrorKind::Busy && error.to_string().contains("a copied disk?"),
        "{error}"
    );
    assert_eq!(bench.map().await.servers[0].address, "a:1");
    let moved = Join { address: "b:1".into(), ..again(&first, &joined) };
    let error = bench.join(moved.clone()).await.unwrap_err();
    assert!(
        error.kind == ErrorKind::Busy && error.detail.contains("strake server list"),
        "{error}"
    );
    bench.clock.pass(3_001);
    bench.join(moved).await.unwrap();
    assert_eq!(bench.map().await.servers[0].address, "b:1");
}

/// Nobody counted as alive before it was heard: a copy of a server's directory that asked before its first heartbeat was let in,
/// and clients were sent there; one that took its address took that away from it for good.
#[tokio::test]
async fn a_copied_disk_and_a_taken_address_are_refused_by_a_manager_that_has_just_started() {
    let mut bench = Bench::new().await;
    let firsts = [server("a:1", &["x"]), server("b:1", &["y"])];
    let mut joined = Vec::new();
    for first in &firsts {
        joined.push(bench.join(first.clone()).await.unwrap());
    }
    let known = again(&firsts[0], &joined[0]);
    let copy = Join { address: "c:1".into(), ..known.clone() };
    let nameless = Join { server: 0, ..copy.clone() };
    let mut with_disk = again(&firsts[1], &joined[1]);
    with_disk.targets.extend(known.targets.clone());
    let taken = Join { address: "a:1".into(), ..server("", &["z"]) };
    bench.restart().await;
    for join in [&copy, &nameless, &with_disk, &taken] {
        let error = bench.join(join.clone()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    }
    let addresses = async || {
        bench.map().await.servers.iter().map(|one| one.address.clone()).collect::<Vec<_>>()
    };
    assert_eq!(addresses().await, ["a:1", "b:1"]);
    // Who is where it was need not wait, and who has moved waits for a lease.
    bench.join(again(&firsts[1], &joined[1])).await.unwrap();
    bench.clock.pass(3_001);
    bench.join(copy).await.unwrap();
    assert_eq!(addresses().await, ["c:1", "b:1"]);
}

/// It waited for itself to be forgotten.
#[tokio::test]
async fn the_server_of_an_only_manager_may_start_at_another_address_at_once() {
    let mut bench = Bench::new().await;
    let first = Join { manager: true, ..server("unix:/a", &["x"]) };
    let joined = bench.join(first.clone()).await.unwrap();
    bench.restart().await;
    let moved = Join { address: "a:1".into(), ..again(&first, &joined) };
    bench.join(moved).await.unwrap();
    assert_eq!(bench.map().await.servers[0].address, "a:1");
}

/// It died after its first Join, before it wrote down its number: each start, with a manager of its own, met itself.
#[tokio::test]
async fn the_server_of_an_only_manager_may_start_at_another_address_without_its_number() {
    let mut bench = Bench::new().await;
    let first = Join { manager: true, ..server("a:1", &["x"]) };
    let joined = bench.join(first.clone()).await.unwrap();
    bench.restart().await;
    let moved = Join { address: "a:2".into(), ..first };
    assert_eq!(bench.join(moved).await.unwrap().server, joined.server);
    let map = bench.map().await;
    assert_eq!((map.servers.len(), map.servers[0].address.as_str()), (1, "a:2"));
}

/// The manager hears others before its own server has joined: a copy of that one was taken for it, and it was refused itself.
#[tokio::test]
async fn a_copy_of_the_server_of_an_only_manager_is_refused_before_that_one_has_joined() {
    let mut bench = Bench::new().await;
    let first = Join { manager: true, ..server("a:1", &["x"]) };
    let joined = bench.join(first.clone()).await.unwrap();
    let known = again(&first, &joined);
    bench.restart().await;
    for number in [joined.server, 0] {
        let (address, manager) = ("c:1".into(), false);
        let copy = Join { server: number, address, manager, ..known.clone() };
        let error = bench.join(copy).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    }
    bench.join(Join { address: "a:2".into(), ..known }).await.unwrap();
    assert_eq!(bench.map().await.servers[0].address, "a:2");
}

#[tokio::test]
async fn a_disk_that_moved_to_another_server_is_found_there() {
    let bench = Bench::new().await;
    let one = bench.join(server("a:1", &["x"])).await.unwrap();
    let two = bench.join(server("b:1", &["y"])).await.unwrap();
    bench.ask(ManagerOp::Leave(Leave { server: one.server, life: 0 })).await.unwrap();
    let mut join = again(&server("b:1", &["y"]), &two);
    join.targets.push(TargetSpec { target: one.targets[0], ..target("x") });
    assert_eq!(bench.join(join).await.unwrap().targets, [2, 1]);
    assert!(bench.map().await.targets.iter().all(|t| t.server == two.server));
}

/// It was in use by the server that had had it for as long as that ran, and took down the one that it had come to.
#[tokio::test]
async fn a_disk_is_let_in_elsewhere_once_the_server_that_had_it_is_heard_without_it() {
    let mut bench = Bench::new().await;
    let (first, second) = (server("a:1", &["w", "x"]), server("b:1", &["y"]));
    let one = bench.join(first.clone()).await.unwrap();
    let two = bench.join(second.clone()).await.unwrap();
    let with_it = |mut join: Join| {
        join.targets.push(TargetSpec { target: one.targets[1], ..target("x") });
        join
    };
    let known = with_it(again(&second, &two));
    let newcomer = with_it(server("c:1", &[]));
    let refused = async |bench: &Bench, said: &str| {
        for join in [&known, &newcomer] {
            let error = bench.join(join.clone()).await.unwrap_err();
            assert!(error.kind == ErrorKind::Busy && error.detail.contains(said), "{error}");
        }
    };
    bench.beat_of(&first, &one).await;
    bench.clock.pass(1_500);
    refused(&bench, "in use by server 1 (host of a:1), which was heard with it 1.5 s ago").await;
    bench.restart().await;
    refused(&bench, "in use by server 1 (host of a:1), as far as is known").await;
    let mut without = again(&first, &one);
    without.targets.pop();
    bench.join(without).await.unwrap();
    assert_eq!(bench.join(known.clone()).await.unwrap().targets, [3, 2]);
    // That one has it now.
    assert_eq!(bench.join(newcomer.clone()).await.unwrap_err().kind, ErrorKind::Busy);
    bench.join(again(&second, &two)).await.unwrap();
    let new = bench.join(newcomer.clone()).await.unwrap();
    assert_eq!((new.server, &new.targets[..]), (3, &[2][..]));
    assert_eq!(bench.map().await.targets[1].server, 3);
}

/// It was under way for seconds, while the server started again and was given a lease: others went on without it.
#[tokio::test]
async fn a_leave_that_comes_late_does_not_take_out_who_has_joined_since() {
    let bench = Bench::new().await;
    let first = Join { life: 7, ..server("a:1", &["x"]) };
    let joined = bench.join(first.clone()).await.unwrap();
    bench.beat_of(&first, &joined).await;
    let second = Join { life: 8, ..again(&first, &joined) };
    let joined = bench.join(second.clone()).await.unwrap();
    bench.beat_of(&second, &joined).await;
    let leave = async |life| {
        let leave = ManagerOp::Leave(Leave { server: joined.server, life });
        bench.ask(leave).await.unwrap();
        bench.map().await.servers[0].up
    };
    assert!(leave(7).await, "an earlier life");
    assert!(!leave(8).await, "its own");
    bench.beat_of(&second, &joined).await;
    assert!(!leave(0).await, "of a release that has none");
}

/// The network held back what it had sent, until after its next life had deleted the file (simulation, seed 2863000234482).
#[tokio::test]
async fn what_an_earlier_life_of_a_metadata_server_has_sent_is_refused() {
    let bench = Bench::new().await;
    let first = Join { life: 7, ..server("a:1", &["x"]) };
    let joined = bench.join(first.clone()).await.unwrap();
    let since = async || bench.map().await.volumes[0].owned_since;
    let then = since().await;
    bench.join(again(&first, &joined)).await.unwrap();
    assert_eq!(since().await, then, "it asks again, because the answer was lost");
    let second = Join { life: 8, ..again(&first, &joined) };
    bench.join(second).await.unwrap();
    let map = MapView::fixed(Callers::new(CallerOptions::default()), bench.map().await);
    let is_fenced = |since| map.is_fenced(VolumeId(1), reign(Epoch(since)));
    assert!(is_fenced(then));
    assert!(!is_fenced(since().await));
}

#[tokio::test]
async fn a_silent_server_is_down_after_the_lease_and_the_map_says_so() {
    let bench = Bench::new().await;
    let first = server("a:1", &["x"]);
    let joined = bench.join(first.clone()).await.unwrap();
    bench.join(server("b:1", &["y"])).await.unwrap();
    let before = bench.map().await.epoch;
    for _ in 0..7 {
        bench.clock.pass(500);
        bench.beat_of(&first, &joined).await;
    }
    let map = bench.map().await;
    assert!(map.epoch > before);
    assert_eq!(map.servers.iter().map(|s| s.up).collect::<Vec<_>>(), [true, false]);
    assert_eq!(map.targets.iter().map(|t| t.up).collect::<Vec<_>>(), [true, false]);
    assert_eq!(map.servers[1].silent_ms, 3_500);
    assert_eq!(bench.map().await.epoch, map.epoch, "looking changes nothing");
    bench.beat(2).await.unwrap();
    assert!(bench.map().await.servers[1].up);
    assert_eq!(bench.beat(9).await.unwrap_err().kind, ErrorKind::NoSession);
}

#[tokio::test]
async fn the_epoch_never_goes_back() {
    let mut bench = Bench::new().await;
    let mut last = 0;
    for nth in 0..5 {
        bench.create(named(&format!("v{nth}"))).await.unwrap();
        bench.clock.pass(10_000);
        let epoch = bench.map().await.epoch;
        assert!(epoch > last);
        last = epoch;
        bench.restart().await;
    }
}

#[tokio::test]
async fn who_has_the_newest_map_gets_none() {
    let bench = Bench::new().await;
    let epoch = bench.map().await.epoch;
    let answer = bench
        .ask(ManagerOp::GetMap(GetMap { known_epoch: epoch, ..GetMap::default() }))
        .await
        .unwrap();
    assert_eq!(answer, ManagerAnswer::Map(MapAnswer::default()));
}

/// It was made and encoded anew for each: 4 MB in a large cluster.
#[tokio::test]
async fn all_who_follow_the_map_are_given_the_same_one_and_commands_what_is_so_now() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    let follow = async |known_epoch| {
        let get = GetMap { known_epoch, ..GetMap::default() };
        match bench.ask(ManagerOp::GetMap(get)).await.unwrap() {
            ManagerAnswer::Map(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    let bytes = |answer: &MapAnswer| answer.map.as_ref().unwrap().as_ptr();
    let map = bench.map().await;
    let (first, second) = (follow(map.epoch - 1).await, follow(map.epoch - 1).await);
    assert_eq!(bytes(&first), bytes(&second));
    assert_eq!(first.decoded().unwrap().unwrap(), map);
    bench.clock.pass(100);
    assert_eq!(bench.map().await.servers[0].silent_ms, map.servers[0].silent_ms + 100);
    bench.create(named("work")).await.unwrap();
    let next = follow(map.epoch).await;
    assert_ne!(bytes(&next), bytes(&second));
    let (mut next, now) = (next.decoded().unwrap().unwrap(), bench.map().await);
    // Since when somebody is silent changes all the time, and is no news for who follows.
    next.servers[0].silent_ms = now.servers[0].silent_ms;
    assert_eq!(next, now);
}

/// What follows the map, of a release that takes changes.
#[derive(Default)]
struct Follower {
    map: ClusterMap,
    version: message::MapVersion,
}

impl Follower {
    /// True if it was sent changes.
    async fn follow(&mut self, bench: &Bench) -> bool {
        let (known_epoch, known) = (self.map.epoch, Some(self.version));
        let get = GetMap { known_epoch, known, ..GetMap::default() };
        let ManagerAnswer::Map(answer) = bench.ask(ManagerOp::GetMap(get)).await.unwrap() else {
            panic!("no map");
        };
        let is_changes = answer.changes.is_some();
        let version = answer.version;
        if let Some(map) = answer.after(&self.map, self.version.number).unwrap() {
            (self.map, self.version) = (map, version.unwrap());
        }
        is_changes
    }
}

/// A target that filled up while nothing else changed was told of to nobody who follows: metadata servers laid new files over it.
#[tokio::test]
async fn who_follows_the_map_hears_which_targets_are_nearly_full() {
    let bench = Bench::new().await;
    let mut join = server("a:1", &["x"]);
    let joined = bench.join(join.clone()).await.unwrap();
    let mut follower = Follower::default();
    let mut told = Vec::new();
    for free_bytes in [50, 40, 6, 8, 5, 9, 8, 6] {
        join.targets[0].free_bytes = free_bytes;
        bench.clock.pass(500);
        bench.beat_of(&join, &joined).await;
        follower.follow(&bench).await;
        told.push(follower.map.targets[0].spec.free_bytes);
    }
    assert_eq!(told, [50, 50, 6, 6, 6, 9, 9, 6]);
}

/// The whole of it went to each follower with each epoch.
#[tokio::test]
async fn who_follows_the_map_is_sent_what_differs_and_has_the_same_as_all_others() {
    let mut bench = Bench::new().await;
    let (mut often, mut seldom) = (Follower::default(), Follower::default());
    bench.join(server("a:1", &["x", "y"])).await.unwrap();
    bench.beat(1).await.unwrap();
    assert!(!often.follow(&bench).await && !seldom.follow(&bench).await, "they had none");
    for nth in 0..5 {
        bench.create(named(&format!("v{nth}"))).await.unwrap();
        assert!(often.follow(&bench).await);
        assert!(!often.follow(&bench).await, "it has the newest");
    }
    let gone = VolumeName { name: "v2".into() };
    bench.ask(ManagerOp::DeleteVolume(gone)).await.unwrap();
    assert!(often.follow(&bench).await);
    seldom.follow(&bench).await;
    assert_eq!(seldom.map, often.map);
    let plain = |mut map: ClusterMap| {
        map.servers.iter_mut().for_each(|server| server.silent_ms = 0);
        map
    };
    assert_eq!(plain(often.map.clone()), plain(bench.map().await));
    // Another manager does not know what this one has shown.
    bench.restart().await;
    bench.create(named("late")).await.unwrap();
    assert!(!often.follow(&bench).await);
    bench.create(named("later")).await.unwrap();
    assert!(often.follow(&bench).await);
    seldom.follow(&bench).await;
    assert_eq!(seldom.map, often.map);
}

/// Each mount that began, and each command, had one made and encoded under the lock that every heartbeat needs.
#[tokio::test]
async fn who_begins_to_follow_is_given_the_map_that_all_are_given() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    let begin = async || {
        let get = GetMap { known: Some(message::MapVersion::default()), ..GetMap::default() };
        match bench.ask(ManagerOp::GetMap(get)).await.unwrap() {
            ManagerAnswer::Map(answer) => answer.map.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let first = begin().await;
    bench.clock.pass(100);
    assert_eq!(first.as_ptr(), begin().await.as_ptr());
    // It is made while servers are heard: whoever has begun to makes nobody wait but those who follow.
    let making = bench.manager.shown.lock().await;
    bench.create(named("work")).await.unwrap();
    bench.beat(1).await.unwrap();
    assert_eq!(bench.map().await.volumes.len(), 2);
    drop(making);
    assert_ne!(first, begin().await);
}

/// One that was made just before its server told of a target showed that as down, to all, until the cluster changed.
#[tokio::test]
async fn a_map_that_shows_what_was_before_something_was_heard_is_given_to_nobody() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x", "y"])).await.unwrap();
    let up = async || {
        let get = GetMap { known_epoch: 1, ..GetMap::default() };
        let answer = bench.ask(ManagerOp::GetMap(get)).await.unwrap();
        let ManagerAnswer::Map(answer) = answer else { panic!("{answer:?}") };
        let map = answer.decoded().unwrap().unwrap();
        map.targets.iter().map(|target| target.up).collect::<Vec<_>>()
    };
    assert_eq!(up().await, [true, true]);
    // It names neither of them.
    bench.beat(1).await.unwrap();
    assert_eq!(up().await, [false, false]);
    let (spec, boot) = (TargetSpec { target: 2, ..target("y") }, "b".into());
    let add = message::AddTarget { server: 1, spec, boot };
    bench.ask(ManagerOp::AddTarget(add)).await.unwrap();
    assert_eq!(up().await, [false, true]);
}

#[tokio::test]
async fn volumes_are_made_changed_and_deleted() {
    let mut bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    let spec = VolumeSpec {
        template: Some(Template { chunk_size: Some(1 << 16), ..Template::default() }),
        ..named("work")
    };
    let made = bench.create(spec).await.unwrap();
    assert_eq!((made.id, made.meta_server), (2, 1));
    let template = made.spec.template.unwrap();
    assert_eq!((template.chunk_size, template.width), (Some(1 << 16), Some(0)));
    let change = VolumeSpec { sync_always: Some(true), ..named("work") };
    bench.ask(ManagerOp::SetVolume(change)).await.unwrap();
    bench.restart().await;
    let map = bench.map().await;
    assert_eq!(map.volumes[1].spec.sync_always, Some(true));
    assert_eq!(map.volumes[1].spec.template.as_ref().unwrap().chunk_size, Some(1 << 16));
    let name = VolumeName { name: "work".into() };
    bench.ask(ManagerOp::DeleteVolume(name.clone())).await.unwrap();
    let gone = bench.ask(ManagerOp::DeleteVolume(name)).await.unwrap_err();
    assert_eq!(gone.kind, ErrorKind::NotFound);
    assert!(gone.detail.contains("main"), "the error names what there is: {gone}");
    assert_eq!(bench.create(named("work")).await.unwrap().id, 3, "a number is never used again");
}

#[tokio::test]
async fn wrong_volumes_are_refused() {
    let bench = Bench::new().await;
    for name in ["", "a/b", ".a", "-a", "ä", &"x".repeat(65)] {
        assert_eq!(bench.create(named(name)).await.unwrap_err().kind, ErrorKind::Invalid, "{name}");
    }
    assert_eq!(bench.create(named("main")).await.unwrap_err().kind, ErrorKind::Exists);
    let odd = Template { chunk_size: Some(5000), ..Template::default() };
    let unknown = Template { list: vec![4], ..Template::default() };
    for template in [odd, unknown] {
        let spec = VolumeSpec { template: Some(template), ..named("v") };
        assert_eq!(bench.create(spec).await.unwrap_err().kind, ErrorKind::Invalid);
    }
    let spec = VolumeSpec { inline_bytes_max: Some(1 << 20), ..named("v") };
    assert_eq!(bench.create(spec).await.unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(bench.map().await.volumes.len(), 1);
}

#[tokio::test]
async fn volumes_are_spread_over_the_metadata_servers() {
    let bench = Bench::new().await;
    bench.join(server("a:1", &["x"])).await.unwrap();
    bench.join(server("b:1", &["y"])).await.unwrap();
    let mut servers = Vec::new();
    for name in ["one", "two", "three"] {
        servers.push(bench.create(named(name)).await.unwrap().meta_server);
    }
    // `main` lies on server 1.
    assert_eq!(servers, [2, 1, 2]);
}

#[tokio::test]
async fn a_damaged_or_newer_record_is_refused_and_named() {
    let bench = Bench::new().await;
    let key = crate::records::key(crate::records::Kind::Volume, 1);
    let snapshot = bench.kv.snapshot().await.unwrap();
    let value = snapshot.get(&key).await.unwrap().unwrap();
    let mut flipped = value.to_vec();
    flipped[2] ^= 1;
    let mut newer = vec![9];
    newer.extend_from_slice(&strake_wire::frame::crc32c(&[9]).to_le_bytes());
    for (bad, kind) in [(flipped, ErrorKind::Corrupt), (newer, ErrorKind::WrongPeer)] {
        let mut transaction = Transaction::begin(&*bench.kv).await.unwrap();
        transaction.put(key.clone(), bad);
        assert_eq!(transaction.commit(&*bench.kv).await.unwrap(), Outcome::Committed);
        let error =
            Manager::start(bench.kv.clone(), ManagerOptions::default()).await.err().unwrap();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.detail.contains("C\\x00"), "{error}");
    }
}

#[tokio::test]
async fn concurrent_changes_are_all_kept() {
    let bench = Bench::new().await;
    let manager = &bench.manager;
    let tasks: Vec<_> = (0..20)
        .map(|nth| {
            let manager = manager.clone();
            tokio::spawn(async move {
                let op = Some(ManagerOp::CreateVolume(named(&format!("v{nth}"))));
                manager.call(ManagerRequest { op }).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let ids: Vec<_> = bench.map().await.volumes.iter().map(|v| v.id).collect();
    assert_eq!(ids, (1..=21).collect::<Vec<_>>());
}

/// A metadata server on a database that judges all writers, or does not.
fn on_database(address: &str, shares: bool) -> Join {
    Join { store: "db".into(), shares, ..server(address, &[]) }
}

#[tokio::test]
async fn the_shares_of_a_volume_are_made_changed_and_deleted_together() {
    let bench = Bench::new().await;
    bench.join(on_database("a:1", true)).await.unwrap();
    bench.join(on_database("b:1", true)).await.unwrap();
    let made = bench.create(VolumeSpec { shares: Some(5), ..named("wide") }).await.unwrap();
    let of_it = |map: &ClusterMap| -> Vec<message::Volume> {
        let shares = made.shares();
        map.volumes.iter().filter(|v| v.shares() == shares).cloned().collect()
    };
    let map = bench.map().await;
    let shares = of_it(&map);
    assert_eq!(shares.iter().map(|v| v.share).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(shares.iter().all(|v| v.meta_server != 0 && v.id == made.id + v.share));
    assert_eq!(map.living().filter(|v| v.spec.name.starts_with("wide")).count(), 1);
    let next = bench.create(named("next")).await.unwrap();
    assert_eq!(next.id, made.id + 5);
    let change = VolumeSpec { sync_always: Some(true), ..named("wide") };
    bench.ask(ManagerOp::SetVolume(change)).await.unwrap();
    assert!(of_it(&bench.map().await).iter().all(|v| v.spec.sync_always == Some(true)));
    let more = VolumeSpec { shares: Some(6), ..named("wide") };
    let refused = bench.ask(ManagerOp::SetVolume(more)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid);
    bench.ask(ManagerOp::DeleteVolume(VolumeName { name: "wide/1".into() })).await.unwrap_err();
    bench.ask(ManagerOp::DeleteVolume(VolumeName { name: "wide".into() })).await.unwrap();
    let all_go = bench.map().await.volumes.iter().filter(|v| v.deleting).count();
    assert_eq!(all_go, 5);
}

#[tokio::test]
async fn several_shares_are_refused_where_the_engine_cannot_bear_them() {
    for first in [server("a:1", &[]), on_database("a:1", false)] {
        let bench = Bench::new().await;
        bench.join(first).await.unwrap();
        let wide = VolumeSpec { shares: Some(2), ..named("wide") };
        let refused = bench.create(wide).await.unwrap_err();
        assert!(refused.to_string().contains("strake meta import"), "{refused}");
        bench.create(VolumeSpec { shares: Some(1), ..named("one") }).await.unwrap();
        let too_many = VolumeSpec { shares: Some(65), ..named("many") };
        assert_eq!(bench.create(too_many).await.unwrap_err().kind, ErrorKind::Invalid);
    }
}

/// All targets were full just after each start of the manager.
#[tokio::test]
async fn how_full_a_target_is_is_not_known_before_its_server_says_so() {
    let mut bench = Bench::new().await;
    let join = server("a:1", &["one"]);
    let joined = bench.join(join.clone()).await.unwrap();
    bench.restart().await;
    assert_eq!(bench.map().await.targets[0].spec.total_bytes, 0);
    let mut back = again(&join, &joined);
    back.targets[0].free_bytes = 60;
    bench.join(back).await.unwrap();
    let map = bench.map().await;
    let spec = &map.targets[0].spec;
    assert_eq!((spec.total_bytes, spec.free_bytes), (100, 60));
}
