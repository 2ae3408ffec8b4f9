//! What becomes of a file's unwritten data when the session is lost.
//!
//! A client that was not heard of for too long is taken for dead: its locks are given to others, and storage
//! servers refuse what it was allowed (docs/design/0051-fencing.md). When it is back, what it had not written
//! is older than what others may have written meanwhile. So it is given up, each file's handles report that
//! once, and a *life* of each file ends. Whatever sends what was written in a life sends it in that life only;
//! a file begins the next one before a new session is used for anything.

use super::state::{Body, Core, FileState};
use crate::share::Share;
use crate::volume::Volume;
use bytes::Bytes;
use std::time::Duration;
use strake_base::is_broken;
use strake_types::{Error, ErrorKind, Result};

/// A life of a file: the time within one session.
#[derive(Clone, Copy)]
pub(crate) struct Life<'a> {
    file: &'a FileState,
    number: u64,
}

/// The right to a file's contents, as it is when a request is sent.
#[derive(Clone, Copy)]
pub(crate) struct Rights<'a> {
    file: &'a FileState,
    /// To write, or to read.
    pub(crate) write: bool,
    /// Only in this life.
    life: Option<u64>,
}

fn over() -> Error {
    let detail = "the client was not heard of for too long, and what it had not written is lost";
    Error::with(ErrorKind::Io, detail)
}

impl<'a> Life<'a> {
    /// The life whose state is in hand.
    pub(crate) fn of(file: &'a FileState, core: &Core) -> Self {
        Self { file, number: core.life }
    }

    /// The file.
    pub(crate) fn file(&self) -> &'a FileState {
        self.file
    }

    /// True if a state belongs to it.
    pub(crate) fn is_that_of(&self, core: &Core) -> bool {
        core.life == self.number
    }

    /// True while it lasts.
    pub(crate) fn lasts(&self) -> bool {
        self.is_that_of(&self.file.core())
    }

    /// Fails unless a state belongs to it.
    pub(crate) fn check_in(&self, core: &Core) -> Result<()> {
        if self.is_that_of(core) { Ok(()) } else { Err(over()) }
    }

    /// Fails if it is over.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_in(&self.file.core())
    }
}

impl<'a> Rights<'a> {
    /// To read or write a file, in whatever life.
    pub(crate) fn of(file: &'a FileState, write: bool) -> Self {
        Self { file, write, life: None }
    }

    /// To write a file in one life.
    pub(crate) fn in_life(life: Life<'a>) -> Self {
        Self { file: life.file, write: true, life: Some(life.number) }
    }

    /// The file.
    pub(crate) fn file(&self) -> &'a FileState {
        self.file
    }

    /// The newest capability; an error when the life is over.
    pub(crate) fn capability(&self) -> Result<Bytes> {
        self.capability_unless(false)
    }

    /// The same to change contents: none if a new one is to be asked for.
    pub(crate) fn capability_to_change(&self) -> Result<Bytes> {
        self.capability_unless(true)
    }

    fn capability_unless(&self, cut_in_doubt: bool) -> Result<Bytes> {
        let core = self.file.core();
        match self.life.is_none_or(|life| life == core.life) {
            true if cut_in_doubt => Ok(core.right(self.write)),
            true => Ok(core.capability[usize::from(self.write)].clone()),
            false => Err(over()),
        }
    }
}

impl Core {
    /// The newest capability to read, or to change contents: none if a new one is to be asked for.
    pub(crate) fn right(&self, write: bool) -> Bytes {
        match write && self.cut_in_doubt.is_some() {
            true => Bytes::new(),
            false => self.capability[usize::from(write)].clone(),
        }
    }

    /// Takes rights that the server was asked for. It was told then (`told`), if ever, of all cuts that were given up before.
    pub(crate) fn set_capability(
        &mut self,
        rights: [bool; 2],
        capability: &Bytes,
        told: Option<Duration>,
    ) {
        // An answer may have been on its way when the cut was given up.
        if rights[1] && self.cut_in_doubt.is_some_and(|since| told >= Some(since)) {
            self.cut_in_doubt = None;
        }
        for (slot, right) in self.capability.iter_mut().zip(rights) {
            if right {
                *slot = capability.clone();
            }
        }
    }
}

impl FileState {
    /// The life it is in.
    pub(crate) fn life(&self) -> Life<'_> {
        Life::of(self, &self.core())
    }

    /// Ends a life: what is unwritten is given up. True if there was something.
    fn end_life(&self) -> bool {
        let mut core = self.core();
        let lost = !core.is_told() && !is_broken("lost-writes-are-told");
        if lost {
            // Before anybody who waits for what is given up can look.
            core.fail(&over());
            core.failure.of_last_life = true;
        }
        core.life += 1;
        // Nobody had it open for a while.
        core.awake = 0;
        // Who has opened it meanwhile was not told of us.
        let strict = core.is_strict();
        (core.shared, core.unsettled) = (strict, strict);
        core.capability = [Bytes::new(), Bytes::new()];
        core.dirty.cut(0, u64::MAX);
        if let Body::Inline(inline) = &mut core.body {
            inline.forget_unsent();
        }
        core.unpublished = Default::default();
        core.length = core.attr.length;
        // Whatever is known may be as old as the session.
        core.kept.clear();
        core.ahead.clear();
        core.ours = None;
        core.learned = Duration::ZERO;
        core.no_capability = false;
        core.inline_stale = true;
        drop(core);
        self.progress.notify_waiters();
        lost
    }
}

impl Volume {
    /// The session with a share was lost: what was written in it and has not arrived never will.
    pub(crate) fn end_lives(&self, share: &Share) {
        self.locked.lose(|ino| self.home(ino) == share.id);
        let mut losers = Vec::new();
        for file in self.inodes().files() {
            if self.home(file.ino()) == share.id && file.end_life() {
                self.lost(file.ino(), &over());
                losers.push(file.ino());
            }
        }
        self.memory().make_way();
        if let Some(believer) = self.believer().filter(|_| !losers.is_empty()) {
            // It begins at once; nobody waits for its end.
            let _soon = believer.recall(&losers);
            drop(believer.forget_contents(&losers));
        }
    }
}
