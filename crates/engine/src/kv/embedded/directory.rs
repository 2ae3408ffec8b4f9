//! The directory of an embedded engine: whose it is, of which format, and that it is ours alone.
//!
//! | name | |
//! |---|---|
//! | `format` | three lines of text: what this is, the version of the format, the engine |
//! | `journal-*` | segments of the journal |
//! | `synced` | up to where the journal was synced |
//! | `reserve` | room kept back |
//! | `failed` | nothing: the disk failed under the last process |
//! | `failed-` and a number | nothing: so often that has happened, and has been looked after |
//! | a directory named after the engine | its store |

use super::super::error::FREE_DISK;
use super::super::{KvError, Result};
use super::journal;
use crate::reserve::is_full;
use std::io;
use std::path::Path;
use std::sync::Arc;
use strake_base::descriptor::told;
use strake_base::disk::{Disk, RealDisk};

/// The format of the directory that this release reads and writes.
pub const FORMAT: u32 = 2;

const FORMAT_FILE: &str = "format";
const FORMAT_FILE_NEW: &str = "format.new";
const TITLE: &str = "strake metadata store";
const FAILED_FILE: &str = "failed";
const FAILURES_PREFIX: &str = "failed-";
/// More than the file ever has.
const FORMAT_FILE_BYTES_MAX: u64 = 4096;

/// A directory that is locked and of a format that can be read.
pub struct Directory {
    pub disk: Arc<dyn Disk>,
    /// How often the disk has failed under a process: what it did not have then may be gone, as after a loss of power.
    pub failures: u64,
    /// Released when dropped.
    pub lock: Box<dyn Send + Sync>,
}

/// Makes or checks the directory at `path` for `engine`.
pub fn open(path: &Path, engine: &'static str) -> Result<Directory> {
    let store = path.display().to_string();
    let failed = |error: io::Error| io_error(&store, &error);
    std::fs::create_dir_all(path).map_err(failed)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(path).map_err(failed)?);
    let lock = disk.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => KvError::InUse { store: store.clone() },
        _ => io_error(&store, &error),
    })?;
    let names = disk.list().map_err(failed)?;
    let failures = look_after_failure(&*disk, &names, path).map_err(failed)?;
    if names.iter().any(|name| name == FORMAT_FILE) {
        check(&store, &read(&*disk).map_err(failed)?, engine)?;
    } else if names.iter().any(|name| is_of_a_store(name, engine)) {
        return Err(KvError::Corrupt { store, cause: "its file `format` is missing".into() });
    } else {
        write(&*disk, engine).map_err(failed)?;
    }
    Ok(Directory { disk, failures, lock })
}

/// True of a file that comes after `format`.
fn is_of_a_store(name: &str, engine: &str) -> bool {
    name == engine || name == journal::MARK_FILE || name.starts_with(journal::PREFIX)
}

/// Leaves word for the next process that the kernel may show as written what the disk does not have. Not synced: what takes
/// that from the kernel is another [`Disk::boot_id`].
pub fn note_failure(disk: &dyn Disk) {
    if let Err(error) = disk.open(FAILED_FILE, true) {
        tracing::warn!(%error, "cannot store that the disk has failed");
    }
}

/// If the disk had failed, what it has is read. How often it has by now stays known: whoever opens the store may be another than the one
/// who has to know of it.
fn look_after_failure(disk: &dyn Disk, names: &[String], path: &Path) -> io::Result<u64> {
    let number = |name: &String| name.strip_prefix(FAILURES_PREFIX)?.parse::<u64>().ok();
    let known = names.iter().filter_map(number).max().unwrap_or(0);
    if !names.iter().any(|name| name == FAILED_FILE) {
        return Ok(known);
    }
    tracing::warn!(store = %path.display(), "the disk had failed: reading what it has");
    reread(path)?;
    let now = known.saturating_add(1);
    disk.rename(FAILED_FILE, &format!("{FAILURES_PREFIX}{now}"))?;
    for earlier in names.iter().filter(|name| number(name).is_some()) {
        disk.remove(earlier)?;
    }
    disk.sync_directory()?;
    Ok(now)
}

/// Only what the disk has is read from now on.
fn reread(path: &Path) -> io::Result<()> {
    let disk = RealDisk::new(path)?;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => reread(&entry.path())?,
            kind if kind.is_file() => {
                disk.open(&entry.file_name().to_string_lossy(), false)?.reread()?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// An error of the disk in the words of the contract.
pub fn io_error(store: &str, error: &io::Error) -> KvError {
    let store = store.to_owned();
    if is_full(error) {
        return KvError::Full { store, next: FREE_DISK };
    }
    KvError::Io { store, cause: told(error) }
}

fn read(disk: &dyn Disk) -> io::Result<String> {
    let file = disk.open(FORMAT_FILE, false)?;
    let mut bytes = vec![0; file.len()?.min(FORMAT_FILE_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn check(store: &str, text: &str, engine: &'static str) -> Result<()> {
    let store = store.to_owned();
    let mut lines = text.lines();
    let title = lines.next();
    let format = lines.next().and_then(|line| line.strip_prefix("format ")?.parse().ok());
    let (Some(TITLE), Some(found)) = (title, format) else {
        return Err(KvError::Corrupt { store, cause: "its file `format` is damaged".into() });
    };
    if found > FORMAT {
        return Err(KvError::Newer { store, found, known: FORMAT });
    }
    if found < FORMAT {
        return Err(KvError::Older { store, found, known: FORMAT });
    }
    match lines.next().and_then(|line| line.strip_prefix("engine ")) {
        Some(found) if found == engine => Ok(()),
        Some(found) => Err(KvError::OtherEngine { store, found: found.into(), wanted: engine }),
        None => Err(KvError::Corrupt { store, cause: "its file `format` is damaged".into() }),
    }
}

fn write(disk: &dyn Disk, engine: &str) -> io::Result<()> {
    let text = format!("{TITLE}\nformat {FORMAT}\nengine {engine}\n");
    let file = disk.open(FORMAT_FILE_NEW, true)?;
    file.set_len(0)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync()?;
    disk.rename(FORMAT_FILE_NEW, FORMAT_FILE)?;
    disk.sync_directory()
}
