//! `strake server`: one server of a cluster.

use super::servers::ServersVerb;
use crate::address::{self, PORT_DEFAULT};
use crate::cluster::host_name;
use crate::failure::{self, Failure, Outcome};
use crate::node::{MetaPlace, Node, NodeOptions, Roles, TARGET, Wanted, identity};
use crate::private::data_directory;
use crate::tls_flags::TlsFlags;
use crate::{output, signals, telemetry};
use clap::Args;
use serde::Deserialize;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use strake_bench::testbed::Rate;
use strake_engine::kv::EngineKind;
use strake_wire::server::Listener;
use strake_wire::tls::Tls;
use strake_wire::transport::{host_of, is_unix};

/// Flags of `strake server`. Every one of them may stand in the file of `--config` instead.
#[derive(Args, Debug, Default)]
#[command(after_help = "Examples:
  strake server --listen 10.0.0.1 --data /srv/strake --roles manager,meta,storage
  strake server --listen 10.0.0.2 --data /srv/a /srv/b --roles storage --join 10.0.0.1

The file of --config is TOML with the same names, - as _:
  listen = \"10.0.0.2:7440\"
  data = [\"/srv/a\", \"/srv/b\"]
  roles = [\"storage\"]
  join = [\"10.0.0.1\"]
  tls_ca = \"/etc/strake/tls/ca.pem\"")]
pub struct ServerFlags {
    /// What to do with servers there are, instead of running one.
    #[command(subcommand)]
    pub verb: Option<ServersVerb>,

    /// Address to listen on: HOST[:PORT], port 7440 unless given; 0.0.0.0 is every address of the machine
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,

    /// Address that others use to reach this server: HOST[:PORT], the port of --listen unless given [default: the one it listens on]
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,

    /// Directories on its disks, one target each; the first also holds the metadata. Those that strake target add has added need not be named
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub data: Vec<PathBuf>,

    /// What it does: manager (who belongs to the cluster), meta (names and attributes), storage (contents). One manager leads; others, on the same --meta database, follow it and take its place
    #[arg(long, value_name = "ROLE,...", value_delimiter = ',')]
    pub roles: Vec<String>,

    /// Managers of the cluster to join; without it this server, a manager, begins a cluster of its own
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    pub join: Vec<String>,

    /// Name shown in status and layouts [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Serve metrics for Prometheus at http://ADDR/metrics
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,

    /// Where the metadata is: embedded (in the first of --data), postgres://USER@HOST/DATABASE, or etcd://HOST,HOST,HOST/NAME;
    /// PGPASSWORD or ETCDCTL_PASSWORD may give the password [default: embedded; a database has to be named at each start]
    #[arg(long, value_name = "WHERE", env = "STRAKE_META", hide_env_values = true)]
    pub meta: Option<MetaPlace>,

    /// Engine of a new embedded metadata store: fjall or redb
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<EngineKind>,

    /// A directory whose target is missing is on a new disk: begin a new target there (then: strake target replace)
    #[arg(long)]
    pub new_disks: bool,

    /// It is a new server, although the cluster knows one of its name or address: not that one with its first disk away
    #[arg(long)]
    pub new_server: bool,

    /// Go on with targets that are older than they were, as copies or snapshots of lost disks are: what they lack comes
    /// from other copies, and files that have none are as old as the disk
    #[arg(long)]
    pub old_disks: bool,

    /// Go on without a directory that `strake target add` has added, because its disk is away
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub without: Vec<PathBuf>,

    /// Let the disk of each target carry only so much, as 6.83MB/s: to measure, never in service
    #[arg(long, value_name = "RATE")]
    pub disk_rate: Option<Rate>,

    /// Days in which all of its targets are verified once, again and again, and repaired from other copies; 0: never [default: 7]
    #[arg(long, value_name = "DAYS")]
    pub scrub_every: Option<f64>,

    /// Read what is not given here from this TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Longest name of a server.
const NAME_BYTES_MAX: usize = 64;
/// Days in which targets are verified once, unless told otherwise.
pub const SCRUB_DAYS_DEFAULT: f64 = 7.0;

/// The file of `--config`: every flag of the verb but `--config` itself and `--cluster`, which names what others use.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
struct Config {
    listen: Option<String>,
    advertise: Option<String>,
    #[serde(default)]
    data: Vec<PathBuf>,
    #[serde(default)]
    roles: Vec<String>,
    #[serde(default)]
    join: Vec<String>,
    name: Option<String>,
    metrics: Option<String>,
    meta: Option<String>,
    engine: Option<String>,
    #[serde(default)]
    new_disks: bool,
    #[serde(default)]
    new_server: bool,
    #[serde(default)]
    old_disks: bool,
    #[serde(default)]
    without: Vec<PathBuf>,
    disk_rate: Option<String>,
    scrub_every: Option<f64>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    #[serde(default)]
    no_tls: bool,
    log_level: Option<String>,
}

/// Runs the verb.
pub async fn run(flags: ServerFlags, tls: &TlsFlags) -> Outcome {
    let (flags, tls) = with_config(flags, tls.clone())?;
    let roles = parse_roles(&flags.roles)?;
    check(&flags, roles)?;
    let data = flags.data.iter().map(|dir| data_directory(dir)).collect::<Outcome<Vec<_>>>()?;
    let home = data[0].clone();
    let is_there = home.join(identity::NAME).exists();
    let name = name_of(flags.name, is_there)?;
    let join: Vec<String> = flags.join.iter().map(|a| address::complete(a)).collect();
    join.iter().try_for_each(|address| address::check_port(address))?;
    let listen = flags.listen.as_deref().unwrap_or_default();
    let (listener, advertise, tls) =
        open_port(listen, flags.advertise.as_deref(), &join, &tls).await?;
    if let Some(metrics) = &flags.metrics {
        telemetry::serve(metrics).await?;
    }
    let mut stop = signals::stop_requested(|| {})?;
    let begins = join.is_empty() && !is_there;
    let options = NodeOptions {
        home: home.clone(),
        targets: data.iter().map(|dir| dir.join(TARGET)).collect(),
        roles,
        listeners: vec![listener],
        advertise: advertise.clone(),
        tls,
        join,
        name,
        meta_store: Wanted { place: flags.meta, engine: flags.engine },
        without: flags.without,
        new_disks: flags.new_disks,
        new_server: flags.new_server,
        old_disks: flags.old_disks,
        disk_rate: flags.disk_rate.map(Rate::bytes_per_second),
        scrub_every: scrub_every(flags.scrub_every.unwrap_or(SCRUB_DAYS_DEFAULT)),
    };
    let node = tokio::select! {
        node = Node::start(options) => node?,
        () = signals::asked(&mut stop) => return Ok(()),
    };
    let cluster = node.map().current().cluster.clone();
    if begins {
        tracing::warn!(
            "this is a NEW cluster, {cluster}: there was no node.json in {}. Was this a server of another one? Then its disk is \
             not mounted: stop the server, mount it, start again",
            home.display()
        );
    }
    check_way_back(&node, advertise.clone());
    output::notice(&format!("server {} of cluster {cluster} serves at {advertise}", node.id()));
    let mut ended = tokio::select! {
        () = signals::asked(&mut stop) => Ok(()),
        why = node.overtaken() => {
            Err(Failure::telling(why).about(&format!("the server at {advertise} ends")))
        }
    };
    if let Err(failure) = node.stop().await {
        failure::note(&mut ended, failure);
    }
    ended
}

/// How long a round takes over targets that are verified once in so many days.
pub fn scrub_every(days: f64) -> Option<Duration> {
    (days > 0.0).then(|| Duration::from_secs_f64(days * 86_400.0))
}

/// Listens, with certificates where there are any; the address by which others call.
pub async fn open_port(
    listen: &str,
    advertise: Option<&str>,
    join: &[String],
    tls: &TlsFlags,
) -> Outcome<(Listener, String, Option<Arc<Tls>>)> {
    let listen = address::complete(listen);
    let complete = |port| advertise.map(|given| address::complete_with(given, port));
    complete(PORT_DEFAULT).iter().try_for_each(|address| check_advertised(address))?;
    let is_meant = tls.no_tls;
    let tls = tls.load_to_listen(&listen)?;
    let listener = bind(&listen).await?.secured_by(tls.clone());
    let bound = listener.address();
    if is_loopback_by_name(&listen, &bound) {
        tracing::warn!(
            "--listen {listen} is {bound} here, which no other machine reaches: give the address that this one has in the network \
             (localhost: it is meant)"
        );
    }
    if tls.is_none() && !is_meant && is_open(&bound) {
        tracing::warn!(
            "no certificates: whoever reaches {bound} may act as any user; strake tls makes some (--no-tls: it is meant)"
        );
    }
    // The system may have chosen the port.
    let port = bound.parse::<SocketAddr>().map_or(PORT_DEFAULT, |bound| bound.port());
    let advertise = match complete(port) {
        Some(given) => given,
        None => address::advertised(&bound, join.first().map(String::as_str))?,
    };
    if let Some(tls) = &tls {
        check_certificate(tls, &advertise)?;
    }
    Ok((listener, advertise, tls))
}

/// Refuses an address at which nobody can be.
fn check_advertised(address: &str) -> Outcome {
    address::check_port(address)?;
    let is_nowhere = |host: &str| {
        host.is_empty() || host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
    };
    match !is_unix(address) && (address.ends_with(":0") || is_nowhere(host_of(address))) {
        true => Err(Failure::usage(format!("--advertise {address}: nobody is reached there"))
            .next("give the host and the port at which others reach this server")),
        false => Ok(()),
    }
}

/// Warns where the address that others are told does not lead back here: this server can listen wherever it leads. What the manager
/// finds from where it is, `strake status` tells.
fn check_way_back(node: &Node, advertise: String) {
    let callers = node.map().callers().clone();
    tokio::spawn(async move {
        if let Err(error) = callers.reach(&advertise).await {
            tracing::warn!(
                "others are told to reach this server at {advertise}, and from here nobody does: {error}; is --advertise right?"
            );
        }
    });
}

/// True if other machines can call this address, which a listener has given.
fn is_open(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback())
}

/// True if a name that is to be listened at stands for an address that other machines do not call, as that of the host itself does on
/// some systems. Who writes the address, or `localhost`, wants that.
fn is_loopback_by_name(listen: &str, bound: &str) -> bool {
    let host = host_of(listen);
    let is_name = !host.eq_ignore_ascii_case("localhost") && host.parse::<IpAddr>().is_err();
    is_name && bound.parse::<SocketAddr>().is_ok_and(|bound| bound.ip().is_loopback())
}

async fn bind(address: &str) -> Outcome<Listener> {
    if !is_unix(address) {
        address::resolve(address)?;
    }
    Listener::bind(address).await.map_err(|e| Failure::telling(&e))
}

/// Refuses a certificate that nobody who calls this server would accept.
fn check_certificate(tls: &Tls, advertise: &str) -> Outcome {
    let host = (!is_unix(advertise)).then(|| host_of(advertise));
    tls.serve(host).map_err(|e| Failure::telling(&e))?;
    let own = tls.certificate();
    tracing::info!("TLS as {}, whose certificate expires on {}", own.name, own.expires.date());
    Ok(())
}

impl Config {
    fn read(path: &Path) -> Outcome<Config> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::usage(format!("--config {shown}: {e}")))?;
        toml::from_str(&text).map_err(|e| {
            Failure::usage(format!("--config {shown}: {}", what_is_wrong(&text, &e)))
                .next("strake server --help shows the names")
        })
    }
}

/// What is wrong with a file, and in which line. The line is not repeated: its URL may hold a password.
fn what_is_wrong(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map(|before| format!("line {}: ", before.matches('\n').count() + 1));
    let line = line.unwrap_or_default();
    // It may quote a value, or a name; types are called as in programs.
    let message = error.message().replace("expected f64", "expected a number");
    let message = message.replace("expected a sequence", r#"expected a list, as ["a", "b"]"#);
    match message.contains("://") {
        true => format!("{line}a URL does not belong there"),
        false => format!("{line}{message}"),
    }
}

/// How much the file has logged. Nothing is logged before; what is wrong with the file is told later.
pub fn filed_log_level(flags: &ServerFlags) -> Option<String> {
    Config::read(flags.config.as_deref()?).ok()?.log_level
}

fn with_config(mut flags: ServerFlags, tls: TlsFlags) -> Outcome<(ServerFlags, TlsFlags)> {
    let Some(path) = &flags.config else { return Ok((flags, tls)) };
    let Config {
        listen,
        advertise,
        data,
        roles,
        join,
        name,
        metrics,
        meta,
        engine,
        new_disks,
        new_server,
        old_disks,
        without,
        disk_rate,
        scrub_every,
        tls_ca,
        tls_cert,
        tls_key,
        no_tls,
        // Logging has begun.
        log_level: _,
    } = Config::read(path)?;
    let shown = |name: &str| format!("--config {}: {name}", path.display());
    flags.meta = or_filed(flags.meta, meta, || shown("meta"))?;
    flags.engine = or_filed(flags.engine, engine, || shown("engine"))?;
    flags.disk_rate = or_filed(flags.disk_rate, disk_rate, || shown("disk_rate"))?;
    flags.listen = flags.listen.or(listen);
    flags.advertise = flags.advertise.or(advertise);
    flags.name = flags.name.or(name);
    flags.metrics = flags.metrics.or(metrics);
    flags.scrub_every = flags.scrub_every.or(scrub_every);
    flags.new_disks |= new_disks;
    flags.new_server |= new_server;
    flags.old_disks |= old_disks;
    for (given, filed) in [(&mut flags.roles, roles), (&mut flags.join, join)] {
        if given.is_empty() {
            *given = filed;
        }
    }
    for (given, filed) in [(&mut flags.data, data), (&mut flags.without, without)] {
        if given.is_empty() {
            *given = filed;
        }
    }
    Ok((flags, tls.or(TlsFlags { tls_ca, tls_cert, tls_key, no_tls })))
}

/// What a flag gives, or else what the text in the file means.
fn or_filed<T: FromStr<Err: Display>>(
    given: Option<T>,
    filed: Option<String>,
    shown: impl Fn() -> String,
) -> Outcome<Option<T>> {
    match (given, filed) {
        (None, Some(text)) => {
            text.parse().map(Some).map_err(|e| Failure::usage(format!("{}: {e}", shown())))
        }
        (given, _) => Ok(given),
    }
}

/// Refuses the flags of a server that runs, beside a verb about servers there are.
pub fn check_alone(flags: &ServerFlags) -> Outcome {
    let (listen, join) = (flags.listen.is_some(), !flags.join.is_empty());
    match listen || join || !flags.data.is_empty() || !flags.roles.is_empty() {
        true => {
            Err(Failure::usage("--listen, --data, --roles and --join are for running a server")
                .next("leave them out, or leave out list, drain and remove"))
        }
        false => Ok(()),
    }
}

fn parse_roles(names: &[String]) -> Outcome<Roles> {
    let mut roles = Roles::default();
    for name in names {
        match name.trim() {
            "manager" => roles.manager = true,
            "meta" => roles.meta = true,
            "storage" => roles.storage = true,
            other => {
                return Err(Failure::usage(format!("no role is called {other:?}"))
                    .next("roles are manager, meta and storage: --roles manager,meta,storage"));
            }
        }
    }
    Ok(roles)
}

fn check(flags: &ServerFlags, roles: Roles) -> Outcome {
    let missing =
        |what: &str, next: &str| Err(Failure::usage(format!("{what} is missing")).next(next));
    if flags.listen.is_none() {
        return missing("--listen", "give the address others reach: --listen 10.0.0.1");
    }
    if flags.data.is_empty() {
        return missing("--data", "give a directory for what the server keeps: --data /srv/strake");
    }
    if roles == Roles::default() {
        return missing("--roles", "say what the server does: --roles manager,meta,storage");
    }
    if flags.scrub_every.is_some_and(|days| !(0.0..=3650.0).contains(&days)) {
        return Err(Failure::usage("--scrub-every takes days, from 0 (never) to 3650"));
    }
    if !roles.manager && flags.join.is_empty() {
        return missing(
            "--join",
            "name the cluster's manager: --join ADDR; or add manager to --roles",
        );
    }
    Ok(())
}

/// What a server is called. One that is there already keeps a name that it would not get today.
fn name_of(given: Option<String>, is_there: bool) -> Outcome<String> {
    let Some(name) = given else { return Ok(default_name()) };
    match check_name(&name) {
        Err(failure) if is_there => tracing::warn!("{failure}"),
        checked => checked?,
    }
    Ok(name)
}

/// What a server is called without a name of its own: as its host.
pub fn default_name() -> String {
    fitted(&host_name())
}

/// The name of a host as that of a server: a host may be called otherwise.
fn fitted(host: &str) -> String {
    let mut name: String = host.chars().map(|c| if is_good(c) { c } else { '-' }).collect();
    if check_name(&name).is_err() {
        name.insert_str(0, "host-");
        name.truncate(NAME_BYTES_MAX);
    }
    name
}

/// True for what may stand in the name of a server.
fn is_good(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Refuses a name that would break a table or a command: what is all digits is the number of another server to each verb.
fn check_name(name: &str) -> Outcome {
    let is_number = name.chars().all(|c| c.is_ascii_digit());
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_good);
    if fits && !is_number && !name.starts_with(['.', '-']) {
        return Ok(());
    }
    Err(Failure::usage(format!("--name {name:?} is no name for a server")).next(format!(
        "give 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`, not digits alone, and not `.` or `-` first"
    )))
}

#[cfg(test)]
mod tests;
