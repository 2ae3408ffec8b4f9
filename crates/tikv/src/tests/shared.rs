//! Several who open one store, and stores that are not ours.

use super::Database;
use super::suite::shared::Shared as _;
use super::suite::{get, put, run};
use crate::cluster::Cluster;
use crate::garbage;
use crate::keys::Keys;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::kv::{KvError, Outcome, Part, Transaction};
use tikv_client::TransactionClient;

/// Two who open the same part all the time, and both write whenever they may.
#[test]
fn of_two_who_take_over_from_each_other_nothing_is_lost() {
    let Some(database) = Database::new() else { return };
    let written = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let store = database.store().unwrap();
                run(async {
                    for _ in 0..15 {
                        let kv = store.open(Part::Volume(1)).await.unwrap();
                        while let Ok(mut transaction) = Transaction::begin(&*kv).await {
                            let n = transaction.get(b"n").await.unwrap();
                            let n = n.map_or(0, |n| u64::from_be_bytes(n[..].try_into().unwrap()));
                            transaction.put(b"n".to_vec(), (n + 1).to_be_bytes().to_vec());
                            match transaction.commit(&*kv).await {
                                Ok(Outcome::Committed) => written.fetch_add(1, Ordering::SeqCst),
                                Ok(Outcome::Conflict) => continue,
                                Ok(Outcome::Unknown) => panic!("the cluster can be reached"),
                                Err(KvError::TakenOver { .. }) => break,
                                Err(error) => panic!("{error}"),
                            };
                            if n % 7 == 0 {
                                break;
                            }
                        }
                    }
                });
            });
        }
    });
    let kv = database.open().unwrap();
    let n = run(get(&*kv, "n")).unwrap();
    assert_eq!(u64::from_be_bytes(n.try_into().unwrap()), written.load(Ordering::SeqCst));
}

#[test]
fn a_name_under_which_nothing_is_is_refused_to_a_server_that_had_a_store() {
    let Some(mut database) = Database::new() else { return };
    database.options.create = false;
    assert!(database.refusal().contains("restore the cluster from a backup"));
    database.options.create = true;
    drop(database.open().unwrap());
    database.options.create = false;
    drop(database.open().unwrap());
}

/// A client of the tests' own, for keys that the engine does not write.
async fn write(database: &Database, key: Vec<u8>, value: Option<&str>) {
    let host = format!("127.0.0.1:{}", database.double.port);
    let client = TransactionClient::new(vec![host]).await.unwrap();
    let mut transaction = client.begin_optimistic().await.unwrap();
    match value {
        Some(value) => transaction.put(key, value.as_bytes().to_vec()).await.unwrap(),
        None => transaction.delete(key).await.unwrap(),
    }
    transaction.commit().await.unwrap();
}

fn keys(database: &Database) -> Keys {
    Keys::new(database.options.url.rsplit('/').next().unwrap())
}

#[test]
fn a_newer_or_damaged_store_is_refused() {
    let Some(database) = Database::new() else { return };
    drop(database.open().unwrap());
    let keys = keys(&database);
    run(write(&database, keys.store(), Some("2\nwho knows")));
    assert!(matches!(database.open(), Err(KvError::Newer { found: 2, known: 1, .. })));
    run(write(&database, keys.store(), Some("nonsense")));
    assert!(matches!(database.open(), Err(KvError::Corrupt { .. })));
    run(write(&database, keys.data(b"k"), Some("\u{1}v")));
    run(write(&database, keys.store(), None));
    assert!(matches!(database.open(), Err(KvError::Corrupt { .. })));
}

#[test]
fn a_value_that_this_release_did_not_write_is_damage() {
    let Some(database) = Database::new() else { return };
    let kv = database.open().unwrap();
    run(async {
        write(&database, keys(&database).data(b"k"), Some("\u{2}v")).await;
        let snapshot = kv.snapshot().await.unwrap();
        assert!(matches!(snapshot.get(b"k").await, Err(KvError::Corrupt { .. })));
    });
}

#[test]
fn old_versions_are_collected_where_nobody_else_has_keys() {
    let Some(database) = Database::alone() else { return };
    let kv = database.open().unwrap();
    run(async { assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed) });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = crate::address::Address::parse(&database.options.url).unwrap();
    let wait = Duration::from_secs(20);
    let cluster = Cluster::new(address, wait, runtime.handle().clone());
    runtime.block_on(async {
        assert!(garbage::round(&cluster, Duration::ZERO).await.unwrap());
        assert!(cluster.is_alone.load(Ordering::Relaxed));
        let safe: u64 = database.double.order("safe-point").parse().unwrap();
        assert!(safe > 0);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        write(&database, b"t\x80other".to_vec(), Some("a table of TiDB")).await;
        assert!(!garbage::round(&cluster, Duration::ZERO).await.unwrap());
        assert!(!cluster.is_alone.load(Ordering::Relaxed));
        assert_eq!(database.double.order("safe-point").parse::<u64>().unwrap(), safe);
    });
}
