//! The bytes, and reading them back.

use super::record::{Draft, HEADER_BYTES, Header, Record};
use super::recovery::{Recovered, RecoveryError, recover};
use super::{AppendError, Journal, segment_name};
use crate::kv::Writes;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use strake_base::disk::Disk;
use strake_base::disk::sim::{SimDisk, SimFault};

fn writes(n: u64) -> Writes {
    let value = (!n.is_multiple_of(5)).then(|| Bytes::from(vec![n as u8; n as usize]));
    Writes::from([(vec![b'k', n as u8], value), (vec![b'x'], Some(Bytes::new()))])
}

/// A journal with versions 1 to `newest` and a sync after each of `syncs`.
fn journal(disk: &SimDisk, newest: u64, syncs: &[u64]) -> Journal {
    let mut journal = Journal::create(disk.process(), 1, 0).unwrap();
    for version in 1..=newest {
        assert!(
            journal.append(Draft::new(&writes(version)).unwrap(), version, version - 1).is_ok()
        );
        if syncs.contains(&version) {
            journal.take_unsynced().flush(&*disk.process()).unwrap();
            assert!(journal.note_synced(version, version).is_ok());
        }
    }
    journal
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
    assert!(journal.append(Draft::new(&writes(7)).unwrap(), 7, 3).is_ok());
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
    assert!(matches!(journal.append(Draft::new(&large).unwrap(), 3, 2), Err(AppendError::Full)));
    let file = disk.process().open(&segment_name(1), false).unwrap();
    assert_eq!(file.len().unwrap(), journal.len());
    assert!(journal.append(Draft::new(&writes(4)).unwrap(), 4, 2).is_ok());
    assert_eq!(read(&disk.process(), 0).unwrap().1, [1, 2, 4]);
}

#[test]
fn what_follows_a_hole_is_not_applied() {
    for (noted, corrupt) in [(0, false), (3, true)] {
        let disk = SimDisk::new(1, 1 << 20);
        let mut journal = journal(&disk, 2, &[]);
        // The record of version 3 is missing altogether.
        assert!(journal.note_synced(noted, 2).is_ok());
        assert!(journal.append(Draft::new(&writes(4)).unwrap(), 4, 3).is_ok());
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
    let mut header = Header { number: 1, base: 0, synced: 0 }.encode();
    header[8] = 2;
    let mut covered = header[8..12].to_vec();
    covered.extend_from_slice(&header[16..]);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &covered) as u32;
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    let file = disk.process().open(&segment_name(1), true).unwrap();
    file.write_all_at(&header, 0).unwrap();
    assert!(matches!(read(&disk.process(), 0), Err(RecoveryError::Newer(2))));
}

#[test]
fn a_segment_under_a_wrong_name_does_not_count() {
    let disk = SimDisk::new(1, 1 << 20);
    journal(&disk, 3, &[3]);
    disk.process().rename(&segment_name(1), &segment_name(2)).unwrap();
    assert!(matches!(read(&disk.process(), 2), Err(RecoveryError::Corrupt(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_records_or_not(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _any = (Record::decode(&bytes), Record::highest_synced(&bytes), Header::decode(&bytes));
    }

    #[test]
    fn a_changed_record_is_no_record(n in 1_u64..60, at in any::<usize>(), mask in 1_u8..) {
        let mut bytes = Draft::new(&writes(n)).unwrap().finish(n, n - 1, 0);
        prop_assert_eq!(Record::decode(&bytes).unwrap().writes, writes(n));
        let at = at % bytes.len();
        bytes[at] ^= mask;
        prop_assert!(Record::decode(&bytes).is_none());
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
