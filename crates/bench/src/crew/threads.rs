//! Workers as threads of this process.

use crate::error::{Error, Kind, Result};
use crate::watch::Watch;
use crate::work::{self, Done, Job, Prepared};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, ScopedJoinHandle};

/// Does jobs in a thread each. All of them are ready before the first begins.
pub fn work(jobs: &[Job], directory: &Path, watch: &Watch) -> Result<Vec<Done>> {
    watch.set_failed(false);
    let mut ready = Vec::with_capacity(jobs.len());
    for job in jobs {
        ready.push(job.prepare(directory)?);
    }
    let (start, (here, arrivals)) = (OnceLock::new(), channel());
    let ended: Vec<Result<Done>> = thread::scope(|scope| {
        let mut workers = Vec::with_capacity(jobs.len());
        for prepared in ready {
            let (start, here) = (&start, here.clone());
            let work = move || worker(prepared, &here, start, watch);
            match thread::Builder::new().spawn_scoped(scope, work) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    // Those that are there already wait for a word.
                    start.get_or_init(|| false);
                    let told =
                        format!("starting thread {} of {}: {error}", workers.len() + 1, jobs.len());
                    return vec![Err(Error::failed(told).next("use fewer threads"))];
                }
            }
        }
        arrivals.iter().take(workers.len()).for_each(drop);
        start.get_or_init(|| true);
        workers.into_iter().map(join).collect()
    });
    first_cause(ended)
}

/// Says that it is there, waits for the word that all are, and works.
fn worker(
    prepared: Box<dyn Prepared>,
    here: &Sender<()>,
    start: &OnceLock<bool>,
    watch: &Watch,
) -> Result<Done> {
    // Nobody listens when another thread could not be started.
    let _heard = here.send(());
    if !start.wait() {
        return prepared.finish().and(Err(Error::stopped()));
    }
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
