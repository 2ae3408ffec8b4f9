//! The tables, whose they are, and who may write them.

use super::super::{DatabaseOptions, KvError, Part, Result};
use super::address::Address;
use super::answer::bounded;
use super::failure::damaged;
use strake_base::random::SystemRandom;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

/// Version of the tables that this release makes and reads.
const FORMAT: i64 = 2;
/// The format in which a store had one writer. It becomes one of today's when it is opened.
const FORMAT_OF_ONE_WRITER: i64 = 1;
/// Oldest PostgreSQL that is good enough, as its `server_version_num` (YugabyteDB is 11.2 there).
const SERVER_VERSION_MIN: i64 = 110_000;
/// Earlier starts that are remembered.
const WRITERS_KEPT: i64 = 100;
/// The part of those who write all of a store; the control plane is 0, and a volume its id.
const WHOLE: i64 = -1;
/// Bits of a version that count statements; those above are the writer's number.
pub const SEQ_BITS: u32 = 40;
/// What parts a writer has, where the table is older than they are.
const ADD_PARTS: &str =
    "ALTER TABLE strake_writer ADD COLUMN IF NOT EXISTS part INT8 NOT NULL DEFAULT -1";
/// Where the one is who has shut out writer $1.
pub const FENCED_BY: &str = "SELECT t.host FROM strake_writer o JOIN strake_writer t \
     ON t.writer > o.writer AND (t.part = o.part OR t.part = -1 OR o.part = -1) \
     WHERE o.writer = $1 ORDER BY t.writer DESC LIMIT 1";

/// One by one, not in a transaction: not everything that speaks the protocol has transactions over
/// tables. The identity row comes last, so without it nothing has been made.
const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS strake_kv (
       k BYTEA PRIMARY KEY, v BYTEA, version INT8 NOT NULL, replaced INT8 NOT NULL, buried TIMESTAMPTZ)",
    "CREATE INDEX IF NOT EXISTS strake_kv_buried ON strake_kv (buried) WHERE buried IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS strake_writer (
       writer INT8 PRIMARY KEY, seq INT8 NOT NULL, fenced BOOL NOT NULL, host TEXT NOT NULL,
       part INT8 NOT NULL DEFAULT -1)",
    "CREATE TABLE IF NOT EXISTS strake_store (
       id INT8 PRIMARY KEY, format INT8 NOT NULL, owner TEXT NOT NULL, host TEXT NOT NULL,
       made TIMESTAMPTZ NOT NULL, writers INT8 NOT NULL)",
];

/// Sees to it that the store is there and ours. Whoever writes it goes on.
pub async fn open(client: &Client, address: &Address, options: &DatabaseOptions) -> Result<()> {
    let db = Db { client, address };
    db.check_server().await?;
    match db.owner().await? {
        Some(found) if db.is_left_over(&found, options).await? => db.adopt(&found, options).await,
        Some(found) if found.format == FORMAT_OF_ONE_WRITER => db.upgrade(&found, options).await,
        Some(found) => db.check_owner(&found, &options.store),
        None if !options.create => Err(db.missing()),
        None => db.create(options).await,
    }
}

/// An opening of a part.
pub struct Opening {
    /// Its number: that of the new writer.
    pub writer: i64,
    /// What its row says before it has written anything. Random, in the lower half of what [`SEQ_BITS`] hold: where the
    /// database goes back to before this opening, the next one gets the same number, and must not be taken for it.
    pub seq: i64,
}

/// Opens a part as its only writer: whoever wrote it before, and still does, is fenced. The store is there, and
/// refused if it is not this one any more.
pub async fn claim(
    client: &Client,
    address: &Address,
    store: &str,
    host: &str,
    part: Part,
) -> Result<Opening> {
    Db { client, address }.take_over(store, host, part).await
}

/// The identity row.
#[derive(Clone)]
struct Found {
    format: i64,
    owner: String,
    host: String,
}

struct Db<'a> {
    client: &'a Client,
    address: &'a Address,
}

impl Db<'_> {
    fn store(&self) -> String {
        self.address.shown.clone()
    }

    async fn show(&self, setting: &str) -> Result<String> {
        let sql = format!("SHOW {setting}");
        Ok(bounded(self.address, self.client.query_one(&sql, &[])).await?.get(0))
    }

    async fn check_server(&self) -> Result<()> {
        check_version(&self.store(), &self.show("server_version_num").await?)?;
        if self.show("transaction_read_only").await? == "on" {
            return Err(KvError::Refused {
                store: self.store(),
                cause: "the database is read-only".into(),
                next: "is it a standby? Name the primary in --meta, or let it be written again"
                    .into(),
            });
        }
        // Only PostgreSQL has it: without it a crash of the machine loses more than the file system allows.
        if self.show("fsync").await.is_ok_and(|fsync| fsync == "off") {
            let store = self.store();
            tracing::warn!(
                "{store} runs with fsync=off: a loss of power loses what was acknowledged"
            );
        }
        Ok(())
    }

    /// The identity row, if there is one.
    async fn owner(&self) -> Result<Option<Found>> {
        let sql = "SELECT format, owner, host FROM strake_store WHERE id = 1";
        let Some(row) = self.identity_row(sql, &[]).await? else { return Ok(None) };
        let read = || -> Result<Found, Error> {
            Ok(Found { format: row.try_get(0)?, owner: row.try_get(1)?, host: row.try_get(2)? })
        };
        read().map(Some).map_err(|e| damaged(&self.store(), &e))
    }

    /// What a statement on the identity row gives; none where there is no such table, either. (The catalog does not show a
    /// table to who has no rights on it, and then a store that is there would look as if it were not.)
    async fn identity_row(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>> {
        let asked = async {
            match self.client.query_opt(sql, values).await {
                Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
                asked => asked,
            }
        };
        bounded(self.address, asked).await
    }

    fn check_owner(&self, found: &Found, own: &str) -> Result<()> {
        let (format, known) = (u32::try_from(found.format).unwrap_or(u32::MAX), FORMAT as u32);
        if found.format > FORMAT {
            return Err(KvError::Newer { store: self.store(), found: format, known });
        }
        if found.format < FORMAT {
            return Err(KvError::Older { store: self.store(), found: format, known });
        }
        if found.owner != own {
            let owner = format!("store {}, made on {}", found.owner, found.host);
            return Err(KvError::OtherOwner { store: self.store(), owner });
        }
        Ok(())
    }

    /// True for a store that another server has begun to make and never used, where one may be made.
    async fn is_left_over(&self, found: &Found, options: &DatabaseOptions) -> Result<bool> {
        let foreign = found.format == FORMAT && found.owner != options.store;
        Ok(foreign && options.create && self.is_empty().await?)
    }

    async fn is_empty(&self) -> Result<bool> {
        let some = "SELECT k FROM strake_kv LIMIT 1";
        Ok(bounded(self.address, self.client.query_opt(some, &[])).await?.is_none())
    }

    /// Makes a store that was left over our own, unless its owner wrote into it, or opened it, just now.
    async fn adopt(&self, left: &Found, options: &DatabaseOptions) -> Result<()> {
        match self.take_over(&left.owner, &options.host, Part::Whole).await {
            Ok(Opening { writer, .. }) if self.is_empty().await? => {
                // Who has opened a part since has a later number, and may write.
                let sql = "UPDATE strake_store SET owner = $1, host = $2 \
                     WHERE id = 1 AND owner = $3 AND writers = $4";
                let values: &[&(dyn ToSql + Sync)] =
                    &[&options.store, &options.host, &left.owner, &writer];
                bounded(self.address, self.client.execute(sql, values)).await?;
            }
            // Another was faster.
            Ok(_) | Err(KvError::OtherOwner { .. }) => {}
            Err(error) => return Err(error),
        }
        let found = self.owner().await?.ok_or_else(|| self.missing())?;
        self.check_owner(&found, &options.store)
    }

    /// Brings the tables of an older release up to date, and shuts out whoever writes as that one did.
    async fn upgrade(&self, found: &Found, options: &DatabaseOptions) -> Result<()> {
        self.check_owner(&Found { format: FORMAT, ..found.clone() }, &options.store)?;
        bounded(self.address, self.client.batch_execute(ADD_PARTS)).await?;
        self.take_over(&options.store, &options.host, Part::Whole).await?;
        let sql = "UPDATE strake_store SET format = $1 WHERE id = 1 AND format < $1";
        bounded(self.address, self.client.execute(sql, &[&FORMAT])).await?;
        Ok(())
    }

    fn missing(&self) -> KvError {
        KvError::Refused {
            store: self.store(),
            cause: "it is empty, and this server's metadata should be there".into(),
            next: "correct --meta, or restore the database from a backup".into(),
        }
    }

    async fn create(&self, options: &DatabaseOptions) -> Result<()> {
        for table in TABLES {
            bounded(self.address, self.client.batch_execute(table)).await?;
        }
        // An older release may have begun them.
        bounded(self.address, self.client.batch_execute(ADD_PARTS)).await?;
        if !self.is_empty().await? {
            let cause = "keys are there, but not the row in strake_store that says whose".into();
            return Err(KvError::Corrupt { store: self.store(), cause });
        }
        let sql = "INSERT INTO strake_store (id, format, owner, host, made, writers) \
             VALUES (1, $1, $2, $3, now(), 0) ON CONFLICT (id) DO NOTHING";
        let values: &[&(dyn ToSql + Sync)] = &[&FORMAT, &options.store, &options.host];
        bounded(self.address, self.client.execute(sql, values)).await?;
        // Another may have been faster.
        let found = self.owner().await?.ok_or_else(|| self.missing())?;
        self.check_owner(&found, &options.store)
    }

    /// Each step alone, in this order: of two that open at once the later number is left.
    async fn take_over(&self, owner: &str, host: &str, part: Part) -> Result<Opening> {
        let part = match part {
            Part::Whole => WHOLE,
            Part::Control => 0,
            Part::Volume(id) => i64::from(id),
        };
        let (writer, seq) = (self.next_number(owner).await?, self.first_seq()?);
        let enter = "INSERT INTO strake_writer (writer, seq, fenced, host, part) VALUES ($1, $2, false, $3, $4)";
        let values: &[&(dyn ToSql + Sync)] = &[&writer, &seq, &host, &part];
        bounded(self.address, self.client.execute(enter, values)).await?;
        // Waits for a commit of an earlier one that is under way; none is begun after it.
        let fence = "UPDATE strake_writer SET fenced = true WHERE writer < $1 AND NOT fenced \
             AND (part = $2 OR part = -1 OR $2 = -1)";
        bounded(self.address, self.client.execute(fence, &[&writer, &part])).await?;
        // One that took a later number may have come to that before us, and has not seen us.
        let own = "UPDATE strake_writer SET fenced = true WHERE writer = $1 AND EXISTS (\
             SELECT 1 FROM strake_writer AS t WHERE t.writer > $1 AND (t.part = $2 OR t.part = -1 OR $2 = -1))";
        if bounded(self.address, self.client.execute(own, &[&writer, &part])).await? > 0 {
            let by = "a host that opened it at the same time".into();
            return Err(KvError::TakenOver { store: self.store(), by });
        }
        let forget = "DELETE FROM strake_writer WHERE fenced AND writer < $1";
        bounded(self.address, self.client.execute(forget, &[&(writer - WRITERS_KEPT)])).await?;
        Ok(Opening { writer, seq })
    }

    fn first_seq(&self) -> Result<i64> {
        let random = SystemRandom.number().map_err(|e| KvError::Io {
            store: self.store(),
            cause: format!("random numbers: {e}"),
        })?;
        Ok((random >> (u64::BITS - SEQ_BITS + 1)) as i64)
    }

    /// The number of the next writer, if the store is this owner's: since it was opened the database may have been emptied,
    /// and filled by somebody else.
    async fn next_number(&self, owner: &str) -> Result<i64> {
        let sql = "UPDATE strake_store SET writers = writers + 1 WHERE id = 1 AND owner = $1 \
             RETURNING writers";
        if let Some(row) = self.identity_row(sql, &[&owner]).await? {
            return row.try_get(0).map_err(|e| damaged(&self.store(), &e));
        }
        let found = self.owner().await?.ok_or_else(|| self.missing())?;
        self.check_owner(&found, owner)?;
        let cause = "it was made anew just now".into();
        Err(KvError::Unreachable { store: self.store(), cause })
    }
}

fn check_version(store: &str, found: &str) -> Result<()> {
    match found.parse::<i64>() {
        Ok(version) if version < SERVER_VERSION_MIN => Err(KvError::Refused {
            store: store.into(),
            cause: format!("the server is PostgreSQL {}", version / 10_000),
            next: format!("upgrade it to {} or newer", SERVER_VERSION_MIN / 10_000),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::primary;
    use super::*;
    use crate::kv::tests::postgres::{Shared as _, postgres, run};

    /// Of two who began at once the second made the store its own, although the first had it already.
    #[test]
    fn a_store_that_another_has_made_its_own_meanwhile_is_left_to_it() {
        let database = postgres();
        drop(database.open().unwrap());
        let address = Address::parse(&database.options.url).unwrap();
        let options = DatabaseOptions {
            url: database.options.url.clone(),
            store: "slower".into(),
            create: true,
            host: "here".into(),
            wait_ms_max: 20_000,
        };
        run(async {
            let (client, _) = primary::connect(&address).await.unwrap();
            let db = Db { client: &client, address: &address };
            let left = db.owner().await.unwrap().unwrap();
            database.sql("UPDATE strake_store SET owner = 'faster'");
            let error = db.adopt(&left, &options).await.unwrap_err();
            assert!(matches!(error, KvError::OtherOwner { .. }), "{error}");
        });
        assert_eq!(database.sql("SELECT owner FROM strake_store"), "faster");
    }

    #[test]
    fn a_server_that_is_too_old_is_refused() {
        let error = check_version("postgres://u@h:5432/d", "100023").unwrap_err().to_string();
        assert!(error.contains("PostgreSQL 10") && error.contains("upgrade it to 11"), "{error}");
        check_version("", "150018").unwrap();
    }
}
