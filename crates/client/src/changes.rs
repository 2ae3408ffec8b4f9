//! Changes that the metadata server makes: each once, whatever becomes of its answers.

use crate::file::Life;
use crate::leases::Doubt;
use crate::route::{Said, Sending};
use crate::session::{Session, Unheard};
use crate::told;
use crate::volume::Volume;
use strake_types::{Credentials, ErrorKind, Ino, Result};
use strake_wire::message::meta::{MetaAnswer, MetaOp};

/// The number of a mutation, given back whatever becomes of the operation; but that of an open of which nobody hears is
/// needed to close it.
struct SeqGuard<'a> {
    volume: &'a Volume,
    session: &'a Session,
    seq: u64,
    /// The file that it opens, and does nothing else, until it is answered.
    opens: Option<Ino>,
    /// What it may cut, as far as is known, and directories.
    cuts: Vec<Ino>,
    /// The server has done it, or refused.
    heard: bool,
    /// It is not at it any more, whatever has become of it.
    ended: bool,
}

impl SeqGuard<'_> {
    /// The operation has ended so. What was not answered in time may be carried out all the same.
    fn ended<T>(&mut self, answer: &Result<T>) {
        let is_late = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::TimedOut);
        self.opens = self.opens.filter(|_| is_late);
        self.heard = answer.as_ref().err().is_none_or(told::is_refusal);
        self.ended = answer.as_ref().err().is_none_or(told::is_last_word);
    }
}

impl Drop for SeqGuard<'_> {
    fn drop(&mut self) {
        match self.opens {
            _ if self.seq == 0 => {}
            Some(ino) => {
                let (seq, since) = (self.seq, self.volume.now());
                self.session.give_up_open(Unheard { ino, seq, since });
            }
            None if self.ended => self.session.end_mutation(self.seq),
            None => self.session.give_up_mutation(self.seq, !self.cuts.is_empty()),
        }
        if self.heard {
            return;
        }
        self.volume.doubt_cuts(self.cuts.iter().copied());
    }
}

impl Volume {
    /// The server may still have to cut chunks of these files: whoever writes there before it has been asked for that would lose
    /// what he writes.
    pub(crate) fn doubt_cuts(&self, inos: impl IntoIterator<Item = Ino>) {
        for file in inos.into_iter().filter_map(|ino| self.inodes().file(ino)) {
            file.core().cut_in_doubt = Some(self.now());
        }
    }

    /// Lets the metadata server change something, once.
    pub(crate) async fn mutate(&self, cred: &Credentials, op: MetaOp) -> Result<MetaAnswer> {
        self.mutate_as(cred, op).await.map(|said| said.answer)
    }

    /// As [`Volume::mutate`], of what was begun in a life of a file: never after that.
    pub(crate) async fn mutate_in(
        &self,
        life: Life<'_>,
        cred: &Credentials,
        op: MetaOp,
    ) -> Result<MetaAnswer> {
        let how = Sending { life: Some(life), ..Sending::default() };
        self.mutate_about(cred, op, how).await.map(|said| said.answer)
    }

    /// As [`Volume::mutate`]; also when and in which session it was asked.
    pub(crate) async fn mutate_as(&self, cred: &Credentials, op: MetaOp) -> Result<Said> {
        self.mutate_about(cred, op, Sending::default()).await
    }

    async fn mutate_about(&self, cred: &Credentials, op: MetaOp, how: Sending<'_>) -> Result<Said> {
        let share = self.share_for(&op);
        let (keeps, cuts) = (self.keeps_leases(), told::may_cut(&op));
        let touched = if keeps || cuts { self.touched(&op) } else { Vec::new() };
        let others = if self.writes_behind() { touched.clone() } else { Vec::new() };
        let _otherwise = share.leases.behind.change_otherwise(others);
        let session = &share.session;
        let seq = if self.options().remember { session.begin_mutation() } else { 0 };
        let opens = told::only_opens(&op);
        let cuts = if cuts { touched.clone() } else { Vec::new() };
        let (heard, ended) = (false, false);
        let mut number = SeqGuard { volume: self, session, seq, opens, cuts, heard, ended };
        let doubtful = keeps && opens.is_none();
        let doubt = doubtful.then(|| Doubt::new(self, &op, touched));
        let said = self.meta(share, cred.into(), op, Sending { seq, ..how }).await;
        if let Some(doubt) = doubt {
            doubt.end(said.as_ref().err());
        }
        number.ended(&said);
        said
    }
}
