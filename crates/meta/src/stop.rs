//! How background tasks are told to end.

use tokio::sync::watch;

/// Tells background tasks to end.
pub(crate) struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Tells them.
    pub fn tell(&self) {
        self.0.send_replace(true);
    }

    /// They are to end.
    pub fn is_told(&self) -> bool {
        *self.0.borrow()
    }

    /// Ready as soon as they are to end.
    pub async fn told(&self) {
        // The sender is there as long as `self`.
        let mut telling = self.0.subscribe();
        let _told = telling.wait_for(|told| *told).await;
    }
}
