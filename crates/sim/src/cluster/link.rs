//! The network: a call from one machine to another, as the connections of `wire` carry it.
//!
//! A message is encoded and decoded, so what cannot be is found. It takes its time, so messages
//! overtake each other; where the way is cut it waits for it to be mended, as TCP would send it
//! again, or the connection breaks. A call that its caller has given up is carried out all the same
//! if it was on its way, perhaps much later; that is what a client which sends again has to live with.
//! With the life of a server its connections end.

use super::world::{Again, Fate, Power, Serving, World};
use async_trait::async_trait;
use bytes::Bytes;
use prost::Message;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use strake_manager::Ways;
use strake_types::{Error, ErrorKind, Result};
use strake_wire::caller::{meta_timeout_factor, timeout_factor};
use strake_wire::message::{manager, meta, storage};
use strake_wire::service::{ManagerService, MetaService, Services, StorageService};
use tokio::sync::oneshot;

/// Longest time until an answer, as for a caller of `wire`. Nothing waits here for what was sent before, so that it is never longer.
const CALL_LIMIT: Duration = Duration::from_secs(20);
/// Longest time until a connection stands.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long a connection waits for a way that is cut.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// Between two looks at a way that is cut.
const LOOK: Duration = Duration::from_millis(20);

/// The ways from one machine to all managers.
struct Managers(Vec<Link>);

#[async_trait]
impl ManagerService for Managers {
    async fn call(&self, request: manager::ManagerRequest) -> Result<manager::ManagerReply> {
        let mut last = Error::with(ErrorKind::Unavailable, "there is no manager");
        for link in &self.0 {
            match ManagerService::call(link, request.clone()).await {
                Err(error) if error.kind == ErrorKind::Unavailable => last = error,
                decided => return decided,
            }
        }
        Err(last)
    }
}

/// The way from one machine to another.
#[derive(Clone)]
pub struct Link {
    world: Arc<World>,
    from: u32,
    to: u32,
}

impl Link {
    /// What a machine calls another by.
    pub fn services(world: &Arc<World>, from: u32, to: u32) -> Services {
        let link = || Arc::new(Link { world: world.clone(), from, to });
        Services { manager: Some(link()), meta: Some(link()), storage: Some(link()) }
    }

    /// The managers of a cluster, which are on its first machines: one after the other until one answers.
    pub fn managers(world: &Arc<World>, from: u32, managers: u32) -> Arc<dyn ManagerService> {
        let others = (1..=managers).filter(|&to| to != from);
        Arc::new(Managers(others.map(|to| Link { world: world.clone(), from, to }).collect()))
    }

    fn gone(&self, why: &str) -> Error {
        Error::with(ErrorKind::Unavailable, format!("server {}: {why}", self.to))
    }

    /// A call: `serve` lets a server carry it out, as often as it arrives.
    async fn call<T, F>(
        &self,
        limit: Duration,
        may_come_again: Again,
        serve: impl Fn(Serving) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let serving = match self.world.at(self.to) {
            Ok(serving) => serving,
            Err(Power::On) => return Err(self.gone("connection refused")),
            Err(Power::Off) => {
                tokio::time::sleep(CONNECT_LIMIT.min(limit)).await;
                return Err(self.gone("no connection"));
            }
        };
        let (answer, answered) = oneshot::channel();
        let link = self.clone();
        let again = self.world.again(may_come_again);
        // On its way it depends on nobody.
        tokio::spawn(async move {
            let result = link.carry(&serving, again, serve).await;
            let _gone = answer.send(result);
        });
        match tokio::time::timeout(limit, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(self.gone("the connection broke")),
            Err(_) => Err(self.gone("no answer")),
        }
    }

    async fn carry<T, F>(
        &self,
        serving: &Serving,
        again: Option<Duration>,
        serve: impl Fn(Serving) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.travel(self.from, self.to, serving.life).await?;
        let done = serving.process.spawn(serve(serving.clone()));
        if let Some(after) = again {
            let (link, serving) = (self.clone(), serving.clone());
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                if link.is_alive(serving.life) {
                    // Nobody hears the answer.
                    drop(serving.process.spawn(serve(serving.clone())));
                }
            });
        }
        let result = match done.await {
            Ok(result) => result,
            Err(_) => {
                self.break_off().await;
                return Err(self.gone("the connection broke"));
            }
        };
        self.travel(self.to, self.from, serving.life).await?;
        result
    }

    fn is_alive(&self, life: u64) -> bool {
        self.world.at(self.to).is_ok_and(|serving| serving.life == life)
    }

    /// A dead process's host says so at once; a dead host says nothing.
    async fn break_off(&self) {
        if self.world.at(self.to).err() == Some(Power::Off) {
            tokio::time::sleep(UNACKNOWLEDGED).await;
        }
    }

    async fn travel(&self, from: u32, to: u32, life: u64) -> Result<()> {
        match self.world.fate() {
            Fate::Lost => {
                tokio::time::sleep(UNACKNOWLEDGED).await;
                return Err(self.gone("the connection broke"));
            }
            Fate::Arrives(after) if after.is_zero() => tokio::task::yield_now().await,
            Fate::Arrives(after) => tokio::time::sleep(after).await,
        }
        let mut waited = Duration::ZERO;
        let is_call = to == self.to;
        while self.world.is_cut(from, to) || (is_call && self.world.is_shut(from, to)) {
            if waited >= UNACKNOWLEDGED {
                return Err(self.gone("the connection broke"));
            }
            tokio::time::sleep(LOOK).await;
            waited += LOOK;
        }
        if self.is_alive(life) {
            return Ok(());
        }
        self.break_off().await;
        Err(self.gone("the connection broke"))
    }
}

/// How the manager on a machine looks whether others are reached: by a call that none of their targets is asked for.
pub struct WaysFrom {
    world: Arc<World>,
    from: u32,
}

impl WaysFrom {
    /// From this machine.
    pub fn new(world: &Arc<World>, from: u32) -> Self {
        Self { world: world.clone(), from }
    }
}

#[async_trait]
impl Ways for WaysFrom {
    async fn reach(&self, server: u32, _address: &str) -> Result<()> {
        if server == self.from {
            return Ok(());
        }
        let link = Link { world: self.world.clone(), from: self.from, to: server };
        let op = Some(storage::StorageOp::Stat(storage::TargetStatRequest {}));
        let request = storage::StorageRequest { op, ..storage::StorageRequest::default() };
        match StorageService::call(&link, request, Bytes::new()).await {
            Err(error) if error.kind == ErrorKind::Unavailable => Err(error),
            _ => Ok(()),
        }
    }
}

/// What an error is after it has travelled.
fn sent<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| {
        Error::with(ErrorKind::from_code(error.kind as u32), error.detail.into_owned())
    })
}

/// A message after it has travelled.
fn received<M: Message + Default>(encoded: &[u8]) -> Result<M> {
    M::decode(encoded).map_err(|e| Error::with(ErrorKind::Malformed, e.to_string()))
}

/// True if a server has no number yet, or one of its targets.
fn is_first(join: &manager::Join) -> bool {
    join.server == 0 || join.targets.iter().any(|spec| spec.target == 0)
}

/// A server that has opened its door to a manager's callers first.
fn no_service() -> Error {
    Error::with(ErrorKind::Unavailable, "the server is still starting")
}

#[async_trait]
impl ManagerService for Link {
    async fn call(&self, request: manager::ManagerRequest) -> Result<manager::ManagerReply> {
        use manager::ManagerOp as Op;
        let again = match &request.op {
            Some(
                Op::Heartbeat(_) | Op::GetMap(_) | Op::Resynced(_) | Op::Stalled(_) | Op::Used(_),
            ) => Again::Soon,
            // The first one of a server or target that has been removed since would bring it back.
            Some(Op::Join(join)) if is_first(join) => Again::Soon,
            Some(Op::Join(_)) => Again::Late,
            _ => Again::Never,
        };
        let is_map = matches!(request.op, Some(Op::GetMap(_)));
        let encoded = request.encode_to_vec();
        let is_join = matches!(request.op, Some(Op::Join(_)));
        let (world, from, arrivals) = (self.world.clone(), self.from, AtomicU32::new(0));
        let serve = move |serving: Serving| {
            let encoded = encoded.clone();
            let is_copy = is_join && arrivals.fetch_add(1, Ordering::Relaxed) > 0;
            let world = is_copy.then(|| world.clone());
            async move {
                let request = received(&encoded)?;
                let service = serving.services.manager.ok_or_else(no_service)?;
                let reply = service.call(request).await;
                if let Some(world) = world {
                    let said = reply.as_ref().map(drop).map_err(|error| error.kind);
                    world.note(format_args!("a Join of server {from} came again: {said:?}"));
                }
                sent(reply.map(|reply| reply.encode_to_vec()))
            }
        };
        let reply = self.call(CALL_LIMIT, again, serve).await?;
        if is_map && let Some(lateness) = self.world.lateness_of_map() {
            tokio::time::sleep(lateness).await;
        }
        received(&reply)
    }
}

#[async_trait]
impl MetaService for Link {
    async fn call(&self, request: meta::MetaRequest) -> Result<meta::MetaReply> {
        // What has a number is carried out once however often it arrives.
        let again = if request.seq != 0 { Again::Soon } else { Again::Never };
        let limit = CALL_LIMIT * meta_timeout_factor(&request);
        let encoded = request.encode_to_vec();
        let serve = move |serving: Serving| {
            let encoded = encoded.clone();
            async move {
                let request = received(&encoded)?;
                let service = serving.services.meta.ok_or_else(no_service)?;
                sent(service.call(request).await.map(|reply| reply.encode_to_vec()))
            }
        };
        received(&self.call(limit, again, serve).await?)
    }
}

#[async_trait]
impl StorageService for Link {
    async fn call(
        &self,
        request: storage::StorageRequest,
        payload: Bytes,
    ) -> Result<(storage::StorageReply, Bytes)> {
        let limit = CALL_LIMIT * timeout_factor(&request);
        let numbered = request.forward.as_ref().is_some_and(|forward| forward.number != 0);
        let again = request.attempt.is_some() || numbered;
        let again = if again { Again::Soon } else { Again::Never };
        let encoded = request.encode_to_vec();
        let (from, to) = (self.from, self.to);
        let serve = move |serving: Serving| {
            let (encoded, payload) = (encoded.clone(), payload.clone());
            async move {
                let request: storage::StorageRequest = received(&encoded)?;
                let service = serving.services.storage.ok_or_else(no_service)?;
                let shown = tracing::enabled!(target: "link", tracing::Level::DEBUG)
                    .then(|| format!("{request:?}"));
                shown.iter().for_each(|s| tracing::debug!(target: "link", "{from} to {to}: {s}"));
                let answer = service.call(request, payload).await;
                let outcome = answer.as_ref().map(|(reply, _)| reply);
                shown.iter().for_each(|s| {
                    tracing::debug!(target: "link", "{from} to {to}: {s} answered {outcome:?}");
                });
                sent(answer.map(|(reply, payload)| (reply.encode_to_vec(), payload)))
            }
        };
        let (reply, payload) = self.call(limit, again, serve).await?;
        Ok((received(&reply)?, payload))
    }
}
