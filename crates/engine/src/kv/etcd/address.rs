//! Where an etcd cluster is, from a URL.

use super::super::{KvError, Result};
use super::tls::{self, Encryption};
use percent_encoding::percent_decode_str;
use std::sync::Arc;

/// Where etcd listens unless told otherwise.
const PORT: u16 = 2379;
/// Where a password comes from that the URL does not give: the variable that etcdctl reads.
const PASSWORD_VARIABLE: &str = "ETCDCTL_PASSWORD";
/// Longest name, in bytes: it is a part of each key.
const NAME_BYTES_MAX: usize = 64;

/// Who we say we are. (No `Debug`: it holds a password.)
pub struct User {
    pub name: String,
    pub password: String,
}

/// Members of an etcd cluster, and the name of a store in it.
#[derive(Clone)]
pub struct Address {
    /// Each as `HOST:PORT`.
    pub members: Vec<String>,
    pub user: Option<Arc<User>>,
    /// What all keys of the store begin with, before a slash.
    pub name: String,
    /// The URL without the password.
    pub shown: String,
    /// None: nothing is encrypted.
    pub encryption: Option<Encryption>,
}

impl Address {
    /// Reads a URL; a password that it does not give is taken from `ETCDCTL_PASSWORD`.
    pub fn parse(url: &str) -> Result<Self> {
        // The text may hold a password, so only the scheme of what cannot be read is repeated.
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let wrong = |cause: String| KvError::Refused {
            store: format!("{scheme}://..."),
            cause,
            next: "give --meta etcd://HOST,HOST,HOST/NAME, or etcd://USER:PASSWORD@HOST/NAME"
                .into(),
        };
        let is_encrypted = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(wrong("this is not the URL of an etcd cluster".into())),
        };
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let encryption = tls::read(is_encrypted, parameters).map_err(wrong)?;
        let Some((authority, name)) = rest.split_once('/') else {
            return Err(wrong("the URL names no store, behind a slash".into()));
        };
        let name = check_name(name).map_err(wrong)?;
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(read_user(user).map_err(wrong)?), hosts),
            None => (None, authority),
        };
        let members: Result<Vec<_>, _> = hosts.split(',').map(member).collect();
        let members = members.map_err(wrong)?;
        let who = user.as_ref().map(|user| format!("{}@", user.name)).unwrap_or_default();
        let shown = format!("{scheme}://{who}{}/{name}", members.join(","));
        Ok(Self { members, user: user.map(Arc::new), name, shown, encryption })
    }
}

fn check_name(name: &str) -> Result<String, String> {
    let name = name.strip_suffix('/').unwrap_or(name);
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_good) {
        return Err(format!(
            "the name of the store is to be 1 to {NAME_BYTES_MAX} letters, digits and any of - _ ."
        ));
    }
    Ok(name.to_owned())
}

fn read_user(text: &str) -> Result<User, String> {
    let decode = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(String::from).map_err(|_| "the user or the password is no UTF-8".to_owned())
    };
    let (name, password) = match text.split_once(':') {
        Some((name, password)) => (decode(name)?, decode(password)?),
        None => (decode(text)?, std::env::var(PASSWORD_VARIABLE).unwrap_or_default()),
    };
    match name.is_empty() {
        true => Err("the URL names no user before the @".into()),
        false => Ok(User { name, password }),
    }
}

/// One host with its port; what is wrong with it says nothing of what it is: it may be a piece of a password.
fn member(text: &str) -> Result<String, String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if host.is_empty() || !(is_v6 || host.bytes().all(is_name)) {
        return Err("the URL names no host, or none that can be one".into());
    }
    let port = port.map_or(Ok(PORT), str::parse);
    let port = port.map_err(|_| "a port in the URL is no number up to 65535".to_owned())?;
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_has_its_port() {
        let address = Address::parse("etcd://a,b:1,[::1]:2,[::2]/strake").unwrap();
        assert_eq!(address.members, ["a:2379", "b:1", "[::1]:2", "[::2]:2379"]);
        assert_eq!(address.shown, "etcd://a:2379,b:1,[::1]:2,[::2]:2379/strake");
        assert!(address.user.is_none());
    }

    #[test]
    fn a_password_is_never_shown() {
        let address = Address::parse("etcd://strake:s3cret%40@db.example/meta").unwrap();
        assert_eq!(address.shown, "etcd://strake@db.example:2379/meta");
        assert_eq!(address.user.unwrap().password, "s3cret@");
        for url in [
            "etcd://a:s3cret@/meta",
            "mysql://a:s3cret@b/c",
            "etcd://a:s3cret@b",
            "etcd://:s3cret@b/c",
            "etcd://a:s3cret/x@b/c",
            "etcd://a:s3cret@b/c/d",
            "etcd://a:s3cret@b:99999/c",
            "etcd://a:s3cret@b/c?tls=s3cret",
        ] {
            let error = Address::parse(url).err().unwrap().to_string();
            assert!(!error.contains("s3cret") && error.contains("--meta etcd://"), "{error}");
        }
    }
}
