//! The workload on names: all clients change the same few directories, and move names between them. What
//! they were told must be the history of plain directories (see [`strake_model::history`]).

use super::files::consider;
use super::mount::Mount;
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{NewFile, RenameFlags};
use strake_model::history::Verdict;
use strake_model::history::names::{Ask, How, Name, Operation, Told, judge};
use strake_types::{Attr, Credentials, ErrorKind, FileKind, Ino, Result};

/// Names in each directory.
const NAMES: u64 = 4;
/// Entries asked for at once: all.
const ENTRIES: u32 = 100;
/// How often names are found in a directory that was just emptied.
const LATE_MAX: usize = 10;

/// Directories, and what has happened in them.
pub struct Names {
    world: Arc<World>,
    directories: Vec<Mutex<Ino>>,
    /// Part of their names, so that they are in other shares of the volume with other seeds.
    salt: u64,
    history: Mutex<Vec<Operation>>,
    /// Counts beginnings and ends of operations.
    events: AtomicU64,
    /// Longest pause between two operations of a client.
    pause_ms: u64,
}

impl Names {
    /// So many directories.
    pub fn new(world: &Arc<World>, count: u32, pause_ms: u64) -> Arc<Self> {
        let directories = (0..count).map(|_| Mutex::default()).collect();
        let (history, events) = Default::default();
        let salt = world.stream(0x9004).below(1_000);
        Arc::new(Self { world: world.clone(), directories, salt, history, events, pause_ms })
    }

    fn directory_name(&self, nth: usize) -> Bytes {
        format!("names-{}-{nth}", self.salt).into()
    }

    fn event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the directories.
    pub async fn make(&self, mount: &Mount) -> Result<()> {
        let cred = Credentials::root();
        for (nth, directory) in self.directories.iter().enumerate() {
            let name = self.directory_name(nth);
            let new = NewFile::directory(0o755, 0);
            let made = mount.call("mkdir", mount.volume.make(&cred, Ino::ROOT, name, new)).await?;
            *directory.lock() = made.ino;
        }
        Ok(())
    }

    /// Changes and looks at names until the workload ends.
    pub async fn work_on(&self, mount: &Mount, mut random: SplitMix64, is_over: impl Fn() -> bool) {
        let mut known = Vec::new();
        while !is_over() && !self.directories.is_empty() {
            let ask = ask_of(&mut random, self.directories.len() as u64, &known);
            let told = self.carry_out(mount, ask).await;
            if let (Ask::Create(_), Told::Inode(ino, _)) = (ask, told) {
                known.push(ino);
                known.drain(..known.len().saturating_sub(4));
            }
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
    }

    /// An operation, noted before it begins: whoever asked may die.
    async fn carry_out(&self, mount: &Mount, ask: Ask) -> Told {
        let at = {
            let began = self.event();
            let (client, told, ended) = (mount.number, Told::Unknown, u64::MAX);
            let mut history = self.history.lock();
            history.push(Operation { client, ask, told, began, ended });
            history.len() - 1
        };
        let what = format!("{ask:?}");
        let answer = mount.call(&what, self.call(mount, ask)).await;
        let failed = answer.as_ref().err().map(|error| error.kind);
        consider(&self.world, failed.filter(|kind| refusal(*kind).is_none()));
        let told = told_of(answer);
        if told != Told::Unknown {
            let ended = self.event();
            let mut history = self.history.lock();
            (history[at].told, history[at].ended) = (told.clone(), ended);
        }
        self.world.note(format_args!("client {} {what}: {told:?}", mount.number));
        told
    }

    /// Looks at all directories, judges what has happened, and removes all. What a client asked for before
    /// it died may still be carried out meanwhile.
    pub async fn end(&self, mount: &Mount) -> Result<()> {
        let mut left = Vec::new();
        for nth in 0..self.directories.len() {
            left.push(self.list(mount, nth).await);
        }
        match judge(&self.history.lock()) {
            Verdict::Fits => strake_base::count_case("history-judged"),
            Verdict::TooLong => {
                strake_base::count_case("history-not-judged");
                self.world.note(format_args!("names: not judged"));
            }
            Verdict::Impossible(why) => self.world.fail(format!("names: {why}")),
        }
        for (nth, names) in left.into_iter().enumerate() {
            let mut removed = self.remove(mount, nth, names).await;
            for _ in 0..LATE_MAX {
                if !removed.as_ref().is_err_and(|error| error.kind == ErrorKind::NotEmpty) {
                    break;
                }
                let late = self.list(mount, nth).await;
                removed = self.remove(mount, nth, late).await;
            }
            removed?;
        }
        Ok(())
    }

    /// All names in a directory.
    async fn list(&self, mount: &Mount, nth: usize) -> Vec<Name> {
        match self.carry_out(mount, Ask::List(nth as u8)).await {
            Told::Names(names) => names.into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        }
    }

    /// Removes a directory with these names.
    async fn remove(&self, mount: &Mount, nth: usize, names: Vec<Name>) -> Result<()> {
        for name in names {
            if let Told::Refused(_) = self.carry_out(mount, Ask::Unlink(name)).await {
                self.carry_out(mount, Ask::Rmdir(name)).await;
            }
        }
        let (cred, name) = (Credentials::root(), self.directory_name(nth));
        mount.call("rmdir", mount.volume.rmdir(&cred, Ino::ROOT, name)).await.map(drop)
    }

    /// The inode of the directory of a name, and the name there.
    fn place(&self, name: Name) -> (Ino, Bytes) {
        (*self.directories[usize::from(name.within)].lock(), Bytes::from(format!("n{}", name.name)))
    }

    async fn call(&self, mount: &Mount, ask: Ask) -> Result<Told> {
        // As a kernel's: only those are answered from memory.
        let cred = &Credentials { checked: true, ..Credentials::root() };
        let volume = &mount.volume;
        Ok(match ask {
            Ask::Create(name) => {
                let ((ino, name), new) =
                    (self.place(name), NewFile::node(FileKind::File, 0o644, 0, 0));
                shown(&volume.make(cred, ino, name, new).await?)
            }
            Ask::Mkdir(name) => {
                let ((ino, name), new) = (self.place(name), NewFile::directory(0o755, 0));
                shown(&volume.make(cred, ino, name, new).await?)
            }
            Ask::Unlink(name) => {
                let (ino, name) = self.place(name);
                shown(&volume.unlink(cred, ino, name).await?)
            }
            Ask::Rmdir(name) => {
                let (ino, name) = self.place(name);
                volume.rmdir(cred, ino, name).await.map(|_| Told::Done)?
            }
            Ask::Link(file, name) => {
                let (ino, name) = self.place(name);
                shown(&volume.link(cred, Ino(file), ino, name).await?)
            }
            Ask::Rename(from, to, how) => {
                let ((ino, from), (into, to)) = (self.place(from), self.place(to));
                let flags =
                    RenameFlags { no_replace: how == How::ToFree, exchange: how == How::Exchange };
                volume.rename(cred, ino, from, into, to, flags).await.map(|_| Told::Done)?
            }
            Ask::Lookup(name) => {
                let (ino, name) = self.place(name);
                shown(&volume.lookup(cred, ino, name).await?)
            }
            Ask::List(within) => {
                let ino = *self.directories[usize::from(within)].lock();
                let page = volume.readdir(cred, ino, 0, ENTRIES, false).await?;
                let entry = |entry: &strake_client::Entry| {
                    let name = entry.name.last().map_or(0, |last| last - b'0');
                    (Name { within, name }, entry.ino.0)
                };
                let mut names: Vec<_> = page.entries.iter().map(entry).collect();
                names.sort_unstable();
                Told::Names(names)
            }
        })
    }
}

fn ask_of(random: &mut SplitMix64, directories: u64, known: &[u64]) -> Ask {
    let mut any =
        || Name { within: random.below(directories) as u8, name: random.below(NAMES) as u8 };
    let (name, mut other) = (any(), any());
    if other == name {
        other.name = (other.name + 1) % NAMES as u8;
    }
    match random.below(18) {
        0..3 => Ask::Create(name),
        3 => Ask::Mkdir(name),
        4..6 => Ask::Unlink(name),
        6 => Ask::Rmdir(name),
        7 => known.last().map_or(Ask::Lookup(name), |ino| Ask::Link(*ino, name)),
        8..10 => Ask::Rename(name, other, How::Over),
        10 => Ask::Rename(name, other, How::ToFree),
        11 => Ask::Rename(name, other, How::Exchange),
        12..15 => Ask::Lookup(name),
        _ => Ask::List(name.within),
    }
}

fn shown(attr: &Attr) -> Told {
    Told::Inode(attr.ino.0, attr.nlink)
}

/// What an answer says of what has happened.
fn told_of(answer: Result<Told>) -> Told {
    match answer {
        Ok(told) => told,
        Err(error) => refusal(error.kind).map_or(Told::Unknown, Told::Refused),
    }
}

/// What an error says of the names that there are; nothing: trouble has to explain it.
fn refusal(kind: ErrorKind) -> Option<ErrorKind> {
    use ErrorKind::{Exists, IsDirectory, NotDirectory, NotFound, Stale};
    match kind {
        // An inode without a name is one that is not there.
        Stale => Some(NotFound),
        Exists | IsDirectory | NotDirectory | NotFound => Some(kind),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of any kind was taken for one of which nobody knows what was done.
    #[test]
    fn an_error_that_says_nothing_of_names_has_to_be_explained() {
        use ErrorKind::{Corrupt, Exists, Invalid, NotEmpty, NotFound, Stale, Unavailable};
        assert_eq!((refusal(Exists), refusal(Stale)), (Some(Exists), Some(NotFound)));
        for kind in [Corrupt, Invalid, NotEmpty, Unavailable] {
            assert_eq!(refusal(kind), None);
            assert_eq!(told_of(Err(strake_types::Error::new(kind))), Told::Unknown);
        }
    }
}
