//! The four founding studies, each by its own protocol, with its published figures beside ours.
//!
//! A study asks for [`settings`]: how many servers, how fast their links and disks. In each of them
//! its [`plan`] is carried out (by [`beds`], which makes a testbed for each), and the reports are put
//! together by [`join`]. On a directory that is
//! there already nobody knows the setting: there is one plan, and its figures do not name servers.

pub mod beds;
mod forecast;
mod four;
mod one;
mod part;
mod published;
mod three;
mod two;

pub use forecast::Forecast;
pub use part::Part;

use crate::error::{Error, Result};
use crate::plan::{Plan, Protocol};
use crate::result::{Origin, Report};
use crate::testbed::{self, Rate};
use std::collections::BTreeMap;

/// Bytes per second of a link of 100 Mbit/s.
pub const FAST_ETHERNET: f64 = 12.5e6;

/// Bytes of a target without files, about: what it keeps back for its extent map, and its journal.
const EMPTY_TARGET: u64 = 64 << 20;
/// Bytes of a cluster without targets or files, about: its metadata, and what targets leave free of their disk.
const EMPTY_CLUSTER: u64 = 160 << 20;

/// Which study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Study {
    /// PVFS2 and GlusterFS on virtual servers: iozone, small to large files.
    One,
    /// PVFS2 and ext3: the thread matrix.
    Two,
    /// GlusterFS: scaling of a striped volume from one server to five.
    Three,
    /// Cluster file systems of 2006: iozone and bonnie++.
    Four,
}

/// Servers as a testbed makes them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Data servers.
    pub servers: u32,
    /// Bytes per second of each server's link; `None` where it shall not limit.
    pub link: Option<f64>,
    /// Bytes per second of each server's disk; `None` where it shall not limit.
    pub disk: Option<f64>,
    /// Bytes of a chunk of the volume; `None`: as volumes are made.
    pub chunk_size: Option<u64>,
}

/// How a study is carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Fewer cells and repetitions, for a first impression in three minutes.
    pub quick: bool,
    /// How often everything is repeated, instead of what the study did.
    pub repetitions: Option<usize>,
    /// Whether every byte that is read is compared.
    pub verify: bool,
    /// What decides random orders and names, and tells files apart.
    pub seed: u64,
    /// Which part of it.
    pub part: Part,
}

impl Options {
    /// As the generators take it.
    fn protocol(&self, repetitions: usize) -> Protocol {
        Protocol { verify: self.verify, seed: self.seed, repetitions }
    }
}

impl Study {
    /// The study of a number.
    pub fn of_number(number: u32) -> Result<Study> {
        match number {
            1 => Ok(Study::One),
            2 => Ok(Study::Two),
            3 => Ok(Study::Three),
            4 => Ok(Study::Four),
            _ => Err(Error::usage(format!("there is no study {number}: they are 1, 2, 3 and 4"))),
        }
    }

    /// By what its figures say in which setting they were taken. Study 1 had only one.
    pub fn parameters(self, setting: &Setting) -> BTreeMap<String, f64> {
        match self {
            Study::One => BTreeMap::new(),
            _ => setting.parameters().into_iter().collect(),
        }
    }

    /// What it was about, as a title.
    pub fn title(self) -> &'static str {
        match self {
            Study::One => "Study 1: PVFS2 and GlusterFS on virtual servers (iozone)",
            Study::Two => "Study 2: PVFS2 against ext3, a thread matrix",
            Study::Three => "Study 3: GlusterFS, scaling of a striped volume",
            Study::Four => "Study 4: cluster file systems of 2006 (iozone and bonnie++)",
        }
    }
}

/// The settings in which a study measured, in its order; none where it compared what was there.
pub fn settings(study: Study, quick: bool) -> Vec<Setting> {
    match study {
        Study::One => one::settings(),
        Study::Two => two::settings(quick),
        Study::Three => three::settings(quick),
        Study::Four => Vec::new(),
    }
}

/// The settings of the part of a study that is asked for; none where it makes no testbed.
pub fn chosen(study: Study, options: &Options) -> Result<Vec<Setting>> {
    let part = &options.part;
    part.check(study)?;
    let mut chosen = settings(study, options.quick && !part.chooses_settings());
    let makes_none = chosen.is_empty();
    if !part.servers.is_empty() {
        chosen.retain(|setting| part.servers.contains(&setting.servers));
    }
    if !part.disks.is_empty() {
        let is_one = |disk: f64| part.disks.contains(&(disk.round() as u64));
        chosen.retain(|setting| setting.disk.is_some_and(is_one));
    }
    match chosen.is_empty() && !makes_none {
        true => Err(Error::usage("the study has no such testbed")
            .next("choose --servers and --disks that it has: see docs/guide/benchmarks.md")),
        false => Ok(chosen),
    }
}

/// What a study does in a setting; `None` on directories that are there already.
pub fn plan(study: Study, setting: Option<&Setting>, options: &Options) -> Result<Plan> {
    options.part.check(study)?;
    let mut plan = match study {
        Study::One => one::plan(options)?,
        Study::Two => two::plan(options)?,
        Study::Three => three::plan(options, setting.is_some())?,
        Study::Four => four::plan(options)?,
    };
    plan.title = study.title().to_owned();
    if let Some(repetitions) = options.repetitions {
        plan.repetitions = repetitions;
    }
    if options.quick {
        plan.notes.push("--quick: fewer cells and repetitions than the study had".into());
    }
    if let Some(bytes) = setting.and_then(|setting| setting.chunk_size) {
        plan.notes.push(format!(
            "the volume's chunks are {} KiB, as the study's strips were",
            bytes >> 10
        ));
    }
    // Study 1 had one setting: its number of servers tells no figures apart.
    if let Some(setting) = setting.filter(|_| study != Study::One) {
        for cell in &mut plan.cells {
            cell.parameters.extend(setting.parameters());
        }
        let beside = |name: &String, value: &f64| {
            setting.parameters().iter().all(|(known, here)| known != name || here == value)
        };
        plan.published.retain(|figure| figure.parameters.iter().all(|(n, v)| beside(n, v)));
        if study == Study::Three {
            plan.charts.iter_mut().for_each(|chart| chart.across = "servers".into());
        }
    }
    Ok(plan)
}

impl Setting {
    /// That of a testbed which is there already. What chunks are in it only its own volume knows.
    pub fn of(plan: &testbed::Plan) -> Setting {
        let speed = |rate: Rate| rate.bytes_per_second() as f64;
        let (link, disk) = (plan.link.map(speed), plan.disk.map(speed));
        Setting { servers: plan.servers, link, disk, chunk_size: None }
    }

    /// Bytes that its testbed takes beside what is measured in it, about.
    fn room(&self) -> u64 {
        EMPTY_CLUSTER + u64::from(self.servers) * EMPTY_TARGET
    }

    /// As parameters of figures.
    fn parameters(&self) -> Vec<(String, f64)> {
        let mut parameters = vec![("servers".to_owned(), f64::from(self.servers))];
        parameters.extend(self.disk.map(|disk| ("disk".to_owned(), disk)));
        parameters
    }
}

/// Puts the reports of several settings together: figures of the same side, test and parameters that
/// both have (published ones) are there once.
pub fn join(into: &mut Report, other: Report) {
    for figure in other.figures {
        let is_known =
            |known: &crate::result::Figure| known.origin == Origin::Published && *known == figure;
        if !into.figures.iter().any(is_known) {
            into.figures.push(figure);
        }
    }
    for side in other.sides {
        if !into.sides.iter().any(|known| known.name == side.name) {
            into.sides.push(side);
        }
    }
    for program in other.programs {
        if !into.programs.contains(&program) {
            into.programs.push(program);
        }
    }
    for chart in other.charts {
        if !into.charts.contains(&chart) {
            into.charts.push(chart);
        }
    }
    for note in other.notes {
        if !into.notes.contains(&note) {
            into.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests;
