//! Tables that others lock, and commits that take longer than one waits.

use super::guard::{LOOK, LOOKS_MAX};
use super::*;
use tokio_postgres::{Client, NoTls};

/// A session of somebody else.
async fn session(database: &Reached) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.options.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until somebody waits for the lock of a table.
async fn until_waited_for(database: &Reached, table: &str) {
    let waiting = format!(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{table}'::regclass"
    );
    for _ in 0..LOOKS_MAX {
        if database.sql(&waiting) != "0" {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("nobody waits for {table}");
}

/// Who wanted the table waited for the snapshot of a commit, which was kept until that had ended, and the commit waited behind
/// him: for ten seconds with each of eleven tries.
#[test]
fn a_commit_is_not_in_the_way_of_who_wants_a_table_for_himself() {
    let database = postgres();
    let kv = database.open().unwrap();
    run(async {
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        transaction.put(b"a".to_vec(), "1");
        let other = session(&database).await;
        let vacuum =
            tokio::spawn(async move { other.batch_execute("VACUUM FULL strake_writer").await });
        until_waited_for(&database, "strake_writer").await;
        assert_eq!(transaction.commit(&*kv).await.unwrap(), Outcome::Committed);
        vacuum.await.unwrap().unwrap();
    });
}

/// It was told of a conflict, and began again a hundred times and more.
#[test]
fn a_commit_that_has_waited_for_a_locked_table_is_told_so() {
    let mut database = postgres();
    database.options.wait_ms_max = 5_000;
    let kv = database.open().unwrap();
    run(async {
        let mut transaction = Transaction::begin(&*kv).await.unwrap();
        transaction.put(b"a".to_vec(), "1");
        let other = session(&database).await;
        other.batch_execute("BEGIN; LOCK TABLE strake_kv").await.unwrap();
        let error = transaction.commit(&*kv).await.unwrap_err().to_string();
        assert!(error.contains("shows who has locked a table"), "{error}");
        drop(other);
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
    });
}

/// Each try took as long again, and there were eleven.
#[test]
fn a_commit_that_takes_longer_than_one_waits_is_not_tried_again() {
    for (code, said) in
        [("55P03", "shows who has locked a table"), ("57014", "gives no answers to commits")]
    {
        let mut database = postgres();
        database.options.wait_ms_max = 500;
        let kv = database.open().unwrap();
        database.sql(&format!(
            "CREATE SEQUENCE tried; \
             CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 PERFORM nextval('tried'), pg_sleep(1); \
                 RAISE EXCEPTION 'so' USING ERRCODE = '{code}'; \
             END $$; \
             CREATE TRIGGER fail BEFORE INSERT ON strake_kv EXECUTE FUNCTION fail()"
        ));
        let error = run(put(&*kv, "a", "1")).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(database.sql("SELECT last_value FROM tried"), "1");
    }
}
