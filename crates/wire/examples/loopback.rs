//! What the wire costs, beside a plain TCP stream in the same run, over loopback.
//!
//! `cargo run --release -p strake-wire --example loopback [SECONDS]` prints medians of five rounds,
//! the sides alternating: 1 MiB writes and reads against a storage service that keeps nothing, and
//! the round trip of a small call, without and with TLS.

use async_trait::async_trait;
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_types::Result;
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::message::manager::Server;
use strake_wire::message::meta::{MetaAnswer, MetaReply, MetaRequest, Nothing};
use strake_wire::message::storage::{
    Data, Done, Read, StorageAnswer, StorageOp, StorageReply, StorageRequest, Write,
};
use strake_wire::server::{Identity, Listener, Services, serve};
use strake_wire::service::{MetaService, StorageService};
use strake_wire::tls::{Tls, TlsFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

const BLOCK: usize = 1 << 20;
const ROUNDS: usize = 5;

/// Takes everything, keeps nothing, answers from one buffer.
struct Null(Bytes);

#[async_trait]
impl StorageService for Null {
    async fn call(
        &self,
        request: StorageRequest,
        _payload: Bytes,
    ) -> Result<(StorageReply, Bytes)> {
        let (answer, payload) = match request.op {
            Some(StorageOp::Read(read)) => {
                (StorageAnswer::Data(Data { crc: 0 }), self.0.slice(..read.len as usize))
            }
            _ => (StorageAnswer::Done(Done::default()), Bytes::new()),
        };
        Ok((StorageReply { answer: Some(answer) }, payload))
    }
}

#[async_trait]
impl MetaService for Null {
    async fn call(&self, _: MetaRequest) -> Result<MetaReply> {
        Ok(MetaReply { answer: Some(MetaAnswer::Done(Nothing {})), fenced: 0 })
    }
}

/// Bytes a second through one plain TCP connection, one thread on each side.
fn plain_stream(time: Duration) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the writer connects");
        let mut buffer = vec![0; BLOCK];
        let mut total = 0;
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            total += n;
        }
        total
    });
    let mut stream = TcpStream::connect(address).expect("the listener is there");
    let block = vec![7; BLOCK];
    let begun = Instant::now();
    while begun.elapsed() < time {
        stream.write_all(&block).expect("the reader reads");
    }
    drop(stream);
    reader.join().expect("the reader ends") as f64 / begun.elapsed().as_secs_f64()
}

/// Bytes a second by calls, `tasks` at a time each waiting for its answer before the next.
fn calls(
    client: &Runtime,
    storage: &Arc<dyn StorageService>,
    op: StorageOp,
    tasks: usize,
    time: Duration,
) -> f64 {
    let data = Bytes::from(vec![7; BLOCK]);
    let payload = if matches!(op, StorageOp::Write(_)) { data } else { Bytes::new() };
    let begun = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (storage, op, payload) = (storage.clone(), op.clone(), payload.clone());
            client.spawn(async move {
                let mut total = 0;
                while begun.elapsed() < time {
                    let op = Some(op.clone());
                    let request = StorageRequest { op, ..StorageRequest::default() };
                    storage.call(request, payload.clone()).await.expect("the server answers");
                    total += BLOCK;
                }
                total
            })
        })
        .collect();
    let total: usize =
        tasks.into_iter().map(|task| client.block_on(task).expect("the task ends")).sum();
    total as f64 / begun.elapsed().as_secs_f64()
}

/// Microseconds of a round trip of 64 bytes each way on a plain TCP connection of the same runtimes.
fn plain_round_trip(server: &Runtime, client: &Runtime, time: Duration) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    listener.set_nonblocking(true).expect("a socket");
    server.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let (mut stream, _) = listener.accept().await.expect("the client connects");
        stream.set_nodelay(true).expect("a TCP socket");
        let mut buffer = [0; 64];
        while stream.read_exact(&mut buffer).await.is_ok() {
            stream.write_all(&buffer).await.expect("the client reads");
        }
    });
    let run = client.spawn(async move {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a TCP socket");
        let (mut buffer, mut count) = ([0; 64], 0u32);
        let begun = Instant::now();
        while begun.elapsed() < time {
            stream.write_all(&buffer).await.expect("the server reads");
            stream.read_exact(&mut buffer).await.expect("the server answers");
            count += 1;
        }
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(count)
    });
    client.block_on(run).expect("the task ends")
}

/// Microseconds of a small call.
fn call_round_trip(client: &Runtime, meta: Arc<dyn MetaService>, time: Duration) -> f64 {
    let run = client.spawn(async move {
        let (begun, mut count) = (Instant::now(), 0u32);
        while begun.elapsed() < time {
            meta.call(MetaRequest::default()).await.expect("the server answers");
            count += 1;
        }
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(count)
    });
    client.block_on(run).expect("the task ends")
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A certificate that may do everything, signed by a CA that is then forgotten.
fn certificate(dir: &Path) -> Arc<Tls> {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let files = TlsFiles::in_directory(dir);
    let write = |path: &Path, text: String| {
        let open = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        open.and_then(|mut file| file.write_all(text.as_bytes())).expect("a temporary directory");
    };
    write(&files.ca, params.self_signed(&key).expect("a certificate").pem());
    let issuer = Issuer::new(params, key);
    let names = vec!["loopback".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).expect("good names");
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    write(&files.certificate, params.signed_by(&key, &issuer).expect("a certificate").pem());
    write(&files.key, key.serialize_pem());
    Tls::load(files).expect("files that belong together")
}

/// A server, called without or with TLS.
struct Side {
    name: &'static str,
    storage: Arc<dyn StorageService>,
    meta: Arc<dyn MetaService>,
    rates: Vec<Vec<f64>>,
    call_us: Vec<f64>,
    _stop: watch::Sender<bool>,
}

impl Side {
    fn new(name: &'static str, server: &Runtime, tls: Option<Arc<Tls>>) -> Self {
        let listener = server.block_on(Listener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.address();
        let null = Arc::new(Null(vec![7; BLOCK].into()));
        let services =
            Services { meta: Some(null.clone()), storage: Some(null), ..Services::default() };
        let (stop, stopped) = watch::channel(false);
        let listener = listener.secured_by(tls.clone());
        server.spawn(serve(listener, services, Identity::default(), stopped));
        let callers = Callers::new(CallerOptions { tls, ..CallerOptions::default() });
        let entry = Server { id: 1, address, ..Server::default() };
        let (storage, meta) = (callers.storage(&entry), callers.meta(&entry));
        let rates = vec![Vec::new(); LOADS.len()];
        Self { name, storage, meta, rates, call_us: Vec::new(), _stop: stop }
    }

    fn round(&mut self, client: &Runtime, time: Duration) {
        for ((writes, tasks), rates) in LOADS.iter().zip(&mut self.rates) {
            let op = match writes {
                true => StorageOp::Write(Write::default()),
                false => StorageOp::Read(Read { len: BLOCK as u64, ..Read::default() }),
            };
            rates.push(calls(client, &self.storage, op, *tasks, time));
        }
        self.call_us.push(call_round_trip(client, self.meta.clone(), time));
    }
}

/// Writes or not, and how many tasks.
const LOADS: [(bool, usize); 6] =
    [(true, 1), (true, 2), (true, 8), (false, 1), (false, 2), (false, 8)];

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    let runtime =
        || Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (server, client) = (runtime(), runtime());
    let dir = tempfile::tempdir().expect("a temporary directory");
    let tls = certificate(dir.path());
    let mut sides = [Side::new("wire", &server, None), Side::new("TLS", &server, Some(tls))];
    let (mut plain, mut plain_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(plain_stream(time));
        plain_us.push(plain_round_trip(&server, &client, time));
        sides.iter_mut().for_each(|side| side.round(&client, time));
    }
    let (plain, plain_us) = (median(&mut plain), median(&mut plain_us));
    println!("{:24} {:7.0} MB/s  100 %", "plain stream", plain / 1e6);
    for side in &mut sides {
        for ((writes, tasks), rates) in LOADS.iter().zip(&mut side.rates) {
            let what = if *writes { "write" } else { "read" };
            let (name, rate) = (format!("{}: {what}, {tasks} tasks", side.name), median(rates));
            println!("{name:24} {:7.0} MB/s  {:3.0} %", rate / 1e6, rate / plain * 100.0);
        }
        let call = median(&mut side.call_us);
        let times = call / plain_us;
        println!(
            "{}: round trip {call:.1} us, plain {plain_us:.1} us, {times:.2} times",
            side.name
        );
    }
}
