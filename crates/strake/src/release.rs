//! Releases: which one this program is of, and which ones a cluster is made of.

use std::collections::BTreeMap;

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

/// Of which releases servers are, each given by its name and what it says, if of several.
pub fn several<'a>(servers: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Option<String> {
    let mut releases: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, release) in servers {
        releases.entry(release.unwrap_or(UNKNOWN)).or_default().push(name);
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

    /// Of forty servers one was forgotten, and nothing showed that.
    #[test]
    fn releases_are_told_where_there_are_several() {
        let mut servers = vec![("h1", Some("0.2.0 (1a)")); 4];
        assert_eq!(several(servers.iter().copied()), None);
        servers.push(("h5", None));
        let told = several(servers.iter().copied());
        assert_eq!(told.unwrap(), "2 releases: 0.2.0 (1a) on 4 servers; unknown on h5");
    }

    #[test]
    fn this_release_is_said_with_its_version() {
        assert!(RELEASE.starts_with(VERSION) && RELEASE.contains(COMMIT));
        assert_eq!(said(RELEASE).as_deref(), Some(RELEASE));
        assert_eq!(shown(said("")), UNKNOWN);
    }
}
