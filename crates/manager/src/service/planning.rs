//! Jobs, as they are asked for.

use super::{Inner, Manager};
use crate::jobs;
use crate::late;
use crate::liveness::Liveness;
use crate::plan::check_heard;
use crate::records::Job;
use crate::show::{self, Detail};
use crate::state::State;
use crate::steer::steer;
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::jobs::{JobKind, JobList, Plan, SteerJob};
use strake_wire::message::manager::ManagerAnswer;
use tokio::time::Instant;

/// How long a plan waits for what servers hold: for that of one that is dead until its lease is over.
const WORDS_WAIT: Duration = Duration::from_secs(4);
const WORDS_PAUSE: Duration = Duration::from_millis(100);
/// How often a plan is made because the cluster has changed meanwhile,
const PLANS_MAX: usize = 10;
/// and for how long that is begun again.
const PLANS_WAIT: Duration = Duration::from_secs(10);

/// What comes of a request.
struct Planned {
    /// The state with the job, for who has the epoch that it was made of.
    state: State,
    id: u32,
    job: Job,
}

impl Manager {
    /// Waits for servers that have just started, or have not spoken to this manager yet, to say what they hold.
    async fn wait_for_words(&self, request: &Plan) -> Result<()> {
        let until = Instant::now() + WORDS_WAIT;
        loop {
            let heard = {
                let Inner { state, live, .. } = &*self.inner.lock();
                let facts = self.facts(state, live);
                check_heard(state, &facts, |server| live.has_beaten(server), request)
            };
            if heard.is_ok() || Instant::now() >= until {
                return heard;
            }
            tokio::time::sleep(WORDS_PAUSE).await;
        }
    }

    /// Makes a job of a request. That may take long in a large cluster: it is planned on a copy, while servers are heard and
    /// others change the cluster, and entered if nothing has changed since. The last plan is entered also if something has.
    pub(super) async fn plan(&self, request: Plan) -> Result<ManagerAnswer> {
        let until = Instant::now() + PLANS_WAIT;
        let mut turn = 0;
        loop {
            turn += 1;
            self.wait_for_words(&request).await?;
            let Planned { state, id, job } = self.plan_on_copy(&request).await?;
            if request.dry_run {
                return Ok(self.shown(id, &job));
            }
            let is_last = turn >= PLANS_MAX || Instant::now() >= until;
            let enter = |now: &mut State, live: &Liveness| {
                if now.cluster.epoch == state.cluster.epoch {
                    now.clone_from(&state);
                    return Ok(Some((id, job.clone())));
                }
                if !is_last {
                    return Ok(None);
                }
                let facts = self.facts(now, live);
                let has_beaten = |server| live.has_beaten(server);
                late::enter(now, &facts, has_beaten, &request, &job).map(Some)
            };
            if let (Some((id, job)), _) = self.change(enter).await? {
                if id != 0 {
                    tracing::info!("{:?} of {} begins", JobKind::of(job.kind), job.about);
                }
                return Ok(self.shown(id, &job));
            }
        }
    }

    async fn plan_on_copy(&self, request: &Plan) -> Result<Planned> {
        let (state, facts) = {
            let Inner { state, live, .. } = &*self.inner.lock();
            let facts = self.facts(state, live);
            // One may have joined since that was waited for.
            check_heard(state, &facts, |server| live.has_beaten(server), request)?;
            (Arc::clone(state), facts)
        };
        let request = request.clone();
        let planned = task::blocking(move || -> Result<Planned> {
            let mut state = State::clone(&state);
            let (id, job) = jobs::plan(&mut state, &facts, &request)?;
            Ok(Planned { state, id, job })
        });
        let failed = |_| Error::with(ErrorKind::Io, "the plan was not finished");
        planned.await.map_err(failed)?
    }

    fn shown(&self, id: u32, job: &Job) -> ManagerAnswer {
        let inner = self.inner.lock();
        let job = show::job(&inner.state, &inner.live, id, job, Detail::All);
        let default_rate = inner.state.cluster.job_rate;
        ManagerAnswer::Jobs(JobList { jobs: vec![job], default_rate, left_out: 0 })
    }

    pub(super) async fn steer(&self, request: SteerJob) -> Result<ManagerAnswer> {
        let decide = |state: &mut State, live: &Liveness| {
            let facts = self.facts(state, live);
            steer(state, &facts, &request)
        };
        self.change(decide).await?;
        self.jobs(request.id)
    }

    /// The jobs, or the one of a number.
    pub(super) fn jobs(&self, only: u64) -> Result<ManagerAnswer> {
        let inner = self.inner.lock();
        let Inner { state, live, .. } = &*inner;
        let wanted = state.jobs.iter().filter(|(id, _)| only == 0 || u64::from(**id) == only);
        let detail = if only == 0 { Detail::Short } else { Detail::All };
        let shown = |(&id, job)| show::job(state, live, id, job, detail);
        let jobs = wanted.rev().map(shown);
        let (jobs, left_out) = match only {
            0 => show::fitting(jobs),
            _ => (jobs.collect(), 0),
        };
        if only != 0 && jobs.is_empty() {
            let detail = format!("job {only} does not exist (strake job list shows all)");
            return Err(Error::with(ErrorKind::NotFound, detail));
        }
        Ok(ManagerAnswer::Jobs(JobList { jobs, default_rate: state.cluster.job_rate, left_out }))
    }
}
