//! The workload on locks: all clients lock bytes of the same few files, and the files as a whole, look who has what, wait
//! and give up, and keep what they have while things go wrong. What they were told must be the history of locks that
//! exclude each other, also over the lives of metadata servers (see [`strake_model::history::locks`]); [`super::owners`]
//! knows when a client may have lost what it had.

use super::files::consider;
use super::mount::Mount;
use super::owners::{Attempt, BYTES, Object, Owners};
use super::places::Directories;
use super::plan::Plan;
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{LockKind, LockRequest, OpenFlags};
use strake_model::history::Verdict;
use strake_model::history::locks::{Ask, Told, judge, may_be_in_circle};
use strake_types::{Credentials, Error, ErrorKind, Ino, Result};

/// Pauses between two operations of a client are so many times as long as elsewhere, so that most of the load is other.
const PAUSES: u64 = 4;
/// Longest time that a client waits for a lock, in ms: longer than circles are looked for.
const PATIENCE_MS: u64 = 5_000;
/// Longest time until what lost clients had is given back: a session that was there before a metadata server came has
/// twice its lease, and then it is fenced.
const GIVEN_BACK: Duration = Duration::from_secs(100);
/// As whom the last client locks everything.
const LAST: u32 = u32::MAX;

/// All such files.
pub struct Locks {
    world: Arc<World>,
    files: Vec<Mutex<Ino>>,
    directories: Arc<Directories>,
    owners: Mutex<Owners>,
    /// Longest pause of a client between two operations.
    pause_ms: u64,
}

impl Locks {
    /// The files of a plan.
    pub fn new(world: &Arc<World>, plan: &Plan, directories: &Arc<Directories>) -> Arc<Self> {
        let files: Vec<Mutex<Ino>> = (0..plan.locks).map(|_| Mutex::default()).collect();
        let owners = Mutex::new(Owners::new(files.len()));
        let (world, directories) = (world.clone(), directories.clone());
        Arc::new(Self { world, files, directories, owners, pause_ms: plan.pause_ms * PAUSES })
    }

    fn ino(&self, object: Object) -> Ino {
        *self.files[object.file].lock()
    }

    /// Makes them, empty.
    pub async fn make(&self, mount: &Mount) -> Result<()> {
        for (nth, ino) in self.files.iter().enumerate() {
            let made = make_file(mount, self.directories.get(nth), name_of(nth)).await?;
            *ino.lock() = made;
        }
        Ok(())
    }

    /// Locks, waits, looks and unlocks until the workload ends.
    pub async fn work_on(&self, mount: &Mount, mut random: SplitMix64, is_over: impl Fn() -> bool) {
        while !is_over() && !self.files.is_empty() {
            self.use_once(mount, &mut random).await;
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
        let locked = self.owners.lock().locked_by(mount.number);
        for object in locked {
            self.carry_out(mount, object, Ask::Unlock(0, BYTES), None).await;
        }
    }

    /// The life of a client is over, and with it what it had.
    pub fn forget(&self, mount: &Mount) {
        self.owners.lock().retire(mount.number);
    }

    /// A client is about to be evicted.
    pub fn evict(&self, client: u32) {
        self.owners.lock().evict(client);
    }

    /// That has happened.
    pub fn evicted(&self, client: u32) {
        self.owners.lock().evicted(client);
    }

    async fn use_once(&self, mount: &Mount, random: &mut SplitMix64) {
        let file = random.below(self.files.len() as u64) as usize;
        let object = Object { file, flock: random.percent(25) };
        let bytes = if object.flock { 1 } else { BYTES };
        let from = random.below(bytes.into()) as u8;
        let to = from + 1 + random.below((bytes - from).into()) as u8;
        let exclusive = random.percent(60);
        let lock = if exclusive { Ask::Exclude(from, to) } else { Ask::Share(from, to) };
        let patience = Duration::from_millis(50 + random.below(PATIENCE_MS));
        let (ask, patience) = match random.below(10) {
            0..3 => (lock, None),
            3..6 => (lock, Some(patience)),
            6 => (Ask::Look(from, to, exclusive), None),
            7 => (Ask::Unlock(from, to), None),
            _ => (Ask::Unlock(0, bytes), None),
        };
        self.carry_out(mount, object, ask, patience).await;
    }

    async fn carry_out(&self, mount: &Mount, object: Object, ask: Ask, patience: Option<Duration>) {
        let (client, now) = (mount.number, self.world.now());
        let begun = self.owners.lock().begin(client, object, ask, patience.is_some(), now);
        let Some(attempt) = begun else { return };
        let owner = attempt.owner;
        let what = format!("{ask:?} of {object:?} as {owner}, waiting {patience:?}");
        let told = mount.call(&what, self.call(mount, &attempt, patience)).await;
        consider(&self.world, told.as_ref().err().map(|error| error.kind));
        let told = told.unwrap_or(Told::Unknown);
        self.world.note(format_args!("client {client} {what}: {told:?}"));
        let is_known = self.owners.lock().ended(&attempt, told, self.world.now());
        if !is_known {
            self.let_go(mount, owner).await;
        }
    }

    async fn call(
        &self,
        mount: &Mount,
        attempt: &Attempt,
        patience: Option<Duration>,
    ) -> Result<Told> {
        let request = request(attempt.owner, attempt.object, attempt.ask, patience.is_some());
        let (ino, volume) = (self.ino(attempt.object), &mount.volume);
        if let Ask::Look(..) = attempt.ask {
            let held = volume.get_lock(ino, request).await?;
            let shown = |held: LockRequest| Told::Held(held.pid, held.kind == LockKind::Exclusive);
            return Ok(held.map_or(Told::Free, shown));
        }
        let set = volume.set_lock(ino, request);
        let outcome = match patience {
            None => set.await,
            Some(patience) => match tokio::time::timeout(patience, set).await {
                Ok(outcome) => outcome,
                Err(_) => return Ok(Told::GaveUp),
            },
        };
        match outcome {
            Ok(()) => Ok(Told::Done),
            Err(error) if error.kind == ErrorKind::WouldBlock => Ok(Told::Refused),
            Err(error) if error.kind == ErrorKind::Deadlock => Ok(Told::Deadlock),
            Err(error) => Err(error),
        }
    }

    /// Unlocks whatever an owner may have of which nobody knows that.
    async fn let_go(&self, mount: &Mount, owner: u32) {
        let objects = self.owners.lock().objects();
        for object in objects {
            self.owners.lock().unlock_unheard(owner, object);
            let request = request(owner, object, Ask::Unlock(0, BYTES), false);
            let unlock = mount.volume.set_lock(self.ino(object), request);
            let what = format!("unlock all of {object:?} as {owner}");
            consider(&self.world, mount.call(&what, unlock).await.err().map(|error| error.kind));
        }
    }

    /// Judges what has happened, locks everything, which has to be free soon, and removes the files.
    pub async fn end(&self, mount: &Mount) -> Result<()> {
        self.judge();
        let objects = self.owners.lock().objects();
        for object in objects {
            let ino = self.ino(object);
            let lock = request(LAST, object, Ask::Exclude(0, BYTES), true);
            let wait = async {
                let locked = tokio::time::timeout(GIVEN_BACK, mount.volume.set_lock(ino, lock));
                let late = |_| Error::with(ErrorKind::WouldBlock, "it is not free");
                locked.await.map_err(late)?
            };
            match mount.call(&format!("lock all of {object:?}"), wait).await {
                Err(error) if error.kind == ErrorKind::WouldBlock => {
                    let what = "is locked by somebody who is gone";
                    self.world.fail(format!("{object:?} {what}, after {GIVEN_BACK:?}"));
                }
                locked => locked?,
            }
            let unlock = request(LAST, object, Ask::Unlock(0, BYTES), false);
            mount.call("unlock it", mount.volume.set_lock(ino, unlock)).await?;
        }
        for nth in 0..self.files.len() {
            let (cred, directory) = (Credentials::root(), self.directories.get(nth));
            let removed = mount.volume.unlink(&cred, directory, name_of(nth));
            mount.call(&format!("unlink locked file {nth}"), removed).await?;
        }
        Ok(())
    }

    fn judge(&self) {
        let owners = self.owners.lock();
        for (object, history) in owners.objects().zip(owners.histories()) {
            match judge(history) {
                Verdict::Fits => strake_base::count_case("history-judged"),
                Verdict::TooLong => {
                    strake_base::count_case("history-not-judged");
                    self.world.note(format_args!("{object:?}: not judged"));
                }
                Verdict::Impossible(why) => self.world.fail(format!("locks of {object:?}: {why}")),
            }
        }
        for refused in owners.deadlocks() {
            if !may_be_in_circle(owners.histories(), owners.waits(), refused) {
                let refused = &owners.histories()[refused.0][refused.1];
                self.world.fail(format!("there was no circle of waits: {refused:?}"));
            }
        }
    }
}

/// Makes a file to be locked.
pub(super) async fn make_file(mount: &Mount, directory: Ino, name: Bytes) -> Result<Ino> {
    let (cred, flags) = (Credentials::root(), OpenFlags { exclusive: true, ..OpenFlags::READ });
    let made = mount.volume.create(&cred, directory, name, 0o644, 0, flags);
    let (attr, open, _) = mount.call("make a file to lock", made).await?;
    mount.call("close it", mount.volume.release(&open)).await?;
    Ok(attr.ino)
}

fn request(owner: u32, object: Object, ask: Ask, wait: bool) -> LockRequest {
    let (from, to, kind) = match ask {
        Ask::Share(from, to) | Ask::Look(from, to, false) | Ask::Await(from, to, false) => {
            (from, to, LockKind::Shared)
        }
        Ask::Exclude(from, to) | Ask::Look(from, to, true) | Ask::Await(from, to, true) => {
            (from, to, LockKind::Exclusive)
        }
        Ask::Unlock(from, to) => (from, to, LockKind::Unlock),
    };
    let (start, end, flock) = (from.into(), u64::from(to) - 1, object.flock);
    // Others are told of a process: each owner is one.
    LockRequest { owner: owner.into(), pid: owner, start, end, kind, flock, wait }
}

fn name_of(nth: usize) -> Bytes {
    format!("locks-{nth}").into()
}
