//! Workers in processes of their own: here, in network namespaces, or on other hosts.

use super::clocks::{self, Spoken};
use super::location::Location;
use super::message::{Answer, Request, receive, send};
use super::threads::first_cause;
use crate::error::{Error, Result};
use crate::watch::Watch;
use crate::work::{Done, Job};
use std::io::BufReader;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use strake_base::clock::machine_time;

/// How long a worker may take to be there.
const START_WAIT: Duration = Duration::from_secs(30);
/// How long it may take to open files.
const READY_WAIT: Duration = Duration::from_secs(300);
/// How long its machine may take to write what it holds back: gigabytes, perhaps over a slow link.
const SETTLE_WAIT: Duration = Duration::from_secs(3600);
/// How long it may say nothing at its job: it says twice a second how far it is.
const SILENCE_WAIT: Duration = Duration::from_secs(60);
/// How long it is listened to once more then: this run may have stood still itself.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// How long it may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// How long it may take to be gone when it is killed.
const END_WAIT: Duration = Duration::from_secs(5);
/// How often a run that waits looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Workers in processes of their own. They are started when they are first needed, stay for the
/// whole run, and end with this value.
pub struct Processes {
    /// Where workers run, by turns.
    locations: Vec<Location>,
    /// This program.
    program: PathBuf,
    /// The version that every worker must have.
    version: String,
    /// The directory that is measured, as it is called here.
    measured: PathBuf,
    running: Vec<Worker>,
}

struct Worker {
    location: Location,
    child: Child,
    requests: ChildStdin,
    /// What it answers, and when that came, in seconds on the clock of this machine.
    answers: Receiver<(f64, Result<Answer>)>,
    spoken: Spoken,
}

impl Processes {
    /// Workers at these locations, by turns; at least one location.
    pub fn new(locations: Vec<Location>, measured: &Path, version: &str) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(|e| Error::failed(format!("this program cannot be found: {e}")))?;
        let (version, measured) = (version.to_owned(), measured.to_owned());
        Ok(Self { locations, program, version, measured, running: Vec::new() })
    }

    /// Does jobs, one in each process, all at the same time.
    pub fn work(&mut self, jobs: &[Job], directory: &Path, watch: &Watch) -> Result<Vec<Done>> {
        let ended = self.together(jobs, directory, watch);
        if ended.is_err() {
            // Whatever a worker that was not heard out still says belongs to no later request.
            self.running.clear();
        }
        ended
    }

    fn together(&mut self, jobs: &[Job], directory: &Path, watch: &Watch) -> Result<Vec<Done>> {
        while self.running.len() < jobs.len() {
            let location = &self.locations[self.running.len() % self.locations.len()];
            let worker = Worker::start(location, &self.program, &self.version)?;
            self.running.push(worker);
        }
        let measured = &self.measured;
        let workers = &mut self.running[..jobs.len()];
        for (worker, job) in workers.iter_mut().zip(jobs) {
            let directory = worker.its(directory, measured);
            worker.ask(&Request::Prepare { directory, job: job.clone() })?;
        }
        for worker in &mut *workers {
            match worker.answer_unless_stopped(READY_WAIT, watch)? {
                Answer::Ready => {}
                other => return Err(worker.surprise(other)),
            }
        }
        for worker in &mut *workers {
            worker.spoken.go = machine_time().as_secs_f64();
            worker.ask(&Request::Go)?;
        }
        let mut done = first_cause(collect(workers, watch, SILENCE_WAIT))?;
        let spoken: Vec<Spoken> = workers.iter().map(|worker| worker.spoken).collect();
        clocks::on_one(&mut done, &spoken);
        Ok(done)
    }

    /// Has the hosts where workers run write what they hold back.
    pub fn settle(&mut self, directory: &Path, watch: &Watch) -> Result<()> {
        let measured = self.measured.clone();
        let settle =
            |worker: &Worker| Request::Settle { directory: worker.its(directory, &measured) };
        let answers = self.ask_elsewhere(settle, watch)?;
        for (worker, answer) in self.elsewhere().zip(answers) {
            match answer {
                Answer::Settled => {}
                other => return Err(worker.surprise(other)),
            }
        }
        Ok(())
    }

    /// Empties the caches of the hosts where workers run; a sentence on what could not be done.
    pub fn cool(
        &mut self,
        files: &[PathBuf],
        directory: &Path,
        watch: &Watch,
    ) -> Result<Option<String>> {
        let mut all_lost = None;
        let measured = self.measured.clone();
        let cool = |worker: &Worker| {
            let files = files.iter().map(|file| worker.its(file, &measured)).collect();
            Request::Cool { directory: worker.its(directory, &measured), files }
        };
        let answers = self.ask_elsewhere(cool, watch)?;
        for (worker, answer) in self.elsewhere().zip(answers) {
            match answer {
                Answer::Cooled { lost } => all_lost = all_lost.or(lost),
                other => return Err(worker.surprise(other)),
            }
        }
        Ok(all_lost)
    }

    /// Asks the other hosts, all at the same time: each may take an hour. What they answer.
    fn ask_elsewhere(
        &mut self,
        request: impl Fn(&Worker) -> Request,
        watch: &Watch,
    ) -> Result<Vec<Answer>> {
        let ask = |worker: &mut Worker| {
            let request = request(worker);
            worker.ask(&request)
        };
        let hear = |worker: &mut Worker| worker.answer_unless_stopped(SETTLE_WAIT, watch);
        let asked = self.elsewhere().try_for_each(ask);
        let answers: Result<Vec<_>> = asked.and_then(|()| self.elsewhere().map(hear).collect());
        if answers.is_err() {
            // As in [`Processes::work`].
            self.running.clear();
        }
        answers
    }

    /// A worker on each other host.
    fn elsewhere(&mut self) -> impl Iterator<Item = &mut Worker> {
        let count = self.running.len().min(self.locations.len());
        self.running[..count].iter_mut().filter(|worker| !worker.location.is_here())
    }
}

/// What every worker has done. When one fails, or says nothing for as long as `silence`, or the run is to
/// stop, the others are told.
fn collect(workers: &mut [Worker], watch: &Watch, silence: Duration) -> Vec<Result<Done>> {
    let mut ended: Vec<Option<Result<Done>>> = workers.iter().map(|_| None).collect();
    let mut told: Option<Instant> = None;
    while ended.iter().any(Option::is_none) {
        for (worker, ended) in workers.iter_mut().zip(&mut ended).filter(|(_, e)| e.is_none()) {
            *ended = match worker.hear(silence) {
                Ok(None) => None,
                Ok(Some(Answer::Doing { work })) => {
                    watch.advance(work);
                    None
                }
                Ok(Some(Answer::Done(done))) => Some(Ok(done)),
                Ok(Some(other)) => Some(Err(worker.surprise(other))),
                Err(error) => Some(Err(error)),
            };
        }
        let has_failed = ended.iter().flatten().any(Result::is_err);
        match told {
            None if has_failed || watch.is_stopped() => {
                told = Some(Instant::now());
                // Who cannot be told has ended, and says so when it is listened to.
                workers.iter_mut().for_each(|worker| drop(worker.ask(&Request::Stop)));
            }
            Some(at) if at.elapsed() > STOP_WAIT => break,
            _ => {}
        }
    }
    ended.into_iter().map(|done| done.unwrap_or_else(|| Err(Error::stopped()))).collect()
}

impl Worker {
    fn start(location: &Location, program: &Path, version: &str) -> Result<Self> {
        let mut command = location.command(program)?;
        let broken = |e: std::io::Error| {
            Error::failed(format!("starting a worker on {}: {e}", location.name))
        };
        // A group of its own: an interrupt from the terminal is for the run, which tells the workers.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(broken)?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(requests), Some(output)) = pipes else {
            return Err(Error::failed("a worker has no pipes"));
        };
        let (sender, answers) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(answer) = receive(&mut output).transpose() {
                if sender.send((machine_time().as_secs_f64(), answer)).is_err() {
                    break;
                }
            }
        });
        let spoken = Spoken::default();
        let mut worker = Self { location: location.clone(), child, requests, answers, spoken };
        match worker.answer(START_WAIT)? {
            Answer::Hello { version: other } if other == version => Ok(worker),
            Answer::Hello { version: other } => Err(Error::failed(format!(
                "{} has version {other} of strake, and this is {version}",
                location.name
            ))
            .next("install the same version there")),
            other => Err(worker.surprise(other)),
        }
    }

    /// A path below the measured directory, as the worker's host calls it.
    fn its(&self, path: &Path, measured: &Path) -> PathBuf {
        match (&self.location.directory, path.strip_prefix(measured)) {
            (Some(there), Ok(below)) => there.join(below),
            _ => path.to_owned(),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<()> {
        send(&mut self.requests, request).map_err(|_| self.lost())
    }

    fn answer(&mut self, limit: Duration) -> Result<Answer> {
        self.look(limit)?.ok_or_else(|| self.silent(limit))
    }

    /// As [`Worker::answer`], but an error as soon as the run is to stop.
    fn answer_unless_stopped(&mut self, limit: Duration, watch: &Watch) -> Result<Answer> {
        let began = Instant::now();
        while began.elapsed() < limit {
            watch.check()?;
            if let Some(answer) = self.look(LOOK_EVERY)? {
                return Ok(answer);
            }
        }
        Err(self.silent(limit))
    }

    fn silent(&self, limit: Duration) -> Error {
        let (name, seconds) = (&self.location.name, limit.as_secs());
        Error::failed(format!("{name} has not answered for {seconds} s"))
    }

    /// What it says at its job, if anything; an error if that is nothing for too long, as of a host that has lost its power:
    /// no connection ends by that.
    fn hear(&mut self, silence: Duration) -> Result<Option<Answer>> {
        if let Some(answer) = self.look(LOOK_EVERY)? {
            return Ok(Some(answer));
        }
        let heard = self.spoken.heard.max(self.spoken.go);
        if machine_time().as_secs_f64() - heard < silence.as_secs_f64() {
            return Ok(None);
        }
        self.look(LAST_WAIT)?.map(Some).ok_or_else(|| {
            self.silent(silence).next("see whether its host and the network to it are well")
        })
    }

    /// Its answer, if it comes in time.
    fn look(&mut self, limit: Duration) -> Result<Option<Answer>> {
        match self.answers.recv_timeout(limit) {
            Ok((heard, answer)) => {
                self.spoken.heard = heard;
                answer.map(Some)
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.lost()),
        }
    }

    fn surprise(&self, answer: Answer) -> Error {
        match answer {
            Answer::Failed(Error { kind, cause, next }) => {
                let cause = if self.location.is_here() {
                    cause
                } else {
                    format!("{}: {cause}", self.location.name)
                };
                Error { kind, cause, next }
            }
            other => Error::failed(format!("{} has answered {other:?}", self.location.name)),
        }
    }

    fn lost(&mut self) -> Error {
        let name = &self.location.name;
        if ended_by(&mut self.child) == Some(libc::SIGBUS) {
            return Error::failed(format!(
                "{name} was ended by SIGBUS: the file system failed at a page of a mapping"
            ))
            .next("look whether it has room, and whether its disks and servers are well");
        }
        let by_hand = self.location.by_hand();
        Error::failed(format!("the worker on {name} has ended"))
            .next(format!("its last words are above; try its command by hand: {by_hand}"))
    }
}

/// Which signal has ended a process whose pipes are closed: that is not yet known at that moment.
fn ended_by(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(None) if began.elapsed() < END_WAIT => thread::sleep(Duration::from_millis(1)),
            Ok(status) => return status?.signal(),
            Err(_) => return None,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already. A worker on another host ends when its line does.
        let _gone = self.child.kill();
        // One that a dead file system holds does not even end when it is killed.
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < END_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::Crew;
    use std::io::BufRead;
    use std::process::{ChildStdout, Command};

    /// In a thread of the run it ended the run, with everything that was measured.
    #[test]
    fn a_worker_that_a_bad_page_ends_is_an_error_with_its_cause() {
        let worker = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = command.spawn().unwrap();
            let requests = child.stdin.take().unwrap();
            let (_, answers) = channel();
            let (location, spoken) = (Location::here(), Spoken::default());
            Worker { location, child, requests, answers, spoken }
        };
        let error = worker("kill -BUS $$").look(LOOK_EVERY).unwrap_err();
        assert!(error.cause.contains("SIGBUS") && error.next.is_some(), "{error}");
        let error = worker("exit 1").look(LOOK_EVERY).unwrap_err();
        assert!(error.cause.contains("has ended"), "{error}");
    }

    /// A run whose host had lost its power waited until TCP gave it up, after hours, and for a worker that stood still
    /// for ever.
    #[test]
    fn a_worker_that_says_nothing_ends_the_run_and_is_named() {
        let mut sleeper = Command::new("sleep");
        let mut child = sleeper.arg("1000").stdin(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let (_silent, answers) = channel();
        let location = Location::parse("host").unwrap();
        let spoken = Spoken { go: machine_time().as_secs_f64(), ..Spoken::default() };
        let mut workers = [Worker { location, child, requests, answers, spoken }];
        let silence = Duration::from_millis(10);
        let ended = first_cause(collect(&mut workers, &Watch::default(), silence));
        let error = ended.unwrap_err();
        assert!(error.cause.starts_with("host has not answered"), "{error}");
    }

    /// This machine alone was asked: what others held back was written while the next test was timed.
    #[test]
    fn what_other_hosts_hold_back_is_written_too() {
        let directory = tempfile::tempdir().unwrap();
        let (worker, mut asked) = answering("host=/there", Answer::Settled);
        let mut crew = crew_of(vec![worker], directory.path());
        crew.settle(directory.path(), &Watch::default()).unwrap();
        let wanted = Request::Settle { directory: "/there".into() };
        assert_eq!(receive(&mut asked).unwrap(), Some(wanted));
    }

    /// One was asked when the one before had answered: of ten hosts that take a minute the last took ten.
    #[test]
    fn all_other_hosts_are_asked_before_one_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let failed = Answer::Failed(Error::failed("no room"));
        let (first, _) = answering("first=/a", failed);
        let (second, mut asked) = answering("second=/b", Answer::Settled);
        let mut crew = crew_of(vec![first, second], directory.path());
        let error = crew.settle(directory.path(), &Watch::default()).unwrap_err();
        assert!(error.cause.starts_with("first: no room"), "{error}");
        drop(crew);
        let wanted = Request::Settle { directory: "/b".into() };
        assert_eq!(receive(&mut asked).unwrap(), Some(wanted));
    }

    /// A worker that gives this answer, and what it is asked, also after its end.
    fn answering(location: &str, answer: Answer) -> (Worker, BufReader<ChildStdout>) {
        let location = Location::parse(location).unwrap();
        let mut echo = Command::new("/bin/sh");
        echo.args(["-c", "exec 3<&0; cat <&3 & echo; exec sleep 1000 >/dev/null"]);
        let mut child = echo.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let mut asked = BufReader::new(child.stdout.take().unwrap());
        // What repeats the requests runs by itself by then, and outlives a worker that is killed.
        asked.read_line(&mut String::new()).unwrap();
        let (sender, answers) = channel();
        sender.send((0.0, Ok(answer))).unwrap();
        (Worker { location, child, requests, answers, spoken: Spoken::default() }, asked)
    }

    fn crew_of(running: Vec<Worker>, measured: &Path) -> Crew {
        let locations = running.iter().map(|worker| worker.location.clone()).collect();
        Crew::Processes(Processes { running, ..Processes::new(locations, measured, "1").unwrap() })
    }
}
