//! Who makes new targets while a server runs.

use async_trait::async_trait;
use strake_types::Result;
use strake_wire::message::storage::{AddTarget, Added};

/// Makes new targets: directories, and the cluster's leave, are not for the storage role to know.
#[async_trait]
pub trait Opener: Send + Sync + 'static {
    /// Makes a target, has the storage role serve it (`StorageServer::add_target`), and lets it enter
    /// the cluster. An error says what to do after its last semicolon.
    async fn open(&self, wanted: AddTarget) -> Result<Added>;
}
