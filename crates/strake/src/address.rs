//! Addresses as people write them.

use crate::failure::{Context, Failure, Outcome};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use strake_native::location;
use strake_wire::transport::{UNIX_PREFIX, is_unix};

/// Port of a server where none is given.
pub const PORT_DEFAULT: u16 = 7440;

/// `ADDR[,ADDR]:/VOLUME[/SUBDIR]`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Managers, complete with ports; empty where the text began with `:`.
    pub managers: Vec<String>,
    /// The volume.
    pub volume: String,
    /// Directory within the volume, beginning with `/`.
    pub path: String,
}

/// Adds the usual port where there is none: `host`, `host:port`, `[v6]:port`, `unix:/path` or a path
/// with a `/`, which is made a whole one. What has a `/` and is none of these stays as it is, for [`check_port`] to refuse.
pub fn complete(address: &str) -> String {
    complete_with(address, PORT_DEFAULT)
}

/// As [`complete`], with another port than the usual one.
pub fn complete_with(address: &str, port: u16) -> String {
    if let Some(path) = address.strip_prefix(UNIX_PREFIX) {
        return socket(path);
    }
    if let Some((before, _)) = address.split_once('/') {
        return if before.contains(':') { address.to_owned() } else { socket(address) };
    }
    let has_port = match address.rsplit_once(':') {
        Some((host, port)) => is_number(port) && (!host.contains(':') || host.ends_with(']')),
        None => false,
    };
    let is_v6 = address.parse::<Ipv6Addr>().is_ok();
    match (has_port, is_v6) {
        (true, _) => address.to_owned(),
        (false, true) => format!("[{address}]:{port}"),
        (false, false) => format!("{address}:{port}"),
    }
}

/// The address of a Unix socket by its whole path: what runs on in the background finds no other one.
fn socket(path: &str) -> String {
    let whole =
        std::path::absolute(path).ok().and_then(|whole| whole.into_os_string().into_string().ok());
    format!("{UNIX_PREFIX}{}", whole.as_deref().unwrap_or(path))
}

fn is_number(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Refuses an address in another form, or with a port that there is not.
pub fn check_port(address: &str) -> Outcome {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    if is_unix(address) || address.parse::<Ipv6Addr>().is_ok() {
        return Ok(());
    }
    if address.contains('/') {
        return Err(Failure::usage(format!(
            "address {address}: only the path of a Unix socket has a /"
        ))
        .next("give HOST[:PORT] or unix:/PATH; a volume is no part of it"));
    }
    if host.contains(':') && !host.ends_with(']') {
        return Err(Failure::usage(format!("address {address}: {host} is no host"))
            .next("give HOST:PORT, where PORT is a number, or [IPV6]:PORT"));
    }
    if !is_number(port) || port.parse::<u16>().is_ok() {
        return Ok(());
    }
    Err(Failure::usage(format!("address {address}: there is no port {port}"))
        .next(format!("a port is at most {}", u16::MAX)))
}

/// Every address of a list with commas.
pub fn complete_list(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|a| !a.is_empty()).map(complete).collect()
}

/// Takes `ADDR[,ADDR]:/VOLUME[/SUBDIR]` apart; `None` if the text does not have this form.
pub fn parse_source(text: &str) -> Option<Source> {
    let (managers, rest) = location::split(text)?;
    let (volume, path) = rest.split_once('/').unwrap_or((rest, ""));
    if volume.is_empty() {
        return None;
    }
    Some(Source {
        managers: complete_list(managers),
        volume: volume.to_owned(),
        path: format!("/{}", path.trim_matches('/')),
    })
}

/// A host name that stands for nothing, with the next command.
pub fn resolve(address: &str) -> Outcome<Vec<SocketAddr>> {
    check_port(address)?;
    let found: Vec<_> = address
        .to_socket_addrs()
        .context(|| format!("address {address}"))
        .map_err(|f| f.next("check the spelling, or give an IP address"))?
        .collect();
    match found.is_empty() {
        true => Err(Failure::new(format!("address {address} stands for no host"))),
        false => Ok(found),
    }
}

/// The address that others are told, where a server listens at `bound` and talks to `peer`: `bound`
/// itself, or (where it is every address of the machine) the one that leads to the peer.
pub fn advertised(bound: &str, peer: Option<&str>) -> Outcome<String> {
    let Ok(address) = bound.parse::<SocketAddr>() else {
        return Ok(bound.to_owned());
    };
    if !address.ip().is_unspecified() {
        return Ok(bound.to_owned());
    }
    let own = peer.and_then(|peer| leads_to(peer).ok()).filter(|ip| !ip.is_unspecified());
    match own {
        Some(ip) => Ok(SocketAddr::new(ip, address.port()).to_string()),
        None => Err(Failure::usage(format!(
            "--listen {bound} is every address of this machine: which one do others use?"
        ))
        .next(format!("add --advertise HOST:{}", address.port()))),
    }
}

/// Our address on the way to a peer. Nothing is sent.
fn leads_to(peer: &str) -> std::io::Result<IpAddr> {
    let any = if peer.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_unix_socket() {
        assert_eq!(complete("/run/strake.sock"), "unix:/run/strake.sock");
    }

    /// A mount in the background, which has left the directory it was started in, could not have connected to it again.
    #[test]
    fn a_relative_path_of_a_socket_is_made_a_whole_one() {
        let here = std::env::current_dir().unwrap();
        for given in ["./strake.sock", "unix:strake.sock", "unix:./strake.sock"] {
            assert_eq!(complete(given), format!("unix:{}/strake.sock", here.display()), "{given}");
        }
    }

    /// It was taken for the path of a socket, which was waited for.
    #[test]
    fn an_address_with_a_volume_or_a_scheme_is_refused() {
        for given in ["vm:7920:/main", "vm:7920/", "http://vm", "tcp://127.0.0.1:7920", "[::1]/a"] {
            let failure = check_port(&complete(given)).unwrap_err();
            assert!(failure.cause.contains(&format!("address {given}:")), "{failure}");
            assert!(failure.next.unwrap().contains("unix:/PATH"));
        }
        check_port(&complete("run/strake.sock")).unwrap();
    }

    #[test]
    fn the_usual_port_is_added_where_there_is_none() {
        let cases = [
            ("a", "a:7440"),
            ("a:1", "a:1"),
            ("10.0.0.1", "10.0.0.1:7440"),
            ("::1", "[::1]:7440"),
            ("[::1]:5", "[::1]:5"),
            ("unix:/x", "unix:/x"),
        ];
        for (given, full) in cases {
            assert_eq!(complete(given), full);
        }
    }

    /// It was taken for a part of the host's name, whose spelling was to be checked.
    #[test]
    fn a_port_that_is_too_large_is_told_with_the_largest() {
        for (given, full) in [("h:99999", "h:99999"), ("[::1]:65536", "[::1]:65536")] {
            assert_eq!(complete(given), full);
            let failure = resolve(full).unwrap_err();
            let port = full.rsplit(':').next().unwrap();
            assert!(failure.cause.ends_with(&format!("no port {port}")), "{failure}");
            assert!(failure.next.unwrap().contains("65535"));
        }
        for good in ["h:65535", "unix:/a:99999", "::1", "h"] {
            check_port(good).unwrap();
        }
    }

    /// It was taken for the name of a host, at which nobody was reached.
    #[test]
    fn a_port_that_is_no_number_is_refused() {
        for given in ["foo:bar", "foo:", "foo:7440x", "unix:a:b"] {
            let checked = check_port(&complete(given));
            assert_eq!(checked.is_ok(), given.starts_with("unix:"), "{given}");
        }
        for good in ["::1", "[::1]:5", "[fe80::1%eth0]:5", "10.0.0.1"] {
            check_port(&complete(good)).unwrap();
        }
    }

    #[test]
    fn a_source_is_taken_apart() {
        let source = parse_source("a,b:1:/vol/sub/dir").unwrap();
        assert_eq!(source.managers, ["a:7440", "b:1"]);
        assert_eq!((source.volume.as_str(), source.path.as_str()), ("vol", "/sub/dir"));
        let source = parse_source("unix:/run/s.sock:/main").unwrap();
        assert_eq!(source.managers, ["unix:/run/s.sock"]);
        assert_eq!((source.volume.as_str(), source.path.as_str()), ("main", "/"));
        assert_eq!(parse_source(":/main/a").unwrap().managers, [""; 0]);
        for other in ["/a/b", "a", "a:/", "unix:/run/s.sock", "./x:y"] {
            assert_eq!(parse_source(other), None, "{other}");
        }
    }

    #[test]
    fn an_address_of_one_interface_is_told_as_it_is() {
        assert_eq!(advertised("127.0.0.1:5", None).unwrap(), "127.0.0.1:5");
        assert_eq!(advertised("0.0.0.0:5", Some("127.0.0.1:9")).unwrap(), "127.0.0.1:5");
        assert!(advertised("0.0.0.0:5", None).is_err());
    }
}
