//! Decides which hosts and addresses are allowed for URLs that were learned at run time.

use std::error::Error;
use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Origin, Url};

use trunkline_config::is_own_machine;

use super::address::{SpecialRange, find_special_range};
use crate::resolver::AddressRule;

/// Setting that would permit a refused address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Remedy {
    /// The server's setting.
    #[default]
    AllowAddress,
    /// A URL in the issuer's settings, instead of the one in its metadata.
    SetJwksUrl,
    /// The issuer's own URL.
    NameIssuer,
}

impl Remedy {
    fn text(self) -> &'static str {
        match self {
            Self::AllowAddress => "add it to `allow_addresses` of the server's `oauth`",
            Self::SetJwksUrl => "set `jwks_url` of the issuer to the URL of its keys",
            Self::NameIssuer => "set `authorization_server` of the issuer to a URL with this host",
        }
    }
}

/// Permits public addresses, those that the configuration allows, and this machine if the
/// configuration names it: a server on this machine can reach it without the gateway.
#[derive(Debug, Clone, Default)]
pub(super) struct OutboundGuard {
    /// Origins of the URLs in the configuration. Requests to them are allowed at any address.
    trusted: Vec<Origin>,
    allowed: Vec<IpNet>,
    allows_own_machine: bool,
    remedy: Remedy,
}

/// An address that a URL learned at run time may not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "its host has the {} address {address}, of {}, which the configuration does not allow: {}",
    .range.kind, .range.range, .remedy.text()
)]
pub(super) struct AddressError {
    pub(super) address: IpAddr,
    pub(super) range: SpecialRange,
    remedy: Remedy,
}

impl OutboundGuard {
    /// Creates a guard for a configuration that names these URLs and allows these addresses.
    pub(super) fn new<'a>(
        configured: impl IntoIterator<Item = &'a Url>,
        allowed: &[IpNet],
        remedy: Remedy,
    ) -> Self {
        let mut guard = Self { allowed: allowed.to_vec(), remedy, ..Self::default() };
        for url in configured {
            guard.trusted.push(url.origin());
            guard.allows_own_machine |= is_own_machine(url);
        }
        guard
    }

    /// Returns true if the configuration names the URL's origin.
    pub(super) fn trusts(&self, url: &Url) -> bool {
        self.trusted.contains(&url.origin())
    }

    /// Checks the host of a URL that the configuration does not name, if the host is an address.
    ///
    /// # Errors
    /// [`AddressError`].
    pub(super) fn check_host(&self, url: &Url) -> Result<(), AddressError> {
        match url.host() {
            _ if self.trusts(url) => Ok(()),
            Some(Host::Ipv4(address)) => self.check_address(address.into()),
            Some(Host::Ipv6(address)) => self.check_address(address.into()),
            Some(Host::Domain(_)) | None => Ok(()),
        }
    }

    fn check_address(&self, address: IpAddr) -> Result<(), AddressError> {
        let plain = address.to_canonical();
        let is_allowed = self.allowed.iter().any(|range| range.contains(&plain))
            || (self.allows_own_machine && plain.is_loopback());
        match find_special_range(address).filter(|_| !is_allowed) {
            Some(range) => Err(AddressError { address, range, remedy: self.remedy }),
            None => Ok(()),
        }
    }
}

impl AddressRule for OutboundGuard {
    fn check(&self, address: IpAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.check_address(address)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_permitted_that_are_public_or_that_the_configuration_names() {
        let (elsewhere, here) = (url("https://mcp.example/mcp"), url("http://127.0.0.1:1/mcp"));
        let ranges = ["10.1.0.0/16".parse().unwrap()];
        let of = |configured: &Url| OutboundGuard::new([configured], &ranges, Remedy::AllowAddress);
        for (configured, address, permitted) in [
            (&elsewhere, "8.8.8.8", true),
            (&elsewhere, "10.1.2.3", true),
            (&elsewhere, "::ffff:10.1.2.3", true),
            (&elsewhere, "10.2.2.3", false),
            (&elsewhere, "127.0.0.1", false),
            (&elsewhere, "::1", false),
            (&here, "127.0.0.1", true),
            (&here, "::1", true),
            (&here, "::ffff:127.0.0.1", true),
            (&here, "192.168.0.1", false),
        ] {
            let checked = of(configured).check_address(address.parse().unwrap());
            assert_eq!(checked.is_ok(), permitted, "{configured} {address}");
        }
    }

    #[test]
    fn an_address_is_known_in_every_form_that_a_url_may_have() {
        let guard =
            OutboundGuard::new([&url("https://mcp.example/mcp")], &[], Remedy::AllowAddress);
        for host in [
            "10.0.0.1",
            "167772161",
            "0x0a000001",
            "012.0.0.1",
            "10.1",
            "[::ffff:a00:1]",
            "[fd00::1]",
        ] {
            let refused = guard.check_host(&url(&format!("https://{host}/token"))).unwrap_err();
            assert!(refused.to_string().contains("private address"), "{refused}");
        }
    }

    #[test]
    fn a_host_of_the_configuration_is_trusted_at_its_own_port_and_scheme_alone() {
        let guard = OutboundGuard::new([&url("https://10.0.0.1/mcp")], &[], Remedy::AllowAddress);
        for (asked, trusted) in [
            ("https://10.0.0.1/token", true),
            ("https://10.0.0.1:443/token", true),
            ("https://10.0.0.1:8443/token", false),
            ("http://10.0.0.1/token", false),
            ("https://10.0.0.2/token", false),
        ] {
            assert_eq!(guard.trusts(&url(asked)), trusted, "{asked}");
        }
    }
}
