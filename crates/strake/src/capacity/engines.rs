//! Which engine may keep the metadata, how many metadata servers that takes, and what they do in a second.
//!
//! Each figure says where it was measured. What was not measured is said to be so in what [`Offer`] tells, too.

use super::{GIB, MIB};
use crate::size;
use serde::Serialize;
use strake_types::limits::VOLUMES_MAX;
use strake_types::shares::SHARES_MAX;

/// What an engine takes on disk for a byte of records, with what it has not cleaned up yet. Measured in fjall: 0.9 to 1.4
/// (docs/design/0061-capacity.md); with room above.
const EMBEDDED_FACTOR: f64 = 1.5;
/// Measured: 1.4, of 569 bytes for a file of 100 (docs/guide/metadata.md); with room above.
const POSTGRES_FACTOR: f64 = 2.0;
/// Measured: 3.9, of 1,240 bytes for an empty file, with ten minutes of history (docs/design/0065-etcd.md).
const ETCD_FACTOR: f64 = 4.0;
/// Not measured. Each of TiKV's copies is a log-structured tree, as fjall is.
const TIKV_FACTOR: f64 = EMBEDDED_FACTOR;

/// Journal of 64 MiB, and 32 MiB that are kept back for a full disk (docs/guide/metadata.md).
const EMBEDDED_FIXED_BYTES: u64 = 96 * MIB;
/// The log that PostgreSQL keeps where nothing else is said: its `max_wal_size`.
const POSTGRES_FIXED_BYTES: u64 = GIB;
/// Log and snapshots of an etcd member. Judged.
const ETCD_FIXED_BYTES: u64 = GIB / 2;
/// Log of a TiKV, and files that are being merged. Judged.
const TIKV_FIXED_BYTES: u64 = 10 * GIB;

/// What a table has at most in PostgreSQL with pages of 8 KiB, by its documentation; all records lie in one.
const POSTGRES_BYTES_MAX: u64 = 32 << 40;
/// What an etcd has at most, say those who make it; the highest that they suggest for `--quota-backend-bytes`.
const ETCD_BYTES_MAX: u64 = 8 * GIB;
/// Files of a volume, or of a share of one, at most. Judged: at 27,000 a second, as they are made, whatever takes them up one by
/// one (a count, `strake fsck`, an export) lasts ten hours.
const FILES_PER_SERVER: u64 = 1_000_000_000;

/// Files made in a second by 16 tasks of a native client in one directory, where two cores did everything: 26,988 and 33,034
/// (docs/design/0062-merged-changes.md, docs/results/mount.md; release build).
const EMBEDDED_CREATES: u64 = 26_988;
/// The same by 64 tasks; by 256 it is 12,404 (the same pages).
const POSTGRES_CREATES: u64 = 10_423;
/// By 16 tasks, 680 to 860, one member (docs/design/0065-etcd.md; debug build, but the disk's syncs limit it).
const ETCD_CREATES: u64 = 680;
/// Looks at files, which the server has in memory, that another client made: 8,536 a second for 15 % of a core
/// (docs/results/sharing.md). One caller alone: 106,952 for a core (docs/results/mount.md).
const STATS: u64 = 56_900;
/// What two servers do together, of what one does, for a volume of several shares. Measured where servers are the limit: 1.93
/// of creates, 1.86 of renames, 1.70 of removals, 2.95 of looks (docs/results/sharing.md). The least of these for
/// each doubling; more than two were not measured.
const SHARES_SPEEDUP: f64 = 1.7;
/// Shares of a volume for each server: so they can be dealt out evenly to a few more, too.
const SHARES_PER_SERVER: u64 = 4;

/// Connections of a metadata server to PostgreSQL, without one for each volume or share that it writes: 24 for snapshots of
/// different ages, one that writes the control plane, and one that sweeps now and then (docs/design/0060-postgresql.md).
const POSTGRES_CONNECTIONS: u64 = 26;

/// Which engine keeps the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// In the data directory of the one metadata server
    Embedded,
    /// In a PostgreSQL database, for any number of metadata servers
    Postgres,
    /// In an etcd cluster: some millions of files
    Etcd,
    /// In a TiKV cluster
    Tikv,
}

/// What is asked of the metadata.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Files of the volume.
    pub files: u64,
    /// Their records and small contents.
    pub records_bytes: u64,
    /// Files to be made in a second; 0 if nothing is asked.
    pub creates_per_s: u64,
    /// Looks at files in a second.
    pub stats_per_s: u64,
    /// Metadata servers, where their number is given.
    pub servers: Option<u64>,
}

/// What so many metadata servers do in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Metadata servers.
    pub servers: u64,
    /// Files made; none where it was never measured.
    pub creates_per_s: Option<u64>,
    /// Looks at files that they have in memory.
    pub stats_per_s: u64,
}

/// An engine, as it would be for what is asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Offer {
    /// Which one.
    pub engine: Engine,
    /// What it takes on disk: PostgreSQL once, each member of etcd, each of TiKV's copies.
    pub disk_bytes: u64,
    /// Files at most, if they are as those that are asked for; none if its cluster alone bounds them.
    pub files_max: Option<u64>,
    /// What so many would take.
    pub bytes_max: Option<u64>,
    /// Metadata servers that are needed, or those that were given; the most that there can be if they do not suffice.
    #[serde(flatten)]
    pub step: Step,
    /// Volumes that the files have to be in.
    pub volumes: u64,
    /// Shares of each volume.
    pub shares: u64,
    /// Connections that the database has to take; 0 where nobody counts them.
    pub database_connections: u64,
    /// What speaks for and against it.
    pub why: &'static str,
    /// Why it does not do.
    pub against: Vec<String>,
}

/// How several metadata servers come to divide the work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// They do not: one has the store.
    One,
    /// Each has some shares of one volume.
    Shares,
    /// Each has whole volumes.
    Volumes,
}

impl Spread {
    fn servers_max(self) -> u64 {
        match self {
            Spread::One => 1,
            Spread::Shares => u64::from(SHARES_MAX),
            Spread::Volumes => VOLUMES_MAX as u64,
        }
    }

    /// Shares of a volume that so many servers serve.
    fn shares(self, servers: u64) -> u64 {
        match self {
            Spread::Shares if servers > 1 => {
                servers.saturating_mul(SHARES_PER_SERVER).min(u64::from(SHARES_MAX))
            }
            _ => 1,
        }
    }

    /// How many times as much as one server so many do.
    fn speedup(self, servers: u64) -> f64 {
        match self {
            Spread::One => 1.0,
            Spread::Volumes => servers.min(VOLUMES_MAX as u64) as f64,
            Spread::Shares => {
                // The one with the most shares is what all wait for.
                let shares = self.shares(servers);
                let even = shares as f64 / shares.div_ceil(servers.max(1)) as f64;
                SHARES_SPEEDUP.powf(even.log2())
            }
        }
    }
}

impl Engine {
    const ALL: [Engine; 4] = [Engine::Embedded, Engine::Postgres, Engine::Etcd, Engine::Tikv];

    /// As `--engine` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Embedded => "embedded",
            Engine::Postgres => "postgres",
            Engine::Etcd => "etcd",
            Engine::Tikv => "tikv",
        }
    }

    /// Where its disk is, as a person says it.
    pub fn place(self) -> &'static str {
        match self {
            Engine::Embedded => "metadata server",
            Engine::Postgres => "PostgreSQL",
            Engine::Etcd => "etcd member (3)",
            Engine::Tikv => "copy in TiKV (3)",
        }
    }

    fn spread(self) -> Spread {
        match self {
            Engine::Embedded => Spread::One,
            Engine::Postgres => Spread::Shares,
            Engine::Etcd | Engine::Tikv => Spread::Volumes,
        }
    }

    fn why(self) -> &'static str {
        match self {
            Engine::Embedded => "the fastest; names are lost with its disk",
            Engine::Postgres => "servers share a volume; a standby keeps the names",
            Engine::Etcd => "any one of three members may be lost",
            Engine::Tikv => "for more than one database holds; untried on a real cluster",
        }
    }

    /// What bounds the files.
    fn bound(self) -> &'static str {
        match self {
            Engine::Embedded => "one server serves them all",
            Engine::Postgres => "a table of PostgreSQL has 32 TiB, a volume 64 servers",
            Engine::Etcd => "an etcd is not to have more than 8 GiB",
            Engine::Tikv => "one server serves all of a volume",
        }
    }

    fn factor(self) -> f64 {
        match self {
            Engine::Embedded => EMBEDDED_FACTOR,
            Engine::Postgres => POSTGRES_FACTOR,
            Engine::Etcd => ETCD_FACTOR,
            Engine::Tikv => TIKV_FACTOR,
        }
    }

    fn fixed_bytes(self) -> u64 {
        match self {
            Engine::Embedded => EMBEDDED_FIXED_BYTES,
            Engine::Postgres => POSTGRES_FIXED_BYTES,
            Engine::Etcd => ETCD_FIXED_BYTES,
            Engine::Tikv => TIKV_FIXED_BYTES,
        }
    }

    fn disk_bytes(self, records_bytes: f64) -> u64 {
        ((records_bytes * self.factor()) as u64).saturating_add(self.fixed_bytes())
    }

    fn files_max(self, bytes_per_file: f64) -> Option<u64> {
        let within = |most: u64| {
            ((most - self.fixed_bytes()) as f64 / self.factor() / bytes_per_file) as u64
        };
        let by_servers = self.spread().servers_max() * FILES_PER_SERVER;
        match self {
            Engine::Embedded => Some(by_servers),
            Engine::Postgres => Some(by_servers.min(within(POSTGRES_BYTES_MAX))),
            Engine::Etcd => Some(within(ETCD_BYTES_MAX)),
            Engine::Tikv => None,
        }
    }

    /// What so many servers do.
    pub fn step(self, servers: u64) -> Step {
        let by_all = |one: u64| (one as f64 * self.spread().speedup(servers)) as u64;
        let creates_per_s = match self {
            Engine::Embedded => Some(EMBEDDED_CREATES),
            Engine::Postgres => Some(by_all(POSTGRES_CREATES)),
            // All volumes wait for the syncs of one log.
            Engine::Etcd => Some(ETCD_CREATES),
            Engine::Tikv => None,
        };
        Step { servers, creates_per_s, stats_per_s: by_all(STATS) }
    }

    /// What it would be for this.
    fn offer(self, asked: &Asked) -> Offer {
        let spread = self.spread();
        let most = spread.servers_max();
        let needed = (1..=most).find(|&servers| asked.is_met(&self.step(servers)));
        let servers = asked.servers.or(needed).unwrap_or(most);
        let (step, shares) = (self.step(servers), spread.shares(servers));
        let bytes_per_file = asked.records_bytes as f64 / asked.files.max(1) as f64;
        let files_max = self.files_max(bytes_per_file.max(1.0));
        let database_connections = match self {
            Engine::Postgres => POSTGRES_CONNECTIONS.saturating_mul(servers).saturating_add(shares),
            _ => 0,
        };
        Offer {
            engine: self,
            disk_bytes: self.disk_bytes(asked.records_bytes as f64),
            files_max,
            bytes_max: files_max.map(|files| self.disk_bytes(files as f64 * bytes_per_file)),
            step,
            volumes: if spread == Spread::Volumes { servers } else { 1 },
            shares,
            database_connections,
            why: self.why(),
            against: self.against(asked, needed, files_max, &step),
        }
    }

    fn against(
        self,
        asked: &Asked,
        needed: Option<u64>,
        files_max: Option<u64>,
        step: &Step,
    ) -> Vec<String> {
        let mut against = Vec::new();
        let most = self.spread().servers_max();
        let files_max = files_max.unwrap_or(most.saturating_mul(FILES_PER_SERVER));
        if asked.files > files_max {
            let (files, max) = (size::show_count(asked.files), size::show_count(files_max));
            against.push(format!("{files} files, at most {max}: {}", self.bound()));
        }
        if step.creates_per_s.is_none() && asked.creates_per_s > 0 {
            against.push("creates were never measured".into());
        }
        let best = self.step(most);
        let rates = [
            ("creates", asked.creates_per_s, best.creates_per_s),
            ("stats", asked.stats_per_s, Some(best.stats_per_s)),
        ];
        for (what, wanted, best) in rates {
            if let Some(best) = best.filter(|&best| wanted > best) {
                let (wanted, best) = (size::show_count(wanted), size::show_count(best));
                against.push(format!("{wanted} {what}/s, at most {best}"));
            }
        }
        let given = asked.servers.map(|given| (size::show_count(given), given));
        match (given, needed) {
            (Some((shown, given)), _) if given > most => against
                .push(format!("{shown} metadata servers, at most {}", size::show_count(most))),
            (Some((shown, given)), Some(needed)) if given < needed => against
                .push(format!("{shown} metadata servers, {} needed", size::show_count(needed))),
            _ => {}
        }
        against
    }
}

impl Asked {
    fn is_met(&self, by: &Step) -> bool {
        self.files.div_ceil(FILES_PER_SERVER) <= by.servers
            && by.creates_per_s.is_none_or(|rate| rate >= self.creates_per_s)
            && by.stats_per_s >= self.stats_per_s
    }

    /// All engines, as they would be for this.
    pub fn offers(&self) -> Vec<Offer> {
        Engine::ALL.iter().map(|engine| engine.offer(self)).collect()
    }
}

impl Offer {
    /// Whether nothing is against it.
    pub fn fits(&self) -> bool {
        self.against.is_empty()
    }

    /// What 1, 2, 4 and more servers do, up to the most that there can be.
    pub fn scale(&self) -> Vec<Step> {
        let most = self.engine.spread().servers_max().min(u64::from(SHARES_MAX));
        let powers = (0..u64::BITS).map(|power| 1_u64 << power).take_while(|&n| n <= most);
        powers.map(|servers| self.engine.step(servers)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLION: u64 = 1_000_000;
    const G: u64 = 1_000_000_000;

    fn asked(files: u64, creates_per_s: u64, stats_per_s: u64) -> Asked {
        let records_bytes = files * 312;
        Asked { files, records_bytes, creates_per_s, stats_per_s, servers: None }
    }

    fn offer(engine: Engine, asked: Asked) -> Offer {
        asked.offers().into_iter().find(|offer| offer.engine == engine).unwrap()
    }

    #[test]
    fn servers_follow_from_the_rates_and_the_files() {
        let postgres = |asked| offer(Engine::Postgres, asked);
        let servers = |files, creates, stats| postgres(asked(files, creates, stats)).step.servers;
        assert_eq!(servers(MILLION, 0, 0), 1);
        assert_eq!(servers(MILLION, POSTGRES_CREATES, STATS), 1);
        assert_eq!(servers(MILLION, POSTGRES_CREATES + 1, 0), 2);
        assert_eq!(servers(MILLION, 0, STATS + 1), 2);
        assert_eq!(servers(10 * G, 0, 0), 10);
        let two = postgres(asked(MILLION, 17_000, 0));
        assert_eq!((two.step.servers, two.shares, two.database_connections), (2, 8, 60));
        assert!(two.fits() && postgres(asked(MILLION, 1, 0)).shares == 1);
        let far = postgres(asked(MILLION, MILLION, 0));
        assert!(far.step.servers == 64 && far.against[0].starts_with("1M creates/s, at most 251,"));
    }

    #[test]
    fn each_doubling_brings_what_was_measured_for_two() {
        let scale = offer(Engine::Postgres, asked(1, 0, 0)).scale();
        assert_eq!(
            scale.iter().map(|step| step.servers).collect::<Vec<_>>(),
            [1, 2, 4, 8, 16, 32, 64]
        );
        for pair in scale.windows(2) {
            let rate = |step: &Step| step.creates_per_s.unwrap() as f64;
            let times = rate(&pair[1]) / rate(&pair[0]);
            assert!((1.69..1.71).contains(&times), "{times}");
        }
        // 64 shares on 17 servers: some have four, as with 16.
        let step = |servers| Engine::Postgres.step(servers).stats_per_s;
        assert!(step(17) == step(16) && step(22) > step(21));
        assert_eq!(offer(Engine::Embedded, asked(1, 0, 0)).scale().len(), 1);
    }

    #[test]
    fn each_engine_has_its_bound_of_files() {
        let most = |engine| offer(engine, asked(MILLION, 0, 0)).files_max;
        assert_eq!(most(Engine::Embedded), Some(G));
        assert!((6_400_000..6_500_000).contains(&most(Engine::Etcd).unwrap()), "of 8 GiB");
        assert_eq!(most(Engine::Postgres), Some(56_383_490_940), "of 32 TiB");
        assert_eq!(most(Engine::Tikv), None);
        let fits = |files, creates| {
            let offers = asked(files, creates, 0).offers();
            offers.iter().filter(|offer| offer.fits()).map(|offer| offer.engine).collect::<Vec<_>>()
        };
        assert_eq!(fits(MILLION, 0), Engine::ALL);
        assert_eq!(fits(100 * MILLION, 20_000), [Engine::Embedded, Engine::Postgres]);
        assert_eq!(fits(10 * G, 0), [Engine::Postgres, Engine::Tikv]);
        assert_eq!(fits(100 * G, 0), [Engine::Tikv]);
        assert!(fits(100 * G, 1).is_empty());
        let etcd = offer(Engine::Etcd, asked(100 * MILLION, 700, 0));
        assert!(etcd.against[0].contains("100M files, at most 6.5M: an etcd is not to have more"));
        assert_eq!(etcd.against[1], "700 creates/s, at most 680");
        assert!(etcd.bytes_max.unwrap().abs_diff(ETCD_BYTES_MAX) < 4096);
    }

    /// Nothing was against more files than as many volumes have as there can be.
    #[test]
    fn volumes_have_a_bound_of_files_where_a_cluster_has_none() {
        let most = VOLUMES_MAX as u64 * G;
        assert!(offer(Engine::Tikv, asked(most, 0, 0)).fits());
        let far = offer(Engine::Tikv, asked(1_000_000 * G, 0, 0));
        assert!(far.against[0].starts_with("1000T files, at most "), "{:?}", far.against);
    }

    #[test]
    fn a_number_of_servers_that_is_given_is_held_against_what_is_needed() {
        let given = |engine, servers, creates| {
            offer(engine, Asked { servers: Some(servers), ..asked(MILLION, creates, 0) })
        };
        let few = given(Engine::Postgres, 2, 50_000);
        assert_eq!(few.against, ["2 metadata servers, 8 needed"]);
        assert_eq!(few.step, Engine::Postgres.step(2));
        assert!(given(Engine::Postgres, 8, 50_000).fits());
        assert_eq!(given(Engine::Embedded, 2, 0).against, ["2 metadata servers, at most 1"]);
        assert_eq!(given(Engine::Postgres, 65, 0).against, ["65 metadata servers, at most 64"]);
        assert_eq!(given(Engine::Tikv, 65, 0).volumes, 65);
    }
}
