use super::*;
use crate::caller::{CallerOptions, Callers};
use crate::message::common::Cred;
use crate::message::manager::{ClusterMap, Fenced, GetMap, ManagerOp, ManagerRequest};
use crate::message::meta::{MetaOp, MetaRequest, Recalls, Wait, WriteInline};
use crate::message::storage::Read;
use crate::tests::{Running, callers, options};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends bytes on a new connection and returns what comes back until the server hangs up.
async fn send_raw(server: &Running, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    // The server may hang up before it has all.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

fn hello(cluster: &str) -> Vec<u8> {
    let body = Hello::new(cluster, "test", false);
    Draft::message(&body).unwrap().seal(FrameKind::Hello, ServiceClass::None, 0).head
}

fn answer_of(bytes: &[u8]) -> (Header, &[u8]) {
    let header = Header::decode(bytes).unwrap().unwrap();
    (header, &bytes[crate::frame::HEADER_BYTES..][..header.body_len as usize])
}

/// A call on another connection still works.
async fn assert_alive(server: &Running) {
    let meta = callers(60_000).meta(&server.entry());
    meta.call(MetaRequest::default()).await.unwrap();
}

#[tokio::test]
async fn garbage_closes_its_connection_and_nothing_else() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let patient = callers(60_000).meta(&server.entry());
    patient.call(MetaRequest::default()).await.unwrap();
    let http = b"GET / HTTP/1.1\r\nHost: strake\r\n\r\n".to_vec();
    let zeros = vec![0; 100_000];
    let no_hello = Draft::empty().seal(FrameKind::Request, ServiceClass::Meta, 1).head;
    let mut damaged = hello("c");
    damaged[20] ^= 1;
    let after_hello = [hello("c"), http.clone()].concat();
    for garbage in [http, zeros, no_hello, damaged, after_hello] {
        let answer = send_raw(&server, &garbage).await;
        assert!(answer.len() < 200, "{} bytes", answer.len());
    }
    patient.call(MetaRequest::default()).await.unwrap();
    assert_alive(&server).await;
}

/// Longer than a test runs.
const LONG: Duration = Duration::from_secs(3600);

/// Each had a task and its memory for five seconds, however many there were.
#[tokio::test]
async fn callers_that_have_not_said_hello_are_bounded() {
    let limits = Limits { strangers: 1, hello: LONG, ..Limits::default() };
    let server = Running::start_with("127.0.0.1:0", "c", limits).await;
    let patient = callers(60_000).meta(&server.entry());
    patient.call(MetaRequest::default()).await.unwrap();
    let mut silent = TcpStream::connect(&server.address).await.unwrap();
    let _newer = TcpStream::connect(&server.address).await.unwrap();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).await.unwrap();
    assert!(answer.is_empty());
    patient.call(MetaRequest::default()).await.unwrap();
}

/// Some thousand connections that said nothing used up the files of a process that may have 1,024 open, and then its targets
/// could open none.
#[tokio::test]
async fn connections_are_a_part_of_the_files_that_may_be_open() {
    let most = |files| {
        let Limits { connections, strangers, .. } = Limits::of_files(files);
        (connections, strangers)
    };
    assert_eq!(most(1024), (512, 128));
    assert_eq!(most(u64::MAX), (CONNECTIONS_MAX, STRANGERS_MAX));
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = Running::start_with("127.0.0.1:0", "c", limits).await;
    let first = callers(60_000).meta(&server.entry());
    first.call(MetaRequest::default()).await.unwrap();
    let answer = send_raw(&server, &hello("c")).await;
    assert_eq!(answer_of(&answer).0.error, ErrorKind::Unavailable as u32);
    first.call(MetaRequest::default()).await.unwrap();
}

/// A connection of a caller of this kind, while what is returned lives.
async fn connect(server: &Running, kind: CallerKind) -> Result<Arc<Callers>> {
    let callers = Callers::new(CallerOptions { kind, ..options() });
    callers.meta(&server.entry()).call(MetaRequest::default()).await?;
    Ok(callers)
}

/// Where the manager started anew, thousands of mounts could be there before the servers: these stayed refused, their leases
/// ended, and so did `strake status`.
#[tokio::test]
async fn mounts_leave_connections_to_servers_and_to_commands() {
    let limits = Limits { connections: 16, ..Limits::default() };
    let server = Running::start_with("127.0.0.1:0", "c", limits).await;
    let mut held = Vec::new();
    let kinds = [(CallerKind::Client, 14), (CallerKind::Command, 15), (CallerKind::Server, 16)];
    for (kind, most) in kinds {
        while held.len() <= most
            && let Ok(callers) = connect(&server, kind).await
        {
            held.push(callers);
        }
        assert_eq!(held.len(), most, "{kind:?}");
    }
}

/// Else a client could take what is kept for servers by its own word.
#[test]
fn a_caller_with_a_certificate_is_a_server_by_that_alone() {
    use CallerKind::{Client, Command, Server};
    let expires = strake_types::Timestamp { seconds: 0, nanos: 0 };
    let certificate = |kind| Certificate { name: "n".into(), kind, expires };
    let is = |said, kind: Option<Kind>| {
        let certificate = kind.map(certificate);
        kind_of(&Hello::new("c", "n", false).of_kind(said), certificate.as_ref())
    };
    for (said, with_clients) in [(Client, Client), (Command, Command), (Server, Client)] {
        assert_eq!(is(said, None), said);
        assert_eq!(is(said, Some(Kind::Client)), with_clients);
        assert_eq!(is(said, Some(Kind::Server)), Server);
    }
}

/// They kept newcomers out for five seconds at a time.
#[tokio::test]
async fn the_oldest_caller_that_says_nothing_makes_way_for_a_newcomer() {
    let limits = Limits { strangers: 2, hello: LONG, ..Limits::default() };
    let server = Running::start_with("127.0.0.1:0", "c", limits).await;
    let patient = callers(60_000).meta(&server.entry());
    patient.call(MetaRequest::default()).await.unwrap();
    let mut oldest = TcpStream::connect(&server.address).await.unwrap();
    let mut newer = TcpStream::connect(&server.address).await.unwrap();
    let bye = Draft::empty().seal(FrameKind::Goodbye, ServiceClass::None, 0).head;
    let visit = [hello("c"), bye].concat();
    assert_eq!(answer_of(&send_raw(&server, &visit).await).0.kind, FrameKind::Hello);
    let mut answer = Vec::new();
    oldest.read_to_end(&mut answer).await.unwrap();
    assert!(answer.is_empty());
    newer.write_all(&visit).await.unwrap();
    newer.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer_of(&answer).0.kind, FrameKind::Hello);
    patient.call(MetaRequest::default()).await.unwrap();
}

#[tokio::test]
async fn a_truncated_frame_ends_its_connection() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let draft = Draft::empty().with_payload(Bytes::from(vec![0; 100_000])).unwrap();
    let frame = draft.seal(FrameKind::Request, ServiceClass::Storage, 1);
    let whole = [hello("c"), frame.head, frame.payload.to_vec()].concat();
    for cut in [10, 70, hello("c").len() + 30, whole.len() - 1] {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        stream.write_all(&whole[..cut]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
    }
    assert_alive(&server).await;
}

#[tokio::test]
async fn a_body_that_cannot_be_decoded_fails_its_call_only() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let bad = Draft::error(&Error::with(ErrorKind::Io, "not a message"));
    let bad = bad.seal(FrameKind::Request, ServiceClass::Meta, 1).head;
    let good = Draft::message(&MetaRequest::default()).unwrap();
    let good = good.seal(FrameKind::Request, ServiceClass::Meta, 2).head;
    let bye = Draft::empty().seal(FrameKind::Goodbye, ServiceClass::None, 0).head;
    let answer = send_raw(&server, &[hello("c"), bad, good, bye].concat()).await;
    let (greeting, body) = answer_of(&answer);
    assert_eq!((greeting.kind, greeting.error), (FrameKind::Hello, 0));
    let rest = &answer[crate::frame::HEADER_BYTES + body.len()..];
    let (first, body) = answer_of(rest);
    assert_eq!((first.request, first.error), (1, ErrorKind::Malformed as u32));
    let (second, _) = answer_of(&rest[crate::frame::HEADER_BYTES + body.len()..]);
    assert_eq!((second.request, second.error), (2, 0));
}

/// It was taken for what had been sent: a file had another name, and its bytes another place, at all copies.
#[tokio::test]
async fn a_message_that_was_damaged_on_its_way_closes_its_connection_and_is_not_carried_out() {
    let server = Running::start("127.0.0.1:0", "c").await;
    for bit in 0..16 * 8 {
        let mut damaged = large_call(1, 16);
        let byte = damaged.len() - 16 + bit / 8;
        damaged[byte] ^= 1 << (bit % 8);
        let answer = send_raw(&server, &[hello("c"), damaged].concat()).await;
        let (_, body) = answer_of(&answer);
        assert_eq!(answer.len(), crate::frame::HEADER_BYTES + body.len(), "but a hello");
    }
    assert_eq!(server.fake.meta_calls.load(SeqCst), 0);
    assert_alive(&server).await;
}

#[tokio::test]
async fn releases_without_a_common_protocol_are_told_so() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let newer = Hello { protocol_min: 7, protocol_max: 9, ..Hello::new("c", "new client", false) };
    let frame = Draft::message(&newer).unwrap().seal(FrameKind::Hello, ServiceClass::None, 0);
    let answer = send_raw(&server, &frame.head).await;
    let (header, detail) = answer_of(&answer);
    assert_eq!(header.error, ErrorKind::WrongPeer as u32);
    let detail = String::from_utf8_lossy(detail);
    assert!(detail.contains("new client speaks 7 to 9; upgrade the older side"), "{detail}");
    assert_alive(&server).await;
}

#[test]
fn the_newest_common_protocol_is_chosen() {
    let speaks = |protocol_min, protocol_max| Hello {
        protocol_min,
        protocol_max,
        ..Hello::new("", "", false)
    };
    assert_eq!(speaks(1, 3).accept(&speaks(2, 5)), Ok(3));
    assert_eq!(speaks(2, 5).accept(&speaks(1, 3)), Ok(3));
    assert!(speaks(1, 3).accept(&speaks(4, 5)).is_err());
    assert!(speaks(4, 5).accept(&speaks(1, 3)).is_err());
}

#[tokio::test]
async fn a_caller_of_another_cluster_is_told_so() {
    let server = Running::start("127.0.0.1:0", "ours").await;
    let answer = send_raw(&server, &hello("theirs")).await;
    let (header, detail) = answer_of(&answer);
    assert_eq!(header.error, ErrorKind::WrongPeer as u32);
    let detail = String::from_utf8_lossy(detail);
    assert!(detail.contains("ours") && detail.contains("theirs"), "{detail}");
}

#[tokio::test]
async fn who_says_no_hello_in_time_is_hung_up_on() {
    let limits = Limits { hello: Duration::from_millis(20), ..Limits::default() };
    let server = Running::start_with("127.0.0.1:0", "c", limits).await;
    let whole = hello("c");
    for part in [0, 3, 64] {
        assert!(send_raw(&server, &whole[..part]).await.is_empty());
    }
}

/// Each look of `strake doctor`, or of a load balancer, was a warning in the log.
#[tokio::test]
async fn who_comes_and_goes_without_a_word_is_told_from_who_is_to_be_warned_of() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    for said in [0, 3] {
        let mut caller = TcpStream::connect(listener.address()).await.unwrap();
        caller.write_all(&hello("c")[..said]).await.unwrap();
        let stream = listener.accept().await.unwrap().establish().await.unwrap().stream;
        drop(caller);
        let mut reader = FrameReader::new(stream, BufferPool::new(0));
        let error = hello::receive(&mut reader).await.unwrap_err();
        assert_eq!(hello::is_silent(&error), said == 0, "{error}");
    }
}

#[tokio::test]
async fn who_does_not_finish_a_frame_in_time_is_hung_up_on() {
    let limits = Limits { frame: Duration::from_millis(20), ..Limits::default() };
    let server = Running::start_with("127.0.0.1:0", "c", limits).await;
    let draft = Draft::empty().with_payload(Bytes::from(vec![0; 100])).unwrap();
    let frame = draft.seal(FrameKind::Request, ServiceClass::Storage, 1);
    for cut in [10, 64, 163] {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        let slow = [frame.head.as_slice(), &frame.payload].concat();
        stream.write_all(&[hello("c").as_slice(), &slow[..cut]].concat()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer_of(&answer).0.kind, FrameKind::Hello);
    }
}

/// Frames that announced payloads and did not send them had all the room for payloads, and the writes
/// of everybody else waited a minute for it.
#[tokio::test]
async fn room_for_payloads_that_do_not_come_goes_to_others() {
    let limits = Limits { pause: Duration::from_millis(50), ..Limits::default() };
    let server = Running::start_with("127.0.0.1:0", "c", limits).await;
    let payload = Bytes::from(vec![0; PAYLOAD_BYTES_MAX]);
    let draft = Draft::empty().with_payload(payload).unwrap();
    let head = draft.seal(FrameKind::Request, ServiceClass::Storage, 1).head;
    let mut greedy = Vec::new();
    for _ in 0..BYTES_MAX / PAYLOAD_BYTES_MAX + 8 {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        stream.write_all(&[hello("c"), head.clone()].concat()).await.unwrap();
        // The hello of the server; the header is read in the same breath.
        stream.readable().await.unwrap();
        greedy.push(stream);
    }
    let storage = callers(20_000).storage(&server.entry());
    let data = Bytes::from(vec![1; 1 << 20]);
    // On a busy machine its payload may pause, too.
    let written = async {
        while storage.call(StorageRequest::default(), data.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), written).await.unwrap();
    for mut stream in greedy {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer_of(&answer).0.kind, FrameKind::Hello);
    }
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_back_further_calls() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let (read_bytes, reads) = (8 << 20, 24);
    let read = Read { len: read_bytes, ..Read::default() };
    let request = StorageRequest { op: Some(StorageOp::Read(read)), ..Default::default() };
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    stream.write_all(&hello("c")).await.unwrap();
    for id in 0..reads {
        let draft = Draft::message(&request).unwrap();
        let frame = draft.seal(FrameKind::Request, ServiceClass::Storage, id);
        stream.write_all(&frame.head).await.unwrap();
    }
    // Begun are those for which there is room, and those whose answers fit into the sockets.
    let begun = || server.fake.storage_calls.load(std::sync::atomic::Ordering::SeqCst);
    let (mut before, mut now) = (0, begun());
    while now == 0 || now != before {
        tokio::time::sleep(Duration::from_millis(200)).await;
        (before, now) = (now, begun());
    }
    assert!(now < reads as usize, "{now}");
    let mut left = reads * read_bytes;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let n = stream.read(&mut buffer).await.unwrap();
        assert!(n > 0);
        left = left.saturating_sub(n as u64);
    }
    assert_eq!(begun(), reads as usize);
}

/// A call with a large body that is never answered.
fn large_call(id: u64, body_bytes: usize) -> Vec<u8> {
    let data = Bytes::from(vec![0; body_bytes]);
    let op = Some(MetaOp::WriteInline(WriteInline { data, ..WriteInline::default() }));
    let request = MetaRequest { session: 2, op, ..MetaRequest::default() };
    Draft::message(&request).unwrap().seal(FrameKind::Request, ServiceClass::Meta, id).head
}

/// Waits until no further call begins, and says how many have.
async fn begun_in_the_end(calls: &AtomicUsize) -> usize {
    let begun = || calls.load(SeqCst);
    let (mut before, mut now) = (0, begun());
    while now == 0 || now != before {
        tokio::time::sleep(Duration::from_millis(200)).await;
        (before, now) = (now, begun());
    }
    now
}

/// Only payloads counted: each connection could have 256 bodies of 4 MiB here.
#[tokio::test]
async fn bodies_of_calls_that_wait_hold_back_further_ones_and_no_small_call() {
    let body_bytes = 3 << 20;
    // What one connection may have, and what all may have.
    for (connections, bytes_max) in [(1, BYTES_PER_CONNECTION_MAX), (3, BODIES_BYTES_MAX)] {
        let server = Running::start("127.0.0.1:0", "c").await;
        let greedy = (0..connections).map(|_| async {
            let mut stream = TcpStream::connect(&server.address).await.unwrap();
            stream.write_all(&hello("c")).await.unwrap();
            for id in 0..BYTES_PER_CONNECTION_MAX / body_bytes + 64 {
                // Not read by the server, once there is no room.
                if stream.write_all(&large_call(id as u64, body_bytes)).await.is_err() {
                    break;
                }
            }
        });
        let all = futures::future::join_all(greedy);
        let begun = tokio::select! {
            _ = all => panic!("there is room for everything"),
            begun = begun_in_the_end(&server.fake.meta_calls) => begun,
        };
        assert!(begun * body_bytes <= bytes_max, "{begun}");
        assert_alive(&server).await;
    }
}

/// Only payloads counted: who asked for the map again and again and read nothing had 256 of it made.
#[tokio::test]
async fn bodies_of_answers_that_nobody_reads_hold_back_further_calls() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let fenced = vec![Fenced { volume: 1, session: u64::MAX, epoch: u64::MAX }; 80_000];
    *server.fake.map.lock() = ClusterMap { epoch: 1, fenced, ..ClusterMap::default() };
    let calls = 64;
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    stream.write_all(&hello("c")).await.unwrap();
    for id in 0..calls {
        let op = Some(ManagerOp::GetMap(GetMap::default()));
        let draft = Draft::message(&ManagerRequest { op }).unwrap();
        let frame = draft.seal(FrameKind::Request, ServiceClass::Manager, id);
        stream.write_all(&frame.head).await.unwrap();
    }
    let begun = &server.fake.map_calls;
    let first = begun_in_the_end(begun).await;
    assert!(first < calls as usize, "{first}");
    let mut buffer = vec![0; 1 << 20];
    while begun.load(SeqCst) < calls as usize {
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
    }
}

/// It was received whole, without room for it.
#[tokio::test]
async fn what_is_no_request_is_passed_over() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let other = Draft::message(&Hello::new("c", "test", false)).unwrap();
    let other = other.with_payload(Bytes::from(vec![0; 100_000])).unwrap();
    let other = other.seal(FrameKind::Hello, ServiceClass::None, 0);
    let good = Draft::message(&MetaRequest::default()).unwrap();
    let good = good.seal(FrameKind::Request, ServiceClass::Meta, 2).head;
    let bye = Draft::empty().seal(FrameKind::Goodbye, ServiceClass::None, 0).head;
    let sent = [hello("c"), other.head, other.payload.to_vec(), good, bye].concat();
    let answer = send_raw(&server, &sent).await;
    let (_, greeting) = answer_of(&answer);
    let (header, _) = answer_of(&answer[crate::frame::HEADER_BYTES + greeting.len()..]);
    assert_eq!((header.request, header.error), (2, 0));
}

/// A user's groups were as many as fit into a body, and kept as long as the call took.
#[tokio::test]
async fn a_user_in_more_groups_than_there_can_be_is_refused() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let meta = callers(60_000).meta(&server.entry());
    for (groups, expected) in [(GROUPS_MAX, Ok(())), (GROUPS_MAX + 1, Err(ErrorKind::Malformed))] {
        let cred = Cred { groups: vec![1; groups], ..Cred::default() };
        let answer = meta.call(MetaRequest { cred, ..MetaRequest::default() }).await;
        assert_eq!(answer.map(|_| ()).map_err(|e| e.kind), expected);
    }
}

/// Of them eight are told; but there were millions as long as a call for recalls waited, 28 times as large as they had come.
#[tokio::test]
async fn a_client_that_tells_of_more_waits_than_any_does_is_refused() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let meta = callers(60_000).meta(&server.entry());
    let (few, many) = (vec![Wait::default(); WAITS_MAX], vec![Wait::default(); WAITS_MAX + 1]);
    let malformed = Err(ErrorKind::Malformed);
    for (waits, waited, expected) in
        [(&few, &few, Ok(())), (&many, &few, malformed), (&few, &many, malformed)]
    {
        let recalls =
            Recalls { waits: waits.clone(), waited: waited.clone(), ..Recalls::default() };
        let op = Some(MetaOp::Recalls(recalls));
        let answer = meta.call(MetaRequest { op, ..MetaRequest::default() }).await;
        assert_eq!(answer.map(|_| ()).map_err(|e| e.kind), expected);
    }
}

#[tokio::test]
async fn listening_where_another_listens_is_refused_with_a_hint() {
    let server = Running::start("127.0.0.1:0", "c").await;
    let error = Listener::bind(&server.address).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(error.detail.contains("--listen") && error.detail.contains(&server.address));
    assert_eq!(Listener::bind("nonsense").await.err().map(|e| e.kind), Some(ErrorKind::Invalid));
}

#[tokio::test]
async fn a_socket_left_behind_by_a_killed_server_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let address = format!("unix:{}", path.display());
    let server = Running::start(&address, "c").await;
    assert_eq!(Listener::bind(&address).await.err().map(|e| e.kind), Some(ErrorKind::Busy));
    assert_alive(&server).await;
    server.stop().await;
}
