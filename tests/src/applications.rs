//! Applications: processes of their own that make one system call, or a few, after the other on a mounted
//! volume, and tell what came of it and when.
//!
//! A test sends words in a line and receives words in a line ([`Application::ask`]). What the words mean is in
//! [`run`], which is all that the program `strake-test-application` does.

use crate::cluster::application;
use crate::system::{LockOwner, RangeLock, lock, now_ns};
use rustix::fs::{FlockOperation, RenameFlags, flock, renameat_with};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, OpenOptionsExt};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long an answer may take. Only a hang reaches it.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Bytes of a mark: a block is filled with one.
const MARK: usize = 8;
/// Told instead of the mark of a block that is not filled with one.
pub const TORN: u64 = u64::MAX;

/// What came of something, and when it was done.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Before the first system call.
    pub began: u64,
    /// After the last one.
    pub ended: u64,
    /// What was told, or the number of the error.
    pub told: Result<Vec<u64>, i32>,
}

impl Answer {
    /// What was told of something that must not fail.
    pub fn good(&self, words: &str) -> Vec<u64> {
        self.told.clone().unwrap_or_else(|error| panic!("{words}: error {error}"))
    }
}

/// A process; it is killed with this value.
pub struct Application {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Default for Application {
    fn default() -> Self {
        Self::start()
    }
}

impl Application {
    /// Starts one.
    pub fn start() -> Self {
        let mut child = application();
        let input = child.stdin.take().expect("it was asked for");
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, input, answers }
    }

    /// Has it do something.
    pub fn ask(&mut self, words: &str) -> Answer {
        self.begin(words);
        self.wait(words)
    }

    /// Has it begin something.
    pub fn begin(&mut self, words: &str) {
        writeln!(self.input, "{words}").expect("the application reads on");
    }

    /// What came of that.
    pub fn wait(&mut self, words: &str) -> Answer {
        let line = self.answers.recv_timeout(ANSWER_WAIT);
        let line = line.unwrap_or_else(|error| panic!("{words}: no answer: {error}"));
        answer_of(&line).unwrap_or_else(|| panic!("{words}: {line}"))
    }

    /// The answer, if it comes within some time.
    pub fn wait_for(&mut self, time: Duration) -> Option<Answer> {
        self.answers.recv_timeout(time).ok().and_then(|line| answer_of(&line))
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        self.child.wait().expect("a child can be waited for");
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.kill();
    }
}

fn answer_of(line: &str) -> Option<Answer> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (began, ended) = (number()?, number()?);
    let told = match words.next()? {
        "told" => Ok(words.map(|word| word.parse().ok()).collect::<Option<_>>()?),
        "error" => Err(words.next()?.parse().ok()?),
        _ => return None,
    };
    Some(Answer { began, ended, told })
}

/// The application itself: reads a line, does it, tells what came of it.
pub fn run() {
    let mut files = HashMap::new();
    for line in io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let began = now_ns();
        let outcome = carry_out(&words, &mut files);
        let ended = now_ns();
        let text = match outcome {
            Ok(numbers) => numbers.iter().fold("told".to_owned(), |all, n| format!("{all} {n}")),
            Err(error) => match error.raw_os_error() {
                Some(number) => format!("error {number}"),
                None => format!("cannot: {error}"),
            },
        };
        println!("{began} {ended} {text}");
    }
}

type Files = HashMap<String, File>;
type Told = io::Result<Vec<u64>>;

fn carry_out(words: &[&str], files: &mut Files) -> Told {
    match *words {
        ["create", path] => inode(&File::options().write(true).create_new(true).open(path)?),
        ["open", path] => inode(&writable(path, "cached")?),
        ["mkdir", path] => done(fs::create_dir(path)),
        ["unlink", path] => done(fs::remove_file(path)),
        ["rmdir", path] => done(fs::remove_dir(path)),
        ["link", from, to] => done(fs::hard_link(from, to)),
        ["rename", from, to, how] => rename(from, to, how),
        ["stat", path] => fs::symlink_metadata(path).map(|stat| vec![stat.ino(), stat.nlink()]),
        ["length", path] => fs::metadata(path).map(|stat| vec![stat.len()]),
        ["list", path] => list(path),
        ["truncate", path, len] => {
            done(writable(path, "cached").and_then(|file| file.set_len(number(len)?)))
        }
        ["read", path, how, unit, at, count] => {
            marks(&readable(path, how)?, number(unit)?, number(at)?, number(count)?)
        }
        ["write", path, how, unit, at, count, mark] => {
            let bytes = filled(number(unit)?, number(count)?, number(mark)?);
            done(writable(path, how)?.write_all_at(&bytes, number(at)? * number(unit)?))
        }
        ["hold", name, path, how] => {
            files.insert(name.into(), writable(path, how)?);
            Ok(Vec::new())
        }
        ["drop", name] => Ok(vec![u64::from(files.remove(name).is_some())]),
        [verb, name, ref more @ ..] => match files.get(name) {
            Some(file) => with_file(verb, file, more),
            None => Err(io::Error::other(format!("{verb} {name}: it is not open"))),
        },
        _ => Err(io::Error::other("these words have no meaning")),
    }
}

/// With a file that is held open.
fn with_file(verb: &str, file: &File, words: &[&str]) -> Told {
    match (verb, words) {
        ("pread", [unit, at, count]) => marks(file, number(unit)?, number(at)?, number(count)?),
        ("pwrite", [unit, at, count, mark]) => {
            let bytes = filled(number(unit)?, number(count)?, number(mark)?);
            // One call, whole or not at all.
            Ok(vec![file.write_at(&bytes, number(at)? * number(unit)?)? as u64])
        }
        ("size", []) => file.metadata().map(|stat| vec![stat.len()]),
        ("sync", []) => done(file.sync_all()),
        ("add", [unit, count, mark]) => {
            let bytes = filled(number(unit)?, number(count)?, number(mark)?);
            let mut file = file;
            Ok(vec![file.write(&bytes)? as u64])
        }
        ("append", [path, unit, count, mark]) => {
            // The lock first, then the open: S-042.
            flock(file, FlockOperation::LockExclusive)?;
            let bytes = filled(number(unit)?, number(count)?, number(mark)?);
            let mut end = File::options().append(true).open(path)?;
            // One call, whole or not at all.
            let written = end.write(&bytes)?;
            drop(end);
            flock(file, FlockOperation::Unlock)?;
            Ok(vec![written as u64])
        }
        ("lock", [owner, kind, from, len, how]) => {
            done(take(file, owner, kind, (number(from)?, number(len)?), *how == "wait"))
        }
        ("locked", [owner, path, how, unit, change @ ..]) => {
            take(file, owner, "exclude", (0, 0), true)?;
            let outcome = change_locked(path, how, number(unit)?, change);
            take(file, owner, "unlock", (0, 0), true)?;
            outcome
        }
        _ => Err(io::Error::other(format!("{verb} has no meaning"))),
    }
}

/// What somebody does who holds the lock: opens, reads all of it, changes it, and closes it.
fn change_locked(path: &str, how: &str, unit: u64, change: &[&str]) -> Told {
    let file = writable(path, how)?;
    let before = marks(&file, unit, 0, file.metadata()?.len().div_ceil(unit) + 1)?;
    match change {
        ["nothing"] => {}
        ["write", at, count, mark] => {
            let bytes = filled(unit, number(count)?, number(mark)?);
            file.write_all_at(&bytes, number(at)? * unit)?;
        }
        ["append", count, mark] => {
            let bytes = filled(unit, number(count)?, number(mark)?);
            File::options().append(true).open(path)?.write_all(&bytes)?;
        }
        ["resize", len] => file.set_len(number(len)? * unit)?,
        _ => return Err(io::Error::other("no change")),
    }
    Ok(before)
}

fn number(word: &str) -> io::Result<u64> {
    word.parse().map_err(|_| io::Error::other(format!("{word} is no number")))
}

fn done(result: io::Result<()>) -> Told {
    result.map(|()| Vec::new())
}

fn inode(file: &File) -> Told {
    file.metadata().map(|stat| vec![stat.ino()])
}

fn flags(how: &str) -> i32 {
    match how {
        "direct" => libc::O_DIRECT,
        "synced" => libc::O_DIRECT | libc::O_DSYNC,
        _ => 0,
    }
}

fn readable(path: &str, how: &str) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(flags(how)).open(path)
}

fn writable(path: &str, how: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).append(how == "end");
    options.custom_flags(flags(how)).open(path)
}

fn rename(from: &str, to: &str, how: &str) -> Told {
    let flags = match how {
        "free" => RenameFlags::NOREPLACE,
        "exchange" => RenameFlags::EXCHANGE,
        _ => RenameFlags::empty(),
    };
    let here = rustix::fs::CWD;
    done(renameat_with(here, from, here, to, flags).map_err(io::Error::from))
}

/// Names end in a number: numbers and inodes, one after the other.
fn list(path: &str) -> Told {
    let mut all = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().map(|name| name.trim_start_matches(char::is_alphabetic));
        all.extend([number(name.unwrap_or("?"))?, entry.ino()]);
    }
    Ok(all)
}

/// Blocks filled with a mark.
fn filled(unit: u64, count: u64, mark: u64) -> Vec<u8> {
    let block = mark.to_le_bytes().into_iter().cycle().take(unit as usize);
    block.collect::<Vec<u8>>().repeat(count as usize)
}

/// The marks of blocks, as far as the file goes; [`TORN`] for one that is of several.
fn marks(file: &File, unit: u64, at: u64, count: u64) -> Told {
    let mut bytes = vec![0; (unit * count) as usize];
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], at * unit + len as u64)? {
            0 => break,
            more => len += more,
        }
    }
    bytes.truncate(len);
    let mark = |block: &[u8]| {
        let mark = block.first_chunk::<MARK>().map_or(0, |mark| u64::from_le_bytes(*mark));
        if *block == filled(unit, 1, mark) { mark } else { TORN }
    };
    Ok(bytes.chunks(unit as usize).map(mark).collect())
}

fn take(
    file: &File,
    owner: &str,
    kind: &str,
    (from, len): (u64, u64),
    wait: bool,
) -> io::Result<()> {
    let range = (from as i64, len as i64);
    let posix = match owner {
        "process" => LockOwner::Process,
        "file" => LockOwner::OpenFile,
        _ => {
            let operation = match (kind, wait) {
                ("share", true) => FlockOperation::LockShared,
                ("share", false) => FlockOperation::NonBlockingLockShared,
                ("exclude", true) => FlockOperation::LockExclusive,
                ("exclude", false) => FlockOperation::NonBlockingLockExclusive,
                _ => FlockOperation::Unlock,
            };
            return Ok(flock(file, operation)?);
        }
    };
    let kind = match kind {
        "share" => RangeLock::Shared,
        "exclude" => RangeLock::Exclusive,
        _ => RangeLock::Unlock,
    };
    lock(file, posix, kind, range, wait)
}
