//! Another number of copies for the files below a directory, one after the other, by the servers.
//!
//! Nothing has to be remembered between two runs: a file that has as many copies as wanted is passed
//! over, so who gives the command again goes on where it was.

use crate::failure::{Failure, Outcome};
use crate::{output, size};
use futures::stream::{self, StreamExt};
use indicatif::ProgressBar;
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use strake_client::{Entry, Volume};
use strake_types::layout::LayoutTemplate;
use strake_types::{Attr, Credentials, ErrorKind, FileKind, Ino, Result};
use strake_wire::message::meta::{Recopied, Recopy, RecopyState};

/// Files under way at once.
const FILES_MAX: usize = 8;
/// Entries of a directory read at once.
const PAGE: u32 = 1024;
/// How often files that wait are tried again.
const ROUNDS: u32 = 5;
/// The pause before that, and before a file is asked for again.
const ROUND_PAUSE: Duration = Duration::from_secs(2);
const ASK_PAUSE: Duration = Duration::from_millis(200);
/// How long a metadata server may not know of groups that were made a moment ago.
const NEWS_ASKS: u32 = 15;

/// What is to be done.
pub struct Order {
    /// Copies of every chunk.
    pub copies: u32,
    /// Only count.
    pub dry_run: bool,
    /// Most bytes copied in a second, over all files.
    pub rate: Option<u64>,
}

/// What was done, as `--json` prints it.
#[derive(Default, Serialize)]
pub struct Report {
    /// Files that had another number of copies.
    files: u64,
    /// Their lengths added up.
    bytes: u64,
    /// Files that have as many as wanted now.
    done: u64,
    /// Files that are as they were, because they are in use.
    waiting: Vec<Item>,
    /// Files that could not be copied.
    failed: Vec<Item>,
}

#[derive(Serialize)]
struct Item {
    path: String,
    reason: String,
}

/// A file that is to be copied.
#[derive(Clone)]
struct File {
    ino: Ino,
    path: String,
}

struct Run<'a> {
    volume: &'a Arc<Volume>,
    order: &'a Order,
    bar: ProgressBar,
    report: Report,
    waiting: Vec<(File, String)>,
    /// Files of several names that were met already.
    seen: HashSet<Ino>,
}

/// Does it for a file, or everything below a directory.
pub async fn run(volume: &Arc<Volume>, path: &str, attr: &Attr, order: &Order) -> Outcome<Report> {
    let mut run = Run {
        volume,
        order,
        bar: ProgressBar::new_spinner(),
        report: Report::default(),
        waiting: Vec::new(),
        seen: HashSet::new(),
    };
    if attr.kind == FileKind::Directory {
        run.tree(path.trim_end_matches('/').to_owned(), attr.ino).await?;
    } else {
        let found = run.wanted(path.to_owned(), attr);
        run.copy(found.into_iter().collect()).await;
    }
    for _ in 0..ROUNDS {
        if run.waiting.is_empty() {
            break;
        }
        run.bar.set_message(format!("{} files are in use; waiting", run.waiting.len()));
        tokio::time::sleep(ROUND_PAUSE).await;
        let again = std::mem::take(&mut run.waiting);
        run.copy(again.into_iter().map(|(file, _)| file).collect()).await;
    }
    run.bar.finish_and_clear();
    let item = |(file, reason): (File, String)| Item { path: file.path, reason };
    run.report.waiting = run.waiting.into_iter().map(item).collect();
    Ok(run.report)
}

impl Run<'_> {
    /// Everything below a directory: what is made in it later, and what is there.
    async fn tree(&mut self, path: String, dir: Ino) -> Outcome {
        let root = Credentials::root();
        let mut directories = vec![(path, dir)];
        while let Some((path, dir)) = directories.pop() {
            self.hand_down(dir).await?;
            let (mut after, mut end) = (0, false);
            while !end {
                let page = match self.volume.readdir(&root, dir, after, PAGE, true).await {
                    Ok(page) => page,
                    Err(error) if is_gone(error.kind) => break,
                    Err(error) => return Err(error.into()),
                };
                end = page.end;
                let mut files = Vec::new();
                for entry in page.entries {
                    after = entry.cookie;
                    let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                    match entry.kind {
                        FileKind::Directory => directories.push((path, entry.ino)),
                        FileKind::File => files.extend(self.entry(path, entry).await?),
                        _ => {}
                    }
                }
                self.copy(files).await;
            }
        }
        Ok(())
    }

    /// The file of an entry, if there is something to do for it.
    async fn entry(&mut self, path: String, entry: Entry) -> Result<Option<File>> {
        let attr = match entry.attr {
            Some(attr) => Ok(attr),
            None => self.volume.getattr(entry.ino).await,
        };
        match attr {
            Ok(attr) => Ok(self.wanted(path, &attr)),
            Err(error) if is_gone(error.kind) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// New files in a directory get as many copies.
    async fn hand_down(&self, dir: Ino) -> Result<()> {
        if self.order.dry_run {
            return Ok(());
        }
        let volume = self.volume;
        let set = async |template| volume.set_template(&Credentials::root(), dir, &template).await;
        match hand_down(volume, dir, self.order.copies, set).await {
            Err(error) if is_gone(error.kind) => Ok(()),
            other => other,
        }
    }

    /// The file, if there is something to do for it.
    fn wanted(&mut self, path: String, attr: &Attr) -> Option<File> {
        let copies = attr.layout.as_ref()?.copies();
        if copies == self.order.copies || attr.nlink > 1 && !self.seen.insert(attr.ino) {
            return None;
        }
        self.report.files += 1;
        self.report.bytes += attr.length;
        Some(File { ino: attr.ino, path })
    }

    async fn copy(&mut self, files: Vec<File>) {
        if self.order.dry_run {
            return;
        }
        let (volume, bar) = (self.volume, &self.bar.clone());
        let rate = self.order.rate.map_or(0, |rate| (rate / FILES_MAX as u64).max(1));
        let copies = self.order.copies;
        let jobs = files.into_iter().map(|file| async move {
            let order = Recopy { ino: file.ino.0, copies, rate };
            let tell = |copied: u64, bytes: u64| {
                let (copied, bytes) = (size::show(copied), size::show(bytes));
                bar.set_message(format!("{}: {copied} of {bytes}", file.path));
            };
            let answer = one(volume, order, tell).await;
            (answer, file)
        });
        let mut ended = stream::iter(jobs).buffer_unordered(FILES_MAX);
        while let Some((answer, file)) = ended.next().await {
            match answer {
                Ok(answer) if RecopyState::of(answer.state) == Some(RecopyState::Waits) => {
                    self.waiting.push((file, answer.detail));
                }
                Ok(_) => {
                    self.report.done += 1;
                    self.bar.inc(1);
                    self.bar.set_message(file.path);
                }
                Err(error) if is_gone(error.kind) => {}
                Err(error) => {
                    let reason = error.to_string();
                    self.report.failed.push(Item { path: file.path, reason });
                }
            }
        }
    }
}

/// Lets new files in a directory get so many copies; what else is set there stays. `set` sets a template
/// that is another than the present one.
pub async fn hand_down(
    volume: &Volume,
    dir: Ino,
    copies: u32,
    set: impl AsyncFnOnce(LayoutTemplate) -> Result<()>,
) -> Result<()> {
    let present = volume.template(&Credentials::root(), dir).await?;
    let copies = Some(copies);
    if present.copies == copies {
        return Ok(());
    }
    set(LayoutTemplate { copies, ..LayoutTemplate::default() }.or(&present)).await
}

/// Asks until the file is ready.
async fn one(volume: &Arc<Volume>, order: Recopy, tell: impl Fn(u64, u64)) -> Result<Recopied> {
    let mut refused = 0;
    loop {
        match volume.recopy(&Credentials::root(), order).await {
            Ok(answer) if RecopyState::of(answer.state) == Some(RecopyState::UnderWay) => {
                tell(answer.copied, answer.bytes);
            }
            Err(error) if error.kind == ErrorKind::Invalid && refused < NEWS_ASKS => refused += 1,
            other => return other,
        }
        tokio::time::sleep(ASK_PAUSE).await;
    }
}

/// True if a file or directory has been deleted meanwhile.
fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Stale)
}

impl Report {
    /// Prints it for people.
    pub fn show(&self, order: &Order) {
        let (files, bytes) = (self.files, size::show(self.bytes));
        if order.dry_run {
            let copies = order.copies;
            return output::line(&format!("{files} files ({bytes}) would get {copies} copies"));
        }
        for item in &self.waiting {
            output::line(&format!("waiting: {}: {}", item.path, item.reason));
        }
        for item in &self.failed {
            output::line(&format!("failed: {}: {}", item.path, item.reason));
        }
        let copies = order.copies;
        output::line(&format!("{} of {files} files ({bytes}) have {copies} copies now", self.done));
    }

    /// Fails if something is left to do.
    pub fn verdict(&self) -> Outcome {
        let (waiting, failed) = (self.waiting.len(), self.failed.len());
        match waiting + failed {
            0 => Ok(()),
            _ => Err(Failure::new(format!("{waiting} files are in use, {failed} have failed"))
                .next("give the same command again later: it goes on where it was")),
        }
    }
}
