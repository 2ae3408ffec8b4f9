//! That a database has gone back to an earlier state under a server that runs.

use super::KvError;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often parts of an open store have met that. What was acknowledged last is lost then, and people have to see to it.
#[derive(Default)]
pub struct GoneBack(AtomicU64);

impl GoneBack {
    /// A part has met it, and says this of it, once: until it is opened anew all who use it are told the same.
    pub fn note(&self, said: &KvError) {
        self.0.fetch_add(1, Ordering::Relaxed);
        tracing::warn!("{said} (docs/guide/recover.md, \"After metadata was restored\")");
    }

    pub fn times(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
