//! Counters and histograms, one of each per operation, looked up once.

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use std::time::Duration;
use strake_wire::message::meta::MetaOp;

const NAMES: [&str; 38] = [
    "open_session",
    "renew_session",
    "close_session",
    "lookup",
    "getattr",
    "setattr",
    "create",
    "link",
    "unlink",
    "rename",
    "readlink",
    "open",
    "readdir",
    "publish",
    "write_inline",
    "move_out",
    "getxattr",
    "listxattr",
    "setxattr",
    "removexattr",
    "setlock",
    "getlock",
    "sync",
    "statfs",
    "get_template",
    "set_template",
    "read_inline",
    "describe",
    "check",
    "recalls",
    "list_clients",
    "evict_client",
    "settle",
    "told",
    "borrow",
    "give_back",
    "claim",
    "behind",
];

fn index(op: &MetaOp) -> usize {
    match op {
        MetaOp::OpenSession(_) => 0,
        MetaOp::RenewSession(_) => 1,
        MetaOp::CloseSession(_) => 2,
        MetaOp::Lookup(_) => 3,
        MetaOp::GetAttr(_) => 4,
        MetaOp::SetAttr(_) => 5,
        MetaOp::Create(_) => 6,
        MetaOp::Link(_) => 7,
        MetaOp::Unlink(_) => 8,
        MetaOp::Rename(_) => 9,
        MetaOp::ReadLink(_) => 10,
        MetaOp::Open(_) => 11,
        MetaOp::ReadDir(_) => 12,
        MetaOp::Publish(_) => 13,
        MetaOp::WriteInline(_) => 14,
        MetaOp::MoveOut(_) => 15,
        MetaOp::GetXattr(_) => 16,
        MetaOp::ListXattr(_) => 17,
        MetaOp::SetXattr(_) => 18,
        MetaOp::RemoveXattr(_) => 19,
        MetaOp::SetLock(_) => 20,
        MetaOp::GetLock(_) => 21,
        MetaOp::Sync(_) => 22,
        MetaOp::VolumeStat(_) => 23,
        MetaOp::GetTemplate(_) => 24,
        MetaOp::SetTemplate(_) => 25,
        MetaOp::ReadInline(_) => 26,
        MetaOp::Describe(_) => 27,
        MetaOp::Check(_) => 28,
        MetaOp::Recalls(_) => 29,
        MetaOp::ListClients(_) => 30,
        MetaOp::EvictClient(_) => 31,
        MetaOp::Settle(_) => 32,
        MetaOp::Told(_) => 33,
        MetaOp::Borrow(_) => 34,
        MetaOp::GiveBack(_) => 35,
        MetaOp::Claim(_) => 36,
        MetaOp::Behind(_) => 37,
    }
}

/// The metrics of one operation.
struct OpMetrics {
    count: Counter,
    errors: Counter,
    seconds: Histogram,
}

/// The metrics of a metadata server.
pub(crate) struct Metrics {
    ops: Vec<OpMetrics>,
    /// Sessions open.
    pub sessions: Gauge,
    /// Inodes that wait for deletion or for a cut.
    pub backlog: Gauge,
    /// Transactions that lost against another.
    pub conflicts: Counter,
    /// Changes of names that were carried out together with others.
    pub merged: Counter,
}

impl Metrics {
    /// Looks all of them up in the recorder that is installed now.
    pub fn new() -> Self {
        describe();
        let op = |name: &'static str| OpMetrics {
            count: counter!("strake_meta_ops_total", "op" => name),
            errors: counter!("strake_meta_errors_total", "op" => name),
            seconds: histogram!("strake_meta_op_seconds", "op" => name),
        };
        Metrics {
            ops: NAMES.into_iter().map(op).collect(),
            sessions: gauge!("strake_meta_sessions"),
            backlog: gauge!("strake_meta_reaper_backlog"),
            conflicts: counter!("strake_meta_conflicts_total"),
            merged: counter!("strake_meta_merged_total"),
        }
    }

    /// Where an operation is counted.
    pub fn slot(op: &MetaOp) -> usize {
        index(op)
    }

    /// Counts an operation that has ended.
    pub fn record(&self, slot: usize, took: Duration, failed: bool) {
        let op = &self.ops[slot];
        op.count.increment(1);
        op.seconds.record(took.as_secs_f64());
        if failed {
            op.errors.increment(1);
        }
    }
}

/// Texts for the metrics page.
fn describe() {
    describe_counter!("strake_meta_ops_total", "Operations on names and attributes.");
    describe_counter!(
        "strake_meta_errors_total",
        "Operations on names and attributes that failed."
    );
    describe_histogram!("strake_meta_op_seconds", "Time of an operation on names and attributes.");
    describe_gauge!("strake_meta_sessions", "Sessions of clients that are open.");
    describe_gauge!("strake_meta_reaper_backlog", "Files that wait to be deleted or cut.");
    describe_counter!("strake_meta_conflicts_total", "Transactions that lost against another one.");
    describe_counter!(
        "strake_meta_merged_total",
        "Changes of names carried out together with others."
    );
}
