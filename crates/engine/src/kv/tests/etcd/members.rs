//! Several members, of which some die or stand still.

use super::*;

/// Puts a number, and again for as long as etcd is not reached.
fn write(kv: &dyn Kv, number: u32) {
    run(async {
        loop {
            let mut transaction = match Transaction::begin(kv).await {
                Ok(transaction) => transaction,
                Err(KvError::Unreachable { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            transaction.put(b"n".to_vec(), number.to_be_bytes().to_vec());
            match transaction.commit(kv).await {
                Ok(Outcome::Committed) => return,
                Ok(_) | Err(KvError::Unreachable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}

fn number(kv: &dyn Kv) -> u32 {
    run(async {
        loop {
            let got = match kv.snapshot().await {
                Ok(snapshot) => snapshot.get(b"n").await,
                Err(error) => Err(error),
            };
            match got {
                Ok(value) => return u32::from_be_bytes(value.unwrap()[..].try_into().unwrap()),
                Err(KvError::Unreachable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
}

#[test]
fn work_goes_on_while_one_member_of_three_is_dead_or_stands_still() {
    let server = EtcdServer::start(3, &[]);
    let database = etcd_on(&server);
    let kv = database.open().unwrap();
    let mut last = 0;
    let mut go_on = || {
        for _ in 0..20 {
            write(&*kv, last + 1);
            last += 1;
            assert_eq!(number(&*kv), last);
        }
    };
    go_on();
    let leader = server.leader();
    server.crash(leader);
    go_on();
    server.resume(leader);
    let leader = server.leader();
    server.stop(leader);
    go_on();
    server.go(leader);
    go_on();
    let follower = (server.leader() + 1) % 3;
    server.crash(follower);
    go_on();
    server.resume(follower);
    let follower = (server.leader() + 2) % 3;
    server.stop(follower);
    go_on();
    server.go(follower);
}

#[test]
fn without_most_members_requests_fail_and_go_on_afterwards() {
    let server = EtcdServer::start(3, &[]);
    let mut database = etcd_on(&server);
    database.options.wait_ms_max = 3_000;
    let kv = database.open().unwrap();
    write(&*kv, 1);
    let old = run(kv.snapshot()).unwrap();
    server.crash(0);
    server.crash(1);
    let error = run(kv.snapshot()).err().unwrap();
    assert!(matches!(error, KvError::Unreachable { .. }), "{error}");
    let writes = [(b"n".to_vec(), Some(2_u32.to_be_bytes().to_vec().into()))];
    let written = run(kv.commit(old, writes.into_iter().collect()));
    assert!(
        matches!(written, Ok(Outcome::Unknown) | Err(KvError::Unreachable { .. })),
        "{written:?}"
    );
    // Until the member that is left has noticed.
    assert!((0..100).any(|_| database.refusal().contains("have no leader")));
    server.resume_all(&[0, 1]);
    let found = number(&*kv);
    assert!(found == 1 || written.is_ok_and(|outcome| outcome == Outcome::Unknown), "{found}");
    write(&*kv, 3);
    assert_eq!(number(&*kv), 3);
}

#[test]
fn a_member_that_crashes_and_comes_back_is_waited_for() {
    let server = EtcdServer::start(1, &[]);
    let kv = etcd_on(&server).open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let old = kv.snapshot().await.unwrap();
        server.crash(0);
        server.resume(0);
        // What was is what it was.
        assert_eq!(old.get(b"a").await.unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
        let writes = [(b"a".to_vec(), Some("3".into()))].into_iter().collect();
        assert_eq!(kv.commit(old, writes).await.unwrap(), Outcome::Conflict);
    });
}

/// A commit whose answer was lost is not to be made good on an earlier state.
#[test]
fn a_restore_from_a_backup_is_noticed_also_with_a_commit_in_doubt() {
    let server = EtcdServer::start(1, &[]);
    let mut database = etcd_on(&server).through();
    database.options.wait_ms_max = 5_000;
    let kv = database.open().unwrap();
    let state = database.state();
    run(async {
        assert_eq!(put(&*kv, "a", "saved").await.unwrap(), Outcome::Committed);
        server.crash(0);
        server.save(0);
        server.resume(0);
        assert_eq!(put(&*kv, "a", "lost").await.unwrap(), Outcome::Committed);
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        transaction.put(b"a".to_vec(), "in doubt");
        state.down_at_commit.store(true, Ordering::SeqCst);
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Unknown);
        server.crash(0);
        server.restore(0);
        server.resume(0);
        state.down.store(false, Ordering::SeqCst);
        for _ in 0..3 {
            let error = put(&*kv, "a", "after").await.unwrap_err().to_string();
            assert!(error.contains("restored from a backup"), "{error}");
        }
    });
    let again = database.open().unwrap();
    assert_eq!(run(get(&*again, "a")).unwrap(), b"saved");
}

/// Both have opened the part at the same revision, one of them in a history that is gone.
#[test]
fn who_opened_a_part_before_a_restore_is_not_taken_for_who_did_after_it() {
    let server = EtcdServer::start(1, &[]);
    let database = etcd_on(&server);
    let first = database.open().unwrap();
    assert_eq!(run(put(&*first, "a", "saved")).unwrap(), Outcome::Committed);
    server.crash(0);
    server.save(0);
    server.resume(0);
    let gone = database.open().unwrap();
    server.crash(0);
    server.restore(0);
    server.resume(0);
    let next = database.open().unwrap();
    let error = run(put(&*gone, "a", "gone")).unwrap_err();
    assert!(matches!(error, KvError::TakenOver { .. }), "{error}");
    let error = run(put(&*first, "a", "gone")).unwrap_err();
    assert!(matches!(error, KvError::TakenOver { .. }), "{error}");
    assert_eq!(run(put(&*next, "a", "next")).unwrap(), Outcome::Committed);
}

#[test]
fn a_restore_is_noticed_by_who_only_reads() {
    let server = EtcdServer::start(1, &[]);
    let kv = etcd_on(&server).open().unwrap();
    assert_eq!(run(put(&*kv, "a", "saved")).unwrap(), Outcome::Committed);
    server.crash(0);
    server.save(0);
    server.resume(0);
    assert_eq!(run(put(&*kv, "a", "lost")).unwrap(), Outcome::Committed);
    server.crash(0);
    server.restore(0);
    server.resume(0);
    for _ in 0..2 {
        let error = run(kv.snapshot()).err().unwrap().to_string();
        assert!(error.contains("restored from a backup"), "{error}");
    }
}

/// They refused everything until their server was restarted, and whom others had written past was not even known to.
#[test]
fn parts_are_opened_anew_after_a_restore_also_where_others_have_written_since() {
    let server = EtcdServer::start(1, &[]);
    let database = etcd_on(&server);
    let (store, elsewhere) = (database.store().unwrap(), database.store().unwrap());
    run(async {
        let one = store.open(Part::Volume(1)).await.unwrap();
        let two = elsewhere.open(Part::Volume(2)).await.unwrap();
        let idle = store.open(Part::Volume(3)).await.unwrap();
        assert!(!one.is_taken_over() && !idle.is_taken_over());
        assert_eq!(put(&*one, "one", "saved").await.unwrap(), Outcome::Committed);
        assert_eq!(put(&*two, "two", "saved").await.unwrap(), Outcome::Committed);
        server.crash(0);
        server.save(0);
        server.resume(0);
        assert_eq!(put(&*one, "one", "lost").await.unwrap(), Outcome::Committed);
        assert_eq!(put(&*two, "two", "lost").await.unwrap(), Outcome::Committed);
        server.crash(0);
        server.restore(0);
        server.resume(0);
        let error = put(&*one, "one", "after").await.unwrap_err().to_string();
        assert!(error.contains("it has gone back to an earlier state"), "{error}");
        assert!(one.is_taken_over() && one.snapshot().await.is_err());
        assert!(idle.is_taken_over() && idle.snapshot().await.is_err());
        assert_eq!(store.times_gone_back(), 1);
        let again = store.open(Part::Volume(1)).await.unwrap();
        assert_eq!(get(&*again, "one").await.unwrap(), b"saved");
        for _ in 0..20 {
            assert_eq!(put(&*again, "one", "after").await.unwrap(), Outcome::Committed);
        }
        let error = put(&*two, "two", "after").await.unwrap_err().to_string();
        assert!(error.contains("receipt of our last change is not there"), "{error}");
        assert!(two.is_taken_over());
        assert_eq!((store.times_gone_back(), elsewhere.times_gone_back()), (1, 1));
        let again = elsewhere.open(Part::Volume(2)).await.unwrap();
        assert_eq!(get(&*again, "two").await.unwrap(), b"saved");
        assert_eq!(put(&*again, "two", "after").await.unwrap(), Outcome::Committed);
    });
}

/// It was told that another server had taken the part over, and nobody that something was lost.
#[test]
fn a_restore_to_before_a_part_was_opened_is_told_like_any_other() {
    let server = EtcdServer::start(1, &[]);
    let database = etcd_on(&server);
    let earlier = database.open().unwrap();
    assert_eq!(run(put(&*earlier, "a", "saved")).unwrap(), Outcome::Committed);
    server.crash(0);
    server.save(0);
    server.resume(0);
    let store = database.store().unwrap();
    run(async {
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(put(&*kv, "a", "lost").await.unwrap(), Outcome::Committed);
        server.crash(0);
        server.restore(0);
        server.resume(0);
        let error = put(&*kv, "a", "after").await.unwrap_err().to_string();
        assert!(error.contains("it has gone back to an earlier state"), "{error}");
        assert_eq!(store.times_gone_back(), 1);
    });
}

/// Etcd was asked once more whether it had, and where it was away again what was said was that.
#[test]
fn a_part_that_is_only_read_says_that_etcd_has_gone_back_also_while_that_is_away() {
    let server = EtcdServer::start(1, &[]);
    let database = etcd_on(&server);
    let store = database.store().unwrap();
    run(async {
        let busy = store.open(Part::Volume(1)).await.unwrap();
        let idle = store.open(Part::Volume(2)).await.unwrap();
        assert_eq!(put(&*busy, "a", "1").await.unwrap(), Outcome::Committed);
        server.ctl(&["del", "--prefix", &format!("{}/receipt/", database.name())]);
        put(&*busy, "a", "2").await.unwrap_err();
        server.crash(0);
        let error = idle.snapshot().await.err().unwrap().to_string();
        assert!(error.contains("it has gone back to an earlier state"), "{error}");
    });
}
