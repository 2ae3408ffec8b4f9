//! Transports: what carries the bytes of a connection.
//!
//! A [`Stream`] is asked without waiting first and waited for only then, by shared reference, so that
//! one task can read while any other writes from where it is. TCP and Unix sockets implement it, and
//! TCP under TLS ([`crate::tls`]); an RDMA transport would be a further implementation and another
//! form of address.
//!
//! Where certificates are given, every TCP connection is encrypted and both sides prove who they are;
//! a Unix socket never leaves the machine and stays as it is.

use crate::tls::{Certificate, Tls};
use futures::stream::{FuturesUnordered, StreamExt};
use socket2::{SockRef, TcpKeepalive};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

pub use crate::stream::Stream;

/// What an address of a Unix socket begins with.
pub const UNIX_PREFIX: &str = "unix:";
/// Longest path of a Unix socket that every kernel takes.
const SOCKET_PATH_BYTES_MAX: usize = 100;
/// An idle TCP connection is probed after this time,
const KEEPALIVE_IDLE_MS: u64 = 5_000;
/// then at this interval,
const KEEPALIVE_INTERVAL_MS: u64 = 2_000;
/// and given up after so many probes without an answer.
const KEEPALIVE_PROBES: u32 = 3;
/// Sent bytes that are not acknowledged for this long break a TCP connection.
const UNACKNOWLEDGED_MS_MAX: u64 = 20_000;
/// When there is no connection after this time, the next address of a name is tried as well: one to which packets are lost says nothing.
const NEXT_ADDRESS_MS: u64 = 300;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

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

/// A connection that stands.
pub struct Connected {
    /// What carries its bytes.
    pub stream: Arc<dyn Stream>,
    /// What the other side has proved to be; `None` where nobody has to prove anything.
    pub certificate: Option<Certificate>,
}

impl Connected {
    fn plain(stream: impl Stream) -> Self {
        Self { stream: Arc::new(stream), certificate: None }
    }
}

/// Connects to `host:port` or `unix:/path`. The caller bounds the time.
pub async fn connect(address: &str, tls: Option<&Tls>) -> Result<Connected> {
    let failed =
        |e: io::Error| Error::with(ErrorKind::Unavailable, format!("connecting to {address}: {e}"));
    if let Some(path) = address.strip_prefix(UNIX_PREFIX) {
        return connect_unix(path).await.map(Connected::plain).map_err(failed);
    }
    let addresses = tokio::net::lookup_host(address).await.map_err(failed)?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    let socket = connect_any(addresses).await.map_err(failed)?;
    tune(&socket).map_err(failed)?;
    let Some(tls) = tls else {
        return Ok(Connected::plain(socket));
    };
    let connected = tls.connect(socket, host_of(address)).await;
    let (stream, certificate) = connected.map_err(|e| e.about(address))?;
    Ok(Connected { stream: Arc::new(stream), certificate: Some(certificate) })
}

/// Connects to a Unix socket, however long its path is.
pub async fn connect_unix(path: &str) -> io::Result<UnixStream> {
    let near = Near::new(Path::new(path))?;
    UnixStream::connect(&near.path).await
}

/// Connects to that of the addresses of a name which is the first to answer, by TCP alone.
pub async fn connect_any(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    first_of(addresses, TcpStream::connect::<SocketAddr>).await
}

/// Connects to that of these addresses which is the first to answer; of none, the error of the last one that failed.
async fn first_of<A, T, F>(
    addresses: impl IntoIterator<Item = A>,
    connect: impl Fn(A) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut addresses = addresses.into_iter().peekable();
    let mut attempts: FuturesUnordered<F> = FuturesUnordered::new();
    let mut error = io::Error::new(io::ErrorKind::InvalidInput, "no such host");
    loop {
        attempts.extend(addresses.next().map(&connect));
        let has_more = addresses.peek().is_some();
        let pause = Duration::from_millis(NEXT_ADDRESS_MS);
        tokio::select! {
            biased;
            connected = attempts.next() => match connected {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(e)) => error = e,
                None => return Err(error),
            },
            () = tokio::time::sleep(pause), if has_more => {}
        }
    }
}

/// True of the address of a Unix socket.
pub fn is_unix(address: &str) -> bool {
    address.starts_with(UNIX_PREFIX)
}

/// The host of `host:port`, without the brackets of an IPv6 address.
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

/// A socket on which callers arrive.
pub struct Listener {
    socket: Socket,
    tls: Option<Arc<Tls>>,
}

enum Socket {
    Tcp(TcpListener),
    /// Removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at `host:port` (port 0: any free one) or `unix:/path`.
    pub async fn bind(address: &str) -> Result<Self> {
        let result = match address.strip_prefix(UNIX_PREFIX) {
            Some(path) => bind_unix(Path::new(path)),
            None => bind_tcp(address).await,
        };
        let socket = result.map_err(|e| {
            let (kind, hint) = match e.kind() {
                io::ErrorKind::AddrInUse => (
                    ErrorKind::Busy,
                    "stop what listens there (ss -ltnp shows it), or choose another with --listen",
                ),
                io::ErrorKind::AddrNotAvailable => (
                    ErrorKind::NoSuchAddress,
                    "give one of this machine's addresses (ip address shows them) with --listen",
                ),
                io::ErrorKind::PermissionDenied => (
                    ErrorKind::AccessDenied,
                    "choose one where this user may listen with --listen (ports below 1024 are root's)",
                ),
                io::ErrorKind::InvalidInput => (ErrorKind::Invalid, "give HOST:PORT"),
                _ => (ErrorKind::Io, "choose another with --listen"),
            };
            Error::with(kind, format!("cannot listen at {address}: {e}; {hint}"))
        })?;
        Ok(Self { socket, tls: None })
    }

    /// From now on callers by TCP must speak TLS and prove who they are.
    #[must_use]
    pub fn secured_by(mut self, tls: Option<Arc<Tls>>) -> Self {
        self.tls = tls;
        self
    }

    /// The address with the port that was given.
    pub fn address(&self) -> String {
        match &self.socket {
            Socket::Tcp(tcp) => tcp.local_addr().map(|a| a.to_string()).unwrap_or_default(),
            Socket::Unix(_, path) => format!("{UNIX_PREFIX}{}", path.display()),
        }
    }

    /// The next caller. Nothing has been said yet.
    pub async fn accept(&self) -> io::Result<Incoming> {
        match &self.socket {
            Socket::Tcp(tcp) => {
                let (stream, _) = tcp.accept().await?;
                tune(&stream)?;
                Ok(match &self.tls {
                    Some(tls) => Incoming::Tls(stream, tls.clone()),
                    None => Incoming::Plain(Arc::new(stream)),
                })
            }
            Socket::Unix(unix, _) => Ok(Incoming::Plain(Arc::new(unix.accept().await?.0))),
        }
    }
}

/// A caller that has just arrived.
pub enum Incoming {
    /// Nothing has to be agreed on.
    Plain(Arc<dyn Stream>),
    /// TLS is to begin.
    Tls(TcpStream, Arc<Tls>),
}

impl Incoming {
    /// The other side, for logs.
    pub fn peer(&self) -> String {
        match self {
            Incoming::Plain(stream) => stream.peer(),
            Incoming::Tls(socket, _) => socket.peer(),
        }
    }

    /// Agrees on encryption, where it is on. The caller bounds the time.
    pub async fn establish(self) -> Result<Connected> {
        match self {
            Incoming::Plain(stream) => Ok(Connected { stream, certificate: None }),
            Incoming::Tls(socket, tls) => {
                let (stream, certificate) = tls.accept(socket).await?;
                Ok(Connected { stream: Arc::new(stream), certificate: Some(certificate) })
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = &self.socket {
            // Somebody may have removed it before; nothing depends on it.
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn bind_tcp(address: &str) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such host");
    for candidate in tokio::net::lookup_host(address).await? {
        let socket = match candidate {
            SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
            SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
        };
        // A restarted server takes its port back although old connections linger in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        match socket.bind(candidate).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(Socket::Tcp(listener)),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Binds a Unix socket; takes the place of a socket that nobody listens on any more.
/// Only its owner may connect.
fn bind_unix(path: &Path) -> io::Result<Socket> {
    let near = Near::new(path)?;
    let listener = match UnixListener::bind(&near.path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            let alive = std::os::unix::net::UnixStream::connect(&near.path);
            if !matches!(alive, Err(e) if e.kind() == io::ErrorKind::ConnectionRefused) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(&near.path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(Socket::Unix(listener, path.to_owned()))
}

/// A path to a socket that fits a socket's address, which has room for about a hundred bytes: where
/// the socket's own is longer, one by the open directory it lies in.
struct Near {
    path: PathBuf,
    _directory: Option<File>,
}

impl Near {
    fn new(path: &Path) -> io::Result<Self> {
        let (Some(directory), Some(name), true) =
            (path.parent(), path.file_name(), path.as_os_str().len() > SOCKET_PATH_BYTES_MAX)
        else {
            return Ok(Self { path: path.to_owned(), _directory: None });
        };
        let directory = File::open(directory)?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _directory: Some(directory) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// Says nothing, or refuses, or answers.
    async fn attempt(nth: u32) -> io::Result<u32> {
        match nth {
            0 => std::future::pending().await,
            1 => Err(io::ErrorKind::ConnectionRefused.into()),
            nth => Ok(nth),
        }
    }

    /// The first one had all the time that there was, and no other was ever tried.
    #[tokio::test(start_paused = true)]
    async fn of_a_name_whose_first_address_says_nothing_the_next_one_is_tried_soon() {
        let (began, pause) = (Instant::now(), Duration::from_millis(NEXT_ADDRESS_MS));
        assert_eq!(first_of([0, 7], attempt).await.unwrap(), 7);
        let took = began.elapsed();
        assert!((pause..2 * pause).contains(&took), "{took:?}");
        // Who refuses is not waited for.
        assert_eq!(first_of([1, 1, 8, 0], attempt).await.unwrap(), 8);
        assert_eq!(began.elapsed(), took);
        let refused = first_of([1, 1], attempt).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(first_of([], attempt).await.is_err());
    }
}
