//! Volumes that are open, one per address and name, however many paths lie in them.

use crate::info::Info;
use crate::local;
use crate::location::{Location, RemotePath};
use crate::mounts::Mounts;
use crate::place::{Directory, LocalPath, Name, RemoteDirectory};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use strake_client::{Volume, VolumeOptions};
use strake_types::{Attr, Credentials, Error, ErrorKind, FileKind, Result};

/// The volumes that a program uses, and in whose name.
pub struct Clients {
    options: VolumeOptions,
    cred: Arc<Credentials>,
    umask: u32,
    open: tokio::sync::Mutex<OpenVolumes>,
    mounts: Mutex<Mounts>,
}

/// By addresses and name.
type OpenVolumes = HashMap<(Vec<String>, String), Arc<Volume>>;

/// Where a path leads.
#[derive(Clone)]
pub struct Spot {
    /// The name in its directory. The directory exists.
    pub name: Name,
    /// What is there, if anything; a symbolic link counts as what it leads to.
    pub info: Option<Info>,
    /// What a copy of it would be called: the last part of the path, or the volume's name.
    pub base: Bytes,
}

/// The user of this process, whom servers check.
pub fn own_credentials() -> Credentials {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        checked: false,
    }
}

impl Clients {
    /// Acts in the name of this process's user.
    pub fn new(options: VolumeOptions) -> Self {
        let (open, mounts) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { options, cred: Arc::new(own_credentials()), umask: local::umask(), open, mounts }
    }

    /// In whose name.
    pub fn cred(&self) -> &Arc<Credentials> {
        &self.cred
    }

    /// The volume that a path lies in, opened at first use.
    pub async fn volume(&self, path: &RemotePath) -> Result<Arc<Volume>> {
        let key = (path.addresses.clone(), path.volume.clone());
        let mut open = self.open.lock().await;
        if let Some(volume) = open.get(&key) {
            return Ok(volume.clone());
        }
        let addresses = path.addresses.clone();
        let volume = Volume::connect_to(addresses, &path.volume, self.options.clone()).await?;
        open.insert(key, volume.clone());
        Ok(volume)
    }

    /// True if the volume that a path lies in is open.
    pub async fn has(&self, path: &RemotePath) -> bool {
        let key = (path.addresses.clone(), path.volume.clone());
        self.open.lock().await.contains_key(&key)
    }

    /// Uses a volume that is open already for every path at these addresses.
    pub async fn adopt(&self, addresses: Vec<String>, volume: Arc<Volume>) {
        let key = (addresses, volume.name().to_string());
        self.open.lock().await.insert(key, volume);
    }

    /// What is mounted as this device of this machine: a file there is from now on known to be the one that the volume has.
    pub async fn see_through(&self, device: u64, mounted: &RemotePath) -> Result<()> {
        let volume = self.volume(mounted).await?;
        // Whoever has mounted it has got there, and nothing but sameness is found out.
        let cred = Arc::new(Credentials::root());
        let root = volume.resolve(&cred, mounted.path.as_bytes()).await;
        let ino = root.map_err(|error| error.about(mounted))?.ino;
        let path = Bytes::from(mounted.path.clone());
        let mounted = RemoteDirectory { volume, ino, cred, umask: self.umask, path };
        self.mounts.lock().add(device, mounted);
        Ok(())
    }

    /// The mounts that are known.
    pub(crate) fn mounts(&self) -> Mounts {
        self.mounts.lock().clone()
    }

    /// Sends what is still unsent and ends every session.
    pub async fn close(&self) -> Result<()> {
        let volumes: Vec<_> = self.open.lock().await.drain().map(|(_, volume)| volume).collect();
        let mut result = Ok(());
        for volume in volumes {
            result = result.and(volume.close().await);
        }
        result
    }

    /// Follows a path. Its directory must exist.
    pub async fn find(&self, location: &Location) -> Result<Spot> {
        match location {
            Location::Local(path) => find_local(path, true).await,
            Location::Remote(path) => self.find_remote(path, true).await,
        }
    }

    /// As [`Clients::find`], but a symbolic link counts as what it is itself, wherever it leads.
    pub async fn find_itself(&self, location: &Location) -> Result<Spot> {
        match location {
            Location::Local(path) => find_local(path, false).await,
            Location::Remote(path) => self.find_remote(path, false).await,
        }
    }

    /// As [`Clients::find`], where something must be there.
    pub async fn existing(&self, location: &Location) -> Result<(Spot, Info)> {
        let spot = self.find(location).await?;
        match spot.info.clone() {
            Some(info) => Ok((spot, info)),
            None => Err(Error::with(ErrorKind::NotFound, location.to_string())),
        }
    }

    /// Who ends a path with a slash means a directory, and of a link what it leads to.
    async fn find_remote(&self, path: &RemotePath, follow: bool) -> Result<Spot> {
        let is_directory = path.path.ends_with('/');
        let spot = self.find_named(path, follow || is_directory).await?;
        match &spot.info {
            Some(info) if is_directory && info.kind != FileKind::Directory => {
                Err(Error::with(ErrorKind::NotDirectory, path.to_string()))
            }
            _ => Ok(spot),
        }
    }

    async fn find_named(&self, path: &RemotePath, follow: bool) -> Result<Spot> {
        let volume = self.volume(path).await?;
        let about = |error: Error| error.about(path);
        let parts: Vec<&str> = path.path.split('/').filter(|part| !part.is_empty()).collect();
        let (last, before) = match parts.split_last() {
            None => (".", &[][..]),
            Some((last, before)) => (*last, before),
        };
        let above = Bytes::from(format!("/{}", before.join("/")));
        let parent = volume.resolve(&self.cred, &above).await.map_err(about)?;
        let base = match parts.is_empty() {
            true => Bytes::from(path.volume.clone()),
            false => Bytes::copy_from_slice(last.as_bytes()),
        };
        let cred = self.cred.clone();
        let at = RemoteDirectory { volume, ino: parent.ino, cred, umask: self.umask, path: above };
        if last == ".." {
            let above = at.volume.lookup(&at.cred, at.ino, base).await.map_err(about)?;
            return Ok(at.spot_of(&above, last, Bytes::from_static(b".")));
        }
        let name = Bytes::copy_from_slice(last.as_bytes());
        // Whatever it leads to, a link that is there is there.
        let there = Directory::Remote(at.clone()).name(name);
        let link = there.info().await?;
        if !follow || link.as_ref().is_none_or(|link| link.kind != FileKind::Symlink) {
            return Ok(Spot { name: there, info: link, base });
        }
        match at.volume.resolve_at(&at.cred, at.ino, last.as_bytes()).await {
            Ok(attr) if attr.kind == FileKind::Directory => Ok(at.spot_of(&attr, last, base)),
            Ok(attr) => Ok(Spot { name: there, info: Some(Info::from(&attr)), base }),
            Err(error) if error.kind == ErrorKind::NotFound => {
                Ok(Spot { name: there, info: None, base })
            }
            Err(error) => Err(about(error)),
        }
    }
}

impl RemoteDirectory {
    /// Another directory of its volume, which that name leads to, by itself and not by a name.
    fn spot_of(self, directory: &Attr, name: &str, base: Bytes) -> Spot {
        let path = self.path_of(name.as_bytes());
        let there = Directory::Remote(RemoteDirectory { ino: directory.ino, path, ..self });
        let name = there.name(Bytes::from_static(b"."));
        Spot { name, info: Some(Info::from(directory)), base }
    }
}

async fn find_local(path: &Path, follow: bool) -> Result<Spot> {
    let about = |error: Error| error.about(path.display());
    // The path itself knows nothing of it.
    let is_dot = ends_with_dot(path);
    let (directory, name) = match (path.parent(), path.file_name()) {
        _ if is_dot => (path.components().as_path().to_path_buf(), &b"."[..]),
        (Some(parent), Some(name)) => (parent.to_path_buf(), name.as_bytes()),
        _ => (path.to_path_buf(), &b"."[..]),
    };
    let directory =
        if directory.as_os_str().is_empty() { Path::new(".").to_path_buf() } else { directory };
    let directory = LocalPath::from(directory);
    local::info(directory.clone(), true).await.map_err(about)?;
    let info = match local::info(path.to_path_buf().into(), follow).await {
        Ok(info) => Some(info),
        Err(error) if error.kind == ErrorKind::NotFound => None,
        Err(error) => return Err(about(error)),
    };
    let name = Bytes::copy_from_slice(name);
    let base = if &name[..] == b"." && !is_dot { canonical_base(path) } else { name.clone() };
    Ok(Spot { name: Directory::Local(directory).name(name), info, base })
}

/// True for `DIR/.`, which a copy knows by this name: what is in it goes into the target itself.
fn ends_with_dot(path: &Path) -> bool {
    let mut bytes = path.as_os_str().as_bytes();
    while let Some(before) = bytes.strip_suffix(b"/") {
        bytes = before;
    }
    bytes.ends_with(b"/.")
}

/// What `.`, `..` and `/` are called.
fn canonical_base(path: &Path) -> Bytes {
    let full = path.canonicalize().ok();
    let name = full.as_deref().and_then(Path::file_name).map(|name| name.as_bytes().to_vec());
    name.unwrap_or_else(|| b"root".to_vec()).into()
}
