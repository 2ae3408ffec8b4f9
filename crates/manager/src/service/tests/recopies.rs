//! Jobs that give files another number of copies, through the manager's own messages.

use super::*;
use strake_wire::message::jobs::{Job, JobKind, JobState, ListJobs};
use strake_wire::message::recopies::{
    RecopyAhead, RecopyFile, RecopyLeft, RecopyOrder, RecopyProgress, RecopyTally, RecopyWish,
};

impl Bench {
    /// A heartbeat that tells how far jobs are; what the server is to do.
    async fn beat_recopy(&self, of: &(Join, Joined), said: &[RecopyProgress]) -> Vec<RecopyOrder> {
        let targets = again(&of.0, &of.1).targets;
        let recopies = said.to_vec();
        let beat = Heartbeat { server: of.1.server, targets, recopies, ..Heartbeat::default() };
        let op = Some(ManagerOp::Heartbeat(beat));
        self.manager.call(ManagerRequest { op }).await.unwrap().recopies
    }

    async fn listed(&self, id: u64) -> Job {
        match self.ask(ManagerOp::ListJobs(ListJobs { id })).await.unwrap() {
            ManagerAnswer::Jobs(list) => list.jobs.into_iter().last().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

fn said(job: u64, bytes: u64) -> RecopyProgress {
    RecopyProgress {
        job,
        tally: RecopyTally { looked: 5, files: 2, bytes },
        under_way: vec![RecopyFile { path: "main:/a".into(), copied: 3, bytes: 10 }],
        left: 1,
        waiting: vec![RecopyLeft { path: "main:/b".into(), reason: "open by host".into() }],
        ..RecopyProgress::default()
    }
}

#[tokio::test]
async fn a_recopy_goes_on_when_the_manager_returns_and_ends_with_its_servers_word() {
    let mut bench = Bench::new().await;
    let mut members = Vec::new();
    for nth in 1..=2 {
        let meta = nth == 1;
        let join = Join { meta, ..server(&format!("h{nth}:1"), &[&format!("t{nth}")]) };
        members.push((join.clone(), bench.join(join).await.unwrap()));
    }
    let (own, other) = (&members[0], &members[1]);
    let wish = RecopyWish { volume: 1, ino: 1, copies: 2, path: "main:/".into() };
    let plan = Plan { kind: JobKind::Recopy as u32, recopy: Some(wish), ..Plan::default() };
    let ManagerAnswer::Jobs(list) = bench.ask(ManagerOp::Plan(plan)).await.unwrap() else {
        panic!("no job");
    };
    let id = list.jobs[0].id;
    assert!(bench.beat_recopy(other, &[said(id, 99)]).await.is_empty());
    assert_eq!(bench.listed(id).await.bytes_done, 0, "it is none of its business");
    let orders = bench.beat_recopy(own, &[said(id, 5)]).await;
    assert_eq!(orders.iter().map(|o| (o.job, o.ino)).collect::<Vec<_>>(), [(id, 1)]);
    bench.manager.tick().await.unwrap();
    let job = bench.listed(id).await;
    assert_eq!((job.state, job.bytes_done, job.bytes), (JobState::Running as u32, 8, 15));
    let shown = job.recopy.unwrap();
    assert_eq!((shown.left, &*shown.waiting[0].reason), (1, "open by host"));
    assert!(bench.listed(0).await.recopy.unwrap().waiting.is_empty(), "a list is short");
    let ahead = Some(RecopyAhead { files: 2, bytes: 90, whole: true });
    bench.beat_recopy(own, &[RecopyProgress { ahead, ..said(id, 5) }]).await;
    let job = bench.listed(id).await;
    assert_eq!((job.bytes_done, job.bytes, job.recopy.unwrap().ahead), (8, 98, ahead));
    bench.restart().await;
    assert_eq!(bench.beat_recopy(own, &[said(id, 8)]).await.len(), 1);
    assert_eq!(bench.listed(id).await.recopy.unwrap().tally.bytes, 8);
    bench.beat_recopy(own, &[RecopyProgress { ended: true, ..said(id, 18) }]).await;
    bench.manager.tick().await.unwrap();
    let job = bench.listed(id).await;
    assert_eq!((job.state, job.bytes_done, job.bytes), (JobState::Failed as u32, 18, 18));
    assert_eq!(job.recopy.unwrap().ahead, None);
    assert!(bench.beat_recopy(own, &[]).await.is_empty(), "it may be forgotten");
}
