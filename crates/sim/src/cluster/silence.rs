//! A client stands still for about as long as its session lasts, or for longer, and goes on: by then others may have its locks,
//! and what it had not written is never written (S-108, S-109).

use super::Cluster;
use super::plan::SILENCE_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_base::random::SplitMix64;

/// Shortest time: a session lasts for 30 s by its server's clock, so this one mostly goes on.
const SILENCE_MIN_MS: u64 = 20_000;

impl Cluster {
    /// A client's process does not run for a while: at most once, so that no call of it stands still twice.
    pub(super) fn silence(self: &Arc<Self>, random: &mut SplitMix64) {
        let nth = random.below(self.plan.clients.into()) as usize;
        let more = SILENCE_MAX.as_millis() as u64 - SILENCE_MIN_MS;
        let length = Duration::from_millis(SILENCE_MIN_MS + random.below(more));
        let Some(client) = self.clients.lock()[nth].clone() else { return };
        if self.silenced.swap(true, Ordering::Relaxed) {
            return;
        }
        let number = client.number;
        self.world.note(format_args!("client {number} stands still for {length:?}"));
        strake_base::count_case("fault-silence");
        self.logs.silence(number);
        self.files.may_be_missed();
        client.process.pause();
        let cluster = self.clone();
        self.later(async move {
            tokio::time::sleep(length).await;
            cluster.world.note(format_args!("client {number} goes on"));
            // Nobody knows whether its session is over.
            cluster.logs.comes_back(number);
            cluster.files.may_be_missed();
            client.process.resume();
        });
    }
}
