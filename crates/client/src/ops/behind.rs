//! Removals and renames that are answered before the metadata server has heard of them ([`crate::behind`]): where
//! all that they need is known here, and nobody else can see that they are not made yet.

use crate::behind::{Touched, UnderWay};
use crate::share::Share;
use crate::volume::Volume;
use bytes::Bytes;
use strake_base::task;
use strake_types::limits::NAME_BYTES_MAX;
use strake_types::{Attr, Credentials, Error, ErrorKind, FileKind, Ino, Result};
use strake_wire::message::meta::{self, Ask, MetaAnswer, MetaOp};

/// A directory without entries has so many links.
const EMPTY_LINKS: u32 = 2;

/// What is told once of a directory in which changes were answered that are not made.
pub(crate) fn names_are_lost() -> Error {
    let detail = "removals or renames that were answered could not be carried out; the mount's log says which";
    Error::with(ErrorKind::Io, detail)
}

/// What names are from now on: in a directory, what one leads to.
type Changed = Vec<(Ino, Bytes, Option<Ino>)>;

impl Volume {
    /// True if changes of names may be answered before they are made.
    pub(crate) fn writes_behind(&self) -> bool {
        self.options().behind && self.keeps_leases() && self.shares().count == 1
    }

    /// Returns when nothing that touches an inode is under way: its attributes are known then.
    pub(crate) async fn until_told_of(&self, ino: Ino) {
        let behind = &self.leases(ino).behind;
        if behind.touches(ino) {
            behind.over().await;
        }
    }

    /// What a name is known to stand for, with attributes as they are now.
    fn known_in(&self, dir: Ino, name: &Bytes) -> Option<Attr> {
        let ino = self.leases(dir).name(dir, name, self.now())??;
        self.known_attr(ino)
    }

    /// True for a file that is gone with this name, and that nobody uses here.
    fn goes_with_its_name(&self, attr: &Attr) -> bool {
        attr.kind != FileKind::Directory
            && attr.nlink == 1
            && self.inodes().file(attr.ino).is_none()
    }

    /// Removes a name behind, if that may be done.
    pub(super) fn remove_behind(&self, cred: &Credentials, op: &meta::Unlink) -> Option<Attr> {
        let (dir, name) = (Ino(op.at.parent), &op.at.name);
        if !cred.checked || !self.writes_behind() {
            return None;
        }
        let goes = |attr: &Attr| match op.directory {
            false => self.goes_with_its_name(attr),
            true => {
                attr.kind == FileKind::Directory
                    && (attr.nlink, attr.length) == (EMPTY_LINKS, 0)
                    && !self.leases(attr.ino).behind.touches(attr.ino)
            }
        };
        let attr = self.known_in(dir, name).filter(goes)?;
        let touched = Touched {
            dirs: vec![dir],
            inodes: vec![attr.ino],
            removed_dir: op.directory.then_some(attr.ino),
            names: vec![(dir, name.clone())],
        };
        let begun = self.leases(dir).behind.begin(touched, self.now())?;
        // Until it had begun others of this mount could change it.
        let same = self.known_in(dir, name).filter(|now| now.version == attr.version)?;
        self.close_all_if_busy(dir);
        self.go_behind(begun, cred, MetaOp::Unlink(op.clone()), vec![(dir, name.clone(), None)]);
        Some(Attr { nlink: 0, ..same })
    }

    /// Moves a name behind, if that may be done. What was moved, and what was replaced.
    pub(super) fn rename_behind(
        &self,
        cred: &Credentials,
        op: &meta::Rename,
    ) -> Option<(Attr, Option<Attr>)> {
        let (from, to) = ((Ino(op.from.parent), &op.from.name), (Ino(op.to.parent), &op.to.name));
        let plain = !op.exchange && !op.no_replace && to.1.len() <= NAME_BYTES_MAX;
        if !cred.checked || !plain || from == to || !self.writes_behind() {
            return None;
        }
        let look = || {
            let moved = self.known_in(from.0, from.1)?;
            let other = match self.leases(to.0).name(to.0, to.1, self.now())? {
                None => None,
                Some(ino) => Some(self.known_attr(ino)?),
            };
            let is_dir = moved.kind == FileKind::Directory;
            let may = match &other {
                None => true,
                Some(other) => !is_dir && self.goes_with_its_name(other) && other.ino != moved.ino,
            };
            let stays = if is_dir { from.0 == to.0 } else { moved.nlink == 1 };
            (may && stays).then_some((moved, other))
        };
        let (moved, other) = look()?;
        let mut dirs = vec![from.0];
        dirs.extend((to.0 != from.0).then_some(to.0));
        let touched = Touched {
            dirs,
            inodes: [Some(moved.ino), other.as_ref().map(|o| o.ino)]
                .into_iter()
                .flatten()
                .collect(),
            removed_dir: None,
            names: vec![(from.0, from.1.clone()), (to.0, to.1.clone())],
        };
        let begun = self.leases(from.0).behind.begin(touched, self.now())?;
        let version = |seen: &(Attr, Option<Attr>)| {
            (seen.0.version, seen.1.as_ref().map(|other| (other.ino, other.version)))
        };
        let seen = (moved, other);
        let now = look().filter(|now| version(now) == version(&seen))?;
        self.close_all_if_busy(to.0);
        let names = vec![(from.0, from.1.clone(), None), (to.0, to.1.clone(), Some(now.0.ino))];
        self.go_behind(begun, cred, MetaOp::Rename(op.clone()), names);
        let (moved, other) = now;
        Some((moved, other.map(|other| Attr { nlink: 0, ..other })))
    }

    /// Deferred closes of files that go are reported with the requests by which they go. While one report is under way others
    /// would come too late, and the files be kept for us: what is left is reported at once then.
    fn close_all_if_busy(&self, dir: Ino) {
        if self.session(dir).is_reporting() {
            self.report_all_closes();
        }
    }

    /// The change is made as far as this mount knows, and sent.
    fn go_behind(&self, begun: UnderWay, cred: &Credentials, op: MetaOp, names: Changed) {
        let Some(volume) = self.own.upgrade() else { return };
        for (dir, _, _) in &names {
            self.forget_listing(*dir);
        }
        let (dir, cred) = (names[0].0, cred.clone());
        self.leases(dir).change_behind(&names, self.now());
        let dirs: Vec<Ino> = names.iter().map(|(dir, _, _)| *dir).collect();
        task::spawn(async move {
            let asked = volume.now();
            let said = volume.mutate_behind(&cred, op.clone()).await;
            let told = said.and_then(|said| volume.told_behind(said.answer, &dirs, asked));
            if let Err(error) = told {
                tracing::warn!(
                    "{} was answered and is not done: {error}; fsync of the directory fails once",
                    what(&op)
                );
                volume.doubt(&dirs);
                volume.leases(dir).behind.lose(&dirs);
            }
            drop(begun);
        });
    }

    fn told_behind(
        &self,
        answer: MetaAnswer,
        dirs: &[Ino],
        asked: std::time::Duration,
    ) -> Result<()> {
        let (first, last) = (dirs[0], dirs[dirs.len() - 1]);
        match answer {
            MetaAnswer::Renamed(_) => self.renamed(answer, (first, last), asked).map(drop),
            _ => self.removed(answer, first, asked).map(drop),
        }
    }

    /// Gives back exclusive leases that others wait for, each when nothing is under way there.
    pub(crate) fn give_directories_back(&self, share: &Share, asks: &[Ask]) {
        for ask in asks.iter().copied() {
            let (Some(volume), behind) = (self.own.upgrade(), share.leases.behind.clone()) else {
                return;
            };
            task::spawn(async move {
                if !behind.give_back(ask).await {
                    return;
                }
                let told =
                    meta::Told { ino: ask.ino, exclusive: ask.number, ..meta::Told::default() };
                let said = volume.ask(&volume.root_cred(), MetaOp::Told(told)).await;
                if let Err(error) = said {
                    tracing::debug!("cannot give directory {} back: {error}", ask.ino);
                }
                behind.gave_back(ask.number);
            });
        }
    }
}

/// What people call a change.
fn what(op: &MetaOp) -> String {
    match op {
        MetaOp::Unlink(unlink) => format!("the removal of {}", called(&unlink.at)),
        MetaOp::Rename(rename) => {
            format!("the rename of {} to {}", called(&rename.from), called(&rename.to))
        }
        _ => "a change".to_owned(),
    }
}

fn called(at: &meta::Name) -> String {
    format!("{:?} in directory {}", String::from_utf8_lossy(&at.name), at.parent)
}
