use super::*;
use std::ops::RangeInclusive;

const MIB: usize = 1 << 20;
const NAME_BYTES: usize = 20;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn entry(nth: u64) -> Entry {
    let name = Bytes::from(format!("{nth:0NAME_BYTES$}"));
    Entry { name, ino: Ino(1_000 + nth), kind: FileKind::File, cookie: nth, attr: None }
}

/// The entries with these cookies, which follow the one before the first.
fn page(cookies: RangeInclusive<u64>, end: bool) -> KeptPage {
    asked_at(ms(10), cookies, end)
}

fn asked_at(asked: Duration, cookies: RangeInclusive<u64>, end: bool) -> KeptPage {
    let after = cookies.start() - 1;
    let page = Page { entries: cookies.map(entry).collect(), end, parent: Ino(1) };
    KeptPage::new(&page, after, true, asked, false)
}

fn put(listings: &Listings, ino: u64, page: KeptPage) {
    listings.put(Ino(ino), page, || true);
}

fn found(listings: &Listings, ino: u64, after: u64) -> Option<Found> {
    listings.find(Ino(ino), after, true, |_| true)
}

/// The cookies of what is found at once of a directory, from a cookie on.
fn cookies(listings: &Listings, ino: u64, mut after: u64) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(found) = found(listings, ino, after) {
        let part = found.page.part(after, 7);
        all.extend(part.entries.iter().map(|entry| entry.cookie));
        if part.end {
            break;
        }
        after = part.entries.last().unwrap().cookie;
    }
    all
}

#[test]
fn entries_are_found_as_they_were_put() {
    let listings = Listings::new(MIB);
    put(&listings, 5, page(1..=100, true));
    let found = found(&listings, 5, 40).unwrap();
    let part = found.page.part(40, 3);
    let names: Vec<_> = part.entries.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(names, [41, 42, 43].map(|nth| entry(nth).name));
    assert_eq!(part.entries[0].ino, Ino(1_041));
    assert_eq!((part.end, part.parent, found.next), (false, Ino(1), None));
    let last = found.page.part(98, 9);
    assert_eq!((last.entries.len(), last.end), (2, true));
    let behind = found.page.part(100, 9);
    assert_eq!((behind.entries.len(), behind.end), (0, true));
    assert_eq!(cookies(&listings, 5, 0), (1..=100).collect::<Vec<_>>());
}

#[test]
fn pages_of_a_directory_follow_each_other() {
    let listings = Listings::new(MIB);
    put(&listings, 5, page(1..=100, false));
    assert_eq!(found(&listings, 5, 0).unwrap().next, Some(100), "to be fetched");
    assert!(found(&listings, 5, 100).is_none());
    put(&listings, 5, page(201..=250, true));
    assert_eq!(found(&listings, 5, 7).unwrap().next, Some(100), "there is a gap");
    put(&listings, 5, page(101..=200, false));
    assert_eq!(found(&listings, 5, 99).unwrap().next, None);
    assert_eq!(cookies(&listings, 5, 0), (1..=250).collect::<Vec<_>>());
    // Of an empty directory it is known that nothing follows.
    let empty = Page { entries: Vec::new(), end: true, parent: Ino(1) };
    put(&listings, 6, KeptPage::new(&empty, 0, true, ms(10), false));
    assert!(found(&listings, 6, 0).is_some_and(|found| found.page.part(0, 9).end));
}

#[test]
fn who_wants_attributes_finds_no_page_that_was_asked_for_without() {
    let listings = Listings::new(MIB);
    let names = Page { entries: vec![entry(1)], end: true, parent: Ino(1) };
    put(&listings, 5, KeptPage::new(&names, 0, false, ms(10), false));
    assert!(found(&listings, 5, 0).is_none());
    assert!(listings.find(Ino(5), 0, false, |_| true).is_some());
    put(&listings, 5, page(1..=1, true));
    assert!(found(&listings, 5, 0).is_some());
    assert!(listings.find(Ino(5), 0, false, |_| true).is_some());
}

#[test]
fn the_directory_used_longest_ago_goes_first_and_no_other() {
    let one = page(1..=10, true).held;
    let listings = Listings::new(1_000 * one);
    (0..1_000).for_each(|ino| put(&listings, ino, page(1..=10, true)));
    assert!((0..1_000).all(|ino| found(&listings, ino, 0).is_some()), "all have room");
    assert!(found(&listings, 0, 0).is_some());
    put(&listings, 1_000, page(1..=10, true));
    let gone: Vec<_> = (0..=1_000).filter(|ino| found(&listings, *ino, 0).is_none()).collect();
    assert_eq!(gone, [1]);
    assert_eq!(listings.bytes(), 1_000 * one);
    listings.shrink_to(10 * one);
    assert_eq!(listings.bytes(), 10 * one);
    assert!((991..=1_000).all(|ino| found(&listings, ino, 0).is_some()));
    listings.shrink_to(0);
    assert_eq!(listings.bytes(), 0);
}

#[test]
fn a_huge_directory_takes_only_its_share() {
    const PAGE: u64 = 2_048;
    const PAGES: u64 = 500;
    let listings = Listings::new(4 * MIB);
    let small = page(1..=10, true).held;
    (1..=100).for_each(|ino| put(&listings, ino, page(1..=10, true)));
    for nth in 0..PAGES {
        put(&listings, 7_777, page(nth * PAGE + 1..=(nth + 1) * PAGE, nth + 1 == PAGES));
        assert!(found(&listings, 7_777, nth * PAGE).is_some(), "what came last is here");
        assert!(listings.bytes() <= 100 * small + MIB);
    }
    assert!((1..=100).all(|ino| found(&listings, ino, 0).is_some()), "all others stay");
    // Its beginning is still here, without gaps, for whoever lists it again.
    let beginning = cookies(&listings, 7_777, 0);
    assert_eq!(beginning, (1..=beginning.len() as u64).collect::<Vec<_>>());
    let share = MIB / (size_of::<Row>() + NAME_BYTES);
    assert!((share / 2..=share).contains(&beginning.len()), "{} of {share}", beginning.len());
    listings.forget(Ino(7_777));
    assert_eq!(listings.bytes(), 100 * small);
}

#[test]
fn a_page_larger_than_the_share_is_kept_alone() {
    let listings = Listings::new(64 << 10);
    put(&listings, 5, page(1..=100, false));
    put(&listings, 5, page(101..=500, true));
    assert!(found(&listings, 5, 0).is_none() && found(&listings, 5, 100).is_some());
    assert_eq!(listings.bytes(), page(101..=500, true).held);
}

#[test]
fn what_is_no_longer_true_goes_and_nothing_else() {
    let listings = Listings::new(MIB);
    for ino in [5, 6] {
        put(&listings, ino, asked_at(ms(10), 1..=100, false));
        put(&listings, ino, asked_at(ms(30), 101..=200, true));
    }
    let since = |since: Duration| move |asked: Duration| asked >= since;
    assert!(listings.find(Ino(5), 150, true, since(ms(20))).is_some());
    assert!(listings.find(Ino(5), 0, true, since(ms(20))).is_none());
    assert!(found(&listings, 5, 0).is_none(), "it is gone for good");
    assert!(found(&listings, 5, 150).is_some(), "what was asked for later is not");
    // What follows is to be fetched anew.
    put(&listings, 5, asked_at(ms(50), 1..=100, false));
    let first = listings.find(Ino(5), 0, true, since(ms(40)));
    assert_eq!(first.and_then(|found| found.next), Some(100));
    listings.forget(Ino(5));
    assert!(found(&listings, 5, 0).is_none() && found(&listings, 5, 150).is_none());
    assert_eq!(cookies(&listings, 6, 0).len(), 200, "another directory");
    let both = page(1..=100, false).held + page(101..=200, true).held;
    assert_eq!(listings.bytes(), both);
    listings.put(Ino(7), page(1..=10, true), || false);
    assert!(found(&listings, 7, 0).is_none(), "it was not true when it came");
}
