//! The contract, as tests of any engine. The list of them is here: one that is missing in it is dead code, which clippy finds.

pub mod basics;
pub mod concurrent;
pub mod cut;
pub mod interleaved;
pub mod shared;

use crate::kv::{Kv, Outcome, Result, Transaction, Writes};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;

/// What is large enough to show that values may be.
pub const LARGE: u32 = 3_000_000;

/// Of what is done at random.
pub fn seed() -> u64 {
    std::env::var("STRAKE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7)
}

/// An engine under test, and what it may do beyond the well-behaved.
pub struct Subject {
    pub kv: Arc<dyn Kv>,
    /// Commits conflict only if they must, and their answers are never lost.
    pub exact: bool,
    /// The most bytes that one of its values may have here.
    pub value_bytes_max: u32,
    /// Opens it again, where that means anything to it.
    pub again: Option<Box<dyn Fn() -> Arc<dyn Kv>>>,
}

impl Subject {
    /// One that is opened by this, again and again.
    pub fn kept(exact: bool, open: impl Fn() -> Arc<dyn Kv> + 'static) -> Self {
        Self { kv: open(), exact, value_bytes_max: LARGE, again: Some(Box::new(open)) }
    }

    /// Closes and opens it again, if that means anything to it.
    fn reopen(self) -> Self {
        let Self { kv, exact, value_bytes_max, again } = self;
        let Some(open) = again else { return Self { kv, exact, value_bytes_max, again: None } };
        drop(kv);
        Self { kv: open(), exact, value_bytes_max, again: Some(open) }
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

pub fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub async fn put(kv: &dyn Kv, key: &str, value: &'static str) -> Result<Outcome> {
    let mut transaction = Transaction::begin(kv).await?;
    transaction.put(key.as_bytes().to_vec(), value);
    transaction.commit(kv).await
}

pub async fn get(kv: &dyn Kv, key: &str) -> Option<Vec<u8>> {
    let snapshot = kv.snapshot().await.unwrap();
    snapshot.get(key.as_bytes()).await.unwrap().map(|value| value.to_vec())
}

/// What is to be tested where there is no such engine is `None`.
macro_rules! suite {
    ($engine:ident: $make:expr; $($room:ident: $($test:ident),+;)+) => {
        mod $engine {
            $($(
                #[test]
                fn $test() {
                    if let Some(subject) = $make {
                        super::suite::$room::$test(subject);
                    }
                }
            )+)+
        }
    };
}

/// Of every engine.
macro_rules! conformance {
    ($($engine:ident: $make:expr;)+) => {
        $(suite! {
            $engine: $make;
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

/// Of an engine on a database.
macro_rules! shared_store {
    ($($engine:ident: $make:expr;)+) => {
        $(suite! {
            $engine: $make;
            shared:
                a_later_start_of_the_same_server_takes_over,
                parts_of_a_store_are_taken_over_one_by_one,
                the_store_of_another_server_is_refused,
                a_store_that_was_begun_and_never_used_is_no_hindrance;
        })+
    };
}

/// Of an engine on a database that is reached through a network that cuts commits at random.
macro_rules! cut_store {
    ($($engine:ident: $make:expr;)+) => {
        $(suite! {
            $engine: $make;
            cut:
                commits_that_were_cut_happen_once,
                a_store_is_moved_there_and_back_although_commits_are_cut;
        })+
    };
}
