//! What is no frame, sent to every port of a running server while others work on it: it ends its own
//! connection and nothing else, and what it claims costs nothing.

use bytes::Bytes;
use prost::Message;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use strake_client::VolumeOptions;
use strake_native::tree::cat;
use strake_native::{Clients, CopyOptions, Location, copy};
use strake_tests::cluster::{Up, http_get};
use strake_types::limits::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use strake_wire::frame::{Draft, FrameKind, HEADER_BYTES, Header, ServiceClass, crc32c};
use strake_wire::hello::Hello;
use strake_wire::message::manager::{GetMap, ManagerOp, ManagerReply, ManagerRequest};

/// Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(90);
/// What all that is claimed below may cost: less than a tenth of it.
const MEMORY_BYTES_MAX: u64 = 96 << 20;
/// Connections that claim much and send nothing: more than there is room for.
const CLAIMS: usize = 48;

/// A connection of any kind.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(address: &str) -> Self {
        let socket = match address.strip_prefix("unix:") {
            Some(path) => Socket::Unix(UnixStream::connect(path).unwrap()),
            None => Socket::Tcp(TcpStream::connect(address).unwrap()),
        };
        match &socket {
            Socket::Tcp(stream) => stream.set_read_timeout(Some(PATIENCE)).unwrap(),
            Socket::Unix(stream) => stream.set_read_timeout(Some(PATIENCE)).unwrap(),
        }
        socket
    }

    /// Sends; the server may hang up before it has all.
    fn send(&mut self, bytes: &[u8]) {
        let _refused = match self {
            Socket::Tcp(stream) => stream.write_all(bytes),
            Socket::Unix(stream) => stream.write_all(bytes),
        };
    }

    fn end(&self) {
        let _ended = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> std::io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.read_exact(bytes),
            Socket::Unix(stream) => stream.read_exact(bytes),
        }
    }

    /// Waits until the server hangs up.
    fn until_closed(&mut self, what: &str) {
        let mut answer = [0; 1 << 12];
        loop {
            let read = match self {
                Socket::Tcp(stream) => stream.read(&mut answer),
                Socket::Unix(stream) => stream.read(&mut answer),
            };
            match read.map_err(|e| e.kind()) {
                Ok(0) => return,
                Ok(_) => {}
                Err(std::io::ErrorKind::WouldBlock) => panic!("{what} is still connected"),
                Err(_) => return,
            }
        }
    }

    fn frame(&mut self) -> std::io::Result<(Header, Vec<u8>)> {
        let mut head = [0; HEADER_BYTES];
        self.read_exact(&mut head)?;
        let header = Header::decode(&head).unwrap().unwrap();
        let mut body = vec![0; header.body_len as usize];
        self.read_exact(&mut body)?;
        Ok((header, body))
    }

    /// The answer to a call.
    fn call(&mut self, service: ServiceClass, id: u64, body: Draft) -> (Header, Vec<u8>) {
        self.send(&body.seal(FrameKind::Request, service, id).head);
        let (header, body) = self.frame().expect("this connection has done nothing wrong");
        assert_eq!((header.kind, header.request), (FrameKind::Reply, id));
        (header, body)
    }

    /// A connection that has said hello and was answered.
    fn greeted(address: &str) -> Self {
        let mut socket = Self::connect(address);
        socket.send(&hello());
        let (header, _) = socket.frame().unwrap();
        assert_eq!((header.kind, header.error), (FrameKind::Hello, 0));
        socket
    }

    fn get_map(&mut self, id: u64) {
        let request = ManagerRequest { op: Some(ManagerOp::GetMap(GetMap::default())) };
        let draft = Draft::message(&request).unwrap();
        let (header, body) = self.call(ServiceClass::Manager, id, draft);
        assert_eq!(header.error, 0);
        assert!(ManagerReply::decode(&body[..]).unwrap().answer.is_some());
    }
}

fn hello() -> Vec<u8> {
    let body = Hello::new("", "garbage", false);
    Draft::message(&body).unwrap().seal(FrameKind::Hello, ServiceClass::None, 0).head
}

fn random(len: usize) -> Vec<u8> {
    let step = |state: &mut u64| {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        Some((*state >> 56) as u8)
    };
    std::iter::successors(Some(7u64), |s| Some(s + 1)).scan(7, |s, _| step(s)).take(len).collect()
}

/// The head of a frame that is right but for a change, with a checksum that matches.
fn resealed(kind: FrameKind, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut head = Draft::empty().seal(kind, ServiceClass::Storage, 1).head;
    change(&mut head);
    let crc = crc32c(&head[..HEADER_BYTES - 4]).to_le_bytes();
    head[HEADER_BYTES - 4..].copy_from_slice(&crc);
    head
}

fn claim(body: usize, payload: usize) -> Vec<u8> {
    resealed(FrameKind::Request, |head| {
        head[24..28].copy_from_slice(&(body as u32).to_le_bytes());
        head[28..32].copy_from_slice(&(payload as u32).to_le_bytes());
    })
}

/// What ends a connection before its hello, or after it.
fn garbage() -> Vec<(&'static str, Vec<u8>)> {
    let mut damaged = hello();
    damaged[20] ^= 1;
    let payload = Draft::empty().with_payload(Bytes::from_static(b"payload")).unwrap();
    let frame = payload.with_payload_checksum().seal(FrameKind::Request, ServiceClass::Storage, 1);
    let wrong_payload = [&frame.head[..], b"pAyload"].concat();
    let first = [
        ("random bytes", random(100_000)),
        ("a lot of zeros", vec![0; 1 << 20]),
        ("HTTP", b"GET /metrics HTTP/1.1\r\nHost: strake\r\n\r\n".to_vec()),
        ("a TLS hello", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec()),
        ("a damaged hello", damaged),
        ("a call before the hello", resealed(FrameKind::Request, |_| {})),
        ("a hello that claims 4 GiB", resealed(FrameKind::Hello, |h| h[24..28].fill(0xff))),
        ("a hello with a payload", resealed(FrameKind::Hello, |h| h[28] = 1)),
        ("half a hello", hello()[..70].to_vec()),
        ("a hello of version 9", resealed(FrameKind::Hello, |h| h[4] = 9)),
    ];
    let later = [
        ("random bytes after the hello", random(100_000)),
        ("an unknown kind of frame", resealed(FrameKind::Request, |h| h[6] = 77)),
        ("an unknown service", resealed(FrameKind::Request, |h| h[7] = 77)),
        ("a body beyond the limit", claim(BODY_BYTES_MAX + 1, 0)),
        ("a payload beyond the limit", claim(0, u32::MAX as usize)),
        ("a damaged payload", wrong_payload),
        ("a frame that ends early", [claim(0, 1000), vec![0; 999]].concat()),
    ];
    let later = later.map(|(what, bytes)| (what, [hello(), bytes].concat()));
    first.into_iter().chain(later).collect()
}

/// Somebody who works all the time; what fails shows when it is joined.
struct Worker {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(mut round: impl FnMut(u64) + Send + 'static) -> Self {
        let (rounds, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (rounds, stop) = (rounds.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    round(rounds.load(Ordering::Relaxed));
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { rounds, stop, thread }
    }

    /// Calls on one connection, which nothing may end.
    fn calling(address: &str) -> Self {
        let mut socket = Socket::greeted(address);
        Self::start(move |nth| {
            socket.get_map(nth);
            std::thread::sleep(Duration::from_millis(1));
        })
    }

    /// A client that writes files and reads them again.
    fn writing(address: &str, name: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let name = name.to_owned();
        let clients = Clients::new(VolumeOptions { remember: false, ..VolumeOptions::default() });
        let remote = Location::parse(&format!("{address}:/main/{name}")).unwrap();
        Self::start(move |nth| {
            let local = directory.path().join(&name);
            let written = vec![nth as u8; 1 << 20];
            std::fs::write(&local, &written).unwrap();
            let mut read = Vec::new();
            runtime.block_on(async {
                let from = [Location::Local(local)];
                let options = CopyOptions::default();
                copy(&clients, &from, &remote, &options, |_| {}).await.unwrap();
                let part = |part: &[u8]| {
                    read.extend_from_slice(part);
                    Ok(())
                };
                cat(&clients, &remote, part).await.unwrap();
            });
            assert!(read == written, "round {nth}");
        })
    }

    /// Waits until it has begun and finished a round from now on.
    fn goes_on(&self) {
        let end = self.rounds.load(Ordering::Relaxed) + 2;
        while self.rounds.load(Ordering::Relaxed) < end {
            assert!(!self.thread.is_finished(), "a worker has failed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("others work as if there were no garbage");
    }
}

/// A server with its addresses, and workers on each.
struct Scene {
    up: Up,
    addresses: Vec<String>,
    metrics: String,
    workers: Vec<Worker>,
}

impl Scene {
    fn start() -> Self {
        let up = Up::start(&["--metrics", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
        let text = std::fs::read(up.data().join("strake.json")).unwrap();
        let run: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let list = run["addresses"].as_array().unwrap();
        let addresses: Vec<_> = list.iter().map(|a| a.as_str().unwrap().to_owned()).collect();
        assert!(addresses.iter().any(|a| a.starts_with("unix:")) && addresses.len() == 2);
        let metrics = run["metrics"].as_str().unwrap().to_owned();
        let calling = addresses.iter().map(|a| Worker::calling(a));
        let writing = (0..).zip(&addresses).map(|(n, a)| Worker::writing(a, &format!("file{n}")));
        let workers: Vec<_> = calling.chain(writing).collect();
        let scene = Self { up, addresses, metrics, workers };
        scene.all_go_on();
        scene
    }

    fn all_go_on(&self) {
        self.workers.iter().for_each(Worker::goes_on);
    }

    fn finish(self) {
        self.all_go_on();
        self.workers.into_iter().for_each(Worker::finish);
    }
}

#[test]
fn garbage_ends_its_own_connection_and_nothing_else() {
    let scene = Scene::start();
    for address in scene.addresses.iter().chain([&scene.metrics]) {
        for (what, bytes) in garbage() {
            let mut socket = Socket::connect(address);
            socket.send(&bytes);
            socket.end();
            socket.until_closed(what);
        }
        scene.all_go_on();
    }
    assert!(http_get(&scene.metrics, "/metrics").starts_with("HTTP/1.1 200"));
    scene.finish();
}

#[test]
fn a_call_that_means_nothing_is_refused_and_its_connection_goes_on() {
    let scene = Scene::start();
    for address in &scene.addresses {
        let mut socket = Socket::greeted(address);
        let services =
            [ServiceClass::None, ServiceClass::Manager, ServiceClass::Meta, ServiceClass::Storage];
        // Not a message; no operation; an operation of a later release.
        for (nth, body) in (0u64..).zip([&[0xff; 100][..], b"", b"\xfa\x3e\x01x"]) {
            for service in services {
                let text = String::from_utf8_lossy(body).into_owned();
                let error = strake_types::Error::with(strake_types::ErrorKind::Io, text);
                let (header, _) = socket.call(service, nth, Draft::error(&error));
                assert_ne!(header.error, 0, "{service:?} understood {body:02x?}");
            }
        }
        socket.get_map(77);
    }
    scene.finish();
}

#[test]
fn who_claims_much_and_sends_nothing_costs_nothing_and_is_hung_up_on() {
    let mut scene = Scene::start();
    let before = scene.up.process().resident_bytes();
    let mut silent = Vec::new();
    for address in scene.addresses.clone() {
        for nth in 0..CLAIMS {
            let mut late = Socket::connect(&address);
            late.send(&hello()[..nth]);
            let (mut body, mut payload) = (Socket::greeted(&address), Socket::greeted(&address));
            body.send(&claim(BODY_BYTES_MAX, 0));
            payload.send(&claim(0, PAYLOAD_BYTES_MAX));
            silent.extend([late, body, payload]);
        }
    }
    for _ in 0..CLAIMS {
        let mut half = Socket::connect(&scene.metrics);
        half.send(b"GET /metrics HTTP/1.1\r\nX-Endless: ");
        silent.push(half);
    }
    scene.all_go_on();
    assert!(http_get(&scene.metrics, "/metrics").starts_with("HTTP/1.1 200"));
    let grown = scene.up.process().peak_resident_bytes().saturating_sub(before);
    println!("{} KiB more for {} connections", grown >> 10, silent.len());
    assert!(grown < MEMORY_BYTES_MAX, "{grown} bytes more");
    for socket in &mut silent {
        socket.until_closed("a connection that says nothing");
    }
    scene.finish();
}
