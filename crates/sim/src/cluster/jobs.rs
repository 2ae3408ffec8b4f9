//! What an administrator does while the cluster is used: moves groups, gives files another number of copies, ends
//! and slows that down, takes machines out, and replaces disks that are gone.

use super::Cluster;
use super::host::{HEAD, Host};
use super::world::Power;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::jobs::{Job, JobItem, JobKind, JobState, ListJobs, Plan, SteerJob};
use strake_wire::message::manager::{ClusterMap, ManagerAnswer, ManagerOp, Volume};
use strake_wire::message::recopies::RecopyWish;

/// Longest time until all jobs are over once nothing goes wrong any more.
const JOBS_BOUND: Duration = Duration::from_secs(300);
/// The same where files get other copies: what nobody knows the end of is left alone for ten minutes, and
/// once more if that happens again.
const RECOPY_BOUND: Duration = Duration::from_secs(1_500);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

impl Cluster {
    pub(super) async fn jobs(&self, op: ManagerOp) -> Result<Vec<Job>> {
        match self.ask(op).await? {
            ManagerAnswer::Jobs(list) => Ok(list.jobs),
            ManagerAnswer::Epoch(_) => Ok(Vec::new()),
            _ => Err(Error::with(ErrorKind::Malformed, "no jobs")),
        }
    }

    /// Jobs that are not over.
    pub(super) async fn jobs_left(&self) -> Result<Vec<Job>> {
        let jobs = self.jobs(ManagerOp::ListJobs(ListJobs { id: 0 })).await?;
        Ok(jobs.into_iter().filter(|job| job.state < JobState::Done as u32).collect())
    }

    pub(super) async fn order(&self, op: ManagerOp) -> Result<Vec<Job>> {
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
        let plan = match random.below(10) {
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
            7 | 8 => self.recopy(&map, random),
            _ => return self.steer(random).await,
        };
        if self.order(ManagerOp::Plan(plan)).await.is_ok() {
            strake_base::count_case("fault-move");
        }
    }

    /// All files get another number of copies. What one copy is worth, more are not where only one is
    /// counted on; and where a target is gone, its groups must find a place beside their other members.
    fn recopy(&self, map: &ClusterMap, random: &mut SplitMix64) -> Plan {
        let stay = map.targets.len() - self.lost.lock().len();
        let copies = match 2 + random.below(2) as u32 {
            _ if self.plan.copies == 1 => 1,
            three if three as usize > stay => 2,
            copies => copies,
        };
        self.recopy_of(map, Ino::ROOT, copies)
    }

    /// A file, or all that are below a directory, get so many copies.
    pub(super) fn recopy_of(&self, map: &ClusterMap, ino: Ino, copies: u32) -> Plan {
        let used = |volume: &&Volume| volume.spec.name == self.plan.volume.name;
        let volume = map.volumes.iter().find(used).map_or(0, |volume| volume.id);
        let wish = RecopyWish { volume, ino: ino.0, copies, path: format!("/{ino}") };
        Plan { kind: JobKind::Recopy as u32, recopy: Some(wish), ..Plan::default() }
    }

    /// What is copied is left as it is, and no job is under way any more.
    pub(super) async fn end_copying(&self) -> Result<()> {
        self.wait(JOBS_BOUND, "nothing is copied any more", async |cluster| {
            let Ok(left) = cluster.jobs_left().await else { return Ok(false) };
            for job in &left {
                let steer = SteerJob { id: job.id, cancel: true, ..SteerJob::default() };
                let _refused = cluster.order(ManagerOp::SteerJob(steer)).await;
            }
            Ok(left.is_empty())
        })
        .await
    }

    /// Takes a machine out, if enough others stay.
    pub(super) async fn take_out(&self, host: &Arc<Host>) {
        let stay = self.members().filter(|other| other.number != host.number).count();
        let most = self.plan.copies.max(2) as usize;
        if host.number == HEAD || stay < most || !self.going.lock().insert(host.number) {
            return;
        }
        let (kind, servers) = (JobKind::Drain as u32, vec![host.number]);
        let plan = Plan { kind, servers, remove: true, ..Plan::default() };
        let unknown =
            |error: &Error| matches!(error.kind, ErrorKind::Unavailable | ErrorKind::TimedOut);
        // Without an answer it may be on its way out (seed 2630000003684).
        if self.order(ManagerOp::Plan(plan)).await.is_err_and(|error| !unknown(&error)) {
            self.going.lock().remove(&host.number);
        }
    }

    /// Machines that have left the cluster are switched off for good.
    pub(super) async fn switch_off(&self) {
        let mut going = self.going.lock().clone();
        // One that has not been in it yet has not left it (seed 2652000000144).
        going.retain(|number| !self.hosts[*number as usize - 1].cluster.lock().is_empty());
        if going.is_empty() {
            return;
        }
        let Ok(map) = self.map().await else { return };
        let has_left = |number: &u32| map.servers.iter().all(|server| server.id != *number);
        for number in going.into_iter().filter(has_left) {
            let host = &self.hosts[number as usize - 1];
            self.world.note(format_args!("server {number} has left"));
            strake_base::count_case("fault-leave");
            host.dismissed.store(true, Ordering::Relaxed);
            host.crash(Power::On).await;
            self.going.lock().remove(&number);
        }
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
            self.judge_scrubs().await?;
            // What does not move anything may wait for a lost target, whose place only a drained one can take.
            let stays = [JobKind::Recopy as u32, JobKind::Scrub as u32];
            if left.iter().all(|job| stays.contains(&job.kind)) {
                self.use_drained().await?;
            }
            self.replace_lost().await;
            self.switch_off().await;
            let nothing_lost = self.lost.lock().is_empty();
            if left.is_empty() && nothing_lost {
                self.world.note(format_args!("all jobs are over"));
                return Ok(());
            }
            let took = self.world.now() - began;
            let recopies = left.iter().any(|job| job.kind == JobKind::Recopy as u32);
            if took > if recopies { RECOPY_BOUND } else { JOBS_BOUND } {
                let lost = self.lost.lock().clone();
                let detail = format!("jobs have no end: {left:?}, lost {lost:?}");
                return Err(Error::with(ErrorKind::TimedOut, detail));
            }
            if took > JOBS_BOUND / 2 {
                self.cancel_stuck(&left).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends what would wait for ever, or for a day: moves that find no place, and copying of files which clients
    /// that were killed may still have open.
    async fn cancel_stuck(&self, left: &[Job]) {
        for job in left {
            let id = job.id;
            let stuck = match JobKind::of(job.kind) {
                Some(JobKind::Drain) => true,
                // Another one was forced to leave only places on servers that have copies already.
                Some(JobKind::Replace) => {
                    let mut waits = job.items.iter().filter(|i| i.state < JobState::Done as u32);
                    waits.all(|item| item.reason.contains("--force"))
                }
                Some(JobKind::Recopy) => {
                    let shown = self.jobs(ManagerOp::ListJobs(ListJobs { id })).await;
                    let one = shown.unwrap_or_default().into_iter().find_map(|job| job.recopy);
                    let waiting = one.map(|recopy| recopy.waiting).unwrap_or_default();
                    !waiting.is_empty() && waiting.iter().all(|file| file.reason.contains("lost"))
                }
                _ => false,
            };
            if stuck {
                let steer = SteerJob { id, cancel: true, ..SteerJob::default() };
                let _refused = self.order(ManagerOp::SteerJob(steer)).await;
            }
        }
    }
}
