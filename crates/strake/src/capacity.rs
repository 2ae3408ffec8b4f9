//! What a cluster takes: memory, disk, network and engine, from how much is to be kept and who uses it.
//!
//! Arithmetic alone. The figures were measured with `tests/examples/capacity.rs` where nothing else is said; how they were, and
//! how far they reach, says `docs/design/0061-capacity.md`. [`engines`] says what keeps the metadata.

pub mod engines;

use crate::size;
use engines::{Asked, Engine, Offer, Step};
use serde::Serialize;
use strake_types::limits::{ALL_TARGETS_MAX, COPIES_MAX, INLINE_BYTES_DEFAULT};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Records of a file and its name of 20 letters, before an engine packs them. Measured: an export of 660,000 files
/// (docs/design/0061-capacity.md).
const RECORD_BYTES: u64 = 312;
/// Memory of a metadata server that has files, without leases: caches, tables in memory, allocator. Measured: 484 MiB after
/// 660,000 files, with the leases of some (docs/design/0061-capacity.md).
const META_BYTES: u64 = 480 * MIB;
/// Memory for a client's lease on one inode, at the server. Measured: 74 MiB for 300,000 (docs/design/0061-capacity.md).
const LEASE_BYTES: u64 = 280;
/// Memory for a session: its replies and recalls under way. Judged.
const SESSION_BYTES: u64 = 64 << 10;

/// Map of a GiB of contents, on disk: one entry per block of 4 KiB, and checksums. Measured (docs/design/0002-chunk-engine.md).
const MAP_BYTES_PER_GIB: u64 = MIB;
/// Map of a chunk, however small. Measured (docs/design/0002-chunk-engine.md).
const MAP_BYTES_PER_CHUNK: u64 = 84;
/// Smallest part of a disk that a chunk takes (docs/design/0002-chunk-engine.md).
const BLOCK_BYTES: u64 = 4 << 10;
/// Log and tables of a target that holds nothing. Judged.
const TARGET_FIXED_BYTES: u64 = 50 * MIB;
/// A disk is not to be fuller than this: what is deleted comes back late, and copies move. Judged.
const FULL_MAX: f64 = 0.85;
/// A storage server that does nothing. Measured (docs/design/0061-capacity.md).
const STORAGE_BYTES: u64 = 32 * MIB;
/// Maps and pages of maps in memory, of one target: bounds of 32 MiB each (docs/design/0002-chunk-engine.md).
const TARGET_BYTES: u64 = 64 * MIB;
/// Which places of a target are free: for each MiB that was ever in use two bits of each block, and 3 bytes
/// (`engine/src/chunk/space.rs`).
const SPACE_BYTES_PER_GIB: u64 = 1024 * (2 * (MIB / BLOCK_BYTES) / 8 + 3);
/// Contents under way to and from all clients. Judged; each connection has a bound (`strake_wire::server`).
const UNDER_WAY_BYTES: u64 = 256 * MIB;
/// Contents of writes that were answered because their disks hang. A bound (`strake_storage::target`).
const LATE_BYTES: u64 = 256 * MIB;

/// Connections of one client to one server: one for small messages, two for contents (`strake_wire::options`).
const CONNECTIONS_PER_CLIENT: u64 = 3;
/// Connections of one storage server to another: the same, and one for what it forwards (`strake_wire::connection`).
const CONNECTIONS_PER_SERVER: u64 = CONNECTIONS_PER_CLIENT + 1;
/// Connections of a client or server to a server of all roles: also one for recalls, one for what waits, and one for the map.
const CONNECTIONS_TO_ALL_ROLES: u64 = CONNECTIONS_PER_CLIENT + 3;
/// Connections that one server process takes (`strake_wire::server`).
const CONNECTIONS_MAX: u64 = 8_192;
/// With so many, whoever has them, it takes no client more: the rest is kept for servers and commands.
const CONNECTIONS_WITH_CLIENTS_MAX: u64 = CONNECTIONS_MAX - CONNECTIONS_MAX / 8;
/// With so many it takes no command (`strake status`) more, either.
const CONNECTIONS_WITH_COMMANDS_MAX: u64 = CONNECTIONS_MAX - CONNECTIONS_MAX / 16;
/// Memory of a server for a connection that is used now and then. Not measured at thousands.
const CONNECTION_BYTES: u64 = 40 << 10;

/// Memory of a mount that does nothing. Judged, with room.
const MOUNT_BYTES: u64 = 20 * MIB;
/// Memory of a mount for a file that it knows: attributes, name, lease. Measured: 112 MiB for 65,536
/// (docs/design/0061-capacity.md).
const KNOWN_FILE_BYTES: u64 = 1_800;
/// Files of which a client keeps leases (docs/design/0050-leases.md).
pub const KNOWN_FILES_MAX: u64 = 65_536;
/// Contents that a mount holds at most, where nothing else is said (`strake_client::memory`).
const MOUNT_CONTENTS_BYTES: u64 = 256 * MIB;

/// Messages a second of a client that does nothing, in each of its sessions. Measured: 2.3 of two mounts
/// (docs/design/0061-capacity.md).
const IDLE_META_MESSAGES: f64 = 1.2;
/// Messages a second of each client and server to the manager: the map is asked for once (`strake_wire::map`).
const IDLE_MANAGER_MESSAGES: f64 = 1.0;
/// Part of a link that contents have; Ethernet, TCP and messages take the rest. Measured: 11.90 to 11.93 of 12.5 MB/s, and
/// 11.96 by TCP alone (docs/results/testbed.md).
const LINK_USE: f64 = 0.955;
/// The map of a cluster for each target: the target, and the groups that it leads. Judged.
const MAP_BYTES_PER_TARGET: u64 = 250;

/// What is to be planned for.
#[derive(Clone, Debug, Serialize)]
pub struct Demand {
    /// Files of the volume.
    pub files: u64,
    /// Their contents.
    pub bytes: u64,
    /// Part of the files that lies inside the inode: 0 to 1.
    pub small: f64,
    /// How long these are on average.
    pub small_bytes: u64,
    /// Machines that mount the volume.
    pub clients: u64,
    /// Files that each of them uses again and again.
    pub used_files: u64,
    /// Storage servers.
    pub servers: u64,
    /// Targets of each.
    pub targets: u64,
    /// What the link of each machine carries, bytes a second in each direction.
    pub link: u64,
    /// Copies of contents.
    pub copies: u64,
    /// Length of a chunk.
    pub chunk: u64,
    /// Engine of the metadata; none: the first that does.
    pub engine: Option<Engine>,
    /// Metadata servers; none: as many as it takes.
    pub meta_servers: Option<u64>,
    /// Files to be made in a second; 0 if nothing is asked.
    pub creates_per_s: u64,
    /// Looks at files in a second.
    pub stats_per_s: u64,
}

/// What the metadata takes: each server, if nothing else is said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metadata {
    /// The engine, and how many servers there are.
    #[serde(flatten)]
    pub offer: Offer,
    /// Records and small contents, as an export holds them; of all servers.
    pub records_bytes: u64,
    /// Of the process; a database has its own beside it.
    pub memory_bytes: u64,
    /// The part of that which leases of clients take.
    pub lease_bytes: u64,
    /// Messages of clients that do nothing.
    pub idle_messages_per_s: u64,
    /// What 1, 2, 4 and more servers do together.
    pub scale: Vec<Step>,
}

/// What each storage server takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Storage {
    /// Contents with their maps, all copies.
    pub disk_bytes: u64,
    /// The part of that which maps take.
    pub map_bytes: u64,
    /// Disks to buy, so that they do not get too full.
    pub buy_bytes: u64,
    /// Of the process; the rest of the machine's memory caches contents.
    pub memory_bytes: u64,
    /// From clients, and from other servers.
    pub connections: u64,
}

/// What each client takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Client {
    /// Of the mount.
    pub memory_bytes: u64,
    /// To all servers.
    pub connections: u64,
}

/// What the links carry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Network {
    /// What all clients together read, bytes a second.
    pub read_per_s: u64,
    /// What they write.
    pub write_per_s: u64,
    /// Seconds to fill the volume once, by the links alone.
    pub fill_s: u64,
    /// Seconds to make a lost server's copies anew, by the links alone.
    pub heal_s: Option<u64>,
    /// What the manager sends to everybody when a server comes or goes.
    pub map_bytes: u64,
    /// Messages to the manager of clients and servers that do nothing.
    pub manager_messages_per_s: u64,
}

/// All that a cluster takes, and what does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Needs {
    /// The metadata servers.
    pub metadata: Metadata,
    /// All engines, as they would be.
    pub engines: Vec<Offer>,
    /// Each storage server.
    pub storage: Storage,
    /// Each client.
    pub client: Client,
    /// The links, and the manager.
    pub network: Network,
    /// What to think of.
    pub advice: Vec<String>,
    /// What does not work.
    pub problems: Vec<String>,
}

impl Demand {
    /// What it takes.
    pub fn needs(&self) -> Needs {
        let engines = self.asked().offers();
        let offer = self.choose(&engines);
        let metadata = self.metadata(offer.clone());
        let storage = self.storage(offer.step.servers);
        let (client, network) = (self.client(offer.step.servers), self.network(&storage));
        let (advice, problems) = (self.advice(offer), self.problems(&storage, offer, &engines));
        Needs { metadata, storage, client, network, advice, problems, engines }
    }

    fn asked(&self) -> Asked {
        let (creates_per_s, stats_per_s) = (self.creates_per_s, self.stats_per_s);
        let (files, records_bytes, servers) = (self.files, self.records_bytes(), self.meta_servers);
        Asked { files, records_bytes, creates_per_s, stats_per_s, servers }
    }

    /// The engine that is wanted; else the first that does, and PostgreSQL where none does.
    fn choose<'a>(&self, offers: &'a [Offer]) -> &'a Offer {
        let wanted = |offer: &&Offer| match self.engine {
            Some(engine) => offer.engine == engine,
            None => offer.fits(),
        };
        let postgres = |offer: &&Offer| offer.engine == Engine::Postgres;
        let found = offers.iter().find(wanted).or_else(|| offers.iter().find(postgres));
        found.unwrap_or(&offers[0])
    }

    fn small_files(&self) -> u64 {
        ((self.files as f64 * self.small) as u64).min(self.files)
    }

    /// Bytes that lie in the metadata, and on targets (once).
    fn split(&self) -> (u64, u64) {
        let inside = self.small_files().saturating_mul(self.small_bytes).min(self.bytes);
        (inside, self.bytes - inside)
    }

    fn records_bytes(&self) -> u64 {
        self.files.saturating_mul(RECORD_BYTES).saturating_add(self.split().0)
    }

    fn metadata(&self, offer: Offer) -> Metadata {
        let servers = offer.step.servers.max(1);
        let leases = self.used_files.min(KNOWN_FILES_MAX).saturating_mul(self.clients);
        let lease_bytes = leases.saturating_mul(LEASE_BYTES) / servers;
        // Each mount has one with each share of each volume.
        let shares = offer.shares.saturating_mul(offer.volumes).div_ceil(servers);
        let sessions = self.clients.saturating_mul(shares);
        let session_bytes = sessions.saturating_mul(SESSION_BYTES);
        let connections = self.clients.saturating_mul(CONNECTIONS_PER_CLIENT);
        let connection_bytes = connections.saturating_mul(CONNECTION_BYTES);
        Metadata {
            records_bytes: self.records_bytes(),
            memory_bytes: META_BYTES
                .saturating_add(lease_bytes)
                .saturating_add(session_bytes)
                .saturating_add(connection_bytes),
            lease_bytes,
            idle_messages_per_s: (sessions as f64 * IDLE_META_MESSAGES).ceil() as u64,
            scale: offer.scale(),
            offer,
        }
    }

    /// Chunks of all files, once. The last chunk of a file takes what it holds, in whole blocks.
    fn chunks(&self) -> u64 {
        let large = self.files - self.small_files();
        let whole = self.split().1 / self.chunk.max(1);
        if self.split().1 == 0 { 0 } else { whole.saturating_add(large) }
    }

    fn storage(&self, meta_servers: u64) -> Storage {
        let contents = self.split().1;
        // On average half of the last block of a file holds nothing.
        let large = self.files - self.small_files();
        let slack = if contents == 0 { 0 } else { large.saturating_mul(BLOCK_BYTES / 2) };
        let all = contents.saturating_add(slack).saturating_mul(self.copies);
        let per_server = all / self.servers.max(1);
        let chunks = self.chunks().saturating_mul(self.copies) / self.servers.max(1);
        let map_bytes = (per_server / GIB * MAP_BYTES_PER_GIB)
            .saturating_add(chunks.saturating_mul(MAP_BYTES_PER_CHUNK));
        let disk_bytes = per_server.saturating_add(map_bytes);
        let fixed = self.targets.saturating_mul(TARGET_FIXED_BYTES);
        let buy_bytes = (disk_bytes.saturating_add(fixed) as f64 / FULL_MAX) as u64;
        let connections = (self.clients.saturating_add(meta_servers))
            .saturating_mul(CONNECTIONS_PER_CLIENT)
            .saturating_add(self.servers.saturating_mul(CONNECTIONS_PER_SERVER));
        Storage {
            disk_bytes,
            map_bytes,
            buy_bytes,
            memory_bytes: STORAGE_BYTES
                .saturating_add(self.targets.saturating_mul(TARGET_BYTES))
                .saturating_add(buy_bytes / GIB * SPACE_BYTES_PER_GIB)
                .saturating_add(UNDER_WAY_BYTES + LATE_BYTES)
                .saturating_add(connections.saturating_mul(CONNECTION_BYTES)),
            connections,
        }
    }

    fn client(&self, meta_servers: u64) -> Client {
        let known = self.used_files.min(KNOWN_FILES_MAX) * KNOWN_FILE_BYTES;
        Client {
            memory_bytes: MOUNT_BYTES + known + MOUNT_CONTENTS_BYTES,
            connections: (self.servers.saturating_add(meta_servers))
                .saturating_mul(CONNECTIONS_PER_CLIENT),
        }
    }

    fn network(&self, storage: &Storage) -> Network {
        let usable = self.link as f64 * LINK_USE;
        let (servers, clients) = (self.servers as f64 * usable, self.clients as f64 * usable);
        // Each copy crosses a link of a server, and all but the first leave another one.
        let write = (servers / self.copies.max(1) as f64).min(clients);
        let targets = self.servers.saturating_mul(self.targets);
        let fill_s = self.split().1 as f64 / write.max(1.0);
        // What a target led and followed lies with its neighbours in the ring.
        let others = self.servers.saturating_sub(1).max(1);
        let healers = (self.copies.saturating_sub(1).saturating_mul(2))
            .saturating_mul(self.targets)
            .clamp(1, others) as f64;
        let heal = storage.disk_bytes as f64 / (healers * usable).max(1.0);
        Network {
            read_per_s: servers.min(clients) as u64,
            write_per_s: write as u64,
            fill_s: fill_s as u64,
            heal_s: (self.copies > 1 && self.servers > 1).then_some(heal as u64),
            map_bytes: targets.saturating_mul(MAP_BYTES_PER_TARGET),
            manager_messages_per_s: ((self.clients as f64 + self.servers as f64)
                * IDLE_MANAGER_MESSAGES)
                .ceil() as u64,
        }
    }

    fn advice(&self, offer: &Offer) -> Vec<String> {
        let mut advice = Vec::new();
        match offer.engine {
            Engine::Embedded => advice.push(
                "take --engine postgres if names are to outlive their machine (docs/guide/metadata.md)".into(),
            ),
            Engine::Postgres => advice.push(format!(
                "let the database take {} connections (max_connections), and have a standby (docs/guide/metadata.md)",
                size::show_count(offer.database_connections)
            )),
            Engine::Etcd => advice.push(
                "set etcd's --quota-backend-bytes above the disk of a member; it is 2 GiB unless told (docs/guide/metadata.md)"
                    .into(),
            ),
            Engine::Tikv => advice.push(
                "TiKV was tested against a double only; build with --features tikv, try it first (docs/guide/metadata.md)"
                    .into(),
            ),
        }
        if offer.shares > 1 {
            advice.push(format!(
                "make the volume with: strake volume create NAME --shares {} (for good)",
                offer.shares
            ));
            advice.push(
                "rates of several servers are 1.7 times for each doubling, measured with two; all wait for one database, \
                 measured up to 12,404 creates/s"
                    .into(),
            );
        }
        if offer.volumes > 1 {
            advice.push(format!(
                "divide the files over {} volumes: with {} one server serves all of a volume",
                size::show_count(offer.volumes),
                offer.engine.name()
            ));
        }
        advice.extend(self.apart(offer));
        if self.copies > self.servers {
            advice.push(format!(
                "{} copies on fewer servers: some lie on one, and are lost with it; take --servers {0}",
                self.copies
            ));
        }
        if self.copies == 1 && self.servers > 1 {
            advice.push("one copy: a lost disk is lost data; --copies 2 doubles the disks".into());
        }
        advice
    }

    /// Whether roles have to be apart: a server of all roles has more connections than one that stores only.
    fn apart(&self, offer: &Offer) -> Option<String> {
        let others = self.clients.saturating_add(self.servers).saturating_add(offer.step.servers);
        let connections = others.saturating_mul(CONNECTIONS_TO_ALL_ROLES);
        (connections > CONNECTIONS_WITH_CLIENTS_MAX).then(|| {
            format!(
                "keep manager, metadata and storage on servers of their own (--roles): one of all roles would have {connections} \
                 connections, and takes no client more with {CONNECTIONS_WITH_CLIENTS_MAX}"
            )
        })
    }

    fn problems(&self, storage: &Storage, offer: &Offer, offers: &[Offer]) -> Vec<String> {
        let mut problems = Vec::new();
        let of_servers = (self.servers.saturating_mul(CONNECTIONS_PER_SERVER))
            .saturating_add(offer.step.servers.saturating_mul(CONNECTIONS_PER_CLIENT));
        let of_clients = CONNECTIONS_WITH_CLIENTS_MAX.saturating_sub(of_servers);
        let most = of_clients / CONNECTIONS_PER_CLIENT;
        if self.clients > most || of_servers >= CONNECTIONS_WITH_COMMANDS_MAX {
            let mend = match most {
                0 => format!("{of_servers} of them are those of servers; take fewer servers"),
                _ => format!("at most some {most} clients"),
            };
            problems.push(format!(
                "each server would have {} connections and takes {CONNECTIONS_MAX}, no client more with \
                 {CONNECTIONS_WITH_CLIENTS_MAX} and no command with {CONNECTIONS_WITH_COMMANDS_MAX}: {mend}",
                storage.connections
            ));
        }
        let targets = self.servers.saturating_mul(self.targets);
        if targets > ALL_TARGETS_MAX as u64 {
            problems.push(format!(
                "{} targets, and a cluster has at most {}: take fewer, each of several disks (LVM, RAID)",
                size::show_count(targets),
                size::show_count(ALL_TARGETS_MAX as u64)
            ));
        }
        let other = match (offers.iter().find(|other| other.fits()), self.meta_servers) {
            (Some(other), _) => format!("--engine {} does", other.engine.name()),
            (None, Some(_)) => "leave out --meta-servers to see how many it takes".into(),
            (None, None) => "no engine is known to do: plan several clusters".into(),
        };
        for against in &offer.against {
            problems.push(format!("{}: {against}; {other}", offer.engine.name()));
        }
        if self.used_files > KNOWN_FILES_MAX {
            problems.push(format!(
                "a client keeps leases of {KNOWN_FILES_MAX} files; of {} it asks for the others each time",
                self.used_files
            ));
        }
        problems
    }
}

/// Copies that are possible.
pub fn copies_possible(copies: u64, servers: u64, targets: u64) -> bool {
    (1..=u64::from(COPIES_MAX)).contains(&copies) && copies <= servers.saturating_mul(targets)
}

/// Longest file that lies inside its inode.
pub const SMALL_BYTES_MAX: u64 = INLINE_BYTES_DEFAULT as u64;

#[cfg(test)]
mod tests;
