//! The threads that read requests, and how a request runs.
//!
//! A request becomes a task that owns everything it needs. It runs first where it was read: an
//! operation that never waits (most of them, where the servers live in this process) is answered with
//! no other thread woken. One that waits lies still until it is woken, and goes on in the runtime from
//! there: mostly on the very thread that received what it waited for. So nothing ever blocks a reading
//! thread, and no thread is woken only to find that there is nothing to do yet.

use crate::buffer::{Buffer, BufferPool};
use crate::device::{Device, Found};
use crate::errno::Errno;
use crate::interrupt::{Interrupt, Interrupts};
use crate::metrics::{Metrics, Timer};
use crate::reply::Reply;
use crate::request::{Incoming, Op, Request, parse};
use async_task::Runnable;
use parking_lot::{Mutex, MutexGuard};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strake_base::threads;
use tokio::runtime::Handle;

/// Bytes from which on a read or write is worth another thread reading the next request meanwhile.
const HEAVY_BYTES: usize = 32 << 10;
/// A read from the device that takes less than this found a request waiting.
const WAITING_REQUEST: Duration = Duration::from_micros(2);
/// So many requests found waiting in a row mean that one thread is not enough.
const BACKLOG_REQUESTS: u32 = 16;

/// How long a thread looks for the next request before it sleeps.
const EAGER: Duration = Duration::from_micros(200);
/// Requests in a row that came later than that, after which a thread sleeps at once.
const LATE_MAX: u32 = 4;

/// How long a thread waits for its turn before it looks whether the one that has it is held up.
const PATIENCE: Duration = Duration::from_millis(50);
/// An operation that takes longer than this on a reading thread holds it up.
const HELD_UP_MS: u64 = 20;

/// What requests are answered by.
pub trait Door: Send + Sync + 'static {
    /// Carries out one request. The future owns what it needs.
    fn handle(
        self: Arc<Self>,
        request: Request,
        interrupt: Interrupt,
    ) -> impl Future<Output = Result<Reply, Errno>> + Send + 'static;

    /// The kernel has dropped what it knew of these nodes. Must not take long.
    fn forget(&self, nodes: &[u64]) {
        let _nothing_remembered = nodes;
    }

    /// It is mounted: by this the kernel can be told what it has not asked for; and whether it can map files that go
    /// around its page cache.
    fn mounted(&self, device: Device, maps_direct: bool) {
        drop((device, maps_direct));
    }

    /// A mark of the moment at which an operation begins.
    fn mark(&self) -> u64 {
        0
    }

    /// Sends the answer of an operation that began at a mark.
    fn send(
        &self,
        mark: u64,
        answer: Result<Reply, Errno>,
        send: impl FnOnce(&Result<Reply, Errno>),
    ) {
        let _same_at_any_time = mark;
        send(&answer);
    }

    /// The node whose contents a request changes, and may do so when its process was killed already.
    fn changes(&self, request: &Request) -> Option<u64> {
        let _what_nobody_locks = request;
        None
    }

    /// A change of contents, by the number of its request, goes on although the kernel is about to be told that it was
    /// given up, or (`false`) is over.
    fn outlives(&self, unique: u64, goes_on: bool) {
        let _waited_for_by_nobody = (unique, goes_on);
    }

    /// Such a change, of which the kernel was told that it has failed, or is about to be, may be made, or half of it.
    fn changed_after_all(&self, node: u64) {
        let _what_no_kernel_keeps = node;
    }

    /// Takes back what an answer granted that reached nobody: the process was killed meanwhile.
    fn abandon(&self, reply: Reply);
}

/// Everything that the threads of one mount share.
struct Shared<D> {
    door: Arc<D>,
    pool: Arc<BufferPool>,
    interrupts: Arc<Interrupts>,
    metrics: Metrics,
    runtime: Handle,
    /// Held by the one thread that reads. Passing it on wakes another thread, which costs more than
    /// most operations do; so it is kept from one small request to the next.
    turn: Mutex<Turn>,
    /// Held by the one thread that looks after the turn.
    next: Mutex<()>,
    /// When the operation began that the thread with the turn is at, in milliseconds since `started`;
    /// 0 while it waits for a request.
    began_ms: AtomicU64,
    started: Instant,
}

/// The right to wait for requests.
struct Turn;

/// How a thread waits for the next request. A program that makes one small request after the other is
/// back within microseconds; to fall asleep and be woken on an idle core takes longer than that, on
/// virtual machines several times as long as the request itself. So as long as requests come this fast
/// the thread looks for the next one for a while before it sleeps, and lets others run meanwhile.
#[derive(Default)]
struct Eagerness {
    /// Requests in a row that took longer to come.
    late: u32,
}

impl Eagerness {
    /// Waits for a request; its length, and how long it took to come. `None`: the file system is unmounted.
    fn next(
        &mut self,
        device: &Device,
        space: &mut [u8],
    ) -> std::io::Result<Option<(usize, Duration)>> {
        let asked = Instant::now();
        loop {
            match device.try_read(space)? {
                Found::Request(len) => {
                    let waited = asked.elapsed();
                    self.late = if waited < EAGER { 0 } else { self.late + 1 };
                    return Ok(Some((len, waited)));
                }
                Found::End => return Ok(None),
                Found::Nothing if self.late < LATE_MAX && asked.elapsed() < EAGER => {
                    std::thread::yield_now();
                }
                Found::Nothing => device.wait()?,
            }
        }
    }
}

/// Starts one thread per device. They end when the file system is unmounted.
pub fn start<D: Door>(
    door: Arc<D>,
    devices: Vec<Device>,
    data_bytes: usize,
    runtime: Handle,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let shared = Arc::new(Shared {
        door,
        pool: BufferPool::new(data_bytes),
        interrupts: Arc::default(),
        metrics: Metrics::register(),
        runtime,
        turn: Mutex::new(Turn),
        next: Mutex::new(()),
        began_ms: AtomicU64::new(0),
        started: Instant::now(),
    });
    let start_one = |(number, device): (usize, Device)| {
        let shared = shared.clone();
        threads::spawn(&format!("fuse-{number}"), move || shared.serve(&Arc::new(device)))
    };
    devices.into_iter().enumerate().map(start_one).collect()
}

impl<D: Door> Shared<D> {
    fn serve(&self, device: &Arc<Device>) {
        let _runtime = self.runtime.enter();
        let mut buffer: Option<Buffer> = None;
        let mut turn = None;
        let mut found_waiting = 0;
        let mut eagerness = Eagerness::default();
        loop {
            if turn.is_none() {
                turn = self.take_turn();
                found_waiting = 0;
            }
            let space = buffer.get_or_insert_with(|| self.pool.take()).space();
            let (len, waited) = match eagerness.next(device, space) {
                Ok(Some(found)) => found,
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "reading requests of the kernel failed");
                    return;
                }
            };
            found_waiting = if waited < WAITING_REQUEST { found_waiting + 1 } else { 0 };
            let incoming = parse(&mut buffer, len);
            let pass_on = match &incoming {
                Incoming::Request(request) => is_heavy(&request.op),
                _ => false,
            };
            if pass_on || found_waiting >= BACKLOG_REQUESTS {
                turn = None;
            }
            self.treat(device, incoming, turn.is_some());
        }
    }

    /// Waits for the turn. `None`: the thread that has it is held up by an operation that should not
    /// take long, and requests must be read without it.
    fn take_turn(&self) -> Option<MutexGuard<'_, Turn>> {
        let _next = self.next.lock();
        loop {
            let began_ms = self.began_ms.load(Ordering::Relaxed);
            if began_ms != 0 && self.now_ms().saturating_sub(began_ms) > HELD_UP_MS {
                return None;
            }
            if let Some(turn) = self.turn.try_lock_for(PATIENCE) {
                return Some(turn);
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }

    fn treat(&self, device: &Arc<Device>, incoming: Incoming, has_turn: bool) {
        match incoming {
            Incoming::Request(request) if has_turn => {
                self.began_ms.store(self.now_ms(), Ordering::Relaxed);
                self.run(device, request);
                self.began_ms.store(0, Ordering::Relaxed);
            }
            Incoming::Request(request) => self.run(device, request),
            Incoming::Interrupt(unique) => self.interrupts.raise(unique),
            Incoming::Forget(nodes) => self.door.forget(&nodes),
            Incoming::Nothing => {}
            Incoming::Malformed(unique) => device.answer(unique, &Err(Errno::EINVAL)),
            Incoming::Destroy(unique) => device.answer(unique, &Ok(Reply::Empty)),
        }
    }

    fn run(&self, device: &Arc<Device>, request: Request) {
        let timer = self.metrics.start(request.opcode);
        let answerer =
            Answerer { device: device.clone(), unique: request.unique, timer, sent: false };
        let interrupt = self.interrupts.of(request.unique, request.pid);
        let operation = carry_out(self.door.clone(), request, interrupt, answerer);
        let runtime = self.runtime.clone();
        let go_on = move |task: Runnable| {
            runtime.spawn(async move { task.run() });
        };
        let (task, handle) = async_task::spawn(operation, go_on);
        handle.detach();
        // The panic has been printed; the answerer said EIO as it was dropped.
        if catch_unwind(AssertUnwindSafe(|| task.run())).is_err() {
            tracing::error!("an operation of the mount panicked");
        }
    }
}

/// Waits for an operation to end, or for its process to be killed.
async fn carry_out<D: Door>(
    door: Arc<D>,
    request: Request,
    interrupt: Interrupt,
    answerer: Answerer,
) {
    let (mark, ends) = (door.mark(), ends_with_its_process(&request.op));
    let changes = door.changes(&request);
    {
        let mut operation = pin!(door.clone().handle(request, interrupt.clone()));
        tokio::select! {
            biased;
            answer = &mut operation => {
                if answer.is_err() {
                    changes.iter().for_each(|node| door.changed_after_all(*node));
                }
                return door.send(mark, answer, |answer| answerer.send(answer));
            }
            () = interrupt.fatal() => {}
        }
        if !ends {
            // First: as soon as this is answered the kernel has the locks of the process given back.
            let _outlives = changes.map(|node| Outlives::begin(&*door, answerer.unique, node));
            answerer.send(&Err(Errno::EINTR));
            if let Ok(reply) = operation.await {
                door.abandon(reply);
            }
            return;
        }
    }
    // The operation is dropped: as soon as this is answered the kernel has the locks of the process given back.
    answerer.send(&Err(Errno::EINTR));
}

/// A change of contents goes on although the kernel was told that it was given up, until this is dropped.
struct Outlives<'a, D: Door> {
    door: &'a D,
    unique: u64,
    node: u64,
}

impl<'a, D: Door> Outlives<'a, D> {
    fn begin(door: &'a D, unique: u64, node: u64) -> Self {
        door.outlives(unique, true);
        Self { door, unique, node }
    }
}

impl<D: Door> Drop for Outlives<'_, D> {
    fn drop(&mut self) {
        // First: who gets the locks of the process then reads what the kernel has. (In a map pages go a moment later.)
        self.door.changed_after_all(self.node);
        self.door.outlives(self.unique, false);
    }
}

/// True for what must not be done any more when others may have got the locks of its process: it would write over what
/// they have written, or keep a lock that nobody gives back.
fn ends_with_its_process(op: &Op) -> bool {
    match op {
        Op::Write { .. } => true,
        // Others may hold the same open file, so what was to be given back is.
        Op::Setlk { lock, .. } => lock.kind as i32 != libc::F_UNLCK,
        _ => false,
    }
}

fn is_heavy(op: &Op) -> bool {
    match op {
        Op::Write { data, .. } => data.len() >= HEAVY_BYTES,
        Op::Read { size, .. } => *size as usize >= HEAVY_BYTES,
        _ => false,
    }
}

/// Answers one request exactly once: with EIO if everybody else has dropped it.
struct Answerer {
    device: Arc<Device>,
    unique: u64,
    timer: Timer,
    sent: bool,
}

impl Answerer {
    fn send(mut self, answer: &Result<Reply, Errno>) {
        self.sent = true;
        self.device.answer(self.unique, answer);
        self.timer.stop();
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        if !self.sent {
            self.device.answer(self.unique, &Err(Errno::EIO));
        }
    }
}

#[cfg(test)]
mod tests;
