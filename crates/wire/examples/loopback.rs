//! What the wire costs, beside a plain TCP stream in the same run, over loopback.
//!
//! `cargo run --release -p strake-wire --example loopback [SECONDS]` prints medians of five rounds,
//! the sides alternating: 1 MiB writes and reads against a storage service that keeps nothing, and
//! the round trip of a small call.

use async_trait::async_trait;
use bytes::Bytes;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_types::Result;
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::message::manager::Server;
use strake_wire::message::meta::{MetaAnswer, MetaReply, MetaRequest, Nothing};
use strake_wire::message::storage::{
    Chunk, Data, Done, Read, StorageAnswer, StorageOp, StorageReply, StorageRequest, Write,
};
use strake_wire::server::{Identity, Listener, Services, serve};
use strake_wire::service::{MetaService, StorageService};
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
            _ => (StorageAnswer::Done(Done {}), Bytes::new()),
        };
        Ok((StorageReply { answer: Some(answer) }, payload))
    }
}

#[async_trait]
impl MetaService for Null {
    async fn call(&self, _: MetaRequest) -> Result<MetaReply> {
        Ok(MetaReply { answer: Some(MetaAnswer::Done(Nothing {})) })
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

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    let runtime =
        || Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (server, client) = (runtime(), runtime());
    let listener = server.block_on(Listener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.address();
    let null = Arc::new(Null(vec![7; BLOCK].into()));
    let services =
        Services { meta: Some(null.clone()), storage: Some(null), ..Services::default() };
    let (_stop, stopped) = watch::channel(false);
    server.spawn(serve(listener, services, Identity::default(), stopped));
    let callers = Callers::new(CallerOptions::default());
    let entry = Server { id: 1, address, ..Server::default() };
    let (storage, meta) = (callers.storage(&entry), callers.meta(&entry));

    let read = StorageOp::Read(Read { chunk: Chunk::default(), offset: 0, len: BLOCK as u64 });
    let write = StorageOp::Write(Write::default());
    let names = [
        "plain",
        "write, 1 task",
        "write, 2 tasks",
        "write, 8 tasks",
        "read, 1 task",
        "read, 2 tasks",
        "read, 8 tasks",
    ];
    let mut rates = vec![Vec::new(); names.len()];
    let (mut plain_us, mut call_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        rates[0].push(plain_stream(time));
        for (nth, tasks) in [1, 2, 8].into_iter().enumerate() {
            rates[1 + nth].push(calls(&client, &storage, write.clone(), tasks, time));
            rates[4 + nth].push(calls(&client, &storage, read.clone(), tasks, time));
        }
        plain_us.push(plain_round_trip(&server, &client, time));
        call_us.push(call_round_trip(&client, meta.clone(), time));
    }
    let plain = median(&mut rates[0]);
    for (name, rates) in names.iter().zip(&mut rates) {
        let rate = median(rates);
        println!("{name:16} {:7.0} MB/s  {:4.0} %", rate / 1e6, rate / plain * 100.0);
    }
    let (plain, call) = (median(&mut plain_us), median(&mut call_us));
    println!("round trip: plain {plain:.1} us, call {call:.1} us, {:.2} times", call / plain);
}
