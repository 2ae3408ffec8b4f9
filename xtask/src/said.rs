//! What a program says, to be shown in one piece when it has ended.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::Command;

/// A file that is gone when everybody has closed it. No pipe: it never fills, and whatever a program leaves behind keeps
/// nobody waiting.
pub struct Said(File);

impl Said {
    /// A file made at this path, where nobody finds it any more.
    pub fn at(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        std::fs::remove_file(path)?;
        Ok(Self(file))
    }

    /// A program says it here.
    pub fn by<'a>(&self, command: &'a mut Command) -> io::Result<&'a mut Command> {
        Ok(command.stdout(self.0.try_clone()?).stderr(self.0.try_clone()?))
    }

    /// All that was said.
    pub fn read(mut self) -> io::Result<String> {
        let mut said = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

impl io::Write for &Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.0).flush()
    }
}
