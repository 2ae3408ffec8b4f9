//! Whom a target belongs to: one small file, readable without opening the store.

use super::{ChunkError, Result, crc};
use std::io;
use strake_base::disk::Disk;

/// The file's name.
pub(super) const FILE: &str = "identity";
pub(super) const NEW_FILE: &str = "identity.new";
const MAGIC: &[u8; 8] = b"STRAKECH";
/// The newest format of the whole target that this code reads and writes.
pub(super) const FORMAT: u32 = 2;
/// Length of the encoded form.
const BYTES: usize = 56;

/// Whom a target belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id (32 hex digits); empty: not yet in a cluster.
    pub cluster: String,
    /// Made when the target was formatted (32 hex digits): finds clones and swapped disks.
    pub uuid: String,
    /// The target's number in the cluster; 0: not yet given.
    pub target: u32,
}

/// Why an identity cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// Not an identity, or damaged.
    Damaged,
    /// Of a later format.
    Newer(u32),
}

/// Decodes the contents of an identity file.
pub fn decode_identity(bytes: &[u8]) -> Result<Identity, IdentityError> {
    let head = bytes.first_chunk::<12>().ok_or(IdentityError::Damaged)?;
    if &head[..8] != MAGIC {
        return Err(IdentityError::Damaged);
    }
    let format = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    if format > FORMAT {
        return Err(IdentityError::Newer(format));
    }
    let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| IdentityError::Damaged)?;
    let number =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if format == 0 || number(52) != crc::of(&bytes[..52]) {
        return Err(IdentityError::Damaged);
    }
    Ok(Identity { target: number(12), uuid: hex(&bytes[16..32]), cluster: hex(&bytes[32..48]) })
}

impl Identity {
    /// The identity of the target on a disk, without opening it; `None` if there is no target.
    pub fn read(disk: &dyn Disk) -> Result<Option<Identity>> {
        let target = disk.path();
        let bytes = match contents(disk) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ChunkError::io(&target, &error)),
        };
        decode_identity(&bytes).map(Some).map_err(|error| match error {
            IdentityError::Newer(found) => {
                ChunkError::Newer { target: target.clone(), found, known: FORMAT }
            }
            IdentityError::Damaged => ChunkError::Damaged {
                target: target.clone(),
                cause: "its identity file cannot be read".to_owned(),
            },
        })
    }

    /// Writes the identity of a target of an earlier format anew, so that an earlier release refuses
    /// what this one writes from now on.
    pub(super) fn upgrade(&self, disk: &dyn Disk) -> Result<()> {
        let current = encode_identity(self).map(Vec::from);
        if contents(disk).ok() == current { Ok(()) } else { self.write(disk) }
    }

    /// Writes the identity of a closed target, all or nothing, durably: when it is formatted and when
    /// it enters a cluster.
    pub fn write(&self, disk: &dyn Disk) -> Result<()> {
        let target = disk.path();
        let bytes = encode_identity(self).ok_or_else(|| ChunkError::Io {
            target: target.clone(),
            cause: "ids of clusters and targets have 32 hex digits".to_owned(),
        })?;
        let write = || {
            let file = disk.open(NEW_FILE, true)?;
            file.set_len(0)?;
            file.write_all_at(&bytes, 0)?;
            file.sync()?;
            disk.rename(NEW_FILE, FILE)?;
            disk.sync_directory()
        };
        write().map_err(|error| ChunkError::io(&target, &error))
    }
}

fn contents(disk: &dyn Disk) -> io::Result<Vec<u8>> {
    let file = disk.open(FILE, false)?;
    let mut bytes = vec![0; file.len()?.min(4096) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The contents of an identity file; `None` if an id is none.
pub(super) fn encode_identity(identity: &Identity) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..16].copy_from_slice(&identity.target.to_le_bytes());
    bytes[16..32].copy_from_slice(&unhex(&identity.uuid)?);
    bytes[32..48].copy_from_slice(&unhex(&identity.cluster)?);
    let sum = crc::of(&bytes[..52]);
    bytes[52..].copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

/// All zeros stand for the empty id.
fn hex(bytes: &[u8]) -> String {
    if bytes.iter().all(|b| *b == 0) {
        return String::new();
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    if text.is_empty() {
        return Some([0; 16]);
    }
    let valid = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    valid.then(|| u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_base::disk::sim::SimDisk;

    #[test]
    fn identity_is_read_back_and_damage_and_newer_formats_are_told_apart() {
        let disk = SimDisk::new(1, 1 << 20).process();
        assert_eq!(Identity::read(&*disk).unwrap(), None);
        let mut identity = Identity { cluster: String::new(), uuid: "0a".repeat(16), target: 0 };
        identity.write(&*disk).unwrap();
        identity.cluster = "f1".repeat(16);
        identity.target = 7;
        identity.write(&*disk).unwrap();
        assert_eq!(Identity::read(&*disk).unwrap(), Some(identity.clone()));
        assert_eq!(disk.list().unwrap(), ["identity"]);

        let mut bytes = encode_identity(&identity).unwrap();
        bytes[8] = 3;
        assert_eq!(decode_identity(&bytes), Err(IdentityError::Newer(3)));
        for at in 0..BYTES {
            let mut bytes = encode_identity(&identity).unwrap();
            bytes[at] ^= 0x80;
            assert!(decode_identity(&bytes).is_err(), "byte {at}");
        }
    }
}
