//! A database whose disk is full.

use super::server::SmallDisk;
use super::*;
use strake_base::random::SystemRandom;

const DISK_BYTES: u64 = 64 << 20;
const BALLAST_BYTES: usize = 16 << 20;
const LARGE_BYTES: usize = 1 << 20;
/// How often, and how long apart, it is looked whether something has come about. Only a hang reaches the end.
const LOOKS_MAX: u32 = 3000;
const LOOK: Duration = Duration::from_millis(20);

/// Writes something for which it needs a new place.
async fn put_large(kv: &dyn Kv, key: &str) -> Result<Outcome> {
    // The database does not find a way to store it in less.
    let mut value = vec![0; LARGE_BYTES];
    SystemRandom.fill(&mut value).unwrap();
    let mut transaction = Transaction::begin(kv).await?;
    transaction.put(key.as_bytes().to_vec(), value);
    transaction.commit(kv).await
}

/// Writes until there is no room: what it is told then.
async fn fill(kv: &dyn Kv) -> KvError {
    for nth in 0_u32.. {
        match put_large(kv, &format!("large{nth}")).await {
            Ok(Outcome::Committed) => {}
            Ok(outcome) => panic!("{outcome:?}"),
            Err(error) => return error,
        }
    }
    unreachable!("its disk is small");
}

/// Waits until one who takes room is let through.
async fn let_through(kv: &dyn Kv) {
    for _ in 0..LOOKS_MAX {
        if kv.check_room().is_ok() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("nobody is let through");
}

/// Waits until nobody is told any more that it is full.
async fn not_told(kv: &dyn Kv) {
    for _ in 0..LOOKS_MAX {
        if kv.full().is_none() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("it is told for ever");
}

fn is_full(result: &Result<Outcome>) -> bool {
    matches!(result, Err(KvError::Full { .. }))
}

#[test]
fn a_full_postgresql_lets_files_be_deleted_and_goes_on_when_room_comes_from_elsewhere() {
    let disk = SmallDisk::new(DISK_BYTES);
    disk.take(BALLAST_BYTES);
    let server = PostgresServer::start();
    let name = server.database_on(&disk);
    let options = DatabaseOptions { url: server.url(&name), ..postgres().options };
    let store = open_database(&options).unwrap();
    // It would make room for new keys of what was deleted.
    let by_itself =
        "ALTER TABLE strake_kv SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)";
    server.sql(&name, by_itself);
    run(async {
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        // The index of deleted keys gets its first page.
        assert_eq!(put(&*kv, "b", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(delete(&*kv, "b").await.unwrap(), Outcome::Committed);
        kv.check_room().unwrap();
        assert!(kv.full().is_none());

        let told = fill(&*kv).await;
        // If it took long to come here, the first to ask is let through.
        let refused = kv.check_room().and_then(|()| kv.check_room()).unwrap_err();
        for error in [told, refused, kv.full().unwrap()] {
            assert!(matches!(error, KvError::Full { .. }), "{error}");
            assert!(error.to_string().contains("give the database's disk room"), "{error}");
        }
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        // Also together with what finds no room.
        let (one, two, deleted, three) = tokio::join!(
            put_large(&*kv, "one"),
            put_large(&*kv, "two"),
            delete(&*kv, "large0"),
            put_large(&*kv, "three"),
        );
        assert!(is_full(&one) && is_full(&two) && is_full(&three), "{one:?} {two:?} {three:?}");
        assert_eq!(deleted.unwrap(), Outcome::Committed);
        assert!(is_full(&put_large(&*kv, "four").await), "what was deleted is not vacuumed");
        // Who is let through while there is none is told so, and another will be.
        let_through(&*kv).await;
        assert!(is_full(&put_large(&*kv, "five").await));

        disk.give_back();
        let_through(&*kv).await;
        assert_eq!(put_large(&*kv, "six").await.unwrap(), Outcome::Committed);
        kv.check_room().unwrap();
        kv.check_room().unwrap();
        not_told(&*kv).await;
    });
}
