//! Who does the jobs of a step, all at once: threads of this process.

mod threads;

use crate::cold;
use crate::error::{Error, Result};
use crate::watch::Watch;
use crate::work::{Done, Job};
use std::path::Path;

/// Who does the jobs.
pub enum Crew {
    /// Threads of this process.
    Threads,
}

impl Crew {
    /// Does jobs at the same time, one worker for each, and waits for all of them.
    pub fn work(&mut self, jobs: &[Job], directory: &Path, watch: &Watch) -> Result<Vec<Done>> {
        match self {
            Crew::Threads => threads::work(jobs, directory, watch),
        }
    }

    /// Empties the caches that the jobs would read from; a sentence on what could not be done.
    pub fn cool(&mut self, jobs: &[Job], directory: &Path) -> Result<Option<&'static str>> {
        if cold::drop_all(directory).is_ok() {
            return Ok(None);
        }
        for file in jobs.iter().filter_map(Job::reads) {
            let path = directory.join(file);
            cold::drop_file(&path).map_err(|e| Error::io("dropping from the cache", &path, &e))?;
        }
        Ok(Some(cold::PARTLY))
    }
}
