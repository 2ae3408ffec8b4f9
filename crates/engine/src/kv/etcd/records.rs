//! What is stored beside the map. `NAME/store` has the version of all of it.

use super::super::{KvError, Result};
use bytes::Bytes;
use prost::Message;

/// Whose a store is.
#[derive(Clone, PartialEq, Message)]
pub struct StoreRecord {
    /// Version of the keys and of these records.
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The store's id, known to its owner alone.
    #[prost(string, tag = "2")]
    pub id: String,
    /// Who made it.
    #[prost(string, tag = "3")]
    pub host: String,
}

/// Who writes a part.
#[derive(Clone, PartialEq, Message)]
pub struct ClaimRecord {
    /// His machine.
    #[prost(string, tag = "1")]
    pub host: String,
    /// A random number of this very opening.
    #[prost(bytes = "bytes", tag = "2")]
    pub nonce: Bytes,
}

/// Reads a record.
pub fn read<T: Message + Default>(store: &str, key: &Bytes, value: &Bytes) -> Result<T> {
    T::decode(value.clone()).map_err(|e| KvError::Corrupt {
        store: store.to_owned(),
        cause: format!("{}: {e}", key.escape_ascii()),
    })
}

/// The number in a receipt.
pub fn read_receipt(store: &str, value: &Bytes) -> Result<u64> {
    let bytes = value[..].try_into().map_err(|_| KvError::Corrupt {
        store: store.to_owned(),
        cause: format!("a receipt of {} bytes", value.len()),
    })?;
    Ok(u64::from_be_bytes(bytes))
}

/// A receipt with this number.
pub fn receipt(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As docs/FORMATS.md draws them.
    #[test]
    fn records_of_format_1_are_read() {
        let store = b"\x08\x01\x12\x03own\x1a\x04here";
        let read_store: StoreRecord = read("", &Bytes::new(), &Bytes::from_static(store)).unwrap();
        assert_eq!(read_store, StoreRecord { format: 1, id: "own".into(), host: "here".into() });
        assert_eq!(read_store.encode_to_vec(), store);
        let claim = b"\x0a\x04here\x12\x02\x01\x02";
        let read_claim: ClaimRecord = read("", &Bytes::new(), &Bytes::from_static(claim)).unwrap();
        let nonce = Bytes::from_static(&[1, 2]);
        assert_eq!(read_claim, ClaimRecord { host: "here".into(), nonce });
        assert_eq!(read_claim.encode_to_vec(), claim);
        assert_eq!(read_receipt("", &receipt(7)).unwrap(), 7);
        assert!(read_receipt("", &Bytes::from_static(b"7")).is_err());
    }
}
