//! Volumes that are mounted on this machine: a file in a mount and the same one in its volume are one.

use crate::info::Info;
use crate::local;
use crate::place::{Directory, Name, RemoteDirectory};
use strake_types::{Error, ErrorKind, FileKind, Ino, Result, VolumeId};

/// The number that the kernel gives to the root of each mount.
const MOUNT_ROOT: u64 = 1;

/// The mounts that paths of this machine may lie in.
#[derive(Clone, Default)]
pub(crate) struct Mounts {
    all: Vec<Mount>,
}

#[derive(Clone)]
struct Mount {
    /// By which `stat` tells that a file lies in it.
    device: u64,
    /// The directory of the volume that is mounted.
    root: RemoteDirectory,
}

/// Which file something is, whatever its name and through whichever mount.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// One of this machine.
    Local { device: u64, ino: u64 },
    /// One of a volume.
    Remote { cluster: String, volume: VolumeId, ino: Ino },
}

impl Identity {
    /// True if both lie on the same device of this machine.
    pub fn lies_beside(&self, other: &Identity) -> bool {
        match (self, other) {
            (Identity::Local { device, .. }, Identity::Local { device: of_other, .. }) => {
                device == of_other
            }
            _ => false,
        }
    }
}

impl Mounts {
    /// A directory of a volume is mounted as this device.
    pub fn add(&mut self, device: u64, root: RemoteDirectory) {
        self.all.retain(|mount| mount.device != device);
        self.all.push(Mount { device, root });
    }

    /// Which file `info` is of, found in `directory`.
    pub fn identity(&self, directory: &Directory, info: &Info) -> Identity {
        let in_volume = match directory {
            Directory::Remote(remote) => Some((remote, Ino(info.ino))),
            Directory::Local(_) => self.through(info),
        };
        match in_volume {
            Some((remote, ino)) => identity_in(remote, ino),
            None => Identity::Local { device: info.device, ino: info.ino },
        }
    }

    /// Which directory it is.
    pub async fn identity_of(&self, directory: &Directory) -> Result<Identity> {
        match directory {
            Directory::Remote(remote) => Ok(identity_in(remote, remote.ino)),
            Directory::Local(path) => {
                Ok(self.identity(directory, &local::info(path.clone(), true).await?))
            }
        }
    }

    /// True if what is `there` under the name `to` is the file `from`, also by links.
    pub async fn are_same(
        &self,
        (to, there): (&Name, &Info),
        (from, info): (&Name, &Info),
    ) -> Result<bool> {
        let there = match (to.local(), there.kind) {
            (Some(path), FileKind::Symlink) => match local::info(path, true).await {
                Ok(led_to) => {
                    self.check_known(to, &led_to, (from, info)).await?;
                    led_to
                }
                // A link that leads nowhere.
                Err(_) => return Ok(false),
            },
            _ => there.clone(),
        };
        Ok(self.identity(&to.directory, &there) == self.identity(&from.directory, info))
    }

    /// Fails if a link leads into a mount of which nobody knows what is mounted: what is there may be what is read.
    async fn check_known(
        &self,
        to: &Name,
        led_to: &Info,
        (from, info): (&Name, &Info),
    ) -> Result<()> {
        let beside = from.local().is_some() && info.device == led_to.device;
        if beside || self.through(led_to).is_some() || !local::is_in_mount(led_to.device).await? {
            return Ok(());
        }
        let detail = "is a link to a file in a mount of a volume, which may be the very file that is read; name that file instead";
        Err(to.about(Error::with(ErrorKind::Invalid, detail)))
    }

    /// True if `inner` is the directory `outer` or lies below it.
    pub async fn is_within(&self, inner: &Directory, outer: &Directory) -> Result<bool> {
        if let (Directory::Local(inner), Directory::Local(outer)) = (inner, outer)
            && local::is_within(inner.clone(), outer.clone()).await?
        {
            return Ok(true);
        }
        match (self.in_volume(inner).await?, self.in_volume(outer).await?) {
            (Some(inner), Some(outer)) if inner.shares_volume(&outer) => {
                inner.is_within(outer.ino).await
            }
            _ => Ok(false),
        }
    }

    /// The directory of a volume that it is, through a mount or by itself.
    async fn in_volume(&self, directory: &Directory) -> Result<Option<RemoteDirectory>> {
        let path = match directory {
            Directory::Remote(remote) => return Ok(Some(remote.clone())),
            Directory::Local(_) if self.all.is_empty() => return Ok(None),
            Directory::Local(path) => path.clone(),
        };
        let info = local::info(path, true).await?;
        let found = self.through(&info);
        Ok(found.map(|(root, ino)| RemoteDirectory { ino, ..root.clone() }))
    }

    /// The mounted directory below which a file of this machine lies, and its number in the volume.
    fn through(&self, info: &Info) -> Option<(&RemoteDirectory, Ino)> {
        let mount = self.all.iter().find(|mount| mount.device == info.device)?;
        let ino = match info.ino {
            MOUNT_ROOT => mount.root.ino,
            ino => Ino(ino),
        };
        Some((&mount.root, ino))
    }
}

fn identity_in(remote: &RemoteDirectory, ino: Ino) -> Identity {
    let cluster = remote.volume.map().current().cluster.clone();
    Identity::Remote { cluster, volume: remote.volume.id(), ino }
}
