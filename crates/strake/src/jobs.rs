//! Jobs as people see them: words, rates, times, and the file that is being worked on.

use crate::cluster;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::recopy_view::RecopyView;
use crate::size;
use crate::soundness::{self, path_in};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use strake_base::clock::wall_time;
use strake_storage::soundness::Finding;
use strake_types::{Ino, VolumeId};
use strake_wire::map::MapView;
use strake_wire::message::jobs::{Job, JobItem, JobKind, JobList, JobState, ListJobs, Plan};
use strake_wire::message::manager::{ManagerAnswer, ManagerOp};
use strake_wire::message::scrubs::{JobScrub, ScrubFate};
use strake_wire::message::storage::Chunk;
use tokio::time::{Instant, timeout_at};

/// How long paths may take to be found, all together.
const PATH_WAIT: Duration = Duration::from_secs(2);
/// Scrubs that have left damage which are asked what it is, the newest first.
const SCRUBS_ASKED_MAX: usize = 8;
/// Files of which paths are looked up for one answer.
const PATHS_MAX: usize = 8;

/// What a job is about, in one word.
pub fn kind_word(kind: u32) -> &'static str {
    match JobKind::of(kind) {
        Some(JobKind::Heal) => "heal",
        Some(JobKind::Drain) => "drain",
        Some(JobKind::Replace) => "replace",
        Some(JobKind::Rebalance) => "rebalance",
        Some(JobKind::Scrub) => "scrub",
        Some(JobKind::Recopy) => "recopy",
        None => "unknown (of a newer release)",
    }
}

/// How a job or an item of it is, in one word.
pub fn state_word(state: u32) -> &'static str {
    match JobState::of(state) {
        Some(JobState::Waiting) => "waiting",
        Some(JobState::Running) => "running",
        Some(JobState::Paused) => "paused",
        Some(JobState::Done) => "done",
        Some(JobState::Failed) => "failed",
        Some(JobState::Cancelled) => "cancelled",
        None => "unknown (of a newer release)",
    }
}

/// True for a job that is under way or paused.
pub fn lasts(job: &Job) -> bool {
    [JobState::Running as u32, JobState::Paused as u32].contains(&job.state)
}

/// The job that gives to others all that a target has, if one is under way or paused.
pub fn that_empties(jobs: &[Job], target: u32) -> Option<&Job> {
    let is_left = |item: &JobItem| item.from == target && !has_ended(item);
    let empties = |job: &&Job| [JobKind::Drain as u32, JobKind::Replace as u32].contains(&job.kind);
    jobs.iter().filter(empties).find(|job| lasts(job) && job.items.iter().any(is_left))
}

/// The job that makes a target equal in one of these groups, if one is under way or paused: first one that is paused.
pub fn that_fills<'a>(jobs: &'a [Job], target: u32, groups: &BTreeSet<u32>) -> Option<&'a Job> {
    let is_left =
        |item: &JobItem| !has_ended(item) && item.to == target && groups.contains(&item.group);
    let fills = jobs.iter().filter(|job| lasts(job) && job.items.iter().any(is_left));
    fills.min_by_key(|job| job.state != JobState::Paused as u32)
}

/// Why a target could not be made equal in one of these groups when that was tried last, if it could not, and by which job. Why a move
/// has not begun is another matter.
pub fn why_unequal<'a>(
    jobs: &'a [Job],
    target: u32,
    groups: &BTreeSet<u32>,
) -> Option<(u64, &'a str)> {
    let is_tried = |item: &&JobItem| {
        let runs = item.state == JobState::Running as u32;
        runs && item.to == target && groups.contains(&item.group)
    };
    jobs.iter().filter(|job| lasts(job)).find_map(|job| {
        let mut tried = job.items.iter().filter(is_tried);
        let failed = tried.find(|item| !item.reason.is_empty())?;
        Some((job.id, failed.reason.as_str()))
    })
}

fn has_ended(item: &JobItem) -> bool {
    let ended = [JobState::Done, JobState::Failed, JobState::Cancelled];
    ended.iter().any(|state| *state as u32 == item.state)
}

/// What to do where a job is at it already. One that gets on with none of its parts says why.
pub fn wait_for(job: &Job) -> String {
    let id = job.id;
    let mut left = job.items.iter().filter(|item| !has_ended(item));
    let runs = |item: &JobItem| {
        item.state == JobState::Running as u32 && (item.reason.is_empty() || job.rate > 0)
    };
    let reason = match left.clone().any(runs) {
        true => None,
        false => left.find(|item| !item.reason.is_empty()).map(|item| &item.reason),
    };
    match (job.state == JobState::Paused as u32, reason) {
        (true, _) => format!("job {id} is paused: strake job resume {id}"),
        (false, Some(reason)) => format!("job {id} is at it, and says: {reason}"),
        (false, None) => format!("wait; strake job watch {id} shows how far it is"),
    }
}

/// True for a job that has done all there was to do.
pub fn is_done(job: &Job) -> bool {
    job.state == JobState::Done as u32
}

/// The jobs, or the one of a number.
pub async fn fetch(map: &MapView, id: u64) -> Outcome<JobList> {
    ask(map, ManagerOp::ListJobs(ListJobs { id })).await
}

/// The job of a number.
pub async fn fetch_one(map: &MapView, id: u64) -> Outcome<Job> {
    let list = fetch(map, id).await?;
    list.jobs.into_iter().next().ok_or_else(|| Failure::new("no such job"))
}

/// Asks for a job, or what it would be.
pub async fn plan(map: &MapView, request: Plan) -> Outcome<Job> {
    let list = ask(map, ManagerOp::Plan(request)).await?;
    list.jobs.into_iter().next().ok_or_else(|| Failure::new("the manager answers without a job"))
}

/// Asks the manager something about jobs.
pub async fn ask(map: &MapView, op: ManagerOp) -> Outcome<JobList> {
    match cluster::ask(map, op).await {
        Ok(ManagerAnswer::Jobs(list)) => Ok(list),
        Ok(_) => Err(Failure::new("the manager answers something else")),
        Err(error) => Err(Failure::telling(&error)),
    }
}

/// A job, as `--json` prints it.
#[derive(Serialize)]
pub struct JobView {
    id: u64,
    kind: &'static str,
    state: &'static str,
    about: String,
    begun_ms: u64,
    /// Null: it has not ended.
    ended_ms: Option<u64>,
    /// Groups that are done, of all.
    groups_done: usize,
    groups: usize,
    bytes: u64,
    bytes_done: u64,
    /// None: they were not all counted.
    bytes_left: Option<u64>,
    bytes_sent: u64,
    /// Bytes gone through per second.
    rate: u64,
    rate_max: u64,
    seconds_left: Option<u64>,
    reason: String,
    items: Vec<ItemView>,
    /// Of a scrub: its targets.
    targets: Vec<TargetView>,
    /// Of one that gives files another number of copies: how many, and how far it is.
    recopy: Option<RecopyView>,
}

/// One target's part in a scrub, as `--json` prints it.
#[derive(Serialize)]
pub struct TargetView {
    target: u32,
    state: &'static str,
    reason: String,
    bytes: u64,
    bytes_done: u64,
    chunks: u64,
    compared: u64,
    repaired: u64,
    /// Chunks that are damaged still.
    damaged: u64,
    file: Option<String>,
    /// What could not be looked at, and why.
    skipped: Vec<String>,
}

/// One group's part, as `--json` prints it.
#[derive(Serialize)]
pub struct ItemView {
    group: u32,
    from: u32,
    to: u32,
    state: &'static str,
    reason: String,
    bytes: u64,
    bytes_done: u64,
    bytes_sent: u64,
    file: Option<String>,
    lost: bool,
    /// How many bytes there are is not known yet.
    uncounted: bool,
}

impl JobView {
    /// A job; `files` are the paths of what it is at.
    pub fn new(job: &Job, files: &Files) -> Self {
        let recopy = job.recopy.as_ref().map(RecopyView::new);
        let left = job.bytes.saturating_sub(job.bytes_done);
        let bytes_left = match &recopy {
            Some(recopy) if !is_done(job) => recopy.bytes_left(),
            _ => (!job.items.iter().any(|item| item.uncounted)).then_some(left),
        };
        let running = job.state == JobState::Running as u32;
        Self {
            id: job.id,
            kind: kind_word(job.kind),
            state: state_word(job.state),
            about: job.about.clone(),
            begun_ms: job.begun_ms,
            ended_ms: Some(job.ended_ms).filter(|ended| *ended > 0),
            groups_done: groups_done(job),
            groups: job.items.len(),
            bytes: job.bytes,
            bytes_done: job.bytes_done,
            bytes_left,
            bytes_sent: job.bytes_sent,
            rate: job.rate,
            rate_max: job.rate_max,
            seconds_left: bytes_left
                .filter(|_| running && job.rate > 0)
                .map(|left| left / job.rate),
            reason: job.reason.clone(),
            items: job.items.iter().map(|item| ItemView::new(item, files)).collect(),
            targets: job.scrubs.iter().map(|one| TargetView::new(one, files)).collect(),
            recopy,
        }
    }

    /// The same of what would be a job: nothing runs, and it has the number 0.
    #[must_use]
    pub fn planned(self) -> Self {
        Self { state: "planned", ..self }
    }

    /// True if it is known how much is left.
    pub fn is_counted(&self) -> bool {
        self.bytes_left.is_some()
    }

    /// True if it verifies targets.
    pub fn is_scrub(&self) -> bool {
        !self.targets.is_empty()
    }

    /// How far it is, in a line.
    pub fn progress(&self) -> String {
        if let Some(recopy) = &self.recopy {
            return recopy.progress(self.rate, self.seconds_left);
        }
        let whole = match self.is_scrub() {
            true => {
                let done = self.targets.iter().filter(|one| one.has_ended()).count();
                let targets = output::count(self.targets.len() as u64, "target", "targets");
                format!("{done} of {targets}")
            }
            false => {
                let groups = output::count(self.groups as u64, "group", "groups");
                format!("{} of {groups}", self.groups_done)
            }
        };
        let mut parts = vec![whole];
        if ["running", "paused"].contains(&self.state) {
            parts.extend(self.bytes_left.map(|left| format!("{} left", size::show(left))));
            if self.rate > 0 && self.state == "running" {
                // What is the same already counts as done, and is not sent.
                let sent = match self.is_scrub() || self.rate_max == 0 {
                    true => String::new(),
                    false => format!(", sending {}/s at most", size::show(self.rate_max)),
                };
                parts.push(format!("{}/s{sent}", size::show(self.rate)));
            }
            if let Some(seconds) = self.seconds_left {
                parts.push(format!("about {} left", output::duration(seconds)));
            }
        }
        if self.is_scrub() {
            let sum = |count: fn(&TargetView) -> u64| self.targets.iter().map(count).sum::<u64>();
            let repaired = output::count(sum(|one| one.repaired), "chunk", "chunks");
            parts.push(format!("{repaired} repaired"));
            parts.push(format!("{} damaged", sum(|one| one.damaged)));
        } else {
            parts.push(format!("{} sent", size::show(self.bytes_sent)));
        }
        parts.join(", ")
    }

    /// What it is, in a line.
    pub fn headline(&self) -> String {
        let resume = match self.is_paused() {
            true => format!(" (strake job resume {})", self.id),
            false => String::new(),
        };
        format!("job {} ({}) is {}{resume}: {}", self.id, self.kind, self.state, self.about)
    }

    /// Seconds from its beginning to its end.
    pub fn took(&self) -> Option<u64> {
        self.ended_ms.map(|ended| ended.saturating_sub(self.begun_ms) / 1000)
    }

    /// What it is at.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let of_targets = self.targets.iter().filter_map(|one| one.file.as_deref());
        let of_groups = self.items.iter().filter_map(|item| item.file.as_deref());
        let copied = self.recopy.iter().flat_map(RecopyView::files);
        of_groups.chain(of_targets).chain(copied)
    }

    /// How far it is, and one of the files that it is at, in a line.
    pub fn progress_at(&self) -> String {
        let file = self.files().next().map(|file| format!(", at {file}"));
        self.progress() + &file.unwrap_or_default()
    }

    /// True if it waits until it is resumed.
    pub fn is_paused(&self) -> bool {
        self.state == "paused"
    }

    /// True if none of its parts gets on.
    pub fn stands_still(&self) -> bool {
        if let Some(recopy) = &self.recopy {
            return recopy.hindrance().is_some();
        }
        // What is tried again, or waits for others at its end, runs, too.
        let gets_on = |item: &ItemView| item.reason.is_empty() || self.rate > 0;
        let moves = self.items.iter().any(|item| item.state == "running" && gets_on(item));
        !moves && !self.targets.iter().any(|one| one.state == "running")
    }

    /// Items that failed or wait for something, in words.
    pub fn reasons(&self) -> Vec<String> {
        let told = self.items.iter().filter(|item| !item.reason.is_empty());
        let line =
            |item: &ItemView| format!("group {} is {}: {}", item.group, item.state, item.reason);
        let own = (!self.reason.is_empty()).then(|| self.reason.clone());
        let targets = self.targets.iter().filter(|one| !one.reason.is_empty());
        let of_target =
            |one: &TargetView| format!("target {} is {}: {}", one.target, one.state, one.reason);
        let lasts = ["running", "paused"].contains(&self.state);
        let hindrance = self.recopy.as_ref().and_then(RecopyView::hindrance).filter(|_| lasts);
        let told = told.map(line).chain(targets.map(of_target)).chain(hindrance);
        own.into_iter().chain(told).collect()
    }

    /// Of a scrub: its targets.
    pub fn targets(&self) -> &[TargetView] {
        &self.targets
    }

    /// Of one that gives files another number of copies: how far it is.
    pub fn recopy(&self) -> Option<&RecopyView> {
        self.recopy.as_ref()
    }

    /// Its parts.
    pub fn items(&self) -> &[ItemView] {
        &self.items
    }
}

impl ItemView {
    fn new(item: &JobItem, files: &Files) -> Self {
        Self {
            group: item.group,
            from: item.from,
            to: item.to,
            state: state_word(item.state),
            reason: item.reason.clone(),
            bytes: item.bytes,
            bytes_done: item.bytes_done,
            bytes_sent: item.bytes_sent,
            file: item.at.and_then(|at| files.0.get(&(at.volume, at.ino)).cloned()),
            lost: item.lost,
            uncounted: item.uncounted,
        }
    }

    /// The cells of a table.
    pub fn row(&self) -> [String; 6] {
        let target = |id: u32| if id == 0 { "-".to_owned() } else { id.to_string() };
        [
            self.group.to_string(),
            target(self.from),
            target(self.to),
            if self.uncounted { "?".to_owned() } else { size::show(self.bytes) },
            if self.lost { format!("{}, given up", self.state) } else { self.state.to_owned() },
            self.file.clone().unwrap_or_default(),
        ]
    }
}

impl TargetView {
    fn new(one: &JobScrub, files: &Files) -> Self {
        let tally = one.tally;
        Self {
            target: one.target,
            state: state_word(one.state),
            reason: one.reason.clone(),
            bytes: one.bytes,
            bytes_done: tally.bytes,
            chunks: tally.chunks,
            compared: tally.compared,
            repaired: tally.repaired,
            damaged: tally.left,
            file: one.at.and_then(|at| files.0.get(&(at.volume, at.ino)).cloned()),
            skipped: one.skipped.clone(),
        }
    }

    fn has_ended(&self) -> bool {
        ["done", "failed", "cancelled"].contains(&self.state)
    }

    /// The cells of a table.
    pub fn row(&self) -> [String; 6] {
        [
            self.target.to_string(),
            size::show(self.bytes),
            self.repaired.to_string(),
            self.damaged.to_string(),
            self.state.to_owned(),
            self.file.clone().unwrap_or_default(),
        ]
    }
}

/// What a scrub has found, by the names of files.
#[derive(Serialize, Default)]
pub struct Findings {
    /// As many as servers remember, what is damaged still first.
    pub findings: Vec<Finding>,
    /// How many more were counted.
    pub unlisted: u64,
}

impl Findings {
    /// Of a job. Files that cannot be named now stay without a path.
    pub async fn of(map: &Arc<MapView>, job: &Job) -> Self {
        let told = job.scrubs.iter().flat_map(|one| &one.findings);
        let mut findings: Vec<Finding> = told.map(Finding::from_told).collect();
        if let Err(failure) = soundness::name_files(map, &mut findings).await {
            output::aside(&format!("some files cannot be named now: {failure}"));
            output::aside(&format!("  later: strake job show {}", job.id));
        }
        let counted: u64 = job.scrubs.iter().map(|one| one.tally.repaired + one.tally.left).sum();
        let unlisted = counted.saturating_sub(findings.len() as u64);
        Self { findings, unlisted }
    }
}

/// Chunks of a file, of this volume or share of one, of which the last scrubs have left a copy damaged. What cannot be
/// asked is left out.
pub async fn damage_found(map: &MapView, home: VolumeId, ino: Ino) -> BTreeSet<u64> {
    let Ok(list) = fetch(map, 0).await else { return BTreeSet::new() };
    let left = |job: &&Job| job.scrubs.iter().any(|one| one.tally.left > 0);
    let scrubs: Vec<u64> = list.jobs.iter().rev().filter(left).map(|job| job.id).collect();
    let mut found = BTreeSet::new();
    for id in scrubs.into_iter().take(SCRUBS_ASKED_MAX) {
        // Jobs that have ended are forgotten one day.
        let Ok(job) = fetch_one(map, id).await else { continue };
        let told = job.scrubs.iter().flat_map(|one| &one.findings);
        let findings = told.map(Finding::from_told).filter(|finding| {
            let chunk = &finding.chunk;
            chunk.volume == home && chunk.ino == ino && finding.fate != ScrubFate::Repaired
        });
        found.extend(findings.map(|finding| finding.chunk.index.0));
    }
    found
}

fn groups_done(job: &Job) -> usize {
    job.items.iter().filter(|item| item.state == JobState::Done as u32).count()
}

/// How long ago something was, in words.
pub fn ago(ms: u64) -> String {
    let now = wall_time().as_millis();
    let passed = u64::try_from(now).unwrap_or(u64::MAX).saturating_sub(ms) / 1000;
    format!("{} ago", output::duration(passed))
}

/// Paths of inodes, as far as they were found.
#[derive(Default)]
pub struct Files(HashMap<(u32, u64), String>);

impl Files {
    /// Looks up what jobs are at. What is not found in time has no path.
    pub async fn find(map: &Arc<MapView>, jobs: &[Job]) -> Self {
        let moved = jobs.iter().flat_map(|job| &job.items).filter_map(|item| item.at);
        let verified = jobs.iter().flat_map(|job| &job.scrubs).filter_map(|one| one.at);
        let at = moved.chain(verified);
        let (mut files, end) = (Self::default(), Instant::now() + PATH_WAIT);
        for chunk in at {
            let key = (chunk.volume, chunk.ino);
            if files.0.len() >= PATHS_MAX || files.0.contains_key(&key) {
                continue;
            }
            let found = timeout_at(end, path_of(map, chunk)).await;
            if let Ok(Some(path)) = found {
                files.0.insert(key, path);
            }
        }
        files
    }
}

async fn path_of(map: &Arc<MapView>, chunk: Chunk) -> Option<String> {
    let name = map.volume(VolumeId(chunk.volume)).ok()?.spec.name;
    let volume = cluster::open_volume(map.clone(), &name, "job").await.ok()?;
    let path = cluster::path_of(&volume, Ino(chunk.ino)).await.ok().flatten();
    cluster::leave_volume(&volume).await;
    path.map(|path| path_in(&name, path.as_bytes()))
}
