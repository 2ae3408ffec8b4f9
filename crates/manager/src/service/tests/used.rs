//! Groups into which nothing was ever put, through the manager's own messages.

use super::*;
use strake_types::GroupId;
use strake_wire::message::jobs::{self, Job, JobKind, JobState};
use strake_wire::message::manager::Used;

/// Servers of one target each, of which each has a group of one copy.
struct Lone {
    bench: Bench,
    servers: Vec<(Join, Joined)>,
}

impl Lone {
    async fn new(servers: u32) -> Lone {
        let mut lone = Lone { bench: Bench::new().await, servers: Vec::new() };
        for nth in 1..=servers {
            let join = server(&format!("h{nth}:1"), &[&format!("t{nth}")]);
            let joined = lone.bench.join(join.clone()).await.unwrap();
            lone.servers.push((join, joined));
        }
        lone.pass(&[]).await;
        lone
    }

    /// Two leases go by, in which some are not heard.
    async fn pass(&self, silent: &[u32]) {
        for _ in 0..14 {
            self.bench.clock.pass(500);
            for (join, joined) in &self.servers {
                if !silent.contains(&joined.server) {
                    self.bench.beat_of(join, joined).await;
                }
            }
            self.bench.manager.tick().await.unwrap();
        }
    }

    async fn say_used(&self, group: u32, target: u32) -> Result<u64> {
        match self.bench.ask(ManagerOp::Used(Used { group, target })).await? {
            ManagerAnswer::Epoch(epoch) => Ok(epoch),
            other => panic!("{other:?}"),
        }
    }

    async fn drain(&self, target: u32) -> Result<Job> {
        let plan = Plan { kind: JobKind::Drain as u32, targets: vec![target], ..Plan::default() };
        match self.bench.ask(ManagerOp::Plan(plan)).await? {
            ManagerAnswer::Jobs(list) => Ok(list.jobs[0].clone()),
            other => panic!("{other:?}"),
        }
    }

    async fn group(&self, id: u32) -> message::Group {
        self.bench.map().await.group(GroupId(id)).unwrap().clone()
    }
}

#[tokio::test]
async fn what_was_said_to_be_used_is_not_given_up_without_being_asked() {
    let mut lone = Lone::new(3).await;
    assert!(lone.group(1).await.never_used);
    let before = lone.bench.map().await.epoch;
    let told = lone.say_used(1, 2).await.unwrap();
    assert!(told > before, "the map is another one");
    assert_eq!(lone.say_used(1, 2).await.unwrap(), told, "once more changes nothing");
    lone.bench.restart().await;
    assert!(!lone.group(1).await.never_used, "it is not forgotten");
    assert!(lone.group(0).await.never_used && lone.group(2).await.never_used);
    // The target dies before it has said anything else.
    lone.pass(&[2]).await;
    let error = lone.drain(2).await.unwrap_err();
    assert!(error.detail.contains("--lose-data"), "{error}");
    assert_eq!(lone.group(1).await.members, [2]);
}

/// Restored from a backup: servers that lived on refused each map of it, and what a metadata server asked in the name of a reign that
/// began by it.
#[tokio::test]
async fn a_manager_whose_data_are_older_goes_on_behind_the_map_that_servers_know() {
    let bench = Bench::new().await;
    let joined = bench.join(server("a:1", &["x"])).await.unwrap();
    for (epoch, least) in [(500, 501), (400, 501), (u64::MAX, 1 << 60)] {
        let beat = Heartbeat { server: joined.server, epoch, ..Heartbeat::default() };
        let answer = bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
        let now = bench.map().await.epoch;
        assert_eq!(answer, ManagerAnswer::Epoch(now));
        assert!((least..least + 9).contains(&now), "{now} after {epoch}");
    }
}

#[tokio::test]
async fn who_was_given_up_may_not_begin_to_use_a_group() {
    let lone = Lone::new(3).await;
    lone.pass(&[2]).await;
    lone.drain(2).await.unwrap();
    let given_up = lone.group(1).await;
    assert!(given_up.never_used && !given_up.members.contains(&2), "{given_up:?}");
    // It was cut off only, and a client writes there.
    assert_eq!(lone.say_used(1, 2).await.unwrap_err().kind, ErrorKind::StaleMap);
    assert_eq!(lone.say_used(77, 2).await.unwrap_err().kind, ErrorKind::StaleMap);
    assert!(lone.group(1).await.never_used, "who has it now need not answer for what is not there");
    lone.say_used(1, given_up.in_sync[0]).await.unwrap();
    assert!(!lone.group(1).await.never_used);
}

#[tokio::test]
async fn what_is_used_while_it_moves_is_waited_for() {
    let lone = Lone::new(3).await;
    let job = lone.drain(2).await.unwrap();
    assert!(job.state < JobState::Done as u32);
    lone.say_used(1, 2).await.unwrap();
    lone.pass(&[2]).await;
    let group = lone.group(1).await;
    assert_eq!((group.in_sync.as_slice(), group.never_used), (&[2][..], false));
}

#[tokio::test]
async fn what_is_found_on_a_target_counts_as_used() {
    let lone = Lone::new(2).await;
    let (join, joined) = &lone.servers[0];
    let held = |chunks| jobs::Held { target: 1, group: 0, chunks, bytes: 0 };
    for (chunks, unused) in [(0, true), (3, false)] {
        let targets = again(join, joined).targets;
        let held = vec![held(chunks)];
        let beat = Heartbeat { server: joined.server, targets, held, ..Heartbeat::default() };
        lone.bench.ask(ManagerOp::Heartbeat(beat)).await.unwrap();
        assert_eq!(lone.group(0).await.never_used, unused);
    }
}
