//! Copies whose source is at a server that says nothing.

use super::*;
use tokio::task::JoinHandle;

const ONE: GroupId = GroupId::of_class(1, 0);
/// Another group of one copy, at target 2.
const OTHER: GroupId = GroupId::of_class(1, 1);

impl Bench {
    /// Begins a copy of the first block of chunk 0, as a target has it in a group, to another chunk at target 1.
    fn begin_copy(
        self: &Arc<Self>,
        source: (u32, GroupId),
        to: u64,
    ) -> JoinHandle<Result<(StorageAnswer, Bytes)>> {
        let (target, group) = source;
        let mut request = self.copy_request(1, self.attempt(), (target, 0), to, BLOCK as u64);
        if let Some(StorageOp::Copy(copy)) = &mut request.op {
            copy.from_group = group.0;
        }
        let bench = self.clone();
        tokio::spawn(async move { bench.send(request, Bytes::new()).await })
    }

    /// Returns when so many reads were sent to a member that is silent.
    async fn until_asked(&self, member: u32, times: usize) {
        let is_read = |sent: &&(u32, StorageOp)| {
            let (to, op) = sent;
            *to == member && matches!(op, StorageOp::Read(_))
        };
        let asked = || self.net.unheard.lock().iter().filter(is_read).count();
        self.until(async || (asked() >= times).then_some(())).await;
    }

    /// The map changes, and target 1 knows.
    async fn show(&self, change: impl FnOnce(&mut ClusterMap)) {
        {
            let mut map = self.manager.map.lock();
            map.epoch += 1;
            change(&mut map);
        }
        self.server(1).map().refresh().await.unwrap();
    }
}

/// It waited for 20 s, although another copy could be asked after three.
#[tokio::test]
async fn a_copy_leaves_a_source_that_hangs_when_its_group_goes_on_without_it() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 5).await;
    bench.net.silent.lock().insert(2);
    let copy = bench.begin_copy((2, GROUP), 1);
    bench.until_asked(2, 1).await;
    bench.manager.take_out(2);
    bench.server(1).map().refresh().await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), copy).await;
    let told = told.expect("another one can be asked").unwrap().unwrap_err();
    assert_eq!(told.kind, ErrorKind::StaleMap, "{told}");
    // That one may have to hear first that all have what it is asked for.
    bench.until(async || bench.begin_copy((3, GROUP), 1).await.unwrap().ok()).await;
    let read = msg::Read { chunk: chunk(1), offset: 0, len: BLOCK as u64 };
    let request = bench.request(1, StorageOp::Read(read));
    assert_eq!(bench.send(request, Bytes::new()).await.unwrap().1, vec![5; BLOCK]);
}

/// They had all turns of the server, for 20 s each, and copies from servers that answer waited behind them.
#[tokio::test]
async fn copies_from_a_server_that_is_away_leave_their_turns_to_others() {
    let bench = Arc::new(Bench::start_with(ONE, &[1]).await);
    let (members, id) = (vec![2], OTHER.0);
    let other = Group { id, epoch: 1, members, ..Group::default() };
    bench.show(|map| map.groups.push(other)).await;
    bench.write(0, 5).await;
    bench.net.silent.lock().insert(2);
    let turns = bench.server(1).copies.available_permits();
    let begin = |to| bench.begin_copy((2, OTHER), to);
    let copies: Vec<_> = (1..=turns as u64).map(begin).collect();
    bench.until_asked(2, turns).await;
    bench.show(|map| map.targets[1].up = false).await;
    let copy = bench.begin_copy((1, ONE), turns as u64 + 1);
    let copied = tokio::time::timeout(Duration::from_secs(60), copy).await;
    copied.expect("there are turns").unwrap().unwrap();
    assert!(copies.iter().all(|copy| !copy.is_finished()), "it may answer yet");
}
