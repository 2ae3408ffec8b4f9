//! What all parts of a simulation share: time, chance, the trace, and who serves where.

use super::trace::Trace;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use strake_base::clock::Clock;
use strake_base::random::{SplitMix64, mixed};
use strake_base::simulation::Process;
use strake_types::{Ino, Result};
use strake_wire::service::Services;
use tokio::time::Instant;

/// When a run begins, in seconds since 1970.
const WALL_SECONDS: u64 = 1_800_000_000;
/// How late a message may be.
const LATE_MS: u64 = 8_000;
/// How many of a hundred requests arrive again that may do so much later.
const LATE_TWICE: u64 = 30;

/// What the network does to messages, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Longest common delay.
    pub delay_ms: u64,
    /// A message is late: by up to some seconds.
    pub late: u64,
    /// A message is lost, and with it the connection.
    pub lost: u64,
    /// A request arrives twice.
    pub twice: u64,
    /// A map of the cluster, the longest of messages, is late.
    pub late_maps: u64,
}

/// A server that answers.
#[derive(Clone)]
pub struct Serving {
    /// Which life of the server this is.
    pub life: u64,
    /// Whose tasks carry out calls.
    pub process: Arc<Process>,
    /// What it serves.
    pub services: Services,
}

/// How a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It answers for processes that are dead, too: nobody listens there.
    On,
    /// It says nothing.
    Off,
}

/// Whether a request may arrive twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It may not.
    Never,
    /// As the weather is.
    Soon,
    /// Often, and perhaps when whoever has sent it has long gone on, or died and come back.
    Late,
}

/// What explains what `strake fsck` finds when all is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Files of which a change has failed, or was dropped, that would have made them longer.
    pub of_failed: BTreeSet<Ino>,
    /// Files that a client was making longer when it died.
    pub of_dead: BTreeSet<Ino>,
    /// Of what was not on disk when power was lost.
    pub of_power: bool,
    /// Files that each client is making longer now.
    pub growing: BTreeMap<u32, BTreeSet<Ino>>,
}

impl Remains {
    /// A client begins to do what may make a file longer.
    pub fn begin(&mut self, client: u32, ino: Ino) {
        self.growing.entry(client).or_default().insert(ino);
    }

    /// It has come to an end with that, whether it has failed or not.
    pub fn end(&mut self, client: u32, ino: Ino) {
        self.growing.entry(client).or_default().remove(&ino);
    }

    /// A client has died.
    pub fn died(&mut self, client: u32) {
        self.of_dead.extend(self.growing.remove(&client).unwrap_or_default());
    }
}

/// What all share.
pub struct World {
    /// From what everything follows.
    pub seed: u64,
    /// What has happened.
    pub trace: Mutex<Trace>,
    /// What went wrong first.
    failure: Mutex<Option<String>>,
    /// Told when something went wrong.
    pub failed: tokio::sync::Notify,
    /// Disks are full at times: clients may be told that there is no room.
    pub disks_fill: AtomicBool,
    /// What may be left of what went wrong.
    pub remains: Mutex<Remains>,
    start: Instant,
    network: Mutex<Network>,
}

struct Network {
    random: SplitMix64,
    weather: Weather,
    serving: BTreeMap<u32, Serving>,
    off: BTreeSet<u32>,
    /// From whom to whom nothing gets through.
    cut: BTreeSet<(u32, u32)>,
    /// Machines into which no call gets.
    closed: BTreeSet<u32>,
    /// From whom no call gets to whom; answers do.
    shut: BTreeSet<(u32, u32)>,
    lives: u64,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after this time.
    Arrives(Duration),
    /// It never does.
    Lost,
}

impl World {
    /// A world at its beginning.
    pub fn new(seed: u64, show: bool) -> Arc<Self> {
        let network = Network {
            random: SplitMix64::new(mixed(seed ^ 0x6e65_7477_6f72_6b00)),
            weather: Weather { delay_ms: 2, ..Weather::default() },
            serving: BTreeMap::new(),
            off: BTreeSet::new(),
            cut: BTreeSet::new(),
            closed: BTreeSet::new(),
            shut: BTreeSet::new(),
            lives: 0,
        };
        let start = Instant::now();
        let trace = Mutex::new(Trace::new(show));
        let (failure, failed, disks_fill, remains) = Default::default();
        let network = Mutex::new(network);
        Arc::new(Self { seed, trace, failure, failed, disks_fill, remains, start, network })
    }

    /// Numbers for one part of the simulation, which others do not disturb.
    pub fn stream(&self, part: u64) -> SplitMix64 {
        SplitMix64::new(mixed(self.seed.wrapping_add(mixed(part))))
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notes what has happened.
    pub fn note(&self, what: std::fmt::Arguments<'_>) {
        self.trace.lock().note(self.now(), what);
    }

    /// Something is wrong: the run ends.
    pub fn fail(&self, what: String) {
        self.note(format_args!("WRONG: {what}"));
        self.failure.lock().get_or_insert(what);
        self.failed.notify_one();
    }

    /// Notes what has become of a change that may make a file longer: if it has failed, something of it may be left.
    pub fn lengthened<T>(&self, ino: Ino, outcome: &Result<T>) {
        if outcome.is_err() {
            self.remains.lock().of_failed.insert(ino);
        }
    }

    /// Does what may make a file longer, and notes what has become of it, also where its client dies meanwhile.
    pub async fn lengthening<T>(
        &self,
        client: u32,
        ino: Ino,
        change: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.remains.lock().begin(client, ino);
        let outcome = change.await;
        self.lengthened(ino, &outcome);
        self.remains.lock().end(client, ino);
        outcome
    }

    /// What went wrong first.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// From now on the network is so.
    pub fn set_weather(&self, weather: Weather) {
        self.network.lock().weather = weather;
    }

    /// A server answers from now on; its life.
    pub fn serve(&self, server: u32, process: &Arc<Process>, services: Services) -> u64 {
        let mut network = self.network.lock();
        let known = network.serving.get(&server).filter(|s| Arc::ptr_eq(&s.process, process));
        let life = known.map(|known| known.life).unwrap_or_else(|| network.lives + 1);
        network.lives = network.lives.max(life);
        network.serving.insert(server, Serving { life, process: process.clone(), services });
        life
    }

    /// A server answers no more.
    pub fn silence(&self, server: u32, power: Power) {
        let mut network = self.network.lock();
        network.serving.remove(&server);
        match power {
            Power::On => network.off.remove(&server),
            Power::Off => network.off.insert(server),
        };
    }

    /// Who answers at a server; if nobody does, how its machine is.
    pub fn at(&self, server: u32) -> std::result::Result<Serving, Power> {
        let network = self.network.lock();
        let off = if network.off.contains(&server) { Power::Off } else { Power::On };
        network.serving.get(&server).cloned().ok_or(off)
    }

    /// Cuts or mends the way from one to another.
    pub fn set_cut(&self, from: u32, to: u32, cut: bool) {
        let mut network = self.network.lock();
        match cut {
            true => network.cut.insert((from, to)),
            false => network.cut.remove(&(from, to)),
        };
    }

    /// Cuts or mends both ways between two.
    pub fn set_cut_both(&self, one: u32, other: u32, cut: bool) {
        self.set_cut(one, other, cut);
        self.set_cut(other, one, cut);
    }

    /// Lets no call into a machine any more, or again; what it calls itself is answered.
    pub fn set_closed(&self, to: u32, closed: bool) {
        let mut network = self.network.lock();
        match closed {
            true => network.closed.insert(to),
            false => network.closed.remove(&to),
        };
    }

    /// Lets no call of one into another any more, or again, as a firewall does; its answers get there.
    pub fn set_shut(&self, from: u32, to: u32, shut: bool) {
        let mut network = self.network.lock();
        match shut {
            true => network.shut.insert((from, to)),
            false => network.shut.remove(&(from, to)),
        };
    }

    /// Mends everything that was cut or closed.
    pub fn mend_all(&self) {
        let mut network = self.network.lock();
        network.cut.clear();
        network.closed.clear();
        network.shut.clear();
    }

    /// True while no call gets from one to another.
    pub fn is_shut(&self, from: u32, to: u32) -> bool {
        let network = self.network.lock();
        network.closed.contains(&to) || network.shut.contains(&(from, to))
    }

    /// True while nothing gets from one to another.
    pub fn is_cut(&self, from: u32, to: u32) -> bool {
        self.network.lock().cut.contains(&(from, to))
    }

    /// What becomes of a message.
    pub fn fate(&self) -> Fate {
        let mut network = self.network.lock();
        let weather = network.weather;
        if network.random.percent(weather.lost) {
            return Fate::Lost;
        }
        let most = match network.random.percent(weather.late) {
            true => LATE_MS,
            false => weather.delay_ms + 1,
        };
        // Most messages are fast; a few take as long as they may.
        let most = if network.random.percent(60) { most.min(2) } else { most };
        Fate::Arrives(Duration::from_millis(network.random.below(most)))
    }

    /// How much later than other messages a map of the cluster comes.
    pub fn lateness_of_map(&self) -> Option<Duration> {
        let mut network = self.network.lock();
        let late = network.weather.late_maps;
        let is_late = network.random.percent(late);
        is_late.then(|| Duration::from_millis(network.random.below(LATE_MS)))
    }

    /// If a request arrives again: how much later.
    pub fn again(&self, may: Again) -> Option<Duration> {
        let mut network = self.network.lock();
        let (chance, late) = match may {
            Again::Never => return None,
            Again::Soon => (network.weather.twice, [20, 500, 6_000]),
            Again::Late => (LATE_TWICE, [500, 6_000, 40_000]),
        };
        let again = network.random.percent(chance);
        let late = late[network.random.below(3) as usize];
        let after = Duration::from_millis(network.random.below(late));
        again.then_some(after)
    }
}

/// A machine's clocks: they run a little faster or slower than others, and the wall clock jumps.
pub struct MachineClock {
    start: Instant,
    /// Of a million.
    rate: u64,
    wall: Mutex<Duration>,
}

impl MachineClock {
    /// A clock that runs so many millionths as fast as true time.
    pub fn new(rate: u64) -> Self {
        let wall = Mutex::new(Duration::from_secs(WALL_SECONDS));
        Self { start: Instant::now(), rate, wall }
    }

    /// Sets the wall clock so far before or after that of others.
    pub fn jump(&self, seconds: i64) {
        let true_time = Duration::from_secs(WALL_SECONDS);
        let by = Duration::from_secs(seconds.unsigned_abs());
        *self.wall.lock() = if seconds < 0 { true_time - by } else { true_time + by };
    }
}

impl Clock for MachineClock {
    fn monotonic(&self) -> Duration {
        let micros = self.start.elapsed().as_micros() as u64;
        Duration::from_micros(
            micros / 1_000_000 * self.rate + micros % 1_000_000 * self.rate / 1_000_000,
        )
    }

    fn wall(&self) -> Duration {
        *self.wall.lock() + self.monotonic()
    }
}
