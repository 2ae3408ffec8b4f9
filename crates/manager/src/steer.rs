//! What people do to a job that is under way.

use crate::groups;
use crate::jobs::take_back;
use crate::plan::{Facts, refuse};
use crate::recopies;
use crate::scrubs;
use crate::state::State;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::jobs::{JobKind, JobState, SteerJob};

/// Pauses, resumes, slows or cancels a job.
pub(crate) fn steer(state: &mut State, facts: &Facts, request: &SteerJob) -> Result<()> {
    if request.id == 0 {
        if request.pause || request.resume || request.cancel || request.rate.is_none() {
            return Err(refuse("name one job (strake job list shows their numbers)".into()));
        }
        state.cluster.job_rate = request.rate.unwrap_or(state.cluster.job_rate);
        return Ok(());
    }
    let id = u32::try_from(request.id).unwrap_or(u32::MAX);
    let Some(job) = state.jobs.get_mut(&id) else {
        let detail = format!("job {} does not exist (strake job list shows all)", request.id);
        return Err(Error::with(ErrorKind::NotFound, detail));
    };
    if !job.lasts() {
        let word = JobState::of(job.state).unwrap_or(JobState::Done);
        let word = format!("{word:?}").to_lowercase();
        return Err(refuse(format!(
            "job {id} has ended ({word}); strake job show {id} tells more"
        )));
    }
    if request.cancel && job.kind == JobKind::Heal as u32 {
        return Err(refuse(format!(
            "job {id} heals {}, which nobody has asked for: until it is done a copy is missing there, and it would \
             begin again at once; let it wait (strake job pause {id}) or slow it down (strake job throttle {id} 5M)",
            job.about
        )));
    }
    if request.rate.is_some() {
        job.rate = request.rate;
    }
    if request.pause {
        job.state = JobState::Paused as u32;
    }
    if request.resume {
        job.state = JobState::Running as u32;
        scrubs::resumed(job, facts.now_ms);
        recopies::resumed(job, facts.now_ms);
    }
    if request.cancel {
        cancel(state, facts, id);
        // What it drained stays, and targets may have come meanwhile.
        groups::extend(state);
    }
    Ok(())
}

/// Takes back what is not in sync yet; what is nearly done is left to its end.
fn cancel(state: &mut State, facts: &Facts, id: u32) {
    let State { jobs, groups, targets, .. } = state;
    let Some(job) = jobs.get_mut(&id) else { return };
    for item in job.items.iter_mut().filter(|item| item.lasts()) {
        let started = item.is(JobState::Running);
        let back = !started || groups.get_mut(&item.group).is_none_or(|g| take_back(g, item));
        match back {
            true => item.set(JobState::Cancelled, ""),
            false => item.set(JobState::Done, ""),
        }
    }
    scrubs::cancel(facts, id, job);
    recopies::cancel(facts, id, job);
    for target in job.targets.iter().filter(|id| !job.drained_before.contains(id)) {
        targets.entry(*target).and_modify(|target| target.drains = false);
    }
    job.end(JobState::Cancelled, facts.now_ms);
}
