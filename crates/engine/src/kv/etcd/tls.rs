//! TLS to etcd: `etcds://`, and the files that say whom to trust and who we are.
//!
//! | parameter | |
//! |---|---|
//! | `cacert` | certificates of the CAs of which one has issued those of the members; has to be there |
//! | `cert`, `key` | our own certificate and its key, for members that ask for one |
//!
//! A member's certificate has to be for the host in the URL. The files are read again when a connection has
//! ended, so that renewed ones are used without a restart.

use percent_encoding::percent_decode_str;
use std::path::{Path, PathBuf};
use strake_base::pem;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

type Result<T, E = String> = std::result::Result<T, E>;

/// How connections are encrypted.
#[derive(Clone)]
pub struct Encryption {
    roots: PathBuf,
    own: Option<(PathBuf, PathBuf)>,
}

/// Reads the parameters of a URL: how its connections are to be encrypted, if they are.
pub fn read(is_encrypted: bool, parameters: &str) -> Result<Option<Encryption>> {
    let (mut roots, mut certificate, mut key) = (None, None, None);
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "cacert" => roots = Some(file(name, value)?),
            "cert" => certificate = Some(file(name, value)?),
            "key" => key = Some(file(name, value)?),
            _ => return Err("a parameter is none of cacert, cert, key".into()),
        }
    }
    let own = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("cert and key go together".into()),
    };
    let encryption = match (is_encrypted, roots) {
        (false, None) if own.is_none() => return Ok(None),
        (false, _) => return Err("files for TLS are named: that needs etcds://".into()),
        (true, None) => {
            return Err("etcds:// needs ?cacert=FILE, the certificate of the members' CA".into());
        }
        (true, Some(roots)) => Encryption { roots, own },
    };
    // Files that are not there are met before anything is begun.
    encryption.config()?;
    Ok(Some(encryption))
}

fn file(name: &str, value: &str) -> Result<PathBuf> {
    let path = PathBuf::from(percent_decode_str(value).decode_utf8_lossy().into_owned());
    // Servers are started from anywhere.
    match path.is_absolute() {
        true => Ok(path),
        false => Err(format!("{name} is no absolute path")),
    }
}

impl Encryption {
    /// True if we have a certificate to show.
    pub fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// What makes encrypted connections, with the files as they are now.
    pub fn config(&self) -> Result<ClientTlsConfig> {
        let config =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(text(&self.roots)?));
        let Some((certificate, key)) = &self.own else { return Ok(config) };
        pem::check_private(key).map_err(|e| e.to_string())?;
        Ok(config.identity(Identity::from_pem(text(certificate)?, text(key)?)))
    }
}

fn text(path: &Path) -> Result<Vec<u8>> {
    let text = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    match text.windows(10).any(|window| window == b"-----BEGIN") {
        true => Ok(text),
        false => Err(format!("{}: nothing in PEM", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_protect_nobody_are_refused() {
        for (is_encrypted, parameters, why) in [
            (true, "", "needs ?cacert=FILE"),
            (false, "cacert=/a", "needs etcds://"),
            (true, "cacert=a", "no absolute path"),
            (true, "cacert=/a&cert=/b", "go together"),
            (true, "insecure=1", "none of cacert"),
            (true, "cacert=/nowhere/at-all", "cannot read"),
        ] {
            let error = read(is_encrypted, parameters).err().unwrap();
            assert!(error.contains(why), "{parameters}: {error}");
        }
        assert!(read(false, "").unwrap().is_none());
    }
}
