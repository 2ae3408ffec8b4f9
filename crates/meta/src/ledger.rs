//! The result ledger of a session: a mutation that is sent again is answered, not repeated.
//!
//! The reply to a numbered mutation is stored under `R` in the mutation's own transaction. This is
//! the part in memory: which numbers have a reply there, and which are being worked on, so that a
//! repeat waits for the first instead of racing it. What changed nothing (it was refused for good, or there
//! was nothing to do) is not stored, but remembered here: a copy of the message that comes late, when it
//! would change something, must not. Copies come by connections, which end with this process. What only opened a file is
//! answered anew: that it counts is remembered with what its session has open ([`crate::session`]).

use parking_lot::Mutex;
use prost::Message;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use strake_types::error::Advice;
use strake_types::{Ino, Result};
use strake_wire::message::meta::{MetaAnswer, MetaReply};
use tokio::sync::Notify;

/// Most replies forgotten by one transaction,
const FORGET_MAX: usize = 64;
/// unless it carries out so many requests that this for each is more: they leave more than they find else.
const FORGET_EACH: usize = 2;
/// Most answers remembered of one session that changed nothing; beyond, the oldest is forgotten.
const IDLE_MAX: usize = 1024;
/// Most numbers remembered of one session that its client has given up; beyond, the oldest is forgotten that the client names
/// no more.
const GIVEN_UP_MAX: usize = 1024;

/// Replies stored for one session that it has not acknowledged; beyond, it changes nothing until it has. A client acknowledges what
/// came before the oldest change that it waits for, which may be two minutes old: at 15,000 changes a second it comes close.
pub(crate) const STORED_MAX: usize = 2 << 20;

#[derive(Default)]
struct State {
    /// Numbers whose reply is stored.
    stored: BTreeSet<u64>,
    /// How those were answered that changed nothing.
    idle: BTreeMap<u64, Arc<Result<MetaAnswer>>>,
    /// Numbers whose reply may be stored: the store was lost in the middle of the commit.
    doubtful: BTreeSet<u64>,
    /// Numbers being worked on, and by how many: who has begun, and commits of his that may outlive him.
    running: HashMap<u64, u32>,
    /// Everything up to this number has been answered.
    answered: u64,
    /// Above that: what the client has given up while something older was under way.
    given_up: BTreeSet<u64>,
}

impl State {
    /// The client wants no answer any more to anything up to this number.
    fn hear(&mut self, answered: u64) {
        self.answered = self.answered.max(answered);
        let answered = self.answered;
        self.given_up.retain(|seq| *seq > answered);
    }

    fn is_over(&self, seq: u64) -> bool {
        seq <= self.answered || self.given_up.contains(&seq)
    }
}

/// The ledger of one session.
#[derive(Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
    ended: Notify,
}

/// What a number turned out to be.
pub(crate) enum Begin {
    /// A mutation not seen before, or a mere open; whoever holds this works on it.
    New(Running),
    /// Its reply is stored; the same.
    Repeat(Running),
    /// It has changed nothing, and was answered so; the same.
    Idle(Running, Arc<Result<MetaAnswer>>),
    /// Its reply has reached the client already, or is wanted no more: a late copy of the message.
    Late,
}

/// Marks a number as being worked on.
pub(crate) struct Running {
    ledger: Arc<Ledger>,
    seq: u64,
}

impl Ledger {
    /// A ledger whose stored replies have these numbers.
    pub fn with(stored: impl IntoIterator<Item = u64>) -> Self {
        let stored = stored.into_iter().collect();
        Ledger { state: Mutex::new(State { stored, ..State::default() }), ended: Notify::new() }
    }

    /// Begins on a number; waits while another works on the same.
    pub async fn begin(self: &Arc<Self>, seq: u64) -> Begin {
        loop {
            let ended = self.ended.notified();
            {
                let mut state = self.state.lock();
                let forgetful = strake_base::is_broken("mutations-are-remembered");
                let is_stored = state.stored.contains(&seq) && !forgetful;
                if !is_stored && state.is_over(seq) && !forgetful {
                    return Begin::Late;
                }
                let idle = state.idle.get(&seq).filter(|_| !forgetful).cloned();
                if let Entry::Vacant(place) = state.running.entry(seq) {
                    place.insert(1);
                    let running = Running { ledger: self.clone(), seq };
                    return match idle {
                        _ if is_stored => Begin::Repeat(running),
                        Some(answer) => Begin::Idle(running, answer),
                        None => Begin::New(running),
                    };
                }
            }
            ended.await;
        }
    }

    /// A number is worked on as long as this is there, too.
    pub fn work_on(self: &Arc<Self>, seq: u64) -> Running {
        *self.state.lock().running.entry(seq).or_default() += 1;
        Running { ledger: self.clone(), seq }
    }

    /// The client has answers to everything up to this number, or wants them no more; nor to some above it that it has
    /// given up.
    pub fn heard(&self, answered: u64, given_up: &[u64]) {
        let mut state = self.state.lock();
        state.given_up.extend(given_up.iter().take(GIVEN_UP_MAX));
        state.hear(answered);
        let too_many = state.given_up.len().saturating_sub(GIVEN_UP_MAX);
        if too_many > 0 {
            // Clients name longest what may cut a file.
            let named: BTreeSet<u64> = given_up.iter().take(GIVEN_UP_MAX).copied().collect();
            let unnamed = state.given_up.difference(&named).take(too_many);
            let unnamed: Vec<u64> = unnamed.copied().collect();
            state.given_up.retain(|seq| !unnamed.contains(seq));
        }
    }

    /// True if the client waits for no answer to this number any more.
    pub fn is_over(&self, seq: u64) -> bool {
        self.state.lock().is_over(seq)
    }

    /// True if the reply to this number is stored.
    pub fn is_stored(&self, seq: u64) -> bool {
        let forgetful = strake_base::is_broken("mutations-are-remembered");
        self.state.lock().stored.contains(&seq) && !forgetful
    }

    /// True if as many replies are stored as may be, and none of them may be deleted yet.
    pub fn is_full(&self) -> bool {
        let state = self.state.lock();
        let unheard = state.stored.first().is_some_and(|seq| *seq > state.answered);
        state.stored.len() >= STORED_MAX && unheard
    }

    /// The reply to this number is stored now.
    pub fn stored(&self, seq: u64) {
        let mut state = self.state.lock();
        state.doubtful.remove(&seq);
        state.stored.insert(seq);
    }

    /// The reply to this number may be stored or not.
    pub fn doubt(&self, seq: u64) {
        self.state.lock().doubtful.insert(seq);
    }

    /// True until it has been found out whether the reply to this number is stored.
    pub fn is_in_doubt(&self, seq: u64) -> bool {
        self.state.lock().doubtful.contains(&seq)
    }

    /// The reply to this number is not stored, and will not be.
    pub fn settled(&self, seq: u64) {
        self.state.lock().doubtful.remove(&seq);
    }

    /// This number has ended. Of what has changed nothing the answer is remembered until the client has answered for it,
    /// which it has up to `answered`; but not an error that it may try again after, nor what only opened a file: there are
    /// many, and they have large answers.
    pub fn ended(&self, seq: u64, answered: u64, answer: &Result<MetaAnswer>) {
        let mut state = self.state.lock();
        state.hear(answered);
        let after = state.answered;
        state.idle = state.idle.split_off(&(after + 1));
        state.doubtful = state.doubtful.split_off(&(after + 1));
        let again = answer.as_ref().is_err_and(|error| error.advice() != Advice::GiveUp);
        let opens = matches!(answer, Ok(MetaAnswer::Opened(_)));
        // What is stored is answered from there.
        if !again && !opens && !state.stored.contains(&seq) && !state.is_over(seq) {
            state.idle.insert(seq, Arc::new(answer.clone()));
        }
        while state.idle.len() > IDLE_MAX {
            state.idle.pop_first();
        }
    }

    /// Numbers up to `answered` whose replies may be deleted: for one of so many requests in a transaction, so that
    /// there is a bound to all of them. They count as forgotten; [`Ledger::keep`] takes that back.
    pub fn forget(&self, answered: u64, requests: usize) -> Vec<u64> {
        let most = (FORGET_MAX / requests.max(1)).max(FORGET_EACH);
        let mut state = self.state.lock();
        state.hear(answered);
        let old: Vec<u64> = state.stored.range(..=answered).take(most).copied().collect();
        for seq in &old {
            state.stored.remove(seq);
        }
        old
    }

    /// These replies could not be deleted.
    pub fn keep(&self, seqs: &[u64]) {
        self.state.lock().stored.extend(seqs);
    }
}

/// The file without a name that a stored reply says was made, and is open.
pub(crate) fn made_nameless(reply: &[u8]) -> Option<Ino> {
    match MetaReply::decode(reply).ok()?.answer? {
        MetaAnswer::Created(made) if made.opened.is_some() && made.attr.nlink == 0 => {
            Some(Ino(made.attr.ino))
        }
        _ => None,
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.ledger.state.lock();
        if let Some(times) = state.running.get_mut(&self.seq).filter(|times| **times > 1) {
            *times -= 1;
            return;
        }
        state.running.remove(&self.seq);
        drop(state);
        self.ledger.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use strake_types::{Error, ErrorKind};

    #[tokio::test]
    async fn a_repeat_waits_for_the_first_and_for_its_commit() {
        let ledger = Arc::new(Ledger::default());
        let Begin::New(first) = ledger.begin(1).await else { panic!("new") };
        let commit = ledger.work_on(1);
        {
            let second = ledger.begin(1);
            futures::pin_mut!(second);
            assert!(futures::poll!(second.as_mut()).is_pending());
            drop(first);
            assert!(futures::poll!(second.as_mut()).is_pending());
            ledger.stored(1);
            drop(commit);
            assert!(matches!(second.await, Begin::Repeat(_)));
        }
        assert_eq!(ledger.forget(1, 1), [1]);
        assert!(matches!(ledger.begin(1).await, Begin::Late));
        ledger.keep(&[1]);
        let Begin::Repeat(repeat) = ledger.begin(1).await else { panic!("it is stored") };
        assert!(ledger.begin(1).now_or_never().is_none(), "it is given again by one at a time");
        drop(repeat);
        assert!(matches!(ledger.begin(1).await, Begin::Repeat(_)));
    }

    #[tokio::test]
    async fn what_was_refused_is_refused_again_however_late_a_copy_comes() {
        let ledger = Arc::new(Ledger::default());
        let refused = Err(Error::new(ErrorKind::NotFound));
        for seq in [1, 2] {
            let Begin::New(running) = ledger.begin(seq).await else { panic!("new") };
            ledger.ended(seq, 0, &refused);
            drop(running);
        }
        assert!(matches!(ledger.begin(1).await, Begin::Idle(_, answer) if *answer == refused));
        ledger.forget(1, 1);
        assert!(matches!(ledger.begin(1).await, Begin::Late));
        assert!(matches!(ledger.begin(2).await, Begin::Idle(_, answer) if answer.is_err()));
        for seq in 3..3 + 2 * IDLE_MAX as u64 {
            ledger.ended(seq, 1, &refused);
        }
        assert_eq!(ledger.state.lock().idle.len(), IDLE_MAX);
        ledger.ended(5000, 4999, &refused);
        assert_eq!(ledger.state.lock().idle.len(), 1, "all others were answered");
        assert!(matches!(ledger.begin(9).await, Begin::Late));
    }

    #[test]
    fn however_many_requests_go_together_there_is_a_bound_to_what_they_delete() {
        for (requests, each) in [(1, 64), (2, 32), (32, 2), (256, 2)] {
            let ledger = Ledger::with(1..=1000);
            assert_eq!(ledger.forget(1000, requests).len(), each);
        }
    }

    /// Only what was older than all that was under way was known to be over.
    #[tokio::test]
    async fn what_was_given_up_is_over_although_something_older_is_not() {
        let ledger = Arc::new(Ledger::with([5]));
        ledger.heard(1, &[3, 5, 6]);
        assert!([1, 3, 5, 6].into_iter().all(|seq| ledger.is_over(seq)));
        assert!([2, 4, 7].into_iter().all(|seq| !ledger.is_over(seq)));
        assert!(matches!(ledger.begin(3).await, Begin::Late));
        assert!(matches!(ledger.begin(4).await, Begin::New(_)));
        assert!(matches!(ledger.begin(5).await, Begin::Repeat(_)), "it was done before");
        ledger.heard(4, &[]);
        assert!(ledger.is_over(6) && !ledger.is_over(7));
        let many: Vec<u64> = (10..10 + 2 * GIVEN_UP_MAX as u64).collect();
        many.chunks(100).for_each(|some| ledger.heard(4, some));
        assert_eq!(ledger.state.lock().given_up.len(), GIVEN_UP_MAX, "there is a bound to them");
        assert!(many.last().is_some_and(|last| ledger.is_over(*last)));
        assert!(!ledger.is_over(many[0]), "the oldest went first");
        ledger.heard(10_000, &[]);
        assert!(ledger.state.lock().given_up.is_empty());
    }

    /// It was the oldest, was forgotten with each message that named it, and was done late.
    #[test]
    fn what_a_client_goes_on_to_name_stays_given_up() {
        let ledger = Ledger::default();
        for seq in 10..10 + 2 * GIVEN_UP_MAX as u64 {
            ledger.heard(1, &[3, seq]);
        }
        assert!(ledger.is_over(3) && !ledger.is_over(10));
        assert_eq!(ledger.state.lock().given_up.len(), GIVEN_UP_MAX);
    }

    #[tokio::test]
    async fn a_failed_mutation_may_be_tried_again() {
        let ledger = Arc::new(Ledger::with([5]));
        let Begin::New(running) = ledger.begin(6).await else { panic!("new") };
        ledger.ended(6, 0, &Err(Error::new(ErrorKind::Unavailable)));
        drop(running);
        assert!(matches!(ledger.begin(6).await, Begin::New(_)));
        assert!(matches!(ledger.begin(5).await, Begin::Repeat(_)));
    }
}
