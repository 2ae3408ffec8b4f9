//! A report as the first study would give one: its printed table beside figures that are made up.

use crate::result::{Chart, Figure, Machine, Origin, Report, Rule, Side, Unit};
use std::collections::BTreeMap;

/// MB/s as the study prints them, for files of 2, 4, ... 256 MB.
const PUBLISHED: &[(&str, &str, [f64; 8])] = &[
    ("iozone/write", "PVFS2 2.8.2", [10.40, 10.49, 10.62, 10.68, 10.65, 10.68, 10.28, 10.70]),
    ("iozone/write", "GlusterFS 3.2.7", [253.31, 12.0, 7.57, 6.39, 5.95, 5.77, 5.68, 5.63]),
    ("iozone/read", "PVFS2 2.8.2", [10.85, 10.84, 10.76, 10.81, 10.83, 10.84, 10.84, 10.81]),
    ("iozone/read", "GlusterFS 3.2.7", [1142.37, 20.75, 13.78, 11.8, 11.01, 10.64, 10.48, 10.4]),
];

/// Made up: test, side, MB/s of the smallest file, MB/s of the largest, noise.
const MEASURED: &[(&str, &str, f64, f64, f64)] = &[
    ("iozone/write", "strake", 11.80, 11.93, 0.004),
    ("iozone/write", "glusterfs-10", 11.10, 11.72, 0.02),
    ("iozone/write", "ext4", 900.0, 1450.0, 0.12),
    ("iozone/read", "strake", 2100.0, 11.94, 0.006),
    ("iozone/read", "glusterfs-10", 11.6, 11.9, 0.015),
    ("iozone/read", "ext4", 2900.0, 3300.0, 0.08),
];

/// The report.
pub fn study() -> Report {
    Report {
        title: "Study 1: two servers at 100 Mbit/s".into(),
        command: "strake bench study 1 --on strake=/mnt/strake /mnt/<gluster> ext4=/srv".into(),
        started: 1_795_271_400,
        machine: machine(),
        sides: vec![
            side("strake", "/mnt/strake", "fuse.strake"),
            side("glusterfs-10", "/mnt/<gluster>", "fuse.glusterfs"),
            side("ext4", "/srv", "ext4"),
        ],
        programs: Vec::new(),
        figures: figures(),
        charts: vec![chart("Write", "iozone/write"), chart("Read", "iozone/read")],
        notes: vec!["Caches of the servers could not be dropped: not root on them.".into()],
    }
}

fn machine() -> Machine {
    Machine {
        processor: "AMD EPYC 7B13".into(),
        cores: 2,
        memory: 4 << 30,
        kernel: "Linux 6.1.0-28".into(),
        version: "0.1.0".into(),
    }
}

fn side(name: &str, directory: &str, file_system: &str) -> Side {
    Side { name: name.into(), directory: directory.into(), file_system: file_system.into() }
}

fn chart(title: &str, test: &str) -> Chart {
    Chart { title: title.into(), test: test.into(), across: "size".into(), doubling: true }
}

fn figures() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (at, &(test, side, first, last, noise)) in MEASURED.iter().enumerate() {
        for step in 0..8_u32 {
            let along = f64::from(step) / 7.0;
            // What the cache answers falls off within the first sizes.
            let bent = if first > 10.0 * last { along.powf(0.15) } else { along };
            let middle = first * (last / first).powf(bent) * 1e6;
            let wave = |n: u32| ((f64::from(n * 7 + step * 3) + at as f64) * 1.7).sin();
            let samples = (0..25).map(|n| middle * (1.0 + noise * wave(n) / 2.0)).collect();
            figures.push(figure(side, Origin::Measured, test, Some(step), samples));
        }
    }
    let limit = vec![11.95e6, 11.951e6, 11.949e6];
    figures.push(figure("TCP stream", Origin::Limit, "iozone/", None, limit));
    for (test, side, values) in PUBLISHED {
        for (step, value) in values.iter().enumerate() {
            let samples = vec![value * 1e6];
            figures.push(figure(side, Origin::Published, test, Some(step as u32), samples));
        }
    }
    figures
}

fn figure(side: &str, origin: Origin, test: &str, step: Option<u32>, samples: Vec<f64>) -> Figure {
    let size = step.map(|step| ("size".to_owned(), f64::from(2_u32 << (20 + step))));
    let record = (origin == Origin::Measured).then(|| ("record".to_owned(), 1024.0 * 1024.0));
    let parameters: BTreeMap<_, _> = size.into_iter().chain(record).collect();
    let rule = if origin == Origin::Limit { Rule::Median } else { Rule::TrimmedMean };
    let (side, test) = (side.into(), test.into());
    Figure { side, origin, test, parameters, unit: Unit::BytesPerSecond, samples, rule }
}

/// A report of a tool: several units, and nothing to draw lines along.
pub fn without_charts() -> Report {
    let tests = [
        ("fio/sequential write", Unit::BytesPerSecond, 512e6),
        ("fio/random read", Unit::PerSecond, 41_000.0),
        ("fio/random read, 99 % within", Unit::Seconds, 0.000_73),
        ("bonnie/stat", Unit::PerSecond, 88_000.0),
        ("bonnie/stat, processor", Unit::Percent, 34.0),
    ];
    let mut report = Report { title: "fio and bonnie++".into(), charts: Vec::new(), ..study() };
    report.figures.clear();
    for (test, unit, value) in tests {
        for (side, factor) in [("strake", 1.0), ("glusterfs-10", 0.41), ("ext4", 1.013)] {
            let samples = [0.97, 1.0, 1.02, 0.99, 1.01].map(|n| n * factor * value).to_vec();
            let mut figure = figure(side, Origin::Measured, test, None, samples);
            figure.unit = unit;
            let mut parameters = vec![("threads", 4.0)];
            if unit == Unit::PerSecond {
                parameters.extend([
                    ("files", 16_384.0),
                    ("size", 4_194_304.0),
                    ("record", 65_536.0),
                ]);
            }
            let named = parameters.into_iter().map(|(name, value)| (name.to_owned(), value));
            figure.parameters = named.collect();
            report.figures.push(figure);
        }
    }
    report
}

/// A report with more lines than one plot can hold, each side at every record size.
pub fn many_records() -> Report {
    let mut report = Report { title: "Record sizes".into(), ..study() };
    report.figures.retain(|figure| figure.origin != Origin::Published);
    let measured: Vec<Figure> = report.figures.clone();
    for (at, record) in [4096.0, 65_536.0, 262_144.0].into_iter().enumerate() {
        for figure in measured.iter().filter(|figure| figure.origin == Origin::Measured) {
            let mut figure = figure.clone();
            figure.parameters.insert("record".into(), record);
            figure.samples.iter_mut().for_each(|sample| *sample *= 0.5 + 0.1 * at as f64);
            report.figures.push(figure);
        }
    }
    report
}

/// The study on a newer kernel: one figure slower, one faster, one missing and one of more threads.
pub fn slower() -> Report {
    let mut report = study();
    report.figures.remove(8);
    report.figures[0].samples.iter_mut().for_each(|sample| *sample *= 0.9);
    report.figures[1].samples.iter_mut().for_each(|sample| *sample *= 1.2);
    report.figures[2].parameters.insert("threads".into(), 2.0);
    report.machine.kernel = "Linux 7.0".into();
    report.sides[0].file_system = "ext4".into();
    report
}
