//! `strake tls`: a certificate authority for a cluster, and certificates for its members.

use crate::failure::{Context, Failure, Outcome};
use crate::output;
use crate::tls_flags::DIRECTORY_DEFAULT;
use clap::{Args, Subcommand, ValueEnum};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strake_base::clock::wall_time;
use strake_wire::tls::{Tls, TlsFiles, check_private};

/// Names of the files of a CA.
const CA_CERTIFICATE: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
/// A certificate is valid from a little before it was made: clocks differ.
const BEFORE: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Modes of files that everybody may read, and that only their owner may.
const PUBLIC: u32 = 0o644;
const PRIVATE: u32 = 0o600;

/// Flags of `strake tls`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  strake tls create-ca ca                                     once; keep ca/ca.key safe and offline
  strake tls issue --ca ca --kind server --name host1 --address 10.0.0.1 host1
  scp -rp host1 root@10.0.0.1:/etc/strake/tls                  where every verb looks for it
  strake tls issue --ca ca --kind client --name laptop laptop")]
pub struct TlsVerbFlags {
    /// What to do.
    #[command(subcommand)]
    verb: TlsVerb,
}

#[derive(Subcommand, Debug)]
enum TlsVerb {
    /// Make the certificate authority of a cluster: DIR/ca.pem, and DIR/ca.key that signs
    CreateCa(CreateCa),
    /// Issue a certificate for a server or a client: OUT/ca.pem, OUT/cert.pem and OUT/key.pem
    Issue(Issue),
}

#[derive(Args, Debug)]
struct CreateCa {
    /// Where to; made if it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Days until it expires
    #[arg(long, value_name = "N", default_value = "3650", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

#[derive(Args, Debug)]
struct Issue {
    /// Directory that `strake tls create-ca` made
    #[arg(long, value_name = "DIR")]
    ca: PathBuf,

    /// What its holder may be
    #[arg(long, value_name = "KIND")]
    kind: IssueKind,

    /// Whose it is: a host's name, or a user's; letters, digits, `-` and `.`
    #[arg(long, value_name = "NAME")]
    name: String,

    /// Names and addresses by which others call a server, besides its name
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    address: Vec<String>,

    /// Days until it expires
    #[arg(long, value_name = "N", default_value = "365", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,

    /// Directory for the three files; made if it is not there
    #[arg(value_name = "OUT")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IssueKind {
    /// May be called, join the cluster, and learn its keys
    Server,
    /// May call
    Client,
}

/// Runs the verb.
pub fn run(flags: &TlsVerbFlags) -> Outcome {
    match &flags.verb {
        TlsVerb::CreateCa(flags) => create_ca(flags),
        TlsVerb::Issue(flags) => issue(flags),
    }
}

fn create_ca(flags: &CreateCa) -> Outcome {
    let (certificate, key) = (flags.directory.join(CA_CERTIFICATE), flags.directory.join(CA_KEY));
    refuse_existing(&[&certificate, &key])?;
    let mut params = params(Vec::new(), "Strake cluster CA", flags.days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let pair = KeyPair::generate().context(|| "making a key".into())?;
    let made = params.self_signed(&pair).context(|| "signing the CA's certificate".into())?;
    make_directory(&flags.directory)?;
    write_all(&[(&certificate, PUBLIC, made.pem()), (&key, PRIVATE, pair.serialize_pem())])?;
    let shown = flags.directory.display();
    output::line(&format!(
        "{} signs from now on; whoever has {} can join the cluster",
        certificate.display(),
        key.display()
    ));
    output::line(&format!(
        "next: strake tls issue --ca {shown} --kind server --name HOST --address IP OUT"
    ));
    Ok(())
}

fn issue(flags: &Issue) -> Outcome {
    let files = TlsFiles::in_directory(&flags.out);
    refuse_existing(&[&files.ca, &files.certificate, &files.key])?;
    let (issuer, ca_pem) = open_ca(&flags.ca)?;
    let names = subject_names(flags)?;
    let mut params = params(names.clone(), &flags.name, flags.days)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if flags.kind == IssueKind::Server {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params.use_authority_key_identifier_extension = true;
    // Nobody checks whether the CA itself has expired, so nothing that it signs outlives it.
    let ca = TlsFiles { ca: flags.ca.join(CA_CERTIFICATE), ..files.clone() };
    let ca_seconds = u64::try_from(ca.ca_expires()?.seconds).unwrap_or(0);
    params.not_after =
        params.not_after.min(date_time_ymd(1970, 1, 1) + Duration::from_secs(ca_seconds));
    let pair = KeyPair::generate().context(|| "making a key".into())?;
    let made = params.signed_by(&pair, &issuer).context(|| "signing the certificate".into())?;
    make_directory(&flags.out)?;
    write_all(&[
        (&files.ca, PUBLIC, ca_pem),
        (&files.certificate, PUBLIC, made.pem()),
        (&files.key, PRIVATE, pair.serialize_pem()),
    ])?;
    // The proof that it will be accepted: everything a member checks of itself.
    let tls = Tls::load(files.clone())
        .inspect_err(|_| remove(&[&files.ca, &files.certificate, &files.key]))
        .map_err(|e| Failure::telling(&e))?;
    let certificate = tls.certificate();
    output::line(&format!(
        "{}: {} certificate for {}, expires on {}",
        files.certificate.display(),
        certificate.kind.text(),
        names.join(", "),
        certificate.expires.date()
    ));
    let shown = flags.out.display();
    output::line(&format!("next: bring {shown} to {} as {DIRECTORY_DEFAULT}", flags.name));
    Ok(())
}

/// The CA as a signer, and its certificate.
fn open_ca(directory: &Path) -> Outcome<(Issuer<'static, KeyPair>, String)> {
    let (certificate, key) = (directory.join(CA_CERTIFICATE), directory.join(CA_KEY));
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .context(|| path.display().to_string())
            .map_err(|f| f.next("strake tls create-ca makes a CA; --ca names its directory"))
    };
    let (pem, key_pem) = (read(&certificate)?, read(&key)?);
    check_private(&key).map_err(|e| Failure::telling(&e))?;
    let pair = KeyPair::from_pem(&key_pem).context(|| key.display().to_string())?;
    let issuer =
        Issuer::from_ca_cert_pem(&pem, pair).context(|| certificate.display().to_string())?;
    Ok((issuer, pem))
}

fn subject_names(flags: &Issue) -> Outcome<Vec<String>> {
    let mut names = vec![flags.name.clone()];
    names.extend(flags.address.iter().filter(|a| **a != flags.name).cloned());
    for name in &names {
        let usable = |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c);
        if name.is_empty() || !name.chars().all(usable) {
            return Err(Failure::usage(format!("{name:?} is no host's name or address"))
                .next("names are letters, digits, `-` and `.`; addresses have no port"));
        }
        let with_port = name.contains(':') && name.parse::<std::net::IpAddr>().is_err();
        if with_port {
            return Err(Failure::usage(format!("{name} has a port"))
                .next("give the host only: a certificate is for all ports"));
        }
    }
    Ok(names)
}

/// What all certificates have in common.
fn params(names: Vec<String>, common_name: &str, days: u32) -> Outcome<CertificateParams> {
    let mut params = CertificateParams::new(names).context(|| "names of the certificate".into())?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = wall_time();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BEFORE);
    params.not_after = epoch + now + DAY * days;
    Ok(params)
}

fn refuse_existing(paths: &[&Path]) -> Outcome {
    match paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => {
            Err(Failure::new(format!("{} exists and is not overwritten", path.display()))
                .next("name another directory, or move the old files away first"))
        }
        None => Ok(()),
    }
}

fn make_directory(path: &Path) -> Outcome {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .context(|| format!("directory {}", path.display()))
}

/// Writes all files or none.
fn write_all(files: &[(&Path, u32, String)]) -> Outcome {
    for (at, (path, mode, text)) in files.iter().enumerate() {
        let options = |o: &mut OpenOptions| o.write(true).create_new(true).mode(*mode).open(path);
        let made = options(&mut OpenOptions::new());
        let written = match made {
            Ok(mut file) => file.write_all(text.as_bytes()).and_then(|()| file.sync_all()),
            Err(e) => {
                remove(&files[..at].iter().map(|f| f.0).collect::<Vec<_>>());
                return Err(Failure::new(format!("{}: {e}", path.display()))
                    .next("name a directory that can be written"));
            }
        };
        if let Err(e) = written {
            remove(&files[..=at].iter().map(|f| f.0).collect::<Vec<_>>());
            return Err(Failure::new(format!("{}: {e}", path.display())).next("make room there"));
        }
    }
    Ok(())
}

/// Takes away what a failed run has made.
fn remove(paths: &[&Path]) {
    for path in paths {
        if let Err(e) = std::fs::remove_file(path)
            && e.kind() != ErrorKind::NotFound
        {
            tracing::warn!("{} stays: {e}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use strake_wire::tls::Kind;

    fn issue_flags(dir: &Path, kind: IssueKind, out: &str) -> Issue {
        Issue {
            ca: dir.join("ca"),
            kind,
            name: "host1".into(),
            address: vec!["10.0.0.1".into(), "fe80::1".into()],
            days: 365,
            out: dir.join(out),
        }
    }

    #[test]
    fn what_is_issued_is_what_was_asked_for_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let ca = CreateCa { directory: dir.path().join("ca"), days: 100 };
        create_ca(&ca).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.path().join("ca/ca.key")), 0o600);
        assert!(create_ca(&ca).unwrap_err().cause.contains("exists"));

        let server = issue_flags(dir.path(), IssueKind::Server, "s");
        issue(&server).unwrap();
        assert!(issue(&server).unwrap_err().cause.contains("exists"));
        issue(&issue_flags(dir.path(), IssueKind::Client, "c")).unwrap();
        let files = TlsFiles::in_directory(&dir.path().join("s"));
        assert_eq!((mode(&files.key), mode(&files.certificate)), (0o600, 0o644));
        let (ca_expires, tls) = (files.ca_expires().unwrap(), Tls::load(files).unwrap());
        for host in ["host1", "10.0.0.1", "fe80::1"] {
            tls.serve(Some(host)).unwrap();
        }
        assert!(tls.serve(Some("host2")).is_err());
        let own = tls.certificate();
        assert_eq!((own.name.as_str(), own.kind), ("host1", Kind::Server));
        // It does not outlive its CA.
        assert_eq!(own.expires, ca_expires);
        let client = Tls::load(TlsFiles::in_directory(&dir.path().join("c"))).unwrap();
        assert_eq!(client.certificate().kind, Kind::Client);
    }

    #[test]
    fn a_key_that_is_not_the_ca_s_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ca", "other"] {
            create_ca(&CreateCa { directory: dir.path().join(name), days: 100 }).unwrap();
        }
        std::fs::rename(dir.path().join("other/ca.key"), dir.path().join("ca/ca.key")).unwrap();
        let failure = issue(&issue_flags(dir.path(), IssueKind::Client, "c")).unwrap_err();
        assert!(failure.cause.contains("not signed by the CA"), "{failure}");
        assert_eq!(std::fs::read_dir(dir.path().join("c")).unwrap().count(), 0);
    }

    #[test]
    fn names_that_no_host_has_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for address in ["10.0.0.1:7440", "a b", "", "h/1"] {
            let flags = Issue {
                address: vec![address.into()],
                ..issue_flags(dir.path(), IssueKind::Server, "s")
            };
            assert!(subject_names(&flags).unwrap_err().next.is_some(), "{address}");
        }
    }
}
