//! A store of its own in a database that tests have started, the network on the way to it, and what all engines on one
//! meet when that breaks.

use super::proxy::{Protocol, Proxy, State};
use super::suite::shared::Shared;
use super::suite::{get, put, run};
use crate::kv::memory::Random;
use crate::kv::{DatabaseOptions, KvError, Outcome, Result, Store, Transaction, open_database};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A new store, and the way to it.
pub struct Reached {
    pub options: DatabaseOptions,
    protocol: Protocol,
    /// Of its server.
    port: u16,
    proxy: Option<Proxy>,
}

impl Reached {
    pub fn new(protocol: Protocol, port: u16, url: String) -> Self {
        let options = DatabaseOptions {
            url,
            store: "own".into(),
            create: true,
            host: "here".into(),
            wait_ms_max: 20_000,
        };
        Self { options, protocol, port, proxy: None }
    }

    /// Reached through a network that cuts commits at random.
    pub fn cut(self, seed: u64) -> Self {
        self.behind(Some(Random::new(seed)))
    }

    /// Reached through a network that breaks when told.
    pub fn through(self) -> Self {
        self.behind(None)
    }

    fn behind(mut self, random: Option<Random>) -> Self {
        let proxy = Proxy::new(self.protocol, self.port, random);
        let port = self.port.to_string();
        self.options.url = self.options.url.replace(&port, &proxy.port.to_string());
        self.proxy = Some(proxy);
        self
    }

    /// What the network does, and has done.
    pub fn state(&self) -> &Arc<State> {
        &self.proxy.as_ref().unwrap().state
    }

    /// The last part of its URL: the name of the database, or what all its keys in etcd begin with.
    pub fn name(&self) -> &str {
        self.options.url.rsplit('/').next().unwrap()
    }
}

impl Shared for Reached {
    fn options(&mut self) -> &mut DatabaseOptions {
        &mut self.options
    }

    fn store(&self) -> Result<Arc<dyn Store>> {
        open_database(&self.options)
    }

    fn cuts(&self) -> u32 {
        self.state().cuts.load(Ordering::SeqCst)
    }
}

/// The commit was carried out, its answer lost, and the database away for longer than one waits.
pub fn a_commit_is_unknown_while_it_is_away(database: Reached) {
    let mut database = database.through();
    database.options.wait_ms_max = 5_000;
    let kv = database.open().unwrap();
    let state = database.state();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        transaction.put(b"a".to_vec(), "2");
        state.down_at_commit.store(true, Ordering::SeqCst);
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Unknown);
        let error = kv.snapshot().await.err().unwrap();
        assert!(matches!(error, KvError::Unreachable { .. }), "{error}");
        assert!(matches!(put(&*kv, "b", "1").await, Err(KvError::Unreachable { .. })));
        state.down.store(false, Ordering::SeqCst);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"2");
        assert_eq!(put(&*kv, "a", "3").await.unwrap(), Outcome::Committed);
    });
}

/// The network holds a commit back until long after it has been given up.
pub fn a_late_commit_does_not_happen(database: Reached) {
    let mut database = database.through();
    database.options.wait_ms_max = 5_000;
    let kv = database.open().unwrap();
    let state = database.state();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        transaction.put(b"a".to_vec(), "late");
        state.hold_commit.store(true, Ordering::SeqCst);
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Unknown);
        state.down.store(false, Ordering::SeqCst);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        state.hold_commit.store(false, Ordering::SeqCst);
        while !state.arrived.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
    });
}
