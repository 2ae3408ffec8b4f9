//! Where the database is, from a URL.

use super::super::{KvError, Result};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How long one attempt to connect may take.
const CONNECT_SECONDS_MAX: u64 = 5;
/// A connection that carries nothing for so long is asked whether it lives.
const KEEPALIVE_SECONDS: u64 = 10;
/// What was sent and not acknowledged for so long ends the connection.
const UNACKNOWLEDGED_SECONDS_MAX: u64 = 15;

/// A database, and how to say its name without its password.
#[derive(Clone)]
pub struct Address {
    pub config: Config,
    pub shown: String,
}

impl Address {
    /// Reads a URL; a password that it does not give is taken from `PGPASSWORD`.
    pub fn parse(url: &str) -> Result<Self> {
        // The text may hold a password, so only the scheme of what cannot be read is repeated.
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        let wrong = |cause: String| KvError::Refused {
            store: format!("{scheme}://..."),
            cause,
            next: "give --meta postgres://USER@HOST/DATABASE".into(),
        };
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(wrong("this is not the URL of a PostgreSQL database".into()));
        }
        let mut config: Config = url.parse().map_err(|e| wrong(super::failure::sentence(&e)))?;
        if config.get_hosts().is_empty() {
            return Err(wrong("the URL names no host".into()));
        }
        if config.get_dbname().is_none() {
            return Err(wrong("the URL names no database".into()));
        }
        if matches!(config.get_ssl_mode(), SslMode::Require) {
            return Err(wrong("TLS to the database (sslmode=require) is not there yet".into()));
        }
        if config.get_user().is_none() {
            return Err(wrong("the URL names no user".into()));
        }
        if let (None, Some(password)) = (config.get_password(), std::env::var_os("PGPASSWORD")) {
            config.password(password.into_encoded_bytes());
        }
        config
            .application_name("strake")
            .connect_timeout(Duration::from_secs(CONNECT_SECONDS_MAX))
            .keepalives_idle(Duration::from_secs(KEEPALIVE_SECONDS))
            .keepalives_interval(Duration::from_secs(KEEPALIVE_SECONDS / 2))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(UNACKNOWLEDGED_SECONDS_MAX));
        Ok(Self { shown: show(&config), config })
    }
}

fn show(config: &Config) -> String {
    let hosts = config.get_hosts().iter().enumerate().map(|(i, host)| {
        let ports = config.get_ports();
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("[{}]:{port}", path.display()),
        }
    });
    let hosts: Vec<_> = hosts.collect();
    let (user, name) = (config.get_user().unwrap_or(""), config.get_dbname().unwrap_or(""));
    format!("postgres://{user}@{}/{name}", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let address = Address::parse("postgres://strake:s3cret@db.example:5433/meta").unwrap();
        assert_eq!(address.shown, "postgres://strake@db.example:5433/meta");
        for url in ["postgres://a:s3cret@/meta", "mysql://a:s3cret@b/c", "postgres://a:s3cret@b"] {
            let error = Address::parse(url).err().unwrap().to_string();
            assert!(!error.contains("s3cret") && error.contains("--meta postgres://"), "{error}");
        }
    }
}
