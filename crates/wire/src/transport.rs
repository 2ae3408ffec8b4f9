//! Transports: what carries the bytes of a connection.
//!
//! A [`Stream`] is asked without waiting first and waited for only then, by shared reference, so that
//! one task can read while any other writes from where it is. TCP and Unix sockets implement it;
//! an RDMA transport would be a third implementation and another form of address.

use bytes::BufMut;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// What an address of a Unix socket begins with.
const UNIX_PREFIX: &str = "unix:";
/// An idle TCP connection is probed after this time,
const KEEPALIVE_IDLE_MS: u64 = 5_000;
/// then at this interval,
const KEEPALIVE_INTERVAL_MS: u64 = 2_000;
/// and given up after so many probes without an answer.
const KEEPALIVE_PROBES: u32 = 3;
/// Sent bytes that are not acknowledged for this long break a TCP connection.
const UNACKNOWLEDGED_MS_MAX: u64 = 20_000;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A connected byte stream that is used by shared reference.
pub trait Stream: Send + Sync + 'static {
    /// Waits until reading is worth a try. One task at a time.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Waits until writing is worth a try. One task at a time.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Appends at most `max` received bytes to the spare capacity of `into`. 0 bytes: the end.
    fn try_read(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize>;
    /// Sends what the connection takes at once.
    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Ends both directions; whoever waits is woken.
    fn close(&self);
    /// The other side, for logs.
    fn peer(&self) -> String;
}

impl Stream for TcpStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_ready(cx)
    }

    fn try_read(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        self.try_read_buf(&mut into.limit(max))
    }

    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(parts)
    }

    fn close(&self) {
        // An error means that it is closed already.
        let _ = SockRef::from(self).shutdown(Shutdown::Both);
    }

    fn peer(&self) -> String {
        self.peer_addr().map_or_else(|_| "unknown".into(), |a| a.to_string())
    }
}

impl Stream for UnixStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_ready(cx)
    }

    fn try_read(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        self.try_read_buf(&mut into.limit(max))
    }

    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(parts)
    }

    fn close(&self) {
        // An error means that it is closed already.
        let _ = SockRef::from(self).shutdown(Shutdown::Both);
    }

    fn peer(&self) -> String {
        let pid = self.peer_cred().ok().and_then(|c| c.pid());
        pid.map_or_else(|| "local process".into(), |pid| format!("local process {pid}"))
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_millis(KEEPALIVE_IDLE_MS))
        .with_interval(Duration::from_millis(KEEPALIVE_INTERVAL_MS))
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(Duration::from_millis(UNACKNOWLEDGED_MS_MAX)))
    // The sizes of the socket's buffers are left to the kernel: it grows them with the bandwidth,
    // and setting them would switch that off.
}

/// Connects to `host:port` or `unix:/path`. The caller bounds the time.
pub async fn connect(address: &str) -> Result<Arc<dyn Stream>> {
    let result: io::Result<Arc<dyn Stream>> = async {
        if let Some(path) = address.strip_prefix(UNIX_PREFIX) {
            return Ok(Arc::new(UnixStream::connect(path).await?) as Arc<dyn Stream>);
        }
        let stream = TcpStream::connect(address).await?;
        tune(&stream)?;
        Ok(Arc::new(stream) as Arc<dyn Stream>)
    }
    .await;
    result.map_err(|e| Error::with(ErrorKind::Unavailable, format!("connecting to {address}: {e}")))
}

/// A socket on which callers arrive.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket, removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at `host:port` (port 0: any free one) or `unix:/path`.
    pub async fn bind(address: &str) -> Result<Self> {
        let result = match address.strip_prefix(UNIX_PREFIX) {
            Some(path) => bind_unix(Path::new(path)),
            None => bind_tcp(address).await,
        };
        result.map_err(|e| {
            let (kind, hint) = match e.kind() {
                io::ErrorKind::AddrInUse => {
                    (ErrorKind::Busy, "; stop what listens there, or choose another with --listen")
                }
                io::ErrorKind::PermissionDenied => (ErrorKind::AccessDenied, ""),
                io::ErrorKind::InvalidInput => (ErrorKind::Invalid, "; give HOST:PORT"),
                _ => (ErrorKind::Io, ""),
            };
            Error::with(kind, format!("cannot listen at {address}: {e}{hint}"))
        })
    }

    /// The address with the port that was given.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(tcp) => tcp.local_addr().map(|a| a.to_string()).unwrap_or_default(),
            Listener::Unix(_, path) => format!("{UNIX_PREFIX}{}", path.display()),
        }
    }

    /// The next caller.
    pub async fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        match self {
            Listener::Tcp(tcp) => {
                let (stream, _) = tcp.accept().await?;
                tune(&stream)?;
                Ok(Arc::new(stream))
            }
            Listener::Unix(unix, _) => Ok(Arc::new(unix.accept().await?.0)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Somebody may have removed it before; nothing depends on it.
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn bind_tcp(address: &str) -> io::Result<Listener> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such host");
    for candidate in tokio::net::lookup_host(address).await? {
        let socket = match candidate {
            std::net::SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
            std::net::SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
        };
        // A restarted server takes its port back although old connections linger in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        match socket.bind(candidate).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(Listener::Tcp(listener)),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Binds a Unix socket; takes the place of a socket that nobody listens on any more.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    let bound = UnixListener::bind(path);
    if !matches!(&bound, Err(e) if e.kind() == io::ErrorKind::AddrInUse) {
        return bound.map(|l| Listener::Unix(l, path.to_owned()));
    }
    let alive = std::os::unix::net::UnixStream::connect(path);
    if !matches!(alive, Err(e) if e.kind() == io::ErrorKind::ConnectionRefused) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    std::fs::remove_file(path)?;
    UnixListener::bind(path).map(|l| Listener::Unix(l, path.to_owned()))
}
