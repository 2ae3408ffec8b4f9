//! What a run leaves: figures, and what each is a figure of.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything one run found out: what `--json` writes, and all that a report page is made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was run, as a title: "Study 1: two servers at 100 Mbit/s".
    pub title: String,
    /// The command line that ran it.
    pub command: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// Where it ran.
    pub machine: Machine,
    /// What was compared, in the order given.
    pub sides: Vec<Side>,
    /// Programs of others in it: tools that were driven, and those that play what was compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Program>,
    /// The figures, in the order they were first taken.
    pub figures: Vec<Figure>,
    /// How to draw the figures.
    pub charts: Vec<Chart>,
    /// What a reader must know: a cache that could not be dropped, a run that was interrupted.
    pub notes: Vec<String>,
}

/// The machine a run was made on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many processors a thread can run on.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
}

/// A program of others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its release, as it says itself; empty where it does not.
    pub version: String,
    /// The command line of a tool that was driven, in the directory `DIR`; empty of others.
    pub command: String,
}

/// One of the things compared: a directory under a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The name in tables and legends; unique in a report.
    pub name: String,
    /// The directory.
    pub directory: String,
    /// The file system there, as the kernel names it: "ext4", "fuse.strake".
    pub file_system: String,
}

/// One cell of a table: a test, at one set of parameters, on one side.
///
/// A limit, or a published figure, stands beside every measured figure of the same test and unit
/// whose parameters include its own: a published figure by "size" alone beside every "record", and
/// a limit without parameters beside all. The test of a limit may end in a slash ("iozone/"): then
/// it stands beside all tests that begin so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Whose: the name of a [`Side`], of a limit, or of whoever published it.
    pub side: String,
    /// Who says so.
    pub origin: Origin,
    /// What was done: "iozone/write", "bonnie/rewrite", "meta/create".
    pub test: String,
    /// With what: "size" and "record" in bytes, "threads", "servers", "clients".
    pub parameters: BTreeMap<String, f64>,
    /// What the samples are in.
    pub unit: Unit,
    /// One for each repetition, in the order they were taken.
    pub samples: Vec<f64>,
    /// How the samples become one number.
    pub rule: Rule,
}

/// Who vouches for a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured in this run.
    Measured,
    /// Measured in this run as the most that is possible: a plain TCP stream, a plain read of the disk.
    Limit,
    /// Printed in a study; not measured here.
    Published,
}

/// What a sample is in. No prefixes: tables and axes choose them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes per second.
    BytesPerSecond,
    /// Operations per second.
    PerSecond,
    /// Seconds; less is better.
    Seconds,
    /// Percent of the processors' time; less is better.
    Percent,
}

impl Unit {
    /// True where a smaller number is the better one.
    pub fn less_is_better(self) -> bool {
        matches!(self, Unit::Seconds | Unit::Percent)
    }
}

/// How the samples of a figure become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The middle one, or the mean of the two in the middle.
    Median,
    /// The mean of all.
    Mean,
    /// The mean without the largest and the smallest (study 1), of three samples or more.
    TrimmedMean,
}

impl Rule {
    /// The rule in words.
    pub fn words(self) -> &'static str {
        match self {
            Rule::Median => "the median",
            Rule::Mean => "the mean",
            Rule::TrimmedMean => "the mean without the largest and the smallest",
        }
    }
}

/// How to draw some of the figures: one plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Above the plot.
    pub title: String,
    /// Which test's figures.
    pub test: String,
    /// The parameter on the horizontal axis; a line is drawn for each side and each set of the others.
    pub across: String,
    /// True where the horizontal axis doubles from mark to mark.
    pub doubling: bool,
}
