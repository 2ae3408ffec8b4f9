//! Workers as threads of this process.

use crate::error::{Error, Kind, Result};
use crate::watch::Watch;
use crate::work::{self, Done, Job, Prepared};
use std::path::Path;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};

/// Does jobs in a thread each. All of them are ready before the first begins.
pub fn work(jobs: &[Job], directory: &Path, watch: &Watch) -> Result<Vec<Done>> {
    watch.set_failed(false);
    let mut ready = Vec::with_capacity(jobs.len());
    for job in jobs {
        ready.push(job.prepare(directory)?);
    }
    let start = Barrier::new(ready.len());
    let ended: Vec<Result<Done>> = thread::scope(|scope| {
        let begin = |prepared| scope.spawn(|| worker(prepared, &start, watch));
        let workers: Vec<_> = ready.into_iter().map(begin).collect();
        workers.into_iter().map(join).collect()
    });
    first_cause(ended)
}

fn worker(prepared: Box<dyn Prepared>, start: &Barrier, watch: &Watch) -> Result<Done> {
    start.wait();
    let done = work::timed(prepared, watch);
    if done.is_err() {
        watch.set_failed(true);
    }
    done
}

fn join(worker: ScopedJoinHandle<'_, Result<Done>>) -> Result<Done> {
    worker.join().unwrap_or_else(|_| Err(Error::failed("a worker has panicked")))
}

/// What all have done, or the error that made the others stop.
pub fn first_cause(ended: Vec<Result<Done>>) -> Result<Vec<Done>> {
    let is_cause = |e: &Result<Done>| e.as_ref().is_err_and(|e| e.kind != Kind::Stopped);
    match ended.iter().position(is_cause) {
        Some(at) => ended.into_iter().skip(at).take(1).collect(),
        None => ended.into_iter().collect(),
    }
}
