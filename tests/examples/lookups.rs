//! How many cached lookups a second one core of a metadata server answers.
//!
//! A server with all roles, over TCP, and a caller that keeps nothing of what it is told, so each lookup is a message. Both
//! are on this machine: what counts is the processor time of the server, all of its threads together. Five rounds of random
//! names of one directory; printed are all and the median. `STRAKE_BIN` names another build of the server.
//!
//! ```sh
//! cargo build --release -p strake
//! cargo run --release -p strake-tests --example lookups -- 64 100000
//! ```

use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use strake_client::Volume;
use strake_client::api::VolumeOptions;
use strake_tests::cluster::Servers;
use strake_tests::made::{make_directory, make_file};
use strake_types::{Credentials, Ino};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::meta::{MetaAnswer, MetaOp, MetaRequest, Name, OpenSession};
use strake_wire::service::MetaService;

const ROUNDS: usize = 5;
const LOOKUPS: usize = 400_000;
const CONNECT_MS_MAX: u64 = 10_000;
const USAGE: &str = "usage: lookups TASKS FILES [--meta URL]";

/// Asks as a client that keeps leases does, and forgets what it is told.
#[derive(Clone)]
struct Caller {
    service: Arc<dyn MetaService>,
    volume: u32,
    session: u64,
}

impl Caller {
    async fn connect(address: &str, volume: u32) -> Self {
        let callers = Callers::new(CallerOptions { name: "lookups".into(), ..Default::default() });
        let source = ManagerSource::Addresses(vec![address.to_owned()]);
        let map = MapView::connect(callers, source, CONNECT_MS_MAX).await.expect("it runs");
        let service = map.meta_for(strake_types::VolumeId(volume)).expect("the volume is served");
        let mut caller = Self { service, volume, session: 0 };
        let open = OpenSession { client: "lookups".into(), incarnation: 1, ..Default::default() };
        let answer = caller.ask(MetaOp::OpenSession(open)).await;
        let MetaAnswer::Session(session) = answer else { panic!("no session: {answer:?}") };
        caller.session = session.session;
        // The map is polled as long as it is held.
        std::mem::forget(map);
        caller
    }

    async fn ask(&self, op: MetaOp) -> MetaAnswer {
        let (volume, session, cred) = (self.volume, self.session, (&Credentials::root()).into());
        let (leases, incarnation, op) = (1, 1, Some(op));
        let request =
            MetaRequest { volume, session, cred, leases, incarnation, op, ..Default::default() };
        let reply = self.service.call(request).await.expect("it is answered");
        reply.answer.expect("with something")
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tasks, files, meta @ ..] = &arguments[..] else { panic!("{USAGE}") };
    let (tasks, files): (usize, usize) = (tasks.parse().expect(USAGE), files.parse().expect(USAGE));
    let mut servers = Servers::start_with(meta);
    let volume = {
        let addresses = vec![servers.address().to_owned()];
        let volume = Volume::connect_to(addresses, "main", VolumeOptions::default()).await;
        volume.expect("the volume is there")
    };
    let dir = make_directory(&volume, Ino::ROOT, "directory").await;
    make(&volume, dir, tasks, files).await;
    let caller = Caller::connect(servers.address(), volume.id().0).await;
    volume.close().await.expect("it can be closed");
    look_up(&caller, dir, tasks, files, files).await;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let (before, began) = (servers.server().processor_seconds(), Instant::now());
        look_up(&caller, dir, tasks, files, LOOKUPS).await;
        let used = servers.server().processor_seconds() - before;
        let (rate, wall) = (LOOKUPS as f64 / used, began.elapsed().as_secs_f64());
        println!(
            "{rate:.0} lookups for each second of a core; {:.0}/s in all",
            LOOKUPS as f64 / wall
        );
        rates.push(rate);
    }
    rates.sort_by(f64::total_cmp);
    println!("median {:.0} lookups for each second of a core, {tasks} tasks", rates[ROUNDS / 2]);
}

fn name_of(nth: usize) -> Bytes {
    Bytes::from(format!("file{nth:08}"))
}

async fn make(volume: &Arc<Volume>, dir: Ino, tasks: usize, files: usize) {
    let all = (0..tasks).map(|task| {
        let volume = volume.clone();
        tokio::spawn(async move {
            for nth in (task..files).step_by(tasks) {
                make_file(&volume, dir, name_of(nth)).await;
            }
        })
    });
    for task in all.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}

async fn look_up(caller: &Caller, dir: Ino, tasks: usize, files: usize, lookups: usize) {
    let all = (0..tasks).map(|task| {
        let caller = caller.clone();
        tokio::spawn(async move {
            for nth in (task..lookups).step_by(tasks) {
                // A multiplier without factors in common with the files: each name comes, in no order.
                let name = name_of(nth * 7_919 % files);
                let answer = caller.ask(MetaOp::Lookup(Name { parent: dir.0, name })).await;
                assert!(matches!(answer, MetaAnswer::Entry(_)), "{answer:?}");
            }
        })
    });
    for task in all.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}
