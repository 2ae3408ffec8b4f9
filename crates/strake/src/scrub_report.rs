//! What a scrub has found, as people and programs read it.

use crate::failure::Outcome;
use crate::jobs::{Findings, state_word};
use crate::output;
use crate::size;
use serde::Serialize;
use std::sync::Arc;
use strake_storage::soundness::Finding;
use strake_wire::map::MapView;
use strake_wire::message::jobs::{Job, JobState};
use strake_wire::message::manager::ClusterMap;
use strake_wire::message::scrubs::{JobScrub, ScrubFate};

/// The report, as `--json` prints it.
#[derive(Serialize)]
pub struct Report {
    job: u64,
    state: &'static str,
    targets: Vec<Row>,
    /// Chunks whose copies were compared.
    compared: u64,
    #[serde(flatten)]
    findings: Findings,
    /// What could not be looked at, and why.
    skipped: Vec<String>,
}

#[derive(Serialize, Clone, Default)]
struct Row {
    target: u32,
    path: String,
    chunks: u64,
    bytes: u64,
    damaged: u64,
    repaired: u64,
}

impl Report {
    /// Of a job that has ended, with the names of the files that it is about.
    pub async fn of(map: &Arc<MapView>, job: &Job) -> Self {
        let current = map.current();
        Self {
            job: job.id,
            state: state_word(job.state),
            targets: job.scrubs.iter().map(|one| row(&current, one)).collect(),
            compared: job.scrubs.iter().map(|one| one.tally.compared).sum(),
            findings: Findings::of(map, job).await,
            skipped: job.scrubs.iter().flat_map(skipped).collect(),
        }
    }

    /// Prints it.
    pub fn print(&self, json: bool) -> Outcome {
        if json {
            return output::json(self);
        }
        let head = [">TARGET", ">CHUNKS", ">BYTES", ">DAMAGED", ">REPAIRED", "PATH"];
        let mut table = output::table(&head);
        for row in &self.targets {
            table.add_row([
                row.target.to_string(),
                row.chunks.to_string(),
                size::short(row.bytes),
                row.damaged.to_string(),
                row.repaired.to_string(),
                row.path.clone(),
            ]);
        }
        output::show(&table);
        if self.compared > 0 {
            let (one, many) = ("chunk was compared with its", "chunks were compared with their");
            let compared = output::count(self.compared, one, many);
            output::line(&format!("{compared} other copies"));
        }
        sentences(&self.findings).iter().for_each(|sentence| output::line(sentence));
        for skipped in &self.skipped {
            output::line(&format!("not looked at: {skipped}"));
        }
        Ok(())
    }
}

fn row(map: &ClusterMap, one: &JobScrub) -> Row {
    let target = map.targets.iter().find(|target| target.id == one.target);
    let tally = one.tally;
    Row {
        target: one.target,
        path: target.map(|target| target.spec.path.clone()).unwrap_or_default(),
        chunks: tally.chunks,
        bytes: tally.bytes,
        damaged: tally.repaired + tally.left,
        repaired: tally.repaired,
    }
}

fn skipped(one: &JobScrub) -> Vec<String> {
    let target = one.target;
    // What ended without a word of the server was not looked at to its end.
    let by_server = one.tally.left > 0 || !one.skipped.is_empty();
    let ended_early = match JobState::of(one.state) {
        Some(JobState::Done) => None,
        Some(JobState::Failed) if by_server => None,
        _ if one.reason.is_empty() => Some(state_word(one.state).to_owned()),
        _ => Some(one.reason.clone()),
    };
    let early = ended_early.map(|reason| format!("target {target}: {reason}"));
    one.skipped.iter().cloned().chain(early).collect()
}

/// What was found, in words.
pub fn sentences(findings: &Findings) -> Vec<String> {
    let listed = findings.findings.iter().map(sentence);
    let more = findings.unlisted;
    let rest = (more > 0).then(|| {
        format!(
            "{more} more damaged chunks are not listed here; the logs of the storage servers name them"
        )
    });
    listed.chain(rest).collect()
}

fn sentence(finding: &Finding) -> String {
    let what = if finding.different { "differs" } else { "damaged" };
    let (file, target, detail) = (finding.file(), finding.target, &finding.detail);
    let chunk = finding.chunk.index;
    let place = format!("{what}: {file}, chunk {chunk} on target {target}");
    match finding.fate {
        ScrubFate::Repaired => format!("{place}: repaired"),
        ScrubFate::Left => {
            format!("{place}; strake scrub without --no-repair mends what has another copy")
        }
        ScrubFate::Lost => format!("{place}: {detail}; restore the file from a backup"),
        ScrubFate::Unknown => {
            format!("{place}: could not be repaired now ({detail}); run strake scrub again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::scrubs::ScrubTally;

    #[test]
    fn what_was_not_looked_at_is_told_once_and_damage_is_not_that() {
        let one = |state: JobState, reason: &str| JobScrub {
            target: 3,
            state: state as u32,
            reason: reason.into(),
            ..JobScrub::default()
        };
        assert!(skipped(&one(JobState::Done, "")).is_empty());
        assert_eq!(skipped(&one(JobState::Cancelled, "")), ["target 3: cancelled"]);
        assert_eq!(skipped(&one(JobState::Failed, "it is away")), ["target 3: it is away"]);
        let tally = ScrubTally { left: 1, ..ScrubTally::default() };
        let damaged = JobScrub { tally, ..one(JobState::Failed, "1 chunk is damaged still") };
        assert!(skipped(&damaged).is_empty());
        let words = vec!["copies of group 7: gone".to_owned()];
        let partly = JobScrub { skipped: words.clone(), ..one(JobState::Failed, "not looked at") };
        assert_eq!(skipped(&partly), words);
    }
}
