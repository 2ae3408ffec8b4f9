//! One connection, and the statements on it.

use super::super::{KvError, Result};
use super::address::Address;
use super::failure::failure;
use std::future::Future;
use std::time::Duration;
use tokio_postgres::{Client, Error, NoTls, Statement};

/// How long the answer to a statement may take; the server gives up before.
const ANSWER_SECONDS_MAX: u64 = 20;
/// Limits of a session in milliseconds, and nothing that PostgreSQL alone has.
const SESSION: &str = "SET statement_timeout = 15000; SET lock_timeout = 10000; \
     SET idle_in_transaction_session_timeout = 600000";
/// Small tables would be read from end to end, and go on being when they have grown. Not needed, only
/// good: where there is no such setting we do without.
const INDEXES: &str = "SET enable_seqscan = off";

const GET: &str = "SELECT v FROM strake_kv WHERE k = $1 AND buried IS NULL";
const MULTI_GET: &str = "SELECT k, v FROM strake_kv WHERE k = ANY($1) AND buried IS NULL";
const SCAN: &str = "SELECT k, v FROM strake_kv WHERE k >= $1 AND k < $2 AND buried IS NULL \
     ORDER BY k LIMIT $3";
const SCAN_TO_END: &str =
    "SELECT k, v FROM strake_kv WHERE k >= $1 AND buried IS NULL ORDER BY k LIMIT $2";
const VERSIONS: &str = "SELECT k, version FROM strake_kv WHERE k = ANY($1)";
/// A whole commit as one statement, so that it needs neither BEGIN nor COMMIT and happens in one round trip:
/// all of it or, by the division by zero, nothing. `mark` is this commit's receipt, and what keeps a
/// copy that comes late from happening.
const COMMIT: &str = "\
WITH mark AS (
  UPDATE strake_writer SET seq = $2 WHERE writer = $1 AND seq = $3 AND NOT fenced RETURNING 1 AS one
), written AS (
  INSERT INTO strake_kv (k, v, version, replaced, buried)
  SELECT u.k, u.v, $4::INT8, u.replaced, CASE WHEN u.v IS NULL THEN now() END
  FROM unnest($5::BYTEA[], $6::BYTEA[], $7::INT8[]) AS u (k, v, replaced)
  ORDER BY u.k
  ON CONFLICT (k) DO UPDATE SET
    v = excluded.v, version = excluded.version, replaced = excluded.replaced, buried = excluded.buried
  WHERE strake_kv.version = excluded.replaced
  RETURNING 1 AS one
)
SELECT 1 / (CASE WHEN (SELECT count(*) FROM mark) = 1 AND (SELECT count(*) FROM written) = $8::INT8
            THEN 1 ELSE 0 END)";

/// A connection with its statements prepared.
pub struct Connection {
    pub client: Client,
    pub get: Statement,
    pub multi_get: Statement,
    pub scan: Statement,
    pub scan_to_end: Statement,
    pub versions: Statement,
    pub commit: Statement,
}

impl Connection {
    /// Connects to a database whose tables are there.
    pub async fn open(address: &Address) -> Result<Self> {
        let client = connect(address).await?;
        let prepared = async {
            tokio::try_join!(
                client.prepare(GET),
                client.prepare(MULTI_GET),
                client.prepare(SCAN),
                client.prepare(SCAN_TO_END),
                client.prepare(VERSIONS),
                client.prepare(COMMIT),
            )
        };
        let prepared = bounded(address, prepared).await?;
        let (get, multi_get, scan, scan_to_end, versions, commit) = prepared;
        Ok(Self { client, get, multi_get, scan, scan_to_end, versions, commit })
    }
}

/// Connects, and sets the limits of the session.
pub async fn connect(address: &Address) -> Result<Client> {
    let (client, connection) = bounded(address, address.config.connect(NoTls)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("connection to the metadata store: {error}");
        }
    });
    bounded(address, client.batch_execute(SESSION)).await?;
    if let Err(error) = bounded(address, client.batch_execute(INDEXES)).await {
        tracing::debug!("{INDEXES}: {error}");
    }
    Ok(client)
}

/// Waits for an answer, not for ever. `None`: none came.
pub async fn answer<T>(asked: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_secs(ANSWER_SECONDS_MAX), asked).await.ok()
}

/// As [`answer`], with errors in our words.
pub async fn bounded<T>(
    address: &Address,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T> {
    match answer(asked).await {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) => Err(failure(&address.shown, &error)),
        None => Err(KvError::Unreachable {
            store: address.shown.clone(),
            cause: format!("no answer in {ANSWER_SECONDS_MAX} s"),
        }),
    }
}
