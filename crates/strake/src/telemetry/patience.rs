//! A listener whose connections end by themselves: whoever asks for metrics gets them at once, and
//! whoever connects and says nothing keeps no socket for ever.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Longest life of a connection.
const CONNECTION_MS_MAX: u64 = 10_000;
/// Connections at once; more wait until they are accepted.
const CONNECTIONS_MAX: usize = 64;

/// See the module.
pub struct Patience {
    listener: TcpListener,
    slots: Arc<Semaphore>,
}

/// A connection that fails when its time is over.
pub struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Patience {
    /// Accepts from this listener.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, slots: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

impl Listener for Patience {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Never closed, so there is always a slot in the end.
        let slot = self.slots.clone().acquire_owned().await.ok();
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let end = Box::pin(tokio::time::sleep(Duration::from_millis(CONNECTION_MS_MAX)));
        (Connection { stream, end, _slot: slot }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connection {
    /// The stream, unless the time is over.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_shutdown(cx)
    }
}
