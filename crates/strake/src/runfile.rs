//! The file in which a running `strake up` says where it is: `DIR/strake.json`.
//!
//! It is written when the mount is usable and removed at a clean stop. One that stays behind (after a
//! kill or a crash) is recognised by its process: the number may have been given to another process
//! since, so the moment at which the process began is compared too.

use crate::failure::{Context, Outcome};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use strake_base::process::began_ticks;

/// Name of the file in the data directory.
pub const NAME: &str = "strake.json";

/// What a running `strake up` says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// The process.
    pub pid: u32,
    /// When it began, in clock ticks since the machine started.
    pub began_ticks: u64,
    /// Addresses at which it is reached, the best first.
    pub addresses: Vec<String>,
    /// Where the volume is mounted.
    pub mount: PathBuf,
    /// The volume.
    pub volume: String,
    /// Where metrics are served, if they are.
    pub metrics: Option<String>,
}

impl RunFile {
    /// Reads the run file of a data directory; `None` if there is none or it cannot be understood
    /// (it says nothing then that could be used).
    pub fn read(data: &Path) -> Option<RunFile> {
        let text = std::fs::read_to_string(data.join(NAME)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes it in one step: a reader sees all of it or nothing.
    pub fn write(&self, data: &Path) -> Outcome {
        let path = data.join(NAME);
        let draft = data.join(format!("{NAME}.new"));
        let text = serde_json::to_string_pretty(self).context(|| path.display().to_string())?;
        std::fs::write(&draft, text).context(|| draft.display().to_string())?;
        std::fs::rename(&draft, &path).context(|| path.display().to_string())
    }

    /// Removes it; one that is not there is no error.
    pub fn remove(data: &Path) {
        let _absent = std::fs::remove_file(data.join(NAME));
    }

    /// True if the process that wrote it still runs.
    pub fn is_alive(&self) -> bool {
        began_ticks(self.pid) == Some(self.began_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine() -> RunFile {
        RunFile {
            pid: std::process::id(),
            began_ticks: began_ticks(std::process::id()).unwrap(),
            addresses: vec!["127.0.0.1:7440".into()],
            mount: "/mnt".into(),
            volume: "main".into(),
            metrics: None,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(RunFile::read(dir.path()), None);
        mine().write(dir.path()).unwrap();
        assert_eq!(RunFile::read(dir.path()), Some(mine()));
        RunFile::remove(dir.path());
        assert_eq!(RunFile::read(dir.path()), None);
    }

    #[test]
    fn a_process_that_took_over_the_number_is_not_taken_for_ours() {
        assert!(mine().is_alive());
        let other = RunFile { began_ticks: 1, ..mine() };
        assert!(!other.is_alive());
    }
}
