//! A volume that this process has mounted.

use crate::cluster;
use crate::failure::Outcome;
use crate::last_flush::LastFlush;
use crate::signals;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strake_client::Volume;
use strake_fuse::{MountHandle, MountOptions, Unmount};
use tokio::sync::watch;

/// How long it may take to take a mount away for which nothing is waited.
const DETACH_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a volume that could not be mounted may take to be left: its metadata server may say nothing any more, and ends the
/// session by itself.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// A mounted volume.
pub struct Mounted {
    volume: Arc<Volume>,
    mount: MountHandle,
    stop: watch::Receiver<bool>,
}

impl Mounted {
    /// Mounts a volume, or leaves it. At a second signal to stop, the mount is taken away under its users.
    pub async fn at(point: &Path, volume: Arc<Volume>, options: &MountOptions) -> Outcome<Self> {
        let mounted = Self::mount(point, &volume, options).await;
        if mounted.is_err() {
            let left = tokio::time::timeout(LEAVE_TIME_MAX, cluster::leave_volume(&volume)).await;
            if left.is_err() {
                tracing::debug!("volume {}: it could not be left in time", volume.name());
            }
        }
        mounted
    }

    async fn mount(point: &Path, volume: &Arc<Volume>, options: &MountOptions) -> Outcome<Self> {
        let lazy = point.to_owned();
        let stop = signals::stop_requested(move || {
            let _gone = strake_fuse::unmount(&lazy, Unmount::Lazy);
        })?;
        let runtime = tokio::runtime::Handle::current();
        let mount = strake_fuse::mount(volume.clone(), point, options, runtime).await?;
        Ok(Self { volume: volume.clone(), mount, stop })
    }

    /// Serves until it is told to stop (false), or unmounted from outside (true); one that nobody wants any more stops at once.
    pub async fn until_stopped(&mut self, is_wanted: bool) -> bool {
        tokio::select! {
            _ = std::future::ready(()), if !is_wanted => false,
            () = signals::asked(&mut self.stop) => false,
            _ = self.mount.wait() => true,
        }
    }

    /// Takes it away, unless that was done from outside (`unmounted`). What became of the last flush; `None`: what was written could
    /// not be flushed in time.
    pub async fn close(&self, unmounted: bool) -> Option<strake_types::Result<()>> {
        let mut flush = LastFlush::of(&self.volume);
        if unmounted {
            tracing::info!("unmounted from outside: stopping");
        } else {
            take_away(&self.mount, &mut flush).await;
        }
        // Longer than an operation waits: nobody hears of what is not told, but from the log.
        let _in_vain = flush.wait(self.volume.names_told()).await;
        let closed = flush.wait(self.volume.close()).await;
        self.volume.give_up_names();
        closed
    }
}

/// Takes a mount out of the tree: when nobody uses it and all is sent, else at once and for good, so that nothing of it stays
/// behind.
async fn take_away(mount: &MountHandle, flush: &mut LastFlush<'_>) {
    let why = match flush.wait(mount.unmount(Unmount::WhenIdle)).await {
        Some(Ok(())) => return,
        Some(Err(error)) => error.to_string(),
        None => "what was written could not be flushed in time".into(),
    };
    tracing::warn!("{why}; taking it away under its users");
    match tokio::time::timeout(DETACH_TIME_MAX, mount.detach()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!("{error}"),
        Err(_) => tracing::error!("the mount could not be taken away in time"),
    }
}
