//! What sessions are asked to tell of what they have written to files, and their answers ([`crate::sharing`]).

use super::{Session, Sessions};
use std::sync::atomic::Ordering;
use strake_types::Ino;
use strake_wire::message::meta::Told;

impl Sessions {
    /// Has a session tell what it has written to a file, with what it fetches next.
    pub fn ask_to_tell(&self, session: &Session, ino: Ino) {
        let number = {
            let mut own = session.opens.lock();
            let Some(open) = own.counts.get_mut(&ino) else { return };
            if open.asked == 0 {
                open.asked = self.next_question();
            }
            open.asked
        };
        session.holder.ask_to_tell(ino, number, false);
    }

    /// Has a session tell once what it has written to a file until it hears of this question, or of a later one; its claims
    /// on the file it keeps.
    pub fn ask_to_show(&self, session: &Session, ino: Ino, question: u64) {
        let number = {
            let mut own = session.opens.lock();
            let Some(open) = own.counts.get_mut(&ino) else { return };
            open.looked = open.looked.max(question);
            open.looked
        };
        session.holder.ask_to_tell(ino, number, true);
    }

    /// True if a session has told what it had written to a file when it heard of such a question.
    pub fn has_shown(&self, session: &Session, ino: Ino, question: u64) -> bool {
        session.has(ino, |open| open.shown >= question)
    }

    /// Tells those who may write to a file, but for `own`, with what they fetch next, that a cut of it may stay undone: they ask
    /// before they write there again. Who keeps no leases fetches nothing.
    pub fn doubt_cut(&self, ino: Ino, own: Option<&Session>) {
        let mut writers = self.writers(ino);
        writers.retain(|id| own.is_none_or(|own| own.id != *id));
        let writers = writers.into_iter().filter_map(|id| self.get(id));
        for session in writers.filter(|session| session.keeps_leases) {
            session.holder.doubt_cut(ino);
        }
    }

    /// The number of a question that nobody has been asked yet.
    pub fn next_question(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The answer to a question: the session tells each write to a file that it holds open in this incarnation, and has
    /// given up its claims on it; or it has told what it had written, and that is all; or it rests.
    pub fn tells(&self, session: &Session, told: &Told, incarnation: u64) {
        let ino = Ino(told.ino);
        let mut own = session.opens.lock();
        if own.incarnation == incarnation
            && let Some(open) = own.counts.get_mut(&ino)
        {
            if told.rests {
                open.rests |= open.to_rest != 0 && open.to_rest == told.number;
            } else if told.kept && told.number <= open.looked {
                // A late copy is of an earlier question, and says no more than it did.
                open.shown = open.shown.max(told.number);
            } else if !told.kept && open.asked == told.number {
                (open.tells, open.keeps_pages) = (true, told.keeps_pages);
                self.claims.give_up(ino, session.id);
            }
        }
        drop(own);
        self.told.notify_waiters();
    }

    /// True if a session has not said yet that it tells what it writes to a file, and was asked to.
    pub fn is_asked(&self, session: &Session, ino: Ino) -> bool {
        session.has(ino, |open| open.asked != 0 && !open.tells)
    }
}
