use super::*;

fn layout(distribution: Distribution, width: u32, size: u32) -> Layout {
    let template = LayoutTemplate {
        chunk_size: Some(1 << 16),
        distribution: Some(distribution),
        width: Some(width),
        ..LayoutTemplate::default()
    };
    template.resolve(42, &GroupTables::of([GroupId::of_class(1, size - 1)]))
}

fn slots_of(layout: &Layout, chunks: u64) -> Vec<u32> {
    (0..chunks).map(|i| layout.slot_of(ChunkIndex(i))).collect()
}

fn distributions() -> [Distribution; 5] {
    let strips = vec![Strip { slot: 0, bytes: 4096 }, Strip { slot: 2, bytes: 12288 }];
    [
        Distribution::SimpleStripe,
        Distribution::Basic,
        Distribution::Varstrip(strips),
        Distribution::TwodStripe { groups: 2, factor: 3 },
        Distribution::Progressive,
    ]
}

#[test]
fn the_groups_below_a_length_are_those_of_its_chunks() {
    for distribution in distributions() {
        let placement = Placement::new(layout(distribution, 5, 7));
        assert!(placement.groups_below(0).is_empty());
        assert_eq!(placement.groups_below(1).len(), 1);
        for length in [4096, 4097, 1 << 16, (1 << 16) + 1, 3_000_000] {
            let expected: BTreeSet<_> =
                placement.pieces(0, length).map(|piece| piece.group).collect();
            assert_eq!(placement.groups_below(length), expected, "{length}");
        }
        let most = placement.groups_below(1 << 50);
        assert!(most.is_subset(&placement.groups()));
        assert!(most.is_superset(&placement.groups_below(3_000_000)));
    }
}

#[test]
fn pieces_cover_a_range_without_gap_or_overlap() {
    for distribution in distributions() {
        let placement = Placement::new(layout(distribution, 5, 7));
        let mut at = 1000;
        for piece in placement.pieces(1000, 3_000_000) {
            assert_eq!(piece.file_offset, at);
            let (start, bytes) = placement.layout().chunk_bounds(piece.index);
            assert_eq!(start + piece.chunk_offset, at);
            assert!(piece.chunk_offset + piece.len <= bytes);
            at += piece.len;
        }
        assert_eq!(at, 3_001_000);
    }
}

#[test]
fn a_stripe_uses_each_of_its_groups_once() {
    let mut groups = layout(Distribution::SimpleStripe, 5, 7).slots();
    assert_eq!(groups.len(), 5);
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), 5);
    assert!(groups.iter().all(|g| g.0 < 7));
}

#[test]
fn twod_stripe_stays_on_one_run_for_factor_rounds() {
    let layout = layout(Distribution::TwodStripe { groups: 2, factor: 2 }, 4, 4);
    assert_eq!(slots_of(&layout, 9), [0, 1, 0, 1, 2, 3, 2, 3, 0]);
}

#[test]
fn progressive_widens_as_the_file_grows() {
    let layout = layout(Distribution::Progressive, 4, 4);
    let slots = slots_of(&layout, 16);
    assert_eq!(slots[..8], [0; 8]);
    assert_eq!(slots[8..], [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn the_permutation_is_the_one_in_formats_md() {
    assert_eq!(permutation(42, 5, 2), permutation(42, 5, 5)[..2]);
    for (seed, size) in [(0, 1), (42, 5), (7, 64), (u64::MAX, 1000)] {
        let mut order: Vec<u32> = (0..size).collect();
        let mut state = seed;
        for at in 0..size {
            let pick = at + (splitmix64(&mut state) % u64::from(size - at)) as u32;
            order.swap(at as usize, pick as usize);
        }
        assert_eq!(permutation(seed, size, size), order, "{seed} {size}");
    }
}

#[test]
fn a_table_that_claims_to_be_huge_costs_no_more_than_the_width() {
    let mut layout = layout(Distribution::SimpleStripe, 1000, GroupId::ORDINALS_MAX);
    layout.validate().unwrap();
    let mut groups = layout.slots();
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), 1000);
    layout.groups = Groups::Table { copies: 1, size: u32::MAX };
    assert_eq!(layout.validate().unwrap_err().kind, ErrorKind::Invalid);
}

/// Nobody is to be asked.
fn same(_: &[GroupId], _: u32) -> Result<Vec<GroupId>> {
    Err(ErrorKind::Io.into())
}

#[test]
fn of_other_copies_than_listed_it_is_asked_where_they_lie() {
    let list = |copies| Some([3, 0].map(|at| GroupId::of_class(copies, at)).to_vec());
    let parent = LayoutTemplate { groups: list(1), ..LayoutTemplate::default() };
    let two = LayoutTemplate { copies: Some(2), ..LayoutTemplate::default() };
    let both = two.or(&parent, |_, _| Ok(list(2).unwrap())).unwrap();
    assert_eq!((both.groups, both.copies), (list(2), Some(2)));
    assert_eq!(two.or(&parent, same).unwrap_err().kind, ErrorKind::Io);
    // A list of one's own says how many copies there are, whatever is inherited.
    let both = parent.or(&two, same).unwrap();
    assert_eq!((both.groups, both.copies), (list(1), Some(1)));
    let one = LayoutTemplate { copies: Some(1), ..LayoutTemplate::default() };
    assert_eq!(one.or(&parent, same).unwrap().groups, list(1));
    // Where none do, those of the table count.
    let both = two.or(&parent, |_, _| Ok(Vec::new())).unwrap();
    assert_eq!((both.groups, both.copies), (None, Some(2)));
}

/// Of three targets that were listed below a width of 1 all files lay on the first alone.
#[test]
fn a_list_is_not_cut_to_an_inherited_width() {
    let listed = Some([3, 0, 1].map(|at| GroupId::of_class(1, at)).to_vec());
    let list = LayoutTemplate { groups: listed, ..LayoutTemplate::default() };
    let narrow = LayoutTemplate { width: Some(1), ..LayoutTemplate::default() };
    let both = list.or(&narrow, same).unwrap();
    assert_eq!(both.resolve(7, &GroupTables::default()).slots().len(), 3);
    assert_eq!(both.width, None, "once the list is taken away it is inherited again");
    assert_eq!(both.or(&narrow, same).unwrap().width, None, "whatever is further above");
    let two = LayoutTemplate { width: Some(2), ..list.clone() };
    assert_eq!(two.or(&narrow, same).unwrap().width, Some(2), "it was asked for");
    assert_eq!(narrow.or(&list, same).unwrap().width, Some(1), "later");
}

#[test]
fn a_file_is_no_longer_than_its_chunks_have_numbers() {
    let stripe = layout(Distribution::SimpleStripe, 2, 4);
    assert_eq!(stripe.length_max(), 1 << 56, "chunks of 64 KiB");
    let strips = vec![Strip { slot: 0, bytes: 4096 }, Strip { slot: 2, bytes: 12288 }];
    let strips = layout(Distribution::Varstrip(strips), 4, 4);
    assert_eq!(strips.length_max(), 1 << 53);
    for layout in [stripe, strips] {
        assert_eq!(layout.chunk_at(layout.length_max() - 1).0, FILE_CHUNKS_MAX - 1);
    }
    let large = LayoutTemplate { chunk_size: Some(1 << 26), ..LayoutTemplate::default() };
    let large = large.resolve(7, &GroupTables::of([GroupId(0)]));
    assert_eq!(large.length_max(), FILE_BYTES_MAX);
}

#[test]
fn copies_choose_the_table() {
    let groups = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)];
    let tables = GroupTables::of(groups.map(|(c, at)| GroupId::of_class(c, at)));
    let two = LayoutTemplate { copies: Some(2), ..LayoutTemplate::default() };
    let layout = two.resolve(7, &tables);
    let mut slots = layout.slots();
    slots.sort();
    assert_eq!(slots, [GroupId::of_class(2, 0), GroupId::of_class(2, 1)]);
    assert_eq!((layout.copies(), layout.width), (2, 2));
    assert!(tables.has(slots[1]) && !tables.has(GroupId::of_class(2, 2)));
    let three = LayoutTemplate { copies: Some(3), ..LayoutTemplate::default() };
    assert_eq!(three.resolve(7, &tables).validate().unwrap_err().kind, ErrorKind::Invalid);
    let four = LayoutTemplate { copies: Some(4), ..LayoutTemplate::default() };
    assert_eq!(four.validate().unwrap_err().kind, ErrorKind::Invalid);
    let group = GroupId::of_class(3, 5);
    assert_eq!((group.copies(), group.ordinal()), (3, 5));
}
