use super::*;
use strake_base::random::SplitMix64;

fn range(owner: u64, start: u64, end: u64, exclusive: bool) -> Range {
    Range { session: 1, lock: HeldLock { owner, pid: 1, start, end, exclusive } }
}

impl RangeLocks {
    /// A session has these locks on a file, and the store, too.
    fn set(&self, flock: bool, ino: Ino, session: u64, locks: Vec<HeldLock>) {
        self.forget(flock, ino, session);
        self.load(flock, ino, session, vec![(None, locks)]);
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

/// Bytes that tests lock.
const BYTES: usize = 10_000;

/// How each byte is locked: not at all, shared, alone.
fn cover<'a>(locks: impl Iterator<Item = &'a HeldLock>) -> Vec<u8> {
    let mut cover = vec![0u8; BYTES];
    for lock in locks {
        let end = lock.end.min(BYTES as u64 - 1) as usize;
        for byte in &mut cover[lock.start as usize..=end] {
            *byte = (*byte).max(1 + u8::from(lock.exclusive));
        }
    }
    cover
}

type Stored = BTreeMap<Page, Vec<HeldLock>>;

fn store(stored: &mut Stored, records: &[(Page, Vec<HeldLock>)]) {
    for (page, held) in records {
        match held.is_empty() {
            true => stored.remove(page),
            false => stored.insert(*page, held.clone()),
        };
    }
}

/// Makes a change, and fails if a server that stops after any of its records has been stored, or put back, would read back that a byte is
/// locked less than both before and after it.
fn change_stopping(locks: &RangeLocks, stored: &mut Stored, wanted: Range, change: Change) {
    let read = |stored: &Stored| cover(stored.values().flatten());
    let before = stored.clone();
    let plan = locks.plan(false, Ino(1), &wanted, change);
    let mut after = before.clone();
    store(&mut after, &plan.records);
    let least: Vec<u8> =
        read(&before).into_iter().zip(read(&after)).map(|(one, other)| one.min(other)).collect();
    let check = |stored: &Stored, what: &str| {
        let missing = least.iter().zip(read(stored)).position(|(least, now)| now < *least);
        assert_eq!(missing, None, "{what}: {wanted:?} {change:?}");
    };
    let mut on_the_way = before.clone();
    for record in &plan.records {
        store(&mut on_the_way, std::slice::from_ref(record));
        check(&on_the_way, "stored");
    }
    locks.unsettle(false, Ino(1), 1, plan.records.iter().map(|(page, _)| *page));
    for (_, pages) in locks.unsettled(false, Ino(1)) {
        for record in &pages {
            store(&mut on_the_way, std::slice::from_ref(record));
            check(&on_the_way, "put back");
        }
    }
    assert_eq!(read(&on_the_way), read(&before));
    locks.make(false, Ino(1), 1, plan);
    *stored = after;
    let table = locks.table.lock();
    let held = table.files.get(&(false, Ino(1))).into_iter().flat_map(|file| file.locks_of(1));
    assert_eq!(cover(held), read(stored));
}

/// The one that all others became lay in the first page, which was stored last, while the others had been deleted.
#[test]
fn no_lock_is_missing_while_many_become_one() {
    let (locks, mut stored) = (RangeLocks::default(), Stored::new());
    let mut make = |wanted, change| change_stopping(&locks, &mut stored, wanted, change);
    for nth in 0..600 {
        make(range(1, nth * 10, nth * 10 + 3, true), Change::Lock);
    }
    make(range(1, 2_005, 4_012, false), Change::Lock);
    make(range(1, 0, u64::MAX, false), Change::Lock);
    make(range(1, 0, u64::MAX, true), Change::Lock);
    make(range(1, 4_000, 5_000, true), Change::Unlock);
    make(range(1, 0, u64::MAX, true), Change::Unlock);
    assert!(stored.is_empty());
}

#[test]
fn no_lock_is_missing_while_a_change_is_stored_whichever_pages_it_touches() {
    for seed in 0..100 {
        let mut random = SplitMix64::new(seed);
        let (locks, mut stored) = (RangeLocks::default(), Stored::new());
        for nth in 0..10 {
            let page = (nth > 0).then_some((1, nth * 50));
            stored.insert(page, vec![range(1, nth * 50, nth * 50 + 3, true).lock]);
        }
        locks.load(false, Ino(1), 1, stored.clone().into_iter().collect());
        for _ in 0..40 {
            let start = random.below(500);
            let most = if random.percent(50) { 20 } else { 300 };
            let end = start + random.below(most);
            let change = if random.percent(70) { Change::Lock } else { Change::Unlock };
            let wanted = range(1, start, end, random.percent(50));
            change_stopping(&locks, &mut stored, wanted, change);
        }
    }
}

/// What had moved to a new page was still in the one of before, and came back when it had been given back.
#[test]
fn pages_of_a_change_that_was_stored_in_part_are_stored_anew() {
    let at = |start: u64| range(1, start, start, true).lock;
    let locks = RangeLocks::default();
    // Of the first page the last two locks were to go to a new one, of the second one nothing.
    let pages = vec![
        (None, vec![at(1), at(2), at(3)]),
        (Some((1, 2)), vec![at(2)]),
        (Some((1, 7)), vec![at(7)]),
    ];
    locks.load(false, Ino(1), 1, pages);
    assert_eq!(locks.count(Ino(1), 1), 4);
    let anew = vec![(Some((1, 2)), vec![at(2), at(3)]), (None, vec![at(1)])];
    assert_eq!(locks.unsettled(false, Ino(1)), [(1, anew)]);
    locks.set(false, Ino(1), 1, vec![at(1), at(2)]);
    assert!(locks.unsettled(false, Ino(1)).is_empty());
}

/// The two took each other's place: nothing was held any more.
#[test]
fn what_is_there_twice_after_a_change_that_was_stored_in_part_stays_when_it_is_locked_again() {
    let held = [range(1, 0, 50, true), range(1, 0, 100, true)];
    let mut file = File { held: held.to_vec(), ..File::default() };
    for (wanted, change) in
        [(range(1, 51, 60, true), Change::Unlock), (range(1, 10, 20, true), Change::Lock)]
    {
        let Delta { removed, added } = changed(&file.held, &wanted, change);
        file.change(1, removed, added);
        assert!(file.held.contains(&held[0]), "{wanted:?} {change:?}: {:?}", file.held);
    }
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
    // The second page is one that there may be from now on: what was to be stored last is put back first.
    let first = vec![(Some((1, 5)), Vec::new()), (None, own)];
    let second = (2, vec![(None, Vec::new())]);
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
