//! Many threads at once.

use super::{Subject, run};
use crate::kv::{Kv, Outcome, Transaction};
use bytes::Bytes;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const THREADS: u64 = 4;
const ROUNDS: u64 = 150;
const ACCOUNTS: u64 = 8;
const TOTAL: u64 = 800;

fn number(bytes: Option<Bytes>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()))
}

fn put(transaction: &mut Transaction, key: &str, number: u64) {
    transaction.put(key.as_bytes().to_vec(), number.to_be_bytes().to_vec());
}

/// Repeats a transaction until it has happened once. It leaves `receipt`, which tells whether a
/// commit without an answer was one.
async fn once(kv: &dyn Kv, receipt: &str, body: impl AsyncFn(&mut Transaction)) {
    loop {
        let mut transaction = Transaction::begin(kv).await.unwrap();
        if transaction.get(receipt.as_bytes()).await.unwrap().is_some() {
            return;
        }
        body(&mut transaction).await;
        put(&mut transaction, receipt, 1);
        if transaction.commit(kv).await.unwrap() == Outcome::Committed {
            return;
        }
    }
}

pub fn no_update_is_lost(subject: Subject) {
    let kv: Arc<dyn Kv> = subject.kv.clone();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let kv = kv.clone();
            scope.spawn(move || {
                run(async {
                    for round in 0..ROUNDS {
                        once(&*kv, &format!("receipt/{thread}/{round}"), async |transaction| {
                            let counter = number(transaction.get(b"counter").await.unwrap());
                            put(transaction, "counter", counter + 1);
                        })
                        .await;
                    }
                });
            });
        }
    });
    drop(kv);
    let subject = subject.reopen();
    run(async {
        assert_eq!(number(subject.get("counter").await), THREADS * ROUNDS);
    });
}

pub fn every_snapshot_sees_whole_transfers(subject: Subject) {
    run(async {
        for account in 0..ACCOUNTS {
            let share = (TOTAL / ACCOUNTS).to_be_bytes();
            subject.write(&[(format!("account/{account}").as_bytes(), Some(&share))]).await;
        }
    });
    let kv = &subject.kv;
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(|| run(audit(&**kv, done)))).collect();
        let writers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || run(transfers(&**kv, thread)))).collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}

/// Adds up all accounts, again and again.
async fn audit(kv: &dyn Kv, done: &AtomicBool) -> u64 {
    let mut audits = 0;
    while !done.load(Ordering::SeqCst) || audits == 0 {
        let snapshot = kv.snapshot().await.unwrap();
        for _ in 0..2 {
            let accounts =
                snapshot.scan(Included(b"account/"), Excluded(b"account0"), 100).await.unwrap();
            let sum: u64 = accounts.into_iter().map(|(_, value)| number(Some(value))).sum();
            assert_eq!(sum, TOTAL);
        }
        audits += 1;
    }
    audits
}

async fn transfers(kv: &dyn Kv, thread: u64) {
    for round in 0..ROUNDS {
        let from = format!("account/{}", (thread + round) % ACCOUNTS);
        let to = format!("account/{}", (thread + round * 3 + 1) % ACCOUNTS);
        if from == to {
            continue;
        }
        once(kv, &format!("receipt/{thread}/{round}"), async |transaction| {
            let keys = [from.as_bytes().to_vec(), to.as_bytes().to_vec()];
            let balances = transaction.multi_get(&keys).await.unwrap();
            let [a, b] = [number(balances[0].clone()), number(balances[1].clone())];
            let amount = a.min(round % 7);
            put(transaction, &from, a - amount);
            put(transaction, &to, b + amount);
        })
        .await;
    }
}

pub fn many_syncs_at_once_all_return(subject: Subject) {
    let kv = &subject.kv;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                run(async {
                    for round in 0..10 {
                        once(&**kv, &format!("{thread}/{round}"), async |_| {}).await;
                        kv.sync().await.unwrap();
                    }
                });
            });
        }
    });
}
