use super::*;
use crate::hello::Hello;
use crate::message::samples::Gen;
use proptest::prelude::*;

/// Sends a message through a frame as bytes, and takes it apart again.
fn carry<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, generator: &mut Gen) {
    let payload = generator.bytes();
    let draft = Draft::message(message).unwrap().with_payload(payload.clone()).unwrap();
    let request = generator.u64();
    let frame = draft.with_payload_checksum().seal(FrameKind::Request, ServiceClass::Meta, request);
    let bytes = [frame.head.as_slice(), &frame.payload].concat();
    let header = Header::decode(&bytes).unwrap().unwrap();
    assert_eq!((header.kind, header.service), (FrameKind::Request, ServiceClass::Meta));
    assert_eq!((header.request, header.error), (request, 0));
    let (body, rest) = bytes[HEADER_BYTES..].split_at(header.body_len as usize);
    assert_eq!(rest, payload);
    header.check_body(body).unwrap();
    header.check_payload(rest).unwrap();
    assert_eq!(&M::decode(body).unwrap(), message);
}

proptest! {
    #[test]
    fn every_message_comes_out_of_a_frame_as_it_went_in(seed: u64) {
        let g = &mut Gen(seed);
        for m in g.meta_requests() { carry(&m, g); }
        for m in g.meta_replies() { carry(&m, g); }
        for m in g.manager_requests() { carry(&m, g); }
        for m in g.manager_replies() { carry(&m, g); }
        for m in g.storage_requests() { carry(&m, g); }
        for m in g.storage_replies() { carry(&m, g); }
        carry(&Hello::new("cluster", "name", true), g);
    }

    #[test]
    fn headers_come_out_as_they_went_in(
        request: u64,
        error: u32,
        body_len in 0..=BODY_BYTES_MAX as u32,
        payload_len in 0..=PAYLOAD_BYTES_MAX as u32,
        payload_crc: Option<u32>,
        body_crc: Option<u32>,
    ) {
        let kind = FrameKind::Reply;
        let service = ServiceClass::Storage;
        let header = Header {
            kind, service, error, request, body_len, payload_len, payload_crc, body_crc,
        };
        prop_assert_eq!(Header::decode(&header.encode()), Ok(Some(header)));
    }

    #[test]
    fn garbage_is_never_a_frame_and_never_a_panic(bytes: Vec<u8>) {
        let decoded = Header::decode(&bytes);
        if bytes.len() >= HEADER_BYTES {
            prop_assert!(decoded.is_err());
        }
        // As a body it may by chance mean something; it must only never bring the server down.
        let _ = crate::message::meta::MetaRequest::decode(bytes.as_slice());
        let _ = crate::message::storage::StorageRequest::decode(bytes.as_slice());
        let _ = crate::message::manager::ManagerRequest::decode(bytes.as_slice());
        let _ = Hello::decode(bytes.as_slice());
    }
}

fn sample() -> Outgoing {
    let body = crate::message::meta::Inode { ino: 5 };
    let draft = Draft::message(&body).unwrap().with_payload(Bytes::from_static(b"data")).unwrap();
    draft.with_payload_checksum().seal(FrameKind::Request, ServiceClass::Storage, 0x0102_0304)
}

#[test]
fn a_frame_is_the_one_in_formats_md() {
    let frame = sample();
    let fixture = include_bytes!("fixture-v1.bin");
    assert_eq!([frame.head.as_slice(), &frame.payload].concat(), fixture);
    let fields: [&[u8]; 12] = [
        b"STRK",
        &[1, 0],
        &[2],
        &[3],
        &[3, 0, 0, 0],
        &[0; 4],
        &[4, 3, 2, 1, 0, 0, 0, 0],
        &[2, 0, 0, 0],
        &[4, 0, 0, 0],
        &0xaed8_7dd1_u32.to_le_bytes(),
        &0x5984_a076_u32.to_le_bytes(),
        &[0; 20],
    ];
    assert_eq!(fixture[..60], fields.concat());
    assert_eq!(fixture[60..64], crc32c(&fixture[..60]).to_le_bytes());
    // Field 1, varint, 5; then the payload.
    assert_eq!(fixture[64..], *b"\x08\x05data");
}

#[test]
fn a_truncated_header_asks_for_more_and_a_changed_one_is_refused() {
    let bytes = sample().head;
    for cut in 0..HEADER_BYTES {
        assert_eq!(Header::decode(&bytes[..cut]), Ok(None), "cut at {cut}");
    }
    for bit in 0..HEADER_BYTES * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&damaged).is_err(), "bit {bit}");
    }
}

/// A header with something wrong in it, and a checksum that matches.
fn resealed(change: impl FnOnce(&mut [u8])) -> Result<Option<Header>, FrameError> {
    let mut bytes = sample().head[..HEADER_BYTES].to_vec();
    change(&mut bytes);
    let crc = crc32c(&bytes[..60]).to_le_bytes();
    bytes[60..].copy_from_slice(&crc);
    Header::decode(&bytes)
}

#[test]
fn well_sealed_nonsense_is_refused_by_name() {
    assert_eq!(resealed(|b| b[4] = 2), Err(FrameError::Version(2)));
    assert_eq!(resealed(|b| b[6] = 9), Err(FrameError::Kind(9)));
    assert_eq!(resealed(|b| b[7] = 4), Err(FrameError::Service(4)));
    let long = resealed(|b| b[24..28].fill(0xff)).unwrap_err();
    assert!(matches!(long, FrameError::TooLong { what: "body", .. }), "{long}");
    let long = resealed(|b| b[28..32].fill(0xff)).unwrap_err();
    assert!(matches!(long, FrameError::TooLong { what: "payload", .. }), "{long}");
    // Room for later fields: what is there now is ignored.
    assert!(resealed(|b| b[40..60].fill(0xff)).is_ok());
}

#[test]
fn what_is_too_long_cannot_be_sent() {
    let payload = Bytes::from(vec![0; PAYLOAD_BYTES_MAX + 1]);
    assert!(Draft::empty().with_payload(payload).is_err());
    let value = Bytes::from(vec![0; BODY_BYTES_MAX]);
    let body = crate::message::meta::Xattr { value, ..Default::default() };
    assert!(Draft::message(&body).is_err());
}

#[test]
fn a_damaged_body_or_payload_is_refused() {
    let frame = sample();
    let header = Header::decode(&frame.head).unwrap().unwrap();
    assert_eq!(header.check_body(b"\x08\x05"), Ok(()));
    assert_eq!(header.check_body(b"\x08\x04"), Err(FrameError::BodyChecksum));
    assert_eq!(header.check_payload(b"date"), Err(FrameError::PayloadChecksum));
}

#[test]
fn a_body_of_a_release_that_computes_no_checksum_is_taken() {
    let header = resealed(|b| b[8] = 1).unwrap().unwrap();
    assert_eq!(header.check_body(b"\x08\x04"), Ok(()));
}
