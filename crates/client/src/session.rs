//! The session: what makes the metadata server remember our open files, locks and mutations.

use crate::ops::{done, unexpected};
use crate::patience::Patience;
use crate::share::Share;
use crate::told;
use crate::volume::Volume;
use futures::future::join_all;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use strake_base::task;
use strake_types::{Credentials, Error, ErrorKind, Ino, Result};
use strake_wire::attempts::Numbers;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp, MetaRequest};

/// Seconds (ticks of the background task) between two renewals.
const RENEW_TICKS: u64 = 5;
/// Closes of one report: they take a megabyte of a message.
const CLOSED_MAX: usize = 100_000;
/// Closes that a request carries that is about something else: many may be under way with the same.
const CARRIED_MAX: usize = 10_000;
/// How long an open that was given up is asked for again: until then the server forgets no later answer.
const UNHEARD_WAIT: Duration = Duration::from_secs(120);
/// The longest that one message about it is waited for: others wait for their turn meanwhile.
const UNHEARD_TRY: Duration = Duration::from_secs(2);
/// Numbers that a request says were given up, at most: those of cuts rather than others, and the newest.
const GIVEN_UP_MAX: usize = 128;

/// The client's side of its session. Short sections only; nothing here waits.
pub(crate) struct Session {
    state: Mutex<State>,
    /// Held by the one who opens a new session, so that all others wait for that one.
    pub(crate) reopening: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    /// Its id; 0 before the first.
    id: u64,
    /// Which incarnation of it the server counts our opens in; 0 before the first.
    incarnation: u64,
    /// The server grants claims on files.
    claims: bool,
    /// It takes attributes that were set together with what was written.
    with_writes: bool,
    /// It has others wait for changes of names that were answered before they were sent.
    behind: bool,
    /// The incarnation that was begun last, or from which they are counted: the server counts in it as soon as it has heard of it.
    begun: u64,
    /// Of mutations.
    numbers: Numbers,
    /// Those that are over though nobody has heard what has become of them, and whether they may cut a file: the server may do
    /// them yet.
    given_up: BTreeMap<u64, bool>,
    /// The last that may cut a file and was left out of these: there were too many.
    untold: u64,
    /// Files closed and not yet reported, with repeats.
    closed: Vec<u64>,
    /// How many closes of each file are not known to have been reported.
    owed: HashMap<u64, usize>,
    /// The last report, with its number, until it is known to have arrived.
    report: Option<meta::RenewSession>,
    /// Reports so far.
    reports: u64,
    /// Opens that were given up and are to be closed.
    unheard: Vec<Unheard>,
}

/// An open that was given up before it was answered: the server may count it, or will yet.
pub(crate) struct Unheard {
    pub(crate) ino: Ino,
    /// Its number, which is not over.
    pub(crate) seq: u64,
    /// When it was given up.
    pub(crate) since: Duration,
}

/// What a request says of its session.
pub(crate) struct Stamp {
    pub(crate) session: u64,
    pub(crate) incarnation: u64,
    /// Every mutation up to this number is over.
    pub(crate) answered: u64,
    /// Of those above it, what was given up.
    pub(crate) given_up: Vec<u64>,
    /// All that may cut a file is among them: none was left out.
    pub(crate) tells_cuts: bool,
}

impl State {
    /// A number is over, and nobody has heard what has become of it.
    fn give_up(&mut self, seq: u64, cuts: bool) {
        self.numbers.end(seq);
        self.given_up.insert(seq, cuts);
        if self.given_up.len() <= GIVEN_UP_MAX {
            return;
        }
        self.forget_answered();
        while self.given_up.len() > GIVEN_UP_MAX {
            let other = self.given_up.iter().find(|(_, cuts)| !**cuts).map(|(seq, _)| *seq);
            match other {
                Some(seq) => {
                    self.given_up.remove(&seq);
                }
                None => {
                    let cut = self.given_up.pop_first().map_or(0, |(seq, _)| seq);
                    self.untold = self.untold.max(cut);
                }
            }
        }
    }

    /// All below the oldest that is under way are over anyway.
    fn forget_answered(&mut self) {
        self.given_up = self.given_up.split_off(&self.numbers.oldest());
    }
}

impl Session {
    /// That of a client, which is a random number: so is the one from which it counts its incarnations. Should a server take
    /// its session for that of another, it has not the same.
    pub(crate) fn new(client: u64) -> Self {
        let state = State { begun: client >> 32, ..State::default() };
        Self { state: Mutex::new(state), reopening: Arc::default() }
    }

    /// Its id now.
    pub(crate) fn id(&self) -> u64 {
        self.state.lock().id
    }

    /// Fails if what was answered in a session, before it was sent, is to be carried out no more.
    pub(crate) fn check_answered_in(&self, session: u64) -> Result<()> {
        let state = self.state.lock();
        let detail = match () {
            () if state.id != session => "the session in which this was answered is over",
            () if !state.behind => {
                "the metadata server is of an earlier release, which knows no exclusive leases"
            }
            () => return Ok(()),
        };
        Err(Error::with(ErrorKind::Io, detail))
    }

    /// True if an open that the server counts in this incarnation, and of which we know, will be counted in
    /// any later one: none has begun yet.
    pub(crate) fn is_newest(&self, incarnation: u64) -> bool {
        self.state.lock().begun == incarnation
    }

    /// The next incarnation begins: whatever is known to be open from now on may be missing in what the
    /// server is told.
    fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.begun += 1;
        state.begun
    }

    /// A new or resumed session takes effect. What was closed in an earlier incarnation is not told any
    /// more: the server was told everything that is open.
    fn set(&self, session: &meta::Session, incarnation: u64) {
        let mut state = self.state.lock();
        (state.id, state.incarnation) = (session.session, incarnation);
        (state.claims, state.with_writes) = (session.claims, session.with_writes);
        state.behind = session.behind;
        state.closed.clear();
        state.owed.clear();
        state.report = None;
    }

    /// True if ranges of files that others have open may be claimed: who writes to such a file asks first.
    pub(crate) fn grants_claims(&self) -> bool {
        self.state.lock().claims
    }

    /// True if attributes that are set may be told with what was written.
    pub(crate) fn takes_with_writes(&self) -> bool {
        self.state.lock().with_writes
    }

    /// True if changes of names may be answered before they are sent.
    pub(crate) fn takes_behind(&self) -> bool {
        self.state.lock().behind
    }

    /// A number for a mutation; [`Session::end_mutation`] must follow.
    pub(crate) fn begin_mutation(&self) -> u64 {
        self.state.lock().numbers.begin()
    }

    /// The mutation is over, with whatever result.
    pub(crate) fn end_mutation(&self, seq: u64) {
        self.state.lock().numbers.end(seq);
    }

    /// The mutation, which may cut a file (`cuts`), is over, and nobody has heard what has become of it: whatever is asked
    /// for from now on tells the server so, that it does not do it after that.
    pub(crate) fn give_up_mutation(&self, seq: u64, cuts: bool) {
        self.state.lock().give_up(seq, cuts);
    }

    /// Nobody hears what has become of an open: its number is over when [`Volume::close_unheard`] has heard it.
    pub(crate) fn give_up_open(&self, open: Unheard) {
        self.state.lock().unheard.push(open);
    }

    /// The opens that were given up. The numbers of those that nobody has heard of for too long are over.
    fn take_unheard(&self, now: Duration) -> Vec<Unheard> {
        let state = &mut *self.state.lock();
        let mut opens = std::mem::take(&mut state.unheard);
        opens.retain(|open| {
            let waits = now < open.since + UNHEARD_WAIT;
            if !waits {
                state.give_up(open.seq, false);
            }
            waits
        });
        opens
    }

    /// Id and incarnation, and which mutations are over.
    pub(crate) fn stamp(&self) -> Stamp {
        let mut state = self.state.lock();
        state.forget_answered();
        let answered = state.numbers.oldest() - 1;
        Stamp {
            session: state.id,
            incarnation: state.incarnation,
            answered,
            given_up: state.given_up.keys().copied().collect(),
            tells_cuts: state.untold <= answered,
        }
    }

    /// A file to report as closed, so many times, if its opens were counted in the incarnation in force.
    pub(crate) fn add_closed(&self, ino: u64, times: usize, incarnation: u64) {
        let mut state = self.state.lock();
        if state.incarnation == incarnation && times > 0 {
            state.closed.extend(std::iter::repeat_n(ino, times));
            *state.owed.entry(ino).or_default() += times;
        }
    }

    /// What is to be reported as closed, if anything: first what may not have arrived, under the number it had.
    pub(crate) fn report(&self) -> Option<meta::RenewSession> {
        self.report_of(CLOSED_MAX)
    }

    /// The same, for requests that would arrive too late with a long one: of a long one that may not have arrived nothing.
    fn short_report(&self) -> Option<meta::RenewSession> {
        self.report_of(CARRIED_MAX).filter(|report| report.closed.len() <= CARRIED_MAX)
    }

    /// What is reported with an operation. Who opens a file anew is not told what was so while he had it open before.
    pub(crate) fn report_with(&self, op: &MetaOp) -> Option<meta::RenewSession> {
        let again = matches!(op, MetaOp::Open(open) if self.owes_close_of(open.ino));
        match again {
            true => self.report(),
            false => told::takes_names_away(op).then(|| self.short_report()).flatten(),
        }
    }

    fn report_of(&self, closed_max: usize) -> Option<meta::RenewSession> {
        let state = &mut *self.state.lock();
        if state.report.is_none() && !state.closed.is_empty() {
            state.reports += 1;
            let some = state.closed.len().min(closed_max);
            let closed = state.closed.drain(..some).collect();
            let (number, incarnation) = (state.reports, state.incarnation);
            state.report = Some(meta::RenewSession { closed, number, incarnation });
        }
        state.report.clone()
    }

    /// True if a close of this file is still to be reported.
    fn owes_close_of(&self, ino: u64) -> bool {
        self.state.lock().owed.contains_key(&ino)
    }

    /// A report has arrived.
    pub(crate) fn reported(&self, number: u64) {
        let state = &mut *self.state.lock();
        let arrived = state.report.take_if(|report| report.number == number);
        for ino in arrived.into_iter().flat_map(|report| report.closed) {
            if let Entry::Occupied(mut owed) = state.owed.entry(ino) {
                *owed.get_mut() -= 1;
                if *owed.get() == 0 {
                    owed.remove();
                }
            }
        }
    }
}

impl Volume {
    /// The first session with each share of this volume: with all of them, or with none.
    pub(crate) async fn open_sessions(&self) -> Result<()> {
        let opened = join_all(self.parts().iter().map(|share| self.renew_session(share, 0))).await;
        let opened: Result<()> = opened.into_iter().collect();
        if opened.is_err()
            && let Err(error) = self.close_sessions().await
        {
            tracing::debug!("what was opened of {} ends by itself: {error}", self.name());
        }
        opened
    }

    /// The next incarnation of the session, after one that the server does not know any more; a new session
    /// if it cannot go on with the old one. Those who come while it is being opened wait for it. It is opened also where its
    /// caller goes away: another one would be opened, and the server would count all files in both.
    pub(crate) async fn renew_session(&self, share: &Share, outdated: u64) -> Result<()> {
        let one = Arc::clone(&share.session.reopening).lock_owned().await;
        if share.session.stamp().incarnation != outdated {
            return Ok(());
        }
        let gone = || Error::with(ErrorKind::Interrupted, "the volume is closed");
        let (volume, id) = (self.own.upgrade().ok_or_else(gone)?, share.id);
        let opened = async move {
            let _one = one;
            volume.open_session(volume.part_of(id)).await
        };
        task::to_the_end(opened).await
    }

    /// One at a time of a share.
    async fn open_session(&self, share: &Share) -> Result<()> {
        let own = &share.session;
        let Stamp { session: old, .. } = own.stamp();
        self.end_leases(share);
        let incarnation = own.begin();
        self.forget_claims(share);
        let mut files = self.inodes().files();
        // What is unsent will be sent: until then the file counts as open.
        files.retain(|file| self.home(file.ino()) == share.id && file.core().is_used());
        let open: Vec<u64> = files.iter().map(|file| file.ino().0).collect();
        let writable = files.iter().filter(|file| file.core().may_write());
        let writable: Vec<u64> = writable.map(|file| file.ino().0).collect();
        let told: HashSet<u64> = writable.iter().copied().collect();
        let client = self.options().client_name.clone();
        let mount = self.attempts().client();
        let request = meta::OpenSession {
            client,
            resume: old,
            open,
            incarnation,
            writable,
            mount,
            claims: self.keeps_leases(),
            moves: self.follows_moves(),
            release: self.options().release.to_owned(),
            behind: self.writes_behind(),
        };
        let mut patience = Patience::new(self);
        let what = || format!("a session for {}", self.called(share.id));
        let session = loop {
            let since = self.map().owned_since(share.id);
            let op = MetaOp::OpenSession(request.clone());
            let request = self.session_request(share, (0, 0), op);
            let answer = tokio::select! {
                biased;
                answer = self.meta_once(request) => answer,
                error = patience.over() => Err(error),
            };
            let error = match answer {
                Ok(MetaAnswer::Session(session)) => break session,
                Ok(_) => return Err(unexpected("open session")),
                Err(error) => error,
            };
            patience.heed_owner(what, error, false, (share.id, since)).await?;
        };
        if old != 0 {
            let how =
                if session.resumed { "goes on" } else { "was lost with its locks; a new one" };
            tracing::warn!("session {old} of {} {how}: {}", self.called(share.id), session.session);
        }
        if old != 0 && !session.resumed {
            self.end_lives(share);
        }
        // Whoever waits for the session writes to them as to files of others.
        self.are_shared(&session.shared);
        own.set(&session, incarnation);
        // The server counts each file once now, however many handles there are.
        for file in &files {
            let told = session.resumed && told.contains(&file.ino().0);
            file.core().register_next(incarnation, told);
            self.forget_if_closed(file);
            // Or it was closed, and its state dropped, while the session was opened.
            let closes = file.core().give_up_opens();
            own.add_closed(file.ino().0, closes, incarnation);
        }
        Ok(())
    }

    /// A request of the session itself: in the name of nobody, and not to be remembered.
    pub(crate) fn session_request(
        &self,
        share: &Share,
        (session, incarnation): (u64, u64),
        op: MetaOp,
    ) -> MetaRequest {
        let cred = (&Credentials::root()).into();
        let (volume, leases) = (share.id.0, share.leases.number());
        let op = Some(op);
        MetaRequest { volume, session, cred, leases, incarnation, op, ..MetaRequest::default() }
    }

    /// Each second: reports closed files of a share, or shows that we are alive when it is time.
    pub(crate) async fn tick_session(&self, share: &Share, ticks: u64) {
        let report = share.session.report().unwrap_or_default();
        if report.closed.is_empty() && !ticks.is_multiple_of(RENEW_TICKS) {
            return;
        }
        let number = report.number;
        let answer =
            self.ask_share(share, &Credentials::root(), MetaOp::RenewSession(report)).await;
        match answer.and_then(|answer| done(&answer, "renew session")) {
            Ok(()) => share.session.reported(number),
            Err(error) => {
                tracing::debug!("cannot renew the session of {}: {error}", self.called(share.id));
            }
        }
    }

    /// Each second: closes what was opened for somebody who had given up.
    pub(crate) async fn close_unheard(&self, share: &Share) {
        let opens = share.session.take_unheard(self.now());
        // Side by side: one of them may wait long.
        join_all(opens.into_iter().map(|open| self.close_one_unheard(share, open))).await;
    }

    /// It is opened once more under its number, so that it counts once, whichever of the messages arrive and when.
    async fn close_one_unheard(&self, share: &Share, open: Unheard) {
        let own = &share.session;
        let Stamp { session, incarnation, .. } = own.stamp();
        let mode = meta::OpenMode { read: true, ..meta::OpenMode::default() };
        let op = MetaOp::Open(meta::Open { ino: open.ino.0, mode });
        let request = self.session_request(share, (session, incarnation), op);
        // What it would be leased nobody takes note of.
        let request = MetaRequest { seq: open.seq, leases: 0, ..request };
        let left = (open.since + UNHEARD_WAIT).saturating_sub(self.now()).min(UNHEARD_TRY);
        let late = |_| Error::new(ErrorKind::Unavailable);
        let asked = tokio::time::timeout(left, self.meta_once(request)).await.map_err(late);
        match asked.flatten() {
            Ok(_) => own.add_closed(open.ino.0, 1, incarnation),
            Err(error) if error.is_passing() => return own.give_up_open(open),
            Err(error) => {
                tracing::debug!("inode {}, given up, was not opened: {error}", open.ino);
            }
        }
        own.end_mutation(open.seq);
    }

    /// Ends the sessions that were opened, each whatever becomes of the others.
    pub(crate) async fn close_sessions(&self) -> Result<()> {
        let close = async |share: &Share| {
            let op = MetaOp::CloseSession(meta::Nothing {});
            done(&self.ask_share(share, &Credentials::root(), op).await?, "close session")
        };
        let opened = self.parts().iter().filter(|share| share.session.stamp().session != 0);
        join_all(opened.map(close)).await.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Core;
    use crate::testing::{Fake, create, options};

    #[test]
    fn what_was_given_up_is_told_as_long_as_something_older_is_under_way() {
        let session = Session::new(0);
        let older = session.begin_mutation();
        let later: Vec<u64> = (0..2 * GIVEN_UP_MAX).map(|_| session.begin_mutation()).collect();
        later.iter().for_each(|seq| session.give_up_mutation(*seq, false));
        let Stamp { answered, given_up, tells_cuts, .. } = session.stamp();
        assert_eq!((answered, &given_up[..]), (older - 1, &later[GIVEN_UP_MAX..]));
        assert!(tells_cuts, "there are none");
        session.end_mutation(older);
        let Stamp { answered, given_up, .. } = session.stamp();
        assert_eq!((Some(&answered), given_up.len()), (later.last(), 0));
    }

    /// The newest pushed them out of the list, and nobody knew that they were not told.
    #[test]
    fn cuts_that_were_given_up_are_told_before_all_else_and_it_is_known_when_one_is_not() {
        let session = Session::new(0);
        let give_up = |cuts: bool| {
            let seq = session.begin_mutation();
            session.give_up_mutation(seq, cuts);
            seq
        };
        let older = session.begin_mutation();
        let cut = give_up(true);
        for _ in 0..2 * GIVEN_UP_MAX {
            give_up(false);
        }
        let stamp = session.stamp();
        assert!(stamp.given_up.len() == GIVEN_UP_MAX && stamp.given_up.contains(&cut));
        assert!(stamp.tells_cuts);
        for _ in 1..GIVEN_UP_MAX {
            give_up(true);
        }
        assert!(session.stamp().tells_cuts && session.stamp().given_up.contains(&cut));
        give_up(false);
        assert!(session.stamp().tells_cuts && session.stamp().given_up.contains(&cut));
        give_up(true);
        assert!(!session.stamp().tells_cuts && !session.stamp().given_up.contains(&cut));
        session.end_mutation(older);
        assert!(session.stamp().tells_cuts, "it is over as all others are");
    }

    #[test]
    fn a_close_is_owed_until_the_report_of_it_has_arrived() {
        let session = Session::new(0);
        session.add_closed(2, 2, 0);
        session.add_closed(3, 1, 0);
        session.add_closed(4, 1, 7);
        assert!(session.owes_close_of(2) && session.owes_close_of(3));
        assert!(!session.owes_close_of(4), "it was counted in another incarnation");
        let first = session.report().unwrap();
        assert_eq!(first.closed, [2, 2, 3]);
        session.add_closed(2, 1, 0);
        session.reported(first.number);
        assert!(session.owes_close_of(2) && !session.owes_close_of(3));
        session.reported(first.number);
        assert!(session.owes_close_of(2), "it has arrived before");
        session.set(&meta::Session { session: 1, ..meta::Session::default() }, 1);
        assert!(!session.owes_close_of(2) && session.report().is_none());
    }

    /// Who may write to which file may be listed already for the session that begins: its server counts this one as nobody.
    #[tokio::test]
    async fn who_wakes_while_another_session_begins_is_not_awake() {
        let volume = Arc::new(Fake::default()).volume(options()).await;
        let file = create(&volume, "a").await;
        let mut core = file.state.core();
        let incarnation = core.incarnation;
        let wake = |core: &mut Core| {
            core.awake = 0;
            volume.woken(&file.state, core, volume.now(), incarnation);
            core.is_awake()
        };
        assert!(wake(&mut core));
        volume.session(file.ino()).begin();
        assert!(!wake(&mut core));
    }

    #[test]
    fn requests_carry_short_reports_only() {
        let session = Session::new(0);
        session.add_closed(2, CARRIED_MAX + 1, 0);
        let short = session.short_report().unwrap();
        assert_eq!(short.closed.len(), CARRIED_MAX);
        assert_eq!(session.report(), Some(short.clone()), "it may not have arrived");
        session.reported(short.number);
        assert_eq!(session.short_report().unwrap().closed.len(), 1);
        session.add_closed(2, CARRIED_MAX + 1, 0);
        session.set(&meta::Session { session: 1, ..meta::Session::default() }, 1);
        session.add_closed(2, CARRIED_MAX + 1, 1);
        let long = session.report().unwrap();
        assert_eq!((long.closed.len(), session.short_report()), (CARRIED_MAX + 1, None));
    }
}
