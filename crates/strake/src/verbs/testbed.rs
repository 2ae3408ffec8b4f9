//! `strake testbed`: hosts of a cluster on this machine, with links and disks as slow as wanted.

use crate::failure::{Context, Failure, Outcome};
use crate::{output, signals, size};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use strake_bench::limit::{self, Limits, SampleBytes, Stopped};
use strake_bench::statistics::{self, Summary};
use strake_bench::testbed::{
    self, HOSTS_MAX, Host, NAME_DEFAULT, Plan, Rate, Role, TARGETS_MAX, Testbed,
};
use tokio::sync::watch;

/// How a link without a limit is written.
const NO_LIMIT: &str = "none";
/// Bytes of `testbed limit`, unless links and disks take long for them.
const LIMIT_BYTES_DEFAULT: u64 = 32 << 20;

/// Flags of `strake testbed`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strake testbed up --servers 2 --link 100mbit     two servers, a client, 100 Mbit/s each; mounted at
                                                   ./testbed/mnt/c1
  strake testbed exec c1 ping -c 1 10.98.0.1       a command in the network of a host
  strake testbed limit                             what its links and disks carry at most
  strake testbed down                              remove all of it")]
pub struct TestbedFlags {
    /// What to do.
    #[command(subcommand)]
    pub verb: TestbedVerb,
}

/// What can be done with a testbed.
#[derive(Subcommand, Debug)]
pub enum TestbedVerb {
    /// Make hosts and a network between them, and start a cluster there
    Up(UpFlags),
    /// Show what a testbed consists of and whether it runs
    Status(ShowFlags),
    /// Print names, addresses and namespaces of the hosts, for a shell: eval "$(strake testbed env)"
    Env(NameFlags),
    /// Run a command in the network of a host
    Exec(ExecFlags),
    /// Measure what the links and disks carry at most
    Limit(LimitFlags),
    /// Remove a testbed: its mounts, processes, networks and files
    Down(NameFlags),
}

/// Which testbed.
#[derive(Args, Debug)]
pub struct NameFlags {
    /// Which testbed
    #[arg(long, value_name = "NAME", default_value = NAME_DEFAULT)]
    pub name: String,
}

/// Flags of `strake testbed status`.
#[derive(Args, Debug)]
pub struct ShowFlags {
    /// Which testbed.
    #[command(flatten)]
    pub which: NameFlags,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `strake testbed up`.
#[derive(Args, Debug)]
pub struct UpFlags {
    /// Which testbed.
    #[command(flatten)]
    pub which: NameFlags,

    /// Hosts with storage: s1, s2, ...
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=HOSTS_MAX as i64))]
    pub servers: u32,

    /// Hosts that mount: c1, c2, ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=HOSTS_MAX as i64))]
    pub clients: u32,

    /// What the link of each host carries in each direction: 100mbit, 1gbit, none
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    pub link: Link,

    /// The same for clients [default: as --link]
    #[arg(long, value_name = "RATE")]
    pub client_link: Option<Link>,

    /// What the disk of each target carries, read and written: 6.83MB/s, none
    #[arg(long, value_name = "RATE", default_value = NO_LIMIT)]
    pub disk: Link,

    /// Storage targets of each server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=TARGETS_MAX as i64))]
    pub targets: u32,

    /// Bytes of a chunk of the volume (the stripe unit): a power of two from 64K to 64M [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "no_cluster")]
    pub chunk_size: Option<u64>,

    /// Directory for everything: data, logs, mounts; new or empty [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Run this strake in it: another release, say [default: the one that makes the testbed]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,

    /// Make only the hosts and the network, for another file system
    #[arg(long)]
    pub no_cluster: bool,
}

/// Flags of `strake testbed exec`.
#[derive(Args, Debug)]
pub struct ExecFlags {
    /// Which testbed.
    #[command(flatten)]
    pub which: NameFlags,

    /// The host: s1, c1, ...
    #[arg(value_name = "HOST")]
    pub host: String,

    /// The command
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<String>,
}

/// Flags of `strake testbed limit`.
#[derive(Args, Debug)]
pub struct LimitFlags {
    /// Which testbed.
    #[command(flatten)]
    pub show: ShowFlags,

    /// Bytes over one connection or all together, and to and from a disk [default: 32M, or what takes some seconds if that is less]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub bytes: Option<u64>,

    /// How often; the median is shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repetitions: u32,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(pub Option<Rate>);

impl std::str::FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Link, String> {
        match text {
            NO_LIMIT => Ok(Link(None)),
            _ => text.parse().map(|rate| Link(Some(rate))).map_err(|e| format!("{e}, or none")),
        }
    }
}

impl TestbedFlags {
    /// True if the exit code says how the testbed is.
    pub fn judges(&self) -> bool {
        matches!(self.verb, TestbedVerb::Status(_))
    }
}

/// Runs the verb; the exit code.
pub async fn run(flags: TestbedFlags) -> Outcome<u8> {
    match flags.verb {
        TestbedVerb::Up(flags) => up(flags).await?,
        TestbedVerb::Status(flags) => return status(&flags),
        TestbedVerb::Env(flags) => env(&Testbed::find(&flags.name)?),
        TestbedVerb::Exec(flags) => exec(&flags)?,
        TestbedVerb::Limit(flags) => measure_limit(flags).await?,
        TestbedVerb::Down(flags) => down(flags.name).await?,
    }
    Ok(0)
}

async fn up(flags: UpFlags) -> Outcome {
    let name = flags.which.name;
    testbed::check_name(&name)?;
    let data = flags.data.unwrap_or_else(|| PathBuf::from(".").join(&name));
    let plan = Plan {
        name,
        servers: flags.servers,
        clients: flags.clients,
        targets: flags.targets,
        link: flags.link.0,
        client_link: flags.client_link.unwrap_or(flags.link).0,
        disk: flags.disk.0,
        chunk_size: flags.chunk_size,
        cluster: !flags.no_cluster,
    };
    let program = match flags.program {
        Some(given) => std::path::absolute(&given).context(|| given.display().to_string())?,
        None => std::env::current_exe().context(|| "finding this program".into())?,
    };
    let stop = signals::tidy_end_requested()?;
    let testbed =
        blocking(stop, move |stopped| Ok(Testbed::up(&plan, &data, &program, stopped)?)).await?;
    show(&testbed);
    output::line("");
    how_to_go_on(&testbed);
    Ok(())
}

/// Runs what waits for processes and streams; it is told by `stop` when it is to end.
async fn blocking<T: Send + 'static>(
    stop: watch::Receiver<bool>,
    work: impl FnOnce(Stopped<'_>) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let done = tokio::task::spawn_blocking(move || work(&|| *stop.borrow())).await;
    done.context(|| "the testbed".into())?
}

async fn down(name: String) -> Outcome {
    let shown = name.clone();
    let stop = signals::tidy_end_requested()?;
    let removed = blocking(stop, move |_| Ok(testbed::down(&name)?)).await?;
    if removed.is_nothing() {
        output::line(&format!("there is no testbed {shown}; nothing is left of one"));
        return Ok(());
    }
    output::line(&format!(
        "testbed {shown} is removed: {}, {}{}",
        output::count(removed.namespaces as u64, "namespace", "namespaces"),
        output::count(removed.mounts as u64, "mount", "mounts"),
        removed.data.map_or_else(String::new, |data| format!(", {}", data.display()))
    ));
    Ok(())
}

/// Becomes the command, in the network of the host.
fn exec(flags: &ExecFlags) -> Outcome {
    let host = Testbed::find(&flags.which.name)?.host(&flags.host)?;
    let (program, arguments) = flags.command.split_first().unwrap_or((&flags.host, &[]));
    let error = testbed::within(&host.namespace, || Command::new(program).args(arguments).exec())?;
    Err(Failure { code: 127, ..Failure::new(format!("{program} on {}: {error}", host.name)) })
}

/// A host as it is shown.
#[derive(Serialize)]
struct Row {
    host: String,
    role: Role,
    address: String,
    namespace: String,
    /// Bytes per second; `None`: no limit.
    link: Option<Rate>,
    mount: Option<PathBuf>,
    processes: Vec<u32>,
    /// Processes that were started there and have ended.
    ended: Vec<u32>,
}

/// A testbed as `--json` prints it.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    plan: Plan,
    data: PathBuf,
    fine: bool,
    hosts: Vec<Row>,
}

fn rows(testbed: &Testbed) -> Vec<Row> {
    let clients = testbed.hosts(Role::Client);
    let row = |host: Host| {
        let client = clients.iter().position(|client| *client == host);
        let mount = client.filter(|_| testbed.state.plan.cluster);
        let of_host = testbed.state.processes.iter().filter(|process| process.host == host.name);
        Row {
            processes: testbed::processes_in(std::slice::from_ref(&host.namespace)),
            ended: of_host.filter(|process| !process.is_alive()).map(|p| p.pid).collect(),
            mount: mount.map(|nth| testbed.state.mount(nth as u32 + 1)),
            host: host.name,
            role: host.role,
            address: host.address,
            namespace: host.namespace,
            link: host.link,
        }
    };
    testbed.state.hosts().into_iter().map(row).collect()
}

/// Exit code 0 fine, 2 where something of it is gone.
fn status(flags: &ShowFlags) -> Outcome<u8> {
    let testbed = Testbed::find(&flags.which.name)?;
    let rows = rows(&testbed);
    let there =
        |row: &Row| testbed::namespace_file(&row.namespace).exists() && row.ended.is_empty();
    let fine = testbed.state.complete && rows.iter().all(there);
    if flags.json {
        let (plan, data) = (testbed.state.plan.clone(), testbed.state.data.clone());
        output::json(&Report { plan, data, fine, hosts: rows })?;
    } else {
        show(&testbed);
        if !fine {
            let name = &testbed.state.plan.name;
            output::line(&format!(
                "\nnot all of it runs; remove it: strake testbed down --name {name}"
            ));
        }
    }
    Ok(if fine { 0 } else { 2 })
}

fn show(testbed: &Testbed) {
    let state = &testbed.state;
    let plan = &state.plan;
    output::line(&format!(
        "testbed {} in {}: links {}, of clients {}, disks {}",
        plan.name,
        state.data.display(),
        rate_text(plan.link, |rate| rate.to_string()),
        rate_text(plan.client_link, |rate| rate.to_string()),
        rate_text(plan.disk, Rate::in_bytes),
    ));
    let mut table = output::table(&["HOST", "ADDRESS", "NAMESPACE", "LINK", "RUNS", "MOUNT"]);
    for row in rows(testbed) {
        let running = row.processes.iter().map(|pid| {
            let line = testbed::command_line(*pid);
            format!("{} ({pid})", line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        });
        let ended = row.ended.iter().map(|pid| format!("ended ({pid})"));
        table.add_row([
            row.host,
            row.address,
            row.namespace,
            rate_text(row.link, |rate| rate.to_string()),
            running.chain(ended).collect::<Vec<_>>().join(", "),
            row.mount.map_or_else(String::new, |mount| mount.display().to_string()),
        ]);
    }
    output::show(&table);
}

fn rate_text(rate: Option<Rate>, text: impl Fn(Rate) -> String) -> String {
    rate.map_or_else(|| "without limit".to_owned(), text)
}

fn how_to_go_on(testbed: &Testbed) {
    let plan = &testbed.state.plan;
    let name = match plan.name.as_str() {
        NAME_DEFAULT => String::new(),
        name => format!(" --name {name}"),
    };
    if plan.cluster {
        output::line(&format!("use it:      ls {}", testbed.state.mount(1).display()));
    }
    output::line(&format!("run in it:   strake testbed exec{name} c1 CMD..."));
    output::line(&format!("its limit:   strake testbed limit{name}"));
    output::line(&format!("for scripts: eval \"$(strake testbed env{name})\""));
    output::line(&format!("remove it:   strake testbed down{name}"));
}

/// Assignments for a shell. Nothing in them needs quoting but the directory.
fn env(testbed: &Testbed) {
    let state = &testbed.state;
    let names = |role: Option<Role>| {
        let wanted = state.hosts().into_iter().filter(|h| role.is_none_or(|role| h.role == role));
        wanted.map(|host| host.name).collect::<Vec<_>>().join(" ")
    };
    let bytes = |rate: Option<Rate>| {
        rate.map_or_else(|| NO_LIMIT.to_owned(), |rate| rate.bytes_per_second().to_string())
    };
    output::line(&format!("TESTBED={}", state.plan.name));
    output::line(&format!("TESTBED_DATA='{}'", quoted(&state.data.display().to_string())));
    output::line(&format!("HOSTS='{}'", names(None)));
    output::line(&format!("SERVERS='{}'", names(Some(Role::Server))));
    output::line(&format!("CLIENTS='{}'", names(Some(Role::Client))));
    output::line(&format!("LINK_BYTES_PER_SECOND={}", bytes(state.plan.link)));
    output::line(&format!("CLIENT_LINK_BYTES_PER_SECOND={}", bytes(state.plan.client_link)));
    output::line(&format!("DISK_BYTES_PER_SECOND={}", bytes(state.plan.disk)));
    for host in state.hosts() {
        output::line(&format!("ADDRESS_{}={}", host.name, host.address));
        output::line(&format!("NAMESPACE_{}={}", host.name, host.namespace));
    }
}

/// A text as it stands between single quotes.
fn quoted(text: &str) -> String {
    text.replace('\'', r"'\''")
}

async fn measure_limit(flags: LimitFlags) -> Outcome {
    let testbed = Testbed::find(&flags.show.which.name)?;
    let bytes = match flags.bytes {
        Some(bytes) => SampleBytes { links: bytes, disk: bytes },
        None => SampleBytes::of(&testbed.state.plan, LIMIT_BYTES_DEFAULT),
    };
    let repetitions = flags.repetitions;
    let of = testbed.clone();
    let stop = signals::stop_requested(|| {})?;
    let limits =
        blocking(stop, move |stopped| Ok(Limits::measure(&of, bytes, repetitions, stopped)?))
            .await?;
    if flags.show.json {
        return output::json(&limits);
    }
    let plan = &testbed.state.plan;
    let servers = if plan.servers == 1 { "s1".into() } else { format!("s1..s{}", plan.servers) };
    let disks = plan.servers * plan.targets;
    let rows = [
        ("one TCP stream, c1 to s1".to_owned(), &limits.to_one),
        ("one TCP stream, s1 to c1".to_owned(), &limits.from_one),
        (format!("TCP streams, c1 to {servers}"), &limits.to_all),
        (format!("TCP streams, {servers} to c1"), &limits.from_all),
        (format!("writing {disks} disks"), &limits.disks_written),
        (format!("reading {disks} disks"), &limits.disks_read),
    ];
    let mut table = output::table(&["LIMIT", ">MB/S", ">LEAST", ">MOST"]);
    for (what, samples) in rows {
        let figure = limit::figure(&what, "limit", &BTreeMap::new(), samples);
        let Some(Summary { value, minimum, maximum, .. }) = statistics::summary(&figure) else {
            continue;
        };
        let shown = [value, minimum, maximum].map(|rate| format!("{:.2}", rate / 1e6));
        table.add_row([what].into_iter().chain(shown));
    }
    output::show(&table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_rate_or_none() {
        assert_eq!("none".parse(), Ok(Link(None)));
        assert_eq!("1gbit".parse(), Ok(Link("1gbit".parse().ok())));
        let error = "fast".parse::<Link>().unwrap_err();
        assert!(error.contains("100mbit") && error.contains("none"), "{error}");
    }

    #[test]
    fn a_directory_is_quoted_for_a_shell() {
        assert_eq!(quoted("/it's"), r"/it'\''s");
    }
}
