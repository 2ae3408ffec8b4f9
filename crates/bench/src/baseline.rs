//! Baselines: reports kept under a name, to compare later ones with.

use crate::report::saved::{self, BYTES_MAX, Unreadable};
use crate::result::Report;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Characters of a name.
pub const NAME_CHARS_MAX: usize = 64;
/// Ending of a baseline's file.
const ENDING: &str = ".json";
/// The file of the last run; no baseline can be called so.
const LAST_RUN: &str = ".last-run.json";

/// Why a baseline could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that could not be a file's.
    #[error(
        "{0:?} is no name for a baseline: letters, digits, '.', '_' and '-', at most {NAME_CHARS_MAX}, and no '.' or '-' first"
    )]
    Name(String),
    /// There is none of this name.
    #[error("there is no baseline {name:?} in {}", .directory.display())]
    Missing {
        /// The name.
        name: String,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// There is one of this name already.
    #[error("there is a baseline {0:?} already")]
    Exists(String),
    /// No run was made yet.
    #[error("no run is remembered in {}", .0.display())]
    NoRun(PathBuf),
    /// The file could not be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The file is no report that this release reads.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: Unreadable,
    },
}

/// A directory of baselines.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

/// A baseline in a list.
#[derive(Debug)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// What it holds, or why that cannot be read.
    pub report: Result<Report, Error>,
}

impl Store {
    /// The store in a directory, which is made when something is saved.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Where baselines are kept when nothing else is said: in `strake/bench` below the user's data
    /// directory (XDG Base Directory Specification). `None` where no variable tells that.
    pub fn usual(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        // A relative path in these variables is to be ignored, says the specification.
        let absolute = |name| variable(name).filter(|path| path.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".local/share"));
        absolute("XDG_DATA_HOME").or_else(home).map(|data| Self::new(data.join("strake/bench")))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Keeps a report under a name; the file. A name that is taken is refused unless `replace`.
    pub fn save(&self, name: &str, report: &Report, replace: bool) -> Result<PathBuf, Error> {
        let path = self.path(name)?;
        if !replace && path.exists() {
            return Err(Error::Exists(name.into()));
        }
        self.write(&path, report)?;
        Ok(path)
    }

    /// Reads the report of a name.
    pub fn load(&self, name: &str) -> Result<Report, Error> {
        let path = self.path(name)?;
        let missing = || Error::Missing { name: name.into(), directory: self.directory.clone() };
        if path.exists() { read(&path) } else { Err(missing()) }
    }

    /// True where there is a baseline of this name.
    pub fn holds(&self, name: &str) -> bool {
        self.path(name).is_ok_and(|path| path.exists())
    }

    /// Remembers the report of the last run.
    pub fn remember(&self, report: &Report) -> Result<(), Error> {
        self.write(&self.directory.join(LAST_RUN), report)
    }

    /// The report of the last run.
    pub fn last_run(&self) -> Result<Report, Error> {
        let path = self.directory.join(LAST_RUN);
        if path.exists() { read(&path) } else { Err(Error::NoRun(self.directory.clone())) }
    }

    /// All baselines by name, damaged ones too.
    pub fn list(&self) -> Result<Vec<Kept>, Error> {
        let failed = |source| Error::Io { path: self.directory.clone(), source };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut kept = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let file = path.file_name().and_then(|name| name.to_str());
            let Some(name) = file.and_then(|name| name.strip_suffix(ENDING)) else { continue };
            if self.path(name).is_ok() {
                kept.push(Kept { name: name.to_owned(), report: read(&path) });
            }
        }
        kept.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(kept)
    }

    fn path(&self, name: &str) -> Result<PathBuf, Error> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let good = !name.is_empty()
            && name.len() <= NAME_CHARS_MAX
            && name.chars().all(is_plain)
            && !name.starts_with(['.', '-']);
        if !good {
            return Err(Error::Name(name.into()));
        }
        Ok(self.directory.join(format!("{name}{ENDING}")))
    }

    /// Writes a report so that a reader finds the old one or the new one, never a part.
    fn write(&self, path: &Path, report: &Report) -> Result<(), Error> {
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let text = saved::to_json(report).map_err(|error| failed(error.into()))?;
        fs::create_dir_all(&self.directory).map_err(failed)?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = self.directory.join(format!(".{file}.{}", std::process::id()));
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        });
        written.map_err(|error| {
            let _absent = fs::remove_file(&unfinished);
            failed(error)
        })
    }
}

/// Reads a file with a report.
pub fn read(path: &Path) -> Result<Report, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(failed(io::Error::other("larger than any report")));
    }
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    saved::from_json(&bytes).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::study;

    #[test]
    fn a_baseline_is_kept_under_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path().join("a/b"));
        assert!(store.list().unwrap().is_empty());
        assert!(matches!(store.load("before"), Err(Error::Missing { .. })));
        store.save("before", &study(), false).unwrap();
        assert_eq!(store.load("before").unwrap(), study());
        assert!(matches!(store.save("before", &study(), false), Err(Error::Exists(_))));
        store.save("before", &study(), true).unwrap();
        assert!(matches!(store.last_run(), Err(Error::NoRun(_))));
        store.remember(&study()).unwrap();
        assert_eq!(store.last_run().unwrap(), study());
        let names: Vec<_> = store.list().unwrap().into_iter().map(|kept| kept.name).collect();
        assert_eq!(names, ["before"]);
        assert_eq!(fs::read_dir(store.directory()).unwrap().count(), 2, "nothing unfinished");
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path());
        let long = "a".repeat(NAME_CHARS_MAX + 1);
        for wrong in ["", ".", "..", "../x", "a/b", ".last-run", "-x", "a b", "ä", "a\n", &long] {
            assert!(matches!(store.save(wrong, &study(), true), Err(Error::Name(_))), "{wrong:?}");
            assert!(matches!(store.load(wrong), Err(Error::Name(_))), "{wrong:?}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_baseline_is_listed_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path());
        store.save("good", &study(), false).unwrap();
        fs::write(directory.path().join("bad.json"), "{").unwrap();
        let list = store.list().unwrap();
        assert!(list[0].report.as_ref().unwrap_err().to_string().contains("bad.json"));
        assert!(list[1].report.is_ok());
    }

    #[test]
    fn the_usual_place_follows_the_environment() {
        let usual = |variables: &[(&str, &str)]| {
            let of = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, v)| PathBuf::from(v))
            };
            Store::usual(of).map(|store| store.directory)
        };
        let both = [("XDG_DATA_HOME", "/data"), ("HOME", "/house")];
        assert_eq!(usual(&both), Some("/data/strake/bench".into()));
        assert_eq!(usual(&both[1..]), Some("/house/.local/share/strake/bench".into()));
        let relative = [("XDG_DATA_HOME", "data"), ("HOME", "/house")];
        assert_eq!(usual(&relative), Some("/house/.local/share/strake/bench".into()));
        assert_eq!(usual(&[]), None);
    }
}
