use super::*;
use crate::request::Lock;
use bytes::Bytes;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Answers at once, and has room for a thousand bytes.
struct Roomy;

impl Door for Roomy {
    async fn handle(
        self: Arc<Self>,
        _request: Request,
        _interrupt: Interrupt,
    ) -> Result<Reply, Errno> {
        let room = [0u8; 1000];
        tokio::task::yield_now().await;
        std::hint::black_box(&room);
        Ok(Reply::Empty)
    }

    fn abandon(&self, _reply: Reply) {}
}

/// Whether a kernel was answered since this was asked last.
fn is_answered(mut kernel: &UnixStream) -> bool {
    kernel.read(&mut [0; 64]).is_ok_and(|len| len > 0)
}

/// Never answers. Whether the kernel was answered when an operation was given up, if one was.
struct Stuck {
    kernel: UnixStream,
    given_up: Mutex<Option<bool>>,
    /// The same when it was said that one goes on.
    goes_on: Mutex<Option<bool>>,
}

struct End<'a>(&'a Stuck);

impl Drop for End<'_> {
    fn drop(&mut self) {
        *self.0.given_up.lock() = Some(self.0.is_answered());
    }
}

impl Stuck {
    fn is_answered(&self) -> bool {
        is_answered(&self.kernel)
    }
}

impl Door for Stuck {
    async fn handle(
        self: Arc<Self>,
        _request: Request,
        _interrupt: Interrupt,
    ) -> Result<Reply, Errno> {
        let _end = End(&self);
        std::future::pending().await
    }

    fn changes(&self, request: &Request) -> Option<u64> {
        Some(request.node)
    }

    fn outlives(&self, _unique: u64, goes_on: bool) {
        if goes_on {
            *self.goes_on.lock() = Some(self.is_answered());
        }
    }

    fn abandon(&self, _reply: Reply) {}
}

/// A kernel, and the end of its device.
fn kernel() -> (UnixStream, UnixStream) {
    let (kernel, ours) = UnixStream::pair().unwrap();
    kernel.set_nonblocking(true).unwrap();
    (kernel, ours)
}

/// What a process has asked for that was killed, or was not.
fn asked<D: Door>(
    door: &Arc<D>,
    ours: &UnixStream,
    op: Op,
    killed: bool,
) -> impl Future<Output = ()> + use<D> {
    let device = Arc::new(Device::from_session(ours.as_fd()).unwrap());
    // No process has this number.
    let (unique, pid, interrupts) = (2, u32::MAX, Arc::new(Interrupts::default()));
    let timer = Metrics::register().start(0);
    let answerer = Answerer { device, unique, timer, sent: false };
    let request = Request { unique, opcode: 0, node: 5, uid: 0, gid: 0, pid, op };
    if killed {
        interrupts.raise(unique);
    }
    carry_out(Arc::clone(door), request, interrupts.of(unique, pid), answerer)
}

/// Its process is killed while it is under way: whether the kernel was answered when it was given up, or when it was
/// said that it goes on, and whether it is answered.
async fn killed(op: Op) -> ([Option<bool>; 2], bool) {
    let (kernel, ours) = kernel();
    let door = Arc::new(Stuck { kernel, given_up: Mutex::default(), goes_on: Mutex::default() });
    let operation = asked(&door, &ours, op, true);
    futures::pin_mut!(operation);
    // One that goes on does so for ever.
    let _ended = futures::poll!(operation.as_mut());
    let heard = [*door.given_up.lock(), *door.goes_on.lock()];
    (heard, door.is_answered())
}

/// A write that waited was made after its process was killed and its locks were somebody else's; and a lock that was
/// granted late stayed.
#[tokio::test]
async fn writes_and_locks_of_a_killed_process_are_given_up_before_it_is_told() {
    let (append, sync, kill_suidgid, from_pages) = (false, false, false, false);
    let data = Bytes::new();
    let write = Op::Write { fh: 0, offset: 0, data, append, sync, kill_suidgid, from_pages };
    assert_eq!(killed(write).await, ([Some(false), None], true));
    let setlk = |kind: i32| {
        let (kind, end) = (kind as u32, u64::MAX);
        let lock = Lock { fh: 0, owner: 1, start: 0, end, kind, pid: 1, flock: false };
        Op::Setlk { lock, wait: false }
    };
    assert_eq!(killed(setlk(libc::F_WRLCK)).await, ([Some(false), None], true));
}

/// A cut or a punch that had begun was made when the locks of its process were somebody else's: a close must know of it
/// to wait for it.
#[tokio::test]
async fn it_is_known_what_goes_on_after_its_process_was_killed_before_the_kernel_is_told() {
    let (kind, end) = (libc::F_UNLCK as u32, u64::MAX);
    let lock = Lock { fh: 0, owner: 1, start: 0, end, kind, pid: 1, flock: false };
    let punch = Op::Fallocate { fh: 0, offset: 0, length: 1, mode: 3 };
    let sync = Op::Fsync { fh: 0, datasync: false };
    for op in [Op::Setlk { lock, wait: false }, punch, sync] {
        assert_eq!(killed(op).await, ([None, Some(false)], true));
    }
}

/// Fails, a moment later. What it hears, and whether the kernel was answered since what it heard before.
struct Fails {
    kernel: UnixStream,
    heard: Mutex<Vec<(&'static str, bool)>>,
}

impl Fails {
    fn hear(&self, what: &'static str) {
        self.heard.lock().push((what, is_answered(&self.kernel)));
    }
}

impl Door for Fails {
    async fn handle(
        self: Arc<Self>,
        _request: Request,
        _interrupt: Interrupt,
    ) -> Result<Reply, Errno> {
        tokio::task::yield_now().await;
        Err(Errno::EIO)
    }

    fn changes(&self, request: &Request) -> Option<u64> {
        Some(request.node)
    }

    fn outlives(&self, _unique: u64, goes_on: bool) {
        self.hear(if goes_on { "goes on" } else { "is over" });
    }

    fn changed_after_all(&self, _node: u64) {
        self.hear("changed");
    }

    fn abandon(&self, _reply: Reply) {}
}

/// A kernel that has heard EINTR, or of an error, drops nothing: who got the lock of a process that was killed in a punch read
/// what had been there before.
#[tokio::test]
async fn what_has_changed_after_all_is_dropped_before_it_is_told_and_before_locks_go_on() {
    let heard = async |killed: bool| {
        let (kernel, ours) = kernel();
        let door = Arc::new(Fails { kernel, heard: Mutex::default() });
        asked(&door, &ours, Op::Fallocate { fh: 0, offset: 0, length: 1, mode: 3 }, killed).await;
        door.hear("ended");
        std::mem::take(&mut *door.heard.lock())
    };
    assert_eq!(heard(false).await, [("changed", false), ("ended", true)]);
    let outlived = [("goes on", false), ("changed", true), ("is over", false), ("ended", false)];
    assert_eq!(heard(true).await, outlived);
}

/// Bytes of what an asynchronous function gives back.
fn size_of_future<A, B, C, D, F>(_function: fn(A, B, C, D) -> F) -> usize {
    size_of::<F>()
}

#[test]
fn an_operation_is_carried_about_once() {
    let size = size_of_future(carry_out::<Roomy>);
    // Twice would be 3,000.
    assert!((1_000..2_500).contains(&size), "{size}");
}
