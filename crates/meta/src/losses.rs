//! How often a store may have lost what clients had been told.
//!
//! An embedded engine answers when a change survives the death of the process, and syncs it within a second. Should the machine
//! lose power before, the versions of inodes go back, and later changes give the same numbers to something else. So it is
//! counted, in the store itself, how often that may have happened: it is written under another boot than by the last process,
//! and that one had not stopped in good order. With that number clients are told versions that are greater than all that they
//! were told before: whatever they know of an inode gives way to the next answer.
//!
//! The number is one of the whole store, since an answer may tell of inodes of several shares.

use crate::keys;
use crate::records::{self, BootRecord};
use crate::stored::{decoded, store_error};
use crate::volume::Volume;
use strake_engine::kv::Store;
use strake_types::Result;

/// Bits of a version that count changes; those above count losses.
const CHANGE_BITS: u32 = 40;
/// More losses are not told apart by versions.
const TOLD_MAX: u64 = (1 << (64 - CHANGE_BITS)) - 1;

/// How often that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses(pub u64);

impl Losses {
    /// What clients are told as the version of an inode.
    pub fn told(self, version: u64) -> u64 {
        (self.0.min(TOLD_MAX) << CHANGE_BITS).saturating_add(version)
    }
}

/// Finds out how often it was, before anything is told of the store by this process: from then on it is known that it is
/// being written.
pub(crate) async fn begin(volume: &Volume, store: &dyn Store) -> Result<Losses> {
    let key = keys::boot();
    let Some(boot) = volume.kv.boot() else {
        return moved(volume, store, &key).await;
    };
    let mut losses = 0;
    volume
        .own_transaction(Some(&key), |stored, tx| {
            let known: Option<BootRecord> = decoded(&key, stored)?;
            losses = known.map_or(0, |known| known.losses_under(&boot));
            let record = BootRecord { boot: boot.clone(), losses, clean: false };
            tx.put(key.clone(), records::encode(&record));
            Ok(())
        })
        .await?;
    volume.sync().await?;
    Ok(Losses(losses))
}

/// Nothing gets lost in a database, but something may have been where the store was before it was moved there.
async fn moved(volume: &Volume, store: &dyn Store, key: &Vec<u8>) -> Result<Losses> {
    let found = store.look(std::slice::from_ref(key)).await.map_err(store_error)?;
    let Some(known) = decoded::<BootRecord>(key, found.into_iter().next().flatten())? else {
        return Ok(Losses::default());
    };
    if known.clean {
        return Ok(Losses(known.losses));
    }
    let losses = known.losses.saturating_add(1);
    // Clean from now on: whoever finds it next counts nothing more.
    let record = BootRecord { losses, clean: true, ..known };
    volume.put(key.clone(), records::encode(&record)).await?;
    Ok(Losses(losses))
}

/// All is on disk, and nothing is changed any more.
pub(crate) async fn end(volume: &Volume, losses: Losses) -> Result<()> {
    let Some(boot) = volume.kv.boot() else { return Ok(()) };
    let record = BootRecord { boot, losses: losses.0, clean: true };
    volume.put(keys::boot(), records::encode(&record)).await?;
    volume.sync().await
}

impl BootRecord {
    /// The number of losses, now that the store is written under this boot.
    fn losses_under(&self, boot: &str) -> u64 {
        let lost = !self.clean && self.boot != boot;
        self.losses.saturating_add(u64::from(lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::world::*;
    use std::sync::Arc;
    use strake_engine::kv::Kv;
    use strake_engine::kv::memory::SyncedKv;

    #[test]
    fn a_loss_outweighs_all_changes_before_it() {
        let before = Losses(1).told(1 << 39);
        assert!(Losses(2).told(1) > before && Losses(0).told(7) == 7);
        assert!(Losses(u64::MAX).told(2) > Losses(u64::MAX).told(1));
    }

    /// How often it was, by what the server tells.
    async fn told(world: &World) -> u64 {
        world.open_session(world.session, &[]).await;
        world.root().getattr(1).await.unwrap().version >> CHANGE_BITS
    }

    /// The same numbers stood for something else then, and a mount went on to believe what had gone.
    #[tokio::test]
    async fn after_a_loss_of_power_all_that_is_told_is_newer_than_what_was_told_before() {
        let kv = SyncedKv::new();
        let mut world = World::on(Arc::new(kv.clone())).await;
        let root = world.root();
        let ino = root.file(1, "f").await.unwrap();
        kv.sync().await.unwrap();
        let (before, directory) =
            (root.getattr(ino).await.unwrap(), root.getattr(1).await.unwrap());
        root.write(ino, 0, b"lost").await.unwrap();
        let lost = root.write(ino, 4, b"lost").await.unwrap();
        assert_eq!((told(&world).await, lost.version), (0, before.version + 2));
        world.kv = Arc::new(kv.after_power_loss().await.unwrap());
        let world = world.killed().await;
        assert_eq!(told(&world).await, 1);
        let root = world.root();
        let after = root.getattr(ino).await.unwrap();
        assert!(after.version > lost.version && after.length == 0, "{after:?}");
        assert!(root.getattr(1).await.unwrap().version > directory.version);
        let listed = root.page(1, 0, 10, true).await.unwrap();
        assert_eq!(listed.entries[0].attr.as_ref().unwrap().version, after.version);
        let next = root.write(ino, 0, b"new").await.unwrap();
        assert_eq!(next.version, after.version + 1, "still one step for each change");
        let world = world.killed().await;
        assert_eq!(told(&world).await, 1, "it is not counted twice");
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_no_loss_and_neither_is_a_reboot_after_a_clean_stop() {
        let kv = SyncedKv::new();
        let world = World::on(Arc::new(kv.clone())).await;
        let ino = world.root().file(1, "f").await.unwrap();
        let mut world = world.killed().await;
        assert_eq!(told(&world).await, 0);
        let before = world.root().getattr(ino).await.unwrap();
        world.server.stop().await.unwrap();
        world.kv = Arc::new(kv.after_power_loss().await.unwrap());
        let world = world.killed().await;
        assert_eq!(told(&world).await, 0);
        assert_eq!(world.root().getattr(ino).await.unwrap().version, before.version);
    }
}
