//! Reads certificates and private keys from files in PEM (RFC 7468).

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Longest file that is read: a chain of certificates has a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Permission bits that a key must not have.
const OTHERS: u32 = 0o077;

/// Why a file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// It cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
    /// A key that others may read is none.
    #[error("key file {path} is open to other users (mode {mode:04o}); run: chmod 600 {path}")]
    Open {
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// It holds something else.
    #[error("{0}: {1}")]
    Malformed(PathBuf, String),
}

type Result<T, E = PemError> = std::result::Result<T, E>;

/// The certificates in a file, at least one.
///
/// # Errors
/// A file that cannot be read, is too long, or holds something else.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let list = parsed.map_err(|e| malformed(path, format!("no certificate in PEM: {e}")))?;
    match list.is_empty() {
        true => Err(malformed(path, "there is no certificate in it".into())),
        false => Ok(list),
    }
}

/// The private key in a file that nobody else can read.
///
/// # Errors
/// As [`certificates`] and [`check_private`].
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    check_private(path)?;
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|e| malformed(path, format!("no private key in PEM: {e}")))
}

/// Refuses a private key that other users of this machine can read.
///
/// # Errors
/// That, or that there is no such file.
pub fn check_private(path: &Path) -> Result<()> {
    let mode = about(path)?.permissions().mode() & 0o7777;
    match mode & OTHERS {
        0 => Ok(()),
        _ => Err(PemError::Open { path: path.display().to_string(), mode }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    if about(path)?.len() > FILE_BYTES_MAX {
        return Err(malformed(path, format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    std::fs::read(path).map_err(|e| PemError::Read(path.to_owned(), e))
}

fn about(path: &Path) -> Result<std::fs::Metadata> {
    std::fs::metadata(path).map_err(|e| PemError::Read(path.to_owned(), e))
}

fn malformed(path: &Path, cause: String) -> PemError {
    PemError::Malformed(path.to_owned(), cause)
}
