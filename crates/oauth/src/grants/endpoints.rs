//! Authorization endpoints that authorization servers have named. The page on which people agree
//! belongs to one issuer.
//!
//! In a mix-up attack (RFC 9700, 4.4) the metadata of a hostile issuer names the authorization
//! endpoint of an honest one, and a token endpoint of its own. The user agrees on the honest page,
//! and the code goes to the hostile endpoint. An endpoint that is known from one issuer is
//! therefore refused in the metadata of another.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use url::Url;

use super::book::GrantPlace;
use crate::metadata::documents::MetadataFault;

/// The endpoints of all servers.
#[derive(Default)]
pub(crate) struct EndpointBook {
    /// Endpoint of each server's last login.
    claims: Mutex<HashMap<Arc<GrantPlace>, EndpointClaim>>,
    /// Issuers that the configuration names.
    configured: Mutex<Vec<String>>,
}

/// An authorization endpoint in the metadata of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointClaim {
    pub(crate) issuer: String,
    pub(crate) endpoint: Url,
    pub(crate) trust: IssuerTrust,
}

/// Origin of an issuer's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IssuerTrust {
    /// The server names it.
    Discovered,
    /// The configuration of the server names it. Its metadata may name any endpoint.
    Configured,
}

impl EndpointClaim {
    /// Returns true if the endpoint has the origin of its issuer, so that no other issuer can have
    /// put it there.
    fn is_at_home(&self) -> bool {
        is_of_origin(&self.issuer, &self.endpoint)
    }

    /// Returns true if this claim rules out the endpoint of `new`.
    fn forbids(&self, new: &Self) -> bool {
        if self.issuer == new.issuer || self.endpoint.origin() != new.endpoint.origin() {
            return false;
        }
        // The owner of the origin decides about endpoints there. Otherwise the first issuer keeps
        // the endpoint, unless the owner comes later.
        match (self.is_at_home(), new.is_at_home()) {
            (true, false) => true,
            (false, true) if self.trust == IssuerTrust::Discovered => false,
            _ => fold_path(&self.endpoint) == fold_path(&new.endpoint),
        }
    }
}

impl EndpointBook {
    /// Records the issuers that the configuration names. They own their origins even before the
    /// first login there.
    pub(crate) fn set_configured(&self, issuers: Vec<String>) {
        *self.configured.lock() = issuers;
    }

    /// Claims an endpoint for a server's next login.
    ///
    /// # Errors
    /// [`MetadataFault::EndpointOfOther`] if it is known from another issuer.
    pub(crate) fn claim(
        &self,
        place: &Arc<GrantPlace>,
        claim: EndpointClaim,
    ) -> Result<(), MetadataFault> {
        self.check(&claim)?;
        let mut claims = self.claims.lock();
        if claims.len() >= MAX_CLAIMS && !claims.contains_key(place) {
            // Most claims belong to servers that were removed from the configuration. The others
            // are made again.
            claims.clear();
        }
        claims.insert(Arc::clone(place), claim);
        Ok(())
    }

    /// Checks an endpoint that was claimed before, because the owner of its origin may have
    /// appeared since.
    ///
    /// # Errors
    /// [`MetadataFault::EndpointOfOther`] if it is known from another issuer.
    pub(crate) fn check(&self, claim: &EndpointClaim) -> Result<(), MetadataFault> {
        if claim.trust == IssuerTrust::Configured {
            return Ok(());
        }
        let claims = self.claims.lock();
        let known = claims.values().find(|known| known.forbids(claim));
        let owner = known.map(|known| known.issuer.clone()).or_else(|| {
            let configured = self.configured.lock();
            let is_owner = |issuer: &&String| {
                **issuer != claim.issuer
                    && !claim.is_at_home()
                    && is_of_origin(issuer, &claim.endpoint)
            };
            configured.iter().find(is_owner).cloned()
        });
        match owner {
            None => Ok(()),
            Some(owner) => {
                let endpoint = claim.endpoint.origin().ascii_serialization();
                Err(MetadataFault::EndpointOfOther { endpoint, owner })
            }
        }
    }
}

fn is_of_origin(issuer: &str, endpoint: &Url) -> bool {
    Url::parse(issuer).is_ok_and(|issuer| issuer.origin() == endpoint.origin())
}

/// Returns a common form of all paths that some server treats as equal.
fn fold_path(url: &Url) -> String {
    let decoded = percent_decode_str(url.path()).decode_utf8_lossy().to_ascii_lowercase();
    let segments = decoded.split(['/', '\\']).filter(|segment| !segment.is_empty());
    segments.collect::<Vec<_>>().join("/")
}

/// Maximum number of servers with a remembered endpoint.
const MAX_CLAIMS: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(server: &str) -> Arc<GrantPlace> {
        let (server, url) = (server.parse_name(), "https://s.test/mcp".parse().unwrap());
        Arc::new(GrantPlace { server, url })
    }

    trait ParseName {
        fn parse_name(&self) -> trunkline_protocol::call::ServerName;
    }

    impl ParseName for str {
        fn parse_name(&self) -> trunkline_protocol::call::ServerName {
            trunkline_protocol::call::ServerName::new(self).unwrap()
        }
    }

    fn claim(issuer: &str, endpoint: &str) -> EndpointClaim {
        let endpoint = endpoint.parse().unwrap();
        EndpointClaim { issuer: issuer.to_owned(), endpoint, trust: IssuerTrust::Discovered }
    }

    const HONEST: &str = "https://honest.test";
    const EVIL: &str = "https://evil.test";

    #[test]
    fn an_endpoint_that_is_known_from_another_issuer_is_refused() {
        for endpoint in [
            "https://honest.test/authorize",
            "https://honest.test/authorize/",
            "https://honest.test//%61uthorize?x=1",
            "https://HONEST.test:443/Authorize",
            "https://honest.test/another",
        ] {
            let book = EndpointBook::default();
            let honest = claim(HONEST, "https://honest.test/authorize");
            book.claim(&place("honest"), honest.clone()).unwrap();
            let fault = book.claim(&place("evil"), claim(EVIL, endpoint)).unwrap_err();
            assert!(fault.to_string().contains(HONEST), "{endpoint}: {fault}");
            // The same issuer at another server, and the evil one at its own page.
            book.claim(&place("second"), honest).unwrap();
            book.claim(&place("evil"), claim(EVIL, "https://evil.test/authorize")).unwrap();
        }
    }

    #[test]
    fn the_owner_of_an_endpoint_gets_it_back_and_a_login_by_the_other_ends() {
        let book = EndpointBook::default();
        let mixed = claim(EVIL, "https://honest.test/authorize");
        book.claim(&place("evil"), mixed.clone()).unwrap();
        assert!(book.check(&mixed).is_ok());
        let honest = claim(HONEST, "https://honest.test/authorize");
        book.claim(&place("honest"), honest.clone()).unwrap();
        assert!(book.check(&mixed).is_err() && book.check(&honest).is_ok());
    }

    #[test]
    fn issuers_of_one_host_have_endpoints_of_their_own() {
        let book = EndpointBook::default();
        let tenant = |name: &str, endpoint: &str| {
            claim(&format!("https://host.test/{name}"), &format!("https://host.test/{endpoint}"))
        };
        book.claim(&place("a"), tenant("a", "a/authorize")).unwrap();
        book.claim(&place("b"), tenant("b", "b/authorize")).unwrap();
        for endpoint in ["a/authorize", "A/authorize/", "a//authorize", "%61/authorize"] {
            assert!(book.claim(&place("c"), tenant("c", endpoint)).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn configured_endpoints_are_trusted() {
        let book = EndpointBook::default();
        book.set_configured(vec![HONEST.to_owned()]);
        let mixed = claim(EVIL, "https://honest.test/authorize");
        assert!(book.claim(&place("evil"), mixed.clone()).is_err(), "before any login there");
        let configured = EndpointClaim { trust: IssuerTrust::Configured, ..mixed };
        book.claim(&place("own"), configured).unwrap();
        // Another issuer of that host has its own page there.
        let tenant = claim("https://honest.test/tenant", "https://honest.test/tenant/authorize");
        book.claim(&place("tenant"), tenant).unwrap();
    }
}
