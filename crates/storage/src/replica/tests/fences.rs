//! What fenced clients send.

use super::*;
use strake_wire::message::manager::Fenced;

impl Bench {
    /// The session of the client is over, as the manager has it.
    async fn fence(&self, primary: u32) {
        {
            let mut map = self.manager.map.lock();
            map.epoch += 1;
            let epoch = map.epoch;
            map.fenced.push(Fenced { volume: 1, session: 1, epoch });
        }
        self.server(primary).map().refresh().await.unwrap();
    }
}

/// It was allowed when it came, and would overwrite what somebody else has written since.
#[tokio::test]
async fn a_write_that_waited_until_its_session_was_fenced_is_not_made() {
    let bench = Arc::new(Bench::start().await);
    bench.write(0, 1).await;
    // The first holds the block for as long as member 3 cannot be reached.
    let (_, first) = bench.half_made().await;
    let late = {
        let (bench, attempt) = (bench.clone(), bench.attempt());
        tokio::spawn(async move { bench.write_to(1, attempt, 0, 9).await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    bench.fence(1).await;
    bench.net.cut.lock().clear();
    first.await.unwrap().unwrap();
    assert_eq!(late.await.unwrap().unwrap_err().kind, ErrorKind::BadCapability);
    let read = async || {
        let read = msg::Read { chunk: chunk(0), offset: 0, len: 1 };
        let mut request = bench.request(1, StorageOp::Read(read));
        request.capability = key().mint(&Capability {
            volume: VolumeId(1),
            ino: Ino(2),
            rights: Rights::READ,
            session: SessionId(2),
            expires_unix_ms: u64::MAX,
        });
        bench.send(request, Bytes::new()).await.ok()
    };
    let (_, data) = bench.until(read).await;
    assert_eq!(data[0], 2, "that of the first, which was under way");
}
