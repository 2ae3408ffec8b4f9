//! Where something lies: on this machine or in a volume.

use std::fmt;
use std::path::PathBuf;
use strake_types::limits::PATH_BYTES_MAX;
use strake_types::{Error, ErrorKind, Result};

/// How `strake://ADDR[,ADDR]/VOLUME/PATH` begins.
pub const SCHEME: &str = "strake://";
const UNIX: &str = "unix:";

/// A path with where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file of this machine.
    Local(PathBuf),
    /// A file of a volume.
    Remote(RemotePath),
}

/// A path in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePath {
    /// Addresses of managers (`host:port` or `unix:/path`), at least one.
    pub addresses: Vec<String>,
    /// The volume's name.
    pub volume: String,
    /// Path from its root, beginning with `/`.
    pub path: String,
}

/// The addresses of `ADDR[,ADDR]:/VOLUME[/PATH]`, and what comes after its `:/`; `None` of a text in another form.
pub fn split(text: &str) -> Option<(&str, &str)> {
    // A Unix socket's address has a `:/` of its own.
    let skip = if text.starts_with(UNIX) { UNIX.len() } else { 0 };
    let at = skip + text[skip..].find(":/")?;
    let (addresses, rest) = (&text[..at], &text[at + 2..]);
    (skip > 0 || !addresses.contains('/')).then_some((addresses, rest))
}

impl Location {
    /// Understands `strake://ADDR[,ADDR]/VOLUME/PATH` and `ADDR[,ADDR]:/VOLUME/PATH`, the form that
    /// `mount` uses. Everything else is local; so is a name with a slash before its `:/`.
    pub fn parse(text: &str) -> Result<Self> {
        let parts = match text.strip_prefix(SCHEME) {
            Some(rest) => Some(rest.split_once('/').unwrap_or((rest, ""))),
            None => split(text),
        };
        match parts {
            Some((addresses, rest)) => {
                RemotePath::from_parts(text, addresses, rest).map(Location::Remote)
            }
            None if text.is_empty() => Err(Error::with(ErrorKind::NotFound, "an empty path")),
            None => Ok(Location::Local(PathBuf::from(text))),
        }
    }

    /// The path in a volume, where only such a path makes sense.
    pub fn remote(self) -> Result<RemotePath> {
        match self {
            Location::Remote(remote) => Ok(remote),
            Location::Local(path) => {
                let detail = format!(
                    "{} is a path of this machine; give ADDR:/VOLUME/PATH or strake://ADDR/VOLUME/PATH",
                    path.display()
                );
                Err(Error::with(ErrorKind::Invalid, detail))
            }
        }
    }
}

impl RemotePath {
    fn from_parts(text: &str, addresses: &str, rest: &str) -> Result<Self> {
        let wrong = |what: &str| {
            let detail = format!("\"{text}\" {what}; write ADDR[,ADDR]:/VOLUME/PATH");
            Err(Error::with(ErrorKind::Invalid, detail))
        };
        let addresses: Vec<_> = addresses.split(',').map(str::to_string).collect();
        if addresses.iter().any(String::is_empty) {
            return wrong("lacks an address");
        }
        let (volume, path) = rest.split_once('/').unwrap_or((rest, ""));
        if volume.is_empty() {
            return wrong("lacks a volume");
        }
        if path.len() >= PATH_BYTES_MAX {
            return Err(Error::with(ErrorKind::NameTooLong, text.to_string()));
        }
        Ok(Self { addresses, volume: volume.to_string(), path: format!("/{path}") })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => path.display().fmt(f),
            Location::Remote(remote) => remote.fmt(f),
        }
    }
}

impl fmt::Display for RemotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:/{}{}", self.addresses.join(","), self.volume, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(addresses: &[&str], volume: &str, path: &str) -> Location {
        Location::Remote(RemotePath {
            addresses: addresses.iter().map(|a| a.to_string()).collect(),
            volume: volume.into(),
            path: path.into(),
        })
    }

    #[test]
    fn both_forms_name_the_same_file() {
        for (text, expected) in [
            ("strake://a:7000/main/x/y", remote(&["a:7000"], "main", "/x/y")),
            ("a:7000:/main/x/y", remote(&["a:7000"], "main", "/x/y")),
            ("a:1,b:2:/main", remote(&["a:1", "b:2"], "main", "/")),
            ("strake://a:1,b:2/main/", remote(&["a:1", "b:2"], "main", "/")),
            ("[::1]:7:/v/p", remote(&["[::1]:7"], "v", "/p")),
            ("unix:/run/s.sock:/main/p", remote(&["unix:/run/s.sock"], "main", "/p")),
        ] {
            assert_eq!(Location::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_displayed_is_understood_again() {
        let location = remote(&["a:1", "b:2"], "main", "/x y/z");
        assert_eq!(Location::parse(&location.to_string()).unwrap(), location);
    }

    #[test]
    fn everything_else_is_local() {
        for text in ["file", "/abs/file", "./odd:/name", "dir/odd:/name", "a:b", "unix"] {
            assert_eq!(Location::parse(text).unwrap(), Location::Local(text.into()), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, word) in [
            ("strake://a:1", "volume"),
            ("strake:///main", "address"),
            ("a:1:/", "volume"),
            ("", "empty"),
        ] {
            let error = Location::parse(text).unwrap_err();
            assert!(error.detail.contains(word), "{text}: {error}");
        }
    }
}
