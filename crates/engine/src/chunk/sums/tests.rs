use super::*;
use proptest::prelude::*;

fn sums(len: u64, blocks: &[(u32, u32)]) -> BlockSums {
    BlockSums::new(len, blocks.to_vec(), None).unwrap()
}

/// The same, with blocks that are reserved.
fn with_reserved(len: u64, blocks: &[(u32, u32)], reserved: &[u32]) -> BlockSums {
    BlockSums::new(len, blocks.to_vec(), Some(reserved.to_vec())).unwrap()
}

/// As docs/FORMATS.md has them. They are compared between releases: these numbers do not change.
#[test]
fn digests_are_as_the_formats_page_has_them() {
    assert_eq!(*crc::ZERO_BLOCK, 0x98f9_4189);
    let zero = 0x98f9_4189;
    let data = sums(20_000, &[(0, 1), (1, 2), (4, 0xdead_beef)]);
    let zeros = sums(20_000, &[(0, 1), (1, 2), (2, zero), (3, zero), (4, 0xdead_beef)]);
    assert_eq!(sums(0, &[]).digest(), 0x3149_5673_91a9_e071);
    assert_eq!(sums(20_000, &[]).digest(), 0xce71_66d5_6bf6_f0c8);
    assert_eq!(data.digest(), 0x8747_bdd0_5629_2576);
    assert_eq!(zeros.digest(), data.digest());
}

#[test]
fn length_place_and_sum_of_each_block_count() {
    let one = |len, first, sum| sums(len, &[(first, sum)]).digest();
    let digest = one(20_000, 1, 7);
    assert_eq!(digest, one(20_000, 1, 7));
    for other in [one(20_001, 1, 7), one(20_000, 2, 7), one(20_000, 1, 8)] {
        assert_ne!(digest, other);
    }
}

#[test]
fn sums_that_no_chunk_can_have_are_refused() {
    let refused = |len, blocks: &[(u32, u32)]| BlockSums::new(len, blocks.to_vec(), None).is_err();
    assert!(refused(CHUNK_BYTES_MAX + 1, &[]));
    assert!(refused(8192, &[(0, 1), (1, 1), (2, 1)]));
    assert!(refused(8192, &[(1, 1), (0, 1)]));
    assert!(refused(8192, &[(1, 1), (1, 1)]));
    assert!(refused(CHUNK_BYTES_MAX, &[(u32::MAX, 1)]));
    assert!(!refused(8193, &[(0, 1), (2, 1)]));
    assert!(!refused(CHUNK_BYTES_MAX, &[(16_383, 1)]));
    let refused = |reserved: &[u32]| BlockSums::new(0, vec![], Some(reserved.to_vec())).is_err();
    assert!(refused(&[1, 0]) && refused(&[1, 1]) && refused(&[16_384]));
    assert!(!refused(&[0, 16_383]), "also behind the end");
}

/// As docs/FORMATS.md has it.
#[test]
fn which_blocks_are_reserved_has_a_digest_of_its_own() {
    let plain = with_reserved(20_000, &[(0, 1)], &[]);
    assert_eq!(plain.reserved_digest(), 0);
    assert_eq!(sums(20_000, &[(0, 1)]).reserved_digest(), 0, "it is not known");
    let reserved = with_reserved(20_000, &[(0, 1)], &[2, 300]);
    let hash = blake3::hash(&[2, 0, 0, 0, 0x2c, 1, 0, 0]);
    let first = hash.as_bytes()[..8].try_into().unwrap();
    assert_eq!(reserved.reserved_digest(), u64::from_le_bytes(first));
    assert_eq!(reserved.digest(), plain.digest(), "earlier releases compare by it");
}

/// A copy that was made equal had the bytes and nothing reserved; or it still had what was released meanwhile.
#[test]
fn a_difference_says_which_blocks_are_to_be_reserved_and_which_no_longer() {
    let block = |nth: u64| nth * BLOCK_BYTES..(nth + 1) * BLOCK_BYTES;
    let ours = with_reserved(20_000, &[(0, 1), (1, 2)], &[2, 3, 9]);
    // 1 is written to its place, 2 is a hole again first, 4 and 7 were punched.
    let theirs = with_reserved(20_000, &[(0, 1), (2, 5)], &[1, 3, 4, 7]);
    let found = difference(&ours, &theirs);
    assert_eq!((found.send, found.punch), (vec![block(1)], vec![block(2)]));
    assert_eq!(found.release, [block(4), block(7)]);
    assert_eq!(found.reserve, [block(2), block(9)]);
    let same = difference(&ours, &ours);
    assert_eq!(same, Difference { len: 20_000, ..Difference::default() });
    // What is behind the cut goes with it.
    let longer = with_reserved(40_000, &[(0, 1), (1, 2)], &[2, 3, 6, 9]);
    let found = difference(&ours, &longer);
    assert_eq!((found.release, found.reserve), (vec![], vec![block(9)]));
    let found = difference(&ours, &BlockSums::empty());
    assert_eq!(found.reserve, [2 * BLOCK_BYTES..4 * BLOCK_BYTES, block(9)]);
}

/// Each block that was reserved between two written ones was a call, while the chunk was held.
#[test]
fn what_is_reserved_between_blocks_of_data_is_one_range_and_holes_end_it() {
    let ours = with_reserved(9 * BLOCK_BYTES, &[(1, 1), (3, 2), (4, 3), (7, 4)], &[0, 2, 5, 8]);
    let found = difference(&ours, &BlockSums::empty());
    assert_eq!(found.reserve, [0..6 * BLOCK_BYTES, 8 * BLOCK_BYTES..9 * BLOCK_BYTES]);
    // It has 2 already, and that is neither data nor to be reserved.
    let theirs = with_reserved(9 * BLOCK_BYTES, &[(1, 1)], &[2]);
    let found = difference(&ours, &theirs);
    assert_eq!(found.reserve[..2], [0..BLOCK_BYTES, 5 * BLOCK_BYTES..6 * BLOCK_BYTES]);
}

#[test]
fn sums_within_ranges_are_those_of_the_blocks_that_the_ranges_touch() {
    let all = with_reserved(20_000, &[(0, 1), (1, 2), (4, 3)], &[2, 3, 9]);
    let ranges = [4_000..4_096, 8_192..12_289];
    let within = all.within(&ranges, 12_289);
    assert_eq!(within, with_reserved(12_289, &[(0, 1)], &[2, 3]));
    assert_eq!(all.within(&[], 5), with_reserved(5, &[], &[]));
    assert_eq!(sums(20_000, &[(1, 2)]).within(&ranges, 20_000), sums(20_000, &[]));
    // What others have written behind stays as it is.
    let ours = with_reserved(8_192, &[(0, 1), (1, 7)], &[]).within(&ranges, 20_000);
    let found = difference(&ours, &all.within(&ranges, 20_000));
    let released = 2 * BLOCK_BYTES..4 * BLOCK_BYTES;
    let release = vec![released];
    assert_eq!(found, Difference { len: 20_000, release, ..Difference::default() });
}

#[test]
fn a_copy_that_does_not_say_what_it_has_reserved_is_left_with_that() {
    let ours = with_reserved(20_000, &[(0, 1)], &[2]);
    let theirs = sums(20_000, &[(0, 1)]);
    let nothing = Difference { len: 20_000, ..Difference::default() };
    assert_eq!(difference(&ours, &theirs), nothing);
    assert_eq!(difference(&theirs, &ours), nothing);
}

/// Zeros that were written look like zeros, but their checksum could be that of other bytes: a copy
/// that has nothing there gets them.
#[test]
fn a_block_with_the_checksum_of_zeros_is_sent_where_there_is_none() {
    let zero = *crc::ZERO_BLOCK;
    let (written, hole) = (sums(8192, &[(0, 5), (1, zero)]), sums(8192, &[(0, 5)]));
    assert_eq!(written.digest(), hole.digest());
    let second = Range { start: 4096, end: 8192 };
    assert_eq!(difference(&written, &hole).send, std::slice::from_ref(&second));
    assert_eq!(difference(&hole, &written).punch, [second]);
    assert_eq!(difference(&written, &written), Difference { len: 8192, ..Difference::default() });
}

#[test]
fn the_last_block_is_sent_up_to_the_length() {
    let ours = sums(10_000, &[(0, 1), (1, 2), (2, 3)]);
    let theirs = sums(20_000, &[(1, 2), (2, 4), (3, 5), (4, 6)]);
    let send = vec![0..4096, 8192..10_000];
    let expected = Difference { len: 10_000, send, ..Difference::default() };
    assert_eq!(difference(&ours, &theirs), expected);
}

/// Few blocks and few sums, so that some are equal.
fn copy() -> impl Strategy<Value = (u64, Vec<Option<u32>>)> {
    (0u64..40_000).prop_flat_map(|len| {
        let count = len.div_ceil(BLOCK_BYTES) as usize;
        (Just(len), prop::collection::vec(prop::option::of(0u32..3), count))
    })
}

fn of_copy((len, blocks): &(u64, Vec<Option<u32>>)) -> BlockSums {
    let data = (0..).zip(blocks).filter_map(|(nth, sum)| sum.map(|sum| (nth, sum)));
    sums(*len, &data.collect::<Vec<_>>())
}

/// The blocks of a range, which ends at a block's end or at the chunk's.
fn blocks(range: &Range<u64>, len: u64) -> Range<usize> {
    assert!(range.start < range.end && range.start.is_multiple_of(BLOCK_BYTES));
    assert!(range.end.is_multiple_of(BLOCK_BYTES) || range.end == len);
    (range.start / BLOCK_BYTES) as usize..range.end.div_ceil(BLOCK_BYTES) as usize
}

proptest! {
    #[test]
    fn a_difference_makes_a_copy_equal_and_moves_no_block_that_is(
        ours in copy(), theirs in copy(),
    ) {
        let difference = difference(&of_copy(&ours), &of_copy(&theirs));
        prop_assert_eq!(difference.len, ours.0);
        let mut made = theirs.1.clone();
        made.resize(ours.1.len(), None);
        for nth in difference.punch.iter().flat_map(|range| blocks(range, ours.0)) {
            prop_assert!(made[nth].is_some(), "block {} is a hole already", nth);
            made[nth] = None;
        }
        for nth in difference.send.iter().flat_map(|range| blocks(range, ours.0)) {
            prop_assert_ne!(made[nth], ours.1[nth], "block {} is equal", nth);
            made[nth] = ours.1[nth];
        }
        prop_assert_eq!(&made, &ours.1);
        for ranges in [&difference.send, &difference.punch] {
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
