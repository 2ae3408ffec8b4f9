//! Partial copies that nobody goes on with, because their source has changed.

use super::Job;
use super::partial::{begun, is_marked, is_partial, is_partial_of};
use crate::contents::Contents;
use crate::failures::ends_all;
use crate::info::Info;
use crate::place::{Directory, Name};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use strake_base::clock::wall_time;
use strake_types::{FileKind, Result};

/// What was begun or written within this time may be a copy that is under way.
const QUIET_S_MIN: i64 = 600;

/// A directory that is copied to: its path on this machine, or its number in the one volume that all goes to.
type Place = (PathBuf, u64);

/// What was copied, as far as partial copies may lie beside it.
#[derive(Default)]
pub(super) struct Placed {
    /// The large files, by directory.
    files: BTreeMap<Place, Vec<Name>>,
    /// What was found in a source under the name of a partial copy, and is copied as all else.
    alike: BTreeSet<(Place, Bytes)>,
}

impl Job {
    /// Remembers that a large file has got its name.
    pub(super) fn place(&self, name: &Name) {
        let place = place_of(&name.directory);
        self.placed.lock().files.entry(place).or_default().push(name.clone());
    }

    /// Remembers what is to be copied to this name, if a partial copy could be called so.
    pub(super) fn note_alike(&self, name: &Name) {
        if is_partial(&name.name) {
            let alike = (place_of(&name.directory), name.name.clone());
            self.placed.lock().alike.insert(alike);
        }
    }

    /// True if a source is copied to this name.
    pub(super) fn is_alike(&self, name: &Name) -> bool {
        let alike = (place_of(&name.directory), name.name.clone());
        self.placed.lock().alike.contains(&alike)
    }

    /// Removes what interrupted copies of earlier sources have left beside the large files that were copied. What cannot be
    /// removed is in nobody's way; after what the next one would meet as well, or when the copy is to end, all others stay.
    pub(super) async fn remove_stale(&self) {
        let files = std::mem::take(&mut self.placed.lock().files);
        for names in files.values() {
            let removed = self.remove_beside(names).await;
            if removed.is_err_and(|error| ends_all(error.kind)) {
                return;
            }
        }
    }

    /// The same beside the files of one directory. An error of one partial copy is passed on only if it ends all.
    async fn remove_beside(&self, names: &[Name]) -> Result<()> {
        let Some(Name { directory, .. }) = names.first() else { return Ok(()) };
        self.go_on()?;
        for partial in directory.names(is_partial).await? {
            self.go_on()?;
            let is_ours = |name: &Name| is_partial_of(&partial.name, &name.name);
            if names.iter().any(is_ours)
                && !self.is_alike(&partial)
                && let Err(error) = self.remove_at_rest(&partial).await
                && ends_all(error.kind)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes it, unless another copy is at it: that may compare for hours what is there, and write nothing.
    async fn remove_at_rest(&self, partial: &Name) -> Result<()> {
        let Some(info) = partial.info().await? else { return Ok(()) };
        if !is_at_rest(partial, &info) {
            return Ok(());
        }
        let contents = Contents::open(partial, &info, &self.pool).await?;
        let removed = match contents.lock(Duration::ZERO).await {
            Ok(true) => {
                let removed = match contents.found_as(partial).await {
                    Ok(Some(_)) => partial.remove(false).await,
                    other => other.map(drop),
                };
                contents.unlock().await;
                removed
            }
            other => other.map(drop),
        };
        removed.and(contents.close().await)
    }
}

fn place_of(directory: &Directory) -> Place {
    match directory {
        Directory::Local(path) => (path.path(), 0),
        Directory::Remote(remote) => (PathBuf::new(), remote.ino.0),
    }
}

/// True if nobody writes to it.
fn is_at_rest(partial: &Name, info: &Info) -> bool {
    let now = wall_time().as_secs();
    // What is whole has its source's time of change just before it gets its name.
    let used = info.mtime.seconds.max(begun(&partial.name).unwrap_or(i64::MIN));
    let is_quiet = used.saturating_add(QUIET_S_MIN) < now.cast_signed();
    info.kind == FileKind::File && (is_quiet || is_marked(&partial.name, info.mtime))
}
