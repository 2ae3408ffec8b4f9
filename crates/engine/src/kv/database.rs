//! Which database a URL means.

use super::etcd::{self, etcd_shown, is_etcd, open_etcd};
use super::postgres::{self, is_postgres, open_postgres, postgres_shown};
use super::{DatabaseOptions, Result, Store};
use std::sync::Arc;

/// How long to wait for a database that does not answer, in milliseconds, unless told otherwise.
pub const WAIT_MS_DEFAULT: u64 = 10_000;
/// How the URLs of databases look, for messages.
pub const DATABASE_FORMS: &str = "postgres://USER@HOST/DATABASE or etcd://HOST,HOST,HOST/NAME";

/// Opens a store in a database, and makes it where there is none. Blocks, for not much longer than
/// `wait_ms_max`.
pub fn open_database(options: &DatabaseOptions) -> Result<Arc<dyn Store>> {
    match is_etcd(&options.url) {
        true => open_etcd(options),
        false => open_postgres(options),
    }
}

/// The name of the engine that a URL asks for; `None`: it is no URL of a database.
#[must_use]
pub fn database_engine(url: &str) -> Option<&'static str> {
    match (is_postgres(url), is_etcd(url)) {
        (true, _) => Some(postgres::NAME),
        (_, true) => Some(etcd::NAME),
        _ => None,
    }
}

/// True if an engine of this name keeps its stores in a database.
#[must_use]
pub fn is_database_engine(name: &str) -> bool {
    [postgres::NAME, etcd::NAME].contains(&name)
}

/// Where a database is, without the password. Fails where the URL cannot be read.
pub fn database_shown(url: &str) -> Result<String> {
    match is_etcd(url) {
        true => etcd_shown(url),
        false => postgres_shown(url),
    }
}

/// How an administrator empties a store in a database that nobody needs.
#[must_use]
pub fn how_to_empty(url: &str) -> String {
    match is_etcd(url) {
        true => etcd::how_to_empty(url),
        false => "DROP TABLE strake_kv, strake_writer, strake_store".into(),
    }
}
