//! What the server keeps in memory about one volume.

use crate::chores::Chores;
use crate::cluster::Settings;
use crate::kept_loans::Kept;
use crate::leases::Leases;
use crate::loans::Loans;
use crate::locks::ranges::RangeLocks;
use crate::recopies::Recopies;
use crate::refused::Refused;
use crate::session::Sessions;
use crate::stored::store_error;
use crate::uncounted::Uncounted;
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use strake_engine::kv::Kv;
use strake_types::{Epoch, Ino, Result, SessionId, VolumeId};
use strake_wire::capability::reign;
use strake_wire::waits::Waits;
use tokio::sync::{RwLock as RwGate, watch};

/// Numbers handed out from a block that is reserved in the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// The next number.
    pub next: u64,
    /// The first number that is not reserved.
    pub end: u64,
}

impl Block {
    /// The first of so many numbers, if as many are left.
    pub fn take(&mut self, count: u64) -> Option<u64> {
        let first = (self.left() >= count).then_some(self.next)?;
        self.next += count;
        Some(first)
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.end - self.next
    }
}

/// Counts of a volume: what was stored or counted at the start, and what has changed since.
#[derive(Default)]
pub(crate) struct Counts {
    /// Inodes in use.
    inodes: AtomicI64,
    /// Bytes of contents.
    bytes: AtomicI64,
    trust: Mutex<Trust>,
    /// Something has changed since the counts were stored.
    dirty: AtomicBool,
    /// Held shared from the commit of a change until it is counted: whoever has it alone sees counts and
    /// store agree.
    pub gate: Arc<RwGate<()>>,
}

/// Whether counts are true.
#[derive(Default)]
struct Trust {
    /// The volume has been counted since an unclean end, or the end was clean, and nothing was doubtful since.
    exact: bool,
    /// Changes of which nobody knows whether they were made.
    doubts: u64,
    /// All is being counted.
    counting: bool,
}

/// A count of all inodes as they were at one moment.
pub(crate) struct Audit {
    /// Inodes and bytes by the counts of the volume then.
    pub told: (i64, i64),
    /// Inodes and bytes that there were; `None` until all are counted.
    pub counted: watch::Receiver<Option<Result<(i64, i64)>>>,
}

impl Counts {
    /// Adds what a transaction has changed.
    pub fn add(&self, inodes: i64, bytes: i64) {
        if inodes != 0 || bytes != 0 {
            self.inodes.fetch_add(inodes, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.dirty.store(true, Ordering::Relaxed);
        }
    }

    /// The counts are true from here on.
    pub fn set_exact(&self) {
        self.trust.lock().exact = true;
    }

    /// All is to be counted: false if somebody does that already.
    pub fn begin_counting(&self) -> bool {
        !std::mem::replace(&mut self.trust.lock().counting, true)
    }

    /// All is counted: the counts are true, unless something was doubtful since there were so many
    /// [doubts](Counts::doubts). False if so: it is to be counted again.
    pub fn is_counted(&self, doubts: u64) -> bool {
        let mut trust = self.trust.lock();
        let done = trust.doubts == doubts;
        (trust.exact, trust.counting) = (trust.exact || done, trust.counting && !done);
        done
    }

    /// All cannot be counted now.
    pub fn give_up_counting(&self) {
        self.trust.lock().counting = false;
    }

    /// True once the counts are true.
    pub fn is_exact(&self) -> bool {
        self.trust.lock().exact
    }

    /// How often something was doubtful.
    pub fn doubts(&self) -> u64 {
        self.trust.lock().doubts
    }

    /// Nobody knows whether a change that counts was made: all has to be counted.
    pub fn doubt(&self) {
        let mut trust = self.trust.lock();
        (trust.doubts, trust.exact) = (trust.doubts + 1, false);
    }

    /// True if something has changed since the last call.
    pub fn take_dirty(&self) -> bool {
        self.dirty.swap(false, Ordering::Relaxed)
    }

    /// Inodes and bytes.
    pub fn get(&self) -> (u64, u64) {
        let (inodes, bytes) = self.raw();
        (u64::try_from(inodes).unwrap_or(0), u64::try_from(bytes).unwrap_or(0))
    }

    /// Inodes and bytes, below zero where they are so wrong.
    pub fn raw(&self) -> (i64, i64) {
        (self.inodes.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// Which taking into use of a volume in this process. What was cached in an earlier one is not found any more:
/// another server may have served it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opening(pub u32);

/// A volume, and since which epoch this server serves it: when another one does, targets refuse what is asked in this name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reign {
    pub volume: VolumeId,
    pub since: Epoch,
}

impl Reign {
    /// As a capability names it.
    pub fn session(self) -> SessionId {
        reign(self.since)
    }
}

/// One volume.
pub(crate) struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Its part of the store.
    pub kv: Arc<dyn Kv>,
    /// Which time it was taken into use.
    pub opening: Opening,
    /// Its settings, by the newest map that an operation has looked at.
    settings: RwLock<Arc<Settings>>,
    /// Inode counters.
    pub inodes: Mutex<Block>,
    /// Held by the one who reserves more of them.
    pub reserving: tokio::sync::Mutex<()>,
    /// Who is connected.
    pub sessions: Sessions,
    /// What they may believe.
    pub leases: Arc<Leases>,
    /// Locks of applications.
    pub ranges: RangeLocks,
    /// Inodes and bytes.
    pub counts: Counts,
    /// What is to be done later.
    pub chores: Chores,
    /// Files that are to be counted on their targets.
    pub uncounted: Uncounted,
    /// Files that have moved out of their inodes, which may not be on disk yet.
    pub moved: Mutex<HashSet<Ino>>,
    /// Files that are to be cut at their ends.
    pub refused: Refused,
    /// The check of them that is under way.
    pub audit: tokio::sync::Mutex<Option<Audit>>,
    /// Files that are getting another number of copies.
    pub recopies: Recopies,
    /// When what lost clients may use is next looked through, by the server's clock in milliseconds.
    pub lost_due_ms: AtomicU64,
    /// There was no room in the store to give back what lost clients held; that was told.
    pub lost_find_no_room: AtomicBool,
    /// What is lent to other shares of the volume.
    pub loans: Loans,
    /// What is borrowed of them, and waits for its next use.
    pub kept: Kept,
    /// Calls to targets that wait.
    pub waits: Waits,
}

impl Volume {
    /// A volume of which nothing is known but its settings.
    pub fn new(id: VolumeId, settings: Settings, kv: Arc<dyn Kv>, opening: Opening) -> Self {
        Volume {
            id,
            kv,
            opening,
            settings: RwLock::new(Arc::new(settings)),
            inodes: Mutex::default(),
            reserving: tokio::sync::Mutex::default(),
            sessions: Sessions::default(),
            leases: Arc::default(),
            ranges: RangeLocks::default(),
            counts: Counts::default(),
            chores: Chores::default(),
            uncounted: Uncounted::default(),
            moved: Mutex::default(),
            refused: Refused::default(),
            audit: tokio::sync::Mutex::default(),
            recopies: Recopies::default(),
            lost_due_ms: AtomicU64::new(0),
            lost_find_no_room: AtomicBool::new(false),
            loans: Loans::default(),
            kept: Kept::default(),
            waits: Waits::default(),
        }
    }

    /// Returns when all that was committed before is on disk.
    pub async fn sync(&self) -> Result<()> {
        self.kv.sync().await.map_err(store_error)
    }

    /// Its settings.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    /// In whose name it asks targets for something.
    pub fn reign(&self) -> Reign {
        Reign { volume: self.id, since: self.settings().owned_since }
    }

    /// Newer settings.
    pub fn set_settings(&self, settings: Settings) {
        *self.settings.write() = Arc::new(settings);
    }
}
