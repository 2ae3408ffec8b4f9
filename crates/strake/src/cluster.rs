//! How a command finds the cluster, and opens a volume of it.

use crate::address;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::refusals;
use crate::release::RELEASE;
use crate::runfile::RunFile;
use crate::tls_flags::{self, TlsFlags};
use clap::Args;
use futures::future::join_all;
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strake_client::{Volume, VolumeOptions};
use strake_native::clients::own_credentials;
use strake_types::{Credentials, Error, ErrorKind, Ino, Result};
use strake_wire::caller::{CallerKind, CallerOptions, Callers};
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::manager::{self, ClusterMap, GetMap, ManagerAnswer, ManagerOp};
use strake_wire::tls::Tls;
use strake_wire::transport::{UNIX_PREFIX, is_unix};
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout_at};

/// Where `strake up` keeps its data unless told otherwise.
pub const DATA_DEFAULT: &str = "./strake-data";
/// How long a command waits for the manager.
pub const CONNECT_MS_MAX: u64 = 5_000;

/// How long it is waited for what the names of managers stand for, where somebody is only to be told.
const NAMES_WAIT: Duration = Duration::from_secs(2);

/// The variable that names the managers where no flag does.
const VARIABLE: &str = "STRAKE_CLUSTER";

/// The managers that this command has asked.
static ASKED: OnceLock<Vec<String>> = OnceLock::new();

/// The flags that say which cluster is meant.
#[derive(Args, Clone, Debug)]
pub struct ClusterFlags {
    /// Managers of the cluster, with commas: HOST[:PORT] or unix:/PATH [default: the `strake up` that runs on ./strake-data]
    #[arg(
        long,
        global = true,
        value_name = "ADDR,...",
        env = VARIABLE,
        help_heading = "General"
    )]
    pub cluster: Option<String>,

    /// Who we are to it.
    #[command(flatten)]
    pub tls: TlsFlags,
}

/// Managers to call, and how.
pub struct Managers {
    /// Where they are.
    pub addresses: Vec<String>,
    /// Who we are to them; `None`: nothing is encrypted.
    pub tls: Option<Arc<Tls>>,
}

impl ClusterFlags {
    /// Where the managers are: those that are named, or else those of the flags.
    pub fn addresses(&self, named: &[String]) -> Outcome<Vec<String>> {
        let given = match (named, &self.cluster) {
            ([_, ..], _) => Some(named.to_vec()),
            ([], Some(list)) => Some(address::complete_list(list)),
            ([], None) => None,
        };
        let addresses = match given {
            Some(addresses) if addresses.is_empty() => {
                let list = self.cluster.as_deref().unwrap_or_default();
                let cause = format!("--cluster {list:?} has no address in it");
                return Err(Failure::usage(cause));
            }
            Some(addresses) => addresses,
            None => running()?,
        };
        addresses.iter().try_for_each(|address| address::check_port(address))?;
        Ok(addresses)
    }

    /// The same, with who we are to them.
    pub fn managers(&self, named: &[String]) -> Outcome<Managers> {
        let addresses = self.addresses(named)?;
        // The first one of several.
        let _known = ASKED.set(addresses.clone());
        let tls = match !self.tls.are_given() && is_plain(&addresses) {
            true => None,
            false => self.tls.load_to_call(&addresses)?,
        };
        Ok(Managers { addresses, tls })
    }

    /// Connects to the cluster.
    pub async fn connect(&self) -> Outcome<Arc<MapView>> {
        self.managers(&[])?.connect_as(CallerKind::Command, CONNECT_MS_MAX).await
    }

    /// Connects to the cluster for its [`fresh_map`] only.
    pub async fn map(&self) -> Outcome<ClusterMap> {
        Ok(fresh_map(&*self.connect().await?).await?)
    }
}

/// The addresses of the `strake up` in this directory.
fn running() -> Outcome<Vec<String>> {
    match RunFile::read(Path::new(DATA_DEFAULT))? {
        Some(run) if run.is_alive() => Ok(run.addresses),
        Some(_) => Err(Failure::new(format!("the `strake up` on {DATA_DEFAULT} has ended"))
            .next("strake up --detach, or name a cluster with --cluster ADDR")),
        None => Err(Failure::new("which cluster? No `strake up` runs on ./strake-data")
            .next("give --cluster ADDR (or set STRAKE_CLUSTER), or run strake up --detach")),
    }
}

/// How commands that were shown ask the cluster that this one has asked; none if they do by themselves.
pub fn way() -> Option<String> {
    let usual = match std::env::var(VARIABLE) {
        Ok(list) => address::complete_list(&list),
        Err(_) => running().unwrap_or_default(),
    };
    way_to(ASKED.get()?, &usual)
}

fn way_to(asked: &[String], usual: &[String]) -> Option<String> {
    let is_usual = asked.iter().any(|address| usual.contains(address));
    (!is_usual)
        .then(|| format!("for all commands: export {VARIABLE}={}", output::word(&asked.join(","))))
}

/// True if one of these is the socket of a `strake up` that speaks without encryption by TCP, too: certificates that this host
/// has for another cluster are of no use there.
fn is_plain(addresses: &[String]) -> bool {
    runs_at(addresses).any(|run| run.encrypted == Some(false))
}

/// True if all of these lead to a `strake up` whose socket we may use: by sockets, or by what it says of itself beside one.
fn are_ours(addresses: &[String]) -> bool {
    let may_use = |address: &&String| access_to_socket(address) == Some(Ok(()));
    let sockets: Vec<String> = addresses.iter().filter(may_use).cloned().collect();
    let others: Vec<String> = runs_at(&sockets).flat_map(|run| run.addresses).collect();
    let is_ours = |address: &String| sockets.contains(address) || others.contains(address);
    !sockets.is_empty() && addresses.iter().all(is_ours)
}

/// Every `strake up` that runs where one of these sockets lies.
fn runs_at(addresses: &[String]) -> impl Iterator<Item = RunFile> {
    let sockets = addresses.iter().filter_map(|address| address.strip_prefix(UNIX_PREFIX));
    let directories = sockets.filter_map(|socket| Path::new(socket).parent());
    directories.filter_map(|data| RunFile::alive(data).ok().flatten())
}

impl Managers {
    /// Connects to their cluster, for who uses a volume.
    pub async fn connect(&self, wait_ms: u64) -> Outcome<Arc<MapView>> {
        self.connect_as(CallerKind::Client, wait_ms).await
    }

    async fn connect_as(&self, kind: CallerKind, wait_ms: u64) -> Outcome<Arc<MapView>> {
        let view = self
            .view_as(kind, wait_ms)
            .await
            .map_err(|e| no_manager(&self.addresses, &e, advice(&self.addresses)))?;
        self.used_tls(&view.current()).iter().for_each(|tls| tls_flags::warn_if_soon(tls));
        Ok(view)
    }

    /// The same, for who looks at what went wrong.
    pub async fn view(&self, wait_ms: u64) -> Result<Arc<MapView>> {
        self.view_as(CallerKind::Command, wait_ms).await
    }

    async fn view_as(&self, kind: CallerKind, wait_ms: u64) -> Result<Arc<MapView>> {
        let (name, tls) = (caller_name("strake"), self.tls.clone());
        let callers = Callers::new(CallerOptions { name, kind, tls, ..CallerOptions::default() });
        let source = ManagerSource::Addresses(self.addresses.clone());
        MapView::connect(callers, source, wait_ms).await
    }

    /// In whose name a command asks about files. The socket of a `strake up` is its owner's alone: he may do there what root may.
    pub fn user(&self) -> Credentials {
        match are_ours(&self.addresses) {
            true => Credentials::root(),
            false => own_credentials(),
        }
    }

    /// The certificates, if somebody is called by TCP.
    pub fn used_tls(&self, map: &ClusterMap) -> Option<&Arc<Tls>> {
        let servers = map.servers.iter().map(|server| &server.address);
        let mut called = self.addresses.iter().chain(servers);
        self.tls.as_ref().filter(|_| called.any(|address| !is_unix(address)))
    }
}

/// Warns of managers whose names stand for no host. Another one is enough, until that one is away.
pub async fn warn_of_unknown(addresses: Vec<String>) {
    unknown(&addresses).await.iter().for_each(|told| tracing::warn!("{told}"));
}

/// Those managers and why, as far as that is known soon.
async fn unknown(addresses: &[String]) -> Vec<String> {
    let end = Instant::now() + NAMES_WAIT;
    let told = async |address: &String| match timeout_at(end, lookup_host(address.as_str())).await {
        Ok(Err(error)) => Some(format!("manager {address} is passed over: {error}")),
        Ok(Ok(_)) | Err(_) => None,
    };
    let by_tcp = addresses.iter().filter(|address| !is_unix(address));
    join_all(by_tcp.map(told)).await.into_iter().flatten().collect()
}

/// Whether we may use a Unix socket; `None` of another address.
fn access_to_socket(address: &str) -> Option<std::result::Result<(), Errno>> {
    use rustix::fs::{Access, access};
    address.strip_prefix(UNIX_PREFIX).map(|socket| access(socket, Access::WRITE_OK))
}

/// What to try where no manager answers.
fn advice(addresses: &[String]) -> &'static str {
    let is_barred = |address: &String| access_to_socket(address) == Some(Err(Errno::ACCESS));
    match addresses.iter().any(is_barred) {
        true => "the socket is another user's: give the command as that user, or as root",
        false => {
            "check the address and that the server runs there; strake doctor --cluster ADDR looks closer"
        }
    }
}

/// True if managers answer that they, or the only one of them, do not reach the database.
fn names_database(error: &Error) -> bool {
    // As all errors of a store begin.
    error.detail.contains("metadata store ")
}

/// Why no manager could be used; `next` is for those that did not answer at all.
pub fn no_manager(addresses: &[String], error: &Error, next: &str) -> Failure {
    match error.kind {
        ErrorKind::WrongPeer | ErrorKind::NoManager => Failure::telling(error),
        ErrorKind::Poisoned if refusals::has_stopped(&error.detail) => Failure::telling(error)
            .about("the manager can store nothing, nor take out a server that has died"),
        ErrorKind::Unavailable if names_database(error) => {
            let told = Failure::new(&*error.detail);
            let said = |what: &str| error.detail.contains(what);
            // One that refuses us does so until somebody does what is said there.
            match said(" cannot be reached: ") || said(" was taken over by ") {
                true => {
                    told.next("look at the database and its log; the servers go on by themselves")
                }
                false => told,
            }
        }
        _ => {
            let shown = addresses.join(", ");
            let is_silence = matches!(error.kind, ErrorKind::Unavailable | ErrorKind::TimedOut);
            let said = match is_silence && !error.detail.is_empty() {
                true => error.detail.to_string(),
                false => error.to_string(),
            };
            let why = said.strip_prefix(&format!("{shown}: ")).unwrap_or(&said);
            Failure::new(format!("no manager answers at {shown}: {why}")).next(next)
        }
    }
}

/// A name for the logs of the servers: who calls.
pub fn caller_name(verb: &str) -> String {
    format!("{verb} at {} (process {})", host_name(), std::process::id())
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Calls the manager.
pub async fn ask(map: &MapView, op: ManagerOp) -> Result<ManagerAnswer> {
    let reply = map.ask_manager(op).await?;
    reply.answer.ok_or_else(|| ErrorKind::Malformed.into())
}

/// The map with the newest word on who is heard from and how full targets are.
pub async fn fresh_map(map: &MapView) -> Result<ClusterMap> {
    match ask(map, ManagerOp::GetMap(GetMap::default())).await? {
        ManagerAnswer::Map(answer) => answer.decoded()?.ok_or_else(|| ErrorKind::Malformed.into()),
        _ => Err(ErrorKind::Malformed.into()),
    }
}

/// The volume that a command names.
pub fn volume_named(map: &MapView, name: &str) -> Outcome<manager::Volume> {
    map.volume_named(name).map_err(|e| match e.kind {
        ErrorKind::NotFound => Failure::new(format!("volume {name} does not exist")).next(format!(
            "strake volume list shows those there are; strake volume create {name} makes it"
        )),
        _ => e.into(),
    })
}

/// True if the manager hears from a server.
pub fn is_up(map: &ClusterMap, server: u32) -> bool {
    map.servers.iter().any(|one| one.id == server && one.up)
}

/// The names of all volumes that are not being deleted.
pub fn volume_names(map: &ClusterMap) -> Vec<String> {
    map.living().map(|v| v.spec.name.clone()).collect()
}

/// The same of those whose metadata server is up.
pub fn served_volume_names(map: &ClusterMap) -> Vec<String> {
    let served = map.living().filter(|volume| is_up(map, volume.meta_server));
    served.map(|volume| volume.spec.name.clone()).collect()
}

/// The volumes that a command names; all, if it names none.
pub fn named_or_all(map: &ClusterMap, named: &[String]) -> Vec<String> {
    if named.is_empty() { volume_names(map) } else { named.to_vec() }
}

/// The first path of an inode, from the root of its volume, as text; none if it has no name.
pub async fn path_of(volume: &Volume, ino: Ino) -> Result<Option<String>> {
    let paths = volume.describe(&Credentials::root(), ino).await?.paths;
    Ok(paths.first().map(|path| output::text_of(path)))
}

/// How a command opens volumes.
pub fn options_of(verb: &str) -> VolumeOptions {
    let client_name = caller_name(verb);
    VolumeOptions { client_name, release: RELEASE, ..VolumeOptions::default() }
}

/// Opens a volume for one command.
pub async fn open_volume(map: Arc<MapView>, name: &str, verb: &str) -> Outcome<Arc<Volume>> {
    Ok(Volume::connect(map, name, options_of(verb)).await?)
}

/// Closes a volume that was only looked at: nobody has to know if that fails.
pub async fn leave_volume(volume: &Arc<Volume>) {
    if let Err(error) = volume.close().await {
        tracing::debug!("volume {}: {error}", volume.name());
    }
}

#[cfg(test)]
mod tests;
