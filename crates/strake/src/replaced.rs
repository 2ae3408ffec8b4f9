//! Small files that are replaced as a whole.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;

/// Writes a file beside its place, syncs it and renames it there: after a loss of power either the old or the new one is
/// there, whole.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut draft = OsString::from(path);
    draft.push(".new");
    std::fs::write(&draft, text)?;
    File::open(&draft)?.sync_all()?;
    std::fs::rename(&draft, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
