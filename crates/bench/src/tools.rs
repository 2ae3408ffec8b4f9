//! Driving the tools that others measure with, where they are installed: side by side, in the same
//! report, with sane settings. Each tool has a file with its arguments and the reader of its output;
//! `process` keeps a running tool within bounds.

mod bonnie;
mod dbench;
mod fio;
mod iozone;
mod mdtest;

use crate::error::{Error, Kind, Result};
use crate::place::Workspace;
use crate::plan::Room;
use crate::process::{self, Manner};
use crate::result::{Figure, Origin, Program, Report, Rule, Side, Unit};
use crate::runner::{self, Ended, REPETITIONS_MAX};
use crate::watch::Watch;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lines of a failed tool's output that are shown.
const LINES_SHOWN: usize = 8;
/// Units of progress of one run of a tool.
const RUN_WEIGHT: u64 = 1000;
/// What stands for the directory in the command line of a report.
const DIRECTORY: &str = "DIR";

/// A tool that is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Jens Axboe's fio.
    Fio,
    /// Russell Coker's bonnie++.
    Bonnie,
    /// William Norcott's iozone.
    Iozone,
    /// mdtest, of the IOR project.
    Mdtest,
    /// Andrew Tridgell's dbench.
    Dbench,
}

/// How much a tool does.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes of each file, or of all of bonnie++'s.
    pub size: u64,
    /// Files of tests with many.
    pub files: u64,
    /// How many do the work at the same time, where the tool can.
    pub threads: u32,
    /// How long tests without an end run.
    pub seconds: u64,
    /// How often the tool runs on each side.
    pub repetitions: usize,
    /// How long one run of the tool may take.
    pub limit: Duration,
    /// Further arguments for the tool.
    pub further: Vec<String>,
}

/// What a tool says that it measured.
#[derive(Debug, Clone, PartialEq)]
struct Reading {
    test: String,
    parameters: BTreeMap<String, f64>,
    unit: Unit,
    value: f64,
}

/// What a tool's output tells.
#[derive(Debug, Default, PartialEq)]
struct Readings {
    list: Vec<Reading>,
    notes: Vec<String>,
}

/// What a run of a tool tells.
struct Told {
    readings: Readings,
    /// Its release.
    version: Option<String>,
    /// It was to stop before its end.
    stopped: bool,
}

impl Readings {
    fn add(&mut self, test: String, parameters: &[(&str, f64)], unit: Unit, value: f64) {
        let parameters = parameters.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
        self.list.push(Reading { test, parameters, unit, value });
    }
}

impl Tool {
    /// All of them.
    pub const ALL: [Tool; 5] = [Tool::Fio, Tool::Bonnie, Tool::Iozone, Tool::Mdtest, Tool::Dbench];

    /// Its name, which is its program's.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Fio => "fio",
            Tool::Bonnie => "bonnie++",
            Tool::Iozone => "iozone",
            Tool::Mdtest => "mdtest",
            Tool::Dbench => "dbench",
        }
    }

    /// How one gets it.
    fn source(self) -> &'static str {
        match self {
            Tool::Fio => "install Debian's package fio",
            Tool::Bonnie => "install Debian's package bonnie++",
            Tool::Dbench => "install Debian's package dbench",
            Tool::Iozone => {
                "install Debian's package iozone3 (non-free), or build it from iozone.org; strake bench iozone needs \
                 nothing"
            }
            Tool::Mdtest => {
                "build it from the IOR project (github.com/hpc/ior); strake bench meta needs nothing"
            }
        }
    }

    /// Where its program is.
    pub fn find(self) -> Result<PathBuf> {
        let missing = || Error::failed(format!("{} is not installed", self.name()));
        process::find(self.name()).ok_or_else(|| missing().next(self.source()))
    }

    /// Its command line, as a shell takes it.
    fn command(self, options: &Options, directory: &Path) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+%".contains(c);
        let words = self.arguments(options, directory).into_iter().map(|word| {
            let word = word.to_string_lossy().into_owned();
            match !word.is_empty() && word.chars().all(plain) {
                true => word,
                false => format!("'{}'", word.replace('\'', r"'\''")),
            }
        });
        std::iter::once(self.name().to_owned()).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// The release that its output names.
    fn version(self, output: &str) -> Option<String> {
        let before = match self {
            Tool::Fio => "\"fio-",
            // The line begins with its own version, and then has that of the program.
            Tool::Bonnie => bonnie::LINE_BEGINS,
            Tool::Iozone => "$Revision: ",
            Tool::Mdtest => "mdtest-",
            Tool::Dbench => "dbench version ",
        };
        let (_, version) = output.split_once(before)?;
        version.split([' ', ',', '"', '\n']).next().map(str::to_owned)
    }

    fn arguments(self, options: &Options, directory: &Path) -> Vec<OsString> {
        let mut arguments = match self {
            Tool::Fio => fio::arguments(options, directory),
            Tool::Bonnie => bonnie::arguments(options, directory),
            Tool::Iozone => iozone::arguments(options, directory),
            Tool::Mdtest => mdtest::arguments(options, directory),
            Tool::Dbench => dbench::arguments(options, directory),
        };
        // What stands behind a job of fio is for that job alone: it gives them to each.
        if self != Tool::Fio {
            arguments.extend(options.further.iter().map(OsString::from));
        }
        // dbench wants the number of its processes last.
        if self == Tool::Dbench {
            arguments.push(options.threads.to_string().into());
        }
        arguments
    }

    fn read(self, output: &str) -> Option<Readings> {
        match self {
            Tool::Fio => fio::read(output),
            Tool::Bonnie => bonnie::read(output),
            Tool::Iozone => iozone::read(output),
            Tool::Mdtest => mdtest::read(output),
            Tool::Dbench => dbench::read(output),
        }
    }

    /// Bytes that its files take at once, about.
    fn needs(self, options: &Options) -> u64 {
        let threads = u64::from(options.threads);
        match self {
            Tool::Fio => options.size.saturating_mul(threads),
            Tool::Bonnie | Tool::Iozone => options.size,
            // Its load writes about so much for each client.
            Tool::Dbench => threads.saturating_mul(64 << 20),
            Tool::Mdtest => 0,
        }
    }
}

/// A run of a tool.
pub struct Run<'a> {
    /// The tool.
    pub tool: Tool,
    /// How much it does.
    pub options: Options,
    /// What is compared.
    pub sides: Vec<Side>,
    /// The command line, for the report.
    pub command: String,
    /// The version of the program, for the report.
    pub version: String,
    /// How far it is, and whether it shall stop.
    pub watch: &'a Watch,
}

impl Run<'_> {
    /// Runs the tool on every side in turn. An error means that nothing was measured.
    pub fn carry_out(&self) -> Result<Ended> {
        let Options { repetitions, threads, seconds, .. } = self.options;
        if !(1..=REPETITIONS_MAX).contains(&repetitions) || threads == 0 || seconds == 0 {
            let most = REPETITIONS_MAX;
            return Err(Error::usage(format!(
                "{repetitions} repetitions of {threads} threads for {seconds} seconds: all are at least 1, and there are at most {most} repetitions"
            )));
        }
        let program = self.tool.find()?;
        let title = format!("{}, driven", self.tool.name());
        let mut report = runner::begin(&title, &self.command, &self.version, &self.sides);
        let needs = Room { bytes: self.tool.needs(&self.options), files: 0 };
        let smaller = ["free some room, or give a smaller --size"; 2];
        let workspaces = runner::settle_in(&self.sides, needs, smaller, &mut report.notes)?;
        let name = self.tool.name().to_owned();
        let command = self.tool.command(&self.options, Path::new(DIRECTORY));
        report.programs.push(Program { name, version: String::new(), command });
        self.watch.begin((repetitions * self.sides.len()) as u64 * RUN_WEIGHT, &report);
        let ended = self.repeat(&program, &workspaces, &mut report);
        let failed = matches!(&ended, Err(error) if error.kind != Kind::Stopped);
        let nothing = failed && report.figures.is_empty();
        let Ended { report, failure } = runner::end(report, ended, workspaces, self.watch);
        match failure {
            Some(failure) if nothing => Err(failure),
            failure => Ok(Ended { report, failure }),
        }
    }

    fn repeat(&self, program: &Path, places: &[Workspace], report: &mut Report) -> Result<()> {
        let mut before = 0;
        for repetition in 0..self.options.repetitions {
            for turn in 0..places.len() {
                let at = (repetition + turn) % places.len();
                let (side, workspace) = (&self.sides[at], &places[at]);
                self.watch.doing(format!("{} on {}", self.tool.name(), side.name));
                let cell = workspace.cell(0)?;
                let Told { readings, version, stopped } = self.once(program, &cell, before)?;
                if let (Some(program), Some(version)) = (report.programs.last_mut(), version) {
                    program.version = version;
                }
                add(report, side, readings);
                self.watch.keep(report.clone());
                if stopped {
                    return Err(Error::stopped());
                }
                workspace.clear(&cell, self.watch)?;
                before += RUN_WEIGHT;
                self.watch.reach(before);
            }
        }
        Ok(())
    }

    /// Runs the tool once in an empty directory, when so much of the run has been done.
    fn once(&self, program: &Path, directory: &Path, before: u64) -> Result<Told> {
        let name = self.tool.name();
        let arguments = self.tool.arguments(&self.options, directory);
        let is_fio = self.tool == Tool::Fio;
        let heard = |text: &str| {
            if let Some(done) = fio::progress(text).filter(|_| is_fio) {
                self.watch.reach(before + done);
            }
        };
        let (limit, manner) = (self.options.limit, Manner { tells: is_fio, heard: &heard });
        let ended = process::run(program, &arguments, directory, limit, self.watch, manner)?;
        let (version, stopped) = (self.tool.version(&ended.output), ended.stopped);
        if stopped {
            let readings = fio::read_stopped(&ended.output).unwrap_or_default();
            return Ok(Told { readings, version, stopped });
        }
        let last = || {
            let lines: Vec<&str> = ended.all.lines().filter(|l| !l.trim().is_empty()).collect();
            let from = lines.len().saturating_sub(LINES_SHOWN);
            lines[from..].iter().map(|line| format!("\n  {line}")).collect::<String>()
        };
        if !ended.succeeded {
            let (how, command) = (&ended.how, self.tool.command(&self.options, directory));
            let cause = format!(
                "{name} failed ({how}); it was run as {command}; its last lines:{}",
                last()
            );
            return Err(Error::failed(cause));
        }
        let readings = self.tool.read(&ended.output);
        let readings = readings.filter(|r| !r.list.is_empty() || !r.notes.is_empty());
        let told = |readings| Told { readings, version, stopped };
        readings.map(told).ok_or_else(|| {
            let cause = format!(
                "{name} ended well, but its output has no figures; its last lines:{}",
                last()
            );
            Error::failed(cause)
                .next("give other arguments after --, or use another release of the tool")
        })
    }
}

/// Adds what a tool measured on a side.
fn add(report: &mut Report, side: &Side, readings: Readings) {
    for Reading { test, parameters, unit, value } in readings.list {
        let same = |figure: &&mut Figure| {
            (figure.side == side.name, &figure.test, &figure.parameters, figure.unit)
                == (true, &test, &parameters, unit)
        };
        match report.figures.iter_mut().find(same) {
            Some(figure) => figure.samples.push(value),
            None => report.figures.push(Figure {
                side: side.name.clone(),
                origin: Origin::Measured,
                test,
                parameters,
                unit,
                samples: vec![value],
                rule: Rule::Median,
            }),
        }
    }
    for note in readings.notes {
        if !report.notes.contains(&note) {
            report.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests;
