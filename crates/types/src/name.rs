//! What a directory entry may be called.

use crate::limits::NAME_BYTES_MAX;
use crate::{Error, ErrorKind, Result};

/// Checks the name of a directory entry: 1 to 255 bytes without `/` and NUL. `.` and `..` pass;
/// whoever makes or removes names refuses them with [`is_dot`].
pub fn check(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Error::new(ErrorKind::NotFound));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::new(ErrorKind::NameTooLong));
    }
    if name.iter().any(|&b| b == b'/' || b == 0) {
        return Err(Error::with(ErrorKind::Invalid, "a name holds no '/' and no NUL"));
    }
    Ok(())
}

/// True for `.` and `..`.
pub fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_255_bytes() {
        assert_eq!(check(b"").map_err(|e| e.kind), Err(ErrorKind::NotFound));
        assert_eq!(check(&[b'x'; 256]).map_err(|e| e.kind), Err(ErrorKind::NameTooLong));
        assert!(check(&[b'x'; 255]).is_ok());
        assert!(check(&[0xff, 0xfe]).is_ok());
    }

    #[test]
    fn names_hold_no_slash_and_no_nul() {
        assert_eq!(check(b"a/b").map_err(|e| e.kind), Err(ErrorKind::Invalid));
        assert_eq!(check(b"a\0").map_err(|e| e.kind), Err(ErrorKind::Invalid));
    }
}
