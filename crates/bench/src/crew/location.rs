//! Where a worker's process runs.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How namespaces are written.
const NAMESPACE: &str = "netns:";
/// Where `ip netns` keeps them.
const NAMESPACES: &str = "/run/netns";

/// Where a worker's process runs, and under which path it sees the measured directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// As it was written, for messages.
    pub name: String,
    kind: Kind,
    /// Where the measured directory is mounted there, if elsewhere than here.
    pub directory: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Here,
    Host(String),
    Namespace(String),
}

impl Location {
    /// This machine.
    pub fn here() -> Self {
        Self { name: "a process of this host".into(), kind: Kind::Here, directory: None }
    }

    /// Reads `HOST[=DIR]` (a name that ssh knows) or `netns:NAME[=DIR]`.
    pub fn parse(text: &str) -> Result<Self> {
        let (place, directory) = match text.split_once('=') {
            Some((place, directory)) => (place, Some(PathBuf::from(directory))),
            None => (text, None),
        };
        let (is_namespace, name) = match place.strip_prefix(NAMESPACE) {
            Some(name) => (true, name),
            None => (false, place),
        };
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "._-@:[]".contains(c);
        let is_name = !name.is_empty() && !name.starts_with('-') && name.chars().all(is_letter);
        let is_absolute = directory.as_ref().is_none_or(|path| path.is_absolute());
        if !is_name || !is_absolute {
            return Err(Error::usage(format!("{text:?} is no client"))
                .next("write HOST, HOST=/DIR, netns:NAME or netns:NAME=/DIR"));
        }
        let kind = match is_namespace {
            true => Kind::Namespace(name.to_owned()),
            false => Kind::Host(name.to_owned()),
        };
        Ok(Self { name: place.to_owned(), kind, directory })
    }

    /// True where caches are those of this machine.
    pub fn is_here(&self) -> bool {
        !matches!(self.kind, Kind::Host(_))
    }

    /// The command that starts a worker there. `program` is this program; another host has its own.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let mut command = match &self.kind {
            Kind::Here => Command::new(program),
            Kind::Host(host) => {
                let mut command = Command::new("ssh");
                // Without a terminal to ask on, a question would be an endless wait.
                command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
                // A host that is gone does not end the connection to it.
                command.args(["-o", "ServerAliveInterval=15", host, "strake"]);
                command
            }
            Kind::Namespace(name) => {
                let file = Path::new(NAMESPACES).join(name);
                if !file.exists() {
                    return Err(Error::failed(format!("there is no network namespace {name}"))
                        .next("ip netns list shows those that there are"));
                }
                let mut command = Command::new("nsenter");
                command.arg(format!("--net={}", file.display())).arg(program);
                command
            }
        };
        command.args(["bench", "worker"]);
        Ok(command)
    }

    /// What starts one by hand.
    pub fn by_hand(&self) -> String {
        match &self.kind {
            Kind::Here => "strake bench worker".into(),
            Kind::Host(host) => format!("ssh {host} strake bench worker"),
            Kind::Namespace(name) => format!("ip netns exec {name} strake bench worker"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_hosts_and_namespaces() {
        let words = |text: &str| {
            let command = Location::parse(text).unwrap().command(Path::new("p")).unwrap();
            let arguments = command.get_args().map(|word| word.to_string_lossy().into_owned());
            arguments.collect::<Vec<_>>().join(" ")
        };
        assert!(words("me@host1").ends_with("me@host1 strake bench worker"));
        let there = Location::parse("host1=/mnt/x").unwrap();
        assert_eq!(there.directory.as_deref(), Some(Path::new("/mnt/x")));
        assert_eq!(there.by_hand(), "ssh host1 strake bench worker");
        assert!(!there.is_here() && Location::here().is_here());
        let missing = Location::parse("netns:no-such-one").unwrap().command(Path::new("p"));
        assert!(missing.unwrap_err().cause.contains("no-such-one"));
    }

    #[test]
    fn what_ssh_would_take_for_a_flag_is_no_host() {
        for wrong in ["", "-oProxyCommand=x", "a b", "a;b", "netns:", "host=relative", "$(x)"] {
            assert!(Location::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
