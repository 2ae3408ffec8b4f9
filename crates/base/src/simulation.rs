//! Many simulated processes in one thread, and chance that follows from a seed.
//!
//! A [`Process`] is what a simulated machine runs: its tasks, and whatever they spawn by
//! [`crate::task`]. It can be paused, as by a scheduler that forgets it, and killed: its tasks then
//! end where they wait. [`entropy`] makes everything that is random in a thread follow from a seed,
//! [`sabotage`] breaks production code on purpose, to see whether a simulation notices, and [`cases`]
//! counts what a run meets.
//!
//! Only compiled with the feature `simulation`, which nothing but the simulator asks for.

pub mod cases;
pub mod entropy;
pub mod sabotage;

use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinHandle};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Process>>> = const { RefCell::new(None) };
}

/// Tasks that live and die together.
pub struct Process {
    state: Mutex<State>,
    /// How long the next operation that may wait for a disk does.
    disk_time: Box<dyn Fn() -> Duration + Send + Sync>,
}

#[derive(Default)]
struct State {
    dead: bool,
    paused: bool,
    tasks: Vec<AbortHandle>,
    /// Tasks that wanted to run while it was paused.
    held: Vec<Waker>,
}

impl Process {
    /// A process without tasks.
    pub fn new(disk_time: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), disk_time: Box::new(disk_time) })
    }

    /// The one whose task is running.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// True once it was killed.
    pub fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// Runs a future as a task of this process; if that is dead the task never begins.
    pub fn spawn<F>(self: &Arc<Self>, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = tokio::spawn(Within { process: Arc::clone(self), future: Box::pin(future) });
        let mut state = self.state.lock();
        if state.dead {
            task.abort();
            return task;
        }
        if state.tasks.len() >= 64 && state.tasks.len().is_power_of_two() {
            state.tasks.retain(|task| !task.is_finished());
        }
        state.tasks.push(task.abort_handle());
        drop(state);
        task
    }

    /// Runs work that waits for a disk: after the simulated time of that.
    pub fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let time = (self.disk_time)();
        self.spawn(async move {
            tokio::time::sleep(time).await;
            work()
        })
    }

    /// Ends all tasks where they wait. Their values are dropped when the runtime comes to it.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        state.dead = true;
        let tasks = std::mem::take(&mut state.tasks);
        let held = std::mem::take(&mut state.held);
        drop(state);
        tasks.iter().for_each(AbortHandle::abort);
        held.into_iter().for_each(Waker::wake);
    }

    /// Nothing of it runs until [`Process::resume`].
    pub fn pause(&self) {
        self.state.lock().paused = true;
    }

    /// It runs again.
    pub fn resume(&self) {
        let held = {
            let mut state = self.state.lock();
            state.paused = false;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(Waker::wake);
    }

    /// True if a task may run now; else it is woken when it may.
    fn may_run(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if state.paused && !state.dead {
            state.held.push(waker.clone());
            return false;
        }
        true
    }
}

/// A task of a process.
struct Within<F> {
    process: Arc<Process>,
    future: Pin<Box<F>>,
}

/// Puts the process back that ran before.
struct Entered(Option<Arc<Process>>);

impl Entered {
    fn new(process: &Arc<Process>) -> Self {
        Self(CURRENT.replace(Some(Arc::clone(process))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if !self.process.may_run(context.waker()) {
            return Poll::Pending;
        }
        let _entered = Entered::new(&self.process);
        self.future.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests;
