//! What targets have lost, with their power, of files that the copy had closed by then.

use super::{Entered, Job};
use crate::failures::ends_all;
use crate::place::{Directory, Name, RemoteDirectory};
use crate::tree::listed;
use futures::future::join_all;
use std::collections::BTreeMap;
use strake_types::{Error, ErrorKind, Ino, Result, SetAttr, SetTime};

/// What becomes of a file that may have lost something.
const UNSURE: &str = "what was written to it may be lost: a storage server has lost power since, or has not \
                      said that it is on disk; the same command copies it again";

/// The files that may have lost something.
#[derive(Default)]
struct Unsure {
    /// What is to be told of those that the next copy finds out about.
    told: BTreeMap<Ino, Error>,
    /// Why it does not find out about the others, and how many there are.
    rest: Option<(Error, usize)>,
}

impl Job {
    /// From now on losses in the volume that is copied to are remembered.
    pub(super) fn gather_lost(&self, top: Option<&Directory>) {
        if let Some(Directory::Remote(remote)) = top {
            remote.volume.gather_lost();
        }
    }

    /// Asks targets to make durable what was copied to a volume, which its end asks for anyway. A file of which they have lost
    /// something has the length and the time of its source, and the next copy would take it for one that is there: it gets
    /// another time, and is named. That ends where nobody answers any more, or when the copy is asked to stop meanwhile.
    pub(super) async fn settle(
        &self,
        top: Option<&Directory>,
        named: &[Name],
        directories: &[Entered],
    ) -> Result<()> {
        let Some(Directory::Remote(remote)) = top else { return Ok(()) };
        let was_stopped = self.is_stopped();
        let synced = remote.volume.sync_all().await;
        let unsure: Vec<_> = remote.volume.take_unsure().into_iter().collect();
        let synced = synced.or_else(|error| self.failed(error));
        let Unsure { told, rest } = self.give_other_times(remote, &unsure, was_stopped).await;
        let names = self.names_of(&told, named, directories, was_stopped).await;
        for (ino, error) in told {
            let error = match names.get(&ino) {
                Some(name) => name.about(error),
                None => {
                    let volume = remote.volume.name();
                    error.about(format_args!("inode {ino} in volume {volume}"))
                }
            };
            self.failures.lock().push(error);
        }
        let Some((why, count)) = rest else { return synced };
        let detail = format!(
            "{count} of the files that were closed last may have lost something, and the next copy would not find that \
             out ({why}): give it --no-resume, or remove them"
        );
        self.failures.lock().push(Error::with(ErrorKind::Io, detail));
        match why.kind {
            ErrorKind::Interrupted => synced.and(Err(why)),
            _ => synced,
        }
    }

    /// True if the copy is asked to end early since then.
    fn is_stopped_since(&self, was_stopped: bool) -> bool {
        !was_stopped && self.is_stopped()
    }

    /// Has the next copy find that files are not like their sources.
    async fn give_other_times(
        &self,
        remote: &RemoteDirectory,
        files: &[Ino],
        was_stopped: bool,
    ) -> Unsure {
        let (mut unsure, mut left) = (Unsure::default(), files.len());
        let mut ended: Option<Error> = None;
        for files in files.chunks(self.options.streams.max(1)) {
            if self.is_stopped_since(was_stopped) {
                ended = Some(ErrorKind::Interrupted.into());
            }
            if ended.is_some() {
                break;
            }
            let given = files.iter().map(|&ino| give_another_time(remote, ino));
            for (&ino, given) in files.iter().zip(join_all(given).await) {
                match given {
                    Ok(told) => {
                        left -= 1;
                        unsure.told.extend(told.map(|told| (ino, told)));
                    }
                    Err(error) => ended = Some(error),
                }
            }
        }
        unsure.rest = ended.map(|why| (why, left));
        unsure
    }

    /// The names of copies, as far as they are found where they were made: what is remembered of each file would be too much.
    async fn names_of(
        &self,
        wanted: &BTreeMap<Ino, Error>,
        named: &[Name],
        directories: &[Entered],
        was_stopped: bool,
    ) -> BTreeMap<Ino, Name> {
        let mut names = BTreeMap::new();
        let is_over = |names: &BTreeMap<Ino, Name>| {
            names.len() == wanted.len() || self.is_stopped_since(was_stopped)
        };
        for name in named {
            if is_over(&names) {
                return names;
            }
            match name.info().await {
                Ok(Some(info)) if wanted.contains_key(&Ino(info.ino)) => {
                    names.insert(Ino(info.ino), name.clone());
                }
                Err(error) if ends_all(error.kind) => return names,
                _ => {}
            }
        }
        for Entered { task, .. } in directories {
            if is_over(&names) {
                return names;
            }
            let entries = match listed(&task.to).await {
                Ok(listing) => listing.entries,
                Err(error) if ends_all(error.kind) => return names,
                Err(_) => continue,
            };
            let found = entries.into_iter().map(|(name, info)| (Ino(info.ino), name));
            names.extend(found.filter(|(ino, _)| wanted.contains_key(ino)));
        }
        names
    }
}

/// Has the next copy find that a file is not like its source. What is to be told of it; nothing where it is gone. An error is one
/// that the others would meet as well.
async fn give_another_time(remote: &RemoteDirectory, ino: Ino) -> Result<Option<Error>> {
    let change = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    let detail = match remote.volume.setattr(&remote.cred, ino, change, None).await {
        Ok(_) => UNSURE.to_string(),
        Err(error) if error.kind.is_gone() => return Ok(None),
        Err(error) if ends_all(error.kind) => return Err(error),
        Err(error) => format!("{UNSURE} when it is removed: its time cannot be changed ({error})"),
    };
    Ok(Some(Error::with(ErrorKind::Io, detail)))
}
