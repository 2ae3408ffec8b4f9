//! What a caller may choose.

use crate::hello::CallerKind;
use crate::tls::Tls;
use std::sync::Arc;
use std::time::Duration;

/// How to call.
#[derive(Clone, Debug)]
pub struct CallerOptions {
    /// Who calls, for the logs of the other side.
    pub name: String,
    /// What that is.
    pub kind: CallerKind,
    /// Connections a peer for data.
    pub bulk_lanes: usize,
    /// Longest time until an answer.
    pub call_timeout_ms: u64,
    /// Longest time until a connection stands.
    pub connect_timeout_ms: u64,
    /// Certificates: with them, every TCP connection is encrypted.
    pub tls: Option<Arc<Tls>>,
}

impl Default for CallerOptions {
    fn default() -> Self {
        let name = format!("process {}", std::process::id());
        Self {
            name,
            kind: CallerKind::Client,
            bulk_lanes: 2,
            call_timeout_ms: 20_000,
            connect_timeout_ms: 3_000,
            tls: None,
        }
    }
}

impl CallerOptions {
    /// Longest time until an answer.
    pub(crate) fn call_timeout(&self) -> Duration {
        Duration::from_millis(self.call_timeout_ms)
    }

    /// Longest time until a connection stands.
    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }
}
