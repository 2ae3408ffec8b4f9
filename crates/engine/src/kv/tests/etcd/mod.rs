//! What only the engine on etcd can meet: cut connections, members that die, refusals, and a second writer.

mod encrypted;
mod members;
mod parts;
mod refusals;
#[path = "../../../../../../tests/src/etcd.rs"]
mod server;

// Where `server` looks for it, as in its own crate.
use super::guard;
use super::proxy::Protocol;
use super::reached::{self, Reached};
use super::suite::shared::Shared as _;
use super::suite::{get, put, run};
use crate::kv::{DatabaseOptions, Kv, KvError, Outcome, Part, Store, Transaction, open_database};
use server::EtcdServer;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// On the test program's etcd.
pub fn etcd() -> Reached {
    etcd_on(EtcdServer::shared())
}

fn etcd_on(server: &EtcdServer) -> Reached {
    Reached::new(Protocol::Etcd, server.port(0), server.url(&server.name()))
}

#[test]
fn a_commit_is_unknown_while_etcd_is_away_and_settled_by_the_next_read() {
    reached::a_commit_is_unknown_while_it_is_away(etcd());
}

#[test]
fn a_commit_that_arrives_when_it_was_given_up_does_not_happen() {
    reached::a_late_commit_does_not_happen(etcd());
}

/// It was given up as well, and meanwhile another has opened the part.
#[test]
fn a_commit_that_arrives_after_a_takeover_does_not_happen() {
    let mut database = etcd();
    let direct = database.options.clone();
    database = database.through();
    database.options.wait_ms_max = 5_000;
    let kv = database.open().unwrap();
    let state = database.state();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        transaction.put(b"a".to_vec(), "late");
        state.hold_commit.store(true, Ordering::SeqCst);
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Unknown);
        let next = open_database(&direct).unwrap().open(Part::Whole).await.unwrap();
        assert_eq!(get(&*next, "a").await.unwrap(), b"1");
        state.hold_commit.store(false, Ordering::SeqCst);
        while !state.arrived.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(get(&*next, "a").await.unwrap(), b"1");
        state.down.store(false, Ordering::SeqCst);
        let error = kv.snapshot().await.err().unwrap();
        assert!(matches!(error, KvError::TakenOver { .. }), "{error}");
        assert!(kv.is_taken_over());
    });
}

/// Many open the same part at the same time: each is told who follows, and the last one writes.
#[test]
fn of_many_who_open_at_once_one_is_left() {
    let database = etcd();
    let store = database.store().unwrap();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let open = |part| {
            let store = store.clone();
            move || run(store.open(part)).unwrap()
        };
        let parts = [Part::Whole, Part::Volume(1), Part::Whole, Part::Volume(1), Part::Whole];
        let all: Vec<_> = parts.into_iter().map(|part| scope.spawn(open(part))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let written = opened.iter().filter(|kv| {
        let written = run(put(&***kv, "a", "1"));
        assert!(matches!(written, Ok(Outcome::Committed) | Err(KvError::TakenOver { .. })));
        written.is_ok()
    });
    assert_eq!(written.count(), 1);
}

/// A writer whose receipts were cleaned up long ago is told that he is followed, and nothing else.
#[test]
fn receipts_of_old_writers_are_cleaned_up() {
    let database = etcd();
    let store = database.store().unwrap();
    run(async {
        let first = store.open(Part::Volume(1)).await.unwrap();
        let mut late = Transaction::begin(&*first).await.unwrap();
        late.put(b"a".to_vec(), "late");
        for _ in 0..30 {
            let kv = store.open(Part::Volume(1)).await.unwrap();
            assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        }
        assert!(matches!(late.commit(&*first).await, Err(KvError::TakenOver { .. })));
        let prefix = format!("{}/receipt/", database.name());
        let left = EtcdServer::shared().ctl(&["get", "--prefix", "--keys-only", &prefix]);
        let left = left.lines().filter(|line| !line.is_empty()).count();
        assert_eq!(left, 21);
    });
}

#[test]
fn commits_of_many_keys_are_taken() {
    let database = etcd();
    let kv = database.open().unwrap();
    run(async {
        for count in [1, 100, 5_000_u32] {
            let mut transaction = Transaction::begin(&*kv).await.unwrap();
            for key in 0..count {
                transaction.put(key.to_be_bytes().to_vec(), count.to_be_bytes().to_vec());
            }
            assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Committed);
            let snapshot = kv.snapshot().await.unwrap();
            let all = snapshot.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).await.unwrap();
            assert_eq!(all.len() as u32, count);
            assert!(all.iter().all(|(_, value)| value[..] == count.to_be_bytes()));
        }
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        (0..5_000_u32).for_each(|key| transaction.delete(key.to_be_bytes().to_vec()));
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*kv, "\0\0\0\0").await, None);
    });
}

#[test]
fn two_stores_share_an_etcd() {
    let (one, other) = (etcd(), etcd());
    let kvs = [one.open().unwrap(), other.open().unwrap()];
    run(async {
        assert_eq!(put(&*kvs[0], "a", "one").await.unwrap(), Outcome::Committed);
        assert_eq!(put(&*kvs[1], "a", "other").await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*kvs[0], "a").await.unwrap(), b"one");
        assert_eq!(get(&*kvs[1], "a").await.unwrap(), b"other");
        let snapshot = kvs[0].snapshot().await.unwrap();
        let all = snapshot.scan(Bound::Unbounded, Bound::Unbounded, 10).await.unwrap();
        assert_eq!(all.len(), 1);
    });
}

/// Somebody has etcd forget what a snapshot shows.
#[test]
fn a_snapshot_that_was_compacted_says_so_and_the_next_one_is_good() {
    let server = EtcdServer::start(1, &[]);
    let kv = etcd_on(&server).open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let old = Transaction::begin(&*kv).await.unwrap();
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
        server.ctl(&["compact", &server.revision()]);
        let error = old.get(b"a").await.unwrap_err();
        assert!(matches!(error, KvError::Expired { .. }), "{error}");
        assert!(error.to_string().contains("compacted") && error.to_string().contains("try again"));
        assert_eq!(get(&*kv, "a").await.unwrap(), b"2");
        let mut blind = old;
        blind.put(b"b".to_vec(), "1");
        assert_eq!(blind.commit(&*kv).await.unwrap(), Outcome::Committed);
    });
}
