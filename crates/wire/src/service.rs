//! What a server implements: one trait per role, one method each.
//!
//! A service is called directly where it lives in the caller's process, and by a connection where
//! it does not. Errors are [`strake_types::Error`] on both ways.

use crate::message::{manager, meta, storage};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use strake_types::Result;

/// Names and attributes.
#[async_trait]
pub trait MetaService: Send + Sync + 'static {
    /// Carries out one operation on a volume.
    async fn call(&self, request: meta::MetaRequest) -> Result<meta::MetaReply>;
}

/// Contents.
#[async_trait]
pub trait StorageService: Send + Sync + 'static {
    /// Carries out one operation on a target. `payload` is what a write carries; the bytes returned
    /// are what a read answers; both are empty otherwise.
    async fn call(
        &self,
        request: storage::StorageRequest,
        payload: Bytes,
    ) -> Result<(storage::StorageReply, Bytes)>;
}

/// Membership.
#[async_trait]
pub trait ManagerService: Send + Sync + 'static {
    /// Carries out one operation on the cluster.
    async fn call(&self, request: manager::ManagerRequest) -> Result<manager::ManagerReply>;
}

/// The services of one server, as far as it has them.
#[derive(Clone, Default)]
pub struct Services {
    /// Membership.
    pub manager: Option<Arc<dyn ManagerService>>,
    /// Names and attributes.
    pub meta: Option<Arc<dyn MetaService>>,
    /// Contents.
    pub storage: Option<Arc<dyn StorageService>>,
}
