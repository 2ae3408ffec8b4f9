//! A client stands still for about as long as its session lasts, or for longer, and goes on: by then others may have its locks,
//! and what it had not written is never written (S-108, S-109).

use super::Cluster;
use super::mount::Mount;
use super::plan::SILENCE_MAX;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::SplitMix64;
use tokio::time::Instant;

/// Shortest time: a session lasts for 30 s by its server's clock, so this one mostly goes on.
const SILENCE_MIN_MS: u64 = 20_000;
/// So long before it goes on another client asks whether its session is over, for as long at most.
const ASK: Duration = Duration::from_secs(3);

impl Cluster {
    /// A client's process does not run for a while: at most once, so that no call of it stands still twice.
    pub(super) fn silence(self: &Arc<Self>, random: &mut SplitMix64) {
        let nth = random.below(self.plan.clients.into()) as usize;
        let more = SILENCE_MAX.as_millis() as u64 - SILENCE_MIN_MS;
        let length = Duration::from_millis(SILENCE_MIN_MS + random.below(more));
        let Some(client) = self.clients.lock()[nth].clone() else { return };
        let mut silence = self.silence.lock();
        if silence.is_some() {
            return;
        }
        let number = client.number;
        self.world.note(format_args!("client {number} stands still for {length:?}"));
        strake_base::count_case("fault-silence");
        self.logs.silence(number);
        self.files.may_be_missed();
        client.process.pause();
        let cluster = self.clone();
        let stands_still = async move { cluster.stand_still(&client, length).await };
        *silence = Some(tokio::spawn(stands_still));
    }

    async fn stand_still(&self, client: &Mount, length: Duration) {
        let (number, end) = (client.number, Instant::now() + length);
        tokio::time::sleep_until(end - ASK).await;
        let is_over = self.is_session_over(number).await;
        tokio::time::sleep_until(end).await;
        if client.process.is_dead() {
            // It may be there again, in another life.
            self.world.note(format_args!("client {number} died where it stood still"));
            return;
        }
        self.world.note(format_args!("client {number} goes on, its session is over: {is_over}"));
        if is_over {
            strake_base::count_case("silence-outlasts-session");
        }
        // Nobody knows for sure.
        self.logs.comes_back(number);
        self.files.may_be_missed();
        client.process.resume();
    }

    /// True if another client is told that this one has no session any more.
    async fn is_session_over(&self, number: u32) -> bool {
        let other = {
            let clients = self.clients.lock();
            let alive = |other: &&Arc<Mount>| other.number != number && !other.process.is_dead();
            clients.iter().flatten().find(alive).cloned()
        };
        let Some(other) = other else { return false };
        let process = other.process.clone();
        let asked = process.spawn(async move { other.knows(number).await });
        matches!(tokio::time::timeout(ASK, asked).await, Ok(Ok(Ok(false))))
    }
}
