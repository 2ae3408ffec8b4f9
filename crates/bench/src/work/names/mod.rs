//! Phases over a tree of files: mdtest's, and bonnie++'s second half.

mod tree;

pub use tree::{DIRECTORIES_MAX, Naming, Shape};

use crate::content::{Content, Pool};
use crate::error::{Error, Result};
use crate::watch::Watch;
use crate::work::{Amount, Order, Prepared};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// About how many bytes an operation on a name weighs.
const NAME_WEIGHT: u64 = 16 << 10;
/// Most bytes of a file in a tree.
pub const BYTES_MAX: u64 = 64 << 20;

/// What one worker does with its files, or with all directories, of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// What is done.
    pub operation: Operation,
    /// The first directory, by its name in the directory of the cell.
    pub root: String,
    /// What is below it.
    pub shape: Shape,
    /// Whose files: their names carry the number of the worker that made them.
    pub worker: usize,
    /// How many workers have files in this tree.
    pub workers: usize,
    /// How files are named before the phase.
    pub naming: Naming,
    /// In which order they are visited.
    pub visiting: Visiting,
    /// Bytes in each file.
    pub bytes: u64,
    /// What the bytes are.
    pub content: Content,
    /// Whether `create` ends each file with `fsync`.
    pub flush: bool,
    /// Whether each file that is made or removed ends with `fsync` of its directory, too.
    pub flush_names: bool,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Every directory is made.
    Mkdir,
    /// Files are made, written and closed.
    Create,
    /// Attributes are asked for.
    Stat,
    /// Files are opened, read to their end and closed.
    Read,
    /// Every directory is read, and the attributes of what is in it are asked for: `ls -l`.
    List,
    /// Files get another name in their directory.
    Rename,
    /// Files are removed.
    Remove,
    /// Every directory is removed; they must be empty.
    Rmdir,
}

/// In which order files are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visiting {
    /// By number, directory after directory.
    Numbered(Order),
    /// As `readdir` lists them.
    Listed,
}

impl Phase {
    /// Files of one worker.
    pub fn files(&self) -> u64 {
        self.shape.directories().unwrap_or(1).saturating_mul(self.shape.files)
    }

    /// How much work it is, in units of about a byte.
    pub fn weight(&self) -> u64 {
        let names = match self.operation {
            Operation::Mkdir | Operation::Rmdir => self.shape.directories().unwrap_or(1),
            Operation::List => self.entries(),
            _ => self.files(),
        };
        names.saturating_mul(NAME_WEIGHT + self.bytes)
    }

    /// What a file holds: no two of them the same.
    fn content(&self, index: u64) -> Content {
        let Phase { worker, content, .. } = *self;
        Content { seed: content.seed ^ (worker as u64) << 40 ^ index, ..content }
    }

    /// Bytes of memory for what it writes and reads.
    pub fn memory(&self) -> u64 {
        let all = self.files().saturating_mul(self.bytes);
        let pool = if self.operation == Operation::Create { self.content.pool(all) } else { 0 };
        self.bytes.saturating_add(pool)
    }

    /// True where it ends each change of a directory with `fsync` of that.
    fn syncs_directories(&self) -> bool {
        self.flush_names && matches!(self.operation, Operation::Create | Operation::Remove)
    }

    /// Entries of all directories together.
    fn entries(&self) -> u64 {
        self.files().saturating_mul(self.workers as u64) + self.shape.inner_entries()
    }
}

/// Fills the buffers, and works out the directories.
pub fn prepare(phase: &Phase, directory: &Path) -> Result<Box<dyn Prepared>> {
    Ok(Box::new(ready(phase, directory)?))
}

fn ready(phase: &Phase, directory: &Path) -> Result<Ready> {
    if phase.shape.directories().is_none() {
        return Err(Error::usage(format!("a tree has at most {DIRECTORIES_MAX} directories")));
    }
    if phase.bytes > BYTES_MAX {
        return Err(Error::usage(format!("a file of a tree has at most {BYTES_MAX} bytes")));
    }
    let directories = phase.shape.paths(&directory.join(&phase.root));
    let synced = directories.iter().filter(|_| phase.syncs_directories());
    let open = |path: &PathBuf| File::open(path).map_err(|e| Error::io("opening", path, &e));
    let synced = synced.map(open).collect::<Result<Vec<_>>>()?;
    // At most BYTES_MAX.
    let mut buffer = vec![0; phase.bytes as usize];
    let content = phase.content(0);
    content.prepare(&mut buffer, 0);
    let all = phase.files().saturating_mul(phase.bytes);
    let creates = phase.operation == Operation::Create;
    let pool = creates.then(|| Pool::new(&content, buffer.len(), all)).flatten();
    let (phase, path) = (phase.clone(), String::new());
    Ok(Ready { phase, directories, synced, buffer, pool, path })
}

/// A phase that can begin.
struct Ready {
    phase: Phase,
    directories: Vec<PathBuf>,
    /// The same, open, where changes of them end with `fsync`; otherwise none.
    synced: Vec<File>,
    /// The contents of one file, where no pool has them.
    buffer: Vec<u8>,
    pool: Option<Pool>,
    /// The path of the file that is visited, kept to be reused.
    path: String,
}

impl Prepared for Ready {
    fn run(&mut self, watch: &Watch) -> Result<Amount> {
        match self.phase.operation {
            Operation::Mkdir => self.directories(watch, false, |path| fs::create_dir(path)),
            Operation::Rmdir => self.directories(watch, true, |path| fs::remove_dir(path)),
            Operation::List => self.list(watch),
            _ => match self.phase.visiting {
                Visiting::Numbered(order) => self.numbered(order, watch),
                Visiting::Listed => self.listed(watch),
            },
        }
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Ready {
    fn told(&self, path: &Path, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::cut_short(path, self.phase.bytes),
            _ => Error::io(doing(self.phase.operation), path, error),
        }
    }

    fn directories(
        &self,
        watch: &Watch,
        backward: bool,
        change: impl Fn(&Path) -> io::Result<()>,
    ) -> Result<Amount> {
        let mut change = |path: &PathBuf| {
            watch.check()?;
            watch.advance(NAME_WEIGHT);
            change(path).map_err(|e| self.told(path, &e))
        };
        match backward {
            true => self.directories.iter().rev().try_for_each(&mut change)?,
            false => self.directories.iter().try_for_each(&mut change)?,
        }
        Ok(Amount { bytes: 0, operations: self.directories.len() as u64 })
    }

    fn list(&self, watch: &Watch) -> Result<Amount> {
        let mut operations = 0;
        for directory in &self.directories {
            for entry in fs::read_dir(directory).map_err(|e| self.told(directory, &e))? {
                watch.check()?;
                let entry = entry.map_err(|e| self.told(directory, &e))?;
                entry.metadata().map_err(|e| self.told(&entry.path(), &e))?;
                operations += 1;
                watch.advance(NAME_WEIGHT);
            }
        }
        self.all_listed(operations)?;
        Ok(Amount { bytes: 0, operations })
    }

    /// An error where a listing of the tree has not had as many entries as there are.
    fn all_listed(&self, listed: u64) -> Result<()> {
        let expected = self.phase.entries();
        if listed == expected {
            return Ok(());
        }
        Err(Error::failed(format!(
            "{}: {listed} entries were listed, and there are {expected}",
            self.directories[0].display()
        ))
        .next("the file system shows too few entries or too many: do not trust it"))
    }

    fn numbered(&mut self, order: Order, watch: &Watch) -> Result<Amount> {
        let mut amount = Amount::default();
        for index in order.indices(self.phase.files()) {
            watch.check()?;
            let directory = (index / self.phase.shape.files.max(1)) as usize;
            self.go_to(directory, index);
            self.visit(directory, index, &mut amount)?;
            watch.advance(NAME_WEIGHT + self.phase.bytes);
        }
        Ok(amount)
    }

    /// Visits the files in the order of the listing, which is made first, as bonnie++ does.
    fn listed(&mut self, watch: &Watch) -> Result<Amount> {
        let mut amount = Amount::default();
        for (number, directory) in self.directories.clone().into_iter().enumerate() {
            let told = |e: &io::Error| Error::io("listing", &directory, e);
            let entries = fs::read_dir(&directory).map_err(|e| told(&e))?;
            let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
            for path in names.map_err(|e| told(&e))? {
                watch.check()?;
                self.path = path.to_string_lossy().into_owned();
                self.visit(number, 0, &mut amount)?;
                watch.advance(NAME_WEIGHT + self.phase.bytes);
            }
        }
        self.all_listed(amount.operations)?;
        Ok(amount)
    }

    /// Makes `path` that of a file in a directory.
    fn go_to(&mut self, directory: usize, index: u64) {
        self.path.clear();
        // Paths are ours: the measured directory was named by a text, and so were all below it.
        self.path.push_str(&self.directories[directory].to_string_lossy());
        self.path.push('/');
        let Phase { naming, worker, content, .. } = self.phase;
        naming.put(&mut self.path, content.seed, worker, index);
    }

    fn visit(&mut self, directory: usize, index: u64, amount: &mut Amount) -> Result<()> {
        let done = match self.phase.operation {
            Operation::Create => self.create(directory, index),
            Operation::Read => self.read(),
            Operation::Rename => self.rename(index),
            Operation::Remove => self.remove(directory),
            _ => fs::symlink_metadata(&self.path).map(|_| ()),
        };
        let path = Path::new(&self.path);
        done.map_err(|e| self.told(path, &e))?;
        amount.operations += 1;
        if self.phase.operation == Operation::Read {
            amount.bytes += self.phase.bytes;
            if let Some(at) = self.phase.content(index).difference(&self.buffer, 0) {
                return Err(Error::lost(format!(
                    "{}: the byte at offset {at} is not what was written",
                    self.path
                )));
            }
        }
        if self.phase.operation == Operation::Create {
            amount.bytes += self.phase.bytes;
        }
        Ok(())
    }

    fn create(&mut self, directory: usize, index: u64) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&self.path)?;
        if self.phase.bytes > 0 {
            let (content, bytes) = (self.phase.content(index), self.phase.bytes);
            match &mut self.pool {
                Some(pool) => {
                    let at = index.wrapping_mul(bytes);
                    file.write_all(pool.record(&content, at, bytes as usize))?;
                }
                None => {
                    content.fill(&mut self.buffer, 0);
                    file.write_all(&self.buffer)?;
                }
            }
        }
        if self.phase.flush {
            file.sync_all()?;
        }
        self.sync(directory)?;
        strake_base::descriptor::close(file)
    }

    fn remove(&self, directory: usize) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        self.sync(directory)
    }

    /// Syncs a directory that was changed, where that is asked for.
    fn sync(&self, directory: usize) -> io::Result<()> {
        self.synced.get(directory).map_or(Ok(()), File::sync_all)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        file.read_exact(&mut self.buffer)?;
        strake_base::descriptor::close(file)
    }

    fn rename(&mut self, index: u64) -> io::Result<()> {
        let from = self.path.clone();
        self.path.truncate(from.rfind('/').map_or(0, |at| at + 1));
        let Phase { worker, content, .. } = self.phase;
        Naming::Renamed.put(&mut self.path, content.seed, worker, index);
        fs::rename(from, &self.path)
    }
}

fn doing(operation: Operation) -> &'static str {
    match operation {
        Operation::Mkdir => "making",
        Operation::Create => "creating",
        Operation::Stat => "asking for the attributes of",
        Operation::Read => "reading",
        Operation::List => "listing",
        Operation::Rename => "renaming to",
        Operation::Remove | Operation::Rmdir => "removing",
    }
}

#[cfg(test)]
mod tests;
