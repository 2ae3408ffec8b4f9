//! What the fake metadata server says of files that others have open, and to those who ask for claims.

use super::{Fake, FakeState};
use strake_types::{Consistency, ErrorKind, Ino};
use strake_wire::message::meta::{Claim, Claimed, MetaAnswer};

impl Fake {
    /// From now on somebody else has everything open.
    pub(crate) fn share(&self) {
        self.state.lock().shared = true;
    }

    /// Consistency of a file is close-to-open for who opens it from now on.
    pub(crate) fn relax(&self, ino: Ino) {
        let mut state = self.state.lock();
        let file = state.files.get_mut(&ino.0).expect("a test names a file that is there");
        let layout = file.attr.layout.iter_mut();
        layout.for_each(|layout| layout.consistency = Consistency::CloseToOpen as u32);
    }

    /// It is one of an earlier release, which has taken over from one that takes attributes together with writes: from the next
    /// session on.
    pub(crate) fn leave_out_what_comes_with_writes(&self) {
        self.state.lock().with_writes = true;
    }

    /// Ranges may be claimed from the next session on; and all that is asked for is granted, or nothing is.
    pub(crate) fn grant_claims(&self, all: bool) {
        self.state.lock().claims = Some(all);
    }

    /// Nothing is granted from now on, but each write may go through to where nobody else has a claim.
    pub(crate) fn let_through_once(&self) {
        self.state.lock().once = Some(true);
    }

    /// Nothing is granted from now on, nor may anything go through: something always comes between.
    pub(crate) fn let_nothing_through(&self) {
        self.state.lock().once = Some(false);
    }

    /// It is of a release that knows of no claims, from the next session on; and the next one is the first that it is asked for.
    pub(crate) fn know_no_claims(&self) {
        self.state.lock().claims = None;
        self.fail("claim", ErrorKind::Malformed);
    }
}

impl FakeState {
    pub(super) fn claimed(&self, claim: &Claim) -> MetaAnswer {
        let (once, in_vain) = (self.once == Some(true) && claim.once, self.once == Some(false));
        let granted = self.claims == Some(true) && !claim.through && !once && !in_vain;
        let end = if granted { claim.wanted_end } else { 0 };
        let through_ms = if granted || once || in_vain { 0 } else { 1_000 };
        MetaAnswer::Claimed(Claimed { end, through_ms, once })
    }
}
