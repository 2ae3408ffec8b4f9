//! Who a server is: `node.json` in its first data directory.
//!
//! It is written before a server joins (with the uuids that its new targets will get), and again
//! with the numbers that the manager gave. So a crash in between leaves nothing behind that the
//! manager knows and no disk holds, and a target whose disk is not mounted is missed at once.

use crate::failure::{Context, Failure, Outcome};
use crate::replaced;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the file.
pub const NAME: &str = "node.json";
/// Version of the file that this release writes.
const FORMAT: u32 = 1;

/// Who a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Version of this file.
    pub format: u32,
    /// The cluster's id; empty until it has joined one.
    pub cluster: String,
    /// Its number in the cluster; 0 until it has joined.
    pub server: u32,
    /// Engine of its metadata store; empty if it has none.
    #[serde(default)]
    pub engine: String,
    /// Id of its store in a database (32 hex digits); empty if it has none there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub store: String,
    /// Where that database was last, without the password.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub database: String,
    /// Its metadata was moved to where this file says, and directories may have their old names still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// Its targets.
    pub targets: Vec<TargetRecord>,
}

/// A target that the server has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// Its directory.
    pub path: PathBuf,
    /// Its unique id (32 hex digits).
    pub uuid: String,
    /// Its number in the cluster; 0: whether it has entered it is not known.
    pub target: u32,
    /// It was added while the server ran, and is opened although no flag names its directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub added: bool,
}

impl Node {
    /// What the file in `home` says; a new node if there is none. Paths that an earlier release wrote as they were given
    /// count from the working directory.
    pub fn read(home: &Path) -> Outcome<Node> {
        let path = home.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Node { format: FORMAT, ..Node::default() });
            }
            Err(e) => return Err(Failure::new(format!("{}: {e}", path.display()))),
        };
        let format = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|value| value.get("format")?.as_u64());
        if let Some(newer) = format.filter(|&f| f > u64::from(FORMAT)) {
            return Err(Failure::new(format!(
                "{} has format {newer}, this release reads up to {FORMAT}",
                path.display()
            ))
            .next("install the newer release"));
        }
        let mut node: Node = serde_json::from_str(&text).map_err(|e| {
            Failure::new(format!("{} is corrupt: {e}", path.display()))
                .next("restore it from a backup; what it holds is also in the manager's map (strake status --json)")
        })?;
        for record in &mut node.targets {
            if let Ok(whole) = std::path::absolute(&record.path) {
                record.path = whole;
            }
        }
        Ok(node)
    }

    /// Writes it so that after a loss of power either the old or the new one is there; nothing if it is
    /// what is there, so that a server starts again on a full disk.
    pub fn write(&self, home: &Path) -> Outcome {
        let path = home.join(NAME);
        let shown = || path.display().to_string();
        let text = serde_json::to_string_pretty(self).context(shown)?;
        if std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        replaced::write(&path, &text).context(shown)
    }

    /// What it knows of the target in a directory.
    pub fn target_at(&self, path: &Path) -> Option<&TargetRecord> {
        self.targets.iter().find(|record| record.path == path)
    }

    /// True if it belongs to a cluster.
    pub fn has_joined(&self) -> bool {
        !self.cluster.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut node = Node::read(dir.path()).unwrap();
        assert!(!node.has_joined());
        node.cluster = "ab".into();
        node.targets.push(TargetRecord {
            path: "/t".into(),
            uuid: "cd".into(),
            target: 3,
            added: true,
        });
        node.write(dir.path()).unwrap();
        assert_eq!(Node::read(dir.path()).unwrap(), node);
        assert_eq!(node.target_at(Path::new("/t")).unwrap().target, 3);
    }

    /// They were written as they were given, and started elsewhere the server did not know them again.
    #[test]
    fn a_relative_path_is_read_as_a_whole_one() {
        let dir = tempfile::tempdir().unwrap();
        let record = TargetRecord { path: "d/target".into(), ..TargetRecord::default() };
        let node = Node { format: FORMAT, targets: vec![record], ..Node::default() };
        node.write(dir.path()).unwrap();
        let whole = std::env::current_dir().unwrap().join("d/target");
        assert!(Node::read(dir.path()).unwrap().target_at(&whole).is_some());
    }

    /// On a full disk it could not be.
    #[test]
    fn what_is_there_already_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut node = Node { format: FORMAT, server: 3, ..Node::default() };
        node.write(dir.path()).unwrap();
        // From now on nothing can be written there.
        std::fs::create_dir(dir.path().join(format!("{NAME}.new"))).unwrap();
        node.write(dir.path()).unwrap();
        node.server = 4;
        node.write(dir.path()).unwrap_err();
    }

    #[test]
    fn a_file_of_version_1_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"format": 1, "cluster": "ab", "server": 2, "engine": "redb",
            "targets": [{"path": "/d/target", "uuid": "cd", "target": 3}]}"#;
        std::fs::write(dir.path().join(NAME), text).unwrap();
        let node = Node::read(dir.path()).unwrap();
        assert_eq!((node.server, node.engine.as_str()), (2, "redb"));
        let record = node.target_at(Path::new("/d/target")).unwrap();
        assert_eq!((record.uuid.as_str(), record.added), ("cd", false));
    }

    #[test]
    fn a_newer_or_damaged_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), r#"{"format": 2, "what": []}"#).unwrap();
        assert!(Node::read(dir.path()).unwrap_err().cause.contains("format 2"));
        std::fs::write(dir.path().join(NAME), "{").unwrap();
        assert!(Node::read(dir.path()).unwrap_err().cause.contains("corrupt"));
    }
}
