//! Jobs that give files there are another number of copies: carried out by the metadata server of each share
//! of their volume.
//!
//! Those servers keep how far they are and tell it with every heartbeat, so nothing of that is stored here
//! before the job has ended. The orders go to them as long as the job lasts, whether they answer or not.

use crate::groups;
use crate::plan::{Facts, Wait};
use crate::records::{Job, Recopy, Volume};
use crate::scrubs::AWAY_MS_MAX;
use crate::state::State;
use std::collections::HashSet;
use strake_types::{Error, ErrorKind, Result, VolumeId};
use strake_wire::message::jobs::{JobKind, JobState, Plan};
use strake_wire::message::recopies::{
    RecopyAhead, RecopyOrder, RecopyProgress, RecopyTally, RecopyWish,
};

/// Why a job waits of which nobody has told anything yet.
const NOT_BEGUN: &str = "its metadata server has not begun yet";
/// Files that wait that are shown; all are counted.
const WAITING_MAX: usize = 200;

impl Recopy {
    fn wait(&mut self, reason: &str, now_ms: u64) {
        if self.reason != reason {
            reason.clone_into(&mut self.reason);
            self.since_ms = now_ms;
        }
    }

    /// What its servers have told.
    fn take(&mut self, said: &RecopyProgress) {
        (self.tally, self.left) = (said.tally, said.left);
        self.waiting.clone_from(&said.waiting);
    }
}

fn volume_of<'a>(state: &'a State, wish: &RecopyWish) -> Option<&'a Volume> {
    let whole = |volume: &&Volume| !volume.deleting && volume.share == 0;
    state.volumes.get(&wish.volume).filter(whole)
}

/// The shares of the volume that a job is about, by id; none if the volume is gone.
fn parts<'a>(state: &'a State, wish: &RecopyWish) -> Vec<(u32, &'a Volume)> {
    let Some(volume) = volume_of(state, wish) else { return Vec::new() };
    let part = |VolumeId(id)| Some((id, state.volumes.get(&id)?));
    volume.shares(wish.volume).all().filter_map(part).collect()
}

/// What the servers of some shares say, as one.
pub(crate) fn together<'a>(
    all: impl IntoIterator<Item = &'a RecopyProgress>,
) -> Option<RecopyProgress> {
    let mut before = Before::default();
    let each = all.into_iter().map(|said| once(said.clone(), &mut before));
    each.reduce(|mut sum, one| {
        let RecopyTally { looked, files, bytes } = one.tally;
        sum.tally.looked += looked;
        sum.tally.files += files;
        sum.tally.bytes += bytes;
        sum.under_way.extend(one.under_way);
        sum.left += one.left;
        sum.waiting.extend(one.waiting);
        sum.waiting.truncate(WAITING_MAX);
        sum.directories = sum.directories.max(one.directories);
        sum.ended &= one.ended;
        sum.ahead = sum.ahead.zip(one.ahead).map(|(a, b)| RecopyAhead {
            files: a.files + b.files,
            bytes: a.bytes + b.bytes,
            whole: a.whole && b.whole,
        });
        if sum.trouble.is_empty() {
            sum.trouble = one.trouble;
        }
        sum
    })
}

/// What other shares have told before.
#[derive(Default)]
struct Before {
    /// What they have named.
    named: HashSet<String>,
    /// Directories that wait in one of them: in that which has most.
    directories: u64,
}

/// The same without what other shares have told already: each goes through all directories in the same order, and one that
/// waits does so for all of them. Files are of one share. A server may name a few of those that wait, and one of an earlier
/// release does not tell how many are directories: what it does not name counts once for each share.
fn once(mut said: RecopyProgress, before: &mut Before) -> RecopyProgress {
    let all = said.waiting.len();
    said.waiting.retain(|left| !before.named.contains(&left.path));
    before.named.extend(said.waiting.iter().map(|left| left.path.clone()));
    let named = (all - said.waiting.len()) as u64;
    let twice = named.max(said.directories.min(before.directories));
    before.directories = before.directories.max(said.directories);
    said.left = said.left.saturating_sub(twice);
    if let Some(ahead) = &mut said.ahead {
        ahead.files = ahead.files.saturating_sub(twice);
    }
    said
}

/// What is ahead of a job of which so many shares have told this: at least so much, until all have told.
pub(crate) fn ahead(
    state: &State,
    wish: &RecopyWish,
    told: usize,
    sum: Option<RecopyAhead>,
) -> Option<RecopyAhead> {
    let all = told >= parts(state, wish).len();
    sum.map(|sum| RecopyAhead { whole: sum.whole && all, ..sum })
}

/// What has been told of a job.
fn told(facts: &Facts, id: u32) -> impl Iterator<Item = &RecopyProgress> {
    let id = u64::from(id);
    facts.recopies.range((id, 0)..=(id, u32::MAX)).map(|(_, said)| &**said)
}

/// A job for what is wished. The groups for it are made, too.
pub(crate) fn plan(state: &mut State, facts: &Facts, request: &Plan) -> Result<Job> {
    let Some(wish) = request.recopy.clone() else {
        return Err(Error::with(ErrorKind::Invalid, "it does not say which files"));
    };
    let Some(name) = volume_of(state, &wish).map(|volume| volume.spec.name.clone()) else {
        let detail = format!("volume {} does not exist; see strake volume list", wish.volume);
        return Err(Error::with(ErrorKind::NotFound, detail));
    };
    check_free(state, &wish, &name)?;
    groups::prepare_listed(state, wish.copies)?;
    let word = if wish.copies == 1 { "copy" } else { "copies" };
    let about = format!("{}, {} {word}", wish.path, wish.copies);
    let (reason, since_ms) = (NOT_BEGUN.to_owned(), facts.now_ms);
    Ok(Job {
        kind: JobKind::Recopy as u32,
        state: JobState::Running as u32,
        about,
        begun_ms: facts.now_ms,
        rate: request.rate,
        recopy: Some(Recopy { wish, reason, since_ms, ..Recopy::default() }),
        ..Job::default()
    })
}

/// Refuses a volume of which another job gives files another number of copies: which directory lies in
/// which, only the metadata server could say.
fn check_free(state: &State, wish: &RecopyWish, name: &str) -> Result<()> {
    let same = |job: &Job| job.recopy.as_ref().is_some_and(|one| one.wish.volume == wish.volume);
    let Some((id, job)) = state.jobs.iter().find(|(_, job)| job.lasts() && same(job)) else {
        return Ok(());
    };
    let detail = format!(
        "job {id} gives files of volume {name} another number of copies already ({}); wait for it (strake \
         job watch {id}) or end it (strake job cancel {id})",
        job.about
    );
    Err(Error::with(ErrorKind::Busy, detail))
}

/// Brings a job up to date.
pub(crate) fn keep(state: &mut State, facts: &Facts, id: u32, job: &mut Job) {
    let (now, paused) = (facts.now_ms, job.is(JobState::Paused));
    let Some(one) = &mut job.recopy else { return };
    groups::lead_listed(state, one.wish.copies);
    let parts = parts(state, &one.wish);
    if parts.is_empty() {
        one.wait("", now);
        job.reason = "the volume is deleted".to_owned();
        return job.end(JobState::Cancelled, now);
    }
    let said = |(share, _): &(u32, &Volume)| facts.recopies.get(&(id.into(), *share));
    if parts.iter().all(|part| said(part).is_some_and(|said| said.ended))
        && let Some(said) = together(parts.iter().filter_map(said).map(|said| &**said))
    {
        one.take(&said);
        one.wait("", now);
        job.reason = match said.trouble.is_empty() {
            true => left(one.left),
            false => format!("given up after an hour: {}", said.trouble),
        };
        let done = job.reason.is_empty();
        return job.end(if done { JobState::Done } else { JobState::Failed }, now);
    }
    let why = |part: &(u32, &Volume)| {
        let server = part.1.meta_server;
        let name = state.servers.get(&server).map_or("?", |server| &server.name);
        match (facts.up.contains(&server), said(part)) {
            (false, _) => {
                Some(format!("metadata server {server} ({name}) does not answer; start it"))
            }
            (true, None) => Some(format!("metadata server {server} ({name}) has not begun yet")),
            (true, Some(_)) => None,
        }
    };
    let reason = parts.iter().find_map(why).unwrap_or_default();
    one.wait(&reason, now);
    let wait = Wait { job: id, target: 0, since_ms: one.since_ms };
    if !one.reason.is_empty() && !paused && facts.has_waited(wait, AWAY_MS_MAX) {
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
    if let (Some(one), Some(said)) = (&mut job.recopy, together(told(facts, id))) {
        one.take(&said);
        one.reason.clear();
    }
}

/// What a metadata server says of jobs, as far as they are its business.
pub(crate) fn own_words(
    state: &State,
    server: u32,
    mut said: Vec<RecopyProgress>,
) -> Vec<RecopyProgress> {
    said.retain_mut(|said| {
        let job = u32::try_from(said.job).ok().and_then(|id| state.jobs.get(&id));
        let Some(one) = job.and_then(|job| job.recopy.as_ref()) else { return false };
        let parts = parts(state, &one.wish);
        if let (0, [(whole, _)]) = (said.volume, &parts[..]) {
            said.volume = *whole;
        }
        parts.iter().any(|part| part.0 == said.volume && part.1.meta_server == server)
    });
    said
}

/// What a metadata server is to do. Shares that are not ready, by job and share, have the rate of a job among them.
pub(crate) fn orders(
    state: &State,
    server: u32,
    is_ready: impl Fn(u64, u32) -> bool,
) -> Vec<RecopyOrder> {
    let mut orders = Vec::new();
    for (id, job) in state.jobs.iter().filter(|(_, job)| job.lasts()) {
        let Some(Recopy { wish, .. }) = &job.recopy else { continue };
        let (id, parts) = (u64::from(*id), parts(state, wish));
        let busy = parts.iter().filter(|(share, _)| !is_ready(id, *share)).count();
        let here = parts.iter().filter(|(_, volume)| volume.meta_server == server);
        orders.extend(here.map(|(share, _)| RecopyOrder {
            job: id,
            volume: *share,
            ino: wish.ino,
            copies: wish.copies,
            paused: job.is(JobState::Paused),
            rate: job.share_of_rate(state.cluster.job_rate, busy),
        }));
    }
    orders
}

#[cfg(test)]
mod tests;
