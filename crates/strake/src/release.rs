//! Releases: which one this program is of, and which ones a cluster is made of.

use std::collections::BTreeMap;
use strake_wire::message::manager::ClusterMap;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that it is built from; empty: its build did not know it.
pub const COMMIT: &str = env!("STRAKE_COMMIT");
/// Both, as people and the cluster are told: `0.1.0 (1a2b3c4d5e6f)`.
pub const RELEASE: &str = env!("STRAKE_RELEASE");

/// In place of one that was not said: an earlier release does not.
const UNKNOWN: &str = "unknown";
/// Servers of a release that are shown by their names.
const NAMES_SHOWN_MAX: usize = 3;

/// What somebody says of his release, which may be nothing.
pub fn said(release: &str) -> Option<String> {
    (!release.is_empty()).then(|| release.to_owned())
}

/// The same for people.
pub fn shown(said: Option<String>) -> String {
    said.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Of which releases the servers that are up are, if of several. One that has not spoken yet may be of any.
pub fn several(map: &ClusterMap) -> Option<String> {
    let mut releases: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for server in map.servers.iter().filter(|server| server.up) {
        let release = match server.release.as_deref() {
            None => continue,
            Some("") => UNKNOWN,
            Some(release) => release,
        };
        releases.entry(release).or_default().push(&server.name);
    }
    let tell = |(release, names): (&&str, &Vec<&str>)| match names.len() {
        ..=NAMES_SHOWN_MAX => format!("{release} on {}", names.join(", ")),
        many => format!("{release} on {many} servers"),
    };
    let told: Vec<String> = releases.iter().map(tell).collect();
    (told.len() > 1).then(|| format!("{} releases: {}", told.len(), told.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::Server;

    fn server(name: &str, up: bool, release: Option<&str>) -> Server {
        let (name, release) = (name.to_owned(), release.map(str::to_owned));
        Server { name, up, release, ..Server::default() }
    }

    /// Of forty servers one was forgotten, and nothing showed that. Then one that a new manager had not heard yet was of another one.
    #[test]
    fn releases_are_told_where_there_are_several() {
        let mut map = ClusterMap {
            servers: vec![server("h1", true, Some("0.2.0 (1a)")); 4],
            ..ClusterMap::default()
        };
        map.servers.push(server("h5", true, None));
        map.servers.push(server("h6", false, Some("0.1.0")));
        assert_eq!(several(&map), None);
        map.servers.push(server("h7", true, Some("")));
        assert_eq!(several(&map).unwrap(), "2 releases: 0.2.0 (1a) on 4 servers; unknown on h7");
    }

    #[test]
    fn this_release_is_said_with_its_version() {
        assert!(RELEASE.starts_with(VERSION) && RELEASE.contains(COMMIT));
        assert_eq!(said(RELEASE).as_deref(), Some(RELEASE));
        assert_eq!(shown(said("")), UNKNOWN);
    }
}
