//! The kernel's table of mounts.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const TABLE: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub path: PathBuf,
    /// Which directory of the file system is to be seen there: `/` is all of it.
    pub root: PathBuf,
    /// The kernel's name of the file system: `ext4`.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// The device on which everything in it lies, and nothing else does.
    pub device: u64,
    /// Who has mounted it, where the kernel says so: of what is served by a process.
    pub user: Option<u32>,
}

/// Mounts that this process can see, in the order of mounting.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(TABLE)?))
}

/// The mounts in the text of the table.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ').skip(2);
    let (device, root, path) = (fields.next()?, fields.next()?, fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (fields.next()?, fields.next()?);
    let mut options = fields.next().unwrap_or_default().split(|&byte| byte == b',');
    let text = |field| unescape(field).to_string_lossy().into_owned();
    Some(Mount {
        path: unescape(path).into(),
        root: unescape(root).into(),
        kind: text(kind),
        source: text(source),
        device: device_of(device)?,
        user: options.find_map(user_of),
    })
}

/// The user that an option names: `user_id=0`.
fn user_of(option: &[u8]) -> Option<u32> {
    std::str::from_utf8(option).ok()?.strip_prefix("user_id=")?.parse().ok()
}

/// A device as files tell of it, of how the table writes it: `0:52`.
fn device_of(field: &[u8]) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A field as it is meant: the kernel writes what would end one, or begin a comment, as `\040`, `\043` and the like.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.split_first_chunk::<3>().filter(|_| first == b'\\');
        let meant = digits.and_then(|(digits, after)| Some((octal(digits)?, after)));
        let (byte, after) = meant.unwrap_or((first, after));
        plain.push(byte);
        rest = after;
    }
    OsString::from_vec(plain)
}

fn octal(digits: &[u8]) -> Option<u8> {
    // A sign is none.
    let digits = Some(digits).filter(|digits| digits.iter().all(|d| matches!(d, b'0'..=b'7')))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_what_is_mounted_and_on_which_device() {
        let table = b"31 1 0:52 / /mnt/a\\040b rw shared:7 - fuse.strake main rw,user_id=0\n\
            33 1 0:300 /c\\040d /mnt rw - fuse.strake unix:/srv/a\\0431/s:/main rw\n";
        let mount = |path: &str, root: &str, source: &str, minor, user| Mount {
            path: path.into(),
            root: root.into(),
            kind: "fuse.strake".into(),
            source: source.into(),
            device: rustix::fs::makedev(0, minor),
            user,
        };
        // Behind a `#` no socket was found.
        let mounts = [
            mount("/mnt/a b", "/", "main", 52, Some(0)),
            mount("/mnt", "/c d", "unix:/srv/a#1/s:/main", 300, None),
        ];
        assert_eq!(parse(table), mounts);
    }

    #[test]
    fn whatever_the_kernel_has_escaped_is_read_back() {
        let cases: [(&[u8], &[u8]); 7] = [
            (b"/a\\040b\\011c", b"/a b\tc"),
            (b"/a\\0431\\134\\012", b"/a#1\\\n"),
            (b"/\\303\\244\xff", b"/\xc3\xa4\xff"),
            (b"/a\\", b"/a\\"),
            (b"/a\\04", b"/a\\04"),
            (b"/a\\+12", b"/a\\+12"),
            (b"/a\\777", b"/a\\777"),
        ];
        for (field, plain) in cases {
            assert_eq!(unescape(field).into_vec(), plain);
        }
    }
}
