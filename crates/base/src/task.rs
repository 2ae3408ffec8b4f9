//! Tasks: what runs beside its caller.
//!
//! Outside of simulations these are Tokio's own. In a simulation a task belongs to the simulated
//! process of whoever spawned it, dies with it, and waits for a disk without a thread.

use std::future::Future;
use tokio::task::JoinHandle;

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

/// Runs what may wait for a disk, on a thread that may. Must be called within a Tokio runtime.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[cfg(feature = "simulation")]
    if let Some(process) = crate::simulation::Process::current() {
        return process.blocking(work);
    }
    tokio::task::spawn_blocking(work)
}
