//! What one or two transactions can see and do.

use super::{Subject, run};
use crate::kv::{Outcome, Pair, Transaction};
use bytes::Bytes;
use std::ops::Bound::{Excluded, Included, Unbounded};

fn pairs(pairs: &[(&str, &str)]) -> Vec<Pair> {
    pairs.iter().map(|(k, v)| (Bytes::from(k.to_string()), Bytes::from(v.to_string()))).collect()
}

pub fn a_snapshot_does_not_move(subject: Subject) {
    run(async {
        subject.put(&[("a", "1"), ("b", "1")]).await;
        let snapshot = subject.kv.snapshot().await.unwrap();
        subject.write(&[(b"a", Some(b"2")), (b"b", None), (b"c", Some(b"2"))]).await;
        assert_eq!(snapshot.get(b"a").await.unwrap(), Some("1".into()));
        let keys = ["b", "c", "a"].map(|key| key.as_bytes().to_vec());
        let values = snapshot.multi_get(&keys).await.unwrap();
        assert_eq!(values, [Some("1".into()), None, Some("1".into())]);
        let all = snapshot.scan(Unbounded, Unbounded, 10).await.unwrap();
        assert_eq!(all, pairs(&[("a", "1"), ("b", "1")]));
        assert_eq!(subject.get("a").await, Some("2".into()));
        assert_eq!(subject.get("b").await, None);
        assert_eq!(subject.get("c").await, Some("2".into()));
    });
}

pub fn the_second_of_two_writers_conflicts(subject: Subject) {
    run(async {
        let mut second = subject.begin().await;
        subject.put(&[("key", "first")]).await;
        second.put(b"key".to_vec(), "second");
        let outcome = second.commit(&*subject.kv).await.unwrap();
        assert!(outcome == Outcome::Conflict || (!subject.exact && outcome == Outcome::Unknown));
        assert_eq!(subject.get("key").await, Some("first".into()));
    });
}

pub fn a_conflict_writes_nothing(subject: Subject) {
    run(async {
        let mut second = subject.begin().await;
        subject.put(&[("shared", "first")]).await;
        second.put(b"other".to_vec(), "second");
        second.delete(b"shared".to_vec());
        let outcome = second.commit(&*subject.kv).await.unwrap();
        assert_ne!(outcome, Outcome::Committed);
        assert_eq!(subject.get("other").await, None);
        assert_eq!(subject.get("shared").await, Some("first".into()));
    });
}

pub fn readers_do_not_conflict(subject: Subject) {
    run(async {
        let mut transaction = subject.begin().await;
        transaction.get(b"read").await.unwrap();
        transaction.scan(Unbounded, Unbounded, 10).await.unwrap();
        subject.put(&[("read", "changed")]).await;
        transaction.put(b"written".to_vec(), "x");
        let outcome = transaction.commit(&*subject.kv).await.unwrap();
        assert!(outcome == Outcome::Committed || !subject.exact);
    });
}

/// Two transactions that each read what the other writes.
async fn skewed(subject: &Subject, guarded: bool) -> [Outcome; 2] {
    subject.put(&[("x", "1"), ("y", "1")]).await;
    let [mut one, mut two] = [subject.begin().await, subject.begin().await];
    for (transaction, read, write) in [(&mut one, b"x", b"y"), (&mut two, b"y", b"x")] {
        if guarded {
            transaction.guard(read).await.unwrap();
        } else {
            transaction.get(read).await.unwrap();
        }
        transaction.put(write.to_vec(), "0");
    }
    [one.commit(&*subject.kv).await.unwrap(), two.commit(&*subject.kv).await.unwrap()]
}

pub fn write_skew_is_permitted(subject: Subject) {
    run(async {
        let outcomes = skewed(&subject, false).await;
        assert!(outcomes == [Outcome::Committed; 2] || !subject.exact);
    });
}

pub fn a_guard_prevents_write_skew(subject: Subject) {
    run(async {
        let outcomes = skewed(&subject, true).await;
        assert_ne!(outcomes, [Outcome::Committed; 2]);
        let values = [subject.get("x").await.unwrap(), subject.get("y").await.unwrap()];
        assert!(values.contains(&Bytes::from("1")), "{values:?}");
    });
}

pub fn deleted_keys_are_gone_and_can_come_back(subject: Subject) {
    run(async {
        subject.put(&[("a", "1"), ("b", "1")]).await;
        subject.write(&[(b"a", None), (b"never", None)]).await;
        assert_eq!(subject.get("a").await, None);
        let snapshot = subject.kv.snapshot().await.unwrap();
        let all = snapshot.scan(Unbounded, Unbounded, 10).await.unwrap();
        assert_eq!(all, pairs(&[("b", "1")]));
        subject.put(&[("a", "2")]).await;
        assert_eq!(subject.get("a").await, Some("2".into()));
        assert_eq!(snapshot.get(b"a").await.unwrap(), None);
    });
}

pub fn any_bytes_can_be_keys_and_values(subject: Subject) {
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\x01", b"\xfe\xff", b"\xff", b"\xff\xff\xff"];
    run(async {
        for key in keys {
            subject.write(&[(key, Some(key))]).await;
        }
        let snapshot = subject.kv.snapshot().await.unwrap();
        for key in keys {
            assert_eq!(snapshot.get(key).await.unwrap().as_deref(), Some(key));
        }
        let all = snapshot.scan(Unbounded, Unbounded, 100).await.unwrap();
        assert_eq!(all.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), keys);
        let some = snapshot.scan(Excluded(b""), Excluded(b"\xff"), 100).await.unwrap();
        assert_eq!(some.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), keys[1..5]);
        let some = snapshot.scan(Included(b"\0\0"), Included(b"\xff"), 100).await.unwrap();
        assert_eq!(some.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), keys[2..6]);
    });
}

pub fn large_values_come_back(subject: Subject) {
    let value: Vec<u8> = (0..subject.value_bytes_max).map(|i| (i % 251) as u8).collect();
    run(async {
        let key = vec![b'k'; 4096];
        subject.write(&[(&key, Some(&value)), (b"small", Some(b"1"))]).await;
        let snapshot = subject.kv.snapshot().await.unwrap();
        assert_eq!(snapshot.get(&key).await.unwrap().as_deref(), Some(&*value));
        drop(snapshot);
        let subject = subject.reopen();
        let snapshot = subject.kv.snapshot().await.unwrap();
        assert_eq!(snapshot.get(&key).await.unwrap().as_deref(), Some(&*value));
    });
}

pub fn own_writes_are_seen_before_the_commit(subject: Subject) {
    run(async {
        subject.put(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]).await;
        let mut transaction: Transaction = subject.begin().await;
        transaction.delete(b"a".to_vec());
        transaction.put(b"bb".to_vec(), "2");
        transaction.put(b"c".to_vec(), "2");
        assert_eq!(transaction.get(b"a").await.unwrap(), None);
        assert_eq!(transaction.get(b"c").await.unwrap(), Some("2".into()));
        let two = transaction.scan(Unbounded, Unbounded, 2).await.unwrap();
        assert_eq!(two, pairs(&[("b", "1"), ("bb", "2")]));
        let rest = transaction.scan(Excluded(b"bb"), Unbounded, 9).await.unwrap();
        assert_eq!(rest, pairs(&[("c", "2"), ("d", "1")]));
        assert_eq!(subject.get("a").await, Some("1".into()));
    });
}

pub fn bounds_the_wrong_way_round_hold_nothing(subject: Subject) {
    run(async {
        subject.put(&[("a", "1"), ("b", "1")]).await;
        let mut transaction = subject.begin().await;
        transaction.put(b"aa".to_vec(), "2");
        let snapshot = subject.kv.snapshot().await.unwrap();
        for (from, to) in [
            (Included(&b"b"[..]), Included(&b"a"[..])),
            (Excluded(b"a"), Excluded(b"a")),
            (Excluded(b"b"), Excluded(b"a")),
        ] {
            assert_eq!(snapshot.scan(from, to, 10).await.unwrap(), []);
            assert_eq!(transaction.scan(from, to, 10).await.unwrap(), []);
        }
        assert_eq!(snapshot.scan(Unbounded, Unbounded, 0).await.unwrap(), []);
    });
}

pub fn everything_is_there_after_reopening(subject: Subject) {
    run(async {
        let mut subject = subject;
        for round in 0..4_u32 {
            for i in 0..50_u32 {
                let key = format!("{round}/{i:03}");
                subject.put(&[(&key, &key), ("last", &key)]).await;
            }
            subject.write(&[(format!("{round}/007").as_bytes(), None)]).await;
            subject = subject.reopen();
            assert_eq!(subject.get("last").await, Some(format!("{round}/049").into()));
            let snapshot = subject.kv.snapshot().await.unwrap();
            let all = snapshot.scan(Unbounded, Unbounded, 1000).await.unwrap();
            assert_eq!(all.len() as u32, (round + 1) * 49 + 1);
        }
    });
}

pub fn sync_returns_with_and_without_writes(subject: Subject) {
    run(async {
        subject.kv.sync().await.unwrap();
        subject.put(&[("a", "1")]).await;
        subject.kv.sync().await.unwrap();
        subject.kv.sync().await.unwrap();
        assert_eq!(subject.get("a").await, Some("1".into()));
    });
}
