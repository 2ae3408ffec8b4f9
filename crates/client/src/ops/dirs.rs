//! Directories.

use super::unexpected;
use crate::api::{Entry, Page};
use crate::metrics::Op;
use crate::volume::Volume;
use std::time::Duration;
use strake_types::{Credentials, Error, ErrorKind, FileKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

impl Volume {
    /// A part of a directory after a cookie (0: from the start), at most `limit` entries, with
    /// attributes if `plus`.
    pub async fn readdir(
        &self,
        cred: &Credentials,
        ino: Ino,
        after: u64,
        limit: u32,
        plus: bool,
    ) -> Result<Page> {
        let _timer = self.count(Op::ReadDir);
        let op = MetaOp::ReadDir(meta::ReadDir { ino: ino.0, after, limit, plus });
        let asked = self.now();
        let MetaAnswer::Page(page) = self.ask(cred, op).await? else {
            return Err(unexpected("readdir"));
        };
        let entries = page.entries.into_iter().map(|entry| self.dir_entry(entry, asked));
        Ok(Page {
            entries: entries.collect::<Result<_>>()?,
            end: page.end,
            parent: Ino(page.parent),
        })
    }

    fn dir_entry(&self, entry: meta::DirEntry, asked: Duration) -> Result<Entry> {
        let kind = u8::try_from(entry.kind).ok().and_then(FileKind::from_code);
        let unknown = || Error::with(ErrorKind::Malformed, format!("file kind {}", entry.kind));
        Ok(Entry {
            name: entry.name,
            ino: Ino(entry.ino),
            kind: kind.ok_or_else(unknown)?,
            cookie: entry.cookie,
            attr: entry.attr.map(|attr| self.learn(attr, asked)).transpose()?,
        })
    }
}
