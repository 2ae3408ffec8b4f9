//! Extended attributes: passed on to the metadata server.

use super::{done, unexpected};
use crate::api::XattrFlags;
use crate::metrics::Op;
use crate::volume::Volume;
use bytes::Bytes;
use std::sync::Arc;
use strake_types::access::CAPABILITY;
use strake_types::limits::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use strake_types::{Credentials, Error, ErrorKind, Ino, Result};
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

fn named(ino: Ino, name: Bytes) -> Result<meta::Xattr> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Error::new(ErrorKind::Range));
    }
    Ok(meta::Xattr { ino: ino.0, name, ..meta::Xattr::default() })
}

/// What kernels and `ls -l` ask every file for, and hardly any has.
fn is_asked_of_all(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"system.posix_acl_")
}

impl Volume {
    /// Value of an extended attribute, named with its prefix.
    pub async fn getxattr(&self, cred: &Credentials, ino: Ino, name: Bytes) -> Result<Bytes> {
        let _timer = self.count(Op::Xattr);
        if cred.checked && is_asked_of_all(&name) && self.has_no_xattrs(ino) {
            return Err(Error::new(ErrorKind::NoAttribute));
        }
        match self.ask(cred, MetaOp::GetXattr(named(ino, name)?)).await? {
            MetaAnswer::Bytes(value) => Ok(value),
            _ => Err(unexpected("getxattr")),
        }
    }

    /// Names of all extended attributes, each ended by a NUL.
    pub async fn listxattr(&self, cred: &Credentials, ino: Ino) -> Result<Bytes> {
        let _timer = self.count(Op::Xattr);
        match self.ask(cred, MetaOp::ListXattr(meta::Inode { ino: ino.0 })).await? {
            MetaAnswer::Bytes(names) => Ok(names),
            _ => Err(unexpected("listxattr")),
        }
    }

    /// Sets an extended attribute.
    pub async fn setxattr(
        self: &Arc<Self>,
        cred: &Credentials,
        ino: Ino,
        name: Bytes,
        value: Bytes,
        flags: XattrFlags,
    ) -> Result<()> {
        let _timer = self.count(Op::Xattr);
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooBig));
        }
        let is_capability = &name[..] == CAPABILITY;
        let open = self.inodes().file(ino).filter(|_| is_capability);
        let xattr = meta::Xattr {
            value,
            must_create: flags.create,
            must_replace: flags.replace,
            drop_setgid: flags.drop_setgid,
            ..named(ino, name)?
        };
        let _order = match &open {
            // What was written before, and is told later, would take it away.
            Some(file) => Some(Box::pin(self.write_back_in_order(file, false)).await?),
            None => None,
        };
        let may_have_one = || {
            if is_capability && let Some(file) = self.inodes().file(ino) {
                file.core().no_capability = false;
            }
        };
        // The server may do it and its answer be lost.
        may_have_one();
        let answer = self.mutate(cred, MetaOp::SetXattr(xattr)).await;
        // It may have been opened meanwhile.
        may_have_one();
        self.forget_attr(ino);
        done(&answer?, "setxattr")
    }

    /// Removes an extended attribute.
    pub async fn removexattr(&self, cred: &Credentials, ino: Ino, name: Bytes) -> Result<()> {
        let _timer = self.count(Op::Xattr);
        let answer = self.mutate(cred, MetaOp::RemoveXattr(named(ino, name)?)).await?;
        self.forget_attr(ino);
        done(&answer, "removexattr")
    }
}
