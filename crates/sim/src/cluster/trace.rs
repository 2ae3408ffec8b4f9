//! What has happened, as lines that are shown and as one number that is compared.

use std::time::Duration;

/// 64-bit FNV-1a: two traces that differ have, but for chance, two digests.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
/// Lines kept to be shown when something goes wrong.
const LINES_MAX: usize = 200_000;

/// The trace of a run.
pub struct Trace {
    digest: u64,
    lines: Vec<String>,
    keep: bool,
}

impl Trace {
    /// An empty one; `keep`: its lines are wanted.
    pub fn new(keep: bool) -> Self {
        Self { digest: FNV_START, lines: Vec::new(), keep }
    }

    /// Notes what has happened at a time since the beginning.
    pub fn note(&mut self, now: Duration, what: std::fmt::Arguments<'_>) {
        let line = format!("{:9.3} {what}", now.as_secs_f64());
        for byte in line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        tracing::info!(target: "sim", "{line}");
        if self.keep && self.lines.len() < LINES_MAX {
            self.lines.push(line);
        }
    }

    /// A number that differs between two traces, but for chance.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The lines kept.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}
