//! Connections that are cut at a commit.

use super::Database;
use super::double::Double;
use super::suite::shared::Shared as _;
use super::suite::{get, put, run};
use crate::address::Address;
use crate::cluster::Cluster;
use crate::snapshots::begin_for_all;
use crate::{Hub, claims};
use std::sync::Arc;
use std::time::Duration;
use strake_engine::kv::{DatabaseOptions, Kv, KvError, Outcome, Part, Transaction};
use tokio::sync::{mpsc, oneshot};

/// Begins when nothing of an earlier commit is under way: TiKV's answer to it comes before all of it is done.
async fn begin_quietly(kv: &dyn Kv) -> Transaction {
    tokio::time::sleep(Duration::from_millis(200)).await;
    Transaction::begin(kv).await.unwrap()
}

/// What is to be committed to these keys, where `a` has a value.
async fn begin_with(kv: &dyn Kv, keys: &[&str], value: &'static str) -> Transaction {
    assert_eq!(put(kv, "a", "1").await.unwrap(), Outcome::Committed);
    let mut transaction = begin_quietly(kv).await;
    for key in keys {
        transaction.put(key.as_bytes().to_vec(), value);
    }
    transaction
}

/// The network holds a commit to these keys back until it is given up.
async fn hold_back(kv: &dyn Kv, double: &Double, keys: &[&str]) {
    let transaction = begin_with(kv, keys, "late").await;
    double.order("hold-commit");
    assert_eq!(transaction.commit(kv).await.unwrap(), Outcome::Unknown);
    double.order("up");
}

/// The commit was carried out, its answer lost, and the cluster away for longer than one waits.
#[test]
fn a_commit_is_unknown_while_the_cluster_is_away_and_settled_by_the_next_read() {
    let Some(mut database) = Database::alone() else { return };
    database.options.wait_ms_max = 1_000;
    let kv = database.open().unwrap();
    run(async {
        let transaction = begin_with(&*kv, &["a"], "2").await;
        database.double.order("down-at-commit");
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Unknown);
        let error = kv.snapshot().await.err().unwrap();
        assert!(matches!(error, KvError::Unreachable { .. }), "{error}");
        assert!(matches!(put(&*kv, "b", "1").await, Err(KvError::Unreachable { .. })));
        database.double.order("up");
        assert_eq!(get(&*kv, "a").await.unwrap(), b"2");
        assert_eq!(put(&*kv, "a", "3").await.unwrap(), Outcome::Committed);
    });
}

/// TiKV and PD are away at once: then the client cannot be relied on to have sent all of a commit.
#[test]
fn a_commit_of_which_something_may_be_missing_is_written_once_more() {
    let Some(mut database) = Database::alone() else { return };
    database.options.wait_ms_max = 3_000;
    let kv = database.open().unwrap();
    run(async {
        let transaction = begin_with(&*kv, &["a", "c"], "2").await;
        database.double.order("all-down-at-commit");
        let failed = crate::lookups::failed();
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Unknown);
        assert!(crate::lookups::failed() > failed, "the client counts no more");
        database.double.order("up");
        let values = [get(&*kv, "a").await.unwrap(), get(&*kv, "c").await.unwrap()];
        assert_eq!(values, [b"2", b"2"]);
        assert_eq!(put(&*kv, "a", "3").await.unwrap(), Outcome::Committed);
    });
}

/// The primary key was committed and its answer lost: giving the transaction up rolled back its keys in other regions, and
/// it was reported as committed.
#[test]
fn a_commit_whose_answer_was_lost_is_there_in_all_regions() {
    let Some(database) = Database::alone() else { return };
    let kv = database.open().unwrap();
    run(async {
        let transaction = begin_with(&*kv, &["a", "c"], "2").await;
        database.double.order("lose-commits");
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Committed);
        // Whatever is done about it behind our back is done before anybody reads.
        let later = begin_quietly(&*kv).await;
        database.double.order("up");
        for key in ["a", "c"] {
            let value = later.get(key.as_bytes()).await.unwrap();
            assert_eq!(value.as_deref(), Some(&b"2"[..]), "{key}");
        }
        assert_eq!(put(&*kv, "a", "3").await.unwrap(), Outcome::Committed);
    });
}

/// The network holds a commit back until long after it has been given up.
#[test]
fn a_commit_that_arrives_when_it_was_given_up_does_not_happen() {
    let Some(mut database) = Database::alone() else { return };
    database.options.wait_ms_max = 1_000;
    let kv = database.open().unwrap();
    let double = &database.double;
    run(async {
        hold_back(&*kv, double, &["a", "c"]).await;
        // Its locks are there until their time is over.
        let read = loop {
            match kv.snapshot().await {
                Ok(snapshot) => break snapshot.get(b"a").await.unwrap(),
                Err(error) => assert!(matches!(error, KvError::Unreachable { .. }), "{error}"),
            }
        };
        assert_eq!(read.as_deref(), Some(&b"1"[..]));
        double.order("release-commit");
        while double.order("arrived") == "no" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert_eq!(get(&*kv, "c").await, None);
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
    });
}

/// The commit is locked and not decided when another opens the part, and arrives when that one has written.
#[test]
fn who_takes_over_in_the_middle_of_a_commit_decides_it() {
    let Some(mut database) = Database::alone() else { return };
    database.options.wait_ms_max = 1_000;
    let first = database.open().unwrap();
    let double = database.double.clone();
    run(async {
        hold_back(&*first, &double, &["a"]).await;
        database.options.wait_ms_max = 20_000;
        let second = database.store().unwrap().open(Part::Whole).await.unwrap();
        assert_eq!(get(&*second, "a").await.unwrap(), b"1");
        assert_eq!(put(&*second, "b", "2").await.unwrap(), Outcome::Committed);
        double.order("release-commit");
        while double.order("arrived") == "no" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(get(&*second, "a").await.unwrap(), b"1");
        assert!(matches!(first.snapshot().await, Err(KvError::TakenOver { .. })));
    });
}

/// The time of a snapshot began before it waited for the commit, and was over when that had ended.
#[test]
fn a_snapshot_that_waited_for_a_slow_commit_has_its_own_time() {
    let Some(database) = Database::new() else { return };
    drop(database.open().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = Address::parse(&database.options.url).unwrap();
    let wait = Duration::from_secs(2);
    let cluster = Arc::new(Cluster::new(address, wait, runtime.handle().clone()));
    runtime.block_on(async {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        let number = claims::claim(&cluster, "own", "here", Part::Whole, deadline).await.unwrap();
        let hub = Arc::new(Hub::new(cluster, Part::Whole, number, "here"));
        let (ask, waiting) = mpsc::unbounded_channel();
        let (writer, _asked) = mpsc::channel(1);
        tokio::spawn(begin_for_all(hub.clone(), waiting, writer));
        let commit = hub.calm.write().await;
        let (tell, told) = oneshot::channel();
        assert!(ask.send(tell).is_ok());
        tokio::time::sleep(wait + Duration::from_millis(200)).await;
        drop(commit);
        told.await.unwrap().unwrap();
    });
}

#[test]
fn a_cluster_that_is_away_for_a_while_is_waited_for() {
    let Some(database) = Database::alone() else { return };
    let kv = database.open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let old = kv.snapshot().await.unwrap();
        database.double.order("down");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(1));
                database.double.order("up");
            });
        });
        // A time to read as of needs no connection.
        assert_eq!(old.get(b"a").await.unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
    });
}

#[test]
fn a_cluster_that_is_away_is_named() {
    let options = DatabaseOptions {
        url: "tikv://127.0.0.1:1/name".into(),
        store: "own".into(),
        create: true,
        host: "here".into(),
        wait_ms_max: 300,
    };
    let error = crate::open_tikv(&options).err().unwrap().to_string();
    assert!(error.contains("tikv://127.0.0.1:1/name cannot be reached"), "{error}");
    assert!(error.contains("--meta"), "{error}");
}
