//! Forms of their own: frames, capabilities, access control lists, layouts as text, and what the
//! kernel asks.

use bytes::Bytes;
use strake_fuse::abi::{OPCODES, WRITE};
use strake_fuse::buffer::{Buffer, BufferPool};
use strake_fuse::request::{Incoming, parse};
use strake_types::acl::Acl;
use strake_types::form::{Form, Outcome, again, unsealed};
use strake_types::{Distribution, Error, ErrorKind, Ino, SessionId, VolumeId, size};
use strake_wire::capability::{Capability, CapabilityKey, Rights};
use strake_wire::frame::{Draft, FrameKind, HEADER_BYTES, Header, Outgoing, ServiceClass, crc32c};
use strake_wire::hello::Hello;

/// Headers, and whole frames.
pub const FRAME: &[Form] = &[
    Form { name: "header", samples: headers, seal: seal_header, check: check_header },
    Form { name: "frame", samples: frames, seal: seal_frame, check: check_frame },
];

/// The right to touch a file's chunks.
pub const CAPABILITY: &[Form] = &[Form {
    name: "capability",
    samples: capabilities,
    seal: seal_capability,
    check: check_capability,
}];

/// The binary form of access control lists.
pub const ACL: &[Form] = &[Form { name: "acl", samples: acls, seal: unsealed, check: check_acl }];

/// Layouts as people write them.
pub const LAYOUT_TEXT: &[Form] = &[
    Form { name: "distribution", samples: words, seal: unsealed, check: check_word },
    Form { name: "size", samples: sizes, seal: unsealed, check: check_size },
];

/// What the kernel asks.
pub const FUSE_REQUEST: &[Form] =
    &[Form { name: "request", samples: requests, seal: unsealed, check: check_request }];

fn outgoing() -> Vec<Outgoing> {
    let hello = Draft::message(&Hello::new("f1", "host", false)).expect("a hello is short");
    let error = Draft::error(&Error::with(ErrorKind::NotFound, "no such thing"));
    let payload = Bytes::from_static(b"payload");
    let call = Draft::empty().with_payload(payload).expect("a payload is short");
    vec![
        hello.seal(FrameKind::Hello, ServiceClass::None, 0),
        error.seal(FrameKind::Reply, ServiceClass::Meta, 1 << 40),
        call.clone().seal(FrameKind::Request, ServiceClass::Storage, 2),
        call.with_payload_checksum().seal(FrameKind::Request, ServiceClass::Manager, 3),
        Draft::empty().seal(FrameKind::Goodbye, ServiceClass::None, 0),
    ]
}

fn headers() -> Vec<Vec<u8>> {
    outgoing().into_iter().map(|frame| frame.head[..HEADER_BYTES].to_vec()).collect()
}

fn frames() -> Vec<Vec<u8>> {
    outgoing().into_iter().map(|frame| [frame.head, frame.payload.to_vec()].concat()).collect()
}

fn seal_header(bytes: &mut [u8]) {
    let header = bytes.get_mut(..HEADER_BYTES).and_then(|header| header.split_last_chunk_mut());
    if let Some((rest, sum)) = header {
        *sum = crc32c(rest).to_le_bytes();
    }
}

/// The lengths, too, are made to fit what is there.
fn seal_frame(bytes: &mut [u8]) {
    let Some((header, rest)) = bytes.split_at_mut_checked(HEADER_BYTES) else { return };
    let body_len = u32::from_le_bytes([header[24], header[25], header[26], header[27]]);
    let body_len = (body_len as usize).min(rest.len());
    header[24..28].copy_from_slice(&(body_len as u32).to_le_bytes());
    header[28..32].copy_from_slice(&((rest.len() - body_len) as u32).to_le_bytes());
    header[32..36].copy_from_slice(&crc32c(&rest[body_len..]).to_le_bytes());
    header[36..40].copy_from_slice(&crc32c(&rest[..body_len]).to_le_bytes());
    seal_header(bytes);
}

fn check_header(bytes: &[u8]) -> Outcome {
    again(bytes, |bytes| Header::decode(bytes).ok().flatten(), |header| header.encode().to_vec())
}

fn check_frame(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| {
        let header = Header::decode(bytes).ok()??;
        let rest = &bytes[HEADER_BYTES..];
        let (body, rest) = rest.split_at_checked(header.body_len as usize)?;
        let payload = rest.get(..header.payload_len as usize)?;
        header.check_body(body).ok()?;
        header.check_payload(payload).ok()?;
        Some((header, body.to_vec(), payload.to_vec()))
    };
    again(bytes, decode, |(header, body, payload)| [&header.encode()[..], body, payload].concat())
}

fn key() -> CapabilityKey {
    CapabilityKey::new([7; 32])
}

fn capabilities() -> Vec<Vec<u8>> {
    let capability = Capability {
        volume: VolumeId(3),
        ino: Ino(1 << 40 | 9),
        rights: Rights::READ_WRITE,
        session: SessionId(5),
        expires_unix_ms: u64::MAX,
    };
    vec![key().mint(&capability).into()]
}

fn seal_capability(bytes: &mut [u8]) {
    if let Some((record, mac)) = bytes.split_last_chunk_mut::<32>() {
        *mac = *blake3::keyed_hash(&[7; 32], record).as_bytes();
    }
}

fn check_capability(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| key().verify(bytes, 0).ok();
    again(bytes, decode, |capability| key().mint(capability).into())
}

fn acls() -> Vec<Vec<u8>> {
    let named = Acl {
        owner: 7,
        users: vec![(10, 6), (20, 7)],
        group: 5,
        groups: vec![(100, 4)],
        mask: Some(6),
        other: 1,
    };
    vec![Acl::from_mode(0o640).encode(), named.encode()]
}

fn check_acl(bytes: &[u8]) -> Outcome {
    again(bytes, |bytes| Acl::decode(bytes).ok().flatten(), Acl::encode)
}

fn words() -> Vec<Vec<u8>> {
    let words =
        ["simple_stripe", "basic", "progressive", "varstrip=0:32K,1:64K", "twod_stripe=2:4"];
    words.map(|word| word.as_bytes().to_vec()).into()
}

fn check_word(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse().ok();
    again(bytes, decode, |distribution: &Distribution| distribution.to_string().into_bytes())
}

fn sizes() -> Vec<Vec<u8>> {
    ["0", "65536", "64K", "3m", "1G", "16T"].map(|size| size.as_bytes().to_vec()).into()
}

fn check_size(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| size::parse(std::str::from_utf8(bytes).ok()?).ok();
    again(bytes, decode, |bytes| size::exact(*bytes).into_bytes())
}

/// Data of the largest write of the mount whose requests these are.
const DATA_BYTES: usize = 4096;

/// A request with each operation code: the header, numbers that are no nonsense as lengths, and two
/// names.
fn requests() -> Vec<Vec<u8>> {
    let request = |&(opcode, _): &(u32, &str)| {
        let mut bytes = [0u32, opcode].map(u32::to_le_bytes).concat();
        bytes.extend([7u64, 1].map(u64::to_le_bytes).concat());
        bytes.extend([2u32, 3, 4, 0].map(u32::to_le_bytes).concat());
        if opcode == WRITE {
            bytes.extend([9u64, 5, 4, 0, 0].map(u64::to_le_bytes).concat());
            bytes.extend(b"data");
            return bytes;
        }
        // Structures are whole words; a name that begins with NULs is an empty one.
        bytes.extend([4u64; 11].map(u64::to_le_bytes).concat());
        bytes.extend(b"name\0further name\0");
        bytes
    };
    OPCODES.iter().map(request).collect()
}

/// A request is understood by its own bytes alone: what an earlier one left in the buffer makes no
/// difference.
fn check_request(bytes: &[u8]) -> Outcome {
    let [clean, used] = [0, 0xa5].map(|earlier| parsed(bytes, earlier));
    match clean {
        _ if clean != used => Outcome::Different,
        Some(_) => Outcome::Same,
        None => Outcome::Refused,
    }
}

/// What was understood, shown; data that was written is part of it.
fn parsed(bytes: &[u8], earlier: u8) -> Option<String> {
    let mut buffer: Buffer = BufferPool::new(DATA_BYTES).take();
    let space = buffer.space();
    space.fill(earlier);
    let len = bytes.len().min(space.len());
    space[..len].copy_from_slice(&bytes[..len]);
    match parse(&mut Some(buffer), len) {
        Incoming::Malformed(_) => None,
        // Too short to have a number: there is nobody to answer.
        Incoming::Nothing if len < 40 => None,
        incoming => Some(format!("{incoming:?}")),
    }
}
