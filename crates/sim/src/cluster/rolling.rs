//! All servers are restarted one after the other, as for a new release.

use super::Cluster;
use super::host::Host;
use super::plan::Trouble;
use super::world::Power;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_types::Result;

/// Longest time that a server which was started is waited for before the next one goes.
const BACK_BOUND: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Longest time that a server is off.
const OFF_MAX: Duration = Duration::from_secs(4);

/// How servers are restarted.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// They are killed.
    kills: bool,
    /// Each is waited for until all copies are equal again, and not only until it is up.
    until_whole: bool,
    /// For so long each is off.
    off: Duration,
}

impl Cluster {
    /// Begins to restart all servers, unless that is under way.
    pub(super) fn roll(self: &Arc<Self>, length: Duration, random: &mut SplitMix64) {
        if self.rolling.swap(true, Ordering::Relaxed) {
            return;
        }
        strake_base::count_case("fault-roll");
        let (kills, until_whole) = (random.percent(50), random.percent(50));
        let manner = Manner { kills, until_whole, off: length.min(OFF_MAX) };
        let mut hosts: Vec<_> = self.members().cloned().collect();
        // The one with the manager comes first, last or in between.
        let first = random.below(hosts.len() as u64) as usize;
        hosts.rotate_left(first);
        let cluster = self.clone();
        self.later(async move {
            let numbers: Vec<_> = hosts.iter().map(|host| host.number).collect();
            cluster.world.note(format_args!("a rolling restart of {numbers:?}: {manner:?}"));
            for host in &hosts {
                cluster.restart(host, manner).await;
            }
            cluster.world.note(format_args!("the rolling restart is over"));
            cluster.rolling.store(false, Ordering::Relaxed);
        });
    }

    /// Restarts one, and waits until it serves.
    async fn restart(&self, host: &Arc<Host>, manner: Manner) {
        if !host.is_up() || self.must_wait(Trouble::Roll).await {
            self.world.note(format_args!("server {} is passed over", host.number));
            return;
        }
        match manner.kills {
            true => host.crash(Power::On).await,
            false => host.stop().await,
        }
        tokio::time::sleep(manner.off).await;
        let began = self.world.now();
        self.start(host).await;
        let mut is_back = false;
        while !is_back && self.world.now() - began < BACK_BOUND {
            tokio::time::sleep(LOOK).await;
            is_back = self.is_back(host, manner.until_whole).await.unwrap_or(false);
        }
        let took = (self.world.now() - began).as_millis();
        let number = host.number;
        self.world.note(format_args!("server {number} is back: {is_back}, after {took} ms"));
    }

    /// True if a server serves, by the manager's word; also if it has left the cluster.
    async fn is_back(&self, host: &Host, until_whole: bool) -> Result<bool> {
        if until_whole && !self.is_whole().await? {
            return Ok(false);
        }
        let map = self.map().await?;
        let mut all = map.servers.iter().filter(|server| server.id == host.number);
        Ok(all.all(|server| server.up) && (host.is_up() || !host.is_member()))
    }
}
