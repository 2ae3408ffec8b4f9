//! The right to touch a file's chunks, minted by a metadata server and checked by storage servers.
//!
//! Storage servers know nothing of owners and modes. A client shows them a capability that it got
//! when it opened the file: a fixed record with a keyed BLAKE3 MAC over it. The key is shared by the
//! servers of a cluster and never leaves them, so a capability can be neither forged nor stretched
//! to another file. Checking one costs a single BLAKE3 block, less than looking it up in a cache
//! would, so none is kept. docs/FORMATS.md has the byte table.

use bytes::Bytes;
use strake_types::{Epoch, Error, ErrorKind, Ino, Result, SessionId, VolumeId};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the record.
const VERSION: u8 = 1;
/// Length of the MAC at the end.
const MAC_BYTES: usize = blake3::OUT_LEN;
/// Length of an encoded capability.
pub const CAPABILITY_BYTES: usize = size_of::<Record>() + MAC_BYTES;

/// How long a metadata server's own capability holds: as long as those of clients, because it is another
/// server whose clock says when that is over.
const REIGN_MS: u64 = 24 * 3_600_000;

/// In a session's number: it is no client's, but that of the metadata server that has served the volume since the epoch in
/// the other bits.
const REIGN: u64 = 1 << 63;

/// The metadata server that has served the volume since this epoch (0: since it was made), where a capability
/// names a session.
#[must_use]
pub const fn reign(since: Epoch) -> SessionId {
    SessionId(REIGN | since.0)
}

/// True if it is a client's, and no server's.
#[must_use]
pub const fn is_clients(session: SessionId) -> bool {
    session.0 != 0 && session.0 & REIGN == 0
}

/// Since which epoch, if it is a metadata server's.
pub(crate) fn reign_of(session: SessionId) -> Option<Epoch> {
    (session.0 & REIGN != 0).then_some(Epoch(session.0 & !REIGN))
}

/// The record as it is sent, before its MAC.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record {
    version: u8,
    rights: u8,
    reserved: U16,
    volume: U32,
    ino: U64,
    session: U64,
    expires_unix_ms: U64,
}

/// What a capability allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// None in particular: knowing the file is enough.
    pub const NONE: Rights = Rights(0);
    /// Reading contents.
    pub const READ: Rights = Rights(1);
    /// Changing contents.
    pub const WRITE: Rights = Rights(2);
    /// Both.
    pub const READ_WRITE: Rights = Rights(3);

    /// The rights of an open for reading, for writing, or both.
    pub fn of(read: bool, write: bool) -> Self {
        Rights(u8::from(read) | u8::from(write) << 1)
    }

    /// True if every right in `needed` is held.
    pub fn allow(self, needed: Rights) -> bool {
        self.0 & needed.0 == needed.0
    }
}

impl std::ops::BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// The right to touch the chunks of one file, or of every file of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The volume.
    pub volume: VolumeId,
    /// The file; 0 means every file of the volume (servers among themselves).
    pub ino: Ino,
    /// What may be done.
    pub rights: Rights,
    /// The session it was given to; 0 for servers among themselves.
    pub session: SessionId,
    /// When it ends, in milliseconds since 1970-01-01 UTC by the servers' clocks.
    pub expires_unix_ms: u64,
}

impl Capability {
    /// True if it allows `rights` on the file.
    pub fn covers(&self, volume: VolumeId, ino: Ino, rights: Rights) -> bool {
        let file = self.ino == Ino(0) || self.ino == ino;
        self.volume == volume && file && self.rights.allow(rights)
    }
}

/// The key that the servers of a cluster share.
#[derive(Clone)]
pub struct CapabilityKey([u8; blake3::KEY_LEN]);

impl CapabilityKey {
    /// The key with these 32 bytes.
    pub fn new(bytes: [u8; blake3::KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The key as the manager handed it out; anything but 32 bytes is refused.
    pub fn from_slice(bytes: &[u8]) -> Result<Self> {
        let key = <[u8; blake3::KEY_LEN]>::try_from(bytes);
        key.map(Self).map_err(|_| {
            let detail = format!("capability key of {} bytes instead of 32", bytes.len());
            Error::with(ErrorKind::Malformed, detail)
        })
    }

    /// Encodes a capability with its MAC.
    pub fn mint(&self, capability: &Capability) -> Bytes {
        let record = Record {
            version: VERSION,
            rights: capability.rights.0,
            reserved: U16::new(0),
            volume: U32::new(capability.volume.0),
            ino: U64::new(capability.ino.0),
            session: U64::new(capability.session.0),
            expires_unix_ms: U64::new(capability.expires_unix_ms),
        };
        let mut out = Vec::with_capacity(CAPABILITY_BYTES);
        out.extend_from_slice(record.as_bytes());
        out.extend_from_slice(blake3::keyed_hash(&self.0, record.as_bytes()).as_bytes());
        out.into()
    }

    /// What a server shows to another in its own name: every right to a file, or (0) to every file of a
    /// volume. It has no end: the other server's clock would say when that is, and one that is set wrong
    /// would refuse all that is sent to a copy there.
    pub fn mint_own(&self, volume: VolumeId, ino: Ino) -> Bytes {
        self.mint_as(SessionId(0), volume, ino, u64::MAX)
    }

    /// The same of a metadata server that has served the volume since this epoch, at this moment: it holds until the
    /// map names another one, and for as long as a call takes.
    pub fn mint_reign(&self, since: Epoch, volume: VolumeId, ino: Ino, now_unix_ms: u64) -> Bytes {
        self.mint_as(reign(since), volume, ino, now_unix_ms.saturating_add(REIGN_MS))
    }

    fn mint_as(
        &self,
        session: SessionId,
        volume: VolumeId,
        ino: Ino,
        expires_unix_ms: u64,
    ) -> Bytes {
        let rights = Rights::READ_WRITE;
        self.mint(&Capability { volume, ino, rights, session, expires_unix_ms })
    }

    /// Checks the MAC (in constant time) and the expiry of an encoded capability.
    ///
    /// Every refusal is [`ErrorKind::BadCapability`]: the client then opens the file again.
    pub fn verify(&self, encoded: &[u8], now_unix_ms: u64) -> Result<Capability> {
        let refuse = |why: &str| Error::with(ErrorKind::BadCapability, why.to_owned());
        let Ok((record, mac)) = Record::ref_from_prefix(encoded) else {
            return Err(refuse("no capability in the request"));
        };
        // blake3::Hash compares in constant time.
        let expected = blake3::keyed_hash(&self.0, record.as_bytes());
        let sent = <[u8; MAC_BYTES]>::try_from(mac).map(blake3::Hash::from_bytes);
        if sent.ok() != Some(expected) {
            return Err(refuse("MAC does not match"));
        }
        if record.version != VERSION {
            return Err(refuse("made by another release"));
        }
        if record.expires_unix_ms.get() <= now_unix_ms {
            return Err(refuse(&expired(now_unix_ms - record.expires_unix_ms.get())));
        }
        Ok(Capability {
            volume: VolumeId(record.volume.get()),
            ino: Ino(record.ino.get()),
            rights: Rights(record.rights),
            session: SessionId(record.session.get()),
            expires_unix_ms: record.expires_unix_ms.get(),
        })
    }
}

/// Why a capability is refused that was over so long ago. Whoever opens a file again gets one that holds a day, as a
/// metadata server makes its own for every call: if that is refused, two clocks differ.
fn expired(since_ms: u64) -> String {
    let apart_min = (REIGN_MS + since_ms) / 60_000;
    let (hours, minutes) = (apart_min / 60, apart_min % 60);
    format!(
        "expired {} s ago by the clock of the server that refuses it; if it was made just now, that clock is {hours} h \
         {minutes} min ahead of the one of the server that made it: compare `date` on all servers, timedatectl (or chronyc \
         tracking) says which is not set by NTP",
        since_ms / 1_000
    )
}

impl std::fmt::Debug for CapabilityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CapabilityKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Capability {
        Capability {
            volume: VolumeId(3),
            ino: Ino(0x0102_0304_0506_0708),
            rights: Rights::READ_WRITE,
            session: SessionId(9),
            expires_unix_ms: 1_000,
        }
    }

    #[test]
    fn a_minted_capability_verifies_until_it_expires() {
        let key = CapabilityKey::new([7; 32]);
        let encoded = key.mint(&sample());
        assert_eq!(encoded.len(), CAPABILITY_BYTES);
        assert_eq!(key.verify(&encoded, 999).unwrap(), sample());
        let late = key.verify(&encoded, 1_000).unwrap_err();
        assert_eq!(late.kind, ErrorKind::BadCapability);
        let words = key.verify(&encoded, 61_000).unwrap_err().to_string();
        assert!(
            words.contains("expired 60 s ago") && words.contains("24 h 1 min ahead"),
            "{words}"
        );
        assert!(words.contains("timedatectl") && words.contains("chronyc tracking"), "{words}");
    }

    /// Each write to a copy whose server's clock was more than a day ahead was refused, and waited for it for ever.
    #[test]
    fn servers_believe_each_other_whatever_their_clocks_say() {
        let key = CapabilityKey::new([7; 32]);
        let own = key.mint_own(VolumeId(3), Ino(4));
        for other in [0, 1_800_000_000_000, u64::MAX - 1] {
            let held = key.verify(&own, other).unwrap();
            assert!(held.covers(VolumeId(3), Ino(4), Rights::READ_WRITE));
        }
    }

    #[test]
    fn a_metadata_server_is_believed_where_clocks_differ_by_hours() {
        let key = CapabilityKey::new([7; 32]);
        let now = 1_800_000_000_000;
        let own = key.mint_reign(Epoch(5), VolumeId(3), Ino(4), now);
        for other in [now - 20 * 3_600_000, now, now + 20 * 3_600_000] {
            let held = key.verify(&own, other).unwrap();
            assert!(held.covers(VolumeId(3), Ino(4), Rights::READ_WRITE));
        }
        key.verify(&own, now + REIGN_MS).unwrap_err();
    }

    #[test]
    fn the_record_is_the_one_in_formats_md() {
        let encoded = CapabilityKey::new([7; 32]).mint(&sample());
        let fixture = [
            1, 3, 0, 0, 3, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0xe8, 3, 0, 0,
            0, 0, 0, 0,
        ];
        assert_eq!(encoded[..32], fixture);
        assert_eq!(encoded[32..], *blake3::keyed_hash(&[7; 32], &fixture).as_bytes());
    }

    #[test]
    fn any_changed_bit_any_cut_and_any_other_key_is_refused() {
        let key = CapabilityKey::new([7; 32]);
        let encoded = key.mint(&sample());
        for bit in 0..encoded.len() * 8 {
            let mut forged = encoded.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(key.verify(&forged, 0).is_err(), "bit {bit}");
        }
        for cut in 0..encoded.len() {
            assert!(key.verify(&encoded[..cut], 0).is_err(), "cut at {cut}");
        }
        let longer = [&encoded[..], &[0]].concat();
        assert!(key.verify(&longer, 0).is_err());
        assert!(CapabilityKey::new([8; 32]).verify(&encoded, 0).is_err());
    }

    #[test]
    fn a_capability_covers_its_own_file_and_rights_only() {
        let read = Capability { rights: Rights::READ, ..sample() };
        assert!(read.covers(read.volume, read.ino, Rights::READ));
        assert!(!read.covers(read.volume, read.ino, Rights::WRITE));
        assert!(!read.covers(VolumeId(4), read.ino, Rights::READ));
        assert!(!read.covers(read.volume, Ino(5), Rights::READ));
        let all = Capability { ino: Ino(0), ..read };
        assert!(all.covers(read.volume, Ino(5), Rights::READ));
    }
}
