//! Contents of a file to be read or written at any offset by many tasks at once.

use crate::info::Info;
use crate::local::{self, LocalPath, blocking};
use crate::place::{Directory, Name};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::Duration;
use strake_base::descriptor;
use strake_client::{LockKind, LockRequest, OpenFile, OpenFlags, SeekTo, Volume};
use strake_types::{Credentials, Error, ErrorKind, FileKind, Ino, Result, SetAttr};

/// Free buffers kept by one pool.
const FREE_MAX: usize = 64;

/// Buffers that are read into; touching fresh memory for each block costs as much as reading it.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

struct Lent {
    bytes: Vec<u8>,
    len: usize,
    pool: Arc<Pool>,
}

impl Pool {
    fn take(self: &Arc<Self>, len: usize) -> Vec<u8> {
        let mut bytes = self.free.lock().pop().unwrap_or_default();
        if bytes.len() < len {
            bytes = vec![0; len];
        }
        bytes
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock();
        if free.len() < FREE_MAX {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// What is opened to be written. All but what a link leads to is made if it is missing, and a link is an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// A file that is not there yet.
    New,
    /// A file as it was left.
    Left,
    /// A file without what was in it.
    Emptied,
    /// The same of what a link leads to.
    LedTo,
}

impl Written {
    /// What was found under a name, whether that is a link or not, without what was in it; a new file where nothing was.
    pub(crate) fn over(there: Option<&Info>) -> Self {
        match there {
            None => Written::New,
            Some(there) if there.kind == FileKind::Symlink => Written::LedTo,
            Some(_) => Written::Emptied,
        }
    }
}

/// An open file, here or in a volume.
#[derive(Clone)]
pub(crate) enum Contents {
    Local(Arc<File>, Arc<Pool>),
    Remote(Arc<Volume>, Arc<Credentials>, Arc<OpenFile>),
}

impl Contents {
    /// Opens what `info` was said of.
    pub(crate) async fn open(name: &Name, info: &Info, pool: &Arc<Pool>) -> Result<Self> {
        let opened = match &name.directory {
            Directory::Local(_) => {
                let (path, info) = (name.local().unwrap_or_default(), info.clone());
                let file = blocking(move || open_same(&path, &info)).await.and_then(still_there);
                file.map(|file| Contents::Local(Arc::new(file), pool.clone()))
            }
            Directory::Remote(r) => {
                let file = r.volume.open(&r.cred, Ino(info.ino), OpenFlags::READ).await;
                file.map(|file| Contents::Remote(r.volume.clone(), r.cred.clone(), file))
            }
        };
        opened.map_err(|error| name.about(error))
    }

    /// Opens a file to be written (and read back).
    pub(crate) async fn create(
        name: &Name,
        mode: u32,
        what: Written,
        pool: &Arc<Pool>,
    ) -> Result<Self> {
        let opened = match &name.directory {
            Directory::Local(_) => {
                let path = name.local().unwrap_or_default();
                let how = move || {
                    let mut options = OpenOptions::new();
                    options.read(true).write(true).mode(mode);
                    match what {
                        Written::New => options.create_new(true),
                        _ => options.create(true).truncate(what != Written::Left),
                    };
                    if what != Written::LedTo {
                        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
                    }
                    options.open(path.reach()?)
                };
                blocking(how).await.map(|file| Contents::Local(Arc::new(file), pool.clone()))
            }
            Directory::Remote(r) => {
                let truncate = matches!(what, Written::Emptied | Written::LedTo);
                let exclusive = what == Written::New;
                let flags = OpenFlags { truncate, exclusive, ..OpenFlags::READ_WRITE };
                let file = match what {
                    Written::LedTo => r.open_led_to(&name.name, flags).await,
                    _ => {
                        let name = name.name.clone();
                        let made =
                            r.volume.create(&r.cred, r.ino, name, mode, r.umask, flags).await;
                        made.map(|(_, file, _)| file)
                    }
                };
                file.map(|file| Contents::Remote(r.volume.clone(), r.cred.clone(), file))
            }
        };
        opened.map_err(|error| name.about(error))
    }

    /// Bytes at an offset, in parts; fewer than asked only at the end of the file.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> Result<Vec<Bytes>> {
        match self {
            Contents::Local(file, pool) => {
                let (file, pool) = (file.clone(), pool.clone());
                let read = blocking(move || {
                    let mut bytes = pool.take(len);
                    let len = read_full(&file, &mut bytes[..len], offset)?;
                    Ok(Bytes::from_owner(Lent { bytes, len, pool }))
                });
                Ok(vec![read.await?])
            }
            Contents::Remote(volume, _, file) => {
                let len = u32::try_from(len).map_err(|_| ErrorKind::Invalid)?;
                Ok(volume.read(file, offset, len).await?.parts)
            }
        }
    }

    /// Writes all parts, one after the other, from an offset on.
    pub(crate) async fn write(&self, offset: u64, parts: Vec<Bytes>) -> Result<()> {
        match self {
            Contents::Local(file, _) => {
                let file = file.clone();
                let write = blocking(move || {
                    let mut at = offset;
                    for part in &parts {
                        file.write_all_at(part, at)?;
                        at += part.len() as u64;
                    }
                    Ok(())
                });
                write.await
            }
            Contents::Remote(volume, _, file) => {
                let mut at = offset;
                for part in parts {
                    let len = part.len() as u64;
                    volume.write(file, at, part).await?;
                    at += len;
                }
                Ok(())
            }
        }
    }

    /// The next data or hole at or after an offset; `None` where there is no more data.
    pub(crate) async fn seek(&self, offset: u64, to: SeekTo) -> Result<Option<u64>> {
        match self {
            Contents::Local(file, _) => {
                let file = file.clone();
                let whence = match to {
                    SeekTo::Data => rustix::fs::SeekFrom::Data(offset),
                    SeekTo::Hole => rustix::fs::SeekFrom::Hole(offset),
                };
                let sought = blocking(move || Ok(rustix::fs::seek(&*file, whence))).await?;
                found_locally(sought, offset, to)
            }
            Contents::Remote(volume, _, file) => match volume.seek(file, offset, to).await {
                Ok(at) => Ok(Some(at)),
                Err(error) if error.kind == ErrorKind::NoSuchAddress => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Cuts or grows the file.
    pub(crate) async fn set_length(&self, length: u64) -> Result<()> {
        match self {
            Contents::Local(file, _) => {
                let file = file.clone();
                blocking(move || file.set_len(length)).await
            }
            Contents::Remote(volume, cred, file) => {
                let change = SetAttr { length: Some(length), ..SetAttr::default() };
                volume.setattr(cred, file.ino(), change, Some(file)).await.map(drop)
            }
        }
    }

    /// Length as it is now.
    pub(crate) async fn length(&self) -> Result<u64> {
        match self {
            Contents::Local(file, _) => {
                let file = file.clone();
                blocking(move || Ok(file.metadata()?.len())).await
            }
            Contents::Remote(volume, _, file) => Ok(volume.getattr(file.ino()).await?.length),
        }
    }

    /// True for a file of this machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Contents::Local(..))
    }

    /// What has this name, if that is this very file.
    pub(crate) async fn found_as(&self, name: &Name) -> Result<Option<Info>> {
        if let Some(there) = name.info().await?
            && self.is_of(&there).await.map_err(|error| name.about(error))?
        {
            return Ok(Some(there));
        }
        Ok(None)
    }

    /// True if it is the file of which this was said.
    async fn is_of(&self, info: &Info) -> Result<bool> {
        match self {
            Contents::Local(file, _) => {
                let file = file.clone();
                let own = blocking(move || file.metadata()).await?;
                Ok((own.dev(), own.ino()) == (info.device, info.ino))
            }
            Contents::Remote(_, _, file) => Ok(file.ino() == Ino(info.ino)),
        }
    }

    /// Keeps other copies from it; false: another one has it, or may have. In a volume that is waited for, for so long, if at all: the other
    /// one may be one of which only the session is left. Here the kernel knows.
    pub(crate) async fn lock(&self, wait: Duration) -> Result<bool> {
        match self {
            Contents::Local(file, _) => {
                let file = file.clone();
                blocking(move || match descriptor::lock_within(&file, Duration::ZERO) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                    // NFS and CIFS have locks only for who may write.
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::BADF) => Ok(false),
                    // Not every file system has locks.
                    _ => Ok(true),
                })
                .await
            }
            Contents::Remote(volume, _, file) => {
                let waits = !wait.is_zero();
                let lock = LockRequest { wait: waits, ..copier(LockKind::Exclusive) };
                let locking = volume.set_lock(file.ino(), lock);
                let locked = match waits {
                    true => tokio::time::timeout(wait, locking).await,
                    false => Ok(locking.await),
                };
                match locked {
                    Ok(Err(error)) if error.kind == ErrorKind::WouldBlock => Ok(false),
                    Ok(locked) => locked.map(|()| true),
                    Err(_) => Ok(false),
                }
            }
        }
    }

    /// Lets other copies have it; of a file of this machine its end does.
    pub(crate) async fn unlock(&self) {
        if let Contents::Remote(volume, _, file) = self {
            // Else the end of the session does.
            let _unlocked = volume.set_lock(file.ino(), copier(LockKind::Unlock)).await;
        }
    }

    /// Returns when everything written is on disk.
    pub(crate) async fn sync(&self) -> Result<()> {
        match self {
            Contents::Local(file, _) => {
                let file = file.clone();
                blocking(move || file.sync_all()).await
            }
            Contents::Remote(volume, _, file) => volume.fsync(file, false).await,
        }
    }

    /// Closes it; an error of an earlier write that nobody has heard of is reported here. A file of this machine stays open for
    /// its attributes: what its file system holds back until a close (NFS, CIFS, FUSE) that of another descriptor sends.
    pub(crate) async fn close(&self) -> Result<()> {
        match self {
            Contents::Local(file, _) if is_writable(file) => {
                let file = file.clone();
                blocking(move || descriptor::close(file.try_clone()?)).await
            }
            Contents::Local(..) => Ok(()),
            Contents::Remote(volume, _, file) => volume.release(file).await,
        }
    }

    /// Copies a range without it passing through here, where both lie in one volume. `None`: not
    /// possible.
    pub(crate) async fn copy_on_servers(
        &self,
        to: &Contents,
        offset: u64,
        len: u64,
    ) -> Result<Option<u64>> {
        match (self, to) {
            (Contents::Remote(volume, _, from), Contents::Remote(other, _, to))
                if Arc::ptr_eq(volume, other) =>
            {
                Ok(Some(volume.copy_range(from, offset, to, offset, len).await?))
            }
            _ => Ok(None),
        }
    }
}

/// True if something may have been written through it.
fn is_writable(file: &File) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.intersects(OFlags::RDWR | OFlags::WRONLY))
}

/// The lock of who copies to a file of a volume.
fn copier(kind: LockKind) -> LockRequest {
    let pid = std::process::id();
    LockRequest { owner: 1, pid, start: 0, end: u64::MAX, kind, flock: true, wait: true }
}

/// What a seek on this machine says. A file system that knows of no holes has none.
fn found_locally(
    sought: std::result::Result<u64, Errno>,
    offset: u64,
    to: SeekTo,
) -> Result<Option<u64>> {
    match sought {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) if to == SeekTo::Data => Ok(Some(offset)),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(local::error(&error.into())),
    }
}

fn read_full(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Opens a file of this machine; none if its name stands for another one by now.
fn open_same(path: &LocalPath, info: &Info) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true);
    if info.kind == FileKind::File {
        // That may be a pipe, to which nobody writes.
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    }
    let file = options.open(path.reach()?)?;
    let found = file.metadata()?;
    Ok(((found.dev(), found.ino()) == (info.device, info.ino)).then_some(file))
}

/// What is said where a name stands for another file by now.
pub(crate) fn replaced() -> Error {
    Error::with(ErrorKind::Stale, "another file has taken its place")
}

fn still_there<T>(opened: Option<T>) -> Result<T> {
    opened.ok_or_else(replaced)
}

/// Opens a small file of this machine and reads all of it in one go.
pub(crate) async fn read_small(
    name: &Name,
    info: &Info,
    pool: &Arc<Pool>,
) -> Result<Option<(Contents, Bytes)>> {
    let Some(path) = name.local() else { return Ok(None) };
    // What the kernel shows as empty files may be none.
    let most = if info.length == 0 { u64::MAX } else { info.length };
    let info = info.clone();
    let reading = blocking(move || {
        let Some(file) = open_same(&path, &info)? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(info.length as usize + 1);
        (&file).take(most).read_to_end(&mut bytes)?;
        Ok(Some((file, bytes)))
    });
    let read = reading.await.and_then(still_there).map_err(|error| name.about(error));
    read.map(|(file, bytes)| Some((Contents::Local(Arc::new(file), pool.clone()), bytes.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A close of another descriptor asks the file system, and the file stays open. Of one that was only read nothing is asked.
    #[tokio::test]
    async fn what_was_written_is_closed_and_stays_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let pool: Arc<Pool> = Arc::default();
        let written = File::create(&path).unwrap();
        assert!(is_writable(&written) && !is_writable(&File::open(&path).unwrap()));
        let contents = Contents::Local(Arc::new(written), pool);
        contents.close().await.unwrap();
        contents.write(0, vec![Bytes::from_static(b"x")]).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
    }

    /// As NFS says it of a file that is open to be read: its partial copy was removed while another copy was at it.
    #[tokio::test]
    async fn what_may_be_locked_only_by_who_writes_counts_as_locked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::PATH.bits() as i32);
        let unlockable = options.open(file.path()).unwrap();
        for (file, locked) in [(unlockable, false), (File::open(file.path()).unwrap(), true)] {
            let contents = Contents::Local(Arc::new(file), Arc::default());
            assert_eq!(contents.lock(Duration::ZERO).await, Ok(locked));
        }
    }

    #[test]
    fn a_seek_that_fails_is_no_hole() {
        let found = |sought| found_locally(sought, 7, SeekTo::Data).map_err(|error| error.kind);
        assert_eq!(found(Ok(9)), Ok(Some(9)));
        assert_eq!(found(Err(Errno::NXIO)), Ok(None));
        assert_eq!(found(Err(Errno::INVAL)), Ok(Some(7)), "all of it is data");
        assert_eq!(found_locally(Err(Errno::INVAL), 7, SeekTo::Hole).unwrap(), None);
        let failures = [
            (Errno::IO, ErrorKind::Io),
            (Errno::STALE, ErrorKind::Stale),
            (Errno::NOTCONN, ErrorKind::Unavailable),
        ];
        for (failed, kind) in failures {
            assert_eq!(found(Err(failed)), Err(kind));
        }
    }
}
