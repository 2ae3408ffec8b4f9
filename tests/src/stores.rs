//! What is done to the metadata store of a server while it is stopped.

use crate::cluster::Servers;
use std::path::Path;
use strake_engine::kv::{EngineKind, Outcome, Transaction};

/// Changes or deletes a key; true if it was there.
pub fn edit(store: &Path, key: Vec<u8>, value: Option<Vec<u8>>) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    let kv = strake_engine::kv::open(EngineKind::default(), store).expect("it is in no use");
    runtime.block_on(async {
        let mut tx = Transaction::begin(&*kv).await.expect("the store is sound");
        let was_there = tx.get(&key).await.expect("a key can be read").is_some();
        match value {
            Some(value) => tx.put(key, value),
            None => tx.delete(key),
        }
        let ended = tx.commit(&*kv).await.expect("a transaction can be committed");
        assert_eq!(ended, Outcome::Committed);
        kv.sync().await.expect("it is written");
        was_there
    })
}

/// Starts a server again with damage among the sessions of a volume: that one it does not serve.
pub fn restart_without(servers: &mut Servers, volume: u32) {
    servers.server().stop();
    let key = [&b"S"[..], &volume.to_be_bytes(), &1u64.to_be_bytes()].concat();
    let store = servers.directory().join("target0/meta");
    edit(&store, key, Some(b"no session".to_vec()));
    servers.kill();
    servers.start_again();
}
