//! The network of a testbed: a namespace for each host, a switch between them, and a limit on both
//! ends of each cable.
//!
//! A limit (`tc tbf`) must see packets as they are on a wire: with headers, one at a time. So the
//! kernel is told not to hand larger ones over to be cut by a network card that is not there.

use super::host::{alone, namespaces};
use super::plan::{Host, Plan, namespace, namespace_prefix};
use super::rate::Rate;
use crate::error::{Error, Result};
use std::process::{Command, Stdio};

/// The namespace of the switch has the place of a host in names.
const SWITCH: &str = "switch";
/// The bridge in it.
const BRIDGE: &str = "br0";
/// Size of packets, as on Ethernet.
const MTU: &str = "1500";
/// A limit lets this much through at once, in parts of a second (1.3 ms: 16 KiB at 100 Mbit/s)...
const BURST_PER_SECOND: u64 = 763;
/// ... but at least two packets.
const BURST_BYTES_MIN: u64 = 4096;
/// How long a packet may wait at a limit before it is dropped.
const LATENCY: &str = "50ms";
/// Programs that this needs, and the package they come with.
const TOOLS: &[(&str, &str)] = &[("ip", "iproute2"), ("tc", "iproute2")];

/// Refuses to begin where a network cannot be made.
pub fn check_means() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::failed("a testbed is made of network namespaces, which need root")
            .next("run the same command with sudo"));
    }
    for (tool, package) in TOOLS {
        let found =
            Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return Err(Error::failed(format!("the program {tool} is missing"))
                .next(format!("install {package}")));
        }
    }
    Ok(())
}

/// Makes the namespaces and joins them.
pub fn make(plan: &Plan, hosts: &[Host], stopped: &dyn Fn() -> bool) -> Result<()> {
    let switch = namespace(&plan.name, SWITCH);
    ip(&["netns", "add", &switch])?;
    ip(&["-n", &switch, "link", "add", BRIDGE, "type", "bridge"])?;
    ip(&["-n", &switch, "link", "set", BRIDGE, "addrgenmode", "none", "mtu", MTU, "up"])?;
    for host in hosts {
        if stopped() {
            return Err(Error::stopped());
        }
        join(plan, host, &switch)?;
    }
    Ok(())
}

/// Makes a host and its cable: `eth0` at the host, named after the host at the switch.
fn join(plan: &Plan, host: &Host, switch: &str) -> Result<()> {
    let (name, own) = (host.name.as_str(), host.namespace.as_str());
    ip(&["netns", "add", own])?;
    ip(&["-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", own])?;
    for (end, device) in [(switch, name), (own, "eth0")] {
        ip(&["-n", end, "link", "set", device, "addrgenmode", "none", "mtu", MTU])?;
        if plan.limits_links() {
            ip(&["-n", end, "link", "set", device, "gso_max_segs", "1"])?;
        }
        if let Some(rate) = host.link {
            limit(end, device, rate)?;
        }
    }
    ip(&["-n", switch, "link", "set", name, "master", BRIDGE, "up"])?;
    ip(&["-n", own, "addr", "add", &format!("{}/24", host.address), "dev", "eth0"])?;
    ip(&["-n", own, "link", "set", "eth0", "up"])?;
    ip(&["-n", own, "link", "set", "lo", "up"])
}

/// What a link of this rate lets through at once, after it has rested.
pub fn burst_bytes(rate: Rate) -> u64 {
    (rate.bytes_per_second() / BURST_PER_SECOND).max(BURST_BYTES_MIN)
}

/// Lets one end of a cable send no more than so much.
fn limit(namespace: &str, device: &str, rate: Rate) -> Result<()> {
    let burst = format!("{}b", burst_bytes(rate));
    let rate = format!("{}bit", rate.bits_per_second());
    let tbf = ["tbf", "rate", &rate, "burst", &burst, "latency", LATENCY];
    run("tc", &[&["-n", namespace, "qdisc", "replace", "dev", device, "root"][..], &tbf].concat())
}

/// Removes all namespaces of a testbed, and with them its links; returns how many there were.
pub fn remove(name: &str) -> Result<usize> {
    let all = namespaces(&namespace_prefix(name));
    for namespace in &all {
        ip(&["netns", "delete", namespace])?;
    }
    Ok(all.len())
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let output = alone(program)
        .args(arguments)
        .output()
        .map_err(|e| Error::failed(format!("{}: {e}", shown())))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    let error = Error::failed(format!("{}: {}", shown(), error.trim()));
    Err(
        match error.cause.contains("not permitted") || error.cause.contains("mount --make-shared") {
            true => error
                .next("allow it: a testbed needs the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN"),
            false => error,
        },
    )
}
