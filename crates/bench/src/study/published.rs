//! Figures as the studies printed them. "MB" is taken for 10^6 bytes: their link of 100 Mbit/s is
//! 12.5 of them.

use crate::result::{Figure, Origin, Rule, Unit};

/// Bytes of a megabyte as the studies print it.
const MEGABYTE: f64 = 1e6;

/// A figure of a study, in MB/s.
pub fn figure(side: &str, test: &str, parameters: &[(&str, f64)], megabytes: f64) -> Figure {
    Figure {
        side: side.to_owned(),
        origin: Origin::Published,
        test: test.to_owned(),
        parameters: parameters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        unit: Unit::BytesPerSecond,
        samples: vec![megabytes * MEGABYTE],
        rule: Rule::Mean,
    }
}

/// Study 1, a row for each file size of 2, 4, ... 256 MB: write, rewrite, read and reread of PVFS2,
/// then of GlusterFS, then of the local ext3.
pub const STUDY_1: [[f64; 12]; 8] = [
    [
        10.40, 10.78, 10.85, 10.85, 253.31, 248.91, 1142.37, 1155.52, 254.77, 1188.94, 1188.94,
        1171.47,
    ],
    [10.49, 10.78, 10.84, 10.83, 12.00, 11.97, 20.75, 20.74, 259.51, 1203.98, 1203.98, 1547.25],
    [10.62, 10.77, 10.76, 10.82, 7.57, 7.59, 13.78, 13.81, 284.99, 1199.42, 1199.42, 2175.16],
    [10.68, 10.64, 10.81, 10.84, 6.39, 6.42, 11.80, 11.80, 399.52, 1357.48, 1357.48, 2241.90],
    [10.65, 10.72, 10.83, 10.84, 5.95, 5.98, 11.01, 11.01, 536.88, 1516.35, 1516.35, 2549.61],
    [10.68, 10.77, 10.84, 10.84, 5.77, 5.78, 10.64, 10.61, 654.32, 1976.23, 1976.23, 2709.13],
    [10.28, 10.75, 10.84, 10.84, 5.68, 5.47, 10.48, 10.33, 713.51, 2478.18, 2478.18, 2980.01],
    [10.70, 10.74, 10.81, 10.84, 5.63, 5.45, 10.40, 10.07, 740.25, 3129.14, 3129.14, 3151.61],
];

/// The tests and sides of a row of [`STUDY_1`].
pub const STUDY_1_TESTS: [&str; 4] =
    ["iozone/write", "iozone/rewrite", "iozone/read", "iozone/reread"];
/// See [`STUDY_1_TESTS`].
pub const STUDY_1_SIDES: [&str; 3] = ["PVFS2 2.8.2", "GlusterFS 3.2.7", "ext3"];

/// Study 2: MB/s of a disk and threads, then percent of the summed bandwidth of the disks that the
/// local ext3 used, and PVFS2 on 1, 2, 4 and 8 servers.
pub const STUDY_2: [(f64, f64, [f64; 5]); 8] = [
    (2.83, 1.0, [101.0, 88.0, 73.0, 55.0, 34.0]),
    (4.14, 1.0, [102.0, 82.0, 65.0, 48.0, 24.0]),
    (6.18, 1.0, [102.0, 72.0, 56.0, 36.0, 17.0]),
    (6.83, 1.0, [102.0, 71.0, 52.0, 33.0, 15.0]),
    (2.83, 32.0, [94.0, 91.0, 89.0, 78.0, 49.0]),
    (4.14, 32.0, [95.0, 87.0, 86.0, 63.0, 34.0]),
    (6.18, 32.0, [96.0, 78.0, 76.0, 44.0, 23.0]),
    (6.83, 32.0, [95.0, 75.0, 69.0, 40.0, 20.0]),
];
/// Servers of the PVFS2 columns of [`STUDY_2`].
pub const STUDY_2_SERVERS: [u32; 4] = [1, 2, 4, 8];

/// Study 3, MB/s on 1 to 5 servers: the first read of 13 GB, its nine rereads, reads of 65 GB.
pub const STUDY_3: [[f64; 5]; 3] = [
    [127.3, 255.66, 371.64, 498.58, 545.13],
    [128.87, 1091.15, 1000.9, 1091.1, 1008.48],
    [125.88, 250.4, 361.48, 459.73, 545.13],
];
