//! Commits whose result is known from their number alone, so that a crash can be judged.
//!
//! Several writers, numbered, make commits, numbered from 1. Commit `n` of a writer sets its head
//! to `n`, sets two slots, sets a third and deletes a fourth; and it adds one to a total that all
//! writers share.

pub use super::suite::run;
use crate::kv::{Kv, Outcome, Result, Transaction};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;

const SLOTS: u64 = 16;

/// Makes commit `n` of a writer; repeats it as long as others are in its way.
pub async fn commit(kv: &dyn Kv, writer: u64, n: u64) -> Result<()> {
    loop {
        let mut transaction = Transaction::begin(kv).await?;
        let total = number(transaction.get(b"total").await?.as_ref());
        transaction.put(b"total".to_vec(), (total + 1).to_string());
        transaction.put(key(writer, "head", 0), n.to_string());
        transaction.put(key(writer, "a", n % SLOTS), value(writer, n));
        transaction.put(key(writer, "b", n % SLOTS), value(writer, n));
        transaction.put(key(writer, "c", n % SLOTS), n.to_string());
        transaction.delete(key(writer, "c", (n + SLOTS / 2) % SLOTS));
        match transaction.commit(kv).await? {
            Outcome::Committed => return Ok(()),
            Outcome::Conflict => {}
            Outcome::Unknown => panic!("an embedded engine knows"),
        }
    }
}

/// How many commits of each writer are there, if what is there is exactly theirs.
pub async fn verify(kv: &dyn Kv, writers: u64) -> Result<Vec<u64>, String> {
    let snapshot = kv.snapshot().await.map_err(|error| error.to_string())?;
    let pairs = snapshot.scan(Unbounded, Unbounded, usize::MAX).await;
    let found: BTreeMap<Vec<u8>, Bytes> =
        pairs.map_err(|e| e.to_string())?.into_iter().map(|(k, v)| (k.to_vec(), v)).collect();
    let head = |writer| number(found.get(&key(writer, "head", 0)));
    let heads: Vec<u64> = (0..writers).map(head).collect();
    let mut expected = BTreeMap::new();
    if heads.iter().any(|n| *n > 0) {
        let total: u64 = heads.iter().sum();
        expected.insert(b"total".to_vec(), Bytes::from(total.to_string()));
    }
    for (writer, n) in (0..).zip(&heads) {
        expect(&mut expected, writer, *n);
    }
    for (key, value) in &expected {
        if found.get(key) != Some(value) {
            let key = String::from_utf8_lossy(key);
            return Err(format!("heads are {heads:?}, but {key} does not fit"));
        }
    }
    match found.keys().find(|key| !expected.contains_key(*key)) {
        Some(key) => {
            Err(format!("heads are {heads:?}, but {} exists", String::from_utf8_lossy(key)))
        }
        None => Ok(heads),
    }
}

/// What a writer's keys are after `n` commits.
fn expect(expected: &mut BTreeMap<Vec<u8>, Bytes>, writer: u64, n: u64) {
    if n > 0 {
        expected.insert(key(writer, "head", 0), n.to_string().into());
    }
    for last in (n.saturating_sub(SLOTS - 1)).max(1)..=n {
        expected.insert(key(writer, "a", last % SLOTS), value(writer, last));
        expected.insert(key(writer, "b", last % SLOTS), value(writer, last));
        if n - last < SLOTS / 2 {
            expected.insert(key(writer, "c", last % SLOTS), last.to_string().into());
        }
    }
}

fn key(writer: u64, kind: &str, slot: u64) -> Vec<u8> {
    format!("{writer}/{kind}/{slot:02}").into_bytes()
}

/// Of many lengths, seldom of several pages.
fn value(writer: u64, n: u64) -> Bytes {
    let length = if n.is_multiple_of(41) { 9000 } else { n * 7 % 200 };
    (0..length).map(|i| (writer + n * 31 + i) as u8).collect()
}

fn number(bytes: Option<&Bytes>) -> u64 {
    let text = bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    text.map_or(0, |text| text.parse().unwrap())
}

/// A source of chance for tests; `STRAKE_SEED` makes it another.
pub fn random(salt: u64) -> crate::kv::memory::Random {
    let seed = std::env::var("STRAKE_SEED").ok().and_then(|seed| seed.parse().ok());
    crate::kv::memory::Random::new(seed.unwrap_or(1_u64).wrapping_mul(1_000_003) + salt)
}

/// How much of the default amount of work a test does: `STRAKE_CRASH_FACTOR`.
pub fn factor() -> usize {
    std::env::var("STRAKE_CRASH_FACTOR").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}
