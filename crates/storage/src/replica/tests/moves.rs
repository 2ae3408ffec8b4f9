//! Groups that move from target to target.

use super::promises::promise;
use super::*;
use crate::gate::word_of;
use crate::replica::Stage;

const ONE: GroupId = GroupId::of_class(1, 0);

impl Bench {
    /// A move begins: `to` enters where `from` is.
    pub(super) fn begin_move(&self, from: u32, to: u32) {
        self.manager.decide(|group| {
            let at = group.members.iter().position(|m| *m == from).unwrap();
            group.members.insert(at + 1, to);
            group.leaving = vec![from];
            group.joining.push(to);
        });
    }

    /// One that has not come far is taken back.
    fn take_back(&self) {
        let Group { members, in_sync, .. } = self.manager.map.lock().groups[0].clone();
        if members.len() > in_sync.len() {
            self.manager.decide(|group| {
                group.members.retain(|m| in_sync.contains(m));
                group.joining.clear();
                group.leaving.clear();
            });
        }
    }

    async fn until_members(&self, members: &[u32]) {
        self.until(async || (self.manager.members() == members).then_some(())).await;
    }

    /// Chunks that a target holds, after what is not its own was cleared away.
    async fn chunks_at(&self, id: u32) -> u64 {
        let server = self.server(id);
        server.map().refresh().await.unwrap();
        server.wake_replicas();
        let target = server.local(TargetId(id)).unwrap();
        server.walk(&target).await.unwrap();
        target.store.stat().chunks
    }

    /// Moves the only copy about, and lets servers die meanwhile.
    async fn move_about(&self, random: &mut SplitMix64) {
        let pause =
            |random: &mut SplitMix64| tokio::time::sleep(Duration::from_millis(random.below(60)));
        pause(random).await;
        let Group { members, in_sync, .. } = self.manager.map.lock().groups[0].clone();
        if members.len() == 1 {
            let (from, to) = (members[0], members[0] % MEMBERS + 1);
            self.begin_move(from, if random.percent(50) { to } else { to % MEMBERS + 1 });
        } else if random.percent(20) {
            self.take_back();
        }
        pause(random).await;
        let victim = random.below(u64::from(MEMBERS)) as u32 + 1;
        if random.percent(50) {
            self.kill(victim);
            pause(random).await;
            let alone = in_sync == [victim];
            let group = self.manager.map.lock().groups[0].clone();
            if group.joining.contains(&victim) || group.in_sync.len() > 1 && !alone {
                self.manager.take_out(victim);
            }
            self.start_member(victim).await;
            let group = self.manager.map.lock().groups[0].clone();
            if group.in_sync == [victim] && group.members.len() > 1 {
                self.manager.decide(|_| {});
            }
        }
        let looked = random.below(u64::from(MEMBERS)) as u32 + 1;
        self.chunks_at(looked).await;
        let patience = random.below(100);
        self.bring_back(patience).await;
    }
}

#[tokio::test]
async fn a_group_of_one_copy_moves_while_it_is_written_and_leaves_nothing_behind() {
    let bench = Arc::new(Bench::start_with(ONE, &[1]).await);
    for block in 0..40 {
        bench.write(block, 1).await;
    }
    bench.begin_move(1, 2);
    for block in 0..40 {
        bench.write(block, 2).await;
    }
    bench.until_members(&[2]).await;
    for block in 0..40 {
        assert_eq!(bench.read(2, block).await, 2);
        let refused = bench.read_from(1, block).await.unwrap_err();
        // Whether or not it has heard of it yet.
        let left = matches!(refused.kind, ErrorKind::StaleMap | ErrorKind::NotCurrent);
        assert!(left, "{refused}");
    }
    bench.write(3, 3).await;
    assert_eq!(bench.chunks_at(1).await, 0, "what it held is deleted");
    assert_eq!(bench.chunks_at(2).await, 1);
    // There and back again: what comes is not taken for what was left behind.
    bench.begin_move(2, 1);
    bench.until_members(&[1]).await;
    assert_eq!((bench.read(1, 3).await, bench.read(1, 4).await), (3, 2));
    assert_eq!((bench.chunks_at(1).await, bench.chunks_at(2).await), (1, 0));
}

/// It had the bytes where it went, and nothing reserved.
#[tokio::test]
async fn what_is_reserved_moves_with_the_only_copy() {
    let bench = Bench::start_with(ONE, &[1]).await;
    bench.write(0, 1).await;
    let (offset, len) = (4 * BLOCK as u64, 2 * BLOCK as u64);
    let range = msg::Range { chunk: chunk(0), offset, len };
    bench.change(StorageOp::Allocate(range), Bytes::new()).await.unwrap();
    bench.begin_move(1, 2);
    bench.until_members(&[2]).await;
    assert_eq!(bench.read(2, 0).await, 1);
    assert_eq!(bench.reserved_at(2, 0), [4, 5]);
}

/// What a target holds was what the last walk had found: of a group that had come and gone since, nothing.
#[tokio::test]
async fn what_has_come_since_the_last_walk_is_told_until_it_is_cleared_away() {
    let bench = Bench::start_with(ONE, &[1]).await;
    let tells = |id: u32| {
        let held = bench.server(id).held();
        held.iter().any(|held| (held.target, held.group) == (id, ONE.0))
    };
    assert!(!tells(1) && !tells(2));
    bench.write(0, 1).await;
    assert!(tells(1), "nobody has walked over it");
    bench.begin_move(1, 2);
    bench.until_members(&[2]).await;
    bench.begin_move(2, 3);
    bench.until_members(&[3]).await;
    assert!(tells(1) && tells(2) && tells(3));
    for id in [1, 2] {
        let is_cleared = async || {
            let chunks = bench.chunks_at(id).await;
            (chunks == 0 && !tells(id)).then_some(())
        };
        bench.until(is_cleared).await;
    }
    bench.chunks_at(3).await;
    assert!(tells(3), "it is there still");
}

/// It was begun before that one knew what had been made, and came over what others had written since.
#[tokio::test]
async fn a_copy_that_is_sent_again_before_the_next_primary_is_ready_is_not_made_again() {
    let bench = Arc::new(Bench::start_with(ONE, &[1, 2, 3]).await);
    bench.write(0, 5).await;
    let data = Bytes::from(vec![1; BLOCK]);
    let write = msg::Write { chunk: chunk(1), offset: 0, crc: crc32c(&data), durable: false };
    bench.change(StorageOp::Write(write), data).await.unwrap();
    let attempt = bench.attempt();
    let copy = |at, from_target| {
        // The source ends before: what is behind that is a change of its own, and has the number.
        let len = 2 * BLOCK as u64;
        let request = bench.copy_request(at, attempt, (from_target, 1), 0, len);
        let bench = bench.clone();
        tokio::spawn(async move { bench.send(request, Bytes::new()).await })
    };
    let is_punch: Which = |op| matches!(op, StorageOp::Punch(_));
    *bench.net.fails.lock() = Some((3, is_punch, ErrorKind::Unavailable));
    let first = copy(1, 1);
    let next = bench.replica(2).await;
    let has_all = || {
        let state = next.state.lock();
        let mut made = state.unsettled.values().filter(|entry| entry.stage == Stage::Applied);
        made.any(|entry| entry.attempt == Some(attempt))
    };
    bench.until(async || has_all().then_some(())).await;
    promise(&next, 1);
    bench.lose(1);
    first.await.unwrap().expect_err("3 did not have it");
    *bench.net.fails.lock() = None;
    let is_read: Which = |op| matches!(op, StorageOp::Read(_));
    *bench.net.slow.lock() = Some((3, is_read));
    let again = copy(2, 3);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!again.is_finished(), "2 is bound by its promise");
    next.state.lock().promised.clear();
    bench.write(0, 9).await;
    *bench.net.slow.lock() = None;
    again.await.unwrap().unwrap();
    assert_eq!(bench.read(2, 0).await, 9);
}

#[tokio::test]
async fn a_member_of_several_is_replaced_and_all_the_others_answer_meanwhile() {
    let bench = Bench::start_with(GroupId::of_class(2, 0), &[1, 2]).await;
    for block in 0..20 {
        bench.write(block, 5).await;
    }
    bench.begin_move(1, 3);
    bench.until_members(&[3, 2]).await;
    for block in 0..20 {
        assert_eq!((bench.read(2, block).await, bench.read(3, block).await), (5, 5));
    }
    bench.write(0, 6).await;
    assert_eq!((bench.read(2, 0).await, bench.read(3, 0).await), (6, 6));
    assert_eq!(bench.chunks_at(1).await, 0);
}

#[tokio::test]
async fn a_member_that_is_to_leave_stays_until_there_are_enough_others() {
    let bench = Bench::start_with(GroupId::of_class(2, 0), &[1, 2]).await;
    bench.write(0, 5).await;
    bench.manager.take_out(2);
    bench.manager.decide(|group| {
        group.members = vec![1, 3, 2];
        group.leaving = vec![1];
        group.joining = vec![3];
    });
    bench.until_in_sync(&[1, 3]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.manager.in_sync(), [1, 3], "without 1 there would be one copy");
    bench.write(0, 6).await;
    bench.manager.let_join(2);
    bench.until_members(&[3, 2]).await;
    assert_eq!((bench.read(2, 0).await, bench.read(3, 0).await), (6, 6));
}

#[tokio::test]
async fn a_member_that_has_said_that_it_leaves_answers_nobody_although_its_lease_lasts() {
    let bench = Bench::start_with(GroupId::of_class(2, 0), &[1, 2]).await;
    bench.write(0, 5).await;
    // The manager has heard it and makes the next epoch, of which member 1 learns late.
    *bench.manager.ignored.lock() = Some(0);
    bench.begin_move(1, 3);
    bench.until(async || (*bench.manager.ignored.lock() > Some(0)).then_some(())).await;
    for _ in 0..20 {
        assert_eq!(bench.read_from(1, 0).await.unwrap_err().kind, ErrorKind::NotCurrent);
        assert!(bench.write_to(1, bench.attempt(), 1, 6).await.is_err());
    }
    *bench.manager.ignored.lock() = None;
    bench.until_members(&[3, 2]).await;
    assert_eq!((bench.read(2, 0).await, bench.read(3, 0).await), (5, 5));
}

#[tokio::test]
async fn what_was_acknowledged_before_a_move_is_covered_by_a_sync_after_it() {
    let bench = Bench::start_with(ONE, &[1]).await;
    let boot_of = async |target: u32| {
        let op = StorageOp::Sync(msg::FileRef { volume: 1, ino: 2 });
        bench
            .until(async || bench.send(bench.request(target, op.clone()), Bytes::new()).await.ok())
            .await
    };
    bench.write(0, 1).await;
    let (StorageAnswer::Done(before), _) = boot_of(1).await else { panic!("an answer") };
    bench.begin_move(1, 2);
    bench.until_members(&[2]).await;
    let (StorageAnswer::Done(after), _) = boot_of(2).await else { panic!("an answer") };
    assert_eq!(before, after, "the group speaks with one word");
    let target = bench.server(2).local(TargetId(2)).unwrap();
    let mut group = bench.manager.map.lock().groups[0].clone();
    assert_eq!(word_of(Some(&group), &target), after.boot);
    // The host of target 2 has lost power since: it speaks from another boot.
    group.vouchers.iter_mut().for_each(|voucher| voucher.boot += 1);
    let other = word_of(Some(&group), &target);
    assert!(other != after.boot && other != target.store.boot() && other != 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_however_the_only_copy_moves_about() {
    for seed in seeds() {
        let storm = storm(seed, Bench::start_with(ONE, &[1]).await, Bench::move_about);
        let over = tokio::time::timeout(Duration::from_secs(60), storm).await;
        over.unwrap_or_else(|_| panic!("seed {seed}: it does not end"));
    }
}

#[tokio::test]
async fn a_member_does_not_leave_while_the_manager_is_away() {
    let bench = Bench::start_with(GroupId::of_class(2, 0), &[1, 2, 3]).await;
    bench.write(0, 5).await;
    *bench.manager.fades.lock() = true;
    bench.manager.decide(|group| group.leaving = vec![1]);
    for id in 1..=3 {
        let map = bench.server(id).map().clone();
        let knows = async || {
            let _ = map.refresh().await;
            (map.group(bench.group).unwrap().leaving == [1]).then_some(())
        };
        bench.until(knows).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    bench.write(0, 6).await;
    assert_eq!((bench.read(1, 0).await, bench.read(2, 0).await), (6, 6));
    *bench.manager.fades.lock() = false;
    bench.until_members(&[2, 3]).await;
}
