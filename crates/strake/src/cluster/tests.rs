use super::*;
use crate::tls_flags::tests::issued;
use strake_base::process::began_ticks;
use strake_engine::kv::KvError;
use strake_wire::message::manager::Server;

/// Beside a `strake up --listen ADDR --no-tls` no verb and no mount worked on a host with certificates.
#[test]
fn a_strake_up_that_speaks_plainly_is_called_without_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = run_in(dir.path());
    let addresses = run.addresses.clone();
    assert!(!is_plain(&addresses), "nobody runs there");
    for encrypted in [None, Some(true), Some(false)] {
        run.encrypted = encrypted;
        run.write(dir.path()).unwrap();
        // As the run file names it, and as a line of /etc/fstab does.
        for named in [&addresses[..], &addresses[..1]] {
            assert_eq!(is_plain(named), encrypted == Some(false), "{encrypted:?}");
        }
        assert!(!is_plain(&addresses[1..]));
    }
    run.began_ticks = 1;
    run.write(dir.path()).unwrap();
    assert!(!is_plain(&addresses), "it has ended");
}

/// What this process would say if it were a `strake up --listen`.
fn run_in(data: &Path) -> RunFile {
    let pid = std::process::id();
    RunFile {
        pid,
        began_ticks: began_ticks(pid).unwrap(),
        addresses: vec![
            format!("unix:{}/strake.sock", data.display()),
            "127.0.0.1:7440".to_owned(),
        ],
        mount: "/mnt".into(),
        volume: "main".into(),
        metrics: None,
        encrypted: None,
    }
}

/// Whoever named any file of his beside another cluster asked that one as root.
#[test]
fn a_socket_makes_nobody_root_of_a_cluster_that_is_named_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = run_in(dir.path());
    let addresses = run.addresses.clone();
    let (socket, port) = (&addresses[..1], &addresses[1..]);
    assert!(!are_ours(socket), "there is none");
    std::fs::write(dir.path().join("strake.sock"), "").unwrap();
    assert!(are_ours(socket) && !are_ours(port) && !are_ours(&addresses) && !are_ours(&[]));
    run.write(dir.path()).unwrap();
    assert!(are_ours(&addresses), "its owner runs `strake up --listen`");
    let with_other = [socket, &["prod:7440".to_owned()]].concat();
    assert!(!are_ours(&with_other) && !are_ours(port));
    run.began_ticks = 1;
    run.write(dir.path()).unwrap();
    assert!(are_ours(socket) && !are_ours(&addresses), "it has ended");
}

/// `strake --cluster ADDR` named commands that asked nobody, or the `strake up` beside it.
#[test]
fn who_named_a_cluster_is_told_how_the_next_command_finds_it() {
    let list = |text: &str| address::complete_list(text);
    let told = way_to(&list("h1,h2"), &list("h3"));
    assert_eq!(told.unwrap(), "for all commands: export STRAKE_CLUSTER=h1:7440,h2:7440");
    assert!(way_to(&list("h1"), &[]).is_some());
    assert_eq!(way_to(&list("h1:7440"), &list("h2,h1")), None);
}

/// It was passed over without a word.
#[tokio::test]
async fn a_manager_whose_name_stands_for_no_host_is_told_with_why() {
    let addresses = ["no..host:7440", "127.0.0.1:7440", "unix:/a"].map(str::to_owned);
    let told = unknown(&addresses).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("manager no..host:7440 is passed over: failed to lookup"));
}

/// With the database away, the address, the manager's role and the release were blamed.
#[test]
fn managers_without_their_database_send_to_that_one() {
    let store = KvError::Unreachable { store: "etcd://h".into(), cause: "no leader".into() };
    // Of several managers, and of the only one.
    for before in ["no manager leads the cluster now: ", ""] {
        sends_to_database(&format!("{before}{store} (tried for 12.2 s)"));
    }
}

/// What was to be done was left to guess.
#[test]
fn a_manager_whose_database_another_has_opened_sends_to_that_one() {
    let store = KvError::TakenOver { store: "etcd://h".into(), by: "h2".into() };
    sends_to_database(&store.to_string());
}

fn sends_to_database(said: &str) {
    let error = Error::with(ErrorKind::Unavailable, said.to_owned());
    let told = no_manager(&["h1:7440".to_owned()], &error, "check the address");
    assert_eq!(told.cause, said);
    assert!(told.next.unwrap().starts_with("look at the database"));
}

/// Beside "correct the user in --meta" stood that the servers go on by themselves.
#[test]
fn managers_whose_database_refuses_them_say_what_to_do_and_nothing_else() {
    let (store, cause) = ("postgres://h/d".into(), "it may not log in".into());
    let store = KvError::Refused { store, cause, next: "correct the user in --meta".into() };
    let said = format!("no manager leads the cluster now: {store} (tried for 12.2 s)");
    let error = Error::with(ErrorKind::Unavailable, said.clone());
    let told = no_manager(&["h1:7440".to_owned()], &error, "check the address");
    assert_eq!((told.cause, told.next), (said, None));
}

/// It answered, and the address, the manager's role and the release were blamed.
#[test]
fn a_manager_whose_store_has_stopped_sends_to_its_server() {
    let store = KvError::Poisoned { store: "/d/meta".into(), cause: "EIO".into() };
    let error = Error::with(ErrorKind::Poisoned, store.to_string());
    let told = no_manager(&["h1:7440".to_owned()], &error, "check the address");
    assert!(told.cause.contains("has died: metadata store /d/meta stopped after"), "{told}");
    assert!(told.next.unwrap().starts_with("restart its server"));
}

/// The address was said twice.
#[test]
fn why_no_manager_answers_is_said_with_its_address_once() {
    let error = |text: &str| Error::with(ErrorKind::Unavailable, text.to_owned());
    let told = |addresses: &[&str], text: &str| {
        let addresses: Vec<String> = addresses.iter().map(|&one| one.to_owned()).collect();
        no_manager(&addresses, &error(text), "look").cause
    };
    let late = "h:1: no connection within 3000 ms (tried for 6.2 s)";
    assert_eq!(told(&["h:1"], late), format!("no manager answers at {late}"));
    assert_eq!(told(&["h:1", "i:1"], late), format!("no manager answers at h:1, i:1: {late}"));
    assert_eq!(told(&["h:1"], ""), "no manager answers at h:1: server unavailable");
}

/// Beside a `strake up` that has a Unix socket only, commands warned of a certificate that they did not use.
#[test]
fn certificates_are_used_where_somebody_is_called_by_tcp() {
    let dir = tempfile::tempdir().unwrap();
    let tls = issued(dir.path());
    let managers =
        |address: &str| Managers { addresses: vec![address.to_owned()], tls: Some(tls.clone()) };
    let map = |address: &str| ClusterMap {
        servers: vec![Server { address: address.to_owned(), ..Server::default() }],
        ..ClusterMap::default()
    };
    assert!(managers("unix:/a").used_tls(&map("unix:/a")).is_none());
    assert!(managers("unix:/a").used_tls(&map("h:1")).is_some());
    assert!(managers("h:1").used_tls(&map("unix:/a")).is_some());
}
