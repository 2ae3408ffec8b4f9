//! Jobs that give files there are another number of copies: carried out by the metadata server of their
//! volume.
//!
//! That server keeps how far it is and tells it with every heartbeat, so nothing of that is stored here
//! before the job has ended. The order goes to it as long as the job lasts, whether it answers or not.

use crate::groups;
use crate::plan::Facts;
use crate::records::{Job, Recopy, Volume};
use crate::scrubs::AWAY_MS_MAX;
use crate::state::State;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::message::jobs::{JobKind, JobState, Plan};
use strake_wire::message::recopies::{RecopyOrder, RecopyProgress, RecopyWish};

/// Why a job waits of which its server has told nothing yet.
const NOT_BEGUN: &str = "its metadata server has not begun yet";

impl Recopy {
    fn wait(&mut self, reason: &str, now_ms: u64) {
        if self.reason != reason {
            reason.clone_into(&mut self.reason);
            self.since_ms = now_ms;
        }
    }

    /// What its server has told.
    fn take(&mut self, said: &RecopyProgress) {
        (self.tally, self.left) = (said.tally, said.left);
        self.waiting.clone_from(&said.waiting);
    }
}

fn volume_of(state: &State, wish: &RecopyWish) -> Option<Volume> {
    state.volumes.get(&wish.volume).filter(|volume| !volume.deleting).cloned()
}

/// A job for what is wished. The groups for it are made, too.
pub(crate) fn plan(state: &mut State, facts: &Facts, request: &Plan) -> Result<Job> {
    let Some(wish) = request.recopy.clone() else {
        return Err(Error::with(ErrorKind::Invalid, "it does not say which files"));
    };
    let Some(volume) = volume_of(state, &wish) else {
        let detail = format!("volume {} does not exist; see strake volume list", wish.volume);
        return Err(Error::with(ErrorKind::NotFound, detail));
    };
    if volume.spec.shares.is_some() {
        let detail = "files of a volume of several shares cannot be given another number of copies yet; copy them";
        return Err(Error::with(ErrorKind::NotSupported, detail));
    }
    check_free(state, &wish, &volume)?;
    groups::prepare(state, wish.copies)?;
    let word = if wish.copies == 1 { "copy" } else { "copies" };
    let about = format!("{}, {} {word}", wish.path, wish.copies);
    let (reason, since_ms) = (NOT_BEGUN.to_owned(), facts.now_ms);
    Ok(Job {
        kind: JobKind::Recopy as u32,
        state: JobState::Running as u32,
        about,
        begun_ms: facts.now_ms,
        rate: (request.rate != 0).then_some(request.rate),
        recopy: Some(Recopy { wish, reason, since_ms, ..Recopy::default() }),
        ..Job::default()
    })
}

/// Refuses a volume of which another job gives files another number of copies: which directory lies in
/// which, only the metadata server could say.
fn check_free(state: &State, wish: &RecopyWish, volume: &Volume) -> Result<()> {
    let same = |job: &Job| job.recopy.as_ref().is_some_and(|one| one.wish.volume == wish.volume);
    let Some((id, job)) = state.jobs.iter().find(|(_, job)| job.lasts() && same(job)) else {
        return Ok(());
    };
    let detail = format!(
        "job {id} gives files of volume {} another number of copies already ({}); wait for it (strake \
         job watch {id}) or end it (strake job cancel {id})",
        volume.spec.name, job.about
    );
    Err(Error::with(ErrorKind::Busy, detail))
}

/// Brings a job up to date.
pub(crate) fn keep(state: &State, facts: &Facts, id: u32, job: &mut Job) {
    let (now, paused) = (facts.now_ms, job.is(JobState::Paused));
    let Some(one) = &mut job.recopy else { return };
    let Some(volume) = volume_of(state, &one.wish) else {
        one.wait("", now);
        job.reason = "the volume is deleted".to_owned();
        return job.end(JobState::Cancelled, now);
    };
    let said = facts.recopies.get(&id.into());
    if let Some(said) = said.filter(|said| said.ended) {
        one.take(said);
        one.wait("", now);
        job.reason = match said.trouble.is_empty() {
            true => left(one.left),
            false => format!("given up after an hour: {}", said.trouble),
        };
        let done = job.reason.is_empty();
        return job.end(if done { JobState::Done } else { JobState::Failed }, now);
    }
    let server = volume.meta_server;
    match said {
        _ if !facts.up.contains(&server) => {
            let name = state.servers.get(&server).map_or("?", |server| &server.name);
            let reason = format!("metadata server {server} ({name}) does not answer; start it");
            one.wait(&reason, now);
        }
        None => one.wait(NOT_BEGUN, now),
        Some(_) => one.wait("", now),
    }
    let waits_ms = now.saturating_sub(one.since_ms);
    if !one.reason.is_empty() && !paused && waits_ms > AWAY_MS_MAX {
        job.reason = format!("given up after an hour: {}", std::mem::take(&mut one.reason));
        job.end(JobState::Failed, now);
    }
}

/// Why a job has failed that leaves so many files as they were; empty: it leaves none.
fn left(files: u64) -> String {
    let those = match files {
        0 => return String::new(),
        1 => "1 file is as it was".to_owned(),
        files => format!("{files} files are as they were"),
    };
    format!("{those}, after an hour in which none got ready; give the command again later")
}

/// Whoever waits for a server does so from now on.
pub(crate) fn resumed(job: &mut Job, now_ms: u64) {
    job.recopy.iter_mut().for_each(|one| one.since_ms = now_ms);
}

/// What was done so far stays known.
pub(crate) fn cancel(facts: &Facts, id: u32, job: &mut Job) {
    let said = facts.recopies.get(&id.into());
    if let (Some(one), Some(said)) = (&mut job.recopy, said) {
        one.take(said);
        one.reason.clear();
    }
}

/// The server that carries out a job.
pub(crate) fn server_of(state: &State, job: &Job) -> Option<u32> {
    volume_of(state, &job.recopy.as_ref()?.wish).map(|volume| volume.meta_server)
}

/// What a metadata server is to do.
pub(crate) fn orders(state: &State, server: u32) -> Vec<RecopyOrder> {
    let here = |job: &Job| job.lasts() && server_of(state, job) == Some(server);
    let jobs = state.jobs.iter().filter(|(_, job)| here(job));
    let order = |(&id, job): (&u32, &Job)| {
        let wish = &job.recopy.as_ref()?.wish;
        Some(RecopyOrder {
            job: id.into(),
            volume: wish.volume,
            ino: wish.ino,
            copies: wish.copies,
            paused: job.is(JobState::Paused),
            rate: job.share_of_rate(state.cluster.job_rate, 1),
        })
    };
    jobs.filter_map(order).collect()
}

#[cfg(test)]
mod tests;
