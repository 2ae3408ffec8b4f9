//! What only the engine on a database can meet: cut connections, refusals, and a second writer.

mod encrypted;
mod full;
mod locked;
#[path = "../../../../../../tests/src/postgres.rs"]
mod server;

// Where `server` looks for it, as in its own crate.
use super::guard;
use super::proxy::Protocol;
use super::reached::{self, Reached};
use super::suite::get;
pub use super::suite::shared::Shared;
pub use super::suite::{put, run};
use crate::kv::{DatabaseOptions, Kv, KvError, Outcome, Part, Result, Transaction, open_database};
use server::PostgresServer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// On the test program's server.
pub fn postgres() -> Reached {
    let server = PostgresServer::shared();
    Reached::new(Protocol::Postgres, server.port(), server.url(&server.database()))
}

impl Reached {
    /// Carries out SQL in it; what it prints.
    pub fn sql(&self, sql: &str) -> String {
        PostgresServer::shared().sql(self.name(), sql)
    }
}

pub async fn delete(kv: &dyn Kv, key: &str) -> Result<Outcome> {
    let mut transaction = Transaction::begin(kv).await?;
    transaction.delete(key.as_bytes().to_vec());
    transaction.commit(kv).await
}

#[test]
fn a_commit_is_unknown_while_the_database_is_away_and_settled_by_the_next_read() {
    reached::a_commit_is_unknown_while_it_is_away(postgres());
}

/// Nothing stood against the commit but that its predecessor was gone, and it was tried for ever.
#[test]
fn a_commit_meets_that_the_database_has_gone_back() {
    let database = postgres();
    let store = database.store().unwrap();
    run(async {
        let kv = store.open(Part::Volume(1)).await.unwrap();
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(put(&*kv, "b", "1").await.unwrap(), Outcome::Committed);
        // As a standby has it that lacks the last commit.
        database.sql("DELETE FROM strake_kv WHERE k = 'b'; UPDATE strake_writer SET seq = seq - 1");
        let error = put(&*kv, "a", "2").await.unwrap_err().to_string();
        assert!(error.contains("has gone back to an earlier state"), "{error}");
        assert!(kv.is_taken_over());
        let error = kv.snapshot().await.err().unwrap().to_string();
        assert!(error.contains("has gone back to an earlier state"), "{error}");
        assert_eq!(store.times_gone_back(), 1);
        let kv = store.open(Part::Volume(1)).await.unwrap();
        assert_eq!((get(&*kv, "a").await.unwrap(), get(&*kv, "b").await), (b"1".to_vec(), None));
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
    });
}

/// It was met by each part at its next commit, and told again: of one that nothing had been written in, hours later.
#[test]
fn parts_in_which_nothing_is_written_are_opened_anew_with_the_one_that_meets_it() {
    let database = postgres();
    let store = database.store().unwrap();
    run(async {
        let busy = store.open(Part::Volume(1)).await.unwrap();
        let idle = store.open(Part::Volume(2)).await.unwrap();
        assert_eq!(put(&*busy, "a", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(put(&*idle, "b", "1").await.unwrap(), Outcome::Committed);
        assert!(!busy.is_taken_over() && !idle.is_taken_over());
        database.sql("UPDATE strake_writer SET seq = seq - 1");
        put(&*busy, "a", "2").await.unwrap_err();
        assert!(idle.is_taken_over());
        let error = idle.snapshot().await.err().unwrap().to_string();
        assert!(error.contains("has gone back to an earlier state"), "{error}");
        let idle = store.open(Part::Volume(2)).await.unwrap();
        assert_eq!(put(&*idle, "b", "2").await.unwrap(), Outcome::Committed);
        assert!(!idle.is_taken_over());
        assert_eq!(store.times_gone_back(), 1);
    });
}

/// Programs were told of an I/O error while a restore made the tables anew.
#[test]
fn tables_that_are_made_anew_are_waited_for() {
    let mut database = postgres();
    database.options.wait_ms_max = 1_000;
    let kv = database.open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        database.sql("ALTER TABLE strake_kv RENAME TO away");
        let read = async || kv.snapshot().await?.get(b"a").await;
        let error = read().await.unwrap_err();
        assert!(matches!(error, KvError::Unreachable { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("\"strake_kv\" does not exist"), "{said}");
        assert!(said.contains("if it is not being restored, restore it from a backup"), "{said}");
        database.sql("ALTER TABLE away RENAME TO strake_kv");
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        // It gets its index after its rows.
        database.sql("ALTER TABLE strake_kv DROP CONSTRAINT strake_kv_pkey");
        let error = put(&*kv, "a", "2").await.unwrap_err();
        assert!(matches!(error, KvError::Unreachable { .. }), "{error}");
        database.sql("ALTER TABLE strake_kv ADD PRIMARY KEY (k)");
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
    });
}

/// A number that was lower than the last one was taken for one that did not happen, and what was known of the map went on
/// being believed.
#[test]
fn who_looks_for_a_lost_answer_meets_that_the_database_has_gone_back() {
    let (database, kv) = in_doubt();
    database.sql("UPDATE strake_writer SET seq = 1");
    database.state().down.store(false, Ordering::SeqCst);
    let error = run(kv.snapshot()).err().unwrap().to_string();
    assert!(error.contains("has gone back to an earlier state"), "{error}");
    assert!(kv.is_taken_over());
}

/// Its number was higher than any that was given here, and the writer went on from there as if it were its own.
#[test]
fn who_looks_for_a_lost_answer_and_finds_what_another_opening_wrote_meets_it_too() {
    let (database, kv) = in_doubt();
    database.sql("UPDATE strake_writer SET seq = seq + 1000");
    database.state().down.store(false, Ordering::SeqCst);
    let error = run(kv.snapshot()).err().unwrap().to_string();
    assert!(error.contains("has gone back to an earlier state"), "{error}");
    assert!(kv.is_taken_over());
}

/// Both had the same number and had written as often, so that each took the other's row for its own.
#[test]
fn who_has_opened_before_a_restore_writes_nothing_beside_the_one_who_got_its_number() {
    let database = postgres();
    let (store, elsewhere) = (database.store().unwrap(), database.store().unwrap());
    run(async {
        let before = store.open(Part::Volume(1)).await.unwrap();
        assert_eq!(put(&*before, "a", "1").await.unwrap(), Outcome::Committed);
        // As in a backup of before the opening.
        database.sql(
            "DELETE FROM strake_kv; DELETE FROM strake_writer; UPDATE strake_store SET writers = 0",
        );
        let after = elsewhere.open(Part::Volume(1)).await.unwrap();
        assert_eq!(put(&*after, "b", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(database.sql("SELECT writer FROM strake_writer"), "1");
        let error = put(&*before, "c", "1").await.unwrap_err().to_string();
        assert!(error.contains("has gone back to an earlier state"), "{error}");
        assert!(before.is_taken_over());
        assert_eq!(put(&*after, "b", "2").await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*after, "c").await, None);
    });
}

/// The row was missed as if the database were damaged, and a manager went on in the belief that it leads.
#[test]
fn who_looks_for_a_lost_answer_and_was_forgotten_is_taken_over() {
    let (database, kv) = in_doubt();
    database.sql("DELETE FROM strake_writer");
    database.state().down.store(false, Ordering::SeqCst);
    let error = run(kv.snapshot()).err().unwrap();
    assert!(matches!(error, KvError::TakenOver { .. }), "{error}");
    assert!(kv.is_taken_over());
}

/// The third commit of a writer was carried out, its answer lost, and the database is away.
fn in_doubt() -> (Reached, Arc<dyn Kv>) {
    let mut database = postgres().through();
    database.options.wait_ms_max = 5_000;
    let kv = database.open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        transaction.put(b"a".to_vec(), "3");
        let state = database.state();
        state.down_at_commit.store(true, Ordering::SeqCst);
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Unknown);
    });
    (database, kv)
}

#[test]
fn a_commit_that_arrives_when_it_was_given_up_does_not_happen() {
    reached::a_late_commit_does_not_happen(postgres());
}

#[test]
fn a_server_that_crashes_and_comes_back_is_waited_for() {
    let server = PostgresServer::start();
    let name = server.database();
    let options = DatabaseOptions { url: server.url(&name), ..postgres().options };
    let store = open_database(&options).unwrap();
    run(async {
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let old = kv.snapshot().await.unwrap();
        server.crash();
        server.resume();
        let lost = old.get(b"a").await.unwrap_err();
        assert!(matches!(lost, KvError::Unreachable { .. }), "{lost}");
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        let writes = [(b"a".to_vec(), Some("2".into()))].into_iter().collect();
        assert_eq!(kv.commit(old, writes).await.unwrap(), Outcome::Conflict);
        assert_eq!(put(&*kv, "a", "3").await.unwrap(), Outcome::Committed);
    });
}

#[test]
fn a_standby_that_is_promoted_takes_the_place_of_the_primary() {
    let primary = PostgresServer::start();
    let (name, standby) = (primary.database(), primary.standby());
    let url = primary.url_with(&standby, &name);
    let options = DatabaseOptions { url, wait_ms_max: 5_000, ..postgres().options };
    let kv = run(open_database(&options).unwrap().open(Part::Whole)).unwrap();
    assert_eq!(run(put(&*kv, "a", "1")).unwrap(), Outcome::Committed);
    primary.crash();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            standby.promote();
        });
        // It waits until there is a primary again.
        assert_eq!(run(get(&*kv, "a")).unwrap(), b"1");
        assert_eq!(run(put(&*kv, "a", "2")).unwrap(), Outcome::Committed);
    });
    // The old primary comes back as one, and would take whatever it is given.
    primary.resume();
    assert_eq!(run(get(&*kv, "a")).unwrap(), b"2");
    let later = run(open_database(&options).unwrap().look(&[b"a".to_vec()])).unwrap();
    assert_eq!(later[0].as_deref(), Some(&b"2"[..]), "who starts now finds the right one");
    standby.crash();
    let error = run(kv.snapshot()).err().unwrap().to_string();
    assert!(error.contains("another has taken its place (timeline 2)"), "{error}");
    assert!(error.contains("pg_rewind"), "{error}");
    standby.resume();
    assert_eq!(run(get(&*kv, "a")).unwrap(), b"2");
    assert_eq!(run(put(&*kv, "a", "3")).unwrap(), Outcome::Committed);
}

#[test]
fn who_has_slept_through_a_promotion_refuses_the_old_primary() {
    let primary = PostgresServer::start();
    let (name, standby) = (primary.database(), primary.standby());
    let url = primary.url_with(&standby, &name);
    let options = DatabaseOptions { url, wait_ms_max: 5_000, ..postgres().options };
    let kv = run(open_database(&options).unwrap().open(Part::Whole)).unwrap();
    assert_eq!(run(put(&*kv, "a", "1")).unwrap(), Outcome::Committed);
    primary.crash();
    standby.promote();
    primary.resume();
    // It has met no other primary than the old one, which would take this and lose it.
    assert_eq!(run(put(&*kv, "a", "2")).unwrap(), Outcome::Committed);
    let key = "SELECT encode(v, 'escape') FROM strake_kv WHERE encode(k, 'escape') = 'a'";
    assert_eq!(standby.sql(&name, key), "2");
}

/// Sessions keep for life what was set when they began. They were kept, and taken first, and managers took the lead from each
/// other for minutes after the database could be written again.
#[test]
fn connections_that_began_while_the_database_was_read_only_are_not_kept() {
    let database = postgres();
    let kv = database.open().unwrap();
    let set = |what: &str| {
        let sql = format!("ALTER DATABASE {} {what}", database.name());
        PostgresServer::shared().sql("postgres", &sql);
    };
    run(async {
        set("SET default_transaction_read_only = on");
        let held = [kv.snapshot().await.unwrap(), kv.snapshot().await.unwrap()];
        let error = put(&*kv, "a", "1").await.unwrap_err().to_string();
        assert!(error.contains("the database is read-only"), "{error}");
        assert_eq!(get(&*kv, "a").await, None, "it can be read");
        drop(held);
        set("RESET default_transaction_read_only");
        for value in ["1", "2", "3"] {
            assert_eq!(put(&*kv, "a", value).await.unwrap(), Outcome::Committed);
        }
        assert_eq!(get(&*kv, "a").await.unwrap(), b"3");
    });
}

/// Everybody writes all the time, with a connection each only while he does.
#[test]
fn many_parts_share_few_connections() {
    const PARTS: u32 = 40;
    let database = postgres();
    let store = database.store().unwrap();
    let mut open = Vec::new();
    run(async {
        for round in ["1", "2"] {
            for id in 1..=PARTS {
                let kv = store.open(Part::Volume(id)).await.unwrap();
                assert_eq!(put(&*kv, &format!("k{id}"), round).await.unwrap(), Outcome::Committed);
                open.push(kv);
            }
        }
    });
    let count = "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let connections: u32 = database.sql(count).trim().parse().unwrap();
    assert!(connections < PARTS / 2, "{connections} connections");
}

/// Changes of one volume that waited for a client that hangs had all places, and all others stood still.
#[test]
fn a_part_whose_snapshots_all_wait_leaves_some_to_others() {
    let mut database = postgres();
    database.options.wait_ms_max = 5_000;
    let store = database.store().unwrap();
    run(async {
        let one = store.open(Part::Volume(1)).await.unwrap();
        let other = store.open(Part::Volume(2)).await.unwrap();
        let mut held = Vec::new();
        while let Ok(snapshot) = one.snapshot().await {
            held.push(snapshot);
            assert!(held.len() < 100, "there is an end");
        }
        assert!(held.len() > 10, "{}", held.len());
        assert_eq!(put(&*other, "a", "1").await.unwrap(), Outcome::Committed);
        held.pop();
        assert_eq!(put(&*one, "b", "1").await.unwrap(), Outcome::Committed);
    });
}

#[test]
fn a_store_of_one_writer_becomes_one_of_parts() {
    let database = postgres();
    let old = database.open().unwrap();
    run(async { assert_eq!(put(&*old, "a", "1").await.unwrap(), Outcome::Committed) });
    database.sql("ALTER TABLE strake_writer DROP COLUMN part; UPDATE strake_store SET format = 1");
    let store = database.store().unwrap();
    run(async {
        let kv = store.open(Part::Volume(1)).await.unwrap();
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert!(matches!(old.snapshot().await, Err(KvError::TakenOver { .. })));
    });
    assert_eq!(database.sql("SELECT format FROM strake_store").trim(), "2");
}

/// A part was opened without a look at whose the store is by then.
#[test]
fn a_part_of_a_store_that_another_cluster_has_made_anew_is_not_opened() {
    let mut database = postgres();
    let store = database.store().unwrap();
    database.sql("DROP TABLE strake_kv, strake_writer, strake_store");
    let error = run(store.open(Part::Volume(1))).err().unwrap().to_string();
    assert!(error.contains("restore the database from a backup"), "{error}");
    database.options.store = "another".into();
    let theirs = database.open().unwrap();
    run(async {
        assert_eq!(put(&*theirs, "a", "1").await.unwrap(), Outcome::Committed);
        let opened = store.open(Part::Volume(1)).await;
        assert!(matches!(opened, Err(KvError::OtherOwner { .. })));
        assert_eq!(put(&*theirs, "a", "2").await.unwrap(), Outcome::Committed);
    });
}

#[test]
fn a_newer_or_damaged_database_is_refused() {
    let database = postgres();
    drop(database.open().unwrap());
    database.sql("UPDATE strake_store SET format = 3");
    assert!(matches!(database.open(), Err(KvError::Newer { found: 3, known: 2, .. })));
    database.sql("UPDATE strake_store SET format = 0");
    assert!(matches!(database.open(), Err(KvError::Older { found: 0, .. })));
    database.sql("DELETE FROM strake_store; INSERT INTO strake_kv VALUES ('k', 'v', 1, 0, NULL)");
    assert!(matches!(database.open(), Err(KvError::Corrupt { .. })));
}

/// It was reported as a wrong password.
#[test]
fn a_row_that_is_damaged_or_missing_is_named() {
    let database = postgres();
    let store = database.store().unwrap();
    run(async {
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        database.sql("UPDATE strake_kv SET v = NULL");
        let snapshot = kv.snapshot().await.unwrap();
        assert!(matches!(snapshot.get(b"a").await, Err(KvError::Corrupt { .. })));
        let looked = store.look(&[b"a".to_vec()]).await;
        assert!(matches!(looked, Err(KvError::Corrupt { .. })));
        database.sql("DELETE FROM strake_store");
        let error = store.open(Part::Whole).await.err().unwrap().to_string();
        assert!(error.contains("restore the database from a backup"), "{error}");
    });
}

#[test]
fn an_empty_database_is_refused_to_a_server_that_had_a_store() {
    let mut database = postgres();
    database.options.create = false;
    assert!(database.refusal().contains("restore the database from a backup"));
    assert_eq!(database.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'strake%'"), "0");
}

#[test]
fn a_wrong_password_user_or_database_is_named() {
    let mut database = postgres();
    let good = database.options.url.clone();
    for (right, wrong, said) in [
        ("strake-tests@", "nonsense@", "PGPASSWORD"),
        ("/postgres:", "/nobody:", "PGPASSWORD"),
        (&*format!("/{}", database.name()), "/missing", "createdb"),
    ] {
        database.options.url = good.replace(right, wrong);
        let error = database.refusal();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("strake-tests") && !error.contains("nonsense"), "{error}");
    }
}

#[test]
fn a_user_without_rights_is_told_what_is_missing() {
    let mut database = postgres();
    database.sql("CREATE USER weak PASSWORD 'weak'");
    let own = database.options.url.clone();
    database.options.url = own.replace("postgres:strake-tests", "weak:weak");
    let error = database.refusal();
    assert!(error.contains("permission denied") && error.contains("OWNER TO"), "{error}");
}

/// Who has no rights on a table does not see it in the catalog: the store looked as if it were not there.
#[test]
fn a_user_to_whom_the_tables_do_not_belong_is_told_what_to_do() {
    let mut database = postgres();
    drop(database.open().unwrap());
    database.sql("CREATE USER stranger PASSWORD 'stranger'");
    database.options.url =
        database.options.url.replace("postgres:strake-tests", "stranger:stranger");
    for create in [true, false] {
        database.options.create = create;
        let error = database.refusal();
        assert!(error.contains("permission denied for table strake_store"), "{error}");
        assert!(error.contains("REASSIGN OWNED BY"), "{error}");
    }
}

#[test]
fn a_read_only_database_is_refused_and_becomes_so_under_way() {
    let database = postgres();
    let kv = database.open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        let name = database.name();
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()";
        database.sql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
        database.sql(end);
        let error = put(&*kv, "a", "2").await.unwrap_err().to_string();
        assert!(error.contains("read-only"), "{error}");
        assert!(database.refusal().contains("read-only"));
        PostgresServer::shared()
            .sql("postgres", &format!("ALTER DATABASE {name} RESET default_transaction_read_only"));
        database.sql(end);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert_eq!(put(&*kv, "a", "3").await.unwrap(), Outcome::Committed);
    });
}

#[test]
fn a_database_that_is_away_is_waited_for_and_then_named() {
    let mut database = postgres();
    database.options.url = "postgres://u:p@127.0.0.1:1/d".into();
    database.options.wait_ms_max = 200;
    let error = database.refusal();
    assert!(error.contains("postgres://u@127.0.0.1:1/d cannot be reached"), "{error}");
    assert!(error.contains("refused") && error.contains("--meta"), "{error}");
}
