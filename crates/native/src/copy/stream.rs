//! Copying what has no length: a pipe or a device that was named is read to its end.

use super::{Job, Task, unless_stopped};
use crate::contents::{Contents, Written, replaced};
use crate::info::Info;
use crate::local::blocking;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_types::{Error, ErrorKind, Result};

impl Job {
    /// Copies what a file of this machine that is no regular one gives. It is never passed over.
    pub(super) async fn copy_stream(self: &Arc<Self>, task: &Task) -> Result<bool> {
        let Some(path) = task.from.local_path() else {
            let detail = format!(
                "{} is no regular file, and nobody can read it in a volume; give -r to make another one like it",
                task.from.shown()
            );
            return Err(Error::with(ErrorKind::Invalid, detail));
        };
        let there = self.target(task).await?;
        // A pipe is opened when somebody writes to it.
        let opening = unless_stopped(self.options.stop.clone(), blocking(move || File::open(path)));
        let from = opening.await.map_err(|error| task.from.about(error))?;
        self.copy_opened_stream(task, from, there).await.map(|()| true)
    }

    /// Copies it in place of what was there, if anything, before it was opened.
    pub(super) async fn copy_opened_stream(
        &self,
        task: &Task,
        from: File,
        there: Option<Info>,
    ) -> Result<()> {
        // Others may read what comes out of it as far as they may read it.
        let mode = task.info.mode & 0o777 | 0o600;
        let what = Written::over(there.as_ref());
        let to = match Contents::create(&task.to, mode, what, &self.pool).await {
            // That was long ago, perhaps: whoever has made a file there since has it open, whatever its mode.
            Err(error) if error.kind == ErrorKind::Exists => {
                return Err(task.to.about(replaced()));
            }
            to => to?,
        };
        let copied = self.copy_all_of(task, Arc::new(from), &to).await;
        self.close(&task.to, &to, copied, self.options.sync).await?;
        self.sync_led_to(task, what).await
    }

    async fn copy_all_of(&self, task: &Task, from: Arc<File>, to: &Contents) -> Result<()> {
        let (mut at, block) = (0, self.options.block_bytes);
        loop {
            let from = from.clone();
            let reading = blocking(move || read_block(&from, block));
            let part = unless_stopped(self.options.stop.clone(), reading).await;
            let part = part.map_err(|error| task.from.about(error))?;
            if part.is_empty() {
                return Ok(());
            }
            let len = part.len() as u64;
            to.write(at, vec![part]).await.map_err(|error| task.to.about(error))?;
            self.counters.bytes_total.fetch_add(len, Ordering::Relaxed);
            self.counters.bytes_done.fetch_add(len, Ordering::Relaxed);
            at += len;
        }
    }
}

/// The next bytes; fewer than a block at the end.
fn read_block(mut from: &File, block: usize) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    from.by_ref().take(block as u64).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}
