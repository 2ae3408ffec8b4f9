use super::*;
use crate::testing::lines::Lines;
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64};
use strake_base::clock::Clock;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{Alone, Kv, KvError, Moved, Outcome, Pair, Snapshot, Transaction, Writes};
use strake_wire::message::manager::{
    ClusterMap, GetMap, Heartbeat, Join, Joined, ManagerOp, TargetSpec, VolumeSpec,
};

/// Tokio's time, which tests let pass.
struct Paused(Instant);

impl Clock for Paused {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall(&self) -> Duration {
        self.monotonic()
    }
}

/// A store that several managers have.
#[derive(Clone)]
struct Shared {
    kv: MemoryKv,
    writers: Arc<Mutex<HashMap<Part, u64>>>,
    /// Nothing gets from this machine to it.
    cut: Arc<AtomicBool>,
    /// It takes nothing, wherever from.
    full: Arc<AtomicBool>,
    /// How long opening a part takes,
    opening_ms: Arc<AtomicU64>,
    /// and a commit.
    commit_ms: Arc<AtomicU64>,
    /// Nothing is opened from this machine before this ends.
    held: Arc<AtomicBool>,
    /// Somebody else opens the control plane right after the next who does.
    raced: Arc<AtomicBool>,
}

impl Shared {
    fn new() -> Self {
        let (writers, cut, full, opening_ms, commit_ms, held, raced) = Default::default();
        Self { kv: MemoryKv::new(), writers, cut, full, opening_ms, commit_ms, held, raced }
    }

    fn elsewhere(&self) -> Self {
        Self {
            cut: Arc::default(),
            opening_ms: Arc::default(),
            commit_ms: Arc::default(),
            held: Arc::default(),
            ..self.clone()
        }
    }

    fn reach(&self) -> strake_engine::kv::Result<()> {
        match self.cut.load(Ordering::Relaxed) {
            true => Err(KvError::Unreachable { store: "shared".into(), cause: "cut".into() }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Shared {
    fn name(&self) -> &'static str {
        "shared"
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn open(&self, part: Part) -> strake_engine::kv::Result<Arc<dyn Kv>> {
        self.reach()?;
        if self.full.load(Ordering::Relaxed) {
            return Err(no_room());
        }
        tokio::time::sleep(Duration::from_millis(self.opening_ms.load(Ordering::Relaxed))).await;
        while self.held.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut writers = self.writers.lock();
        let number = writers.entry(part).or_default();
        *number += 1;
        let opened = Opened { shared: self.clone(), part, number: *number };
        *number += u64::from(part == Part::Control && self.raced.swap(false, Ordering::Relaxed));
        Ok(Arc::new(opened))
    }

    async fn look(&self, keys: &[Vec<u8>]) -> strake_engine::kv::Result<Vec<Option<Bytes>>> {
        self.reach()?;
        self.kv.snapshot().await?.multi_get(keys).await
    }
}

/// What a store says that takes nothing.
fn no_room() -> KvError {
    KvError::Full { store: "shared".into(), next: "make room" }
}

struct Opened {
    shared: Shared,
    part: Part,
    number: u64,
}

#[async_trait]
impl Kv for Opened {
    fn name(&self) -> &'static str {
        "shared"
    }

    async fn snapshot(&self) -> strake_engine::kv::Result<Arc<dyn Snapshot>> {
        self.shared.reach()?;
        self.shared.kv.snapshot().await
    }

    async fn commit(
        &self,
        snapshot: Arc<dyn Snapshot>,
        writes: Writes,
    ) -> strake_engine::kv::Result<Outcome> {
        self.shared.reach()?;
        if self.shared.full.load(Ordering::Relaxed) {
            return Err(no_room());
        }
        let ms = self.shared.commit_ms.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        match self.is_taken_over() {
            true => Err(KvError::TakenOver { store: "shared".into(), by: "another".into() }),
            false => self.shared.kv.commit(snapshot, writes).await,
        }
    }

    fn is_taken_over(&self) -> bool {
        let writers = self.shared.writers.lock();
        !self.shared.cut.load(Ordering::Relaxed) && writers.get(&self.part) != Some(&self.number)
    }

    async fn sync(&self) -> strake_engine::kv::Result<()> {
        Ok(())
    }
}

/// A server with a manager.
struct Server {
    store: Shared,
    number: u32,
    candidate: Arc<Candidate>,
}

fn address(number: u32) -> String {
    format!("h{number}:1")
}

async fn candidate(store: &Shared, number: u32, founds: bool) -> Arc<Candidate> {
    moved_candidate(store, number, founds, "").await
}

/// One whose server says so of the store that it is in.
async fn moved_candidate(store: &Shared, number: u32, founds: bool, id: &str) -> Arc<Candidate> {
    start(Arc::new(store.clone()), number, founds, id).await.unwrap()
}

async fn start(
    store: Arc<dyn Store>,
    number: u32,
    founds: bool,
    id: &str,
) -> Result<Arc<Candidate>> {
    let (address, store_id) = (address(number.max(1)), id.to_owned());
    start_as(store, Candidature { server: number, address, founds, store: store_id }).await
}

async fn start_as(store: Arc<dyn Store>, who: Candidature) -> Result<Arc<Candidate>> {
    let clock = Arc::new(Paused(Instant::now()));
    let first_volume = VolumeSpec { name: "main".into(), ..VolumeSpec::default() };
    let options =
        ManagerOptions { clock: clock.clone(), first_volume, ..ManagerOptions::default() };
    let lease = Arc::new(Lease::new(clock));
    Candidate::start(store, who, lease, options).await
}

/// What an import does with the store that it has moved.
async fn close(kv: &dyn Kv) {
    let mut tx = Transaction::begin(kv).await.unwrap();
    tx.put(b"!exported".to_vec(), vec![7; 16]);
    assert_eq!(tx.commit(kv).await.unwrap(), Outcome::Committed);
    let (to, host) = ("postgres://u@h:5432/d".into(), "h9".into());
    let moved = Moved { export: [7; 16], at_ms: 0, to, host };
    assert!(dump::close(kv, &moved).await.unwrap());
}

async fn ask(candidate: &Candidate, op: ManagerOp) -> ManagerAnswer {
    let request = ManagerRequest { op: Some(op) };
    candidate.call(request).await.unwrap().answer.unwrap()
}

async fn join(leader: &Candidate, number: u32) -> Joined {
    let name = format!("h{number}");
    let request = Join { address: address(number), name, manager: true, ..Join::default() };
    match ask(leader, ManagerOp::Join(request)).await {
        ManagerAnswer::Joined(joined) => joined,
        other => panic!("{other:?}"),
    }
}

/// So many servers, of which the first leads.
async fn cluster(servers: u32) -> Vec<Server> {
    let store = Shared::new();
    let founder = candidate(&store, 0, true).await;
    assert_eq!(join(&founder, 1).await.server, 1);
    founder.has_joined(1).await.unwrap();
    let mut all = vec![Server { store: store.clone(), number: 1, candidate: founder }];
    for number in 2..=servers {
        assert_eq!(join(&all[0].candidate, number).await.server, number);
        let store = store.elsewhere();
        let candidate = candidate(&store, number, false).await;
        candidate.has_joined(number).await.unwrap();
        all.push(Server { store, number, candidate });
    }
    all
}

/// A copy of the directory of a server, started elsewhere.
async fn copy_of(store: &Shared, number: u32) -> Server {
    let store = store.elsewhere();
    let who = Candidature { server: number, address: "copy:1".into(), ..Candidature::default() };
    let candidate = start_as(Arc::new(store.clone()), who).await.unwrap();
    Server { store, number: 7, candidate }
}

/// The map that a manager gives, if it leads.
async fn map_of(candidate: &Candidate) -> Result<ClusterMap, Leader> {
    let op = Some(ManagerOp::GetMap(GetMap::default()));
    let answer = candidate.call(ManagerRequest { op }).await;
    match answer.map(|reply| reply.answer.unwrap()) {
        Ok(ManagerAnswer::Map(answer)) => Ok(answer.decoded().unwrap().unwrap()),
        Ok(ManagerAnswer::Leader(leader)) => Err(leader),
        // It does not reach its store,
        Err(error) if error.kind == ErrorKind::Unavailable => Err(Leader::default()),
        // or cannot write to it.
        Err(error) if error.kind == ErrorKind::NoSpace => {
            Err(Leader { cut_off: error.detail.into_owned(), ..Leader::default() })
        }
        other => panic!("{other:?}"),
    }
}

/// Lets time pass; in all of it one manager answers at most. Who did in the end, and the longest time in which nobody did.
async fn pass(servers: &[Server], ms: u64) -> (Option<u32>, u64) {
    let (mut silent, mut longest, mut last) = (0, 0, None);
    for _ in 0..ms / 10 {
        let mut leaders = Vec::new();
        for server in servers {
            if map_of(&server.candidate).await.is_ok() {
                leaders.push(server.number);
            }
        }
        assert!(leaders.len() <= 1, "{leaders:?} answer at once");
        last = leaders.first().copied();
        silent = if last.is_some() { 0 } else { silent + 10 };
        longest = longest.max(silent);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (last, longest)
}

#[tokio::test(start_paused = true)]
async fn one_manager_leads_and_the_others_say_which() {
    let servers = cluster(3).await;
    assert_eq!(pass(&servers, 10_000).await, (Some(1), 0));
    let map = map_of(&servers[0].candidate).await.unwrap();
    assert_eq!((map.leader, map.servers.len()), (1, 3));
    for follower in &servers[1..] {
        let leader = map_of(&follower.candidate).await.unwrap_err();
        assert_eq!((leader.server, leader.address), (1, address(1)));
        assert_eq!(follower.candidate.cluster(), map.cluster);
        assert!(!follower.candidate.leads());
    }
}

/// `strake status` said that the manager that leads is away, while each of them knew that it was the database.
#[tokio::test(start_paused = true)]
async fn a_manager_that_does_not_reach_its_store_says_so_until_it_does() {
    let servers = cluster(2).await;
    let cut = |server: usize, cut| servers[server].store.cut.store(cut, Ordering::Relaxed);
    let why = "metadata store shared cannot be reached: cut";
    // Of one that does, the other still says that it leads.
    cut(1, true);
    assert_eq!(pass(&servers, 2_000).await, (Some(1), 0));
    let led = map_of(&servers[1].candidate).await.unwrap_err();
    assert!(led.server == 1 && led.cut_off.starts_with(why), "{led:?}");
    cut(0, true);
    assert_eq!(pass(&servers, 2_000).await.0, None);
    for server in &servers {
        let said = map_of(&server.candidate).await.unwrap_err();
        assert!(said.cut_off.starts_with(why), "{said:?}");
    }
    (0..2).for_each(|server| cut(server, false));
    let leader = pass(&servers, 3_000).await.0.unwrap();
    let follower = servers.iter().find(|server| server.number != leader).unwrap();
    let said = map_of(&follower.candidate).await.unwrap_err();
    assert_eq!((said.server, &*said.cut_off), (leader, ""));
}

/// Each of them reaches it, and none of them leads.
#[tokio::test(start_paused = true)]
async fn managers_of_a_store_that_takes_nothing_say_so_until_it_does() {
    let servers = cluster(2).await;
    let full = |is| servers[0].store.full.store(is, Ordering::Relaxed);
    full(true);
    assert_eq!(pass(&servers, 30_000).await.0, None);
    for server in &servers {
        let said = map_of(&server.candidate).await.unwrap_err();
        assert_eq!(said.cut_off, stored(&no_room()).detail);
    }
    full(false);
    let leader = pass(&servers, 30_000).await.0.unwrap();
    let follower = servers.iter().find(|server| server.number != leader).unwrap();
    assert_eq!(map_of(&follower.candidate).await.unwrap_err().cut_off, "");
}

/// Each follower said twice a second that the leader is silent and that another may have been faster.
#[tokio::test(start_paused = true)]
async fn a_manager_that_cannot_take_the_lead_says_so_once() {
    let servers = cluster(2).await;
    let full = |is| servers[0].store.full.store(is, Ordering::Relaxed);
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    for times in 1..3 {
        full(true);
        assert_eq!(pass(&servers, 30_000).await.0, None);
        assert_eq!(lines.count("the manager that leads is silent"), times);
        assert_eq!(lines.count("cannot take the lead: metadata store shared: no space"), times);
        full(false);
        assert!(pass(&servers, 5_000).await.0.is_some());
    }
    assert_eq!(lines.count("faster"), 0);
}

/// It was said of everybody who took the lead that he might be a copy.
#[tokio::test(start_paused = true)]
async fn only_who_leads_with_the_number_of_this_server_is_called_a_copy() {
    let mut servers = cluster(2).await;
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    servers[0].store.cut.store(true, Ordering::Relaxed);
    assert_eq!(pass(&servers, 2_000).await.0, Some(2));
    servers[0].store.cut.store(false, Ordering::Relaxed);
    assert_eq!(pass(&servers, 5_000).await.0, Some(2));
    assert_eq!(lines.count("another process"), 0);
    let store = servers[1].store.elsewhere();
    let copy = candidate(&store, 2, false).await;
    servers.push(Server { store, number: 2, candidate: copy });
    pass(&servers, 5_000).await;
    assert!(servers[2].candidate.leads());
    assert_eq!(lines.count("another process leads with the number of this server"), 1);
}

/// Who followed a move before the first server had joined anew was told the store of before, and its start failed.
#[tokio::test(start_paused = true)]
async fn a_manager_that_leads_says_at_once_by_which_store() {
    let servers = cluster(2).await;
    let store = servers[0].store.clone();
    drop(servers);
    let one = moved_candidate(&store, 1, false, "moved").await;
    let map = map_of(&one).await.unwrap();
    let stores: Vec<_> = map.servers.iter().map(|server| (server.id, &*server.store)).collect();
    assert_eq!((map.leader, &stores[..]), (1, &[(1, "moved"), (2, "")][..]));
}

/// Who was started there led it beside the one who led the new store.
#[tokio::test(start_paused = true)]
async fn nobody_leads_by_a_store_that_was_moved_elsewhere() {
    let servers = cluster(2).await;
    let store = servers[0].store.clone();
    // Who imports opens it, so that who leads does no more.
    close(&*store.open(Part::Control).await.unwrap()).await;
    assert_eq!(pass(&servers, 20_000).await.0, None);
    drop(servers);
    let alone: Arc<dyn Store> = Arc::new(Alone(Arc::new(store.kv.clone())));
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    for (store, number) in [(&shared, 1), (&shared, 2), (&alone, 1)] {
        let error = start(store.clone(), number, false, "").await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::WrongPeer);
        let said = error.detail;
        assert!(said.contains("--meta postgres://u@h:5432/d and a --join that names h9"), "{said}");
        assert!(said.contains("; ") && said.contains("strake meta reopen"), "{said}");
    }
    dump::reopen(&store.kv).await.unwrap();
    assert!(candidate(&store, 1, false).await.leads());
}

/// From a database the word came along that another server leads by it, and a manager that was still there led it, too.
#[tokio::test(start_paused = true)]
async fn a_manager_whose_store_was_moved_to_its_home_says_that_it_leads_by_it() {
    let servers = cluster(2).await;
    let store = servers[0].store.clone();
    drop(servers);
    drop(moved_candidate(&store, 1, false, "database").await);
    for (number, stores) in [(2, [(1, "database"), (2, "")]), (1, [(1, ""), (2, "")])] {
        let address = address(number);
        let who = Candidature { server: number, address, ..Candidature::default() };
        let lease = Arc::new(Lease::new(Arc::new(Paused(Instant::now()))));
        let alone = Arc::new(Alone(Arc::new(store.kv.clone())));
        let options = ManagerOptions::default();
        let manager = Candidate::start(alone, who, lease, options).await.unwrap();
        let map = map_of(&manager).await.unwrap();
        let said: Vec<_> = map.servers.iter().map(|server| (server.id, &*server.store)).collect();
        assert_eq!((map.leader, &said[..]), (number, &stores[..]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_gone_is_followed_by_another_that_goes_on_with_what_is_stored() {
    let mut servers = cluster(3).await;
    let before = map_of(&servers[0].candidate).await.unwrap();
    drop(servers.remove(0));
    let (leader, silent) = pass(&servers, 3_000).await;
    assert!(silent <= 1_500, "{silent} ms");
    let leader = leader.unwrap();
    let at = servers.iter().position(|server| server.number == leader).unwrap();
    let map = map_of(&servers[at].candidate).await.unwrap();
    assert!(map.epoch > before.epoch, "who leads is part of the map");
    assert_eq!((map.cluster, map.leader, map.servers.len()), (before.cluster, leader, 3));
    // Started again, it follows.
    let store = servers[0].store.elsewhere();
    let again = candidate(&store, 1, true).await;
    servers.push(Server { store, number: 1, candidate: again });
    assert_eq!(pass(&servers, 3_000).await, (Some(leader), 0));
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_started_again_at_once_leads_as_before() {
    let mut servers = cluster(2).await;
    pass(&servers, 4_000).await;
    let first = servers.remove(0);
    drop(first.candidate);
    let candidate = candidate(&first.store, 1, true).await;
    servers.insert(0, Server { candidate, ..first });
    assert_eq!(pass(&servers, 3_000).await, (Some(1), 0));
}

/// It took the lead from the one that ran, as if that were an earlier life of it, and was let in at its address: when it had gone,
/// everybody was sent there for ever.
#[tokio::test(start_paused = true)]
async fn a_copy_of_the_manager_that_leads_follows_it_while_that_runs() {
    let mut servers = cluster(2).await;
    pass(&servers, 4_000).await;
    let copy = copy_of(&servers[0].store, 1).await;
    let led = map_of(&copy.candidate).await.unwrap_err();
    assert_eq!((led.server, led.address), (1, address(1)));
    servers.push(copy);
    assert_eq!(pass(&servers, 5_000).await, (Some(1), 0));
    let why = servers[2].candidate.alive_elsewhere().unwrap();
    assert!(why.detail.contains("server 1 is alive at h1:1"), "{why}");
    assert!(!servers[2].candidate.inner.overtaken.initialized(), "it has not joined");
    assert!(servers[..2].iter().all(|server| server.candidate.alive_elsewhere().is_none()));
    // One that has moved waits until what it was is silent.
    servers.drain(..2);
    assert_eq!(pass(&servers, 5_000).await.0, Some(7));
    assert_eq!(servers[0].candidate.alive_elsewhere(), None);
}

/// "Server 1 is alive" was said where that had been, and that its directory might be a copy; and not a word of the database.
#[tokio::test(start_paused = true)]
async fn a_manager_that_has_moved_and_cannot_lead_says_why_and_not_that_it_runs_where_it_was() {
    let first = cluster(1).await.remove(0);
    drop(first.candidate);
    first.store.full.store(true, Ordering::Relaxed);
    let moved = [copy_of(&first.store, 1).await];
    let [Server { candidate, .. }] = &moved;
    assert_eq!(candidate.alive_elsewhere(), None, "a beat was found, and no other one came");
    assert_eq!(pass(&moved, 15_000).await.0, None);
    assert_eq!(candidate.alive_elsewhere(), None);
    assert_eq!(map_of(candidate).await.unwrap_err().cut_off, stored(&no_room()).detail);
}

/// Where it had failed once to read the store, that stayed the reason while the leader was one with its own number.
#[tokio::test(start_paused = true)]
async fn a_copy_that_does_not_reach_its_store_says_that_until_it_does() {
    let servers = cluster(1).await;
    let copy = copy_of(&servers[0].store, 1).await;
    for is_cut in [false, true, false] {
        copy.store.cut.store(is_cut, Ordering::Relaxed);
        pass(&servers, 2_000).await;
        assert_eq!(copy.candidate.alive_elsewhere().is_none(), is_cut);
        assert_eq!(map_of(&copy.candidate).await.unwrap_err().cut_off.is_empty(), !is_cut);
    }
}

/// It found that the copy led, which had only waited for its last beat.
#[tokio::test(start_paused = true)]
async fn a_manager_that_is_stopped_and_started_again_leads_and_not_a_copy_of_it() {
    let mut servers = cluster(1).await;
    let copy = copy_of(&servers[0].store, 1).await;
    servers.push(copy);
    assert_eq!(pass(&servers, 1_000).await.0, Some(1));
    servers[0].candidate.end().await;
    assert_eq!(pass(&servers, 2_000).await.0, None);
    let again = candidate(&servers[0].store, 1, false).await;
    assert!(again.leads());
    again.end().await;
    // One that has moved leads at once, if it has not heard it run.
    assert!(copy_of(&servers[0].store, 1).await.candidate.leads());
}

/// Only beats with its number kept a copy from the lead: where a third one led that had fallen silent or resigned, it was as quick as
/// the server that it is a copy of, which then had to end.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_manager_leaves_it_the_lead_also_after_another_one() {
    for resigns in [false, true] {
        let mut servers = cluster(2).await;
        let cut = |is| servers[0].store.cut.store(is, Ordering::Relaxed);
        cut(true);
        assert_eq!(pass(&servers, 3_000).await.0, Some(2));
        cut(false);
        assert_eq!(pass(&servers, 1_000).await.0, Some(2));
        let early = copy_of(&servers[0].store, 1).await;
        // It is slower than the copies.
        servers[0].store.opening_ms.store(600, Ordering::Relaxed);
        let second = servers.remove(1).candidate;
        if resigns {
            second.end().await;
        }
        drop(second);
        let late = copy_of(&servers[0].store, 1).await;
        servers.extend([early, late]);
        assert_eq!(pass(&servers, 5_000).await.0, Some(1), "{resigns}");
        assert!(!servers[0].candidate.inner.overtaken.initialized());
        // One that has moved follows when nobody else does.
        servers.truncate(2);
        drop(servers.remove(0));
        assert_eq!(pass(&servers, 5_000).await.0, Some(7));
    }
}

/// The copy led after 0.8 s, and the whole server had to end when its store was back.
#[tokio::test(start_paused = true)]
async fn a_manager_whose_store_is_away_for_less_than_a_lease_keeps_its_lead_beside_a_copy_of_it() {
    let servers = cluster(1).await;
    pass(&servers, 12_000).await;
    let copy = copy_of(&servers[0].store, 1).await;
    let first = &servers[0];
    first.store.cut.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.store.cut.store(false, Ordering::Relaxed);
    let told = tokio::time::timeout(Duration::from_secs(5), first.candidate.overtaken()).await;
    assert!(told.is_err(), "{told:?}");
    assert!(first.candidate.leads() && !copy.candidate.leads());
}

/// It followed for as long as the copy ran, took the lead back when that had gone, and all were sent to where it had been, for ever.
#[tokio::test(start_paused = true)]
async fn a_manager_whose_place_a_copy_of_it_has_taken_says_that_its_server_has_to_end() {
    let mut servers = cluster(2).await;
    pass(&servers, 4_000).await;
    drop(servers.remove(1));
    servers[0].store.cut.store(true, Ordering::Relaxed);
    // All of its beats in that time have numbers.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let copy = copy_of(&servers[0].store, 1).await;
    while !copy.candidate.leads() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    servers[0].store.cut.store(false, Ordering::Relaxed);
    let soon = Duration::from_secs(5);
    let first = &servers[0].candidate;
    let why = tokio::time::timeout(soon, first.overtaken()).await.expect("it is told");
    assert_eq!(why.kind, ErrorKind::Overtaken);
    assert!(why.detail.contains("server 1 at copy:1"), "{why}");
    assert!(tokio::time::timeout(soon, copy.candidate.overtaken()).await.is_err());
    // Its server ends, and so does the copy: the next life leads, and says by its Join where it is.
    first.end().await;
    drop(copy.candidate);
    assert_eq!(pass(&servers, 10_000).await.0, None, "it looks on no more");
    drop(servers);
    let again = candidate(&copy.store, 1, false).await;
    assert!(tokio::time::timeout(soon, again.overtaken()).await.is_err());
    assert!(again.leads());
}

/// It neither served nor ended: who leads was itself, by its number.
#[tokio::test(start_paused = true)]
async fn a_manager_that_never_led_says_that_its_server_has_to_end_where_a_copy_of_it_leads() {
    let mut servers = cluster(2).await;
    servers[1].store.cut.store(true, Ordering::Relaxed);
    drop(servers.remove(0));
    let copy = copy_of(&servers[0].store, 2).await;
    while !copy.candidate.leads() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    servers[0].store.cut.store(false, Ordering::Relaxed);
    let soon = Duration::from_secs(5);
    let told = tokio::time::timeout(soon, servers[0].candidate.overtaken()).await;
    assert!(told.expect("it is told").detail.contains("server 2 at copy:1"));
    assert!(!copy.candidate.inner.overtaken.initialized());
}

/// The copy had gone before it heard of that: it led again, and sent everybody to where that had been, for ever.
#[tokio::test(start_paused = true)]
async fn a_manager_that_leads_again_refuses_its_own_server_if_a_copy_of_it_has_joined_meanwhile() {
    let servers = cluster(2).await;
    let cut = |server: usize, cut| servers[server].store.cut.store(cut, Ordering::Relaxed);
    cut(0, true);
    // The second has led for a lease then, and takes the first for gone.
    assert_eq!(pass(&servers, 8_000).await.0, Some(2));
    let (cluster, at) = (servers[0].candidate.cluster(), "copy:1".to_owned());
    let copy = Join { server: 1, cluster, address: at, manager: true, ..Join::default() };
    ask(&servers[1].candidate, ManagerOp::Join(copy)).await;
    cut(0, false);
    cut(1, true);
    assert_eq!(pass(&servers, 5_000).await.0, Some(1));
    let beat = Heartbeat { server: 1, address: address(1), ..Heartbeat::default() };
    let op = Some(ManagerOp::Heartbeat(beat));
    let told = servers[0].candidate.call(ManagerRequest { op }).await.unwrap_err();
    assert_eq!(told.kind, ErrorKind::Overtaken);
    assert!(told.detail.contains("server 1 at copy:1"), "{told}");
}

/// Two servers with managers, of which the first leads, and a storage server: that is the third.
async fn with_storage() -> Vec<Server> {
    let servers = cluster(2).await;
    let target = TargetSpec { uuid: "x".into(), path: "/x".into(), ..TargetSpec::default() };
    let (address, name, targets) = ("s:1".to_owned(), "s".to_owned(), vec![target]);
    let storage = Join { address, name, targets, ..Join::default() };
    ask(&servers[0].candidate, ManagerOp::Join(storage)).await;
    servers
}

/// The servers that a manager that leads says may know more than it, and the epoch of its map.
async fn ahead(server: &Server) -> (Vec<u32>, u64) {
    let map = map_of(&server.candidate).await.unwrap();
    let ahead = map.servers.iter().filter(|server| server.ahead).map(|server| server.id);
    (ahead.collect(), map.epoch)
}

async fn saved(store: &Shared) -> Vec<Pair> {
    let snapshot = store.kv.snapshot().await.unwrap();
    snapshot.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).await.unwrap()
}

/// From now on the store holds what was saved, and whoever led by it has to open it anew.
async fn restore(store: &Shared, saved: Vec<Pair>) {
    *store.writers.lock().entry(Part::Control).or_default() += 1;
    let mut restore = Transaction::begin(&store.kv).await.unwrap();
    saved.into_iter().for_each(|(key, value)| restore.put(key.to_vec(), value));
    assert_eq!(restore.commit(&store.kv).await.unwrap(), Outcome::Committed);
}

/// What had been acknowledged since a backup was gone, and the cluster was fine.
#[tokio::test(start_paused = true)]
async fn a_manager_whose_store_has_gone_back_names_the_servers_that_may_know_more() {
    let servers = with_storage().await;
    // Another one leads, and has lost nothing.
    servers[0].store.cut.store(true, Ordering::Relaxed);
    assert_eq!(pass(&servers, 8_000).await.0, Some(2));
    servers[0].store.cut.store(false, Ordering::Relaxed);
    let saved = saved(&servers[0].store).await;
    assert_eq!(pass(&servers, 2_000).await.0, Some(2));
    let (before, epoch) = ahead(&servers[1]).await;
    assert!(before.is_empty(), "{before:?}");
    restore(&servers[0].store, saved).await;
    let leader = pass(&servers, 10_000).await.0.unwrap();
    let (after, now) = ahead(&servers[leader as usize - 1]).await;
    assert_eq!(after, [3]);
    assert!(now > epoch + 1, "no map that was lost is taken for it");
    // It is not told again when another one leads.
    let other = if leader == 1 { 2 } else { 1 };
    servers[leader as usize - 1].store.cut.store(true, Ordering::Relaxed);
    assert_eq!(pass(&servers, 8_000).await.0, Some(other));
    assert!(ahead(&servers[other as usize - 1]).await.1 < now + 1_000);
}

/// It had found out that the store had gone back and could not tell, as another was faster; and told when it led a month later.
#[tokio::test(start_paused = true)]
async fn a_manager_that_did_not_get_to_lead_does_not_tell_later_what_another_has_told() {
    let servers = with_storage().await;
    let [first, second] = [&servers[0].store, &servers[1].store];
    let set = |what: &AtomicBool, is| what.store(is, Ordering::Relaxed);
    let saved = saved(first).await;
    assert_eq!(pass(&servers, 2_000).await.0, Some(1));
    // The second opens it, and then somebody else.
    set(&first.held, true);
    set(&second.raced, true);
    restore(first, saved).await;
    while second.raced.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pass(&servers, 50).await;
    set(&second.cut, true);
    set(&first.held, false);
    assert_eq!(pass(&servers, 5_000).await.0, Some(1));
    let (told, epoch) = ahead(&servers[0]).await;
    assert_eq!(told, [3]);
    set(&second.cut, false);
    set(&first.cut, true);
    assert_eq!(pass(&servers, 8_000).await.0, Some(2));
    assert!(ahead(&servers[1]).await.1 < epoch + 1_000);
}

/// Its first beat was newer than what the next one had known, to whom nothing was lost then.
#[tokio::test(start_paused = true)]
async fn what_a_manager_found_lost_and_did_not_get_to_tell_the_next_one_tells() {
    let mut servers = with_storage().await;
    let saved = saved(&servers[0].store).await;
    assert_eq!(pass(&servers, 2_000).await.0, Some(1));
    servers[0].store.held.store(true, Ordering::Relaxed);
    servers[1].store.commit_ms.store(300, Ordering::Relaxed);
    assert_eq!(last_beat(&servers[1]).await.server, 1, "the second knows it, too");
    restore(&servers[0].store, saved).await;
    while last_beat(&servers[0]).await.server != 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(servers.remove(1));
    servers[0].store.held.store(false, Ordering::Relaxed);
    assert_eq!(pass(&servers, 5_000).await.0, Some(1));
    assert_eq!(ahead(&servers[0]).await.0, [3]);
    pass(&servers, 1_000).await;
    assert!(!last_beat(&servers[0]).await.lost, "it is told");
}

/// Nobody was told until it led itself: hours after the restore, when all servers had long been started anew.
#[tokio::test(start_paused = true)]
async fn a_manager_that_lives_through_a_restore_tells_one_that_leads_and_does_not_know_of_it() {
    let mut servers = with_storage().await;
    let saved = saved(&servers[0].store).await;
    assert_eq!(pass(&servers, 5_000).await.0, Some(1));
    servers[1].store.cut.store(true, Ordering::Relaxed);
    let Server { store, candidate: gone, .. } = servers.remove(0);
    drop(gone);
    restore(&store, saved).await;
    let again = candidate(&store, 1, false).await;
    servers.insert(0, Server { store, number: 1, candidate: again });
    let (told, epoch) = ahead(&servers[0]).await;
    assert!(told.is_empty(), "{told:?}");
    let times = || servers[1].candidate.times_gone_back();
    assert_eq!(times(), 0);
    servers[1].store.cut.store(false, Ordering::Relaxed);
    assert_eq!(pass(&servers, 4_000).await.0, Some(1));
    assert_eq!(times(), 1);
    servers[0].store.cut.store(true, Ordering::Relaxed);
    assert_eq!(pass(&servers, 8_000).await.0, Some(2));
    assert!(ahead(&servers[1]).await.1 < epoch + 1_000);
    assert_eq!(times(), 1);
}

/// A server that was started while another manager took its place once ended with an error.
#[tokio::test(start_paused = true)]
async fn a_manager_whose_store_another_opens_as_it_starts_looks_again() {
    let mut servers = cluster(2).await;
    drop(servers.remove(0).candidate);
    let store = servers[0].store.elsewhere();
    store.raced.store(true, Ordering::Relaxed);
    let again = candidate(&store, 1, false).await;
    servers.insert(0, Server { store, number: 1, candidate: again });
    assert!(pass(&servers, 10_000).await.0.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_manager_on_a_quick_store_is_followed_sooner() {
    let mut servers = cluster(3).await;
    pass(&servers, 12_000).await;
    drop(servers.remove(0));
    let (leader, silent) = pass(&servers, 2_000).await;
    assert_eq!(leader, Some(2), "the next one");
    assert!(silent <= 600, "{silent} ms");
}

/// Two settings: beats that let lead for 0.8 s, and such that do for 0.4. How long the cluster has been there, and how long the
/// first manager is away then.
const LONG_AND_SHORT: [(u64, u64); 2] = [(0, 1_300), (12_000, 900)];

/// The second has begun to lead while the first may still answer: it waits, and says so.
async fn second_waits_for_first((settled_ms, cut_ms): (u64, u64)) -> Vec<Server> {
    let servers = cluster(2).await;
    pass(&servers, settled_ms).await;
    servers[1].store.opening_ms.store(600, Ordering::Relaxed);
    servers[0].store.cut.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(cut_ms)).await;
    servers[0].store.cut.store(false, Ordering::Relaxed);
    while !servers[1].candidate.leads() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(map_of(&servers[1].candidate).await.is_err(), "the first has led again meanwhile");
    servers[1].store.opening_ms.store(0, Ordering::Relaxed);
    servers
}

/// Its beat was that of an earlier life of its own, and it led at once.
#[tokio::test(start_paused = true)]
async fn a_manager_that_is_started_again_while_it_waits_for_another_waits_again() {
    for setting in LONG_AND_SHORT {
        let mut servers = second_waits_for_first(setting).await;
        let second = servers.remove(1);
        drop(second.candidate);
        let candidate = candidate(&second.store, 2, false).await;
        assert!(!candidate.leads());
        servers.push(Server { candidate, ..second });
        let (leader, silent) = pass(&servers, 4_000).await;
        assert!(leader.is_some() && silent <= 2_000, "{leader:?} after {silent} ms");
    }
}

/// Its last word was that whoever reads it may lead.
#[tokio::test(start_paused = true)]
async fn a_manager_that_resigns_while_it_waits_for_another_does_not_say_that_nobody_leads() {
    for setting in LONG_AND_SHORT {
        let servers = second_waits_for_first(setting).await;
        servers[1].candidate.resign().await;
        let beat = last_beat(&servers[0]).await;
        assert_eq!((beat.server, beat.ended), (2, false));
        assert_eq!(pass(&servers, 3_000).await.0, Some(1));
    }
}

/// It waited for that for 3 s at most, and a server that was started while its database was slow ended with an error.
#[tokio::test(start_paused = true)]
async fn a_manager_starts_however_long_its_beats_take() {
    let servers = cluster(1).await;
    let store = servers[0].store.clone();
    drop(servers);
    store.commit_ms.store(4_000, Ordering::Relaxed);
    assert!(candidate(&store, 1, false).await.leads());
}

async fn last_beat(server: &Server) -> Beat {
    server.candidate.inner.look().await.unwrap().unwrap().beat.unwrap()
}

/// Servers of which the last beat says that their managers have led.
async fn past(server: &Server) -> Vec<u32> {
    last_beat(server).await.past.iter().map(|past| past.server).collect()
}

/// Whoever opens the store before would answer beside it.
#[tokio::test(start_paused = true)]
async fn a_manager_answers_when_a_beat_is_stored_that_says_so() {
    let mut servers = cluster(2).await;
    drop(servers.remove(0));
    servers[0].store.commit_ms.store(300, Ordering::Relaxed);
    let (mut loaded, began) = (false, Instant::now());
    while pass(&servers, 10).await.0.is_none() {
        loaded |= last_beat(&servers[0]).await.loads;
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    assert!(loaded && !last_beat(&servers[0]).await.loads);
}

/// Who loads answers nothing, but the one before it may do so still.
#[tokio::test(start_paused = true)]
async fn who_opens_the_store_while_another_loads_waits_for_whom_that_one_waits() {
    let servers = cluster(3).await;
    let [first, second, third] = [0, 1, 2].map(|at: usize| &servers[at].store);
    let set = |what: &AtomicBool, is| what.store(is, Ordering::Relaxed);
    // Both others are about to open it when the first one is back.
    set(&second.held, true);
    set(&third.held, true);
    set(&first.cut, true);
    pass(&servers, 2_000).await;
    set(&first.cut, false);
    let began = Instant::now();
    while pass(&servers, 10).await.0.is_none() {
        assert!(began.elapsed() < Duration::from_secs(2));
    }
    // From here on it does not hear that others have opened it.
    set(&first.cut, true);
    second.commit_ms.store(300, Ordering::Relaxed);
    set(&second.held, false);
    while last_beat(&servers[1]).await.server != 2 {
        pass(&servers, 10).await;
        assert!(began.elapsed() < Duration::from_secs(3));
    }
    let beat = last_beat(&servers[1]).await;
    assert!(beat.loads && beat.waits_ms > 0, "{beat:?}");
    assert!(map_of(&servers[0].candidate).await.is_ok(), "it answers still");
    set(&third.held, false);
    assert_eq!(pass(&servers, 4_000).await.0, Some(3));
}

/// All notice at the same time that the leader is gone. Who came second waited for the lead of the first, who had answered nothing
/// yet, and then for leases of the lost leader's server that had ended with its lead: a read took 3.1 s.
#[tokio::test(start_paused = true)]
async fn who_opens_the_store_while_another_loads_waits_for_nothing_of_that_one() {
    let mut servers = cluster(3).await;
    pass(&servers, 12_000).await;
    drop(servers.remove(0));
    // The first beat of the second server is stored before the third has opened the store, and not the one that it answers by.
    servers[0].store.commit_ms.store(300, Ordering::Relaxed);
    servers[1].store.opening_ms.store(350, Ordering::Relaxed);
    let (mut loaded, began) = (false, Instant::now());
    while !servers[1].candidate.leads() {
        let beat = last_beat(&servers[1]).await;
        loaded |= beat.server == 2 && beat.loads;
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(began.elapsed() < Duration::from_secs(3));
    }
    assert!(loaded, "the second was first");
    assert!(map_of(&servers[1].candidate).await.is_ok(), "it waits for nobody");
    assert!(began.elapsed() < Duration::from_millis(1_200), "{:?}", began.elapsed());
    assert_eq!(past(&servers[1]).await, [1], "and not the server of the second");
    assert_eq!(pass(&servers, 3_000).await.0, Some(3));
}

/// Whoever followed second knew nothing of what had ended before.
#[tokio::test(start_paused = true)]
async fn what_has_ended_with_a_lead_is_known_until_its_server_is_answered() {
    for (answered, over) in [(false, vec![1, 2]), (true, vec![2])] {
        let mut servers = cluster(3).await;
        pass(&servers, 12_000).await;
        drop(servers.remove(0));
        assert_eq!(pass(&servers, 1_000).await.0, Some(2));
        assert_eq!(past(&servers[0]).await, [1]);
        if answered {
            // Its manager alone is gone.
            let beat = Heartbeat { server: 1, lease_ms: 700, ..Heartbeat::default() };
            let answer = ask(&servers[0].candidate, ManagerOp::Heartbeat(beat)).await;
            assert!(matches!(answer, ManagerAnswer::Epoch(_)), "{answer:?}");
            assert!(past(&servers[0]).await.is_empty());
        }
        drop(servers.remove(0));
        assert_eq!(pass(&servers, 1_500).await.0, Some(3));
        assert_eq!(past(&servers[0]).await, over);
    }
}

/// Beats get late and early again, and some of them too late.
#[tokio::test(start_paused = true)]
async fn one_manager_answers_however_slow_the_store_is() {
    let servers = cluster(3).await;
    pass(&servers, 12_000).await;
    for (slow, commit_ms) in (0..3).cycle().zip([50, 350, 0, 200, 500, 900, 0, 300, 1_300, 0, 0]) {
        servers[slow].store.commit_ms.store(commit_ms, Ordering::Relaxed);
        pass(&servers, 3_000).await;
    }
    servers.iter().for_each(|server| server.store.commit_ms.store(0, Ordering::Relaxed));
    assert!(pass(&servers, 5_000).await.0.is_some());
}

/// Whoever follows would wait for the lease no longer than the last beat says.
#[tokio::test(start_paused = true)]
async fn a_longer_lease_is_given_when_the_store_says_that_it_may_be() {
    let servers = cluster(2).await;
    // Until the leases are forgotten of which nothing is known.
    pass(&servers, 7_000).await;
    let said = async || {
        let sight = servers[1].candidate.inner.look().await.unwrap().unwrap();
        sight.beat.unwrap().lent_ms
    };
    let heartbeat = async |lease_ms| {
        let beat = Heartbeat { server: 2, lease_ms, ..Heartbeat::default() };
        let op = Some(ManagerOp::Heartbeat(beat));
        servers[0].candidate.call(ManagerRequest { op }).await
    };
    heartbeat(700).await.unwrap();
    assert_eq!(said().await, 800);
    for lease_ms in [1_200, 2_000] {
        heartbeat(lease_ms).await.unwrap();
        assert_eq!(said().await, lease_ms);
    }
    servers[0].store.cut.store(true, Ordering::Relaxed);
    heartbeat(1_900).await.unwrap();
    assert_eq!(heartbeat(2_500).await.unwrap_err().kind, ErrorKind::Unavailable);
}

/// A reader waited for what the leader that is gone might have promised its own server, and for what it might have
/// promised others as long as it could.
#[tokio::test(start_paused = true)]
async fn leases_of_the_leaders_own_server_end_with_its_lead() {
    let servers = cluster(2).await;
    let lease = Lease::new(Arc::new(Paused(Instant::now())));
    servers[0].candidate.bind_to_lead(&lease);
    let beat = async |server| {
        let beat = Heartbeat { server, lease_ms: 700, ..Heartbeat::default() };
        let op = Some(ManagerOp::Heartbeat(beat));
        servers[0].candidate.call(ManagerRequest { op }).await.unwrap().lead
    };
    let lead = beat(1).await;
    assert!(lead > 0);
    assert_eq!(beat(2).await, 0);
    lease.renew_led(lease.now(), 3_000, lead);
    assert!(lease.holds());
    servers[0].store.cut.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(lease.holds(), "beats may be late");
    while !servers[1].candidate.leads() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!lease.holds() || !servers[1].candidate.leads());
    }
    servers[0].store.cut.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!lease.holds());
}

#[test]
fn the_next_manager_after_the_leader_tries_first() {
    assert_eq!([turn(2, 1, 4), turn(3, 1, 4)], [0, 1]);
    assert_eq!([turn(3, 2, 4), turn(1, 2, 4)], [0, 1]);
    assert_eq!([turn(1, 3, 4), turn(2, 3, 4)], [0, 1]);
    assert_eq!([turn(1, 1, 2), turn(1, 0, 0), turn(900, 1, 1_001)], [0, 0, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_manager_without_its_store_stops_before_another_leads() {
    let servers = cluster(2).await;
    for (cut_ms, leader) in [(100, 1), (300, 1), (2_000, 2), (4_000, 2)] {
        servers[0].store.cut.store(true, Ordering::Relaxed);
        pass(&servers, cut_ms).await;
        servers[0].store.cut.store(false, Ordering::Relaxed);
        assert_eq!(pass(&servers, 3_000).await.0, Some(leader), "{cut_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_reaches_the_store_nobody_else_leads() {
    let servers = cluster(2).await;
    let cut = |is| servers.iter().for_each(|server| server.store.cut.store(is, Ordering::Relaxed));
    cut(true);
    let (leader, _) = pass(&servers, 5_000).await;
    assert_eq!(leader, None);
    cut(false);
    assert_eq!(pass(&servers, 3_000).await.0, Some(1), "who comes back first is no reason");
}

#[tokio::test(start_paused = true)]
async fn the_only_manager_goes_on_without_its_store() {
    let servers = cluster(1).await;
    for nth in 0..20 {
        // What is new of a server is stored once.
        servers[0].store.cut.store(nth > 0, Ordering::Relaxed);
        let beat = Heartbeat { server: 1, ..Heartbeat::default() };
        let answer = ask(&servers[0].candidate, ManagerOp::Heartbeat(beat)).await;
        assert!(matches!(answer, ManagerAnswer::Epoch(_)), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_resigns_is_not_waited_for() {
    let servers = cluster(2).await;
    servers[0].candidate.resign().await;
    let (leader, silent) = pass(&servers, 2_000).await;
    assert_eq!(leader, Some(2));
    assert!(silent <= 300, "{silent} ms");
}

#[tokio::test(start_paused = true)]
async fn a_manager_resigns_only_if_another_is_up() {
    let servers = cluster(2).await;
    // The other has said nothing for longer than a lease.
    pass(&servers, 4_000).await;
    servers[0].candidate.resign().await;
    assert_eq!(pass(&servers, 2_000).await, (Some(1), 0));
}

/// One whose number a copy has, too, led on through the last flush of its mount: that copy is no other one by what it knows.
#[tokio::test(start_paused = true)]
async fn a_manager_that_has_to_end_leads_no_more_although_no_other_is_up() {
    let servers = cluster(2).await;
    pass(&servers, 4_000).await;
    servers[0].candidate.end().await;
    assert!(!servers[0].candidate.leads());
    let (leader, silent) = pass(&servers, 2_000).await;
    assert_eq!(leader, Some(2));
    assert!(silent <= 300, "{silent} ms");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_no_manager_any_more_does_not_lead() {
    let mut servers = cluster(2).await;
    let request = Join { server: 2, address: address(2), manager: false, ..Join::default() };
    let cluster = map_of(&servers[0].candidate).await.unwrap().cluster;
    ask(&servers[0].candidate, ManagerOp::Join(Join { cluster, ..request })).await;
    drop(servers.remove(0));
    assert_eq!(pass(&servers, 5_000).await.0, None);
}

/// It counted everybody's silence from its start, while the one before still promised that leases were renewed.
#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_for_the_promises_of_one_that_went_on_meanwhile() {
    let servers = cluster(2).await;
    // What the second says of the first; nothing, as long as that one may answer, too.
    let up = async |server: &Server| {
        let map = map_of(&server.candidate).await.ok()?;
        Some(map.servers.iter().any(|server| server.id == 1 && server.up))
    };
    // The first is away for so long that the second begins to open the store, and is back before it is open.
    servers[1].store.opening_ms.store(600, Ordering::Relaxed);
    servers[0].store.cut.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    servers[0].store.cut.store(false, Ordering::Relaxed);
    let began = Instant::now();
    let mut promised = began;
    while !servers[1].candidate.leads() {
        let beat = Heartbeat { server: 1, ..Heartbeat::default() };
        let answer = ask(&servers[0].candidate, ManagerOp::Heartbeat(beat)).await;
        if matches!(answer, ManagerAnswer::Epoch(_)) {
            promised = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(promised > began, "the first has led again meanwhile");
    while promised.elapsed() < Duration::from_secs(3) {
        assert_ne!(up(&servers[1]).await, Some(false), "{:?}", promised.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(up(&servers[1]).await, Some(false));
}
