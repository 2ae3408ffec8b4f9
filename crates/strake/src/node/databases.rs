//! Databases that can keep the metadata: the one place that tells them apart, by their URLs.

use std::sync::Arc;
use strake_engine::kv::{
    PostgresOptions, Result, Store, is_postgres, open_postgres, postgres_shown,
};

/// What `node.json` calls the engines of stores in a database.
const POSTGRES: &str = "postgres";
const TIKV: &str = "tikv";

/// True if `text` is meant to be the URL of a database.
pub fn is_database(text: &str) -> bool {
    is_postgres(text) || is_tikv(text)
}

fn is_tikv(url: &str) -> bool {
    url.starts_with("tikv://")
}

/// True if an engine with this name keeps its store in a database.
pub fn is_database_engine(engine: &str) -> bool {
    [POSTGRES, TIKV].contains(&engine)
}

/// The engine of the database with this URL.
pub fn engine_of(url: &str) -> &'static str {
    if is_tikv(url) { TIKV } else { POSTGRES }
}

/// Where a database is, without the password.
pub fn database_shown(url: &str) -> Result<String> {
    if is_tikv(url) { tikv::shown(url) } else { postgres_shown(url) }
}

/// Opens a store in a database. Blocks, for not much longer than `wait_ms_max`.
pub fn open_database(options: &PostgresOptions) -> Result<Arc<dyn Store>> {
    if is_tikv(&options.url) { tikv::open(options) } else { open_postgres(options) }
}

#[cfg(feature = "tikv")]
mod tikv {
    use super::{Arc, PostgresOptions, Result, Store};
    use strake_tikv::{TikvOptions, open_tikv, tikv_shown};

    pub fn shown(url: &str) -> Result<String> {
        tikv_shown(url)
    }

    pub fn open(options: &PostgresOptions) -> Result<Arc<dyn Store>> {
        let PostgresOptions { url, store, create, host, wait_ms_max } = options.clone();
        open_tikv(&TikvOptions { url, store, create, host, wait_ms_max })
    }
}

#[cfg(not(feature = "tikv"))]
mod tikv {
    use super::{Arc, PostgresOptions, Result, Store};
    use strake_engine::kv::KvError;

    /// This program has no client of TiKV.
    fn missing() -> KvError {
        KvError::Refused {
            store: "tikv://...".into(),
            cause: "this strake was built without TiKV".into(),
            next: "build one with it: cargo build --release -p strake --features tikv".into(),
        }
    }

    pub fn shown(_url: &str) -> Result<String> {
        Err(missing())
    }

    pub fn open(_options: &PostgresOptions) -> Result<Arc<dyn Store>> {
        Err(missing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_told_apart_and_a_missing_engine_is_named() {
        assert_eq!(engine_of("postgres://u@h/d"), "postgres");
        assert_eq!(engine_of("tikv://pd:2379/name"), "tikv");
        assert!(is_database("tikv://pd/name") && !is_database("embedded"));
        assert!(is_database_engine("tikv") && !is_database_engine("redb"));
        match database_shown("tikv://pd/name") {
            Ok(shown) => assert_eq!(shown, "tikv://pd:2379/name"),
            Err(error) => assert!(error.to_string().contains("--features tikv"), "{error}"),
        }
    }
}
