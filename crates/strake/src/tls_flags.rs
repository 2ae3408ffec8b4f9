//! Who this process is to others: the flags that name its certificates, the same for every verb.

use crate::failure::{Context, Failure, Outcome};
use clap::Args;
use clap::builder::FalseyValueParser;
use metrics::gauge;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use strake_base::task::{Owned, spawn_owned};
use strake_wire::tls::{Tls, TlsFiles};
use strake_wire::transport::is_unix;

/// Where certificates are looked for if no flag names them.
pub const DIRECTORY_DEFAULT: &str = "/etc/strake/tls";
const CA_VARIABLE: &str = "STRAKE_TLS_CA";
const CERT_VARIABLE: &str = "STRAKE_TLS_CERT";
const KEY_VARIABLE: &str = "STRAKE_TLS_KEY";
/// A certificate that expires within so many days is worth a word.
pub const SOON_DAYS: i64 = 30;
/// How often a process that runs looks when its certificate expires.
const LOOK_EVERY: Duration = Duration::from_secs(60 * 60);
/// After so many looks it warns again.
const LOOKS_A_DAY: u32 = 24;

/// The flags. Files of PEM, as `strake tls issue` makes them.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsFlags {
    /// Certificate of the cluster's CA; with certificates, all traffic by TCP is encrypted [default: /etc/strake/tls/ca.pem, if any of the three is there]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = CA_VARIABLE,
        help_heading = "Encryption"
    )]
    pub tls_ca: Option<PathBuf>,

    /// Our own certificate [default: /etc/strake/tls/cert.pem]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = CERT_VARIABLE,
        help_heading = "Encryption"
    )]
    pub tls_cert: Option<PathBuf>,

    /// Its private key, which only its owner may be able to read [default: /etc/strake/tls/key.pem]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = KEY_VARIABLE,
        help_heading = "Encryption"
    )]
    pub tls_key: Option<PathBuf>,

    /// Speak without encryption, whatever certificates there are
    #[arg(
        long,
        global = true,
        env = "STRAKE_NO_TLS",
        value_parser = FalseyValueParser::new(),
        help_heading = "Encryption"
    )]
    pub no_tls: bool,
}

impl TlsFlags {
    /// These; what they leave open as in `other`.
    #[must_use]
    pub fn or(self, other: TlsFlags) -> Self {
        Self {
            tls_ca: self.tls_ca.or(other.tls_ca),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            no_tls: self.no_tls || other.no_tls,
        }
    }

    /// The certificates; `None`: nothing is to be encrypted.
    fn load(&self) -> Outcome<Option<Arc<Tls>>> {
        let Some(files) = self.files()? else { return Ok(None) };
        Tls::load(files).map(Some).map_err(|e| Failure::telling(&e))
    }

    /// The certificates of who listens at this address: a Unix socket needs none.
    pub fn load_to_listen(&self, address: &str) -> Outcome<Option<Arc<Tls>>> {
        if is_unix(address) {
            return Ok(None);
        }
        let tls = self.load()?;
        tls.iter().for_each(|tls| warn_if_soon(tls));
        Ok(tls)
    }

    /// The certificates for calls to these managers, and to the servers that they name: those may be called by TCP also
    /// where all managers have Unix sockets. They need not be then, so that what nobody has asked for may be of no use. Who
    /// uses them warns where they expire soon.
    pub fn load_to_call(&self, managers: &[String]) -> Outcome<Option<Arc<Tls>>> {
        let loaded = self.load();
        let may_fail = !self.are_given() && managers.iter().all(|a| is_unix(a));
        match loaded {
            Err(failure) if may_fail => {
                tracing::debug!("without certificates: {failure}");
                Ok(None)
            }
            loaded => loaded,
        }
    }

    /// True if the command names one of the files, or an option of the mount does: what the environment names may be meant
    /// for another cluster.
    pub fn are_given(&self) -> bool {
        self.are_given_beside(|variable| std::env::var_os(variable))
    }

    fn are_given_beside(&self, environment: impl Fn(&str) -> Option<OsString>) -> bool {
        let files = [
            (CA_VARIABLE, &self.tls_ca),
            (CERT_VARIABLE, &self.tls_cert),
            (KEY_VARIABLE, &self.tls_key),
        ];
        let is_given = |(variable, file): (&str, &Option<PathBuf>)| {
            file.is_some() && *file != environment(variable).map(PathBuf::from)
        };
        files.into_iter().any(is_given)
    }

    fn files(&self) -> Outcome<Option<TlsFiles>> {
        if self.no_tls {
            return Ok(None);
        }
        let given = [
            ("--tls-ca", &self.tls_ca),
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
        ];
        if let [(_, Some(ca)), (_, Some(certificate)), (_, Some(key))] = given {
            // They are read again when they change, and what runs in the background is in another directory then.
            let whole =
                |file: &Path| std::path::absolute(file).context(|| file.display().to_string());
            let (ca, certificate, key) = (whole(ca)?, whole(certificate)?, whole(key)?);
            return Ok(Some(TlsFiles { ca, certificate, key }));
        }
        if let Some((present, _)) = given.iter().find(|(_, path)| path.is_some()) {
            let missing: Vec<_> = given.iter().filter(|g| g.1.is_none()).map(|g| g.0).collect();
            return Err(Failure::usage(format!(
                "{present} is given without {}",
                missing.join(" and ")
            ))
            .next("give all three (strake tls issue makes the files), or none"));
        }
        Ok(files_in(Path::new(DIRECTORY_DEFAULT)))
    }
}

/// Shows in the metrics when our certificate expires, and warns each day once that is soon, as long as it is held.
pub fn watch(tls: Arc<Tls>) -> Owned<()> {
    spawn_owned(async move {
        // Who loaded it was warned.
        show_expiry(&tls);
        loop {
            for _ in 0..LOOKS_A_DAY {
                tokio::time::sleep(LOOK_EVERY).await;
                show_expiry(&tls);
            }
            warn_if_soon(&tls);
        }
    })
}

fn show_expiry(tls: &Tls) {
    let expires = tls.certificate().expires.seconds;
    gauge!("strake_tls_certificate_expires_seconds").set(expires as f64);
}

/// Warns of our certificate if it expires soon.
pub fn warn_if_soon(tls: &Tls) {
    let own = tls.certificate();
    if own.days_left() < SOON_DAYS {
        tracing::warn!(
            "certificate {} expires on {}; issue a new one with strake tls issue",
            tls.files().certificate.display(),
            own.expires.date()
        );
    }
}

/// The files of a directory; `None`: none of them is there. What is there in part only, or cannot be looked at, is an
/// error of who loads it: to go on without encryption would be worse.
fn files_in(directory: &Path) -> Option<TlsFiles> {
    let files = TlsFiles::in_directory(directory);
    let is_absent = |path: &PathBuf| match path.symlink_metadata() {
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    let absent = [&files.ca, &files.certificate, &files.key].into_iter().all(is_absent);
    (!absent).then_some(files)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use crate::verbs;
    use clap::Parser;
    use metrics_exporter_prometheus::PrometheusBuilder;

    #[test]
    fn half_a_set_of_certificates_is_refused_by_what_is_missing() {
        let flags = TlsFlags { tls_ca: Some("ca".into()), ..TlsFlags::default() };
        let failure = flags.load().unwrap_err();
        assert_eq!(failure.cause, "--tls-ca is given without --tls-cert and --tls-key");
        let filed = TlsFlags {
            tls_ca: Some("other".into()),
            tls_cert: Some("c".into()),
            ..TlsFlags::default()
        };
        let both = flags.or(filed);
        assert_eq!((both.tls_ca, both.tls_cert), (Some("ca".into()), Some("c".into())));
    }

    /// A mount in the background, which has left the directory it was started in, could not have read them again.
    #[test]
    fn certificates_are_named_by_their_whole_paths() {
        let [tls_ca, tls_cert, tls_key] = ["ca", "cert", "key"].map(|file| Some(file.into()));
        let flags = TlsFlags { tls_ca, tls_cert, tls_key, no_tls: false };
        let TlsFiles { ca, certificate, key } = flags.files().unwrap().unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!([ca, certificate, key], ["ca", "cert", "key"].map(|file| here.join(file)));
    }

    /// A client's certificates, made in this directory.
    pub(crate) fn issued(directory: &Path) -> Arc<Tls> {
        let (ca, me) = (directory.join("ca"), directory.join("me"));
        let (ca, out) = (ca.to_str().unwrap(), me.to_str().unwrap());
        let issue = ["strake", "tls", "issue", "--ca", ca, "--kind", "client", "--name", "me", out];
        for words in [&["strake", "tls", "create-ca", ca][..], &issue[..]] {
            let Verb::Tls(flags) = Cli::try_parse_from(words).unwrap().verb else { panic!() };
            verbs::tls::run(&flags).unwrap();
        }
        Tls::load(TlsFiles::in_directory(&me)).unwrap()
    }

    /// Servers and mounts that ran said nothing until nobody could call them any more.
    #[test]
    fn a_process_that_runs_shows_when_its_certificate_expires() {
        let dir = tempfile::tempdir().unwrap();
        let tls = issued(dir.path());
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || show_expiry(&tls));
        let expected =
            format!("strake_tls_certificate_expires_seconds {}", tls.certificate().expires.seconds);
        let shown = recorder.handle().render();
        assert!(shown.contains(&expected), "{expected}: {shown}");
    }

    /// A server whose renewal had lost `ca.pem`, or that could not look into the directory, went on without encryption.
    #[test]
    fn a_directory_of_certificates_is_passed_over_only_if_none_of_them_is_there() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(files_in(dir.path()), None);
        assert_eq!(files_in(&dir.path().join("nowhere")), None);
        for name in ["cert.pem", "key.pem", "ca.pem"] {
            let file = dir.path().join(name);
            std::fs::write(&file, "").unwrap();
            assert!(files_in(dir.path()).is_some(), "{name}");
            // No directory, so that nobody can say what is in it.
            assert!(files_in(&file).is_some());
            std::fs::remove_file(&file).unwrap();
        }
    }

    /// With certificates of another cluster in the environment, of which one file was broken, no verb worked beside a
    /// `strake up` that has a Unix socket only.
    #[test]
    fn what_the_environment_names_is_not_what_the_command_asks_for() {
        let flags = TlsFlags { tls_ca: Some("/ca".into()), ..TlsFlags::default() };
        let named = |name: &str| (name == CA_VARIABLE).then(|| OsString::from("/ca"));
        assert!(!flags.are_given_beside(named));
        assert!(flags.are_given_beside(|_| None));
        assert!(flags.are_given_beside(|_| Some("/other".into())));
        let key = TlsFlags { tls_key: Some("/key".into()), ..flags.clone() };
        assert!(key.are_given_beside(named));
        assert!(!TlsFlags::default().are_given_beside(|_| Some("/ca".into())));
    }

    #[test]
    fn certificates_are_not_looked_at_where_none_are_wanted() {
        let broken = TlsFlags { tls_ca: Some("/nowhere".into()), ..TlsFlags::default() };
        assert!(broken.load_to_listen("unix:/a").unwrap().is_none());
        assert!(broken.load_to_listen("b:1").is_err());
        let none = TlsFlags { no_tls: true, ..broken.clone() };
        assert!(none.load_to_call(&["b:1".into()]).unwrap().is_none());
        // Behind a Unix socket may be servers that are called by TCP.
        assert!(broken.load_to_call(&["unix:/a".into()]).is_err());
        assert!(broken.load_to_call(&["unix:/a".into(), "b:1".into()]).is_err());
    }
}
