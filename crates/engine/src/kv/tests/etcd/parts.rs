//! Writers of several parts that write the same keys.

use super::*;
use std::collections::BTreeSet;

const KEY: &[u8] = b"contended";

async fn open(store: &dyn Store, part: u32) -> Arc<dyn Kv> {
    store.open(Part::Volume(part)).await.unwrap()
}

#[test]
fn of_writers_of_two_parts_that_write_a_contended_key_the_second_conflicts() {
    let store = etcd().store().unwrap();
    run(async {
        let (one, two) = (open(&*store, 1).await, open(&*store, 2).await);
        let mut first = Transaction::begin(&*one).await.unwrap();
        let mut second = Transaction::begin(&*two).await.unwrap();
        first.put_contended(KEY.to_vec(), "first");
        second.put_contended(KEY.to_vec(), "second");
        second.put(b"beside".to_vec(), "second");
        assert_eq!(first.commit(&*one).await.unwrap(), Outcome::Committed);
        assert_eq!(second.commit(&*two).await.unwrap(), Outcome::Conflict);
        assert_eq!(
            (get(&*two, "contended").await.unwrap(), get(&*two, "beside").await),
            (b"first".to_vec(), None)
        );
        // Who has seen it may go on; and what only he writes was never in the way.
        let mut again = Transaction::begin(&*two).await.unwrap();
        again.put_contended(KEY.to_vec(), "again");
        assert_eq!(put(&*two, "else", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(put(&*one, "more", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(again.commit(&*two).await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*one, "contended").await.unwrap(), b"again");
    });
}

/// Adds a number to those that are there, each of which is in it once.
async fn add(kv: &dyn Kv, number: u32) {
    loop {
        let mut transaction = Transaction::begin(kv).await.unwrap();
        let before = transaction.get(KEY).await.unwrap().unwrap_or_default();
        transaction.put_contended(KEY.to_vec(), [&before[..], &number.to_be_bytes()].concat());
        transaction.put(number.to_be_bytes().to_vec(), "added");
        // The outcome is found out, so that a conflict means that nothing was written.
        match transaction.commit(kv).await.unwrap() {
            Outcome::Committed => return,
            Outcome::Conflict => {}
            Outcome::Unknown => panic!("etcd can be reached"),
        }
    }
}

#[test]
fn no_update_of_a_contended_key_is_lost_although_commits_are_cut() {
    const EACH: u32 = 60;
    let database = etcd().cut(31);
    let store = database.store().unwrap();
    run(async {
        let parts = [open(&*store, 1).await, open(&*store, 2).await, open(&*store, 3).await];
        let adding = parts.iter().zip(0..).flat_map(|(kv, part)| {
            // Two of each part at a time, and others which write what is not contended.
            (0..2).map(move |turn| async move {
                for nth in (0..EACH).filter(|nth| nth % 2 == turn) {
                    add(&**kv, part * EACH + nth).await;
                    let written = put(&**kv, &format!("own {part} {turn}"), "1").await.unwrap();
                    assert_ne!(written, Outcome::Unknown);
                }
            })
        });
        futures::future::join_all(adding).await;
        let added = get(&*parts[0], "contended").await.unwrap();
        let all: BTreeSet<&[u8]> = added.chunks(4).collect();
        assert_eq!((all.len(), added.len()), (3 * EACH as usize, 12 * EACH as usize));
        for number in 0..3 * EACH {
            let snapshot = parts[1].snapshot().await.unwrap();
            assert!(snapshot.get(&number.to_be_bytes()).await.unwrap().is_some(), "{number}");
        }
    });
    let cuts = database.cuts();
    assert!(cuts > 10, "{cuts} cuts");
}

/// Its caller has gone away, and the network holds it back until the writer of another part has written the same key.
#[test]
fn who_drains_a_part_has_no_commit_come_late() {
    let mut database = etcd();
    let direct = database.store().unwrap();
    database = database.through();
    database.options.wait_ms_max = 5_000;
    let store = database.store().unwrap();
    let state = database.state();
    run(async {
        let (lender, borrower) = (open(&*store, 1).await, open(&*direct, 2).await);
        assert_eq!(put(&*lender, "lent", "1").await.unwrap(), Outcome::Committed);
        let mut late = Transaction::begin(&*lender).await.unwrap();
        late.put(b"lent".to_vec(), "late");
        state.hold_commit.store(true, Ordering::SeqCst);
        let given_up = Duration::from_millis(200);
        tokio::time::timeout(given_up, late.commit(&*lender)).await.unwrap_err();
        let error = lender.drain().await.unwrap_err();
        assert!(matches!(error, KvError::Unreachable { .. }), "{error}");
        state.down.store(false, Ordering::SeqCst);
        lender.drain().await.unwrap();
        assert_eq!(put(&*borrower, "lent", "2").await.unwrap(), Outcome::Committed);
        state.hold_commit.store(false, Ordering::SeqCst);
        while !state.arrived.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(get(&*borrower, "lent").await.unwrap(), b"2");
        assert_eq!(get(&*lender, "lent").await.unwrap(), b"2");
    });
}
