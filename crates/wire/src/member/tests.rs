use super::*;
use crate::map::ManagerSource;
use crate::message::manager::MapAnswer;
use crate::tests::callers;

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

/// Notes what is renewed for how long.
#[derive(Default)]
struct Server {
    leases: Mutex<Vec<u64>>,
    tenures: Mutex<Vec<u64>>,
}

impl Member for Server {
    fn targets(&self) -> Vec<TargetSpec> {
        Vec::new()
    }

    fn held(&self) -> Vec<Held> {
        Vec::new()
    }

    fn progress(&self) -> Vec<Progress> {
        Vec::new()
    }

    fn obey(&self, _: &[Order]) {}

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

    fn drop_volume(&self, _: VolumeId) -> bool {
        true
    }
}

impl MetaRole for Server {
    fn serves(&self) -> Vec<u32> {
        Vec::new()
    }

    fn is_cut_off(&self) -> bool {
        false
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
        lease_ms: 3_000,
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
}
