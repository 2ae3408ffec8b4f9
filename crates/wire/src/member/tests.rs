use super::*;
use crate::map::ManagerSource;
use crate::message::manager::{ClusterMap, MapAnswer, Volume};
use crate::tests::callers;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

/// Hears heartbeats.
#[derive(Default)]
struct Hearer(Mutex<Vec<Heartbeat>>);

#[async_trait]
impl ManagerService for Hearer {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        Ok(match request.op {
            Some(ManagerOp::Heartbeat(beat)) => {
                self.0.lock().push(beat);
                ManagerAnswer::Epoch(0)
            }
            _ => ManagerAnswer::Map(MapAnswer::default()),
        }
        .into())
    }
}

/// Refuses who joins until then.
struct Refuser(ErrorKind, Instant);

#[async_trait]
impl ManagerService for Refuser {
    async fn call(&self, _: ManagerRequest) -> Result<ManagerReply> {
        match Instant::now() < self.1 {
            true => Err(Error::with(self.0, "not yet")),
            false => Ok(ManagerAnswer::Joined(Joined { server: 7, ..Joined::default() }).into()),
        }
    }
}

/// A manager that has just started takes servers for alive that it has not heard: a new server with the address of one that was
/// lost was refused then, and so was the manager's own, which had died before it wrote down its number, at each start.
#[tokio::test(start_paused = true)]
async fn a_server_without_a_cluster_asks_again_until_it_is_known_who_lives() {
    let ask = async |kind, ms, cluster: &str| {
        let begun = Instant::now();
        let refuser = Refuser(kind, begun + Duration::from_millis(ms));
        let request = Join { cluster: cluster.into(), ..Join::default() };
        let joined = join(&refuser, &request, 15_000).await;
        (joined.map(|joined| joined.server).map_err(|error| error.kind), begun.elapsed().as_secs())
    };
    assert_eq!(ask(ErrorKind::Busy, 3_001, "").await, (Ok(7), 3));
    assert_eq!(ask(ErrorKind::Busy, 60_000, "").await, (Err(ErrorKind::Busy), 4));
    assert_eq!(ask(ErrorKind::Busy, 10_000, "c").await, (Ok(7), 10));
    assert_eq!(ask(ErrorKind::Busy, 60_000, "c").await, (Err(ErrorKind::Busy), 15));
    assert_eq!(ask(ErrorKind::Unavailable, 10_000, "").await, (Ok(7), 10));
    assert_eq!(ask(ErrorKind::WrongPeer, 10_000, "").await, (Err(ErrorKind::WrongPeer), 0));
}

/// A manager that is started anew while a server joins: busy for two seconds, away until the tenth, and busy for two more.
struct Restarting(Instant);

#[async_trait]
impl ManagerService for Restarting {
    async fn call(&self, _: ManagerRequest) -> Result<ManagerReply> {
        match self.0.elapsed().as_secs() {
            0..2 | 10..12 => Err(ErrorKind::Busy.into()),
            2..10 => Err(ErrorKind::Unavailable.into()),
            _ => Ok(ManagerAnswer::Joined(Joined { server: 7, ..Joined::default() }).into()),
        }
    }
}

/// The time that the manager was away counted as time in which it was busy.
#[tokio::test(start_paused = true)]
async fn a_manager_that_starts_anew_while_a_server_joins_is_given_the_same_time_again() {
    let joined = join(&Restarting(Instant::now()), &Join::default(), 15_000).await;
    assert_eq!(joined.unwrap().server, 7);
}

/// Notes what is renewed for how long, and where volumes are dropped.
#[derive(Default)]
struct Server {
    leases: Mutex<Vec<u64>>,
    tenures: Mutex<Vec<u64>>,
    targets: Vec<u32>,
    dropped: Mutex<Vec<u32>>,
    /// The disk of target 1 hangs until the other end is gone.
    hangs: Mutex<Option<mpsc::Receiver<()>>>,
    /// No volume can be dropped any more.
    refuses: AtomicBool,
}

impl Member for Server {
    fn targets(&self) -> Vec<TargetSpec> {
        let spec = |&target| TargetSpec { target, ..TargetSpec::default() };
        self.targets.iter().map(spec).collect()
    }

    fn held(&self) -> Vec<Held> {
        Vec::new()
    }

    fn progress(&self) -> Vec<Progress> {
        Vec::new()
    }

    fn obey(&self, _: &[Order]) {}

    fn missed(&self) -> Vec<Missed> {
        Vec::new()
    }

    fn resign(&self, _: &[Resign]) {}

    fn doubt(&self, _: &[Doubt]) {}

    fn scrubs(&self) -> Vec<ScrubProgress> {
        Vec::new()
    }

    fn obey_scrubs(&self, _: &[ScrubOrder]) {}

    fn wake(&self) {}

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn renew(&self, _: Duration, lease_ms: u64, _: u64) {
        self.leases.lock().push(lease_ms);
    }

    fn drop_volume(&self, target: TargetId, _: VolumeId) -> bool {
        let hangs = self.hangs.lock().take_if(|_| target.0 == 1);
        if let Some(hangs) = hangs {
            let _gone = hangs.recv();
        }
        self.dropped.lock().push(target.0);
        !self.refuses.load(Ordering::Relaxed)
    }
}

impl MetaRole for Server {
    fn serves(&self) -> Vec<u32> {
        Vec::new()
    }

    fn is_cut_off(&self) -> bool {
        false
    }

    fn full(&self) -> String {
        "no space left".into()
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn renew(&self, _: Duration, tenure_ms: u64, _: u64) {
        self.tenures.lock().push(tenure_ms);
    }

    fn recopies(&self) -> Vec<RecopyProgress> {
        Vec::new()
    }

    fn obey_recopies(&self, _: &[RecopyOrder]) {}
}

/// Whoever gives its volumes to another waits for what it was told, and no longer.
#[tokio::test]
async fn a_server_relies_on_what_it_has_asked_for() {
    let (hearer, server) = (Arc::new(Hearer::default()), Arc::new(Server::default()));
    let pulse = Pulse {
        server: ServerId(1),
        manager: hearer.clone(),
        map: MapView::new(callers(60_000), ManagerSource::Local(hearer.clone())),
        member: server.clone(),
        meta: Some(server.clone()),
        gone_back: GoneBack::new(|| 0),
        lease_ms: 3_000,
        release: "0.1.0 (1a)",
        address: "h1:1".into(),
    };
    let term = Mutex::<Term>::default();
    beat_once(&pulse, &term).await.unwrap();
    // Answers are slow now.
    term.lock().note(Duration::from_millis(400));
    beat_once(&pulse, &term).await.unwrap();
    term.lock().note(Duration::from_secs(2));
    beat_once(&pulse, &term).await.unwrap();
    assert_eq!(*server.leases.lock(), [700, 1_200, 3_000]);
    assert_eq!(*server.tenures.lock(), [700, 1_200, 1_500]);
    let heard = hearer.0.lock();
    let asked = |of: fn(&Heartbeat) -> u64| heard.iter().map(of).collect::<Vec<_>>();
    assert_eq!(asked(|beat| beat.lease_ms), *server.leases.lock());
    assert_eq!(asked(|beat| beat.tenure_ms), *server.tenures.lock());
    assert!(heard.iter().all(|beat| beat.release == "0.1.0 (1a)"));
    assert!(heard.iter().all(|beat| beat.full == "no space left"));
}

/// A manager that takes note of nothing the first time.
#[derive(Default)]
struct Forgetful(Hearer);

#[async_trait]
impl ManagerService for Forgetful {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let is_first = self.0.0.lock().is_empty();
        let reply = self.0.call(request).await?;
        match is_first {
            true => Err(ErrorKind::Unavailable.into()),
            false => Ok(reply),
        }
    }
}

/// Acknowledged files were gone, and the cluster was fine.
#[tokio::test]
async fn that_a_database_has_gone_back_is_said_until_a_manager_has_noted_it() {
    let manager = Arc::new(Forgetful::default());
    let gone_back = Arc::new(AtomicU64::new(2));
    let times = gone_back.clone();
    let pulse = Pulse {
        server: ServerId(1),
        manager: manager.clone(),
        map: MapView::fixed(callers(60_000), ClusterMap::default()),
        member: Arc::new(Server::default()),
        meta: None,
        gone_back: GoneBack::new(move || times.load(Ordering::Relaxed)),
        lease_ms: 3_000,
        release: "",
        address: "h1:1".into(),
    };
    let term = Mutex::<Term>::default();
    for (times, is_answered) in [(2, false), (2, true), (2, true), (3, true), (3, true)] {
        gone_back.store(times, Ordering::Relaxed);
        assert_eq!(beat_once(&pulse, &term).await.is_ok(), is_answered);
    }
    let said: Vec<bool> = manager.0.0.lock().iter().map(|beat| beat.gone_back).collect();
    assert_eq!(said, [true, true, false, true, false]);
}

/// A manager at which another process has joined under the number of a server, after three heartbeats of that.
#[derive(Default)]
struct Overtaken(Hearer);

#[async_trait]
impl ManagerService for Overtaken {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let reply = self.0.call(request).await?;
        match self.0.0.lock().len() > 3 {
            true => Err(Error::with(ErrorKind::Overtaken, "it runs at h2:1")),
            false => Ok(reply),
        }
    }
}

/// It went on, and was taken for the other one.
#[tokio::test(start_paused = true)]
async fn a_server_whose_number_another_process_has_says_why_and_beats_no_more() {
    let (manager, server) = (Arc::new(Overtaken::default()), Arc::new(Server::default()));
    let pulse = Pulse {
        server: ServerId(1),
        manager: manager.clone(),
        map: MapView::fixed(callers(60_000), ClusterMap::default()),
        member: server.clone(),
        meta: None,
        gone_back: GoneBack::new(|| 0),
        lease_ms: 3_000,
        release: "",
        address: "h1:1".into(),
    };
    let heart = Heart::start(pulse, None);
    let why = tokio::time::timeout(Duration::from_secs(60), heart.overtaken()).await;
    assert_eq!(why.unwrap(), &Error::with(ErrorKind::Overtaken, "it runs at h2:1"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let said: Vec<String> = manager.0.0.lock().iter().map(|beat| beat.address.clone()).collect();
    assert_eq!(said, ["h1:1"; 4]);
    assert_eq!(server.leases.lock().len(), 3, "what is refused renews no lease");
    heart.stop();
}

/// One thread dropped a volume on all targets, one after the other.
#[tokio::test]
async fn a_target_whose_disk_hangs_does_not_keep_deleted_volumes_on_others() {
    let (_hanging, hangs) = mpsc::channel();
    let hangs = Mutex::new(Some(hangs));
    let server = Arc::new(Server { targets: vec![1, 2], hangs, ..Server::default() });
    let volumes = vec![Volume { id: 7, deleting: true, ..Volume::default() }];
    let map = ClusterMap { epoch: 1, volumes, ..ClusterMap::default() };
    let view = MapView::fixed(callers(60_000), map);
    let _sweeping = task::spawn_owned(sweep(server.clone(), view));
    for _ in 0..2_000 {
        if !server.dropped.lock().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(*server.dropped.lock(), [2]);
}

/// What came to a target after it had dropped the volume, from one that had not yet, stayed there until its server was started anew.
#[tokio::test(start_paused = true)]
async fn a_deleted_volume_is_dropped_again_later() {
    let server = Arc::new(Server { targets: vec![1], ..Server::default() });
    let volumes = vec![Volume { id: 7, deleting: true, ..Volume::default() }];
    let map = ClusterMap { epoch: 1, volumes, ..ClusterMap::default() };
    let _sweeping = task::spawn_owned(sweep(server.clone(), MapView::fixed(callers(60_000), map)));
    let dropped = || server.dropped.lock().len();
    let looks = 2 * SWEEP_AGAIN.as_millis() as u64 / SWEEP_MS;
    for _ in 0..looks {
        if dropped() > 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(SWEEP_MS)).await;
    }
    assert_eq!(dropped(), 2);
    // As where the store fails meanwhile: it was tried, and the log said so, every two seconds.
    server.refuses.store(true, Ordering::Relaxed);
    for _ in 0..looks {
        tokio::time::sleep(Duration::from_millis(SWEEP_MS)).await;
    }
    assert!((3..=4).contains(&dropped()), "{}", dropped());
}
