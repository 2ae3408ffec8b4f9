//! The first change ever of a group of one copy, of which the manager is told.

use super::*;

const ONE: GroupId = GroupId::of_class(1, 0);

impl Bench {
    /// A group into which nothing was ever put.
    async fn start_unused(members: &[u32]) -> Arc<Bench> {
        let bench = Bench::start_with(ONE, members).await;
        {
            let mut map = bench.manager.map.lock();
            map.epoch += 1;
            map.groups[0].never_used = true;
        }
        for id in 1..=MEMBERS {
            bench.server(id).map().refresh().await.unwrap();
        }
        Arc::new(bench)
    }

    pub(super) fn chunks_of(&self, id: u32) -> u64 {
        self.server(id).local(TargetId(id)).unwrap().store.stat().chunks
    }

    fn told(&self) -> usize {
        self.manager.used.lock().len()
    }

    /// Changes that put nothing anywhere.
    async fn take_away(&self) -> Result<()> {
        let cut = cut_from(0, None);
        self.change(StorageOp::Truncate(cut), Bytes::new()).await?;
        let hole = msg::Range { chunk: chunk(0), offset: 0, len: BLOCK as u64 };
        self.change(StorageOp::Punch(hole), Bytes::new()).await
    }
}

#[tokio::test]
async fn the_first_change_of_a_group_waits_for_the_manager_and_no_later_one_does() {
    // One member alone, and two: a group of one copy on its way.
    for members in [&[1][..], &[1, 2]] {
        let bench = Bench::start_unused(members).await;
        bench.take_away().await.unwrap();
        assert_eq!(bench.told(), 0, "{members:?}: nothing is there to be lost");
        *bench.manager.thinks.lock() = true;
        let writers: Vec<_> = (0..8)
            .map(|block| {
                let bench = bench.clone();
                tokio::spawn(async move { bench.write(block, 7).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(bench.chunks_of(1), 0, "{members:?}: nothing is made before the answer");
        *bench.manager.thinks.lock() = false;
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(*bench.manager.used.lock(), [Used { group: ONE.0, target: 1 }]);
        *bench.manager.away.lock() = true;
        bench.write_to(1, bench.attempt(), 9, 8).await.unwrap();
        assert_eq!(bench.told(), 1, "{members:?}: it is told once");
    }
}

#[tokio::test]
async fn a_first_change_fails_while_the_manager_cannot_be_told() {
    for members in [&[1][..], &[1, 2]] {
        let bench = Bench::start_unused(members).await;
        *bench.manager.away.lock() = true;
        let error = bench.write_to(1, bench.attempt(), 0, 7).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        assert!(error.detail.contains("until the manager knows"), "{error}");
        assert_eq!(bench.chunks_of(1), 0);
        *bench.manager.away.lock() = false;
        bench.write_to(1, bench.attempt(), 0, 7).await.unwrap();
        assert_eq!(bench.read(1, 0).await, 7);
    }
}

#[tokio::test]
async fn a_first_change_at_a_target_that_was_given_up_meanwhile_is_refused() {
    let bench = Bench::start_unused(&[1]).await;
    let data = Bytes::from(vec![7; BLOCK]);
    let op = StorageOp::Write(msg::Write {
        chunk: chunk(0),
        offset: 0,
        crc: crc32c(&data),
        durable: false,
    });
    // By the map of its sender, and by its own.
    let request = bench.request(1, op);
    bench.manager.decide(|group| {
        group.members = vec![2];
        group.in_sync = vec![2];
    });
    let error = bench.send(request, data).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::StaleMap, "{error}");
    assert_eq!(bench.chunks_of(1), 0);
    bench.write(0, 8).await;
    assert_eq!(bench.read(2, 0).await, 8);
}

#[tokio::test]
async fn who_has_no_lease_does_not_answer_for_a_group_into_which_nothing_was_put() {
    // One member alone, and two: a group of one copy on its way.
    for members in [&[1][..], &[1, 2]] {
        let bench = Bench::start_unused(members).await;
        // By the map of senders, and by its own, it is still the target's.
        let range = msg::Read { chunk: chunk(0), offset: 0, len: BLOCK as u64 };
        let read = || bench.request(1, StorageOp::Read(range));
        let cut = cut_from(0, None);
        let cut = || bench.request(1, StorageOp::Truncate(cut));
        bench.take_away().await.unwrap();
        assert_eq!(bench.read(1, 0).await, 0);
        bench.server(1).lease().end();
        *bench.manager.away.lock() = true;
        for request in [read(), cut()] {
            let error = bench.send(request, Bytes::new()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::NotCurrent, "{members:?}: {error}");
        }
    }
    let bench = Bench::start_unused(&[1]).await;
    bench.write(0, 7).await;
    bench.server(1).lease().end();
    *bench.manager.away.lock() = true;
    assert_eq!(bench.read(1, 0).await, 7, "what is used nobody else has");
}

/// A map that comes while a read or a first change is under way: the group was given to another, and used there.
#[tokio::test]
async fn what_was_given_to_another_meanwhile_is_not_answered_for() {
    let bench = Bench::start_unused(&[1]).await;
    let server = bench.server(1);
    let (target, gate) = (server.local(TargetId(1)).unwrap(), server.gates.of(TargetId(1), ONE));
    server.check_unused(Some(&gate), &target, ONE).unwrap();
    bench.manager.decide(|group| {
        (group.members, group.in_sync, group.never_used) = (vec![2], vec![2], false);
    });
    server.map().refresh().await.unwrap();
    for outcome in [
        server.check_unused(Some(&gate), &target, ONE),
        server.begin_use(&gate, TargetId(1), ONE).await,
    ] {
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::StaleMap);
    }
}

#[tokio::test]
async fn a_copy_within_a_target_is_a_first_change_too() {
    let bench = Bench::start_unused(&[1]).await;
    let range = |index| msg::Range { chunk: chunk(index), offset: 0, len: BLOCK as u64 };
    let request = |epoch_of: &Bench| {
        let op = |from_capability| {
            StorageOp::Copy(msg::Copy {
                to: range(1),
                from: range(0),
                from_target: 1,
                from_capability,
                from_group: ONE.0,
            })
        };
        let capability = epoch_of.request(1, op(Bytes::new())).capability;
        epoch_of.request(1, op(capability))
    };
    *bench.manager.away.lock() = true;
    let error = bench.send(request(&bench), Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    *bench.manager.away.lock() = false;
    bench.send(request(&bench), Bytes::new()).await.unwrap();
    assert_eq!(bench.told(), 1);
}
