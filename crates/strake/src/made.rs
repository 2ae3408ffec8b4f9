//! What a command has made before it is refused, and takes away again: who is refused finds everything as it was.

use std::path::{Path, PathBuf};

/// Files and directories that were missing, the innermost first. They go when this is dropped, unless it is kept;
/// of directories only those that nobody has put anything into.
#[derive(Debug, Default)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// Before a path is made, and those above it that are missing.
    pub fn expect(&mut self, path: &Path) {
        let missing = path.ancestors().take_while(|path| path.symlink_metadata().is_err());
        let missing = missing.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned);
        let mut all: Vec<PathBuf> = missing.collect();
        all.append(&mut self.0);
        self.0 = all;
    }

    /// The command has succeeded.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            let removed = match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => std::fs::remove_dir(path),
                Ok(_) => std::fs::remove_file(path),
                Err(_) => continue,
            };
            if let Err(error) = removed {
                tracing::debug!("{} stays: {error}", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_goes_and_what_was_there_or_is_used_stays() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("there")).unwrap();
        let make = |made: &mut Made| {
            for (place, file) in [("there/a/b", "there/a/log"), ("used/c", "used/c/log")] {
                made.expect(&at(place));
                std::fs::create_dir_all(at(place)).unwrap();
                made.expect(&at(file));
                std::fs::write(at(file), "").unwrap();
            }
        };
        let mut made = Made::default();
        make(&mut made);
        std::fs::write(at("used/d"), "of somebody else").unwrap();
        drop(made);
        assert!(at("there").exists() && !at("there/a").exists(), "it was there, without this");
        assert!(at("used/d").exists() && !at("used/c").exists());
        let mut made = Made::default();
        make(&mut made);
        made.keep();
        assert!(at("there/a/b").exists() && at("used/c/log").exists());
    }
}
