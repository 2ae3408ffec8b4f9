//! `strake server`: one server of a cluster.

use super::servers::ServersVerb;
use crate::address;
use crate::cluster::host_name;
use crate::failure::{Context, Failure, Outcome};
use crate::node::{MetaPlace, Node, NodeOptions, Roles, TARGET, Wanted, identity};
use crate::tls_flags::TlsFlags;
use crate::{output, signals, telemetry};
use clap::Args;
use serde::Deserialize;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use strake_bench::testbed::Rate;
use strake_engine::kv::EngineKind;
use strake_wire::server::Listener;
use strake_wire::tls::Tls;
use strake_wire::transport::host_of;

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

    /// Address that others use to reach this server [default: the one it listens on]
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
    /// PGPASSWORD or ETCDCTL_PASSWORD may give the password [default: where it was; embedded at first]
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
    let join: Vec<String> = flags.join.iter().map(|a| address::complete(a)).collect();
    join.iter().try_for_each(|address| address::check_port(address))?;
    let listen = flags.listen.as_deref().unwrap_or_default();
    let (listener, advertise, tls) =
        open_port(listen, flags.advertise.as_deref(), &join, &tls).await?;
    if let Some(metrics) = &flags.metrics {
        telemetry::serve(metrics).await?;
    }
    let mut stop = signals::stop_requested(|| {})?;
    let data = flags.data.iter().map(|dir| absolute(dir)).collect::<Outcome<Vec<_>>>()?;
    let home = data[0].clone();
    let begins = join.is_empty() && !home.join(identity::NAME).exists();
    let options = NodeOptions {
        home: home.clone(),
        targets: data.iter().map(|dir| dir.join(TARGET)).collect(),
        roles,
        listeners: vec![listener],
        advertise: advertise.clone(),
        tls,
        join,
        name: flags.name.unwrap_or_else(host_name),
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
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    };
    let cluster = node.map().current().cluster.clone();
    if begins {
        tracing::warn!(
            "this is a NEW cluster, {cluster}: there was no node.json in {}. Was this a server of another one? Then its disk is \
             not mounted: stop the server, mount it, start again",
            home.display()
        );
    }
    output::notice(&format!("server {} of cluster {cluster} serves at {advertise}", node.id()));
    let _asked = stop.wait_for(|stop| *stop).await;
    node.stop().await
}

/// A directory by its whole path, which says the same to others and at the next start.
fn absolute(dir: &Path) -> Outcome<PathBuf> {
    std::path::absolute(dir).context(|| format!("--data {}", dir.display()))
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
    let advertise = advertise.map(address::complete);
    advertise.iter().try_for_each(|address| address::check_port(address))?;
    let is_meant = tls.no_tls;
    let tls = tls.load_to_listen(&listen)?;
    let listener = bind(&listen).await?.secured_by(tls.clone());
    let bound = listener.address();
    if tls.is_none() && !is_meant && is_open(&bound) {
        tracing::warn!(
            "no certificates: whoever reaches {bound} may act as any user; strake tls makes some (--no-tls: it is meant)"
        );
    }
    let advertise = match advertise {
        Some(given) => given,
        None => address::advertised(&bound, join.first().map(String::as_str))?,
    };
    if let Some(tls) = &tls {
        check_certificate(tls, &advertise)?;
    }
    Ok((listener, advertise, tls))
}

/// True if other machines can call this address, which a listener has given.
fn is_open(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback())
}

async fn bind(address: &str) -> Outcome<Listener> {
    if !address.starts_with("unix:") {
        address::resolve(address)?;
    }
    Listener::bind(address).await.map_err(|e| Failure::telling(&e))
}

/// Refuses a certificate that nobody who calls this server would accept.
fn check_certificate(tls: &Tls, advertise: &str) -> Outcome {
    let host = (!advertise.starts_with("unix:")).then(|| host_of(advertise));
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
    // It may quote a value, or a name.
    let message = error.message();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::{CommandFactory, Parser};
    use std::collections::BTreeSet;

    fn config(text: &str) -> (tempfile::TempDir, ServerFlags) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        std::fs::write(&path, text).unwrap();
        (dir, ServerFlags { config: Some(path), ..ServerFlags::default() })
    }

    #[test]
    fn every_flag_may_stand_in_the_file() {
        let mut command = Cli::command();
        command.build();
        let server = command.find_subcommand("server").unwrap();
        // What is no setting of a server.
        let others = ["help", "version", "config", "cluster"];
        let ids = server.get_arguments().map(|argument| argument.get_id().as_str());
        let flags: BTreeSet<&str> = ids.filter(|id| !others.contains(id)).collect();
        let error = toml::from_str::<Config>("nonsense = 1").unwrap_err().to_string();
        let (_, list) = error.split_once("expected one of ").unwrap();
        let fields: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(fields, flags, "the fields of the file are the flags");
        let guide = include_str!("../../../../docs/guide/install.md");
        let (_, sample) = guide.split_once("# /etc/strake.toml").unwrap();
        let (sample, _) = sample.split_once("```").unwrap();
        let lines = sample.lines().skip(1).map(|line| line.trim_start_matches("# "));
        let settings: Vec<&str> = lines.filter(|line| line.contains(" = ")).collect();
        let named = settings.iter().filter_map(|line| line.split(' ').next());
        assert_eq!(named.collect::<BTreeSet<&str>>(), flags, "the guide shows all");
        toml::from_str::<Config>(&settings.join("\n")).unwrap();
    }

    #[test]
    fn what_stands_in_the_file_is_what_is_given() {
        let (_dir, flags) = config(
            "without = ['/a', '/b']\nnew_disks = true\nold_disks = true\nno_tls = true\n\
             new_server = true\nengine = 'redb'\ndisk_rate = '1MB/s'\nscrub_every = 3\nlog_level = 'debug'\n",
        );
        assert_eq!(filed_log_level(&flags).as_deref(), Some("debug"));
        let (flags, tls) = with_config(flags, TlsFlags::default()).unwrap();
        assert_eq!(flags.without, [Path::new("/a"), Path::new("/b")]);
        assert!(flags.new_disks && flags.new_server && flags.old_disks && tls.no_tls);
        assert_eq!((flags.engine, flags.scrub_every), (Some(EngineKind::Redb), Some(3.0)));
        assert_eq!(flags.disk_rate.map(Rate::bytes_per_second), Some(1_000_000));
        let (_dir, flags) = config("engine = 'rocks'\n");
        let failure = with_config(flags, TlsFlags::default()).unwrap_err();
        assert!(failure.cause.contains("engine: ") && failure.cause.contains("rocks"), "{failure}");
    }

    #[test]
    fn flags_win_over_the_file() {
        let (_dir, flags) =
            config("listen = 'a'\nname = 'x'\nroles = ['storage']\ntls_ca = 'ca'\ntls_key = 'k'\n");
        let flags = ServerFlags { listen: Some("b".into()), ..flags };
        let tls = TlsFlags { tls_ca: Some("given".into()), ..TlsFlags::default() };
        let (flags, tls) = with_config(flags, tls).unwrap();
        assert_eq!((tls.tls_ca, tls.tls_key), (Some("given".into()), Some("k".into())));
        assert_eq!((flags.listen.as_deref(), flags.name.as_deref()), (Some("b"), Some("x")));
        assert_eq!(flags.roles, ["storage"]);
    }

    #[test]
    fn an_unknown_word_in_the_file_is_shown_with_its_line() {
        let (_dir, flags) = config("listen = 'a'\nlisten_port = 3\n");
        let failure = with_config(flags, TlsFlags::default()).unwrap_err();
        assert!(
            failure.cause.contains("listen_port") && failure.cause.contains("line 2"),
            "{failure}"
        );
    }

    /// The line was shown with its password, in the journal too.
    #[test]
    fn a_password_in_a_file_that_is_wrong_is_not_repeated() {
        let url = "postgres://u:s3cret@h/d";
        let texts = [
            format!("listen = 'a'\nmeta = {url}\n"),
            format!("listen = 'a'\nmeta = \"{url}\n"),
            format!("meta = '{url}'\nmeta = '{url}'\n"),
            format!("listen = 'a'\nmetta = '{url}'\n"),
            format!("listen = 'a'\nmeta = ['{url}']\n"),
            format!("listen = 'a'\njoin = '{url}'\n"),
            format!("listen = 'a'\n'{url}' = 'meta'\n"),
        ];
        for text in texts {
            let (_dir, flags) = config(&text);
            let failure = with_config(flags, TlsFlags::default()).unwrap_err();
            let said = failure.to_string();
            assert!(said.contains("line 2: ") && !said.contains("s3cret"), "{text}{said}");
        }
        let (_dir, flags) = config("meta = 'mysql://u:s3cret@h/d'");
        let said = with_config(flags, TlsFlags::default()).unwrap_err().to_string();
        assert!(said.contains("meta") && !said.contains("s3cret"), "{said}");
    }

    #[test]
    fn a_server_is_run_or_others_are_looked_at() {
        let running = ServerFlags { data: vec!["/d".into()], ..Default::default() };
        assert!(check_alone(&running).unwrap_err().cause.contains("--data"));
        assert!(check_alone(&ServerFlags::default()).is_ok());
    }

    /// It was said twice, and a server was suspected at an address that this machine does not have.
    #[tokio::test]
    async fn where_nobody_can_listen_is_told_once_with_what_helps() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap().to_string();
        let cases = [(&taken[..], "ss -ltnp"), ("192.0.2.1:0", "ip address")];
        for (address, word) in cases {
            let failure = bind(address).await.err().unwrap();
            let shown = failure.to_string();
            assert_eq!(shown.matches("cannot listen").count(), 1, "{shown}");
            assert_eq!(shown.matches("--listen").count(), 1, "{shown}");
            assert!(failure.next.unwrap().contains(word), "{shown}");
        }
    }

    #[test]
    fn the_command_that_adds_a_server_lacks_no_flag() {
        let words = strake_manager::ADD_SERVER.split(' ');
        let Verb::Server(flags) = Cli::try_parse_from(words).unwrap().verb else { panic!() };
        check(&flags, parse_roles(&flags.roles).unwrap()).unwrap();
        assert!(!flags.join.is_empty(), "it would begin a cluster of its own");
        Cli::try_parse_from(strake_manager::ADD_DISK.split(' ')).unwrap();
    }

    #[test]
    fn only_addresses_that_other_machines_can_call_are_open() {
        assert!(["0.0.0.0:7440", "10.0.0.1:7440", "[::]:7440"].into_iter().all(is_open));
        assert!(!["127.0.0.1:7440", "[::1]:7440", "unix:/s"].into_iter().any(is_open));
    }

    #[test]
    fn what_is_missing_is_named() {
        let listen = Some("a".to_owned());
        let cases = [
            (ServerFlags::default(), "--listen"),
            (ServerFlags { listen: listen.clone(), ..Default::default() }, "--data"),
        ];
        for (flags, name) in cases {
            let failure = check(&flags, Roles::default()).unwrap_err();
            assert!(failure.cause.contains(name) && failure.next.is_some());
        }
        assert!(parse_roles(&["boss".into()]).is_err());
    }
}
