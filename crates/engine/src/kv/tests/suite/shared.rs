//! Several who open one store in a database.

use super::{get, put, run};
use crate::kv::{DatabaseOptions, Kv, KvError, Outcome, Part, Result, Store, Transaction};
use std::sync::Arc;

/// A store in a database, and the way to it.
pub trait Shared {
    /// Pairs that are moved there and back in a time that one waits for.
    const PAIRS: u32 = 20_000;

    /// As what it is opened.
    fn options(&mut self) -> &mut DatabaseOptions;

    fn store(&self) -> Result<Arc<dyn Store>>;

    /// How many commits the network has cut.
    fn cuts(&self) -> u32;

    fn open(&self) -> Result<Arc<dyn Kv>> {
        let store = self.store()?;
        // Some who call this run tasks already.
        std::thread::scope(|scope| scope.spawn(|| run(store.open(Part::Whole))).join().unwrap())
    }

    /// Why it cannot be opened.
    fn refusal(&self) -> String {
        self.open().err().expect("refused").to_string()
    }
}

pub fn a_later_start_of_the_same_server_takes_over(database: impl Shared) {
    let first = database.open().unwrap();
    run(async {
        assert_eq!(put(&*first, "a", "1").await.unwrap(), Outcome::Committed);
        let mut late = Transaction::begin(&*first).await.unwrap();
        late.put(b"a".to_vec(), "late");
        let second = database.store().unwrap().open(Part::Whole).await.unwrap();
        let error = late.commit(&*first).await.unwrap_err();
        assert!(error.to_string().contains("taken over by a server on here"), "{error}");
        assert!(matches!(first.snapshot().await, Err(KvError::TakenOver { .. })));
        assert!(first.is_taken_over());
        assert_eq!(get(&*second, "a").await.unwrap(), b"1");
        assert_eq!(put(&*second, "a", "2").await.unwrap(), Outcome::Committed);
    });
}

pub fn parts_of_a_store_are_taken_over_one_by_one(mut database: impl Shared) {
    let here = database.store().unwrap();
    database.options().host = "there".into();
    run(async {
        let control = here.open(Part::Control).await.unwrap();
        let (one, two) = (Part::Volume(1), Part::Volume(2));
        let ours = [here.open(one).await.unwrap(), here.open(two).await.unwrap()];
        for (kv, key) in [(&ours[0], "one"), (&ours[1], "two"), (&control, "control")] {
            assert_eq!(put(&**kv, key, "1").await.unwrap(), Outcome::Committed);
        }
        let there = database.store().unwrap();
        let mut late = Transaction::begin(&*ours[0]).await.unwrap();
        late.put(b"one".to_vec(), "late");
        let theirs = there.open(one).await.unwrap();
        let error = late.commit(&*ours[0]).await.unwrap_err().to_string();
        assert!(error.contains("taken over by a server on there"), "{error}");
        assert!(
            matches!(ours[0].snapshot().await, Err(KvError::TakenOver { by, .. }) if by == "there")
        );
        assert_eq!(put(&*theirs, "one", "2").await.unwrap(), Outcome::Committed);
        // The others go on, and see what was written there.
        assert_eq!(put(&*ours[1], "two", "2").await.unwrap(), Outcome::Committed);
        assert_eq!(put(&*control, "control", "2").await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*control, "one").await.unwrap(), b"2");
        let looked = here.look(&[b"one".to_vec(), b"none".to_vec(), b"two".to_vec()]).await;
        assert_eq!(looked.unwrap(), [Some("2".into()), None, Some("2".into())]);
        let whole = there.open(Part::Whole).await.unwrap();
        for kv in [&ours[1], &theirs, &control] {
            assert!(matches!(kv.snapshot().await, Err(KvError::TakenOver { .. })));
        }
        let again = here.open(two).await.unwrap();
        assert!(matches!(whole.snapshot().await, Err(KvError::TakenOver { .. })));
        assert_eq!(get(&*again, "two").await.unwrap(), b"2");
    });
}

pub fn the_store_of_another_server_is_refused(mut database: impl Shared) {
    let kv = database.open().unwrap();
    run(async { assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed) });
    database.options().store = "another".into();
    let error = database.refusal();
    assert!(error.contains("store own, made on here") && error.contains("database of its own"));
    run(async { assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed) });
}

/// Whoever began it never came to the point of having something in it.
pub fn a_store_that_was_begun_and_never_used_is_no_hindrance(mut database: impl Shared) {
    let begun = database.store().unwrap();
    let first = run(begun.open(Part::Whole)).unwrap();
    database.options().store = "another".into();
    let second = database.open().unwrap();
    run(async {
        assert!(matches!(put(&*first, "a", "1").await, Err(KvError::TakenOver { .. })));
        assert_eq!(put(&*second, "a", "2").await.unwrap(), Outcome::Committed);
        // Who had it open when it was given to another opens nothing in it any more.
        let error = begun.open(Part::Volume(1)).await.err().unwrap();
        assert!(matches!(error, KvError::OtherOwner { .. }), "{error}");
        assert_eq!(put(&*second, "a", "3").await.unwrap(), Outcome::Committed);
    });
    database.options().store = "own".into();
    assert!(database.refusal().contains("store another"));
}
