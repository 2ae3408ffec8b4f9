use super::*;
use crate::caller::{CallerOptions, Callers};
use crate::frame::{FrameKind, Header, ServiceClass, crc32c};
use crate::message::manager::{GetMap, Heartbeat, Join, Leave, ManagerOp, ManagerRequest};
use crate::message::meta::{MetaAnswer, MetaRequest};
use crate::message::storage::{
    Chunk, FileRef, Read as ReadChunk, StorageOp, StorageRequest, Truncate, Write as WriteChunk,
};
use crate::server::Limits;
use crate::stream::Stream;
use crate::tests::{Running, callers, options, pattern, server_at};
use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use std::future::poll_fn;
use std::io::{ErrorKind as Io, IoSlice};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A CA and a directory for what it issues.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    dir: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(2999, 1, 1);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem, dir: tempfile::tempdir().unwrap() }
    }

    /// Files of a member whose certificate is valid until a year.
    fn issue_until(&self, name: &str, kind: Kind, year: i32) -> TlsFiles {
        let names = vec![name.to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if kind == Kind::Server {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.not_before = date_time_ymd(1999, 1, 1);
        params.not_after = date_time_ymd(year, 6, 30);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let dir = self.dir.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let files = TlsFiles::in_directory(&dir);
        std::fs::write(&files.ca, &self.pem).unwrap();
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        set_mode(&files.key, 0o600);
        files
    }

    fn member(&self, name: &str, kind: Kind) -> Arc<Tls> {
        Tls::load(self.issue_until(name, kind, 2999)).unwrap()
    }

    /// Configurations around a certificate that a well-behaved member would not even load.
    fn forced(&self, files: &TlsFiles) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let provider = Arc::new(ring::default_provider());
        let Material { roots, chain, key } = files.read().unwrap();
        let roots = Arc::new(roots);
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), key.clone_key());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().unwrap();
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key);
        (Arc::new(client.unwrap()), Arc::new(server.unwrap()))
    }

    /// A member that uses such files all the same.
    fn reckless(&self, name: &str, kind: Kind, year: i32) -> Tls {
        let like = self.member(&format!("{name}.valid"), kind);
        let files = self.issue_until(name, kind, year);
        let (client, server) = self.forced(&files);
        let loaded = like.current();
        let (roots, chain) = (loaded.roots.clone(), loaded.chain.clone());
        let certificate = loaded.certificate.clone();
        let loaded = Loaded { client, server, roots, chain, certificate };
        let slot = Slot::new(files.stamp(), Arc::new(loaded));
        Tls { files, slot, serves: OnceLock::new() }
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

async fn serve(tls: Option<Arc<Tls>>) -> Running {
    Running::start_secured("127.0.0.1:0", "c", Limits::default(), tls).await
}

fn callers_with(tls: Arc<Tls>) -> Arc<Callers> {
    Callers::new(CallerOptions { tls: Some(tls), ..options() })
}

async fn greet(callers: &Callers, server: &Running) -> Result<()> {
    let request = MetaRequest { seq: 9, ..MetaRequest::default() };
    let reply = callers.meta(&server.entry()).call(request).await?;
    assert_eq!(reply.answer, Some(MetaAnswer::Bytes(Bytes::from(9u64.to_le_bytes().to_vec()))));
    Ok(())
}

async fn refused(callers: &Callers, server: &Running, words: &[&str]) {
    let error = greet(callers, server).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongPeer, "{error}");
    for word in words.iter().chain(&[server.address.as_str()]) {
        assert!(error.detail.contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn members_of_one_authority_understand_each_other() {
    let authority = Authority::new();
    let server = serve(Some(authority.member("host1", Kind::Server))).await;
    for kind in [Kind::Server, Kind::Client] {
        greet(&callers_with(authority.member("someone", kind)), &server).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_payloads_pass_in_both_directions_at_once() {
    let authority = Authority::new();
    let server = serve(Some(authority.member("host1", Kind::Server))).await;
    let storage = callers_with(authority.member("me", Kind::Client)).storage(&server.entry());
    let tasks: Vec<_> = (0..12u64)
        .map(|i| {
            let storage = storage.clone();
            tokio::spawn(async move {
                for len in [0, 1, 16_384, 16_385, 300_000, 8 << 20] {
                    let data = pattern(i, len);
                    let crc = crc32c(&data);
                    let op = StorageOp::Write(WriteChunk {
                        chunk: Chunk::default(),
                        offset: 0,
                        crc,
                        durable: false,
                    });
                    let write = StorageRequest { op: Some(op), ..StorageRequest::default() };
                    storage.call(write, data.clone()).await.unwrap();
                    let op = StorageOp::Read(ReadChunk { chunk: Chunk::default(), offset: i, len });
                    let read = StorageRequest { op: Some(op), ..StorageRequest::default() };
                    let (_, back) = storage.call(read, Bytes::new()).await.unwrap();
                    assert!(back == data, "{len} bytes");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_certificate_may_call_but_not_say_what_servers_say() {
    let authority = Authority::new();
    let server = serve(Some(authority.member("host1", Kind::Server))).await;
    let client = callers_with(authority.member("laptop", Kind::Client));
    let manager = client.manager(&server.entry());
    let forbidden = [
        ManagerOp::Join(Join::default()),
        ManagerOp::Heartbeat(Heartbeat::default()),
        ManagerOp::Leave(Leave::default()),
    ];
    for op in forbidden {
        let error = manager.call(ManagerRequest { op: Some(op) }).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotPermitted);
        assert!(error.detail.contains("laptop") && error.detail.contains("--kind server"));
    }
    let storage = client.storage(&server.entry());
    for op in [StorageOp::Truncate(Truncate::default()), StorageOp::DropVolume(FileRef::default())]
    {
        let request = StorageRequest { op: Some(op), ..StorageRequest::default() };
        let error = storage.call(request, Bytes::new()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotPermitted);
    }
    let allowed = ManagerOp::GetMap(GetMap::default());
    manager.call(ManagerRequest { op: Some(allowed) }).await.unwrap();

    let peer = callers_with(authority.member("host2", Kind::Server)).manager(&server.entry());
    peer.call(ManagerRequest { op: Some(ManagerOp::Join(Join::default())) }).await.unwrap();
}

#[tokio::test]
async fn a_client_certificate_cannot_serve() {
    let authority = Authority::new();
    let server = serve(Some(authority.member("laptop", Kind::Client))).await;
    let callers = callers_with(authority.member("me", Kind::Client));
    refused(&callers, &server, &["is a client's", "--kind server"]).await;
}

#[tokio::test]
async fn members_of_another_authority_are_refused_on_both_sides() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = serve(Some(ours.member("host1", Kind::Server))).await;
    // The caller does not know the server's CA.
    let stranger = callers_with(theirs.member("stranger", Kind::Client));
    refused(&stranger, &server, &["not signed by our CA", "same cluster"]).await;
    // The caller would take the server, but not the other way round.
    let files = theirs.issue_until("half", Kind::Client, 2999);
    std::fs::write(&files.ca, theirs.pem.clone() + &ours.pem).unwrap();
    let half = callers_with(Tls::load(files).unwrap());
    refused(&half, &server, &["refuses our certificate", "same cluster"]).await;
    greet(&callers_with(ours.member("me", Kind::Client)), &server).await.unwrap();
}

#[tokio::test]
async fn expired_certificates_are_refused_and_the_way_out_is_named() {
    let authority = Authority::new();
    let error = Tls::load(authority.issue_until("old", Kind::Client, 2020)).unwrap_err();
    assert!(error.detail.contains("expired on 2020-06-30; issue a new one with strake tls issue"));

    let server = serve(Some(authority.member("host1", Kind::Server))).await;
    let old = Arc::new(authority.reckless("oldclient", Kind::Client, 2020));
    refused(&callers_with(old), &server, &["our certificate", "expired", "strake tls issue"]).await;

    let old = Arc::new(authority.reckless("oldserver", Kind::Server, 2021));
    let server = serve(Some(old)).await;
    let me = callers_with(authority.member("me", Kind::Client));
    refused(&me, &server, &["expired on 2021-06-30", "strake tls issue"]).await;
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused_by_both_names() {
    let authority = Authority::new();
    let tls = authority.member("host1", Kind::Server);
    let server = serve(Some(tls.clone())).await;
    let port = server.address.rsplit_once(':').unwrap().1;
    let me = callers_with(authority.member("me", Kind::Client));
    let meta = me.meta(&server_at(&format!("localhost:{port}")));
    let error = meta.call(MetaRequest::default()).await.unwrap_err();
    for word in ["host1", "not for localhost", "--address localhost"] {
        assert!(error.detail.contains(word), "{error}");
    }
    let error = tls.serve(Some("10.0.0.1")).unwrap_err();
    assert!(error.detail.contains("--address 10.0.0.1"), "{error}");
    assert!(["127.0.0.1", "host1"].into_iter().all(|host| tls.serve(Some(host)).is_ok()));
}

#[tokio::test]
async fn a_plain_caller_is_told_that_the_server_wants_tls() {
    let authority = Authority::new();
    let server = serve(Some(authority.member("host1", Kind::Server))).await;
    refused(&callers(60_000), &server, &["encrypted connections only", "--tls-cert"]).await;
    greet(&callers_with(authority.member("me", Kind::Client)), &server).await.unwrap();
}

#[tokio::test]
async fn a_tls_caller_is_told_that_the_server_speaks_plainly() {
    let authority = Authority::new();
    let server = serve(None).await;
    let me = callers_with(authority.member("me", Kind::Client));
    refused(&me, &server, &["speaks without TLS", "--no-tls"]).await;
    greet(&callers(60_000), &server).await.unwrap();
}

#[tokio::test]
async fn garbage_at_the_tls_port_closes_its_connection_and_nothing_else() {
    let authority = Authority::new();
    let server = serve(Some(authority.member("host1", Kind::Server))).await;
    let me = callers_with(authority.member("me", Kind::Client));
    greet(&me, &server).await.unwrap();
    let record = [TLS_RECORD, &[0xff; 512]].concat();
    let garbage: [&[u8]; 5] = [b"GET / HTTP/1.1\r\n\r\n", &[0; 5000], &[0xff; 70], &record, b"STR"];
    for bytes in garbage {
        let mut socket = TcpStream::connect(&server.address).await.unwrap();
        // The server may hang up before it has all.
        let _ = socket.write_all(bytes).await;
        let _ = socket.shutdown().await;
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        assert!(answer.len() < 400, "{} bytes", answer.len());
    }
    greet(&me, &server).await.unwrap();
    greet(&callers_with(authority.member("other", Kind::Client)), &server).await.unwrap();
}

/// Header of a handshake record of 512 bytes.
const TLS_RECORD: &[u8] = &[0x16, 3, 1, 2, 0];

#[tokio::test]
async fn who_does_not_finish_the_handshake_in_time_is_hung_up_on() {
    let authority = Authority::new();
    let limits = Limits { hello: Duration::from_millis(20), ..Limits::default() };
    let tls = Some(authority.member("host1", Kind::Server));
    let server = Running::start_secured("127.0.0.1:0", "c", limits, tls).await;
    for part in [&[][..], TLS_RECORD] {
        let mut socket = TcpStream::connect(&server.address).await.unwrap();
        socket.write_all(part).await.unwrap();
        let mut answer = Vec::new();
        // The end, by whatever name: bytes that nobody read turn it into a reset.
        let _ = socket.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
    }
}

/// Both ends of a connection, and a look at what passes between them.
async fn pair(authority: &Authority) -> (TlsStream, TlsStream) {
    let (one, two) = (authority.member("a", Kind::Server), authority.member("b", Kind::Client));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let calling = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (called, _) = listener.accept().await.unwrap();
    let (server, client) = tokio::join!(one.accept(called), two.connect(calling, "127.0.0.1"));
    let ((server, seen), (client, saw)) = (server.unwrap(), client.unwrap());
    assert_eq!((seen.name.as_str(), seen.kind), ("b", Kind::Client));
    assert_eq!((saw.name.as_str(), saw.kind), ("a", Kind::Server));
    assert_eq!(saw.expires.date(), "2999-06-30");
    (server, client)
}

/// One call decrypted them as long as there were any. (Session tickets are such records; ours sends none.)
#[tokio::test]
async fn of_records_that_say_nothing_one_read_takes_few() {
    let authority = Authority::new();
    let (client, server) = authority.forced(&authority.issue_until("a", Kind::Server, 2999));
    let mut server = Arc::unwrap_or_clone(server);
    server.send_tls13_tickets = 500;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let calling = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (called, _) = listener.accept().await.unwrap();
    let name = server_name("127.0.0.1").unwrap();
    let client = rustls::ClientConnection::new(client, name).unwrap();
    let server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
    let (server, client) =
        tokio::join!(handshake::accept(called, server), handshake::connect(calling, client));
    let ((_server, _), (client, _)) = (server.unwrap(), client.unwrap());
    let mut read = Vec::new();
    // Others have their turn first, and then there are no more.
    for kind in [Io::Interrupted, Io::WouldBlock] {
        poll_fn(|cx| client.poll_readable(cx)).await.unwrap();
        assert_eq!(client.try_read(&mut read, 1 << 20).unwrap_err().kind(), kind);
    }
    assert!(read.is_empty());
}

async fn read_all(stream: &TlsStream, into: &mut Vec<u8>, len: usize) -> std::io::Result<()> {
    while into.len() < len {
        match stream.try_read(into, len - into.len()) {
            Ok(0) => return Err(Io::UnexpectedEof.into()),
            Err(e) if e.kind() == Io::WouldBlock => {
                poll_fn(|cx| stream.poll_readable(cx)).await?;
            }
            done => drop(done?),
        }
    }
    Ok(())
}

#[tokio::test]
async fn writes_that_the_socket_does_not_take_at_once_arrive_once_and_in_order() {
    let authority = Authority::new();
    let (server, client) = pair(&authority).await;
    let data = pattern(3, 20 << 20);
    let sent = data.clone();
    let writing = async move {
        let (mut done, mut blocked) = (0, 0);
        while done < sent.len() {
            // In parts of odd sizes, the rest offered again as an outbox does.
            let end = sent.len().min(done + 1_000_003);
            let middle = done + (end - done) / 3;
            let parts = [IoSlice::new(&sent[done..middle]), IoSlice::new(&sent[middle..end])];
            match client.try_write(&parts) {
                Ok(n) => done += n,
                Err(e) if e.kind() == Io::WouldBlock => {
                    blocked += 1;
                    poll_fn(|cx| client.poll_writable(cx)).await.unwrap();
                }
                Err(e) => panic!("{e}"),
            }
        }
        assert!(blocked > 0, "the socket took everything: the test shows nothing");
        client
    };
    let reading = async {
        let mut received = Vec::new();
        read_all(&server, &mut received, data.len()).await.unwrap();
        received
    };
    let (_client, received) = tokio::join!(writing, reading);
    assert!(received == data);
}

#[tokio::test]
async fn a_connection_cut_in_the_middle_of_a_frame_fails_its_calls_only() {
    let authority = Authority::new();
    let tls = authority.member("host1", Kind::Server);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let me = callers_with(authority.member("me", Kind::Client));
    let call = tokio::spawn({
        let meta = me.meta(&server_at(&address));
        async move { meta.call(MetaRequest::default()).await }
    });
    let (stream, _) = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
    // A server that greets, begins an answer, and is gone.
    let hello = crate::hello::Hello::new("c", "short-lived", false);
    let draft = crate::frame::Draft::message(&hello).unwrap();
    crate::hello::send(&stream, draft).await.unwrap();
    let mut heard = Vec::new();
    read_all(&stream, &mut heard, crate::frame::HEADER_BYTES).await.unwrap();
    let body = Header::decode(&heard).unwrap().unwrap().body_len as usize;
    read_all(&stream, &mut heard, crate::frame::HEADER_BYTES * 2 + body).await.unwrap();
    let answer = crate::frame::Draft::message(&hello).unwrap();
    let frame = answer.seal(FrameKind::Reply, ServiceClass::Meta, 1);
    stream.try_write(&[IoSlice::new(&frame.head[..70])]).unwrap();
    stream.close();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.detail.contains("middle of a frame"), "{error}");
}

#[tokio::test]
async fn bytes_changed_on_the_way_end_the_connection() {
    let authority = Authority::new();
    let (one, two) = (authority.member("a", Kind::Server), authority.member("b", Kind::Client));
    let (real, false_) = (
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    let real_address = real.local_addr().unwrap();
    let calling = TcpStream::connect(false_.local_addr().unwrap()).await.unwrap();
    let (mut near, _) = false_.accept().await.unwrap();
    let mut far = TcpStream::connect(real_address).await.unwrap();
    let (called, _) = real.accept().await.unwrap();
    let (change, mut changing) = tokio::sync::watch::channel(false);
    let between = tokio::spawn(async move {
        let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                n = near.read(&mut up) => match n {
                    Ok(n @ 1..) => {
                        up[n - 1] ^= u8::from(*changing.borrow_and_update());
                        if far.write_all(&up[..n]).await.is_err() { return; }
                    }
                    _ => return,
                },
                n = far.read(&mut down) => match n {
                    Ok(n @ 1..) => if near.write_all(&down[..n]).await.is_err() { return; },
                    _ => return,
                },
            }
        }
    });
    let (server, client) = tokio::join!(one.accept(called), two.connect(calling, "127.0.0.1"));
    let ((server, _), (client, _)) = (server.unwrap(), client.unwrap());
    let mut heard = Vec::new();
    client.try_write(&[IoSlice::new(b"as it is")]).unwrap();
    read_all(&server, &mut heard, 8).await.unwrap();
    assert_eq!(heard, b"as it is");
    change.send(true).unwrap();
    client.try_write(&[IoSlice::new(b"changed!")]).unwrap();
    let error = read_all(&server, &mut heard, 16).await.unwrap_err();
    assert_eq!((error.kind(), heard.len()), (Io::InvalidData, 8), "{error}");
    server.close();
    between.await.unwrap();
}

#[test]
fn keys_that_others_can_read_are_refused_with_the_command_that_mends_it() {
    let authority = Authority::new();
    let files = authority.issue_until("me", Kind::Client, 2999);
    for mode in [0o640, 0o604, 0o644] {
        set_mode(&files.key, mode);
        let error = Tls::load(files.clone()).unwrap_err();
        assert!(error.detail.contains(&format!("chmod 600 {}", files.key.display())), "{error}");
    }
    set_mode(&files.key, 0o400);
    Tls::load(files).unwrap();
}

#[test]
fn files_that_do_not_belong_together_are_refused_by_name() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let files = ours.issue_until("me", Kind::Client, 2999);
    let other = ours.issue_until("other", Kind::Client, 2999);
    let text = |files: TlsFiles| Tls::load(files).unwrap_err().detail.into_owned();
    let wrong_key = text(TlsFiles { key: other.key, ..files.clone() });
    assert!(wrong_key.contains("is not that of certificate"), "{wrong_key}");
    let ca = theirs.issue_until("they", Kind::Client, 2999).ca;
    let wrong_ca = text(TlsFiles { ca: ca.clone(), ..files.clone() });
    assert!(
        wrong_ca.contains("not signed by the CA in") && wrong_ca.contains("they"),
        "{wrong_ca}"
    );
    let absent = text(TlsFiles { key: "/nowhere/key.pem".into(), ..files.clone() });
    assert!(absent.contains("/nowhere/key.pem") && absent.contains("strake tls issue"), "{absent}");
    std::fs::write(&files.certificate, "no certificate").unwrap();
    let empty = text(files.clone());
    assert!(empty.contains("no certificate in it"), "{empty}");
    assert_eq!(TlsFiles { ca, ..files }.ca_expires().unwrap().date(), "2999-01-01");
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_a_restart() {
    let authority = Authority::new();
    let files = authority.issue_until("host1", Kind::Server, 2998);
    let tls = Tls::load(files.clone()).unwrap();
    let server = serve(Some(tls.clone())).await;
    assert_eq!(tls.certificate().expires.date(), "2998-06-30");
    change(&files, || drop(authority.issue_until("host1", Kind::Server, 2999)));
    greet(&callers_with(authority.member("me", Kind::Client)), &server).await.unwrap();
    assert_eq!(tls.certificate().expires.date(), "2999-06-30");
    // Half a renewal is not used.
    std::fs::remove_file(&files.key).unwrap();
    assert_eq!(tls.certificate().expires.date(), "2999-06-30");
    greet(&callers_with(authority.member("you", Kind::Client)), &server).await.unwrap();
}

/// Changes files so that it shows: their times are as coarse as the ticks of the kernel.
fn change(files: &TlsFiles, change: impl Fn()) {
    let before = files.stamp();
    while files.stamp() == before {
        change();
    }
}

/// A renewal whose key is open to others.
fn renew_too_open(authority: &Authority, files: &TlsFiles) {
    change(files, || {
        authority.issue_until("host1", Kind::Server, 2999);
        set_mode(&files.key, 0o644);
    });
}

/// Its key was open to others, or another user's: that its mode had changed since was not looked at.
#[test]
fn a_renewal_that_was_refused_for_its_mode_is_used_once_that_is_mended() {
    let authority = Authority::new();
    let files = authority.issue_until("host1", Kind::Server, 2998);
    let tls = Tls::load(files.clone()).unwrap();
    renew_too_open(&authority, &files);
    assert_eq!(tls.certificate().expires.date(), "2998-06-30");
    change(&files, || set_mode(&files.key, 0o600));
    assert_eq!(tls.certificate().expires.date(), "2999-06-30");
}

/// One that was to be valid from the next minute on was never looked at again.
#[tokio::test(start_paused = true)]
async fn files_that_could_not_be_used_are_tried_again_after_a_while() {
    let authority = Authority::new();
    let tls = authority.member("host1", Kind::Server);
    let used = tls.current();
    // As if what is there now had been refused a moment ago.
    tls.slot.lock().failed = Some((Instant::now(), "not valid yet".into()));
    assert!(Arc::ptr_eq(&used, &tls.current()), "not at every connection");
    tokio::time::advance(AGAIN).await;
    assert!(!Arc::ptr_eq(&used, &tls.current()));
    assert!(tls.slot.lock().failed.is_none());
}

/// It was logged each ten seconds, as long as it lasted.
#[test]
fn a_renewal_that_is_refused_is_told_once_for_each_change_and_cause() {
    let authority = Authority::new();
    let files = authority.issue_until("host1", Kind::Server, 2998);
    let tls = Tls::load(files.clone()).unwrap();
    renew_too_open(&authority, &files);
    let is_known = |cause: &str| tls.slot.lock().is_known(&files.stamp(), cause);
    assert!(!is_known("anything"));
    tls.current();
    let (_, cause) = tls.slot.lock().failed.clone().unwrap();
    assert!(is_known(&cause) && !is_known("another cause"), "{cause}");
    change(&files, || set_mode(&files.key, 0o640));
    assert!(!is_known(&cause));
}

/// What a server refuses when it starts it took over while it ran, and nobody could call it any more.
#[test]
fn a_renewal_of_no_use_to_a_server_is_not_taken_by_it() {
    let authority = Authority::new();
    let files = authority.issue_until("host1", Kind::Server, 2997);
    let (server, caller) = (Tls::load(files.clone()).unwrap(), Tls::load(files.clone()).unwrap());
    server.serve(Some("host1")).unwrap();
    change(&files, || drop(authority.issue_until("host1", Kind::Client, 2998)));
    assert_eq!(server.certificate().expires.date(), "2997-06-30");
    assert_eq!(caller.certificate().expires.date(), "2998-06-30");
    let other = authority.issue_until("host2", Kind::Server, 2998);
    change(&files, || {
        std::fs::copy(&other.certificate, &files.certificate).unwrap();
        std::fs::copy(&other.key, &files.key).unwrap();
    });
    assert_eq!(server.certificate().expires.date(), "2997-06-30");
    change(&files, || drop(authority.issue_until("host1", Kind::Server, 2999)));
    assert_eq!(server.certificate().expires.date(), "2999-06-30");
}
