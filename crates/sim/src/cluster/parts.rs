//! Several clients write to one file that all have open: mostly each to a part of its own, which it may claim (S-014), and now
//! and then to one of another client, or to one that all write to; they read it, look at it, and cut it, while all else is well.
//! But in some runs its metadata server is killed meanwhile and comes back, or another one takes its place; and in some the file
//! gets another number of copies while all have it open, as soon as they rest: after a rest each writes, syncs and reads (0043).
//!
//! While there is trouble one client writes each file, so that a reader knows what may be there. This has a time of its own, as
//! `quiet` has: each read has to show what was written last, whoever holds that back. In some runs one of them dies at the
//! end: what it had not synced may be lost, and nothing else.

use super::Cluster;
use super::end::WHOLE_BOUND;
use super::host::Host;
use super::locks::make_file;
use super::mount::{CLIENTS_FROM, Mount};
use super::places::cred;
use super::register::{BLOCK, mark_of};
use super::world::{Power, World};
use bytes::Bytes;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strake_base::count_case;
use strake_base::random::SplitMix64;
use strake_client::{OpenFile, OpenFlags};
use strake_model::history::contents::{Last, Use};
use strake_model::history::{Operation, Verdict, judge};
use strake_types::{Error, ErrorKind, Ino, Result, SetAttr};
use strake_wire::message::manager::ManagerOp;
use tokio::sync::Notify;

/// Seeds that have such a time, of a hundred.
const SEEDS: u64 = 50;
/// Seeds in which one of the clients dies at its end.
const DEATHS: u64 = 30;
/// Seeds in which the file is cut.
const CUTS: u64 = 40;
/// Seeds in which the metadata server is killed meanwhile.
const STRIKES: u64 = 40;
/// Seeds in which the file gets another number of copies meanwhile.
const MOVES: u64 = 50;
/// The longest time until that is ordered, in ms.
const MOVE_WITHIN_MS: u64 = 30_000;
/// Between two orders, if the first is not heard.
const ORDER: Duration = Duration::from_secs(1);
/// How often a client gives the sign for a kill, of a hundred deeds.
const SIGNS: u64 = 4;
/// For how long it may be away, in ms.
const AWAY_MS: [u64; 4] = [50, 800, 2_000, 4_000];
/// Until it may be killed again.
const CALM: Duration = Duration::from_secs(10);
/// Numbers of the machines of these clients begin here.
const MOUNTS_FROM: u32 = CLIENTS_FROM + 80;
/// The name of the file.
const NAME: &str = "parts";
/// Its number in marks.
const FILE: u32 = 1 << 25;
/// Between two slots, of which each is a block: half of the least that is claimed.
const STRIDE: u64 = 512 << 10;
/// Slots that are a client's own.
const OWN: u64 = 4;
/// Slots that all write to.
const COMMON: u64 = 2;
/// How often clients first only write for a while, and then do all there is.
const ROUNDS: usize = 3;
/// What each does in either part of a round.
const DEEDS: usize = 14;
/// How often one looks at the file where all only write, of a hundred deeds: nothing is called back by that.
const LOOKS: u64 = 20;
/// Between two rounds, and before it is used in another way if it may lie elsewhere by then: after that ranges may be claimed
/// again.
const REST: Duration = Duration::from_secs(20);
/// Longest pause between two deeds, in ms.
const PAUSE_MS: u64 = 60;

/// Something that was done to a slot, or to all.
struct Deed {
    client: u32,
    slot: Option<u64>,
    what: Use,
    began: u64,
    ended: u64,
    /// It stays if its client dies.
    synced: bool,
}

/// The file, and what was done to it.
struct Parts {
    world: Arc<World>,
    directory: Ino,
    ino: Ino,
    clients: u64,
    cuts: bool,
    /// It gets another number of copies while it is used.
    moves: bool,
    strikes: Strikes,
    deeds: Mutex<Vec<Deed>>,
    /// Counts beginnings and ends.
    events: AtomicU64,
    /// The last mark.
    marks: AtomicU64,
}

/// When the metadata server is killed.
struct Strikes {
    /// It is in this run.
    wanted: bool,
    /// It is now, or clients have come to their end.
    sign: Notify,
    /// That was given, and what follows from it is not over.
    is_given: AtomicBool,
    is_over: AtomicBool,
}

impl Cluster {
    /// Clients write parts of one file, if it is the turn of this seed.
    pub(super) async fn write_parts(&self) -> Result<()> {
        let (mut random, mut moving) = (self.world.stream(0x900f), self.world.stream(0x9010));
        // Where primaries acknowledge alone, who has not synced is told of a loss when another one leads (0040).
        if !random.percent(SEEDS) || self.plan.acknowledges_alone() {
            return Ok(());
        }
        let mut mounts = Vec::new();
        for nth in 0..self.plan.clients {
            mounts.push(Mount::start(&self.world, &self.plan, MOUNTS_FROM + nth).await?);
        }
        let Some(first) = mounts.first().cloned() else { return Ok(()) };
        let directory = self.directories.get(0);
        let parts = Arc::new(Parts {
            world: self.world.clone(),
            directory,
            ino: make_file(&first, directory, NAME.into()).await?,
            clients: self.plan.clients.into(),
            cuts: random.percent(CUTS),
            moves: moving.percent(MOVES),
            strikes: Strikes::new(random.percent(STRIKES)),
            deeds: Mutex::default(),
            events: AtomicU64::new(0),
            marks: AtomicU64::new(0),
        });
        let copies = parts.copies(&first).await?;
        tokio::select! {
            biased;
            used = self.use_parts(&parts, &mounts, ROUNDS, &mut random) => used?,
            never = self.move_parts(&parts, copies, &mut moving) => match never {},
        }
        if parts.moves {
            self.end_copying().await?;
            if parts.copies(&first).await? != copies {
                count_case("part-file-moved");
            }
        }
        if random.percent(DEATHS) {
            parts.kill(&first, &mut random).await?;
            mounts.remove(0);
            self.use_parts(&parts, &mounts, 1, &mut random).await?;
        }
        parts.compare(&mounts).await?;
        parts.judge_all();
        if parts.strikes.wanted {
            let what = "all copies are equal after a metadata server was killed";
            self.wait(WHOLE_BOUND, what, async |cluster| cluster.is_whole().await).await?;
        }
        let Some(last) = mounts.last() else { return Ok(()) };
        let cred = cred();
        let removed = last.volume.unlink(&cred, directory, NAME.into());
        last.call("unlink what all have written to", removed).await?;
        for mount in &mounts {
            mount.close().await?;
        }
        Ok(())
    }

    /// All clients use the file, and its metadata server is killed whenever one of them gives the sign.
    async fn use_parts(
        &self,
        parts: &Arc<Parts>,
        mounts: &[Arc<Mount>],
        rounds: usize,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let chance = SplitMix64::new(random.next_number());
        parts.strikes.begin();
        let used = async {
            let used = parts.use_by_all(mounts, rounds, random).await;
            parts.strikes.end();
            used
        };
        tokio::join!(used, self.strike_at_signs(&parts.strikes, chance)).0
    }

    /// Has the file copied, and switched over as soon as nobody writes to it. What is done then goes on as long as it is used.
    async fn move_parts(&self, parts: &Parts, copies: u32, random: &mut SplitMix64) -> Infallible {
        if parts.moves {
            pause(MOVE_WITHIN_MS, random).await;
            // There are always places for two.
            while self.order_copies(parts.ino, if copies == 2 { 1 } else { 2 }).await.is_err() {
                tokio::time::sleep(ORDER).await;
            }
        }
        std::future::pending().await
    }

    async fn order_copies(&self, ino: Ino, copies: u32) -> Result<()> {
        let plan = self.recopy_of(&self.map().await?, ino, copies);
        self.order(ManagerOp::Plan(plan)).await.map(drop)
    }

    async fn strike_at_signs(&self, strikes: &Strikes, mut random: SplitMix64) {
        loop {
            strikes.sign.notified().await;
            if strikes.is_over.load(Ordering::Relaxed) {
                return;
            }
            let away = AWAY_MS[random.below(AWAY_MS.len() as u64) as usize];
            let hosts = self.with_names().await.unwrap_or_default();
            if let Some(host) = hosts.get(random.below(hosts.len() as u64) as usize) {
                count_case("part-server-killed");
                host.crash(Power::On).await;
                tokio::time::sleep(Duration::from_millis(away)).await;
                self.start(host).await;
            }
            tokio::time::sleep(CALM).await;
            strikes.is_given.store(false, Ordering::Relaxed);
        }
    }

    /// The machines whose servers have the names of a volume, or of a share of one.
    async fn with_names(&self) -> Result<Vec<Arc<Host>>> {
        let map = self.map().await?;
        let serves = |host: &&Arc<Host>| map.volumes.iter().any(|v| v.meta_server == host.number);
        Ok(self.members().filter(serves).cloned().collect())
    }
}

impl Strikes {
    fn new(wanted: bool) -> Self {
        let (sign, is_given, is_over) = Default::default();
        Self { wanted, sign, is_given, is_over }
    }

    fn begin(&self) {
        self.is_given.store(false, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }

    /// By chance, after a deed.
    fn may_begin(&self, random: &mut SplitMix64) {
        if self.wanted && random.percent(SIGNS) && !self.is_given.swap(true, Ordering::Relaxed) {
            self.sign.notify_one();
        }
    }

    /// Nobody gives a sign any more.
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.sign.notify_one();
    }
}

impl Parts {
    /// All clients use the file at the same time.
    async fn use_by_all(
        self: &Arc<Self>,
        mounts: &[Arc<Mount>],
        rounds: usize,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let mut work = Vec::new();
        for mount in mounts {
            let (parts, own) = (self.clone(), mount.clone());
            let random = SplitMix64::new(random.next_number());
            work.push(mount.process.spawn(async move { parts.work(&own, rounds, random).await }));
        }
        for part in work {
            part.await.map_err(gone)??;
        }
        Ok(())
    }

    async fn work(&self, mount: &Mount, rounds: usize, mut random: SplitMix64) -> Result<()> {
        let mut open = self.open(mount, OpenFlags::READ_WRITE).await?;
        for _ in 0..rounds {
            for _ in 0..DEEDS {
                let slot = self.own_slot(mount, &mut random);
                self.write(mount, &open, slot).await?;
                if random.percent(LOOKS) {
                    self.look(mount).await?;
                }
                self.strikes.may_begin(&mut random);
                pause(PAUSE_MS, &mut random).await;
            }
            for _ in 0..DEEDS {
                self.do_one(mount, &mut open, &mut random).await?;
                self.strikes.may_begin(&mut random);
                pause(PAUSE_MS, &mut random).await;
            }
            tokio::time::sleep(REST).await;
            if self.moves {
                self.go_on(mount, &open, &mut random).await?;
                tokio::time::sleep(REST).await;
            }
        }
        self.close(mount, &open).await
    }

    /// After a rest: what is written goes where the file lies by now, and is read there.
    async fn go_on(
        &self,
        mount: &Mount,
        open: &Arc<OpenFile>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let slot = self.own_slot(mount, random);
        self.write(mount, open, slot).await?;
        self.sync(mount, open).await?;
        for slot in 0..self.slots() {
            self.read(mount, open, slot).await?;
        }
        Ok(())
    }

    async fn do_one(
        &self,
        mount: &Mount,
        open: &mut Arc<OpenFile>,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let slot = match random.percent(50) {
            true => self.own_slot(mount, random),
            false => random.below(self.slots()),
        };
        match random.below(20) {
            0..8 => self.write(mount, open, slot).await,
            8..11 => self.read(mount, open, slot).await.map(drop),
            11 => self.find(mount, open, slot).await,
            12..14 => self.look(mount).await,
            14 => self.sync(mount, open).await,
            15 => {
                let other = self.open(mount, OpenFlags::READ).await?;
                self.read(mount, &other, slot).await?;
                self.close(mount, &other).await
            }
            16 => {
                self.close(mount, open).await?;
                *open = self.open(mount, OpenFlags::READ_WRITE).await?;
                Ok(())
            }
            17 if self.cuts => self.cut(mount, open).await,
            _ => {
                pause(2_500, random).await;
                Ok(())
            }
        }
    }

    /// How many copies it has.
    async fn copies(&self, mount: &Mount) -> Result<u32> {
        let attr = mount.call("stat parts", mount.volume.getattr(self.ino)).await?;
        Ok(attr.layout.map_or(0, |layout| layout.copies()))
    }

    fn slots(&self) -> u64 {
        self.clients * OWN + COMMON
    }

    fn own_slot(&self, mount: &Mount, random: &mut SplitMix64) -> u64 {
        u64::from(mount.number - MOUNTS_FROM) * OWN + random.below(OWN)
    }

    fn event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed)
    }

    fn note(&self, mount: &Mount, slot: Option<u64>, what: Use, began: u64, is_over: bool) {
        let ended = if is_over { self.event() } else { u64::MAX };
        let (client, synced) = (mount.number, false);
        self.deeds.lock().push(Deed { client, slot, what, began, ended, synced });
    }

    async fn open(&self, mount: &Mount, flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let cred = cred();
        let open = mount.volume.open(&cred, self.ino, flags);
        mount.call("open parts", open).await
    }

    /// By its name, and then reads what was open before.
    async fn find(&self, mount: &Mount, open: &Arc<OpenFile>, slot: u64) -> Result<()> {
        let cred = cred();
        let found = mount.volume.lookup(&cred, self.directory, NAME.into());
        mount.call("lookup parts", found).await?;
        self.read(mount, open, slot).await.map(drop)
    }

    /// How long it is: nothing may be behind its end of which a write has returned.
    async fn look(&self, mount: &Mount) -> Result<()> {
        let least = self.least_length();
        let attr = mount.call("stat parts", mount.volume.getattr(self.ino)).await?;
        if !self.cuts && attr.length < least {
            let (number, length) = (mount.number, attr.length);
            let shown = format!("client {number} is shown {length} bytes of a file of {least}");
            self.world.fail(shown);
        }
        Ok(())
    }

    /// The end of what was written so far, unless that may be lost.
    fn least_length(&self) -> u64 {
        let deeds = self.deeds.lock();
        let written = |deed: &&Deed| matches!(deed.what, Use::Write(_)) && deed.ended != u64::MAX;
        let slots = deeds.iter().filter(written).filter_map(|deed| deed.slot);
        slots.map(|slot| slot * STRIDE + BLOCK).max().unwrap_or(0)
    }

    async fn close(&self, mount: &Mount, open: &Arc<OpenFile>) -> Result<()> {
        mount.call("close parts", mount.volume.release(open)).await
    }

    async fn write(&self, mount: &Mount, open: &Arc<OpenFile>, slot: u64) -> Result<()> {
        let (mark, began) = (self.marks.fetch_add(1, Ordering::Relaxed) + 1, self.event());
        let data = bytes_of(slot, mark);
        let written = mount.volume.write(open, slot * STRIDE, data);
        let written = mount.call(&format!("write part {slot} mark {mark}"), written).await;
        self.note(mount, Some(slot), Use::Write(mark), began, written.is_ok());
        written.map(drop)
    }

    /// What is there.
    async fn read(&self, mount: &Mount, open: &Arc<OpenFile>, slot: u64) -> Result<u64> {
        let began = self.event();
        let read = mount.volume.read(open, slot * STRIDE, BLOCK as u32);
        let bytes = mount.call(&format!("read part {slot}"), read).await?.into_bytes();
        let seen = match mark_of(&bytes) {
            // Behind the end of the file, or nothing was written there.
            None if bytes.is_empty() => 0,
            Some(None) => 0,
            Some(Some((FILE, of, mark))) if u64::from(of) == slot => mark,
            other => {
                self.world.fail(format!("part {slot} of a file has {other:?}"));
                0
            }
        };
        self.note(mount, Some(slot), Use::Read(seen), began, true);
        Ok(seen)
    }

    async fn sync(&self, mount: &Mount, open: &Arc<OpenFile>) -> Result<()> {
        let before = self.deeds.lock().len();
        mount.call("fsync parts", mount.volume.fsync(open, false)).await?;
        let mut deeds = self.deeds.lock();
        let own = deeds.iter_mut().take(before).filter(|deed| deed.client == mount.number);
        own.for_each(|deed| deed.synced = true);
        Ok(())
    }

    async fn cut(&self, mount: &Mount, open: &Arc<OpenFile>) -> Result<()> {
        let began = self.event();
        let change = SetAttr { length: Some(0), ..SetAttr::default() };
        let cred = cred();
        let cut = mount.volume.setattr(&cred, self.ino, change, Some(open));
        let cut = mount.call("cut parts", cut).await;
        self.note(mount, None, Use::Write(0), began, cut.is_ok());
        cut.map(drop)
    }

    /// A client writes, and dies. What it has not synced may come yet, or never.
    async fn kill(self: &Arc<Self>, mount: &Arc<Mount>, random: &mut SplitMix64) -> Result<()> {
        let (parts, own) = (self.clone(), mount.clone());
        let random = SplitMix64::new(random.next_number());
        let writing = mount.process.spawn(async move { parts.write_last(&own, random).await });
        writing.await.map_err(gone)??;
        self.world.note(format_args!("client {} dies", mount.number));
        mount.process.kill();
        let mut deeds = self.deeds.lock();
        let is_lost =
            |deed: &&mut Deed| deed.client == mount.number && !deed.synced && deed.slot.is_some();
        let writes = deeds.iter_mut().filter(is_lost);
        let writes = writes.filter(|deed| matches!(deed.what, Use::Write(_)));
        writes.for_each(|deed| deed.ended = u64::MAX);
        Ok(())
    }

    /// All that was written before is synced: what may be lost is little.
    async fn write_last(&self, mount: &Mount, mut random: SplitMix64) -> Result<()> {
        let open = self.open(mount, OpenFlags::READ_WRITE).await?;
        self.sync(mount, &open).await?;
        for _ in 0..OWN {
            let slot = self.own_slot(mount, &mut random);
            self.write(mount, &open, slot).await?;
        }
        Ok(())
    }

    /// When nobody writes any more all see the same.
    async fn compare(&self, mounts: &[Arc<Mount>]) -> Result<()> {
        let mut first = Vec::new();
        for mount in mounts {
            let open = self.open(mount, OpenFlags::READ_WRITE).await?;
            let mut seen = Vec::new();
            for slot in 0..self.slots() {
                seen.push(self.read(mount, &open, slot).await?);
            }
            self.close(mount, &open).await?;
            if first.is_empty() {
                first.clone_from(&seen);
            }
            if first != seen {
                self.world.fail(format!("one client reads {first:?}, another one {seen:?}"));
            }
        }
        Ok(())
    }

    fn judge_all(&self) {
        let deeds = self.deeds.lock();
        for read in deeds.iter().filter(|deed| matches!(deed.what, Use::Read(_))) {
            let is_of = |deed: &&Deed| {
                let of = deed.slot.is_none() || deed.slot == read.slot;
                of && matches!(deed.what, Use::Write(_))
            };
            let writes = deeds.iter().filter(is_of).chain([read]);
            let history: Vec<Operation<Last>> = writes.map(Deed::operation).collect();
            match judge(Last(0), &history) {
                Verdict::Fits => count_case("part-judged"),
                Verdict::TooLong => count_case("part-not-judged"),
                Verdict::Impossible(why) => {
                    self.world.fail(format!("part {:?} of a file: {why}", read.slot));
                }
            }
        }
    }
}

impl Deed {
    fn operation(&self) -> Operation<Last> {
        let Deed { client, what, began, ended, .. } = *self;
        Operation { client, ask: what, told: (), began, ended }
    }
}

fn gone(_ended: tokio::task::JoinError) -> Error {
    Error::with(ErrorKind::Unavailable, "a client is gone that nobody has killed")
}

async fn pause(longest_ms: u64, random: &mut SplitMix64) {
    tokio::time::sleep(Duration::from_millis(random.below(longest_ms))).await;
}

/// A block of a slot.
fn bytes_of(slot: u64, mark: u64) -> Bytes {
    let one = [&FILE.to_le_bytes()[..], &(slot as u32).to_le_bytes(), &mark.to_le_bytes()].concat();
    one.repeat(BLOCK as usize / one.len()).into()
}
