//! What `stat` shows of an inode.

use crate::consistency::Consistency;
use crate::{Error, ErrorKind, Ino, Layout, Result};
use std::time::Duration;

/// Seconds and nanoseconds since 1970-01-01 UTC. Negative seconds are before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, 0..1,000,000,000.
    pub nanos: u32,
}

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;
/// Days of 400 years.
const DAYS_PER_ERA: i64 = 146_097;

impl Timestamp {
    /// The nanosecond before.
    #[must_use]
    pub fn before(self) -> Self {
        match self.nanos {
            0 => Self { seconds: self.seconds.saturating_sub(1), nanos: 999_999_999 },
            nanos => Self { nanos: nanos - 1, ..self },
        }
    }

    /// The nanosecond after.
    #[must_use]
    pub fn after(self) -> Self {
        match self.nanos {
            999_999_999.. => Self { seconds: self.seconds.saturating_add(1), nanos: 0 },
            nanos => Self { nanos: nanos + 1, ..self },
        }
    }

    /// So much later.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        let nanos = self.nanos + time.subsec_nanos();
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let seconds = self.seconds.saturating_add(seconds);
        match nanos {
            1_000_000_000.. => {
                Self { seconds: seconds.saturating_add(1), nanos: nanos - 1_000_000_000 }
            }
            nanos => Self { seconds, nanos },
        }
    }

    /// The day, UTC: `2026-11-21`.
    pub fn date(self) -> String {
        let (year, month, day) = civil(self.seconds.div_euclid(86_400));
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// The minute, UTC: `2026-11-21 08:00 UTC`.
    pub fn minute(self) -> String {
        let minutes = self.seconds.div_euclid(60);
        let (hour, minute) = (minutes.div_euclid(60).rem_euclid(24), minutes.rem_euclid(60));
        format!("{} {hour:02}:{minute:02} UTC", self.date())
    }
}

/// Year, month and day of a number of days since 1970-01-01: Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(DAYS_TO_EPOCH);
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The seven kinds of file POSIX knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A Unix socket's name.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl FileKind {
    /// The kind that a message names; `Malformed` if there is none.
    pub fn of_message(code: u32) -> Result<Self> {
        let unknown = || Error::with(ErrorKind::Malformed, format!("file kind {code}"));
        u8::try_from(code).ok().and_then(Self::from_code).ok_or_else(unknown)
    }

    /// The kind with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => FileKind::File,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::Fifo,
            5 => FileKind::Socket,
            6 => FileKind::CharDevice,
            7 => FileKind::BlockDevice,
            _ => return None,
        })
    }
}

/// The attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: `0o7777` at most.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links; for a directory 2 + its subdirectories.
    pub nlink: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
    /// Length in bytes. A directory's is the number of its entries times a nominal size.
    pub length: u64,
    /// Bytes occupied, as far as known to the metadata server.
    pub occupied: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Grows with every change of the inode; tells caches whether what they hold is still true.
    pub version: u64,
    /// True where the contents lie inside the inode and not in chunks.
    pub inline: bool,
    /// True if it surely has neither extended attributes nor ACLs.
    pub no_xattrs: bool,
    /// Where the contents lie (a regular file), or what children inherit (a directory).
    pub layout: Option<Layout>,
}

impl Attr {
    /// What clients see of each other's work on the contents. The layout of a directory is that of files to come.
    pub fn consistency(&self) -> Consistency {
        let own = self.layout.as_ref().filter(|_| self.kind == FileKind::File);
        own.map(|layout| layout.consistency).unwrap_or_default()
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's present time.
    Now,
    /// This time.
    At(Timestamp),
}

/// What `setattr` changes; `None` leaves a field alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length.
    pub length: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time (only the kernel's write-back cache sends one).
    pub ctime: Option<Timestamp>,
    /// With another length setuid and setgid are taken back: the caller may not keep them, says the kernel that has checked
    /// his rights.
    pub drop_setid: bool,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Effective (file system) user id.
    pub uid: u32,
    /// Effective (file system) group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The mount's kernel has checked permissions already (`default_permissions`).
    pub checked: bool,
}

impl Credentials {
    /// Root, unrestricted.
    pub fn root() -> Self {
        Self::default()
    }

    /// True if the caller belongs to the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        let date = |seconds| Timestamp { seconds, nanos: 5 }.date();
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(-1), "1969-12-31");
        assert_eq!(date(253_402_300_799), "9999-12-31");
        let minute = |seconds| Timestamp { seconds, nanos: 5 }.minute();
        assert_eq!(minute(951_868_799), "2000-02-29 23:59 UTC");
        assert_eq!(minute(-1), "1969-12-31 23:59 UTC");
    }
}
