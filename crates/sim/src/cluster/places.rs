//! Where files with contents are: in the root, or, in a volume of several shares and in every second run with one, in
//! directories, dealt out to all shares. There each file has two between which its owner moves it, and others are made,
//! written and removed all the time.

use super::mount::Mount;
use super::plan::Plan;
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use strake_base::random::SplitMix64;
use strake_client::{NewFile, RenameFlags};
use strake_types::{Attr, Credentials, Error, ErrorKind, Ino, Result};

/// Directories, where there are some.
const DIRECTORIES: usize = 4;
/// Entries asked for at once: all.
const ENTRIES: u32 = 100;
/// How often names are found in a directory that was just emptied.
const LATE_MAX: usize = 10;

/// As a kernel's: only those are answered from memory.
pub fn cred() -> Credentials {
    Credentials { checked: true, ..Credentials::root() }
}

/// The directories of files.
pub struct Directories {
    world: Arc<World>,
    /// None: all is in the root.
    directories: Vec<Mutex<Ino>>,
    /// Part of their names, so that they are in other shares of the volume with other seeds.
    salt: u64,
}

impl Directories {
    /// Those of a plan.
    pub fn new(world: &Arc<World>, plan: &Plan) -> Arc<Self> {
        // What others see of a name may go where the head loses what it has not synced.
        let spread = plan.head_loses() != Some(true) && world.stream(0x900c).percent(50);
        let count = if spread || plan.volume.shares.is_some() { DIRECTORIES } else { 0 };
        let directories = (0..count).map(|_| Mutex::default()).collect();
        let salt = world.stream(0x9005).below(1_000);
        Arc::new(Self { world: world.clone(), directories, salt })
    }

    /// True if there is more than one place for a file.
    pub fn are_several(&self) -> bool {
        !self.directories.is_empty()
    }

    /// One of them.
    pub fn get(&self, nth: usize) -> Ino {
        match self.directories.len() {
            0 => Ino::ROOT,
            count => *self.directories[nth % count].lock(),
        }
    }

    fn name(&self, nth: usize) -> Bytes {
        format!("files-{}-{nth}", self.salt).into()
    }

    /// Makes them.
    pub async fn make(&self, mount: &Mount) -> Result<()> {
        let cred = cred();
        for (nth, directory) in self.directories.iter().enumerate() {
            let new = NewFile::directory(0o755, 0);
            let made = mount.volume.make(&cred, Ino::ROOT, self.name(nth), new);
            *directory.lock() = mount.call("mkdir for files", made).await?.ino;
        }
        Ok(())
    }

    /// Removes them, with whatever is left of files that nobody else knows of. What a client asked for before it died
    /// may still be carried out meanwhile.
    pub async fn end(&self, mount: &Mount) -> Result<()> {
        for nth in 0..self.directories.len() {
            let mut removed = self.remove(mount, nth).await;
            for _ in 0..LATE_MAX {
                if !removed.as_ref().is_err_and(|error| error.kind == ErrorKind::NotEmpty) {
                    break;
                }
                removed = self.remove(mount, nth).await;
            }
            removed?;
        }
        Ok(())
    }

    async fn remove(&self, mount: &Mount, nth: usize) -> Result<()> {
        let (cred, directory, volume) = (cred(), self.get(nth), &mount.volume);
        let page = volume.readdir(&cred, directory, 0, ENTRIES, false);
        for entry in mount.call("list files", page).await?.entries {
            self.world.note(format_args!("left: {:?}", entry.name));
            let unlink = volume.unlink(&cred, directory, entry.name);
            match mount.call("unlink what is left", unlink).await {
                Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        mount.call("rmdir of files", volume.rmdir(&cred, Ino::ROOT, self.name(nth))).await.map(drop)
    }
}

/// Where a file is. Only its owner moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directories that it may be in, the one that it is in first.
    within: [usize; 2],
    /// How often it was moved.
    moves: u64,
    /// A move is under way, or nobody knows how it has ended: it stays where it is, here or there or both.
    unsure: bool,
}

impl Place {
    /// Of a new file.
    pub fn new(random: &mut SplitMix64) -> Self {
        let mut directory = || random.below(DIRECTORIES as u64) as usize;
        Place { within: [directory(), directory()], moves: 0, unsure: false }
    }

    /// The directory that it is made in.
    pub fn first(&self) -> usize {
        self.within[0]
    }

    fn is_known(&self) -> bool {
        !self.unsure
    }
}

/// A file's name, and where it is.
pub struct Whereabouts {
    directories: Arc<Directories>,
    place: Mutex<Place>,
    name: Bytes,
}

impl Whereabouts {
    /// Of a new file.
    pub fn new(directories: &Arc<Directories>, name: Bytes, random: &mut SplitMix64) -> Self {
        Self { directories: directories.clone(), place: Mutex::new(Place::new(random)), name }
    }

    /// Where it is made.
    pub fn birthplace(&self) -> (Ino, Bytes) {
        (self.directories.get(self.place.lock().first()), self.name.clone())
    }

    /// Its inode. Unless it is just being moved it is found, where it was moved last.
    pub async fn find(&self, mount: &Mount) -> Result<Attr> {
        let (cred, place) = (cred(), *self.place.lock());
        let candidates = if place.is_known() { 1 } else { 2 };
        for nth in &place.within[..candidates] {
            let directory = self.directories.get(*nth);
            let found = mount.volume.lookup(&cred, directory, self.name.clone());
            match mount.call(&format!("lookup {:?} in {nth}", self.name), found).await {
                Err(error) if error.kind == ErrorKind::NotFound => {}
                found => return found,
            }
        }
        match place.is_known() && *self.place.lock() == place {
            true => Err(Error::new(ErrorKind::NotFound)),
            false => Err(Error::with(ErrorKind::Unavailable, "it is being moved")),
        }
    }

    /// Moves the file to its other directory.
    pub async fn relocate(&self, mount: &Mount, random: &mut SplitMix64) -> Result<()> {
        let place = *self.place.lock();
        let [from, to] = place.within.map(|nth| self.directories.get(nth));
        if !place.is_known() || from == to {
            return Ok(());
        }
        self.place.lock().unsure = true;
        match random.percent(60) {
            true => self.rename(mount, from, to).await?,
            false => self.link_and_unlink(mount, from, to).await?,
        }
        let [from, to] = place.within;
        *self.place.lock() = Place { within: [to, from], moves: place.moves + 1, unsure: false };
        Ok(())
    }

    async fn rename(&self, mount: &Mount, from: Ino, to: Ino) -> Result<()> {
        let (cred, name, flags) = (cred(), self.name.clone(), RenameFlags::default());
        let renamed = mount.volume.rename(&cred, from, name.clone(), to, name, flags);
        mount.call(&format!("rename {:?}", self.name), renamed).await.map(drop)
    }

    async fn link_and_unlink(&self, mount: &Mount, from: Ino, to: Ino) -> Result<()> {
        let (cred, name, volume) = (cred(), &self.name, &mount.volume);
        let found = mount.call("lookup to link", volume.lookup(&cred, from, name.clone())).await?;
        let linked = volume.link(&cred, found.ino, to, name.clone());
        mount.call(&format!("link {name:?}"), linked).await?;
        let unlinked = volume.unlink(&cred, from, name.clone());
        mount.call(&format!("unlink {name:?}"), unlinked).await.map(drop)
    }

    /// Removes the file: one of its names at least is there.
    pub async fn remove(&self, mount: &Mount) -> Result<()> {
        let (cred, place) = (cred(), *self.place.lock());
        let candidates = if place.is_known() { 1 } else { 2 };
        let mut removed = Err(Error::new(ErrorKind::NotFound));
        for nth in &place.within[..candidates] {
            let unlink = mount.volume.unlink(&cred, self.directories.get(*nth), self.name.clone());
            match mount.call(&format!("unlink {:?} in {nth}", self.name), unlink).await {
                Err(error) if error.kind == ErrorKind::NotFound => {}
                other => removed = other.map(drop),
            }
        }
        removed
    }
}
