//! A worker in a process of its own, perhaps on another host: does the jobs that it is sent.

use super::message::{Answer, Request, receive, send};
use crate::cold;
use crate::error::{Error, Result};
use crate::watch::Watch;
use crate::work::{self, Done, Prepared};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use strake_base::clock::machine_time;
use strake_base::process::boot_id;

/// How often a worker says how far it is.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Serves requests until there are no more: when the run has ended, or was killed, or the line to it
/// is broken.
pub fn serve(
    input: impl BufRead + Send + 'static,
    mut output: impl Write + Send,
    version: &str,
) -> Result<()> {
    let broken = |e: std::io::Error| Error::failed(format!("answering the run: {e}"));
    send(&mut output, &Answer::Hello { version: version.to_owned() }).map_err(broken)?;
    let watch = Arc::new(Watch::default());
    let requests = listen(input, watch.clone());
    let mut ready: Option<Box<dyn Prepared>> = None;
    for request in requests {
        let answer = match request? {
            Request::Prepare { directory, job } => {
                watch.set_failed(false);
                ready = None;
                job.prepare(&directory).map(|prepared| {
                    ready = Some(prepared);
                    Answer::Ready
                })
            }
            Request::Go => match ready.take() {
                Some(prepared) => telling(prepared, &watch, &mut output).map(|done| {
                    // What tells the clock of this machine from those of others.
                    let clock = boot_id().unwrap_or_default();
                    let told = machine_time().as_secs_f64();
                    Answer::Done(Done { clock, told, ..done })
                }),
                None => Err(Error::failed("a worker was to begin, and was not ready")),
            },
            Request::Stop => match ready.take() {
                Some(prepared) => prepared.finish().and(Err(Error::stopped())),
                // What it was doing has been answered already.
                None => continue,
            },
            Request::Settle { directory } => {
                cold::settle(&directory, &watch).map(|()| Answer::Settled)
            }
            Request::Cool { directory, files } => cool(&directory, &files, &watch),
        };
        let answer = answer.unwrap_or_else(Answer::Failed);
        send(&mut output, &answer).map_err(broken)?;
    }
    Ok(())
}

/// Runs a job that is ready, and tells the run now and then how far it is.
fn telling(
    prepared: Box<dyn Prepared>,
    watch: &Watch,
    output: &mut (impl Write + Send),
) -> Result<Done> {
    let (ending, ended) = channel::<()>();
    thread::scope(|scope| {
        let teller = move || {
            let mut told = watch.pulse().0;
            while ended.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout) {
                let done = watch.pulse().0;
                // A run that does not listen any more ends this worker by its own means.
                let _told = send(output, &Answer::Doing { work: done.saturating_sub(told) });
                told = done;
            }
        };
        // A worker that says nothing is given up.
        let teller = thread::Builder::new().spawn_scoped(scope, teller);
        teller.map_err(|e| Error::failed(format!("starting a second thread: {e}")))?;
        let done = work::timed(prepared, watch);
        drop(ending);
        done
    })
}

/// Reads requests beside the work, so that a worker hears when it is to stop.
fn listen(
    mut input: impl BufRead + Send + 'static,
    watch: Arc<Watch>,
) -> Receiver<Result<Request>> {
    let (sender, requests) = channel();
    thread::spawn(move || {
        while let Some(request) = receive::<Request>(&mut input).transpose() {
            if matches!(request, Ok(Request::Stop) | Err(_)) {
                watch.set_failed(true);
            }
            let is_last = request.is_err();
            if sender.send(request).is_err() || is_last {
                break;
            }
        }
        // Nobody is there any more to say it.
        watch.stop();
    });
    requests
}

fn cool(directory: &Path, files: &[PathBuf], watch: &Watch) -> Result<Answer> {
    Ok(Answer::Cooled { lost: cold::drop_for(directory, files, watch)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::work::file::{Calls, Direction, Ending, Open, Pass};
    use crate::work::{Job, Order};
    use std::io::{BufReader, pipe};

    fn endless() -> Job {
        Job::File(Pass {
            file: "f".into(),
            direction: Direction::Write,
            start: 0,
            record: 4096,
            records: 1 << 40,
            order: Order::Same,
            calls: Calls::Plain,
            open: Open { create: true, ..Open::default() },
            ending: Ending::default(),
            content: Content { seed: 1, salt: 0, generation: 1, checked: false },
        })
    }

    #[test]
    fn a_worker_stops_when_it_is_told_and_ends_with_its_run() {
        let directory = tempfile::tempdir().unwrap();
        let ((input, mut requests), (answers, output)) = (pipe().unwrap(), pipe().unwrap());
        let worker = thread::spawn(move || serve(BufReader::new(input), output, "1"));
        let mut answers = BufReader::new(answers);
        let mut answer = || {
            let mut all = std::iter::from_fn(|| receive::<Answer>(&mut answers).unwrap());
            all.find(|answer| !matches!(answer, Answer::Doing { .. }))
        };
        assert_eq!(answer(), Some(Answer::Hello { version: "1".into() }));
        let prepare = Request::Prepare { directory: directory.path().to_owned(), job: endless() };
        for _ in 0..2 {
            send(&mut requests, &prepare).unwrap();
            assert_eq!(answer(), Some(Answer::Ready));
            send(&mut requests, &Request::Go).unwrap();
            send(&mut requests, &Request::Stop).unwrap();
            assert_eq!(answer(), Some(Answer::Failed(Error::stopped())));
        }
        send(&mut requests, &prepare).unwrap();
        assert_eq!(answer(), Some(Answer::Ready));
        send(&mut requests, &Request::Go).unwrap();
        drop(requests);
        assert_eq!(answer(), Some(Answer::Failed(Error::stopped())));
        assert_eq!(answer(), None);
        worker.join().unwrap().unwrap();
    }

    /// The bar of a run with processes stood still within a step, however long that took.
    #[test]
    fn a_worker_tells_how_far_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let ((input, mut requests), (answers, output)) = (pipe().unwrap(), pipe().unwrap());
        let worker = thread::spawn(move || serve(BufReader::new(input), output, "1"));
        let mut answers = BufReader::new(answers);
        let prepare = Request::Prepare { directory: directory.path().to_owned(), job: endless() };
        send(&mut requests, &prepare).unwrap();
        send(&mut requests, &Request::Go).unwrap();
        let mut work = 0;
        while work == 0 {
            match receive::<Answer>(&mut answers).unwrap().unwrap() {
                Answer::Hello { .. } | Answer::Ready => {}
                Answer::Doing { work: more } => work += more,
                other => panic!("{other:?}"),
            }
        }
        drop(requests);
        worker.join().unwrap().unwrap();
    }

    #[test]
    fn garbage_ends_a_worker_with_a_word() {
        let error = serve(&b"{\"nonsense\":1}\n"[..], Vec::new(), "1").unwrap_err();
        assert!(error.cause.contains("do not understand"), "{error}");
    }
}
