use super::*;

fn range(owner: u64, start: u64, end: u64, exclusive: bool) -> Range {
    Range { session: 1, lock: HeldLock { owner, pid: 1, start, end, exclusive } }
}

impl RangeLocks {
    /// A session has these locks on a file, and the store, too.
    fn set(&self, flock: bool, ino: Ino, session: u64, locks: Vec<HeldLock>) {
        self.forget(flock, ino, session);
        self.load(flock, ino, session, None, locks);
    }
}

fn apply(held: &[Range], wanted: Range, change: Change) -> Vec<(u64, u64, bool)> {
    let mut file = File { held: held.to_vec(), ..File::default() };
    let Delta { removed, added } = changed(held, &wanted, change);
    file.change(wanted.session, removed, added);
    let mut after: Vec<_> =
        file.held.into_iter().map(|r| (r.lock.start, r.lock.end, r.lock.exclusive)).collect();
    after.sort();
    after
}

#[test]
fn what_an_owner_has_already_and_what_it_has_not_is_no_change() {
    let held = [range(1, 0, 9, true)];
    for (wanted, change) in [
        (range(1, 0, 9, true), Change::Lock),
        (range(1, 3, 5, true), Change::Lock),
        (range(1, 10, 19, true), Change::Unlock),
        (range(2, 0, 9, true), Change::Unlock),
    ] {
        let Delta { removed, added } = changed(&held, &wanted, change);
        assert!(removed.is_empty() && added.is_empty(), "{wanted:?} {change:?}");
    }
}

/// Each lock stored all ranges of its session on the file again: a megabyte, of 40,000.
#[test]
fn a_change_stores_the_pages_that_it_touches() {
    let locks = RangeLocks::default();
    let mut store: BTreeMap<Page, Vec<HeldLock>> = BTreeMap::new();
    let mut make = |wanted: Range, change| {
        let plan = locks.plan(false, Ino(1), &wanted, change);
        let written = plan.records.iter().map(|(_, locks)| locks.len()).sum::<usize>();
        for (page, held) in &plan.records {
            match held.is_empty() {
                true => store.remove(page),
                false => store.insert(*page, held.clone()),
            };
        }
        locks.make(false, Ino(1), 1, plan);
        let stored = store.values().map(Vec::len).sum::<usize>();
        assert_eq!(stored, locks.count(Ino(1), 1));
        written
    };
    for nth in 0..2_000 {
        // In no order, and apart from each other.
        let at = nth * 7 % 2_000 * 10;
        let stored = make(range(1, at, at + 3, true), Change::Lock);
        assert!(stored <= 513 + usize::from(nth < 513), "{nth}: {stored}");
        assert!(nth < 600 || stored <= 129, "{nth}: {stored}");
    }
    assert!(make(range(1, 5_000, 5_003, true), Change::Unlock) <= 129);
    assert!(make(range(1, 5_000, 5_999, true), Change::Lock) <= 3 * 129);
    make(range(1, 0, u64::MAX, true), Change::Unlock);
    assert!(store.is_empty());
    assert!(locks.table.lock().files.is_empty());
}

#[test]
fn an_unlock_in_the_middle_splits() {
    let held = [range(1, 0, 99, true)];
    let after = apply(&held, range(1, 10, 19, false), Change::Unlock);
    assert_eq!(after, [(0, 9, true), (20, 99, true)]);
    let to_end = [range(1, 10, u64::MAX, true)];
    let after = apply(&to_end, range(1, 50, u64::MAX, false), Change::Unlock);
    assert_eq!(after, [(10, 49, true)]);
}

#[test]
fn alike_neighbours_become_one_and_others_are_cut() {
    let held = [range(1, 0, 9, true), range(1, 20, 29, true), range(2, 0, 99, false)];
    let after = apply(&held, range(1, 10, 19, true), Change::Lock);
    assert_eq!(after, [(0, 29, true), (0, 99, false)]);
    let after = apply(&held[..2], range(1, 5, 24, false), Change::Lock);
    assert_eq!(after, [(0, 4, true), (5, 24, false), (25, 29, true)]);
}

#[test]
fn shared_locks_agree_and_exclusive_ones_do_not() {
    let locks = RangeLocks::default();
    locks.set(false, Ino(1), 1, vec![range(1, 0, 9, false).lock]);
    let other = |start, exclusive| Range { session: 2, ..range(1, start, start, exclusive) };
    assert_eq!(locks.conflict(false, Ino(1), &other(5, false)), None);
    assert!(locks.conflict(false, Ino(1), &other(5, true)).is_some());
    assert_eq!(locks.conflict(false, Ino(1), &other(10, true)), None);
    assert_eq!(locks.conflict(true, Ino(1), &other(5, true)), None, "flocks are apart");
}

#[test]
fn a_circle_of_waits_is_found_when_all_ask_again() {
    let locks = RangeLocks::default();
    for (ino, owner) in [(1, 1), (2, 2), (3, 3)] {
        locks.set(false, Ino(ino), owner, vec![range(owner, 0, 9, true).lock]);
    }
    let wants = |owner| Range { session: owner, ..range(owner, 0, 0, true) };
    let ask = |ino, owner| {
        let found = locks.wait(false, Ino(ino), &wants(owner)).is_in_circle();
        if found {
            locks.end_wait(false, Ino(ino), &wants(owner));
        }
        found
    };
    let all = [(2, 1), (3, 2), (1, 3)];
    assert!(all.iter().all(|(ino, owner)| !ask(*ino, *owner)));
    assert_eq!(all.map(|(ino, owner)| ask(ino, owner)), [false, false, true]);
    assert!(!ask(2, 1) && !ask(3, 2), "the third waits no more");
    assert!(!ask(1, 3));
    locks.set(false, Ino(1), 1, Vec::new());
    assert!(!ask(2, 1) && !ask(3, 2) && !ask(1, 3), "nobody is in the third's way");
}

#[test]
fn what_may_not_be_stored_is_known_until_it_is_set() {
    let locks = RangeLocks::default();
    locks.set(false, Ino(1), 1, vec![range(1, 0, 9, true).lock]);
    locks.unsettle(false, Ino(1), 1, [None, Some((1, 5))]);
    locks.unsettle(false, Ino(1), 2, [None]);
    let own = vec![range(1, 0, 9, true).lock];
    // The second page is one that there may be from now on.
    let first = BTreeMap::from([(None, own), (Some((1, 5)), Vec::new())]);
    let second = (2, BTreeMap::from([(None, Vec::new())]));
    assert_eq!(locks.unsettled(false, Ino(1)), [(1, first), second.clone()]);
    assert_eq!(locks.of_session(2), [(false, Ino(1))]);
    assert_eq!(locks.stored(false, Ino(1), 1), BTreeSet::from([None, Some((1, 5))]));
    locks.forget(false, Ino(1), 1);
    assert_eq!(locks.unsettled(false, Ino(1)), [second]);
    locks.settle(false, Ino(1), 2);
    assert!(locks.table.lock().files.is_empty());
}

#[test]
fn nothing_is_kept_of_files_without_locks() {
    let locks = RangeLocks::default();
    locks.set(true, Ino(1), 1, vec![range(1, 0, 9, true).lock]);
    let waiting = locks.wait(true, Ino(1), &range(2, 0, 9, true));
    locks.set(true, Ino(1), 1, Vec::new());
    drop(waiting);
    assert!(locks.table.lock().files.is_empty());
}
