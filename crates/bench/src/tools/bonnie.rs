//! bonnie++: its line of comma-separated values, format 1.98 (bon_csv2html(1)).

use super::{Options, Readings};
use crate::result::Unit;
use std::ffi::OsString;
use std::path::Path;

/// Versions of the line that have these fields: older ones have two less before the first test.
const FORMATS: &[&str] = &["1.98"];
/// What stands in such a line before the version of the program.
pub const LINE_BEGINS: &str = "1.98,";
/// Files are counted in units of this.
const FILES: u64 = 1024;
/// Bytes of what the line calls K.
const K: f64 = 1024.0;
/// What stands for a test that was over too soon to be measured.
const TOO_SOON: &str = "+++";
/// Number of a field, its test and unit. The processor's percent is the field after it.
const FIELDS: &[(usize, &str, Unit)] = &[
    (9, "per-character write", Unit::BytesPerSecond),
    (11, "block write", Unit::BytesPerSecond),
    (13, "rewrite", Unit::BytesPerSecond),
    (15, "per-character read", Unit::BytesPerSecond),
    (17, "block read", Unit::BytesPerSecond),
    (19, "random seeks", Unit::PerSecond),
    (26, "sequential create", Unit::PerSecond),
    (28, "sequential stat", Unit::PerSecond),
    (30, "sequential delete", Unit::PerSecond),
    (32, "random create", Unit::PerSecond),
    (34, "random stat", Unit::PerSecond),
    (36, "random delete", Unit::PerSecond),
];
/// The first test over many files.
const FIRST_OF_FILES: usize = 26;

pub fn arguments(options: &Options, directory: &Path) -> Vec<OsString> {
    let mebibytes = options.size.div_ceil(1 << 20).max(1);
    let mut arguments: Vec<OsString> = vec!["-q".into(), "-m".into(), "side".into(), "-d".into()];
    arguments.push(directory.into());
    // It wants files of twice the memory; half the files' size is given as the memory.
    for (flag, value) in [
        ("-s", mebibytes),
        ("-r", mebibytes / 2),
        ("-n", options.files.div_ceil(FILES)),
        ("-c", u64::from(options.threads)),
    ] {
        arguments.extend([flag.into(), value.to_string().into()]);
    }
    if rustix::process::geteuid().is_root() {
        arguments.extend(["-u".into(), "root".into()]);
    }
    arguments
}

pub fn read(output: &str) -> Option<Readings> {
    let lines = output.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let mut lines = lines.filter(|fields| fields.len() > 37 && FORMATS.contains(&fields[0]));
    let fields = lines.next()?;
    let mut readings = Readings::default();
    let mut too_soon = Vec::new();
    for (at, name, unit) in FIELDS {
        let parameter = match *at >= FIRST_OF_FILES {
            true => fields[21].parse().ok().map(|n: f64| ("files", n * FILES as f64)),
            false => size(fields[5]).map(|bytes| ("size", bytes)),
        };
        let parameters: Vec<(&str, f64)> = parameter
            .into_iter()
            .chain(fields[3].parse().ok().map(|threads| ("threads", threads)))
            .collect();
        let test = format!("bonnie++/{name}");
        let factor = if *unit == Unit::BytesPerSecond { K } else { 1.0 };
        match fields[*at].parse::<f64>() {
            Ok(value) => readings.add(test.clone(), &parameters, *unit, value * factor),
            Err(_) if fields[*at].starts_with(TOO_SOON) => too_soon.push(*name),
            Err(_) => continue,
        }
        if let Ok(percent) = fields[at + 1].parse::<f64>() {
            readings.add(format!("{test} %CP"), &parameters, Unit::Percent, percent);
        }
    }
    if !too_soon.is_empty() {
        let names = too_soon.join(", ");
        readings.notes.push(format!(
            "bonnie++ gives no figure for what takes less than half a second (larger --size, more --files): {names}"
        ));
    }
    Some(readings)
}

/// "16M", "1G": bytes.
fn size(text: &str) -> Option<f64> {
    // More sizes can follow: `16M:8192`.
    let text = text.split(':').next()?;
    let (number, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1024.0),
        b'M' => (&text[..text.len() - 1], 1_048_576.0),
        b'G' => (&text[..text.len() - 1], 1_073_741_824.0),
        _ => (text, 1_048_576.0),
    };
    Some(number.parse::<f64>().ok()? * factor)
}
