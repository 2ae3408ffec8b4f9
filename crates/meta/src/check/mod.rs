//! Checks a volume that is in use: the namespace against itself, and against the chunks of the targets.
//!
//! A page of one part is looked through without locks. What seems broken there may only be under way:
//! it is judged again under the locks of the inodes concerned, and only then called broken, and mended
//! if that was asked for. So nothing that is made, moved or deleted meanwhile is an error.
//!
//! * `entries`, `inodes`, `leftovers` — judge one thing of each part, and mend it.
//! * `chunks` — what targets hold, against inodes.
//! * `lost` — what a group had lost that files are older than.
//! * `occupied` — what files say that they occupy, against what targets hold.
//! * `totals` — what the volume says that it holds, against inodes.
//!
//! Parts come in the order of [`CheckPart`]: what an entry says is right before inodes without a name are
//! looked for.

mod chunks;
mod entries;
mod inodes;
mod leftovers;
mod lost;
mod occupied;
mod totals;

use crate::borrow::Elsewhere;
use crate::contents::layout_of;
use crate::ctx::Ctx;
use crate::keys::{self, Kind};
use crate::ops::describe;
use crate::ops::rename::TOPOLOGY;
use crate::patience::Patience;
use crate::stored::store_error;
use crate::txn::{Mutation, mutate};
use crate::view::Tx;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use prost::Message;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::OnceLock;
use std::time::Duration;
use strake_types::{Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{Check, CheckPart, Checked, MetaAnswer, Name, Problem};

/// Things looked at for one answer, unless fewer are asked for.
const PAGE_DEFAULT: usize = 1000;
/// And at most.
const PAGE_MAX: usize = 10_000;
/// Bytes of problems after which a page ends.
const PROBLEMS_BYTES_MAX: usize = 1 << 20;
/// How long a page begins with others: whoever has asked gives it up some time after that, and would come to the same again.
const PAGE_MS_MAX: u64 = 5_000;
/// Groups that are asked about chunks of files after which a page ends.
const ASKED_MAX: usize = 256;
/// Of how many files, or chunks, targets are asked at the same time.
const PARALLEL: usize = 4;
/// How long a target may take to say which chunks of a file it has; how long one that took longer is not asked.
const LOOK_MAX: Duration = Duration::from_secs(5);
const SILENT_MS: u64 = 60_000;
/// How long targets are asked for one page: whoever waits for it gives up after two minutes. Of the rest it is told that it
/// was not looked at.
const ASK_MS_MAX: u64 = 60_000;
/// Problems of one thing: far more than any can have.
const PROBLEMS_MAX: usize = 64;
/// Bytes of an answer beyond which things are told by their numbers only.
const PATHS_BYTES_MAX: usize = 2 << 20;

/// How something broken is mended.
#[derive(Clone, Copy)]
pub(crate) struct Mend {
    /// Where an inode without a name gets one.
    pub lost_found: Option<Ino>,
}

/// One thing that is judged.
enum Subject {
    /// A name in a directory.
    Entry {
        dir: Ino,
        name: Bytes,
    },
    Inode(Ino),
    /// A key that belongs to something else.
    Leftover(Bytes),
}

/// Files of a page about whose chunks targets are asked, with no snapshot kept, and no lock held but of a file that changes
/// again and again: they may take long.
#[derive(Default)]
struct Asked {
    /// They say that they occupy nothing.
    empty: Vec<Ino>,
    /// A group of theirs has lost something since they were made.
    lost: Vec<Ino>,
    /// The groups that they may have chunks in, with those that they share.
    groups: usize,
}

impl Asked {
    fn is_full(&self) -> bool {
        self.groups >= ASKED_MAX
    }
}

/// What was found about one thing.
#[derive(Default)]
pub(crate) struct Findings {
    problems: Vec<Problem>,
}

impl Findings {
    /// Something is broken; `mended`: no more.
    pub fn add(&mut self, what: &str, ino: u64, detail: String, mended: bool) {
        if self.problems.len() < PROBLEMS_MAX {
            let what = what.to_owned();
            self.problems.push(Problem { what, ino, path: Bytes::new(), detail, mended });
        }
    }
}

/// Looks through a page of a part.
pub(crate) async fn check(ctx: &Ctx, op: &Check) -> Result<MetaAnswer> {
    ctx.need_root()?;
    let newer = || Error::with(ErrorKind::NotSupported, "a part of a newer release");
    let limit = match op.limit as usize {
        0 => PAGE_DEFAULT,
        limit => limit.min(PAGE_MAX),
    };
    let lost_found = (op.lost_found != 0).then_some(Ino(op.lost_found));
    let mend = op.repair.then_some(Mend { lost_found });
    let mut checked = match CheckPart::of(op.part).ok_or_else(newer)? {
        CheckPart::Chunks => chunks::page(ctx, op, mend).await?,
        CheckPart::Totals => totals::page(ctx, op, mend).await?,
        CheckPart::Entries => page(ctx, &[Kind::Entry], &op.after, limit, mend).await?,
        CheckPart::Inodes => page(ctx, &[Kind::Inode], &op.after, limit, mend).await?,
        CheckPart::Leftovers => page(ctx, leftovers::KINDS, &op.after, limit, mend).await?,
    };
    let mut bytes = checked.encoded_len();
    for problem in &mut checked.problems {
        if bytes > PATHS_BYTES_MAX {
            break;
        }
        let about = describe::paths(ctx, Ino(problem.ino)).await;
        // What is broken may have no path, or one that cannot be followed.
        problem.path = about.ok().and_then(|paths| paths.into_iter().next()).unwrap_or_default();
        bytes += problem.path.len();
    }
    Ok(MetaAnswer::Checked(checked))
}

/// Looks through the keys of some kinds after a cursor.
async fn page(
    ctx: &Ctx,
    kinds: &[Kind],
    after: &Bytes,
    limit: usize,
    mend: Option<Mend>,
) -> Result<Checked> {
    let mut checked = Checked::default();
    let found = scan(ctx, kinds, after, limit).await?;
    checked.looked_at = found.len() as u64;
    if found.len() == limit
        && let Some(last) = found.last()
    {
        checked.next = last.clone();
    }
    let until_ms = ctx.core.monotonic_ms() + PAGE_MS_MAX;
    let (mut reader, mut asked, mut bytes) = (Tx::reader(ctx), Asked::default(), 0);
    let mut before = Bytes::new();
    for (nth, key) in found.into_iter().enumerate() {
        let problems = match look_at(ctx, &mut reader, &key, mend, &mut asked).await {
            Ok(problems) => problems,
            Err(error) if checked.problems.is_empty() => return Err(error),
            // What is mended is told: the next page begins with this one.
            Err(_) => {
                (checked.next, checked.looked_at) = (before, nth as u64);
                break;
            }
        };
        bytes += problems.iter().map(Problem::encoded_len).sum::<usize>();
        checked.problems.extend(problems);
        let is_late = ctx.core.monotonic_ms() >= until_ms;
        if bytes > PROBLEMS_BYTES_MAX || asked.is_full() || is_late {
            (checked.next, checked.looked_at) = (key, nth as u64 + 1);
            break;
        }
        before = key;
    }
    drop(reader);
    ask_targets(ctx, asked, mend, &mut checked.problems).await?;
    Ok(checked)
}

/// Looks at what a key says, and notes a file about whose chunks targets are to be asked.
async fn look_at(
    ctx: &Ctx,
    reader: &mut Tx<'_>,
    key: &Bytes,
    mend: Option<Mend>,
    asked: &mut Asked,
) -> Result<Vec<Problem>> {
    let Some(subject) = Subject::of(key) else {
        let detail = format!("a key that no release writes: {key:?}");
        let mut findings = Findings::default();
        findings.add("unknown-record", 0, detail, false);
        return Ok(findings.problems);
    };
    let problems = look(ctx, reader, &subject, mend).await?;
    subject.note(reader, &problems, asked).await;
    Ok(problems)
}

/// Asks targets about files of a page. Where that fails it is told which were not looked at, if there is anything to tell.
async fn ask_targets(
    ctx: &Ctx,
    asked: Asked,
    mend: Option<Mend>,
    problems: &mut Vec<Problem>,
) -> Result<()> {
    let end_ms = ctx.core.monotonic_ms() + ASK_MS_MAX;
    let patience = Patience::new(LOOK_MAX, SILENT_MS).until_ms(end_ms);
    let (lacking, failed) = judge_all(asked.lost, |ino| lost::judge(ctx, ino, &patience)).await;
    let judge = |ino| occupied::judge(ctx, ino, mend, &patience);
    let (occupying, failed_then) = judge_all(asked.empty, judge).await;
    problems.extend(lacking);
    problems.extend(occupying);
    let failures: Vec<Unjudged> = [failed, failed_then].into_iter().flatten().collect();
    if problems.is_empty()
        && let Some(first) = failures.first()
    {
        return Err(first.error.clone());
    }
    let mut told = BTreeSet::new();
    for Unjudged { files, error } in failures {
        for ino in files.into_iter().filter(|ino| told.insert(*ino)) {
            let mut found = Findings::default();
            let detail = format!("its chunks were not looked at: {error}");
            found.add(inodes::AWAY, ino.0, detail, false);
            problems.extend(found.problems);
        }
    }
    Ok(())
}

/// Files that were not judged, and why.
struct Unjudged {
    files: Vec<Ino>,
    error: Error,
}

/// Judges files, some at the same time. Where one fails, with that: what was begun is ended, and no other is begun.
async fn judge_all<F: Future<Output = Result<Findings>>>(
    files: Vec<Ino>,
    judge: impl Fn(Ino) -> F,
) -> (Vec<Problem>, Option<Unjudged>) {
    let failed = &OnceLock::new();
    let judging = |ino: Ino, judged: F| async move {
        // It has not begun before it is waited for.
        if failed.get().is_some() {
            return Err(ino);
        }
        judged.await.map_err(|error| {
            failed.get_or_init(|| error);
            ino
        })
    };
    let judged: Vec<_> = files.into_iter().map(|ino| judging(ino, judge(ino))).collect();
    let judged: Vec<_> = stream::iter(judged).buffered(PARALLEL).collect().await;
    let (mut problems, mut files) = (Vec::new(), Vec::new());
    for judged in judged {
        match judged {
            Ok(found) => problems.extend(found.problems),
            Err(ino) => files.push(ino),
        }
    }
    (problems, failed.get().cloned().map(|error| Unjudged { files, error }))
}

/// Judges a thing, and settles what is broken of it.
async fn look(
    ctx: &Ctx,
    reader: &mut Tx<'_>,
    subject: &Subject,
    mend: Option<Mend>,
) -> Result<Vec<Problem>> {
    let mut seen = Findings::default();
    let looked = subject.judge(reader, None, &mut seen).await;
    match looked.is_ok() && seen.problems.is_empty() {
        true => Ok(Vec::new()),
        false => settle(ctx, subject, mend).await,
    }
}

/// Keys of some kinds, in this order, after a cursor.
async fn scan(ctx: &Ctx, kinds: &[Kind], after: &Bytes, limit: usize) -> Result<Vec<Bytes>> {
    let snapshot = ctx.volume.kv.snapshot().await.map_err(store_error)?;
    let mut found: Vec<Bytes> = Vec::new();
    let first = kinds.iter().position(|kind| after.first() == Some(&(*kind as u8)));
    for kind in &kinds[first.unwrap_or(0)..] {
        let prefix = keys::prefix(*kind, ctx.volume.id);
        let end = keys::end_of(&prefix);
        let end = end.as_ref().map(Vec::as_slice);
        let from = match after.starts_with(&prefix) {
            true => Bound::Excluded(&after[..]),
            false => Bound::Included(&prefix[..]),
        };
        let left = limit - found.len();
        let page = snapshot.scan(from, end, left).await.map_err(store_error)?;
        found.extend(page.into_iter().map(|(key, _)| key));
        if found.len() == limit {
            break;
        }
    }
    Ok(found)
}

impl Subject {
    fn of(key: &Bytes) -> Option<Self> {
        let id = || Some(u64::from_be_bytes(*key.get(5..)?.first_chunk::<8>()?));
        Some(match *key.first()? {
            kind if kind == Kind::Entry as u8 => {
                Subject::Entry { dir: Ino(id()?), name: key.slice_ref(keys::name_after_id(key)) }
            }
            kind if kind == Kind::Inode as u8 => Subject::Inode(Ino(id()?)),
            _ => id().map(|_| Subject::Leftover(key.clone()))?,
        })
    }

    /// Adds what is broken to `found`; with `mend`, mends it in this transaction.
    async fn judge(&self, tx: &mut Tx<'_>, mend: Option<Mend>, found: &mut Findings) -> Result<()> {
        match self {
            Subject::Entry { dir, name } => entries::judge(tx, *dir, name, mend, found).await,
            Subject::Inode(ino) => inodes::judge(tx, *ino, mend, found).await,
            Subject::Leftover(key) => leftovers::judge(tx, key, mend, found).await,
        }
    }

    /// Notes a file about whose chunks targets are to be asked.
    async fn note(&self, reader: &mut Tx<'_>, problems: &[Problem], asked: &mut Asked) {
        let Subject::Inode(ino) = self else { return };
        // One that cannot be read is found by itself.
        let Ok(Some(inode)) = reader.find_inode(*ino).await else { return };
        let seems_empty = inode.seems_empty();
        let is_away = problems.iter().any(|problem| problem.what == inodes::AWAY);
        let may_lack = !is_away && lost::may_lack(reader.ctx, &inode);
        asked.empty.extend(seems_empty.then_some(*ino));
        asked.lost.extend(may_lack.then_some(*ino));
        if seems_empty || may_lack {
            let groups = layout_of(&inode).map_or(1, |layout| layout.slots().len());
            asked.groups += groups * (usize::from(seems_empty) + usize::from(may_lack));
        }
    }

    fn ino(&self) -> u64 {
        match self {
            Subject::Entry { dir, .. } => dir.0,
            Subject::Inode(ino) => ino.0,
            Subject::Leftover(key) => keys::first_id(key).unwrap_or_default(),
        }
    }
}

/// Something that seems broken, judged again while nobody changes it.
struct Settle<'a> {
    subject: &'a Subject,
    mend: Option<Mend>,
}

impl Mutation for Settle<'_> {
    async fn scope(&self, ctx: &Ctx) -> Result<Vec<Ino>> {
        let mut scope: Vec<Ino> = vec![Ino(self.subject.ino())];
        let mut reader = Tx::reader(ctx);
        match self.subject {
            Subject::Entry { dir, name } => {
                let entry = reader.entry(*dir, name).await?;
                scope.extend(entry.map(|entry| Ino(entry.ino)));
            }
            Subject::Inode(ino) => {
                let inode = reader.find_inode(*ino).await?;
                if let Some(dir) = inode.filter(|inode| inode.is_dir()) {
                    scope.push(Ino(dir.parent));
                    let rooted = inodes::leads_to_root(&mut reader, &dir).await?;
                    scope.extend((!rooted).then_some(TOPOLOGY));
                }
                scope.extend(self.mend.and_then(|mend| mend.lost_found));
            }
            Subject::Leftover(_) => {}
        }
        Ok(scope)
    }

    fn elsewhere(&self, _ctx: &Ctx) -> Elsewhere {
        let lost_found = self.mend.and_then(|mend| mend.lost_found);
        let name = |dir: Ino| Name { parent: dir.0, name: inodes::lost_name(self.subject.ino()) };
        Elsewhere { names: lost_found.map(name).into_iter().collect(), ..Elsewhere::default() }
    }

    async fn run(&self, tx: &mut Tx<'_>) -> Result<MetaAnswer> {
        let mut found = Findings::default();
        self.subject.judge(tx, self.mend, &mut found).await?;
        Ok(MetaAnswer::Checked(Checked { problems: found.problems, ..Checked::default() }))
    }
}

/// Judges again under locks, and mends.
async fn settle(ctx: &Ctx, subject: &Subject, mend: Option<Mend>) -> Result<Vec<Problem>> {
    let own = ctx.system();
    match mutate(&own, &Settle { subject, mend }).await {
        Ok(MetaAnswer::Checked(checked)) => Ok(checked.problems),
        Ok(_) => Ok(Vec::new()),
        // A record that does not match its checksum is a finding like others, and stays.
        Err(error) if error.kind == ErrorKind::Corrupt => {
            let mut found = Findings::default();
            found.add("unreadable-record", subject.ino(), error.to_string(), false);
            Ok(found.problems)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub(crate) mod tests;
