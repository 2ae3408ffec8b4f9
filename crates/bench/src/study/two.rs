//! Study 2: the thread matrix over 1 to 8 servers with slow disks, behind links of 100 Mbit/s.

use super::published::{STUDY_2, STUDY_2_SERVERS, figure};
use super::{FAST_ETHERNET, Options, Setting};
use crate::error::Result;
use crate::matrix;
use crate::plan::Plan;
use crate::result::Figure;

/// Speeds of the disks, in bytes per second.
const DISKS: [f64; 4] = [2.83e6, 4.14e6, 6.18e6, 6.83e6];
/// The strip of PVFS2. With it a file of 1 MiB, too, lies on all servers, up to sixteen.
const CHUNK_BYTES: u64 = 64 << 10;
/// Repetitions of each cell: the study does not say how many it made.
const REPETITIONS: usize = 5;
/// Repetitions of a quick run.
const QUICK_REPETITIONS: usize = 2;

/// Every speed of disks with every number of servers.
pub fn settings(quick: bool) -> Vec<Setting> {
    let disks = if quick { &DISKS[3..] } else { &DISKS[..] };
    let servers = if quick { &STUDY_2_SERVERS[1..2] } else { &STUDY_2_SERVERS[..] };
    let (link, chunk_size) = (Some(FAST_ETHERNET), Some(CHUNK_BYTES));
    let setting = |disk: f64, servers| Setting { servers, link, disk: Some(disk), chunk_size };
    disks.iter().flat_map(|disk| servers.iter().map(|servers| setting(*disk, *servers))).collect()
}

/// What it does.
pub fn plan(options: &Options) -> Result<Plan> {
    let mut matrix =
        matrix::Options { protocol: options.protocol(REPETITIONS), ..matrix::Options::default() };
    if options.quick {
        matrix.sizes = vec![1 << 20, 1 << 24];
        matrix.blocks = vec![1 << 16];
        matrix.threads = vec![1, 8];
        matrix.protocol.repetitions = QUICK_REPETITIONS;
    }
    if !options.part.sizes.is_empty() {
        matrix.sizes.clone_from(&options.part.sizes);
    }
    if !options.part.threads.is_empty() {
        matrix.threads.clone_from(&options.part.threads);
    }
    let mut plan = matrix::plan(&matrix)?;
    plan.published = published();
    Ok(plan)
}

/// The study prints what share of all disks was used; a speed can stand beside ours.
fn published() -> Vec<Figure> {
    let test = "matrix/read";
    let mut figures = Vec::new();
    for (disk, threads, percents) in STUDY_2 {
        // Rounded, so that it is equal to what a setting says.
        let bytes = (disk * 1e6).round();
        let parameters = [("threads", threads), ("disk", bytes)];
        let local = percents[0] / 100.0 * disk;
        figures.push(figure("ext3", test, &parameters, local));
        for (servers, percent) in STUDY_2_SERVERS.iter().zip(&percents[1..]) {
            let servers = f64::from(*servers);
            let parameters = [("threads", threads), ("disk", bytes), ("servers", servers)];
            figures.push(figure("PVFS2", test, &parameters, percent / 100.0 * disk * servers));
        }
    }
    figures
}
