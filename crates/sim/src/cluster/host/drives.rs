//! The disks of a machine: lost and replaced while it is off, or one more while its server runs.

use super::{Host, OpenTargets, Running};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strake_base::disk::sim::SimDisk;
use strake_storage::StorageServer;
use strake_types::{Error, ErrorKind, Result, TargetId};
use strake_wire::member::ManagerOfMap;
use strake_wire::message::manager::{
    AddTarget, ClusterMap, GetMap, ManagerAnswer, ManagerOp, ManagerRequest, TargetSpec,
};
use strake_wire::service::ManagerService;

/// How often a target that was made asks to enter, and the pause between.
const ENTRIES_MAX: u32 = 50;
const ENTRY_PAUSE: Duration = Duration::from_millis(300);

/// A disk of a machine, with the target on it.
pub struct Drive {
    /// The disk.
    pub disk: SimDisk,
    pub(super) uuid: String,
    path: String,
    /// The manager knows of the target, if it has a number.
    pub(super) entered: AtomicBool,
    /// The target's number; 0 until it has one.
    pub(super) target: Mutex<u32>,
    /// What is written on it; see `node::generation` of the program.
    generation: AtomicU64,
    /// It is a copy that was made in an earlier generation, and nobody has said yet that this is known.
    is_old: AtomicBool,
    /// What it once was, with its generation then.
    copy: Mutex<Option<(SimDisk, u64)>>,
}

impl Drive {
    /// The target's number; 0 until it has one.
    pub fn target(&self) -> u32 {
        *self.target.lock()
    }

    /// How often a server has begun to serve it, or more.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Copies what is on it now, as a snapshot does.
    pub fn copy(&self, seed: u64, bytes: u64) {
        let copy = SimDisk::new(seed, bytes);
        copy.restore(&self.disk);
        *self.copy.lock() = Some((copy, self.generation()));
    }

    /// True if there is a copy of a generation before the present one.
    pub fn has_older_copy(&self) -> bool {
        self.copy.lock().as_ref().is_some_and(|(_, then)| *then < self.generation())
    }

    /// Becomes what the copy is.
    pub fn bring_copy(&self) {
        let Some((copy, then)) = self.copy.lock().take() else { return };
        self.disk.restore(&copy);
        self.generation.store(then, Ordering::Relaxed);
        self.is_old.store(true, Ordering::Relaxed);
    }

    /// True if it is an old copy, and no server has been started with it.
    pub(super) fn is_old(&self) -> bool {
        self.is_old.load(Ordering::Relaxed)
    }

    /// A server serves it, in its next generation.
    pub(super) fn begin_generation(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
        self.is_old.store(false, Ordering::Relaxed);
    }

    pub(super) fn spec(&self) -> TargetSpec {
        let (uuid, path) = (self.uuid.clone(), self.path.clone());
        let (total_bytes, free_bytes) = (1 << 30, 1 << 30);
        let (target, generation) = (self.target(), Some(self.generation()));
        TargetSpec {
            target,
            uuid,
            path,
            total_bytes,
            free_bytes,
            generation,
            ..TargetSpec::default()
        }
    }
}

impl Host {
    /// A disk that nothing was ever written to.
    pub(super) fn new_drive(&self) -> Arc<Drive> {
        let nth = self.drives_ever.fetch_add(1, Ordering::Relaxed);
        let number = u64::from(self.number) << 32 | nth;
        let mut random = self.world.stream(0x1000 + number);
        Arc::new(Drive {
            disk: SimDisk::new(random.next_number(), self.plan.disk_bytes),
            uuid: format!("{number:032x}"),
            path: format!("server {} drive {nth}", self.number),
            entered: AtomicBool::new(false),
            target: Mutex::new(0),
            generation: AtomicU64::new(0),
            is_old: AtomicBool::new(false),
            copy: Mutex::default(),
        })
    }

    /// Its disks.
    pub fn drives(&self) -> Vec<Arc<Drive>> {
        self.drives.lock().clone()
    }

    /// An empty disk takes the place of another one while the machine is off; the target that was there.
    pub fn swap_drive(&self, nth: usize) -> u32 {
        let new = self.new_drive();
        std::mem::replace(&mut self.drives.lock()[nth], new).target()
    }

    /// Forgets the disks whose targets have left the cluster, and lets those enter of which nobody knows
    /// whether they have.
    pub(super) async fn look_at_drives(&self, manager: &dyn ManagerService) -> Result<()> {
        if self.drives().iter().all(|drive| drive.target() == 0) {
            return Ok(());
        }
        let map = map_of(manager).await?;
        for drive in self.drives().iter().filter(|drive| drive.target() != 0) {
            let is_listed = map.targets.iter().any(|target| target.spec.uuid == drive.uuid);
            if !is_listed && drive.entered.load(Ordering::Relaxed) {
                self.world.note(format_args!("{} has left the cluster", drive.path));
                self.drives.lock().retain(|other| !Arc::ptr_eq(other, drive));
            } else if !is_listed {
                self.enter(manager, drive).await?;
            }
            drive.entered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks the manager for the number of a new target, or to let the one in that has it.
    async fn enter(&self, manager: &dyn ManagerService, drive: &Drive) -> Result<u32> {
        let (server, boot) = (self.number, self.boot());
        let spec = drive.spec();
        let op = Some(ManagerOp::AddTarget(AddTarget { server, spec, boot }));
        match manager.call(ManagerRequest { op }).await?.answer {
            Some(ManagerAnswer::Target(number)) => Ok(number),
            _ => Err(Error::with(ErrorKind::Malformed, "no number for a target")),
        }
    }

    /// Gives the running server one more disk, in the steps of `strake target add`.
    pub async fn add_drive(self: &Arc<Self>) -> Result<()> {
        let _one = self.changing.lock().await;
        let parts = self.running.lock().as_ref().map(|running| {
            let Running { process, map, storage, open, .. } = running;
            (process.clone(), ManagerOfMap(map.clone()), storage.clone(), open.clone())
        });
        let Some((process, manager, storage, open)) = parts else { return Ok(()) };
        let host = self.clone();
        let add = async move { host.add_in(&manager, &storage, &open).await };
        let gone = |_| Error::with(ErrorKind::Unavailable, "killed while it got a disk");
        let added = process.spawn(add).await.map_err(gone).and_then(|added| added);
        self.world.note(format_args!("server {} gets one more disk: {added:?}", self.number));
        added
    }

    async fn add_in(
        &self,
        manager: &dyn ManagerService,
        storage: &StorageServer,
        open: &OpenTargets,
    ) -> Result<()> {
        let drive = self.new_drive();
        let number = self.enter(manager, &drive).await?;
        let cluster = self.cluster.lock().clone();
        let store = self.format(&drive, &cluster, number)?;
        drive.begin_generation(1);
        storage.add_target(TargetId(number), store.clone());
        open.lock().push((drive.spec(), store.clone()));
        self.drives.lock().push(drive.clone());
        self.sync_now_and_then(&[store], None);
        for _ in 0..ENTRIES_MAX {
            match self.enter(manager, &drive).await {
                Err(error)
                    if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::TimedOut) =>
                {
                    tokio::time::sleep(ENTRY_PAUSE).await;
                }
                other => {
                    drive.entered.store(other.is_ok(), Ordering::Relaxed);
                    return other.map(drop);
                }
            }
        }
        // Nobody knows whether it has entered: at its next start the server asks again.
        Ok(())
    }
}

/// The map, from a manager that may have to be started first.
async fn map_of(manager: &dyn ManagerService) -> Result<ClusterMap> {
    let mut asked = 0;
    loop {
        let op = Some(ManagerOp::GetMap(GetMap::default()));
        match manager.call(ManagerRequest { op }).await {
            Ok(reply) => match reply.answer {
                Some(ManagerAnswer::Map(answer)) => {
                    return Ok(answer.decoded()?.unwrap_or_default());
                }
                _ => return Err(Error::with(ErrorKind::Malformed, "no map")),
            },
            Err(error) if asked == ENTRIES_MAX => return Err(error),
            Err(_) => {
                asked += 1;
                tokio::time::sleep(ENTRY_PAUSE).await;
            }
        }
    }
}
