//! The most that is possible in a testbed, measured in the same run as what is compared with it: plain
//! TCP streams over its links, and plain sequential calls on a disk as slow as its disks.

mod beside;

pub use beside::carry_out;

use crate::error::{Error, Kind, Result};
use crate::result::{Figure, Origin, Rule, Unit};
use crate::testbed::{Host, Plan, Rate, Role, Testbed, burst_bytes, or_stopped, within};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_base::disk::{Disk, RealDisk, SlowDisk};

/// Bytes of a write to a stream, and of a call on a disk at most.
const CALL_BYTES: usize = 1 << 20;
/// How long a stream may stand still.
const STALL: Duration = Duration::from_secs(60);
/// How long a link or a disk takes for a sample at most, about: what the slowest disk of the studies takes.
const SAMPLE_SECONDS: u64 = 6;
/// The file a disk is measured with; gone afterwards.
const DISK_FILE: &str = "limit";

/// Name of the limit of the links, in tables and legends.
pub const TCP: &str = "TCP";
/// Name of the limit of the disks.
pub const DISKS: &str = "disks";

/// What a testbed can carry, in bytes per second, one sample for each repetition.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Limits {
    /// One connection from the client to the first server.
    pub to_one: Vec<f64>,
    /// One connection from the first server to the client.
    pub from_one: Vec<f64>,
    /// A connection from the client to each server at once; all together.
    pub to_all: Vec<f64>,
    /// A connection from each server to the client at once; all together.
    pub from_all: Vec<f64>,
    /// Writing one disk from its beginning, all disks together: what one does times their number.
    pub disks_written: Vec<f64>,
    /// Reading one disk from its beginning, all disks together.
    pub disks_read: Vec<f64>,
}

/// Whether measuring is to end: asked again as long as bytes arrive.
pub type Stopped<'a> = &'a (dyn Fn() -> bool + Sync);

/// How much a sample moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleBytes {
    /// Over one connection, or over all together.
    pub links: u64,
    /// To and from a disk.
    pub disk: u64,
}

impl SampleBytes {
    /// As much of `most` as links and disks of a testbed carry in a few seconds.
    pub fn of(plan: &Plan, most: u64) -> Self {
        let carried = |rate: Rate| rate.bytes_per_second() * SAMPLE_SECONDS;
        let links = [plan.link, plan.client_link].into_iter().flatten().map(carried);
        Self { links: links.fold(most, u64::min), disk: plan.disk.map_or(most, carried).min(most) }
    }
}

impl Limits {
    /// Measures each limit `repetitions` times, by turns, that of disks if the testbed has slow ones. Ends
    /// early, with what there is, if `stopped`.
    pub fn measure(
        testbed: &Testbed,
        bytes: SampleBytes,
        repetitions: u32,
        stopped: Stopped<'_>,
    ) -> Result<Limits> {
        let mut limits = Limits::default();
        for _ in 0..repetitions {
            match limits.sample(testbed, bytes, stopped) {
                Err(error) if error.kind == Kind::Stopped => break,
                sampled => sampled?,
            }
        }
        Ok(limits)
    }

    fn sample(
        &mut self,
        testbed: &Testbed,
        bytes: SampleBytes,
        stopped: Stopped<'_>,
    ) -> Result<()> {
        let servers = testbed.hosts(Role::Server);
        let clients = testbed.hosts(Role::Client);
        let client = clients.first().ok_or_else(|| Error::failed("a testbed without clients"))?;
        let to: Vec<_> = servers.iter().map(|server| (client, server)).collect();
        let from: Vec<_> = servers.iter().map(|server| (server, client)).collect();
        let plan = &testbed.state.plan;
        let disks = f64::from(plan.servers * plan.targets);
        self.to_one.push(streams(&to[..1], bytes.links, stopped)?);
        self.from_one.push(streams(&from[..1], bytes.links, stopped)?);
        let each = bytes.links.div_ceil(servers.len() as u64);
        self.to_all.push(streams(&to, each, stopped)?);
        self.from_all.push(streams(&from, each, stopped)?);
        if let Some(rate) = plan.disk {
            let data = &testbed.state.data;
            let (written, read) = disk(data, rate, bytes.disk, stopped).map_err(|e| {
                let cause = format!("measuring a disk in {}: {e}", data.display());
                or_stopped(Error::failed(cause), stopped())
            })?;
            self.disks_written.push(written * disks);
            self.disks_read.push(read * disks);
        }
        Ok(())
    }

    /// What stands beside figures of tests that write: one for the links, one for the disks. A `test`
    /// that ends with `/` is for all tests that begin with it.
    pub fn of_writing(&self, test: &str, parameters: &BTreeMap<String, f64>) -> Vec<Figure> {
        figures(test, parameters, best(&self.to_one, &self.to_all), &self.disks_written)
    }

    /// What stands beside figures of tests that read.
    pub fn of_reading(&self, test: &str, parameters: &BTreeMap<String, f64>) -> Vec<Figure> {
        figures(test, parameters, best(&self.from_one, &self.from_all), &self.disks_read)
    }
}

/// TCP carries what it carries over one connection or over one to each server, whichever is more.
fn best<'a>(one: &'a [f64], all: &'a [f64]) -> &'a [f64] {
    if sum(all) > sum(one) { all } else { one }
}

fn sum(samples: &[f64]) -> f64 {
    samples.iter().sum()
}

fn figures(
    test: &str,
    parameters: &BTreeMap<String, f64>,
    links: &[f64],
    disks: &[f64],
) -> Vec<Figure> {
    let found = [(TCP, links), (DISKS, disks)].into_iter();
    let found = found.filter(|(_, samples)| !samples.is_empty());
    found.map(|(side, samples)| figure(side, test, parameters, samples)).collect()
}

/// A limit as a report has it.
pub fn figure(
    side: &str,
    test: &str,
    parameters: &BTreeMap<String, f64>,
    samples: &[f64],
) -> Figure {
    Figure {
        side: side.to_owned(),
        origin: Origin::Limit,
        test: test.to_owned(),
        parameters: parameters.clone(),
        unit: Unit::BytesPerSecond,
        samples: samples.to_vec(),
        rule: Rule::Median,
    }
}

/// Sends `bytes` over each connection, from the first to the second host of each pair, all at once: what
/// arrived per second, from before the first byte is sent to after the last has arrived. What links let through at once
/// comes on top, and does not count. A clock that is read late makes it less, never more than the links carry.
fn streams(pairs: &[(&Host, &Host)], bytes: u64, stopped: Stopped<'_>) -> Result<f64> {
    let connections =
        pairs.iter().map(|(from, to)| connect(from, to)).collect::<Result<Vec<_>, _>>()?;
    let moved = bytes + burst_over(pairs).div_ceil(pairs.len().max(1) as u64);
    let begun = Instant::now();
    let received: io::Result<Vec<Instant>> = std::thread::scope(|scope| {
        let mut receivers = Vec::new();
        for (sender, receiver) in connections {
            // A receiver that misses bytes tells.
            scope.spawn(move || send(sender, moved).ok());
            receivers.push(scope.spawn(move || receive(receiver, moved, stopped)));
        }
        let received = receivers.into_iter().map(|thread| thread.join());
        received.map(|done| done.unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    let received = received
        .map_err(|e| or_stopped(Error::failed(format!("a plain TCP stream: {e}")), stopped()))?;
    let Some(last) = received.into_iter().max() else { return Ok(0.0) };
    Ok((pairs.len() as u64 * bytes) as f64 / last.duration_since(begun).as_secs_f64())
}

/// What the links between these hosts let through at once: those of the senders or of the receivers, whichever carry less.
/// Pairs of the same sender, or receiver, stand side by side.
fn burst_over(pairs: &[(&Host, &Host)]) -> u64 {
    let senders: Vec<_> = pairs.iter().map(|(from, _)| *from).collect();
    let receivers: Vec<_> = pairs.iter().map(|(_, to)| *to).collect();
    let limited = [senders, receivers].into_iter().filter_map(|mut hosts| {
        hosts.dedup();
        // One without a limit carries whatever comes.
        hosts.iter().map(|host| host.link).collect::<Option<Vec<Rate>>>()
    });
    let carried = |rates: &Vec<Rate>| rates.iter().map(|rate| rate.bytes_per_second()).sum::<u64>();
    let slower = limited.min_by_key(carried).unwrap_or_default();
    slower.into_iter().map(burst_bytes).sum()
}

fn go_on(stopped: Stopped<'_>) -> io::Result<()> {
    if stopped() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}

/// A connection from one host to another: the sender's end and the receiver's.
fn connect(from: &Host, to: &Host) -> Result<(TcpStream, TcpStream)> {
    let failed = |e: io::Error| {
        Error::failed(format!("a connection from {} to {}: {e}", from.name, to.name))
            .next("see whether both are there: strake testbed status")
    };
    let address: Ipv4Addr = to.address.parse().unwrap_or(Ipv4Addr::UNSPECIFIED);
    let any_port = SocketAddrV4::new(address, 0);
    let listener = within(&to.namespace, || TcpListener::bind(any_port))?.map_err(failed)?;
    let bound: SocketAddr = listener.local_addr().map_err(failed)?;
    let sender =
        within(&from.namespace, || TcpStream::connect_timeout(&bound, STALL))?.map_err(failed)?;
    let (receiver, _) = listener.accept().map_err(failed)?;
    sender.set_write_timeout(Some(STALL)).map_err(failed)?;
    receiver.set_read_timeout(Some(STALL)).map_err(failed)?;
    Ok((sender, receiver))
}

fn send(mut stream: TcpStream, bytes: u64) -> io::Result<()> {
    let buffer = vec![0x5a; CALL_BYTES];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(CALL_BYTES as u64) as usize;
        stream.write_all(&buffer[..now])?;
        left -= now as u64;
    }
    Ok(())
}

/// Reads `bytes`; when the last of them had arrived. The sender ends with it.
fn receive(mut stream: TcpStream, bytes: u64, stopped: Stopped<'_>) -> io::Result<Instant> {
    let mut buffer = vec![0; CALL_BYTES];
    let mut got = 0;
    while got < bytes {
        go_on(stopped)?;
        let now = stream.read(&mut buffer)? as u64;
        if now == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        got += now;
    }
    Ok(Instant::now())
}

/// Writes `bytes` to a disk of this rate in `directory` and reads them back: both in bytes per second.
fn disk(directory: &Path, rate: Rate, bytes: u64, stopped: Stopped<'_>) -> io::Result<(f64, f64)> {
    let disk = SlowDisk::new(Arc::new(RealDisk::new(directory)?), rate.bytes_per_second());
    let measured = measure_disk(&disk, bytes, call_bytes(rate, bytes), stopped);
    // It may have failed before the file was made.
    let _absent = disk.remove(DISK_FILE);
    measured
}

/// Bytes of a call on a disk of this rate. It takes no more than a second, after which who measures looks whether to go on.
fn call_bytes(rate: Rate, bytes: u64) -> u64 {
    bytes.min(rate.bytes_per_second()).clamp(1, CALL_BYTES as u64)
}

/// As [`disk()`], with calls of `each`.
fn measure_disk(
    disk: &SlowDisk,
    bytes: u64,
    each: u64,
    stopped: Stopped<'_>,
) -> io::Result<(f64, f64)> {
    let file = disk.open(DISK_FILE, true)?;
    let mut buffer = vec![0x5a; each as usize];
    let calls = bytes.div_ceil(each);
    let bytes = (calls * each) as f64;
    let begun = Instant::now();
    for call in 0..calls {
        go_on(stopped)?;
        file.write_all_at(&buffer, call * each)?;
    }
    file.sync()?;
    let written = bytes / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for call in 0..calls {
        go_on(stopped)?;
        file.read_exact_at(&mut buffer, call * each)?;
    }
    Ok((written, bytes / begun.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_disk_is_measured_and_nothing_of_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let rate = "1GB/s".parse().unwrap();
        let (written, read) = disk(dir.path(), rate, 3 << 20, &|| false).unwrap();
        assert!(written > 0.0 && read > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Of a link of 1 Mbit/s it took half an hour, of the slowest more than a day, before the first test began.
    #[test]
    fn slow_links_and_disks_are_measured_by_what_they_carry_in_seconds() {
        let of = |link: &str, disk: &str| {
            let (link, disk) = (link.parse().ok(), disk.parse().ok());
            let plan = Plan {
                name: "t".into(),
                servers: 2,
                clients: 1,
                targets: 1,
                link,
                client_link: None,
                disk,
                chunk_size: None,
                cluster: true,
            };
            SampleBytes::of(&plan, 16 << 20)
        };
        assert_eq!(of("1mbit", "6.83MB/s"), SampleBytes { links: 750_000, disk: 16 << 20 });
        assert_eq!(of("100mbit", "16kbit"), SampleBytes { links: 16 << 20, disk: 12_000 });
        // The slowest disk of the studies has what all have.
        assert_eq!(of("none", "2.83MB/s"), SampleBytes { links: 16 << 20, disk: 16 << 20 });
    }

    /// What went through at once counted: a third of what the slowest link seemed to carry.
    #[test]
    fn what_links_let_through_at_once_does_not_count() {
        let host = |name: &str, link: &str| Host {
            name: name.into(),
            role: Role::Server,
            address: String::new(),
            namespace: String::new(),
            link: link.parse().ok(),
        };
        let servers = |link: &str| ["s1", "s2", "s3"].map(|name| host(name, link));
        let burst = |client: &str, link: &str| {
            let (client, servers) = (host("c1", client), servers(link));
            let to: Vec<_> = servers.iter().map(|server| (&client, server)).collect();
            let from: Vec<_> = servers.iter().map(|server| (server, &client)).collect();
            assert_eq!(burst_over(&to), burst_over(&from));
            burst_over(&to)
        };
        assert_eq!(burst("16kbit", "16kbit"), 4096, "the client's link, once");
        assert_eq!(burst("100mbit", "16kbit"), 3 * 4096, "those of the servers");
        assert_eq!(burst("none", "100mbit"), 3 * 16_382);
        assert_eq!(burst("none", "none"), 0);
    }

    /// One call of 1 MiB took nine minutes, in which nobody looked whether to stop.
    #[test]
    fn a_call_on_a_slow_disk_takes_no_more_than_a_second() {
        let bytes = |rate: &str, bytes| call_bytes(rate.parse().unwrap(), bytes);
        assert_eq!(bytes("16kbit", 16 << 20), 2_000);
        assert_eq!((bytes("1GB/s", 16 << 20), bytes("1GB/s", 10)), (1 << 20, 10));
        assert_eq!(bytes("1GB/s", 0), 1);
    }

    /// Whether a run was to stop was looked at between repetitions only, which may take minutes.
    #[test]
    fn who_measures_a_limit_ends_when_he_is_told_to() {
        // Once it may go on.
        let asked = AtomicBool::new(false);
        let stopped = || asked.swap(true, Ordering::Relaxed);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        receiver.set_read_timeout(Some(STALL)).unwrap();
        sender.write_all(b"a few bytes").unwrap();
        let ended = receive(receiver, 1 << 40, &stopped).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
        asked.store(false, Ordering::Relaxed);
        let dir = tempfile::tempdir().unwrap();
        let ended = disk(dir.path(), "1GB/s".parse().unwrap(), 1 << 40, &stopped).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_limit_of_the_links_is_what_more_connections_or_one_carry() {
        let limits = Limits {
            to_one: vec![12.0, 12.0],
            to_all: vec![47.0, 48.0],
            from_one: vec![12.0, 12.0],
            from_all: vec![11.0, 11.0],
            ..Limits::default()
        };
        let parameters = BTreeMap::from([("servers".to_owned(), 4.0)]);
        let writing = limits.of_writing("iozone/write", &parameters);
        assert_eq!(writing.len(), 1, "no disk was measured, so none is shown");
        assert_eq!((writing[0].side.as_str(), &writing[0].samples), (TCP, &vec![47.0, 48.0]));
        assert_eq!(writing[0].origin, Origin::Limit);
        assert_eq!(limits.of_reading("iozone/", &parameters)[0].samples, [12.0, 12.0]);
    }
}
