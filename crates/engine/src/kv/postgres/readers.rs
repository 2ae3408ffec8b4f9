//! Snapshots: transactions that only read.
//!
//! A snapshot is a REPEATABLE READ transaction on a connection of its own. All who ask for one while one
//! is being begun share the next, so that the number of connections follows from how many ages of
//! snapshots are alive, not from how many operations.

use super::super::background::Background;
use super::super::group::share;
use super::super::pause::Pause;
use super::super::{Pair, Result, Snapshot, is_empty_range};
use super::answer::bounded;
use super::connection::Connection;
use super::failure::damaged;
use super::hub::{Hub, Place, Pool};
use super::schema;
use super::writer::{self, Ask};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::{Row, SimpleQueryMessage};

/// Pairs asked for at a time.
const PAGE: i64 = 2000;
/// A commit on an older snapshot is refused. Deleted keys are remembered longer than that.
const COMMIT_AGE_MAX: Duration = Duration::from_secs(300);

/// Who waits for a snapshot.
pub type Waiting = oneshot::Sender<Result<Arc<Reader>>>;

/// One transaction that reads, and is ended when nobody uses it any more.
pub struct Reader {
    hub: Arc<Hub>,
    connection: Option<(Connection, Option<Place>)>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some((connection, place)) = self.connection.take() {
            self.hub.pool.give_back(connection, place);
        }
    }
}

/// Begins transactions for those who wait, until nobody can ask any more.
pub async fn begin_for_all(
    hub: Arc<Hub>,
    waiting: mpsc::UnboundedReceiver<Waiting>,
    writer: mpsc::Sender<Ask>,
) {
    share(waiting, || begin(&hub, &writer)).await;
}

async fn begin(hub: &Arc<Hub>, writer: &mpsc::Sender<Ask>) -> Result<Reader> {
    hub.check_history()?;
    let deadline = hub.pool.deadline();
    // What a read has shown must not change by a commit that was given up long ago.
    if hub.in_doubt.load(Ordering::SeqCst) {
        writer::settle(hub, writer).await?;
    }
    let place = hub.place(deadline).await?;
    let sql = format!(
        "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; {}",
        fence(hub.writer)
    );
    let mut pause = Pause::default();
    loop {
        let (connection, fresh) = match hub.pool.idle() {
            Some(connection) => (connection, false),
            None => (hub.pool.connect(deadline).await?, true),
        };
        match bounded(&hub.pool.address, connection.client.simple_query(&sql)).await {
            Ok(said) => {
                check_fence(hub, &said)?;
                return Ok(Reader { hub: hub.clone(), connection: Some((connection, place)) });
            }
            // A new one tells how things are.
            Err(error) if fresh => pause.after(error, deadline).await?,
            Err(_) => hub.pool.forget_idle(),
        }
    }
}

/// Whether a writer is shut out, and only then by whom: that is looked for in the rows of all later ones.
fn fence(writer: i64) -> String {
    let by = schema::FENCED_BY.replace("$1", &writer.to_string());
    format!(
        "SELECT w.fenced, CASE WHEN w.fenced THEN ({by}) END FROM strake_writer w WHERE w.writer = {writer}"
    )
}

/// The values of keys, without a transaction: one statement sees one state.
pub async fn look(pool: &Pool, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
    let deadline = pool.deadline();
    loop {
        let (connection, fresh) = match pool.idle() {
            Some(connection) => (connection, false),
            None => (pool.connect(deadline).await?, true),
        };
        let asked = async { connection.client.query(&connection.multi_get, &[&keys]).await };
        let rows = match bounded(&pool.address, asked).await {
            Ok(rows) => rows,
            Err(error) if fresh => return Err(error),
            Err(_) => {
                pool.forget_idle();
                continue;
            }
        };
        let cell = |row: &Row, at| row.try_get::<_, &[u8]>(at).map(Bytes::copy_from_slice);
        let pair = |row: &Row| Ok((cell(row, 0)?, cell(row, 1)?));
        let found: Result<HashMap<_, _>, _> = rows.iter().map(pair).collect();
        let found = found.map_err(|e| damaged(&pool.address.shown, &e))?;
        pool.keep(connection);
        return Ok(keys.iter().map(|key| found.get(key.as_slice()).cloned()).collect());
    }
}

fn check_fence(hub: &Hub, said: &[SimpleQueryMessage]) -> Result<()> {
    let row = said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let fenced = row.and_then(|row| row.get(0)).is_none_or(|fenced| fenced.starts_with('t'));
    if !fenced {
        return Ok(());
    }
    Err(match row.and_then(|row| row.get(1)) {
        Some(by) => hub.taken_over(by.to_owned()),
        None => hub.forgotten(),
    })
}

/// What a caller holds.
pub struct PostgresSnapshot {
    reader: Arc<Reader>,
    taken: Instant,
    /// The connections live on it.
    _background: Arc<Background>,
}

impl PostgresSnapshot {
    pub fn new(reader: Arc<Reader>, background: Arc<Background>) -> Self {
        Self { reader, taken: Instant::now(), _background: background }
    }

    /// True if it is too old for a commit: what was deleted since may have been forgotten.
    pub fn is_too_old(&self) -> bool {
        self.taken.elapsed() > COMMIT_AGE_MAX
    }

    fn connection(&self) -> Result<&Connection> {
        let connection = self.reader.connection.as_ref().map(|(connection, _)| connection);
        connection.ok_or_else(|| self.reader.hub.pool.unreachable("the snapshot has ended"))
    }

    async fn ask(
        &self,
        asked: impl Future<Output = Result<Vec<Row>, tokio_postgres::Error>>,
    ) -> Result<Vec<Row>> {
        bounded(&self.reader.hub.pool.address, asked).await
    }

    fn read<'r, T: tokio_postgres::types::FromSql<'r>>(
        &self,
        row: &'r Row,
        at: usize,
    ) -> Result<T> {
        row.try_get(at).map_err(|e| damaged(&self.reader.hub.pool.address.shown, &e))
    }

    /// The versions of keys, 0 for those that never were.
    pub async fn versions(&self, keys: &[&[u8]]) -> Result<Vec<i64>> {
        let connection = self.connection()?;
        let rows = self.ask(connection.client.query(&connection.versions, &[&keys])).await?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            found.insert(self.read::<&[u8]>(row, 0)?, self.read::<i64>(row, 1)?);
        }
        Ok(keys.iter().map(|key| found.get(key).copied().unwrap_or(0)).collect())
    }

    async fn page(&self, from: &[u8], to: Option<&[u8]>, limit: i64) -> Result<Vec<Pair>> {
        let connection = self.connection()?;
        let client = &connection.client;
        let rows = match to {
            Some(to) => self.ask(client.query(&connection.scan, &[&from, &to, &limit])).await?,
            None => self.ask(client.query(&connection.scan_to_end, &[&from, &limit])).await?,
        };
        rows.iter().map(|row| Ok((self.bytes(row, 0)?, self.bytes(row, 1)?))).collect()
    }

    fn bytes(&self, row: &Row, at: usize) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(self.read::<&[u8]>(row, at)?))
    }
}

/// The first key after `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[async_trait]
impl Snapshot for PostgresSnapshot {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let connection = self.connection()?;
        let rows = self.ask(connection.client.query(&connection.get, &[&key])).await?;
        rows.first().map(|row| self.bytes(row, 0)).transpose()
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>> {
        let connection = self.connection()?;
        let rows = self.ask(connection.client.query(&connection.multi_get, &[&keys])).await?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            found.insert(self.read::<&[u8]>(row, 0)?, self.bytes(row, 1)?);
        }
        Ok(keys.iter().map(|key| found.get(key.as_slice()).cloned()).collect())
    }

    async fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<Pair>> {
        if is_empty_range(from, to) {
            return Ok(Vec::new());
        }
        let mut from = match from {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => Vec::new(),
        };
        let to = match to {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        let mut pairs = Vec::new();
        while pairs.len() < limit {
            let wanted = PAGE.min(i64::try_from(limit - pairs.len()).unwrap_or(PAGE));
            let page = self.page(&from, to.as_deref(), wanted).await?;
            let is_last = (page.len() as i64) < wanted;
            pairs.extend(page);
            match pairs.last() {
                Some((last, _)) if !is_last => from = after(last),
                _ => break,
            }
        }
        Ok(pairs)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Part;
    use crate::kv::tests::postgres::{Shared as _, postgres, run};

    /// Each snapshot read the rows of all that had opened a part since.
    #[test]
    fn who_has_shut_out_a_writer_is_looked_for_only_where_one_has() {
        let database = postgres();
        let store = database.store().unwrap();
        run(async {
            let _parts = [
                store.open(Part::Volume(1)).await.unwrap(),
                store.open(Part::Volume(2)).await.unwrap(),
                store.open(Part::Volume(1)).await.unwrap(),
            ];
            let explained = |writer: i64| {
                database.sql(&format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {}", fence(writer)))
            };
            assert!(!explained(1).contains("never executed"), "{}", explained(1));
            assert!(explained(2).contains("never executed"), "{}", explained(2));
        });
    }
}
