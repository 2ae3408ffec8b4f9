//! The kernel's tables of mounts: `/proc/self/mounts`, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A field as it is meant: the kernel writes what would end one, or begin a comment, as `\040`, `\043` and the like.
pub fn unescape(field: &[u8]) -> OsString {
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
