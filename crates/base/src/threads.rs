//! Threads, and those that a process has before it needs them. Where the system starts no more of them, Tokio panics in whatever asks
//! for one that may wait, unless there is one already; and a runtime that cannot start waits for ever for what it has started.

use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::{Builder, Runtime};

/// Threads that may wait (for a disk, for a kernel) from the beginning on. Where no other can be started all that has to wait takes
/// turns at them. One is too few: what it waits for may need another one.
const WAITING: usize = 8;
/// The stack of a thread that does nothing.
const STACK_BYTES: usize = 64 << 10;
/// Between two looks whether more can be started.
const LOOK: Duration = Duration::from_secs(10);

/// What to do where there are too few.
const MORE_THREADS: &str = "let this process have more threads \
    (TasksMax= of a systemd unit, pids.max of a container, ulimit -u)";

/// Starts a thread of its own for some work.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| refused(&error))
}

/// That the system has started no thread, with what to do.
fn refused(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{error}; {MORE_THREADS}"))
}

/// Starts a runtime with so many threads for its tasks, or as many as the system starts. Those that may wait stay when they have
/// nothing to do: it might start no others later.
pub fn start(builder: &mut Builder, wanted: usize) -> io::Result<Runtime> {
    let mut workers = wanted;
    // Twice as many: the system may count those that were tried a moment longer, and not all threads are the runtime's.
    while let Err(error) = try_to_start(2 * (workers + WAITING)) {
        if workers == 1 {
            return Err(error);
        }
        workers /= 2;
    }
    if workers < wanted {
        tracing::warn!(
            "the system starts few threads: {workers} work instead of {wanted}; {MORE_THREADS}"
        );
    }
    let runtime = builder.worker_threads(workers).thread_keep_alive(Duration::MAX).build()?;
    // None of them is done with one before all have begun.
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    for _ in 0..WAITING {
        let gate = gate.clone();
        runtime.spawn_blocking(move || drop(gate.lock()));
    }
    drop(closed);
    Ok(runtime)
}

/// Starts so many threads, which end when all have begun.
fn try_to_start(count: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _closed = gate.lock();
        for _ in 0..count {
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, || drop(gate.lock())).map_err(|error| refused(&error))?;
        }
        Ok(())
    })
}

/// Says when the system starts no more threads for this process, and when it does again. Ends with the runtime.
pub async fn watch() {
    let mut is_refused = false;
    loop {
        tokio::time::sleep(LOOK).await;
        is_refused = look(is_refused);
    }
}

/// True if no thread can be started.
fn look(was_refused: bool) -> bool {
    let tried = try_to_start(1);
    match &tried {
        Err(error) if !was_refused => {
            tracing::warn!(
                "no thread can be started, and what has to wait for a disk takes turns: {error}"
            );
        }
        Ok(()) if was_refused => tracing::info!("threads can be started again"),
        _ => {}
    }
    // All that may wait may be waiting for what waits for a thread itself: nothing else would have one started.
    tokio::task::spawn_blocking(|| ());
    tried.is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::sync::mpsc::channel;

    /// Requests failed, and maps showed what was before, as soon as nothing had waited for ten seconds. A process that was to start
    /// so hung.
    #[test]
    fn where_no_thread_can_be_started_what_waits_goes_on() {
        crate::tests::passes_alone("threads::tests::where_it_can_start_no_thread");
    }

    #[test]
    #[ignore = "the test above starts it as a process of its own"]
    #[allow(unsafe_code, reason = "no limit holds for root")]
    fn where_it_can_start_no_thread() {
        // SAFETY: it takes no pointer, and this process is for this test alone.
        assert!(!rustix::process::geteuid().is_root() || unsafe { libc::setuid(65534) } == 0);
        let mut builder = Builder::new_multi_thread();
        let runtime = start(builder.thread_keep_alive(Duration::from_millis(1)), 1).unwrap();
        thread::sleep(Duration::from_millis(100));
        let before = getrlimit(Resource::Nproc);
        setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..before }).unwrap();
        assert!(spawn("one more", || ()).is_err(), "the limit holds");
        let error = start(&mut Builder::new_multi_thread(), 1).unwrap_err().to_string();
        assert!(error.contains("; let this process have more threads (TasksMax="), "{error}");

        // As many at once as there are, and one more.
        let ((begun, begins), gate) = (channel(), Arc::new(Mutex::new(())));
        let closed = gate.lock();
        for nth in 0..=WAITING {
            let (begun, gate) = (begun.clone(), gate.clone());
            runtime.spawn_blocking(move || {
                begun.send(nth).unwrap();
                drop(gate.lock());
            });
        }
        let next = || begins.recv_timeout(Duration::from_secs(20));
        assert!((0..WAITING).all(|_| next().is_ok()));
        let _within = runtime.enter();
        assert!(look(false));
        assert!(begins.try_recv().is_err(), "it takes its turn");
        setrlimit(Resource::Nproc, before).unwrap();
        assert!(!look(true));
        assert_eq!(next(), Ok(WAITING), "although all the others still wait");
        drop(closed);
    }
}
