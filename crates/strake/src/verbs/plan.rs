//! `strake plan`: what a cluster takes for so many files, clients and servers, before it is bought.

use crate::capacity::{self, Demand, Engine, KNOWN_FILES_MAX, Needs, SMALL_BYTES_MAX};
use crate::failure::{Failure, Outcome};
use crate::{output, size};
use clap::Args;
use strake_bench::testbed::Rate;
use strake_types::layout::LayoutTemplate;
use strake_types::limits::CHUNK_BYTES_DEFAULT;

const EXAMPLES: &str = "Examples:
  strake plan --files 20M --bytes 30T --servers 4 --clients 40
  strake plan --files 2G --bytes 3P --servers 60 --targets 12 --copies 2 --clients 800 --link 25gbit
  strake plan --files 5M --bytes 40G --small 95% --engine postgres

It asks no cluster. The figures were measured; docs/design/0061-capacity.md says how, and how far they reach.";

/// Flags of `strake plan`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanVerbFlags {
    /// Files to be kept, as 300000, 20M (million) or 2G (thousand million)
    #[arg(long, value_name = "COUNT", value_parser = count)]
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
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "1")]
    pub clients: u64,

    /// Files that each of them uses again and again
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "10000")]
    pub used_files: u64,

    /// Storage servers
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "1")]
    pub servers: u64,

    /// Targets (disks) of each
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "1")]
    pub targets: u64,

    /// What the link of each machine carries: 1gbit, 25gbit
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    pub link: Rate,

    /// Copies of everything
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "1")]
    pub copies: u64,

    /// Length of a chunk
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub chunk: Option<u64>,

    /// What keeps the metadata
    #[arg(long, value_enum, default_value = "embedded")]
    pub engine: Engine,

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
    let refused = |flag: &str, why: String| {
        Err(Failure::usage(format!("--{flag}: {why}")).next("strake plan --help".to_owned()))
    };
    let counts = [
        ("files", flags.files),
        ("clients", flags.clients),
        ("servers", flags.servers),
        ("targets", flags.targets),
    ];
    for (flag, number) in counts {
        if number == 0 {
            return refused(flag, "at least one".into());
        }
    }
    if !capacity::copies_possible(flags.copies, flags.servers, flags.targets) {
        let targets = flags.servers.saturating_mul(flags.targets);
        let why = format!(
            "{} copies on {targets} targets; 1 to 3 are possible, each on another target",
            flags.copies
        );
        return refused("copies", why);
    }
    if flags.small_size > SMALL_BYTES_MAX {
        let most = size::show(SMALL_BYTES_MAX);
        return refused(
            "small-size",
            format!("files of up to {most} lie with the metadata, longer ones do not"),
        );
    }
    let chunk = flags.chunk.unwrap_or(CHUNK_BYTES_DEFAULT);
    let template = LayoutTemplate { chunk_size: Some(chunk), ..LayoutTemplate::default() };
    if let Err(error) = template.validate() {
        return refused("chunk", error.to_string());
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
    })
}

fn show(demand: &Demand, needs: &Needs) {
    let Needs { metadata, storage, client, network, .. } = needs;
    let rate = |bytes: u64| format!("{}/s", size::show(bytes));
    let mut table = output::table(&["FOR EACH", "DISK", "MEMORY", "AND"]);
    let engine = match demand.engine {
        Engine::Embedded => "metadata server",
        Engine::Postgres => "metadata server (disk: PostgreSQL)",
        Engine::Etcd => "metadata server (disk: each etcd member)",
    };
    table.add_row([
        engine.to_owned(),
        size::show(metadata.disk_bytes),
        size::show(metadata.memory_bytes),
        format!(
            "{} of that for leases; {} messages/s of idle clients; an SSD",
            size::show(metadata.lease_bytes),
            metadata.idle_messages_per_s
        ),
    ]);
    table.add_row([
        format!("storage server ({})", demand.servers),
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
        format!("client ({})", demand.clients),
        "none".into(),
        size::show(client.memory_bytes),
        format!("{} connections; mount -o memory= bounds the contents", client.connections),
    ]);
    output::show(&table);
    let heal = match network.heal_s {
        Some(seconds) => format!("; a lost server's copies are made anew in {}", span(seconds)),
        None => String::new(),
    };
    output::line(&format!(
        "\nLinks: all clients together read {} and write {}; filled once in {}{heal}",
        rate(network.read_per_s),
        rate(network.write_per_s),
        span(network.fill_s),
    ));
    output::line(&format!(
        "Manager: {} messages/s, a map of {}",
        network.manager_messages_per_s,
        size::show(network.map_bytes)
    ));
    output::line(&format!(
        "Files made in a second: {} by one client, where two cores did everything (measured; yours differ), all in {}",
        metadata.creates_per_s,
        span(demand.files / metadata.creates_per_s.max(1)),
    ));
    if demand.used_files <= KNOWN_FILES_MAX {
        output::line(&format!(
            "Assumed: --used-files {}, --small {}%",
            demand.used_files,
            demand.small * 100.0
        ));
    }
    needs.advice.iter().for_each(|line| output::line(&format!("Advice: {line}")));
    needs.problems.iter().for_each(|line| output::line(&format!("DOES NOT FIT: {line}")));
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

/// Reads `300000`, `300_000`, `20M`, `2G`: thousands here, for these are no bytes.
fn count(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is no count; write a number with K, M, G, T (thousands) or nothing after it"
        )
    };
    let plain = text.trim().replace('_', "");
    let (number, factor) = match plain.char_indices().last() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => {
            let power = "KMGT".find(unit.to_ascii_uppercase()).ok_or_else(wrong)? as u32 + 1;
            (&plain[..at], 1000_u64.pow(power))
        }
        _ => (&plain[..], 1),
    };
    let value = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    let whole = value.is_finite() && (0.0..=1e15).contains(&value) && value.fract() == 0.0;
    if whole { Ok(value as u64) } else { Err(wrong()) }
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

    #[test]
    fn counts_are_in_thousands_and_nothing_else_is_one() {
        let cases = [("7", 7), ("300_000", 300_000), ("20M", 20_000_000), ("2.5g", 2_500_000_000)];
        for (text, number) in cases {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for text in ["", "M", "-1", "1.5", "1e400", "nan", "20X", "99999T"] {
            assert!(count(text).unwrap_err().contains("is no count"), "{text}");
        }
    }

    #[test]
    fn percentages_have_bounds() {
        assert_eq!((percent("50%"), percent("0")), (Ok(0.5), Ok(0.0)));
        assert!(percent("101%").is_err() && percent("many").is_err());
    }
}
