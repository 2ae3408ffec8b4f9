//! What a cluster takes: memory, disk, network and engine, from how much is to be kept and who uses it.
//!
//! Arithmetic alone. The figures were measured with `tests/examples/capacity.rs`; how they were, and how far they reach,
//! says `docs/design/0061-capacity.md`.

use crate::size;
use serde::Serialize;
use strake_types::limits::{COPIES_MAX, INLINE_BYTES_DEFAULT};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Records of a file and its name of 21 letters, before an engine packs them.
const RECORD_BYTES: u64 = 312;
/// What an engine takes for a byte of records, with what it has not cleaned up yet.
const EMBEDDED_FACTOR: f64 = 1.5;
const POSTGRES_FACTOR: f64 = 2.0;
const ETCD_FACTOR: f64 = 4.0;
/// Journal, and what is kept back for a full disk.
const EMBEDDED_FIXED_BYTES: u64 = 96 * MIB;
/// Log that PostgreSQL keeps where nothing else is said (`max_wal_size`).
const POSTGRES_FIXED_BYTES: u64 = GIB;
/// Log and snapshots of an etcd member.
const ETCD_FIXED_BYTES: u64 = GIB / 2;
/// An etcd is not to have more than this, say those who make it.
const ETCD_BYTES_MAX: u64 = 8 * GIB;
/// Memory of a metadata server that has files, without leases: caches, tables in memory, allocator.
const META_BYTES: u64 = 480 * MIB;
/// Memory for a client's lease on one inode, at the server.
const LEASE_BYTES: u64 = 280;
/// Memory for a session.
const SESSION_BYTES: u64 = 64 << 10;

/// Map of a GiB of contents, on disk: one entry per block of 4 KiB, and checksums.
const MAP_BYTES_PER_GIB: u64 = MIB;
/// Map of a chunk, however small.
const MAP_BYTES_PER_CHUNK: u64 = 84;
/// Smallest part of a disk that a chunk takes.
const BLOCK_BYTES: u64 = 4 << 10;
/// Log and tables of a target that holds nothing.
const TARGET_FIXED_BYTES: u64 = 50 * MIB;
/// A disk is not to be fuller than this: what is deleted comes back late, and copies move.
const FULL_MAX: f64 = 0.85;
/// A storage server that does nothing.
const STORAGE_BYTES: u64 = 32 * MIB;
/// Maps and pages of maps in memory, of one target.
const TARGET_BYTES: u64 = 64 * MIB;
/// Contents under way to and from all clients.
const UNDER_WAY_BYTES: u64 = 256 * MIB;

/// Connections of one client to one server: small messages, and contents.
const CONNECTIONS_PER_CLIENT: u64 = 3;
/// Connections that one server process takes.
const CONNECTIONS_MAX: u64 = 8_192;
/// Memory of a server for a connection that is used now and then.
const CONNECTION_BYTES: u64 = 40 << 10;

/// Memory of a mount that does nothing, and for a file that it knows: attributes, name, lease.
const MOUNT_BYTES: u64 = 20 * MIB;
const KNOWN_FILE_BYTES: u64 = 1_800;
/// Files of which a client keeps leases.
pub const KNOWN_FILES_MAX: u64 = 65_536;
/// Contents that a mount holds at most, where nothing else is said.
const MOUNT_CONTENTS_BYTES: u64 = 256 * MIB;

/// Messages a second of a client that does nothing: to the metadata server, and to the manager.
const IDLE_META_MESSAGES: f64 = 1.2;
const IDLE_MANAGER_MESSAGES: f64 = 1.0;
/// Part of a link that contents have (Ethernet, TCP and messages take the rest).
const LINK_USE: f64 = 0.955;
/// The map of a cluster for each target: the target, and the groups that it leads.
const MAP_BYTES_PER_TARGET: u64 = 250;

/// Files made in a second in one directory by 16 tasks of a native client, on two cores that do everything.
const EMBEDDED_CREATES: u64 = 11_400;
const POSTGRES_CREATES: u64 = 4_100;
const ETCD_CREATES: u64 = 700;
/// So many files are too much for one metadata server.
const MANY_FILES: u64 = 1_000_000_000;

/// Which engine keeps the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// In the data directory of the metadata server
    Embedded,
    /// In a PostgreSQL database
    Postgres,
    /// In an etcd cluster
    Etcd,
}

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
    /// Engine of the metadata.
    pub engine: Engine,
}

/// What the metadata server takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metadata {
    /// Records and small contents, as an export holds them.
    pub records_bytes: u64,
    /// What the engine takes for them, with its journal.
    pub disk_bytes: u64,
    /// Of the process (of the database: what it is given).
    pub memory_bytes: u64,
    /// The part of that which leases of clients take.
    pub lease_bytes: u64,
    /// Messages of clients that do nothing.
    pub idle_messages_per_s: u64,
    /// Files made in a second where it was measured.
    pub creates_per_s: u64,
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
    /// The metadata server.
    pub metadata: Metadata,
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
        let metadata = self.metadata();
        let storage = self.storage();
        let (client, network) = (self.client(), self.network(&storage));
        let problems = self.problems(&storage);
        Needs { advice: self.advice(), metadata, storage, client, network, problems }
    }

    fn small_files(&self) -> u64 {
        ((self.files as f64 * self.small) as u64).min(self.files)
    }

    /// Bytes that lie in the metadata, and on targets (once).
    fn split(&self) -> (u64, u64) {
        let inside = self.small_files().saturating_mul(self.small_bytes).min(self.bytes);
        (inside, self.bytes - inside)
    }

    fn metadata(&self) -> Metadata {
        let (factor, fixed, creates_per_s) = match self.engine {
            Engine::Embedded => (EMBEDDED_FACTOR, EMBEDDED_FIXED_BYTES, EMBEDDED_CREATES),
            Engine::Postgres => (POSTGRES_FACTOR, POSTGRES_FIXED_BYTES, POSTGRES_CREATES),
            Engine::Etcd => (ETCD_FACTOR, ETCD_FIXED_BYTES, ETCD_CREATES),
        };
        let records_bytes = self.files.saturating_mul(RECORD_BYTES).saturating_add(self.split().0);
        let leases = self.used_files.min(KNOWN_FILES_MAX).saturating_mul(self.clients);
        let lease_bytes = leases.saturating_mul(LEASE_BYTES);
        let sessions = self.clients.saturating_mul(SESSION_BYTES + CONNECTION_BYTES);
        Metadata {
            records_bytes,
            disk_bytes: ((records_bytes as f64 * factor) as u64).saturating_add(fixed),
            memory_bytes: META_BYTES.saturating_add(lease_bytes).saturating_add(sessions),
            lease_bytes,
            idle_messages_per_s: (self.clients as f64 * IDLE_META_MESSAGES).ceil() as u64,
            creates_per_s,
        }
    }

    /// Chunks of all files, once. The last chunk of a file takes what it holds, in whole blocks.
    fn chunks(&self) -> u64 {
        let large = self.files - self.small_files();
        let whole = self.split().1 / self.chunk.max(1);
        if self.split().1 == 0 { 0 } else { whole.saturating_add(large) }
    }

    fn storage(&self) -> Storage {
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
        let connections = (self.clients.saturating_mul(CONNECTIONS_PER_CLIENT))
            .saturating_add(self.servers.saturating_mul(CONNECTIONS_PER_CLIENT + 1));
        Storage {
            disk_bytes,
            map_bytes,
            buy_bytes: (disk_bytes.saturating_add(fixed) as f64 / FULL_MAX) as u64,
            memory_bytes: STORAGE_BYTES
                .saturating_add(self.targets.saturating_mul(TARGET_BYTES))
                .saturating_add(UNDER_WAY_BYTES)
                .saturating_add(connections.saturating_mul(CONNECTION_BYTES)),
            connections,
        }
    }

    fn client(&self) -> Client {
        let known = self.used_files.min(KNOWN_FILES_MAX) * KNOWN_FILE_BYTES;
        Client {
            memory_bytes: MOUNT_BYTES + known + MOUNT_CONTENTS_BYTES,
            connections: self.servers.saturating_add(1).saturating_mul(CONNECTIONS_PER_CLIENT),
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

    fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if self.files >= MANY_FILES {
            advice.push(
                "one metadata server serves a volume, or a share of it: with metadata in PostgreSQL make it of several \
                 shares (strake volume create --shares), else make several volumes"
                    .into(),
            );
        }
        match self.engine {
            Engine::Embedded => advice.push(
                "the embedded engine is the faster one; take --engine postgres if the metadata is to outlive its \
                 machine (docs/guide/metadata.md)"
                    .into(),
            ),
            Engine::Postgres => advice.push(
                "a standby of the database keeps the metadata when its machine is lost (docs/guide/metadata.md)".into(),
            ),
            Engine::Etcd => advice.push(
                "raise etcd's --quota-backend-bytes (2 GiB unless told otherwise) above what the disk of a member is to \
                 have (docs/guide/metadata.md)"
                    .into(),
            ),
        }
        if self.copies == 1 && self.servers > 1 {
            advice.push("one copy: a lost disk is lost data; --copies 2 doubles the disks".into());
        }
        advice
    }

    fn problems(&self, storage: &Storage) -> Vec<String> {
        let mut problems = Vec::new();
        if storage.connections > CONNECTIONS_MAX {
            let most = (CONNECTIONS_MAX / CONNECTIONS_PER_CLIENT)
                .saturating_sub(self.servers.saturating_mul(2));
            problems.push(format!(
                "each server would have {} connections and takes {CONNECTIONS_MAX}: at most some {most} clients",
                storage.connections
            ));
        }
        let metadata_bytes = self.metadata().disk_bytes;
        if self.engine == Engine::Etcd && metadata_bytes > ETCD_BYTES_MAX {
            problems.push(format!(
                "an etcd is not to have more than {}: take --engine postgres, or embedded",
                size::show(ETCD_BYTES_MAX)
            ));
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
mod tests {
    use super::*;

    fn demand() -> Demand {
        Demand {
            files: 100_000_000,
            bytes: 400 << 40,
            small: 0.0,
            small_bytes: 0,
            clients: 200,
            used_files: 10_000,
            servers: 16,
            targets: 4,
            link: 1_250_000_000,
            copies: 1,
            chunk: 1 << 20,
            engine: Engine::Embedded,
        }
    }

    #[test]
    fn twice_as_much_takes_twice_as_much() {
        let one = demand().needs();
        let two = Demand { files: 200_000_000, bytes: 800 << 40, ..demand() }.needs();
        let ratio = |a: u64, b: u64| b as f64 / a as f64;
        assert!((1.9..2.1).contains(&ratio(one.metadata.disk_bytes, two.metadata.disk_bytes)));
        assert!((1.99..2.01).contains(&ratio(one.storage.buy_bytes, two.storage.buy_bytes)));
        assert_eq!(one.metadata.memory_bytes, two.metadata.memory_bytes, "memory is bounded");
        let copies = Demand { copies: 2, ..demand() }.needs();
        assert!((1.99..2.01).contains(&ratio(one.storage.buy_bytes, copies.storage.buy_bytes)));
        assert_eq!(copies.metadata.disk_bytes, one.metadata.disk_bytes);
        assert!(one.network.heal_s.is_none() && copies.network.heal_s.is_some());
    }

    #[test]
    fn what_is_small_lies_with_the_metadata_alone() {
        let small =
            Demand { small: 1.0, small_bytes: 2 << 10, bytes: 100_000_000 * (2 << 10), ..demand() };
        let needs = small.needs();
        assert_eq!((needs.storage.disk_bytes, needs.network.fill_s), (0, 0));
        assert!(needs.metadata.disk_bytes > small.bytes);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        assert_eq!(demand().needs().problems, [""; 0]);
        let crowd = Demand { clients: 3_000, used_files: 1_000_000, ..demand() }.needs();
        assert_eq!(crowd.problems.len(), 2, "{:?}", crowd.problems);
        assert!(crowd.problems[0].contains("connections"));
        assert!(!copies_possible(2, 1, 1) && !copies_possible(4, 9, 9) && copies_possible(3, 1, 3));
    }

    #[test]
    fn no_number_is_too_large() {
        let most = u64::MAX;
        for chunk in [0, most] {
            let all = Demand {
                files: most,
                bytes: most,
                small: 0.5,
                small_bytes: most,
                clients: most,
                used_files: most,
                servers: most,
                targets: most,
                link: most,
                copies: most,
                chunk,
                engine: Engine::Postgres,
            };
            assert!(!all.needs().problems.is_empty());
        }
    }
}
