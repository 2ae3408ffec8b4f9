//! `strake plan`: what a cluster takes for so many files, clients and servers, before it is bought.

use crate::capacity::engines::{Engine, Offer, Step};
use crate::capacity::{self, Demand, KNOWN_FILES_MAX, Needs, SMALL_BYTES_MAX};
use crate::failure::{Failure, Outcome};
use crate::verbs::up::TARGETS_MAX;
use crate::{output, size};
use clap::Args;
use strake_bench::testbed::Rate;
use strake_types::layout::LayoutTemplate;
use strake_types::limits::CHUNK_BYTES_DEFAULT;

const EXAMPLES: &str = "Examples:
  strake plan --files 20M --bytes 30T --servers 4 --clients 40
  strake plan --files 2G --bytes 3P --servers 60 --targets 12 --copies 2 --clients 800 --link 25gbit
  strake plan --files 5M --bytes 40G --small 95% --engine postgres
  strake plan --files 500M --bytes 1P --servers 20 --clients 300 --creates 40K --stats 200K

It asks no cluster. The figures were measured; docs/design/0061-capacity.md says how, and how far they reach.";

/// Clients, storage servers or metadata servers at most.
const MACHINES_MAX: u64 = 1_000_000;
/// Contents at most. With it and the bounds of counts no sum here is more than a `u64` holds.
const BYTES_MAX: u64 = 2 << 60;

/// Flags of `strake plan`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanVerbFlags {
    /// Files to be kept, as 300000, 20M (million) or 2G (thousand million)
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count)]
    pub files: u64,

    /// Their contents, as 500G or 30T
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub bytes: u64,

    /// Part of the files that has at most 8 KiB, and so lies with the metadata
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "50%")]
    pub small: f64,

    /// How long those are on average
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "2K")]
    pub small_size: u64,

    /// Machines that mount it
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count, default_value = "1")]
    pub clients: u64,

    /// Files that each of them uses again and again
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count, default_value = "10000")]
    pub used_files: u64,

    /// Storage servers
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count, default_value = "1")]
    pub servers: u64,

    /// Targets (disks) of each
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count, default_value = "1")]
    pub targets: u64,

    /// What the link of each machine carries: 1gbit, 25gbit
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    pub link: Rate,

    /// Copies of everything
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count, default_value = "1")]
    pub copies: u64,

    /// Length of a chunk [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub chunk: Option<u64>,

    /// What keeps the metadata [default: the first that does for the files and rates]
    #[arg(long, value_enum)]
    pub engine: Option<Engine>,

    /// Files that all clients together make in a second
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count, default_value = "0")]
    pub creates: u64,

    /// Files that they look at in a second
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count, default_value = "0")]
    pub stats: u64,

    /// Metadata servers [default: as many as it takes]
    #[arg(long, value_name = "COUNT", value_parser = size::parse_count)]
    pub meta_servers: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb; exit code 1 if the plan does not work.
pub fn run(flags: &PlanVerbFlags) -> Outcome<u8> {
    let demand = demand(flags)?;
    let needs = demand.needs();
    match flags.json {
        true => output::json(&serde_json::json!({ "for": demand, "takes": needs }))?,
        false => show(&demand, &needs),
    }
    Ok(u8::from(!needs.problems.is_empty()))
}

fn demand(flags: &PlanVerbFlags) -> Outcome<Demand> {
    check_counts(flags)?;
    if flags.bytes > BYTES_MAX {
        let why = format!("{} are more than can be planned for", size::show(flags.bytes));
        return refused(flags, "bytes", why, &size::short(BYTES_MAX));
    }
    if !capacity::copies_possible(flags.copies, flags.servers, flags.targets) {
        let why = format!(
            "{} on {}; 1 to 3 are possible, each on another target",
            output::count(flags.copies, "copy", "copies"),
            output::count(flags.servers * flags.targets, "target", "targets")
        );
        return match flags.copies {
            2..=3 => refused(flags, "copies", why, &format!("{0} --servers {0}", flags.copies)),
            _ => refused(flags, "copies", why, "1"),
        };
    }
    if flags.small_size > SMALL_BYTES_MAX {
        let most = size::show(SMALL_BYTES_MAX);
        let why = format!("files of up to {most} lie with the metadata, longer ones do not");
        return refused(flags, "small-size", why, &size::short(SMALL_BYTES_MAX));
    }
    let chunk = flags.chunk.unwrap_or(CHUNK_BYTES_DEFAULT);
    let template = LayoutTemplate { chunk_size: Some(chunk), ..LayoutTemplate::default() };
    if let Err(error) = template.validate() {
        return refused(flags, "chunk", error.to_string(), &size::short(CHUNK_BYTES_DEFAULT));
    }
    Ok(Demand {
        files: flags.files,
        bytes: flags.bytes,
        small: flags.small,
        small_bytes: flags.small_size,
        clients: flags.clients,
        used_files: flags.used_files,
        servers: flags.servers,
        targets: flags.targets,
        link: flags.link.bytes_per_second(),
        copies: flags.copies,
        chunk,
        engine: flags.engine,
        meta_servers: flags.meta_servers,
        creates_per_s: flags.creates,
        stats_per_s: flags.stats,
    })
}

fn check_counts(flags: &PlanVerbFlags) -> Outcome {
    let counts = [
        ("files", flags.files, u64::MAX),
        ("clients", flags.clients, MACHINES_MAX),
        ("servers", flags.servers, MACHINES_MAX),
        ("targets", flags.targets, TARGETS_MAX as u64),
        ("meta-servers", flags.meta_servers.unwrap_or(1), MACHINES_MAX),
    ];
    for (flag, number, most) in counts {
        if number == 0 {
            return refused(flags, flag, "at least one".into(), "1");
        }
        if number > most {
            let (number, most) = (size::show_count(number), size::show_count(most));
            return refused(flags, flag, format!("{number} are too many; at most {most}"), &most);
        }
    }
    Ok(())
}

/// A refusal of a flag, with a command in which it works.
fn refused<T>(flags: &PlanVerbFlags, flag: &str, why: String, works: &str) -> Outcome<T> {
    let (files, bytes) = (size::show_count(flags.files), size::short(flags.bytes));
    let next = match flag {
        "files" => format!("strake plan --files {works} --bytes {bytes}"),
        "bytes" => format!("strake plan --files {files} --bytes {works}"),
        _ => format!("strake plan --files {files} --bytes {bytes} --{flag} {works}"),
    };
    Err(Failure::usage(format!("--{flag}: {why}")).next(next))
}

fn show(demand: &Demand, needs: &Needs) {
    show_machines(demand, needs);
    output::line("");
    show_engines(needs);
    output::line("");
    show_rates(demand, needs);
    if demand.used_files <= KNOWN_FILES_MAX {
        output::line(&format!(
            "Assumed: --used-files {}, --small {}%",
            demand.used_files,
            shown_percent(demand.small)
        ));
    }
    needs.advice.iter().for_each(|line| output::line(&format!("Advice: {line}")));
    needs.problems.iter().for_each(|line| output::line(&format!("DOES NOT FIT: {line}")));
}

/// What each machine has to have.
fn show_machines(demand: &Demand, needs: &Needs) {
    let Needs { metadata, storage, client, .. } = needs;
    let offer = &metadata.offer;
    let many = |what: &str, number: u64| format!("{what} ({})", size::show_count(number));
    let mut table = output::table(&["FOR EACH", "DISK", "MEMORY", "AND"]);
    let embedded = offer.engine == Engine::Embedded;
    let disk = size::show(offer.disk_bytes);
    table.add_row([
        many("metadata server", offer.step.servers),
        if embedded { disk.clone() } else { "none".into() },
        size::show(metadata.memory_bytes),
        format!(
            "{} of that for leases; {} messages/s of idle clients{}",
            size::show(metadata.lease_bytes),
            metadata.idle_messages_per_s,
            if embedded { "; an SSD" } else { "" }
        ),
    ]);
    if !embedded {
        let connections = match offer.database_connections {
            0 => String::new(),
            number => format!("; {} connections", size::show_count(number)),
        };
        let place = offer.engine.place().to_owned();
        table.add_row([place, disk, "its own".into(), format!("an SSD{connections}")]);
    }
    table.add_row([
        many("storage server", demand.servers),
        size::show(storage.buy_bytes),
        size::show(storage.memory_bytes),
        format!(
            "{} used, {} of it maps; {} connections",
            size::show(storage.disk_bytes),
            size::show(storage.map_bytes),
            storage.connections
        ),
    ]);
    table.add_row([
        many("client", demand.clients),
        "none".into(),
        size::show(client.memory_bytes),
        format!("{} connections; mount -o memory= bounds the contents", client.connections),
    ]);
    output::show(&table);
}

/// What could keep the metadata; the one that was taken has a mark.
fn show_engines(needs: &Needs) {
    let head = ["ENGINE", ">FILES AT MOST", ">ON DISK", ">SERVERS", ">CREATES/S", "BECAUSE"];
    let mut table = output::table(&head);
    for offer in &needs.engines {
        let mark = if offer.engine == needs.metadata.offer.engine { ">" } else { " " };
        table.add_row([
            format!("{mark} {}", offer.engine.name()),
            offer.files_max.map_or("1G a volume".into(), size::show_count),
            offer.bytes_max.map_or("any".into(), size::show),
            if offer.fits() { size::show_count(offer.step.servers) } else { "-".into() },
            creates(&offer.step),
            because(offer),
        ]);
    }
    output::show(&table);
}

fn because(offer: &Offer) -> String {
    match offer.against.first() {
        Some(against) => format!("NO: {against}"),
        None => offer.why.to_owned(),
    }
}

fn creates(step: &Step) -> String {
    step.creates_per_s.map_or("not measured".into(), size::show_count)
}

/// What links and metadata servers do in a second, and how long that takes.
fn show_rates(demand: &Demand, needs: &Needs) {
    let Needs { metadata, network, .. } = needs;
    let rate = |bytes: u64| format!("{}/s", size::show(bytes));
    let heal = match network.heal_s {
        Some(seconds) => format!("; a lost server's copies are made anew in {}", span(seconds)),
        None => String::new(),
    };
    output::line(&format!(
        "Links: all clients together read {} and write {}; filled once in {}{heal}",
        rate(network.read_per_s),
        rate(network.write_per_s),
        span(network.fill_s),
    ));
    output::line(&format!(
        "Manager: {} messages/s, a map of {}",
        network.manager_messages_per_s,
        size::show(network.map_bytes)
    ));
    let all = match metadata.offer.step.creates_per_s {
        Some(rate) => format!("all files made in {}", span(demand.files / rate.max(1))),
        None => "creates were not measured".into(),
    };
    output::line(&format!(
        "Metadata: {} stats/s; {all} (as measured, where two cores did everything; yours differ)",
        size::show_count(metadata.offer.step.stats_per_s)
    ));
    let rates: Vec<_> = metadata.scale.iter().map(creates).collect();
    if rates.first() != rates.last() {
        let servers: Vec<_> = metadata.scale.iter().map(|step| step.servers.to_string()).collect();
        output::line(&format!(
            "Creates/s of {} metadata servers: {}",
            servers.join(", "),
            rates.join("  ")
        ));
    }
}

/// `3 min`, `2.5 h`, `12 days`.
fn span(seconds: u64) -> String {
    let part = |unit: u64| seconds as f64 / unit as f64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{:.0} min", part(60)),
        7_200..172_800 => format!("{:.1} h", part(3_600)),
        _ => format!("{:.0} days", part(86_400)),
    }
}

/// As [`percent()`] reads it, in a millionth at most: the product of 7% and 100 is not 7.
fn shown_percent(part: f64) -> f64 {
    (part * 1e8).round() / 1e6
}

/// Reads `50%` or `50`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').parse::<f64>();
    let parts = number.ok().filter(|number| (0.0..=100.0).contains(number));
    parts
        .map(|parts| parts / 100.0)
        .ok_or_else(|| format!("{text:?} is no percentage from 0% to 100%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: PlanVerbFlags,
    }

    fn plan(words: &str) -> Outcome<Demand> {
        let line = Line::try_parse_from(["plan"].into_iter().chain(words.split_whitespace()));
        demand(&line.unwrap().flags)
    }

    #[test]
    fn what_is_refused_comes_with_a_command_that_works() {
        for (words, cause) in [
            ("--files 0 --bytes 1T", "--files: at least one"),
            ("--files 1M --bytes 4096P", "--bytes: 4096 PiB are more than"),
            ("--files 1M --bytes 1T --clients 0", "--clients: at least one"),
            ("--files 1M --bytes 1T --servers 1G", "--servers: 1G are too many; at most 1M"),
            ("--files 1M --bytes 1T --targets 2000", "--targets: 2,000 are too many"),
            ("--files 1M --bytes 1T --meta-servers 0", "--meta-servers: at least one"),
            ("--files 1M --bytes 1T --copies 3 --servers 2", "--copies: 3 copies on 2 targets"),
            ("--files 1M --bytes 1T --copies 0", "--copies: 0 copies on 1 target;"),
            ("--files 1M --bytes 1T --copies 9", "--copies: 9 copies on 1 target;"),
            ("--files 1M --bytes 1T --small-size 9K", "--small-size: files of up to 8 KiB"),
            ("--files 1M --bytes 1T --chunk 100K", "--chunk: "),
        ] {
            let failure = plan(words).unwrap_err();
            assert!(failure.cause.starts_with(cause), "{words}: {}", failure.cause);
            let next = failure.next.unwrap();
            assert!(plan(next.strip_prefix("strake plan ").unwrap()).is_ok(), "{words}: {next}");
        }
    }

    /// Of the largest numbers that are taken no sum is cut off.
    #[test]
    fn no_sum_of_what_is_taken_is_cut_off() {
        let most = "--files 1000T --bytes 2048P --small-size 8K --clients 1M --targets 1024 --chunk 64K \
                    --copies 3 --used-files 1000T --meta-servers 1M --creates 1000T --stats 1000T";
        for engine in ["embedded", "postgres", "etcd", "tikv"] {
            for more in ["--servers 1M --small 0%", "--servers 1 --small 0%", "--small 100%"] {
                let needs = plan(&format!("{most} --engine {engine} {more}")).unwrap().needs();
                let text = serde_json::to_string(&needs).unwrap();
                assert!(!text.contains(&u64::MAX.to_string()), "{engine} {more}: {text}");
                assert!(!needs.problems.is_empty());
            }
        }
        let billions = plan("--files 10e9 --bytes 1P").unwrap().needs();
        assert_eq!(billions.problems, [""; 0]);
        assert_eq!(billions.metadata.offer.step.servers, 10);
    }

    #[test]
    fn percentages_have_bounds() {
        assert_eq!((percent("50%"), percent("0")), (Ok(0.5), Ok(0.0)));
        for text in ["7", "12.5", "33.333333", "100"] {
            assert_eq!(shown_percent(percent(text).unwrap()).to_string(), text);
        }
        assert!(percent("101%").is_err() && percent("many").is_err());
    }
}
