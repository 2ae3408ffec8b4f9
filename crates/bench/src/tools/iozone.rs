//! iozone: its table of kilobytes per second, with close and fsync in the timing.

use super::{Options, Readings};
use crate::result::Unit;
use std::ffi::OsString;
use std::path::Path;

/// Bytes of what iozone calls a kilobyte.
const KB: f64 = 1024.0;
/// Records, in iozone's kilobytes.
const RECORDS: &[&str] = &["4k", "64k", "1024k"];
/// The columns of tests 0, 1 and 2, which are asked for, in the order of the table.
const TESTS: &[&str] = &["write", "rewrite", "read", "reread", "random read", "random write"];

pub fn arguments(options: &Options, directory: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["-c".into(), "-e".into()];
    for test in ["0", "1", "2"] {
        arguments.extend(["-i".into(), test.into()]);
    }
    arguments.extend(["-s".into(), format!("{}k", options.size.div_ceil(1024)).into()]);
    for record in RECORDS {
        arguments.extend(["-r".into(), (*record).into()]);
    }
    arguments.extend(["-f".into(), directory.join("iozone.tmp").into_os_string()]);
    arguments
}

pub fn read(output: &str) -> Option<Readings> {
    let mut lines = output.lines();
    lines.find(|line| line.contains("reclen") && line.contains("rewrite"))?;
    let mut readings = Readings::default();
    for line in lines {
        let numbers: Vec<f64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [size, record, speeds @ ..] = numbers.as_slice() else { continue };
        let parameters = [("size", size * KB), ("record", record * KB)];
        for (test, speed) in TESTS.iter().zip(speeds) {
            let test = format!("iozone-tool/{test} -ce");
            readings.add(test, &parameters, Unit::BytesPerSecond, speed * KB);
        }
    }
    Some(readings)
}
