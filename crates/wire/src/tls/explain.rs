//! Why a handshake failed, in words that say what to do.
//!
//! In TLS 1.3 the side that calls is done before the other has looked at its certificate, so a refusal
//! may come as an alert when the caller first reads. The words here are for both.

use super::{TlsFiles, timestamp};
use rustls::{AlertDescription, CertificateError, Error as TlsError};
use std::io;
use strake_types::{Error, ErrorKind};

/// The command that makes a certificate.
const ISSUE: &str = "issue a new one with strake tls issue";

/// The error of a handshake.
pub fn handshake(error: &TlsError) -> Error {
    Error::with(ErrorKind::WrongPeer, words(error))
}

/// The error of a stream on which the handshake was done or seemed so.
pub fn stream(error: &TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words(error))
}

/// Why our own files cannot be used together.
pub fn own(error: &TlsError, files: &TlsFiles) -> Error {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let detail = match error {
        TlsError::InconsistentKeys(_) => {
            format!("key {key} is not that of certificate {certificate}; {ISSUE}")
        }
        other => format!("certificate {certificate} with key {key}: {other}"),
    };
    Error::with(ErrorKind::Invalid, detail)
}

/// Why our own certificate would be refused by everybody.
pub fn own_chain(error: &webpki::Error, files: &TlsFiles) -> Error {
    let (certificate, ca) = (files.certificate.display(), files.ca.display());
    let detail = match error {
        webpki::Error::CertExpired { not_after, .. } => {
            let date = timestamp(*not_after).date();
            format!("certificate {certificate} expired on {date}; {ISSUE}")
        }
        webpki::Error::CertNotValidYet { not_before, .. } => {
            let date = timestamp(*not_before).date();
            format!("certificate {certificate} is valid only from {date} on; is the clock right?")
        }
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            format!(
                "certificate {certificate} was not signed by the CA in {ca}; give the CA it came with"
            )
        }
        webpki::Error::CaUsedAsEndEntity => {
            format!("certificate {certificate} is that of a CA; {ISSUE}")
        }
        webpki::Error::RequiredEkuNotFoundContext(_) => {
            format!(
                "certificate {certificate} is not for TLS clients, and every member calls others; {ISSUE}"
            )
        }
        other => format!("certificate {certificate}: {other}"),
    };
    Error::with(ErrorKind::Invalid, detail)
}

fn words(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(why) => certificate(why),
        TlsError::AlertReceived(alert) => refused(*alert),
        TlsError::NoCertificatesPresented => {
            "it shows no certificate; give it --tls-ca, --tls-cert and --tls-key".into()
        }
        TlsError::InvalidMessage(_) => "what it sends is not TLS".into(),
        other => format!("TLS: {other}"),
    }
}

/// What is wrong with the other side's certificate.
fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate was not signed by our CA; are both of the same cluster?".into()
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("its certificate expired on {}; {ISSUE}", timestamp(*not_after).date())
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            let date = timestamp(*not_before).date();
            format!("its certificate is valid only from {date} on; are both clocks right?")
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
            let (expected, presented) = (expected.to_str(), presented.join(", "));
            format!(
                "its certificate is for {presented}, not for {expected}; issue one with --address \
                 {expected}"
            )
        }
        CertificateError::InvalidPurposeContext { .. } | CertificateError::InvalidPurpose => {
            "its certificate is a client's; give the server one made by strake tls issue --kind server"
                .into()
        }
        other => format!("its certificate: {other}"),
    }
}

/// A name of a certificate without what the library puts around it: `DnsName("host1")`, `IpAddress(127.0.0.1)`.
fn plain(name: &str) -> &str {
    let within = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    within.unwrap_or(name).trim_matches('"')
}

/// What the other side says is wrong with ours.
fn refused(alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it was not signed by the CA that is trusted there; are both of the same cluster?"
                .into()
        }
        AlertDescription::CertificateExpired => {
            format!("it has expired, or a clock is wrong; {ISSUE}")
        }
        AlertDescription::CertificateRequired => {
            "there is none; give --tls-cert and --tls-key".into()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "the log of the other side says why".into(),
        other => return format!("TLS alert {other:?}; the log of the other side may say more"),
    };
    format!("the other side refuses our certificate: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;

    /// It was shown as the library keeps it: `DnsName("host1")`.
    #[test]
    fn the_names_of_a_certificate_are_told_as_people_write_them() {
        let error = TlsError::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("host2").unwrap(),
            presented: vec!["DnsName(\"host1\")".into(), "IpAddress(127.0.0.1)".into()],
        });
        let told = handshake(&error).detail;
        assert!(told.contains("is for host1, 127.0.0.1, not for host2"), "{told}");
        assert_eq!(plain("host1"), "host1");
    }
}
