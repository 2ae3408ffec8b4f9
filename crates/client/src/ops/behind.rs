//! Removals and renames that are answered before the metadata server has heard of them ([`crate::behind`]): where
//! all that they need is known here, and nobody else can see that they are not made yet.

use crate::behind::{Behind, Queued, Turn};
use crate::patience::Patience;
use crate::route::{Said, Sending};
use crate::share::Share;
use crate::told::{self, After};
use crate::volume::Volume;
use bytes::Bytes;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use strake_base::{count_case, task};
use strake_types::limits::NAME_BYTES_MAX;
use strake_types::{Attr, Credentials, Error, ErrorKind, FileKind, Ino, Result, Timestamp};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{
    self, Ask, ChangeBehind, Made, MetaAnswer, MetaOp, NameChange, Renamed,
};

/// A directory without entries has so many links.
const EMPTY_LINKS: u32 = 2;
/// What the length of a directory grows by with each entry.
const ENTRY_BYTES: u64 = 64;
/// Pause before what nobody has heard is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// What is told once of a directory in which changes were answered that are not made.
pub(crate) fn names_are_lost() -> Error {
    let detail = "removals or renames that were answered could not be carried out; the mount's log says which";
    Error::with(ErrorKind::Io, detail)
}

/// What changes of a directory: so many entries and so many directories among them more.
struct Counted {
    dir: Ino,
    entries: i64,
    subdirs: i64,
}

/// What is known of a change from now on.
struct Answered {
    /// In a directory: what a name leads to.
    names: Vec<(Ino, Bytes, Option<Ino>)>,
    dirs: Vec<Counted>,
    /// What has another name now, as the server will have it.
    moved: Option<Attr>,
}

/// What has become of the changes that were sent last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// The server has made none of them.
    Refused,
    /// Nobody knows how many it has made.
    Unheard,
}

impl Volume {
    /// True if changes of names may be answered before they are made.
    pub(crate) fn writes_behind(&self) -> bool {
        self.options().behind && self.keeps_leases() && self.shares().count == 1
    }

    fn behind_for(&self, cred: &Credentials, dir: Ino) -> Option<&Arc<Behind>> {
        let may = cred.checked && self.writes_behind() && self.session(dir).takes_behind();
        may.then(|| &self.leases(dir).behind)
    }

    /// Attributes of what is touched by a change that is answered already: as they will be.
    pub(crate) fn as_answered(&self, ino: Ino) -> Option<Attr> {
        self.leases(ino).behind.touches(ino).then(|| self.known_attr(ino)).flatten()
    }

    /// Returns when it is known what has become of an inode that goes with its last name, as long as there is time.
    pub(crate) async fn until_gone(&self, ino: Ino) -> Result<()> {
        let share = self.share_of(ino);
        if !share.leases.behind.is_gone(ino) {
            return Ok(());
        }
        let until_made = async {
            let (after, mut patience) = (After::These(vec![ino]), Patience::new(self));
            self.until_made(share, &after, &mut patience).await
        };
        Box::pin(until_made).await
    }

    /// Returns when what an operation comes after is made, as long as there is time.
    pub(crate) async fn until_made(
        &self,
        share: &Share,
        after: &After,
        patience: &mut Patience<'_>,
    ) -> Result<()> {
        let what = || format!("the metadata server of {}", self.called(share.id));
        loop {
            let error = tokio::select! {
                biased;
                () = share.leases.behind.until(after) => return Ok(()),
                error = patience.over() => error,
            };
            patience.heed(what, error, false).await?;
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
        let behind = self.behind_for(cred, dir)?;
        let turn = behind.turn();
        let attr = self.known_in(dir, name)?;
        let is_dir = attr.kind == FileKind::Directory;
        let goes = match op.directory {
            false => self.goes_with_its_name(&attr),
            true => is_dir && (attr.nlink, attr.length) == (EMPTY_LINKS, 0),
        };
        let at = behind.time(self.now()).filter(|_| goes)?;
        let change = ChangeBehind {
            ino: attr.ino.0,
            at: at.into(),
            change: Some(NameChange::Unlink(op.clone())),
            ..ChangeBehind::default()
        };
        let (dirs, inodes, gone) = (vec![dir], vec![attr.ino], Some(attr.ino));
        let queued = Queued { change, session: 0, dirs, inodes, gone };
        let leased = [dir, attr.ino];
        let answered = Answered {
            names: vec![(dir, name.clone(), None)],
            dirs: vec![Counted { dir, entries: -1, subdirs: -i64::from(is_dir) }],
            moved: None,
        };
        let leased = &leased[..if is_dir { 2 } else { 1 }];
        self.go_behind(&turn, queued, leased, answered, at)?;
        Some(Attr { nlink: 0, ctime: at, ..attr })
    }

    /// Moves a name behind, if that may be done. What was moved, and what was replaced.
    pub(super) fn rename_behind(
        &self,
        cred: &Credentials,
        op: &meta::Rename,
    ) -> Option<(Attr, Option<Attr>)> {
        let (from, to) = ((Ino(op.from.parent), &op.from.name), (Ino(op.to.parent), &op.to.name));
        let plain = !op.exchange && to.1.len() <= NAME_BYTES_MAX;
        let behind = self.behind_for(cred, from.0).filter(|_| plain && from != to)?;
        let turn = behind.turn();
        let moved = self.known_in(from.0, from.1)?;
        let other = match self.leases(to.0).name(to.0, to.1, self.now())? {
            None => None,
            Some(ino) => Some(self.known_attr(ino)?),
        };
        let is_dir = moved.kind == FileKind::Directory;
        let may_replace = |other: &Attr| {
            let apart = other.ino != moved.ino && !op.no_replace;
            !is_dir && apart && self.goes_with_its_name(other)
        };
        let stays = if is_dir { from.0 == to.0 } else { moved.nlink == 1 };
        if !stays || !other.as_ref().is_none_or(may_replace) {
            return None;
        }
        let at = behind.time(self.now())?;
        let change = ChangeBehind {
            seq: 0,
            ino: moved.ino.0,
            other: other.as_ref().map_or(0, |other| other.ino.0),
            at: at.into(),
            change: Some(NameChange::Rename(op.clone())),
        };
        let gone = other.as_ref().map(|other| other.ino);
        let dirs = if from.0 == to.0 { vec![from.0] } else { vec![from.0, to.0] };
        let inodes = [moved.ino].into_iter().chain(gone).collect();
        let entries = i64::from(other.is_none());
        let counted = match from.0 == to.0 {
            true => vec![Counted { dir: to.0, entries: entries - 1, subdirs: 0 }],
            false => vec![
                Counted { dir: from.0, entries: -1, subdirs: 0 },
                Counted { dir: to.0, entries, subdirs: 0 },
            ],
        };
        // As the server has it: what is unsent of an open file is none of that.
        let (kept, _) = self.inodes().get(moved.ino).0?;
        let kept = Attr { ctime: at, ..Arc::unwrap_or_clone(kept) };
        let moved = Attr { ctime: at, ..moved };
        let answered = Answered {
            names: vec![(from.0, from.1.clone(), None), (to.0, to.1.clone(), Some(moved.ino))],
            dirs: counted,
            moved: Some(kept),
        };
        let queued = Queued { change, session: 0, dirs: dirs.clone(), inodes, gone };
        self.go_behind(&turn, queued, &dirs, answered, at)?;
        Some((moved, other.map(|other| Attr { nlink: 0, ..other })))
    }

    /// The change is made as far as this mount knows, and on its way. `None`: it may not be.
    fn go_behind(
        &self,
        turn: &Turn<'_>,
        queued: Queued,
        leased: &[Ino],
        answered: Answered,
        at: Timestamp,
    ) -> Option<()> {
        let volume = self.own.upgrade()?;
        let dirs = answered.dirs.iter().map(|counted| {
            let attr = self.known_attr(counted.dir)?;
            let length = attr.length.checked_add_signed(counted.entries * ENTRY_BYTES as i64)?;
            let nlink = u32::try_from(i64::from(attr.nlink) + counted.subdirs).ok()?;
            Some(Attr { length, nlink, mtime: at, ctime: at, ..attr })
        });
        let dirs: Vec<Attr> = dirs.collect::<Option<_>>()?;
        let (place, inodes) = (dirs[0].ino, queued.inodes.clone());
        let begins = turn.begin(queued, leased, self.now(), || self.session(place).id())?;
        count_case("name-behind");
        // After it has begun: who has asked before that, and has not seen it, believes nothing.
        let now = self.now();
        self.leases(place).change_behind(&answered.names, &inodes, now);
        for attr in dirs.into_iter().chain(answered.moved) {
            self.forget_listing(attr.ino);
            self.inodes().answer(attr, now);
        }
        if begins {
            task::spawn(send_behind(volume, place));
        }
        Some(())
    }

    /// Sends the first of what is under way. Breaks when there is nothing; `false`: nobody has heard it.
    async fn send_some(&self, share: &Share) -> ControlFlow<(), bool> {
        share.leases.behind.gather().await;
        let (answered_in, changes) = share.leases.behind.batch(|| share.session.begin_mutation());
        if changes.is_empty() {
            return ControlFlow::Break(());
        }
        let op = MetaOp::Behind(meta::Behind { changes });
        let how = Sending { answered_in, ..Sending::default() };
        match self.meta(share, (&self.root_cred()).into(), op, how).await {
            Ok(Said { answer: MetaAnswer::Made(made), asked, .. })
                if made.refused != 0 || !made.changes.is_empty() =>
            {
                self.learn_made(share, made, asked);
            }
            Ok(_) => self.lose_behind(share, &super::unexpected("names"), Sent::Unheard),
            // Programs were told that it is done: it is as long as it may be.
            Err(error) if error.is_passing() || error.kind == ErrorKind::TimedOut => {
                return ControlFlow::Continue(false);
            }
            Err(error) => self.lose_behind(share, &error, Sent::Unheard),
        }
        ControlFlow::Continue(true)
    }

    fn learn_made(&self, share: &Share, made: Made, asked: Duration) {
        let behind = &share.leases.behind;
        {
            let turn = behind.turn();
            let over = turn.end(made.changes.len());
            for ((queued, changed), nth) in over.iter().zip(made.changes).zip(1..) {
                share.session.end_mutation(queued.change.seq);
                let is_later = |ino| turn.touches_after(nth, ino);
                if let Err(error) = self.learn_change(share, changed, asked, is_later) {
                    tracing::debug!("{}: what was answered makes no sense: {error}", what(queued));
                }
            }
        }
        if made.refused != 0 {
            let error = Error::with(ErrorKind::from_code(made.refused), made.why);
            let sent = if told::is_refusal(&error) { Sent::Refused } else { Sent::Unheard };
            self.lose_behind(share, &error, sent);
        }
    }

    /// What a change has led to: each is one step of what is known of an open file, but the rest is of later where more
    /// changes are under way.
    fn learn_change(
        &self,
        share: &Share,
        changed: Renamed,
        asked: Duration,
        is_later: impl Fn(Ino) -> bool,
    ) -> Result<()> {
        let Renamed { moved, other, parent, new_parent } = changed;
        let learn_made = |attributes: Attributes| -> Result<Arc<Attr>> {
            let is_later = is_later(Ino(attributes.ino));
            share.leases.learn_made(&attributes, (asked, self.now()), is_later);
            let attr: Arc<Attr> = Arc::new(attributes.try_into()?);
            if !is_later {
                self.inodes().learn(&attr, asked);
            }
            Ok(attr)
        };
        for attributes in [Some(moved), other].into_iter().flatten() {
            let attr = learn_made(attributes)?;
            match self.inodes().file(attr.ino) {
                Some(file) => drop(file.learn(&attr, true, asked)),
                None => self.learn_closed(&attr),
            }
            self.forget_nameless(&attr);
        }
        [parent, new_parent].into_iter().flatten().try_for_each(|of| learn_made(of).map(drop))
    }

    /// Returns when all changes of names are made that were answered before, however long no server is there.
    pub async fn names_told(&self) {
        for share in self.parts() {
            share.leases.behind.until(&After::Everything).await;
        }
    }

    /// Nobody waits any more for what is under way: the volume was closed, or could not be. The log says what it was.
    pub fn give_up_names(&self) {
        for share in self.parts() {
            let error = Error::with(ErrorKind::TimedOut, "the mount ends");
            self.lose_behind(share, &error, Sent::Unheard);
        }
    }

    /// What was answered is not made, or nobody knows whether it is: all of it is forgotten, and told once.
    fn lose_behind(&self, share: &Share, error: &Error, sent: Sent) {
        let behind = &share.leases.behind;
        let turn = behind.turn();
        let lost = turn.end(usize::MAX);
        if !lost.is_empty() {
            count_case("names-behind-lost");
        }
        let mut touched = Vec::new();
        for queued in &lost {
            let is_sent = queued.change.seq != 0;
            let may_be_done = is_sent && sent == Sent::Unheard;
            let is = if may_be_done { "nobody knows whether it is done" } else { "is not done" };
            tracing::warn!("{} was answered, and {is}: {error}", what(queued));
            if is_sent {
                share.session.give_up_mutation(queued.change.seq, false);
            }
            turn.lose(&queued.dirs);
            touched.extend(queued.dirs.iter().chain(&queued.inodes).copied());
        }
        for ino in &touched {
            self.inodes().forget_attr(*ino, self.now());
            self.forget_listing(*ino);
        }
        self.doubt(&touched);
    }

    /// Gives back exclusive leases that others wait for, each when nothing is under way there.
    pub(crate) fn give_directories_back(&self, share: &Share, asks: &[Ask]) {
        for ask in asks.iter().copied() {
            let (volume, behind) = (self.own.clone(), share.leases.behind.clone());
            task::spawn(async move {
                if !behind.give_back(ask).await {
                    return;
                }
                // What is under way may be so for as long as no server is there.
                let Some(volume) = volume.upgrade() else { return };
                let told =
                    meta::Told { ino: ask.ino, exclusive: ask.number, ..meta::Told::default() };
                let said = volume.ask(&volume.root_cred(), MetaOp::Told(told)).await;
                if let Err(error) = &said {
                    tracing::debug!("cannot give directory {} back: {error}", ask.ino);
                }
                behind.gave_back(ask, said.is_ok());
            });
        }
    }
}

/// Sends what is under way in the share of a place, one message after the other, until there is nothing more. Where nobody
/// is there to hear it, it is sent again for as long as the session lasts, and the volume.
async fn send_behind(mut volume: Arc<Volume>, place: Ino) {
    loop {
        let sent = volume.send_some(volume.share_of(place)).await;
        match sent {
            ControlFlow::Break(()) => return,
            ControlFlow::Continue(true) => {}
            ControlFlow::Continue(false) => {
                let weak = Arc::downgrade(&volume);
                drop(volume);
                tokio::time::sleep(PAUSE).await;
                let Some(again) = weak.upgrade() else { return };
                volume = again;
            }
        }
    }
}

/// What people call a change.
fn what(queued: &Queued) -> String {
    match &queued.change.change {
        Some(NameChange::Unlink(unlink)) => format!("the removal of {}", called(&unlink.at)),
        Some(NameChange::Rename(rename)) => {
            format!("the rename of {} to {}", called(&rename.from), called(&rename.to))
        }
        None => "a change".to_owned(),
    }
}

fn called(at: &meta::Name) -> String {
    format!("{:?} in directory {}", String::from_utf8_lossy(&at.name), at.parent)
}

#[cfg(test)]
mod tests;
