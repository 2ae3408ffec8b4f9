//! Long listings.

use crate::place;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, SeekFrom};
use std::collections::BTreeSet;
use std::fs;

#[test]
fn a_listing_of_ten_thousand_names_is_complete_and_its_cookies_are_stable() {
    let place = place("readdir");
    let names: BTreeSet<String> = (0..10_000).map(|n| format!("file-{n:05}")).collect();
    for name in &names {
        rustix::fs::mknodat(CWD, place.at(name), FileType::RegularFile, Mode::RUSR, 0).unwrap();
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut listing =
        Dir::new(rustix::fs::open(&place.path, flags, Mode::empty()).unwrap()).unwrap();
    let mut seen = Vec::new();
    let mut cookies = Vec::new();
    for entry in listing.by_ref() {
        let entry = entry.unwrap();
        seen.push(entry.file_name().to_string_lossy().into_owned());
        cookies.push(entry.offset());
        if seen.len() == 4_000 {
            // What others do meanwhile moves no cookie: half of what was seen goes, new names come.
            for name in seen.iter().filter(|n| !n.starts_with('.')).step_by(2) {
                fs::remove_file(place.at(name)).unwrap();
            }
            fs::write(place.at("a-late-one"), "").unwrap();
        }
    }
    let found: BTreeSet<_> = seen.iter().filter(|n| n.starts_with("file-")).cloned().collect();
    assert_eq!(
        found.len(),
        seen.iter().filter(|n| n.starts_with("file-")).count(),
        "no name twice"
    );
    assert_eq!(found, names);
    // A cookie leads to the entry after it, also from another handle.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let other = rustix::fs::open(&place.path, flags, Mode::empty()).unwrap();
    rustix::fs::seek(&other, SeekFrom::Start(cookies[7_000] as u64)).unwrap();
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut raw = rustix::fs::RawDir::new(&other, buffer.spare_capacity_mut());
    let next = raw.next().unwrap().unwrap();
    assert_eq!(next.file_name().to_string_lossy(), seen[7_001]);
}
