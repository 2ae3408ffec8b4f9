//! mdtest: the table under "SUMMARY rate" of releases 1.9 to 4.0, with and without colons.

use super::{Options, Readings};
use crate::result::Unit;
use std::ffi::OsString;
use std::path::Path;

pub fn arguments(options: &Options, directory: &Path) -> Vec<OsString> {
    let files = options.files.to_string();
    let on = directory.join("mdtest").into_os_string();
    vec!["-n".into(), files.into(), "-i".into(), "1".into(), "-d".into(), on]
}

pub fn read(output: &str) -> Option<Readings> {
    // "1 tasks, 1024 files/directories": further arguments may have asked for others than ours.
    let files = |line: &str| line.split_once(" tasks, ")?.1.split(' ').next()?.parse::<f64>().ok();
    let parameters: Vec<_> =
        output.lines().find_map(files).map(|n| ("files", n)).into_iter().collect();
    let mut lines = output.lines();
    lines.find(|line| line.trim_start().starts_with("SUMMARY rate"))?;
    let mut readings = Readings::default();
    for line in lines {
        let line = line.trim();
        if line.starts_with("--") && !line.starts_with("---") || line.starts_with("SUMMARY") {
            break;
        }
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != ":").collect();
        let Some(at) = words.len().checked_sub(4) else { continue };
        // Largest, smallest, mean, deviation.
        let Ok(mean) = words[at + 2].parse::<f64>() else { continue };
        let name = words[..at].join(" ").trim_end_matches(':').to_lowercase();
        // A phase that was not asked for has the rate 0.
        if mean > 0.0 && !name.is_empty() {
            readings.add(format!("mdtest/{name}"), &parameters, Unit::PerSecond, mean);
        }
    }
    Some(readings)
}
