//! The managers of the cluster, as a server that starts finds them: its own, and others.

use super::identity::Node;
use super::{JOIN_WAIT_MS, NodeOptions, meta_store};
use crate::cluster::no_manager;
use crate::failure::{Failure, Outcome};
use std::sync::Arc;
use strake_base::clock::WakingClock;
use strake_engine::kv::Store;
use strake_manager::{Candidate, Candidature, ManagerOptions};
use strake_types::ServerId;
use strake_wire::caller::Callers;
use strake_wire::lease::Lease;
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::service::Services;

/// The cluster that others say it is; `None` for a manager that need not ask.
pub async fn others(
    callers: &Arc<Callers>,
    options: &NodeOptions,
    cluster: &str,
    identity: &mut Node,
) -> Outcome<Option<Arc<MapView>>> {
    match options.roles.manager && asks_nobody(options, identity) {
        true => Ok(None),
        false => first(callers, options, cluster, identity).await.map(Some),
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
            Ok(MapView::connect(callers.clone(), source, JOIN_WAIT_MS).await?)
        }
        (None, None) => Err(Failure::usage("no manager: give --join ADDR")),
    }
}

/// True for a manager that asks nobody who else is in the cluster: it begins one, or its store says so.
pub fn asks_nobody(options: &NodeOptions, identity: &Node) -> bool {
    options.join.is_empty() || identity.has_joined() && !identity.engine.is_empty()
}

/// From now on its own manager is called directly.
pub fn register(callers: &Callers, identity: &Node, manager: &Option<Arc<Candidate>>) {
    if let (Some(manager), true) = (manager, identity.server != 0) {
        let services = Services { manager: Some(manager.clone()), ..Services::default() };
        callers.register_local(ServerId(identity.server), services);
    }
}

/// The manager of this server, if it has the role.
pub async fn start(
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
    };
    let lease = Arc::new(Lease::new(Arc::new(WakingClock)));
    let manager = Candidate::start(store.clone(), who, lease, ManagerOptions::default()).await?;
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

/// The cluster of the first manager that answers, in whose database the metadata of this server is.
async fn first(
    callers: &Arc<Callers>,
    options: &NodeOptions,
    cluster: &str,
    identity: &mut Node,
) -> Outcome<Arc<MapView>> {
    if !cluster.is_empty() {
        callers.set_cluster(cluster);
    }
    let source = ManagerSource::Addresses(options.join.clone());
    let view = MapView::connect(callers.clone(), source, JOIN_WAIT_MS).await.map_err(|e| {
        let next = "start the server with the manager role first, or correct --join";
        no_manager(&options.join, &e, next)
    })?;
    if options.roles.meta || options.roles.manager {
        meta_store::share(options, identity, &view.current())?;
    }
    Ok(view)
}
