//! One client has a lock, and another one waits for it while all else is well: for how long?
//!
//! While there is trouble nobody can say how long a wait for a lock may last, so this has a time of its own, as `quiet`
//! has. The lock is given back, its holder dies or is evicted, or the two wait for each other.

use super::Cluster;
use super::locks::make_file;
use super::mount::{CLIENTS_FROM, Mount};
use super::world::World;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{LockKind, LockRequest};
use strake_types::{Credentials, ErrorKind, Ino, Result};
use tokio::task::JoinHandle;

/// Seeds that have such a time, of a hundred.
const SEEDS: u64 = 40;
/// Numbers of the machines of these clients begin here.
const MOUNTS_FROM: u32 = CLIENTS_FROM + 70;
/// The name of the file that they lock.
const NAME: &str = "contested";
/// How long who waits for a lock may wait once that is given back.
const GRANT_BOUND: Duration = Duration::from_secs(2);
/// The same when its holder dies: the lease of its session is 30 s by the server's clock, and then it is fenced. Where another
/// server has just taken the volume over, who has not come back there is waited for for two of them.
const DEATH_BOUND: Duration = Duration::from_secs(75);
/// The same when its holder is evicted: what it believes is waited for, for 3.3 s at most.
const EVICTION_BOUND: Duration = Duration::from_secs(10);
/// How long until of two that wait for each other one is refused: requests wait for a second each, and look then.
const CIRCLE_BOUND: Duration = Duration::from_secs(5);
/// For how long one waits before the other does, so that they do not look at the same moment.
const CIRCLE_PAUSE: Duration = Duration::from_millis(300);

/// Two clients, and a file.
struct Contest {
    world: Arc<World>,
    holder: Arc<Mount>,
    other: Arc<Mount>,
    ino: Ino,
}

impl Cluster {
    /// Two clients contend for locks, if it is the turn of this seed.
    pub(super) async fn contend(&self) -> Result<()> {
        let mut random = self.world.stream(0x900a);
        if !random.percent(SEEDS) {
            return Ok(());
        }
        let holder = Mount::start(&self.world, &self.plan, MOUNTS_FROM).await?;
        let other = Mount::start(&self.world, &self.plan, MOUNTS_FROM + 1).await?;
        let directory = self.directories.get(0);
        let ino = make_file(&other, directory, NAME.into()).await?;
        let contest = Contest { world: self.world.clone(), holder, other, ino };
        contest.give_back(&mut random).await?;
        contest.close_circle().await?;
        match random.percent(50) {
            true => contest.evict(&mut random).await?,
            false => contest.kill(&mut random).await?,
        }
        let Contest { holder, other, .. } = contest;
        let root = Credentials::root();
        let removed = other.volume.unlink(&root, directory, NAME.into());
        other.call("unlink what was contested", removed).await?;
        if !holder.process.is_dead() {
            let _evicted = holder.close().await;
        }
        other.close().await
    }
}

impl Contest {
    async fn give_back(&self, random: &mut SplitMix64) -> Result<()> {
        let unlock = set(&self.holder, self.ino, 0, LockKind::Unlock);
        self.until_granted((GRANT_BOUND, "its holder has given it back"), unlock, random).await
    }

    async fn evict(&self, random: &mut SplitMix64) -> Result<()> {
        let evict = self.other.evict(self.holder.number);
        self.until_granted((EVICTION_BOUND, "its holder was evicted"), evict, random).await
    }

    async fn kill(&self, random: &mut SplitMix64) -> Result<()> {
        let kill = async {
            self.world.note(format_args!("client {} dies", self.holder.number));
            self.holder.process.kill();
            Ok(())
        };
        self.until_granted((DEATH_BOUND, "its holder has died"), kill, random).await
    }

    /// One has a lock, and the other waits until something happens, and then not much longer.
    async fn until_granted(
        &self,
        (bound, what): (Duration, &str),
        happens: impl Future<Output = Result<()>>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        set(&self.holder, self.ino, 0, LockKind::Exclusive).await?;
        let waiting = wait(&self.other, self.ino, 0);
        tokio::time::sleep(Duration::from_millis(300 + random.below(2_500))).await;
        if waiting.is_finished() {
            self.world.fail("the lock of another client was not waited for".to_owned());
        }
        happens.await?;
        self.expect_granted(waiting, bound, what).await?;
        set(&self.other, self.ino, 0, LockKind::Unlock).await
    }

    async fn expect_granted(
        &self,
        waiting: JoinHandle<Result<()>>,
        bound: Duration,
        what: &str,
    ) -> Result<()> {
        let began = self.world.now();
        match tokio::time::timeout(bound, waiting).await {
            Ok(Ok(granted)) => granted?,
            _ => self.world.fail(format!("{what}: not granted the lock within {bound:?}")),
        }
        let took = (self.world.now() - began).as_millis();
        self.world.note(format_args!("{what}: granted the lock after {took} ms"));
        Ok(())
    }

    /// Each has a lock that the other waits for: one of them is refused, and gives its own back.
    async fn close_circle(&self) -> Result<()> {
        let (one, two, ino) = (&self.holder, &self.other, self.ino);
        set(one, ino, 0, LockKind::Exclusive).await?;
        set(two, ino, 1, LockKind::Exclusive).await?;
        let mut first = wait(one, ino, 1);
        tokio::time::sleep(CIRCLE_PAUSE).await;
        let mut second = wait(two, ino, 0);
        let either = async {
            tokio::select! {
                biased;
                told = &mut first => (told, true),
                told = &mut second => (told, false),
            }
        };
        let refused = tokio::time::timeout(CIRCLE_BOUND, either).await;
        let is_deadlock =
            |told: &Result<()>| told.as_ref().is_err_and(|error| error.kind == ErrorKind::Deadlock);
        let Ok((Ok(told), is_first)) = refused else {
            let what =
                format!("none of two that wait for each other was told within {CIRCLE_BOUND:?}");
            self.world.fail(what);
            return Ok(());
        };
        if !is_deadlock(&told) {
            self.world.fail(format!("one of two that wait for each other was told {told:?}"));
        }
        let (refused, byte) = if is_first { (one, 0) } else { (two, 1) };
        set(refused, ino, byte, LockKind::Unlock).await?;
        let waiting = if is_first { second } else { first };
        self.expect_granted(waiting, GRANT_BOUND, "who was refused has given its lock back")
            .await?;
        for (mount, byte) in [(one, 0), (one, 1), (two, 0), (two, 1)] {
            set(mount, ino, byte, LockKind::Unlock).await?;
        }
        Ok(())
    }
}

fn request(mount: &Mount, byte: u64, kind: LockKind, wait: bool) -> LockRequest {
    let (owner, pid) = (mount.number.into(), mount.number);
    LockRequest { owner, pid, start: byte, end: byte, kind, flock: false, wait }
}

/// Takes or gives back a lock that nobody stands in the way of.
async fn set(mount: &Mount, ino: Ino, byte: u64, kind: LockKind) -> Result<()> {
    let set = mount.volume.set_lock(ino, request(mount, byte, kind, false));
    mount.call(&format!("{kind:?} byte {byte}"), set).await
}

/// Begins to wait for a lock.
fn wait(mount: &Arc<Mount>, ino: Ino, byte: u64) -> JoinHandle<Result<()>> {
    let own = mount.clone();
    mount.process.spawn(async move {
        let set = own.volume.set_lock(ino, request(&own, byte, LockKind::Exclusive, true));
        own.call(&format!("wait for byte {byte}"), set).await
    })
}
