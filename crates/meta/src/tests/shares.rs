//! Two metadata servers, each with a share of one volume, and what becomes of a change of both when one of them dies.

use crate::borrow::dealt;
use crate::kept_loans::OnLoan;
use crate::keys;
use crate::loans::{CHILDREN_MAX, SLOTS};
use crate::ops::orphan::REPLACED_STAYS_MS;
use crate::records::{LoanRecord, Stat};
use crate::stored::get;
use crate::tests::check::check_shares;
use crate::tests::world::*;
use crate::volume::Volume;
use crate::{MetaOptions, MetaServer};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_engine::kv::memory::MemoryKv;
use strake_engine::kv::{
    Kv, KvError, Outcome, Part, Result as KvResult, Snapshot, Store, Transaction, Writes,
};
use strake_types::{Credentials, ErrorKind, FileKind, Ino, Result, ServerId, Shares, VolumeId};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::capability::CapabilityKey;
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::manager::Server;
use strake_wire::message::meta::*;
use strake_wire::service::{MetaService, Services};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// When a commit stands still.
#[derive(Clone, Copy, PartialEq)]
enum When {
    Before,
    After,
}

/// The next change of several shares stands still, until it is let go.
struct Trap {
    when: When,
    reached: oneshot::Sender<()>,
    go: oneshot::Receiver<()>,
}

/// A database in memory of which each part has one writer, who finds out no more of the others than he must.
#[derive(Clone)]
struct Database {
    kv: MemoryKv,
    writers: Arc<Mutex<HashMap<Part, u64>>>,
    trap: Arc<Mutex<Option<Trap>>>,
    /// It takes nothing more.
    full: Arc<AtomicBool>,
}

struct Opened {
    database: Database,
    part: Part,
    number: u64,
    lost: AtomicBool,
}

#[async_trait]
impl Store for Database {
    fn name(&self) -> &'static str {
        "shared"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn spans_parts(&self) -> bool {
        true
    }

    async fn open(&self, part: Part) -> KvResult<Arc<dyn Kv>> {
        let mut writers = self.writers.lock();
        let number = writers.entry(part).or_default();
        *number += 1;
        let (number, lost) = (*number, AtomicBool::new(false));
        Ok(Arc::new(Opened { database: self.clone(), part, number, lost }))
    }

    async fn look(&self, keys: &[Vec<u8>]) -> KvResult<Vec<Option<Bytes>>> {
        self.kv.snapshot().await?.multi_get(keys).await
    }
}

impl Opened {
    fn check(&self) -> KvResult<()> {
        if self.database.writers.lock().get(&self.part) == Some(&self.number) {
            return Ok(());
        }
        self.lost.store(true, Ordering::SeqCst);
        Err(KvError::TakenOver { store: "shared".into(), by: "another".into() })
    }

    /// True for what changes other parts, too.
    fn is_of_several(&self, writes: &Writes) -> bool {
        let Part::Volume(own) = self.part else { return false };
        writes.keys().any(|key| key[0] == b'K' && key[1..5] != own.to_be_bytes())
    }
}

#[async_trait]
impl Kv for Opened {
    fn name(&self) -> &'static str {
        "shared"
    }

    async fn snapshot(&self) -> KvResult<Arc<dyn Snapshot>> {
        self.check()?;
        self.database.kv.snapshot().await
    }

    async fn commit(&self, snapshot: Arc<dyn Snapshot>, writes: Writes) -> KvResult<Outcome> {
        self.commit_contended(snapshot, writes, &[]).await
    }

    async fn commit_contended(
        &self,
        snapshot: Arc<dyn Snapshot>,
        writes: Writes,
        contended: &[Vec<u8>],
    ) -> KvResult<Outcome> {
        let trap = match self.is_of_several(&writes) {
            true => self.database.trap.lock().take(),
            false => None,
        };
        let when = trap.as_ref().map(|trap| trap.when);
        let stand_still = async {
            let Some(trap) = trap else { return };
            let _ = trap.reached.send(());
            let _ = trap.go.await;
        };
        if self.database.full.load(Ordering::SeqCst) {
            return Err(KvError::Full { store: "shared".into(), next: "make room" });
        }
        if when != Some(When::After) {
            stand_still.await;
            self.check()?;
            return Ok(self.database.kv.commit_as(self.part, &*snapshot, writes, contended));
        }
        self.check()?;
        let outcome = self.database.kv.commit_as(self.part, &*snapshot, writes, contended);
        stand_still.await;
        Ok(outcome)
    }

    fn is_taken_over(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    async fn sync(&self) -> KvResult<()> {
        Ok(())
    }
}

/// Server 1 has share 0, and server 2 share 1; a client has a session with each.
struct Two {
    database: Database,
    manager: Arc<FakeManager>,
    maps: Vec<Arc<MapView>>,
    servers: Vec<Arc<MetaServer>>,
    /// Of the servers.
    clocks: [Arc<TestClock>; 2],
    sessions: [u64; 2],
}

const SHARES: Shares = Shares { first: VolumeId(1), count: 2 };

/// As long as this a loan is kept, where it is to be kept: less than its lender waits for it.
const KEPT_MS: u64 = 2_000;

impl Two {
    async fn new() -> Arc<Self> {
        Self::keeping(options().loan_kept_ms).await
    }

    /// Loans are kept for so long for the next new directory.
    async fn keeping(loan_kept_ms: u64) -> Arc<Self> {
        let (writers, trap, full) = Default::default();
        let database = Database { kv: MemoryKv::new(), writers, trap, full };
        let mut map = cluster_map();
        map.servers.push(Server { id: 2, meta: true, up: true, ..Server::default() });
        map.volumes = (0..2).map(|share| share_of(1, "wide", share, 2)).collect();
        map.volumes[1].meta_server = 2;
        let (away, silent) = Default::default();
        let manager = FakeManager { map: Mutex::new(map), away, silent };
        let manager = Arc::new(manager);
        let (mut maps, mut servers) = (Vec::new(), Vec::new());
        let clocks: [Arc<TestClock>; 2] = Default::default();
        for (id, clock) in (1..).zip(&clocks) {
            let callers = Callers::new(CallerOptions::default());
            let source = ManagerSource::Local(manager.clone());
            let map = MapView::connect(callers, source, 1000).await.unwrap();
            servers.push(start(&database, &map, clock, id, loan_kept_ms).await);
            maps.push(map);
        }
        let two = Two { database, manager, maps, servers, clocks, sessions: [0, 0] };
        two.register();
        let sessions = [two.open_session(0, 0).await, two.open_session(1, 0).await];
        Arc::new(Two { sessions, ..two })
    }

    /// Each server finds the other.
    fn register(&self) {
        for map in &self.maps {
            for (id, server) in (1..).zip(&self.servers) {
                let services = Services { meta: Some(server.clone()), ..Services::default() };
                map.callers().register_local(ServerId(id), services);
            }
        }
    }

    /// The server of a share is killed, and starts again at once: the map does not hear of it.
    async fn restarted(self: Arc<Self>, share: u32) -> Arc<Self> {
        let mut two = Arc::into_inner(self).unwrap();
        let nth = share as usize;
        two.servers[nth].halt().await;
        let (map, clock) = (&two.maps[nth], &two.clocks[nth]);
        let server = start(&two.database, map, clock, share + 1, KEPT_MS).await;
        two.servers[nth] = server;
        two.register();
        assert_eq!(two.open_session(share, two.sessions[nth]).await, two.sessions[nth]);
        Arc::new(two)
    }

    /// Whom the map names for a share.
    fn server_of(&self, share: u32) -> &Arc<MetaServer> {
        let server = self.manager.map.lock().volumes[share as usize].meta_server;
        &self.servers[server as usize - 1]
    }

    /// A share, as its server has it.
    async fn volume(&self, share: u32) -> Arc<Volume> {
        self.server_of(share).core().volume(VolumeId(1 + share)).await.unwrap()
    }

    /// The loan of share 1 that share 0 keeps, if it keeps one.
    async fn kept(&self) -> Option<OnLoan> {
        let (borrower, since) = (self.volume(0).await, self.maps[0].owned_since(VolumeId(2)));
        let kept = borrower.kept.take(VolumeId(2), since)?;
        assert!(borrower.kept.take(VolumeId(2), since).is_none(), "there is another loan");
        assert!(borrower.kept.put(VolumeId(2), &kept));
        Some(kept)
    }

    /// Borrows of share 1 for new directories of the root, as share 0 would: with as many numbers, if there are.
    async fn borrow(&self, children: u32) -> Loan {
        let op = Borrow { borrower: 1, child_of: 1, children, ..Borrow::default() };
        match self.ask(1, 0, 0, MetaOp::Borrow(op)).await.unwrap() {
            MetaAnswer::Loan(loan) => loan,
            other => panic!("{other:?}"),
        }
    }

    /// Nothing was made with it.
    async fn give_back(&self, loan: Loan) {
        let end = GiveBack { number: loan.number, made: Some(false), ..GiveBack::default() };
        self.ask(1, 0, 0, MetaOp::GiveBack(end)).await.unwrap();
    }

    /// Waits until nothing of a share is lent.
    async fn until_given_back(&self, share: u32) {
        let volume = self.volume(share).await;
        for _ in 0..400 {
            if volume.loans.are_over() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("something of share {share} is still lent");
    }

    async fn ask(&self, share: u32, session: u64, seq: u64, op: MetaOp) -> Result<MetaAnswer> {
        self.ask_under(0, share, session, seq, op).await
    }

    /// `leases`: under which number one asks who keeps leases; 0: he does not.
    async fn ask_under(
        &self,
        leases: u64,
        share: u32,
        session: u64,
        seq: u64,
        op: MetaOp,
    ) -> Result<MetaAnswer> {
        let request = MetaRequest {
            volume: 1 + share,
            session,
            seq,
            leases,
            cred: (&Credentials::root()).into(),
            op: Some(op),
            ..MetaRequest::default()
        };
        Ok(self.server_of(share).call(request).await?.answer.unwrap())
    }

    /// Opens a session with a share, or goes on with it.
    async fn open_session(&self, share: u32, resume: u64) -> u64 {
        let op = OpenSession { client: "test".into(), resume, ..OpenSession::default() };
        match self.ask(share, 0, 0, MetaOp::OpenSession(op)).await.unwrap() {
            MetaAnswer::Session(session) => session.session,
            other => panic!("{other:?}"),
        }
    }

    /// A client that keeps leases.
    async fn keeper(self: &Arc<Self>, mount: u64) -> Keeper {
        let mut sessions = [0, 0];
        for share in 0..2 {
            let open = OpenSession { client: "keeper".into(), mount, ..OpenSession::default() };
            let opened = self.ask_under(1, share, 0, 0, MetaOp::OpenSession(open)).await.unwrap();
            let MetaAnswer::Session(session) = opened else { panic!("{opened:?}") };
            sessions[share as usize] = session.session;
        }
        let keeper = Keeper { two: self.clone(), sessions, number: 1 };
        for share in 0..2 {
            assert_eq!(keeper.recalled(share, 0).await.inodes, [0; 0]);
        }
        keeper
    }

    async fn call(&self, seq: u64, op: MetaOp) -> Result<MetaAnswer> {
        let share = op.place().map_or(0, |ino| SHARES.index_of(ino));
        self.ask(share, self.sessions[share as usize], seq, op).await
    }

    async fn make(&self, parent: u64, name: &str, kind: FileKind) -> u64 {
        match self.call(0, MetaOp::Create(new(parent, name, kind, 0o755))).await.unwrap() {
            MetaAnswer::Created(created) => created.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    /// A directory of the root that is in this share.
    async fn directory_in(&self, share: u32) -> u64 {
        for nth in 0..64 {
            let ino = self.make(1, &format!("{share}-{nth}"), FileKind::Directory).await;
            if SHARES.index_of(Ino(ino)) == share {
                return ino;
            }
        }
        panic!("all directories are in one share");
    }

    /// Makes directories in the root, in both shares. How many of them are in share 1.
    async fn make_many(&self, names: Range<u32>) -> u64 {
        let mut elsewhere = 0;
        for nth in names {
            let made = self.make(1, &format!("many-{nth}"), FileKind::Directory).await;
            elsewhere += u64::from(SHARES.index_of(Ino(made)));
        }
        assert!(elsewhere > 1, "all directories are in one share");
        elsewhere
    }

    async fn leads(&self, parent: u64, name: &str) -> Option<u64> {
        match self.call(0, MetaOp::Lookup(at(parent, name))).await {
            Ok(MetaAnswer::Entry(attr)) => Some(attr.ino),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            other => panic!("{other:?}"),
        }
    }

    /// The next change of both shares stands still then.
    fn set_trap(&self, when: When) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let (reached, is_reached) = oneshot::channel();
        let (let_go, go) = oneshot::channel();
        *self.database.trap.lock() = Some(Trap { when, reached, go });
        (is_reached, let_go)
    }

    fn spawn(self: &Arc<Self>, seq: u64, op: MetaOp) -> JoinHandle<Result<MetaAnswer>> {
        let two = self.clone();
        tokio::spawn(async move { two.call(seq, op).await })
    }

    /// A share gets another server, and the client's session goes on there.
    async fn take_over(&self, share: u32, server: u32) {
        {
            let mut map = self.manager.map.lock();
            map.epoch += 1;
            let epoch = map.epoch;
            let volume = &mut map.volumes[share as usize];
            (volume.meta_server, volume.owned_since) = (server, epoch);
        }
        for map in &self.maps {
            map.refresh().await.unwrap();
        }
        let session = self.sessions[share as usize];
        assert_eq!(self.open_session(share, session).await, session);
    }

    /// Everything fits together, and the counts are right: as soon as nothing is lent or has to be counted any more, for that
    /// may make them wrong.
    async fn check(&self) {
        let there = check_shares(&self.database.kv, SHARES).await as u64;
        for _ in 0..400 {
            let (mut counted, mut is_settled) = (0, true);
            for share in 0..2 {
                let volume = self.volume(share).await;
                is_settled &= volume.loans.are_over() && volume.counts.is_exact();
                let stat = self.ask(share, 0, 0, MetaOp::VolumeStat(Nothing {})).await.unwrap();
                let MetaAnswer::VolumeStat(stat) = stat else { panic!("{stat:?}") };
                counted += stat.inodes;
            }
            // No cache waits for a commit that has ended.
            let is_still = (0..2).all(|share| self.server_of(share).changing() == 0);
            if counted == there && is_settled && is_still {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!(
            "the counts are not of {there} inodes, something is lent or a cache waits for a commit for ever"
        );
    }
}

/// A server over this database, which keeps loans for so long.
async fn start(
    database: &Database,
    map: &Arc<MapView>,
    clock: &Arc<TestClock>,
    id: u32,
    loan_kept_ms: u64,
) -> Arc<MetaServer> {
    let options = MetaOptions { server: ServerId(id), loan_kept_ms, ..options() };
    let (store, key) = (Arc::new(database.clone()), CapabilityKey::new([7; 32]));
    MetaServer::start(store, map.clone(), key, clock.clone(), options).await.unwrap()
}

/// A server of a release in which a loan is good for one change.
struct Earlier(Arc<MetaServer>);

#[async_trait]
impl MetaService for Earlier {
    async fn call(&self, mut request: MetaRequest) -> Result<MetaReply> {
        if let Some(MetaOp::Borrow(op)) = &mut request.op {
            op.children = 0;
        }
        let mut reply = self.0.call(request).await?;
        if let Some(MetaAnswer::Loan(loan)) = &mut reply.answer {
            loan.children = 0;
        }
        Ok(reply)
    }
}

/// A client that keeps leases, with a session with each share.
#[derive(Clone)]
struct Keeper {
    two: Arc<Two>,
    sessions: [u64; 2],
    /// Under which it asks.
    number: u64,
}

impl Keeper {
    async fn call(&self, op: MetaOp) -> Result<MetaAnswer> {
        let share = op.place().map_or(0, |ino| SHARES.index_of(ino));
        let session = self.sessions[share as usize];
        self.two.ask_under(self.number, share, session, 0, op).await
    }

    async fn is_leased(&self, ino: u64) -> bool {
        match self.call(MetaOp::GetAttr(Look { ino, ..Look::default() })).await.unwrap() {
            MetaAnswer::Entry(attr) => attr.leased,
            other => panic!("{other:?}"),
        }
    }

    /// How much a share has leased to it.
    async fn leased(&self, share: u32) -> u64 {
        let (session, op) = (self.sessions[share as usize], MetaOp::ListClients(Nothing {}));
        match self.two.ask(share, session, 0, op).await.unwrap() {
            MetaAnswer::Clients(all) => {
                all.clients.iter().find(|client| client.session == session).unwrap().leased
            }
            other => panic!("{other:?}"),
        }
    }

    /// What a share recalls of it beyond what it has followed.
    async fn recalled(&self, share: u32, followed: u64) -> Recalled {
        let (session, op) = (
            self.sessions[share as usize],
            MetaOp::Recalls(Recalls { followed, ..Recalls::default() }),
        );
        match self.two.ask_under(self.number, share, session, 0, op).await.unwrap() {
            MetaAnswer::Recalled(recalled) => recalled,
            other => panic!("{other:?}"),
        }
    }

    /// Follows what one share recalls next: which inodes.
    fn follow(&self, share: u32) -> JoinHandle<Vec<u64>> {
        let keeper = self.clone();
        tokio::spawn(async move {
            let Recalled { number, inodes, .. } = keeper.recalled(share, 0).await;
            keeper.recalled(share, number).await;
            inodes
        })
    }
}

/// A name below `dir` of which a directory is made in share 1; another one for each `nth`.
fn elsewhere(dir: u64, nth: usize) -> String {
    let names = (0..).map(|number| format!("elsewhere-{number}"));
    let mut elsewhere = names.filter(|name| dealt(SHARES, &at(dir, name)) == VolumeId(2));
    elsewhere.nth(nth).unwrap()
}

fn rename(from: (u64, &str), to: (u64, &str)) -> MetaOp {
    let (from, to) = (at(from.0, from.1), at(to.0, to.1));
    MetaOp::Rename(Rename { from, to, exchange: false, no_replace: false })
}

/// A file in a directory of share 0, a directory of share 1 with a file of the same name, and the rename of one over the
/// other.
async fn about_to_rename(two: &Two) -> (u64, u64, u64, MetaOp) {
    let (from, to) = (two.directory_in(0).await, two.directory_in(1).await);
    let moved = two.make(from, "f", FileKind::File).await;
    two.make(to, "g", FileKind::File).await;
    // Both servers know all of it.
    assert_eq!(two.leads(from, "f").await, Some(moved));
    assert!(two.leads(to, "g").await.is_some());
    (from, to, moved, rename((from, "f"), (to, "g")))
}

/// A change stands still then, while the server of a share dies and the other one takes its place: what lets it go, and
/// the change itself.
async fn struck(
    two: &Arc<Two>,
    op: MetaOp,
    when: When,
    share: u32,
) -> (oneshot::Sender<()>, JoinHandle<Result<MetaAnswer>>) {
    let (reached, go) = two.set_trap(when);
    let changing = two.spawn(1, op);
    reached.await.unwrap();
    two.servers[share as usize].halt().await;
    two.take_over(share, 2 - share).await;
    (go, changing)
}

async fn was_renamed_once(two: &Two, (from, to, moved): (u64, u64, u64)) {
    assert_eq!(two.leads(from, "f").await, None);
    assert_eq!(two.leads(to, "g").await, Some(moved));
    two.check().await;
}

/// By a client that knows nothing of shares: what it wrote would lie where nobody looks for it.
#[tokio::test]
async fn what_is_in_another_share_is_refused() {
    let two = Two::new().await;
    let directory = two.directory_in(1).await;
    let file = two.make(directory, "f", FileKind::File).await;
    let look = MetaOp::GetAttr(Look { ino: file, ..Look::default() });
    for op in [look, MetaOp::Lookup(at(directory, "f"))] {
        let refused = two.ask(0, two.sessions[0], 0, op).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.detail.contains("another share"), "{refused}");
    }
}

#[tokio::test]
async fn names_and_directories_of_two_servers_change_together() {
    let two = Two::new().await;
    let (from, to, moved, op) = about_to_rename(&two).await;
    two.call(1, op.clone()).await.unwrap();
    two.call(1, op).await.unwrap();
    was_renamed_once(&two, (from, to, moved)).await;
    // A directory into one of the other share, and not below itself.
    let inner = two.make(from, "inner", FileKind::Directory).await;
    two.call(2, rename((from, "inner"), (to, "inner"))).await.unwrap();
    assert_eq!(two.leads(inner, "..").await, Some(to));
    let names = format!("{}-", SHARES.index_of(Ino(to)));
    let name = (0..64).map(|nth| format!("{names}{nth}"));
    for name in name {
        if two.leads(1, &name).await == Some(to) {
            let below = two.call(3, rename((1, &name), (inner, "up"))).await.unwrap_err();
            assert_eq!(below.kind, ErrorKind::Invalid);
        }
    }
    let link = MetaOp::Link(Link { ino: moved, to: at(to, "again") });
    two.call(4, link).await.unwrap();
    for name in ["again", "g"] {
        let unlink = MetaOp::Unlink(Unlink { at: at(to, name), directory: false });
        two.call(0, unlink).await.unwrap();
    }
    let rmdir = MetaOp::Unlink(Unlink { at: at(to, "inner"), directory: true });
    two.call(5, rmdir).await.unwrap();
    assert_eq!(two.leads(to, "inner").await, None);
}

#[tokio::test]
async fn a_lender_that_dies_before_the_commit_is_asked_anew() {
    let two = Two::new().await;
    let (from, to, moved, op) = about_to_rename(&two).await;
    let (go, renaming) = struck(&two, op, When::Before, 1).await;
    assert!(two.leads(to, "g").await.is_some_and(|ino| ino != moved), "nothing has happened yet");
    go.send(()).unwrap();
    renaming.await.unwrap().unwrap();
    was_renamed_once(&two, (from, to, moved)).await;
}

#[tokio::test]
async fn a_lender_that_dies_after_the_commit_changes_nothing() {
    let two = Two::new().await;
    let (from, to, moved, op) = about_to_rename(&two).await;
    let (go, renaming) = struck(&two, op, When::After, 1).await;
    assert_eq!(two.leads(to, "g").await, Some(moved));
    go.send(()).unwrap();
    renaming.await.unwrap().unwrap();
    was_renamed_once(&two, (from, to, moved)).await;
}

#[tokio::test]
async fn a_borrower_that_dies_before_the_commit_has_done_nothing() {
    let two = Two::new().await;
    let (from, to, moved, op) = about_to_rename(&two).await;
    let (go, renaming) = struck(&two, op.clone(), When::Before, 0).await;
    two.call(1, op).await.unwrap();
    was_renamed_once(&two, (from, to, moved)).await;
    // It wakes up.
    go.send(()).unwrap();
    renaming.await.unwrap().unwrap_err();
    was_renamed_once(&two, (from, to, moved)).await;
}

#[tokio::test]
async fn a_borrower_that_dies_after_the_commit_has_done_it_once() {
    let two = Two::new().await;
    let (from, to, moved, op) = about_to_rename(&two).await;
    let made = two.make(from, "d", FileKind::File).await;
    let _never = struck(&two, op.clone(), When::After, 0).await;
    assert_eq!(two.leads(to, "g").await, Some(moved));
    // The name that is free now is taken, and asked for once more it would be moved.
    two.call(2, rename((from, "d"), (from, "f"))).await.unwrap();
    let again = two.call(1, op).await.unwrap();
    let MetaAnswer::Renamed(renamed) = again else { panic!("{again:?}") };
    assert_eq!(renamed.moved.ino, moved);
    assert_eq!(two.leads(from, "f").await, Some(made));
    two.check().await;
}

/// A directory is made in a share whose server hears of it from its slot only.
#[tokio::test]
async fn what_a_dead_borrower_has_made_is_counted() {
    let two = Two::new().await;
    let (reached, _never) = two.set_trap(When::After);
    let mut making = Vec::new();
    for nth in 0..8 {
        let op = MetaOp::Create(new(1, &format!("d{nth}"), FileKind::Directory, 0o755));
        making.push(two.spawn(nth + 1, op));
    }
    reached.await.unwrap();
    two.servers[0].halt().await;
    two.take_over(0, 2).await;
    two.check().await;
}

#[tokio::test]
async fn a_borrower_that_stands_still_holds_nobody_up_for_long_and_does_nothing_late() {
    let two = Two::new().await;
    let (from, to, moved, op) = about_to_rename(&two).await;
    let (reached, go) = two.set_trap(When::Before);
    let renaming = two.spawn(1, op);
    reached.await.unwrap();
    // It is in the way of this one, until its loan is over.
    two.call(1, rename((to, "g"), (to, "h"))).await.unwrap();
    assert!(two.leads(to, "h").await.is_some());
    go.send(()).unwrap();
    renaming.await.unwrap().unwrap();
    was_renamed_once(&two, (from, to, moved)).await;
    assert!(two.leads(to, "h").await.is_some_and(|ino| ino != moved), "it was not replaced");
}

/// It went on for minutes, 4 s with each of 200 tries.
#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_borrow_ends_when_its_client_has_given_it_up() {
    let two = Two::new().await;
    let (from, to, moved, op) = about_to_rename(&two).await;
    let held = two.servers[1].core().locks.lock(VolumeId(2), &[Ino(to)]).await;
    let renaming = two.spawn(1, op.clone());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!renaming.is_finished(), "what it has to borrow may be free soon");
    let look = MetaOp::GetAttr(Look { ino: 1, ..Look::default() });
    let request = MetaRequest {
        volume: 1,
        session: two.sessions[0],
        given_up: vec![1],
        cred: (&Credentials::root()).into(),
        op: Some(look),
        ..MetaRequest::default()
    };
    two.server_of(0).call(request).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), renaming).await;
    ended.expect("nobody waits for it").unwrap().unwrap_err();
    drop(held);
    two.call(2, op).await.unwrap();
    was_renamed_once(&two, (from, to, moved)).await;
}

/// Each of them cost two messages.
#[tokio::test(start_paused = true)]
async fn directories_of_another_share_are_made_one_after_the_other_with_one_loan() {
    let two = Two::keeping(KEPT_MS).await;
    let made = two.make_many(0..24).await;
    let kept = two.kept().await.unwrap();
    assert_eq!(kept.noted.map(|noted| noted.inodes), Some(made as i64));
    two.check().await;
}

/// What is made below one directory lies together, whichever the loan was asked for.
#[tokio::test(start_paused = true)]
async fn a_number_of_a_kept_loan_lies_where_its_directory_has_its_children() {
    let two = Two::keeping(KEPT_MS).await;
    let dir = two.directory_in(0).await;
    // It was asked for the root.
    two.make(1, &elsewhere(1, 0), FileKind::Directory).await;
    let kept = two.kept().await.unwrap();
    let made = two.make(dir, &elsewhere(dir, 0), FileKind::Directory).await;
    assert_eq!(two.kept().await.unwrap().loan.number, kept.loan.number, "another loan was used");
    let child = |dir| SHARES.place(keys::child_ino(Ino(dir), kept.numbers.start), 1);
    assert_eq!(Ino(made), child(dir));
    assert_ne!(Ino(made), child(1));
    two.check().await;
}

/// Others never wait for slots that are kept and not used.
#[tokio::test]
async fn where_half_of_the_slots_are_used_a_loan_has_one_number() {
    let two = Two::new().await;
    let mut lent = Vec::new();
    for _ in 0..SLOTS / 2 {
        lent.push(two.borrow(CHILDREN_MAX).await);
    }
    assert!(lent.iter().all(|loan| loan.children == CHILDREN_MAX));
    lent.push(two.borrow(CHILDREN_MAX).await);
    assert_eq!(lent.last().map(|loan| loan.children), Some(1));
    for loan in lent {
        two.give_back(loan).await;
    }
    two.until_given_back(1).await;
    assert_eq!(two.borrow(CHILDREN_MAX).await.children, CHILDREN_MAX);
}

#[tokio::test(start_paused = true)]
async fn with_a_server_of_an_earlier_release_each_loan_ends_with_its_change() {
    let two = Two::keeping(KEPT_MS).await;
    // Who borrows asks for no more than one number,
    let loan = two.borrow(0).await;
    assert_eq!(loan.children, 1);
    two.give_back(loan).await;
    // or who lends does not say how many there are.
    let meta: Arc<dyn MetaService> = Arc::new(Earlier(two.servers[1].clone()));
    let services = Services { meta: Some(meta), ..Services::default() };
    two.maps[0].callers().register_local(ServerId(2), services);
    for nth in 0..3 {
        two.make(1, &elsewhere(1, nth), FileKind::Directory).await;
        assert!(two.kept().await.is_none(), "a loan is kept that has no numbers");
        two.until_given_back(1).await;
    }
    two.check().await;
}

/// What is made with it then nobody would count.
#[tokio::test]
async fn a_loan_that_its_lender_has_ended_is_good_for_nothing_more() {
    let two = Two::keeping(KEPT_MS).await;
    two.make_many(0..16).await;
    two.volume(1).await.loans.call_in();
    two.until_given_back(1).await;
    two.make_many(16..32).await;
    two.check().await;
}

/// By the map its lender is the same one: what it finds in the slot tells.
#[tokio::test(start_paused = true)]
async fn a_kept_loan_ends_when_its_lender_starts_again() {
    let two = Two::keeping(KEPT_MS).await;
    two.make(1, &elsewhere(1, 0), FileKind::Directory).await;
    let two = two.restarted(1).await;
    // It has counted all that there is: what is made from here on it has to be told.
    two.check().await;
    let kept = two.kept().await.unwrap();
    two.make(1, &elsewhere(1, 1), FileKind::Directory).await;
    let next = two.kept().await.unwrap();
    assert_ne!(next.loan.number, kept.loan.number, "it was used again");
    assert_eq!(next.noted.map(|noted| noted.inodes), Some(1));
    two.check().await;
    assert_eq!(two.volume(1).await.counts.get().0, 2);
}

/// The map tells of that.
#[tokio::test]
async fn a_kept_loan_ends_with_the_server_that_gave_it() {
    let two = Two::keeping(KEPT_MS).await;
    two.make_many(0..16).await;
    two.servers[1].halt().await;
    two.take_over(1, 1).await;
    two.make_many(16..32).await;
    two.check().await;
}

#[tokio::test]
async fn what_was_made_with_a_kept_loan_is_counted_when_its_borrower_dies() {
    // It says nothing.
    let two = Two::keeping(3_600_000).await;
    two.make_many(0..16).await;
    two.servers[0].halt().await;
    two.take_over(0, 2).await;
    two.check().await;
}

/// Its borrower knows of the first one only, and the slot of both.
#[tokio::test]
async fn the_second_change_with_a_kept_loan_is_counted_when_its_borrower_dies_after_the_commit() {
    let two = Two::keeping(3_600_000).await;
    two.make(1, &elsewhere(1, 0), FileKind::Directory).await;
    let kept = two.kept().await.unwrap();
    let op = MetaOp::Create(new(1, &elsewhere(1, 1), FileKind::Directory, 0o755));
    let _never = struck(&two, op.clone(), When::After, 0).await;
    two.check().await;
    let (snapshot, slot) = (two.database.kv.snapshot().await.unwrap(), kept.loan.slot as u8);
    let stored: Option<LoanRecord> = get(&*snapshot, &keys::loan(VolumeId(2), slot)).await.unwrap();
    let stored = stored.map(|stored| (stored.number, stored.inodes, stored.over));
    assert_eq!(stored, Some((kept.loan.number, 2, true)));
    // It is asked for again, and was made.
    two.call(1, op).await.unwrap();
    two.check().await;
    assert_eq!(two.volume(1).await.counts.get().0, 2);
}

/// All of it was counted anew by whoever served it next.
#[tokio::test]
async fn a_share_of_which_somebody_keeps_a_loan_stops_in_good_order() {
    let two = Two::keeping(KEPT_MS).await;
    // It has been counted: else its counts are not to be believed, whatever is lent.
    two.check().await;
    let made = two.make_many(0..16).await;
    two.servers[1].stop().await.unwrap();
    let snapshot = two.database.kv.snapshot().await.unwrap();
    let stat: Option<Stat> = get(&*snapshot, &keys::volume_stat(VolumeId(2))).await.unwrap();
    let stat = stat.unwrap();
    assert!(stat.clean, "it is not known what it holds");
    assert_eq!(stat.inodes, made);
}

/// Whoever had lent could not write down that the change was not made, and kept all of it locked until there was room.
#[tokio::test]
async fn a_change_for_which_there_is_no_room_keeps_nothing_lent() {
    let two = Two::new().await;
    let (from, to, moved, op) = about_to_rename(&two).await;
    two.database.full.store(true, Ordering::SeqCst);
    assert_eq!(two.call(1, op.clone()).await.unwrap_err().kind, ErrorKind::NoSpace);
    two.until_given_back(1).await;
    two.database.full.store(false, Ordering::SeqCst);
    two.call(2, op).await.unwrap();
    was_renamed_once(&two, (from, to, moved)).await;
}

#[tokio::test]
async fn what_is_lent_is_recalled_from_all_but_the_one_who_asks_for_the_change() {
    let two = Two::new().await;
    let (_, to, _, op) = about_to_rename(&two).await;
    let (caller, other) = (two.keeper(7).await, two.keeper(8).await);
    assert!(caller.is_leased(to).await && other.is_leased(to).await);
    let recalled = other.follow(1);
    caller.call(op).await.unwrap();
    assert_eq!(recalled.await.unwrap(), [to]);
    assert_eq!(caller.recalled(1, 0).await.inodes, [0; 0], "its answer tells it");
    two.check().await;
}

/// `rm -rf` left a lease for each directory in another share, until leases had to be recalled because they were too many.
#[tokio::test]
async fn what_is_removed_from_another_share_is_leased_to_nobody() {
    let two = Two::new().await;
    let dir = two.directory_in(1).await;
    let mut names = (0..64).map(|nth| format!("1-{nth}"));
    let name = loop {
        let name = names.next().unwrap();
        if two.leads(1, &name).await == Some(dir) {
            break name;
        }
    };
    let caller = two.keeper(7).await;
    assert!(caller.is_leased(dir).await);
    assert_eq!(caller.leased(1).await, 1);
    let op = MetaOp::Unlink(Unlink { at: at(1, &name), directory: true });
    caller.call(op).await.unwrap();
    // It is given back when the answer is on its way already.
    while caller.leased(1).await != 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    two.check().await;
}

/// What a server that was not stopped acknowledged after an export was missing where that was imported.
#[tokio::test]
async fn no_share_of_a_database_that_was_exported_is_served_before_a_manager_leads_by_it() {
    let two = Two::new().await;
    let database = &two.database;
    let look = || two.ask(0, 0, 0, MetaOp::Lookup(at(1, ".")));
    look().await.unwrap();
    for mark in ["!exported", "!importing", "!imported"] {
        let volume = two.volume(0).await;
        let mut tx = Transaction::begin(&database.kv).await.unwrap();
        tx.put(mark.into(), vec![7; 16]);
        assert_eq!(tx.commit(&database.kv).await.unwrap(), Outcome::Committed);
        // Whoever exports a store opens all of it.
        database.writers.lock().values_mut().for_each(|number| *number += 1);
        assert!(volume.kv.snapshot().await.is_err());
        let error = look().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.detail.contains("no manager has led by it since"), "{error}");
        // What a manager does first.
        let mut tx = Transaction::begin(&database.kv).await.unwrap();
        tx.delete(mark.into());
        assert_eq!(tx.commit(&database.kv).await.unwrap(), Outcome::Committed);
        look().await.unwrap();
    }
}

/// A request that its client has given up is carried out late: that is somebody else's change by then.
#[tokio::test]
async fn what_was_leased_since_a_request_was_given_up_is_recalled_when_that_borrows() {
    let two = Two::new().await;
    let (_, to, _, op) = about_to_rename(&two).await;
    let given_up = two.keeper(7).await;
    let since = Keeper { number: 2, ..given_up.clone() };
    assert!(since.is_leased(to).await);
    let recalled = since.follow(1);
    given_up.call(op).await.unwrap();
    assert_eq!(recalled.await.unwrap(), [to]);
    two.check().await;
}

/// It was deleted at once, as if the clock had been set back since: who had just looked it up could not open it.
#[tokio::test]
async fn a_replaced_file_of_another_share_stays_for_its_moment_though_the_clock_there_is_behind() {
    let two = Two::new().await;
    let (_, to, _, op) = about_to_rename(&two).await;
    let ino = two.leads(to, "g").await.unwrap();
    let look = || two.call(0, MetaOp::GetAttr(Look { ino, ..Look::default() }));
    two.clocks[0].set_ahead_ms(500);
    two.call(1, op).await.unwrap();
    two.until_given_back(1).await;
    // Whoever deletes it has had some turns.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let looked = look().await.unwrap();
    assert!(matches!(&looked, MetaAnswer::Entry(attr) if attr.nlink == 0), "{looked:?}");
    two.clocks[1].advance_ms(REPLACED_STAYS_MS + 600);
    for _ in 0..400 {
        if look().await.is_err() {
            return two.check().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it stays for ever");
}
