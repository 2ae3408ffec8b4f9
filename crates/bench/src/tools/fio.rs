//! fio: one file for each thread, written and read in order, then read and written at random.

use super::{Options, Readings};
use crate::result::Unit;
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

/// Jobs: name, fio's `rw`, size of a block, and whether it ends by time.
const JOBS: &[(&str, &str, &str, bool)] = &[
    ("sequential write", "write", "1M", false),
    ("sequential read", "read", "1M", false),
    ("random read", "randread", "4k", true),
    ("random write", "randwrite", "4k", true),
];
/// Parameters of figures, the options of a job that say them, and those beside which they say nothing.
const PARAMETERS: &[(&str, &str, &[&str])] = &[
    ("size", "size", &["filesize"]),
    ("threads", "numjobs", &[]),
    ("block", "bs", &["bsrange", "bssplit"]),
];
/// The percentile of latencies that is told.
const PERCENTILE: &str = "99.000000";

pub fn arguments(options: &Options, directory: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        vec!["--output-format=json".into(), "--group_reporting".into()];
    // How far it is it says only where its report goes to a file: by name that is where it goes anyway.
    arguments.extend(["--eta=always".into(), "--output=/dev/stdout".into()]);
    let mut on = OsString::from("--directory=");
    on.push(directory);
    arguments.push(on);
    let size = format!("--size={}", options.size);
    let (threads, seconds) = (options.threads, options.seconds);
    for (name, order, block, by_time) in JOBS {
        arguments.extend([
            format!("--name={name}").into(),
            "--stonewall".into(),
            // As a process each would have a session of its own, in which nothing of ours ends it.
            "--thread".into(),
            size.clone().into(),
            format!("--numjobs={threads}").into(),
            // All jobs work on the files that the first has made.
            "--filename_format=data.$jobnum".into(),
            "--ioengine=psync".into(),
            "--end_fsync=1".into(),
            format!("--rw={order}").into(),
            format!("--bs={block}").into(),
        ]);
        if *by_time {
            arguments.extend(["--time_based".into(), format!("--runtime={seconds}").into()]);
        }
        arguments.extend(options.further.iter().map(OsString::from));
    }
    arguments
}

pub fn read(output: &str) -> Option<Readings> {
    readings(jobs(output)?.as_array()?)
}

/// The same of one that was to stop, without the job that it was at.
pub fn read_stopped(output: &str) -> Option<Readings> {
    let jobs = jobs(output)?;
    let jobs = jobs.as_array()?;
    let has_begun =
        |job: &Value| moves(job, "read") == Some(true) || moves(job, "write") == Some(true);
    readings(&jobs[..jobs.iter().rposition(has_begun)?])
}

/// How far it says that it is, in thousandths: `Jobs: 1 (f=1): [w(1)][62.5%][w=384MiB/s][eta 00m:03s]`.
pub fn progress(output: &str) -> Option<u64> {
    let (before, _) = output.rsplit_once("%]")?;
    let (_, percent) = before.rsplit_once('[')?;
    let percent: f64 = percent.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some((percent * 10.0) as u64)
}

fn jobs(output: &str) -> Option<Value> {
    // How far it was, and warnings, may stand before the JSON.
    let begin = output.find('{')?;
    let value: Value =
        serde_json::Deserializer::from_str(&output[begin..]).into_iter().next()?.ok()?;
    value.get("jobs").cloned()
}

/// True where a job has moved bytes in a direction.
fn moves(job: &Value, direction: &str) -> Option<bool> {
    Some(job.get(direction)?.get("io_bytes")?.as_f64()? > 0.0)
}

fn readings(jobs: &[Value]) -> Option<Readings> {
    let mut readings = Readings::default();
    for job in jobs {
        let name = job.get("jobname")?.as_str()?;
        let known = JOBS.iter().find(|(known, ..)| *known == name);
        let parameters = parameters(job);
        // A job of both directions (`--rw=randrw`, `--verify`) has a figure of each.
        let both = moves(job, "read")? && moves(job, "write")?;
        for direction in ["read", "write"] {
            let done = job.get(direction)?;
            let number = |name: &str| done.get(name).and_then(Value::as_f64);
            if !moves(job, direction)? {
                continue;
            }
            let which = if both { format!(", {direction}") } else { String::new() };
            let test = format!("fio/{name}{which}");
            readings.add(test.clone(), &parameters, Unit::BytesPerSecond, number("bw_bytes")?);
            if known.is_some_and(|(.., by_time)| *by_time) {
                readings.add(test.clone(), &parameters, Unit::PerSecond, number("iops")?);
            }
            let latency = done.get("clat_ns").and_then(|l| l.get("percentile")?.get(PERCENTILE));
            if let Some(nanoseconds) = latency.and_then(Value::as_f64) {
                let test = format!("{test}, 99 % within");
                readings.add(test, &parameters, Unit::Seconds, nanoseconds / 1e9);
            }
        }
    }
    Some(readings)
}

/// What fio says that a job was done with, which further arguments may have changed; what is not sure is left out.
fn parameters(job: &Value) -> Vec<(&'static str, f64)> {
    let Some(options) = job.get("job options") else { return Vec::new() };
    let said = PARAMETERS.iter().filter_map(|(name, option, others)| {
        let is_sure = others.iter().all(|other| options.get(other).is_none());
        let value = options.get(option).filter(|_| is_sure)?.as_str()?;
        Some((*name, amount(value)?))
    });
    said.collect()
}

/// A number as fio takes it, with a plain unit or none.
fn amount(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let thousands = ["", "k", "m", "g", "t"].iter().position(|known| *known == unit)?;
    Some(digits.parse::<u64>().ok()? as f64 * (1_u64 << (10 * thousands)) as f64)
}
