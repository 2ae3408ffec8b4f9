//! What goes wrong with disks while their machines are off: they are lost, or older than they were.

use super::Cluster;
use super::host::{Drive, Host};
use super::world::Power;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_base::random::SplitMix64;

/// For so long a server has told what is on its disks, if it is asked for nothing else.
const TOLD: Duration = Duration::from_secs(3);

/// How often it is looked whether all is calm, a [`TOLD`] apart.
const CALM_LOOKS_MAX: u32 = 5;

impl Cluster {
    /// A disk of a machine is gone with all that was on it, and the machine comes back with an empty one.
    pub(super) async fn lose_disk(
        self: &Arc<Self>,
        host: &Arc<Host>,
        length: Duration,
        random: &mut SplitMix64,
    ) {
        if self.plan.copies == 1 || !self.can_lose(host).await {
            return;
        }
        self.weak.store(true, Ordering::Relaxed);
        host.crash(Power::On).await;
        let lost = host.swap_drive(random.below(host.drives().len() as u64) as usize);
        self.world.note(format_args!("server {} loses target {lost}", host.number));
        self.lost.lock().push(lost);
        strake_base::count_case("fault-lose-disk");
        let (cluster, host) = (self.clone(), host.clone());
        self.later(async move {
            tokio::time::sleep(length).await;
            cluster.start(&host).await;
            cluster.replace_lost().await;
        });
    }

    /// A disk of a machine is copied, and its server killed and started, so that the copy is old; or an old copy takes
    /// the place of what is there, while its machine is off, or all are and it comes first.
    pub(super) async fn bring_old_disk(
        self: &Arc<Self>,
        host: &Arc<Host>,
        length: Duration,
        random: &mut SplitMix64,
    ) {
        let drives = |host: &Arc<Host>| {
            let of = |drive| (host.clone(), drive);
            host.drives().into_iter().map(of).collect::<Vec<_>>()
        };
        let mut copied =
            self.members().flat_map(drives).filter(|(_, drive)| drive.has_older_copy());
        match copied.next() {
            Some((host, drive)) => self.bring_copy(&host, &drive, length, random.percent(50)).await,
            None if !host.is_up() => {}
            None => {
                for drive in host.drives() {
                    drive.copy(random.next_number(), self.plan.disk_bytes);
                }
                self.world.note(format_args!("the disks of server {} are copied", host.number));
                self.crash(host, Power::On, length).await;
            }
        }
    }

    async fn bring_copy(
        self: &Arc<Self>,
        host: &Arc<Host>,
        drive: &Drive,
        length: Duration,
        all: bool,
    ) {
        let before = drive.generation();
        for _ in 0..CALM_LOOKS_MAX {
            if self.can_lose(host).await {
                break;
            }
            tokio::time::sleep(TOLD).await;
        }
        tokio::time::sleep(TOLD).await;
        if !self.can_lose(host).await || drive.generation() != before {
            return;
        }
        self.weak.store(true, Ordering::Relaxed);
        host.crash(Power::On).await;
        self.world.note(format_args!("an old copy of target {} is brought", drive.target()));
        strake_base::count_case("fault-old-disk");
        drive.bring_copy();
        let others = self.members().filter(|other| all && other.number != host.number);
        for other in others.cloned().collect::<Vec<_>>() {
            self.crash(&other, Power::On, length).await;
        }
        let (cluster, host) = (self.clone(), host.clone());
        self.later(async move {
            if !all {
                tokio::time::sleep(length).await;
            }
            cluster.start(&host).await;
        });
    }
}
