//! The threads that carry the connections to a database.

use super::{KvError, Result};
use strake_base::threads;
use tokio::runtime::{Handle, Runtime};

/// So many are enough: they only pass on what others ask and are answered.
const THREADS: usize = 2;

/// Threads with tasks on them, for any engine on a database. Nobody waits for them when they go.
pub struct Background(Option<Runtime>, Handle);

impl Background {
    /// Starts them, for the store with this name.
    pub fn new(name: &str, store: &str) -> Result<std::sync::Arc<Self>> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let started = threads::start(builder.thread_name(name).enable_all(), THREADS);
        let runtime =
            started.map_err(|e| KvError::Io { store: store.into(), cause: e.to_string() })?;
        let handle = runtime.handle().clone();
        Ok(std::sync::Arc::new(Self(Some(runtime), handle)))
    }

    /// What starts tasks on them.
    pub fn handle(&self) -> &Handle {
        &self.1
    }

    /// Carries out a task there and blocks until it is done.
    pub fn carry_out<T: Send + 'static>(
        &self,
        store: &str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        self.1.spawn(async move {
            let _told = tell.send(task.await);
        });
        told.recv().map_err(|e| KvError::Io {
            store: store.into(),
            cause: format!("opening it ended early: {e}"),
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
