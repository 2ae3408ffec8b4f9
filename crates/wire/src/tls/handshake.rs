//! The beginning of an encrypted connection, and what happens when the other side speaks plainly.
//!
//! One side with certificates and one without is the most likely mistake, so both ways it ends in a
//! sentence: the first byte tells TLS from our own frames. A caller that speaks plainly gets its
//! refusal as the frame it waits for; a server that does not speak TLS answers with one.

use super::explain;
use super::stream::{Socket, TlsStream};
use crate::frame::{Draft, MAGIC, TLS_HANDSHAKE};
use crate::hello;
use crate::stream::Stream;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::io;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// After a refusal: how long, and for how many bytes, the other side is listened to. If a socket is
/// closed while bytes in it are unread, what was sent last is lost, and that is the reason.
const FAREWELL_MS_MAX: u64 = 1_000;
const FAREWELL_BYTES_MAX: usize = 64 << 10;

/// The stream, and the certificate the other side showed, with those between it and the CA.
type Established = (TlsStream, Vec<CertificateDer<'static>>);

/// The side that calls.
pub async fn connect(socket: TcpStream, connection: ClientConnection) -> Result<Established> {
    let mut connection = Connection::Client(connection);
    flush(&socket, &mut connection).await.map_err(broke)?;
    match first_byte(&socket).await? {
        Some(byte) if byte == MAGIC[0] => Err(Error::with(
            ErrorKind::WrongPeer,
            "the server speaks without TLS and we have certificates; give it some (strake server \
             --tls-ca, --tls-cert, --tls-key), or leave ours out (--no-tls)",
        )),
        Some(_) => shake(socket, connection).await,
        None => Err(hung_up("is it a Strake server?")),
    }
}

/// The side that was called.
pub async fn accept(socket: TcpStream, connection: ServerConnection) -> Result<Established> {
    match first_byte(&socket).await? {
        Some(TLS_HANDSHAKE) => shake(socket, Connection::Server(connection)).await,
        Some(byte) if byte == MAGIC[0] => {
            let refusal = Error::with(
                ErrorKind::WrongPeer,
                "the server takes encrypted connections only; give --tls-ca, --tls-cert and \
                 --tls-key (or put ca.pem, cert.pem and key.pem into /etc/strake/tls)",
            );
            // Whoever does not hear it has hung up.
            let _ = hello::send(&socket, Draft::error(&refusal)).await;
            farewell(socket).await;
            Err(Error::with(ErrorKind::WrongPeer, "it speaks without TLS; it was told so"))
        }
        Some(_) => Err(Error::with(ErrorKind::WrongPeer, "speaks neither TLS nor our protocol")),
        None => Err(hello::silent()),
    }
}

/// The first byte that the other side sends, which stays in the socket; `None`: it hung up.
async fn first_byte(socket: &TcpStream) -> Result<Option<u8>> {
    let mut byte = [0];
    match socket.peek(&mut byte).await {
        Ok(seen) => Ok((seen > 0).then_some(byte[0])),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(broke(error)),
    }
}

async fn shake(socket: TcpStream, mut connection: Connection) -> Result<Established> {
    let done = exchange(&socket, &mut connection).await;
    if let Err(e) = done {
        // The alert that tells the other side why.
        let _ = flush(&socket, &mut connection).await;
        farewell(socket).await;
        return Err(e);
    }
    let chain = connection.peer_certificates().unwrap_or_default();
    let chain = chain.iter().cloned().map(CertificateDer::into_owned).collect();
    Ok((TlsStream::new(socket, connection), chain))
}

async fn exchange(socket: &TcpStream, connection: &mut Connection) -> Result<()> {
    loop {
        flush(socket, connection).await.map_err(broke)?;
        if !connection.is_handshaking() {
            return Ok(());
        }
        match connection.read_tls(&mut Socket(socket)) {
            Ok(0) => return Err(hung_up("its log may say why")),
            Ok(_) => {
                connection.process_new_packets().map_err(|e| explain::handshake(&e))?;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                socket.readable().await.map_err(broke)?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(broke(e)),
        }
    }
}

/// Sends what the connection has to send.
async fn flush(socket: &TcpStream, connection: &mut Connection) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(&mut Socket(socket)) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Hangs up so that the other side hears what was said last.
async fn farewell(mut socket: TcpStream) {
    // Errors mean that it hung up first.
    let _ = socket.shutdown().await;
    let listen = async {
        let mut heard = Vec::with_capacity(FAREWELL_BYTES_MAX);
        while heard.len() < FAREWELL_BYTES_MAX {
            let room = FAREWELL_BYTES_MAX - heard.len();
            match Stream::try_read(&socket, &mut heard, room) {
                Ok(1..) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if socket.readable().await.is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    };
    // A peer that goes on talking is not worth more.
    let _ = tokio::time::timeout(Duration::from_millis(FAREWELL_MS_MAX), listen).await;
}

fn hung_up(hint: &str) -> Error {
    let detail = format!("the peer hung up in the TLS handshake; {hint}");
    Error::with(ErrorKind::Unavailable, detail)
}

fn broke(error: io::Error) -> Error {
    Error::with(ErrorKind::Unavailable, format!("TLS handshake: {error}"))
}
