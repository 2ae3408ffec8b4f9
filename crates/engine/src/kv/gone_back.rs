//! That a database has gone back to an earlier state under a server that runs.

use super::KvError;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often parts of an open store have met that. What was acknowledged last is lost then, and people have to see to it.
/// Whatever was opened before has to be opened anew, also what has met nothing yet, as nothing was written in it since.
#[derive(Default)]
pub struct GoneBack(AtomicU64);

impl GoneBack {
    /// A part that was opened when it was so often has met it, and says this of it: once for all that were opened by then.
    pub fn note(&self, at_opening: u64, said: &KvError) {
        let (met, order) = (at_opening + 1, Ordering::SeqCst);
        if self.0.compare_exchange(at_opening, met, order, order).is_ok() {
            tracing::warn!("{said} (docs/guide/recover.md, \"After metadata was restored\")");
        }
    }

    pub fn times(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
