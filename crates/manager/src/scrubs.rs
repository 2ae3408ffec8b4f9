//! Jobs that verify what targets hold: one item per target, carried out by the target's server.
//!
//! The server keeps how far it is and tells it with every heartbeat, so nothing of that is stored here
//! before the item has ended; a manager that returns hears it again. An order goes to the server as long
//! as the item lasts, whether the server answers or not: when it is back it goes on by itself.

use crate::plan::{Facts, Wait, name_of};
use crate::records::{Job, Scrub};
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use strake_types::{Error, ErrorKind, GroupId, Result};
use strake_wire::message::jobs::{JobKind, JobState};
use strake_wire::message::scrubs::{ScrubFate, ScrubFinding, ScrubOrder, ScrubProgress};

/// How long an item waits for a server that is away.
pub(crate) const AWAY_MS_MAX: u64 = 3_600_000;
/// Findings that are remembered of a job; all are counted.
const FINDINGS_MAX: usize = 2_000;
/// What was not looked at, so many of a target.
const SKIPPED_MAX: usize = 3;
/// Why an item waits of which its server has told nothing yet.
const NOT_BEGUN: &str = "its server has not begun yet";

impl Scrub {
    pub fn is(&self, state: JobState) -> bool {
        self.state == state as u32
    }

    pub fn lasts(&self) -> bool {
        self.is(JobState::Waiting) || self.is(JobState::Running)
    }

    fn set(&mut self, state: JobState, reason: &str, now_ms: u64) {
        if self.is(state) && self.reason == reason {
            return;
        }
        (self.state, self.since_ms) = (state as u32, now_ms);
        reason.clone_into(&mut self.reason);
    }

    /// What its server has told.
    fn take(&mut self, said: &ScrubProgress) {
        self.tally = said.tally;
        self.findings.clone_from(&said.findings);
        self.skipped = said.skipped.iter().take(SKIPPED_MAX).cloned().collect();
    }

    fn finish(&mut self, said: &ScrubProgress, now_ms: u64) {
        self.take(said);
        let left = match said.tally.left {
            0 => None,
            1 => Some("1 chunk is damaged still".to_owned()),
            left => Some(format!("{left} chunks are damaged still")),
        };
        let skipped = self.skipped.iter().map(|skipped| format!("not looked at: {skipped}"));
        let reasons: Vec<String> = left.into_iter().chain(skipped).collect();
        match reasons.is_empty() {
            true => self.set(JobState::Done, "", now_ms),
            false => self.set(JobState::Failed, &reasons.join("; "), now_ms),
        }
    }
}

/// The parts of a job that verifies these targets; none: all.
pub(crate) fn plan(state: &State, facts: &Facts, named: &BTreeSet<u32>) -> Result<Vec<Scrub>> {
    let all = || state.targets.keys().copied().collect();
    let wanted: BTreeSet<u32> = if named.is_empty() { all() } else { named.clone() };
    check_free(state, &wanted)?;
    let mut compare = comparisons(state, &wanted);
    let held = facts.held_by_target();
    let part = |&target: &u32| Scrub {
        target,
        reason: NOT_BEGUN.to_owned(),
        bytes: held.get(&target).copied().unwrap_or(0),
        compare: compare.remove(&target).unwrap_or_default(),
        since_ms: facts.now_ms,
        ..Scrub::default()
    };
    Ok(wanted.iter().map(part).collect())
}

/// Refuses targets that are being verified.
fn check_free(state: &State, wanted: &BTreeSet<u32>) -> Result<()> {
    let verifies = |job: &Job| {
        job.lasts() && job.scrubs.iter().any(|one| one.lasts() && wanted.contains(&one.target))
    };
    let Some((id, job)) = state.jobs.iter().find(|(_, job)| verifies(job)) else { return Ok(()) };
    let detail = format!(
        "job {id} verifies {} already; wait for it (strake job watch {id}) or end it (strake job \
         cancel {id})",
        job.about
    );
    Err(Error::with(ErrorKind::Busy, detail))
}

/// Which target sees to it that the copies of which groups are compared: every group of several copies
/// with a member among them has one, where it can the primary.
fn comparisons(state: &State, wanted: &BTreeSet<u32>) -> BTreeMap<u32, Vec<u32>> {
    let mut compare: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (&id, group) in state.groups.iter().filter(|(id, _)| GroupId(**id).copies() > 1) {
        let mut members = group.in_sync.iter().chain(&group.members);
        if let Some(&target) = members.find(|member| wanted.contains(member)) {
            compare.entry(target).or_default().push(id);
        }
    }
    compare
}

/// Brings a job up to date.
pub(crate) fn keep(state: &State, facts: &Facts, id: u32, job: &mut Job) {
    let (now, paused) = (facts.now_ms, job.is(JobState::Paused));
    for one in job.scrubs.iter_mut().filter(|one| one.lasts()) {
        let said = facts.scrubs.get(&(id.into(), one.target));
        let gone = facts.is_gone(one.target);
        match said {
            _ if !state.targets.contains_key(&one.target) => {
                one.set(JobState::Cancelled, "the target is not in the cluster any more", now);
            }
            Some(said) if said.ended => one.finish(said, now),
            _ if gone => {
                let name = name_of(state, one.target);
                let reason = format!("{name} does not answer; start its server");
                one.set(JobState::Waiting, &reason, now);
            }
            Some(_) => one.set(JobState::Running, "", now),
            None => {}
        }
        let wait = Wait { job: id, target: one.target, since_ms: one.since_ms };
        if one.is(JobState::Waiting) && !paused && facts.has_waited(wait, AWAY_MS_MAX) {
            let reason = format!("given up after an hour: {}", one.reason);
            one.set(JobState::Failed, &reason, now);
        }
    }
    bound(job.scrubs.iter_mut().map(|one| &mut one.findings));
    if !job.scrubs.iter().any(Scrub::lasts) {
        let failed = job.scrubs.iter().any(|one| one.is(JobState::Failed));
        job.end(if failed { JobState::Failed } else { JobState::Done }, now);
    }
}

/// Whoever waits for a server does so from now on.
pub(crate) fn resumed(job: &mut Job, now_ms: u64) {
    job.scrubs.iter_mut().filter(|one| one.lasts()).for_each(|one| one.since_ms = now_ms);
}

/// Ends what lasts; what was found so far stays known.
pub(crate) fn cancel(facts: &Facts, id: u32, job: &mut Job) {
    for one in job.scrubs.iter_mut().filter(|one| one.lasts()) {
        if let Some(said) = facts.scrubs.get(&(id.into(), one.target)) {
            one.take(said);
        }
        one.set(JobState::Cancelled, "", facts.now_ms);
    }
    bound(job.scrubs.iter_mut().map(|one| &mut one.findings));
}

/// Forgets what a job has found beyond what its record and a message hold: what was repaired first.
pub(crate) fn bound<'a>(lists: impl Iterator<Item = &'a mut Vec<ScrubFinding>>) {
    let mut lists: Vec<_> = lists.collect();
    let mut room = FINDINGS_MAX;
    for repaired in [false, true] {
        for list in &mut lists {
            list.retain(|finding| {
                let is_other = (finding.fate == ScrubFate::Repaired as u32) != repaired;
                let stays = is_other || room > 0;
                room -= usize::from(!is_other && stays);
                stays
            });
        }
    }
}

/// What each server is to verify: each target of a job that is under way has its share of the job's rate.
pub(crate) fn orders(state: &State) -> HashMap<u32, Vec<ScrubOrder>> {
    let mut orders: HashMap<u32, Vec<ScrubOrder>> = HashMap::new();
    let scrub = JobKind::Scrub as u32;
    for (&id, job) in state.jobs.iter().filter(|(_, job)| job.kind == scrub && job.lasts()) {
        let running = job.scrubs.iter().filter(|one| one.is(JobState::Running)).count();
        let share = job.share_of_rate(state.cluster.job_rate, running);
        for one in job.scrubs.iter().filter(|one| one.lasts()) {
            let Some(server) = state.server_of(one.target) else { continue };
            orders.entry(server).or_default().push(ScrubOrder {
                job: id.into(),
                target: one.target,
                repair: !job.no_repair,
                compare: one.compare.clone(),
                paused: job.is(JobState::Paused),
                rate: share,
            });
        }
    }
    orders
}

#[cfg(test)]
mod tests;
