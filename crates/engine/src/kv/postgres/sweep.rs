//! Forgets what was deleted long ago.
//!
//! A commit takes a key without a row for one that never was. So a deleted key keeps its row for longer than a snapshot can
//! be committed, by *our* clock: that of the database may be put forward, or a standby whose clock is ahead takes its
//! place, and what was deleted a moment ago would look old. The database's clock, which is in the rows, only tells which of them
//! are older than what it showed when we looked.

use super::super::Result;
use super::address::Address;
use super::answer::bounded;
use super::failure::failure;
use super::hub::Pool;
use super::primary;
use std::collections::VecDeque;
use std::sync::Weak;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tokio_postgres::Client;

/// Pause between two looks at the database's clock.
const PAUSE: Duration = Duration::from_secs(60);
/// How long deleted keys are kept at least: twice as long as a snapshot can be committed.
const KEPT: Duration = Duration::from_secs(600);
const CLOCK: &str = "SELECT now()";
/// Deleted keys that are forgotten with one statement.
const FORGET: &str = "DELETE FROM strake_kv WHERE k IN (\
     SELECT k FROM strake_kv WHERE buried < $1 LIMIT 5000) AND buried < $1";

/// Forgets what was deleted long ago, as long as the store is open.
pub async fn sweep(pool: Weak<Pool>) {
    let mut looks = Looks::default();
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(pool) = pool.upgrade() else { return };
        if let Err(error) = look(&pool.address, &mut looks).await {
            tracing::debug!("deleted keys are kept for now: {error}");
        }
    }
}

/// Looks at the clock, and forgets what is known to be old enough.
async fn look(address: &Address, looks: &mut Looks) -> Result<()> {
    let (client, _) = primary::connect(address).await?;
    let asked = Instant::now();
    let row = bounded(address, client.query_one(CLOCK, &[])).await?;
    let clock = row.try_get(0).map_err(|e| failure(&address.shown, &e))?;
    match looks.note(asked, Instant::now(), clock) {
        Some(before) => forget(address, &client, before).await,
        None => Ok(()),
    }
}

/// Forgets what was deleted before a time of the database's clock.
async fn forget(address: &Address, client: &Client, before: SystemTime) -> Result<()> {
    while bounded(address, client.execute(FORGET, &[&before])).await? > 0 {}
    Ok(())
}

/// What the database's clock has shown, the oldest first.
#[derive(Default)]
struct Looks(VecDeque<Look>);

struct Look {
    /// When it was asked for, by our clock.
    asked: Instant,
    /// The earliest time that the database's clock can have shown since the look before.
    earliest: SystemTime,
}

impl Looks {
    /// Notes what the clock shows. With a time that it has not shown since [`KEPT`] ago: what is stamped with an earlier one is
    /// older. `None` where that is not known yet.
    fn note(&mut self, asked: Instant, now: Instant, clock: SystemTime) -> Option<SystemTime> {
        // If it was put back since the look before, it has come from there to where it is.
        let since = self.0.back().map_or(Duration::ZERO, |last| now - last.asked);
        self.0.push_back(Look { asked, earliest: clock - since });
        let is_old = |look: &Look| now - look.asked >= KEPT;
        // Of the old ones the last says where the time begins that counts.
        while self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.front().filter(|first| is_old(first))?;
        self.0.iter().map(|look| look.earliest).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::tests::postgres::{Shared as _, delete, postgres, put, run};
    use crate::kv::{Outcome, Transaction};
    use std::time::UNIX_EPOCH;

    /// Minutes of our clock, and what the database's showed then: the minute before which all can go.
    fn noted(shown: impl IntoIterator<Item = (u64, u64)>) -> Option<u64> {
        let (start, mut looks) = (Instant::now(), Looks::default());
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let mut before = None;
        for (ours, clock) in shown {
            let now = start + minutes(ours);
            before = looks.note(now, now, UNIX_EPOCH + minutes(clock));
        }
        before.map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_secs() / 60)
    }

    #[test]
    fn what_was_deleted_is_old_after_ten_minutes_of_our_own_clock() {
        assert_eq!(noted((0..10).map(|minute| (minute, 1000 + minute))), None);
        assert_eq!(noted((0..11).map(|minute| (minute, 1000 + minute))), Some(1000));
        assert_eq!(noted((0..31).map(|minute| (minute, 1000 + minute))), Some(1019));
        // The database was away for long.
        assert_eq!(noted([(0, 1000), (30, 1030)]), Some(1000));
    }

    #[test]
    fn a_clock_that_is_put_forward_or_back_makes_nothing_old() {
        let forward = |last: u64| {
            (0..last)
                .map(|minute| (minute, if minute < 20 { 1000 + minute } else { 5000 + minute }))
        };
        // What was deleted before the jump is as old as it is.
        assert_eq!(noted(forward(21)), Some(1009));
        assert_eq!(noted(forward(30)), Some(1018));
        assert_eq!(noted(forward(40)), Some(5028));
        let back = |last: u64| {
            (0..last)
                .map(|minute| (minute, if minute < 20 { 5000 + minute } else { 1000 + minute }))
        };
        // From the jump on deleted keys are stamped with 1019 at the earliest.
        assert_eq!(noted(back(21)), Some(1019));
        assert_eq!(noted(back(30)), Some(1019));
        assert_eq!(noted(back(40)), Some(1028));
    }

    /// The rows look an hour old, as if the clock had been put forward since.
    #[test]
    fn a_commit_meets_a_deletion_although_the_clock_of_the_database_was_put_forward() {
        let database = postgres();
        let kv = database.open().unwrap();
        let address = Address::parse(&database.options.url).unwrap();
        run(async {
            assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
            let mut late = Transaction::begin(&*kv).await.unwrap();
            late.put(b"a".to_vec(), "late");
            assert_eq!(delete(&*kv, "a").await.unwrap(), Outcome::Committed);
            database.sql("UPDATE strake_kv SET buried = buried - INTERVAL '1 hour'");
            let mut looks = Looks::default();
            look(&address, &mut looks).await.unwrap();
            look(&address, &mut looks).await.unwrap();
            assert_eq!(late.commit(&*kv).await.unwrap(), Outcome::Conflict);

            assert_eq!(put(&*kv, "b", "1").await.unwrap(), Outcome::Committed);
            assert_eq!(put(&*kv, "c", "1").await.unwrap(), Outcome::Committed);
            assert_eq!(delete(&*kv, "c").await.unwrap(), Outcome::Committed);
            let (client, _) = primary::connect(&address).await.unwrap();
            let before = SystemTime::now() - Duration::from_secs(1800);
            forget(&address, &client, before).await.unwrap();
            let left = "SELECT string_agg(encode(k, 'escape'), ' ' ORDER BY k) FROM strake_kv";
            assert_eq!(database.sql(left), "b c");
        });
    }
}
