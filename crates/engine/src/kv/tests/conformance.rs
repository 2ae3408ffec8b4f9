//! One suite for every engine: the contract, as tests.

use super::etcd::etcd;
use super::postgres::postgres;
use super::reached::Reached;
use super::suite::shared::Shared as _;
use super::suite::{self, LARGE, Subject, seed};
use crate::kv::memory::{MemoryKv, Rates};
use crate::kv::{EngineKind, KvError, open};
use std::sync::Arc;

/// etcd refuses larger requests unless told otherwise.
const ETCD_LARGE: u32 = 1_400_000;

fn memory(kv: MemoryKv, exact: bool) -> Option<Subject> {
    Some(Subject { kv: Arc::new(kv), exact, value_bytes_max: LARGE, again: None })
}

fn embedded(kind: EngineKind) -> Option<Subject> {
    let directory = tempfile::tempdir().unwrap();
    Some(Subject::kept(true, move || open(kind, directory.path()).unwrap()))
}

fn database(database: Reached, value_bytes_max: u32, exact: bool) -> Option<Subject> {
    let subject = Subject::kept(exact, move || database.open().unwrap());
    Some(Subject { value_bytes_max, ..subject })
}

fn adversarial() -> MemoryKv {
    MemoryKv::adversarial(seed(), Rates::ROUGH)
}

conformance! {
    memory: super::memory(super::MemoryKv::new(), true);
    adversary: super::memory(super::adversarial(), false);
    fjall: super::embedded(super::EngineKind::Fjall);
    redb: super::embedded(super::EngineKind::Redb);
    postgres: super::database(super::postgres(), super::LARGE, true);
    postgres_cut: super::database(super::postgres().cut(super::seed()), super::LARGE, false);
    etcd: super::database(super::etcd(), super::ETCD_LARGE, true);
    etcd_cut: super::database(super::etcd().cut(super::seed()), super::ETCD_LARGE, false);
}

shared_store! {
    postgres_shared: Some(super::postgres());
    etcd_shared: Some(super::etcd());
}

cut_store! {
    postgres_shared_cut: Some(super::postgres().cut(11));
    etcd_shared_cut: Some(super::etcd().cut(11));
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
