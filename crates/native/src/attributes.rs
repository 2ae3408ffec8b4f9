//! Owner, mode, times and extended attributes of a file, here or in a volume.

use crate::contents::{Contents, replaced};
use crate::info::Info;
use crate::local::Attributed;
use crate::place::{Directory, Name, RemoteDirectory};
use bytes::Bytes;
use std::sync::Arc;
use strake_client::{Volume, XattrFlags};
use strake_types::{Credentials, ErrorKind, FileKind, Ino, Result, SetAttr, SetTime, Timestamp};

/// The extended attributes that hold ACLs.
pub(crate) const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// A file whose attributes are looked at and set.
pub(crate) enum Inode {
    Local(Attributed),
    Remote(RemoteInode),
}

/// A file of a volume.
pub(crate) struct RemoteInode {
    volume: Arc<Volume>,
    cred: Arc<Credentials>,
    ino: Ino,
    /// User and group as they were when it was looked up.
    owner: (u32, u32),
    /// Its permission bits then.
    mode: u32,
    no_xattrs: bool,
}

impl Inode {
    /// A source, of which this is known; of a link that was named, what it leads to.
    pub async fn source(name: &Name, info: &Info) -> Result<Self> {
        match &name.directory {
            Directory::Local(path) => {
                let follow = info.kind != FileKind::Symlink;
                let opened = Attributed::open(path.at(&name.name), follow).await;
                Ok(Inode::Local(opened.map_err(|error| name.about(error))?.0))
            }
            Directory::Remote(remote) => Ok(Inode::remote(remote, info)),
        }
    }

    /// What was found under a name. An error if another one has it by now: somebody else may write to the directory, and would be
    /// given what that one is.
    pub async fn found(name: &Name, info: &Info) -> Result<Self> {
        if let Directory::Remote(remote) = &name.directory {
            return Ok(Inode::remote(remote, info));
        }
        let (inode, now) = Inode::named(name).await?;
        match (now.device, now.ino) == (info.device, info.ino) {
            true => Ok(inode),
            false => Err(name.about(replaced())),
        }
    }

    /// What has a name now, and what is known of it. A link is not followed.
    pub async fn named(name: &Name) -> Result<(Self, Info)> {
        match &name.directory {
            Directory::Local(path) => {
                let opened = Attributed::open(path.at(&name.name), false).await;
                let (file, now) = opened.map_err(|error| name.about(error))?;
                Ok((Inode::Local(file), now))
            }
            Directory::Remote(remote) => {
                let now = name.info().await?;
                let now = now.ok_or_else(|| name.about(ErrorKind::NotFound.into()))?;
                Ok((Inode::remote(remote, &now), now))
            }
        }
    }

    /// True if it has the same number as long as it is there.
    pub async fn keeps_number(&self) -> Result<bool> {
        match self {
            Inode::Local(file) => file.clone().keeps_number().await,
            Inode::Remote(_) => Ok(true),
        }
    }

    /// The file that was written, whatever its name stands for by now: somebody else may write to the directory.
    pub async fn of_contents(contents: &Contents) -> Result<Self> {
        Ok(match contents {
            Contents::Local(file, _) => Inode::Local(Attributed::of(file.clone())),
            Contents::Remote(volume, cred, file) => {
                let attr = volume.getattr(file.ino()).await?;
                Inode::Remote(RemoteInode {
                    volume: volume.clone(),
                    cred: cred.clone(),
                    ino: attr.ino,
                    owner: (attr.uid, attr.gid),
                    mode: attr.mode,
                    no_xattrs: attr.no_xattrs,
                })
            }
        })
    }

    fn remote(directory: &RemoteDirectory, info: &Info) -> Self {
        Inode::Remote(RemoteInode {
            volume: directory.volume.clone(),
            cred: directory.cred.clone(),
            ino: Ino(info.ino),
            owner: (info.uid, info.gid),
            mode: info.mode,
            no_xattrs: info.no_xattrs,
        })
    }

    /// Gives it an owner and a group, or the group alone where no more is allowed; false: not both.
    pub async fn set_owner(&self, uid: u32, gid: u32) -> Result<bool> {
        if self.try_owner(Some(uid), gid).await? {
            return Ok(true);
        }
        self.try_owner(None, gid).await?;
        Ok(false)
    }

    async fn try_owner(&self, uid: Option<u32>, gid: u32) -> Result<bool> {
        let r = match self {
            Inode::Local(file) => return file.clone().set_owner(uid, gid).await,
            Inode::Remote(r) => r,
        };
        if r.owner == (uid.unwrap_or(r.owner.0), gid) {
            return Ok(true);
        }
        let change = SetAttr { uid, gid: Some(gid), ..SetAttr::default() };
        match r.volume.setattr(&r.cred, r.ino, change, None).await {
            Err(error) if error.kind == ErrorKind::NotPermitted => Ok(false),
            set => set.map(|_| true),
        }
    }

    /// Gives rights to the mode of a regular file, and takes others away.
    pub async fn change_rights(&self, given: u32, taken: u32) -> Result<()> {
        let r = match self {
            Inode::Local(file) => return file.clone().change_rights(given, taken).await,
            Inode::Remote(r) => r,
        };
        let change = SetAttr { mode: Some(r.mode & !taken | given), ..SetAttr::default() };
        r.volume.setattr(&r.cred, r.ino, change, None).await.map(drop)
    }

    /// Mode, if there is one to be set (a symbolic link has none), and times.
    pub async fn set_mode_and_times(
        &self,
        mode: Option<u32>,
        atime: Timestamp,
        mtime: Timestamp,
    ) -> Result<()> {
        let r = match self {
            Inode::Local(file) => return file.clone().set_mode_and_times(mode, atime, mtime).await,
            Inode::Remote(r) => r,
        };
        let (atime, mtime) = (Some(SetTime::At(atime)), Some(SetTime::At(mtime)));
        let change = SetAttr { mode, atime, mtime, ..SetAttr::default() };
        r.volume.setattr(&r.cred, r.ino, change, None).await.map(drop)
    }

    /// Names of those extended attributes that copies carry, ACLs last: they may take away the right to set others.
    pub async fn xattr_names(&self) -> Result<Vec<Bytes>> {
        let names = match self {
            Inode::Local(file) => file.clone().xattr_names().await?,
            Inode::Remote(r) if r.no_xattrs => return Ok(Vec::new()),
            Inode::Remote(r) => r.volume.listxattr(&r.cred, r.ino).await?,
        };
        let names = names.split(|&byte| byte == 0).filter(|name| is_carried(name));
        let mut names: Vec<_> = names.map(Bytes::copy_from_slice).collect();
        names.sort_by_key(|name| is_acl(name));
        Ok(names)
    }

    /// The value of an extended attribute, if it is there.
    pub async fn xattr(&self, name: &Bytes) -> Result<Option<Bytes>> {
        let r = match self {
            Inode::Local(file) => return file.clone().xattr(name.clone()).await,
            Inode::Remote(r) => r,
        };
        match r.volume.getxattr(&r.cred, r.ino, name.clone()).await {
            Err(error) if error.kind == ErrorKind::NoAttribute => Ok(None),
            value => value.map(Some),
        }
    }

    /// Sets an extended attribute.
    pub async fn set_xattr(&self, name: &Bytes, value: Bytes) -> Result<()> {
        match self {
            Inode::Local(file) => file.clone().set_xattr(name.clone(), value).await,
            Inode::Remote(r) => {
                let flags = XattrFlags::default();
                r.volume.setxattr(&r.cred, r.ino, name.clone(), value, flags).await
            }
        }
    }

    /// Takes an extended attribute away.
    pub async fn remove_xattr(&self, name: &Bytes) -> Result<()> {
        match self {
            Inode::Local(file) => file.clone().remove_xattr(name.clone()).await,
            Inode::Remote(r) => r.volume.removexattr(&r.cred, r.ino, name.clone()).await,
        }
    }
}

/// True for an ACL.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    ACLS.contains(&name)
}

/// True for what belongs to the file. Where chunks lie belongs to the place, as does the label of SELinux.
fn is_carried(name: &[u8]) -> bool {
    let places: [&[u8]; 3] = [b"user.strake.", b"security.selinux", b"security.evm"];
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let starts = |with: &[&[u8]]| with.iter().any(|start| name.starts_with(start));
    is_acl(name) || (starts(&spaces) && !starts(&places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_the_place_of_a_file_is_not_carried() {
        for name in ["user.a", "user.strakes", "trusted.b", "security.capability"] {
            assert!(is_carried(name.as_bytes()), "{name}");
        }
        for acl in ACLS {
            assert!(is_carried(acl));
        }
        let not = ["", "user.strake.layout.width", "security.selinux", "system.nfs4_acl", "user"];
        for name in not {
            assert!(!is_carried(name.as_bytes()), "{name}");
        }
    }
}
