//! Is a server that knows nothing of itself really a new one?
//!
//! Where the disk of its first directory is not mounted, a server finds an empty directory in its place. Should it come as
//! a new one, it would take the address of the server that it is, and what lies on the disk would be missing.

use super::stores::Target;
use crate::failure::{Failure, Outcome};
use crate::output;
use std::path::Path;
use strake_wire::message::manager::{ClusterMap, Server};

/// A server without a `node.json`, which is about to join.
pub struct Newcomer<'a> {
    /// Its first data directory.
    pub home: &'a Path,
    /// Its name.
    pub name: &'a str,
    /// The address at which others are to reach it.
    pub address: &'a str,
    /// Its targets.
    pub targets: &'a [Target],
}

impl Newcomer<'_> {
    /// Refuses one that seems to be a server of the cluster whose first directory is away.
    pub fn check(&self, map: &ClusterMap, new_server: bool, new_disks: bool) -> Outcome {
        let known = map.targets.iter().find(|known| self.has(&known.spec.uuid));
        match known {
            // Its targets say who it is.
            Some(known) if !new_disks => self.check_paths(map, known.server),
            None if !new_server && self.targets.iter().all(|target| target.id.0 == 0) => {
                self.check_name(map)
            }
            _ => Ok(()),
        }
    }

    fn has(&self, uuid: &str) -> bool {
        self.targets.iter().any(|target| target.uuid == uuid)
    }

    /// One that is up under this name is another server on the same machine.
    fn check_name(&self, map: &ClusterMap) -> Outcome {
        let is_same = |s: &&Server| s.address == self.address || s.name == self.name && !s.up;
        if let Some(known) = map.servers.iter().find(is_same) {
            return Err(self.refusal(known));
        }
        if let Some(other) = self.namesake(map) {
            tracing::warn!(
                "server {} is called {}, too: verbs need the number of each; --name gives this one another name",
                other.id,
                self.name
            );
        }
        Ok(())
    }

    fn namesake<'m>(&self, map: &'m ClusterMap) -> Option<&'m Server> {
        map.servers.iter().find(|server| server.name == self.name)
    }

    fn refusal(&self, known: &Server) -> Failure {
        let (id, name, home) = (known.id, &known.name, self.home.display());
        let has = match known.address == self.address {
            true => format!("the address {}", self.address),
            false => format!("the name {name}, and is down"),
        };
        Failure::new(format!(
            "server {id} ({name}) of this cluster has {has}; this one seems to be new, for there is no node.json in {home}"
        ))
        .next(format!(
            "is this server {id}? Mount the disk of {home}, and start it again. Is that one gone for good? strake server \
             remove {id} first, or start this one with --new-server, to replace it later. Is this another one? Give it a \
             --name and an address of its own"
        ))
    }

    /// A new target in the place of one that the cluster knows at this server.
    fn check_paths(&self, map: &ClusterMap, server: u32) -> Outcome {
        let mut own = map.targets.iter().filter(|target| target.server == server);
        let is_missing = |path: &str, uuid: &str| {
            let mut here = self.targets.iter();
            let here = here.find(|target| target.path.display().to_string() == path);
            here.is_some_and(|target| target.id.0 == 0 && target.uuid != uuid)
        };
        match own.find(|target| is_missing(&target.spec.path, &target.spec.uuid)) {
            Some(target) => Err(Failure::new(format!(
                "target {} (number {}) is missing from {}",
                target.spec.uuid, target.id, target.spec.path
            ))
            .next(format!(
                "mount the disk of {} and try again. Is it lost? Start with --new-disks, then: strake target replace {} NEW",
                output::word(&self.home.display().to_string()),
                target.id
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::Node;
    use super::*;
    use strake_wire::message::manager::{Target as Listed, TargetSpec};

    /// Server 1 is up, server 2 is down and has target 5.
    fn map(path: &str) -> ClusterMap {
        let server = |id: u32, up| Server {
            id,
            name: format!("host{id}"),
            address: format!("h{id}:7440"),
            up,
            ..Server::default()
        };
        let spec =
            TargetSpec { target: 5, uuid: "cd".into(), path: path.into(), ..Default::default() };
        let listed = Listed { id: 5, server: 2, spec, ..Listed::default() };
        ClusterMap {
            servers: vec![server(1, true), server(2, false)],
            targets: vec![listed],
            ..ClusterMap::default()
        }
    }

    fn newcomer<'a>(name: &'a str, address: &'a str) -> Newcomer<'a> {
        Newcomer { home: Path::new("/srv/a"), name, address, targets: &[] }
    }

    fn check(name: &str, address: &str, new_server: bool) -> Outcome {
        newcomer(name, address).check(&map("/srv/a/target"), new_server, false)
    }

    /// Only the verbs said so, of either.
    #[test]
    fn who_comes_with_the_name_of_one_that_is_up_hears_of_it() {
        let namesake = |name| newcomer(name, "h9:7440").namesake(&map("")).map(|server| server.id);
        assert_eq!((namesake("host1"), namesake("host3")), (Some(1), None));
    }

    /// A server whose first disk was not mounted came back as another one, and took the address of the one that it was.
    #[test]
    fn who_comes_anew_as_a_known_server_is_refused_unless_it_is_meant() {
        for (name, address, word) in [
            ("host2", "h2:7440", "the address h2:7440"),
            ("other", "h2:7440", "the address h2:7440"),
            ("host2", "h9:7440", "the name host2, and is down"),
        ] {
            let failure = check(name, address, false).unwrap_err();
            assert!(failure.cause.contains(word) && failure.cause.contains("/srv/a"), "{failure}");
            let next = failure.next.unwrap_or_default();
            let ways = ["Mount the disk", "strake server remove 2", "--new-server"];
            assert!(ways.iter().all(|way| next.contains(way)), "{next}");
            check(name, address, true).unwrap();
        }
        check("host3", "h3:7440", false).unwrap();
        check("host1", "h9:7440", false).unwrap();
    }

    /// Its other disks told who it was, and an empty directory became a target in the place of the one that was away.
    #[test]
    fn a_known_server_does_not_begin_a_target_in_the_place_of_one_that_is_away() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name).join("target");
        let look = |name: &str| Target::look(&path(name), &Node::default(), false).unwrap();
        let mut targets = [look("first"), look("second")];
        // The second one is there.
        (targets[1].uuid, targets[1].id.0) = ("ef".into(), 6);
        let home = top.path().join("first");
        let (name, address) = ("host2", "h2:7440");
        let newcomer = Newcomer { home: &home, name, address, targets: &targets };
        let mut map = map(&path("first").display().to_string());
        let spec = TargetSpec { target: 6, uuid: "ef".into(), ..Default::default() };
        map.targets.push(Listed { id: 6, server: 2, spec, ..Listed::default() });
        let failure = newcomer.check(&map, false, false).unwrap_err();
        assert!(
            failure.cause.contains("number 5") && failure.cause.contains("missing"),
            "{failure}"
        );
        newcomer.check(&map, false, true).unwrap();
        map.targets[0].spec.path = "/elsewhere/target".into();
        newcomer.check(&map, false, false).unwrap();
    }
}
