//! Where the cluster is, and what its keys begin with, from a URL.

use std::path::PathBuf;
use strake_engine::kv::{KvError, Result};
use tikv_client::Config;

/// Where PD listens unless told otherwise.
const PORT: u16 = 2379;
/// Most letters of a name: it is part of every key.
const NAME_BYTES_MAX: usize = 64;
/// Largest answer that is taken; a page of long values is one.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// What a URL looks like.
const FORM: &str =
    "give --meta tikv://HOST:2379/NAME, with the host of PD, or several with commas between them";

/// A cluster, and a name in it.
#[derive(Clone, Debug)]
pub struct Address {
    /// `HOST:PORT` of each PD.
    pub hosts: Vec<String>,
    /// What the keys of the store begin with.
    pub name: String,
    /// Certificates, where the cluster has them.
    pub tls: Option<Tls>,
    /// As it is shown to others.
    pub shown: String,
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Address {
    /// Reads `tikv://HOST[:PORT][,...]/NAME[?sslrootcert=FILE&sslcert=FILE&sslkey=FILE]`.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong = |cause: &str| KvError::Refused {
            // The text may hold a password that is meant for something else.
            store: url.split_once("://").map_or("", |(scheme, _)| scheme).to_owned() + "://...",
            cause: cause.to_owned(),
            next: FORM.into(),
        };
        let rest =
            url.strip_prefix("tikv://").ok_or_else(|| wrong("this is not the URL of TiKV"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, name) = place.split_once('/').ok_or_else(|| wrong("the URL has no name"))?;
        if hosts.contains('@') {
            return Err(wrong("TiKV has no users: what it lets in has a certificate"));
        }
        let hosts: Vec<_> = hosts
            .split(',')
            .map(with_port)
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("the URL names no host, or one wrongly"))?;
        if hosts.iter().enumerate().any(|(at, host)| hosts[..at].contains(host)) {
            return Err(wrong("the URL names a host twice"));
        }
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_good) {
            return Err(wrong("the name is not one of up to 64 letters, digits, dashes, dots"));
        }
        let tls = tls(query).map_err(|cause| wrong(&cause))?;
        let shown = format!("tikv://{}/{name}", hosts.join(","));
        Ok(Self { hosts, name: name.to_owned(), tls, shown })
    }

    /// What the client is told of it.
    pub fn config(&self, timeout: std::time::Duration) -> Config {
        let config = Config::default()
            .with_timeout(timeout)
            .with_grpc_max_decoding_message_size(ANSWER_BYTES_MAX);
        match &self.tls {
            Some(Tls { ca, cert, key }) => config.with_security(ca, cert, key),
            None => config,
        }
    }
}

fn with_port(host: &str) -> Option<String> {
    let (name, port) = match host.rsplit_once(':') {
        // An address of IPv6 is in brackets.
        Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().ok()?),
        _ => (host, PORT),
    };
    let is_bare = name.starts_with('[') == name.ends_with(']');
    let is_good = !name.is_empty() && is_bare && (name.starts_with('[') || !name.contains(':'));
    is_good.then(|| format!("{name}:{port}"))
}

/// The files that the parameters name: all three, or none.
fn tls(query: &str) -> Result<Option<Tls>, String> {
    let [mut ca, mut cert, mut key] = [const { None }; 3];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match name {
            "sslrootcert" => &mut ca,
            "sslcert" => &mut cert,
            "sslkey" => &mut key,
            _ => return Err(format!("there is no parameter {name}")),
        };
        let file = PathBuf::from(value);
        // What is not there is met before anything is begun.
        std::fs::metadata(&file).map_err(|e| format!("{name} {value}: {e}"))?;
        *place = Some(file);
    }
    match (ca, cert, key) {
        (None, None, None) => Ok(None),
        (Some(ca), Some(cert), Some(key)) => Ok(Some(Tls { ca, cert, key })),
        _ => Err("sslrootcert, sslcert and sslkey belong together".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_their_ports_and_a_name_follows() {
        let address = Address::parse("tikv://pd1,pd2:2380,[::1]:7/cluster-1.a").unwrap();
        assert_eq!(address.hosts, ["pd1:2379", "pd2:2380", "[::1]:7"]);
        assert_eq!(address.shown, "tikv://pd1:2379,pd2:2380,[::1]:7/cluster-1.a");
        assert_eq!((address.name.as_str(), address.tls), ("cluster-1.a", None));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_and_how_it_should_be() {
        for (url, said) in [
            ("http://pd/x", "not the URL of TiKV"),
            ("tikv://pd1", "no name"),
            ("tikv://pd1/", "not one of up to 64"),
            ("tikv://pd1/a/b", "not one of up to 64"),
            ("tikv:///x", "no host"),
            ("tikv://pd1:port/x", "no host, or one wrongly"),
            ("tikv://::1/x", "wrongly"),
            ("tikv://pd1,pd1:2379/x", "twice"),
            ("tikv://me:s3cret@pd1/x", "no users"),
            ("tikv://pd1/x?gc=1", "no parameter gc"),
            ("tikv://pd1/x?sslcert=/nowhere/cert", "/nowhere/cert: No such file"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(said), "{url}: {error}");
            assert!(error.contains("give --meta tikv://HOST:2379/NAME"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_certificate_needs_its_key_and_who_signed_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["ca", "cert", "key"].map(|name| dir.path().join(name));
        files.iter().for_each(|file| std::fs::write(file, "").unwrap());
        let [ca, cert, key] = files.each_ref().map(|file| file.display());
        let url = format!("tikv://pd1/x?sslrootcert={ca}&sslcert={cert}&sslkey={key}");
        let address = Address::parse(&url).unwrap();
        assert!(address.tls.is_some() && !address.shown.contains('?'));
        let error = Address::parse(&format!("tikv://pd1/x?sslrootcert={ca}")).unwrap_err();
        assert!(error.to_string().contains("belong together"), "{error}");
    }
}
