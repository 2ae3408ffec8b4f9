//! How a command finds the cluster, and opens a volume of it.

use crate::address;
use crate::failure::{Failure, Outcome};
use crate::runfile::RunFile;
use clap::Args;
use std::path::Path;
use std::sync::Arc;
use strake_client::{Volume, VolumeOptions};
use strake_types::Result;
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::manager::{ClusterMap, GetMap, ManagerAnswer, ManagerOp, ManagerRequest};
use strake_wire::service::ManagerService;

/// Where `strake up` keeps its data unless told otherwise.
pub const DATA_DEFAULT: &str = "./strake-data";
/// How long a command waits for the manager.
const CONNECT_MS_MAX: u64 = 5_000;

/// The flag that says which cluster is meant.
#[derive(Args, Clone, Debug)]
pub struct ClusterFlags {
    /// Managers of the cluster, with commas: HOST[:PORT] or unix:/PATH [default: the `strake up` that runs on ./strake-data]
    #[arg(
        long,
        global = true,
        value_name = "ADDR,...",
        env = "STRAKE_CLUSTER",
        help_heading = "General"
    )]
    pub cluster: Option<String>,
}

impl ClusterFlags {
    /// The addresses of the managers.
    pub fn addresses(&self) -> Outcome<Vec<String>> {
        if let Some(list) = &self.cluster {
            let addresses = address::complete_list(list);
            return match addresses.is_empty() {
                true => Err(Failure::usage(format!("--cluster {list:?} has no address in it"))),
                false => Ok(addresses),
            };
        }
        match RunFile::read(Path::new(DATA_DEFAULT)) {
            Some(run) if run.is_alive() => Ok(run.addresses),
            Some(_) => Err(Failure::new(format!("the `strake up` on {DATA_DEFAULT} has ended"))
                .next("strake up --detach, or name a cluster with --cluster ADDR")),
            None => Err(Failure::new("which cluster? No `strake up` runs on ./strake-data")
                .next("give --cluster ADDR (or set STRAKE_CLUSTER), or run strake up --detach")),
        }
    }

    /// Connects to the cluster.
    pub async fn connect(&self) -> Outcome<Arc<MapView>> {
        connect(&self.addresses()?, CONNECT_MS_MAX).await
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

/// Connects to the cluster of which these are managers.
pub async fn connect(addresses: &[String], wait_ms: u64) -> Outcome<Arc<MapView>> {
    let options = CallerOptions { name: caller_name("strake"), ..CallerOptions::default() };
    let source = ManagerSource::Addresses(addresses.to_vec());
    MapView::connect(Callers::new(options), source, wait_ms).await.map_err(|e| {
        Failure::new(format!("no manager answers at {}: {e}", addresses.join(", ")))
            .next("check the address and that the server runs there; strake doctor --cluster ADDR looks closer")
    })
}

/// Calls the manager.
pub async fn ask(map: &MapView, op: ManagerOp) -> Result<ManagerAnswer> {
    let reply = map.manager()?.call(ManagerRequest { op: Some(op) }).await?;
    reply.answer.ok_or_else(|| strake_types::ErrorKind::Malformed.into())
}

/// The map with the newest word on who is heard from and how full targets are.
pub async fn fresh_map(manager: &dyn ManagerService) -> Result<ClusterMap> {
    let op = Some(ManagerOp::GetMap(GetMap { known_epoch: 0 }));
    match manager.call(ManagerRequest { op }).await?.answer {
        Some(ManagerAnswer::Map(answer)) => {
            answer.map.ok_or_else(|| strake_types::ErrorKind::Malformed.into())
        }
        _ => Err(strake_types::ErrorKind::Malformed.into()),
    }
}

/// Opens a volume for one command.
pub async fn open_volume(map: Arc<MapView>, name: &str, verb: &str) -> Outcome<Arc<Volume>> {
    let options = VolumeOptions { client_name: caller_name(verb), ..VolumeOptions::default() };
    Ok(Volume::connect(map, name, options).await?)
}
