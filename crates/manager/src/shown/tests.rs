use super::*;
use strake_base::random::SplitMix64;
use strake_wire::message::manager::TargetSpec;

/// What differs in these is told only along with something else.
fn without_what_always_changes(mut map: ClusterMap) -> ClusterMap {
    map.servers.iter_mut().for_each(|server| server.silent_ms = 0);
    for target in &mut map.targets {
        (target.spec.free_bytes, target.spec.total_bytes) = (0, 0);
        target.spec.silent_ms = target.spec.silent_ms.map(|_| 0);
    }
    map.fenced.sort_by_key(Fenced::key);
    map
}

fn put<R: Record>(records: &mut Vec<R>, record: R) {
    records.retain(|one| one.key() != record.key());
    records.push(record);
    records.sort_by_key(Record::key);
}

/// Something of the map becomes another.
fn change(map: &mut ClusterMap, random: &mut SplitMix64) {
    let id = random.below(12) as u32;
    let epoch = map.epoch;
    match random.below(12) {
        0 => put(&mut map.servers, Server { id, silent_ms: epoch, ..Server::default() }),
        1 => put(&mut map.servers, Server { id, up: true, ..Server::default() }),
        2 => map.servers.retain(|one| one.id != id),
        3 => {
            let spec = TargetSpec { total_bytes: 160, free_bytes: epoch, ..TargetSpec::default() };
            put(&mut map.targets, Target { id, spec, ..Target::default() });
        }
        4 => map.targets.iter_mut().for_each(|one| one.spec.free_bytes += 3),
        5 => map.targets.iter_mut().for_each(|one| one.spec.silent_ms = Some(epoch)),
        6 => map.targets.retain(|one| one.id != id),
        7 => put(&mut map.groups, Group { id, epoch, ..Group::default() }),
        8 => map.groups.retain(|one| one.id != id),
        9 => put(&mut map.volumes, Volume { id, owned_since: epoch, ..Volume::default() }),
        10 => put(&mut map.fenced, Fenced { volume: id % 3, session: 7, epoch }),
        _ => map.fenced.retain(|one| one.volume != id % 3),
    }
}

fn decoded(answer: MapAnswer) -> ClusterMap {
    answer.decoded().unwrap().unwrap()
}

/// Whatever changes, and whichever map somebody has.
#[test]
fn what_is_made_of_changes_is_the_whole_map() {
    for seed in 0..200 {
        let mut random = SplitMix64::new(seed);
        let mut shown = Shown::new(9);
        let mut map = ClusterMap { cluster: "c".into(), ..ClusterMap::default() };
        let mut have: Vec<(MapVersion, ClusterMap)> = Vec::new();
        let mut sent_changes = 0;
        for epoch in 1..60 {
            map.epoch = epoch;
            for _ in 0..random.below(4) {
                change(&mut map, &mut random);
            }
            shown.take_map(map.clone());
            let whole = decoded(shown.answer(None));
            assert_eq!(
                without_what_always_changes(whole.clone()),
                without_what_always_changes(map.clone())
            );
            for (version, known) in &have {
                let answer = shown.answer(Some(*version));
                sent_changes += u32::from(answer.changes.is_some());
                let made = answer.after(known, version.number).unwrap().unwrap();
                assert_eq!(made, whole, "seed {seed}");
            }
            have.push((shown.version, whole));
            if random.percent(30) {
                have.swap_remove(random.below(have.len() as u64) as usize);
            }
        }
        assert!(sent_changes > 0, "seed {seed}");
    }
}

fn servers(count: u32) -> ClusterMap {
    let servers = (1..=count).map(|id| Server { id, ..Server::default() });
    ClusterMap { cluster: "c".into(), servers: servers.collect(), ..ClusterMap::default() }
}

/// All of it was sent to each, with each epoch.
#[test]
fn a_change_of_one_record_is_sent_as_that_record() {
    let mut shown = Shown::new(9);
    let mut map = servers(1_000);
    shown.take_map(map.clone());
    let known = shown.version;
    (map.epoch, map.servers[500].up) = (2, true);
    map.servers.iter_mut().for_each(|server| server.silent_ms += 100);
    shown.take_map(map);
    let changes = shown.answer(Some(known)).changes.unwrap();
    assert!(changes.len() < 50, "{}", changes.len());
    let again = shown.answer(Some(known)).changes.unwrap();
    assert_eq!(changes.as_ptr(), again.as_ptr(), "it is encoded once for all who have the same");
}

/// 64 of them, each up to half as long as the whole.
#[test]
fn what_is_kept_of_changes_is_no_longer_than_the_whole() {
    let mut shown = Shown::new(9);
    let mut map = servers(1_000);
    let mut have = Vec::new();
    for epoch in 0..40 {
        map.epoch = epoch;
        map.servers[epoch as usize * 10..][..10].iter_mut().for_each(|server| server.up = true);
        shown.take_map(map.clone());
        have.push(shown.version);
    }
    for known in have {
        assert!(shown.answer(Some(known)).changes.is_some());
    }
    let kept: Vec<usize> = shown.changes.values().flatten().map(Bytes::len).collect();
    let whole = shown.answer(None).map.unwrap().len();
    assert!(kept.len() > 1 && kept.iter().sum::<usize>() <= whole, "{kept:?} {whole}");
}

#[test]
fn the_whole_is_sent_to_who_has_most_of_it_not_or_has_it_of_another_manager() {
    let mut shown = Shown::new(9);
    shown.take_map(servers(3));
    let known = shown.version;
    shown.take_map(servers(4));
    let is_whole = |shown: &mut Shown, known| {
        let answer = shown.answer(Some(known));
        assert_eq!(answer.version, Some(shown.version));
        answer.changes.is_none() && answer.map.is_some()
    };
    assert!(!is_whole(&mut shown, known));
    assert!(is_whole(&mut shown, MapVersion { manager: 8, ..known }));
    assert!(is_whole(&mut shown, MapVersion { number: 3, ..known }), "there is none of it yet");
    assert!(is_whole(&mut shown, MapVersion::default()));
    shown.take_map(servers(100));
    assert!(is_whole(&mut shown, known));
}

#[test]
fn what_is_gone_is_not_remembered_for_ever() {
    let mut shown = Shown::new(9);
    shown.take_map(servers(GONE_MAX as u32 + 3));
    let first = shown.version;
    shown.take_map(servers(2));
    assert_eq!(shown.servers.records.len(), 2);
    assert!(shown.answer(Some(first)).changes.is_none(), "it may have what is gone");
    let second = shown.version;
    shown.take_map(servers(3));
    assert!(shown.answer(Some(second)).changes.is_some());
    assert_eq!(decoded(shown.answer(Some(first))), servers(3));
}

#[test]
fn how_full_a_target_is_is_told_when_a_part_of_it_was_filled() {
    let with = |free_bytes| {
        let spec = TargetSpec { total_bytes: 1_600, free_bytes, ..TargetSpec::default() };
        let targets = vec![Target { id: 1, spec, ..Target::default() }];
        ClusterMap { targets, ..servers(0) }
    };
    let mut shown = Shown::new(9);
    let mut free = |free_bytes| {
        shown.take_map(with(free_bytes));
        decoded(shown.answer(None)).targets[0].spec.free_bytes
    };
    assert_eq!([free(1_600), free(1_500), free(1_499), free(1_599)], [1_600, 1_600, 1_499, 1_499]);
}
