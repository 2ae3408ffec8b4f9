use super::*;
use crate::cli::{Cli, Verb};
use clap::{CommandFactory, Parser};
use std::collections::BTreeSet;

fn config(text: &str) -> (tempfile::TempDir, ServerFlags) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    (dir, ServerFlags { config: Some(path), ..ServerFlags::default() })
}

#[test]
fn every_flag_may_stand_in_the_file() {
    let mut command = Cli::command();
    command.build();
    let server = command.find_subcommand("server").unwrap();
    // What is no setting of a server.
    let others = ["help", "version", "config", "cluster"];
    let ids = server.get_arguments().map(|argument| argument.get_id().as_str());
    let flags: BTreeSet<&str> = ids.filter(|id| !others.contains(id)).collect();
    let error = toml::from_str::<Config>("nonsense = 1").unwrap_err().to_string();
    let (_, list) = error.split_once("expected one of ").unwrap();
    let fields: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    assert_eq!(fields, flags, "the fields of the file are the flags");
    let guide = include_str!("../../../../../docs/guide/install.md");
    let (_, sample) = guide.split_once("# /etc/strake.toml").unwrap();
    let (sample, _) = sample.split_once("```").unwrap();
    let lines = sample.lines().skip(1).map(|line| line.trim_start_matches("# "));
    let settings: Vec<&str> = lines.filter(|line| line.contains(" = ")).collect();
    let named = settings.iter().filter_map(|line| line.split(' ').next());
    assert_eq!(named.collect::<BTreeSet<&str>>(), flags, "the guide shows all");
    toml::from_str::<Config>(&settings.join("\n")).unwrap();
}

#[test]
fn what_stands_in_the_file_is_what_is_given() {
    let (_dir, flags) = config(
        "without = ['/a', '/b']\nnew_disks = true\nold_disks = true\nno_tls = true\n\
         new_server = true\nengine = 'redb'\ndisk_rate = '1MB/s'\nscrub_every = 3\nlog_level = 'debug'\n",
    );
    assert_eq!(filed_log_level(&flags).as_deref(), Some("debug"));
    let (flags, tls) = with_config(flags, TlsFlags::default()).unwrap();
    assert_eq!(flags.without, [Path::new("/a"), Path::new("/b")]);
    assert!(flags.new_disks && flags.new_server && flags.old_disks && tls.no_tls);
    assert_eq!((flags.engine, flags.scrub_every), (Some(EngineKind::Redb), Some(3.0)));
    assert_eq!(flags.disk_rate.map(Rate::bytes_per_second), Some(1_000_000));
    let (_dir, flags) = config("engine = 'rocks'\n");
    let failure = with_config(flags, TlsFlags::default()).unwrap_err();
    assert!(failure.cause.contains("engine: ") && failure.cause.contains("rocks"), "{failure}");
}

/// All were told an address at which nobody could be reached.
#[test]
fn an_address_at_which_nobody_can_be_is_not_advertised() {
    for wrong in ["foo:bar", "h:0", "[::1]:0", "h:70000", "0.0.0.0:7925", "::", ""] {
        assert!(check_advertised(&address::complete(wrong)).is_err(), "{wrong}");
    }
    for good in ["h", "h:10", "::1", "unix:/a:0"] {
        check_advertised(&address::complete(good)).unwrap();
    }
}

/// It was the usual port, at which nobody was.
#[tokio::test]
async fn a_host_is_advertised_with_the_port_that_is_listened_on() {
    let tls = TlsFlags { no_tls: true, ..TlsFlags::default() };
    for (given, is_whole) in [("h", false), ("::1", false), ("h:10", true)] {
        let opened = open_port("127.0.0.1:0", Some(given), &[], &tls).await.unwrap();
        let (listener, advertised, _) = opened;
        let bound: SocketAddr = listener.address().parse().unwrap();
        let port = if is_whole { PORT_DEFAULT } else { bound.port() };
        assert_eq!(advertised, address::complete_with(given, port));
    }
}

/// Where the name of the host stands for 127.0.1.1, others were told that.
#[test]
fn a_name_that_only_this_machine_reaches_is_told_and_what_says_so_itself_is_not() {
    for (listen, bound, told) in [
        ("vm:7440", "127.0.1.1:7440", true),
        ("vm:7440", "[::1]:7440", true),
        ("vm:7440", "10.0.0.1:7440", false),
        ("localhost:7440", "127.0.0.1:7440", false),
        ("127.0.0.1:7440", "127.0.0.1:7440", false),
        ("[::1]:7440", "[::1]:7440", false),
        ("unix:/a", "unix:/a", false),
    ] {
        assert_eq!(is_loopback_by_name(listen, bound), told, "{listen}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let (_dir, flags) =
        config("listen = 'a'\nname = 'x'\nroles = ['storage']\ntls_ca = 'ca'\ntls_key = 'k'\n");
    let flags = ServerFlags { listen: Some("b".into()), ..flags };
    let tls = TlsFlags { tls_ca: Some("given".into()), ..TlsFlags::default() };
    let (flags, tls) = with_config(flags, tls).unwrap();
    assert_eq!((tls.tls_ca, tls.tls_key), (Some("given".into()), Some("k".into())));
    assert_eq!((flags.listen.as_deref(), flags.name.as_deref()), (Some("b"), Some("x")));
    assert_eq!(flags.roles, ["storage"]);
}

#[test]
fn an_unknown_word_in_the_file_is_shown_with_its_line() {
    let (_dir, flags) = config("listen = 'a'\nlisten_port = 3\n");
    let failure = with_config(flags, TlsFlags::default()).unwrap_err();
    assert!(failure.cause.contains("listen_port") && failure.cause.contains("line 2"), "{failure}");
}

/// It was "a sequence", and "f64".
#[test]
fn what_a_setting_in_the_file_is_to_be_is_told_in_words() {
    for (line, words) in [
        ("roles = 'manager'", r#"expected a list, as ["a", "b"]"#),
        ("data = '/srv/a'", r#"expected a list, as ["a", "b"]"#),
        ("scrub_every = 'x'", "expected a number"),
        ("listen = 5", "expected a string"),
    ] {
        let (_dir, flags) = config(&format!("name = 'n'\n{line}\n"));
        let said = with_config(flags, TlsFlags::default()).unwrap_err().to_string();
        assert!(said.contains("line 2: ") && said.contains(words), "{said}");
    }
}

/// The line was shown with its password, in the journal too.
#[test]
fn a_password_in_a_file_that_is_wrong_is_not_repeated() {
    let url = "postgres://u:s3cret@h/d";
    let texts = [
        format!("listen = 'a'\nmeta = {url}\n"),
        format!("listen = 'a'\nmeta = \"{url}\n"),
        format!("meta = '{url}'\nmeta = '{url}'\n"),
        format!("listen = 'a'\nmetta = '{url}'\n"),
        format!("listen = 'a'\nmeta = ['{url}']\n"),
        format!("listen = 'a'\njoin = '{url}'\n"),
        format!("listen = 'a'\n'{url}' = 'meta'\n"),
    ];
    for text in texts {
        let (_dir, flags) = config(&text);
        let failure = with_config(flags, TlsFlags::default()).unwrap_err();
        let said = failure.to_string();
        assert!(said.contains("line 2: ") && !said.contains("s3cret"), "{text}{said}");
    }
    let (_dir, flags) = config("meta = 'mysql://u:s3cret@h/d'");
    let said = with_config(flags, TlsFlags::default()).unwrap_err().to_string();
    assert!(said.contains("meta") && !said.contains("s3cret"), "{said}");
}

#[test]
fn a_server_is_run_or_others_are_looked_at() {
    let running = ServerFlags { data: vec!["/d".into()], ..Default::default() };
    assert!(check_alone(&running).unwrap_err().cause.contains("--data"));
    assert!(check_alone(&ServerFlags::default()).is_ok());
}

/// It was said twice, and a server was suspected at an address that this machine does not have.
#[tokio::test]
async fn where_nobody_can_listen_is_told_once_with_what_helps() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let cases = [(&taken[..], "ss -ltnp"), ("192.0.2.1:0", "ip address")];
    for (address, word) in cases {
        let failure = bind(address).await.err().unwrap();
        let shown = failure.to_string();
        assert_eq!(shown.matches("cannot listen").count(), 1, "{shown}");
        assert_eq!(shown.matches("--listen").count(), 1, "{shown}");
        assert!(failure.next.unwrap().contains(word), "{shown}");
    }
}

#[test]
fn the_command_that_adds_a_server_lacks_no_flag() {
    let words = strake_manager::ADD_SERVER.split(' ');
    let Verb::Server(flags) = Cli::try_parse_from(words).unwrap().verb else { panic!() };
    check(&flags, parse_roles(&flags.roles).unwrap()).unwrap();
    assert!(!flags.join.is_empty(), "it would begin a cluster of its own");
    Cli::try_parse_from(strake_manager::ADD_DISK.split(' ')).unwrap();
}

#[test]
fn only_addresses_that_other_machines_can_call_are_open() {
    assert!(["0.0.0.0:7440", "10.0.0.1:7440", "[::]:7440"].into_iter().all(is_open));
    assert!(!["127.0.0.1:7440", "[::1]:7440", "unix:/s"].into_iter().any(is_open));
}

/// `strake server drain 4` drained server 4 and not the one that was called so; others broke the table.
#[test]
fn a_name_that_is_taken_for_something_else_is_refused() {
    for name in ["", "4", "-a", ".a", "a b", "ev\x1b[31mil\nx", "\u{e4}", &"n".repeat(65)] {
        let failure = check_name(name).unwrap_err();
        assert!(failure.cause.contains("--name") && failure.next.is_some(), "{failure}");
        assert!(!failure.to_string().contains('\x1b'), "{failure}");
    }
    for name in ["host4", "4a", "a.example.org", &"n".repeat(64)] {
        check_name(name).unwrap();
    }
}

/// After an upgrade it did not start any more.
#[test]
fn a_server_that_is_there_keeps_the_name_that_it_has() {
    name_of(Some("4".into()), false).unwrap_err();
    assert_eq!(name_of(Some("4".into()), true).unwrap(), "4");
}

/// It was taken as it is, and a host may be called 4.
#[test]
fn what_a_host_is_called_is_made_the_name_of_a_server() {
    for host in ["", "4", "-a", ".a", "a b", "ev\x1b[31mil\nx", "\u{e4}", &"n".repeat(65)] {
        check_name(&fitted(host)).unwrap();
    }
    assert_eq!((fitted("4").as_str(), fitted("a b").as_str()), ("host-4", "a-b"));
    assert_eq!(fitted("a.example.org"), "a.example.org");
}

#[test]
fn what_is_missing_is_named() {
    let listen = Some("a".to_owned());
    let cases = [
        (ServerFlags::default(), "--listen"),
        (ServerFlags { listen: listen.clone(), ..Default::default() }, "--data"),
    ];
    for (flags, name) in cases {
        let failure = check(&flags, Roles::default()).unwrap_err();
        assert!(failure.cause.contains(name) && failure.next.is_some());
    }
    assert!(parse_roles(&["boss".into()]).is_err());
}
