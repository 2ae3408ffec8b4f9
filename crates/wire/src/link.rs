//! The two halves of a connection, the same on both sides: [`FrameReader`] and [`Outbox`].

use crate::buffer::BufferPool;
use crate::frame::{FrameError, HEADER_BYTES, Header, Outgoing};
use crate::stream::Stream;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

/// Received bytes that are not yet taken apart. What of a payload falls in here is copied once, so
/// it is small; headers and bodies come with one read.
const READ_AHEAD_BYTES: usize = 8 << 10;
/// Longest time from the first byte of a frame to its last.
pub(crate) const FRAME_MS_MAX: u64 = 60_000;
/// Longest pause in a body or payload.
pub(crate) const PAUSE_MS_MAX: u64 = 5_000;
/// What must have come of a body or payload, on the average, when that is over. What is announced
/// and does not come keeps room from others.
const RATE_BYTES_PER_MS_MIN: u64 = 128;
/// Longest time a peer may take nothing while something is to be sent.
const STALL_MS_MAX: u64 = 60_000;
/// How far a caller may be behind [`RATE_BYTES_PER_MS_MIN`] with what it is sent: what it asked for and
/// does not take keeps room from others.
pub(crate) const LAG_MS_MAX: u64 = 60_000;
/// After so many bytes it is no longer behind: many callers may share a slow path.
const LAG_BYTES: usize = 1 << 20;
/// Frames given to one write.
const FRAMES_PER_WRITE_MAX: usize = 16;
/// Headers and bodies in an outbox beyond which a server takes no further calls: nobody knows before a call
/// how large the body of its answer is.
const HEADS_BYTES_MAX: usize = 4 << 20;

/// Why nothing more can be read from a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the connection ended in the middle of a frame")]
    Truncated,
    #[error("a frame took too long to arrive")]
    TooSlow,
}

/// Takes frames apart.
pub(crate) struct FrameReader {
    stream: Arc<dyn Stream>,
    pool: Arc<BufferPool>,
    /// Received, not yet taken: `buffer[taken..]`.
    buffer: Vec<u8>,
    taken: usize,
    /// Longest time from the first byte of a frame to its last.
    frame_time_max: Duration,
    /// Longest pause in a body or payload.
    pause_max: Duration,
    /// By when the frame at hand must be complete.
    deadline: Instant,
    heard: Arc<AtomicU64>,
}

impl FrameReader {
    pub fn new(stream: Arc<dyn Stream>, pool: Arc<BufferPool>) -> Self {
        let buffer = Vec::with_capacity(READ_AHEAD_BYTES);
        Self {
            stream,
            pool,
            buffer,
            taken: 0,
            frame_time_max: Duration::from_millis(FRAME_MS_MAX),
            pause_max: Duration::from_millis(PAUSE_MS_MAX),
            deadline: Instant::now(),
            heard: Arc::default(),
        }
    }

    /// Grows whenever something comes, be it a part of a frame.
    pub fn heard(&self) -> Arc<AtomicU64> {
        self.heard.clone()
    }

    /// Sets the longest time from the first byte of a frame to its last, and the longest pause in a
    /// body or payload.
    pub fn with_patience(mut self, frame: Duration, pause: Duration) -> Self {
        (self.frame_time_max, self.pause_max) = (frame, pause);
        self
    }

    /// The next header, however long it takes to begin; `None` if the peer ended between frames.
    pub async fn header(&mut self) -> Result<Option<Header>, ReadError> {
        // A peer that keeps the socket full must not keep this thread to itself.
        tokio::task::coop::consume_budget().await;
        let mut begun = false;
        loop {
            if let Some(header) = Header::decode(&self.buffer[self.taken..])? {
                self.taken += HEADER_BYTES;
                self.begin(begun);
                return Ok(Some(header));
            }
            let partial = self.taken < self.buffer.len();
            if partial && !begun {
                self.begin(false);
                begun = true;
            }
            self.make_room();
            let max = self.buffer.capacity() - self.buffer.len();
            let deadline = partial.then_some(self.deadline);
            match read_some(&*self.stream, &mut self.buffer, max, deadline).await {
                Ok(()) => self.note_heard(),
                Err(ReadError::Truncated) if !partial => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    fn begin(&mut self, begun: bool) {
        if !begun {
            self.deadline = Instant::now() + self.frame_time_max;
        }
    }

    /// Moves what is left to the front where a header might not fit behind it.
    fn make_room(&mut self) {
        if self.taken > 0 && self.buffer.capacity() - self.buffer.len() < HEADER_BYTES {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        } else if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
        }
    }

    /// The body of the frame at hand.
    pub async fn body(&mut self, header: &Header) -> Result<Bytes, ReadError> {
        let len = header.body_len as usize;
        if len == 0 {
            return Ok(Bytes::new());
        }
        let mut body = Vec::with_capacity(len);
        self.fill(&mut body, len).await?;
        header.check_body(&body)?;
        Ok(body.into())
    }

    /// The payload of the frame at hand, in a buffer from the pool.
    pub async fn payload(&mut self, header: &Header) -> Result<Bytes, ReadError> {
        let len = header.payload_len as usize;
        if len == 0 {
            return Ok(Bytes::new());
        }
        let mut buffer = self.pool.take(len);
        self.fill(buffer.vec(), len).await?;
        header.check_payload(buffer.as_ref())?;
        Ok(buffer.freeze())
    }

    /// Passes over the body and the payload of the frame at hand.
    pub async fn skip(&mut self, header: &Header) -> Result<(), ReadError> {
        let mut left = header.body_len as usize + header.payload_len as usize;
        let mut passed = Vec::with_capacity(left.min(READ_AHEAD_BYTES));
        while left > 0 {
            passed.clear();
            let step = left.min(READ_AHEAD_BYTES);
            self.fill(&mut passed, step).await?;
            left -= step;
        }
        Ok(())
    }

    async fn fill(&mut self, into: &mut Vec<u8>, len: usize) -> Result<(), ReadError> {
        let have = len.min(self.buffer.len() - self.taken);
        into.extend_from_slice(&self.buffer[self.taken..self.taken + have]);
        self.taken += have;
        let began = Instant::now();
        while into.len() < len {
            let earned = Duration::from_millis(into.len() as u64 / RATE_BYTES_PER_MS_MIN);
            let deadline = self.deadline.min(began + self.pause_max + earned);
            let max = len - into.len();
            read_some(&*self.stream, into, max, Some(deadline)).await?;
            self.note_heard();
        }
        Ok(())
    }

    fn note_heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }
}

/// Appends at least one byte. The end of the stream is [`ReadError::Truncated`].
async fn read_some(
    stream: &dyn Stream,
    into: &mut Vec<u8>,
    max: usize,
    deadline: Option<Instant>,
) -> Result<(), ReadError> {
    loop {
        match stream.try_read(into, max) {
            Ok(0) => return Err(ReadError::Truncated),
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // Others have their turn, and a frame its deadline. Between frames there is none: who has a certificate may keep this going
            // as long as he is connected, and takes what one busy connection takes.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                tokio::task::yield_now().await;
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(ReadError::TooSlow);
                }
                continue;
            }
            Err(e) => return Err(e.into()),
        }
        let readable = poll_fn(|cx| stream.poll_readable(cx));
        match deadline {
            None => readable.await?,
            Some(deadline) => tokio::time::timeout_at(deadline, readable)
                .await
                .map_err(|_| ReadError::TooSlow)??,
        }
    }
}

/// What a frame in the outbox keeps others from using until it is sent.
pub(crate) type Hold = [Option<OwnedSemaphorePermit>; 4];

struct Sending {
    frame: Outgoing,
    /// Its place among all that were to be sent, ascending from 1.
    number: u64,
    /// The socket was given something of it, and has to get the rest: also an encrypted one that has taken nothing yet.
    is_begun: bool,
    sent: usize,
    _hold: Hold,
}

impl Sending {
    fn left(&self) -> usize {
        self.frame.bytes() - self.sent
    }

    /// The unsent parts of header and body, and of the payload.
    fn parts(&self) -> [IoSlice<'_>; 2] {
        let head = self.frame.head.len();
        [
            IoSlice::new(&self.frame.head[self.sent.min(head)..]),
            IoSlice::new(&self.frame.payload[self.sent.saturating_sub(head)..]),
        ]
    }
}

/// How fast a peer takes what it is sent.
struct Pace {
    since: Instant,
    taken: usize,
}

impl Pace {
    fn new() -> Self {
        Self { since: Instant::now(), taken: 0 }
    }

    fn note(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.taken >= LAG_BYTES {
            *self = Self::new();
        }
    }

    /// By when it must have taken more, if it may be so far behind.
    fn deadline(&self, lag_max: Duration) -> Instant {
        let earned = Duration::from_millis(self.taken as u64 / RATE_BYTES_PER_MS_MIN);
        self.since + lag_max + earned
    }
}

#[derive(Default)]
struct OutboxState {
    /// In the order of their numbers.
    queue: VecDeque<Sending>,
    /// The number of the last frame that was to be sent,
    last: u64,
    /// and a number below which all have been sent.
    sent_below: u64,
    /// Bytes that the socket has taken in all.
    taken: u64,
    /// Somebody writes: a caller inline, or the writer task.
    busy: bool,
    closed: bool,
}

impl OutboxState {
    /// The socket has taken so many bytes more; `next` is what it gets before all that is queued.
    fn note_taken(&mut self, bytes: usize, next: Option<&Sending>) {
        self.taken += bytes as u64;
        let next = next.or(self.queue.front());
        self.sent_below = next.map_or(self.last + 1, |sending| sending.number);
    }
}

/// Sends frames.
///
/// Whoever sends a frame while nobody else does writes it to the socket there and then: no task is
/// woken. What the socket does not take at once, and what others send meanwhile, is queued for the
/// writer task. The queue is bounded by the calls in flight, which both sides limit.
pub(crate) struct Outbox {
    stream: Arc<dyn Stream>,
    /// How far the peer may be behind the least rate; `None`: there is none.
    lag_max: Option<Duration>,
    state: Mutex<OutboxState>,
    /// Bytes of headers and bodies that are queued.
    heads: AtomicUsize,
    /// For the writer task: it is now the one that is busy.
    handover: Notify,
    /// For those who wait until everything is sent, or few of `heads` are left.
    idle: Notify,
}

impl Outbox {
    /// An outbox and its writer task, which the caller spawns. A server that has no room takes nothing, so
    /// its callers wait.
    pub fn new(stream: Arc<dyn Stream>) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        Self::with_lag(stream, None)
    }

    /// As [`Outbox::new`], to a peer that has to take what it is sent at the least rate, behind which it may
    /// be so far.
    pub fn paced(
        stream: Arc<dyn Stream>,
        lag_max: Duration,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        Self::with_lag(stream, Some(lag_max))
    }

    fn with_lag(
        stream: Arc<dyn Stream>,
        lag_max: Option<Duration>,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let outbox = Arc::new(Self {
            stream,
            lag_max,
            state: Mutex::default(),
            heads: AtomicUsize::new(0),
            handover: Notify::new(),
            idle: Notify::new(),
        });
        (outbox.clone(), outbox.write_queued())
    }

    /// Sends or queues a frame, and gives its number; `None` if the connection is closed. What happens later to a queued
    /// frame shows on the reading side: a connection that cannot be written to is closed.
    pub fn send(&self, frame: Outgoing, hold: Hold) -> Option<u64> {
        let mut sending = Sending { frame, number: 0, is_begun: false, sent: 0, _hold: hold };
        let number = {
            let mut state = self.state.lock();
            if state.closed {
                return None;
            }
            state.last += 1;
            sending.number = state.last;
            if state.busy {
                self.heads.fetch_add(sending.frame.head.len(), Ordering::SeqCst);
                state.queue.push_back(sending);
                return Some(state.last);
            }
            state.busy = true;
            state.last
        };
        while sending.left() > 0 {
            match self.stream.try_write(&sending.parts()) {
                Ok(n) => sending.sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.close();
                    return None;
                }
            }
        }
        self.finish_inline(sending);
        Some(number)
    }

    fn finish_inline(&self, mut sending: Sending) {
        let mut state = self.state.lock();
        let taken = sending.sent;
        if sending.left() > 0 {
            self.heads.fetch_add(sending.frame.head.len(), Ordering::SeqCst);
            sending.is_begun = true;
            state.queue.push_front(sending);
        }
        state.note_taken(taken, None);
        if state.queue.is_empty() {
            state.busy = false;
            drop(state);
            self.idle.notify_waiters();
        } else {
            self.handover.notify_one();
        }
    }

    async fn write_queued(self: Arc<Self>) {
        loop {
            self.handover.notified().await;
            if let Err(e) = self.drain().await {
                tracing::debug!(peer = %self.stream.peer(), "closing connection: {e}");
                self.close();
            }
            if self.state.lock().closed {
                return;
            }
        }
    }

    async fn drain(&self) -> io::Result<()> {
        let (mut batch, mut pace, mut taken) = (VecDeque::new(), Pace::new(), 0);
        loop {
            {
                let mut state = self.state.lock();
                state.note_taken(std::mem::take(&mut taken), batch.front());
                let room = (FRAMES_PER_WRITE_MAX - batch.len()).min(state.queue.len());
                batch.extend(state.queue.drain(..room));
                if batch.is_empty() {
                    state.busy = false;
                    break;
                }
            }
            let heads = heads_of(&batch);
            match write_batch(&*self.stream, &mut batch)? {
                Some(written) => {
                    pace.note(written);
                    taken += written;
                }
                None => self.writable(&pace).await?,
            }
            self.relieve(heads - heads_of(&batch));
        }
        self.idle.notify_waiters();
        Ok(())
    }

    async fn writable(&self, pace: &Pace) -> io::Result<()> {
        let stall = Instant::now() + Duration::from_millis(STALL_MS_MAX);
        let deadline = self.lag_max.map_or(stall, |lag_max| stall.min(pace.deadline(lag_max)));
        let writable = poll_fn(|cx| self.stream.poll_writable(cx));
        tokio::time::timeout_at(deadline, writable).await.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, "the peer reads nothing, or too slowly")
        })?
    }

    /// Bytes that the socket has taken in all, as long as it has not taken all of this frame; 0 is one that is still to come.
    pub fn taken_before(&self, number: u64) -> Option<u64> {
        let state = self.state.lock();
        (number == 0 || number >= state.sent_below).then_some(state.taken)
    }

    /// Takes back a frame that waits for its turn; false if it is not there, or has been begun.
    pub fn withdraw(&self, number: u64) -> bool {
        let withdrawn = {
            let mut state = self.state.lock();
            let queue = &mut state.queue;
            let at = queue.binary_search_by_key(&number, |sending| sending.number).ok();
            at.filter(|&at| !queue[at].is_begun).and_then(|at| queue.remove(at))
        };
        if let Some(sending) = &withdrawn {
            self.relieve(sending.frame.head.len());
        }
        withdrawn.is_some()
    }

    /// Some headers and bodies are sent, or withdrawn.
    fn relieve(&self, bytes: usize) {
        let before = self.heads.fetch_sub(bytes, Ordering::SeqCst);
        if before > HEADS_BYTES_MAX && before - bytes <= HEADS_BYTES_MAX {
            self.idle.notify_waiters();
        }
    }

    /// Waits while much of what is queued has no room reserved, or until the connection is closed.
    pub async fn relieved(&self) {
        while self.heads.load(Ordering::SeqCst) > HEADS_BYTES_MAX {
            let idle = self.idle.notified();
            // Again: it may have been before anybody could notify us.
            if self.state.lock().closed || self.heads.load(Ordering::SeqCst) <= HEADS_BYTES_MAX {
                return;
            }
            idle.await;
        }
    }

    /// Waits until everything queued is sent or the connection is closed.
    pub async fn flushed(&self) {
        loop {
            let idle = self.idle.notified();
            {
                let state = self.state.lock();
                if state.closed || !state.busy {
                    return;
                }
            }
            idle.await;
        }
    }

    /// Ends the connection; what is queued is dropped.
    pub fn close(&self) {
        let queue = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.queue)
        };
        drop(queue);
        self.stream.close();
        self.handover.notify_one();
        self.idle.notify_waiters();
    }
}

fn heads_of(batch: &VecDeque<Sending>) -> usize {
    batch.iter().map(|sending| sending.frame.head.len()).sum()
}

/// One write; sent frames leave the batch. The bytes written; `None` if the socket takes nothing now.
fn write_batch(stream: &dyn Stream, batch: &mut VecDeque<Sending>) -> io::Result<Option<usize>> {
    let parts: Vec<IoSlice<'_>> =
        batch.iter().flat_map(Sending::parts).filter(|p| !p.is_empty()).collect();
    let written = stream.try_write(&parts);
    drop(parts);
    let written = match written {
        Ok(n) => n,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Some(0)),
        Err(e) => return Err(e),
    };
    let mut left = written;
    while let Some(front) = batch.front_mut() {
        let step = left.min(front.left());
        front.sent += step;
        left -= step;
        if front.left() > 0 {
            break;
        }
        batch.pop_front();
    }
    Ok(Some(written))
}

#[cfg(test)]
mod tests;
