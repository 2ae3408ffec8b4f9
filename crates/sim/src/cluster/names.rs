//! The workload on names: all clients change the same few directories, each of which has a history that
//! must be one of a directory (see [`super::history`]).

use super::files::ROOT;
use super::history::{Ask, Name, Operation, Told, Verdict, judge};
use super::mount::Mount;
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{NewFile, RenameFlags};
use strake_types::{Attr, Credentials, ErrorKind, FileKind, Ino, Result};

/// Names in each directory.
const NAMES: u64 = 4;
/// Entries asked for at once: all.
const ENTRIES: u32 = 100;

/// Directories, and what has happened in them.
pub struct Names {
    world: Arc<World>,
    directories: Vec<Directory>,
    /// Counts beginnings and ends of operations.
    events: AtomicU64,
    /// Longest pause between two operations of a client.
    pause_ms: u64,
}

#[derive(Default)]
struct Directory {
    ino: Mutex<Ino>,
    history: Mutex<Vec<Operation>>,
}

impl Names {
    /// So many directories.
    pub fn new(world: &Arc<World>, count: u32, pause_ms: u64) -> Arc<Self> {
        let directories = (0..count).map(|_| Directory::default()).collect();
        let events = AtomicU64::new(0);
        Arc::new(Self { world: world.clone(), directories, events, pause_ms })
    }

    fn event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the directories.
    pub async fn make(&self, mount: &Mount) -> Result<()> {
        let cred = Credentials::root();
        for (nth, directory) in self.directories.iter().enumerate() {
            let name = Bytes::from(format!("names-{nth}"));
            let new = NewFile::directory(0o755, 0);
            let made = mount.call("mkdir", mount.volume.make(&cred, ROOT, name, new)).await?;
            *directory.ino.lock() = made.ino;
        }
        Ok(())
    }

    /// Changes and looks at names until the workload ends.
    pub async fn work_on(&self, mount: &Mount, mut random: SplitMix64, is_over: impl Fn() -> bool) {
        let mut known = Vec::new();
        while !is_over() && !self.directories.is_empty() {
            let nth = random.below(self.directories.len() as u64) as usize;
            let ask = ask_of(&mut random, nth, &known);
            let told = self.carry_out(mount, nth, ask).await;
            if let (Ask::Create(_), Told::Inode(ino, _)) = (ask, told) {
                known.push((nth, ino));
                known.drain(..known.len().saturating_sub(4));
            }
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
    }

    /// An operation, noted before it begins: whoever asked may die.
    async fn carry_out(&self, mount: &Mount, nth: usize, ask: Ask) -> Told {
        let directory = &self.directories[nth];
        let at = {
            let began = self.event();
            let (client, told, ended) = (mount.number, Told::Unknown, u64::MAX);
            let mut history = directory.history.lock();
            history.push(Operation { client, ask, told, began, ended });
            history.len() - 1
        };
        let ino = *directory.ino.lock();
        let what = format!("in {nth} {ask:?}");
        let told = told_of(mount.call(&what, call(mount, ino, ask)).await);
        if told != Told::Unknown {
            let ended = self.event();
            let mut history = directory.history.lock();
            (history[at].told, history[at].ended) = (told.clone(), ended);
        }
        self.world.note(format_args!("client {} {what}: {told:?}", mount.number));
        told
    }

    /// Looks at all directories for the last time, judges what has happened in each, and removes all.
    pub async fn end(&self, mount: &Mount) -> Result<()> {
        for nth in 0..self.directories.len() {
            let listed = self.carry_out(mount, nth, Ask::List).await;
            let history = self.directories[nth].history.lock().clone();
            match judge(&history) {
                Verdict::Fits => {}
                Verdict::TooLong => self.world.note(format_args!("in {nth}: not judged")),
                Verdict::Impossible(why) => self.world.fail(format!("names in {nth}: {why}")),
            }
            let Told::Names(names) = listed else { continue };
            for (name, _) in names {
                if let Told::Refused(_) = self.carry_out(mount, nth, Ask::Unlink(name)).await {
                    self.carry_out(mount, nth, Ask::Rmdir(name)).await;
                }
            }
            let (cred, name) = (Credentials::root(), Bytes::from(format!("names-{nth}")));
            mount.call("rmdir", mount.volume.rmdir(&cred, ROOT, name)).await?;
        }
        Ok(())
    }
}

fn ask_of(random: &mut SplitMix64, nth: usize, known: &[(usize, u64)]) -> Ask {
    let name = random.below(NAMES) as Name;
    let other = (u64::from(name) + 1 + random.below(NAMES - 1)) % NAMES;
    let linked = known.iter().rev().find(|(directory, _)| *directory == nth);
    match random.below(12) {
        0..3 => Ask::Create(name),
        3 => Ask::Mkdir(name),
        4..6 => Ask::Unlink(name),
        6 => Ask::Rmdir(name),
        7 => linked.map_or(Ask::Lookup(name), |(_, ino)| Ask::Link(*ino, name)),
        8..10 => Ask::Rename(name, other as Name),
        10 => Ask::Lookup(name),
        _ => Ask::List,
    }
}

fn bytes(name: Name) -> Bytes {
    Bytes::from(format!("n{name}"))
}

fn shown(attr: &Attr) -> Told {
    Told::Inode(attr.ino.0, attr.nlink)
}

async fn call(mount: &Mount, ino: Ino, ask: Ask) -> Result<Told> {
    let (volume, cred) = (&mount.volume, Credentials::root());
    let cred = &cred;
    Ok(match ask {
        Ask::Create(name) => {
            let new = NewFile::node(FileKind::File, 0o644, 0, 0);
            shown(&volume.make(cred, ino, bytes(name), new).await?)
        }
        Ask::Mkdir(name) => {
            shown(&volume.make(cred, ino, bytes(name), NewFile::directory(0o755, 0)).await?)
        }
        Ask::Unlink(name) => shown(&volume.unlink(cred, ino, bytes(name)).await?),
        Ask::Rmdir(name) => volume.rmdir(cred, ino, bytes(name)).await.map(|_| Told::Done)?,
        Ask::Link(file, name) => shown(&volume.link(cred, Ino(file), ino, bytes(name)).await?),
        Ask::Rename(from, to) => {
            let flags = RenameFlags::default();
            let renamed = volume.rename(cred, ino, bytes(from), ino, bytes(to), flags);
            renamed.await.map(|_| Told::Done)?
        }
        Ask::Lookup(name) => shown(&volume.lookup(cred, ino, bytes(name)).await?),
        Ask::List => {
            let page = volume.readdir(cred, ino, 0, ENTRIES, false).await?;
            let entry = |entry: &strake_client::Entry| {
                let digit = entry.name.last().map_or(0, |last| last - b'0');
                (digit, entry.ino.0)
            };
            let mut names: Vec<_> = page.entries.iter().map(entry).collect();
            names.sort_unstable();
            Told::Names(names)
        }
    })
}

/// What an answer says of what has happened.
fn told_of(answer: Result<Told>) -> Told {
    use ErrorKind::{Exists, IsDirectory, NotDirectory, NotFound, Stale};
    match answer.map_err(|error| error.kind) {
        Ok(told) => told,
        // An inode without a name is one that is not there.
        Err(Stale) => Told::Refused(NotFound),
        Err(kind @ (Exists | IsDirectory | NotDirectory | NotFound)) => Told::Refused(kind),
        Err(_) => Told::Unknown,
    }
}
