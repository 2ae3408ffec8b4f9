//! From a path to its inode.

use crate::volume::Volume;
use bytes::Bytes;
use std::collections::VecDeque;
use strake_types::limits::PATH_BYTES_MAX;
use strake_types::{Attr, Credentials, Error, ErrorKind, FileKind, Ino, Result};

/// Most symbolic links followed on one path, as Linux has it.
const LINKS_FOLLOWED_MAX: u32 = 40;

impl Volume {
    /// The inode at a path from the volume's root, following symbolic links (absolute ones start at
    /// the volume's root).
    pub async fn resolve(&self, cred: &Credentials, path: &[u8]) -> Result<Attr> {
        self.resolve_at(cred, Ino::ROOT, path).await
    }

    /// As [`Volume::resolve`], from a directory.
    pub async fn resolve_at(
        &self,
        cred: &Credentials,
        directory: Ino,
        path: &[u8],
    ) -> Result<Attr> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Error::new(ErrorKind::NameTooLong));
        }
        let start = if path.starts_with(b"/") { Ino::ROOT } else { directory };
        let mut at = self.getattr(start).await?;
        let mut left: VecDeque<Bytes> = parts(path).collect();
        let mut followed = 0;
        let trailing_slash = path.ends_with(b"/");
        while let Some(name) = left.pop_front() {
            if at.kind != FileKind::Directory {
                return Err(Error::new(ErrorKind::NotDirectory));
            }
            let next = self.lookup(cred, at.ino, name).await?;
            if next.kind != FileKind::Symlink {
                at = next;
                continue;
            }
            followed += 1;
            if followed > LINKS_FOLLOWED_MAX {
                return Err(Error::new(ErrorKind::SymlinkLoop));
            }
            let target = self.readlink(cred, next.ino).await?;
            if target.starts_with(b"/") {
                at = self.getattr(Ino::ROOT).await?;
            }
            parts(&target).rev().for_each(|part| left.push_front(part));
        }
        if trailing_slash && at.kind != FileKind::Directory {
            return Err(Error::new(ErrorKind::NotDirectory));
        }
        Ok(at)
    }
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Bytes> + '_ {
    path.split(|&b| b == b'/').filter(|p| !p.is_empty()).map(Bytes::copy_from_slice)
}
