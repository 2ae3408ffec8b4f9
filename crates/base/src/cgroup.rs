//! The control groups of this process, and how much memory they leave it.

use crate::mount_table::{self, Mount};
use std::path::Path;

/// Names the group of this process in each hierarchy of groups.
const OWN: &str = "/proc/self/cgroup";

/// Bytes of memory that the processes of our group may use, or of one around it, if that is less: where they use more, the kernel
/// kills one of them. `None`: no limit is to be seen.
pub(crate) fn memory_limit() -> Option<u64> {
    limit_in(&mount_table::read().ok()?, &std::fs::read_to_string(OWN).ok()?)
}

/// The same of a process whose groups are named so.
fn limit_in(mounts: &[Mount], own: &str) -> Option<u64> {
    let limits = own.lines().filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (kind, file) = match controllers {
            "" => ("cgroup2", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("cgroup", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // Those of other hierarchies have no such file.
        let mounts = mounts.iter().filter(|mount| mount.kind == kind);
        mounts.filter_map(|mount| limit_of(group, mount, file)).min()
    });
    limits.min()
}

/// The least limit of a group and of those around it, as far as a mount shows them. The outermost one of a machine has none, and
/// where the word `max` stands instead of a number there is none either.
fn limit_of(group: &str, mount: &Mount, file: &str) -> Option<u64> {
    let group = match Path::new(group).strip_prefix(&mount.root) {
        Ok(group) => group,
        // It shows groups around all those that have names for us.
        Err(_) if mount.root.starts_with("/..") => Path::new(""),
        // It shows the groups of others.
        Err(_) => return None,
    };
    let limit = |group: &Path| -> Option<u64> {
        std::fs::read_to_string(mount.path.join(group).join(file)).ok()?.trim().parse().ok()
    };
    group.ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const MIB: u64 = 1 << 20;
    /// What the first version says where there is no limit.
    const UNLIMITED: u64 = 9_223_372_036_854_771_712;

    /// Groups as the kernel shows them: a file with its text each.
    fn groups(files: &[(&str, &str)]) -> TempDir {
        let top = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = top.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{text}\n")).unwrap();
        }
        top
    }

    /// The limit where these are mounted: of which kind, which group, and where in the tree.
    fn limit(top: &TempDir, mounts: &[(&str, &str, &str)], own: &str) -> Option<u64> {
        let top = top.path().display();
        let line = |(kind, root, path): &(&str, &str, &str)| {
            format!("31 1 0:29 {root} {top}/{path} rw - {kind} none rw\n")
        };
        let table: String = mounts.iter().map(line).collect();
        limit_in(&mount_table::parse(table.as_bytes()), own)
    }

    /// A mount took an eighth of the machine's memory in a container of 200 MiB, and the kernel killed it.
    #[test]
    fn the_least_limit_of_a_group_and_those_around_it_counts() {
        let top = groups(&[
            ("machine/memory.max", "1073741824"),
            ("machine/pod/memory.max", "209715200"),
            ("machine/pod/inner/memory.max", "max"),
            ("machine/other/memory.max", "1048576"),
        ]);
        let limit = |own| limit(&top, &[("cgroup2", "/", "")], own);
        assert_eq!(limit("0::/machine/pod/inner\n"), Some(200 * MIB));
        assert_eq!(limit("0::/machine/pod\n"), Some(200 * MIB));
        assert_eq!(limit("0::/machine\n"), Some(1024 * MIB));
        assert_eq!((limit("0::/\n"), limit("")), (None, None));
    }

    #[test]
    fn of_groups_of_the_first_version_those_that_bound_memory_count() {
        let unlimited = UNLIMITED.to_string();
        let unlimited = unlimited.as_str();
        let top = groups(&[
            ("memory/memory.limit_in_bytes", unlimited),
            ("memory/a/memory.limit_in_bytes", "209715200"),
            ("memory/a/b/memory.limit_in_bytes", unlimited),
            ("cpu/a/b/cpu.shares", "1024"),
            ("unified/a/cgroup.procs", "1"),
        ]);
        let mounts =
            [("cgroup", "/", "cpu"), ("cgroup", "/", "memory"), ("cgroup2", "/", "unified")];
        let limit = |own| limit(&top, &mounts, own);
        assert_eq!(limit("9:name=systemd:/\n4:memory:/a/b\n1:cpu:/a/b\n0::/a\n"), Some(200 * MIB));
        assert_eq!(limit("4:memory:/\n1:cpu:/a/b\n0::/a\n"), Some(UNLIMITED));
    }

    #[test]
    fn a_container_that_sees_its_own_group_alone_finds_the_limit_at_the_mount() {
        let top = groups(&[("memory.max", "209715200"), ("inner/memory.max", "104857600")]);
        let limit = |root, own| limit(&top, &[("cgroup2", root, "")], own);
        for (root, own) in [("/", "0::/\n"), ("/pod/1", "0::/pod/1\n"), ("/../..", "0::/\n")] {
            assert_eq!(limit(root, own), Some(200 * MIB), "{root} {own}");
        }
        assert_eq!(limit("/pod/1", "0::/pod/1/inner\n"), Some(100 * MIB));
        assert_eq!(limit("/pod/2", "0::/pod/1\n"), None, "that is another one's");
    }
}
