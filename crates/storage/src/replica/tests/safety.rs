//! What a file's layout asks of the copies.

use super::*;
use crate::replica::{Reign, View};

impl Bench {
    fn write_request(&self, target: u32, fill: u8) -> (StorageRequest, Bytes) {
        let data = Bytes::from(vec![fill; BLOCK]);
        let op = StorageOp::Write(msg::Write {
            chunk: chunk(0),
            offset: 0,
            crc: crc32c(&data),
            durable: false,
        });
        (StorageRequest { attempt: Some(self.attempt()), ..self.request(target, op) }, data)
    }

    /// A write that is done when the primary has it; who vouches for it.
    pub(super) async fn write_early(&self, target: u32, fill: u8) -> u64 {
        let (request, data) = self.write_request(target, fill);
        let request = StorageRequest { ack_primary: true, ..request };
        boot(self.send(request, data).await.unwrap().0)
    }

    async fn sync_early(&self, target: u32) -> Result<u64> {
        let op = StorageOp::Sync(msg::FileRef { volume: 1, ino: 2 });
        let request = StorageRequest { ack_primary: true, ..self.request(target, op) };
        Ok(boot(self.send(request, Bytes::new()).await?.0))
    }
}

fn boot(answer: StorageAnswer) -> u64 {
    match answer {
        StorageAnswer::Done(done) => done.boot,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_primary_that_may_acknowledges_alone_and_a_sync_waits_for_the_others() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.cut(1, 3);
    let vouches = bench.write_early(1, 2).await;
    let sync = tokio::spawn({
        let bench = bench.clone();
        async move { bench.sync_early(1).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!sync.is_finished(), "3 does not have it");
    bench.net.cut.lock().clear();
    assert_eq!(sync.await.unwrap().unwrap(), vouches);
    // As who syncs everything asks, of whatever files.
    let all = StorageOp::Sync(msg::FileRef { volume: 1, ino: 0 });
    match bench.send(bench.request(1, all), Bytes::new()).await.unwrap().0 {
        StorageAnswer::Done(done) => assert_eq!(done.early, vouches),
        other => panic!("{other:?}"),
    }
    bench.reads_at(1..=MEMBERS, 0, 2).await;
}

#[tokio::test]
async fn a_write_is_durable_everywhere_by_one_message_to_each_member() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    let syncs = || bench.net.syncs.swap(0, Ordering::Relaxed);
    let write = async |fill, ack_primary| {
        let (mut request, data) = bench.write_request(1, fill);
        let Some(StorageOp::Write(write)) = &mut request.op else { panic!("a write") };
        write.durable = true;
        let request = StorageRequest { ack_primary, ..request };
        match bench.send(request.clone(), data.clone()).await.unwrap().0 {
            StorageAnswer::Done(done) => assert!(done.durable),
            other => panic!("{other:?}"),
        }
        (request, data)
    };
    let (request, data) = write(2, false).await;
    assert_eq!(syncs(), 0);
    // Whether what was made before is durable, a primary does not know.
    bench.send(request, data).await.unwrap();
    assert_eq!(syncs(), 2);
    write(3, true).await;
    assert_eq!(syncs(), 2, "who acknowledges alone does not wait for others before");
    bench.net.older.store(true, Ordering::Relaxed);
    write(4, false).await;
    assert_eq!(syncs(), 2, "members of an older release have to be asked");
    bench.reads_at(1..=MEMBERS, 0, 4).await;
}

/// The new primary does not have the change; who made it learns that from who vouches for the sync.
#[tokio::test]
async fn a_primary_that_dies_with_what_it_acknowledged_alone_is_noticed() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.cut(1, 2);
    bench.cut(1, 3);
    let vouched = bench.write_early(1, 2).await;
    bench.lose(1);
    assert_eq!(bench.read(2, 0).await, 1, "nobody else had it");
    let vouches = bench.until(async || bench.sync_early(2).await.ok()).await;
    assert_ne!(vouches, vouched);
    assert_eq!(bench.write_early(2, 3).await, vouches);
    bench.manager.take_out(3);
    let after = bench.until(async || bench.sync_early(2).await.ok()).await;
    assert_eq!(after, vouches, "the same primary in its next epoch");
}

impl Bench {
    /// What a primary has acknowledged alone, and no other member has; who vouches for it.
    async fn lone_write(&self, primary: u32) -> u64 {
        self.write(0, 1).await;
        let others = (1..=MEMBERS).filter(|member| *member != primary);
        others.for_each(|member| self.cut(primary, member));
        self.write_early(primary, 2).await
    }

    /// What the primary has said that others may lead after the present epoch.
    async fn yielded(&self) -> Resynced {
        let epoch = self.manager.map.lock().groups[0].epoch;
        let said = || self.manager.yielded.lock().clone().filter(|said| said.epoch == epoch);
        self.until(async || said()).await
    }

    /// Begins the epoch that follows from what a primary has said: the first of these leads.
    fn follow(&self, said: &Resynced, in_sync: &[u32]) {
        self.manager.decide(|group| {
            group.in_sync = in_sync.to_vec();
            (group.handed_in, group.stands_for) = (group.epoch, said.vouches);
        });
    }

    /// The lead goes to the first of these; what the one before has said.
    async fn hand_over(&self, in_sync: &[u32]) -> Resynced {
        let primary = self.manager.in_sync()[0];
        self.manager.ask_to_hand_over();
        self.server(primary).map().refresh().await.unwrap();
        let said = self.yielded().await;
        self.follow(&said, in_sync);
        said
    }

    /// Who vouches for a sync at a member, as soon as it leads.
    async fn vouches_at(&self, primary: u32) -> u64 {
        self.until(async || self.sync_early(primary).await.ok()).await
    }
}

/// It has everything still, and makes it the same everywhere; but whoever had written was told of a loss.
#[tokio::test]
async fn a_primary_that_misses_an_epoch_vouches_for_what_it_acknowledged_alone_before() {
    let bench = Bench::start().await;
    let vouched = bench.lone_write(1).await;
    // Two at once.
    bench.manager.decide(|group| group.epoch += 1);
    bench.net.cut.lock().clear();
    let vouches = bench.until(async || bench.sync_early(1).await.ok()).await;
    assert_eq!(vouches, vouched);
    bench.reads_at(1..=MEMBERS, 0, 2).await;
}

#[tokio::test]
async fn a_primary_that_leads_again_after_another_one_vouches_for_nothing_of_before() {
    let bench = Bench::start().await;
    let vouched = bench.lone_write(1).await;
    bench.manager.decide(|group| group.in_sync = vec![2, 1, 3]);
    bench.net.cut.lock().clear();
    assert_eq!(bench.read(2, 0).await, 1, "it has nothing of that");
    bench.manager.decide(|group| group.in_sync = vec![1, 2, 3]);
    let vouches = bench.until(async || bench.sync_early(1).await.ok()).await;
    assert_ne!(vouches, vouched);
    assert_eq!(bench.read(1, 0).await, 1);
}

/// When it makes all equal it cannot read its own, and what others have is older.
#[tokio::test]
async fn a_primary_that_misses_an_epoch_and_has_damage_vouches_for_nothing_of_before() {
    let bench = Bench::start().await;
    let vouched = bench.lone_write(1).await;
    bench.damage_filled(1, 2);
    bench.manager.decide(|group| group.epoch += 1);
    bench.net.cut.lock().clear();
    let vouches = bench.until(async || bench.sync_early(1).await.ok()).await;
    assert_ne!(vouches, vouched);
    assert_eq!(bench.read(1, 0).await, 1);
}

/// It gave the word of nobody, which whoever had written took for a loss.
#[tokio::test]
async fn who_does_not_lead_vouches_for_nothing_and_says_so() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    let word = |member| {
        let server = bench.server(member);
        let target = server.local(TargetId(member)).unwrap();
        server.word_for(&target, GROUP, strake_types::Ack::Primary)
    };
    assert!(word(1).is_ok());
    assert_eq!(word(2).unwrap_err().kind, ErrorKind::NotCurrent);
}

/// The next primary wrote its older bytes over up to 64 writes that were acknowledged, though nobody had failed.
#[tokio::test]
async fn who_leads_next_has_all_that_the_one_that_hands_over_has_acknowledged_alone() {
    let bench = Arc::new(Bench::start().await);
    bench.manager.decide(|group| group.in_sync = vec![2, 1, 3]);
    bench.write(0, 1).await;
    bench.cut(1, 2);
    let vouched = bench.write_early(2, 2).await;
    bench.manager.ask_to_hand_over();
    let epoch = bench.manager.map.lock().groups[0].epoch;
    let server = bench.server(2);
    let replica = server.replica(&server.targets()[0], bench.group, 0).await.unwrap();
    bench.until(async || replica.state.lock().hands_over).await;
    let write = |attempt: msg::Attempt, block: u64, fill: u8| {
        let data = Bytes::from(vec![fill; BLOCK]);
        let (chunk, offset) = (chunk(0), block * BLOCK as u64);
        let op = StorageOp::Write(msg::Write { chunk, offset, crc: crc32c(&data), durable: false });
        let (attempt, request) = (Some(attempt), bench.request(2, op));
        let request = StorageRequest { attempt, ack_primary: true, epoch, ..request };
        let bench = bench.clone();
        tokio::spawn(async move { bench.send(request, data).await })
    };
    let second = write(bench.attempt(), 1, 3);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished(), "1 is to lead, and does not have it");
    assert!(bench.manager.yielded.lock().is_none(), "nor the first one");
    bench.net.cut.lock().clear();
    second.await.unwrap().unwrap();
    let said = bench.yielded().await;
    assert_eq!((said.epoch, said.member), (epoch, 2));
    // 1 knows that it leads, and 2 does not hear of that.
    bench.net.cut.lock().insert((1, 2));
    bench.manager.unheard.lock().insert(2);
    bench.follow(&said, &[1, 2, 3]);
    bench.server(1).map().refresh().await.unwrap();
    let heir = bench.replica(1).await;
    bench.until(async || (*heir.adopted.read().await > epoch).then_some(())).await;
    let attempt = bench.attempt();
    let third = write(attempt, 2, 4);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!third.is_finished(), "1 refuses it");
    bench.net.cut.lock().clear();
    bench.manager.unheard.lock().clear();
    third.await.unwrap().expect_err("1 did not have it in that epoch");
    assert_eq!((bench.read(1, 0).await, bench.read(1, 1).await), (2, 3));
    // Asked again of who leads now, as clients do.
    bench.until(async || bench.write_to(1, attempt, 2, 4).await.ok()).await;
    for member in 1..=MEMBERS {
        assert_eq!(bench.read(member, 2).await, 4, "whatever was made of it before");
    }
    assert_eq!(bench.vouches_at(1).await, vouched, "nothing is lost");
}

/// Of what it had acknowledged in its reign before it knew nothing, and said at once that the others had all.
#[tokio::test]
async fn who_has_missed_an_epoch_hands_over_when_others_have_what_it_acknowledged_alone() {
    let bench = Bench::start().await;
    bench.manager.decide(|group| group.in_sync = vec![2, 1, 3]);
    let vouched = bench.lone_write(2).await;
    // Two at once.
    bench.manager.decide(|group| {
        group.epoch += 1;
        group.hand_over = group.epoch;
    });
    let epoch = bench.manager.map.lock().groups[0].epoch;
    bench.server(2).map().refresh().await.unwrap();
    let replica = bench.replica(2).await;
    let asked = || replica.state.lock().hands_over.filter(|asked| *asked == epoch);
    bench.until(async || asked()).await;
    for _ in 0..3 {
        tokio::time::sleep(crate::replica::TICK).await;
        assert!(replica.state.lock().handed_at.is_none(), "they do not have it yet");
    }
    assert!(bench.manager.yielded.lock().is_none());
    bench.net.cut.lock().clear();
    let said = bench.yielded().await;
    bench.follow(&said, &[1, 2, 3]);
    assert_eq!(bench.read(1, 0).await, 2);
    assert_eq!(bench.vouches_at(1).await, vouched, "nothing is lost");
}

/// It went at once, and whoever leads next wrote older bytes over what it had acknowledged in its reign before.
#[tokio::test]
async fn who_has_missed_an_epoch_leaves_when_others_have_what_it_acknowledged_alone() {
    let bench = Bench::start_with(GroupId::of_class(2, 0), &[1, 2, 3]).await;
    bench.lone_write(1).await;
    // Two at once.
    bench.manager.decide(|group| {
        group.epoch += 1;
        group.leaving = vec![1];
    });
    let epoch = bench.manager.map.lock().groups[0].epoch;
    bench.server(1).map().refresh().await.unwrap();
    let replica = bench.replica(1).await;
    let begins = || {
        let state = replica.state.lock();
        state.reign.as_ref().is_some_and(|reign| reign.since == epoch && !reign.ready)
    };
    bench.until(async || begins().then_some(())).await;
    for _ in 0..3 {
        tokio::time::sleep(crate::replica::TICK).await;
        assert!(begins(), "they do not have it yet");
        assert!(!bench.has_resigned(1).await, "nor does it wait for that: another reign may begin");
        assert_eq!(bench.manager.members(), [1, 2, 3]);
    }
    bench.net.cut.lock().clear();
    bench.until(async || (bench.manager.members() == [2, 3]).then_some(())).await;
    assert_eq!(bench.read(2, 0).await, 2);
}

/// The number was looked up in the newest map, and what a primary still said in its own epoch was that of a loss.
#[tokio::test]
async fn a_primary_vouches_for_the_first_of_all_that_have_handed_over_whatever_comes_after_it() {
    let bench = Bench::start().await;
    bench.manager.decide(|group| group.in_sync = vec![2, 1, 3]);
    bench.write(0, 1).await;
    let vouched = bench.write_early(2, 2).await;
    let first = bench.hand_over(&[1, 2, 3]).await;
    assert_eq!(bench.vouches_at(1).await, vouched);
    let heir = bench.replica(1).await;
    let stays = heir.adopted.read().await;
    let second = bench.hand_over(&[2, 1, 3]).await;
    bench.server(1).map().refresh().await.unwrap();
    assert_eq!(heir.vouching().unwrap(), first.vouches, "it is in its own epoch yet");
    drop(stays);
    assert_eq!(second.vouches, first.vouches);
    assert_eq!(bench.vouches_at(2).await, vouched);
    assert_eq!(bench.read(2, 0).await, 2);
}

/// It went on under the number of the one before, which had it all.
#[test]
fn who_finds_something_lost_after_a_hand_over_has_a_number_of_its_own() {
    let view = View { epoch: 7, vouches: 3, ..View::default() };
    let mut reign = Reign::new(view);
    assert_eq!(reign.vouches, 3);
    reign.vouch_anew();
    assert_eq!(reign.vouches, 7);
}

/// Not each change alone: what so many early ones leave behind is bounded.
#[tokio::test]
async fn early_acknowledgements_are_bounded() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.cut(1, 3);
    let writes = (0..100u64).map(|block| {
        let bench = bench.clone();
        tokio::spawn(async move {
            let data = Bytes::from(vec![7; BLOCK]);
            let (chunk, offset) = (chunk(0), block * BLOCK as u64);
            let op =
                StorageOp::Write(msg::Write { chunk, offset, crc: crc32c(&data), durable: false });
            let request = StorageRequest { ack_primary: true, ..bench.request(1, op) };
            bench.send(request, data).await.is_ok()
        })
    });
    let writes: Vec<_> = writes.collect();
    let done = || writes.iter().filter(|write| write.is_finished()).count();
    bench.until(async || (done() >= 64).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(done(), 64);
    bench.net.cut.lock().clear();
    bench.until(async || (done() == 100).then_some(())).await;
}

#[tokio::test]
async fn with_fewer_copies_than_asked_for_nothing_is_acknowledged_until_they_are_back() {
    let bench = Bench::start().await;
    bench.write(0, 1).await;
    bench.lose(3);
    let (request, data) = bench.write_request(1, 2);
    let asks = |least| StorageRequest { min_copies: least, ..request.clone() };
    let refused = bench.until(async || bench.send(asks(3), data.clone()).await.err()).await;
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    assert!(refused.to_string().contains("2 of its copies are in sync"), "{refused}");
    assert_eq!(bench.read(1, 0).await, 1, "not even begun");
    let sync = StorageOp::Sync(msg::FileRef { volume: 1, ino: 2 });
    let sync = StorageRequest { min_copies: 3, ..bench.request(1, sync) };
    assert_eq!(bench.send(sync, Bytes::new()).await.unwrap_err().kind, ErrorKind::Unavailable);
    bench.start_member(3).await;
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    let epoch = bench.manager.map.lock().groups[0].epoch;
    let again = StorageRequest { epoch, ..asks(3) };
    bench.until(async || bench.send(again.clone(), data.clone()).await.ok()).await;
    assert_eq!(bench.read(3, 0).await, 2);
}

/// The change was made while there were enough, and is everywhere it can be; but it is not
/// acknowledged by fewer than was asked for.
#[tokio::test]
async fn a_change_that_loses_a_copy_on_the_way_is_not_acknowledged_before_it_is_back() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    bench.kill(3);
    let (request, data) = bench.write_request(1, 2);
    let request = StorageRequest { min_copies: 3, ..request };
    let first = tokio::spawn({
        let (bench, request, data) = (bench.clone(), request.clone(), data.clone());
        async move { bench.send(request, data).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    bench.manager.take_out(3);
    assert_eq!(first.await.unwrap().unwrap_err().kind, ErrorKind::Unavailable);
    bench.start_member(3).await;
    bench.manager.let_join(3);
    bench.until_in_sync(&[1, 2, 3]).await;
    bench.write(0, 9).await;
    let epoch = bench.manager.map.lock().groups[0].epoch;
    let again = StorageRequest { epoch, ..request };
    bench.until(async || bench.send(again.clone(), data.clone()).await.ok()).await;
    assert_eq!(bench.read(1, 0).await, 9, "made once, before");
}

/// Readers of what was being written when the primary died waited until it was taken out.
#[tokio::test]
async fn of_two_members_the_other_answers_at_once_what_a_dead_primary_was_writing() {
    let bench = Arc::new(Bench::start().await);
    bench.manager.take_out(3);
    bench.write(0, 1).await;
    assert_eq!(bench.read(2, 0).await, 1);
    // The change comes to 2, and its answer is lost.
    bench.net.deaf.lock().insert((1, 2));
    let half = tokio::spawn({
        let (bench, (request, data)) = (bench.clone(), bench.write_request(1, 2));
        async move { bench.send(request, data).await }
    });
    bench.until(async || bench.read_from(2, 0).await.ok().filter(|fill| *fill == 2)).await;
    assert!(!half.is_finished(), "nobody knows whether 2 has it");
    bench.kill(1);
    for _ in 0..20 {
        assert_eq!(bench.read_from(2, 0).await.unwrap(), 2, "1 had it, too, before it sent it");
    }
    bench.manager.take_out(1);
    assert_eq!(bench.read(2, 0).await, 2);
}

/// The third member may not have it, and comes to be in sync.
#[tokio::test]
async fn while_a_third_joins_what_may_not_be_everywhere_is_hidden() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    assert_eq!(bench.read(2, 0).await, 1, "what was before is settled there");
    let (_, half) = bench.half_made().await;
    assert!(!half.is_finished(), "3 does not have it");
    let hidden = bench.read_from(2, 0).await.unwrap_err();
    assert_eq!(hidden.kind, ErrorKind::NotCurrent);
    half.abort();
}
