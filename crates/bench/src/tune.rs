//! Which chunk size and stripe width suit a directory of a Strake mount: the same short load on
//! directories with different layouts, in turns, and what the noise allows to say about it.
//!
//! A layout is a side of an ordinary run. The first side is the directory as it is, and a layout is
//! suggested only where several tests are better by more than the noise and none is worse.

use crate::error::{Error, Result};
use crate::iozone::{self, Test};
use crate::place::{self, Workspace};
use crate::plan::{Plan, Protocol};
use crate::result::{Figure, Report, Side};
use crate::runner::{self, Ended, Run};
use crate::statistics::{self, Verdict};
use crate::watch::Watch;
use crate::work::file::Ending;
use rustix::fs::XattrFlags;
use std::fs;
use std::path::Path;

/// Attributes by which a directory's layout is chosen and shown.
const CHUNK_SIZE: &str = "user.strake.layout.chunk_size";
const WIDTH: &str = "user.strake.layout.width";
/// The width that means all groups.
const ALL: &str = "all";
/// The name of the side that has the directory's own layout.
pub const AS_IT_IS: &str = "as it is";
/// In how many tests a layout is better before it is suggested. Of nine that are all the same one was better in
/// one of four tests in every twelfth run, as so many are compared with the same few samples; in two it is one run of some hundreds.
const BETTER_MIN: usize = 2;
/// A number of an attribute is shorter.
const VALUE_BYTES_MAX: usize = 64;

/// What is tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Chunk sizes, in bytes.
    pub chunk_sizes: Vec<u64>,
    /// Stripe widths; 0 means all groups.
    pub widths: Vec<u32>,
    /// Bytes of the file that is written and read.
    pub size: u64,
    /// Bytes of a record of what goes in order.
    pub record: u64,
    /// Bytes of a record of what goes at random.
    pub random_record: u64,
    /// Threads of the mixed load.
    pub threads: usize,
    /// How often everything is measured.
    pub repetitions: usize,
}

/// A layout that is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a chunk.
    pub chunk_size: u64,
    /// Over how many groups a file is laid; 0 means all.
    pub width: u32,
}

impl Layout {
    /// Its name in tables: "1 MiB over 2".
    pub fn name(&self) -> String {
        let width = if self.width == 0 { ALL.to_owned() } else { self.width.to_string() };
        format!(
            "{} over {width}",
            crate::report::numbers::parameter("size", self.chunk_size as f64)
        )
    }
}

impl Options {
    /// The layout of a name.
    pub fn layout(&self, name: &str) -> Option<Layout> {
        let layouts = self.chunk_sizes.iter().flat_map(|&chunk_size| {
            self.widths.iter().map(move |&width| Layout { chunk_size, width })
        });
        layouts.into_iter().find(|layout| layout.name() == name)
    }
}

/// How one layout stands to the directory as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Its name.
    pub name: String,
    /// The geometric mean of its ratios over all tests.
    pub mean: f64,
    /// Tests in which it is better, and in which it is worse, by more than the noise.
    pub better: usize,
    /// See `better`.
    pub worse: usize,
}

/// Measures a directory's layouts. `run.sides` is the directory alone; the report's sides are the
/// layouts.
pub fn measure(options: &Options, mut run: Run<'_>) -> Result<Ended> {
    let [side] = run.sides.as_slice() else {
        return Err(Error::usage("one directory is tuned at a time"));
    };
    if !side.file_system.contains("strake") {
        let cause = format!(
            "{} does not lie in a Strake mount, but on {}",
            side.directory, side.file_system
        );
        return Err(
            Error::failed(cause).next("name a directory of a mount: grep strake /proc/mounts")
        );
    }
    let (directory, file_system) =
        (Path::new(&side.directory).to_owned(), side.file_system.clone());
    let mut notes = place::sweep(&directory)?;
    let workspace = Workspace::new(&directory)?;
    let watch = run.watch;
    let (layouts, own) = prepare(options, &workspace, watch, &mut notes)?;
    let mut sides = vec![(AS_IT_IS.to_owned(), own)];
    for (number, layout) in layouts.iter().enumerate() {
        sides.push((layout.name(), workspace.place(number + 1)));
    }
    run.sides = sides
        .into_iter()
        .map(|(name, path)| Side {
            name,
            directory: path.display().to_string(),
            file_system: file_system.clone(),
        })
        .collect();
    let mut plan = plan(options)?;
    plan.title = format!("Layouts for {}", directory.display());
    plan.notes.extend(notes);
    let ended = runner::run(&plan, run);
    let removed = workspace.remove(watch);
    let mut ended = ended?;
    if let Err(error) = removed {
        ended.failure.get_or_insert(error);
    }
    Ok(ended)
}

/// Makes a directory for each layout. Those that lay files like one before are left out, as where
/// there are fewer groups than a width asks for.
fn prepare(
    options: &Options,
    workspace: &Workspace,
    watch: &Watch,
    notes: &mut Vec<String>,
) -> Result<(Vec<Layout>, std::path::PathBuf)> {
    let own = workspace.cell(0)?;
    let mut seen = vec![effective(&own)?];
    let mut layouts = Vec::new();
    for &chunk_size in &options.chunk_sizes {
        for &width in &options.widths {
            let layout = Layout { chunk_size, width };
            let path = workspace.cell(layouts.len() + 1)?;
            let width = if width == 0 { ALL.to_owned() } else { width.to_string() };
            set(&path, CHUNK_SIZE, &chunk_size.to_string())?;
            set(&path, WIDTH, &width)?;
            let now = effective(&path)?;
            if seen.contains(&now) {
                notes.push(format!(
                    "{} is like one of the others here, and left out",
                    layout.name()
                ));
                workspace.clear(&path, watch)?;
                continue;
            }
            seen.push(now);
            layouts.push(layout);
        }
    }
    Ok((layouts, own))
}

fn set(path: &Path, name: &str, value: &str) -> Result<()> {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty())
        .map_err(|e| Error::io(&format!("setting {name} to {value} on"), path, &e.into()))
}

/// Chunk size and width of a file that is made in a directory.
fn effective(directory: &Path) -> Result<(String, String)> {
    let path = directory.join("probe");
    let failed = |e: std::io::Error| Error::io("asking for the layout of", &path, &e);
    fs::write(&path, "").map_err(failed)?;
    let get = |name: &str| {
        let mut value = vec![0; VALUE_BYTES_MAX];
        let length =
            rustix::fs::getxattr(&path, name, &mut value[..]).map_err(|e| failed(e.into()))?;
        value.truncate(length);
        Ok(String::from_utf8_lossy(&value).into_owned())
    };
    let found = (get(CHUNK_SIZE)?, get(WIDTH)?);
    fs::remove_file(&path).map_err(failed)?;
    Ok(found)
}

/// The load: one thread in order, then several at random, both ways.
fn plan(options: &Options) -> Result<Plan> {
    let tests = |names: &[&str]| -> Result<Vec<Test>> {
        let lists = names.iter().map(|name| Test::select(name)).collect::<Result<Vec<_>>>()?;
        Ok(lists.concat())
    };
    let common = iozone::Options {
        ending: Ending { flush: true, close: true },
        cold: true,
        protocol: Protocol { repetitions: options.repetitions, ..Protocol::default() },
        ..iozone::Options::default()
    };
    let in_order = iozone::Options {
        tests: tests(&["write", "read"])?,
        sizes: vec![(options.size, vec![options.record])],
        ..common.clone()
    };
    let each = options.size / options.threads.max(1) as u64;
    let each = (each - each % options.random_record.max(1)).max(options.random_record);
    let mixed = iozone::Options {
        tests: tests(&["random read", "random write"])?,
        sizes: vec![(each, vec![options.random_record])],
        workers: options.threads,
        ..common
    };
    let mut plan = iozone::plan(&in_order)?;
    plan.cells.extend(iozone::plan(&mixed)?.cells);
    plan.charts.clear();
    Ok(plan)
}

/// How all layouts of a report stand to the first, the best one first. A layout that has no figure
/// beside the first's is left out.
pub fn standings(report: &Report) -> Vec<Standing> {
    let Some(first) = report.sides.first() else { return Vec::new() };
    let mut standings = Vec::new();
    for side in &report.sides[1..] {
        let (mut logarithms, mut better, mut worse) = (Vec::new(), 0, 0);
        for figure in report.figures.iter().filter(|figure| figure.side == side.name) {
            let same = |base: &&Figure| {
                base.side == first.name
                    && (&base.test, &base.parameters, base.unit)
                        == (&figure.test, &figure.parameters, figure.unit)
            };
            let base = report.figures.iter().find(same);
            let Some(ratio) = base.and_then(|base| statistics::ratio(figure, base)) else {
                continue;
            };
            match statistics::verdict(&ratio, figure.unit) {
                Verdict::Better => better += 1,
                Verdict::Worse => worse += 1,
                Verdict::NoDifference | Verdict::TooNoisy | Verdict::TooFew => {}
            }
            let less = figure.unit.less_is_better();
            logarithms.push(if less { -ratio.value.ln() } else { ratio.value.ln() });
        }
        let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
        if mean.is_finite() {
            standings.push(Standing { name: side.name.clone(), mean, better, worse });
        }
    }
    standings.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    standings
}

/// The layout to choose: the best of those that are better in several tests and worse in none; `None`
/// where the noise allows to prefer none to the directory as it is.
pub fn suggestion(standings: &[Standing]) -> Option<&Standing> {
    standings.iter().find(|s| s.better >= BETTER_MIN && s.worse == 0 && s.mean > 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::study;
    use crate::result::Rule;
    use strake_base::random::SplitMix64;

    fn report(faster: &[f64]) -> Report {
        let mut report = study();
        report.sides.truncate(1);
        report.figures.retain(|figure| figure.side == "strake");
        let (side, base) = (report.sides[0].clone(), report.figures.clone());
        for (at, factor) in faster.iter().enumerate() {
            report.sides.push(Side { name: format!("layout {at}"), ..side.clone() });
            report.figures.extend(base.iter().cloned().map(|mut figure| {
                figure.side = format!("layout {at}");
                figure.samples.iter_mut().for_each(|sample| *sample *= factor);
                figure
            }));
        }
        report
    }

    #[test]
    fn the_best_layout_is_suggested_where_the_noise_allows_it() {
        let standings = standings(&report(&[1.2, 0.5, 1.5]));
        let names: Vec<_> = standings.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["layout 2", "layout 0", "layout 1"]);
        assert!((standings[0].mean - 1.5).abs() < 1e-9);
        assert_eq!((standings[0].better, standings[0].worse), (16, 0));
        assert_eq!(suggestion(&standings).unwrap().name, "layout 2");
    }

    #[test]
    fn nothing_is_suggested_within_the_noise_or_for_a_price() {
        assert_eq!(suggestion(&standings(&report(&[1.001, 0.9]))), None);
        let mut mixed = report(&[1.5]);
        mixed.figures.last_mut().unwrap().samples.iter_mut().for_each(|s| *s *= 0.1);
        let standings = standings(&mixed);
        assert_eq!((standings[0].better, standings[0].worse), (15, 1));
        assert_eq!(suggestion(&standings), None);
    }

    /// Where all layouts were the same, one of them was suggested in every twelfth run.
    #[test]
    fn one_better_test_of_so_many_is_chance_and_no_suggestion() {
        let better_in = |tests: usize| {
            let mut report = report(&[1.0, 1.0]);
            for figure in report.figures.iter_mut().rev().take(tests) {
                figure.samples.iter_mut().for_each(|sample| *sample *= 2.0);
            }
            let standings = standings(&report);
            assert_eq!((standings[0].better, standings[0].worse), (tests, 0));
            suggestion(&standings).map(|chosen| chosen.name.clone())
        };
        assert_eq!(better_in(1), None);
        assert_eq!(better_in(2).as_deref(), Some("layout 1"));
    }

    /// Nine layouts that are all the same, five times in turns: each sample is 5 % off, and in every second report all of a turn
    /// are 20 % off together, as beside another load.
    fn noise(seed: u64) -> Report {
        let common = if seed.is_multiple_of(2) { 0.0 } else { 0.2 };
        let mut random = SplitMix64::new(seed);
        let mut share = || random.next_number() as f64 / u64::MAX as f64;
        // Nearly a normal distribution.
        let mut off = || (0..12).map(|_| share()).sum::<f64>() - 6.0;
        let mut report = report(&[1.0; 8]);
        let any = report.figures[0].clone();
        report.figures.clear();
        for test in ["write", "read", "random read", "random write"] {
            let turns: [f64; 5] = std::array::from_fn(|_| 1.0 + common * off());
            for side in &report.sides {
                let (side, test) = (side.name.clone(), test.to_owned());
                let samples = turns.iter().map(|turn| turn * (1.0 + 0.05 * off())).collect();
                let rule = Rule::Median;
                report.figures.push(Figure { side, test, samples, rule, ..any.clone() });
            }
        }
        report
    }

    /// That share was said, and nothing held it.
    #[test]
    fn of_a_hundred_runs_in_which_all_is_the_same_no_more_than_one_suggests_a_layout() {
        let suggests = |seed: &u64| suggestion(&standings(&noise(*seed))).is_some();
        let suggested = (0..400).filter(suggests).count();
        assert!(suggested <= 4, "{suggested} of 400");
    }

    #[test]
    fn a_directory_elsewhere_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let on = [directory.path().display().to_string()];
        let options = Options {
            chunk_sizes: vec![1 << 20],
            widths: vec![0],
            size: 1 << 20,
            record: 1 << 16,
            random_record: 1 << 12,
            threads: 2,
            repetitions: 1,
        };
        let watch = Watch::default();
        let run = Run {
            sides: place::sides(&on).unwrap(),
            crew: crate::crew::Crew::Threads,
            command: String::new(),
            version: String::new(),
            watch: &watch,
        };
        let error = measure(&options, run).err().unwrap();
        assert!(error.cause.contains("does not lie in a Strake mount"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(plan(&options).unwrap().cells.len(), 2);
    }
}
