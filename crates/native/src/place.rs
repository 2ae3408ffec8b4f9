//! Directories and names, here or in a volume, behind one face: what a walk and a copy need.

use crate::info::Info;
use crate::local;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use strake_client::{NewFile, OpenFile, OpenFlags, RenameFlags, Volume};
use strake_types::limits::PATH_BYTES_MAX;
use strake_types::{Credentials, Error, ErrorKind, FileKind, Ino, Result};

pub use crate::local::LocalPath;

/// Entries asked for at once.
const PAGE_ENTRIES: u32 = 4096;

/// A directory.
#[derive(Clone)]
pub enum Directory {
    /// Of this machine.
    Local(LocalPath),
    /// Of a volume.
    Remote(RemoteDirectory),
}

/// A directory of a volume, and in whose name it is used.
#[derive(Clone)]
pub struct RemoteDirectory {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The directory.
    pub ino: Ino,
    /// Who asks.
    pub cred: Arc<Credentials>,
    /// What he takes from the mode of all that he makes, where no default ACL says more.
    pub umask: u32,
    /// Its path in the volume, as it was found: for messages.
    pub path: Bytes,
}

/// A name in a directory; there may be nothing of that name.
#[derive(Clone)]
pub struct Name {
    /// Where.
    pub directory: Directory,
    /// The name; `.` is the directory itself.
    pub name: Bytes,
}

/// What is in a directory.
#[derive(Default)]
pub struct Listing {
    /// Everything that can be looked at, in no particular order.
    pub entries: Vec<(Name, Info)>,
    /// Why other entries cannot, each with its name.
    pub failed: Vec<Error>,
}

impl Listing {
    /// All of it, or why an entry is not.
    pub fn whole(mut self) -> Result<Vec<(Name, Info)>> {
        self.failed.pop().map_or(Ok(self.entries), Err)
    }
}

impl Directory {
    /// A name in it.
    pub fn name(&self, name: Bytes) -> Name {
        Name { directory: self.clone(), name }
    }

    /// Everything in it.
    pub async fn list(&self) -> Result<Listing> {
        let path = match self {
            Directory::Local(path) => path.clone(),
            Directory::Remote(remote) => {
                let entries = self.list_remote(remote).await?;
                return Ok(Listing { entries, ..Listing::default() });
            }
        };
        let mut listing = Listing::default();
        for (name, info) in local::list(path).await? {
            let name = self.name(name);
            match info {
                Ok(info) => listing.entries.push((name, info)),
                Err(error) => listing.failed.push(name.about(error)),
            }
        }
        Ok(listing)
    }

    /// The names in it that are `wanted`, in no particular order.
    pub(crate) async fn names(&self, wanted: fn(&[u8]) -> bool) -> Result<Vec<Name>> {
        let names = match self {
            Directory::Local(path) => local::names(path.clone(), wanted).await?,
            Directory::Remote(remote) => remote.names(wanted).await?,
        };
        Ok(names.into_iter().map(|name| self.name(name)).collect())
    }

    /// Returns when the names in it are on disk; in a volume, everything that this program has changed there.
    pub(crate) async fn sync(&self) -> Result<()> {
        match self {
            Directory::Local(path) => {
                let synced = local::sync_directory(path.clone()).await;
                synced.map_err(|error| self.name(Bytes::from_static(b".")).about(error))
            }
            Directory::Remote(remote) => remote.volume.sync_all().await,
        }
    }

    async fn list_remote(&self, remote: &RemoteDirectory) -> Result<Vec<(Name, Info)>> {
        let (mut entries, mut after) = (Vec::new(), 0);
        loop {
            let page =
                remote.volume.readdir(&remote.cred, remote.ino, after, PAGE_ENTRIES, true).await?;
            let Some(last) = page.entries.last() else { return Ok(entries) };
            after = last.cookie;
            for entry in page.entries {
                let name = self.name(entry.name);
                match entry.attr {
                    Some(attr) => entries.push((name, Info::from(&attr))),
                    None => entries.extend(name.info().await?.map(|info| (name, info))),
                }
            }
            if page.end {
                return Ok(entries);
            }
        }
    }
}

impl RemoteDirectory {
    /// The path of a name in it.
    pub(crate) fn path_of(&self, name: &[u8]) -> Bytes {
        match name {
            b"." => self.path.clone(),
            name => [self.path.strip_suffix(b"/").unwrap_or(&self.path), name].join(&b'/').into(),
        }
    }

    /// The same volume can be open twice, by different addresses.
    pub(crate) fn shares_volume(&self, other: &RemoteDirectory) -> bool {
        let cluster = |directory: &RemoteDirectory| directory.volume.map().current();
        self.volume.id() == other.volume.id() && cluster(self).cluster == cluster(other).cluster
    }

    async fn names(&self, wanted: fn(&[u8]) -> bool) -> Result<Vec<Bytes>> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let page =
                self.volume.readdir(&self.cred, self.ino, after, PAGE_ENTRIES, false).await?;
            let Some(last) = page.entries.last() else { return Ok(names) };
            after = last.cookie;
            let found = page.entries.into_iter().map(|entry| entry.name);
            names.extend(found.filter(|name| wanted(name)));
            if page.end {
                return Ok(names);
            }
        }
    }

    /// Opens what a link in it leads to.
    pub(crate) async fn open_led_to(&self, link: &[u8], flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let led_to = self.volume.resolve_at(&self.cred, self.ino, link).await;
        match led_to {
            Ok(attr) => self.volume.open(&self.cred, attr.ino, flags).await,
            Err(error) if error.kind == ErrorKind::NotFound => {
                let detail =
                    "it is a symbolic link that leads nowhere; remove it, or make what it leads to";
                Err(Error::with(ErrorKind::NotFound, detail))
            }
            Err(error) => Err(error),
        }
    }

    /// True if it is the directory `outer` of its volume or lies below it.
    pub(crate) async fn is_within(&self, outer: Ino) -> Result<bool> {
        let mut at = self.ino;
        for _ in 0..PATH_BYTES_MAX {
            if at == outer || at == Ino::ROOT {
                return Ok(at == outer);
            }
            at = self.volume.lookup(&self.cred, at, Bytes::from_static(b"..")).await?.ino;
        }
        Err(ErrorKind::NameTooLong.into())
    }
}

impl Name {
    /// Where it is, if that is on this machine.
    pub(crate) fn local(&self) -> Option<LocalPath> {
        match &self.directory {
            Directory::Local(path) => Some(path.at(&self.name)),
            Directory::Remote(_) => None,
        }
    }

    /// The whole path of it.
    pub(crate) fn local_path(&self) -> Option<PathBuf> {
        self.local().map(|path| path.path())
    }

    /// For messages.
    pub fn shown(&self) -> String {
        match &self.directory {
            Directory::Local(path) => path.at(&self.name).path().display().to_string(),
            Directory::Remote(remote) => {
                let path = remote.path_of(&self.name);
                let path = String::from_utf8_lossy(&path);
                format!("\"{path}\" in volume {}", remote.volume.name())
            }
        }
    }

    /// Adds to an error what it was about.
    pub(crate) fn about(&self, error: Error) -> Error {
        error.about(self.shown())
    }

    /// What is there, if anything. A symbolic link is not followed.
    pub async fn info(&self) -> Result<Option<Info>> {
        let found = match &self.directory {
            Directory::Local(_) => local::info(self.path(), false).await,
            Directory::Remote(r) => {
                let attr = r.volume.lookup(&r.cred, r.ino, self.name.clone()).await;
                attr.map(|attr| Info::from(&attr))
            }
        };
        match found {
            Ok(info) => Ok(Some(info)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.about(error)),
        }
    }

    /// The directory of this name.
    pub async fn enter(&self) -> Result<Directory> {
        let directory = match &self.directory {
            Directory::Local(_) => {
                return Ok(Directory::Local(self.local_path().unwrap_or_default().into()));
            }
            Directory::Remote(remote) => remote,
        };
        let found =
            directory.volume.lookup(&directory.cred, directory.ino, self.name.clone()).await;
        let attr = found.map_err(|error| self.about(error))?;
        match attr.kind {
            FileKind::Directory => {
                let path = directory.path_of(&self.name);
                Ok(Directory::Remote(RemoteDirectory { ino: attr.ino, path, ..directory.clone() }))
            }
            _ => Err(self.about(ErrorKind::NotDirectory.into())),
        }
    }

    /// The directory of this name that a copy has made or found. A link in its place is not followed.
    pub(crate) async fn enter_made(&self) -> Result<Directory> {
        match &self.directory {
            Directory::Local(_) => Ok(Directory::Local(self.path().below())),
            Directory::Remote(_) => self.enter().await,
        }
    }

    /// Makes a directory, or finds it there, and enters it.
    pub async fn make_directory(&self, mode: u32) -> Result<Directory> {
        let made = match &self.directory {
            Directory::Local(_) => local::make_directory(self.path(), mode).await,
            Directory::Remote(r) => {
                let new = NewFile::directory(mode, r.umask);
                r.volume.make(&r.cred, r.ino, self.name.clone(), new).await.map(drop)
            }
        };
        match made {
            Err(error) if error.kind != ErrorKind::Exists => Err(self.about(error)),
            _ => self.enter_made().await,
        }
    }

    /// Where a symbolic link leads.
    pub async fn read_link(&self) -> Result<Bytes> {
        let target = match &self.directory {
            Directory::Local(_) => local::read_link(self.path()).await,
            Directory::Remote(r) => {
                let attr = r.volume.lookup(&r.cred, r.ino, self.name.clone()).await;
                match attr {
                    Ok(attr) => r.volume.readlink(&r.cred, attr.ino).await,
                    Err(error) => Err(error),
                }
            }
        };
        target.map_err(|error| self.about(error))
    }

    /// Makes a symbolic link.
    pub async fn make_link(&self, target: Bytes) -> Result<()> {
        let made = match &self.directory {
            Directory::Local(_) => local::make_link(self.path(), target).await,
            Directory::Remote(r) => {
                let new = NewFile::symlink(target);
                r.volume.make(&r.cred, r.ino, self.name.clone(), new).await.map(drop)
            }
        };
        made.map_err(|error| self.about(error))
    }

    /// Makes a pipe, a socket's name or a device node.
    pub async fn make_node(&self, info: &Info) -> Result<()> {
        let made = match &self.directory {
            Directory::Local(_) => local::make_node(self.path(), info.clone()).await,
            Directory::Remote(r) => {
                let new = NewFile::node(info.kind, info.mode, r.umask, info.rdev);
                r.volume.make(&r.cred, r.ino, self.name.clone(), new).await.map(drop)
            }
        };
        made.map_err(|error| self.about(error))
    }

    /// Makes it a further name of a file that another name, here as well or in the same volume, has.
    pub async fn link_to(&self, other: &Name, info: &Info) -> Result<()> {
        let made = match &self.directory {
            Directory::Local(_) => local::hard_link(other.path(), self.path()).await,
            Directory::Remote(r) => {
                let name = self.name.clone();
                r.volume.link(&r.cred, Ino(info.ino), r.ino, name).await.map(drop)
            }
        };
        made.map_err(|error| self.about(error))
    }

    /// Returns when the directory of what a link leads to is on disk, as far as it is one of this machine.
    pub(crate) async fn sync_led_to(&self) -> Result<()> {
        let Some(path) = self.local() else { return Ok(()) };
        let synced = match local::directory_led_to(path).await {
            Ok(directory) => local::sync_directory(directory.into()).await,
            Err(error) => Err(error),
        };
        synced.map_err(|error| self.about(error))
    }

    /// Removes whatever has this name; a directory must be empty.
    pub async fn remove(&self, directory: bool) -> Result<()> {
        let removed = match &self.directory {
            Directory::Local(_) => local::remove(self.path(), directory).await,
            Directory::Remote(r) if directory => {
                r.volume.rmdir(&r.cred, r.ino, self.name.clone()).await.map(drop)
            }
            Directory::Remote(r) => {
                r.volume.unlink(&r.cred, r.ino, self.name.clone()).await.map(drop)
            }
        };
        removed.map_err(|error| self.about(error))
    }

    /// Gives it another name in the same directory, in place of what has that name.
    pub async fn rename(&self, to: &Bytes) -> Result<()> {
        let renamed = match &self.directory {
            Directory::Local(path) => local::rename(self.path(), path.at(to)).await,
            Directory::Remote(r) => {
                let (name, flags) = (self.name.clone(), RenameFlags::default());
                let moved = r.volume.rename(&r.cred, r.ino, name, r.ino, to.clone(), flags).await;
                moved.map(drop)
            }
        };
        renamed.map_err(|error| self.about(error))
    }

    fn path(&self) -> LocalPath {
        self.local().unwrap_or_default()
    }
}
