//! One suite for every engine: the contract, as tests.

mod basics;
mod concurrent;
mod interleaved;

use super::etcd::EtcdDatabase;
use super::postgres::Database;
use crate::kv::memory::{MemoryKv, Rates};
use crate::kv::{EngineKind, Kv, KvError, Outcome, Transaction, Writes, open};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use tempfile::TempDir;

/// What any engine takes as one value, and etcd, which refuses larger requests unless told otherwise.
const LARGE: u32 = 3_000_000;
const ETCD_LARGE: u32 = 1_400_000;

/// An engine under test, and what it may do beyond the well-behaved.
pub struct Subject {
    pub kv: Arc<dyn Kv>,
    /// Commits conflict only if they must, and their answers are never lost.
    pub exact: bool,
    /// The most bytes that one of its values may have here.
    pub value_bytes_max: u32,
    kept: Kept,
}

/// By what it can be opened again.
enum Kept {
    Nothing,
    Directory(EngineKind, TempDir),
    Database(Database),
    Etcd(EtcdDatabase),
}

impl Subject {
    fn memory() -> Self {
        Self {
            kv: Arc::new(MemoryKv::new()),
            exact: true,
            value_bytes_max: LARGE,
            kept: Kept::Nothing,
        }
    }

    fn adversary() -> Self {
        let seed = std::env::var("STRAKE_SEED").ok().and_then(|seed| seed.parse().ok());
        let kv = MemoryKv::adversarial(seed.unwrap_or(7), Rates::ROUGH);
        Self { kv: Arc::new(kv), exact: false, value_bytes_max: LARGE, kept: Kept::Nothing }
    }

    fn embedded(kind: EngineKind) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kv = open(kind, directory.path()).unwrap();
        Self { kv, exact: true, value_bytes_max: LARGE, kept: Kept::Directory(kind, directory) }
    }

    fn postgres() -> Self {
        let database = Database::new();
        Self {
            kv: database.open().unwrap(),
            exact: true,
            value_bytes_max: LARGE,
            kept: Kept::Database(database),
        }
    }

    /// Commits are cut at random.
    fn postgres_cut() -> Self {
        let seed = std::env::var("STRAKE_SEED").ok().and_then(|seed| seed.parse().ok());
        let database = Database::cut(seed.unwrap_or(7));
        Self {
            kv: database.open().unwrap(),
            exact: false,
            value_bytes_max: LARGE,
            kept: Kept::Database(database),
        }
    }

    fn etcd() -> Self {
        let (kv, value_bytes_max) = (EtcdDatabase::new(), ETCD_LARGE);
        Self { kv: kv.open().unwrap(), exact: true, value_bytes_max, kept: Kept::Etcd(kv) }
    }

    /// Commits are cut at random.
    fn etcd_cut() -> Self {
        let seed = std::env::var("STRAKE_SEED").ok().and_then(|seed| seed.parse().ok());
        let (kv, value_bytes_max) = (EtcdDatabase::cut(seed.unwrap_or(7)), ETCD_LARGE);
        Self { kv: kv.open().unwrap(), exact: false, value_bytes_max, kept: Kept::Etcd(kv) }
    }

    /// Closes and opens it again, if that means anything to it.
    fn reopen(self) -> Self {
        if let Kept::Nothing = self.kept {
            return self;
        }
        drop(self.kv);
        let kv = match &self.kept {
            Kept::Nothing => unreachable!("returned above"),
            Kept::Directory(kind, directory) => open(*kind, directory.path()).unwrap(),
            Kept::Database(database) => database.open().unwrap(),
            Kept::Etcd(database) => database.open().unwrap(),
        };
        Self { kv, ..self }
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

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

macro_rules! suite {
    ($engine:ident: $make:expr; $($room:ident: $($test:ident),+;)+) => {
        mod $engine {
            $($(
                #[test]
                fn $test() {
                    super::$room::$test($make);
                }
            )+)+
        }
    };
}

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

conformance! {
    memory: super::Subject::memory();
    adversary: super::Subject::adversary();
    fjall: super::Subject::embedded(crate::kv::EngineKind::Fjall);
    redb: super::Subject::embedded(crate::kv::EngineKind::Redb);
    postgres: super::Subject::postgres();
    postgres_cut: super::Subject::postgres_cut();
    etcd: super::Subject::etcd();
    etcd_cut: super::Subject::etcd_cut();
}

#[test]
fn a_store_cannot_be_opened_twice() {
    for kind in EngineKind::ALL {
        let directory = tempfile::tempdir().unwrap();
        let kv = open(kind, directory.path()).unwrap();
        assert!(matches!(open(kind, directory.path()), Err(KvError::InUse { .. })));
        drop(kv);
        open(kind, directory.path()).unwrap();
    }
}

#[test]
fn a_newer_or_older_format_is_refused() {
    for kind in EngineKind::ALL {
        for format in [1, 3] {
            let directory = tempfile::tempdir().unwrap();
            let text = format!("strake metadata store\nformat {format}\nengine {kind}\n");
            std::fs::write(directory.path().join("format"), text).unwrap();
            match open(kind, directory.path()).err().unwrap() {
                KvError::Newer { found: 3, known: 2, .. } => assert_eq!(format, 3),
                KvError::Older { found: 1, known: 2, .. } => assert_eq!(format, 1),
                error => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_store_of_another_engine_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(EngineKind::Redb, directory.path()).unwrap());
    let error = open(EngineKind::Fjall, directory.path()).err().unwrap();
    assert!(error.to_string().contains("made by engine redb"), "{error}");
    assert!(error.to_string().ends_with("use --engine redb"), "{error}");
}

#[test]
fn a_damaged_or_missing_format_file_is_corruption() {
    for kind in EngineKind::ALL {
        let directory = tempfile::tempdir().unwrap();
        drop(open(kind, directory.path()).unwrap());
        let file = directory.path().join("format");
        std::fs::write(&file, "strake met").unwrap();
        assert!(matches!(open(kind, directory.path()), Err(KvError::Corrupt { .. })));
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(open(kind, directory.path()), Err(KvError::Corrupt { .. })));
    }
}

#[test]
fn engines_are_known_by_name() {
    for kind in EngineKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let error = "rocksdb".parse::<EngineKind>().unwrap_err();
    assert!(error.to_string().contains("fjall and redb"));
}
