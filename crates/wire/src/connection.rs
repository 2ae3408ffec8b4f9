//! The caller's side: peers, their lanes, and connections that carry many calls at once.
//!
//! A [`Peer`] is a server at an address. It has a few lanes of five kinds, so that a small call never
//! waits behind a megabyte: a control lane for small messages, bulk lanes for data, lanes for what
//! others wait for (what members of a group forward to each other, and requests for recalls), one for what itself waits for
//! others, as for a lock, and one for what members live by. A lane holds at most one connection, made when the first call needs it and again
//! after it broke, with backoff. That of the last kind is made anew, too, when a call on it was in vain and it
//! was silent meanwhile.
//! A sync, which waits for a disk, has a place of its own, so that however many there are other calls by the same lane have theirs.
//! So that copies leave them some, which wait for each other at their server, there are at most half as many of them.
//! A call whose connection breaks fails as [`ErrorKind::Unavailable`]: it may or may not have been
//! carried out, and the caller decides whether to send it again.

use crate::buffer::BufferPool;
use crate::frame::{Draft, FrameKind, ServiceClass};
use crate::hello::{self, Hello, remote_error};
use crate::link::{FrameReader, Outbox, ReadError};
use crate::options::CallerOptions;
use crate::transport;
use crate::turn::{CallTime, Turn};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strake_base::task::{Owned, spawn_owned};
use strake_types::{Error, ErrorKind, Result};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Lanes for what must not wait behind what may wait for it; made when first used.
const FORWARD_LANES: usize = 1;
/// Calls that may be under way on one connection, beside syncs; further ones wait.
const CALLS_MAX: usize = 256;
/// Copies that may be among those: a server makes few at once, and the others are not to keep all that comes after them from it.
const COPIES_MAX: usize = CALLS_MAX / 2;
/// Syncs that may be: as many as a server has slots for on one connection, beside those of other calls. Those that wait for a slow
/// disk are not to keep others of theirs, and cost little.
pub(crate) const SYNCS_MAX: usize = 1024;
/// Syncs that a primary may have forwarded by one connection. They take no slots of the other server's, and of one that has many
/// disks those that sync soon are not to wait for one that does not.
const FORWARDED_SYNCS_MAX: usize = 4096;
/// A call that members live by was in vain if it is given up after this time; sooner, its caller has its
/// answer from elsewhere.
const VAIN_MS_MIN: u64 = 1_000;
/// First and longest wait between two attempts to connect.
const BACKOFF_MS: std::ops::RangeInclusive<u64> = 20..=1_000;
/// Bytes of receive buffers kept for use by all peers.
const IDLE_BUFFER_BYTES_MAX: usize = 64 << 20;

/// Body and payload of an answer.
type Answer = Result<(Bytes, Bytes)>;

/// What all peers of an address book share.
pub(crate) struct PeerOptions {
    options: CallerOptions,
    cluster: RwLock<String>,
    pool: Arc<BufferPool>,
}

impl PeerOptions {
    pub fn new(options: CallerOptions) -> Self {
        Self { options, cluster: RwLock::default(), pool: BufferPool::new(IDLE_BUFFER_BYTES_MAX) }
    }

    /// Longest time until an answer.
    pub fn call_timeout(&self) -> Duration {
        self.options.call_timeout()
    }

    /// From now on only servers of this cluster are talked to.
    pub fn set_cluster(&self, cluster: &str) {
        if *self.cluster.read() != cluster {
            *self.cluster.write() = cluster.to_owned();
        }
    }
}

/// What a lane is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneKind {
    /// Small messages.
    Control,
    /// Data.
    Bulk,
    /// Data that is of use one after the other: what has the same number goes by the same lane, so
    /// that the first comes in full before the next.
    BulkInTurn(u32),
    /// What must not wait behind what may wait for it: what members of a group tell each other, and
    /// requests for recalls.
    Forward,
    /// What the server answers when somebody else has done something: that must not wait behind it.
    Waiting,
    /// What members live by: it must not wait behind work, and not for a path that is a black hole.
    Vital,
}

impl LaneKind {
    /// Such a lane carries data.
    fn is_bulk(self) -> bool {
        !matches!(self, Self::Control | Self::Waiting | Self::Vital)
    }

    /// Clients' data goes by it, of which much may wait for its turn.
    fn is_for_clients_data(self) -> bool {
        matches!(self, Self::Bulk | Self::BulkInTurn(_))
    }

    /// Syncs that may be under way on one connection.
    fn syncs_max(self) -> usize {
        match self {
            Self::Forward => FORWARDED_SYNCS_MAX,
            _ => SYNCS_MAX,
        }
    }
}

/// What is counted of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// A call like others.
    Call,
    /// One that waits for a disk.
    Sync,
    /// One that waits for its turn among those of all clients of the server.
    Copy,
}

/// A call before it is given to a connection.
pub(crate) struct Call {
    pub service: ServiceClass,
    pub draft: Draft,
    /// By which kind of lane.
    pub lane: LaneKind,
    /// How many times the common limit the call may take.
    pub timeout_factor: u32,
    /// What it counts as.
    pub counted: Counted,
}

impl Call {
    /// A call by the control lane.
    pub fn new(service: ServiceClass, draft: Draft) -> Self {
        let (lane, counted) = (LaneKind::Control, Counted::Call);
        Self { service, draft, lane, timeout_factor: 1, counted }
    }
}

/// A server in another process.
pub(crate) struct Peer {
    address: String,
    options: Arc<PeerOptions>,
    control: Lane,
    bulk: Vec<Lane>,
    forward: Vec<Lane>,
    waiting: Lane,
    vital: Lane,
}

impl Peer {
    /// A peer that is connected to when it is first called.
    pub fn new(address: &str, options: Arc<PeerOptions>) -> Self {
        let lanes = |count: usize| (0..count.max(1)).map(|_| Lane::default()).collect();
        let (bulk, forward) = (lanes(options.options.bulk_lanes), lanes(FORWARD_LANES));
        let [control, waiting, vital] = <[Lane; 3]>::default();
        Self { address: address.to_owned(), options, control, bulk, forward, waiting, vital }
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Body and payload of the answer.
    pub async fn call(&self, call: Call) -> Answer {
        let limit = self.options.call_timeout() * call.timeout_factor;
        let mut time = CallTime::new(limit, call.lane.is_for_clients_data());
        let turn = Turn::default();
        let mut answer = pin!(self.call_unbounded(call, &turn));
        loop {
            if let Ok(answer) = timeout_at(time.look(), answer.as_mut()).await {
                return answer;
            }
            if time.is_over(turn.taken()) {
                let waited_ms = time.whole().as_millis();
                let detail = format!("{}: no answer within {waited_ms} ms", self.address);
                return Err(Error::with(ErrorKind::Unavailable, detail));
            }
        }
    }

    async fn call_unbounded(&self, call: Call, turn: &Turn) -> Answer {
        let lane = self.lane(call.lane);
        let connection = match lane.current() {
            Some(connection) => connection,
            None => lane.connect(self, call.lane).await?,
        };
        if call.lane.is_for_clients_data() {
            turn.wait_at(&connection.outbox);
        }
        let mut doubt = (call.lane == LaneKind::Vital).then(|| Doubt::new(&connection));
        let answer = connection.call(call, turn).await;
        if let Some(doubt) = &mut doubt {
            doubt.is_over = true;
        }
        answer
    }

    fn lane(&self, kind: LaneKind) -> &Lane {
        match kind {
            LaneKind::Control => &self.control,
            LaneKind::Bulk => Self::least_loaded(&self.bulk),
            LaneKind::BulkInTurn(number) => &self.bulk[number as usize % self.bulk.len()],
            LaneKind::Forward => Self::least_loaded(&self.forward),
            LaneKind::Waiting => &self.waiting,
            LaneKind::Vital => &self.vital,
        }
    }

    /// The first of the lanes with the fewest calls under way: a lone caller stays on one.
    fn least_loaded(lanes: &[Lane]) -> &Lane {
        let mut best = &lanes[0];
        if lanes.len() > 1 {
            let mut load = best.load();
            for lane in &lanes[1..] {
                if load == 0 {
                    break;
                }
                let other = lane.load();
                if other < load {
                    (best, load) = (lane, other);
                }
            }
        }
        best
    }

    /// Closes every connection.
    pub fn close(&self) {
        let lanes = self.bulk.iter().chain(&self.forward);
        for lane in lanes.chain([&self.control, &self.waiting, &self.vital]) {
            // The receiving task then sees the end and fails the calls in flight.
            if let Some(connection) = lane.current.write().take() {
                connection.outbox.close();
            }
        }
    }
}

/// Room for one connection.
#[derive(Default)]
struct Lane {
    current: RwLock<Option<Arc<Connection>>>,
    /// Held while connecting, so that callers share one attempt and its outcome.
    attempts: tokio::sync::Mutex<Attempts>,
}

/// How the last attempts to connect went.
#[derive(Default)]
struct Attempts {
    /// No attempt before this; until then the last error stands.
    failed: Option<(Instant, Error)>,
    backoff_ms: u64,
}

impl Lane {
    fn current(&self) -> Option<Arc<Connection>> {
        self.current.read().as_ref().filter(|c| c.is_open()).cloned()
    }

    fn load(&self) -> usize {
        self.current.read().as_ref().map_or(0, |c| c.waiting.lock().answers.len())
    }

    async fn connect(&self, peer: &Peer, kind: LaneKind) -> Result<Arc<Connection>> {
        let mut attempts = self.attempts.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        if let Some((until, error)) = &attempts.failed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        // In a box: few calls find no connection, and none is to be larger by what that takes.
        match Box::pin(Connection::open(peer, kind)).await {
            Ok(connection) => {
                *attempts = Attempts::default();
                *self.current.write() = Some(connection.clone());
                Ok(connection)
            }
            Err(e) => {
                let wait_ms =
                    (attempts.backoff_ms * 2).clamp(*BACKOFF_MS.start(), *BACKOFF_MS.end());
                attempts.backoff_ms = wait_ms;
                let until = Instant::now() + Duration::from_millis(wait_ms);
                attempts.failed = Some((until, e.clone()));
                Err(e)
            }
        }
    }
}

/// Calls that wait for their answers.
#[derive(Default)]
struct Waiting {
    answers: HashMap<u64, Caller>,
    last_request: u64,
    /// Why no further call can be made: the connection broke, or the server says goodbye.
    closed: Option<Error>,
}

/// Who waits for an answer, or did.
struct Caller {
    answer: oneshot::Sender<Answer>,
    _places: Places,
}

/// The place of a sync; or that of a copy, and its slot. They stay taken until there is an answer.
type Places = [Option<OwnedSemaphorePermit>; 2];

/// One connection with many calls at once.
struct Connection {
    outbox: Arc<Outbox>,
    waiting: Arc<Mutex<Waiting>>,
    slots: Arc<Semaphore>,
    /// Places of copies, which need a slot as well.
    copies: Arc<Semaphore>,
    /// Places of syncs, which need no slot.
    syncs: Arc<Semaphore>,
    /// See [`FrameReader::heard`].
    heard: Arc<AtomicU64>,
    _tasks: [Owned<()>; 2],
}

impl Connection {
    async fn open(peer: &Peer, kind: LaneKind) -> Result<Arc<Self>> {
        let address = peer.address.as_str();
        if address.is_empty() {
            let detail = "the server's address is not known here";
            return Err(Error::with(ErrorKind::Unavailable, detail));
        }
        let limit = peer.options.options.connect_timeout();
        let late = |_| {
            let detail = format!("{address}: no connection within {} ms", limit.as_millis());
            Error::with(ErrorKind::Unavailable, detail)
        };
        let greet = Self::greet(address, &peer.options, kind.is_bulk());
        let (reader, outbox, writer) = tokio::time::timeout(limit, greet).await.map_err(late)??;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (name, heard) = (address.to_owned(), reader.heard());
        let receiver = receive(reader, waiting.clone(), outbox.clone(), name);
        let _tasks = [spawn_owned(writer), spawn_owned(receiver)];
        let [slots, copies, syncs] = [CALLS_MAX, COPIES_MAX, kind.syncs_max()]
            .map(|places| Arc::new(Semaphore::new(places)));
        Ok(Arc::new(Self { outbox, waiting, slots, copies, syncs, heard, _tasks }))
    }

    /// Connects and exchanges hellos.
    async fn greet(
        address: &str,
        options: &PeerOptions,
        bulk: bool,
    ) -> Result<(FrameReader, Arc<Outbox>, impl Future<Output = ()> + Send + use<>)> {
        let tls = options.options.tls.as_deref();
        let stream = transport::connect(address, tls).await?.stream;
        let cluster = options.cluster.read().clone();
        let CallerOptions { name, kind, .. } = &options.options;
        let mine = Hello::new(&cluster, name, bulk).of_kind(*kind);
        let sent = hello::send(&*stream, Draft::message(&mine)?).await;
        let mut reader = FrameReader::new(stream.clone(), options.pool.clone());
        // Also if the other side hung up: it may have said why before.
        let theirs = match (hello::receive(&mut reader).await, sent) {
            (Err(e), Err(broke)) if e.kind != ErrorKind::WrongPeer => {
                Err(Error::with(ErrorKind::Unavailable, broke.to_string()))
            }
            (theirs, _) => theirs,
        };
        theirs.and_then(|theirs| mine.accept(&theirs)).map_err(|e| e.about(address))?;
        let (outbox, writer) = Outbox::new(stream);
        Ok((reader, outbox, writer))
    }

    fn is_open(&self) -> bool {
        self.waiting.lock().closed.is_none()
    }

    async fn call(&self, call: Call, turn: &Turn) -> Answer {
        let gone = || Error::with(ErrorKind::Unavailable, "the connection was closed");
        let (_slot, places) = match call.counted {
            Counted::Call => (Some(self.slots.acquire().await.map_err(|_| gone())?), [None, None]),
            Counted::Sync => {
                let place = self.syncs.clone().acquire_owned().await.map_err(|_| gone())?;
                (None, [Some(place), None])
            }
            // In a box: few calls are copies, and none is to be larger by what that takes.
            Counted::Copy => (None, Box::pin(self.places_of_copy()).await.map_err(|_| gone())?),
        };
        let (answer, arrival) = oneshot::channel();
        let request = {
            let mut waiting = self.waiting.lock();
            if let Some(error) = &waiting.closed {
                return Err(error.clone());
            }
            waiting.last_request += 1;
            let request = waiting.last_request;
            waiting.answers.insert(request, Caller { answer, _places: places });
            request
        };
        // The server goes on with a sync or a copy for which nobody waits any more, and it keeps its slot there.
        let lasts = call.counted != Counted::Call && call.lane != LaneKind::Forward;
        let mut given_up = GivenUp { connection: self, request, frame: None, lasts };
        let frame = call.draft.seal(FrameKind::Request, call.service, request);
        given_up.frame = self.outbox.send(frame, Default::default());
        turn.set_frame(given_up.frame.unwrap_or_default());
        arrival.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn places_of_copy(&self) -> Result<Places, AcquireError> {
        let place = self.copies.clone().acquire_owned().await?;
        let slot = self.slots.clone().acquire_owned().await?;
        Ok([Some(place), Some(slot)])
    }

    /// The next call needs another connection.
    fn give_up(&self) {
        let silent = || Error::with(ErrorKind::Unavailable, "the connection was silent");
        self.waiting.lock().closed.get_or_insert_with(silent);
        // The receiving task then sees the end and fails the calls in flight.
        self.outbox.close();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

/// Gives a connection up if a call on it was in vain and nothing came on it meanwhile: TCP takes 20 s to
/// find out that a path is a black hole, and a new connection may take another one.
struct Doubt<'a> {
    connection: &'a Connection,
    since: Instant,
    /// What had come by then.
    heard: u64,
    /// There was an answer.
    is_over: bool,
}

impl<'a> Doubt<'a> {
    fn new(connection: &'a Connection) -> Self {
        let heard = connection.heard.load(Ordering::Relaxed);
        Self { connection, since: Instant::now(), heard, is_over: false }
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        let is_silent = self.connection.heard.load(Ordering::Relaxed) == self.heard;
        let in_vain = self.since.elapsed() >= Duration::from_millis(VAIN_MS_MIN);
        if !self.is_over && is_silent && in_vain {
            self.connection.give_up();
        }
    }
}

/// A caller that stops waiting leaves nothing behind: neither its entry nor what is not sent yet. Its next attempt would
/// have its turn after that.
struct GivenUp<'a> {
    connection: &'a Connection,
    request: u64,
    /// The number of its frame in the outbox.
    frame: Option<u64>,
    /// The entry of what is sent stays until there is an answer.
    lasts: bool,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        let Connection { outbox, waiting, .. } = self.connection;
        if !waiting.lock().answers.contains_key(&self.request) {
            // It was answered.
            return;
        }
        let is_sent = self.frame.is_some_and(|frame| !outbox.withdraw(frame));
        if !is_sent || !self.lasts {
            waiting.lock().answers.remove(&self.request);
        }
    }
}

/// The reading task of a connection.
async fn receive(
    mut reader: FrameReader,
    waiting: Arc<Mutex<Waiting>>,
    outbox: Arc<Outbox>,
    address: String,
) {
    let cause = loop {
        match receive_one(&mut reader, &waiting, &address).await {
            Ok(true) => {}
            Ok(false) => break "the connection was closed by the server".to_owned(),
            Err(e) => break e.to_string(),
        }
    };
    tracing::debug!(%address, "connection ended: {cause}");
    let error = Error::with(ErrorKind::Unavailable, format!("{address}: {cause}"));
    let answers = {
        let mut waiting = waiting.lock();
        waiting.closed = Some(error.clone());
        std::mem::take(&mut waiting.answers)
    };
    for (_, caller) in answers {
        // A caller that is gone needs no answer.
        let _ = caller.answer.send(Err(error.clone()));
    }
    outbox.close();
}

/// Receives a frame; false at the end of the stream.
async fn receive_one(
    reader: &mut FrameReader,
    waiting: &Mutex<Waiting>,
    address: &str,
) -> Result<bool, ReadError> {
    let Some(header) = reader.header().await? else {
        return Ok(false);
    };
    let body = reader.body(&header).await?;
    let payload = reader.payload(&header).await?;
    match header.kind {
        FrameKind::Reply => {
            let answer = match header.error {
                0 => Ok((body, payload)),
                code => Err(remote_error(code, &body)),
            };
            let caller = waiting.lock().answers.remove(&header.request);
            if let Some(caller) = caller {
                // A caller that has just given up needs no answer.
                let _ = caller.answer.send(answer);
            }
        }
        FrameKind::Goodbye => {
            let detail = format!("{address}: the server is stopping");
            waiting.lock().closed = Some(Error::with(ErrorKind::Unavailable, detail));
        }
        // A newer server may say things that this release need not understand.
        FrameKind::Hello | FrameKind::Request => {}
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
