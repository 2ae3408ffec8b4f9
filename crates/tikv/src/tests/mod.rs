//! The contract, and what only an engine on a cluster can meet, against a double of TiKV.
//!
//! The double (`double/`, a program in Go) is TiKV as the tests of its own client know it, behind gRPC. Where there
//! is no Go, these tests say so and are skipped.

#[macro_use]
#[path = "../../../engine/src/kv/tests/suite/mod.rs"]
mod suite;

mod conformance;
mod cut;
mod double;
mod shared;

use crate::keys::Keys;
use crate::open_tikv;
use double::Double;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use strake_engine::kv::{DatabaseOptions, Result, Store};
use suite::shared::Shared;

/// A name of its own in a double, where its keys are in several regions.
pub struct Database {
    options: DatabaseOptions,
    double: Arc<Double>,
}

impl Database {
    /// In the double that all tests share. `None`: there is none.
    fn new() -> Option<Self> {
        Some(Self::in_double(Double::shared()?))
    }

    /// In a double of its own, so that it can be disturbed.
    fn alone() -> Option<Self> {
        Some(Self::in_double(Arc::new(Double::start()?)))
    }

    /// In one that cuts prewrites and commits at random.
    fn cut(seed: u64) -> Option<Self> {
        let database = Self::alone()?;
        database.double.order(&format!("cut 8 {seed}"));
        Some(database)
    }

    fn in_double(double: Arc<Double>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let keys = Keys::new(&name);
        for first in [&b""[..], b"account/4", b"b", b"\xfe"] {
            double.split(&keys.data(first));
        }
        let options = DatabaseOptions {
            url: format!("tikv://127.0.0.1:{}/{name}", double.port),
            store: "own".into(),
            create: true,
            host: "here".into(),
            wait_ms_max: 20_000,
        };
        Self { options, double }
    }
}

impl Shared for Database {
    // More take the double long.
    const PAIRS: u32 = 3_000;

    fn options(&mut self) -> &mut DatabaseOptions {
        &mut self.options
    }

    fn store(&self) -> Result<Arc<dyn Store>> {
        open_tikv(&self.options)
    }

    fn cuts(&self) -> u32 {
        self.double.order("cuts").parse().unwrap()
    }
}
