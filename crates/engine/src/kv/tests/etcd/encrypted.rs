//! Connections that are encrypted, and certificates that are not right.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

/// Who signs certificates, and a directory for files.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let (key, dir) = (KeyPair::generate().unwrap(), tempfile::tempdir().unwrap());
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(dir.path().join("ca"), pem).unwrap();
        Self { issuer: Issuer::new(params, key), dir }
    }

    /// Makes a certificate for a host or a user, and its key: the files NAME.crt and NAME.key.
    fn issue(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        std::fs::write(self.dir.path().join(format!("{name}.crt")), pem).unwrap();
        let path = self.dir.path().join(format!("{name}.key"));
        std::fs::write(&path, key.serialize_pem()).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
}

#[test]
fn connections_are_encrypted_where_the_url_says_so() {
    let (ours, others) = (Authority::new(), Authority::new());
    ["127.0.0.1", "strake"].into_iter().for_each(|name| ours.issue(name));
    let (certificate, key, ca) =
        (ours.file("127.0.0.1.crt"), ours.file("127.0.0.1.key"), ours.file("ca"));
    let client = "https://127.0.0.1:{port}";
    let encrypt = [
        "--listen-client-urls",
        client,
        "--advertise-client-urls",
        client,
        "--cert-file",
        &certificate,
        "--key-file",
        &key,
        "--trusted-ca-file",
        &ca,
        "--client-cert-auth",
    ];
    let server = EtcdServer::start(1, &encrypt);
    let mut database = etcd_on(&server);
    database.options.wait_ms_max = 4_000;
    let plain = database.options.url.clone();
    let by = |parameters: String| plain.replace("etcd://", "etcds://") + &parameters;
    let own = format!("&cert={}&key={}", ours.file("strake.crt"), ours.file("strake.key"));

    database.options.url = by(format!("?cacert={ca}{own}"));
    let kv = database.open().unwrap();
    run(async {
        assert_eq!(put(&*kv, "a", "1").await.unwrap(), Outcome::Committed);
        assert_eq!(get(&*kv, "a").await.unwrap(), b"1");
    });
    for (parameters, said) in [
        (format!("?cacert={}{own}", others.file("ca")), "correct cacert, cert and key"),
        (format!("?cacert={ca}"), "name cert and key"),
    ] {
        database.options.url = by(parameters);
        let error = database.refusal();
        assert!(error.contains(said), "{error}");
    }
    database.options.url = plain;
    assert!(database.refusal().contains("cannot be reached"));
}
