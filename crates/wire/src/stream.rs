//! A connected byte stream, and the sockets that are one.

use bytes::BufMut;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::task::{Context, Poll};
use tokio::net::{TcpStream, UnixStream};

/// A connected byte stream that is used by shared reference.
pub trait Stream: Send + Sync + 'static {
    /// Waits until reading is worth a try. One task at a time.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Waits until writing is worth a try. One task at a time.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Appends at most `max` received bytes to the spare capacity of `into`. 0 bytes: the end. [`io::ErrorKind::Interrupted`]: much has
    /// come, and nothing of it is to be read; others are to have their turn before the next try.
    fn try_read(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize>;
    /// Sends what the connection takes at once. After an error that is worth another try, the next
    /// try must begin with the same bytes: an encrypted stream has taken them already.
    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Ends both directions; whoever waits is woken.
    fn close(&self);
    /// The other side, for logs.
    fn peer(&self) -> String;
}

/// The two kinds of socket have the same methods but no trait of them.
macro_rules! socket_stream {
    ($socket:ty, $peer:path) => {
        impl Stream for $socket {
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
                $peer(self)
            }
        }
    };
}

socket_stream!(TcpStream, tcp_peer);
socket_stream!(UnixStream, unix_peer);

fn tcp_peer(socket: &TcpStream) -> String {
    socket.peer_addr().map_or_else(|_| "unknown".into(), |address| address.to_string())
}

fn unix_peer(socket: &UnixStream) -> String {
    let pid = socket.peer_cred().ok().and_then(|c| c.pid());
    pid.map_or_else(|| "local process".into(), |pid| format!("local process {pid}"))
}
