//! Mutual TLS: both sides of a connection prove who they are, and nobody else can read along.
//!
//! A cluster has a certificate authority (CA) of its own. Every server and every client has a
//! certificate that it signed, and that is all that is trusted: no other CA, no password, no first
//! use. The certificate also says what its holder may be. The standard field for that, extended key
//! usage, is enough: "TLS server" makes it a server's, and only such a holder may be called, or say
//! to others what servers say to each other ([`Kind`]).
//!
//! ```text
//! connect/accept: handshake ──> TlsStream   (one lock, rustls inside, a TCP socket below)
//!                     │
//!                     └ plain speech instead of TLS: refused in words that the other side can read
//! ```
//!
//! TLS 1.3 only, and no resumption: every connection checks the certificates again, and connections
//! are few and long. The files are read again when they have changed, so that a certificate can be
//! renewed under a running server or mount.
//!
//! What this module never does: trust a certificate because of its name alone, send a byte of ours
//! before the other side is known, or fall back to plain speech.

mod explain;
mod files;
mod handshake;
mod stream;

pub use files::{TlsFiles, check_private};
pub use stream::TlsStream;

use files::{Material, Stamp};
use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strake_types::{Error, ErrorKind, Result, Timestamp};
use tokio::net::TcpStream;
use tokio::time::Instant;
use webpki::{EndEntityCert, KeyUsage};

/// The purpose "TLS server" (1.3.6.1.5.5.7.3.1) as it stands in a certificate.
const PURPOSE_SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
/// A time at which every certificate has expired.
const END_OF_TIME: Duration = Duration::from_secs(u64::MAX);
/// Files that could not be used are tried again after this time, changed or not: they may have been valid not yet.
const AGAIN: Duration = Duration::from_secs(10);

/// What the holder of a certificate may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A server: may be called, join the cluster, and say what servers say to each other.
    Server,
    /// A client: may call.
    Client,
}

impl Kind {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Server => "server",
            Kind::Client => "client",
        }
    }
}

/// What a certificate says that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its first name.
    pub name: String,
    /// What its holder may be.
    pub kind: Kind,
    /// Its last second.
    pub expires: Timestamp,
}

impl Certificate {
    /// Whole days from now until it expires; negative afterwards.
    pub fn days_left(&self) -> i64 {
        let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
        self.expires.seconds.saturating_sub(now).div_euclid(24 * 60 * 60)
    }

    /// Reads a chain (the certificate, then those between it and the CA), which has been verified.
    fn examine(chain: &[CertificateDer<'_>], roots: &RootCertStore) -> Result<Self> {
        let (first, between) = chain.split_first().ok_or_else(|| malformed("there is none"))?;
        let parsed = EndEntityCert::try_from(first).map_err(malformed)?;
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        let usage = KeyUsage::required(PURPOSE_SERVER);
        let now = UnixTime::now();
        let server = parsed
            .verify_for_usage(algorithms, &roots.roots, between, now, usage, None, None)
            .is_ok();
        Ok(Self {
            name: parsed.valid_dns_names().next().unwrap_or("a nameless certificate").to_owned(),
            kind: if server { Kind::Server } else { Kind::Client },
            expires: expiry_of(first)?,
        })
    }
}

/// The last second of a certificate, also of a CA's.
///
/// The library that verifies certificates does not tell it, but says in its refusal when a certificate
/// expired, and checks that before anything else. So it is asked for a time at which all have.
fn expiry_of(certificate: &CertificateDer<'_>) -> Result<Timestamp> {
    let parsed = EndEntityCert::try_from(certificate).map_err(malformed)?;
    let (time, usage) = (UnixTime::since_unix_epoch(END_OF_TIME), KeyUsage::client_auth());
    match parsed.verify_for_usage(&[], &[], &[], time, usage, None, None).err() {
        Some(webpki::Error::CertExpired { not_after, .. }) => Ok(timestamp(not_after)),
        Some(other) => Err(malformed(other)),
        None => Err(malformed("it never expires")),
    }
}

fn timestamp(time: UnixTime) -> Timestamp {
    Timestamp { seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), nanos: 0 }
}

fn malformed(cause: impl std::fmt::Display) -> Error {
    Error::with(ErrorKind::Malformed, format!("certificate: {cause}"))
}

/// What one reading of the files gave.
struct Loaded {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    certificate: Certificate,
}

/// What is used, and what was read last.
struct Slot {
    stamp: Stamp,
    loaded: Arc<Loaded>,
    /// When what was read last could not be used, and why.
    failed: Option<(Instant, String)>,
}

impl Slot {
    fn new(stamp: Stamp, loaded: Arc<Loaded>) -> Mutex<Self> {
        Mutex::new(Self { stamp, loaded, failed: None })
    }

    /// True if files with this stamp are to be read.
    fn is_old(&self, stamp: &Stamp) -> bool {
        self.stamp != *stamp || self.failed.as_ref().is_some_and(|(at, _)| at.elapsed() >= AGAIN)
    }

    /// True if files with this stamp were refused for this cause when they were read last: nobody has to be told again.
    fn is_known(&self, stamp: &Stamp, cause: &str) -> bool {
        self.stamp == *stamp && self.failed.as_ref().is_some_and(|(_, known)| known == cause)
    }
}

/// Who this process is, and whom it trusts.
pub struct Tls {
    files: TlsFiles,
    slot: Mutex<Slot>,
    /// The certificate is that of a server, for this host if it has one.
    serves: OnceLock<Option<String>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

impl Tls {
    /// Reads the files. Refused are: a key that others of this machine can read, a key that is not the
    /// certificate's, and a certificate that has expired or was signed by another CA.
    pub fn load(files: TlsFiles) -> Result<Arc<Self>> {
        let stamp = files.stamp();
        let slot = Slot::new(stamp, Arc::new(Loaded::new(&files)?));
        Ok(Arc::new(Self { files, slot, serves: OnceLock::new() }))
    }

    /// Our own certificate.
    pub fn certificate(&self) -> Certificate {
        self.current().certificate.clone()
    }

    /// The files.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Refuses a certificate that nobody who calls this server, by `host` if it has one, would accept: now, and when it is
    /// renewed.
    pub fn serve(&self, host: Option<&str>) -> Result<()> {
        self.current().check_server(host, &self.files)?;
        self.serves.get_or_init(|| host.map(str::to_owned));
        Ok(())
    }

    /// The handshake of the side that calls `host`.
    pub(crate) async fn connect(
        &self,
        socket: TcpStream,
        host: &str,
    ) -> Result<(TlsStream, Certificate)> {
        let loaded = self.current();
        let name = server_name(host)?;
        let connection = rustls::ClientConnection::new(loaded.client.clone(), name)
            .map_err(|e| explain::handshake(&e))?;
        let (stream, chain) = handshake::connect(socket, connection).await?;
        let certificate = Certificate::examine(&chain, &loaded.roots)?;
        if certificate.kind == Kind::Server {
            return Ok((stream, certificate));
        }
        Err(Error::with(
            ErrorKind::WrongPeer,
            "its certificate is a client's; give the server one made by strake tls issue --kind server",
        ))
    }

    /// The handshake of the side that was called.
    pub(crate) async fn accept(&self, socket: TcpStream) -> Result<(TlsStream, Certificate)> {
        let loaded = self.current();
        let connection = rustls::ServerConnection::new(loaded.server.clone())
            .map_err(|e| explain::handshake(&e))?;
        let (stream, chain) = handshake::accept(socket, connection).await?;
        let certificate = Certificate::examine(&chain, &loaded.roots)?;
        Ok((stream, certificate))
    }

    /// What the files say now. If they have become unusable, what they said before.
    fn current(&self) -> Arc<Loaded> {
        let stamp = self.files.stamp();
        let mut slot = self.slot.lock();
        if slot.is_old(&stamp) {
            let shown = self.files.certificate.display();
            let (loaded, failed) = match self.renewed() {
                Ok(loaded) => {
                    tracing::info!("certificate {shown} was renewed and is used from now on");
                    (Arc::new(loaded), None)
                }
                Err(e) => {
                    let cause = e.to_string();
                    if !slot.is_known(&stamp, &cause) {
                        tracing::warn!("certificate {shown}: {e}; going on with the one before");
                    }
                    (slot.loaded.clone(), Some((Instant::now(), cause)))
                }
            };
            *slot = Slot { stamp, loaded, failed };
        }
        slot.loaded.clone()
    }

    /// What the files say, if it is of use for what this process does.
    fn renewed(&self) -> Result<Loaded> {
        let loaded = Loaded::new(&self.files)?;
        if let Some(host) = self.serves.get() {
            loaded.check_server(host.as_deref(), &self.files)?;
        }
        Ok(loaded)
    }
}

impl Loaded {
    fn new(files: &TlsFiles) -> Result<Self> {
        let Material { roots, chain, key } = files.read()?;
        let unusable = |e: rustls::Error| explain::own(&e, files);
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(roots);
        verify_own(&chain, &roots, &provider).map_err(|e| explain::own_chain(&e, files))?;
        let certificate = Certificate::examine(&chain, &roots)?;
        let versions = &[&rustls::version::TLS13];
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(unusable)?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        client.resumption = Resumption::disabled();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|e| malformed(e.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key)
            .map_err(unusable)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { client: client.into(), server: server.into(), roots, chain, certificate })
    }

    /// Fails if it is not a server's, or not for this host: those who call us by it would hang up.
    fn check_server(&self, host: Option<&str>, files: &TlsFiles) -> Result<()> {
        let (shown, name) = (files.certificate.display(), &self.certificate.name);
        if self.certificate.kind != Kind::Server {
            let detail = format!(
                "the certificate {shown} of {name} is a client's; strake tls issue --kind server makes one for a server"
            );
            return Err(Error::with(ErrorKind::Invalid, detail));
        }
        let Some(host) = host else { return Ok(()) };
        let parsed = EndEntityCert::try_from(&self.chain[0]).map_err(malformed)?;
        parsed.verify_is_valid_for_subject_name(&server_name(host)?).map_err(|_| {
            let detail = format!(
                "the certificate {shown} is not for {host}; issue one with strake tls issue --kind \
                 server --address {host}"
            );
            Error::with(ErrorKind::Invalid, detail)
        })
    }
}

/// Holds our own certificate against our own CA, as every peer will.
fn verify_own(
    chain: &[CertificateDer<'_>],
    roots: &RootCertStore,
    provider: &CryptoProvider,
) -> std::result::Result<(), webpki::Error> {
    let (first, between) = chain.split_first().ok_or(webpki::Error::BadDer)?;
    let algorithms = provider.signature_verification_algorithms.all;
    let usage = KeyUsage::client_auth();
    EndEntityCert::try_from(first)?
        .verify_for_usage(algorithms, &roots.roots, between, UnixTime::now(), usage, None, None)
        .map(drop)
}

fn server_name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|_| {
        let detail = format!("{host:?} is no name that a certificate can be for");
        Error::with(ErrorKind::Invalid, detail)
    })
}

#[cfg(test)]
mod tests;
