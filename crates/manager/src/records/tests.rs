use super::*;

/// A server record as release 0.1 wrote it.
const SERVER_V1: &str = "010a08686f73743a3734341801220268310479b08b";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn a_record_of_version_1_is_read() {
    let key = key(Kind::Server, 7);
    assert_eq!(key, b"C\0\0\0\0s\0\0\0\x07");
    let server =
        Server { address: "host:744".into(), meta: true, name: "h1".into(), ..Server::default() };
    let hex: String = encode(&server).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, SERVER_V1);
    assert_eq!(decode::<Server>(&key, &bytes(SERVER_V1)).unwrap(), server);
}

#[test]
fn any_changed_byte_is_found() {
    let whole = bytes(SERVER_V1);
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        assert!(decode::<Server>(b"k", &bad).is_err(), "byte {at}");
        assert!(decode::<Server>(b"k", &whole[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn keys_are_read_as_they_are_written() {
    assert_eq!(parse_key(&key(Kind::Volume, 300)), Some((b'v', 300)));
    for other in [&b"C\0\0\0\x01v\0\0\0\x01"[..], b"C\0\0\0\0v\0\0", b"D", b""] {
        assert_eq!(parse_key(other), None);
    }
}
