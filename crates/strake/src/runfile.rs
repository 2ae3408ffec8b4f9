//! The file in which a running `strake up` says where it is: `DIR/strake.json`.
//!
//! It is written as soon as its addresses are known and removed at a clean stop. One that stays behind (after a
//! kill or a crash) is recognised by its process: the number may have been given to another process
//! since, so the moment at which the process began is compared too.

use crate::failure::{Context, Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
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
    /// What is said by TCP is encrypted; `None`: nothing is said by TCP, or an older release wrote this.
    #[serde(default)]
    pub encrypted: Option<bool>,
}

impl RunFile {
    /// Reads the run file of a data directory; `None` if there is none or it cannot be understood: it is written in one
    /// step, so whoever wrote that one does not run any more. One that may not be read is an error.
    pub fn read(data: &Path) -> Outcome<Option<RunFile>> {
        let path = data.join(NAME);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(serde_json::from_str(&text).ok()),
            Err(error) if is_absent(error.kind()) => Ok(None),
            Err(error) => Err(Failure::new(format!("{}: {error}", path.display()))
                .next("run this as the user who ran strake up, or as root")),
        }
    }

    /// The run file of a data directory, of a process that runs.
    pub fn alive(data: &Path) -> Outcome<Option<RunFile>> {
        Ok(Self::read(data)?.filter(RunFile::is_alive))
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
    fn remove(data: &Path) {
        let _absent = std::fs::remove_file(data.join(NAME));
    }

    /// Removes it if it still says this: another process may have written its own meanwhile.
    pub fn remove_own(&self, data: &Path) {
        if Self::read(data).is_ok_and(|run| run.as_ref() == Some(self)) {
            Self::remove(data);
        }
    }

    /// True if the process that wrote it still runs.
    pub fn is_alive(&self) -> bool {
        began_ticks(self.pid) == Some(self.began_ticks)
    }
}

/// The run file of this process: it is there for as long as this value.
#[derive(Debug)]
pub struct Running {
    /// What it says.
    pub run: RunFile,
    data: PathBuf,
}

impl Running {
    /// Writes it.
    pub fn say(run: RunFile, data: &Path) -> Outcome<Self> {
        run.write(data)?;
        Ok(Self { run, data: data.to_owned() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.run.remove_own(&self.data);
    }
}

/// True of what is said of a file that is not there.
fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
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
            encrypted: Some(true),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(RunFile::read(dir.path()).unwrap(), None);
        mine().write(dir.path()).unwrap();
        assert_eq!(RunFile::read(dir.path()).unwrap(), Some(mine()));
        std::fs::write(dir.path().join(NAME), "").unwrap();
        assert_eq!(RunFile::read(dir.path()).unwrap(), None);
        let mut older = serde_json::to_value(mine()).unwrap();
        older.as_object_mut().unwrap().remove("encrypted");
        std::fs::write(dir.path().join(NAME), older.to_string()).unwrap();
        let expected = RunFile { encrypted: None, ..mine() };
        assert_eq!(RunFile::read(dir.path()).unwrap(), Some(expected));
        RunFile::remove(dir.path());
        assert_eq!(RunFile::read(dir.path()).unwrap(), None);
    }

    /// `strake down` removed that of the next `up`, which began a moment after the one that it had stopped was gone.
    #[test]
    fn that_of_another_process_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let next = RunFile { pid: 1, ..mine() };
        next.write(dir.path()).unwrap();
        mine().remove_own(dir.path());
        assert_eq!(RunFile::read(dir.path()).unwrap(), Some(next.clone()));
        next.remove_own(dir.path());
        assert_eq!(RunFile::read(dir.path()).unwrap(), None);
    }

    /// `strake down` by another user found "nothing running".
    #[test]
    fn one_that_cannot_be_read_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(NAME)).unwrap();
        let failure = RunFile::read(dir.path()).unwrap_err();
        assert!(failure.cause.contains(NAME) && failure.next.is_some(), "{failure}");
    }

    #[test]
    fn a_process_that_took_over_the_number_is_not_taken_for_ours() {
        assert!(mine().is_alive());
        let other = RunFile { began_ticks: 1, ..mine() };
        assert!(!other.is_alive());
    }
}
