//! Tasks: what runs beside its caller.
//!
//! Outside of simulations these are Tokio's own. In a simulation a task belongs to the simulated
//! process of whoever spawned it, dies with it, and waits for a disk without a thread.

#[cfg(feature = "simulation")]
use crate::simulation::Process;
use std::future::Future;
use std::pin::Pin;
#[cfg(feature = "simulation")]
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

/// Runs a future as a task. Must be called within a Tokio runtime.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[cfg(feature = "simulation")]
    if let Some(process) = Process::current() {
        return process.spawn(future);
    }
    tokio::spawn(future)
}

/// A task that goes on only as long as somebody has this: dropped, it is aborted. Awaited, it gives
/// what a [`JoinHandle`] gives.
#[derive(Debug)]
#[must_use = "the task is aborted when this is dropped"]
pub struct Owned<T>(JoinHandle<T>);

/// [`spawn`]s a future as a part of what its caller does, which ends with it.
pub fn spawn_owned<F>(future: F) -> Owned<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Owned(spawn(future))
}

impl<T> Future for Owned<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What comes to its end once it has begun: it is a part of what its caller does, and a task of its own as soon as that goes
/// away. Where the runtime has ended, or the simulated process of its caller, nothing goes on.
#[must_use = "it begins when it is awaited"]
pub struct ToTheEnd<T: Send + 'static> {
    /// `None`: it has ended.
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    has_begun: bool,
    /// Whose it is.
    #[cfg(feature = "simulation")]
    process: Option<Arc<Process>>,
}

/// Runs a future to its end, whoever waits for it.
pub fn to_the_end<F>(future: F) -> ToTheEnd<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    ToTheEnd {
        future: Some(Box::pin(future)),
        has_begun: false,
        #[cfg(feature = "simulation")]
        process: Process::current(),
    }
}

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.has_begun = true;
        let Some(future) = &mut self.future else { return Poll::Pending };
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        let Some(future) = self.future.take().filter(|_| self.has_begun) else { return };
        // What has panicked has ended.
        if Handle::try_current().is_err() || std::thread::panicking() {
            return;
        }
        #[cfg(feature = "simulation")]
        if let Some(process) = self.process.take() {
            process.spawn(future);
            return;
        }
        tokio::spawn(future);
    }
}

/// Runs what may wait for a disk, on a thread that may. Must be called within a Tokio runtime.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[cfg(feature = "simulation")]
    if let Some(process) = Process::current() {
        return process.blocking(work);
    }
    tokio::task::spawn_blocking(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Waker;

    #[tokio::test]
    async fn an_owned_task_ends_with_its_owner() {
        let held = Arc::new(());
        let inside = held.clone();
        let task = spawn_owned(async move {
            let _inside = inside;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&held), 2);
        drop(task);
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(spawn_owned(async { 7 }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_runs_to_its_end_goes_on_without_its_caller_once_it_has_begun() {
        let ended = Arc::new(AtomicU32::new(0));
        let count = || {
            let ended = ended.clone();
            to_the_end(async move {
                tokio::task::yield_now().await;
                ended.fetch_add(1, Ordering::Relaxed) + 1
            })
        };
        assert_eq!(count().await, 1);
        drop(count());
        let context = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut count()).poll(context).is_pending());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(ended.load(Ordering::Relaxed), 2, "the second has never begun");
    }
}
