//! What tests put into files, and what the examples make through the native client, as root.

use bytes::Bytes;
use std::sync::Arc;
use strake_client::Volume;
use strake_client::api::{NewFile, OpenFlags};
use strake_types::{Credentials, Ino};

/// Makes an empty file under a fresh name, and closes it.
pub async fn make_file(volume: &Arc<Volume>, dir: Ino, name: impl Into<Bytes>) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
    let made = volume.create(&Credentials::root(), dir, name.into(), 0o644, 0, flags).await;
    let (_, file, _) = made.expect("a fresh name");
    volume.release(&file).await.expect("nothing was written");
}

/// Makes a directory under a fresh name.
pub async fn make_directory(volume: &Arc<Volume>, parent: Ino, name: impl Into<Bytes>) -> Ino {
    let (cred, new) = (Credentials::root(), NewFile::directory(0o755, 0));
    volume.make(&cred, parent, name.into(), new).await.expect("a fresh name").ino
}

/// Contents of a file: no byte is 0, so that a hole shows, and no two blocks of 4 KiB are alike, so that one in the place
/// of another shows (Knuth's multiplicative hash).
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect()
}
