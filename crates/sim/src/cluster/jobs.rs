//! What an administrator does while the cluster is used: moves groups, ends and slows that down, and replaces
//! disks that are gone.

use super::Cluster;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::jobs::{Job, JobItem, JobKind, JobState, ListJobs, Plan, SteerJob};
use strake_wire::message::manager::{ManagerAnswer, ManagerOp};

/// Longest time until all jobs are over once nothing goes wrong any more.
const JOBS_BOUND: Duration = Duration::from_secs(300);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

impl Cluster {
    async fn jobs(&self, op: ManagerOp) -> Result<Vec<Job>> {
        match self.ask(op).await? {
            ManagerAnswer::Jobs(list) => Ok(list.jobs),
            ManagerAnswer::Epoch(_) => Ok(Vec::new()),
            _ => Err(Error::with(ErrorKind::Malformed, "no jobs")),
        }
    }

    /// Jobs that are not over.
    async fn jobs_left(&self) -> Result<Vec<Job>> {
        let jobs = self.jobs(ManagerOp::ListJobs(ListJobs { id: 0 })).await?;
        Ok(jobs.into_iter().filter(|job| job.state < JobState::Done as u32).collect())
    }

    async fn order(&self, op: ManagerOp) -> Result<Vec<Job>> {
        let shown = format!("{op:?}");
        let done = self.jobs(op).await;
        let told = done.as_ref().map(Vec::len).map_err(ToString::to_string);
        self.world.note(format_args!("{shown}: {told:?}"));
        done
    }

    /// One order of an administrator, which may be refused.
    pub(super) async fn move_about(&self, random: &mut SplitMix64) {
        let Ok(map) = self.map().await else { return };
        let mut any = || {
            let nth = random.below(map.targets.len() as u64) as usize;
            map.targets[nth].id
        };
        let (one, other) = (any(), any());
        let force = random.percent(20);
        let targets = vec![one];
        let plan = match random.below(8) {
            0..3 => Plan { kind: JobKind::Drain as u32, targets, force, ..Plan::default() },
            3 => Plan { kind: JobKind::Rebalance as u32, ..Plan::default() },
            4 => {
                let (kind, to) = (JobKind::Replace as u32, other);
                Plan { kind, targets, to, force, ..Plan::default() }
            }
            5 | 6 => {
                let targets = map.targets.iter().filter(|t| t.drains).map(|t| t.id).collect();
                Plan { kind: JobKind::Drain as u32, targets, undo: true, ..Plan::default() }
            }
            _ => return self.steer(random).await,
        };
        let _refused = self.order(ManagerOp::Plan(plan)).await;
    }

    async fn steer(&self, random: &mut SplitMix64) {
        let Ok(jobs) = self.jobs_left().await else { return };
        let Some(id) = jobs.first().map(|job| job.id) else { return };
        let steer = SteerJob { id, ..SteerJob::default() };
        let steer = match random.below(4) {
            0 => SteerJob { pause: true, ..steer },
            1 => SteerJob { resume: true, ..steer },
            2 => SteerJob { cancel: true, ..steer },
            _ => SteerJob { rate: Some(64 << 10), ..steer },
        };
        let _refused = self.order(ManagerOp::SteerJob(steer)).await;
    }

    /// Lets other targets take the place of those that are gone, as far as the manager agrees now.
    pub(super) async fn replace_lost(&self) {
        let lost = self.lost.lock().clone();
        for job in self.jobs_left().await.unwrap_or_default() {
            let waits = |item: &JobItem| item.state < JobState::Done as u32;
            // It would wait for a target that never comes.
            if job.items.iter().any(|item| waits(item) && lost.contains(&item.to)) {
                let steer = SteerJob { id: job.id, cancel: true, ..SteerJob::default() };
                let _refused = self.order(ManagerOp::SteerJob(steer)).await;
            }
        }
        for target in lost {
            if let Err(error) = self.replace(target).await {
                self.world.note(format_args!("target {target} is not replaced yet: {error}"));
            }
        }
    }

    async fn replace(&self, lost: u32) -> Result<()> {
        let map = self.map().await?;
        let Some(known) = map.targets.iter().find(|target| target.id == lost) else {
            self.lost.lock().retain(|target| *target != lost);
            return Ok(());
        };
        // The youngest of the same server: the disk that was put in.
        let own = map.targets.iter().filter(|t| t.server == known.server && t.id != lost);
        let Some(to) = own.map(|target| target.id).max() else {
            return Err(Error::with(ErrorKind::NotFound, "no target to take its place"));
        };
        let (kind, targets) = (JobKind::Replace as u32, vec![lost]);
        let plan = Plan { kind, targets, to, remove: true, ..Plan::default() };
        self.order(ManagerOp::Plan(plan)).await.map(drop)
    }

    /// Targets that were drained, and are there, are used again.
    async fn use_drained(&self) -> Result<()> {
        let (map, lost) = (self.map().await?, self.lost.lock().clone());
        let drained = map.targets.iter().filter(|target| target.drains);
        let targets: Vec<_> = drained.map(|t| t.id).filter(|id| !lost.contains(id)).collect();
        if targets.is_empty() {
            return Ok(());
        }
        let plan = Plan { kind: JobKind::Drain as u32, targets, undo: true, ..Plan::default() };
        self.order(ManagerOp::Plan(plan)).await.map(drop)
    }

    /// Everything that was begun is brought to an end, and no dead target stays.
    pub(super) async fn end_jobs(&self) -> Result<()> {
        for job in self.jobs_left().await? {
            let steer = SteerJob { id: job.id, resume: true, rate: Some(0), ..SteerJob::default() };
            let _refused = self.order(ManagerOp::SteerJob(steer)).await;
        }
        let began = self.world.now();
        loop {
            let left = self.jobs_left().await?;
            if left.is_empty() {
                self.use_drained().await?;
            }
            self.replace_lost().await;
            let nothing_lost = self.lost.lock().is_empty();
            if left.is_empty() && nothing_lost {
                self.world.note(format_args!("all jobs are over"));
                return Ok(());
            }
            let took = self.world.now() - began;
            if took > JOBS_BOUND {
                let lost = self.lost.lock().clone();
                let detail = format!("jobs have no end: {left:?}, lost {lost:?}");
                return Err(Error::with(ErrorKind::TimedOut, detail));
            }
            // What finds no place would wait for ever.
            let moves = |job: &&Job| job.kind == JobKind::Drain as u32;
            if took > JOBS_BOUND / 2 {
                for job in left.iter().filter(moves) {
                    let steer = SteerJob { id: job.id, cancel: true, ..SteerJob::default() };
                    let _refused = self.order(ManagerOp::SteerJob(steer)).await;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
