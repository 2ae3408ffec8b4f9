//! What a testbed consists of: pure, so that everything about it can be found again by its name.

use super::rate::Rate;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Name of a testbed unless told otherwise.
pub const NAME_DEFAULT: &str = "testbed";
/// Most servers, and most clients.
pub const HOSTS_MAX: u32 = 64;
/// Most targets of a server.
pub const TARGETS_MAX: u32 = 64;
/// Longest name.
const NAME_BYTES_MAX: usize = 32;
/// Last part of the address of the host with the metadata.
const META_ADDRESS: u32 = 250;
/// Clients' addresses begin after this one, servers' after 0.
const CLIENT_ADDRESSES: u32 = 100;

/// What a testbed is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Tells testbeds of one machine apart.
    pub name: String,
    /// Hosts with storage.
    pub servers: u32,
    /// Hosts that mount.
    pub clients: u32,
    /// Storage targets of each server.
    pub targets: u32,
    /// What the link of each host carries in each direction; `None`: no limit.
    pub link: Option<Rate>,
    /// The same for clients.
    pub client_link: Option<Rate>,
    /// What the disk of each target carries, read and written; `None`: no limit.
    pub disk: Option<Rate>,
    /// Bytes of a chunk of the cluster's volume; `None`: as volumes are made.
    #[serde(default)]
    pub chunk_size: Option<u64>,
    /// Whether Strake runs in it: its servers, and a mount on each client.
    pub cluster: bool,
}

/// What a host is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Membership and metadata.
    Meta,
    /// Contents.
    Server,
    /// Where programs run.
    Client,
}

/// A host of a testbed: a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `m1`, `s1`, `c1`, ...
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Its address in the network of the testbed.
    pub address: String,
    /// The name of its namespace.
    pub namespace: String,
    /// What its link carries; `None`: no limit.
    pub link: Option<Rate>,
}

impl Plan {
    /// Refuses what cannot be made.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        let limits = [("servers", self.servers, HOSTS_MAX), ("targets", self.targets, TARGETS_MAX)];
        let clients = [("clients", self.clients, HOSTS_MAX)];
        for (what, count, most) in limits.into_iter().chain(clients) {
            if count == 0 || count > most {
                let cause = format!("a testbed of {count} {what}");
                return Err(Error::usage(cause).next(format!("give --{what} 1 to {most}")));
            }
        }
        Ok(())
    }

    /// The hosts, servers first, in the network 10.98.`subnet`.0/24.
    pub fn hosts(&self, subnet: u8) -> Vec<Host> {
        let host = |role: Role, letter: char, nth: u32, last: u32| Host {
            name: format!("{letter}{nth}"),
            role,
            address: format!("10.98.{subnet}.{last}"),
            namespace: namespace(&self.name, &format!("{letter}{nth}")),
            link: if role == Role::Client { self.client_link } else { self.link },
        };
        let meta = self.cluster.then(|| host(Role::Meta, 'm', 1, META_ADDRESS));
        let servers = (1..=self.servers).map(|nth| host(Role::Server, 's', nth, nth));
        let clients =
            (1..=self.clients).map(|nth| host(Role::Client, 'c', nth, CLIENT_ADDRESSES + nth));
        meta.into_iter().chain(servers).chain(clients).collect()
    }

    /// True if any link has a limit.
    pub fn limits_links(&self) -> bool {
        self.link.is_some() || self.client_link.is_some()
    }

    /// Where the client with this number mounts, below the directory of the testbed.
    pub fn mount_name(nth: u32) -> PathBuf {
        PathBuf::from("mnt").join(format!("c{nth}"))
    }
}

/// Refuses a name that could not be part of a file's name.
pub fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
        return Err(Error::usage(format!("a testbed cannot be called {name:?}"))
            .next(format!("give --name with at most {NAME_BYTES_MAX} letters, digits, - and _")));
    }
    Ok(())
}

/// What the names of all namespaces of a testbed begin with. No name has a dot in it, so no testbed
/// has namespaces of another.
pub(super) fn namespace_prefix(name: &str) -> String {
    format!("strake.{name}.")
}

/// The name of a namespace.
pub(super) fn namespace(name: &str, host: &str) -> String {
    format!("{}{host}", namespace_prefix(name))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeSet;

    pub fn plan() -> Plan {
        Plan {
            name: "t".into(),
            servers: 2,
            clients: 1,
            targets: 1,
            link: "100mbit".parse().ok(),
            client_link: None,
            disk: None,
            chunk_size: None,
            cluster: true,
        }
    }

    #[test]
    fn the_largest_testbed_has_as_many_addresses_as_hosts() {
        let plan = Plan { servers: HOSTS_MAX, clients: HOSTS_MAX, ..plan() };
        plan.check().unwrap();
        let hosts = plan.hosts(7);
        let addresses: BTreeSet<_> = hosts.iter().map(|h| h.address.parse().unwrap()).collect();
        let addresses: Vec<std::net::Ipv4Addr> = addresses.into_iter().collect();
        assert_eq!((addresses.len(), hosts.len()), (129, 129));
        assert!(hosts.iter().all(|h| h.address.starts_with("10.98.7.")));
    }

    #[test]
    fn hosts_have_the_links_of_their_role() {
        let hosts = plan().hosts(0);
        let shown: Vec<_> = hosts.iter().map(|h| (h.name.as_str(), h.link.is_some())).collect();
        assert_eq!(shown, [("m1", true), ("s1", true), ("s2", true), ("c1", false)]);
        assert_eq!(hosts[1].namespace, "strake.t.s1");
        let without = Plan { cluster: false, ..plan() };
        assert_eq!(without.hosts(0).len(), 3);
    }

    #[test]
    fn what_cannot_be_made_is_refused_with_the_option_to_change() {
        for (wrong, option) in [
            (Plan { servers: 0, ..plan() }, "--servers"),
            (Plan { clients: 65, ..plan() }, "--clients"),
            (Plan { targets: 0, ..plan() }, "--targets"),
            (Plan { name: "a.b".into(), ..plan() }, "--name"),
            (Plan { name: "../x".into(), ..plan() }, "--name"),
            (Plan { name: String::new(), ..plan() }, "--name"),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.next.as_ref().unwrap().contains(option), "{error}");
        }
    }
}
