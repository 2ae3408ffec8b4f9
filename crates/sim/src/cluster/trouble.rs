//! What goes wrong during a run, and that all of it ends.

use super::Cluster;
use super::host::{HEAD, Host};
use super::mount::CLIENTS_FROM;
use super::plan::Trouble;
use super::world::{Power, Weather};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_base::count_case;
use strake_base::random::SplitMix64;
use strake_types::Result;
use strake_wire::message::manager::ClusterMap;

/// How often a server that does not start is started again.
const STARTS_MAX: u32 = 40;
/// For how long maps are late after somebody has stood still.
const LATE_MAPS: Duration = Duration::from_secs(5);
/// Between two looks at who serves the volume.
const OWNER_LOOK: Duration = Duration::from_millis(20);
/// Until an eviction has happened of which nobody was told, if it happens at all.
const UNCLEAR_EVICTION: Duration = Duration::from_secs(60);
/// Until servers take what they had no room for when the disk has some again.
const ROOM_LOOK: Duration = Duration::from_secs(5);
/// For so long it is tried to take the head's power just after an answer.
const HEAD_TRIES: Duration = Duration::from_secs(20);
/// Between two of these tries.
const CALM_LOOK: Duration = Duration::from_millis(500);
/// For so long such an answer is waited for.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Longest time between an answer and the loss: others have the journal synced all the time.
const AFTER_ANSWER_MS: u64 = 20;
/// The same where a file was removed, whose chunks go meanwhile.
const AFTER_REMOVAL_MS: u64 = 100;
/// No machine gets more disks than that.
const DRIVES_MAX: usize = 3;

impl Cluster {
    /// Makes trouble for as long as the plan says.
    pub(super) async fn make_trouble(self: &Arc<Self>) {
        let mut random = self.world.stream(2);
        self.world.set_weather(self.plan.weather);
        let end = self.world.now() + self.plan.length;
        if self.plan.troubles.contains(&Trouble::HeadPower) {
            // Later all has to be calm for it, which it is in few runs.
            let chance = SplitMix64::new(random.next_number());
            self.make(Trouble::HeadPower, chance).await;
        }
        while self.world.now() < end {
            let pause = 100 + random.below(self.plan.calm_ms);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if self.members().all(|host| host.is_up()) && self.is_whole().await.unwrap_or(false) {
                self.files.whole_again();
                self.logs.whole_again();
                self.appends.whole_again();
            }
            self.switch_off().await;
            let kinds = &self.plan.troubles;
            let kind = kinds[random.below(kinds.len() as u64) as usize];
            let chance = SplitMix64::new(random.next_number());
            self.make(kind, chance).await;
        }
    }

    async fn make(self: &Arc<Self>, kind: Trouble, mut random: SplitMix64) {
        let members: Vec<_> = self.members().collect();
        let host = members[random.below(members.len() as u64) as usize].clone();
        let length = Duration::from_millis([50, 800, 4_000, 9_000][random.below(4) as usize]);
        if self.must_wait(kind).await {
            return;
        }
        match kind {
            Trouble::Kill => self.crash(&host, Power::On, length).await,
            Trouble::Power => {
                let may = host.number != HEAD || self.plan.head_loses().is_some();
                if may && self.can_lose(&host).await {
                    self.note_power(self.plan.copies == 1);
                    self.weak.store(true, Ordering::Relaxed);
                    self.crash(&host, Power::Off, length).await;
                }
            }
            Trouble::Blackout => {
                count_case("fault-blackout");
                self.note_power(true);
                let all = random.percent(50);
                let head = self.plan.head_loses().is_some();
                for other in members.iter().filter(|other| head || other.number != HEAD) {
                    if all || other.number == host.number {
                        self.crash(other, Power::Off, length).await;
                    }
                }
            }
            Trouble::Restart => self.stop_for(host, length),
            Trouble::Roll => self.roll(length, &mut random),
            Trouble::Partition => self.cut(&host, length, &mut random),
            Trouble::Unreached => self.close(&host, &mut random),
            Trouble::Pause => self.pause(&host, length),
            Trouble::Doze => self.doze(&mut random).await,
            Trouble::Silence => self.silence(&mut random),
            Trouble::Jump => {
                let seconds = [-36_000, -5, 5, 36_000][random.below(4) as usize];
                self.world.note(format_args!("server {}: clock jumps {seconds} s", host.number));
                count_case("fault-jump");
                host.clock.jump(seconds);
            }
            Trouble::ClientKill => self.kill_client(random.below(self.plan.clients.into()) as u32),
            Trouble::Evict => self.evict(&mut random),
            Trouble::Full => self.fill(&host, length, &mut random),
            Trouble::Storm => self.storm(length, &mut random),
            Trouble::Split => self.split(length, &mut random),
            Trouble::Slow => self.slow_down(&host, length),
            Trouble::Flip => self.flip(&mut random),
            Trouble::Scrub => self.scrub_about(&mut random).await,
            Trouble::Move => self.move_about(&mut random).await,
            Trouble::AddDisk => {
                if host.drives().len() < DRIVES_MAX {
                    let host = host.clone();
                    count_case("fault-add-disk");
                    self.later(async move { drop(host.add_drive().await) });
                }
            }
            Trouble::Leave => self.take_out(&host).await,
            Trouble::NoDatabase => self.cut_database(&host, length),
            Trouble::LoseDisk => self.lose_disk(&host, length, &mut random).await,
            Trouble::OldDisk => self.bring_old_disk(&host, length, &mut random).await,
            Trouble::HeadPower => self.cut_head(length, &mut random).await,
            Trouble::Join => self.add_machine(),
        }
    }

    /// The head loses power just after a client was told that something is done, if others have what its targets have.
    async fn cut_head(self: &Arc<Self>, length: Duration, random: &mut SplitMix64) {
        let Some(head) = self.members().find(|host| host.number == HEAD).cloned() else { return };
        let removed = random.percent(40);
        let most = if removed { AFTER_REMOVAL_MS } else { AFTER_ANSWER_MS };
        let after = Duration::from_millis(random.below(most));
        let until = self.world.now() + HEAD_TRIES;
        while self.world.now() < until {
            let may = self.can_lose(&head).await;
            let told = tokio::time::timeout(ANSWER_WAIT, self.synced.answered(removed)).await;
            // Whoever was whole still is: nothing is done to anybody meanwhile.
            if may && told.is_ok() {
                tokio::time::sleep(after).await;
                self.note_power(self.plan.copies == 1);
                self.weak.store(true, Ordering::Relaxed);
                count_case("fault-power-after-answer");
                self.crash(&head, Power::Off, length).await;
                return;
            }
            tokio::time::sleep(CALM_LOOK).await;
        }
    }

    /// Stops a server in good order, and starts it again after a time.
    fn stop_for(self: &Arc<Self>, host: Arc<Host>, length: Duration) {
        count_case("fault-restart");
        let cluster = self.clone();
        self.later(async move {
            host.stop().await;
            tokio::time::sleep(length).await;
            cluster.start(&host).await;
        });
    }

    fn add_machine(self: &Arc<Self>) {
        let new = self.hosts.iter().find(|host| !host.expected.load(Ordering::Relaxed));
        if let Some(new) = new.cloned() {
            let cluster = self.clone();
            count_case("fault-join");
            self.later(async move { cluster.start(&new).await });
        }
    }

    /// While copies that lost power are not equal again, the others are the only ones that have what was
    /// not synced: a group that loses these too is founded anew on whoever comes first, as is promised.
    pub(super) async fn must_wait(&self, kind: Trouble) -> bool {
        use Trouble::{
            AddDisk, Blackout, ClientKill, Evict, Flip, Full, Join, Jump, Leave, Move, Scrub,
            Silence, Slow, Storm,
        };
        let harmless = matches!(
            kind,
            AddDisk
                | Blackout
                | ClientKill
                | Evict
                | Flip
                | Full
                | Join
                | Jump
                | Leave
                | Move
                | Scrub
                | Silence
                | Slow
                | Storm
        );
        if harmless || !self.weak.load(Ordering::Relaxed) {
            return false;
        }
        let whole = self.members().all(|h| h.is_up()) && self.is_whole().await.unwrap_or(false);
        self.weak.store(!whole, Ordering::Relaxed);
        !whole
    }

    /// Ends a server, and starts it again after a time.
    pub(super) async fn crash(self: &Arc<Self>, host: &Arc<Host>, power: Power, length: Duration) {
        if !host.is_up() {
            return;
        }
        count_case(match power {
            Power::On => "fault-kill",
            Power::Off => "fault-power",
        });
        let loses = self.plan.head_loses() == Some(true);
        if loses && power == Power::Off && host.number == HEAD {
            count_case("fault-head-power");
            self.note_power(true);
            self.files.journal_lost();
            self.synced.journal_lost();
        }
        host.crash(power).await;
        let (cluster, host) = (self.clone(), host.clone());
        self.later(async move {
            tokio::time::sleep(length).await;
            cluster.start(&host).await;
        });
    }

    /// Whoever stays away while a volume gets another metadata server is waited for for a while only.
    pub(super) async fn follow_owners(&self) {
        let mut known: Vec<u32> = Vec::new();
        loop {
            let maps = self.hosts.iter().filter_map(|host| host.map()).map(|map| map.current());
            // One that serves on in another life begins another reign, and is no other.
            let newest = maps.max_by_key(|map| map.epoch);
            let owners = newest.map(|map| map.volumes.iter().map(|v| v.meta_server).collect());
            if let Some(owners) = owners.filter(|owners| *owners != known) {
                known = owners;
                self.files.may_be_missed();
                self.appends.may_be_missed();
            }
            tokio::time::sleep(OWNER_LOOK).await;
        }
    }

    /// Starts a server, however often it gives up.
    pub(super) async fn start(&self, host: &Arc<Host>) {
        if host.is_up() {
            return;
        }
        if host.number == HEAD {
            self.files.may_be_missed();
            self.appends.may_be_missed();
        }
        for _ in 0..STARTS_MAX {
            if host.start().await.is_ok() {
                if host.number == HEAD {
                    // Also of what was appended while it started.
                    self.appends.may_be_missed();
                }
                return;
            }
            // It may have left the cluster while it was off.
            self.switch_off().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.world.fail(format!("server {} does not start", host.number));
    }

    fn note_power(&self, loses: bool) {
        if loses {
            self.world.remains.lock().of_power = true;
            self.files.power_lost();
            self.logs.power_lost();
            self.appends.power_lost();
        }
    }

    /// True if whatever a machine has not synced is on another one that is to stay: all groups are
    /// whole, and everybody is there.
    pub(super) async fn can_lose(&self, host: &Arc<Host>) -> bool {
        let all_up = self.members().all(|host| host.is_up());
        let single = self.plan.copies == 1;
        // Whoever is cut off or paused counts as gone soon.
        let calm = self.later.lock().iter().all(tokio::task::JoinHandle::is_finished);
        let have_all = |map: &ClusterMap| self.is_whole_by(map) && has_copies_beside(map, host);
        let others_have_all = all_up && self.map().await.is_ok_and(|map| have_all(&map));
        calm && host.is_up() && (single || others_have_all)
    }

    /// True if all members of all groups are in sync, by the manager's own word: it may not have noticed yet
    /// which disks are gone.
    pub(super) async fn is_whole(&self) -> Result<bool> {
        Ok(self.is_whole_by(&self.map().await?))
    }

    fn is_whole_by(&self, map: &ClusterMap) -> bool {
        let up = map.servers.iter().all(|server| server.up) && self.lost.lock().is_empty();
        up && map.groups.iter().all(|group| group.in_sync().len() == group.members.len())
    }

    fn cut(self: &Arc<Self>, host: &Arc<Host>, length: Duration, random: &mut SplitMix64) {
        let clients = (0..self.plan.clients).map(|nth| CLIENTS_FROM + nth);
        let others = self.members().map(|host| host.number).chain(clients);
        let (me, way) = (host.number, random.below(3));
        let cut: Vec<_> = others.filter(|&o| o != me && random.percent(60)).collect();
        self.world.note(format_args!("server {me} is cut off from {cut:?}, way {way}"));
        count_case("fault-partition");
        let pairs = cut.into_iter().map(|other| (me, other)).collect();
        let without = if random.percent(30) { vec![me] } else { Vec::new() };
        self.part(pairs, way, without, length, format!("server {me} is not cut off any more"));
    }

    /// Nobody reaches a machine that serves no names for about as long as the manager takes to see that, or for longer.
    fn close(self: &Arc<Self>, host: &Arc<Host>, random: &mut SplitMix64) {
        let me = host.number;
        if me <= self.plan.metas {
            return;
        }
        let length = Duration::from_millis(8_000 + random.below(12_000));
        self.world.note(format_args!("nobody reaches server {me}"));
        count_case("fault-unreached");
        self.world.set_closed(me, true);
        let world = self.world.clone();
        self.later(async move {
            tokio::time::sleep(length).await;
            world.note(format_args!("server {me} is reached again"));
            world.set_closed(me, false);
        });
    }

    fn cut_database(self: &Arc<Self>, host: &Arc<Host>, length: Duration) {
        if !host.cut_database(true) {
            return;
        }
        self.world.note(format_args!("server {} does not reach the database", host.number));
        count_case("fault-no-database");
        let (world, host) = (self.world.clone(), host.clone());
        self.later(async move {
            tokio::time::sleep(length).await;
            world.note(format_args!("server {} reaches the database again", host.number));
            host.cut_database(false);
        });
    }

    /// A client is cut off from machines that have targets only, and another one evicts it. When the way is mended,
    /// whatever it has sent arrives: others may have its locks by then.
    fn evict(self: &Arc<Self>, random: &mut SplitMix64) {
        let nth = random.below(self.plan.clients.into()) as usize;
        let mounts = self.clients.lock();
        let other = mounts.iter().enumerate().find(|(at, mount)| *at != nth && mount.is_some());
        let (Some(victim), Some((_, Some(other)))) = (mounts[nth].clone(), other) else { return };
        if self.evicting.swap(true, Ordering::Relaxed) {
            return;
        }
        let (victim, other) = (victim.number, other.clone());
        drop(mounts);
        self.world.note(format_args!("client {victim} is cut off from targets"));
        let cut = move |cluster: &Self, is| {
            for host in cluster.hosts.iter().filter(|host| host.number != HEAD) {
                cluster.world.set_cut(victim, host.number, is);
            }
        };
        cut(self, true);
        let (before, after) = (random.below(1_500), random.below(6_000));
        let cluster = self.clone();
        self.later(async move {
            tokio::time::sleep(Duration::from_millis(before)).await;
            cluster.logs.evict(victim);
            cluster.locks.evict(victim);
            cluster.files.may_be_missed();
            let (admin, own) = (other.process.clone(), other);
            let evicted = admin.spawn(async move { own.evict(victim).await }).await;
            cluster.world.note(format_args!("client {victim} is evicted: {evicted:?}"));
            // Of what it asked in between nobody knows whether it was in the session that is over.
            match evicted {
                Ok(Ok(())) => {
                    count_case("fault-evict");
                    cluster.logs.evicted(victim);
                    cluster.locks.evicted(victim);
                    cluster.files.may_be_missed();
                }
                // It may be under way still.
                _ => cluster.doubt_for(UNCLEAR_EVICTION),
            }
            tokio::time::sleep(Duration::from_millis(after)).await;
            cluster.world.note(format_args!("client {victim} is not cut off any more"));
            cut(&cluster, false);
            cluster.evicting.store(false, Ordering::Relaxed);
        });
    }

    /// A client may be lost at any time, for so long.
    fn doubt_for(&self, length: Duration) {
        self.files.may_be_missed_at_any_time();
        let files = self.files.clone();
        // Trouble may end before.
        tokio::spawn(async move {
            tokio::time::sleep(length).await;
            files.doubt_ends();
        });
    }

    /// A server is taken out of its groups while a client stands still, and for a while after that both have the
    /// map of before.
    async fn doze(self: &Arc<Self>, random: &mut SplitMix64) {
        let nth = random.below(self.plan.clients.into()) as usize;
        let client = self.clients.lock()[nth].clone();
        let others: Vec<_> = self.members().filter(|host| host.number != HEAD).collect();
        let Some(client) = client.filter(|_| !others.is_empty()) else { return };
        let me = others[random.below(others.len() as u64) as usize].number;
        let length = Duration::from_millis(3_500 + random.below(2_500));
        self.world
            .note(format_args!("server {me} is cut off from servers, and client {nth} dozes"));
        let cut = |is| {
            for other in self.members().filter(|host| host.number != me) {
                self.world.set_cut_both(me, other.number, is);
            }
        };
        count_case("fault-doze");
        client.process.pause();
        cut(true);
        tokio::time::sleep(length).await;
        self.world.set_weather(Weather { late_maps: 100, ..self.plan.weather });
        self.world.note(format_args!("server {me} and client {nth} are back, and maps are late"));
        cut(false);
        client.process.resume();
        tokio::time::sleep(LATE_MAPS).await;
        self.world.set_weather(self.plan.weather);
    }

    /// Everybody on one side does not hear those on the other, or one side does not hear the other.
    fn split(self: &Arc<Self>, length: Duration, random: &mut SplitMix64) {
        let clients = (0..self.plan.clients).map(|nth| CLIENTS_FROM + nth);
        let all: Vec<_> = self.members().map(|host| host.number).chain(clients).collect();
        let (here, there): (Vec<_>, Vec<_>) = all.into_iter().partition(|_| random.percent(50));
        let way = random.below(3);
        self.world.note(format_args!("{here:?} and {there:?} are split, way {way}"));
        count_case("fault-split");
        // The database is on the other side, or both reach it.
        let without = if random.percent(50) { here.clone() } else { Vec::new() };
        let pairs = here.iter().flat_map(|&one| there.iter().map(move |&other| (one, other)));
        self.part(pairs.collect(), way, without, length, "the split is over".to_owned());
    }

    /// The hosts of each pair do not hear each other for some time, or only one of them does not; and some do not
    /// reach the database.
    fn part(
        self: &Arc<Self>,
        pairs: Vec<(u32, u32)>,
        way: u64,
        without: Vec<u32>,
        length: Duration,
        then: String,
    ) {
        let set = move |cluster: &Self, is| {
            for host in cluster.hosts.iter().filter(|host| without.contains(&host.number)) {
                host.cut_database(is);
            }
            for &(one, other) in &pairs {
                if way != 1 {
                    cluster.world.set_cut(one, other, is);
                }
                if way != 2 {
                    cluster.world.set_cut(other, one, is);
                }
            }
        };
        set(self, true);
        let cluster = self.clone();
        self.later(async move {
            tokio::time::sleep(length).await;
            cluster.world.note(format_args!("{then}"));
            set(&cluster, false);
        });
    }

    fn slow_down(self: &Arc<Self>, host: &Arc<Host>, length: Duration) {
        self.world.note(format_args!("the disks of server {} are slow", host.number));
        count_case("fault-slow");
        let (usual, disk_ms) = (self.plan.disk_ms, host.disk_ms.clone());
        disk_ms.store(usual * 50, Ordering::Relaxed);
        self.later(async move {
            tokio::time::sleep(length).await;
            disk_ms.store(usual, Ordering::Relaxed);
        });
    }

    /// A bit of what the last machine's first disk holds changes: the other copies are elsewhere.
    fn flip(&self, random: &mut SplitMix64) {
        let Some(host) = self.members().last().filter(|host| host.is_up()) else { return };
        match self.change_bits(host, &host.drives()[0], 1, random) {
            Ok(true) => count_case("fault-flip"),
            Ok(false) => {}
            Err(error) => self.world.note(format_args!("nobody knows what changed: {error}")),
        }
    }

    /// The machines that belong to the cluster by now.
    pub(super) fn members(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.hosts.iter().filter(|host| host.is_member())
    }

    fn pause(self: &Arc<Self>, host: &Arc<Host>, length: Duration) {
        let Some(process) = host.process() else { return };
        self.world.note(format_args!("server {} is paused", host.number));
        count_case("fault-pause");
        process.pause();
        let (world, number) = (self.world.clone(), host.number);
        self.later(async move {
            tokio::time::sleep(length).await;
            world.note(format_args!("server {number} goes on"));
            process.resume();
        });
    }

    fn fill(self: &Arc<Self>, host: &Arc<Host>, length: Duration, random: &mut SplitMix64) {
        let drives = host.drives();
        if drives.is_empty() {
            // It was emptied, and its targets were taken away.
            return;
        }
        let nth = random.below(drives.len() as u64) as usize;
        let (disk, room) = (drives[nth].disk.clone(), self.plan.disk_bytes);
        self.world.note(format_args!("a disk of server {} is full", host.number));
        count_case("fault-full");
        // Somebody else has taken all that was free.
        disk.fill();
        self.files.may_find_no_room();
        let files = self.files.clone();
        self.later(async move {
            tokio::time::sleep(length).await;
            disk.set_capacity(room);
            tokio::spawn(async move {
                tokio::time::sleep(ROOM_LOOK).await;
                files.finds_room();
            });
        });
    }

    fn storm(self: &Arc<Self>, length: Duration, random: &mut SplitMix64) {
        let mut some = |rates: [u64; 3]| rates[random.below(3) as usize];
        let weather = Weather {
            delay_ms: some([5, 50, 400]),
            late: some([0, 2, 10]),
            lost: some([0, 1, 3]),
            twice: some([0, 5, 20]),
            late_maps: self.plan.weather.late_maps,
        };
        self.world.note(format_args!("a storm: {weather:?}"));
        count_case("fault-storm");
        self.world.set_weather(weather);
        let cluster = self.clone();
        self.later(async move {
            tokio::time::sleep(length * 2).await;
            cluster.world.note(format_args!("the storm is over"));
            cluster.world.set_weather(cluster.plan.weather);
        });
    }

    /// Ends all trouble: whatever was to end later does, and everybody is started.
    pub(super) async fn end_trouble(self: &Arc<Self>) {
        self.world.note(format_args!("all trouble ends"));
        while let Some(later) = self.pop_later() {
            let _killed = later.await;
        }
        let silence = self.silence.lock().take();
        if let Some(silence) = silence {
            let _killed = silence.await;
        }
        self.world.mend_all();
        self.world.set_weather(self.plan.fair_weather());
        for host in self.members() {
            self.start(host).await;
        }
    }
}

/// True if no group has all its copies on this machine, where a job may have put them by force.
pub(super) fn has_copies_beside(map: &ClusterMap, host: &Host) -> bool {
    let elsewhere = |id: &u32| {
        map.targets.iter().any(|target| target.id == *id && target.server != host.number)
    };
    let mut groups = map.groups.iter().filter(|group| group.members.len() > 1);
    groups.all(|group| group.in_sync().iter().any(elsewhere))
}
