//! What there is at a place of a walk.

use crate::ctx::Ctx;
use crate::ops::{describe, readdir};
use crate::records::{Inode, Place};
use strake_types::{FileKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, ReadDir};

/// Entries of a directory gone through at once.
pub(super) const PAGE: u32 = 256;
/// Characters of a path that are told.
const PATH_MAX: usize = 1000;

/// What there is at a place of a walk.
#[derive(Default)]
pub(super) struct Found {
    /// Files of this share: those of others are the business of others.
    pub files: Vec<Ino>,
    /// Directories, of any share.
    pub directories: Vec<Place>,
    /// The same directory further on.
    pub rest: Option<Place>,
}

impl Found {
    /// What an inode is, or has from an entry on.
    pub async fn at(ctx: &Ctx, inode: Option<&Inode>, after: u64) -> Result<Self> {
        let mut found = Self::default();
        match inode {
            Some(inode) if inode.is_file() => found.note_file(ctx, inode.id()),
            Some(inode) if inode.is_dir() => found.read(ctx, inode.ino, after).await?,
            _ => {}
        }
        Ok(found)
    }

    /// A page of a directory.
    async fn read(&mut self, ctx: &Ctx, ino: u64, after: u64) -> Result<()> {
        let op = ReadDir { ino, after, limit: PAGE, plus: false };
        let MetaAnswer::Page(page) = readdir::readdir(ctx, &op).await? else { return Ok(()) };
        let last = page.entries.last().filter(|_| !page.end);
        self.rest = last.map(|entry| Place { dir: ino, after: entry.cookie });
        for entry in page.entries {
            match u8::try_from(entry.kind).ok().and_then(FileKind::from_code) {
                Some(FileKind::File) => self.note_file(ctx, Ino(entry.ino)),
                Some(FileKind::Directory) => {
                    self.directories.push(Place { dir: entry.ino, after: 0 });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn note_file(&mut self, ctx: &Ctx, ino: Ino) {
        if ctx.is_here(ino) {
            self.files.push(ino);
        }
    }

    /// The places that come next, on a stack.
    pub fn push_next(&mut self, stack: &mut Vec<Place>) {
        stack.extend(self.rest.take());
        stack.append(&mut self.directories);
    }
}

/// A file as people know it.
pub(super) async fn path_of(ctx: &Ctx, ino: Ino) -> String {
    let map = ctx.core.map.current();
    let whole = ctx.settings.shares.first;
    let volume = map.volume(whole);
    let name = volume.map_or("?", |volume| &volume.spec.name);
    let paths = describe::paths(ctx, ino).await.unwrap_or_default();
    match paths.first() {
        Some(path) => {
            let path = String::from_utf8_lossy(path);
            format!(":/{name}/{}", path.chars().take(PATH_MAX).collect::<String>())
        }
        None => format!("{name}: inode {ino}"),
    }
}
