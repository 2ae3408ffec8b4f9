//! The workload on a file to which all clients append without a lock (S-042): when all is over each record that was
//! acknowledged is there exactly once, as a whole, and those of one client in the order in which it has written them.
//!
//! A record consists of units, each of which says whose record it is of and which part of it. So a record is found wherever it
//! lies, and a part of one is none: what an append that failed has left may be anything.
//!
//! Who has the file alone holds back what he has appended. If he is cut off while another metadata server begins, nobody
//! asks him before others append (S-014), and what he sends when he is back may lie where theirs does. So what is acknowledged
//! until then counts for nothing.

use super::files::{DROPPED, DROPPED_AFTER_MS, consider};
use super::mount::{DEAD_OVER, Mount};
use super::places::Directories;
use super::plan::Plan;
use super::world::World;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strake_base::random::SplitMix64;
use strake_client::{OpenFile, OpenFlags};
use strake_types::{Credentials, Ino, Result};

/// Bytes of a unit.
const UNIT: usize = 16;
/// How a unit begins.
const MAGIC: u32 = 0x7265_636f;
/// Most units of a record.
const UNITS_MAX: u64 = 300;
/// Records of all clients together, after which none is appended any more.
const RECORDS_MAX: u32 = 400;
/// Bytes that are read at once.
const READ_BYTES: u32 = 32 << 10;
/// Name of the file.
const NAME: &str = "appends";

/// How surely a record is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Surety {
    /// Nobody was told that it is.
    Sent,
    /// It survives the death of processes.
    Told,
    /// It survives a loss of power.
    Synced,
}

/// What was appended.
#[derive(Debug, Default)]
struct Records {
    /// Units and surety of each, by client and number.
    all: BTreeMap<(u32, u32), (usize, Surety)>,
    count: u32,
    /// Records up to here may have been lost with the power of machines: only an `fsync` says that they were not.
    lossy: u32,
    /// Clients that hold back records; true: a metadata server has begun since, which may not have asked them.
    holding: BTreeMap<u32, bool>,
    /// Of records up to here which were not acknowledged then nobody knows whether others lie there.
    covered: u32,
    /// A client died that held back some, and may not have been waited for since.
    is_spoilt: bool,
    /// One died that held back some, and until then it may matter.
    dead_until: Option<Duration>,
    /// What is not synced may be lost, at any time until copies are equal again.
    shaky: bool,
    /// One copy acknowledges alone: so it is all the time.
    alone: bool,
}

impl Records {
    fn begin(&mut self, client: u32, units: usize, now: Duration) -> (u32, Bytes) {
        self.settle(now);
        self.count += 1;
        self.holding.entry(client).or_default();
        self.all.insert((client, self.count), (units, Surety::Sent));
        (self.count, record(client, self.count, units))
    }

    fn acknowledged(&mut self, client: u32, numbers: &[u32], synced: bool) {
        let missed = self.is_spoilt || self.holding.values().any(|missed| *missed);
        for number in numbers {
            let surety = match synced {
                _ if missed || *number <= self.covered => Surety::Sent,
                true => Surety::Synced,
                false if self.shaky || *number <= self.lossy => Surety::Sent,
                false => Surety::Told,
            };
            if let Some((_, known)) = self.all.get_mut(&(client, *number)) {
                *known = (*known).max(surety);
            }
        }
    }

    /// A client holds back nothing any more.
    fn released(&mut self, client: u32) {
        if self.holding.remove(&client) == Some(true) {
            self.covered = self.count;
        }
    }

    fn died(&mut self, client: u32, now: Duration) {
        self.settle(now);
        let missed = self.holding.remove(&client);
        if missed.is_some() {
            self.dead_until = Some(now + DEAD_OVER);
        }
        self.is_spoilt |= missed == Some(true);
    }

    /// The dead do not matter any more, once it is long enough since the last died or a metadata server began.
    fn settle(&mut self, now: Duration) {
        if self.dead_until.take_if(|until| *until <= now).is_some() && self.is_spoilt {
            (self.is_spoilt, self.covered) = (false, self.count);
        }
    }

    /// A metadata server begins, which waits for clients of before for a while only.
    fn may_be_missed(&mut self, now: Duration) {
        self.settle(now);
        self.holding.values_mut().for_each(|missed| *missed = true);
        self.is_spoilt |= self.dead_until.is_some();
        self.dead_until = self.dead_until.map(|_| now + DEAD_OVER);
    }

    fn power_lost(&mut self) {
        (self.shaky, self.lossy) = (true, self.count);
        for (_, surety) in self.all.values_mut().filter(|(_, known)| *known == Surety::Told) {
            *surety = Surety::Sent;
        }
    }

    fn whole_again(&mut self) {
        if self.shaky {
            self.power_lost();
            self.shaky = self.alone;
        }
    }

    /// Looks for all records in what the file holds.
    ///
    /// # Errors
    /// One that was acknowledged is not there, or twice, or before an earlier one of its client.
    fn check(&self, bytes: &[u8]) -> std::result::Result<(), String> {
        let mut found: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        let mut at = 0;
        while at + UNIT <= bytes.len() {
            match self.record_at(&bytes[at..]) {
                Some((who, len)) => {
                    found.entry(who).or_default().push(at);
                    at += len;
                }
                None => at += 1,
            }
        }
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        let sure = self.all.iter().filter(|(_, (_, surety))| *surety > Surety::Sent);
        for ((client, number), (units, surety)) in sure {
            let places = found.get(&(*client, *number)).map(Vec::as_slice).unwrap_or_default();
            let shown = format!("record {number} of client {client}, {units} units, {surety:?}");
            let [place] = places else { return Err(format!("{shown}, is at {places:?}")) };
            if let Some(before) = last.insert(*client, *place).filter(|before| before > place) {
                return Err(format!("{shown}, is at {place}, and an earlier one at {before}"));
            }
        }
        Ok(())
    }

    /// The record that begins here as a whole, and its length.
    fn record_at(&self, bytes: &[u8]) -> Option<((u32, u32), usize)> {
        let word = |nth: usize| Some(u32::from_le_bytes(*bytes.get(nth * 4..)?.first_chunk()?));
        let who = (word(1)?, word(2)?);
        if word(0)? != MAGIC || word(3)? != 0 {
            return None;
        }
        let (units, _) = self.all.get(&who)?;
        let whole = record(who.0, who.1, *units);
        bytes.starts_with(&whole).then_some((who, whole.len()))
    }
}

fn record(client: u32, number: u32, units: usize) -> Bytes {
    let unit = |nth: u32| [MAGIC, client, number, nth].map(u32::to_le_bytes);
    (0..units as u32).flat_map(unit).flatten().collect()
}

/// The file, and what was appended to it.
pub struct Appends {
    world: Arc<World>,
    /// There is such a file.
    any: bool,
    ino: Mutex<Ino>,
    records: Mutex<Records>,
    directories: Arc<Directories>,
    /// Longest pause of a client between two uses.
    pause_ms: u64,
}

impl Appends {
    /// The file of a plan.
    pub fn new(world: &Arc<World>, plan: &Plan, directories: &Arc<Directories>) -> Arc<Self> {
        let alone = plan.acknowledges_alone();
        let records = Mutex::new(Records { shaky: alone, alone, ..Records::default() });
        let (any, pause_ms, ino) = (plan.appends, plan.pause_ms * 2, Mutex::default());
        let (world, directories) = (world.clone(), directories.clone());
        Arc::new(Self { world, any, ino, records, directories, pause_ms })
    }

    /// Machines have lost power, and with it what nobody else had.
    pub fn power_lost(&self) {
        self.records.lock().power_lost();
    }

    /// A metadata server begins.
    pub fn may_be_missed(&self) {
        self.records.lock().may_be_missed(self.world.now());
    }

    /// A client is gone, and what it held back is never sent; what it had sent may arrive.
    pub fn forget(&self, mount: &Mount) {
        self.records.lock().died(mount.number, self.world.now());
    }

    /// When a client that died does not matter any more; `None`: by now.
    pub fn dead_until(&self) -> Option<Duration> {
        self.records.lock().dead_until
    }

    /// All copies are equal again.
    pub fn whole_again(&self) {
        self.records.lock().whole_again();
    }

    /// Makes it, empty.
    pub async fn make(&self, mount: &Mount) -> Result<()> {
        if !self.any {
            return Ok(());
        }
        let (cred, directory) = (Credentials::root(), self.directories.get(0));
        let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
        let made = mount.volume.create(&cred, directory, NAME.into(), 0o644, 0, flags);
        let (attr, open, _) = mount.call("create a file to append to", made).await?;
        *self.ino.lock() = attr.ino;
        mount.call("close it", mount.volume.release(&open)).await
    }

    /// Appends until the workload ends.
    pub async fn work_on(&self, mount: &Mount, mut random: SplitMix64, is_over: impl Fn() -> bool) {
        while self.any && !is_over() {
            let outcome = self.use_once(mount, &mut random).await;
            consider(&self.world, outcome.err().map(|error| error.kind));
            tokio::time::sleep(Duration::from_millis(random.below(self.pause_ms))).await;
        }
    }

    async fn open(&self, mount: &Mount, flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let (cred, ino) = (Credentials::root(), *self.ino.lock());
        mount.call("open to append", mount.volume.open(&cred, ino, flags)).await
    }

    async fn use_once(&self, mount: &Mount, random: &mut SplitMix64) -> Result<()> {
        let flags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
        let open = self.open(mount, flags).await?;
        let used = self.use_open(mount, &open, random);
        self.world.lengthening(mount.number, open.ino(), used).await
    }

    async fn use_open(
        &self,
        mount: &Mount,
        open: &Arc<OpenFile>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let mut numbers = Vec::new();
        let mut outcome = Ok(());
        for _ in 0..1 + random.below(4) {
            outcome = self.append(mount, open, &mut numbers, random).await;
            if outcome.is_ok() && random.percent(30) {
                outcome = mount.call("fsync appends", mount.volume.fsync(open, false)).await;
                self.told(mount, &numbers, outcome.is_ok(), true);
            }
            if outcome.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(random.below(500))).await;
        }
        let flushed = mount.call("flush appends", mount.volume.flush(open)).await;
        self.told(mount, &numbers, outcome.is_ok() && flushed.is_ok(), false);
        let released = mount.call("close appends", mount.volume.release(open)).await;
        if flushed.is_ok() && released.is_ok() {
            self.records.lock().released(mount.number);
        }
        outcome.and(flushed).and(released)
    }

    fn told(&self, mount: &Mount, numbers: &[u32], is_ok: bool, synced: bool) {
        if is_ok {
            self.records.lock().acknowledged(mount.number, numbers, synced);
        }
    }

    async fn append(
        &self,
        mount: &Mount,
        open: &Arc<OpenFile>,
        numbers: &mut Vec<u32>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let units = 1 + random.below(UNITS_MAX) as usize;
        let (number, bytes) = {
            let mut records = self.records.lock();
            if records.count >= RECORDS_MAX {
                return Ok(());
            }
            records.begin(mount.number, units, self.world.now())
        };
        let what = format!("append record {number} of {units} units");
        let write = mount.volume.write(open, 0, bytes);
        if !random.percent(DROPPED) {
            mount.call(&what, write).await?;
            numbers.push(number);
            return Ok(());
        }
        // Its process is killed: nobody was told anything, unless it had ended by then.
        let life = Duration::from_millis(random.below(DROPPED_AFTER_MS));
        match mount.call_for(&what, life, write).await? {
            Some(_) => numbers.push(number),
            None => {
                strake_base::count_case("append-dropped");
                self.world.remains.lock().of_failed.insert(open.ino());
            }
        }
        Ok(())
    }

    /// Looks for all records, and removes the file.
    pub async fn end(&self, mount: &Mount) -> Result<()> {
        if !self.any {
            return Ok(());
        }
        let open = self.open(mount, OpenFlags::READ).await?;
        let (len, mut bytes) = (open.attr().length, Vec::<u8>::new());
        while (bytes.len() as u64) < len {
            let read = mount.volume.read(&open, bytes.len() as u64, READ_BYTES);
            let part = mount.call("read appends", read).await?.into_bytes();
            if part.is_empty() {
                break;
            }
            bytes.extend(&part);
        }
        mount.call("close appends", mount.volume.release(&open)).await?;
        let (checked, is_spoilt) = {
            let mut records = self.records.lock();
            records.settle(self.world.now());
            (records.check(&bytes), records.is_spoilt)
        };
        match checked {
            Ok(()) if is_spoilt => strake_base::count_case("appends-judged-in-part"),
            Ok(()) => strake_base::count_case("appends-judged"),
            Err(what) => self.world.fail(format!("of {} bytes appended: {what}", bytes.len())),
        }
        let (cred, directory) = (Credentials::root(), self.directories.get(0));
        let removed = mount.volume.unlink(&cred, directory, NAME.into());
        mount.call("unlink appends", removed).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn acknowledged_records_are_there_once_whole_and_in_order() {
        let mut records = Records::default();
        let (first, a) = records.begin(1, 3, NOW);
        let (_, failed) = records.begin(2, 5, NOW);
        let (second, b) = records.begin(1, 2, NOW);
        records.acknowledged(1, &[first, second], false);
        let left = &failed[..failed.len() - 7];
        assert_eq!(records.check(&[&a[..], left, &b[..], &[0; 9][..]].concat()), Ok(()));
        assert!(records.check(&[&a[..], left].concat()).unwrap_err().contains("at []"));
        assert!(
            records.check(&[&a[..], &b[..], &a[..]].concat()).unwrap_err().contains("at [0, 80]")
        );
        assert!(records.check(&[&b[..], &a[..]].concat()).unwrap_err().contains("an earlier one"));
        assert!(records.check(&[&a[..a.len() - 1], &b[..]].concat()).is_err(), "it is torn");
    }

    #[test]
    fn who_is_missed_by_a_new_metadata_server_may_cover_what_others_append_until_it_has_told() {
        let mut records = Records::default();
        records.begin(1, 1, NOW);
        records.may_be_missed(NOW);
        let (other, _) = records.begin(2, 1, NOW);
        records.acknowledged(2, &[other], true);
        let (late, _) = records.begin(2, 1, NOW);
        records.released(1);
        records.acknowledged(2, &[late], true);
        records.released(2);
        assert_eq!(records.check(&[]), Ok(()));
        let (later, _) = records.begin(2, 1, NOW);
        records.acknowledged(2, &[later], true);
        assert!(records.check(&[]).is_err());
    }

    /// One dead client ended the check for the rest of a run.
    #[test]
    fn a_client_that_died_excuses_nothing_any_more_when_it_is_long_enough_ago() {
        let mut records = Records::default();
        records.begin(1, 1, NOW);
        records.died(1, NOW);
        let tick = Duration::from_millis(1);
        let last = DEAD_OVER - tick;
        records.may_be_missed(last);
        for now in [last, DEAD_OVER, last + DEAD_OVER - tick] {
            let (number, _) = records.begin(2, 1, now);
            records.acknowledged(2, &[number], true);
            assert_eq!(records.check(&[]), Ok(()), "it may have been missed: {now:?}");
        }
        let now = last + DEAD_OVER;
        records.begin(2, 1, now);
        records.may_be_missed(now);
        assert!(!records.is_spoilt, "the dead are over");
        records.released(2);
        let (number, _) = records.begin(2, 1, now);
        records.acknowledged(2, &[number], true);
        assert!(records.check(&[]).is_err());
    }

    #[test]
    fn a_loss_of_power_takes_records_that_were_not_synced() {
        let mut records = Records::default();
        let (first, _) = records.begin(1, 1, NOW);
        let (second, b) = records.begin(1, 1, NOW);
        records.acknowledged(1, &[first], false);
        records.power_lost();
        records.acknowledged(1, &[second], true);
        assert_eq!(records.check(&b), Ok(()));
        records.whole_again();
        let (third, _) = records.begin(1, 1, NOW);
        records.acknowledged(1, &[third], false);
        assert!(records.check(&b).is_err(), "copies were equal again");
    }
}
