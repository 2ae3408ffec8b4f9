//! The three files that make a process a member: the CA's certificate, its own, and its key.

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use strake_base::pem::{self, PemError};
use strake_types::{Error, ErrorKind, Result, Timestamp};

/// Where they lie, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the cluster's CA. Several: each is trusted, to change from one to the next.
    pub ca: PathBuf,
    /// Our certificate, and those between it and the CA, if any.
    pub certificate: PathBuf,
    /// Our private key. Nobody else may be able to read the file.
    pub key: PathBuf,
}

/// What the files hold.
pub(super) struct Material {
    pub roots: RootCertStore,
    /// Not empty.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// Tells whether files have changed, also their owner or mode: of each, when it or what is said of it was changed
/// (seconds and nanoseconds), which inode it is, and its length.
pub(super) type Stamp = [Option<(i64, i64, u64, u64)>; 3];

impl TlsFiles {
    /// The files of a directory that `strake tls issue` has made: `ca.pem`, `cert.pem`, `key.pem`.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            ca: directory.join("ca.pem"),
            certificate: directory.join("cert.pem"),
            key: directory.join("key.pem"),
        }
    }

    /// The last second of the CA's certificate, without a look at the other files.
    pub fn ca_expires(&self) -> Result<Timestamp> {
        super::expiry_of(&certificates(&self.ca)?[0])
    }

    pub(super) fn stamp(&self) -> Stamp {
        [&self.ca, &self.certificate, &self.key].map(|path| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.ctime(), about.ctime_nsec(), about.ino(), about.len()))
        })
    }

    pub(super) fn read(&self) -> Result<Material> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(|e| {
                Error::with(ErrorKind::Malformed, format!("{}: {e}", self.ca.display()))
            })?;
        }
        let chain = certificates(&self.certificate)?;
        let key = pem::private_key(&self.key).map_err(failed)?;
        Ok(Material { roots, chain, key })
    }
}

/// Refuses a private key that other users of this machine can read.
pub fn check_private(path: &Path) -> Result<()> {
    pem::check_private(path).map_err(failed)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    pem::certificates(path).map_err(failed)
}

fn failed(error: PemError) -> Error {
    let kind = match &error {
        PemError::Read(_, e) if e.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
        PemError::Read(_, e) if e.kind() == io::ErrorKind::PermissionDenied => {
            ErrorKind::AccessDenied
        }
        PemError::Read(..) => ErrorKind::Io,
        PemError::Open { .. } => ErrorKind::NotPermitted,
        PemError::Malformed(..) => ErrorKind::Malformed,
    };
    let detail = match error {
        PemError::Read(..) if kind == ErrorKind::AccessDenied => format!(
            "{error}; name files that this user may read with --tls-ca, --tls-cert and --tls-key (--no-tls: without \
             encryption)"
        ),
        PemError::Read(..) => format!(
            "{error}; strake tls issue makes such files, and --tls-ca, --tls-cert and --tls-key name them"
        ),
        other => other.to_string(),
    };
    Error::with(kind, detail)
}
