//! dbench: the load of an office's file server, at any number of clients.

use super::{Options, Readings};
use crate::result::Unit;
use std::ffi::OsString;
use std::path::Path;

/// Bytes of what dbench calls a megabyte.
const MB: f64 = 1e6;

pub fn arguments(options: &Options, directory: &Path) -> Vec<OsString> {
    let seconds = options.seconds.to_string();
    vec!["-t".into(), seconds.into(), "-D".into(), directory.into()]
}

pub fn read(output: &str) -> Option<Readings> {
    let line = output.lines().rev().find(|line| line.starts_with("Throughput "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words[at.checked_sub(1)?].parse::<f64>().ok()
    };
    let clients = before("clients").or_else(|| before("procs"))?;
    let parameters = [("clients", clients)];
    let mut readings = Readings::default();
    let speed = words.get(1)?.parse::<f64>().ok()?;
    readings.add("dbench/throughput".into(), &parameters, Unit::BytesPerSecond, speed * MB);
    let latency = words.iter().find_map(|word| word.strip_prefix("max_latency="));
    if let Some(milliseconds) = latency.and_then(|text| text.parse::<f64>().ok()) {
        let test = "dbench/longest wait".to_owned();
        readings.add(test, &parameters, Unit::Seconds, milliseconds / 1000.0);
    }
    Some(readings)
}
