//! What a change of a file takes away from it: setuid and setgid, if an ordinary user makes it, and what a program may do
//! beyond who runs it (`security.capability`), whoever makes it.

use super::removexattr::remove_stored;
use crate::records::Inode;
use crate::view::Tx;
use strake_types::Result;
use strake_types::access::{CAPABILITY, written_by_user};

/// An ordinary user has written.
pub(crate) async fn drop_privileges(tx: &mut Tx<'_>, inode: &mut Inode) -> Result<()> {
    inode.mode = written_by_user(inode.mode);
    drop_capability(tx, inode).await
}

/// Somebody has cut the file, or it has another owner.
pub(crate) async fn drop_capability(tx: &mut Tx<'_>, inode: &mut Inode) -> Result<()> {
    match inode.xattrs {
        0 => Ok(()),
        _ => remove_stored(tx, inode, CAPABILITY).await.map(drop),
    }
}
