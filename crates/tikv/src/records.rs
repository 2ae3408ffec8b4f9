//! The values that are the engine's own, as lines of text, and the wrapping of all others.

use bytes::Bytes;

/// Version of the keys and values that this release makes and reads.
pub const FORMAT: u32 = 1;
/// What every value of the map begins with: TiKV's other clients know no empty values, and a later
/// format has its place there.
const PLAIN: u8 = 1;

/// Whose the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub format: u32,
    /// The store's id.
    pub owner: String,
    /// Where it was made.
    pub host: String,
    /// How many have opened a part.
    pub writers: u64,
}

/// Who writes a part, and the number of the last commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub writer: u64,
    pub seq: u64,
    pub host: String,
}

impl Identity {
    pub fn text(&self) -> Vec<u8> {
        let Self { format, owner, host, writers } = self;
        format!("{format}\n{writers}\n{owner}\n{host}\n").into_bytes()
    }

    /// `None`: it is damaged.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let format = lines.next()?.parse().ok()?;
        // Of a later format nothing else is known.
        if format > FORMAT {
            return Some(Self { format, owner: String::new(), host: String::new(), writers: 0 });
        }
        let writers = lines.next()?.parse().ok()?;
        let [owner, host] = [lines.next()?.to_owned(), lines.next()?.to_owned()];
        Some(Self { format, owner, host, writers })
    }
}

impl Claim {
    pub fn text(&self) -> Vec<u8> {
        let Self { writer, seq, host } = self;
        format!("{writer}\n{seq}\n{host}\n").into_bytes()
    }

    /// `None`: it is damaged.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let [writer, seq] = [lines.next()?.parse().ok()?, lines.next()?.parse().ok()?];
        Some(Self { writer, seq, host: lines.next()?.to_owned() })
    }
}

/// A value as it is stored.
pub fn wrap(value: &[u8]) -> Vec<u8> {
    [&[PLAIN], value].concat()
}

/// A value as it was given. `None`: it is damaged.
pub fn unwrap(stored: Vec<u8>) -> Option<Bytes> {
    let stored = Bytes::from(stored);
    (stored.first() == Some(&PLAIN)).then(|| stored.slice(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_damage_is_found() {
        let (owner, host) = ("id".to_owned(), "here".to_owned());
        let identity = Identity { format: FORMAT, owner, host: host.clone(), writers: 7 };
        assert_eq!(identity.text(), b"1\n7\nid\nhere\n");
        assert_eq!(Identity::parse(&identity.text()), Some(identity));
        assert_eq!(Identity::parse(b"2\nsomething else").unwrap().format, 2);
        assert_eq!(Identity::parse(b"1\n7\nid"), None);
        let claim = Claim { writer: 7, seq: 9, host };
        assert_eq!(claim.text(), b"7\n9\nhere\n");
        assert_eq!(Claim::parse(&claim.text()), Some(claim));
        assert_eq!(Claim::parse(b"7\nx\nhere\n"), None);
        assert_eq!(unwrap(wrap(b"")).as_deref(), Some(&b""[..]));
        assert_eq!(unwrap(b"\x02later".to_vec()), None);
    }
}
