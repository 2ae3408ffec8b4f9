//! The name spaces of extended attributes, and who may do what in each.

use crate::ctx::Ctx;
use crate::layout::text::LayoutField;
use crate::records::Inode;
use strake_types::access::{READ, STICKY, WRITE};
use strake_types::limits::XATTR_NAME_BYTES_MAX;
use strake_types::{Error, ErrorKind, FileKind, Result};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// `user.`: for whoever may read and write the file.
    User,
    /// `trusted.`: for root.
    Trusted,
    /// `security.`: everybody reads, root writes.
    Security,
    /// The access ACL.
    AclAccess,
    /// The default ACL.
    AclDefault,
    /// A part of the layout.
    Layout(LayoutField),
}

impl Space {
    /// What a name stands for.
    pub fn of(name: &[u8]) -> Result<Self> {
        if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Error::new(ErrorKind::Range));
        }
        let unknown = || Error::new(ErrorKind::NotSupported);
        match name {
            b"system.posix_acl_access" => return Ok(Space::AclAccess),
            b"system.posix_acl_default" => return Ok(Space::AclDefault),
            _ => {}
        }
        if let Some(field) = name.strip_prefix(b"user.strake.layout.") {
            return match field {
                b"chunk_size" => Ok(Space::Layout(LayoutField::ChunkSize)),
                b"width" => Ok(Space::Layout(LayoutField::Width)),
                b"distribution" => Ok(Space::Layout(LayoutField::Distribution)),
                b"targets" => Ok(Space::Layout(LayoutField::Targets)),
                b"copies" => Ok(Space::Layout(LayoutField::Copies)),
                b"ack" => Ok(Space::Layout(LayoutField::Ack)),
                b"min_copies" => Ok(Space::Layout(LayoutField::MinCopies)),
                b"consistency" => Ok(Space::Layout(LayoutField::Consistency)),
                _ => Err(Error::with(
                    ErrorKind::Invalid,
                    "user.strake.layout has chunk_size, width, distribution, targets, copies, ack, min_copies and consistency",
                )),
            };
        }
        let (space, rest) = match name.iter().position(|&b| b == b'.') {
            Some(dot) => name.split_at(dot + 1),
            None => return Err(unknown()),
        };
        let space = match space {
            b"user." => Space::User,
            b"trusted." => Space::Trusted,
            b"security." => Space::Security,
            _ => return Err(unknown()),
        };
        match rest.is_empty() {
            true => Err(Error::new(ErrorKind::Invalid)),
            false => Ok(space),
        }
    }

    /// Fails unless the caller may read attributes of this space.
    pub fn check_read(self, ctx: &Ctx, inode: &Inode) -> Result<()> {
        let absent = || Err(Error::new(ErrorKind::NoAttribute));
        match self {
            Space::User if !has_user_space(inode) => absent(),
            Space::User => ctx.check(inode, READ),
            Space::Trusted if ctx.cred.uid != 0 => absent(),
            _ => Ok(()),
        }
    }

    /// Fails unless the caller may change attributes of this space.
    pub fn check_write(self, ctx: &Ctx, inode: &Inode) -> Result<()> {
        let refused = || Err(Error::new(ErrorKind::NotPermitted));
        match self {
            Space::User if !has_user_space(inode) => refused(),
            Space::User => {
                // In a sticky directory everybody may write: only its owner marks it.
                if inode.is_dir() && inode.mode & STICKY != 0 {
                    ctx.check_owner(inode)?;
                }
                ctx.check(inode, WRITE)
            }
            Space::Trusted if ctx.cred.uid != 0 => refused(),
            Space::Security if ctx.checks() && ctx.cred.uid != 0 => refused(),
            Space::Trusted | Space::Security => Ok(()),
            Space::AclAccess | Space::AclDefault => match inode.file_kind() {
                FileKind::Symlink => Err(Error::new(ErrorKind::NotSupported)),
                _ => ctx.check_owner(inode),
            },
            Space::Layout(_) if !has_user_space(inode) => refused(),
            Space::Layout(_) => ctx.check(inode, WRITE),
        }
    }
}

fn has_user_space(inode: &Inode) -> bool {
    inode.is_file() || inode.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_into_spaces() {
        assert_eq!(Space::of(b"user.a").unwrap(), Space::User);
        assert_eq!(Space::of(b"security.selinux").unwrap(), Space::Security);
        assert_eq!(Space::of(b"system.posix_acl_default").unwrap(), Space::AclDefault);
        let width = Space::Layout(LayoutField::Width);
        assert_eq!(Space::of(b"user.strake.layout.width").unwrap(), width);
        for (name, kind) in [
            (&b""[..], ErrorKind::Range),
            (b"user", ErrorKind::NotSupported),
            (b"user.", ErrorKind::Invalid),
            (b"system.other", ErrorKind::NotSupported),
            (b"user.strake.layout.x", ErrorKind::Invalid),
        ] {
            assert_eq!(Space::of(name).unwrap_err().kind, kind);
        }
    }
}
