//! A client: a process with a mounted volume, in which calls are bounded and noted.

use super::host::SERVERS_MAX;
use super::link::Link;
use super::plan::{Plan, SILENCE_MAX, Trouble};
use super::world::{MachineClock, World};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use strake_base::simulation::Process;
use strake_client::{Volume, VolumeOptions};
use strake_types::{Credentials, Error, ErrorKind, Result, ServerId};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::map::{ManagerSource, MapView};

/// Numbers of clients' machines begin here.
pub const CLIENTS_FROM: u32 = 100;
/// Longest time of any call of a client: the patience of an operation, of which a long call at its end
/// may be under way, and what the operation does before and after.
pub const CALL_BOUND: Duration = Duration::from_secs(180);

/// Nobody waits for a client any more that has been dead for so long, and nothing that it had sent arrives: its lease, and a minute.
pub const DEAD_OVER: Duration = Duration::from_secs(90);

/// A mounted volume.
pub struct Mount {
    /// Its machine.
    pub number: u32,
    /// Its process.
    pub process: Arc<Process>,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Longest time of any call, also one that stands still meanwhile.
    bound: Duration,
    world: Arc<World>,
}

impl Mount {
    /// Mounts the volume on a machine.
    pub async fn start(world: &Arc<World>, plan: &Plan, number: u32) -> Result<Arc<Mount>> {
        let mount = VolumeOptions { leases: true, behind: true, ..VolumeOptions::default() };
        Self::connect(world, plan, number, mount).await
    }

    /// Uses the volume without a mount: nothing is leased, and each question is asked (S-011).
    pub async fn native(world: &Arc<World>, plan: &Plan, number: u32) -> Result<Arc<Mount>> {
        let native = VolumeOptions { attribute_age_ms: 0, ..VolumeOptions::default() };
        Self::connect(world, plan, number, native).await
    }

    async fn connect(
        world: &Arc<World>,
        plan: &Plan,
        number: u32,
        options: VolumeOptions,
    ) -> Result<Arc<Mount>> {
        let process = Process::new(|| Duration::ZERO);
        let mut random = world.stream(0x4000 + u64::from(number));
        let clock = Arc::new(MachineClock::new(plan.drift_of(&mut random)));
        let (own, shared, managers) = (process.clone(), world.clone(), plan.managers);
        let (name, memory_bytes) = (plan.volume.name.clone(), plan.memory_bytes);
        let stands_still = plan.troubles.contains(&Trouble::Silence);
        let bound = CALL_BOUND + if stands_still { SILENCE_MAX } else { Duration::ZERO };
        let connected = process.spawn(async move {
            let callers =
                Callers::new(CallerOptions { name: name_of(number), ..CallerOptions::default() });
            for server in 1..=SERVERS_MAX {
                let link = Link::services(&shared, number, server);
                callers.register_local(ServerId(server), link);
            }
            let source = ManagerSource::Local(Link::managers(&shared, number, managers));
            let map = MapView::connect(callers, source, 30_000).await?;
            let options =
                VolumeOptions { client_name: name_of(number), memory_bytes, clock, ..options };
            let volume = Volume::connect(map, &name, options).await?;
            Ok(Arc::new(Mount { number, process: own, volume, bound, world: shared }))
        });
        let gone = |_| Error::with(ErrorKind::Unavailable, "killed while it mounted");
        let mounted: Result<Arc<Mount>> = connected.await.map_err(gone)?;
        let outcome = mounted.as_ref().map(drop).map_err(Clone::clone);
        world.note(format_args!("client {number} mounts: {outcome:?}"));
        mounted
    }

    /// A call, which has to end within its bound.
    pub async fn call<T>(&self, what: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let began = self.world.now();
        match tokio::time::timeout(self.bound, call).await {
            Ok(outcome) => {
                self.note_call(what, began, outcome.as_ref().map(|_| "ok"));
                outcome
            }
            Err(_) => {
                let took = (self.world.now() - began).as_millis();
                self.world.fail(format!("client {} {what}: no end within {took} ms", self.number));
                Err(Error::new(ErrorKind::TimedOut))
            }
        }
    }

    fn note_call(&self, what: &str, began: Duration, outcome: std::result::Result<&str, &Error>) {
        let (number, shown) = (self.number, outcome.map_err(|error| error.to_string()));
        let took = (self.world.now() - began).as_millis();
        self.world.note(format_args!("client {number} {what}: {shown:?} ({took} ms)"));
    }

    /// A call that is dropped where it waits when a time is over; `None`: it was.
    pub async fn call_for<T>(
        &self,
        what: &str,
        time: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        let began = self.world.now();
        let Ok(outcome) = tokio::time::timeout(time, call).await else {
            self.note_call(what, began, Ok("dropped"));
            return Ok(None);
        };
        self.note_call(what, began, outcome.as_ref().map(|_| "ok"));
        outcome.map(Some)
    }

    /// True if a client has a session, by its number.
    pub async fn knows(&self, client: u32) -> Result<bool> {
        let name = name_of(client);
        let all = self.call("list clients", self.volume.clients(&Credentials::root())).await?;
        Ok(all.iter().any(|client| client.name == name && !client.lost))
    }

    /// Evicts a client by its number.
    pub async fn evict(&self, client: u32) -> Result<()> {
        let root = Credentials::root();
        let name = name_of(client);
        let all = self.call("list clients", self.volume.clients(&root)).await?;
        for client in all.iter().filter(|client| client.name == name) {
            self.call("evict", self.volume.evict(&root, client.session)).await?;
        }
        Ok(())
    }

    /// Unmounts.
    pub async fn close(&self) -> Result<()> {
        let volume = self.volume.clone();
        let closed = self.process.spawn(async move { volume.close().await });
        let gone = |_| Error::with(ErrorKind::Unavailable, "killed while it unmounted");
        let outcome = self.call("unmount", async { closed.await.map_err(gone)? }).await;
        self.process.kill();
        outcome
    }
}

fn name_of(number: u32) -> String {
    format!("client {number}")
}
