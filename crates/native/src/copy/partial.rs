//! The name under which a large file grows.
//!
//! The name carries length and time of change of the source: a partial copy of an older source is
//! never continued. A copy that was asked to stop has written and synced all of it, and given it
//! the source's time of change: it is good to its end. Of any other nobody knows what has come to disks, and what they
//! have lost since: all of it is compared with the source.

use crate::info::Info;
use bytes::Bytes;
use strake_base::clock::wall_time;
use strake_types::Timestamp;
use strake_types::limits::NAME_BYTES_MAX;

/// Files from this length on are written under a partial name.
pub(super) const PARTIAL_BYTES_MIN: u64 = 16 << 20;

/// How such a name ends.
const SUFFIX: &str = ".strake-partial";

/// Name under which a copy of `info` to `name` grows.
pub(super) fn partial_name(name: &[u8], info: &Info) -> Bytes {
    name_of(name, info.length, info.mtime)
}

/// Name under which a smaller copy grows that is to replace another file. Nobody goes on with it, and nobody else has it: in place of
/// the length and the time of the source it has the number of this process and the present time.
pub(super) fn aside_name(name: &[u8]) -> Bytes {
    let now = wall_time();
    let now = Timestamp { seconds: now.as_secs().cast_signed(), nanos: now.subsec_nanos() };
    name_of(name, std::process::id().into(), now)
}

fn name_of(name: &[u8], length: u64, mtime: Timestamp) -> Bytes {
    let identity = format!("-{length:x}{}", ending(mtime));
    let mut partial = stem(name, identity.len());
    partial.extend_from_slice(identity.as_bytes());
    partial.into()
}

/// How the name of a partial copy of a source ends that has this time of change.
fn ending(mtime: Timestamp) -> String {
    format!("-{:x}.{:x}{SUFFIX}", mtime.seconds, mtime.nanos)
}

/// What of the name of a partial copy comes from that of the copy.
fn stem(name: &[u8], identity_bytes: usize) -> Vec<u8> {
    let room = NAME_BYTES_MAX.saturating_sub(identity_bytes + 1);
    let mut partial = Vec::with_capacity(NAME_BYTES_MAX);
    partial.push(b'.');
    if name.len() <= room {
        partial.extend_from_slice(name);
    } else {
        // Two long names that begin alike must differ.
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        partial.extend_from_slice(&name[..room.saturating_sub(17)]);
        partial.extend_from_slice(format!("-{hash:016x}").as_bytes());
    }
    partial
}

/// The two parts of the name of a partial copy: what comes from the copy's name, and what from the source.
fn parts(partial: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = partial.strip_suffix(SUFFIX.as_bytes())?;
    let time = rest.iter().rposition(|&byte| byte == b'-')?;
    let length = rest[..time].iter().rposition(|&byte| byte == b'-')?;
    let is_number = |byte: &u8| byte.is_ascii_hexdigit() || b"-.".contains(byte);
    rest[length..].iter().all(is_number).then(|| partial.split_at(length))
}

/// True for the name of a partial copy.
pub(super) fn is_partial(name: &[u8]) -> bool {
    parts(name).is_some()
}

/// True for the name of a partial copy that was to become `name`, of whatever source.
pub(super) fn is_partial_of(partial: &[u8], name: &[u8]) -> bool {
    parts(partial).is_some_and(|(start, identity)| start == stem(name, identity.len()))
}

/// True if a partial copy has the time of change of its source: it was closed when all of it was written.
pub(super) fn is_marked(partial: &[u8], mtime: Timestamp) -> bool {
    partial.ends_with(ending(mtime).as_bytes())
}

/// When a copy began that nobody is to go on with, by its [`aside_name`], in seconds. What is gone on with has the length of a
/// large file where this one has the number of a process.
pub(super) fn begun(partial: &[u8]) -> Option<i64> {
    let (_, identity) = parts(partial)?;
    let (number, time) = std::str::from_utf8(identity).ok()?.strip_prefix('-')?.split_once('-')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    let (seconds, _) = time.split_once('.')?;
    // Linux numbers processes up to 1 << 22.
    (number < PARTIAL_BYTES_MIN).then(|| i64::from_str_radix(seconds, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::FileKind;

    fn info(length: u64, nanos: u32) -> Info {
        let time = Timestamp { seconds: 5, nanos };
        Info {
            kind: FileKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            length,
            occupied: 0,
            atime: time,
            mtime: time,
            ctime: time,
            ino: 2,
            device: 0,
            no_xattrs: true,
        }
    }

    #[test]
    fn another_source_has_another_partial_name() {
        let base = partial_name(b"file", &info(1, 1));
        assert_ne!(base, partial_name(b"file", &info(2, 1)));
        assert_ne!(base, partial_name(b"file", &info(1, 2)));
        assert!(base.starts_with(b".file-") && base.ends_with(b".strake-partial"));
    }

    #[test]
    fn long_names_stay_names_and_stay_different() {
        let (one, mut two) = (vec![b'x'; 255], vec![b'x'; 255]);
        two[254] = b'y';
        let (a, b) =
            (partial_name(&one, &info(u64::MAX, 9)), partial_name(&two, &info(u64::MAX, 9)));
        assert!(a.len() <= 255 && b.len() <= 255);
        assert_ne!(a, b);
    }

    /// Its time of change may be the source's: it was removed just before it got its final name.
    #[test]
    fn the_name_of_a_copy_that_nobody_goes_on_with_says_when_it_began() {
        let now = wall_time().as_secs().cast_signed();
        for name in [&b"a"[..], b"a-1-2.3", &[b'x'; 255]] {
            assert!(begun(&aside_name(name)).is_some_and(|begun| (now..now + 60).contains(&begun)));
            assert_eq!(begun(&partial_name(name, &info(PARTIAL_BYTES_MIN, 7))), None);
        }
        assert_eq!(begun(b".a-3fffff-5.7.strake-partial"), Some(5));
        assert_eq!(begun(b"a"), None);
    }

    /// They are removed by their names.
    #[test]
    fn a_partial_name_is_known_as_that_of_its_copy_and_of_no_other() {
        let long = [b'x'; 255];
        for name in [&b"a"[..], b"a-1", b"a-1-2.3", &long] {
            let partial = partial_name(name, &info(0x14_0000, 7));
            assert!(is_partial(&partial) && is_partial_of(&partial, name));
            let others = [&b"a"[..], b"a-1", b"a-1-2.3", b"", &long, &long[..254]];
            for other in others.into_iter().filter(|other| *other != name) {
                assert!(!is_partial_of(&partial, other), "{partial:?} {other:?}");
            }
            assert!(is_marked(&partial, Timestamp { seconds: 5, nanos: 7 }));
            assert!(!is_marked(&partial, Timestamp { seconds: 5, nanos: 8 }));
        }
        for name in ["", "a", ".a.strake-partial", ".a-old-5.strake-partial", ".a-1-5.7"] {
            assert!(!is_partial(name.as_bytes()), "{name}");
        }
    }
}
