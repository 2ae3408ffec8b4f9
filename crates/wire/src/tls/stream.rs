//! A TCP connection under TLS, used by shared reference like any other stream.
//!
//! One lock holds the state of both directions. What is received lies in it decrypted until somebody
//! asks; what is sent is encrypted into it and goes to the socket in the same call. A write that was
//! encrypted but does not fit into the socket counts as not done: the next try begins with the same
//! bytes (so [`Stream::try_write`] demands), which are then not encrypted again. So nothing is left
//! behind that nobody would send.
//!
//! The end of the TCP connection is the end, with or without a word of good-bye: frames know their
//! lengths, so a connection that somebody cuts is no different from one that broke.

use super::explain;
use crate::stream::Stream;
use bytes::BufMut;
use parking_lot::Mutex;
use rustls::Connection;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// Bytes asked of the socket at once. (The library asks for 4 KiB: four calls to the kernel a record.)
const RECEIVED_BYTES: usize = 128 << 10;
/// The longest record: its header, contents, and what encryption adds.
const RECORD_BYTES_MAX: usize = 5 + (16 << 10) + 256;
/// Bytes encrypted before they are given to the socket.
const ENCRYPTED_BYTES_MAX: usize = 256 << 10;

/// A socket as the library wants it.
pub(super) struct Socket<'a>(pub &'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.try_write(data)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection after its handshake.
pub struct TlsStream {
    socket: TcpStream,
    state: Mutex<State>,
}

struct State {
    connection: Connection,
    /// Received, not yet given to the library: `received[taken..]`.
    received: Vec<u8>,
    taken: usize,
    /// Bytes that were encrypted by a write that then failed for now.
    ahead: usize,
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        let state = State { connection, received: Vec::new(), taken: 0, ahead: 0 };
        Self { socket, state: Mutex::new(state) }
    }
}

impl State {
    /// Moves decrypted bytes, at most `max`.
    fn take_plain(&mut self, into: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        let mut moved = 0;
        while moved < max {
            let mut reader = self.connection.reader();
            let plain = match reader.fill_buf() {
                Ok(plain) => plain,
                // Nothing at hand, or the other side said good-bye: the socket will tell.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::UnexpectedEof
                    ) =>
                {
                    break;
                }
                Err(e) => return Err(e),
            };
            let step = plain.len().min(max - moved);
            if step == 0 {
                break;
            }
            into.extend_from_slice(&plain[..step]);
            reader.consume(step);
            moved += step;
        }
        Ok(moved)
    }

    /// Gives received bytes to the library until it has a record; false if there are none left.
    fn decrypt(&mut self, socket: &TcpStream) -> io::Result<bool> {
        while self.taken < self.received.len() {
            let mut rest = &self.received[self.taken..];
            let step = self.connection.read_tls(&mut rest)?;
            self.taken += step;
            let state = self.connection.process_new_packets().map_err(|e| {
                // The alert that tells the other side why; it may be gone.
                let _ = self.flush(socket);
                explain::stream(&e)
            })?;
            if self.connection.wants_write() {
                // Answers to the other side's changes of key. What does not go now goes with the next write.
                let _ = self.flush(socket);
            }
            if state.plaintext_bytes_to_read() > 0 {
                return Ok(true);
            }
            if step == 0 {
                // After a good-bye nothing more is read.
                self.taken = self.received.len();
            }
        }
        Ok(false)
    }

    /// Fills the buffer from the socket; 0 at the end.
    fn receive(&mut self, socket: &TcpStream) -> io::Result<usize> {
        self.received.clear();
        self.taken = 0;
        self.received.reserve(RECEIVED_BYTES);
        socket.try_read_buf(&mut (&mut self.received).limit(RECEIVED_BYTES))
    }

    fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut Socket(socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

impl Stream for TlsStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_read_ready(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    fn try_read(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        let mut state = self.state.lock();
        let (mut moved, mut received) = (0, 0);
        loop {
            moved += state.take_plain(into, max - moved)?;
            if moved == max {
                return Ok(moved);
            }
            if state.decrypt(&self.socket)? {
                continue;
            }
            if moved > 0 {
                return Ok(moved);
            }
            // Whole records, and nothing in them. They may come faster than they are decrypted, without an end: the library refuses
            // empty ones in a row, and changes of key in a row, but not both by turns.
            if received > RECORD_BYTES_MAX {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match state.receive(&self.socket)? {
                0 => return Ok(0),
                more => received += more,
            }
        }
    }

    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state.lock();
        if state.ahead == 0 {
            // First what the reading side may have left.
            state.flush(&self.socket)?;
            state.ahead = state.connection.writer().write_vectored(parts)?;
        }
        state.flush(&self.socket)?;
        Ok(std::mem::take(&mut state.ahead))
    }

    fn close(&self) {
        self.socket.close();
    }

    fn peer(&self) -> String {
        self.socket.peer()
    }
}
