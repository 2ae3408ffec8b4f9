mod managers;

use super::*;
use crate::capability::reign;
use crate::message::manager::{
    Group, ManagerReply, ManagerRequest, MapAnswer, MapChanges, Target, VolumeSpec,
};
use crate::message::meta::MetaRequest;
use crate::server::Services;
use crate::tests::{Fake, Running, callers, server_at};
use async_trait::async_trait;
use prost::Message;
use std::sync::atomic::Ordering;

fn map(epoch: u64, servers: Vec<Server>) -> ClusterMap {
    let volume = |id, name: &str, deleting| Volume {
        id,
        spec: VolumeSpec { name: name.into(), ..VolumeSpec::default() },
        deleting,
        meta_server: 1,
        ..Volume::default()
    };
    ClusterMap {
        cluster: "c".into(),
        epoch,
        servers,
        targets: vec![Target { id: 5, server: 1, up: true, ..Target::default() }],
        groups: vec![Group { epoch: 3, members: vec![5], ..Group::default() }],
        volumes: vec![volume(1, "main", true), volume(2, "main", false)],
        ..ClusterMap::default()
    }
}

fn install(view: &MapView, map: ClusterMap) {
    view.install(map, MapVersion::default());
}

#[tokio::test(start_paused = true)]
async fn who_misses_a_metadata_server_says_so_once_with_the_next_fetch() {
    let fake = Arc::new(Fake::default());
    let view = MapView::new(callers(60_000), ManagerSource::Local(fake.clone()));
    view.refresh().await.unwrap();
    assert!(fake.missed.lock().is_empty());
    for share in [9, 9, 7] {
        view.miss(VolumeId(share), None);
    }
    view.miss(VolumeId(8), Some(Epoch(3)));
    // By itself, and soon.
    let told = async {
        while fake.missed.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_millis(POLL_MS / 2), told).await.unwrap();
    view.refresh().await.unwrap();
    assert_eq!(*fake.missed.lock(), [7, 9], "8 has no server since that epoch");
}

#[tokio::test]
async fn a_map_is_looked_up_by_every_id() {
    let view = MapView::fixed(callers(60_000), map(4, vec![server_at("127.0.0.1:1")]));
    assert_eq!(view.current().epoch, 4);
    assert_eq!(view.refresh().await.unwrap(), Epoch(4));
    assert!(view.storage_of(TargetId(5)).is_ok());
    assert_eq!(view.storage_of(TargetId(6)).err().unwrap().kind, ErrorKind::StaleMap);
    assert_eq!(view.primary_of(GroupId(0)).unwrap(), (TargetId(5), Epoch(3)));
    assert_eq!(view.primary_of(GroupId(1)).unwrap_err().kind, ErrorKind::StaleMap);
    assert_eq!(view.groups(), [GroupId(0)]);
    // A deleted volume's name may be in use again.
    assert_eq!(view.volume_named("main").unwrap().id, 2);
    assert_eq!(view.volume_named("other").unwrap_err().kind, ErrorKind::NotFound);
    assert!(view.meta_for(VolumeId(2)).is_ok());
    assert_eq!(view.meta_for(VolumeId(3)).err().unwrap().kind, ErrorKind::StaleMap);
}

/// A server that stood still had begun to cut a file, and cut what was written when another had taken its place.
#[tokio::test]
async fn what_a_metadata_server_may_do_ends_when_a_volume_gets_another() {
    let mut map = map(9, vec![server_at("127.0.0.1:1")]);
    map.volumes[1].owned_since = 7;
    let view = MapView::fixed(callers(60_000), map);
    let volume = VolumeId(2);
    assert_eq!(view.owned_since(volume), Some(Epoch(7)));
    assert!(view.is_fenced(volume, reign(Epoch(6))), "the one before");
    assert!(view.is_fenced(volume, reign(Epoch(0))), "the first of all");
    assert!(!view.is_fenced(volume, reign(Epoch(7))));
    assert!(!view.is_fenced(volume, reign(Epoch(8))), "one that this map does not know yet");
    assert!(!view.is_fenced(VolumeId(3), reign(Epoch(6))), "a volume that it does not know yet");
    // A client's session of the same number is another.
    assert!(!view.is_fenced(volume, SessionId(6)));
    assert_eq!(view.fenced_epoch(), Epoch(7), "who is told of it fetches the map first");
}

#[tokio::test]
async fn services_of_this_process_are_called_directly_even_if_registered_later() {
    let callers = callers(60_000);
    let view = MapView::fixed(callers.clone(), map(4, vec![server_at("127.0.0.1:1")]));
    view.storage_of(TargetId(5)).unwrap();
    let fake = Arc::new(Fake::default());
    let services = Services { meta: Some(fake.clone()), storage: Some(fake), manager: None };
    callers.register_local(ServerId(1), services);
    view.meta_for(VolumeId(2)).unwrap().call(MetaRequest::default()).await.unwrap();
    let storage = view.storage_of(TargetId(5)).unwrap();
    storage.call(Default::default(), Default::default()).await.unwrap();
}

#[tokio::test]
async fn the_map_outlives_its_managers_and_finds_others() {
    let first = Running::start("127.0.0.1:0", "c").await;
    let second = Running::start("127.0.0.1:0", "c").await;
    let mut other = server_at(&second.address);
    other.id = 2;
    *first.fake.map.lock() = map(1, vec![first.entry(), other.clone()]);
    *second.fake.map.lock() = map(2, vec![first.entry(), other]);
    let nobody = "127.0.0.1:1".to_owned();
    let source = ManagerSource::Addresses(vec![nobody, first.address.clone()]);
    let view = MapView::connect(callers(60_000), source, 10_000).await.unwrap();
    assert_eq!(view.current().epoch, 1);
    first.stop().await;
    // The second is known from the map alone.
    assert_eq!(view.refresh().await.unwrap(), Epoch(2));
    second.stop().await;
    assert_eq!(view.refresh().await.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(view.current().epoch, 2);
    assert!(view.storage_of(TargetId(5)).is_ok());
}

#[tokio::test]
async fn the_first_map_is_waited_for_only_so_long() {
    let source = ManagerSource::Addresses(vec!["127.0.0.1:1".into()]);
    let error = MapView::connect(callers(60_000), source, 300).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.detail.contains("127.0.0.1:1"), "{error}");
}

#[tokio::test]
async fn older_maps_and_maps_of_other_clusters_are_ignored() {
    let view = MapView::fixed(callers(60_000), map(4, Vec::new()));
    install(&view, map(3, Vec::new()));
    install(&view, ClusterMap { cluster: "other".into(), ..map(9, Vec::new()) });
    assert_eq!((view.current().epoch, view.current().cluster.as_str()), (4, "c"));
    install(&view, map(5, Vec::new()));
    assert_eq!(view.current().epoch, 5);
}

#[tokio::test]
async fn who_watches_is_told_of_newer_maps_only() {
    let view = MapView::fixed(callers(60_000), map(4, Vec::new()));
    let mut epochs = view.watch();
    install(&view, map(4, Vec::new()));
    install(&view, map(3, Vec::new()));
    assert!(!epochs.has_changed().unwrap());
    install(&view, map(5, Vec::new()));
    assert_eq!(*epochs.borrow_and_update(), 5);
    assert!(!epochs.has_changed().unwrap());
}

/// Sends the whole map of epoch 1, and what makes that of epoch 2 of it.
#[derive(Default)]
struct Changing {
    asked: Mutex<Vec<Option<MapVersion>>>,
}

#[async_trait]
impl ManagerService for Changing {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let Some(ManagerOp::GetMap(get)) = request.op else {
            return Err(ErrorKind::NotSupported.into());
        };
        self.asked.lock().push(get.known);
        let version = Some(MapVersion { manager: 7, number: get.known_epoch + 1 });
        let answer = match get.known_epoch {
            0 => MapAnswer { version, ..MapAnswer::of(&map(1, vec![server_at("127.0.0.1:1")])) },
            1 => {
                let volume = Volume { id: 3, meta_server: 1, ..Volume::default() };
                let map = ClusterMap {
                    cluster: "c".into(),
                    epoch: 2,
                    volumes: vec![volume],
                    ..ClusterMap::default()
                };
                let changes =
                    MapChanges { map, volumes: vec![1], since: 1, ..MapChanges::default() };
                let changes = Some(changes.encode_to_vec().into());
                MapAnswer { version, changes, map: None }
            }
            _ => MapAnswer::default(),
        };
        Ok(ManagerAnswer::Map(answer).into())
    }
}

/// The whole map was sent to everybody with each epoch.
#[tokio::test]
async fn who_follows_says_which_map_it_has_and_takes_what_differs() {
    let manager = Arc::new(Changing::default());
    let source = ManagerSource::Local(manager.clone());
    let view = MapView::connect(callers(60_000), source, 1_000).await.unwrap();
    for _ in 0..2 {
        view.refresh().await.unwrap();
    }
    let map = view.current();
    assert_eq!((map.epoch, map.servers.len(), map.targets.len()), (2, 1, 1));
    assert_eq!(map.volumes.iter().map(|volume| volume.id).collect::<Vec<_>>(), [2, 3]);
    assert!(view.meta_for(VolumeId(3)).is_ok() && view.meta_for(VolumeId(1)).is_err());
    view.refresh().await.unwrap();
    let of = |number| Some(MapVersion { manager: 7, number });
    let asked = manager.asked.lock().clone();
    assert_eq!(asked[..3], [Some(MapVersion::default()), of(1), of(2)]);
}

#[tokio::test]
async fn a_route_names_the_first_member_in_sync() {
    let group = Group {
        id: 1 << 20,
        epoch: 7,
        members: vec![5, 6, 8],
        in_sync: vec![6, 8],
        ..Group::default()
    };
    let mut map = map(4, Vec::new());
    map.groups.push(group);
    let view = MapView::fixed(callers(60_000), map);
    let route = |primary, epoch, members, in_sync| Route {
        primary: TargetId(primary),
        epoch: Epoch(epoch),
        members,
        in_sync,
    };
    assert_eq!(view.route(GroupId(1 << 20)).unwrap(), route(6, 7, 3, 2));
    assert_eq!(view.route(GroupId(0)).unwrap(), route(5, 3, 1, 1), "of an earlier release");
    assert_eq!(view.route(GroupId(1)).unwrap_err().kind, ErrorKind::StaleMap);
}

#[tokio::test(start_paused = true)]
async fn a_group_has_moved_when_a_map_shows_it_otherwise_and_not_with_each_map() {
    let view = MapView::fixed(callers(60_000), map(4, Vec::new()));
    let route = view.route(GroupId(0)).unwrap();
    let minute = Duration::from_secs(60);
    let moves_with = async |map: ClusterMap| {
        let installed = async {
            tokio::task::yield_now().await;
            install(&view, map);
        };
        let moved = tokio::time::timeout(minute, view.moved(GroupId(0), &route));
        tokio::join!(moved, installed).0.is_ok()
    };
    assert!(!moves_with(map(5, Vec::new())).await);
    let mut other = map(6, Vec::new());
    other.groups[0].epoch += 1;
    assert!(moves_with(other).await);
}

#[tokio::test]
async fn refreshes_at_the_same_time_share_fetches() {
    let fake = Arc::new(Fake::default());
    *fake.map.lock() = map(1, Vec::new());
    let source = ManagerSource::Local(fake.clone());
    let view = MapView::connect(callers(60_000), source, 1_000).await.unwrap();
    let fetching = view.fetch.lock().await;
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let view = view.clone();
            tokio::spawn(async move { view.refresh().await })
        })
        .collect();
    tokio::task::yield_now().await;
    let before = fake.map_calls.load(Ordering::SeqCst);
    drop(fetching);
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), Epoch(1));
    }
    // One may have been under way already and one follows it; the background poll adds its own.
    assert!(fake.map_calls.load(Ordering::SeqCst) - before <= 4);
}

#[tokio::test]
async fn a_new_map_arrives_by_itself_and_a_dropped_view_stops_asking() {
    let fake = Arc::new(Fake::default());
    *fake.map.lock() = map(1, Vec::new());
    let view = MapView::new(callers(60_000), ManagerSource::Local(fake.clone()));
    let arrives = async |epoch| {
        while view.current().epoch != epoch {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), arrives(1)).await.unwrap();
    *fake.map.lock() = map(2, Vec::new());
    tokio::time::timeout(Duration::from_secs(60), arrives(2)).await.unwrap();
    drop(view);
    // The poller held the last other reference to the manager.
    assert_eq!(Arc::strong_count(&fake), 1);
}
