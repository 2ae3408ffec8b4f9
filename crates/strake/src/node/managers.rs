//! The managers of the cluster, as a server that starts finds them: its own, and others.

use super::databases::is_database_engine;
use super::identity::Node;
use super::{JOIN_WAIT_MS, NodeOptions, meta_store};
use crate::cluster::no_manager;
use crate::failure::{Failure, Outcome};
use async_trait::async_trait;
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_base::clock::WakingClock;
use strake_engine::kv::Store;
use strake_manager::{Candidate, Candidature, ManagerOptions, Ways};
use strake_types::{Error, ErrorKind, Result, ServerId};
use strake_wire::caller::{CallerKind, CallerOptions, Callers};
use strake_wire::lease::Lease;
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::service::Services;

/// How long a manager that need not ask waits for others to say where the metadata is.
const HEAR_MS_MAX: u64 = 3_000;

/// How a server calls others.
pub fn callers(options: &NodeOptions) -> Arc<Callers> {
    let (name, tls) = (options.name.clone(), options.tls.clone());
    let kind = CallerKind::Server;
    Callers::new(CallerOptions { name, kind, tls, ..CallerOptions::default() })
}

/// The cluster that others say it is, in whose database the metadata of this server is; `None` for a manager that need not
/// ask.
pub async fn others(
    callers: &Arc<Callers>,
    options: &NodeOptions,
    cluster: &str,
    identity: &mut Node,
) -> Outcome<Option<Arc<MapView>>> {
    let need_not = options.roles.manager && asks_nobody(options, identity);
    if need_not && !follows(options, identity) {
        check_same_store(callers, options, cluster, identity).await?;
        return Ok(None);
    }
    // Of another engine it is another store, about which somebody has to tell.
    let may_go_on = need_not && !meta_store::is_of_other_engine(identity, &options.meta_store);
    let asked = match may_go_on {
        true => soon(callers, options, cluster, HEAR_MS_MAX).await,
        false => first(callers, options, cluster, JOIN_WAIT_MS).await,
    };
    let view = match asked {
        Ok(view) => view,
        // The database may only have got another name, and the others wait for this very manager.
        Err(failure) if may_go_on => {
            tracing::warn!("{}; going on with the store that this server had", failure.cause);
            meta_store::look(&options.home, identity, &options.meta_store)?;
            return Ok(None);
        }
        Err(failure) if need_not => return Err(nobody_knows(&failure)),
        Err(failure) => return Err(failure),
    };
    if options.roles.meta || options.roles.manager {
        meta_store::share(options, identity, &view.current())?;
    }
    Ok(Some(view))
}

/// Nobody says which store it is that this server is told of: going back to the one before would be wrong.
fn nobody_knows(failure: &Failure) -> Failure {
    Failure::new(format!(
        "no manager answers that knows where the metadata was moved: {}",
        failure.cause
    ))
    .next("start the server that imported it, and name it in --join")
}

/// Refuses to lead by the store that this server had where another one leads by another: the metadata was moved, and there
/// would be two clusters. Where nobody answers, nobody leads.
async fn check_same_store(
    callers: &Arc<Callers>,
    options: &NodeOptions,
    cluster: &str,
    identity: &Node,
) -> Outcome {
    if options.join.is_empty() || shared_store(identity).is_empty() {
        return Ok(());
    }
    match soon(callers, options, cluster, 0).await {
        Ok(view) => meta_store::check_same(identity, &view.current()),
        Err(failure) => {
            tracing::debug!("nobody says which store this cluster is in: {failure}");
            Ok(())
        }
    }
}

/// What others have said, or what the manager of this server says.
pub async fn map(
    callers: &Arc<Callers>,
    others: Option<Arc<MapView>>,
    own: &Option<Arc<Candidate>>,
) -> Outcome<Arc<MapView>> {
    match (others, own) {
        (Some(map), _) => Ok(map),
        (None, Some(manager)) => {
            let source = ManagerSource::Local(manager.clone());
            let map = MapView::connect(callers.clone(), source, JOIN_WAIT_MS).await;
            map.map_err(|error| rather(error.into(), own))
        }
        (None, None) => Err(Failure::usage("no manager: give --join ADDR")),
    }
}

/// What to say where nobody was found who leads: rather that another process with the number of this server does, if so. Here each
/// address of that one stands for the own manager, which does not.
pub fn rather(failure: Failure, own: &Option<Arc<Candidate>>) -> Failure {
    let why = own.as_ref().and_then(|manager| manager.alive_elsewhere());
    why.map_or(failure, |why| Failure::telling(&why))
}

/// True for a manager that asks nobody who else is in the cluster: it begins one, or its store says so.
pub fn asks_nobody(options: &NodeOptions, identity: &Node) -> bool {
    options.join.is_empty() || identity.has_joined() && !identity.engine.is_empty()
}

/// True for a server that is told of another database than the one that its metadata was in: another server may have moved
/// it, and then the others know which store it is.
pub fn follows(options: &NodeOptions, identity: &Node) -> bool {
    !options.join.is_empty() && meta_store::is_elsewhere(identity, &options.meta_store)
}

/// Id of the store that it shares with other servers; empty: it has none.
pub fn shared_store(identity: &Node) -> String {
    if is_database_engine(&identity.engine) { identity.store.clone() } else { String::new() }
}

/// The server has joined: its own manager knows that from now on, and is called directly.
pub async fn has_joined(
    callers: &Callers,
    identity: &Node,
    manager: &Option<Arc<Candidate>>,
) -> Outcome {
    if let Some(manager) = manager {
        manager.has_joined(identity.server).await?;
    }
    register(callers, identity, manager);
    Ok(())
}

/// From now on its own manager is called directly.
pub fn register(callers: &Callers, identity: &Node, manager: &Option<Arc<Candidate>>) {
    if let (Some(manager), true) = (manager, identity.server != 0) {
        let services = Services { manager: Some(manager.clone()), ..Services::default() };
        callers.register_local(ServerId(identity.server), services);
    }
}

/// The manager looks by the addresses at which all others call. It is in the address book itself, and must not keep that.
struct ByAddress(Weak<Callers>);

#[async_trait]
impl Ways for ByAddress {
    async fn reach(&self, _server: u32, address: &str) -> Result<()> {
        let stopped = || Error::with(ErrorKind::Unavailable, "this server is being stopped");
        self.0.upgrade().ok_or_else(stopped)?.reach(address).await
    }
}

/// The manager of this server, if it has the role.
pub async fn start(
    callers: &Arc<Callers>,
    options: &NodeOptions,
    store: Option<&Arc<dyn Store>>,
    identity: &Node,
) -> Outcome<Option<Arc<Candidate>>> {
    let Some(store) = store.filter(|_| options.roles.manager) else {
        return Ok(None);
    };
    let who = Candidature {
        server: identity.server,
        address: options.advertise.clone(),
        founds: asks_nobody(options, identity),
        store: shared_store(identity),
    };
    let lease = Arc::new(Lease::new(Arc::new(WakingClock)));
    let ways: Arc<dyn Ways> = Arc::new(ByAddress(Arc::downgrade(callers)));
    let how = ManagerOptions { ways: Some(ways), ..ManagerOptions::default() };
    let started = Candidate::start(store.clone(), who, lease, how).await;
    let manager = started.map_err(|error| match error.kind {
        // As a store that was moved elsewhere does.
        ErrorKind::WrongPeer | ErrorKind::NoManager => Failure::telling(&error),
        _ => error.into(),
    })?;
    let cluster = manager.cluster();
    if identity.has_joined() && identity.cluster != cluster {
        return Err(Failure::new(format!(
            "{} belongs to cluster {}, but its metadata store to cluster {cluster}",
            options.home.display(),
            identity.cluster
        ))
        .next("restore both from the same backup"));
    }
    Ok(Some(manager))
}

/// The cluster of the first manager that answers.
async fn first(
    callers: &Arc<Callers>,
    options: &NodeOptions,
    cluster: &str,
    wait_ms: u64,
) -> Outcome<Arc<MapView>> {
    if !cluster.is_empty() {
        callers.set_cluster(cluster);
    }
    let source = ManagerSource::Addresses(options.join.clone());
    MapView::connect(callers.clone(), source, wait_ms).await.map_err(|e| {
        let next = "start the server with the manager role first, or correct --join";
        no_manager(&options.join, &e, next)
    })
}

/// As [`first`], for who can do without: an address from which nothing comes back takes longer than that.
async fn soon(
    callers: &Arc<Callers>,
    options: &NodeOptions,
    cluster: &str,
    wait_ms: u64,
) -> Outcome<Arc<MapView>> {
    let asked = first(callers, options, cluster, wait_ms);
    match tokio::time::timeout(Duration::from_millis(HEAR_MS_MAX), asked).await {
        Ok(answer) => answer,
        Err(_) => {
            Err(Failure::new(format!("no manager answers soon at {}", options.join.join(", "))))
        }
    }
}
