//! Counts and times per operation: `strake_fuse_ops_total{op}`, `strake_fuse_op_seconds{op}`.

use crate::abi::OPCODES;
use metrics::{Counter, Histogram, counter, describe_counter, describe_histogram, histogram};
use std::time::Instant;

/// The instruments of every opcode, looked up once.
pub struct Metrics {
    by_opcode: Vec<(Counter, Histogram)>,
}

/// Measures one operation.
pub struct Timer {
    started: Instant,
    seconds: Histogram,
}

impl Metrics {
    /// Registers the instruments with the recorder that is installed now.
    pub fn register() -> Self {
        describe();
        let last = OPCODES.iter().map(|(code, _)| *code).max().unwrap_or_default();
        let instruments = |code: u32| {
            let known = OPCODES.iter().find(|(opcode, _)| *opcode == code);
            match known {
                Some((_, op)) => (
                    counter!("strake_fuse_ops_total", "op" => *op),
                    histogram!("strake_fuse_op_seconds", "op" => *op),
                ),
                None => (Counter::noop(), Histogram::noop()),
            }
        };
        Self { by_opcode: (0..=last).map(instruments).collect() }
    }

    /// An operation begins.
    pub fn start(&self, opcode: u32) -> Timer {
        let seconds = match self.by_opcode.get(opcode as usize) {
            Some((count, seconds)) => {
                count.increment(1);
                seconds.clone()
            }
            None => Histogram::noop(),
        };
        Timer { started: Instant::now(), seconds }
    }
}

/// Texts for the metrics page.
fn describe() {
    describe_counter!("strake_fuse_ops_total", "Requests of the kernel.");
    describe_histogram!(
        "strake_fuse_op_seconds",
        "Time until a request of the kernel is answered."
    );
    describe_counter!(
        "strake_fuse_prefetched_bytes_total",
        "Bytes of files read here and there that the kernel was made to fetch."
    );
}

impl Timer {
    /// It has been answered.
    pub fn stop(&self) {
        self.seconds.record(self.started.elapsed());
    }
}
