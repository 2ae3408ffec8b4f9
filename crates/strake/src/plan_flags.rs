//! What all verbs have in common that move members of groups: flags, the plan that is shown, the job that
//! is begun and watched.

use crate::cluster::{self, ClusterFlags};
use crate::failure::{FAILED, Failure, Outcome};
use crate::groups;
use crate::held;
use crate::jobs::{self, Files, JobView, is_done, lasts};
use crate::signals::INTERRUPTED_CODE;
use crate::{output, size};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::time::Duration;
use strake_wire::map::MapView;
use strake_wire::message::jobs::{Job, JobKind, Plan};
use strake_wire::message::manager::{ClusterMap, Target};

/// Time between two looks at a job that is watched.
const WATCH_PAUSE: Duration = Duration::from_millis(500);
/// Looks in a row that may fail: the manager may be starting again.
const LOOKS_FAILED_MAX: u32 = 60;
/// Looks in a row that find a job standing still for the same reason, before that is told.
const STANDSTILL_LOOKS: u32 = 4;

/// What `--force` does of a verb that waits until what it moves to is counted.
pub const FORCE: &str = "Accept that copies of something come to lie on one server";

/// Flags of a verb that begins a job.
#[derive(Args, Debug)]
pub struct PlanFlags {
    /// Only show which groups and how many bytes would move
    #[arg(long)]
    pub dry_run: bool,

    /// Send at most so many bytes per second in all, as 20M; 0: no limit (may be changed: strake job throttle)
    #[arg(long, value_name = "RATE", value_parser = size::parse)]
    pub throttle: Option<u64>,

    /// Accept that copies of something come to lie on one server, and that a server has not counted yet what it holds
    #[arg(long)]
    pub force: bool,

    /// Wait until it is done, and show how far it is
    #[arg(long)]
    pub wait: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl PlanFlags {
    /// Adds what the flags say.
    pub fn apply(&self, request: Plan) -> Plan {
        let (dry_run, force) = (self.dry_run, self.force);
        Plan { dry_run, force, rate: self.throttle, ..request }
    }

    /// Begins a job, or shows it; the exit code.
    pub async fn begin(&self, request: Plan, cluster: &ClusterFlags) -> Outcome<u8> {
        let map = cluster.connect().await?;
        let removes = request.remove;
        let before = cluster::fresh_map(&map).await?;
        let healthy = match JobKind::of(request.kind) {
            Some(JobKind::Replace) => healthy(&before, &request.targets),
            _ => Vec::new(),
        };
        let leaving = if removes { request.targets.clone() } else { Vec::new() };
        let job = jobs::plan(&map, self.apply(request)).await?;
        for name in healthy.iter().filter(|_| !self.json) {
            output::advice(&of_healthy(name, job.id));
        }
        if self.wait && !self.dry_run {
            let code = watch(&map, job.id, self.json).await?;
            let left = leaving.iter().filter(|_| code == 0 && !self.json);
            let told = left.filter_map(|&target| of_left(&before, target));
            told.for_each(|line| output::line(&line));
            return Ok(code);
        }
        let view = JobView::new(&job, &Files::default());
        let view = if self.dry_run { view.planned() } else { view };
        match self.json {
            true => output::json(&view)?,
            false => {
                show(&job, &view, self.dry_run, removes);
                held::show_lost(&map, &job).await;
            }
        }
        Ok(0)
    }
}

/// Those of these targets that have nothing wrong with them, as they are called.
fn healthy(map: &ClusterMap, targets: &[u32]) -> Vec<String> {
    let lacking = groups::lacking(&groups::troubled(map));
    let is_behind = |id: u32| lacking.keys().any(|(behind, _)| *behind == id);
    let works = |target: &&Target| {
        let damaged = target.spec.scrub.is_some_and(|scrub| scrub.left > 0);
        let is_well = target.up && target.spec.poisoned.is_empty() && !damaged;
        targets.contains(&target.id) && is_well && !is_behind(target.id)
    };
    let found = map.targets.iter().filter(works);
    found.map(|target| groups::target_name(map, target.id)).collect()
}

/// What becomes of a target that is replaced although it works; a job without number is a plan only.
fn of_healthy(name: &str, job: u64) -> String {
    match job {
        0 => format!(
            "note: {name} is healthy: it would serve until all it has is moved, and nothing would be lost"
        ),
        id => format!(
            "note: {name} is healthy: it serves until all it has is moved, and nothing is lost; was another one meant? \
             strake job cancel {id}"
        ),
    }
}

/// What is left to do where a target has left the cluster, by the map before; none where another disk has taken its place, or nobody
/// knows where it was.
fn of_left(map: &ClusterMap, id: u32) -> Option<String> {
    let left = map.targets.iter().find(|target| target.id == id)?;
    let path = &left.spec.path;
    if path.is_empty() || groups::successor(map, left).is_some() {
        return None;
    }
    Some(format!(
        "  next: {path} can be deleted when the server of target {id} has closed it, as its log says"
    ))
}

fn show(job: &Job, view: &JobView, dry_run: bool, removes: bool) {
    let groups = output::count(job.items.len() as u64, "group", "groups");
    let about = if job.items.iter().any(|item| item.uncounted) { "at least" } else { "about" };
    let moved = format!("{groups}, {about} {}", size::show(job.bytes));
    let then = if removes { "; then it leaves the cluster" } else { "" };
    let about = &job.about;
    if dry_run {
        output::line(&format!("{about}: would move {moved}{then}"));
        show_items(view);
        return;
    }
    tell_begun(job.id, &format!("{about}: moving {moved}{then}"));
}

/// The parts of a job, as a table.
pub fn show_items(view: &JobView) {
    if !view.targets().is_empty() {
        let head = [">TARGET", ">BYTES", ">REPAIRED", ">DAMAGED", "STATE", "FILE"];
        let mut table = output::table(&head);
        view.targets().iter().for_each(|one| {
            table.add_row(one.row());
        });
        output::show(&table);
    }
    for line in view.recopy().iter().flat_map(|recopy| recopy.lines()) {
        output::line(&format!("  {line}"));
    }
    if view.items().is_empty() {
        return;
    }
    let mut table = output::table(&[">GROUP", ">FROM", ">TO", ">BYTES", "STATE", "FILE"]);
    for item in view.items() {
        table.add_row(item.row());
    }
    output::show(&table);
}

/// Shows a job until it has ended; exit code 1 unless it is done.
pub async fn watch(map: &Arc<MapView>, id: u64, json: bool) -> Outcome<u8> {
    let show = async |job: &Job| {
        let view = JobView::new(job, &Files::default());
        match json {
            true => output::json(&view)?,
            false => tell_end(job, &view),
        }
        Ok(())
    };
    follow_to_its_end(map, id, show).await
}

/// Shows how far a job is until it has ended, and then what became of it; exit code 1 unless it is done,
/// and that of Ctrl-C if nobody waited so long.
pub async fn follow_to_its_end(
    map: &Arc<MapView>,
    id: u64,
    show: impl AsyncFnOnce(&Job) -> Outcome,
) -> Outcome<u8> {
    let job = match follow(map, id).await? {
        Followed::Ended(job) => job,
        Followed::Interrupted => return Ok(INTERRUPTED_CODE),
    };
    show(&job).await?;
    Ok(if is_done(&job) { 0 } else { FAILED })
}

/// Says that a job was begun which nobody waits for, and how it can be watched.
pub fn tell_begun(id: u64, what: &str) {
    output::line(&format!("job {id}: {what}"));
    output::advice(&format!("  next: strake job watch {id}"));
}

/// How following a job ends.
enum Followed {
    /// It has ended.
    Ended(Box<Job>),
    /// Ctrl-C: it goes on, which was told.
    Interrupted,
}

/// Shows on stderr how far a job is until it has ended, or somebody has seen enough.
async fn follow(map: &Arc<MapView>, id: u64) -> Outcome<Followed> {
    let bar = ProgressBar::new(0);
    let followed = tokio::select! {
        ended = until_ended(map, id, &bar) => ended.map(|job| Followed::Ended(Box::new(job))),
        _ = tokio::signal::ctrl_c() => Ok(Followed::Interrupted),
    };
    bar.finish_and_clear();
    if matches!(followed, Ok(Followed::Interrupted)) {
        eprintln!("job {id} goes on");
        eprintln!("  next: strake job watch {id}, or to end it: strake job cancel {id}");
        cluster::way().iter().for_each(|way| eprintln!("  {way}"));
    }
    followed
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{bar:30} {percent}%  {msg}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

async fn until_ended(map: &Arc<MapView>, id: u64, bar: &ProgressBar) -> Outcome<Job> {
    // Nobody waits for a job that does not exist.
    let mut list = jobs::fetch(map, id).await?;
    let (mut failed, mut standstill) = (0, Standstill::default());
    loop {
        let job = list.jobs.first().ok_or_else(|| Failure::new(format!("no job {id}")))?;
        if !lasts(job) {
            return Ok(job.clone());
        }
        let files = Files::find(map, &list.jobs).await;
        let view = JobView::new(job, &files);
        if let Some(why) = standstill.look(&view, id) {
            bar.suspend(|| output::aside(why));
        }
        // While it is not known how much follows there is nothing to draw.
        bar.set_style(if view.is_counted() { style() } else { ProgressStyle::default_spinner() });
        bar.set_length(job.bytes.max(1));
        bar.set_position(job.bytes_done);
        let reason = view.reasons().first().map(|reason| format!("; {reason}")).unwrap_or_default();
        show_on(bar, &format!("job {id}: {}{reason}", view.progress_at()));
        loop {
            tokio::time::sleep(WATCH_PAUSE).await;
            match jobs::fetch(map, id).await {
                Ok(newer) => {
                    (list, failed) = (newer, 0);
                    break;
                }
                Err(failure) if failed >= LOOKS_FAILED_MAX => return Err(failure),
                Err(failure) => show_on(bar, &format!("job {id}: {}", failure.cause)),
            }
            failed += 1;
        }
    }
}

/// Says it beside the bar: in what servers answer there may be names that anybody has chosen.
fn show_on(bar: &ProgressBar, message: &str) {
    bar.set_message(output::harmless(message, &[]));
}

/// Says why nothing goes on, also where no bar is shown: once, when it has been so for some looks.
#[derive(Default)]
struct Standstill {
    why: String,
    looks: u32,
}

impl Standstill {
    fn look(&mut self, view: &JobView, id: u64) -> Option<&str> {
        let reason = view.reasons().into_iter().next();
        let why = match (view.is_paused(), reason) {
            (true, _) => format!("job {id} is paused; to let it go on: strake job resume {id}"),
            (false, Some(reason)) if view.stands_still() => format!("job {id} waits: {reason}"),
            _ => String::new(),
        };
        self.looks = if why == self.why { self.looks + 1 } else { 1 };
        self.why = why;
        (self.looks == STANDSTILL_LOOKS && !self.why.is_empty()).then_some(&self.why)
    }
}

fn tell_end(job: &Job, view: &JobView) {
    let (id, about) = (job.id, &job.about);
    output::line(&format!(
        "job {id} ({about}) is {}: {}",
        jobs::state_word(job.state),
        view.progress()
    ));
    for reason in view.reasons() {
        output::line(&format!("  ! {reason}"));
    }
    for line in view.recopy().iter().flat_map(|recopy| recopy.lines()) {
        output::line(&format!("  {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use strake_types::GroupId;
    use strake_wire::message::jobs::{JobItem, JobState};
    use strake_wire::message::manager::{Group, ScrubWord, TargetSpec};

    /// Why a job cannot be looked at was shown as a server had said it.
    #[test]
    fn what_is_said_beside_the_bar_is_harmless_on_a_terminal() {
        let bar = ProgressBar::hidden();
        show_on(&bar, "job 1: no server\x1b[2J\n");
        assert_eq!(bar.message(), "job 1: no server\\u{1b}[2J\\n");
    }

    /// Who watched it without a terminal was told nothing.
    #[test]
    fn a_job_whose_moves_wait_for_others_at_their_end_stands_still() {
        let stands_still = |reason: &str, rate| {
            let state = JobState::Running as u32;
            let item = JobItem { state, reason: reason.to_owned(), ..JobItem::default() };
            let job = Job { state, rate, items: vec![item], ..Job::default() };
            JobView::new(&job, &Files::default()).stands_still()
        };
        assert!(stands_still("h1 is away", 0));
        assert!(!stands_still("", 0) && !stands_still("no answer, tried again", 9));
    }

    #[test]
    fn who_replaces_a_target_that_works_is_told_so_with_the_way_back() {
        let target = |id, up| Target { id, up, ..Target::default() };
        let targets = vec![target(1, true), target(2, false), target(3, true), target(4, true)];
        let mut map = ClusterMap { targets, ..ClusterMap::default() };
        map.targets[2].spec = TargetSpec { poisoned: "EIO".into(), ..TargetSpec::default() };
        map.targets[3].spec.scrub = Some(ScrubWord { left: 1, ..ScrubWord::default() });
        let name = healthy(&map, &[1, 2, 3, 4]).pop().unwrap();
        assert!([2, 3, 4].iter().all(|&id| healthy(&map, &[id]).is_empty()));
        assert!(of_healthy(&name, 7).ends_with("strake job cancel 7") && name == "target 1");
        assert!(!of_healthy(&name, 0).contains("cancel"), "nothing has begun");
    }

    /// It lacked writes, and was said to be healthy.
    #[test]
    fn who_is_being_made_equal_is_not_called_healthy() {
        let target = |id| Target { id, up: true, ..Target::default() };
        let id = GroupId::of_class(2, 0).0;
        let (members, in_sync, joining) = (vec![1, 2], vec![2], vec![1]);
        let mut group = Group { id, members, in_sync, joining, ..Group::default() };
        let called = |group: &Group| {
            let (targets, groups) = (vec![target(1), target(2)], vec![group.clone()]);
            healthy(&ClusterMap { targets, groups, ..ClusterMap::default() }, &[1, 2])
        };
        assert_eq!(called(&group), ["target 2"], "it is joining");
        group.joining.clear();
        assert_eq!(called(&group), ["target 2"], "it is missing");
        group.in_sync.push(1);
        assert_eq!(called(&group), ["target 1", "target 2"]);
    }

    /// Of a rebalance it told what it does of a drain.
    #[test]
    fn what_force_does_is_told_of_the_verb_that_it_is_given_to() {
        let all = Cli::command();
        let help = |verbs: &[&str]| {
            let mut words = verbs.iter();
            let verb = words.try_fold(&all, |command, word| command.find_subcommand(word)).unwrap();
            let force = verb.get_arguments().find(|flag| flag.get_id().as_str() == "force");
            force.unwrap().get_help().unwrap().to_string()
        };
        for verbs in [&["server", "drain"][..], &["server", "remove"], &["target", "remove"]] {
            assert!(help(verbs).contains("counted"), "{verbs:?}");
        }
        for verbs in [&["rebalance"][..], &["target", "replace"]] {
            assert_eq!(help(verbs), FORCE, "{verbs:?}");
        }
    }

    /// With its disk changed for another one at the same place, the directory of the new target was said to be one to delete.
    #[test]
    fn only_the_directory_of_what_has_left_can_be_deleted() {
        let spec = |path: &str| TargetSpec { path: path.into(), ..TargetSpec::default() };
        let target =
            |id, server, path| Target { id, server, spec: spec(path), ..Target::default() };
        let targets =
            vec![target(1, 1, "/a"), target(2, 1, "/b"), target(3, 1, "/b"), target(4, 2, "/a")];
        let map = ClusterMap { targets, ..ClusterMap::default() };
        assert!(of_left(&map, 1).unwrap().contains("/a can be deleted"));
        assert_eq!(of_left(&map, 2), None, "nothing is open of it");
        assert_eq!(of_left(&map, 9), None);
    }
}
