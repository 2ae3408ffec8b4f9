//! The bytes, and reading them back.

use super::record::{Draft, HEAD_BYTES, HEADER_BYTES, Header, Record, Salt, checksum};
use super::recovery::{Recovered, RecoveryError, recover};
use super::{AppendError, Journal, MARK_FILE, mark, segment_name};
use crate::kv::Writes;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use strake_base::disk::Disk;
use strake_base::disk::sim::{SimDisk, SimFault};

const SALT: Salt = Salt(*b"a secret");

fn writes(n: u64) -> Writes {
    let value = (!n.is_multiple_of(5)).then(|| Bytes::from(vec![n as u8; n as usize]));
    Writes::from([(vec![b'k', n as u8], value), (vec![b'x'], Some(Bytes::new()))])
}

/// A journal with versions 1 to `newest` and a sync after each of `syncs`.
fn journal(disk: &SimDisk, newest: u64, syncs: &[u64]) -> Journal {
    let mut journal = Journal::create(disk.process(), 1, 0, SALT).unwrap();
    for version in 1..=newest {
        assert!(
            journal
                .append(&mut Draft::new(&writes(version)).unwrap(), version, version - 1)
                .is_ok()
        );
        if syncs.contains(&version) {
            journal.take_unsynced().flush(&*disk.process()).unwrap();
            assert!(journal.note_synced(version, version).is_ok());
        }
    }
    journal
}

/// Takes the mark beside the journal away, which alone would say what was synced.
fn unmark(disk: &SimDisk) {
    disk.process().remove(MARK_FILE).unwrap();
}

fn read(disk: &Arc<dyn Disk>, durable: u64) -> Result<(Recovered, Vec<u64>), RecoveryError> {
    let mut versions = Vec::new();
    let recovered = recover(&**disk, durable, |version, found| {
        assert_eq!(*found, writes(version));
        versions.push(version);
        Ok(())
    })?;
    Ok((recovered, versions))
}

#[test]
fn what_was_appended_is_read_back() {
    let disk = SimDisk::new(1, 1 << 20);
    let journal = journal(&disk, 9, &[4]);
    let (recovered, versions) = read(&disk.process(), 0).unwrap();
    assert_eq!(versions, (1..=9).collect::<Vec<_>>());
    assert_eq!((recovered.newest, recovered.commits, recovered.cut), (9, 9, 0));
    assert_eq!(recovered.segments, [segment_name(1)]);
    assert!(journal.len() > HEADER_BYTES as u64);
}

#[test]
fn what_the_store_has_is_not_applied_again() {
    let disk = SimDisk::new(1, 1 << 20);
    journal(&disk, 9, &[]);
    let (recovered, versions) = read(&disk.process(), 6).unwrap();
    assert_eq!(versions, [7, 8, 9]);
    assert_eq!(recovered.newest, 9);
    let (recovered, versions) = read(&disk.process(), 12).unwrap();
    assert_eq!((recovered.newest, versions), (12, vec![]));
}

#[test]
fn records_go_on_in_the_next_segment() {
    let disk = SimDisk::new(1, 1 << 20);
    let mut journal = journal(&disk, 3, &[2]);
    let (number, _) = journal.rotate(3).unwrap();
    assert!(journal.append(&mut Draft::new(&writes(7)).unwrap(), 7, 3).is_ok());
    let (recovered, versions) = read(&disk.process(), 0).unwrap();
    assert_eq!(versions, [1, 2, 3, 7], "versions may have gaps, the chain has none");
    assert_eq!((recovered.newest, recovered.number), (7, number));
    let gone = journal.forget_before(number);
    assert_eq!(gone, [segment_name(1)]);
    disk.process().remove(&gone[0]).unwrap();
    assert_eq!(read(&disk.process(), 3).unwrap().1, [7]);
    let error = read(&disk.process(), 2).unwrap_err();
    assert!(matches!(error, RecoveryError::Corrupt(_)), "{error:?}");
}

#[test]
fn a_record_that_found_no_room_leaves_no_trace() {
    let disk = SimDisk::new(1, 1 << 20);
    let mut journal = journal(&disk, 2, &[]);
    disk.fault_after(0, SimFault::Full);
    let large = Writes::from([(b"large".to_vec(), Some(Bytes::from(vec![1; 30_000])))]);
    assert!(matches!(
        journal.append(&mut Draft::new(&large).unwrap(), 3, 2),
        Err(AppendError::Full)
    ));
    let file = disk.process().open(&segment_name(1), false).unwrap();
    assert_eq!(file.len().unwrap(), journal.len());
    assert!(journal.append(&mut Draft::new(&writes(4)).unwrap(), 4, 2).is_ok());
    assert_eq!(read(&disk.process(), 0).unwrap().1, [1, 2, 4]);
}

#[test]
fn what_follows_a_hole_is_not_applied() {
    for (noted, corrupt) in [(0, false), (3, true)] {
        let disk = SimDisk::new(1, 1 << 20);
        let mut journal = journal(&disk, 2, &[]);
        // The record of version 3 is missing altogether.
        assert!(journal.note_synced(noted, 2).is_ok());
        assert!(journal.append(&mut Draft::new(&writes(4)).unwrap(), 4, 3).is_ok());
        unmark(&disk);
        match read(&disk.process(), 0) {
            Ok((_, versions)) => assert!(!corrupt && versions == [1, 2]),
            Err(RecoveryError::Corrupt(_)) => assert!(corrupt),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_segment_of_a_newer_format_is_refused() {
    let disk = SimDisk::new(1, 1 << 20);
    let mut header = Header { number: 1, base: 0, synced: 0, salt: SALT }.encode();
    header[8] = 3;
    let crc = checksum(&[&header[8..12], &header[16..]]);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    let file = disk.process().open(&segment_name(1), true).unwrap();
    file.write_all_at(&header, 0).unwrap();
    assert!(matches!(read(&disk.process(), 0), Err(RecoveryError::Newer(3))));
}

#[test]
fn a_segment_under_a_wrong_name_does_not_count() {
    let disk = SimDisk::new(1, 1 << 20);
    journal(&disk, 3, &[3]);
    disk.process().rename(&segment_name(1), &segment_name(2)).unwrap();
    assert!(matches!(read(&disk.process(), 2), Err(RecoveryError::Corrupt(_))));
}

/// What a sync covered lies in a segment whose header is gone: only the salt tells what its records
/// say, and it is found in the first record or in the segment before.
#[test]
fn synced_records_behind_a_damaged_header_are_missed() {
    for damaged in [1, HEADER_BYTES, HEADER_BYTES + HEAD_BYTES] {
        for synced in [false, true] {
            let disk = SimDisk::new(1, 1 << 20);
            let mut journal = journal(&disk, 3, &[3]);
            journal.rotate(3).unwrap();
            assert!(journal.append(&mut Draft::new(&writes(4)).unwrap(), 4, 3).is_ok());
            if synced {
                assert!(journal.note_synced(4, 4).is_ok());
            }
            let file = disk.process().open(&segment_name(2), false).unwrap();
            file.write_all_at(&vec![0; damaged], 0).unwrap();
            unmark(&disk);
            match read(&disk.process(), 0) {
                Ok((_, versions)) => assert!(!synced && versions == [1, 2, 3]),
                Err(RecoveryError::Corrupt(_)) => assert!(synced),
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

/// The notes that said it went with the end.
#[test]
fn an_end_that_the_mark_calls_synced_is_missed_however_much_of_the_journal_is_gone() {
    for left in [None, Some(0), Some(HEADER_BYTES as u64), Some(600)] {
        let disk = SimDisk::new(1, 1 << 20);
        let len = journal(&disk, 9, &[9]).len();
        match left {
            None => disk.process().remove(&segment_name(1)).unwrap(),
            Some(left) => {
                assert!(left < len);
                let file = disk.process().open(&segment_name(1), false).unwrap();
                file.set_len(left).unwrap();
            }
        }
        match read(&disk.process(), 0) {
            Err(RecoveryError::Corrupt(cause)) => assert!(cause.contains("version 9"), "{cause}"),
            other => panic!("{left:?} bytes left: {other:?}"),
        }
    }
}

#[test]
fn a_mark_that_is_not_whole_or_of_a_newer_format_says_nothing() {
    let whole = mark::encode(9);
    let mut newer = whole;
    newer[8] = 2;
    let crc = checksum(&[&newer[..20]]);
    newer[20..].copy_from_slice(&crc.to_le_bytes());
    let zeros = [0; 24];
    let others = [&newer[..], &whole[..23], &zeros[..], &zeros[..1]];
    for (bytes, said) in [(&whole[..], 9)].into_iter().chain(others.map(|bytes| (bytes, 0))) {
        let disk = SimDisk::new(1, 1 << 20);
        let file = disk.process().open(MARK_FILE, true).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        assert_eq!(mark::read(&*disk.process()), said, "{bytes:?}");
    }
}

/// The store was poisoned, although the flush had succeeded, or did not open.
#[test]
fn a_mark_that_cannot_be_made_or_written_says_less_and_stops_nothing() {
    // Name, length, header and sync of the segment come before it is made; of a sync, the note before it is written.
    for fault in [SimFault::Io, SimFault::Full] {
        let disk = SimDisk::new(1, 1 << 20);
        disk.fault_after(4, fault);
        let mut written = journal(&disk, 9, &[9]);
        assert!(!disk.process().list().unwrap().contains(&MARK_FILE.to_owned()), "{fault:?}");
        assert!(written.note_synced(9, 9).is_ok());
        assert_eq!(read(&disk.process(), 0).unwrap().0.newest, 9);

        let disk = SimDisk::new(1, 1 << 20);
        let mut written = journal(&disk, 9, &[4]);
        disk.fault_after(1, fault);
        assert!(written.note_synced(9, 9).is_ok());
        assert_eq!(mark::read(&*disk.process()), 4, "{fault:?}");
        assert!(written.note_synced(9, 9).is_ok());
        assert_eq!(read(&disk.process(), 0).unwrap().0.newest, 9);
        // It cannot be emptied.
        disk.fault_after(4, fault);
        Journal::create(disk.process(), 2, 9, SALT).unwrap();
        assert!(mark::read(&*disk.process()) > 0, "{fault:?}");
        assert_eq!(read(&disk.process(), 9).unwrap().0.newest, 9);
    }
}

/// Were the writes behind each of these heads looked at, this would take a day.
#[test]
fn a_hundred_thousand_heads_that_claim_everything_behind_them_are_looked_at_once() {
    let bytes = 100_000 * HEAD_BYTES;
    let mut heads = Vec::with_capacity(bytes);
    for n in 0..100_000_u32 {
        let mut head = Draft::note().finish(SALT, 1, 1, u64::from(n)).to_vec();
        let claimed = (bytes - heads.len() - HEAD_BYTES) as u32;
        head[12..16].copy_from_slice(&claimed.to_le_bytes());
        let crc = checksum(&[&head[..8], &head[12..]]);
        head[8..12].copy_from_slice(&crc.to_le_bytes());
        heads.extend_from_slice(&head);
    }
    assert!(Record::decode(&heads, SALT).is_none());
    assert_eq!(Record::highest_synced(&heads, SALT), Some(99_999));
    assert_eq!(Record::highest_synced(&heads, Salt(*b"a guess.")), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_records_or_not(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let salt = Record::salt(&bytes).unwrap_or(SALT);
        let _record = (Record::decode(&bytes, salt), Record::highest_synced(&bytes, salt));
        let _header = Header::decode(&bytes);
    }

    #[test]
    fn a_changed_record_is_no_record(n in 1_u64..60, at in any::<usize>(), mask in 1_u8..) {
        let mut bytes = Draft::new(&writes(n)).unwrap().finish(SALT, n, n - 1, 0).to_vec();
        prop_assert_eq!(Record::decode(&bytes, SALT).unwrap().writes, writes(n));
        let at = at % bytes.len();
        bytes[at] ^= mask;
        prop_assert!(Record::decode(&bytes, SALT).is_none());
    }

    #[test]
    fn a_damaged_journal_is_a_prefix_or_corrupt(
        newest in 1_u64..30,
        synced in 0_u64..30,
        at in any::<u64>(),
        bit in 0_u8..8,
    ) {
        let disk = SimDisk::new(1, 1 << 20);
        let len = journal(&disk, newest, &[synced]).len();
        disk.flip_bit(&segment_name(1), at % len, bit);
        match read(&disk.process(), 0) {
            Ok((recovered, versions)) => {
                prop_assert_eq!(versions, (1..=recovered.newest).collect::<Vec<_>>());
                prop_assert!(recovered.newest >= synced.min(newest) || synced > newest);
            }
            // The header is always synced, before the first record.
            Err(RecoveryError::Corrupt(_)) => {
                prop_assert!((1..=newest).contains(&synced) || at % len < HEADER_BYTES as u64);
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}
