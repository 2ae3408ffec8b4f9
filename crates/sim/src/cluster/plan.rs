//! What a run is to be: everything about it that is drawn from its seed at the beginning.

use super::register::BLOCK;
use super::world::{Weather, World};
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_wire::message::common::Template;
use strake_wire::message::manager::VolumeSpec;

/// Kinds of trouble a run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A server's process is killed, and started again.
    Kill,
    /// A machine loses power where others have what it had.
    Power,
    /// Machines lose power whatever that takes with it.
    Blackout,
    /// A server is stopped in good order, and started again.
    Restart,
    /// All servers are restarted one after the other, each when the one before is back.
    Roll,
    /// Some machines do not hear others, or one way only.
    Partition,
    /// Nobody reaches a machine, which reaches the others itself, as behind a firewall.
    Unreached,
    /// A process does not run for a while.
    Pause,
    /// A server is cut off from the others, a client stands still meanwhile, and both hear late what has
    /// become of the groups.
    Doze,
    /// A client stands still for about as long as its session lasts, or for longer.
    Silence,
    /// A wall clock jumps.
    Jump,
    /// A client's process is killed.
    ClientKill,
    /// A client is cut off from targets and evicted; what it had sent arrives later.
    Evict,
    /// A disk has room for nothing for a while.
    Full,
    /// The network is bad.
    Storm,
    /// Machines fall into two halves that do not hear each other.
    Split,
    /// A disk is slow for a while.
    Slow,
    /// A machine joins.
    Join,
    /// A bit of a disk changes.
    Flip,
    /// Targets are verified by jobs, which are paused, slowed and cancelled.
    Scrub,
    /// Groups are moved: targets are drained, evened out, and used again; files get another number of copies;
    /// jobs are paused and cancelled.
    Move,
    /// A machine is emptied and taken out of the cluster.
    Leave,
    /// A running server gets one more disk.
    AddDisk,
    /// A disk is lost for good, and an empty one takes its place.
    LoseDisk,
    /// A machine does not reach the database.
    NoDatabase,
    /// A disk is copied, and the copy takes its place when it is old.
    OldDisk,
    /// The machine that keeps names loses power just after a client was told that something is done.
    HeadPower,
}

/// All kinds of trouble.
const ALL: [Trouble; 21] = [
    Trouble::Kill,
    Trouble::Power,
    Trouble::Blackout,
    Trouble::Restart,
    Trouble::Partition,
    Trouble::Pause,
    Trouble::Doze,
    Trouble::Jump,
    Trouble::ClientKill,
    Trouble::Full,
    Trouble::Storm,
    Trouble::Split,
    Trouble::Slow,
    Trouble::Join,
    Trouble::Flip,
    Trouble::Scrub,
    Trouble::Move,
    Trouble::Leave,
    Trouble::AddDisk,
    Trouble::LoseDisk,
    Trouble::NoDatabase,
];

/// The volume that a cluster has from its beginning.
pub const FIRST_VOLUME: &str = "main";

/// Longest time for which a client stands still.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

/// What a mount holds in memory at most,
const MEMORY: u64 = 32 << 20;
/// and where that is little: the least that counts. A long write takes a quarter of it, and while two are under way others wait.
const LITTLE_MEMORY: u64 = 256 << 10;

/// In a template: the primary acknowledges.
const ACK_PRIMARY: u32 = 1;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Machines with targets at the beginning; the first is the head.
    pub servers: u32,
    /// Machines that serve names; more than one do so from a database.
    pub metas: u32,
    /// Machines with a manager, of those that serve names.
    pub managers: u32,
    /// Machines that may join later.
    pub spares: u32,
    /// Targets of each.
    pub drives: u32,
    /// Mounts.
    pub clients: u32,
    /// What each holds in memory at most.
    pub memory_bytes: u64,
    /// Files that are written and read.
    pub files: u32,
    /// Blocks of each.
    pub blocks: u64,
    /// Directories whose names are changed.
    pub directories: u32,
    /// A client without leases changes them, too.
    pub native: bool,
    /// Files that all clients append to.
    pub logs: u32,
    /// There is a file that all clients append to without a lock.
    pub appends: bool,
    /// Files of which bytes are locked.
    pub locks: u32,
    /// Longest record that is appended.
    pub record_bytes: u64,
    /// Longest pause of a client between two things that it does.
    pub pause_ms: u64,
    /// Copies of their chunks.
    pub copies: u32,
    /// Copies without which nothing is written.
    pub min_copies: Option<u32>,
    /// The volume.
    pub volume: VolumeSpec,
    /// Bytes of each disk.
    pub disk_bytes: u64,
    /// Longest time of an operation of a disk.
    pub disk_ms: u64,
    /// Size at which the log of a target is folded.
    pub log_bytes: u64,
    /// Commits of the metadata store that are refused for nothing, in percent.
    pub conflicts: u64,
    /// How much clocks may differ from true time, in millionths.
    pub drift: u64,
    /// What may happen.
    pub troubles: Vec<Trouble>,
    /// For how long.
    pub length: Duration,
    /// Longest time between two troubles.
    pub calm_ms: u64,
    /// The network while there is trouble, when nothing else happens to it.
    pub weather: Weather,
}

fn metas(random: &mut SplitMix64) -> u32 {
    [1, 1, 1, 2, 3][random.below(5) as usize]
}

/// Shares of the volume: several need several who serve names.
fn shares(random: &mut SplitMix64, metas: u32) -> u32 {
    match metas {
        1 => 1,
        _ => [1, 2, 3, 4][random.below(4) as usize],
    }
}

/// Memory of a mount: in every third run so little that writes wait for each other.
fn memory_bytes(random: &mut SplitMix64) -> u64 {
    [MEMORY, MEMORY, LITTLE_MEMORY][random.below(3) as usize]
}

/// Blocks of a file. Where there is little memory most files are as large: one is written to at a time, and when it is closed nothing
/// of it is held any more.
fn blocks(random: &mut SplitMix64, memory_bytes: u64) -> u64 {
    let blocks = [2, 4, 24, 64][random.below(4) as usize];
    match memory_bytes == LITTLE_MEMORY && blocks > 2 {
        true => LITTLE_MEMORY / BLOCK,
        false => blocks,
    }
}

fn troubles(random: &mut SplitMix64, copies: u32, metas: u32) -> Vec<Trouble> {
    let mut troubles: Vec<_> = ALL.into_iter().filter(|_| random.percent(35)).collect();
    // A bit that changes where no other copy is costs the block: then nobody else may go.
    if copies > 1 && random.percent(15) {
        use Trouble::{ClientKill, Flip, Jump, Scrub, Slow, Storm};
        troubles.retain(|kind| matches!(kind, ClientKill | Jump | Slow | Storm));
        troubles.extend([Flip, Scrub]);
    } else if copies > 1 && random.percent(10) {
        // It needs others to work, and time.
        use Trouble::{ClientKill, Doze, Jump, Slow};
        troubles.retain(|kind| matches!(kind, ClientKill | Jump | Slow));
        troubles.push(Doze);
    } else {
        troubles.retain(|kind| !matches!(kind, Trouble::Flip | Trouble::Doze));
    }
    troubles.retain(|kind| metas > 1 || *kind != Trouble::NoDatabase);
    if troubles.is_empty() {
        troubles.push(Trouble::Kill);
    }
    let evicts = random.percent(25);
    troubles.extend(evicts.then_some(Trouble::Evict));
    troubles
}

/// Rolling restarts, among other troubles or nearly alone: else hardly one comes to its end as it began.
fn roll(random: &mut SplitMix64, troubles: &mut Vec<Trouble>) {
    use Trouble::{ClientKill, Jump, OldDisk, Roll, Slow, Storm};
    if !random.percent(20) {
        return;
    }
    if random.percent(50) {
        troubles.retain(|kind| matches!(kind, ClientKill | Jump | OldDisk | Slow | Storm));
    }
    troubles.push(Roll);
}

/// In every fifth run a server comes back with a disk of before.
fn old_disk(chance: &mut SplitMix64, troubles: &mut Vec<Trouble>) {
    if !chance.percent(20) {
        return;
    }
    if chance.percent(50) {
        // Until all are whole again nothing is brought.
        use Trouble::{ClientKill, Jump, Restart, Slow};
        troubles.retain(|kind| matches!(kind, ClientKill | Jump | Restart | Slow));
    }
    troubles.push(Trouble::OldDisk);
}

/// Troubles that are drawn one by one.
fn add_others(world: &World, copies: u32, troubles: &mut Vec<Trouble>) {
    if copies > 1 {
        old_disk(&mut world.stream(0x9004), troubles);
        if world.stream(0x9013).percent(20) {
            // It needs others to work, and time.
            troubles.extend([Trouble::Unreached; 2]);
        }
    }
    roll(&mut world.stream(0x9007), troubles);
    if world.stream(0x9012).percent(20) {
        // One of them has an effect: there is little time for it.
        troubles.extend([Trouble::Silence; 2]);
    }
}

impl Plan {
    /// The plan of a seed.
    pub fn of(world: &World) -> Plan {
        let mut random = world.stream(1);
        let random = &mut random;
        let copies = [1, 2, 2, 2, 3, 3][random.below(6) as usize];
        let servers = u64::from(copies).max(2) + random.below(3);
        let metas = metas(&mut world.stream(0x9000)).min(servers as u32);
        let shares = shares(&mut world.stream(0x9003), metas);
        let width = random.below(3);
        let least = 1 + random.below(copies.into()) as u32;
        let template = Template {
            chunk_size: Some(64 << 10),
            width: Some(width as u32),
            copies: None,
            ack: (copies > 1 && random.percent(15)).then_some(ACK_PRIMARY),
            ..Template::default()
        };
        let inline = [0, 8192][random.below(2) as usize];
        let volume = VolumeSpec {
            name: if shares > 1 { "wide" } else { FIRST_VOLUME }.into(),
            template: Some(template),
            inline_bytes_max: Some(inline),
            sync_always: [None, Some(true)][random.below(2) as usize],
            shares: (shares > 1).then_some(shares),
        };
        let managers = 1 + world.stream(0x9002).below(metas.into()) as u32;
        let mut troubles = troubles(random, copies, metas);
        let alone = [Trouble::Flip, Trouble::Doze].iter().any(|kind| troubles.contains(kind));
        if !alone {
            add_others(world, copies, &mut troubles);
        }
        let memory_bytes = memory_bytes(&mut world.stream(0x9011));
        let mut plan = Plan {
            servers: servers as u32,
            metas,
            managers,
            spares: u32::from(troubles.contains(&Trouble::Join)),
            drives: [1, 1, 1, 2][random.below(4) as usize],
            clients: 2 + random.below(2) as u32,
            memory_bytes,
            files: 1 + random.below(5) as u32,
            blocks: blocks(random, memory_bytes),
            directories: random.below(3) as u32,
            native: world.stream(0x900d).percent(50),
            logs: random.below(3) as u32,
            appends: world.stream(0x900e).percent(40),
            locks: world.stream(0x9009).below(3) as u32,
            record_bytes: [300, 20_000][random.below(2) as usize],
            pause_ms: [20, 100, 400][random.below(3) as usize],
            copies,
            min_copies: [None, Some(least)][random.below(2) as usize],
            volume,
            disk_bytes: 256 << 20,
            disk_ms: [1, 3, 20][random.below(3) as usize],
            log_bytes: [64 << 10, 1 << 20][random.below(2) as usize],
            conflicts: [0, 0, 5][random.below(3) as usize],
            drift: [0, 1_000, 45_000][random.below(3) as usize],
            troubles,
            length: Duration::from_secs(10 + random.below(30)),
            calm_ms: [500, 3_000, 8_000][random.below(3) as usize],
            weather: Weather {
                delay_ms: [1, 3, 30][random.below(3) as usize],
                late_maps: [0, 0, 50][random.below(3) as usize],
                ..Weather::default()
            },
        };
        plan.share_nothing(&mut world.stream(0x900b));
        plan.cut_head(alone);
        plan
    }

    /// In some runs the machine that keeps names loses what is not synced: nobody shares names or locks there, and
    /// all that is written lies inside inodes, or nothing does.
    fn share_nothing(&mut self, random: &mut SplitMix64) {
        use Trouble::{Blackout, Doze, Flip, OldDisk, Power};
        if self.metas > 1 || self.volume.sync_always.is_some() || !random.percent(30) {
            return;
        }
        (self.directories, self.logs, self.locks, self.appends) = (0, 0, 0, false);
        match random.percent(60) {
            true => (self.blocks, self.volume.inline_bytes_max) = (2, Some(8192)),
            false => self.volume.inline_bytes_max = Some(0),
        }
        let takes_power = |kind: &Trouble| matches!(kind, Blackout | Doze | Flip | OldDisk | Power);
        if !self.troubles.iter().any(takes_power) {
            self.troubles.push(Power);
        }
    }

    /// A head that has names in a store of its own, and may lose power, does: unless something is in the plan that goes `alone`.
    fn cut_head(&mut self, alone: bool) {
        if self.metas == 1 && self.head_loses().is_some() && !alone {
            self.troubles.extend([Trouble::HeadPower; 2]);
        }
    }

    /// True if what is written to a file lies inside its inode.
    pub fn is_inline(&self) -> bool {
        let most = self.volume.inline_bytes_max.unwrap_or(0);
        self.blocks * BLOCK <= u64::from(most)
    }

    /// So many of a hundred writes and reads may be as long as the file, others a few blocks.
    pub fn long_ranges(&self) -> u64 {
        if self.memory_bytes == LITTLE_MEMORY { 70 } else { 20 }
    }

    /// The volume that the cluster has before it has servers.
    pub fn first_volume(&self) -> VolumeSpec {
        VolumeSpec { name: FIRST_VOLUME.into(), shares: None, ..self.volume.clone() }
    }

    /// How fast a machine's clock runs, in millionths.
    pub fn drift_of(&self, random: &mut SplitMix64) -> u64 {
        1_000_000 - self.drift + random.below(2 * self.drift + 1)
    }

    /// The network before and after all trouble.
    pub fn fair_weather(&self) -> Weather {
        Weather { late_maps: 0, ..self.weather }
    }

    /// One copy acknowledges what others may not have yet.
    pub fn acknowledges_alone(&self) -> bool {
        self.volume.template.as_ref().is_some_and(|template| template.ack == Some(ACK_PRIMARY))
    }

    /// What a loss of power of the machine that keeps names costs; `None`: it may not lose power. `Some(true)`: what was
    /// not synced goes (S-003, S-008). Where several clients change the same names one may see what another has not been
    /// told yet, and what is not on disk; and locks of the last second go, or are back (S-080).
    pub fn head_loses(&self) -> Option<bool> {
        let always = self.volume.sync_always == Some(true);
        match (self.metas > 1, self.directories) {
            (true, _) => Some(false),
            (_, 0) if always => Some(false),
            (_, 0) if self.logs + self.locks == 0 && !self.appends => Some(true),
            _ => None,
        }
    }
}
