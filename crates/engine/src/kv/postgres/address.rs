//! Where the database is, from a URL.

use super::super::{KvError, Result};
use super::tls::{self, Encryption};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Where PostgreSQL listens unless told otherwise.
const PORT: u16 = 5432;
/// How long one attempt to connect may take.
pub const CONNECT_SECONDS_MAX: u64 = 5;
/// A connection that carries nothing for so long is asked whether it lives.
const KEEPALIVE_SECONDS: u64 = 10;
/// What was sent and not acknowledged for so long ends the connection.
const UNACKNOWLEDGED_SECONDS_MAX: u64 = 15;

/// A database, and how to say its name without its password. Clones are the same.
#[derive(Clone)]
pub struct Address {
    /// The hosts that have it: of several one is the primary, and the others may become it.
    pub hosts: Vec<Config>,
    pub shown: String,
    /// None: nothing is encrypted.
    pub encryption: Option<Encryption>,
    /// What is known of which of them is the primary.
    pub known: Arc<Known>,
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
        let (url, encryption) = tls::take(url).map_err(wrong)?;
        // Files that are not there are met before anything is begun.
        encryption.as_ref().map(Encryption::connector).transpose().map_err(wrong)?;
        let mut config: Config = url.parse().map_err(|e| wrong(super::failure::sentence(&e)))?;
        if config.get_hosts().is_empty() {
            return Err(wrong("the URL names no host".into()));
        }
        if config.get_dbname().is_none() {
            return Err(wrong("the URL names no database".into()));
        }
        if config.get_user().is_none() {
            return Err(wrong("the URL names no user".into()));
        }
        if let (None, Some(password)) = (config.get_password(), std::env::var_os("PGPASSWORD")) {
            config.password(password.into_encoded_bytes());
        }
        config
            .ssl_mode(encryption.as_ref().map_or(SslMode::Disable, |_| SslMode::Require))
            .application_name("strake")
            .connect_timeout(Duration::from_secs(CONNECT_SECONDS_MAX))
            .keepalives_idle(Duration::from_secs(KEEPALIVE_SECONDS))
            .keepalives_interval(Duration::from_secs(KEEPALIVE_SECONDS / 2))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(UNACKNOWLEDGED_SECONDS_MAX));
        let (shown, hosts) = (show(&config), one_by_one(&config));
        Ok(Self { shown, hosts, encryption, known: Arc::default() })
    }
}

/// What is known of the hosts of a database.
#[derive(Default)]
pub struct Known {
    last: AtomicUsize,
    timeline: AtomicU64,
    lost: AtomicU64,
    looked: AtomicU64,
}

impl Known {
    /// Which of them was the primary last.
    pub fn last(&self) -> usize {
        self.last.load(Ordering::Relaxed)
    }

    pub fn note_last(&self, host: usize) {
        self.last.store(host, Ordering::Relaxed);
    }

    /// The highest timeline that was met: a primary of a lower one is one that another has followed.
    pub fn timeline(&self) -> u64 {
        self.timeline.load(Ordering::Relaxed)
    }

    /// A primary is on this one.
    pub fn note_timeline(&self, timeline: u64) {
        self.timeline.fetch_max(timeline, Ordering::Relaxed);
    }

    /// A connection has broken, or no answer came by it: meanwhile another host may have become the primary.
    pub fn note_lost(&self) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }

    /// What to say when all hosts have been looked at; `None`: they have been since a connection was lost.
    pub fn to_look(&self) -> Option<u64> {
        // One more than were lost: who has just started has looked at none.
        let lost = self.lost.load(Ordering::SeqCst) + 1;
        (self.looked.load(Ordering::SeqCst) < lost).then_some(lost)
    }

    /// All have been looked at since [`Known::to_look`] said so.
    pub fn note_looked(&self, at: u64) {
        self.looked.fetch_max(at, Ordering::SeqCst);
    }
}

/// The same database on each of its hosts.
fn one_by_one(config: &Config) -> Vec<Config> {
    let ports = config.get_ports();
    let of = |(nth, host): (usize, &Host)| {
        let mut one = Config::new();
        match host {
            Host::Tcp(name) => one.host(name),
            Host::Unix(path) => one.host_path(path),
        };
        one.port(ports.get(nth).or(ports.first()).copied().unwrap_or(PORT));
        config.get_hostaddrs().get(nth).map(|address| one.hostaddr(*address));
        config.get_user().map(|user| one.user(user));
        config.get_password().map(|password| one.password(password));
        config.get_dbname().map(|name| one.dbname(name));
        config.get_options().map(|options| one.options(options));
        config.get_application_name().map(|name| one.application_name(name));
        config.get_connect_timeout().map(|time| one.connect_timeout(*time));
        config.get_keepalives_interval().map(|time| one.keepalives_interval(time));
        config.get_keepalives_retries().map(|times| one.keepalives_retries(times));
        config.get_tcp_user_timeout().map(|time| one.tcp_user_timeout(*time));
        one.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
        one.target_session_attrs(config.get_target_session_attrs());
        one.load_balance_hosts(config.get_load_balance_hosts());
        // What goes through a socket of this machine nobody listens to.
        let is_here = matches!(host, Host::Unix(_));
        one.ssl_mode(if is_here { SslMode::Disable } else { config.get_ssl_mode() });
        one
    };
    config.get_hosts().iter().enumerate().map(of).collect()
}

fn show(config: &Config) -> String {
    let hosts = config.get_hosts().iter().enumerate().map(|(i, host)| {
        let ports = config.get_ports();
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(PORT);
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
    fn each_host_of_several_has_its_port_and_everything_else() {
        let url = "postgres://u:p@a:1,%2Frun%2Fpg:2,c:3/d?application_name=x";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.shown, "postgres://u@a:1,[/run/pg]:2,c:3/d");
        let hosts: Vec<_> = address.hosts.iter().map(show).collect();
        let own = ["postgres://u@a:1/d", "postgres://u@[/run/pg]:2/d", "postgres://u@c:3/d"];
        assert_eq!(hosts, own);
        assert!(address.hosts.iter().all(|host| host.get_password() == Some(b"p")));
        assert!(address.hosts.iter().all(|host| host.get_application_name() == Some("strake")));
    }

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
