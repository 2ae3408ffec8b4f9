//! Hosts on this machine: network namespaces joined by a switch, which can be cut off.

use crate::cluster::program;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Network namespaces joined by a switch (a bridge in a namespace of its own). Named after this
/// process; removed with the value, whatever happened in between.
pub struct Network {
    names: Vec<String>,
}

impl Network {
    /// Hosts 1 to `count` with the addresses 10.77.0.1 and so on.
    pub fn new(count: usize) -> Network {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("strake{}n{nth}", std::process::id());
        let mut network = Network { names: Vec::new() };
        let switch = network.add(&format!("{prefix}sw"));
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"]);
        ip(&["-n", &switch, "link", "set", "br0", "up"]);
        for nth in 1..=count {
            let host = network.add(&format!("{prefix}h{nth}"));
            let (port, address) = (format!("p{nth}"), format!("10.77.0.{nth}/24"));
            ip(&[
                "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0",
                "netns", &host,
            ]);
            ip(&["-n", &switch, "link", "set", &port, "master", "br0", "up"]);
            ip(&["-n", &host, "addr", "add", &address, "dev", "eth0"]);
            ip(&["-n", &host, "link", "set", "eth0", "up"]);
            ip(&["-n", &host, "link", "set", "lo", "up"]);
        }
        network
    }

    fn add(&mut self, name: &str) -> String {
        ip(&["netns", "add", name]);
        self.names.push(name.to_owned());
        name.to_owned()
    }

    /// What a command begins with that is carried out on a host.
    pub fn enter(&self, nth: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.names[nth]));
        command
    }

    /// Runs the program on a host, and waits for it.
    pub fn run(&self, nth: usize, arguments: &[&str]) -> Output {
        let mut command = self.enter(nth);
        command.arg(program()).args(arguments).stdin(Stdio::null());
        command.output().expect("nsenter is there (util-linux)")
    }

    /// The address of a host.
    pub fn address(nth: usize) -> String {
        format!("10.77.0.{nth}")
    }

    /// Nobody reaches a host any more, nor it anybody; or they do again.
    pub fn cut(&self, nth: usize, cut: bool) {
        let state = if cut { "down" } else { "up" };
        ip(&["-n", &self.names[0], "link", "set", &format!("p{nth}"), state]);
    }

    /// What one host sends to another is lost, but not what comes from there; or it arrives again.
    pub fn cut_one_way(&self, from: usize, to: usize, cut: bool) {
        let verb = if cut { "add" } else { "del" };
        let to = format!("{}/32", Self::address(to));
        ip(&["-n", &self.names[from], "route", verb, "blackhole", &to]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _gone = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip is there (iproute2)");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {error}", arguments.join(" "));
}
