//! A cluster with certificates: two servers, a mount and the native verbs, all of them processes of
//! their own, speak TLS; who has no certificate, or that of another cluster, is told so.

use std::io::{Seek, Write};
use std::time::{Duration, Instant};
use strake_tests::cluster::{Process, Servers, Up, contents, free_port, run, strake, succeed};
use strake_tests::made::pattern;
use tempfile::TempDir;

/// How long a server may take to show in the cluster. Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A CA, and certificates of a server and a client of this machine.
struct Authority {
    directory: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let authority = Authority { directory: tempfile::tempdir().unwrap() };
        let ca = authority.path("ca");
        succeed(["tls", "create-ca", &ca]);
        for (kind, name) in [("server", "host1"), ("client", "laptop")] {
            let out = authority.path(name);
            let issue = ["tls", "issue", "--ca", &ca, "--kind", kind, "--name", name];
            succeed(issue.into_iter().chain(["--address", "127.0.0.1", &out]));
        }
        authority
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The flags that name the certificate of `name`.
    fn flags(&self, name: &str) -> Vec<String> {
        let files = [("--tls-ca", "ca"), ("--tls-cert", "cert"), ("--tls-key", "key")];
        let path = |file: &str| self.path(&format!("{name}/{file}.pem"));
        files.iter().flat_map(|(flag, file)| [flag.to_string(), path(file)]).collect()
    }

    /// The same as options of a mount.
    fn options(&self, name: &str) -> String {
        let path = |file: &str| self.path(&format!("{name}/{file}.pem"));
        format!("tls_ca={},tls_cert={},tls_key={}", path("ca"), path("cert"), path("key"))
    }
}

/// Runs a verb with flags; what it says on standard output.
fn with(flags: &[String], arguments: &[&str]) -> String {
    succeed(arguments.iter().copied().chain(flags.iter().map(String::as_str)))
}

/// Runs a verb that must fail; the one message it gives.
fn refused(flags: &[String], arguments: &[&str]) -> String {
    let output = run(arguments.iter().copied().chain(flags.iter().map(String::as_str)));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "strake {}: {error}", arguments.join(" "));
    assert_eq!(error.matches("strake: ").count(), 1, "{error}");
    assert!(error.contains("\n  next: "), "{error}");
    error
}

/// A second server, which joins over TLS.
fn second(servers: &Servers, authority: &Authority) -> Process {
    let address = format!("127.0.0.1:{}", free_port());
    let data = authority.path("second");
    let mut arguments: Vec<String> =
        ["server", "--listen", &address, "--data", &data, "--roles", "storage", "--join"]
            .map(String::from)
            .into();
    arguments.push(servers.address().to_owned());
    arguments.extend(authority.flags("host1"));
    let process = Process::start(&arguments, &authority.directory.path().join("second.log"));
    let end = Instant::now() + PATIENCE;
    loop {
        let client = authority.flags("laptop");
        // Whatever it thinks of a server that has not been heard of twice.
        let asked = ["status", "--json", "--cluster", servers.address()];
        let status = run(asked.into_iter().chain(client.iter().map(String::as_str)));
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        if status["targets"].as_array().is_some_and(|targets| targets.len() == 5) {
            return process;
        }
        assert!(Instant::now() < end, "{}", process.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn files_pass_encrypted_through_mount_and_verbs_between_two_servers() {
    let authority = Authority::new();
    let servers = Servers::start_with(&authority.flags("host1"));
    let _second = second(&servers, &authority);
    let client = authority.flags("laptop");
    let mount = servers.mount("mnt", &authority.options("laptop"));

    // By the mount in, by a verb out. The shortening goes from the metadata server to both servers.
    let mut file = std::fs::File::create(mount.at("striped")).unwrap();
    file.write_all(&pattern(12 << 20)).unwrap();
    file.sync_all().unwrap();
    file.set_len(7 << 20).unwrap();
    file.seek(std::io::SeekFrom::End(0)).unwrap();
    file.write_all(b"the end").unwrap();
    drop(file);
    let expected = [&pattern(12 << 20)[..7 << 20], b"the end"].concat();
    let (there, back) = (format!("{}:/main/striped", servers.address()), authority.path("back"));
    with(&client, &["cp", &there, &back]);
    assert!(std::fs::read(&back).unwrap() == expected);
    let layout = with(&client, &["layout", "get", "--json", &there]);
    let targets = |nth: usize| layout.matches(&format!("target{nth}")).count();
    assert!(targets(0) > 0 && layout.contains("second"), "{layout}");

    // By a verb in, by the mount out.
    with(&client, &["cp", &back, &format!("{}:/main/copied", servers.address())]);
    assert!(contents(&mount.at("copied")) == expected);
    with(&client, &["volume", "create", "other", "--cluster", servers.address()]);

    // Its exit code also tells of mounts of others on this machine.
    let asked = ["doctor", "--json", "--cluster", servers.address()];
    let doctor = run(asked.into_iter().chain(client.iter().map(String::as_str))).stdout;
    let findings: serde_json::Value = serde_json::from_slice(&doctor).unwrap();
    let findings = findings.as_array().unwrap();
    let about: Vec<_> = findings.iter().filter(|f| f["phase"] == "encryption").collect();
    assert!(about.iter().all(|f| f["health"] == "fine"), "{about:?}");
    let says =
        |words| about.iter().filter(|f| f["about"].as_str().unwrap().contains(words)).count();
    assert_eq!(says("laptop (client), expires on"), 1, "{about:?}");
    assert_eq!(says("TLS 1.3 with host1 (server), expires on"), 3, "{about:?}");
}

#[test]
fn who_does_not_belong_to_the_cluster_is_told_why_and_what_to_do() {
    let (authority, other) = (Authority::new(), Authority::new());
    let servers = Servers::start_with(&authority.flags("host1"));
    let place = format!("{}:/main", servers.address());
    let none = ["--no-tls".to_owned()];

    let error = refused(&none, &["ls", &place]);
    assert!(
        error.contains("encrypted connections only") && error.contains("--tls-cert"),
        "{error}"
    );
    let point = authority.path("mnt");
    std::fs::create_dir(&point).unwrap();
    let error = refused(&none, &["mount", "-f", &place, &point]);
    assert!(error.contains("encrypted connections only"), "{error}");
    let error = refused(&other.flags("laptop"), &["ls", &place]);
    assert!(error.contains("not signed by our CA"), "{error}");

    // A server with no certificate, or a client's, cannot join.
    let data = authority.path("data");
    let address = format!("127.0.0.1:{}", free_port());
    let join = ["server", "--listen", &address, "--data", &data, "--roles", "storage", "--join"];
    let join: Vec<_> = join.into_iter().chain([servers.address()]).collect();
    let error = refused(&none, &join);
    assert!(error.contains("encrypted connections only"), "{error}");
    let error = refused(&authority.flags("laptop"), &join);
    assert!(error.contains("is a client's") && error.contains("--kind server"), "{error}");

    // The other way round: certificates where the servers have none.
    let plain = Servers::start_with(&none);
    let error = refused(&authority.flags("laptop"), &["ls", &format!("{}:/main", plain.address())]);
    assert!(error.contains("speaks without TLS") && error.contains("--no-tls"), "{error}");
    // And the cluster goes on.
    with(&authority.flags("laptop"), &["ls", &place]);
}

#[test]
fn a_server_does_not_start_under_an_address_that_its_certificate_is_not_for() {
    let authority = Authority::new();
    let data = authority.path("data");
    let listen = format!("127.0.0.2:{}", free_port());
    let error = refused(
        &authority.flags("host1"),
        &["server", "--listen", &listen, "--data", &data, "--roles", "manager,meta,storage"],
    );
    assert!(
        error.contains("not for 127.0.0.2") && error.contains("--address 127.0.0.2"),
        "{error}"
    );
    assert!(!std::path::Path::new(&data).exists());
}

/// Their certificates were left out, because the first address of an `up` is a Unix socket; and `strake doctor` said of a port
/// with TLS that it had none.
#[test]
fn verbs_beside_an_up_with_certificates_use_them_at_its_port() {
    let authority = Authority::new();
    let address = format!("127.0.0.1:{}", free_port());
    let (server, client) = (authority.flags("host1"), authority.flags("laptop"));
    let listen = ["--listen", &address].into_iter();
    let up = Up::start(&listen.chain(server.iter().map(String::as_str)).collect::<Vec<_>>());
    std::fs::write(up.mount().join("here"), "it is").unwrap();
    // Where they find it without a word.
    let beside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(up.data(), beside.path().join("strake-data")).unwrap();
    let output = |flags: &[String], arguments: &[&str]| {
        let all = arguments.iter().copied().chain(flags.iter().map(String::as_str));
        let output = strake(all).current_dir(beside.path()).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let socket = format!("unix:{}:/main", up.data().join("strake.sock").display());
    for place in [":/main", &socket] {
        let listed = output(&client, &["ls", place]);
        assert!(listed.contains("here"), "{listed}");
        let refused = output(&[], &["ls", place]);
        assert!(refused.contains("encrypted connections only"), "{refused}");
    }
    let doctor = output(&[], &["doctor"]);
    let about = |line: &&str| line.contains("encryption") && line.contains(&address);
    let lines: Vec<&str> = doctor.lines().filter(about).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("BAD")), "{doctor}");
    let doctor = output(&client, &["doctor"]);
    assert!(doctor.contains(&format!("{address}: TLS 1.3 with host1")), "{doctor}");
}

/// Verbs and mounts beside it called its port with the certificates that the host had for another cluster, or could not
/// read them.
#[test]
fn verbs_beside_an_up_that_speaks_plainly_do_so_whatever_certificates_the_host_has() {
    let authority = Authority::new();
    let address = format!("127.0.0.1:{}", free_port());
    let up = Up::start(&["--listen", &address, "--no-tls"]);
    std::fs::write(up.mount().join("here"), pattern(2 << 20)).unwrap();
    let beside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(up.data(), beside.path().join("strake-data")).unwrap();
    let socket = format!("unix:{}:/main/here", up.data().join("strake.sock").display());
    for (place, key) in [":/main/here", &socket].into_iter().zip(["key", "nowhere"]) {
        let mut command = strake(["cat", place]);
        command.current_dir(beside.path());
        for (variable, file) in
            [("STRAKE_TLS_CA", "ca"), ("STRAKE_TLS_CERT", "cert"), ("STRAKE_TLS_KEY", key)]
        {
            command.env(variable, authority.path(&format!("laptop/{file}.pem")));
        }
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == pattern(2 << 20), "{place}: {error}");
    }
}
