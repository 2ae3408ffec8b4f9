use super::*;
use crate::frame::{Draft, FrameKind, ServiceClass};
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use tokio::sync::Semaphore;
use tokio::time::Interval;

/// Takes a byte every ten seconds.
struct Trickle {
    ticks: Mutex<Interval>,
    ready: AtomicBool,
    closed: AtomicBool,
    /// What it has taken.
    taken: Mutex<Vec<u8>>,
}

impl Trickle {
    fn new() -> Arc<Self> {
        let ticks = Mutex::new(tokio::time::interval(Duration::from_secs(10)));
        let (ready, closed) = (AtomicBool::default(), AtomicBool::default());
        Arc::new(Self { ticks, ready, closed, taken: Mutex::default() })
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl Stream for Trickle {
    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tick = self.ticks.lock().poll_tick(cx);
        self.ready.fetch_or(tick.is_ready(), Ordering::SeqCst);
        tick.map(|_| Ok(()))
    }

    fn try_read(&self, _: &mut Vec<u8>, _: usize) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.ready.swap(false, Ordering::SeqCst) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let byte = parts.iter().find_map(|part| part.first());
        self.taken.lock().extend(byte);
        Ok(usize::from(byte.is_some()))
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    fn peer(&self) -> String {
        "a slow peer".to_owned()
    }
}

fn frame() -> Outgoing {
    numbered(1)
}

fn numbered(request: u8) -> Outgoing {
    let draft = Draft::empty().with_payload(Bytes::from(vec![request; 1_000])).unwrap();
    draft.seal(FrameKind::Reply, ServiceClass::Storage, request.into())
}

/// Who took a little every minute kept the room for what it had asked from all others.
#[tokio::test(start_paused = true)]
async fn who_takes_answers_too_slowly_is_hung_up_on_and_its_room_goes_to_others() {
    let stream = Trickle::new();
    let (outbox, writer) = Outbox::paced(stream.clone(), Duration::from_millis(LAG_MS_MAX));
    let _writer = tokio::spawn(writer);
    let room = Arc::new(Semaphore::new(1));
    let held = room.clone().try_acquire_owned().ok();
    assert!(outbox.send(frame(), [held, None, None, None]).is_some());
    assert_eq!(room.available_permits(), 0);
    outbox.flushed().await;
    assert!(stream.is_closed());
    assert_eq!(room.available_permits(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_a_server_that_has_no_room() {
    let stream = Trickle::new();
    let (outbox, writer) = Outbox::new(stream.clone());
    let _writer = tokio::spawn(writer);
    assert!(outbox.send(frame(), Hold::default()).is_some());
    outbox.flushed().await;
    assert!(!stream.is_closed());
}

/// It was sent all the same, and what was asked for again had its turn after that.
#[tokio::test(start_paused = true)]
async fn what_is_taken_back_is_not_sent_unless_it_was_begun() {
    let stream = Trickle::new();
    let (outbox, writer) = Outbox::new(stream.clone());
    let numbers = [1, 2, 3, 4].map(|request| outbox.send(numbered(request), Hold::default()));
    let [begun, second, third, fourth] = numbers.map(Option::unwrap);
    // Of an encrypted one the socket may have got what it did not take.
    assert!(!outbox.withdraw(begun));
    assert!(outbox.withdraw(second) && !outbox.withdraw(second));
    assert_eq!(outbox.taken_before(third), Some(0));
    let _writer = tokio::spawn(writer);
    outbox.flushed().await;
    assert_eq!(outbox.taken_before(fourth), None);
    assert_eq!(outbox.taken_before(0), Some(3 * frame().bytes() as u64));
    assert!(!outbox.withdraw(third));
    let sent = [1, 3, 4].map(numbered).map(|frame| [&frame.head[..], &frame.payload[..]].concat());
    assert!(*stream.taken.lock() == sent.concat(), "whole, and in their order");
}

/// Much comes from it, and never anything to read.
#[derive(Default)]
struct Restless {
    tries: AtomicUsize,
}

impl Stream for Restless {
    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn try_read(&self, _: &mut Vec<u8>, _: usize) -> io::Result<usize> {
        let tries = self.tries.fetch_add(1, Ordering::SeqCst);
        assert!(tries < 1_000, "nobody else has had a turn");
        Err(io::ErrorKind::Interrupted.into())
    }

    fn try_write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn close(&self) {}

    fn peer(&self) -> String {
        "a restless peer".to_owned()
    }
}

/// A caller that sent only records without contents had a thread of the server for itself, and no limit of time held there.
#[tokio::test]
async fn who_sends_without_an_end_what_says_nothing_leaves_others_their_turn() {
    let mut reader = FrameReader::new(Arc::new(Restless::default()), BufferPool::new(0));
    tokio::select! {
        biased;
        _ = reader.header() => panic!("it says nothing"),
        () = tokio::task::yield_now() => {}
    }
    let mut reader = reader.with_patience(Duration::ZERO, Duration::ZERO);
    reader.begin(false);
    let header = Header::decode(&frame().head).unwrap().unwrap();
    let header = Header { body_len: 1, ..header };
    assert!(matches!(reader.body(&header).await, Err(ReadError::TooSlow)));
}
