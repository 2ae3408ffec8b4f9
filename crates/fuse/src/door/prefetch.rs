//! Parts of files that are read here and there, and are worth to have as a whole: the kernel is to have them.
//!
//! It asks for them itself, because a process of its own ([`crate::prefetch`]) wants it to. What that process opens is
//! known by its number, and stands for the handle through which a program reads: so nothing becomes open that is not.

use super::{FuseDoor, OpenHandle};
use crate::errno::Errno;
use crate::prefetch::NAME;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use strake_client::Volume;
use strake_client::api::ReadData;
use strake_client::file::OpenFile;
use strake_types::{ErrorKind, Ino};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Parts that may wait for their turn; others pay anew.
const WAITING_MAX: usize = 64;
/// A part that waits longer for its turn is not wanted any more: who read there may have gone on.
const WAITING_AGE_MAX: Duration = Duration::from_secs(1);
/// A part that takes longer has been waited for long enough.
const PART_WAIT: Duration = Duration::from_secs(60);
/// How soon the process is started anew once it was lost.
const PAUSE: Duration = Duration::from_secs(10);

/// Parts on their way to the kernel.
#[derive(Default)]
pub(super) struct Prefetch {
    /// None: nothing is fetched on this mount.
    queue: OnceLock<mpsc::Sender<Wanted>>,
    current: Arc<Mutex<Option<Current>>>,
}

/// A part of an open file.
struct Wanted {
    handle: OpenHandle,
    node: u64,
    range: Range<u64>,
    since: Instant,
}

/// What the process may open now, and by which number it is known.
struct Current {
    process: Option<u32>,
    handle: OpenHandle,
    part: Arc<Part>,
}

/// A part that is being fetched.
pub(super) struct Part {
    /// Bytes that the kernel got.
    bytes: AtomicU64,
    cancelled: watch::Sender<bool>,
}

impl Part {
    fn new() -> Arc<Self> {
        Arc::new(Self { bytes: AtomicU64::new(0), cancelled: watch::channel(false).0 })
    }

    /// Bytes of it for the kernel; none once it is cancelled.
    pub async fn read(
        &self,
        volume: &Arc<Volume>,
        handle: &OpenHandle,
        (offset, size): (u64, u32),
    ) -> Result<ReadData, Errno> {
        let mut cancelled = self.cancelled.subscribe();
        let read = volume.read_part(&handle.file, offset, size);
        let data = tokio::select! {
            biased;
            _ = cancelled.wait_for(|cancelled| *cancelled) => return Err(ErrorKind::Stale.into()),
            data = read => data?,
        };
        self.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(data)
    }
}

impl Prefetch {
    /// The handle for which this is opened, if it is for fetching a part.
    pub fn opened_by(&self, process: u32, ino: Ino) -> Option<OpenHandle> {
        let current = self.current.lock();
        let current = current.as_ref().filter(|current| current.process == Some(process))?;
        let part = Some(current.part.clone());
        (current.handle.file.ino() == ino).then(|| OpenHandle {
            part,
            runs: false,
            ..current.handle.clone()
        })
    }

    /// Who waits for pages of this file shall not wait for a part that is being fetched of it: its pages are unlocked, and those
    /// who want to read them ask for them themselves.
    pub fn cancel(&self, ino: Ino) {
        self.cancel_if(|file| file.ino() == ino);
    }

    /// A handle is being released: nothing keeps the mount busy for it.
    pub fn cancel_for(&self, released: &Arc<OpenFile>) {
        self.cancel_if(|file| Arc::ptr_eq(file, released));
    }

    fn cancel_if(&self, is_meant: impl FnOnce(&Arc<OpenFile>) -> bool) {
        let current = self.current.lock();
        if let Some(current) = current.as_ref().filter(|current| is_meant(&current.handle.file)) {
            current.part.cancelled.send_replace(true);
        }
    }
}

impl FuseDoor {
    /// From now on the kernel is given parts of files that are worth to have as a whole. This program is one that serves
    /// when it is called [`NAME`].
    pub(crate) fn prefetch(&self, mountpoint: PathBuf) {
        let (queue, wanted) = mpsc::channel(WAITING_MAX);
        if self.prefetch.queue.set(queue).is_ok() {
            let (volume, current) = (Arc::downgrade(&self.volume), self.prefetch.current.clone());
            let fetcher = Fetcher { volume, current, mountpoint, process: None };
            self.runtime.spawn(fetcher.fetch_all(wanted));
        }
    }

    /// After a read of pages for which servers were waited for so long: has the kernel fetch what it is worth to have by now.
    pub(super) fn fetch_around(&self, handle: OpenHandle, read: Range<u64>, took: Duration) {
        let Some(queue) = self.prefetch.queue.get().filter(|_| !handle.direct) else { return };
        let Some(range) = self.volume.worth_having(&handle.file, read, took) else { return };
        let (node, since) = (self.node(handle.file.ino()), Instant::now());
        // Full: who goes on reading there pays once more.
        let _full = queue.try_send(Wanted { handle, node, range, since });
    }
}

/// Fetches one part after the other.
struct Fetcher {
    volume: Weak<Volume>,
    current: Arc<Mutex<Option<Current>>>,
    mountpoint: PathBuf,
    process: Option<Process>,
}

impl Fetcher {
    /// Until the mount has ended, or nothing can be fetched there.
    async fn fetch_all(mut self, mut wanted: mpsc::Receiver<Wanted>) {
        while let Some(part) = wanted.recv().await {
            if part.handle.file.is_released() || part.since.elapsed() > WAITING_AGE_MAX {
                continue;
            }
            match self.fetch(&part).await {
                Ok(0) => {}
                Ok(number @ (libc::EPERM | libc::EOPNOTSUPP)) => {
                    let error = io::Error::from_raw_os_error(number);
                    tracing::info!(%error, "what is read here and there is not fetched in large parts; that takes root");
                    return;
                }
                // Whoever reads it is told himself.
                Ok(number) => {
                    tracing::debug!(error = %io::Error::from_raw_os_error(number), "a part was not fetched");
                }
                Err(error) => {
                    tracing::info!(%error, "the process that fetches parts of files was lost");
                    self.process = None;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// The number of the error; 0: the kernel has it.
    async fn fetch(&mut self, wanted: &Wanted) -> io::Result<i32> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => match Process::start(&self.mountpoint).await? {
                Ok(process) => process,
                Err(number) => return Ok(number),
            },
        };
        let (part, began) = (Part::new(), Instant::now());
        let (handle, number) = (wanted.handle.clone(), process.child.id());
        *self.current.lock() = Some(Current { process: number, handle, part: part.clone() });
        let fetched = timeout(PART_WAIT, process.fetch(wanted)).await;
        *self.current.lock() = None;
        let bytes = part.bytes.load(Ordering::Relaxed);
        metrics::counter!("strake_fuse_prefetched_bytes_total").increment(bytes);
        if let Some(volume) = self.volume.upgrade() {
            let whole = if fetched.is_ok() { bytes } else { wanted.range.end - wanted.range.start };
            volume.note_part(whole, began.elapsed());
        }
        let number = fetched.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        self.process = Some(process);
        Ok(number)
    }
}

/// The process that makes the kernel ask.
struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it; or the number of the error for which it cannot serve.
    async fn start(mountpoint: &Path) -> io::Result<Result<Self, i32>> {
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
        let answered = timeout(PART_WAIT, process.answer()).await;
        Ok(match answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
            0 => Ok(process),
            number => Err(number),
        })
    }

    /// The number of the error; 0: the kernel has it.
    async fn fetch(&mut self, wanted: &Wanted) -> io::Result<i32> {
        let Wanted { node, range, .. } = wanted;
        let line = format!("{node} {} {}\n", range.start, range.end);
        self.input.write_all(line.as_bytes()).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> io::Result<i32> {
        let line = self.output.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        line.parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
