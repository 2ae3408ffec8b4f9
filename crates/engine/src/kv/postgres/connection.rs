//! One connection, and the statements on it.

use super::super::Result;
use super::address::Address;
use super::answer::bounded;
use super::primary::{self, Standing};
use tokio_postgres::{Client, Statement};

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
    standing: Standing,
}

impl Connection {
    /// Connects to a database whose tables are there.
    pub async fn open(address: &Address) -> Result<Self> {
        let (client, standing) = primary::connect(address).await?;
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
        Ok(Self { client, get, multi_get, scan, scan_to_end, versions, commit, standing })
    }

    /// False if it has ended, leads to a host that was the primary once, or has begun when nothing could be changed: such a one may
    /// be used once, and a new one tells how things are.
    pub fn is_good(&self, address: &Address) -> bool {
        let Standing { timeline, is_read_only } = self.standing;
        !self.client.is_closed() && !is_read_only && timeline >= address.known.timeline()
    }
}
