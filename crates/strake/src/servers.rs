//! Servers as people see them: by name or number, and with their roles.

use crate::failure::{Failure, Outcome};
use crate::output;
use strake_wire::message::manager::{ClusterMap, Server};

/// The server that is named by number or name.
pub fn find<'a>(map: &'a ClusterMap, named: &str) -> Outcome<&'a Server> {
    if let Some(server) = map.servers.iter().find(|server| server.id.to_string() == named) {
        return Ok(server);
    }
    let found: Vec<&Server> = map.servers.iter().filter(|server| server.name == named).collect();
    match found.as_slice() {
        [server] => Ok(server),
        [] => Err(Failure::new(format!("no server is called {named}"))
            .next("strake server list shows them")),
        several => Err(Failure::new(format!("{} servers are called {named}", several.len()))
            .next("give its number (strake server list)")),
    }
}

/// The name of a server; its number if there is none of that number any more.
pub fn name(map: &ClusterMap, id: u32) -> String {
    map.servers.iter().find(|s| s.id == id).map_or_else(|| id.to_string(), |s| s.name.clone())
}

/// What brings a server back that is down.
pub fn start_again(name: &str) -> String {
    format!(
        "on {name}: start `strake server` again, with the flags it had (journalctl -t strake, or its log, says how it ended, and what to \
         do if it ends again)"
    )
}

/// What brings a server back whose address another one has taken.
pub fn start_elsewhere(server: &Server) -> String {
    let id = server.id;
    format!(
        "start `strake server` with the --data of server {id} and an address of its own; is it gone for good? strake server remove {id}"
    )
}

/// A server and where it is. One whose address another has taken is told by its number: that one may have its name, too.
pub fn at(server: &Server) -> String {
    match (server.name.as_str(), server.address.as_str()) {
        (name, "") => {
            format!("server {name} (number {}, whose address another server has now)", server.id)
        }
        (name, address) => format!("server {name} ({address})"),
    }
}

/// What is told where another process asks to join under the number of a server, and what to do.
pub fn rival(server: &Server) -> Option<(String, String)> {
    let Server { id, name, address, rival, .. } = server;
    if rival.is_empty() {
        return None;
    }
    let about = format!(
        "server {name} is heard at {address}, and another process asks from {rival} to join under its number ({id})"
    );
    let mend = format!(
        "has {name} moved there? It is let in when the process at {address} has ended; else one of the two has a copy of the other's \
         --data: stop that one"
    );
    Some((about, mend))
}

/// What is told where servers may know later epochs of groups than the manager, whose data are older, and what to do.
pub fn ahead(map: &ClusterMap) -> Option<(String, String)> {
    let has_targets =
        |server: &&Server| map.targets.iter().any(|target| target.server == server.id);
    let ahead = map.servers.iter().filter(|server| server.up && server.ahead).filter(has_targets);
    let names: Vec<&str> = ahead.map(|server| server.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let about = format!(
        "{} may refuse to read and write files, and files made or changed last may be gone: the cluster's metadata is older than what \
         is known there (was it restored from a backup, or has its database lost commits?)",
        output::several("server", names.into_iter())
    );
    let mend = "stop `strake server` there and start it again: one that lacked copies is stopped first and started last; \
                then strake fsck --repair (docs/guide/recover.md, \"After metadata was restored\")";
    Some((about, mend.to_owned()))
}

/// What brings servers back that are heard and not reached.
pub fn reach_again(names: &str) -> String {
    format!(
        "see to it that others reach {names}: the address (--advertise), its name, firewalls on the way; strake doctor tries from here"
    )
}

/// True for the manager that leads: the only one, or of several the one that does.
pub fn leads(map: &ClusterMap, server: &Server) -> bool {
    server.manager && (map.leader == server.id || !has_several(map))
}

fn has_several(map: &ClusterMap) -> bool {
    map.servers.iter().filter(|server| server.manager).count() > 1
}

/// The roles of a server, with commas.
pub fn roles(map: &ClusterMap, server: &Server) -> String {
    let storage = map.targets.iter().any(|target| target.server == server.id);
    let manager = match has_several(map) && leads(map, server) {
        true => "manager (leads)",
        false => "manager",
    };
    let roles = [(server.manager, manager), (server.meta, "meta"), (storage, "storage")];
    let has: Vec<_> = roles.iter().filter(|role| role.0).map(|role| role.1).collect();
    has.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::Target;

    fn map() -> ClusterMap {
        let named = |id, name: &str| Server { id, name: name.into(), ..Server::default() };
        ClusterMap {
            servers: vec![named(1, "a"), named(2, "b"), named(3, "b"), named(4, "1")],
            targets: vec![Target { id: 1, server: 2, ..Target::default() }],
            ..ClusterMap::default()
        }
    }

    #[test]
    fn a_server_is_found_by_its_number_first_and_by_a_name_that_only_it_has() {
        let (map, told) = (map(), |found: Outcome<&Server>| found.unwrap_err().cause);
        assert_eq!(find(&map, "a").unwrap().id, 1);
        assert_eq!(find(&map, "1").unwrap().id, 1, "not the one that is called so");
        assert!(told(find(&map, "b")).contains("2 servers are called b"));
        assert!(told(find(&map, "c")).contains("no server is called c"));
        assert_eq!((name(&map, 2), name(&map, 9)), ("b".to_owned(), "9".to_owned()));
        assert_eq!(roles(&map, &map.servers[1]), "storage");
    }

    #[test]
    fn the_manager_that_leads_is_shown_as_such_where_there_are_others() {
        let mut map = map();
        map.servers[0].manager = true;
        assert!(leads(&map, &map.servers[0]), "the only one");
        map.leader = 1;
        assert_eq!(roles(&map, &map.servers[0]), "manager");
        assert!(leads(&map, &map.servers[0]) && !leads(&map, &map.servers[1]));
        map.servers[1].manager = true;
        assert_eq!(roles(&map, &map.servers[0]), "manager (leads)");
        assert_eq!(roles(&map, &map.servers[1]), "manager,storage");
    }
}
