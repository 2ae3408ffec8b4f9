//! What is refused, and in which words.

use super::*;

#[test]
fn a_newer_or_damaged_store_is_refused() {
    let database = etcd();
    drop(database.open().unwrap());
    let (server, key) = (EtcdServer::shared(), format!("{}/store", database.name()));
    server.ctl(&["put", &key, "\x08\x02"]);
    assert!(matches!(database.open(), Err(KvError::Newer { found: 2, known: 1, .. })));
    server.ctl(&["put", &key, "nonsense"]);
    assert!(matches!(database.open(), Err(KvError::Corrupt { .. })));
    server.ctl(&["del", &key]);
    server.ctl(&["put", &format!("{}/map/k", database.name()), "v"]);
    assert!(matches!(database.open(), Err(KvError::Corrupt { .. })));
}

#[test]
fn an_empty_etcd_is_refused_to_a_server_that_had_a_store() {
    let mut database = etcd();
    database.options.create = false;
    assert!(database.refusal().contains("restore etcd from a backup"));
    let prefix = format!("{}/", database.name());
    assert_eq!(EtcdServer::shared().ctl(&["get", "--prefix", &prefix]), "");
}

#[test]
fn an_etcd_that_is_away_is_waited_for_and_then_named() {
    let mut database = etcd();
    database.options.url = "etcd://u:p@127.0.0.1:1/d".into();
    database.options.wait_ms_max = 400;
    let error = database.refusal();
    assert!(error.contains("etcd://u@127.0.0.1:1/d cannot be reached"), "{error}");
    assert!(error.contains("refused") && error.contains("--meta"), "{error}");
}

#[test]
fn what_is_no_etcd_is_not_taken_for_one() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let mut database = etcd();
    database.options.url = format!("etcd://127.0.0.1:{port}/d");
    database.options.wait_ms_max = 400;
    let error = database.refusal();
    assert!(error.contains("cannot be reached") && error.contains("--meta"), "{error}");
}

/// An etcd that asks who one is.
fn guarded() -> EtcdServer {
    let server = EtcdServer::start(1, &["--auth-token-ttl", "1"]);
    for words in [
        "user add root --new-user-password=root",
        "user grant-role root root",
        "user add strake --new-user-password=s3cret",
        "user add weak --new-user-password=weak",
        "role add strake",
        "role grant-permission strake readwrite --prefix=true n0/",
        "user grant-role strake strake",
        "auth enable",
    ] {
        server.ctl(&words.split(' ').collect::<Vec<_>>());
    }
    server
}

fn as_user(server: &EtcdServer, user: &str) -> Reached {
    let mut database = etcd_on(server);
    database.options.url = server.url("n0").replace("://", &format!("://{user}@"));
    database.options.wait_ms_max = 10_000;
    database
}

#[test]
fn who_has_no_rights_is_told_what_is_missing() {
    let server = guarded();
    for (user, said) in [
        ("strake:nonsense", "correct the user in --meta"),
        ("nobody:s3cret", "correct the user in --meta"),
        ("weak:weak", "grant-permission ROLE readwrite --prefix=true NAME/"),
    ] {
        let error = as_user(&server, user).refusal();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("s3cret") && !error.contains("nonsense"), "{error}");
    }
    let mut nobody = as_user(&server, "x");
    nobody.options.url = server.url("n0");
    assert!(nobody.refusal().contains("give --meta with a user: etcd://USER:PASSWORD@"));
    let needless = etcd();
    let url = needless.options.url.replace("://", "://strake:s3cret@");
    let options = DatabaseOptions { url, ..needless.options.clone() };
    let error = open_database(&options).err().unwrap().to_string();
    assert!(error.contains("authentication is not enabled"), "{error}");
    assert!(error.contains("take the user out of --meta"), "{error}");
}

/// Tokens end after a second without use there, and all at once when the member starts again.
#[test]
fn tokens_are_renewed_when_they_have_ended() {
    let server = guarded();
    let kv = as_user(&server, "strake:s3cret").open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let old = kv.snapshot().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        let many: Vec<_> = (0..8).map(|_| old.get(b"a")).collect();
        for value in futures::future::join_all(many).await {
            assert_eq!(value.unwrap().as_deref(), Some(&b"1"[..]));
        }
        server.crash(0);
        server.resume(0);
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"2");
    });
}

/// Writes until there is no room: how often it could, and what it was told then.
async fn fill(kv: &dyn Kv) -> (u32, KvError) {
    for written in 0_u32.. {
        let mut transaction = Transaction::begin(kv).await.unwrap();
        transaction.put(b"large".to_vec(), vec![written as u8; 1_000_000]);
        match transaction.commit(kv).await {
            Ok(Outcome::Committed) => {}
            Ok(outcome) => panic!("{outcome:?}"),
            Err(error) => return (written, error),
        }
    }
    unreachable!("its quota is small");
}

/// Makes room, and waits until that was noticed.
async fn make_room(server: &EtcdServer, kv: &dyn Kv) {
    server.ctl(&["compact", &server.revision()]);
    server.ctl(&["defrag"]);
    server.ctl(&["alarm", "disarm"]);
    while kv.check_room().is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What is there can be read, and changed again when there is room.
#[test]
fn a_full_etcd_says_so_and_goes_on_when_it_has_room() {
    let server = EtcdServer::start(1, &["--quota-backend-bytes", "8000000"]);
    let database = etcd_on(&server);
    let kv = database.open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let (written, error) = fill(&*kv).await;
        assert!(matches!(error, KvError::Full { .. }), "{error}");
        for said in [error.to_string(), kv.check_room().unwrap_err().to_string()] {
            assert!(said.contains("etcdctl alarm disarm"), "{said}");
        }
        assert!(written >= 2, "{written}");
        let snapshot = kv.snapshot().await.unwrap();
        let both = snapshot.multi_get(&[b"a".to_vec(), b"large".to_vec()]).await.unwrap();
        assert_eq!(both[0].as_deref(), Some(&b"1"[..]));
        assert_eq!(both[1].as_ref().unwrap()[0], written as u8 - 1);
        let mut delete = Transaction::begin(&*kv).await.unwrap();
        delete.delete(b"large".to_vec());
        assert!(matches!(delete.commit(&*kv).await, Err(KvError::Full { .. })));
        make_room(&server, &*kv).await;
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"2");
    });
}

/// Then no receipt can be put that would keep the commit from happening late; so ours is removed.
#[test]
fn a_commit_whose_answer_is_lost_while_etcd_is_full_is_settled() {
    let server = EtcdServer::start(1, &["--quota-backend-bytes", "8000000"]);
    let database = etcd_on(&server).through();
    let kv = database.open().unwrap();
    let state = database.state().clone();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let (_, error) = fill(&*kv).await;
        assert!(matches!(error, KvError::Full { .. }), "{error}");
        state.down_at_commit.store(true, Ordering::SeqCst);
        std::thread::spawn(move || {
            while !state.down.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(700));
            state.down.store(false, Ordering::SeqCst);
        });
        let lost = put(&*kv, "a", "2").await;
        assert!(matches!(lost, Err(KvError::Full { .. })), "{lost:?}");
        let receipts = format!("{}/receipt/", database.name());
        assert_eq!(server.ctl(&["get", "--prefix", "--keys-only", &receipts]), "");
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert!(matches!(put(&*kv, "a", "3").await, Err(KvError::Full { .. })));
        make_room(&server, &*kv).await;
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert_eq!(put(&*kv, "a", "4").await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"4");
    });
}

#[test]
fn a_change_that_is_too_large_is_refused_and_smaller_ones_are_not() {
    let server = EtcdServer::start(1, &["--max-request-bytes", "50000"]);
    let kv = etcd_on(&server).open().unwrap();
    let large = async |bytes: usize| {
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        transaction.put(bytes.to_be_bytes().to_vec(), vec![1; bytes]);
        transaction.commit(&*kv).await
    };
    run(async {
        for bytes in [60_000, 3_000_000] {
            let error = large(bytes).await.unwrap_err().to_string();
            assert!(error.contains("does not take a change of about"), "{error}");
            assert!(error.contains("--max-request-bytes"), "{error}");
        }
        // Together they are too large.
        let all = futures::future::join_all((0..20).map(|nth| large(10_000 + nth))).await;
        assert!(all.into_iter().all(|outcome| outcome.unwrap() == Outcome::Committed));
    });
}

#[test]
fn what_was_changed_by_hand_is_noticed() {
    let database = etcd();
    let store = database.store().unwrap();
    run(async {
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let receipts = format!("{}/receipt/", database.name());
        EtcdServer::shared().ctl(&["del", "--prefix", &receipts]);
        let error = put(&*kv, "a", "2").await.unwrap_err().to_string();
        assert!(error.contains("restored from a backup") && error.contains("goes on"), "{error}");
        assert!(kv.is_taken_over());
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        EtcdServer::shared().ctl(&["del", "--prefix", &format!("{}/claim/", database.name())]);
        let error = kv.snapshot().await.err().unwrap().to_string();
        assert!(error.contains("restored from a backup"), "{error}");
        assert!(kv.is_taken_over());
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
    });
}
