//! Connections that are encrypted, and certificates that are not right.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const HERE: &str = "127.0.0.1";

/// Who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let (params, key) = (authority(&[]), KeyPair::generate().unwrap());
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a host or a user, and its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn authority(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// A server of its own, and a directory for files.
struct Encrypted {
    server: PostgresServer,
    name: String,
    dir: tempfile::TempDir,
}

impl Encrypted {
    fn new() -> Self {
        let server = PostgresServer::start();
        let name = server.database();
        Self { server, name, dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    }

    fn database(&self, parameters: &str) -> Reached {
        let mut database = postgres();
        database.options.url = format!("{}{parameters}", self.server.url(&self.name));
        database.options.wait_ms_max = 5_000;
        database
    }

    /// Why it is not opened, or that it is.
    fn opened(&self, parameters: &str) -> std::result::Result<(), String> {
        self.database(parameters).open().map(drop).map_err(|error| error.to_string())
    }
}

#[test]
fn connections_are_encrypted_where_the_url_says_so() {
    let (encrypted, authority) = (Encrypted::new(), Authority::new());
    let (certificate, key) = authority.issue("elsewhere.example");
    let none = encrypted.opened("?sslmode=require").unwrap_err();
    assert!(none.contains("does not support TLS") && none.contains("ssl = on"), "{none}");
    encrypted.server.encrypt(&certificate, &key, &authority.pem);
    encrypted.server.let_in("hostssl all all all scram-sha-256");
    let plain = encrypted.opened("").unwrap_err();
    assert!(plain.contains("no encryption") && plain.contains("sslmode=verify-full"), "{plain}");
    let store = encrypted.database("?sslmode=require").store().unwrap();
    run(async {
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                   WHERE application_name = 'strake'";
        assert_eq!(encrypted.server.sql(&encrypted.name, sql), "t");
    });
}

#[test]
fn the_certificate_of_the_database_is_looked_at_as_asked() {
    let (encrypted, authority) = (Encrypted::new(), Authority::new());
    let ca = encrypted.file("ca.pem", &authority.pem);
    let other = encrypted.file("other.pem", &Authority::new().pem);
    let opened = |mode: &str, roots: &PathBuf| {
        encrypted.opened(&format!("?sslmode={mode}&sslrootcert={}", roots.display()))
    };
    let (certificate, key) = authority.issue("elsewhere.example");
    encrypted.server.encrypt(&certificate, &key, &authority.pem);
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = opened(mode, &other).unwrap_err();
        assert!(error.contains("certificate") && error.contains("correct sslmode"), "{error}");
    }
    assert_eq!(opened("require", &ca), Ok(()));
    assert_eq!(opened("verify-ca", &ca), Ok(()));
    let name = opened("verify-full", &ca).unwrap_err();
    assert!(name.contains("elsewhere.example"), "{name}");
    let (certificate, key) = authority.issue(HERE);
    encrypted.server.encrypt(&certificate, &key, &authority.pem);
    assert_eq!(opened("verify-full", &ca), Ok(()));
    let absent = opened("verify-full", &"/nowhere/ca.pem".into()).unwrap_err();
    assert!(absent.contains("cannot read /nowhere/ca.pem"), "{absent}");
    let nonsense = encrypted.file("nonsense.pem", "nonsense");
    let nonsense = opened("verify-full", &nonsense).unwrap_err();
    assert!(nonsense.contains("nonsense.pem: there is no certificate in it"), "{nonsense}");
}

#[test]
fn a_certificate_that_has_signed_itself_is_trusted_where_it_is_named() {
    let encrypted = Encrypted::new();
    for (name, full) in [(HERE, true), ("elsewhere.example", false)] {
        let key = KeyPair::generate().unwrap();
        let certificate = authority(&[name]).self_signed(&key).unwrap().pem();
        encrypted.server.encrypt(&certificate, &key.serialize_pem(), &certificate);
        let file = encrypted.file("server.pem", &certificate);
        let opened = |mode: &str| {
            encrypted.opened(&format!("?sslmode={mode}&sslrootcert={}", file.display()))
        };
        assert_eq!(opened("verify-ca"), Ok(()));
        assert_eq!(opened("verify-full").is_ok(), full, "{:?}", opened("verify-full"));
    }
    let stranger = encrypted.file("stranger.pem", &Authority::new().pem);
    let error = encrypted.opened(&format!("?sslmode=verify-ca&sslrootcert={}", stranger.display()));
    assert!(error.unwrap_err().contains("correct sslmode"));
}

#[test]
fn a_database_that_asks_for_a_certificate_gets_ours() {
    let (encrypted, authority) = (Encrypted::new(), Authority::new());
    let (certificate, key) = authority.issue(HERE);
    encrypted.server.encrypt(&certificate, &key, &authority.pem);
    encrypted.server.let_in("hostssl all all all scram-sha-256 clientcert=verify-ca");
    let without = encrypted.opened("?sslmode=require").unwrap_err();
    assert!(without.contains("certificate"), "{without}");
    let own = |authority: &Authority, name: &str| {
        let (certificate, key) = authority.issue("postgres");
        let certificate = encrypted.file(&format!("{name}.pem"), &certificate);
        let key = encrypted.file(&format!("{name}.key"), &key);
        format!("?sslmode=require&sslcert={}&sslkey={}", certificate.display(), key.display())
    };
    assert_eq!(encrypted.opened(&own(&authority, "ours")), Ok(()));
    let theirs = encrypted.opened(&own(&Authority::new(), "theirs")).unwrap_err();
    assert!(theirs.contains("correct sslmode"), "{theirs}");
    let parameters = own(&authority, "open");
    let key = encrypted.dir.path().join("open.key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let open = encrypted.opened(&parameters).unwrap_err();
    assert!(open.contains("chmod 600"), "{open}");
}

#[test]
fn renewed_certificates_are_used_without_a_restart() {
    let (encrypted, first) = (Encrypted::new(), Authority::new());
    let encrypt = |authority: &Authority| {
        let (certificate, key) = authority.issue(HERE);
        encrypted.server.encrypt(&certificate, &key, &authority.pem);
        encrypted.file("ca.pem", &authority.pem)
    };
    let ca = encrypt(&first);
    let parameters = format!("?sslmode=verify-full&sslrootcert={}", ca.display());
    let store = encrypted.database(&parameters).store().unwrap();
    run(async {
        let kv = store.open(Part::Whole).await.unwrap();
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        encrypt(&Authority::new());
        encrypted.server.crash();
        encrypted.server.resume();
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
        assert_eq!(put(&*kv, "a", "2").await.unwrap(), Outcome::Committed);
    });
}
