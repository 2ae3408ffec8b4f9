//! A whole store in one file: to move it to another engine.
//!
//! Nobody else may use the store meanwhile. [`export`] leaves a mark in it, which a server takes away when it
//! starts ([`forget`]): so it is known whether a file is still what the store holds ([`is_what_was_exported`]),
//! and an export that was interrupted goes on only with what it has begun. Until then no metadata server of a database
//! serves ([`check_led`]), also one that was not stopped. [`import`] marks how far it is in the
//! same transaction as what it writes, so it goes on wherever it was interrupted, and reads everything back in the
//! end. Its mark stays until a server starts, too: what comes after an import may be interrupted as well.
//! Before a server is told of the new store, the old one is closed ([`close`]): nobody is to lead by both. What was only
//! exported is not: that may have been a copy to keep.
//! The file is in docs/FORMATS.md, "A metadata store in a file".

use super::{Kv, Outcome, Pair, Transaction};
use bytes::Bytes;
pub use closing::{MOVED, check_led, check_mark, check_open, close, moved, reopen};
pub use error::{DumpError, Result};
use file::{BLOCK_BYTES, Blocks, Draft};
pub use forms::FORMS;
use std::ops::Bound;
use std::path::Path;
use strake_base::random::SystemRandom;

mod closing;
mod error;
mod file;
mod forms;

/// What keys of this module begin with; no other key does.
const OURS: &[u8] = b"!";
/// What the store holds since it was exported last: the id of that.
const EXPORTED: &[u8] = b"!exported";
/// The file that is being imported: its id, and the last key that is here.
const IMPORTING: &[u8] = b"!importing";
/// The file that was imported to its end, and compared: its id. What has the mark above and not this one is a part of
/// a store, which nobody may use.
const IMPORTED: &[u8] = b"!imported";
/// Pairs read at once.
const PAGE: usize = 2_048;
/// Pairs written at once.
const COMMIT_PAIRS: usize = 1_000;
/// How often a transaction is tried that a lost connection ends. Only an engine that never lets it through reaches it.
const TRIES_MAX: u32 = 100;

/// Number of what a store holds at one time: files with the same number hold the same.
pub type DumpId = [u8; 16];

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The number of what it holds.
    pub id: DumpId,
    /// Whose store it is, in the words of who made it.
    pub about: String,
    /// Pairs of keys and values.
    pub pairs: u64,
    /// Bytes in keys and values.
    pub bytes: u64,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is counted how much of the store is to be written.
    Count,
    /// The store is written to the file.
    Export,
    /// The file is read, to see whether it is whole.
    Verify,
    /// The file is written to the store.
    Import,
    /// What is in the store now is compared with the file.
    Compare,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// With what.
    pub step: Step,
    /// Pairs done in this step.
    pub pairs: u64,
    /// Bytes of the file done in this step.
    pub bytes: u64,
    /// Bytes of the file; `None` while they are being counted. Of one that is yet to be written, about so many.
    pub bytes_total: Option<u64>,
}

/// Writes all that a store holds to a new file, and reads it back. What an interrupted export of the same store
/// has left next to it is gone on with, if no server has started since. Fails if the store was moved elsewhere.
/// Where somebody looks at the progress it is counted first how much there is: that reads the store once more.
pub async fn export(
    kv: &dyn Kv,
    about: &str,
    path: &Path,
    progress: Option<&(dyn Fn(Progress) + Sync)>,
) -> Result<Dump> {
    check_open(kv).await?;
    file::check_absent(path)?;
    let id = exported_as(kv).await?;
    let mut draft = match Draft::go_on(path, &id, about)? {
        Some(draft) => draft,
        None => Draft::begin(path, id, about)?,
    };
    let mut block = Vec::new();
    let mut block_bytes = 0;
    let mut after = draft.last_key().map(Bytes::copy_from_slice);
    let bytes_total = match progress {
        Some(tell) => Some(draft.bytes() + counted(kv, after.clone(), tell).await?),
        None => None,
    };
    let tell = |now: Progress| {
        if let Some(tell) = progress {
            tell(now);
        }
    };
    loop {
        let page = page(kv, after.as_deref()).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for (key, value) in page.into_iter().filter(|(key, _)| !key.starts_with(OURS)) {
            block_bytes += key.len() + value.len();
            block.push((key, value));
            if block_bytes >= BLOCK_BYTES {
                draft.put(&std::mem::take(&mut block))?;
                block_bytes = 0;
            }
        }
        let (pairs, bytes) = (draft.pairs() + block.len() as u64, draft.bytes());
        tell(Progress { step: Step::Export, pairs, bytes, bytes_total });
    }
    if !block.is_empty() {
        draft.put(&block)?;
    }
    let written = draft.end()?;
    verify(written.draft(), tell)?;
    written.publish()
}

/// Bytes that the pairs behind a key take in a file, but for the heads of blocks: so it is known how long an export takes.
async fn counted(
    kv: &dyn Kv,
    mut after: Option<Bytes>,
    tell: &(dyn Fn(Progress) + Sync),
) -> Result<u64> {
    let (mut pairs, mut bytes) = (0, 0);
    loop {
        let page = page(kv, after.as_deref()).await?;
        let Some((last, _)) = page.last() else { return Ok(bytes) };
        after = Some(last.clone());
        pairs += page.len() as u64;
        bytes += page.iter().map(file::stored_bytes).sum::<u64>();
        tell(Progress { step: Step::Count, pairs, bytes, bytes_total: None });
    }
}

/// Reads a whole file, and fails unless it is as it was written.
pub fn verify(path: &Path, progress: impl Fn(Progress)) -> Result<Dump> {
    let mut blocks = Blocks::open(path)?;
    while blocks.next_block()?.is_some() {
        progress(blocks.progress(Step::Verify));
    }
    blocks.end()
}

/// What a file says of itself in its head: its number, and whose store it is. The rest is not looked at.
pub fn head(path: &Path) -> Result<(DumpId, String)> {
    Ok(Blocks::open(path)?.head())
}

/// Fills an empty store with what a file holds that was verified, or goes on with that, and compares in the end.
pub async fn import(
    kv: &dyn Kv,
    path: &Path,
    dump: &Dump,
    progress: impl Fn(Progress),
) -> Result<()> {
    let mut mark = begun(kv, &dump.id).await?;
    let mut blocks = open_verified(path, dump)?;
    while let Some(block) = blocks.next_block()? {
        for some in block.chunks(COMMIT_PAIRS) {
            let last = some.last().map_or(&[][..], |(key, _)| key);
            if mark[dump.id.len()..] < *last {
                let next = Bytes::from([&dump.id[..], last].concat());
                step(kv, IMPORTING, Some(&mark), Some(&next), some).await?;
                mark = next;
            }
        }
        progress(blocks.progress(Step::Import));
    }
    kv.sync().await?;
    compare(kv, path, dump, progress).await?;
    step(kv, IMPORTED, None, Some(&Bytes::copy_from_slice(&dump.id)), &[]).await?;
    Ok(kv.sync().await?)
}

/// Opens a file that was verified, unless another one has taken its place.
fn open_verified(path: &Path, dump: &Dump) -> Result<Blocks> {
    let blocks = Blocks::open(path)?;
    match blocks.head() == (dump.id, dump.about.clone()) {
        true => Ok(blocks),
        false => Err(DumpError::Exchanged { path: path.to_owned() }),
    }
}

/// True if a store holds what it did when a file with this number was made of it.
pub async fn is_what_was_exported(kv: &dyn Kv, id: &DumpId) -> Result<bool> {
    Ok(mark(kv, EXPORTED).await?.as_deref() == Some(&id[..]))
}

/// True if all of this file was imported into a store, and nobody has used it since.
pub async fn is_import_of(kv: &dyn Kv, id: &DumpId) -> Result<bool> {
    Ok(mark(kv, IMPORTED).await?.as_deref() == Some(&id[..]))
}

/// From now on the store may change: no file is what it holds, and none goes on being imported. Fails if an import
/// did not come to its end, or if the store was moved elsewhere.
pub async fn forget(kv: &dyn Kv) -> Result<()> {
    check_open(kv).await?;
    if mark(kv, IMPORTING).await?.is_some() && mark(kv, IMPORTED).await?.is_none() {
        return Err(DumpError::Unfinished { store: kv.name() });
    }
    // In this order: what ends in between is no part of a store.
    for key in [EXPORTED, IMPORTING, IMPORTED] {
        if let Some(value) = mark(kv, key).await? {
            step(kv, key, Some(&value), None, &[]).await?;
        }
    }
    Ok(())
}

/// The pairs behind a key.
async fn page(kv: &dyn Kv, after: Option<&[u8]>) -> Result<Vec<Pair>> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    Ok(kv.snapshot().await?.scan(from, Bound::Unbounded, PAGE).await?)
}

async fn mark(kv: &dyn Kv, key: &[u8]) -> Result<Option<Bytes>> {
    Ok(kv.snapshot().await?.get(key).await?)
}

/// The number of what the store holds. If nobody has used it since it was exported last, it is the same as then.
async fn exported_as(kv: &dyn Kv) -> Result<DumpId> {
    let known = mark(kv, EXPORTED).await?;
    if let Some(id) = known.as_deref().and_then(|id| DumpId::try_from(id).ok()) {
        return Ok(id);
    }
    let mut id = DumpId::default();
    SystemRandom.fill(&mut id).map_err(|e| DumpError::Random { cause: e.to_string() })?;
    step(kv, EXPORTED, known.as_ref(), Some(&Bytes::copy_from_slice(&id)), &[]).await?;
    kv.sync().await?;
    Ok(id)
}

/// How far an interrupted import of this file has come: its mark. Begins one in an empty store.
async fn begun(kv: &dyn Kv, id: &DumpId) -> Result<Bytes> {
    if mark(kv, MOVED).await?.is_some() {
        return Err(DumpError::NotEmpty { store: kv.name() });
    }
    if let Some(mark) = mark(kv, IMPORTING).await? {
        return match mark.starts_with(id) {
            true => Ok(mark),
            false => Err(DumpError::OtherImport { store: kv.name() }),
        };
    }
    if !page(kv, None).await?.is_empty() {
        return Err(DumpError::NotEmpty { store: kv.name() });
    }
    let mark = Bytes::copy_from_slice(id);
    step(kv, IMPORTING, None, Some(&mark), &[]).await?;
    Ok(mark)
}

/// Writes pairs, and a mark that tells whether they are there: it was `from` before, and is `to` afterwards.
async fn step(
    kv: &dyn Kv,
    key: &[u8],
    from: Option<&Bytes>,
    to: Option<&Bytes>,
    pairs: &[Pair],
) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let mut tx = Transaction::begin(kv).await?;
        let here = tx.get(key).await?;
        if here.as_ref() == to {
            return Ok(());
        }
        if here.as_ref() != from {
            return Err(DumpError::InUse { store: kv.name() });
        }
        for (key, value) in pairs {
            tx.put(key.to_vec(), value.clone());
        }
        tx.set(key.to_vec(), to.cloned());
        match tx.commit(kv).await? {
            Outcome::Committed => return Ok(()),
            // The mark tells what became of it.
            Outcome::Conflict | Outcome::Unknown => {}
        }
    }
    Err(DumpError::InUse { store: kv.name() })
}

/// Fails unless a store holds what a file does, and nothing else.
async fn compare(kv: &dyn Kv, path: &Path, dump: &Dump, progress: impl Fn(Progress)) -> Result<()> {
    let differs = |key: &[u8]| {
        let key = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Err(DumpError::Differs { store: kv.name(), key })
    };
    let mut blocks = open_verified(path, dump)?;
    let mut wanted = Vec::new().into_iter();
    let mut after: Option<Bytes> = None;
    loop {
        let page = page(kv, after.as_deref()).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for found in page.into_iter().filter(|(key, _)| !key.starts_with(OURS)) {
            if wanted.as_slice().is_empty() {
                wanted = blocks.next_block()?.unwrap_or_default().into_iter();
            }
            if wanted.next().as_ref() != Some(&found) {
                return differs(&found.0);
            }
        }
        progress(blocks.progress(Step::Compare));
    }
    match wanted.next().or(blocks.next_block()?.and_then(|block| block.into_iter().next())) {
        Some((missing, _)) => differs(&missing),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
