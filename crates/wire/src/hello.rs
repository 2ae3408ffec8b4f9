//! The first frame of each side: who it is, what it speaks, which cluster it means.

use crate::frame::{Draft, FrameKind, Header, ServiceClass};
use crate::link::{FrameReader, ReadError};
use crate::stream::Stream;
use prost::Message;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use strake_types::{Error, ErrorKind, Result};

/// Oldest protocol (set of messages) this release speaks.
pub const PROTOCOL_MIN: u32 = 1;
/// Newest protocol this release speaks.
pub const PROTOCOL_MAX: u32 = 1;
/// Longest body of a hello: nobody has said who they are yet.
const HELLO_BYTES_MAX: u32 = 4096;
/// What is said of a peer of which not a byte came.
const SILENT: &str = "the peer hung up before it said hello";
/// What a server says that has as many connections as it may.
const FULL: &str = "the server takes no more connections";

/// Of a role that is being started; a release before this one says it for ever of one that a server with a manager does not have.
const STARTING: &str = "this server is being started";

/// What calls: a server that has many connections keeps some for those without whom nobody is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallerKind {
    /// A mount, a program with the library, or a command that is given a place in a volume (`strake cp`).
    #[default]
    Client,
    /// A command that looks after the cluster, also through a volume of it (`strake fsck`).
    Command,
    /// A server of the cluster.
    Server,
}

/// Body of a hello.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// Oldest protocol the sender speaks.
    #[prost(uint32, tag = "1")]
    pub protocol_min: u32,
    /// Newest protocol the sender speaks.
    #[prost(uint32, tag = "2")]
    pub protocol_max: u32,
    /// The cluster it belongs to or looks for; empty if it does not know yet.
    #[prost(string, tag = "3")]
    pub cluster: String,
    /// Its name, for logs.
    #[prost(string, tag = "4")]
    pub name: String,
    /// In the answer: the protocol spoken from now on, the newest that both know.
    #[prost(uint32, tag = "5")]
    pub protocol: u32,
    /// The connection is meant for data.
    #[prost(bool, tag = "6")]
    pub bulk: bool,
    /// A server of the cluster calls, as it says itself.
    #[prost(bool, tag = "7")]
    pub server: bool,
    /// A command calls that looks after the cluster.
    #[prost(bool, tag = "8")]
    pub command: bool,
}

impl Hello {
    /// A hello of this release.
    pub fn new(cluster: &str, name: &str, bulk: bool) -> Self {
        Self {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            cluster: cluster.to_owned(),
            name: name.to_owned(),
            protocol: 0,
            bulk,
            server: false,
            command: false,
        }
    }

    /// The same, of a caller of this kind.
    #[must_use]
    pub fn of_kind(self, kind: CallerKind) -> Self {
        let (server, command) = (kind == CallerKind::Server, kind == CallerKind::Command);
        Self { server, command, ..self }
    }

    /// What its sender says it is.
    pub fn kind(&self) -> CallerKind {
        match (self.server, self.command) {
            (true, _) => CallerKind::Server,
            (false, true) => CallerKind::Command,
            (false, false) => CallerKind::Client,
        }
    }

    /// The protocol both sides know, if this side accepts the other.
    pub fn accept(&self, other: &Hello) -> Result<u32> {
        let newest = self.protocol_max.min(other.protocol_max);
        let wrong = |detail: String| Err(Error::with(ErrorKind::WrongPeer, detail));
        if newest < self.protocol_min || newest < other.protocol_min {
            return wrong(format!(
                "{} speaks protocol {} to {}, {} speaks {} to {}; upgrade the older side",
                named(&self.name),
                self.protocol_min,
                self.protocol_max,
                named(&other.name),
                other.protocol_min,
                other.protocol_max,
            ));
        }
        let known = !self.cluster.is_empty() && !other.cluster.is_empty();
        if known && self.cluster != other.cluster {
            return wrong(format!(
                "{} belongs to cluster {}, {} to cluster {}; check the address, and the --data of a server",
                named(&self.name),
                self.cluster,
                named(&other.name),
                other.cluster,
            ));
        }
        Ok(newest)
    }
}

fn named(name: &str) -> &str {
    if name.is_empty() { "the peer" } else { name }
}

/// Sends a hello or a refusal. Nothing else is being sent yet.
pub(crate) async fn send(stream: &dyn Stream, draft: Draft) -> io::Result<()> {
    let frame = draft.seal(FrameKind::Hello, ServiceClass::None, 0);
    let mut sent = 0;
    while sent < frame.head.len() {
        match stream.try_write(&[IoSlice::new(&frame.head[sent..])]) {
            Ok(n) => sent += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_writable(cx)).await?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The error of a peer that came and went without a word.
pub(crate) fn silent() -> Error {
    Error::with(ErrorKind::Unavailable, SILENT)
}

/// True for [`silent()`]: who only looks whether somebody listens does that, and it is nothing to warn of.
pub(crate) fn is_silent(error: &Error) -> bool {
    error.kind == ErrorKind::Unavailable && error.detail == SILENT
}

/// The refusal of a server that takes no more connections.
pub(crate) fn full() -> Error {
    Error::with(ErrorKind::Unavailable, FULL)
}

/// What a service answers that is there in a moment.
pub fn starting() -> Error {
    Error::with(ErrorKind::Unavailable, STARTING)
}

/// True for [`full()`], which serves those that it has, and [`starting()`], whoever is named with them: who says so is reached.
pub(crate) fn is_told_there(error: &Error) -> bool {
    let told = [FULL, STARTING].iter().any(|told| error.detail.ends_with(told));
    error.kind == ErrorKind::Unavailable && told
}

/// Receives the other side's hello. A refusal is its error.
pub(crate) async fn receive(reader: &mut FrameReader) -> Result<Hello> {
    let heard = reader.heard();
    let lost = |e: ReadError| match e {
        ReadError::Frame(e) => Error::from(e),
        // The refusal of our certificate: in TLS the side that calls hears of it only when it reads.
        ReadError::Io(e) if e.kind() == io::ErrorKind::InvalidData => {
            Error::with(ErrorKind::WrongPeer, e.to_string())
        }
        // Reset, as some do that only look.
        ReadError::Io(_) if heard.load(Ordering::Relaxed) == 0 => silent(),
        other => Error::with(ErrorKind::Unavailable, other.to_string()),
    };
    let malformed = |detail| Error::with(ErrorKind::Malformed, detail);
    let header: Header = reader.header().await.map_err(lost)?.ok_or_else(silent)?;
    let fits = header.body_len <= HELLO_BYTES_MAX && header.payload_len == 0;
    if header.kind != FrameKind::Hello || !fits {
        return Err(malformed("the first frame is not a hello"));
    }
    let body = reader.body(&header).await.map_err(lost)?;
    if header.error != 0 {
        return Err(remote_error(header.error, &body));
    }
    Hello::decode(body).map_err(|_| malformed("the hello cannot be understood"))
}

/// The error that a frame carries.
pub(crate) fn remote_error(code: u32, detail: &[u8]) -> Error {
    let kind = ErrorKind::from_code(code);
    if detail.is_empty() {
        return Error::new(kind);
    }
    let detail = String::from_utf8_lossy(detail).into_owned();
    match kind as u32 == code {
        true => Error::with(kind, detail),
        // Of a newer kind: what says its cause is not known here.
        false => Error::new(kind).about(detail),
    }
}
