//! What one worker does, as data: a job can run in a thread here, in another process, or on another
//! host.

pub mod file;
pub mod names;
mod order;

pub use order::Order;

use crate::error::Result;
use crate::watch::Watch;
use serde::{Deserialize, Serialize};
use std::path::Path;
use strake_base::clock::{machine_time, thread_processor_time};

/// What one worker does between the start and the end of a timing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// One pass over a file, or over a part of it.
    File(file::Pass),
    /// One phase over the names of a tree.
    Names(names::Phase),
}

/// What one worker did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Whose clock it was timed by: workers of one machine share theirs, those of two do not.
    pub clock: String,
    /// When it began, in seconds on that clock.
    pub began: f64,
    /// When it had nothing left to do.
    pub ended: f64,
    /// When it told so.
    pub told: f64,
    /// Of the processor, in the thread of the worker.
    pub processor_seconds: f64,
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
}

/// How much a worker did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Bytes written or read.
    pub bytes: u64,
    /// Records, files, or whatever the job counts.
    pub operations: u64,
}

/// A job that has everything it needs: its files are open, its buffers filled.
pub trait Prepared: Send {
    /// Does the job: exactly this is timed.
    fn run(&mut self, watch: &Watch) -> Result<Amount>;
    /// Does what is not timed: closes what is still open.
    fn finish(self: Box<Self>) -> Result<()>;
}

impl Job {
    /// Gets ready to do the job in a directory.
    pub fn prepare(&self, directory: &Path) -> Result<Box<dyn Prepared>> {
        match self {
            Job::File(pass) => file::prepare(pass, directory),
            Job::Names(phase) => names::prepare(phase, directory),
        }
    }

    /// The same job on files that hold other bytes.
    #[must_use]
    pub fn salted(&self, salt: u64) -> Job {
        let mut job = self.clone();
        match &mut job {
            Job::File(pass) => pass.content.salt = salt,
            Job::Names(phase) => phase.content.salt = salt,
        }
        job
    }

    /// How much work it is, in units of about a byte.
    pub fn weight(&self) -> u64 {
        match self {
            Job::File(pass) => pass.bytes(),
            Job::Names(phase) => phase.weight(),
        }
    }

    /// Bytes of memory it needs for what it writes and reads.
    pub fn memory(&self) -> u64 {
        match self {
            Job::File(pass) => pass.memory(),
            Job::Names(phase) => phase.memory(),
        }
    }

    /// True where it copies from or to a mapping.
    pub fn uses_mapping(&self) -> bool {
        matches!(self, Job::File(pass) if pass.calls == file::Calls::Mapped)
    }

    /// The file whose contents it reads, if it reads any: what cold caches must not hold.
    pub fn reads(&self) -> Option<&str> {
        match self {
            Job::File(pass) => (pass.direction != file::Direction::Write).then_some(&pass.file),
            Job::Names(_) => None,
        }
    }
}

/// Runs a job that is ready, and takes its time.
pub fn timed(mut prepared: Box<dyn Prepared>, watch: &Watch) -> Result<Done> {
    let (began, processor) = (machine_time(), thread_processor_time());
    let amount = prepared.run(watch);
    let (ended, used) = (machine_time(), thread_processor_time());
    let finished = prepared.finish();
    let amount = amount?;
    finished?;
    Ok(Done {
        clock: String::new(),
        began: began.as_secs_f64(),
        ended: ended.as_secs_f64(),
        told: ended.as_secs_f64(),
        processor_seconds: used.saturating_sub(processor).as_secs_f64(),
        amount,
    })
}

/// How long workers took that began together: on each clock from the first beginning to the last end,
/// and of all clocks the longest. A crew has put those of several machines on one.
pub fn seconds(done: &[Done]) -> f64 {
    let span = |clock: &str| {
        let mine = || done.iter().filter(|done| done.clock == clock);
        let began = mine().map(|done| done.began).fold(f64::INFINITY, f64::min);
        mine().map(|done| done.ended).fold(f64::NEG_INFINITY, f64::max) - began
    };
    done.iter().map(|done| span(&done.clock)).fold(0.0, f64::max)
}
