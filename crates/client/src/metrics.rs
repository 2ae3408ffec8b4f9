//! Counters and histograms of the client.

use crate::volume::Volume;
use std::time::Duration;

macro_rules! ops {
    ($($name:ident = $label:literal,)*) => {
        /// The operations that are counted.
        #[derive(Clone, Copy)]
        pub(crate) enum Op { $($name,)* }

        impl Op {
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

/// Counts an operation and, when dropped, the time it took.
pub(crate) struct Timer<'a> {
    volume: &'a Volume,
    op: Op,
    started: Duration,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        let took = self.volume.clock().monotonic().saturating_sub(self.started);
        metrics::histogram!("strake_client_op_seconds", "op" => self.op.label()).record(took);
    }
}

impl Volume {
    pub(crate) fn count(&self, op: Op) -> Timer<'_> {
        metrics::counter!("strake_client_ops_total", "op" => op.label()).increment(1);
        Timer { volume: self, op, started: self.clock().monotonic() }
    }

    pub(crate) fn cache_hit(&self, cache: &'static str) {
        metrics::counter!("strake_client_cache_hits_total", "cache" => cache).increment(1);
    }

    pub(crate) fn cache_miss(&self, cache: &'static str) {
        metrics::counter!("strake_client_cache_misses_total", "cache" => cache).increment(1);
    }
}
