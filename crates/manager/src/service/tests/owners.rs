//! When a volume in a database gets another metadata server.

use super::copies::follows::{follow, left};
use super::*;
use crate::owners::LOOKS;
use crate::records::{Item, Job};
use strake_wire::message::jobs::JobState;

/// Two metadata servers on one database.
struct Two {
    bench: Bench,
    /// The one that has the volume while both are well,
    owner: u32,
    /// and the other.
    other: u32,
}

impl Two {
    async fn new() -> Self {
        let bench = Bench::new().await;
        bench.join(on_database("a:1", true)).await.unwrap();
        bench.join(on_database("b:1", true)).await.unwrap();
        let mut two = Self { bench, owner: 0, other: 0 };
        two.pass(10_000, u64::MAX).await;
        two.owner = two.owner().await;
        two.other = 3 - two.owner;
        // Whatever was said up to now is over.
        two.bench.clock.pass(1_501);
        two.beat(two.owner, 700).await;
        two.beat(two.other, 700).await;
        two
    }

    /// So much time, in which both are heard. They serve nothing, by a map of this epoch.
    async fn pass(&self, ms: u64, epoch: u64) {
        for _ in 0..ms / 200 {
            self.bench.clock.pass(200);
            for server in [1, 2] {
                let said = Heartbeat { server, epoch, tenure_ms: 700, ..Heartbeat::default() };
                self.bench.ask(ManagerOp::Heartbeat(said)).await.unwrap();
            }
        }
    }

    /// A server is heard, and serves for so long.
    async fn beat(&self, server: u32, tenure_ms: u64) {
        let beat = Heartbeat { server, tenure_ms, lease_ms: 700, ..Heartbeat::default() };
        self.bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
    }

    /// Who has the volume, and who is to let go first, by the map that somebody fetches who has this one and misses these.
    async fn fetch(&self, known_epoch: u64, missed: &[u32]) -> (u32, u32) {
        let op =
            ManagerOp::GetMap(GetMap { known_epoch, missed: missed.to_vec(), ..GetMap::default() });
        self.bench.ask(op).await.unwrap();
        let volume = &self.bench.map().await.volumes[0];
        (volume.meta_server, volume.leaving)
    }

    /// Who has it, where nobody is to let go first.
    async fn owner(&self) -> u32 {
        let (owner, leaving) = self.fetch(0, &[]).await;
        assert_eq!(leaving, 0);
        owner
    }

    /// The volume goes to the other one, which is well, after so long and not before.
    async fn moves_after(&self, ms: u64) {
        self.bench.clock.pass(ms);
        self.beat(self.other, 700).await;
        assert_eq!(self.owner().await, self.owner, "{ms}");
        self.bench.clock.pass(1);
        assert_eq!(self.owner().await, self.other, "{ms}");
    }

    /// How often all volumes are gone through while both are heard, and it is looked so often what follows.
    async fn looks(&self, times: u32) -> u32 {
        LOOKS.set(0);
        for _ in 0..times {
            self.pass(200, u64::MAX).await;
            self.bench.manager.watch().await.unwrap();
        }
        LOOKS.get()
    }

    async fn miss(&self) {
        let epoch = self.bench.map().await.epoch;
        self.fetch(epoch, &[1]).await;
    }
}

/// Whoever had it open waited for a second and a half, although its server served nothing any more after 0.7 s.
#[tokio::test]
async fn a_volume_that_somebody_misses_gets_another_server_as_soon_as_the_tenure_is_over() {
    // Servers of earlier releases do not say how long they serve.
    for (said_ms, ms) in [(700, 700), (1_200, 1_200), (3_000, 1_500), (0, 1_500)] {
        let two = Two::new().await;
        two.beat(two.owner, said_ms).await;
        two.bench.clock.pass(100);
        two.miss().await;
        two.moves_after(ms - 100).await;
    }
}

#[tokio::test]
async fn a_volume_that_nobody_misses_is_left_to_a_server_that_is_late() {
    let two = Two::new().await;
    two.beat(two.owner, 700).await;
    two.miss().await;
    two.bench.clock.pass(500);
    // It is heard again, so that nobody misses it any more.
    two.beat(two.owner, 700).await;
    two.moves_after(1_500).await;
}

/// They were five times a second, with all servers for each and all jobs for each of these, under the lock of heartbeats.
#[tokio::test]
async fn volumes_are_gone_through_again_only_when_something_has_changed() {
    let two = Two::new().await;
    two.looks(50).await;
    assert_eq!(two.looks(10).await, 0);
    two.bench.create(named("work")).await.unwrap();
    assert_ne!(two.looks(10).await, 0, "there is another volume");
    assert_eq!(two.looks(10).await, 0);
}

/// A job that lasts, a paused one too, is looked after five times a second, and all volumes were with it.
#[tokio::test]
async fn volumes_are_not_gone_through_again_and_again_while_a_job_lasts() {
    let two = Two::new().await;
    two.looks(50).await;
    let waits = Item { group: 1, from: 1, to: 2, ..Item::default() };
    let paused = JobState::Paused as u32;
    let kind = JobKind::Drain as u32;
    let job = Job { kind, state: paused, items: vec![waits], ..Job::default() };
    {
        let mut inner = two.bench.manager.inner.lock();
        let mut state = State::clone(&inner.state);
        state.jobs.insert(1, job);
        inner.go_on_with(state);
    }
    assert_ne!(two.looks(10).await, 0, "that is another state");
    assert_eq!(two.looks(10).await, 0);
    assert!(two.bench.manager.inner.lock().state.jobs[&1].is(JobState::Paused));
}

/// A shorter one that is asked for later takes nothing away from one that lasts.
#[tokio::test]
async fn a_tenure_lasts_as_long_as_was_said_before() {
    let two = Two::new().await;
    two.beat(two.owner, 1_500).await;
    two.bench.clock.pass(200);
    two.beat(two.owner, 700).await;
    two.miss().await;
    two.moves_after(1_300).await;
}

/// It was given back with the next heartbeat: two moves for each time that a server was late.
#[tokio::test]
async fn a_server_that_lost_its_volume_by_being_late_gets_it_back_when_it_was_well_for_long() {
    let two = Two::new().await;
    two.pass(7_000, 0).await;
    two.miss().await;
    two.bench.clock.pass(701);
    two.beat(two.other, 700).await;
    assert_eq!(two.owner().await, two.other);
    two.pass(6_000, 0).await;
    assert_eq!(two.owner().await, two.other);
    two.pass(400, 0).await;
    assert_eq!(two.fetch(0, &[]).await, (two.owner, two.other), "after two leases");
}

#[tokio::test]
async fn who_is_to_let_go_is_missed_and_not_the_next_one() {
    let two = Two::new().await;
    two.bench.clock.pass(1_501);
    two.beat(two.other, 700).await;
    assert_eq!(two.owner().await, two.other);
    // The first one is back, and was well for long.
    two.pass(6_400, 0).await;
    assert_eq!(two.fetch(0, &[]).await, (two.owner, two.other));
    two.miss().await;
    two.bench.clock.pass(701);
    two.beat(two.owner, 700).await;
    assert_eq!(two.owner().await, two.owner);
}

/// It went to whoever was heard within a second and a half, dead or not.
#[tokio::test]
async fn a_volume_goes_to_nobody_whose_own_tenure_is_over() {
    let two = Two::new().await;
    two.bench.clock.pass(100);
    two.beat(two.owner, 700).await;
    two.miss().await;
    // Both are lost; the other one was so a little earlier.
    two.bench.clock.pass(701);
    assert_eq!(two.owner().await, two.owner);
    two.beat(two.other, 700).await;
    assert_eq!(two.owner().await, two.other);
}

/// They were taken for those who miss the next one, which had its hands full.
#[tokio::test]
async fn who_has_an_older_map_misses_the_server_of_before() {
    let two = Two::new().await;
    two.beat(two.owner, 700).await;
    let before = two.bench.map().await.epoch;
    two.miss().await;
    two.bench.clock.pass(701);
    two.beat(two.other, 700).await;
    assert_eq!(two.owner().await, two.other);
    two.fetch(before, &[1]).await;
    two.bench.clock.pass(701);
    two.beat(two.owner, 700).await;
    assert_eq!(two.owner().await, two.other, "nobody misses that one");
    two.miss().await;
    assert_eq!(two.owner().await, two.owner);
}

/// What was not said to it in that time counted as silence.
#[tokio::test]
async fn time_in_which_a_manager_may_not_answer_counts_against_nobody() {
    let mut two = Two::new().await;
    for address in ["c:1", "d:1"] {
        let join = Join { manager: true, meta: false, ..on_database(address, true) };
        two.bench.join(join).await.unwrap();
    }
    let lease = follow(&mut two.bench, left(0, 0, 800)).await;
    lease.renew(two.bench.clock.monotonic(), 60_000);
    two.pass(4_000, 0).await;
    two.bench.manager.look();
    two.miss().await;
    lease.end();
    for _ in 0..5 {
        two.bench.clock.pass(200);
        two.bench.manager.look();
    }
    lease.renew(two.bench.clock.monotonic(), 60_000);
    two.bench.manager.look();
    two.beat(two.other, 700).await;
    assert_eq!(two.owner().await, two.owner);
    for _ in 0..4 {
        two.bench.clock.pass(200);
        two.bench.manager.look();
    }
    two.beat(two.other, 700).await;
    assert_eq!(two.owner().await, two.other, "now it was silent");
}

/// It looked every 0.2 s.
#[tokio::test]
async fn a_manager_notes_who_lives_as_soon_as_a_tenure_is_over() {
    let two = Two::new().await;
    two.beat(two.owner, 700).await;
    let left = || two.bench.manager.until_next_end();
    assert_eq!(left(), Duration::from_millis(200));
    two.bench.clock.pass(650);
    assert_eq!(left(), Duration::from_millis(51));
    two.bench.clock.pass(50);
    assert_eq!(left(), Duration::from_millis(1), "it lasts still");
}

/// Each of a thousand who ask for the map looked through the whole cluster.
#[tokio::test]
async fn who_asks_for_the_map_looks_who_lives_only_after_something_has_changed() {
    let two = Two::new().await;
    let is_due = || two.bench.manager.is_tick_due();
    two.fetch(0, &[]).await;
    assert!(!is_due());
    two.bench.clock.pass(199);
    two.beat(1, 700).await;
    assert!(!is_due());
    two.bench.clock.pass(1);
    assert!(is_due(), "it was long ago");
    two.fetch(0, &[]).await;
    let said = Heartbeat { server: 1, tenure_ms: 700, lease_ms: 700, ..Heartbeat::default() };
    two.bench.ask(ManagerOp::Heartbeat(Heartbeat { serves: vec![7], ..said })).await.unwrap();
    assert!(is_due(), "a server says that it serves another volume");
    two.fetch(0, &[]).await;
    let spec = VolumeSpec { name: "second".into(), ..VolumeSpec::default() };
    two.bench.ask(ManagerOp::CreateVolume(spec)).await.unwrap();
    assert!(is_due(), "there is another volume");
    two.fetch(0, &[]).await;
    assert!(!is_due());
}
