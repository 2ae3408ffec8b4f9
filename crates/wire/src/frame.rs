//! Frames: what travels on a connection.
//!
//! A frame is a 64-byte header, a body (an encoded message) and a raw payload. The header says how
//! long both are and carries a checksum of itself, so that a reader trusts a length only after it
//! has checked it, and allocates only after it has compared it with the limits. It carries the body's
//! checksum as well: TCP's own sum, of 16 bits, lets one damaged packet of some ten thousand pass (Stone and
//! Partridge 2000). A payload has its own checksum in the body where it is file data; the header's is for
//! payloads that have none.
//!
//! Decoding here is pure: bytes in, header or error out. docs/FORMATS.md has the byte table.

use bytes::Bytes;
use prost::Message;
use strake_types::limits::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use strake_types::{Error, ErrorKind, Result};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"STRK";
/// First byte of a connection on which TLS begins: the type of the record that carries its handshake.
pub const TLS_HANDSHAKE: u8 = 0x16;
/// Length of a header.
pub const HEADER_BYTES: usize = 64;
/// Version of this layout. A hello always has version 1, so that any two releases can at least tell
/// each other what they speak.
pub const FRAME_VERSION: u16 = 1;
/// Flag: the header carries the CRC32C of the payload.
const FLAG_PAYLOAD_CRC: u32 = 1;
/// Flag: the header carries the CRC32C of the body.
const FLAG_BODY_CRC: u32 = 1 << 1;

/// CRC32C, as used everywhere in Strake.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of both sides: who they are and which versions they speak.
    Hello = 1,
    /// A call.
    Request = 2,
    /// The answer to the call of the same id.
    Reply = 3,
    /// The sender takes no more calls on this connection; answers in flight still come.
    Goodbye = 4,
}

impl FrameKind {
    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => FrameKind::Hello,
            2 => FrameKind::Request,
            3 => FrameKind::Reply,
            4 => FrameKind::Goodbye,
            _ => return None,
        })
    }
}

/// Whom a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ServiceClass {
    /// The connection itself.
    None = 0,
    /// Membership.
    Manager = 1,
    /// Names and attributes.
    Meta = 2,
    /// Contents.
    Storage = 3,
}

impl ServiceClass {
    const ALL: [Self; 4] = [Self::None, Self::Manager, Self::Meta, Self::Storage];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| *class as u8 == code)
    }
}

/// The header as it is sent.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    version: U16,
    kind: u8,
    service: u8,
    flags: U32,
    error: U32,
    request: U64,
    body_len: U32,
    payload_len: U32,
    payload_crc: U32,
    body_crc: U32,
    reserved: [u8; 20],
    header_crc: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// A header that has been checked: its lengths are within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: FrameKind,
    /// Whom it is for.
    pub service: ServiceClass,
    /// In replies: number of an [`ErrorKind`], 0 for success. The body is then the detail, UTF-8.
    pub error: u32,
    /// Number of the call on its connection.
    pub request: u64,
    /// Bytes of body that follow.
    pub body_len: u32,
    /// Bytes of payload that follow the body.
    pub payload_len: u32,
    /// CRC32C of the payload, if the sender computed one here.
    pub payload_crc: Option<u32>,
    /// CRC32C of the body; `None`: a release that computes none.
    pub body_crc: Option<u32>,
}

/// Why bytes are not a frame. The connection they came from cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not Strake at all.
    #[error("does not speak Strake's protocol (first bytes {0:02x?})")]
    Magic([u8; 4]),
    /// The beginning of TLS.
    #[error(
        "speaks TLS, and this side does not; give both sides certificates (--tls-ca, --tls-cert, \
         --tls-key), or neither"
    )]
    Tls,
    /// Damaged on the way.
    #[error("header checksum does not match: it was damaged on its way")]
    HeaderChecksum,
    /// A version this release does not know.
    #[error("frames of version {0}; this release knows {FRAME_VERSION} (upgrade the older side)")]
    Version(u16),
    /// A kind of frame this release does not know.
    #[error("unknown kind of frame {0}")]
    Kind(u8),
    /// A service this release does not know.
    #[error("unknown service {0}")]
    Service(u8),
    /// Longer than the limits allow.
    #[error("{what} of {bytes} bytes; at most {bytes_max} are allowed")]
    TooLong {
        /// Body or payload.
        what: &'static str,
        /// Its length.
        bytes: u32,
        /// The limit.
        bytes_max: usize,
    },
    /// The body was damaged on the way.
    #[error("body checksum does not match: it was damaged on its way")]
    BodyChecksum,
    /// The payload was damaged on the way.
    #[error("payload checksum does not match: it was damaged on its way")]
    PayloadChecksum,
}

impl From<FrameError> for Error {
    fn from(e: FrameError) -> Self {
        use FrameError::{BodyChecksum, HeaderChecksum, PayloadChecksum};
        let kind = match e {
            FrameError::Version(_) | FrameError::Magic(_) | FrameError::Tls => ErrorKind::WrongPeer,
            // As good as not come.
            HeaderChecksum | BodyChecksum | PayloadChecksum => ErrorKind::Unavailable,
            _ => ErrorKind::Malformed,
        };
        Error::with(kind, e.to_string())
    }
}

impl Header {
    /// Checks and decodes the header at the start of `bytes`; `None` if more bytes are needed.
    ///
    /// Wrong first bytes are refused before the rest has come.
    pub fn decode(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
        let seen = bytes.len().min(MAGIC.len());
        if bytes.first() == Some(&TLS_HANDSHAKE) {
            return Err(FrameError::Tls);
        }
        if bytes[..seen] != MAGIC[..seen] {
            let mut first = [0; 4];
            first[..seen].copy_from_slice(&bytes[..seen]);
            return Err(FrameError::Magic(first));
        }
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return Ok(None);
        };
        if crc32c(&bytes[..HEADER_BYTES - 4]) != raw.header_crc.get() {
            return Err(FrameError::HeaderChecksum);
        }
        let version = raw.version.get();
        if version != FRAME_VERSION {
            return Err(FrameError::Version(version));
        }
        check_length("body", raw.body_len.get(), BODY_BYTES_MAX)?;
        check_length("payload", raw.payload_len.get(), PAYLOAD_BYTES_MAX)?;
        let crc = |flag, crc: U32| (raw.flags.get() & flag != 0).then_some(crc.get());
        Ok(Some(Header {
            kind: FrameKind::from_code(raw.kind).ok_or(FrameError::Kind(raw.kind))?,
            service: ServiceClass::from_code(raw.service)
                .ok_or(FrameError::Service(raw.service))?,
            error: raw.error.get(),
            request: raw.request.get(),
            body_len: raw.body_len.get(),
            payload_len: raw.payload_len.get(),
            payload_crc: crc(FLAG_PAYLOAD_CRC, raw.payload_crc),
            body_crc: crc(FLAG_BODY_CRC, raw.body_crc),
        }))
    }

    /// The 64 bytes of this header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let flag = |crc: Option<u32>, flag| if crc.is_some() { flag } else { 0 };
        let mut raw = RawHeader {
            magic: MAGIC,
            version: U16::new(FRAME_VERSION),
            kind: self.kind as u8,
            service: self.service as u8,
            flags: U32::new(
                flag(self.payload_crc, FLAG_PAYLOAD_CRC) | flag(self.body_crc, FLAG_BODY_CRC),
            ),
            error: U32::new(self.error),
            request: U64::new(self.request),
            body_len: U32::new(self.body_len),
            payload_len: U32::new(self.payload_len),
            payload_crc: U32::new(self.payload_crc.unwrap_or(0)),
            body_crc: U32::new(self.body_crc.unwrap_or(0)),
            reserved: [0; 20],
            header_crc: U32::new(0),
        };
        raw.header_crc = U32::new(crc32c(&raw.as_bytes()[..HEADER_BYTES - 4]));
        zerocopy::transmute!(raw)
    }

    /// Checks a payload against the header's checksum, where it has one.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), FrameError> {
        check_crc(self.payload_crc, payload, FrameError::PayloadChecksum)
    }

    /// The same of a body.
    pub fn check_body(&self, body: &[u8]) -> Result<(), FrameError> {
        check_crc(self.body_crc, body, FrameError::BodyChecksum)
    }
}

fn check_crc(crc: Option<u32>, bytes: &[u8], error: FrameError) -> Result<(), FrameError> {
    match crc {
        Some(crc) if crc != crc32c(bytes) => Err(error),
        _ => Ok(()),
    }
}

fn check_length(what: &'static str, bytes: u32, bytes_max: usize) -> Result<(), FrameError> {
    if bytes as usize > bytes_max {
        return Err(FrameError::TooLong { what, bytes, bytes_max });
    }
    Ok(())
}

/// A frame ready to be sent: header and body in one piece, the payload untouched beside it.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Header and body.
    pub head: Vec<u8>,
    /// Payload.
    pub payload: Bytes,
}

impl Outgoing {
    /// Bytes on the connection.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}

/// A frame without its header's numbers: encoded once, sealed when the connection is chosen.
#[derive(Clone, Debug)]
pub struct Draft {
    head: Vec<u8>,
    payload: Bytes,
    payload_crc: Option<u32>,
    error: u32,
}

impl Draft {
    /// A frame with an encoded message as its body.
    pub fn message(body: &impl Message) -> Result<Self, FrameError> {
        let body_len = body.encoded_len();
        check_length("body", u32::try_from(body_len).unwrap_or(u32::MAX), BODY_BYTES_MAX)?;
        let mut head = Vec::with_capacity(HEADER_BYTES + body_len);
        head.resize(HEADER_BYTES, 0);
        body.encode_raw(&mut head);
        Ok(Self { head, payload: Bytes::new(), payload_crc: None, error: 0 })
    }

    /// A frame that says why a call (or a hello) failed.
    pub fn error(error: &Error) -> Self {
        let detail = error.detail.as_bytes();
        let mut head = vec![0; HEADER_BYTES];
        head.extend_from_slice(&detail[..detail.len().min(BODY_BYTES_MAX)]);
        Self { head, payload: Bytes::new(), payload_crc: None, error: error.kind as u32 }
    }

    /// A frame without body or payload.
    pub fn empty() -> Self {
        Self { head: vec![0; HEADER_BYTES], payload: Bytes::new(), payload_crc: None, error: 0 }
    }

    /// Adds a payload. It is never copied.
    pub fn with_payload(mut self, payload: Bytes) -> Result<Self, FrameError> {
        check_length(
            "payload",
            u32::try_from(payload.len()).unwrap_or(u32::MAX),
            PAYLOAD_BYTES_MAX,
        )?;
        self.payload = payload;
        Ok(self)
    }

    /// Has the header carry the payload's checksum. For payloads that have none in their body.
    pub fn with_payload_checksum(mut self) -> Self {
        self.payload_crc = Some(crc32c(&self.payload));
        self
    }

    /// Writes the header: the frame can be sent.
    pub fn seal(mut self, kind: FrameKind, service: ServiceClass, request: u64) -> Outgoing {
        // Both lengths were held against their limits, far below 4 GiB, when they came in.
        let header = Header {
            kind,
            service,
            error: self.error,
            request,
            body_len: (self.head.len() - HEADER_BYTES) as u32,
            payload_len: self.payload.len() as u32,
            payload_crc: self.payload_crc,
            body_crc: Some(crc32c(&self.head[HEADER_BYTES..])),
        };
        self.head[..HEADER_BYTES].copy_from_slice(&header.encode());
        Outgoing { head: self.head, payload: self.payload }
    }
}

#[cfg(test)]
mod tests;
