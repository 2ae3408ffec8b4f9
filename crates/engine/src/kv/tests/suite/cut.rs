//! Connections that are cut at a commit.

use super::run;
use super::shared::Shared;
use crate::kv::memory::MemoryKv;
use crate::kv::{Kv, Outcome, Transaction, dump};
use std::ops::Bound;

pub fn commits_that_were_cut_happen_once(database: impl Shared) {
    let kv = database.open().unwrap();
    run(async {
        for i in 0..200_u64 {
            loop {
                let mut transaction = Transaction::begin(&*kv).await.unwrap();
                let before = transaction.get(b"n").await.unwrap();
                let before = before.map_or(0, |v| u64::from_be_bytes(v[..].try_into().unwrap()));
                assert_eq!(before, i);
                transaction.put(b"n".to_vec(), (i + 1).to_be_bytes().to_vec());
                // The outcome is found out, so that a conflict means that nothing was written.
                match transaction.commit(&*kv).await.unwrap() {
                    Outcome::Committed => break,
                    Outcome::Conflict => {}
                    Outcome::Unknown => panic!("the database can be reached"),
                }
            }
        }
    });
    let cuts = database.cuts();
    assert!(cuts > 10, "{cuts} cuts");
}

pub fn a_store_is_moved_there_and_back_although_commits_are_cut<S: Shared>(database: S) {
    let dir = tempfile::tempdir().unwrap();
    let (there, back) = (dir.path().join("there"), dir.path().join("back"));
    let kv = database.open().unwrap();
    let (from, to) = (MemoryKv::new(), MemoryKv::new());
    run(async {
        let mut transaction = Transaction::begin(&from).await.unwrap();
        for nth in 0..S::PAIRS {
            transaction.put(nth.to_be_bytes().to_vec(), vec![nth as u8; nth as usize % 300]);
        }
        assert_eq!(transaction.commit(&from).await.unwrap(), Outcome::Committed);
        let moved = dump::export(&from, "", &there, None).await.unwrap();
        dump::import(&*kv, &there, &moved, |_| ()).await.unwrap();
        assert_eq!(moved.pairs, u64::from(S::PAIRS));
        let again = dump::export(&*kv, "", &back, None).await.unwrap();
        assert_eq!((again.pairs, again.bytes), (moved.pairs, moved.bytes));
        assert!(dump::is_what_was_exported(&*kv, &again.id).await.unwrap());
        dump::forget(&*kv).await.unwrap();
        dump::import(&to, &back, &again, |_| ()).await.unwrap();
        let all = async |kv: &MemoryKv| {
            let snapshot = kv.snapshot().await.unwrap();
            snapshot.scan(Bound::Unbounded, Bound::Excluded(b"!"), usize::MAX).await.unwrap()
        };
        assert_eq!(all(&to).await, all(&from).await);
    });
}
