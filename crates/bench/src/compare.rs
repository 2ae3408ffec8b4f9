//! Two reports beside each other: what became better, what worse, and what the noise hides; and the
//! [`page`] that shows it.

mod forest;
pub mod page;

use crate::report::numbers::{self, Scale};
use crate::result::{Figure, Machine, Origin, Program, Report, Unit};
use crate::statistics::{self, Ratio, Summary, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// Of so many rows without any difference, one is outside its interval.
const IN_WHICH_ONE_BY_CHANCE: usize = 20;

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What both have, in the first one's order.
    pub rows: Vec<Row>,
    /// What only the first has.
    pub only_first: Vec<Lone>,
    /// What only the second has.
    pub only_second: Vec<Lone>,
    /// Where the runs were made on something different, so that ratios are not of one change alone.
    pub differences: Vec<String>,
}

/// A figure that both reports have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The test.
    pub test: String,
    /// Whose.
    pub side: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, f64>,
    /// What both are in.
    pub unit: Unit,
    /// The figure of the first report.
    pub first: Summary,
    /// The figure of the second.
    pub second: Summary,
    /// The second divided by the first; `None` where the first is zero.
    pub ratio: Option<Ratio>,
    /// What may be said about that.
    pub verdict: Verdict,
}

/// A figure that one report has alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lone {
    /// The test.
    pub test: String,
    /// Whose.
    pub side: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, f64>,
}

impl Comparison {
    /// How many rows chance alone would call better or worse, where that is worth a word.
    pub fn by_chance(&self) -> Option<String> {
        let count = |verdict| self.rows.iter().filter(|row| row.verdict == verdict).count();
        let judged = self.rows.len() - count(Verdict::TooFew);
        let called = count(Verdict::Better) + count(Verdict::Worse);
        let chance = judged.div_ceil(IN_WHICH_ONE_BY_CHANCE);
        let is_worth = called > 0 && judged >= IN_WHICH_ONE_BY_CHANCE;
        is_worth.then(|| format!("with so many rows, about {chance} would be called so by chance"))
    }
}

impl Row {
    /// The ratio as it is printed.
    pub fn ratio_shown(&self) -> String {
        self.ratio.map(|ratio| numbers::ratio(ratio.value)).unwrap_or_default()
    }

    /// Its interval as it is printed.
    pub fn interval_shown(&self) -> String {
        let interval = self.ratio.and_then(|ratio| ratio.interval);
        let shown = |(low, high)| format!("{} .. {}", numbers::ratio(low), numbers::ratio(high));
        interval.map(shown).unwrap_or_default()
    }

    /// How both figures are printed.
    pub fn scale(&self) -> Scale {
        Scale::of(self.unit, self.first.value.max(self.second.value))
    }
}

/// Compares two reports. Sides go together by name; where each has one side only, those do. What
/// was published is the same everywhere and left out.
pub fn compare(first: &Report, second: &Report) -> Comparison {
    let mut differences = machines(&first.machine, &second.machine);
    for program in &first.programs {
        let is_other =
            |other: &&Program| other.name == program.name && other.version != program.version;
        let others = second.programs.iter().filter(is_other);
        let told =
            |other: &Program| format!("{}: {} | {}", program.name, program.version, other.version);
        differences.extend(others.map(told));
    }
    if asked(&first.command) != asked(&second.command) {
        differences.push(format!("command: {} | {}", first.command, second.command));
    }
    for (which, one, other) in [("first", first, second), ("second", second, first)] {
        let alone = one.notes.iter().filter(|note| !other.notes.contains(note));
        differences.extend(alone.map(|note| format!("only of the {which}: {note}")));
    }
    let renamed = match (first.sides.as_slice(), second.sides.as_slice()) {
        ([a], [b]) if a.name != b.name => {
            differences.push(format!("side: {:?} is compared with {:?}", a.name, b.name));
            Some((a.name.as_str(), b.name.as_str()))
        }
        _ => None,
    };
    for a in &first.sides {
        let same = second.sides.iter().find(|b| b.name == a.name);
        if let Some(b) = same.filter(|b| b.file_system != a.file_system) {
            let text =
                format!("file system of {:?}: {} | {}", a.name, a.file_system, b.file_system);
            differences.push(text);
        }
    }
    let partner = |figure: &Figure, names: Option<(&str, &str)>, other: &Report| {
        let side = match names {
            Some((from, to)) if figure.side == from => to.to_owned(),
            _ => figure.side.clone(),
        };
        let same = |f: &&Figure| {
            (&f.test, &f.side, f.unit) == (&figure.test, &side, figure.unit)
                && f.parameters == figure.parameters
                && f.origin == figure.origin
        };
        other.figures.iter().find(same).cloned()
    };
    let mut rows = Vec::new();
    let mut only_first = Vec::new();
    for figure in own(first) {
        let row = partner(figure, renamed, second).and_then(|other| row(figure, &other));
        match row {
            Some(row) => rows.push(row),
            None => only_first.push(lone(figure)),
        }
    }
    let back = renamed.map(|(a, b)| (b, a));
    let without = own(second).filter(|figure| partner(figure, back, first).is_none());
    Comparison { rows, only_first, only_second: without.map(lone).collect(), differences }
}

/// What a report's run measured itself.
fn own(report: &Report) -> impl Iterator<Item = &Figure> {
    report.figures.iter().filter(|figure| figure.origin != Origin::Published)
}

fn row(first: &Figure, second: &Figure) -> Option<Row> {
    let ratio = statistics::ratio(second, first);
    let verdict = ratio.as_ref().map(|ratio| statistics::verdict(ratio, first.unit));
    Some(Row {
        test: first.test.clone(),
        side: first.side.clone(),
        parameters: first.parameters.clone(),
        unit: first.unit,
        first: statistics::summary(first)?,
        second: statistics::summary(second)?,
        ratio,
        verdict: verdict.unwrap_or(Verdict::TooNoisy),
    })
}

fn lone(figure: &Figure) -> Lone {
    let Figure { test, side, parameters, .. } = figure.clone();
    Lone { test, side, parameters }
}

/// Flags that say where is measured, or where the report goes, not what is measured.
const ASIDE: &[&str] =
    &["--on", "--save", "--replace", "--store", "--html", "--xlsx", "--json", "--csv", "--seed"];

/// What a command line asks to be measured: flags with their values, in any order.
fn asked(command: &str) -> Vec<String> {
    let mut asked: Vec<String> = Vec::new();
    for word in command.split_whitespace().skip_while(|word| *word != "bench") {
        match asked.last_mut() {
            Some(last) if !word.starts_with('-') => *last = format!("{last} {word}"),
            _ => asked.push(word.replacen('=', " ", 1)),
        }
    }
    asked.retain(|item| !ASIDE.contains(&item.split(' ').next().unwrap_or_default()));
    asked.sort_unstable();
    asked
}

/// What differs between two machines, each as "what: this | that".
fn machines(a: &Machine, b: &Machine) -> Vec<String> {
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let pairs = [
        ("processor", a.processor.clone(), b.processor.clone()),
        ("cores", a.cores.to_string(), b.cores.to_string()),
        ("memory", gib(a.memory), gib(b.memory)),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("strake", a.version.clone(), b.version.clone()),
    ];
    let different = pairs.into_iter().filter(|(_, a, b)| a != b);
    different.map(|(what, a, b)| format!("{what}: {a} | {b}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{slower, study};

    #[test]
    fn a_report_does_not_differ_from_itself() {
        let same = compare(&study(), &study());
        assert_eq!(same.rows.len(), 48 + 1, "every measured figure and the limit");
        assert!(same.rows.iter().all(|row| row.ratio.unwrap().value == 1.0));
        let may_be = [Verdict::NoDifference, Verdict::TooNoisy, Verdict::TooFew];
        assert!(same.rows.iter().all(|row| may_be.contains(&row.verdict)));
        assert!(same.only_first.is_empty() && same.only_second.is_empty());
        assert_eq!(same.differences, Vec::<String>::new());
    }

    #[test]
    fn what_became_slower_is_worse_and_what_is_missing_is_named() {
        let found = compare(&study(), &slower());
        assert_eq!(found.rows[0].verdict, Verdict::Worse);
        assert_eq!(found.rows[1].verdict, Verdict::Better);
        assert!((found.rows[0].ratio.unwrap().value - 0.9).abs() < 1e-9);
        assert_eq!(
            found.by_chance(),
            Some("with so many rows, about 3 would be called so by chance".into())
        );
        assert_eq!(found.only_first.len(), 2);
        assert_eq!(found.only_second.len(), 1);
        assert_eq!(found.only_second[0].parameters["threads"], 2.0);
        assert_eq!(found.differences.len(), 2);
        assert!(found.differences[0].contains("kernel: Linux 6.1.0-28 | Linux 7.0"));
    }

    /// A run with fsync was called slower than one without, and nothing said why.
    #[test]
    fn runs_that_were_asked_for_otherwise_are_told_apart() {
        let (mut plain, mut synced) = (study(), study());
        plain.command = "strake bench meta --on a --phase create --save=one --json".into();
        synced.command = "/bin/strake bench meta --phase create --on b --save two".into();
        assert_eq!(compare(&plain, &synced).differences, Vec::<String>::new());
        synced.command += " -e";
        synced.notes.push("the caches were warm".into());
        let found = compare(&plain, &synced).differences;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("command: ") && found[0].ends_with("two -e"), "{found:?}");
        assert_eq!(found[1], "only of the second: the caches were warm");
    }

    #[test]
    fn single_sides_are_compared_whatever_their_names() {
        let only = |name: &str, called: &str| {
            let mut report = study();
            report.sides.retain(|side| side.name == name);
            report.sides[0].name = called.into();
            report.figures.retain(|figure| figure.side == name);
            report.figures.iter_mut().for_each(|figure| figure.side = called.into());
            report
        };
        let found = compare(&only("strake", "before"), &only("strake", "after"));
        assert_eq!((found.rows.len(), found.only_second.len()), (16, 0));
        assert!(found.differences[0].contains("\"before\" is compared with \"after\""));
    }
}
