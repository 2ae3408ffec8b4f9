//! Counters and histograms of the client.

use crate::volume::Volume;
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use std::time::Duration;

macro_rules! ops {
    ($($name:ident = $label:literal,)*) => {
        /// The operations that are counted.
        #[derive(Clone, Copy)]
        pub(crate) enum Op { $($name,)* }

        impl Op {
            const ALL: &[Op] = &[$(Op::$name,)*];

            fn label(self) -> &'static str {
                match self { $(Op::$name => $label,)* }
            }
        }
    };
}

ops! {
    Lookup = "lookup",
    GetAttr = "getattr",
    SetAttr = "setattr",
    Make = "make",
    Create = "create",
    Link = "link",
    Unlink = "unlink",
    Rmdir = "rmdir",
    Rename = "rename",
    ReadLink = "readlink",
    ReadDir = "readdir",
    Open = "open",
    Read = "read",
    Write = "write",
    Flush = "flush",
    Fsync = "fsync",
    Release = "release",
    Fallocate = "fallocate",
    Seek = "seek",
    CopyRange = "copy_range",
    Xattr = "xattr",
    Lock = "lock",
    Space = "statfs",
    Layout = "layout",
}

/// Handles of everything counted often, looked up once per volume.
pub(crate) struct Metrics {
    total: Vec<Counter>,
    seconds: Vec<Histogram>,
    attr_hits: Counter,
    attr_misses: Counter,
    pub(crate) ahead_hits: Counter,
    pub(crate) ahead_misses: Counter,
    pub(crate) kept_hits: Counter,
    pub(crate) kept_bytes: Gauge,
    pub(crate) listing_bytes: Gauge,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) dirty_bytes: Gauge,
    /// Reads that two members were asked for, because the first was slow.
    pub(crate) reads_hedged: Counter,
    /// Reads that another member was asked for, because one could not answer.
    pub(crate) reads_elsewhere: Counter,
    /// Reads answered with a wrong checksum, or refused because of one.
    pub(crate) reads_corrupt: Counter,
    /// Calls sent again because their group had changed.
    pub(crate) failovers: Counter,
}

impl Metrics {
    /// Metrics go to the recorder that is installed at this moment.
    pub(crate) fn new() -> Self {
        describe();
        let total = |op: &Op| counter!("strake_client_ops_total", "op" => op.label());
        let seconds = |op: &Op| histogram!("strake_client_op_seconds", "op" => op.label());
        let hits = |cache| counter!("strake_client_cache_hits_total", "cache" => cache);
        let misses = |cache| counter!("strake_client_cache_misses_total", "cache" => cache);
        let bytes = |dir| counter!("strake_client_bytes_total", "dir" => dir);
        Self {
            total: Op::ALL.iter().map(total).collect(),
            seconds: Op::ALL.iter().map(seconds).collect(),
            attr_hits: hits("attr"),
            attr_misses: misses("attr"),
            ahead_hits: hits("read_ahead"),
            ahead_misses: misses("read_ahead"),
            kept_hits: hits("kept"),
            kept_bytes: gauge!("strake_client_kept_bytes"),
            listing_bytes: gauge!("strake_client_listing_bytes"),
            bytes_read: bytes("read"),
            bytes_written: bytes("write"),
            dirty_bytes: gauge!("strake_client_dirty_bytes"),
            reads_hedged: counter!("strake_client_reads_hedged_total"),
            reads_elsewhere: counter!("strake_client_reads_elsewhere_total"),
            reads_corrupt: counter!("strake_client_reads_corrupt_total"),
            failovers: counter!("strake_client_failovers_total"),
        }
    }

    pub(crate) fn attr_cache(&self, hit: bool) {
        let counter = if hit { &self.attr_hits } else { &self.attr_misses };
        counter.increment(1);
    }
}

/// Texts for the metrics page.
fn describe() {
    describe_counter!("strake_client_ops_total", "Operations on a mounted volume.");
    describe_histogram!("strake_client_op_seconds", "Time of an operation on a mounted volume.");
    describe_counter!("strake_client_cache_hits_total", "What was asked for and was in memory.");
    describe_counter!(
        "strake_client_cache_misses_total",
        "What was asked for and was not in memory."
    );
    describe_counter!("strake_client_bytes_total", "Bytes that programs have read and written.");
    describe_gauge!("strake_client_kept_bytes", "Bytes of contents kept for the next reader.");
    describe_gauge!("strake_client_listing_bytes", "Bytes of listings of directories kept.");
    describe_gauge!("strake_client_dirty_bytes", "Bytes written that are yet to be sent.");
    describe_counter!(
        "strake_client_read_ahead_wasted_bytes_total",
        "Bytes read ahead and never used."
    );
    describe_counter!(
        "strake_client_reads_hedged_total",
        "Reads that another copy was asked for, too, because the first one was slow."
    );
    describe_counter!(
        "strake_client_reads_elsewhere_total",
        "Reads that another copy was asked for because one could not answer."
    );
    describe_counter!(
        "strake_client_reads_corrupt_total",
        "Reads answered with a wrong checksum, or refused because of one."
    );
    describe_counter!(
        "strake_client_failovers_total",
        "Calls sent again because their group had changed."
    );
}

/// Notes, when dropped, the time that an operation took.
pub(crate) struct Timer<'a> {
    volume: &'a Volume,
    op: Op,
    started: Duration,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        let took = self.volume.clock().monotonic().saturating_sub(self.started);
        self.volume.metrics().seconds[self.op as usize].record(took);
    }
}

impl Volume {
    /// Counts an operation; its time is noted when what is returned is dropped.
    pub(crate) fn count(&self, op: Op) -> Timer<'_> {
        self.metrics().total[op as usize].increment(1);
        Timer { volume: self, op, started: self.clock().monotonic() }
    }
}
