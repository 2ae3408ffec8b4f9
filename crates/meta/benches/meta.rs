//! What the operations cost in one process on an embedded engine: wall and CPU time of the calling
//! thread per call, and how many calls had to wait.
//!
//! `cargo bench -p strake-meta --bench meta -- [--dir DIR] [--files N] [--engine NAME]`

use bytes::Bytes;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use strake_base::clock::SystemClock;
use strake_engine::kv::{Alone, EngineKind, open};
use strake_meta::{MetaOptions, MetaServer};
use strake_types::{FileKind, Result};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::capability::CapabilityKey;
use strake_wire::map::MapView;
use strake_wire::message::manager::{ClusterMap, Group, Target, Volume, VolumeSpec};
use strake_wire::message::meta::*;
use strake_wire::service::MetaService;

struct Options {
    dir: PathBuf,
    files: u64,
    engine: EngineKind,
}

fn options() -> Options {
    let mut options =
        Options { dir: std::env::temp_dir(), files: 20_000, engine: EngineKind::default() };
    let mut arguments = std::env::args().skip(1);
    let value = |next: Option<String>| next.expect("a value after the option");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--dir" => options.dir = value(arguments.next()).into(),
            "--files" => options.files = value(arguments.next()).parse().expect("a number"),
            "--engine" => options.engine = value(arguments.next()).parse().expect("an engine"),
            other => panic!("unknown option {other}"),
        }
    }
    options
}

fn map() -> ClusterMap {
    let target = |id| Target { id, server: 1, up: true, ..Target::default() };
    ClusterMap {
        cluster: "bench".into(),
        epoch: 1,
        targets: (1..5).map(target).collect(),
        groups: (0..4)
            .map(|id| Group { id, epoch: 1, members: vec![id + 1], ..Group::default() })
            .collect(),
        volumes: vec![Volume {
            id: 1,
            spec: VolumeSpec { name: "main".into(), ..VolumeSpec::default() },
            ..Volume::default()
        }],
        ..ClusterMap::default()
    }
}

/// CPU nanoseconds that this thread has used.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

struct Bench {
    server: Arc<MetaServer>,
    session: u64,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn call(&self, op: MetaOp, waited: &mut u64) -> Result<MetaAnswer> {
        let request = MetaRequest {
            volume: 1,
            session: self.session,
            op: Some(op),
            ..MetaRequest::default()
        };
        let mut call = pin!(self.server.call(request));
        let mut context = Context::from_waker(Waker::noop());
        let reply = match call.as_mut().poll(&mut context) {
            Poll::Ready(reply) => reply,
            Poll::Pending => {
                *waited += 1;
                self.runtime.block_on(call)
            }
        };
        reply.map(|reply| reply.answer.expect("an answer"))
    }

    /// Runs an operation `count` times and prints what one costs.
    fn run(&self, name: &str, count: u64, op: impl Fn(u64) -> MetaOp) -> Vec<Result<MetaAnswer>> {
        let _in_runtime = self.runtime.enter();
        let mut waited = 0;
        let mut answers = Vec::with_capacity(count as usize);
        let (cpu, wall) = (cpu_ns(), Instant::now());
        for nth in 0..count {
            answers.push(self.call(op(nth), &mut waited));
        }
        let per = |ns: u64| ns as f64 / 1000.0 / count as f64;
        let (cpu, wall) = (per(cpu_ns() - cpu), per(wall.elapsed().as_nanos() as u64));
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        println!(
            "{name:24} {cpu:8.2} us CPU {wall:8.2} us wall {waited:6} waited {failed:6} errors"
        );
        answers
    }
}

fn at(parent: u64, name: String) -> Name {
    Name { parent, name: name.into() }
}

fn create(parent: u64, name: String, kind: FileKind, open: bool) -> MetaOp {
    let open = open.then_some(OpenMode { read: false, write: true, truncate: false });
    let at = at(parent, name);
    let exclusive = true;
    MetaOp::Create(Create {
        at,
        kind: kind as u32,
        mode: 0o755,
        open,
        exclusive,
        ..Create::default()
    })
}

fn ino_of(answer: &Result<MetaAnswer>) -> u64 {
    match answer {
        Ok(MetaAnswer::Created(created)) => created.attr.ino,
        other => panic!("{other:?}"),
    }
}

fn start(options: &Options) -> Bench {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = options.dir.join(format!("strake-meta-bench-{}", std::process::id()));
    let kv = runtime.block_on(async { open(options.engine, &dir) }).expect("a store");
    let server = runtime.block_on(async {
        let map = MapView::fixed(Callers::new(CallerOptions::default()), map());
        let (key, clock) = (CapabilityKey::new([1; 32]), Arc::new(SystemClock::default()));
        MetaServer::start(Arc::new(Alone(kv)), map, key, clock, MetaOptions::default()).await
    });
    let mut bench = Bench { server: server.expect("a server"), session: 0, runtime };
    let session = bench.call(MetaOp::OpenSession(OpenSession::default()), &mut 0);
    match session {
        Ok(MetaAnswer::Session(session)) => bench.session = session.session,
        other => panic!("{other:?}"),
    }
    bench
}

fn main() {
    let options = options();
    let bench = start(&options);
    let n = options.files;
    let dirs =
        bench.run("mkdir", 16, |nth| create(1, format!("d{nth}"), FileKind::Directory, false));
    let dir = ino_of(&dirs[0]);
    let name = |nth: u64| format!("file-{nth:08}");
    let files = bench.run("create and open", n, |nth| create(dir, name(nth), FileKind::File, true));
    let inos: Vec<u64> = files.iter().map(ino_of).collect();
    let data = Bytes::from(vec![7; 4096]);
    bench.run("write 4 KiB and close", n, |nth| {
        let (ino, data) = (inos[nth as usize], data.clone());
        MetaOp::WriteInline(WriteInline { ino, data, close: true, ..WriteInline::default() })
    });
    bench.run("lookup", n, |nth| MetaOp::Lookup(at(dir, name(nth))));
    bench.run("lookup, missing", n, |nth| MetaOp::Lookup(at(dir, format!("none-{nth}"))));
    bench.run("lookup, missing, again", n, |nth| MetaOp::Lookup(at(dir, format!("none-{nth}"))));
    bench.run("getattr", n, |nth| {
        MetaOp::GetAttr(Look { ino: inos[nth as usize], ..Look::default() })
    });
    bench.run("open", n, |nth| {
        let mode = OpenMode { read: true, ..OpenMode::default() };
        MetaOp::Open(Open { ino: inos[nth as usize], mode })
    });
    bench.run("close", n, |nth| {
        MetaOp::RenewSession(RenewSession {
            closed: vec![inos[nth as usize]],
            ..RenewSession::default()
        })
    });
    let mut after = 0;
    let began = Instant::now();
    let mut listed = 0;
    loop {
        let op = ReadDir { ino: dir, after, limit: 1000, plus: true };
        let Ok(MetaAnswer::Page(page)) = bench.call(MetaOp::ReadDir(op), &mut 0) else { panic!() };
        listed += page.entries.len();
        after = page.entries.last().map_or(after, |entry| entry.cookie);
        if page.end {
            break;
        }
    }
    let per_entry = began.elapsed().as_secs_f64() * 1e6 / listed as f64;
    println!("{:24} {per_entry:8.2} us wall per entry", "readdir with attributes");
    bench.run("rename", n, |nth| {
        let (from, to) = (at(dir, name(nth)), at(dir, format!("new-{nth:08}")));
        MetaOp::Rename(Rename { from, to, ..Rename::default() })
    });
    bench.run("unlink", n, |nth| {
        MetaOp::Unlink(Unlink { at: at(dir, format!("new-{nth:08}")), directory: false })
    });
    bench.runtime.block_on(bench.server.stop()).expect("an orderly stop");
    let dir = options.dir.join(format!("strake-meta-bench-{}", std::process::id()));
    drop(bench);
    std::fs::remove_dir_all(dir).expect("the bench's own directory");
}
