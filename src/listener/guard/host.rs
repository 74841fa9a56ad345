//! Host and Origin headers, parsed without allocation.

use std::net::{IpAddr, Ipv6Addr};

/// A host as a URL names it: `gw.example.com`, `127.0.0.1`, `[::1]`.
#[derive(Debug, Clone, Copy)]
pub(super) enum RequestedHost<'a> {
    /// A name, without the root's trailing dot; compare without regard to case.
    Name(&'a str),
    /// An address; an IPv4 address mapped into IPv6 is the IPv4 one.
    Address(IpAddr),
}

impl RequestedHost<'_> {
    /// Returns true if this host can only be the client's own machine.
    pub(super) fn is_loopback(self) -> bool {
        match self {
            // RFC 6761, 6.3: `localhost` and everything below it.
            Self::Name(name) => {
                name.eq_ignore_ascii_case("localhost") || ends_below(name, "localhost")
            }
            Self::Address(address) => address.is_loopback(),
        }
    }
}

impl PartialEq for RequestedHost<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(one), Self::Name(two)) => one.eq_ignore_ascii_case(two),
            (Self::Address(one), Self::Address(two)) => one == two,
            _ => false,
        }
    }
}

/// A host, with its port if there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HostPort<'a> {
    pub(super) host: RequestedHost<'a>,
    pub(super) port: Option<u16>,
}

impl<'a> HostPort<'a> {
    /// Parses `host`, `host:port`, `[v6]` or `[v6]:port`; `None` for anything else, user
    /// information (`user@host`) and percent-encoding included.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (inner, after) = rest.split_once(']')?;
            let address: Ipv6Addr = inner.parse().ok()?;
            let host = RequestedHost::Address(IpAddr::V6(address).to_canonical());
            return Some(Self { host, port: port(after).ok()? });
        }
        let colon = text.bytes().position(|byte| byte == b':');
        let (name, after) = text.split_at(colon.unwrap_or(text.len()));
        Some(Self { host: name_or_v4(name)?, port: port(after).ok()? })
    }
}

/// A page's origin: `https://app.example.com`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageOrigin<'a> {
    pub(super) scheme: &'a str,
    pub(super) at: HostPort<'a>,
}

impl<'a> PageOrigin<'a> {
    /// Parses `scheme://host[:port]` with nothing after it, as RFC 6454 writes an origin.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        if scheme.is_empty() || !scheme.bytes().all(valid) {
            return None;
        }
        Some(Self { scheme, at: HostPort::parse(rest)? })
    }

    /// Returns true for a scheme of the web, which has a default port.
    pub(super) fn is_web(&self) -> bool {
        default_port(self.scheme).is_some()
    }

    /// Returns true if a request to `target` stays within this origin.
    pub(super) fn covers(&self, target: HostPort<'_>) -> bool {
        let default = default_port(self.scheme);
        default.is_some()
            && self.at.host == target.host
            && self.at.port.or(default) == target.port.or(default)
    }
}

impl PartialEq for PageOrigin<'_> {
    fn eq(&self, other: &Self) -> bool {
        let default = default_port(self.scheme);
        self.scheme.eq_ignore_ascii_case(other.scheme)
            && self.at.host == other.at.host
            && self.at.port.or(default) == other.at.port.or(default)
    }
}

/// Returns true if `name` is a subdomain of `parent` (`a.example.com` of `example.com`).
pub(super) fn ends_below(name: &str, parent: &str) -> bool {
    let Some(cut) = name.len().checked_sub(parent.len() + 1) else { return false };
    // Names are ASCII here (`name_or_v4`), so every position is a character boundary.
    cut > 0
        && name.as_bytes().get(cut) == Some(&b'.')
        && name.get(cut + 1..).is_some_and(|tail| tail.eq_ignore_ascii_case(parent))
}

fn name_or_v4(text: &str) -> Option<RequestedHost<'_>> {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() || name.len() > MAX_HOST_NAME_BYTES || !name.bytes().all(valid) {
        return None;
    }
    // The strict dotted form only: `127.1` or `0x7f.0.0.1` stay names, and foreign ones.
    let address = name.parse().map(IpAddr::V4);
    Some(address.map_or(RequestedHost::Name(name), RequestedHost::Address))
}

/// Parses the port after a host: `""`, `":"` or `":8080"`.
fn port(text: &str) -> Result<Option<u16>, NotAPort> {
    if matches!(text, "" | ":") {
        return Ok(None);
    }
    match text.strip_prefix(':') {
        // Digits only: `parse` would accept a sign.
        Some(digits) if !digits.starts_with('+') => digits.parse().map(Some).map_err(|_| NotAPort),
        _ => Err(NotAPort),
    }
}

struct NotAPort;

fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else {
        None
    }
}

/// RFC 1035, 2.3.4.
const MAX_HOST_NAME_BYTES: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_hosts_are_not_parsed() {
        for text in [
            "",
            ".",
            ":80",
            "a b",
            "user@localhost",
            "localhost:99999",
            "localhost:+80",
            "localhost:80:80",
            "[::1",
            "[localhost]",
            "[::1]x",
            "[::1%25lo]",
            "local%68ost",
            "loc\u{e4}l",
            "localhost/x",
            "::1",
        ] {
            assert!(HostPort::parse(text).is_none(), "{text:?} was read as a host");
        }
    }

    #[test]
    fn loopback_is_known_in_all_its_spellings_and_no_other() {
        for text in [
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "a.b.localhost",
            "127.0.0.1",
            "127.9.9.9:80",
            "[::1]",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
            "localhost:",
        ] {
            assert!(HostPort::parse(text).unwrap().host.is_loopback(), "{text}");
        }
        for text in [
            "evil.example.com",
            "localhost.evil.com",
            "evillocalhost",
            ".localhost",
            "127.1",
            "0.0.0.0",
            "2130706433",
            "[::]",
            "127.0.0.1.nip.io",
            "10.0.0.1",
        ] {
            let host = HostPort::parse(text);
            assert!(!host.is_some_and(|at| at.host.is_loopback()), "{text}");
        }
    }

    #[test]
    fn an_origin_is_scheme_and_host_and_nothing_else() {
        for text in ["null", "https://", "https://a/", "https://a/b", "//a", "ht tp://a", "a"] {
            assert!(PageOrigin::parse(text).is_none(), "{text:?} was read as an origin");
        }
        assert_eq!(PageOrigin::parse("https://a"), PageOrigin::parse("HTTPS://A:443"));
        assert_ne!(PageOrigin::parse("https://a"), PageOrigin::parse("http://a"));
        assert_ne!(PageOrigin::parse("https://a"), PageOrigin::parse("https://a:8443"));
    }

    #[test]
    fn an_origin_covers_its_own_host_with_the_default_port_written_or_not() {
        let covers = |origin: &str, host: &str| {
            PageOrigin::parse(origin).unwrap().covers(HostPort::parse(host).unwrap())
        };
        assert!(covers("https://gw.example.com", "gw.example.com"));
        assert!(covers("https://gw.example.com", "gw.example.com:443"));
        assert!(covers("http://gw.example.com:8080", "GW.example.com:8080"));
        assert!(!covers("http://gw.example.com", "gw.example.com:8080"));
        assert!(!covers("https://gw.example.com", "gw.example.com:80"));
        assert!(!covers("chrome-extension://gw", "gw"));
    }
}
