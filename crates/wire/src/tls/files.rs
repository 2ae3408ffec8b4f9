//! The three files that make a process a member: the CA's certificate, its own, and its key.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use strake_types::{Error, ErrorKind, Result, Timestamp};

/// Longest file that is read: a chain of certificates has a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Permission bits that a key must not have.
const OTHERS: u32 = 0o077;

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

/// Tells whether files have changed: of each, when it was written, which inode it is, and its length.
pub(super) type Stamp = [Option<(SystemTime, u64, u64)>; 3];

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
            Some((about.modified().ok()?, about.ino(), about.len()))
        })
    }

    pub(super) fn read(&self) -> Result<Material> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(|e| unreadable(&self.ca, e))?;
        }
        let chain = certificates(&self.certificate)?;
        check_private(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|e| unreadable(&self.key, format!("no private key in PEM: {e}")))?;
        Ok(Material { roots, chain, key })
    }
}

/// At least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    let parsed: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let list = parsed.map_err(|e| unreadable(path, format!("no certificate in PEM: {e}")))?;
    match list.is_empty() {
        true => Err(unreadable(path, "there is no certificate in it")),
        false => Ok(list),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let about = std::fs::metadata(path).map_err(|e| failed(path, &e))?;
    if about.len() > FILE_BYTES_MAX {
        return Err(unreadable(path, format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    std::fs::read(path).map_err(|e| failed(path, &e))
}

/// Refuses a private key that other users of this machine can read.
pub fn check_private(path: &Path) -> Result<()> {
    let mode = std::fs::metadata(path).map_err(|e| failed(path, &e))?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let shown = path.display();
    let detail = format!(
        "key file {shown} is open to other users (mode {:04o}); run: chmod 600 {shown}",
        mode & 0o7777
    );
    Err(Error::with(ErrorKind::NotPermitted, detail))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::AccessDenied,
        _ => ErrorKind::Io,
    };
    let shown = path.display();
    let detail = format!(
        "cannot read {shown}: {error}; strake tls issue makes such files, and --tls-ca, --tls-cert and \
         --tls-key name them"
    );
    Error::with(kind, detail)
}

fn unreadable(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::with(ErrorKind::Malformed, format!("{}: {cause}", path.display()))
}
