//! What must hold when all trouble is over: everything is there, copies are equal, and what is deleted
//! goes.

use super::Cluster;
use super::host::{HEAD, SERVERS_MAX};
use super::mount::{CLIENTS_FROM, Mount};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strake_engine::chunk::ChunkStore;
use strake_types::{ChunkIndex, Error, ErrorKind, GroupId, Result};
use strake_wire::message::manager::Group;
use strake_wire::message::meta::CheckPart;

/// Longest time until all copies are equal: a member that could not be made equal is tried again after
/// 32 s at most, and that may happen twice.
pub(super) const WHOLE_BOUND: Duration = Duration::from_secs(120);
/// Longest time until what is deleted is gone: sessions of dead clients end after 30 s, and the
/// deletion waits for storage servers for as long again. What lies where a file was that was open stays for ten minutes, which
/// begin anew with its metadata server.
const GONE_BOUND: Duration = Duration::from_secs(240 + 1_200);
/// Longest time until the records of what is deleted are gone, too: chunks of a copy of which nobody knows whether it is
/// under way are left alone for ten minutes, and once more if that happens again.
const RECORDS_BOUND: Duration = Duration::from_secs(1_500);
/// Looks at whether copies are equal: a deletion may be on its way to one of them.
const COMPARISONS: usize = 3;
/// Between two of them: what was told to nobody may still be on its way.
const COMPARISON_PAUSE: Duration = Duration::from_secs(3);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Between two looks at what may take long to go: chunks,
const GONE_LOOK: Duration = Duration::from_secs(2);
/// and records.
const RECORDS_LOOK: Duration = Duration::from_secs(10);
/// Bits of an index in a store that count within the file; above them is the group.
pub(super) const INDEX_BITS: u32 = 40;
/// First byte of the keys of inodes.
const INODE: u8 = b'I';
/// First bytes of the keys of what goes with a file or with a session: chunks that are to go, contents, locks, work to be done,
/// further names, attributes. Not of what a lost client may use (that lasts for a day), how far a job is (as long as nobody
/// begins another), and slots of loans (for ever).
const OF_FILES: &[u8] = b"ABFGLPX";
/// Keys that are shown.
const SHOWN: usize = 4;

/// What is stored of a chunk: volume, inode, index in the file, length, digest of what it holds, and of what is reserved.
type Stored = (u32, u64, u64, u64, u64, u64);

impl Cluster {
    /// Looks at everything once trouble is over.
    pub(super) async fn check_end(self: &Arc<Self>) -> Result<()> {
        self.end_jobs().await?;
        self.wait(WHOLE_BOUND, "all copies are equal again", async |cluster| {
            cluster.is_whole().await
        })
        .await?;
        self.files.whole_again();
        self.logs.whole_again();
        self.appends.whole_again();
        // What is damaged in its only copy cannot be read any more.
        if self.plan.copies > 1 {
            self.check_rot().await?;
        }
        let mount = Mount::start(&self.world, &self.plan, CLIENTS_FROM + self.plan.clients).await?;
        for file in self.files.numbers() {
            self.files.read_whole(&mount, file).await?;
        }
        self.synced.look_at_all(&mount).await?;
        self.check_volume(&mount).await?;
        self.outlive_the_dead(&mount).await?;
        self.names.end(&mount).await?;
        self.logs.end(&mount).await?;
        self.appends.end(&mount).await?;
        self.locks.end(&mount).await?;
        self.synced.end(&mount).await?;
        self.own.end(&mount).await?;
        self.compare_copies().await?;
        if self.plan.copies == 1 {
            self.check_rot().await?;
        }
        for file in self.files.numbers() {
            self.files.remove(&mount, file).await?;
        }
        self.contend().await?;
        self.write_parts().await?;
        self.lose_one().await?;
        self.directories.end(&mount).await?;
        // However often its server lost the answer to a commit.
        self.check_part(&mount, CheckPart::Totals, 0).await?;
        mount.close().await?;
        let what = "what was deleted is gone";
        self.wait_looking(GONE_BOUND, GONE_LOOK, what, async |cluster| {
            Ok(cluster.leftovers().await?.is_none())
        })
        .await?;
        let what = "no record of it is left";
        self.wait_looking(RECORDS_BOUND, RECORDS_LOOK, what, async |cluster| {
            Ok(cluster.records_left().await?.is_none())
        })
        .await
    }

    /// What dead clients had sent excuses nothing any more when they are dead for long enough.
    async fn outlive_the_dead(&self, mount: &Mount) -> Result<()> {
        let files = self.files.awaiting_the_dead();
        if files.is_empty() {
            return Ok(());
        }
        let until = self.files.dead_until().max(self.appends.dead_until().unwrap_or_default());
        tokio::time::sleep(until.saturating_sub(self.world.now())).await;
        let number = CLIENTS_FROM + self.plan.clients + 1;
        let reader = Mount::start(&self.world, &self.plan, number).await?;
        for file in files {
            self.files.rewrite(mount, file, &reader).await?;
        }
        reader.close().await
    }

    pub(super) async fn wait(
        &self,
        bound: Duration,
        what: &str,
        until: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<()> {
        self.wait_looking(bound, LOOK, what, until).await
    }

    /// The same, with a pause of so long between two looks.
    async fn wait_looking(
        &self,
        bound: Duration,
        look: Duration,
        what: &str,
        until: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<()> {
        let began = self.world.now();
        loop {
            if until(self).await? {
                let took = (self.world.now() - began).as_millis();
                self.world.note(format_args!("{what} after {took} ms"));
                return Ok(());
            }
            if self.world.now() - began > bound {
                let left = self.leftovers().await?.or(self.records_left().await?);
                let left = left.unwrap_or_default();
                let map = self.map().await?;
                let open =
                    map.groups.iter().filter(|group| group.in_sync().len() < group.members.len());
                let open: Vec<_> = open.collect();
                let bad = map.targets.iter().filter(|t| !t.up || !t.spec.poisoned.is_empty());
                let bad: Vec<_> = bad.map(|t| (t.id, t.up, &t.spec.poisoned)).collect();
                let detail = format!("not within {bound:?}: {what}; {left} {open:?} {bad:?}");
                return Err(Error::with(ErrorKind::TimedOut, detail));
            }
            tokio::time::sleep(look).await;
        }
    }

    /// Members of a group hold the same.
    async fn compare_copies(&self) -> Result<()> {
        let mut differ = Vec::new();
        for _ in 0..COMPARISONS {
            tokio::time::sleep(COMPARISON_PAUSE).await;
            differ = self.differences().await?;
            if differ.is_empty() {
                break;
            }
        }
        differ.into_iter().for_each(|what| self.world.fail(what));
        Ok(())
    }

    /// Groups that have not as many members as they should, and members that do not hold the same.
    async fn differences(&self) -> Result<Vec<String>> {
        let mut differ = Vec::new();
        for group in self.map().await?.groups {
            let wanted = GroupId(group.id).copies() as usize;
            if group.members.len() != wanted {
                let members = &group.members;
                differ.push(format!("group {} of {wanted} has {members:?}", group.id));
            }
            let mut copies = Vec::new();
            for &member in &group.members {
                copies.push((member, self.stored(member, &group)?));
            }
            let Some((first, expected)) = copies.first() else { continue };
            for (member, found) in &copies[1..] {
                if found != expected {
                    let only = |a: &[Stored], b: &[Stored]| -> Vec<_> {
                        a.iter().filter(|chunk| !b.contains(chunk)).copied().collect()
                    };
                    differ.push(format!(
                        "group {}: target {first} has {:?}, target {member} has {:?}",
                        group.id,
                        only(expected, found),
                        only(found, expected)
                    ));
                }
            }
        }
        Ok(differ)
    }

    fn store_of(&self, target: u32) -> Result<Arc<ChunkStore>> {
        let mut stores = self.hosts.iter().flat_map(|host| host.stores());
        let found = stores.find(|(id, _)| *id == target).map(|(_, store)| store);
        found.ok_or_else(|| Error::with(ErrorKind::NotFound, format!("target {target}")))
    }

    fn stored(&self, target: u32, group: &Group) -> Result<Vec<Stored>> {
        let native = target.checked_sub(1) == Some(group.id);
        let tag = if native { 0 } else { u64::from(group.id) + 1 };
        let wanted = |index: ChunkIndex| index.0 >> INDEX_BITS == tag;
        let store = self.store_of(target)?;
        // Of a copy without room the reservations of others are not asked.
        let disks_fill = self.world.disks_fill.load(Ordering::Relaxed);
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = store.chunks_after(after, wanted, 1_000)?;
            all.extend(page.chunks.iter().map(|chunk| {
                let index = chunk.id.index.0 & ((1 << INDEX_BITS) - 1);
                let reserved = if disks_fill { 0 } else { chunk.reserved };
                (chunk.id.volume.0, chunk.id.ino.0, index, chunk.len, chunk.digest, reserved)
            }));
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// What is stored although there is no file.
    async fn leftovers(&self) -> Result<Option<String>> {
        let map = self.map().await?;
        for host in &self.hosts {
            let stores = host.stores().into_iter();
            // What has left the cluster stays open on its server until that starts again.
            for (target, store) in
                stores.filter(|(id, _)| map.targets.iter().any(|target| target.id == *id))
            {
                let page = store.chunks_after(None, |_| true, 10)?;
                if let Some(chunk) = page.chunks.first() {
                    return Ok(Some(format!("target {target} has {:?}", chunk.id)));
                }
                let stat = store.stat();
                let used = stat.total_bytes.saturating_sub(stat.free_bytes);
                if used > 0 {
                    return Ok(Some(format!("target {target} has no chunk and {used} bytes")));
                }
            }
        }
        let keys = self.metadata_keys().await?;
        let inodes = keys.iter().filter(|key| key.first() == Some(&INODE)).count();
        // Each volume has its root.
        Ok((inodes > map.living().count()).then(|| format!("{inodes} inodes")))
    }

    /// Records of files and sessions, when there are none.
    async fn records_left(&self) -> Result<Option<String>> {
        let mut keys = self.metadata_keys().await?;
        keys.retain(|key| key.first().is_some_and(|kind| OF_FILES.contains(kind)));
        let count = keys.len();
        keys.truncate(SHOWN);
        Ok((count > 0).then(|| format!("{count} records, as {keys:?}")))
    }

    /// The keys of everything that the metadata store holds.
    async fn metadata_keys(&self) -> Result<Vec<Bytes>> {
        let head = self.hosts.iter().find(|host| host.number == HEAD);
        let Some(head) = head else { return Ok(Vec::new()) };
        let stored = |e: strake_engine::kv::KvError| Error::with(ErrorKind::Io, e.to_string());
        let pairs = head.metadata().await.map_err(stored)?;
        Ok(pairs.into_iter().map(|(key, _)| key).collect())
    }
}

const _: () = assert!(SERVERS_MAX < CLIENTS_FROM, "machines have one number each");
const _: () = assert!(GroupId::of_class(1, 0).0 == 0, "groups of one copy are numbered from 0");
