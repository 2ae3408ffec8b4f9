use super::*;
use proptest::prelude::*;

fn id() -> ChunkId {
    ChunkId { volume: VolumeId(1), ino: Ino(1 << 40 | 7), index: ChunkIndex(3) }
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        Just(Block::Hole),
        (0..PLACE_MAX - 1).prop_map(Block::Reserved),
        (0..PLACE_MAX - 1, any::<u32>()).prop_map(|(at, crc)| Block::Data(at, crc)),
        (0..40u64, any::<u32>()).prop_map(|(at, crc)| Block::Data(at, crc)),
    ]
}

proptest! {
    #[test]
    fn leaves_are_read_back(blocks in prop::collection::vec(block(), 0..=256), len in 0..CHUNK_BYTES_MAX) {
        let mut leaf = Leaf::default();
        for (nth, block) in (0..).zip(&blocks) {
            leaf.set(nth, *block);
        }
        let record = decode_leaf(b"key", &encode_leaf(b"key", &leaf, len)).unwrap();
        prop_assert_eq!(record.len, len);
        let leaf = record.into_leaf();
        for (nth, block) in (0..).zip(&blocks) {
            prop_assert_eq!(leaf.get(nth), *block);
        }
    }

    #[test]
    fn edits_are_read_back_and_only_by_their_own_log(
        blocks in prop::collection::vec(block(), 0..300),
        first in 0..16_000u64,
        log in any::<u32>(),
    ) {
        let mut edit = Edit::new(id(), 12_345);
        for (nth, block) in (first..).zip(&blocks) {
            edit.push(nth, *block);
        }
        let mut bytes = Vec::new();
        encode_edit(&edit, log, &mut bytes);
        let len = bytes.len();
        prop_assert!(len <= RECORD_BYTES_MAX);
        bytes.extend_from_slice(b"what follows");
        prop_assert_eq!(decode_record(&bytes, log), Ok(Some((Record::Edit(edit), len))));
        prop_assert_eq!(decode_record(&bytes, log ^ 1), Ok(None));
        prop_assert_eq!(decode_record(&bytes[..len - 1], log), Ok(None));
    }

    #[test]
    fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_leaf(b"key", &bytes);
        let _ = decode_key(&bytes);
        let _ = decode_log_head(&bytes);
        prop_assert_eq!(decode_record(&bytes, 1), Ok(None));
        // With a checksum that matches.
        let mut body = vec![VERSION];
        body.extend_from_slice(&bytes);
        let sum = leaf_sum(b"key", &body).to_le_bytes();
        let _ = decode_leaf(b"key", &[&body[..], &sum].concat());
        let mut record = (body.len() as u32).to_le_bytes().to_vec();
        record.extend_from_slice(&record_sum(1, &body).to_le_bytes());
        record.extend_from_slice(&body);
        let _ = decode_record(&record, 1);
    }

    #[test]
    fn a_flipped_bit_is_noticed(bit in 0..800usize) {
        let mut leaf = Leaf::default();
        (0..20).for_each(|nth| leaf.set(nth, Block::Data(100 + nth, nth as u32)));
        let mut bytes = encode_leaf(b"key", &leaf, 80_000);
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_leaf(b"key", &bytes).is_err());
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_leaf(b"key", &bytes).is_ok() && decode_leaf(b"kez", &bytes).is_err());
    }
}

#[test]
fn keys_sort_as_chunks_do_and_are_read_back() {
    let mut ids = Vec::new();
    for volume in [0, 1, 256] {
        for ino in [1, 255, 1 << 40] {
            for index in [0, 9, 1 << 33] {
                ids.push(ChunkId {
                    volume: VolumeId(volume),
                    ino: Ino(ino),
                    index: ChunkIndex(index),
                });
            }
        }
    }
    let keys: Vec<_> = ids.iter().map(|id| encode_key(*id, 5)).collect();
    assert!(keys.is_sorted());
    for (id, key) in ids.iter().zip(&keys) {
        assert_eq!(decode_key(key), Ok((*id, 5)));
    }
    assert!(decode_key(&encode_key(id(), 64)).is_err());
}

#[test]
fn a_mark_is_read_back_and_one_out_of_bounds_is_refused() {
    let block = |nth: u8| vec![nth; BLOCK_BYTES as usize];
    let decoded = |places: Vec<(u64, u32)>| {
        let blocks: Vec<u8> =
            places.iter().flat_map(|(at, n)| block(*at as u8).repeat(*n as usize)).collect();
        let mark = Mark { places, blocks };
        let mut bytes = Vec::new();
        encode_mark(&mark, 7, &mut bytes);
        assert!(bytes.len() <= RECORD_BYTES_MAX);
        (decode_record(&bytes, 7).map(|found| found.map(|(record, _)| record)), mark)
    };
    for places in [vec![], vec![(9, 1)], vec![(SEGMENT_BLOCKS - 2, 2), (PLACE_MAX - 14, 14)]] {
        let (found, mark) = decoded(places);
        assert_eq!(found, Ok(Some(Record::Mark(mark))));
    }
    for places in [vec![(9, 0)], vec![(SEGMENT_BLOCKS - 1, 2)], vec![(0, 17)], vec![(0, 9), (9, 8)]]
    {
        assert!(decoded(places.clone()).0.is_err(), "{places:?}");
    }
}

#[test]
fn a_note_is_read_back_and_its_first_bytes_tell_its_length() {
    let note = Note { salt: *b"0salt-7", synced: 1 << 40 };
    let mut bytes = Vec::new();
    encode_note(&note, 7, &mut bytes);
    let len = bytes.len();
    assert_eq!(bytes[CONTENT_AT..CONTENT_AT + SALT_BYTES], note.salt);
    assert_eq!([claimed_len(&bytes), claimed_len(&bytes[..len - 1])], [Some(len), None]);
    assert_eq!(claimed_len(&[0; 99]), None);
    assert_eq!(decode_record(&bytes, 7), Ok(Some((Record::Note(note), len))));
}

#[test]
fn the_head_of_a_log_is_read_back() {
    let (head, sum) = encode_log_head(77, &[b'x'; 36], &[1; 7]);
    let decoded = LogHead { generation: 77, boot: [b'x'; 36], salt: [1; 7], sum };
    assert_eq!(decode_log_head(&head), Ok(decoded));
    for at in 0..head.len() {
        let mut head = head;
        head[at] ^= 1;
        assert!(decode_log_head(&head).is_err(), "byte {at}");
    }
}

#[test]
fn an_edit_names_the_leaves_that_it_changes_and_the_first() {
    let mut edit = Edit::new(id(), 1);
    assert_eq!(edit.leaves(), 1);
    edit.push(2 * LEAF_BLOCKS - 1, Block::Data(10, 0));
    edit.push(2 * LEAF_BLOCKS, Block::Data(11, 0));
    assert_eq!((edit.runs.len(), edit.leaves()), (1, 0b111));
    edit.push(CHUNK_BLOCKS_MAX - 1, Block::Hole);
    assert_eq!(edit.leaves(), 0b111 | 1 << 63);
}
