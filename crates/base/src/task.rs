//! Tasks: what runs beside its caller.
//!
//! Outside of simulations these are Tokio's own. In a simulation a task belongs to the simulated
//! process of whoever spawned it, dies with it, and waits for a disk without a thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::{JoinError, JoinHandle};

/// Runs a future as a task. Must be called within a Tokio runtime.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[cfg(feature = "simulation")]
    if let Some(process) = crate::simulation::Process::current() {
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

/// Runs what may wait for a disk, on a thread that may. Must be called within a Tokio runtime.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[cfg(feature = "simulation")]
    if let Some(process) = crate::simulation::Process::current() {
        return process.blocking(work);
    }
    tokio::task::spawn_blocking(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
}
