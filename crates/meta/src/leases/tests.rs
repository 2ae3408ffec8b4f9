use super::holder::{LEASES_MAX, RECALLS_MAX};
use super::*;
use crate::ledger::Ledger;
use crate::session::{Session, Sessions};
use crate::tests::world::TestClock;
use futures::FutureExt;
use strake_types::limits::LEASE_MS_AT_SERVER;

/// A volume's leases, and who has them.
struct Table {
    leases: Arc<Leases>,
    sessions: Sessions,
    clock: TestClock,
}

impl Table {
    fn new() -> Self {
        Table { leases: Arc::default(), sessions: Sessions::default(), clock: TestClock::default() }
    }

    /// A session that has asked for recalls once.
    fn session(&self, id: u64) -> Arc<Session> {
        let session = Session::new(id, "test".into(), Ledger::default(), 1 << 40, false);
        let session = Arc::new(session);
        self.sessions.insert(session.clone());
        self.follow(&session, 0);
        session
    }

    /// A session that was there before the server started.
    fn expected(&self, id: u64) -> Arc<Session> {
        let session = Session::new(id, "test".into(), Ledger::default(), 1 << 40, true);
        let session = Arc::new(session);
        self.sessions.insert(session.clone());
        self.leases.expect(&session.holder, &self.clock);
        session
    }

    fn follow(&self, session: &Session, followed: u64) -> bool {
        self.leases.renew(&session.holder, followed, 0, &self.clock)
    }

    /// It has forgotten everything up to this number, and its kernel has not.
    fn forget(&self, session: &Session, forgotten: u64) -> bool {
        self.leases.renew(&session.holder, 0, forgotten, &self.clock)
    }

    /// Its kernel has, too.
    fn forget_and_follow(&self, session: &Session, number: u64) -> bool {
        self.leases.renew(&session.holder, number, number, &self.clock)
    }

    fn enter(&self, session: &Session, ino: u64) -> bool {
        self.enter_under(session, 1, ino)
    }

    fn enter_under(&self, session: &Session, number: u64, ino: u64) -> bool {
        self.leases.enter(&keeper(session, number), Ino(ino), false, &self.clock)
    }

    async fn change(&self, own: Option<&Session>, inodes: &[u64]) -> Changing {
        let inodes = inodes.iter().map(|ino| Ino(*ino)).collect();
        let own = own.map(|session| keeper(session, 1));
        let holders = || self.sessions.holders();
        self.leases.change(own.as_ref(), inodes, holders, &self.clock).await
    }

    fn is_free(&self, inodes: &[u64]) -> bool {
        self.change(None, inodes).now_or_never().is_some()
    }
}

fn keeper(session: &Session, number: u64) -> Keeper {
    Keeper { holder: session.holder.clone(), number }
}

fn fetched(session: &Session) -> Option<(u64, Vec<u64>, bool)> {
    let recalled = session.holder.fetch(FETCH).now_or_never()?;
    Some((recalled.number, recalled.inodes, recalled.everything))
}

#[tokio::test]
async fn a_change_waits_until_others_have_followed_and_not_for_its_own_session() {
    let table = Table::new();
    let (a, b) = (table.session(1), table.session(2));
    assert!(table.enter(&a, 7) && table.enter(&b, 7) && table.enter(&b, 8));
    assert!(table.change(Some(&b), &[8]).now_or_never().is_some(), "its own");
    {
        let change = table.change(Some(&b), &[7]);
        futures::pin_mut!(change);
        assert!(futures::poll!(change.as_mut()).is_pending());
        assert_eq!(fetched(&a), Some((1, vec![7], false)));
        assert_eq!(fetched(&b), None);
        table.follow(&a, 0);
        assert!(futures::poll!(change.as_mut()).is_pending(), "asked again without following");
        assert!(!table.enter(&a, 7), "while it changes");
        table.follow(&a, 1);
        let _changing = change.await;
        assert!(!table.enter(&a, 7), "while it changes");
        let own = table.leases.enter(&keeper(&b, 1), Ino(7), true, &table.clock);
        assert!(own, "but who changes it");
    }
    assert!(table.enter(&a, 7));
    assert_eq!(fetched(&a), None, "what was followed is over");
}

#[tokio::test]
async fn leases_that_are_over_are_not_waited_for() {
    let table = Table::new();
    let a = table.session(1);
    assert!(table.enter(&a, 7) && table.enter(&a, 8));
    {
        let change = table.change(None, &[7]);
        futures::pin_mut!(change);
        assert!(futures::poll!(change.as_mut()).is_pending());
        table.clock.advance_ms(LEASE_MS_AT_SERVER / 2);
        table.follow(&a, 0);
        table.clock.advance_ms(LEASE_MS_AT_SERVER / 2);
        // Those that were good when the recall was entered: what came later holds the recall.
        change.await;
    }
    assert!(!table.is_free(&[8]));
    table.clock.advance_ms(LEASE_MS_AT_SERVER);
    assert!(table.is_free(&[8]));
    assert!(!table.enter(&a, 9), "none without asking for recalls");
}

#[tokio::test]
async fn who_comes_back_after_its_leases_were_over_has_none() {
    let table = Table::new();
    let a = table.session(1);
    assert!(table.enter(&a, 7));
    table.clock.advance_ms(LEASE_MS_AT_SERVER);
    table.follow(&a, 0);
    assert!(table.is_free(&[7]));
    assert_eq!(table.leases.len(), 0);
}

#[tokio::test]
async fn a_recall_that_its_caller_gave_up_is_waited_for_by_the_next() {
    let table = Table::new();
    let a = table.session(1);
    assert!(table.enter(&a, 7));
    assert!(!table.is_free(&[7]));
    assert!(!table.enter(&a, 7), "until it was followed");
    assert!(!table.is_free(&[7]));
    table.follow(&a, 1);
    assert!(table.is_free(&[7]));
    assert_eq!(table.leases.len(), 0);
}

#[tokio::test]
async fn too_many_leases_end_by_recalls_of_the_oldest() {
    let table = Table::new();
    let a = table.session(1);
    for ino in 1..=LEASES_MAX as u64 + 2 {
        assert!(table.enter(&a, ino));
    }
    assert_eq!(fetched(&a), Some((2, vec![1, 2], false)));
    table.follow(&a, 2);
    assert!(table.is_free(&[1, 2]) && !table.is_free(&[3]));
    assert_eq!(table.leases.len(), LEASES_MAX);
}

/// Who listed a directory of more files than that lost the directory first, and looked each name up from then on.
#[tokio::test]
async fn what_is_entered_again_and_again_is_not_recalled_when_there_are_too_many() {
    let table = Table::new();
    let (a, directory) = (table.session(1), 1);
    for ino in 2..=LEASES_MAX as u64 + 2 {
        assert!(table.enter(&a, directory) && table.enter(&a, ino));
    }
    assert_eq!(fetched(&a), Some((2, vec![2, 3], false)));
}

#[tokio::test]
async fn too_many_recalls_become_one_of_everything_that_ends() {
    let table = Table::new();
    let a = table.session(1);
    let many = RECALLS_MAX as u64 + 10;
    assert!((1..=many).all(|ino| table.enter(&a, ino)));
    assert!((1..=many - 5).all(|ino| !table.is_free(&[ino])));
    let number = RECALLS_MAX as u64 + 1;
    assert_eq!(fetched(&a), Some((number, vec![], true)));
    // Changes go on, of what was leased and of what was not: no further recall comes of them.
    assert!(!table.is_free(&[many]) && !table.is_free(&[many + 1]) && !table.enter(&a, 5));
    assert_eq!(fetched(&a), Some((number, vec![], true)));
    assert_eq!(table.leases.len(), 0);
    table.forget_and_follow(&a, number);
    assert!(table.is_free(&[many]) && table.enter(&a, 5));
    assert_eq!(table.leases.clearing.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn nobody_waits_for_a_session_that_ends() {
    let table = Table::new();
    let a = table.session(1);
    assert!(table.enter(&a, 7) && table.enter(&a, 8));
    let change = table.change(None, &[7]);
    futures::pin_mut!(change);
    assert!(futures::poll!(change.as_mut()).is_pending());
    table.leases.end(&a.holder);
    drop(change.await);
    assert!(table.is_free(&[8]) && !table.enter(&a, 9));
    assert_eq!(table.leases.len(), 0);
}

#[tokio::test]
async fn leases_on_what_is_gone_are_forgotten() {
    let table = Table::new();
    let a = table.session(1);
    assert!(table.enter(&a, 7) && table.enter(&a, 8));
    table.leases.forget(Ino(7));
    table.leases.give_back(&a.holder, Ino(8));
    assert!(table.is_free(&[7, 8]));
    assert_eq!(table.leases.len(), 0);
    assert!(a.holder.state.lock().held.is_empty());
}

#[tokio::test]
async fn after_a_start_changes_wait_unless_only_their_own_session_kept_leases() {
    let table = Table::new();
    let (a, b) = (table.expected(1), table.expected(2));
    assert!(table.change(Some(&a), &[7]).now_or_never().is_none());
    table.leases.end(&b.holder);
    assert!(table.change(Some(&a), &[7]).now_or_never().is_some());
    assert!(!table.is_free(&[7]));
    table.clock.advance_ms(LEASE_MS_AT_SERVER);
    assert!(table.is_free(&[7]));
}

/// Changes once waited for 3.3 s after every start, although all mounts had come back at once.
#[tokio::test]
async fn after_a_start_changes_wait_no_longer_than_until_all_have_forgotten() {
    let table = Table::new();
    let (a, b) = (table.expected(1), table.expected(2));
    assert!(table.follow(&a, 0));
    assert_eq!(fetched(&a), Some((1, vec![], true)));
    assert!(table.follow(&a, 0), "it asks again, and has not followed");
    assert!(!table.enter(&a, 7));
    assert!(table.forget_and_follow(&a, 1), "it believes nothing before this is answered");
    assert!(!table.follow(&a, 1));
    assert!(table.enter(&a, 7));
    assert!(table.change(Some(&a), &[8]).now_or_never().is_none(), "the other has not");
    table.forget_and_follow(&b, 1);
    assert!(table.change(Some(&a), &[8]).now_or_never().is_some());
    assert!(!table.is_free(&[7]), "what is leased since then is recalled");
}

#[tokio::test]
async fn who_has_forgotten_everything_has_leases_again_while_its_kernel_is_waited_for() {
    let table = Table::new();
    let a = table.expected(1);
    table.follow(&a, 0);
    assert!(!table.enter(&a, 7));
    assert!(table.forget(&a, 1), "it believes nothing before this is answered");
    assert_eq!(fetched(&a), None);
    assert!(table.enter(&a, 7) && table.enter(&a, 8));
    assert!(!table.is_free(&[9]), "the kernel");
    assert!(!table.is_free(&[7]));
    assert_eq!(fetched(&a), Some((2, vec![7], false)));
    table.forget_and_follow(&a, 1);
    assert!(table.is_free(&[9]) && !table.is_free(&[7]) && !table.is_free(&[8]));
    table.follow(&a, 3);
    assert!(table.is_free(&[7, 8]));
    assert_eq!(table.leases.clearing.load(Ordering::SeqCst), 0);
}

/// Simulated by hand: its shares are taken out while it has long forgotten and asks anew. A lease that it got then went
/// with them, and was never recalled.
#[tokio::test]
async fn no_lease_is_given_while_the_shares_are_taken_out_of_whom_everything_is_recalled_from() {
    let table = Table::new();
    let a = table.session(1);
    let many = RECALLS_MAX as u64;
    assert!((1..=many + 2).all(|ino| table.enter(&a, ino)));
    assert!((1..=many).all(|ino| !table.is_free(&[ino])));
    let recalled = a.holder.recall(Ino(many + 1), now_ms(&table.clock), &table.leases.clearing);
    let Entered::Everything(inodes) = recalled else { panic!("there are too many") };
    table.forget(&a, many + 1);
    assert!(!table.enter(&a, many + 2), "it would be taken out with the others");
    table.leases.clear(vec![(a.holder.clone(), inodes)]);
    assert!(table.enter(&a, many + 2) && !table.is_free(&[many + 2]));
}

#[tokio::test]
async fn everything_may_be_recalled_once_more_before_kernels_have_forgotten() {
    let table = Table::new();
    let a = table.expected(1);
    table.follow(&a, 0);
    table.forget(&a, 1);
    let many = RECALLS_MAX as u64 + 1;
    assert!((1..=many).all(|ino| table.enter(&a, ino)));
    assert!((1..=many).all(|ino| !table.is_free(&[ino])));
    assert_eq!(fetched(&a), Some((many + 1, vec![], true)));
    table.forget_and_follow(&a, 1);
    assert!(!table.enter(&a, 7) && !table.is_free(&[many + 1]), "that was the first");
    table.forget_and_follow(&a, many + 1);
    assert!(table.enter(&a, 7) && table.is_free(&[many + 1]));
    assert_eq!(table.leases.clearing.load(Ordering::SeqCst), 0);
}

/// It does not know any more that it has forgotten everything, and for what its kernel is waited.
#[tokio::test]
async fn who_takes_its_session_up_again_is_told_of_everything_once_more() {
    let table = Table::new();
    let a = table.expected(1);
    table.follow(&a, 0);
    table.forget(&a, 1);
    a.holder.resume(1);
    assert_eq!(fetched(&a), Some((2, vec![], true)));
    table.forget_and_follow(&a, 1);
    assert!(!table.enter(&a, 7) && !table.is_free(&[7]), "said before");
    table.forget_and_follow(&a, 2);
    assert!(table.enter(&a, 7) && table.is_free(&[8]));
}

#[tokio::test]
async fn who_stops_answers_with_what_is_recalled() {
    let table = Table::new();
    let a = table.session(1);
    assert!(table.enter(&a, 7));
    assert!(!table.is_free(&[7]));
    a.holder.release();
    assert_eq!(fetched(&a), Some((1, vec![7], false)));
    table.follow(&a, 1);
    assert_eq!(fetched(&a), Some((1, vec![], false)));
}

/// A client that knows no better says that it has followed when it has forgotten everything itself.
#[tokio::test]
async fn who_does_not_say_that_it_has_forgotten_everything_is_not_believed_to_have_followed() {
    let table = Table::new();
    let a = table.expected(1);
    table.follow(&a, 1);
    assert!(!table.enter(&a, 7) && !table.is_free(&[8]));
    table.clock.advance_ms(LEASE_MS_AT_SERVER);
    table.follow(&a, 1);
    assert!(table.enter(&a, 7) && table.is_free(&[8]));
}

/// It was leased by the server before under a greater number than this change has: of that nobody knows here.
#[tokio::test]
async fn a_change_of_an_earlier_number_waits_until_its_own_session_has_forgotten() {
    let table = Table::new();
    let a = table.expected(1);
    a.holder.resume(2);
    assert!(table.change(Some(&a), &[7]).now_or_never().is_none());
    a.holder.state.lock().number = 1;
    assert!(table.change(Some(&a), &[7]).now_or_never().is_some());
}

/// What its mount believed was once not waited for: the new server knew of no lease.
#[tokio::test]
async fn who_does_not_come_back_after_a_start_believes_until_its_leases_are_over() {
    let table = Table::new();
    let a = table.expected(1);
    assert!(a.holder.believes(now_ms(&table.clock)));
    assert!(!table.is_free(&[7]));
    table.clock.advance_ms(LEASE_MS_AT_SERVER);
    assert!(!a.holder.believes(now_ms(&table.clock)));
    assert!(table.is_free(&[7]));
    assert_eq!(table.leases.clearing.load(Ordering::SeqCst), 0, "it is not looked for any more");
    assert!(table.follow(&a, 0));
    assert!(table.enter(&a, 7), "it believes nothing of before");
}

#[tokio::test]
async fn what_was_kept_of_leases_given_and_taken_again_is_bounded() {
    let table = Table::new();
    let a = table.session(1);
    for turn in 0..1000 {
        assert!(table.enter(&a, 7));
        assert!(!table.is_free(&[7]));
        table.follow(&a, turn + 1);
    }
    let state = a.holder.state.lock();
    assert!(state.order.len() <= 66 && state.waiting.is_empty());
}

/// The client has given it up, and may believe since what it is about to change.
#[tokio::test]
async fn a_change_that_comes_late_recalls_from_its_own_session() {
    let table = Table::new();
    let a = table.session(1);
    assert!(table.enter_under(&a, 1, 7) && table.enter_under(&a, 2, 8));
    assert!(table.change(Some(&a), &[7]).now_or_never().is_some());
    assert!(table.change(Some(&a), &[8]).now_or_never().is_none());
    assert!(table.enter_under(&a, 2, 7));
    assert!(table.change(Some(&a), &[7]).now_or_never().is_none());
}
