//! Databases that can keep the metadata: those of the engine's crate, and TiKV where this program was built with it.

use std::sync::Arc;
use strake_engine::kv::{self, DatabaseOptions, Result, Store};

/// What `node.json` calls the engine.
const TIKV: &str = "tikv";
const TIKV_FORM: &str = "tikv://HOST,HOST,HOST/NAME";

/// How the URLs of databases look, for messages.
pub fn database_forms() -> String {
    format!("{} or {TIKV_FORM}", kv::DATABASE_FORMS.replace(" or ", ", "))
}

fn is_tikv(url: &str) -> bool {
    url.starts_with("tikv://")
}

/// The name of the engine that a URL asks for; `None`: it is no URL of a database.
pub fn database_engine(url: &str) -> Option<&'static str> {
    if is_tikv(url) { Some(TIKV) } else { kv::database_engine(url) }
}

/// True if an engine of this name keeps its stores in a database.
pub fn is_database_engine(name: &str) -> bool {
    name == TIKV || kv::is_database_engine(name)
}

/// True if one commit of an engine of this name can change what lies in several parts of a database ([`Store::spans_parts`]):
/// one of TiKV cannot.
pub fn spans_parts(name: &str) -> bool {
    kv::is_database_engine(name)
}

/// Where a database is, without the password. Fails where the URL cannot be read.
pub fn database_shown(url: &str) -> Result<String> {
    if is_tikv(url) { tikv::shown(url) } else { kv::database_shown(url) }
}

/// Opens a store in a database, and makes it where there is none. Blocks, for not much longer than `wait_ms_max`.
pub fn open_database(options: &DatabaseOptions) -> Result<Arc<dyn Store>> {
    if is_tikv(&options.url) { tikv::open(options) } else { kv::open_database(options) }
}

/// What an administrator does who wants an empty store.
pub fn how_to_empty(url: &str) -> String {
    match is_tikv(url) {
        true => "give another name in the URL".into(),
        false => format!(
            "name an empty database, or, if nobody needs what is in this one, empty it: {}",
            kv::how_to_empty(url)
        ),
    }
}

#[cfg(feature = "tikv")]
mod tikv {
    pub use strake_tikv::{open_tikv as open, tikv_shown as shown};
}

#[cfg(not(feature = "tikv"))]
mod tikv {
    use super::{Arc, DatabaseOptions, Result, Store};
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

    pub fn open(_options: &DatabaseOptions) -> Result<Arc<dyn Store>> {
        Err(missing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_told_apart_and_a_missing_engine_is_named() {
        assert_eq!(database_engine("postgres://u@h/d"), Some("postgres"));
        assert_eq!(database_engine("etcd://h/d"), Some("etcd"));
        assert_eq!(database_engine("tikv://pd:2379/name"), Some("tikv"));
        assert_eq!(database_engine("embedded"), None);
        assert!(is_database_engine("tikv") && !is_database_engine("redb"));
        assert!(how_to_empty("tikv://pd/name").contains("another name"));
        assert!(how_to_empty("etcd://h/name").contains("etcdctl del"));
        match database_shown("tikv://pd/name") {
            Ok(shown) => assert_eq!(shown, "tikv://pd:2379/name"),
            Err(error) => assert!(error.to_string().contains("--features tikv"), "{error}"),
        }
    }
}
