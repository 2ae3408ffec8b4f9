//! The suite of the contract, which is that of the other engines: its tests are in the engine crate.

#[path = "../../../engine/src/kv/tests/conformance/basics.rs"]
mod basics;
#[path = "../../../engine/src/kv/tests/conformance/concurrent.rs"]
mod concurrent;
#[path = "../../../engine/src/kv/tests/conformance/interleaved.rs"]
mod interleaved;

use super::{Database, run};
use bytes::Bytes;
use std::sync::Arc;
use strake_engine::kv::{Kv, Outcome, Transaction, Writes};

/// What is large enough to show that values may be.
const LARGE: u32 = 3_000_000;

/// The engine under test, and what it may do beyond the well-behaved.
pub struct Subject {
    pub kv: Arc<dyn Kv>,
    /// Commits conflict only if they must, and their answers are never lost.
    pub exact: bool,
    /// The most bytes that one of its values may have here.
    pub value_bytes_max: u32,
    database: Database,
}

impl Subject {
    fn tikv() -> Option<Self> {
        let database = Database::new()?;
        Some(Self { kv: database.open().unwrap(), exact: true, value_bytes_max: LARGE, database })
    }

    /// Commits are cut at random.
    fn tikv_cut() -> Option<Self> {
        let seed = std::env::var("STRAKE_SEED").ok().and_then(|seed| seed.parse().ok());
        let database = Database::cut(seed.unwrap_or(7))?;
        Some(Self { kv: database.open().unwrap(), exact: false, value_bytes_max: LARGE, database })
    }

    /// Closes and opens it again.
    fn reopen(self) -> Self {
        drop(self.kv);
        Self { kv: self.database.open().unwrap(), ..self }
    }

    async fn begin(&self) -> Transaction {
        Transaction::begin(&*self.kv).await.unwrap()
    }

    /// Writes until it is written.
    async fn put(&self, pairs: &[(&str, &str)]) {
        let writes: Vec<_> =
            pairs.iter().map(|(k, v)| (k.as_bytes(), Some(v.as_bytes()))).collect();
        self.write(&writes).await;
    }

    async fn write(&self, pairs: &[(&[u8], Option<&[u8]>)]) {
        let writes: Writes =
            pairs.iter().map(|(k, v)| (k.to_vec(), v.map(Bytes::copy_from_slice))).collect();
        loop {
            let snapshot = self.kv.snapshot().await.unwrap();
            // What is written here is the same each time, so an unknown outcome is tried again.
            if self.kv.commit(snapshot, writes.clone()).await.unwrap() == Outcome::Committed {
                return;
            }
            assert!(!self.exact, "nobody else writes");
        }
    }

    async fn get(&self, key: &str) -> Option<Bytes> {
        self.kv.snapshot().await.unwrap().get(key.as_bytes()).await.unwrap()
    }
}

/// A test of the suite that is in no list here is dead code, which clippy finds.
macro_rules! suite {
    ($engine:ident; $($room:ident: $($test:ident),+;)+) => {
        mod $engine {
            $($(
                #[test]
                fn $test() {
                    if let Some(subject) = super::Subject::$engine() {
                        super::$room::$test(subject);
                    }
                }
            )+)+
        }
    };
}

macro_rules! conformance {
    ($($engine:ident),+) => {
        $(suite! {
            $engine;
            basics:
                a_snapshot_does_not_move,
                the_second_of_two_writers_conflicts,
                a_conflict_writes_nothing,
                readers_do_not_conflict,
                write_skew_is_permitted,
                a_guard_prevents_write_skew,
                deleted_keys_are_gone_and_can_come_back,
                any_bytes_can_be_keys_and_values,
                large_values_come_back,
                own_writes_are_seen_before_the_commit,
                bounds_the_wrong_way_round_hold_nothing,
                everything_is_there_after_reopening,
                sync_returns_with_and_without_writes;
            interleaved:
                transactions_behave_as_the_model_says;
            concurrent:
                no_update_is_lost,
                every_snapshot_sees_whole_transfers,
                many_syncs_at_once_all_return;
        })+
    };
}

conformance!(tikv, tikv_cut);
