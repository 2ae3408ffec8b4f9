//! Cases that the simulation is to meet: what it never meets it shows nothing of.
//!
//! Each is counted where it happens, by [`strake_base::count_case`], here and in production code. A run prints how often
//! it has met each, and a batch the sum.

use std::collections::BTreeMap;

/// Each of these happens in some hundred seeds.
pub const REQUIRED: &[&str] = &[
    "answer-from-memory",
    "answer-from-store",
    "answered-name-judged",
    "append-dropped",
    "appends-judged",
    "change-made-before",
    "claim-granted",
    "claims-called-back",
    "fault-add-disk",
    "fault-blackout",
    "fault-client-kill",
    "fault-doze",
    "fault-evict",
    "fault-flip",
    "fault-full",
    "fault-head-power",
    "fault-join",
    "fault-jump",
    "fault-kill",
    "fault-leave",
    "fault-lose-disk",
    "fault-move",
    "fault-no-database",
    "fault-old-disk",
    "fault-partition",
    "fault-pause",
    "fault-power",
    "fault-power-after-answer",
    "fault-restart",
    "fault-roll",
    "fault-scrub",
    "fault-silence",
    "fault-slow",
    "fault-split",
    "fault-storm",
    "fault-unreached",
    "file-deleted-while-open",
    "fsck-part-checked",
    "group-refounded",
    "heard-and-unreached",
    "history-judged",
    "loan-used-again",
    "log-read-known",
    "log-replaced",
    "part-file-moved",
    "part-judged",
    "part-server-killed",
    "read-after-death",
    "read-bounded",
    "read-bounded-by-write",
    "room-reserved",
    "servers-apart",
    "session-fenced",
    "session-over-by-silence",
    "silence-outlasts-session",
    "synced-name-judged",
    "volume-taken-over",
    "waited-for-room",
    "way-lost",
    "write-dropped",
];

/// How often each case was met.
pub type Met = BTreeMap<String, u64>;

/// A case as a line of a run.
pub fn line(case: &str, times: u64) -> String {
    format!("count {case} {times}")
}

/// Adds what the lines of a run tell.
pub fn add(met: &mut Met, lines: &str) {
    let told = lines.lines().filter_map(|line| line.strip_prefix("count ")?.split_once(' '));
    for (case, times) in told.filter_map(|(case, times)| Some((case, times.parse::<u64>().ok()?))) {
        *met.entry(case.to_owned()).or_default() += times;
    }
}

/// What has to be met and was not.
pub fn missing(met: &Met) -> Vec<&'static str> {
    REQUIRED.iter().copied().filter(|case| !met.contains_key(*case)).collect()
}

/// Histories that have to be in a batch before it says how many of them are too long.
const HISTORIES_MIN: u64 = 200;
/// How many of a hundred histories may be too long to be judged.
const TOO_LONG_MAX: u64 = 2;

/// True unless too many histories were too long to be judged.
pub fn are_judged(met: &Met) -> bool {
    let of = |case: &str| met.get(case).copied().unwrap_or(0);
    let too_long = of("history-not-judged");
    let all = of("history-judged") + too_long;
    all < HISTORIES_MIN || too_long * 100 <= all * TOO_LONG_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search that was given up was a note in the trace of its run, which nobody reads.
    #[test]
    fn a_batch_whose_histories_are_too_long_to_be_judged_shows_that() {
        let met = |judged, too_long| {
            let names = ["history-judged", "history-not-judged"];
            names.map(str::to_owned).into_iter().zip([judged, too_long]).collect::<Met>()
        };
        assert!(are_judged(&met(98, 2)) && are_judged(&met(980, 20)) && are_judged(&met(9, 9)));
        assert!(!are_judged(&met(970, 30)));
    }

    #[test]
    fn what_runs_have_met_is_summed_and_what_none_has_met_is_missing() {
        let mut met = Met::new();
        add(&mut met, &format!("seed 1: digest\n{}\ncount nothing\n", line("fault-kill", 2)));
        add(&mut met, &line("fault-kill", 3));
        assert_eq!(met, Met::from([("fault-kill".to_owned(), 5)]));
        let missing = missing(&met);
        assert!(missing.contains(&"fault-power") && !missing.contains(&"fault-kill"));
    }
}
