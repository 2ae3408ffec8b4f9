//! What targets have lost, with their power, of files that the copy had closed by then.

use super::{Job, Task};
use crate::place::{Directory, Name, RemoteDirectory};
use std::collections::{BTreeMap, BTreeSet};
use strake_types::{Error, ErrorKind, Ino, Result, SetAttr, SetTime};

/// What becomes of a file that may have lost something.
const UNSURE: &str = "what was written to it may be lost: a storage server has lost power since, or has not \
                      said that it is on disk; the same command copies it again";

impl Job {
    /// From now on losses in the volume that is copied to are remembered.
    pub(super) fn gather_lost(&self, top: Option<&Directory>) {
        if let Some(Directory::Remote(remote)) = top {
            remote.volume.gather_lost();
        }
    }

    /// Asks targets to make durable what was copied to a volume, which its end asks for anyway. A file of which they have lost
    /// something has the length and the time of its source, and the next copy would take it for one that is there: it gets
    /// another time, and is named.
    pub(super) async fn settle(
        &self,
        top: Option<&Directory>,
        named: &[Name],
        directories: &[Task],
    ) -> Result<()> {
        let Some(Directory::Remote(remote)) = top else { return Ok(()) };
        let synced = remote.volume.sync_all().await;
        let unsure = remote.volume.take_unsure();
        let synced = synced.or_else(|error| self.failed(error));
        if unsure.is_empty() {
            return synced;
        }
        let names = names_of(&unsure, named, directories).await;
        for ino in unsure {
            if let Some(error) = give_another_time(remote, ino).await {
                let error = match names.get(&ino) {
                    Some(name) => name.about(error),
                    None => {
                        let volume = remote.volume.name();
                        let detail = format!("inode {ino} in volume {volume}: {}", error.detail);
                        Error::with(error.kind, detail)
                    }
                };
                self.failures.lock().push(error);
            }
        }
        synced
    }
}

/// Has the next copy find that a file is not like its source. What is to be told of it; nothing where it is gone.
async fn give_another_time(remote: &RemoteDirectory, ino: Ino) -> Option<Error> {
    let change = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    let detail = match remote.volume.setattr(&remote.cred, ino, change, None).await {
        Ok(_) => UNSURE.to_string(),
        Err(error) if error.kind.is_gone() => return None,
        Err(error) => format!("{UNSURE} when it is removed: its time cannot be changed ({error})"),
    };
    Some(Error::with(ErrorKind::Io, detail))
}

/// The names of copies, as far as they are found where they were made: what is remembered of each file would be too much.
async fn names_of(
    wanted: &BTreeSet<Ino>,
    named: &[Name],
    directories: &[Task],
) -> BTreeMap<Ino, Name> {
    let mut names = BTreeMap::new();
    for name in named {
        if let Ok(Some(info)) = name.info().await
            && wanted.contains(&Ino(info.ino))
        {
            names.insert(Ino(info.ino), name.clone());
        }
    }
    for task in directories {
        if names.len() == wanted.len() {
            break;
        }
        let Ok(directory) = task.to.enter().await else { continue };
        let Ok(listing) = directory.list().await else { continue };
        let found = listing.entries.into_iter().map(|(name, info)| (Ino(info.ino), name));
        names.extend(found.filter(|(ino, _)| wanted.contains(ino)));
    }
    names
}
