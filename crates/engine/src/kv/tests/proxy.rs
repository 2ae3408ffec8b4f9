//! A network that breaks when a commit goes through it.

use crate::kv::memory::Random;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// One commit in so many is cut.
const CUT_ONE_IN: usize = 8;
/// How long a commit that comes late is on its way.
const LATE: Duration = Duration::from_millis(10);

/// How long an etcd is given to carry out what has arrived, before its connection ends: that would break it off.
const CARRIED_OUT: Duration = Duration::from_millis(300);

/// What goes through the network, and so how a commit is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Postgres,
    Etcd,
}

/// Stands between an engine and its database until it is dropped.
pub struct Proxy {
    pub port: u16,
    pub state: Arc<State>,
}

/// What it does, and what it has done.
#[derive(Default)]
pub struct State {
    /// Commits that were cut.
    pub cuts: AtomicU32,
    /// Nothing goes through: connections are closed, new ones at once.
    pub down: AtomicBool,
    /// The next commit goes through, its answer does not, and from then on nothing does.
    pub down_at_commit: AtomicBool,
    /// The next commit is held back, its client cut off, and from then on nothing goes through; when
    /// this is false again, the commit arrives.
    pub hold_commit: AtomicBool,
    /// What was held back has arrived, and the server has ended that connection.
    pub arrived: AtomicBool,
    closed: AtomicBool,
}

impl Proxy {
    /// With `random`, cuts commits at random.
    pub fn new(protocol: Protocol, server: u16, random: Option<Random>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let random = random.map(|random| Arc::new(parking_lot::Mutex::new(random)));
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.closed.load(Ordering::SeqCst) {
                    return;
                }
                if shared.down.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let _whatever = (client.set_nodelay(true), server.set_nodelay(true));
                let (state, random) = (shared.clone(), random.clone());
                let pair = Pair { protocol, client, server, state, random };
                thread::spawn(move || pair.carry());
            }
        });
        Self { port, state }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        let _woken = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// What becomes of a commit.
#[derive(Clone, Copy)]
enum Fate {
    Passes,
    /// It does not arrive.
    Lost,
    /// It arrives when the client has long given up this connection.
    Late,
    /// As that, but as late as the test says.
    Held,
    /// It arrives, and nobody waits for the answer.
    NotAwaited,
    /// It is carried out; the answer does not arrive.
    AnswerLost,
}

struct Pair {
    protocol: Protocol,
    client: TcpStream,
    server: TcpStream,
    state: Arc<State>,
    random: Option<Arc<parking_lot::Mutex<Random>>>,
}

impl Pair {
    /// Carries what the client says; another thread carries the answers.
    fn carry(self) {
        let (mut from, mut to) =
            (self.server.try_clone().unwrap(), self.client.try_clone().unwrap());
        let mute = Arc::new(AtomicBool::new(false));
        let (muted, protocol) = (mute.clone(), self.protocol);
        let answers = thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                match (muted.load(Ordering::SeqCst), protocol) {
                    (true, Protocol::Postgres) => break,
                    // Not all that etcd says is an answer.
                    (true, Protocol::Etcd) => {}
                    (false, _) if to.write_all(&bytes[..count]).is_err() => break,
                    (false, _) => {}
                }
            }
            let _gone = to.shutdown(Shutdown::Both);
        });
        let held = self.carry_requests(&mute);
        let _gone = self.client.shutdown(Shutdown::Both);
        if held {
            // Until the server has done with it.
            while (&self.server).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
            self.state.arrived.store(true, Ordering::SeqCst);
        }
        let _gone = self.server.shutdown(Shutdown::Both);
        answers.join().unwrap();
    }

    /// True if the last was a commit that was held back.
    fn carry_requests(&self, mute: &AtomicBool) -> bool {
        let mut bytes = vec![0; 1 << 16];
        let mut commit = None;
        while let Ok(count @ 1..) = (&self.client).read(&mut bytes) {
            let said = &bytes[..count];
            let fate = match self.protocol {
                Protocol::Postgres => {
                    commit = commit.or_else(|| name_of_commit(said));
                    match commit.as_ref().is_some_and(|name| is_bound(said, name)) {
                        true => self.fate(true),
                        false => Fate::Passes,
                    }
                }
                // Whatever leaves a receipt; a commit writes the map as well.
                Protocol::Etcd if holds(said, b"/receipt/") => self.fate(holds(said, b"/map/")),
                Protocol::Etcd => Fate::Passes,
            };
            let mute_answers = matches!(fate, Fate::AnswerLost | Fate::Held);
            if self.state.down.load(Ordering::SeqCst) && !mute_answers {
                return false;
            }
            mute.store(mute_answers, Ordering::SeqCst);
            match fate {
                Fate::Lost => return false,
                Fate::Late => {
                    let _gone = self.client.shutdown(Shutdown::Both);
                    thread::sleep(LATE);
                }
                Fate::Held => {
                    let _gone = self.client.shutdown(Shutdown::Both);
                    while self.state.hold_commit.load(Ordering::SeqCst) {
                        thread::sleep(LATE);
                    }
                }
                Fate::Passes | Fate::NotAwaited | Fate::AnswerLost => {}
            }
            if (&self.server).write_all(said).is_err() {
                return false;
            }
            if self.protocol == Protocol::Etcd && matches!(fate, Fate::Held | Fate::AnswerLost) {
                thread::sleep(CARRIED_OUT);
            }
            match fate {
                Fate::Passes | Fate::Lost => {}
                // The server reads what is there before it sees the end.
                Fate::Held => {
                    let _gone = self.server.shutdown(Shutdown::Write);
                    return true;
                }
                Fate::Late | Fate::NotAwaited => {
                    let _gone = self.client.shutdown(Shutdown::Both);
                    let _gone = self.server.shutdown(Shutdown::Write);
                    thread::sleep(LATE);
                    return false;
                }
                Fate::AnswerLost if self.protocol == Protocol::Etcd => return false,
                // The other thread closes the client's side when the answer has come.
                Fate::AnswerLost => {
                    while (&self.client).read(&mut bytes).is_ok_and(|count| count > 0) {}
                    return false;
                }
            }
        }
        false
    }

    fn fate(&self, is_commit: bool) -> Fate {
        if is_commit && self.state.down_at_commit.load(Ordering::SeqCst) {
            self.state.down.store(true, Ordering::SeqCst);
            self.state.down_at_commit.store(false, Ordering::SeqCst);
            self.state.cuts.fetch_add(1, Ordering::SeqCst);
            return Fate::AnswerLost;
        }
        if is_commit && self.state.hold_commit.load(Ordering::SeqCst) {
            self.state.down.store(true, Ordering::SeqCst);
            return Fate::Held;
        }
        let Some(random) = &self.random else { return Fate::Passes };
        let mut random = random.lock();
        if random.below(CUT_ONE_IN) != 0 {
            return Fate::Passes;
        }
        self.state.cuts.fetch_add(1, Ordering::SeqCst);
        [Fate::Lost, Fate::Late, Fate::NotAwaited, Fate::AnswerLost][random.below(4)]
    }
}

/// The name under which the statement that commits is prepared: the message is `P`, four bytes of
/// length, the name, a zero, the text.
fn name_of_commit(said: &[u8]) -> Option<Vec<u8>> {
    let text = b"\0WITH mark AS";
    let end = said.windows(text.len()).position(|window| window == text)?;
    let start = said[..end].iter().rposition(|byte| *byte == b's')?;
    // A message that binds it: an empty portal, then the name.
    Some([b"\0", &said[start..end], b"\0"].concat())
}

fn is_bound(said: &[u8], name: &[u8]) -> bool {
    said.first() == Some(&b'B') && holds(said, name)
}

fn holds(said: &[u8], text: &[u8]) -> bool {
    said.windows(text.len()).any(|window| window == text)
}
