//! Targets that come while others serve.

use super::*;
use crate::opener::Opener;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use strake_base::disk::sim::SimDisk;

/// Serves target 9 of a store that was made before.
struct Ready(Weak<StorageServer>, Arc<ChunkStore>);

#[async_trait]
impl Opener for Ready {
    async fn open(&self, wanted: msg::AddTarget) -> Result<msg::Added> {
        self.0.upgrade().unwrap().add_target(TargetId(9), self.1.clone());
        Ok(msg::Added { target: 9, path: wanted.dir, ..msg::Added::default() })
    }
}

async fn ask(server: &StorageServer, target: u32, op: StorageOp) -> Result<StorageAnswer> {
    let capability = key().mint(&capability(Rights::READ_WRITE));
    let request = StorageRequest { target, capability, op: Some(op), ..StorageRequest::default() };
    Ok(server.call(request, Bytes::new()).await?.0.answer.unwrap())
}

#[tokio::test]
async fn a_target_is_added_while_others_serve_and_shares_its_disk() {
    // Of which nobody else takes any room.
    let stores = ["1", "2"].map(|name| store_on(SimDisk::new(1, 1 << 30).process(), name));
    let [first, second] = stores;
    let map = MapView::fixed(Callers::new(CallerOptions::default()), ClusterMap::default());
    let clock = Arc::new(FixedClock);
    let server =
        Arc::new(StorageServer::with_clock(vec![(TargetId(1), first)], key(), map, clock.clone()));
    let stat = || StorageOp::Stat(msg::TargetStatRequest {});
    let add = || {
        let dir = "/disk".to_owned();
        StorageOp::AddTarget(msg::AddTarget { dir, ..msg::AddTarget::default() })
    };
    // The map knows no group, so nothing was ever put into them.
    server.lease().renew(clock.monotonic(), 1_000);
    let refused = ask(&server, 0, add()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotSupported, "nobody makes targets here");
    assert_eq!(ask(&server, 9, stat()).await.unwrap_err().kind, ErrorKind::StaleMap);
    server.set_opener(Arc::new(Ready(Arc::downgrade(&server), second)));
    let stop = Arc::new(AtomicBool::new(false));
    let (others, until) = (server.clone(), stop.clone());
    let served: tokio::task::JoinHandle<Result<()>> = tokio::spawn(async move {
        while !until.load(Ordering::Relaxed) {
            ask(&others, 1, StorageOp::Chunks(chunks_from(0, 0))).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    });
    let added = ask(&server, 0, add()).await.unwrap();
    let expected = msg::Added { target: 9, path: "/disk".into(), ..msg::Added::default() };
    assert_eq!(added, StorageAnswer::Added(expected));
    stop.store(true, Ordering::Relaxed);
    served.await.unwrap().unwrap();
    assert_eq!(server.targets().len(), 2);
    let total = async |target| match ask(&server, target, stat()).await.unwrap() {
        StorageAnswer::Stat(stat) => stat.total_bytes,
        other => panic!("{other:?}"),
    };
    let whole = total(9).await;
    server.share([(TargetId(1), 2), (TargetId(9), 2)]);
    assert!(total(1).await <= whole / 2 + 1 && total(9).await <= whole / 2 + 1);
    // Something may have come.
    server.gates.of(TargetId(9), GroupId(0)).fill();
    let told = || server.held().iter().filter(|held| held.target == 9).count();
    assert_eq!(told(), 1);
    server.forget_target(TargetId(9));
    assert_eq!(told(), 0, "it went on to be told of");
    assert_eq!(ask(&server, 9, stat()).await.unwrap_err().kind, ErrorKind::StaleMap);
    assert!(ask(&server, 1, stat()).await.is_ok());
}
