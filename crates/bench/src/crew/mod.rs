//! Who does the jobs of a step, all at once: threads of this process, or processes here, in network
//! namespaces and on other hosts.

mod clocks;
mod location;
mod message;
mod processes;
mod threads;
mod worker;

pub use location::Location;
pub use processes::Processes;
pub use worker::serve;

use crate::cold;
use crate::error::Result;
use crate::watch::Watch;
use crate::work::{Done, Job};
use std::path::{Path, PathBuf};

/// Who does the jobs.
pub enum Crew {
    /// Threads of this process.
    Threads,
    /// Processes of their own.
    Processes(Processes),
}

impl Crew {
    /// Does jobs at the same time, one worker for each, and waits for all of them.
    pub fn work(&mut self, jobs: &[Job], directory: &Path, watch: &Watch) -> Result<Vec<Done>> {
        match self {
            Crew::Threads => threads::work(jobs, directory, watch),
            Crew::Processes(processes) => processes.work(jobs, directory, watch),
        }
    }

    /// Has written what the hosts of the workers and this machine hold back.
    pub fn settle(&mut self, directory: &Path, watch: &Watch) -> Result<()> {
        if let Crew::Processes(processes) = self {
            processes.settle(directory, watch)?;
        }
        cold::settle(directory, watch)
    }

    /// Empties the caches that the jobs would read from; a sentence on what could not be done.
    pub fn cool(
        &mut self,
        jobs: &[Job],
        directory: &Path,
        watch: &Watch,
    ) -> Result<Option<String>> {
        let files = jobs.iter().filter_map(Job::reads).map(|file| directory.join(file));
        let files: Vec<PathBuf> = files.collect();
        let lost_there = match self {
            Crew::Threads => None,
            Crew::Processes(processes) => processes.cool(&files, directory, watch)?,
        };
        Ok(cold::drop_for(directory, &files, watch)?.or(lost_there))
    }
}
