//! Jobs that scrub, through the manager's own messages.

use super::*;
use strake_wire::message::jobs::{Job, JobKind, JobState, ListJobs, SteerJob};
use strake_wire::message::scrubs::{ScrubOrder, ScrubProgress, ScrubTally};

impl Bench {
    /// A heartbeat that tells how far a scrub is; what the server is to verify.
    async fn beat_scrub(&self, of: &(Join, Joined), said: &[ScrubProgress]) -> Vec<ScrubOrder> {
        let targets = again(&of.0, &of.1).targets;
        let scrubs = said.to_vec();
        let beat = Heartbeat { server: of.1.server, targets, scrubs, ..Heartbeat::default() };
        let op = Some(ManagerOp::Heartbeat(beat));
        self.manager.call(ManagerRequest { op }).await.unwrap().scrubs
    }

    async fn job(&self, id: u64) -> Job {
        match self.ask(ManagerOp::ListJobs(ListJobs { id })).await.unwrap() {
            ManagerAnswer::Jobs(list) => list.jobs.into_iter().last().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

fn said(job: u64, target: u32, bytes: u64) -> ScrubProgress {
    let tally = ScrubTally { bytes, chunks: 1, ..ScrubTally::default() };
    ScrubProgress { job, target, tally, ..ScrubProgress::default() }
}

#[tokio::test]
async fn a_scrub_goes_on_when_the_manager_returns_and_ends_with_its_servers_words() {
    let mut bench = Bench::new().await;
    let mut members = Vec::new();
    for nth in 1..=2 {
        let join = server(&format!("h{nth}:1"), &[&format!("t{nth}")]);
        members.push((join.clone(), bench.join(join).await.unwrap()));
    }
    for member in &members {
        assert!(bench.beat_scrub(member, &[]).await.is_empty(), "nothing is to be verified");
    }
    let wanted = Plan { kind: JobKind::Scrub as u32, rate: Some(100), ..Plan::default() };
    let ManagerAnswer::Jobs(list) = bench.ask(ManagerOp::Plan(wanted)).await.unwrap() else {
        panic!("no job");
    };
    let id = list.jobs[0].id;
    let orders = bench.beat_scrub(&members[0], &[said(id, 1, 5), said(id, 2, 77)]).await;
    assert_eq!(orders.iter().map(|o| (o.job, o.target)).collect::<Vec<_>>(), [(id, 1)]);
    bench.manager.tick().await.unwrap();
    let job = bench.job(id).await;
    assert_eq!((job.scrubs[0].state, job.scrubs[0].tally.bytes), (JobState::Running as u32, 5));
    assert_eq!(job.scrubs[1].tally.bytes, 0, "nobody speaks for the targets of others");
    bench.restart().await;
    assert_eq!(bench.beat_scrub(&members[0], &[said(id, 1, 8)]).await.len(), 1);
    assert_eq!(bench.job(id).await.scrubs[0].tally.bytes, 8);
    for (member, target) in members.iter().zip(1..) {
        let ended = ScrubProgress { ended: true, ..said(id, target, 9) };
        bench.beat_scrub(member, &[ended]).await;
    }
    bench.manager.tick().await.unwrap();
    let job = bench.job(id).await;
    assert_eq!((job.state, job.bytes_done), (JobState::Done as u32, 18));
    assert!(bench.beat_scrub(&members[0], &[]).await.is_empty(), "it may be forgotten");
}

#[tokio::test]
async fn a_silent_target_is_given_up_after_an_hour_which_a_manager_that_starts_counts_anew() {
    let mut bench = Bench::new().await;
    bench.join(server("h1:1", &["x"])).await.unwrap();
    let wanted = Plan { kind: JobKind::Scrub as u32, ..Plan::default() };
    let ManagerAnswer::Jobs(list) = bench.ask(ManagerOp::Plan(wanted)).await.unwrap() else {
        panic!("no job");
    };
    let id = list.jobs[0].id;
    bench.clock.pass(3_001);
    // The first one notes why it waits.
    bench.manager.tick().await.unwrap();
    bench.manager.tick().await.unwrap();
    assert!(bench.job(id).await.scrubs[0].reason.contains("does not answer"));
    bench.clock.pass(1_800_000);
    bench.restart().await;
    bench.manager.tick().await.unwrap();
    bench.clock.pass(3_600_000);
    bench.manager.tick().await.unwrap();
    assert_eq!(bench.job(id).await.state, JobState::Running as u32, "half of it was before");
    bench.clock.pass(1_000);
    bench.manager.tick().await.unwrap();
    let job = bench.job(id).await;
    assert_eq!(job.state, JobState::Failed as u32);
    assert!(job.scrubs[0].reason.contains("given up after an hour"), "{job:?}");
}

/// Each heartbeat went through all items of all jobs.
#[tokio::test]
async fn orders_are_worked_out_once_for_all_heartbeats_until_the_state_changes() {
    let bench = Bench::new().await;
    let join = server("h1:1", &["x"]);
    let member = (join.clone(), bench.join(join).await.unwrap());
    bench.beat_scrub(&member, &[]).await;
    let wanted = Plan { kind: JobKind::Scrub as u32, ..Plan::default() };
    bench.ask(ManagerOp::Plan(wanted)).await.unwrap();
    let kept = || {
        let inner = bench.manager.inner.lock();
        inner.orders.as_ref().map(|orders| orders.scrubs[&1].as_ptr())
    };
    assert_eq!(kept(), None, "of a state without the job");
    assert!(!bench.beat_scrub(&member, &[]).await[0].paused);
    let first = kept();
    assert!(!bench.beat_scrub(&member, &[]).await[0].paused);
    assert_eq!(kept(), first);
    assert!(first.is_some());
    bench
        .ask(ManagerOp::SteerJob(SteerJob { id: 1, pause: true, ..SteerJob::default() }))
        .await
        .unwrap();
    assert!(bench.beat_scrub(&member, &[]).await[0].paused);
}

/// Each heartbeat went through what was said of all targets.
#[tokio::test]
async fn a_heartbeat_leaves_alone_what_others_said_and_what_is_old_is_forgotten_all_the_same() {
    let bench = Bench::new().await;
    let mut members = Vec::new();
    for nth in 1..=2 {
        let join = server(&format!("h{nth}:1"), &[&format!("t{nth}")]);
        members.push((join.clone(), bench.join(join).await.unwrap()));
    }
    for (member, target) in members.iter().zip(1..) {
        bench.beat_scrub(member, &[said(1, target, 5)]).await;
    }
    let known = || {
        let inner = bench.manager.inner.lock();
        [1, 2].map(|target| inner.live.scrub(1, target).map(|seen| seen.progress.tally.bytes))
    };
    bench.clock.pass(3_001);
    bench.beat_scrub(&members[0], &[said(1, 1, 8)]).await;
    assert_eq!(known(), [Some(8), Some(5)]);
    bench.manager.tick().await.unwrap();
    assert_eq!(known(), [Some(8), None]);
}
