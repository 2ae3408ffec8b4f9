//! How a database that is away is waited for.

use super::{KvError, Result};
use std::time::Duration;
use tokio::time::Instant;

/// Pauses between attempts, in milliseconds.
const PAUSE_MS: u64 = 50;
const PAUSE_MS_MAX: u64 = 1000;

/// Pauses that grow.
#[derive(Default)]
pub struct Pause(u32);

impl Pause {
    /// Waits a little if that may help and the time is not over; else the error is the answer.
    pub async fn after(&mut self, error: KvError, deadline: Instant) -> Result<()> {
        let pause = Duration::from_millis((PAUSE_MS << self.0.min(10)).min(PAUSE_MS_MAX));
        let helps = matches!(error, KvError::Unreachable { .. });
        if !helps || Instant::now() + pause >= deadline {
            return Err(error);
        }
        if self.0 == 2 {
            tracing::warn!("{error}; trying again");
        }
        self.0 += 1;
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
