//! Study 4: `iozone -Rac -g 2G -i 0 -i 1` and bonnie++ with a file of twice the memory: 1.03, the release
//! of its time, which closed what it had written without `fsync`. The study
//! compared what it found by its curves, and printed no table that could stand beside ours.

use super::Options;
use crate::bonnie;
use crate::error::Result;
use crate::iozone::{self, Test};
use crate::plan::Plan;
use crate::work::file::Ending;

/// Largest file of iozone.
const LARGEST: u64 = 2 << 30;
/// The same, the size of bonnie++'s file, and the number of its files, in a quick run.
const QUICK: (u64, u64, u64) = (8 << 20, 128 << 20, 2 * bonnie::FILES_UNIT);
/// Repetitions of a quick run.
const QUICK_REPETITIONS: usize = 2;
/// Repetitions otherwise: at least five are needed for a median that one disturbance does not move.
const REPETITIONS: usize = 5;

/// What it does.
pub fn plan(options: &Options) -> Result<Plan> {
    let largest = if options.quick { QUICK.0 } else { LARGEST };
    let mut tests = Test::select("0")?;
    tests.extend(Test::select("1")?);
    let iozone = iozone::Options {
        tests,
        sizes: iozone::automatic(iozone::FILE_MIN, largest),
        ending: Ending { flush: false, close: true },
        protocol: options.protocol(1),
        ..iozone::Options::default()
    };
    let (size, files) = match options.quick {
        true => (QUICK.1, QUICK.2),
        false => (bonnie::default_size(1)?, bonnie::Options::default().files),
    };
    let bonnie = bonnie::Options {
        size,
        files,
        flush: false,
        protocol: options.protocol(1),
        ..bonnie::Options::default()
    };
    let mut plan = iozone::plan(&iozone)?;
    let second = bonnie::plan(&bonnie)?;
    plan.cells.extend(second.cells);
    plan.charts.extend(second.charts);
    plan.notes.extend(second.notes);
    plan.repetitions = if options.quick { QUICK_REPETITIONS } else { REPETITIONS };
    Ok(plan)
}
