//! Files as `ls` and `stat` show them.

use crate::output;
use bytes::Bytes;
use serde::Serialize;
use strake_native::info::Info;
use strake_native::place::Name;
use strake_types::{FileKind, Timestamp};

/// A file as `--json` prints it.
#[derive(Serialize)]
pub struct View {
    /// Its name or path; what is no UTF-8 in it as `\xNN`.
    pub name: String,
    /// The bytes of a name that is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<Vec<u8>>,
    /// `file`, `directory`, ...
    pub kind: &'static str,
    /// Number of its inode.
    pub ino: u64,
    /// Permission bits, octal.
    pub mode: String,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes occupied.
    pub occupied: u64,
    /// Last change of the contents, as RFC 3339 writes it, as are the other times.
    pub mtime: String,
    /// Last read.
    pub atime: String,
    /// Last change of contents or attributes.
    pub ctime: String,
    /// Where a symbolic link leads, as the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The bytes of a target that is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<Vec<u8>>,
}

impl View {
    /// What is shown of a file, and where it leads if it is a symbolic link.
    pub fn new(name: &[u8], info: &Info, target: Option<&[u8]>) -> View {
        View {
            name: output::text_of(name),
            name_bytes: not_text(name),
            kind: kind_name(info.kind),
            ino: info.ino,
            mode: format!("{:04o}", info.mode),
            nlink: info.nlink,
            uid: info.uid,
            gid: info.gid,
            size: info.length,
            occupied: info.occupied,
            mtime: rfc3339(info.mtime),
            atime: rfc3339(info.atime),
            ctime: rfc3339(info.ctime),
            target: target.map(output::text_of),
            target_bytes: target.and_then(not_text),
        }
    }
}

fn not_text(name: &[u8]) -> Option<Vec<u8>> {
    std::str::from_utf8(name).is_err().then(|| name.to_vec())
}

/// Where a symbolic link leads; none if it is something else, or gone by now.
pub async fn target(name: &Name, info: &Info) -> Option<Bytes> {
    match info.kind {
        FileKind::Symlink => name.read_link().await.ok(),
        _ => None,
    }
}

/// A kind in words.
pub fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}

/// `drwxr-xr-x`.
pub fn mode_text(kind: FileKind, mode: u32) -> String {
    let letter = match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(letter);
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => set.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `2026-11-21T08:00:00.123456789Z`.
fn rfc3339(time: Timestamp) -> String {
    show_time(time).replacen(' ', "T", 1)
}

/// `2026-11-21 08:00:00.123456789Z`.
pub fn show_time(time: Timestamp) -> String {
    let (date, second) = (time.date(), time.seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{date} {hour:02}:{minute:02}:{second:02}.{:09}Z", time.nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_dates() {
        let at = |seconds| show_time(Timestamp { seconds, nanos: 5 });
        assert_eq!(at(0), "1970-01-01 00:00:00.000000005Z");
        let stored = rfc3339(Timestamp { seconds: 0, nanos: 5 });
        assert_eq!(stored, "1970-01-01T00:00:00.000000005Z");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00.000000005Z");
        assert_eq!(at(-1), "1969-12-31 23:59:59.000000005Z");
    }

    #[test]
    fn modes_are_shown_in_letters() {
        assert_eq!(mode_text(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(FileKind::File, 0o4640), "-rwSr-----");
    }
}
