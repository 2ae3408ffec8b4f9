//! Where a store was moved to: the record by which nobody takes the old store for the one in use.

use std::fmt;
use strake_types::Timestamp;

/// Version of the record.
const VERSION: &str = "1";

/// That what a store held is kept elsewhere since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Number of the export that was imported there.
    pub export: [u8; 16],
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The database, as its URL is shown without a password. Empty: the data directory of a server on that host.
    pub to: String,
    /// The host on which it was imported.
    pub host: String,
}

impl Moved {
    /// True if both are the same move, perhaps begun at two times.
    pub fn is_same(&self, other: &Moved) -> bool {
        (&self.export, &self.to) == (&other.export, &other.to)
    }

    /// What an administrator does who meets the old store.
    pub fn next(&self) -> String {
        let Moved { to, host, .. } = self;
        let start = match to.as_str() {
            "" => format!("leave manager and meta out of --roles, and name {host} in --join"),
            to => format!("start this server with --meta {to} and a --join that names {host}"),
        };
        format!(
            "{start} (on {host}, if the import was interrupted: the same strake meta import again), or, to give the move up, \
             strake meta reopen"
        )
    }

    /// As docs/FORMATS.md draws it.
    pub fn encode(&self) -> Vec<u8> {
        let Moved { at_ms, to, host, .. } = self;
        format!("{VERSION}\n{}\n{at_ms}\n{to}\n{host}\n", self.number()).into_bytes()
    }

    /// Reads it; `None` if it is not of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let lines: Vec<&str> = str::from_utf8(bytes).ok()?.split('\n').collect();
        let [VERSION, number, at_ms, to, host, ""] = lines[..] else { return None };
        let export = u128::from_str_radix(number, 16).ok().filter(|_| number.len() == 32)?;
        Some(Self {
            export: export.to_be_bytes(),
            at_ms: at_ms.parse().ok()?,
            to: to.to_owned(),
            host: host.to_owned(),
        })
    }

    /// The export's number, as people read it.
    fn number(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.export))
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moved { at_ms, to, host, .. } = self;
        match to.as_str() {
            "" => write!(f, "its metadata was moved to a data directory on {host}")?,
            to => write!(f, "its metadata was moved to {to}")?,
        }
        let at = Timestamp { seconds: (*at_ms / 1_000) as i64, nanos: 0 }.minute();
        let number = self.number();
        write!(f, " at {at} by strake meta import on {host} of export {number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that docs/FORMATS.md describes.
    #[test]
    fn a_record_of_version_1_is_read() {
        let bytes = b"1\n07070707070707070707070707070707\n1700000000000\netcd://h:2379/n\nhost1\n";
        let moved = Moved {
            export: [7; 16],
            at_ms: 1_700_000_000_000,
            to: "etcd://h:2379/n".into(),
            host: "host1".into(),
        };
        assert_eq!(Moved::decode(bytes), Some(moved.clone()));
        assert_eq!(moved.encode(), bytes);
        for wrong in ["", "2\n07\n1\n\nh\n", "1\n07\n1\n\nh\n", "1\n1\n"] {
            assert_eq!(Moved::decode(wrong.as_bytes()), None, "{wrong:?}");
        }
        let cause = "its metadata was moved to etcd://h:2379/n at 2023-11-14 22:13 UTC by strake meta import on \
             host1 of export 07070707070707070707070707070707";
        assert_eq!(moved.to_string(), cause);
        let home = Moved { to: String::new(), ..moved };
        assert_eq!(Moved::decode(&home.encode()), Some(home.clone()));
        assert!(home.to_string().contains("to a data directory on host1"), "{home}");
        assert!(home.next().contains("leave manager and meta out"), "{}", home.next());
    }
}
