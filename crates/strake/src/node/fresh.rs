//! What a start that fails takes away again.

use super::{identity, meta_store};
use crate::made::Made;
use std::path::{Path, PathBuf};

/// What a start finds missing and makes. While a server has no number, nothing that somebody may want can be in it;
/// nor while it begins a cluster, of which nobody hears before it serves.
pub struct Fresh {
    home: PathBuf,
    made: Vec<PathBuf>,
    /// The directories that they are in.
    around: Made,
    founds: bool,
}

impl Fresh {
    /// The directories that are missing, before any is made.
    pub fn around(home: &Path, targets: &[PathBuf]) -> Made {
        let mut around = Made::default();
        around.expect(home);
        targets.iter().filter_map(|target| target.parent()).for_each(|dir| around.expect(dir));
        around
    }

    /// Under the lock of `home`, before anything is made in the directories: without it, another start may be making what is
    /// missing. `founds`: where nothing is known of a cluster, the server begins one.
    pub fn look(around: Made, home: &Path, targets: &[PathBuf], founds: bool) -> Fresh {
        let ours = [home.join(identity::NAME), home.join(meta_store::META)];
        let founds = founds && !ours.iter().any(|path| path.exists());
        let all = ours.into_iter().chain(targets.iter().cloned());
        let made = all.filter(|path| !path.exists()).collect();
        Fresh { home: home.to_owned(), made, around, founds }
    }

    /// The start has failed.
    pub fn take_away(self) {
        let node = identity::Node::read(&self.home);
        if !self.founds && node.map_or(true, |node| node.has_joined()) {
            return self.keep();
        }
        for path in self.made.iter().filter(|path| path.exists()) {
            let removed = match path.is_dir() {
                true => std::fs::remove_dir_all(path),
                false => std::fs::remove_file(path),
            };
            if let Err(error) = removed {
                tracing::debug!("{} stays: {error}", path.display());
            }
        }
    }

    /// What was made is used.
    pub fn keep(self) {
        self.around.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(home: &Path, targets: &[PathBuf], founds: bool) -> Fresh {
        Fresh::look(Fresh::around(home, targets), home, targets, founds)
    }

    /// Makes what a start makes that gets as far as the formatting of its targets.
    fn start(home: &Path, target: &Path) {
        std::fs::create_dir_all(home.join(meta_store::META).join("journal")).unwrap();
        std::fs::create_dir_all(target).unwrap();
        std::fs::write(target.join("log"), "half").unwrap();
        let node = identity::Node { cluster: "ab".into(), server: 1, ..Default::default() };
        node.write(home).unwrap();
    }

    /// The disk was full when its targets were made, and nothing got out of the directory any more.
    #[test]
    fn a_first_start_of_a_cluster_that_fails_leaves_nothing_behind() {
        let top = tempfile::tempdir().unwrap();
        let (home, disk) = (top.path().join("a/home"), top.path().join("disk"));
        let targets = [home.join("target"), disk.join("target")];
        let fresh = look(&home, &targets, true);
        start(&home, &targets[0]);
        start(&home, &targets[1]);
        fresh.take_away();
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_start_that_fails_leaves_what_is_known_to_a_cluster() {
        let top = tempfile::tempdir().unwrap();
        let (home, target) = (top.path().join("home"), top.path().join("home/target"));
        let fresh = look(&home, std::slice::from_ref(&target), false);
        start(&home, &target);
        fresh.take_away();
        assert!(target.join("log").exists() && home.join(identity::NAME).exists());
        // Nor does a later one that could begin a cluster, but has one.
        let fresh = look(&home, &[target.clone(), home.join("new")], true);
        fresh.take_away();
        assert!(target.join("log").exists() && home.join(meta_store::META).exists());
    }

    /// Of two starts on the same empty directory at the same time, the second one removed what the first one was making.
    #[test]
    fn a_start_that_fails_leaves_what_another_one_made_before_the_directory_was_its_own() {
        let top = tempfile::tempdir().unwrap();
        let (home, target) = (top.path().join("home"), top.path().join("home/target"));
        let around = Fresh::around(&home, std::slice::from_ref(&target));
        start(&home, &target);
        Fresh::look(around, &home, std::slice::from_ref(&target), true).take_away();
        assert!(target.join("log").exists() && home.join(identity::NAME).exists());
    }
}
