#[path = "../../../../../tests/src/lines.rs"]
mod lines;

use super::*;
use crate::node::list::TargetList;
use crate::node::patrol::Patrol;
use async_trait::async_trait;
use lines::Lines;
use parking_lot::Mutex;
use strake_base::disk::{Disk, RealDisk};
use strake_types::{Result, ServerId};
use strake_wire::caller::{CallerOptions, Callers};
use strake_wire::map::{ManagerSource, MapView};
use strake_wire::message::manager::{
    ManagerAnswer, ManagerReply, ManagerRequest, MapAnswer, Target as Listed, TargetSpec,
};
use strake_wire::service::ManagerService;

fn target(top: &Path, number: u32) -> Target {
    let path = top.join(number.to_string());
    let mut target = Target::look(&path, &Node::default(), false).unwrap();
    target.id = TargetId(number);
    target
}

/// The same, with a store that is open.
fn open(top: &Path, number: u32) -> Target {
    let mut target = target(top, number);
    target.format(&"ab".repeat(16), TargetId(number), None).unwrap();
    target
}

/// A map that lists targets by number and uuid.
fn map(targets: &[(u32, &str)], next_target: u32) -> ClusterMap {
    let listed = |&(id, uuid): &(u32, &str)| {
        let spec = TargetSpec { target: id, uuid: uuid.into(), ..TargetSpec::default() };
        Listed { id, server: 1, spec, ..Listed::default() }
    };
    let targets = targets.iter().map(listed).collect();
    ClusterMap { targets, next_target, ..ClusterMap::default() }
}

/// Targets 1 to 3 of a server, and what it has seen of maps.
struct Server {
    targets: Vec<Arc<Target>>,
    seen: Seen,
    _top: tempfile::TempDir,
}

impl Server {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let targets = [1, 2, 3].map(|number| Arc::new(target(top.path(), number))).into();
        Self { targets, seen: Seen::default(), _top: top }
    }

    /// Who leaves by a map in which these of them are, and others.
    fn leave(&mut self, numbers: &[u32], others: &[(u32, &str)], next_target: u32) -> Vec<u32> {
        let here = self.targets.iter().filter(|target| numbers.contains(&target.id.0));
        let mut listed: Vec<_> = here.map(|target| (target.id.0, &*target.uuid)).collect();
        listed.extend(others);
        let left = self.seen.leaving(self.targets.clone(), &map(&listed, next_target));
        left.iter().map(|target| target.id.0).collect()
    }
}

const NOBODY: [u32; 0] = [];

#[test]
fn who_was_in_an_earlier_map_and_is_in_this_one_no_more_leaves() {
    let mut server = Server::new();
    assert_eq!(server.leave(&[1, 2], &[], 4), NOBODY, "the third is about to enter");
    assert_eq!(server.leave(&[1, 2, 3], &[], 4), NOBODY);
    let silent = server.leave(&[1], &[], 0);
    assert_eq!(silent, NOBODY, "one that does not say which numbers it has given out");
    assert_eq!(server.leave(&[1, 3], &[], 4), [2]);
    assert_eq!(server.leave(&[1, 3], &[], 4), NOBODY, "once");
}

/// It went on to give out numbers that it had given out before, and whoever had one of them, and all that it held, "can be deleted".
#[test]
fn by_a_manager_whose_data_are_older_than_they_were_nobody_leaves_any_more() {
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    let mut server = Server::new();
    assert_eq!(server.leave(&[1, 2, 3], &[], 4), NOBODY);
    assert_eq!(server.leave(&[1, 2], &[], 3), NOBODY);
    // The number is given out anew, for one that has not entered yet, or never does.
    assert_eq!(server.leave(&[1, 2], &[], 4), NOBODY);
    assert_eq!(server.leave(&[1], &[], 5), NOBODY);
    assert_eq!(lines.count("the manager's data are older"), 1);
}

/// It had given out as many when this server asked again. What had come since then "can be deleted", all but the one whose number
/// another target had by then.
#[test]
fn by_a_manager_that_has_given_a_number_of_ours_to_another_target_nobody_leaves_any_more() {
    let mut server = Server::new();
    assert_eq!(server.leave(&[1, 2, 3], &[], 4), NOBODY);
    assert_eq!(server.leave(&[1], &[(3, "another")], 4), NOBODY);
    assert_eq!(server.leave(&[1], &[], 4), NOBODY);
}

/// It passed for the one that a later one has the number of, and left when that did.
#[test]
fn a_target_is_not_listed_where_another_one_has_its_number() {
    let mut server = Server::new();
    assert_eq!(server.leave(&[1, 2], &[(3, "another")], 4), NOBODY);
    assert_eq!(server.leave(&[1, 2], &[], 4), NOBODY);
}

/// Who held it last, perhaps a task, waited for its disk; and nothing was said while its disk ended no call.
#[tokio::test(start_paused = true)]
async fn a_target_that_has_left_is_closed_when_nobody_uses_it_any_more_and_what_waits_is_told() {
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    let top = tempfile::tempdir().unwrap();
    let left = open(top.path(), 1);
    let disk = RealDisk::new(&left.path).unwrap();
    let used = left.store.clone();
    let mut closing = tokio::spawn(close(Arc::new(left)));
    timeout(PATIENCE / 2, &mut closing).await.unwrap_err();
    assert_eq!(lines.count("under way still"), 0);
    timeout(PATIENCE * 3, &mut closing).await.unwrap_err();
    assert_eq!(lines.count("under way still"), 1);
    drop(used);
    closing.await.unwrap();
    assert!(disk.lock().is_ok(), "it is closed");
    assert_eq!(lines.count("can be deleted"), 1);
}

/// That was said of the directory of a target that had been added in its place while something held it.
#[tokio::test]
async fn nobody_is_told_to_delete_what_has_taken_the_place_of_a_target_that_has_left() {
    let lines = Lines::default();
    let _collected = tracing::subscriber::set_default(lines.clone());
    let top = tempfile::tempdir().unwrap();
    let left = open(top.path(), 1);
    std::fs::remove_dir_all(&left.path).unwrap();
    let _new = open(top.path(), 1);
    close(Arc::new(left)).await;
    assert_eq!(lines.count("target 1 has left the cluster and is closed"), 1);
    assert_eq!(lines.count("can be deleted"), 0);
}

/// A manager that has given this map.
struct Manager(Mutex<ClusterMap>);

#[async_trait]
impl ManagerService for Manager {
    async fn call(&self, _: ManagerRequest) -> Result<ManagerReply> {
        Ok(ManagerAnswer::Map(MapAnswer::of(&self.0.lock())).into())
    }
}

/// `node.json` had no number of a target whose server had not heard that it had entered: the next start let it in again.
#[tokio::test]
async fn what_has_left_is_known_by_its_number_although_nobody_heard_that_it_had_entered() {
    let home = tempfile::tempdir().unwrap();
    let left = target(home.path(), 3);
    let begun = TargetRecord { target: 0, ..left.record() };
    let node = Node { format: 1, targets: vec![begun], ..Node::default() };
    node.write(home.path()).unwrap();
    let first = ClusterMap { epoch: 1, ..map(&[(3, &left.uuid)], 4) };
    let manager = Arc::new(Manager(Mutex::new(first)));
    let callers = Callers::new(CallerOptions::default());
    let view = MapView::connect(callers, ManagerSource::Local(manager.clone()), 10_000);
    let view = view.await.unwrap();
    let adder = Arc::new(Adder {
        home: home.path().to_owned(),
        server: ServerId(1),
        targets: TargetList::new(vec![left]),
        storage: Weak::new(),
        manager: manager.clone(),
        map: view.clone(),
        patrol: Arc::new(Patrol::start(home.path(), &[], &view, None)),
        disk_rate: None,
        turn: tokio::sync::Mutex::default(),
    });
    let watching = tokio::spawn(watch(Arc::downgrade(&adder)));
    // It has looked at the first map when it waits for the next one.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    *manager.0.lock() = ClusterMap { epoch: 2, ..map(&[], 4) };
    view.refresh().await.unwrap();
    let noted = async {
        while Node::read(home.path()).unwrap().targets[0].target != 3 {
            assert!(!watching.is_finished());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), noted).await.unwrap();
    assert!(adder.targets.all().is_empty());
}
