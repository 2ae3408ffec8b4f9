//! The files that something is wrong with, a few of each: whoever reads a status thinks in files, not in groups.
//!
//! Only a file's layout says in which groups it is, so volumes are gone through for it: once for all that is wrong, and
//! not for long.

use crate::groups::{self, GroupRow};
use crate::held::{self, SAMPLE_WAIT, Sample, Wanted};
use crate::{jobs, soundness};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strake_storage::soundness::Finding;
use strake_wire::map::MapView;
use strake_wire::message::jobs::Job;
use strake_wire::message::manager::ClusterMap;
use strake_wire::message::scrubs::ScrubFate;
use tokio::time::timeout;

/// Targets of which the files are named.
const TARGETS_MAX: usize = 8;
/// Damaged files of a target of which the names are asked for: one more than are shown.
const ASKED_MAX: usize = 4;

/// Those files, as `--json` prints them.
#[derive(Serialize, Default)]
pub(super) struct Named {
    /// Some of the files that cannot be read or written now.
    stopped_files: Sample,
    /// Some of the files whose writes wait, since they ask for more copies than are in sync (`--min-copies`).
    waiting_files: Sample,
    /// Some of the files that lack a copy, by the target that should have it.
    lacking_files: Vec<Lacking>,
    /// Some of the files with damage, by the target that has it.
    damaged_files: Vec<Damaged>,
}

#[derive(Serialize)]
struct Lacking {
    target: u32,
    /// It is missing, or joining.
    state: &'static str,
    #[serde(flatten)]
    sample: Sample,
}

#[derive(Serialize)]
struct Damaged {
    target: u32,
    /// The scrub that has found it.
    job: u64,
    #[serde(flatten)]
    sample: Sample,
}

impl Named {
    /// Looks for them.
    pub async fn find(view: &Arc<MapView>, map: &ClusterMap, jobs: &[Job]) -> Self {
        let mut damaged = Vec::new();
        let looked = timeout(SAMPLE_WAIT, look_at_damage(view, map, jobs, &mut damaged));
        // What is known of damage when the time is over is told.
        let (found, _) = tokio::join!(by_groups(view, map), looked);
        let damaged = damaged.iter().map(Damage::told);
        let damaged_files = damaged.filter(|one| !one.sample.is_empty()).collect();
        Self { damaged_files, ..found }
    }

    /// True if some file is known that cannot be read or written.
    pub fn has_stopped(&self) -> bool {
        !self.stopped_files.files.is_empty() || !self.waiting_files.files.is_empty()
    }

    /// In words, where these groups are not as they should be.
    pub fn lines(&self, groups: &[GroupRow]) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.stopped_files.is_empty() {
            let stopped = groups.iter().filter(|group| !group.serves());
            let targets = stopped.flat_map(GroupRow::in_sync).collect();
            let files = self.stopped_files.line(&held::files_verb(&targets));
            lines.push(format!("files that cannot be read or written whole now: {files}"));
        }
        // That there may be some which nobody has found says nothing: most files ask for no more.
        let Sample { files, more } = &self.waiting_files;
        if !files.is_empty() {
            let among = if *more { "among others " } else { "" };
            lines.push(format!(
                "files whose writes wait, as they ask for more copies than are in sync (--min-copies): {among}{}",
                files.join(", ")
            ));
        }
        for Lacking { target, sample, .. } in
            self.lacking_files.iter().filter(|one| !one.sample.is_empty())
        {
            let files = sample.line(&format!("strake target files {target} --lacking"));
            lines.push(format!("files that lack their copy on target {target}: {files}"));
        }
        for Damaged { target, job, sample } in &self.damaged_files {
            let files = sample.line(&format!("strake job show {job}"));
            lines.push(format!("files with damage on target {target}: {files}"));
        }
        lines
    }
}

/// Some of the files that cannot be read or written now, and some of those whose writes wait, for who asks for no others.
pub async fn stopped_files(view: &Arc<MapView>, map: &ClusterMap) -> (Vec<String>, Vec<String>) {
    let rows = groups::troubled(map);
    let stopped = stopped(&rows);
    let stopped = Wanted::among(map, |group| stopped.contains(&group.id));
    let wanted = [stopped, Wanted::writes_that_wait(&rows)];
    let mut found = Sample::find_each(view, &wanted).await.into_iter().map(|sample| sample.files);
    (found.next().unwrap_or_default(), found.next().unwrap_or_default())
}

/// Those of these groups that do not serve.
fn stopped(rows: &[GroupRow]) -> BTreeSet<u32> {
    rows.iter().filter(|row| !row.serves()).map(GroupRow::id).collect()
}

/// What has parts in groups that do not serve, or lack a copy.
async fn by_groups(view: &Arc<MapView>, map: &ClusterMap) -> Named {
    let rows = groups::troubled(map);
    let stopped = stopped(&rows);
    let lacking: Vec<_> = groups::lacking(&rows).into_iter().take(TARGETS_MAX).collect();
    let among = |groups: &BTreeSet<u32>| Wanted::among(map, |group| groups.contains(&group.id));
    let mut wanted = vec![among(&stopped), Wanted::writes_that_wait(&rows)];
    wanted.extend(lacking.iter().map(|(_, groups)| among(groups)));
    let mut found = Sample::find_each(view, &wanted).await.into_iter();
    let (stopped_files, waiting_files) =
        (found.next().unwrap_or_default(), found.next().unwrap_or_default());
    let lacking_files = lacking
        .into_iter()
        .zip(found)
        .map(|(((target, state), _), sample)| Lacking { target, state: state.word(), sample });
    let lacking_files = lacking_files.collect();
    Named { stopped_files, waiting_files, lacking_files, damaged_files: Vec::new() }
}

/// What the last scrub of a target has left damaged there, a finding of each of some files.
struct Damage {
    target: u32,
    job: u64,
    findings: Vec<Finding>,
}

impl Damage {
    /// By the names that are known.
    fn told(&self) -> Damaged {
        let named = self.findings.iter().filter_map(|one| one.paths.first().cloned());
        let mut sample = Sample::of(named);
        sample.more |= self.findings.iter().any(|one| one.paths.is_empty());
        Damaged { target: self.target, job: self.job, sample }
    }
}

/// Notes what the last scrubs of targets have left damaged there, and then the names of the files. Of damage that servers
/// find by themselves no job tells.
async fn look_at_damage(
    view: &Arc<MapView>,
    map: &ClusterMap,
    jobs: &[Job],
    damaged: &mut Vec<Damage>,
) {
    let is_hurt = |id: &u32| {
        map.targets.iter().any(|t| t.id == *id && t.spec.scrub.is_some_and(|scrub| scrub.left > 0))
    };
    for (target, id) in
        last_scrubs(jobs).into_iter().filter(|(id, _)| is_hurt(id)).take(TARGETS_MAX)
    {
        // Jobs that have ended are forgotten one day.
        let Ok(job) = jobs::fetch_one(view, id).await else { continue };
        let told = job.scrubs.iter().flat_map(|one| &one.findings).map(Finding::from_told);
        damaged.push(Damage { target, job: id, findings: one_of_each_file(target, told) });
    }
    let findings = damaged.iter_mut().flat_map(|one| &mut one.findings);
    if let Err(failure) = soundness::name_files(view, findings).await {
        tracing::debug!("not all damaged files are named: {failure}");
    }
}

/// The last scrub of each target, if it has left damage.
fn last_scrubs(jobs: &[Job]) -> BTreeMap<u32, u64> {
    let mut last = BTreeMap::new();
    for job in jobs {
        for one in job.scrubs.iter().filter(|one| one.tally.chunks > 0) {
            match one.tally.left {
                0 => last.remove(&one.target),
                _ => last.insert(one.target, job.id),
            };
        }
    }
    last
}

/// A finding of each of some files that are damaged on a target still.
fn one_of_each_file(target: u32, told: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut files = BTreeSet::new();
    let is_left = |one: &Finding| one.target == target && one.fate != ScrubFate::Repaired;
    let first = |one: &Finding| files.insert((one.chunk.volume, one.chunk.ino));
    told.filter(is_left).filter(first).take(ASKED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::{ChunkId, ChunkIndex, Ino, VolumeId};
    use strake_wire::message::scrubs::{JobScrub, ScrubTally};

    fn sample(files: &[&str], more: bool) -> Sample {
        Sample { files: files.iter().map(|file| (*file).to_owned()).collect(), more }
    }

    #[test]
    fn files_are_named_with_how_all_of_them_are_listed() {
        let lacking = |target, sample| Lacking { target, state: "missing", sample };
        let named = Named {
            stopped_files: Sample::default(),
            waiting_files: Sample::default(),
            lacking_files: vec![
                lacking(2, sample(&[":/main/a", ":/main/b"], true)),
                lacking(3, sample(&[], false)),
                lacking(4, sample(&[":/main/c"], false)),
                lacking(5, sample(&[], true)),
            ],
            damaged_files: vec![Damaged { target: 6, job: 7, sample: sample(&[":/main/d"], true) }],
        };
        let lines = [
            "files that lack their copy on target 2: among others :/main/a, :/main/b (strake target files 2 --lacking lists all)",
            "files that lack their copy on target 4: :/main/c",
            "files that lack their copy on target 5: strake target files 5 --lacking lists their files",
            "files with damage on target 6: among others :/main/d (strake job show 7 lists all)",
        ];
        assert_eq!(named.lines(&[]), lines);
        assert!(!named.has_stopped());
        let stopped_files = sample(&[":/main/e"], false);
        assert!(Named { stopped_files, ..Named::default() }.has_stopped());
        let waiting_files = sample(&[":/main/f"], false);
        let waits = Named { waiting_files, ..Named::default() };
        assert!(waits.has_stopped() && waits.lines(&[])[0].ends_with("(--min-copies): :/main/f"));
        let waiting_files = sample(&[], true);
        assert!(Named { waiting_files, ..Named::default() }.lines(&[]).is_empty());
        assert_eq!(Named::default().lines(&[]), Vec::<String>::new());
    }

    #[test]
    fn the_last_scrub_of_a_target_counts_and_of_each_file_one_finding() {
        let scrub = |target, chunks, left| JobScrub {
            target,
            tally: ScrubTally { chunks, left, ..ScrubTally::default() },
            ..JobScrub::default()
        };
        let job = |id, scrubs| Job { id, scrubs, ..Job::default() };
        let jobs = [
            job(1, vec![scrub(1, 9, 2), scrub(2, 9, 2)]),
            job(2, vec![scrub(1, 9, 1)]),
            job(3, vec![scrub(2, 9, 0), scrub(1, 0, 0)]),
        ];
        assert_eq!(last_scrubs(&jobs), BTreeMap::from([(1, 2)]));
        let finding = |target, ino, fate| Finding {
            target,
            group: 1,
            chunk: ChunkId { volume: VolumeId(1), ino: Ino(ino), index: ChunkIndex(0) },
            fate,
            different: false,
            detail: String::new(),
            paths: Vec::new(),
        };
        let told = [
            finding(1, 7, ScrubFate::Lost),
            finding(1, 7, ScrubFate::Left),
            finding(1, 8, ScrubFate::Repaired),
            finding(2, 9, ScrubFate::Lost),
        ];
        let left = one_of_each_file(1, told.into_iter());
        assert_eq!(left.iter().map(|one| one.chunk.ino.0).collect::<Vec<_>>(), [7]);
        // Without any name nothing was said.
        let mut damage = Damage { target: 1, job: 2, findings: left };
        assert_eq!(damage.told().sample, sample(&[], true));
        damage.findings[0].paths = vec![":/main/a".to_owned()];
        assert_eq!(damage.told().sample, sample(&[":/main/a"], false));
    }
}
