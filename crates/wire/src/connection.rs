//! The client's side of a connection.

use crate::caller::CallerOptions;
use crate::frame::{Draft, ServiceClass};
use bytes::Bytes;
use parking_lot::RwLock;
use std::sync::Arc;
use strake_types::{Error, ErrorKind, Result};

/// What all peers of an address book share.
pub struct PeerOptions {
    options: CallerOptions,
    cluster: RwLock<String>,
}

impl PeerOptions {
    /// Options before the cluster is known.
    pub fn new(options: CallerOptions) -> Self {
        Self { options, cluster: RwLock::default() }
    }

    /// From now on only servers of this cluster are talked to.
    pub fn set_cluster(&self, cluster: &str) {
        if *self.cluster.read() != cluster {
            *self.cluster.write() = cluster.to_owned();
        }
    }
}

/// A call before it is given to a connection.
pub struct Call {
    /// Whom it is for.
    pub service: ServiceClass,
    /// Body and payload.
    pub draft: Draft,
    /// By a bulk lane.
    pub bulk: bool,
    /// How many times the common limit the call may take.
    pub timeout_factor: u32,
}

impl Call {
    /// A call by the control lane.
    pub fn new(service: ServiceClass, draft: Draft) -> Self {
        Self { service, draft, bulk: false, timeout_factor: 1 }
    }
}

/// A server in another process.
pub struct Peer {
    address: String,
    options: Arc<PeerOptions>,
}

impl Peer {
    /// A peer that is connected to when it is first called.
    pub fn new(address: &str, options: Arc<PeerOptions>) -> Self {
        Self { address: address.to_owned(), options }
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Body and payload of the answer.
    pub async fn call(&self, call: Call) -> Result<(Bytes, Bytes)> {
        let _ = (call.draft, self.options.options.call_timeout());
        Err(Error::with(ErrorKind::Unavailable, self.address.clone()))
    }

    /// Closes every connection.
    pub fn close(&self) {}
}
