//! TLS to the database: the parameters that libpq has for it in the URL, and what they ask of a certificate.
//!
//! | `sslmode` | |
//! |---|---|
//! | none, `disable` | nothing is encrypted |
//! | `require` | encrypted; the certificate is looked at only where `sslrootcert` is given, and then as by `verify-ca` |
//! | `verify-ca` | the certificate is from a CA in `sslrootcert` |
//! | `verify-full` | and it is for the host in the URL |
//!
//! `prefer` and `allow` are refused: whoever can listen can also see to it that nothing is encrypted. `sslcert` and
//! `sslkey` are for a database that asks for a certificate. The files are read for every connection, so that
//! renewed ones are used without a restart.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use std::path::PathBuf;
use std::sync::Arc;
use strake_base::pem;
use tokio_postgres_rustls::MakeRustlsConnect;

type Result<T, E = String> = std::result::Result<T, E>;

/// What is asked of the database's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    /// The file with the CAs of which one has to have issued it.
    roots: PathBuf,
    /// Whether it has to be for the host in the URL.
    name: bool,
}

/// How connections are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    asked: Option<Asked>,
    /// Our certificate and its key.
    own: Option<(PathBuf, PathBuf)>,
}

/// Takes the parameters about TLS out of a URL: what is left of it, and how its connections are to be encrypted, if
/// they are.
pub fn take(url: &str) -> Result<(String, Option<Encryption>)> {
    let Some((before, parameters)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut left, mut mode) = (Vec::new(), None);
    let (mut roots, mut certificate, mut key) = (None, None, None);
    for parameter in parameters.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "sslmode" => mode = Some(value),
            "sslrootcert" => roots = Some(file(name, value)?),
            "sslcert" => certificate = Some(file(name, value)?),
            "sslkey" => key = Some(file(name, value)?),
            _ => left.push(parameter),
        }
    }
    let rest = match left.is_empty() {
        true => before.to_owned(),
        false => format!("{before}?{}", left.join("&")),
    };
    let own = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("sslcert and sslkey go together".into()),
    };
    let asked = match (mode, roots) {
        (None | Some("disable"), None) if own.is_none() => return Ok((rest, None)),
        (None | Some("disable"), _) => {
            return Err(
                "files for TLS are named, and nothing is to be encrypted: give sslmode=verify-full"
                    .into(),
            );
        }
        (Some("require"), None) => None,
        (Some("require" | "verify-ca"), Some(roots)) => Some(Asked { roots, name: false }),
        (Some("verify-full"), Some(roots)) => Some(Asked { roots, name: true }),
        (Some(mode @ ("verify-ca" | "verify-full")), None) => {
            return Err(format!(
                "sslmode={mode} needs sslrootcert=FILE, the certificate of the database's CA"
            ));
        }
        (Some(mode), _) => {
            return Err(format!(
                "sslmode={mode} is none of disable, require, verify-ca, verify-full"
            ));
        }
    };
    Ok((rest, Some(Encryption { asked, own })))
}

fn file(name: &str, value: &str) -> Result<PathBuf> {
    let decoded = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
    let path = PathBuf::from(decoded.into_owned());
    // Servers are started from anywhere.
    match path.is_absolute() {
        true => Ok(path),
        false => Err(format!("{name}={value} is no absolute path")),
    }
}

impl Encryption {
    /// What makes encrypted connections, with the files as they are now.
    ///
    /// # Errors
    /// A file that cannot be read, or holds something else.
    pub fn connector(&self) -> Result<MakeRustlsConnect> {
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let trust = self.asked.as_ref().map(|asked| Trust::new(asked, &provider)).transpose()?;
        let verifier = Verifier { algorithms, trust };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some((certificate, key_file)) = &self.own else {
            return Ok(MakeRustlsConnect::new(builder.with_no_client_auth()));
        };
        let key = pem::private_key(key_file).map_err(|e| e.to_string())?;
        let chain = pem::certificates(certificate).map_err(|e| e.to_string())?;
        let config = builder
            .with_client_auth_cert(chain, key)
            .map_err(|e| format!("{} and {}: {e}", certificate.display(), key_file.display()))?;
        Ok(MakeRustlsConnect::new(config))
    }
}

/// Looks at the database's certificate.
#[derive(Debug)]
struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// None where nothing is asked.
    trust: Option<Trust>,
}

#[derive(Debug)]
struct Trust {
    inner: Arc<WebPkiServerVerifier>,
    /// The certificates that are trusted.
    certificates: Vec<CertificateDer<'static>>,
    /// Whether the name counts.
    name: bool,
}

impl Trust {
    fn new(asked: &Asked, provider: &Arc<CryptoProvider>) -> Result<Self> {
        let certificates = pem::certificates(&asked.roots).map_err(|e| e.to_string())?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|e| format!("{}: {e}", asked.roots.display()))?;
        Ok(Self { inner, certificates, name: asked.name })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext, Other};
        let Some(trust) = &self.trust else { return Ok(ServerCertVerified::assertion()) };
        match trust.inner.verify_server_cert(certificate, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) if !trust.name => Ok(ServerCertVerified::assertion()),
            // One that has signed itself, as `openssl req -x509` makes it, calls itself a CA. Its time is looked at
            // before that.
            Err(rustls::Error::InvalidCertificate(Other(_)))
                if trust.certificates.contains(certificate) =>
            {
                if trust.name {
                    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            looked_at => looked_at,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_libpq_are_understood() {
        let encryption = |url: &str| take(url).unwrap().1;
        // Whether the name counts, where the certificate does.
        let asked = |parameters: &str| {
            let encryption = encryption(&format!("postgres://a@b/c?{parameters}")).unwrap();
            encryption.asked.map(|asked| asked.name)
        };
        assert_eq!(encryption("postgres://a@b/c"), None);
        assert_eq!(encryption("postgres://a@b/c?sslmode=disable"), None);
        assert_eq!(asked("sslmode=require"), None);
        assert_eq!(asked("sslmode=require&sslrootcert=/etc/ca.pem"), Some(false));
        assert_eq!(asked("sslrootcert=/etc/ca.pem&sslmode=verify-ca"), Some(false));
        let full = "postgres://a@b/c?x=1&sslmode=verify-full&sslrootcert=%2Fa%20b&y=2";
        let (rest, full) = take(full).unwrap();
        assert_eq!(rest, "postgres://a@b/c?x=1&y=2");
        let wanted = Asked { roots: "/a b".into(), name: true };
        assert_eq!(full, Some(Encryption { asked: Some(wanted), own: None }));
    }

    #[test]
    fn parameters_that_protect_nobody_are_refused() {
        for (parameters, why) in [
            ("sslmode=prefer", "none of disable, require"),
            ("sslmode=verify-full", "needs sslrootcert"),
            ("sslrootcert=/a", "give sslmode=verify-full"),
            ("sslmode=require&sslrootcert=a", "no absolute path"),
            ("sslmode=require&sslcert=/a", "go together"),
        ] {
            let error = take(&format!("postgres://a@b/c?{parameters}")).unwrap_err();
            assert!(error.contains(why), "{parameters}: {error}");
        }
    }
}
