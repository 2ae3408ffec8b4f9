//! Parts of files that are read here and there, and are worth to have as a whole: the kernel is to have them.
//!
//! It asks for them itself, because a process of its own ([`crate::prefetch`]) wants it to. What that process opens is
//! known by its number, and stands for the handle through which a program reads: so nothing becomes open that is not.

use super::{FuseDoor, OpenHandle};
use crate::prefetch::NAME;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use strake_client::Volume;
use strake_types::Ino;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Parts that may wait for their turn; others pay anew.
const WAITING_MAX: usize = 64;
/// A part that takes longer has been waited for long enough.
const PART_WAIT: Duration = Duration::from_secs(60);
/// How soon the process is started anew once it was lost.
const PAUSE: Duration = Duration::from_secs(10);

/// Parts on their way to the kernel.
#[derive(Default)]
pub(super) struct Prefetch {
    /// None: nothing is fetched on this mount.
    queue: OnceLock<mpsc::Sender<Wanted>>,
    current: Arc<Mutex<Current>>,
}

/// A part of an open file.
struct Wanted {
    handle: OpenHandle,
    node: u64,
    range: Range<u64>,
}

/// What the process may open now, and by which number it is known.
#[derive(Default)]
struct Current {
    process: Option<u32>,
    handle: Option<OpenHandle>,
}

impl Prefetch {
    /// The handle for which this is opened, if it is for fetching a part.
    pub fn opened_by(&self, process: u32, ino: Ino) -> Option<OpenHandle> {
        let current = self.current.lock();
        let handle = current.handle.as_ref().filter(|handle| handle.file.ino() == ino)?;
        (current.process == Some(process)).then(|| OpenHandle { part: true, ..handle.clone() })
    }
}

impl FuseDoor {
    /// From now on the kernel is given parts of files that are worth to have as a whole. This program is one that serves
    /// when it is called [`NAME`].
    pub(crate) fn prefetch(&self, mountpoint: PathBuf) {
        let (queue, wanted) = mpsc::channel(WAITING_MAX);
        if self.prefetch.queue.set(queue).is_ok() {
            let (volume, current) = (Arc::downgrade(&self.volume), self.prefetch.current.clone());
            self.runtime.spawn(fetch_all(volume, current, mountpoint, wanted));
        }
    }

    /// After a read: has the kernel fetch what it is worth to have by now.
    pub(super) fn fetch_worth_having(&self, handle: OpenHandle) {
        let Some(range) = self.volume.take_worth_having(&handle.file) else { return };
        if let Some(queue) = self.prefetch.queue.get().filter(|_| !handle.direct) {
            let node = self.node(handle.file.ino());
            // Full: who goes on reading there pays once more.
            let _full = queue.try_send(Wanted { handle, node, range });
        }
    }
}

/// Fetches one part after the other, until the mount has ended.
async fn fetch_all(
    volume: Weak<Volume>,
    current: Arc<Mutex<Current>>,
    mountpoint: PathBuf,
    mut wanted: mpsc::Receiver<Wanted>,
) {
    let mut process = None;
    while let Some(part) = wanted.recv().await {
        if part.handle.file.is_released() {
            continue;
        }
        if process.is_none() {
            match Process::start(&mountpoint).await {
                Ok(started) => process = Some(started),
                Err(error) => {
                    tracing::info!(%error, "what is read here and there is not fetched in large parts");
                    return;
                }
            }
        }
        let Some(asked) = &mut process else { return };
        *current.lock() = Current { process: asked.child.id(), handle: Some(part.handle.clone()) };
        let (began, fetched) = (Instant::now(), timeout(PART_WAIT, asked.fetch(&part)).await);
        *current.lock() = Current::default();
        match fetched.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(0) => {
                let Some(volume) = volume.upgrade() else { return };
                volume.note_part(&part.range, began.elapsed());
                let len = part.range.end - part.range.start;
                metrics::counter!("strake_fuse_prefetched_bytes_total").increment(len);
            }
            Ok(libc::EPERM) => {
                tracing::info!(
                    "without CAP_DAC_READ_SEARCH what is read here and there is not fetched in large parts"
                );
                return;
            }
            // Whoever reads it is told himself.
            Ok(number) => {
                tracing::debug!(error = %io::Error::from_raw_os_error(number), "a part was not fetched")
            }
            Err(error) => {
                tracing::warn!(%error, "the process that fetches parts of files was lost");
                process = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The process that makes the kernel ask.
struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(mountpoint: &Path) -> io::Result<Self> {
        // This very program, also after another one was put in its place.
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).arg(mountpoint).current_dir("/");
        // Signals for us are not for it: it ends with us.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let input = child.stdin.take().ok_or_else(gone)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        let mut process = Self { child, input, output };
        match timeout(PART_WAIT, process.answer())
            .await
            .unwrap_or(Err(io::ErrorKind::TimedOut.into()))?
        {
            0 => Ok(process),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// The number of the error; 0: the kernel has it.
    async fn fetch(&mut self, part: &Wanted) -> io::Result<i32> {
        let Wanted { node, range, .. } = part;
        let line = format!("{node} {} {}\n", range.start, range.end);
        self.input.write_all(line.as_bytes()).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> io::Result<i32> {
        let line = self.output.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        line.parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
