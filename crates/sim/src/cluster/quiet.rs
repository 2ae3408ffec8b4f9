//! One server is lost, or the way between two, while all else is well: for how long do those who read and write wait?
//!
//! While there is other trouble nobody can say how long a call may take, so this has a time of its own: all copies are equal,
//! all servers are up, and the network is as it is on a good day of the plan. Clients write their own files and sync each
//! write, and read those of the others from the servers, also what is being written just then. Beside that they make small
//! files, open them and remove them.

use super::Cluster;
use super::end::WHOLE_BOUND;
use super::files::Files;
use super::host::{HEAD, Host, SERVERS_MAX};
use super::mount::{CLIENTS_FROM, Mount};
use super::places::cred;
use super::plan::Plan;
use super::trouble::has_copies_beside;
use super::world::{Power, World};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_base::count_case;
use strake_base::random::SplitMix64;
use strake_client::{OpenFile, OpenFlags};
use strake_types::{Ino, Result};

/// How long a read may take while a server is lost: what waits for its lease takes 1.1 s where answers are slow. Of files that nobody
/// has open for writing that goes also for a server that had the names.
const READ_BOUND: Duration = Duration::from_secs(2);
/// The same where the primary alone may be asked: a server that nobody waits for at another one is taken out after 3 s.
const PRIMARY_READ_BOUND: Duration = Duration::from_secs(4);
/// How long a write may take, with the sync that follows it. Such a server is waited for as long.
const WRITE_BOUND: Duration = Duration::from_millis(4_500);
/// What that, or a read that the primary alone may answer, may take longer where the server may have led or had the names:
/// another one takes over first, and waits for the lost one from then on (4.94 s for a write in seed 2720000000158, 4.08 s for
/// such a read in seed 795736202240).
const TAKEOVER: Duration = Duration::from_millis(1_500);
/// How long a change of a name may take, or an open, while a server is lost that has no names: as if none were.
const NAME_BOUND: Duration = Duration::from_secs(1);
/// The same where it may have had them: another one takes over first, and waits for what mounts may believe (S-011). A read of what
/// another client has open may wait for that one to tell what it has written, and so for as long (3.2 s in seed 2863000223141).
const NAME_TAKEOVER_BOUND: Duration = Duration::from_secs(7);
/// How long a read or a write may take while two servers do not reach each other. A member that has not answered for a third of its time
/// (3.33 s) is asked whether it is there (3), and once more when it is named (3); the manager waits for 2 s, and who goes for 2 at
/// most for what it has acknowledged alone. That is 13.33. Between these are looks and heartbeats (0.6), and clocks differ by 4.5 %.
/// Where the way is needed in the other direction, too, and nobody has written there, the manager has the other one ask when it hears of
/// the first (3 and 0.6): 18.3 s. Who has waited so is kept from nothing by the first try, which is 5 s after that was decided.
const WAY_BOUND: Duration = Duration::from_secs(20);
/// Seeds that have such a time, of a hundred;
const SEEDS: u64 = 60;
/// and of these so many in which it is the way between two servers that is lost, where others keep the names.
const WAYS: u64 = 50;
/// How long all is well before the files are made, and before a server is lost. One that was started binds nobody any more
/// then. Its groups it leads again later, while clients are at work: nothing is told as lost for that.
const CALM: Duration = Duration::from_secs(4);
/// For how long a server is lost,
const LOST: Duration = Duration::from_secs(8);
/// or the way between two.
const WAY_LOST: Duration = Duration::from_secs(25);
/// Longest pause between two calls of a client, in ms.
const PAUSE_MS: u64 = 80;
/// Blocks of a file: three chunks.
const BLOCKS: u64 = 48;
/// Most blocks that are written or read at once.
const SPAN: u64 = 5;
/// Numbers of the machines of these clients begin here.
const MOUNTS_FROM: u32 = CLIENTS_FROM + 50;

/// What does not get from one server to another.
#[derive(Clone, Copy)]
enum Lack {
    /// Nothing, nor back.
    Both,
    /// Nothing: neither calls, nor answers to those of the other one.
    One,
    /// Calls.
    Calls,
}

/// What is lost.
enum Loss {
    Server(Arc<Host>),
    /// The way between two servers with these numbers.
    Way(u32, u32, Lack),
}

impl Loss {
    /// True if the names may go, too, or whoever leads.
    fn has_names(&self, plan: &Plan) -> bool {
        matches!(self, Self::Server(host) if host.number <= plan.metas)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(host) if host.number == HEAD => write!(f, "head {HEAD}"),
            Self::Server(host) => write!(f, "server {}", host.number),
            Self::Way(one, other, Lack::Both) => write!(f, "the way between {one} and {other}"),
            Self::Way(one, other, Lack::One) => write!(f, "the way from {one} to {other}"),
            Self::Way(one, other, Lack::Calls) => write!(f, "what {one} asks of {other}"),
        }
    }
}

/// What clients have waited for.
struct Waits {
    world: Arc<World>,
    /// A server, or a way, is lost.
    is_lost: AtomicBool,
    /// It is over.
    ending: AtomicBool,
    /// Primaries acknowledge alone. What is lost with one is told, and only they are asked for what is there.
    alone: bool,
    /// Each file is open for writing at one client, and read by the others.
    writes: bool,
    read: Mutex<Duration>,
    written: Mutex<Duration>,
    named: Mutex<Duration>,
}

impl Waits {
    /// A call that is to work; it is timed while a server, or a way, is lost.
    async fn time(&self, longest: &Mutex<Duration>, call: impl Future<Output = Result<()>>) {
        let began = self.world.now();
        let outcome = call.await;
        if self.is_lost.load(Ordering::Relaxed) {
            let mut longest = longest.lock();
            *longest = (*longest).max(self.world.now() - began);
        }
        if let (Err(error), false) = (outcome, self.alone) {
            self.world.fail(format!("one server or way was lost, and a client was told: {error}"));
        }
    }

    fn is_over(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }
}

/// A client, and its file.
#[derive(Clone)]
struct Probe {
    mount: Arc<Mount>,
    file: u32,
    files: Arc<Files>,
    waits: Arc<Waits>,
}

fn range(random: &mut SplitMix64) -> (u64, u64) {
    let first = random.below(BLOCKS);
    (first, 1 + random.below(SPAN.min(BLOCKS - first)))
}

async fn rest(random: &mut SplitMix64) {
    tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MS))).await;
}

impl Probe {
    async fn write_on(self, open: Arc<OpenFile>, mut random: SplitMix64) {
        while !self.waits.is_over() {
            let (first, count) = range(&mut random);
            let call = async {
                self.files.write(&self.mount, self.file, &open, first, count).await?;
                self.files.sync(&self.mount, self.file, &open).await
            };
            self.waits.time(&self.waits.written, call).await;
            rest(&mut random).await;
        }
        let _told = self.files.release(&self.mount, self.file, &open).await;
    }

    /// Makes files, opens and removes them.
    async fn name_on(self, directory: Ino, mut random: SplitMix64) {
        let mut nth = 0;
        while !self.waits.is_over() {
            nth += 1;
            let name = Bytes::from(format!("quiet-{}-{nth}", self.mount.number));
            let named = &self.waits.named;
            self.waits.time(named, self.make(directory, &name)).await;
            self.waits.time(named, self.open(directory, &name)).await;
            self.waits.time(named, self.remove(directory, &name)).await;
            rest(&mut random).await;
        }
    }

    async fn make(&self, directory: Ino, name: &Bytes) -> Result<()> {
        let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
        let (cred, volume) = (cred(), &self.mount.volume);
        let made = volume.create(&cred, directory, name.clone(), 0o644, 0, flags);
        let (_, open, _) = self.mount.call(&format!("make {name:?}"), made).await?;
        volume.release(&open).await
    }

    async fn open(&self, directory: Ino, name: &Bytes) -> Result<()> {
        let (cred, volume) = (cred(), &self.mount.volume);
        let found = volume.lookup(&cred, directory, name.clone());
        let ino = self.mount.call(&format!("lookup {name:?}"), found).await?.ino;
        let open = volume.open(&cred, ino, OpenFlags::READ);
        let open = self.mount.call(&format!("open {name:?}"), open).await?;
        volume.release(&open).await
    }

    async fn remove(&self, directory: Ino, name: &Bytes) -> Result<()> {
        let (cred, volume) = (cred(), &self.mount.volume);
        let removed = volume.unlink(&cred, directory, name.clone());
        self.mount.call(&format!("unlink {name:?}"), removed).await.map(drop)
    }

    async fn read_on(self, mut random: SplitMix64) -> Result<()> {
        let flags = OpenFlags { direct: true, ..OpenFlags::READ };
        let mut opened = Vec::new();
        for file in self.files.numbers().filter(|file| *file != self.file) {
            opened.push((file, self.files.open(&self.mount, file, flags).await?));
        }
        while !self.waits.is_over() && !opened.is_empty() {
            let (file, (open, known)) = &opened[random.below(opened.len() as u64) as usize];
            let call = self.files.read(&self.mount, *file, (open, known), range(&mut random));
            self.waits.time(&self.waits.read, call).await;
            rest(&mut random).await;
        }
        for (_, (open, _)) in &opened {
            self.mount.volume.release(open).await?;
        }
        Ok(())
    }
}

impl Cluster {
    /// Loses one server for a while, or the way between two, if it is the turn of this seed and others have all that it has.
    pub(super) async fn lose_one(self: &Arc<Self>) -> Result<()> {
        let mut random = self.world.stream(0x9008);
        if self.plan.copies == 1 || !random.percent(SEEDS) {
            return Ok(());
        }
        let way = self.way_to_lose().await?;
        let loss = match way {
            Some(way) => way,
            None => match self.one_to_lose(&mut random).await? {
                Some(host) => Loss::Server(host),
                None => return Ok(()),
            },
        };
        let plan = Plan { files: self.plan.clients, blocks: BLOCKS, ..(*self.plan).clone() };
        let files = Files::new(&self.world, &plan, &self.directories);
        match loss.has_names(&self.plan) {
            // The metadata server goes, too.
            true => files.may_be_missed_at_any_time(),
            false => files.may_be_missed(),
        }
        let waits = Arc::new(Waits {
            world: self.world.clone(),
            is_lost: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            alone: plan.acknowledges_alone(),
            // With fewer copies than that nothing is written, and files may have two by now.
            writes: plan.min_copies.is_none_or(|least| least < 2),
            read: Mutex::default(),
            written: Mutex::default(),
            named: Mutex::default(),
        });
        tokio::time::sleep(CALM).await;
        let mut probes = Vec::new();
        for nth in 0..plan.clients {
            let mount = Mount::start(&self.world, &plan, MOUNTS_FROM + nth).await?;
            let (file, files) = (mount.number % plan.clients, files.clone());
            files.make(&mount, file).await?;
            probes.push(Probe { mount, file, files, waits: waits.clone() });
        }
        tokio::time::sleep(CALM).await;
        self.probe(&loss, &probes, &waits, &mut random).await?;
        self.judge_waits(&loss, &waits);
        for probe in &probes {
            probe.files.remove(&probe.mount, probe.file).await?;
            probe.mount.close().await?;
        }
        let what = "all copies are equal after a server, or a way, was lost";
        self.wait(WHOLE_BOUND, what, async |cluster| cluster.is_whole().await).await
    }

    /// A server of which others have everything: copies, and a manager and a metadata server beside it.
    async fn one_to_lose(&self, random: &mut SplitMix64) -> Result<Option<Arc<Host>>> {
        let map = self.map().await?;
        let others = |host: &Host, most: u32| {
            self.members().any(|other| other.number != host.number && other.number <= most)
        };
        let may = |host: &&Arc<Host>| {
            let (managers, metas) = (self.plan.managers, self.plan.metas);
            has_copies_beside(&map, host) && others(host, managers) && others(host, metas)
        };
        let hosts: Vec<_> = self.members().filter(may).cloned().collect();
        let nth = random.below(hosts.len().max(1) as u64) as usize;
        Ok(hosts.get(nth).cloned())
    }

    /// Two servers that keep no names, and a way between them that a group needs.
    async fn way_to_lose(&self) -> Result<Option<Loss>> {
        let mut random = self.world.stream(0x9014);
        if !random.percent(WAYS) {
            return Ok(None);
        }
        let map = self.map().await?;
        let names = self.plan.managers.max(self.plan.metas);
        let server = |target: &u32| {
            let target = map.targets.iter().find(|one| one.id == *target);
            target.map(|target| target.server).filter(|server| *server > names)
        };
        let mut ways = BTreeSet::new();
        for group in &map.groups {
            let Some((primary, others)) = group.in_sync().split_first() else { continue };
            let Some(one) = server(primary) else { continue };
            let others = others.iter().filter_map(server).filter(|other| *other != one);
            ways.extend(others.map(|other| (one.min(other), one.max(other))));
        }
        let nth = random.below(ways.len().max(1) as u64) as usize;
        let Some((one, other)) = ways.into_iter().nth(nth) else { return Ok(None) };
        let (from, to) = if random.percent(50) { (one, other) } else { (other, one) };
        let lack = match random.below(4) {
            0 | 1 => Lack::Both,
            2 => Lack::One,
            _ => Lack::Calls,
        };
        Ok(Some(Loss::Way(from, to, lack)))
    }

    /// Cuts such a way, or mends it.
    fn cut_way(&self, (from, to): (u32, u32), lack: Lack, cut: bool) {
        match lack {
            Lack::Both => self.world.set_cut_both(from, to, cut),
            Lack::One => self.world.set_cut(from, to, cut),
            Lack::Calls => self.world.set_shut(from, to, cut),
        }
    }

    /// Clients work while a server is lost, or a way, until it comes back.
    async fn probe(
        self: &Arc<Self>,
        loss: &Loss,
        probes: &[Probe],
        waits: &Waits,
        random: &mut SplitMix64,
    ) -> Result<()> {
        let mut work = Vec::new();
        for probe in probes {
            let (writing, reading) = (random.next_number(), random.next_number());
            if waits.writes {
                let flags = OpenFlags::READ_WRITE;
                let (open, _) = probe.files.open(&probe.mount, probe.file, flags).await?;
                let writer = probe.clone().write_on(open, SplitMix64::new(writing));
                work.push(probe.mount.process.spawn(async move {
                    writer.await;
                    Ok(())
                }));
            }
            let directory = self.directories.get(probe.file as usize);
            let namer = probe.clone().name_on(directory, SplitMix64::new(random.next_number()));
            work.push(probe.mount.process.spawn(async move {
                namer.await;
                Ok(())
            }));
            let reader = probe.clone().read_on(SplitMix64::new(reading));
            work.push(probe.mount.process.spawn(reader));
        }
        tokio::time::sleep(Duration::from_millis(500 + random.below(1_000))).await;
        let is_cut = random.percent(50);
        waits.is_lost.store(true, Ordering::Relaxed);
        match loss {
            Loss::Server(host) if is_cut => self.isolate(host, true),
            Loss::Server(host) => host.crash(Power::On).await,
            Loss::Way(one, other, lack) => {
                self.world.note(format_args!("{loss} is lost"));
                count_case("way-lost");
                self.cut_way((*one, *other), *lack, true);
            }
        }
        let length = if matches!(loss, Loss::Server(_)) { LOST } else { WAY_LOST };
        tokio::time::sleep(length).await;
        waits.ending.store(true, Ordering::Relaxed);
        for part in work {
            if let Ok(ended) = part.await {
                ended?;
            }
        }
        match loss {
            Loss::Server(host) => {
                self.isolate(host, false);
                self.start(host).await;
            }
            Loss::Way(one, other, lack) => self.cut_way((*one, *other), *lack, false),
        }
        Ok(())
    }

    /// Nobody hears a server, and it hears nobody; or all do again.
    fn isolate(&self, host: &Host, is: bool) {
        let me = host.number;
        self.world.note(format_args!("server {me} is cut off from all: {is}"));
        let mounts = (0..self.plan.clients).map(|nth| MOUNTS_FROM + nth);
        let own = CLIENTS_FROM + self.plan.clients;
        let others = (1..=SERVERS_MAX).filter(|other| *other != me).chain(mounts).chain([own]);
        for other in others {
            self.world.set_cut_both(me, other, is);
        }
        host.cut_database(is);
    }

    fn judge_waits(&self, loss: &Loss, waits: &Waits) {
        let (read, written, named) =
            (*waits.read.lock(), *waits.written.lock(), *waits.named.lock());
        self.world.note(format_args!(
            "while {loss} was lost: the longest read took {} ms, the longest write with its sync {} ms, the longest change of a name {} ms",
            read.as_millis(),
            written.as_millis(),
            named.as_millis()
        ));
        let has_names = loss.has_names(&self.plan);
        let takeover = if has_names { TAKEOVER } else { Duration::ZERO };
        let quick = if waits.alone { PRIMARY_READ_BOUND + takeover } else { READ_BOUND };
        let (read_bound, write_bound, name_bound) = match loss {
            Loss::Way(..) => (WAY_BOUND, WAY_BOUND, NAME_BOUND),
            Loss::Server(_) if has_names => {
                let read_bound = if waits.writes { NAME_TAKEOVER_BOUND } else { quick };
                (read_bound, WRITE_BOUND + takeover, NAME_TAKEOVER_BOUND)
            }
            Loss::Server(_) => (quick, WRITE_BOUND, NAME_BOUND),
        };
        for (what, took, bound) in [
            ("read", read, read_bound),
            ("write", written, write_bound),
            ("change of a name", named, name_bound),
        ] {
            if took > bound {
                self.world.fail(format!("{loss} was lost, and a {what} took {took:?}"));
            }
        }
    }
}
