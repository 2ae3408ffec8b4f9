//! What the fake metadata server says of many inodes.

use super::FakeFile;
use std::collections::BTreeMap;
use strake_wire::message::meta::{Around, DirEntry, MetaAnswer, Page};

pub(super) fn answer(files: &BTreeMap<u64, FakeFile>, around: &Around) -> MetaAnswer {
    let from = around.ino.saturating_sub(u64::from(around.before));
    let found = files.range(from..).take(around.limit as usize);
    let entries = found.map(|(&ino, file)| {
        let attr = Some(file.attr.clone());
        DirEntry { ino, kind: file.attr.kind, attr, ..DirEntry::default() }
    });
    MetaAnswer::Page(Page { entries: entries.collect(), end: true, ..Page::default() })
}
