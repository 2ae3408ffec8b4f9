//! The server's side: accepts connections and gives their calls to services.
//!
//! Each connection has one task that reads. A call is polled there once: most are done then, and
//! answered without waking anybody. One that has to wait goes on in a task of its own, so that
//! it never holds up the calls behind it.
//!
//! Everything is bounded: connections, those that have not said hello yet, calls and bytes in flight on each and on all of them, the time
//! of a hello, of a frame, and to take an answer. Room for a payload is reserved before a byte of it is read, and room for a
//! body before its call begins; while there is none, the connection is not read, and the caller's socket
//! fills up: it has one body here without room, which takes less than 100 MiB once it is decoded. What is not a frame closes the
//! connection it came from and nothing else.

use crate::buffer::BufferPool;
use crate::connection::SYNCS_MAX;
use crate::frame::{Draft, FrameKind, Header, ServiceClass};
use crate::hello::{self, CallerKind, Hello};
use crate::link::{FRAME_MS_MAX, FrameReader, Hold, LAG_MS_MAX, Outbox, PAUSE_MS_MAX, ReadError};
use crate::message::storage::{StorageOp, StorageRequest};
use crate::message::{manager, meta};
use crate::stream::Stream;
use crate::tls::{Certificate, Kind};
use bytes::Bytes;
use futures::FutureExt;
use parking_lot::Mutex;
use prost::Message;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use strake_base::{descriptor, task};
use strake_types::limits::PAYLOAD_BYTES_MAX;
use strake_types::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

mod fields;
mod strangers;
mod unaccepted;

pub use crate::service::Services;
pub use crate::transport::Listener;
use crate::transport::{Connected, Incoming};
use strangers::{Stranger, Strangers};
use unaccepted::Unaccepted;

/// Connections served at once, and the part of the files that this process may have open which they are at most: stores need some, too,
/// and calls of its own.
const CONNECTIONS_MAX: usize = 8192;
const CONNECTIONS_PART: u64 = 2;
/// Part of the connections that is kept from mounts, which may be many: for servers, whose leases end without, and half of it for
/// commands that look after the cluster, too.
const KEPT_PART: usize = 8;
/// Connections on which hellos are still to be exchanged; as well. When a further one comes, the oldest is hung up on.
const STRANGERS_MAX: usize = 1024;
const STRANGERS_PART: u64 = 8;
/// Longest time for the exchange of hellos.
const HELLO_MS_MAX: u64 = 5_000;
/// Calls under way on one connection, beside syncs.
const CALLS_PER_CONNECTION_MAX: u32 = 256;
/// Unit in which room is reserved.
const ROOM_UNIT_BYTES: usize = 4 << 10;
/// Largest body that needs no room, as that of most calls: in all slots of a connection they are not more
/// than one that has come and waits for room.
const BODY_BYTES_FREE: usize = 16 << 10;
/// The same of a sync.
const SYNC_BODY_BYTES_FREE: usize = 4 << 10;
/// Bodies and payloads under way on one connection.
const BYTES_PER_CONNECTION_MAX: usize = 64 << 20;
/// Payloads under way on all connections.
const BYTES_MAX: usize = 256 << 20;
/// Bodies under way on all connections. They have room of their own: a call with a body may cause
/// others, on other servers, that wait for room for a payload.
const BODIES_BYTES_MAX: usize = 128 << 20;
/// Supplementary groups of a user: no kernel knows more.
const GROUPS_MAX: usize = 65_536;
/// Waits that a client tells: no release tells more than a dozen.
const WAITS_MAX: usize = 64;
/// Receive buffers kept for use.
const IDLE_BUFFER_BYTES_MAX: usize = 64 << 20;
/// How long calls in flight may take to finish when the server stops.
const STOP_MS_MAX: u64 = 5_000;
/// Pause after an accept that failed (most likely for lack of file descriptors).
const ACCEPT_PAUSE_MS: u64 = 100;

/// Who a server says it is.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The cluster's id. Callers of another are refused. Empty: any caller.
    pub cluster: String,
    /// Its name, for the logs of the other side.
    pub name: String,
}

/// How long a caller may take, how many there may be, and how many may be strangers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Callers that have said hello.
    pub connections: usize,
    /// Callers that are at their hello.
    pub strangers: usize,
    /// For its hello.
    pub hello: Duration,
    /// From the first byte of a frame to its last.
    pub frame: Duration,
    /// Between two parts of a body or payload.
    pub pause: Duration,
    /// Behind the least rate, with what it is sent.
    pub lag: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self::of_files(descriptor::limit())
    }
}

impl Limits {
    /// Of a process that may have so many files open.
    fn of_files(files: u64) -> Self {
        let [hello, frame, pause, lag] =
            [HELLO_MS_MAX, FRAME_MS_MAX, PAUSE_MS_MAX, LAG_MS_MAX].map(Duration::from_millis);
        let within =
            |most: usize, part: u64| most.min(usize::try_from(files / part).unwrap_or(most));
        let connections = within(CONNECTIONS_MAX, CONNECTIONS_PART);
        let strangers = within(STRANGERS_MAX, STRANGERS_PART);
        Self { connections, strangers, hello, frame, pause, lag }
    }

    /// So many connections there may be when a caller of this kind is taken.
    fn connections_for(&self, kind: CallerKind) -> usize {
        let kept = self.connections / KEPT_PART;
        let kept = match kind {
            CallerKind::Server => 0,
            CallerKind::Command => kept / 2,
            CallerKind::Client => kept,
        };
        self.connections - kept
    }
}

/// What all connections of a listener share.
struct Shared {
    services: Services,
    identity: Identity,
    limits: Limits,
    pool: Arc<BufferPool>,
    /// Callers that have not been greeted.
    strangers: Arc<Strangers>,
    /// Room for payloads, in units.
    room: Arc<Semaphore>,
    /// Room for bodies, in units.
    bodies: Arc<Semaphore>,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    next_connection: AtomicU64,
    stopping: AtomicBool,
}

/// One caller.
struct Connection {
    shared: Arc<Shared>,
    /// What the caller has proved to be; `None` where nobody has to prove anything.
    certificate: Option<Certificate>,
    outbox: Arc<Outbox>,
    slots: Arc<Semaphore>,
    /// Those of syncs.
    syncs: Arc<Semaphore>,
    /// Room for bodies and payloads, in units.
    room: Arc<Semaphore>,
}

/// Serves until `shutdown` becomes true (or its sender is gone), then lets calls in flight finish.
pub async fn serve(
    listener: Listener,
    services: Services,
    identity: Identity,
    shutdown: watch::Receiver<bool>,
) {
    serve_within(Limits::default(), listener, services, identity, shutdown).await;
}

/// As [`serve`], with other limits.
pub(crate) async fn serve_within(
    limits: Limits,
    listener: Listener,
    services: Services,
    identity: Identity,
    mut shutdown: watch::Receiver<bool>,
) {
    let shared = Arc::new(Shared {
        services,
        identity,
        limits,
        pool: BufferPool::new(IDLE_BUFFER_BYTES_MAX),
        strangers: Strangers::new(limits.strangers),
        room: Arc::new(Semaphore::new(BYTES_MAX / ROOM_UNIT_BYTES)),
        bodies: Arc::new(Semaphore::new(BODIES_BYTES_MAX / ROOM_UNIT_BYTES)),
        connections: Mutex::default(),
        next_connection: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
    });
    let mut unaccepted = Unaccepted::default();
    loop {
        let accepted = tokio::select! {
            // Also ends if the sender is gone: whoever could stop the server has left.
            _ = shutdown.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(caller) => {
                let stranger = shared.strangers.admit();
                task::spawn(converse(caller, stranger, shared.clone()));
            }
            Err(e) => {
                unaccepted.tell(&listener.address(), &e);
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            }
        }
    }
    drop(listener);
    shared.stop().await;
}

impl Shared {
    /// Says goodbye on every connection, waits for the calls in flight, and closes.
    async fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let connections: Vec<_> = self.connections.lock().values().cloned().collect();
        let goodbye = |c: &Arc<Connection>| {
            let frame = Draft::empty().seal(FrameKind::Goodbye, ServiceClass::None, 0);
            c.outbox.send(frame, Hold::default());
        };
        connections.iter().for_each(goodbye);
        let finish = async {
            for connection in &connections {
                // All slots free: no call is under way and every answer has been sent.
                let all = connection.slots.acquire_many(CALLS_PER_CONNECTION_MAX).await;
                let syncs = connection.syncs.acquire_many(SYNCS_MAX as u32).await;
                connection.outbox.flushed().await;
                drop((all, syncs));
            }
        };
        if tokio::time::timeout(Duration::from_millis(STOP_MS_MAX), finish).await.is_err() {
            tracing::warn!("calls still under way after {STOP_MS_MAX} ms are abandoned");
        }
        connections.iter().for_each(|c| c.outbox.close());
    }
}

/// A connection from hello to end.
async fn converse(caller: Incoming, mut stranger: Stranger, shared: Arc<Shared>) {
    let peer = caller.peer();
    let limit = shared.limits.hello;
    let in_time = tokio::select! {
        // What has been said counts before others do.
        biased;
        in_time = tokio::time::timeout(limit, greet(caller, &shared)) => in_time,
        // Who has something to say comes again.
        () = stranger.displaced() => {
            return tracing::debug!(%peer, "hung up: too many have not said hello");
        }
    };
    let greeted = in_time.unwrap_or_else(|_| {
        let detail = format!("no hello within {} ms", limit.as_millis());
        Err(Error::with(ErrorKind::TimedOut, detail))
    });
    drop(stranger);
    let Greeted { mut reader, stream, certificate } = match greeted {
        Ok(greeted) => greeted,
        Err(e) if hello::is_silent(&e) => return tracing::debug!(%peer, "{e}"),
        Err(e) => return tracing::warn!(%peer, "connection refused: {e}"),
    };
    let (outbox, writer) = Outbox::paced(stream, shared.limits.lag);
    let connection = Arc::new(Connection {
        shared: shared.clone(),
        certificate,
        outbox: outbox.clone(),
        slots: Arc::new(Semaphore::new(CALLS_PER_CONNECTION_MAX as usize)),
        syncs: Arc::new(Semaphore::new(SYNCS_MAX)),
        room: Arc::new(Semaphore::new(BYTES_PER_CONNECTION_MAX / ROOM_UNIT_BYTES)),
    });
    let id = shared.next_connection.fetch_add(1, Ordering::Relaxed);
    shared.connections.lock().insert(id, connection.clone());
    let writer = task::spawn(writer);
    loop {
        match connection.receive_one(&mut reader).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) => {
                // The end of a process that was killed is nothing to warn of; garbage is.
                match e {
                    ReadError::Io(_) => tracing::debug!(%peer, "connection lost: {e}"),
                    _ => tracing::warn!(%peer, "connection closed: {e}"),
                }
                break;
            }
        }
    }
    outbox.close();
    shared.connections.lock().remove(&id);
    // It ends by itself, since the outbox is closed; nothing depends on how.
    let _ = writer.await;
}

/// What a caller is after the exchange of hellos.
struct Greeted {
    reader: FrameReader,
    stream: Arc<dyn Stream>,
    certificate: Option<Certificate>,
}

/// Encryption, if it is on, and the exchange of hellos. A stream that is dropped is closed.
async fn greet(caller: Incoming, shared: &Shared) -> Result<Greeted> {
    let Connected { stream, certificate } = caller.establish().await?;
    let reader = FrameReader::new(stream.clone(), shared.pool.clone());
    let mut reader = reader.with_patience(shared.limits.frame, shared.limits.pause);
    let answered = match hello::receive(&mut reader).await {
        Ok(theirs) => {
            let kind = kind_of(&theirs, certificate.as_ref());
            answer_hello(&*stream, &theirs, kind, shared).await
        }
        Err(e) => Err(refuse_hello(&*stream, e).await),
    };
    if answered.is_err() {
        stream.close();
    }
    answered.map(|()| Greeted { reader, stream, certificate })
}

/// What a caller is: by its certificate, if it has one; of what that does not say, by its own word.
fn kind_of(theirs: &Hello, certificate: Option<&Certificate>) -> CallerKind {
    match (certificate.map(|c| c.kind), theirs.kind()) {
        (Some(Kind::Server), _) => CallerKind::Server,
        (Some(Kind::Client), CallerKind::Server) => CallerKind::Client,
        (_, said) => said,
    }
}

async fn answer_hello(
    stream: &dyn Stream,
    theirs: &Hello,
    kind: CallerKind,
    shared: &Shared,
) -> Result<()> {
    let mut mine = Hello::new(&shared.identity.cluster, &shared.identity.name, theirs.bulk);
    let full = shared.connections.lock().len() >= shared.limits.connections_for(kind);
    let verdict = match full || shared.stopping.load(Ordering::Acquire) {
        true => Err(hello::full()),
        false => mine.accept(theirs),
    };
    let draft = match &verdict {
        Ok(protocol) => {
            mine.protocol = *protocol;
            Draft::message(&mine)?
        }
        Err(e) => Draft::error(e),
    };
    let broke = |e: std::io::Error| Error::with(ErrorKind::Unavailable, e.to_string());
    hello::send(stream, draft).await.map_err(broke)?;
    verdict.map(|_| ())
}

/// Tells a caller that belongs here but cannot be understood (it speaks TLS, or another version) why
/// it is refused.
async fn refuse_hello(stream: &dyn Stream, error: Error) -> Error {
    if error.kind == ErrorKind::WrongPeer {
        // Whoever does not hear it has hung up.
        let _ = hello::send(stream, Draft::error(&error)).await;
    }
    error
}

/// A decoded call.
enum Work {
    Manager(manager::ManagerRequest),
    Meta(meta::MetaRequest),
    Storage(StorageRequest),
}

impl Work {
    fn decode(service: ServiceClass, body: Bytes) -> Result<Self> {
        fields::check(&body)?;
        let decoded = match service {
            ServiceClass::Manager => manager::ManagerRequest::decode(body).map(Work::Manager),
            ServiceClass::Meta => meta::MetaRequest::decode(body).map(Work::Meta),
            ServiceClass::Storage => StorageRequest::decode(body).map(Work::Storage),
            ServiceClass::None => {
                return Err(Error::with(ErrorKind::Malformed, "a call for no service"));
            }
        };
        let malformed = |detail: String| Error::with(ErrorKind::Malformed, detail);
        match decoded.map_err(|e| malformed(e.to_string()))? {
            Work::Meta(request) if request.cred.groups.len() > GROUPS_MAX => {
                Err(malformed(format!("a user in more than {GROUPS_MAX} groups")))
            }
            // They would be there as long as the call, which waits for something to recall.
            Work::Meta(meta::MetaRequest { op: Some(meta::MetaOp::Recalls(recalls)), .. })
                if recalls.waits.len().max(recalls.waited.len()) > WAITS_MAX =>
            {
                Err(malformed(format!("a client that tells of more than {WAITS_MAX} waits")))
            }
            work => Ok(work),
        }
    }

    /// Units of room that it needs. `None`: not even a slot.
    fn needs(&self, header: &Header) -> Option<Room> {
        // Its sender holds room for it already, and may be waiting for room here itself: two
        // servers that forward to each other must not wait for each other's clients.
        if self.is_forward() {
            return None;
        }
        let is_sync = self.is_sync();
        let free = if is_sync { SYNC_BODY_BYTES_FREE } else { BODY_BYTES_FREE };
        let body = match header.body_len as usize {
            bytes if bytes <= free => 0,
            bytes => units(bytes),
        };
        let payload = units(self.answer_bytes().max(header.payload_len as usize));
        // Nor must what servers tell each other wait for the bodies of clients.
        let shared = if self.is_between_servers() { 0 } else { body };
        Some(Room { is_sync, own: body + payload, bodies: shared, payloads: payload })
    }

    /// Bytes of payload that its answer may carry.
    fn answer_bytes(&self) -> usize {
        match self {
            Work::Storage(StorageRequest { op: Some(StorageOp::Read(read)), .. }) => {
                read.len.min(PAYLOAD_BYTES_MAX as u64) as usize
            }
            _ => 0,
        }
    }

    fn is_between_servers(&self) -> bool {
        match self {
            Work::Manager(request) => request.op.as_ref().is_some_and(|op| op.is_between_servers()),
            Work::Storage(request) => request.is_between_servers(),
            Work::Meta(request) => request.op.as_ref().is_some_and(|op| op.is_between_servers()),
        }
    }

    /// True for what the primary of a group forwards to its members.
    fn is_forward(&self) -> bool {
        matches!(self, Work::Storage(StorageRequest { forward: Some(_), .. }))
    }

    /// True for what waits for a disk.
    fn is_sync(&self) -> bool {
        matches!(self, Work::Storage(request) if request.is_sync())
    }

    async fn run(self, services: &Services, payload: Bytes) -> Result<Draft> {
        let missing = |role: &str| {
            Error::with(ErrorKind::StaleMap, format!("this server has no {role} role"))
        };
        match self {
            Work::Manager(request) => {
                let service = services.manager.as_ref().ok_or_else(|| missing("manager"))?;
                Ok(Draft::message(&service.call(request).await?)?)
            }
            Work::Meta(request) => {
                let service = services.meta.as_ref().ok_or_else(|| missing("meta"))?;
                Ok(Draft::message(&service.call(request).await?)?)
            }
            Work::Storage(request) => {
                let service = services.storage.as_ref().ok_or_else(|| missing("storage"))?;
                let (reply, payload) = service.call(request, payload).await?;
                Ok(Draft::message(&reply)?.with_payload(payload)?)
            }
        }
    }
}

/// Units of room for a call.
#[derive(Clone, Copy)]
struct Room {
    /// Its slot is one of those of syncs.
    is_sync: bool,
    /// Of its connection's room.
    own: u32,
    /// Of the room that all have for bodies,
    bodies: u32,
    /// and of that for payloads.
    payloads: u32,
}

fn units(bytes: usize) -> u32 {
    bytes.div_ceil(ROOM_UNIT_BYTES) as u32
}

impl Connection {
    /// Receives a frame and begins what it asks for; false at the end of the stream.
    async fn receive_one(self: &Arc<Self>, reader: &mut FrameReader) -> Result<bool, ReadError> {
        self.outbox.relieved().await;
        let Some(header) = reader.header().await? else {
            return Ok(false);
        };
        if header.kind != FrameKind::Request {
            // A caller's goodbye, or what a newer caller says and this release need not understand.
            reader.skip(&header).await?;
            return Ok(header.kind != FrameKind::Goodbye);
        }
        let body = reader.body(&header).await?;
        let work = Work::decode(header.service, body).and_then(|work| self.permitted(work));
        let needs = match &work {
            Ok(work) => work.needs(&header),
            // Its body is gone.
            Err(_) => {
                let payload = units(header.payload_len as usize);
                Some(Room { is_sync: false, own: payload, bodies: 0, payloads: payload })
            }
        };
        let hold = match needs {
            Some(room) => self.reserve(room).await,
            None => Hold::default(),
        };
        let payload = reader.payload(&header).await?;
        match work {
            Ok(work) if !self.shared.stopping.load(Ordering::Acquire) => {
                self.begin(header, work, payload, hold);
            }
            Ok(_) => self.refuse(&header, &Error::with(ErrorKind::Unavailable, "stopping"), hold),
            Err(e) => self.refuse(&header, &e, hold),
        }
        Ok(true)
    }

    /// Holds a call against what the caller has proved to be.
    fn permitted(&self, work: Work) -> Result<Work> {
        let Some(caller) = self.certificate.as_ref().filter(|c| c.kind == Kind::Client) else {
            return Ok(work);
        };
        if work.is_between_servers() {
            let detail = format!(
                "the certificate of {} is a client's, and this call is for servers only; a server \
                 needs one made by strake tls issue --kind server",
                caller.name
            );
            return Err(Error::with(ErrorKind::NotPermitted, detail));
        }
        Ok(work)
    }

    /// Waits for a slot and for room. Whoever has room for a payload waits for no other.
    async fn reserve(&self, room: Room) -> Hold {
        let slots = if room.is_sync { &self.syncs } else { &self.slots };
        let slot = take(slots, 1).await;
        let own = take(&self.room, room.own).await;
        let bodies = take(&self.shared.bodies, room.bodies).await;
        let payloads = take(&self.shared.room, room.payloads).await;
        [slot, own, bodies, payloads]
    }

    fn refuse(&self, header: &Header, error: &Error, hold: Hold) {
        let frame = Draft::error(error).seal(FrameKind::Reply, header.service, header.request);
        self.outbox.send(frame, hold);
    }

    /// Polls a call once; one that has to wait goes on in its own task.
    fn begin(self: &Arc<Self>, header: Header, work: Work, payload: Bytes, hold: Hold) {
        let mut call = Box::pin(self.clone().answer(header, work, payload, hold));
        // With a waker that does nothing: the task polls again at once and leaves its own.
        let mut context = Context::from_waker(Waker::noop());
        if call.as_mut().poll(&mut context).is_pending() {
            task::spawn(call);
        }
    }

    async fn answer(self: Arc<Self>, header: Header, work: Work, payload: Bytes, hold: Hold) {
        let run = AssertUnwindSafe(work.run(&self.shared.services, payload)).catch_unwind();
        let result = run.await.unwrap_or_else(|_| {
            // The panic itself has been reported; the caller must not wait for ever.
            Err(Error::with(ErrorKind::Io, "the server failed while it carried out the call"))
        });
        let draft = result.unwrap_or_else(|e| Draft::error(&e));
        self.outbox.send(draft.seal(FrameKind::Reply, header.service, header.request), hold);
    }
}

async fn take(semaphore: &Arc<Semaphore>, units: u32) -> Option<OwnedSemaphorePermit> {
    if units == 0 {
        return None;
    }
    // Never closed, so there is always a permit in the end.
    semaphore.clone().acquire_many_owned(units).await.ok()
}

#[cfg(test)]
mod tests;
