//! Power loss and kills at every operation of the journal, on a simulated disk.
//!
//! The store below is a map that keeps exactly what its checkpoints kept, so that whatever comes
//! back wrong is the fault of the journal or of the transactions.

use super::workload::{self, factor, random, run};
use crate::kv::embedded::{Directory, Embedded, Store, StoreError, View};
use crate::kv::memory::Random;
use crate::kv::{Kv, Pair, Writes};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strake_base::disk::sim::{SimDisk, SimFault};

type Map = BTreeMap<Vec<u8>, Bytes>;

/// What the store has on its own disk, and whether that is full.
#[derive(Clone, Default)]
pub struct Platter(Arc<Mutex<(u64, Map)>>, pub Arc<AtomicBool>);

/// A store of which nothing survives but checkpoints.
pub struct Forgetful {
    platter: Platter,
    map: Mutex<(u64, Arc<Map>)>,
    sealed: Mutex<(u64, Arc<Map>)>,
    next: AtomicU64,
    /// Checkpoints hold what was applied after the seal too, as a B-tree's do.
    eager: bool,
}

pub struct ForgetfulView(Arc<Map>);

impl Store for Forgetful {
    const NAME: &'static str = "forgetful";
    const CHECKPOINT_BYTES: u64 = 4096;
    type View = ForgetfulView;

    fn open(_directory: &Path) -> Result<Self, StoreError> {
        unreachable!("it lies in no directory")
    }

    fn durable(&self) -> Result<u64, StoreError> {
        Ok(self.platter.0.lock().0)
    }

    fn resume_after(&self, version: u64) {
        self.next.store(version + 1, Ordering::SeqCst);
    }

    fn next_version(&self) -> u64 {
        // Some numbers are left out, as by the LSM tree.
        self.next.fetch_add(1, Ordering::SeqCst);
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    fn apply(&self, version: u64, writes: &Writes) -> Result<(), StoreError> {
        let (newest, map) = &mut *self.map.lock();
        *newest = version;
        let map = Arc::make_mut(map);
        for (key, value) in writes {
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
        Ok(())
    }

    fn view(&self, _version: u64) -> Result<ForgetfulView, StoreError> {
        Ok(ForgetfulView(self.map.lock().1.clone()))
    }

    fn seal(&self, version: u64) -> Result<(), StoreError> {
        *self.sealed.lock() = (version, self.map.lock().1.clone());
        Ok(())
    }

    fn checkpoint(&self, _oldest: u64) -> Result<(), StoreError> {
        if self.platter.1.load(Ordering::SeqCst) {
            return Err(StoreError::Io(std::io::ErrorKind::StorageFull.into()));
        }
        let (version, map) =
            if self.eager { self.map.lock().clone() } else { self.sealed.lock().clone() };
        *self.platter.0.lock() = (version, (*map).clone());
        Ok(())
    }

    /// There is always more to do, which is nothing.
    fn compact(&self, _oldest: u64) -> Result<bool, StoreError> {
        Ok(true)
    }
}

impl View for ForgetfulView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, StoreError> {
        let range = self.0.range::<[u8], _>((from, to)).take(limit);
        Ok(range.map(|(key, value)| (Bytes::copy_from_slice(key), value.clone())).collect())
    }
}

pub fn open(
    disk: &SimDisk,
    platter: &Platter,
    eager: bool,
) -> crate::kv::Result<Embedded<Forgetful>> {
    let directory = Directory { disk: disk.process(), failures: 0, lock: Box::new(()) };
    let (durable, map) = platter.0.lock().clone();
    let map = Arc::new(map);
    let store = Forgetful {
        platter: platter.clone(),
        map: Mutex::new((durable, map.clone())),
        sealed: Mutex::new((durable, map)),
        next: AtomicU64::new(1),
        eager,
    };
    Embedded::open_in(directory, Path::new("simulated"), Forgetful::CHECKPOINT_BYTES, || Ok(store))
}

/// What one process knew when it died.
#[derive(Default)]
struct Known {
    tried: u64,
    acked: u64,
    synced: u64,
}

/// Commits, now and then syncs, until the disk stops.
async fn live(kv: &dyn Kv, head: u64, random: &mut Random) -> Known {
    let mut known = Known { tried: head, acked: head, synced: head };
    loop {
        known.tried += 1;
        if workload::commit(kv, 0, known.tried).await.is_err() {
            return known;
        }
        assert!(known.tried < head + 10_000, "the disk never stops");
        known.acked = known.tried;
        if random.chance(0.1) {
            if kv.sync().await.is_err() {
                return known;
            }
            known.synced = known.acked;
        }
    }
}

#[test]
fn what_was_synced_survives_power_loss_and_what_was_acknowledged_survives_a_kill() {
    for seed in 0..60 * factor() as u64 {
        let mut random = random(seed);
        let disk = SimDisk::new(seed, 64 << 20);
        let platter = Platter::default();
        let mut head = 0;
        for life in 0..6 {
            let context = format!("seed {seed}, life {life}");
            disk.fault_after(random.below(250) as u64, SimFault::Stop);
            let known = match open(&disk, &platter, seed % 2 == 0) {
                Ok(kv) => run(live(&kv, head, &mut random)),
                Err(_) => Known { tried: head, acked: head, synced: head },
            };
            let power_loss = random.chance(0.5);
            if power_loss {
                disk.power_loss();
            } else {
                disk.kill();
            }
            let kv = open(&disk, &platter, seed % 2 == 0)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            let heads = run(workload::verify(&kv, 1)).unwrap_or_else(|e| panic!("{context}: {e}"));
            let least = if power_loss { known.synced } else { known.acked };
            assert!(heads[0] >= least, "{context}: {heads:?}, but {least} was promised");
            assert!(heads[0] <= known.tried, "{context}: {heads:?}, only {} begun", known.tried);
            // What a recovery has shown, later ones show too.
            head = heads[0];
        }
    }
}

#[test]
fn a_store_says_another_boot_after_a_loss_of_power_and_after_nothing_else() {
    let (disk, platter) = (SimDisk::new(1, 64 << 20), Platter::default());
    let boot = || open(&disk, &platter, false).unwrap().boot().unwrap();
    let first = boot();
    assert_eq!(boot(), first, "a clean stop");
    disk.kill();
    assert_eq!(boot(), first);
    disk.power_loss();
    let second = boot();
    assert_ne!(second, first);
    let failed = |failures| {
        let (disk, lock) = (disk.process(), Box::new(()));
        let directory = Directory { disk, failures, lock };
        let store = Forgetful {
            platter: platter.clone(),
            map: Mutex::default(),
            sealed: Mutex::default(),
            next: AtomicU64::new(1),
            eager: false,
        };
        let path = Path::new("simulated");
        let kv = Embedded::open_in(directory, path, Forgetful::CHECKPOINT_BYTES, || Ok(store));
        kv.unwrap().boot().unwrap()
    };
    let (third, fourth) = (failed(1), failed(2));
    assert!(third != second && fourth != third, "{third}, {fourth}");
    assert_eq!(failed(2), fourth, "it has not failed again");
}
