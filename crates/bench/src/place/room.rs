//! Room on the file system of a directory.

use crate::error::{Error, Result};
use crate::plan::Room;
use std::path::Path;

/// Room that is left beside what a cell needs, for what the file system itself writes.
const ROOM_KEPT: u64 = 16 << 20;

/// Says whether a directory has room for something; `bytes_less` and `files_less` say how to need less.
pub fn has_room(needs: Room, directory: &Path, [bytes_less, files_less]: [&str; 2]) -> Result<()> {
    let (bytes, files) = room(directory)?;
    let wanted = needs.bytes.saturating_add(ROOM_KEPT);
    let shown = directory.display();
    if bytes < wanted {
        let [wanted, bytes] = [wanted.div_ceil(1 << 20), bytes >> 20];
        return Err(Error::failed(format!(
            "{shown} has room for {bytes} MiB, and the run needs {wanted} MiB"
        ))
        .next(bytes_less));
    }
    match files {
        Some(files) if files < needs.files => {
            let needs = needs.files;
            Err(Error::failed(format!(
                "{shown} has room for {files} files, and the run needs {needs}"
            ))
            .next(files_less))
        }
        _ => Ok(()),
    }
}

/// Bytes and files that can still be made in a directory; no number of files where the file system
/// has no limit.
fn room(directory: &Path) -> Result<(u64, Option<u64>)> {
    let stat = rustix::fs::statvfs(directory)
        .map_err(|e| Error::io("asking for the room of", directory, &e.into()))?;
    let files = (stat.f_files > 0).then_some(stat.f_favail);
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), files))
}
