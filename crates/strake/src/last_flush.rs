//! The flush when a mount ends, and how long it is waited for.

use std::pin::pin;
use std::time::Duration;
use strake_client::Volume;
use tokio::time::{Instant, timeout_at};

/// How long it is waited for while nothing is sent, before the rest is left to the stores.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether something was sent.
const LOOK: Duration = Duration::from_secs(1);
/// Each part of it has so long, whatever the others have taken.
const PART_TIME_MIN: Duration = Duration::from_secs(2);

/// What was written through a mount is being sent for the last time: that is waited for as long as less and less is unsent,
/// with taking the mount away.
pub struct LastFlush<'a> {
    volume: &'a Volume,
    /// When it is given up if nothing is sent until then.
    until: Instant,
    /// What was unsent when it was last looked: bytes, and changes of names.
    unsent: (usize, usize),
}

impl<'a> LastFlush<'a> {
    /// It begins now.
    pub fn of(volume: &'a Volume) -> Self {
        let until = Instant::now() + SILENT_MAX;
        Self { volume, until, unsent: unsent(volume) }
    }

    /// Waits for a part of it; `None`: in vain.
    pub async fn wait<T>(&mut self, part: impl Future<Output = T>) -> Option<T> {
        let mut part = pin!(part);
        self.until = self.until.max(Instant::now() + PART_TIME_MIN);
        loop {
            let look = self.until.min(Instant::now() + LOOK);
            if let Ok(done) = timeout_at(look, &mut part).await {
                return Some(done);
            }
            let (now, unsent) = (Instant::now(), unsent(self.volume));
            if unsent.0 < self.unsent.0 || unsent.1 < self.unsent.1 {
                self.until = now + SILENT_MAX;
            }
            self.unsent = unsent;
            if now >= self.until {
                return None;
            }
        }
    }
}

fn unsent(volume: &Volume) -> (usize, usize) {
    (volume.unsent_bytes(), volume.unsent_names())
}
