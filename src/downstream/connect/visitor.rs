//! Who a browser belongs to, by its cookie, and whether it sent a form itself.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::call::{PeerAddress, Principal};
use crate::config::Config;
use crate::snapshot::Snapshot;
use crate::upstream::{GrantBook, GrantOwner, KnownBrowser, LoginFault, NewBrowser};

/// A person with a browser.
pub(super) struct Visitor<'a> {
    pub(super) grants: &'a Arc<GrantBook>,
    pub(super) snapshot: &'a Arc<Snapshot>,
    pub(super) browser: Option<KnownBrowser>,
    /// Whether a person of this machine needs no link: there is only one user.
    is_sole_user: bool,
}

impl<'a> Visitor<'a> {
    pub(super) fn find(
        grants: &'a Arc<GrantBook>,
        snapshot: &'a Arc<Snapshot>,
        (headers, peer): (&HeaderMap, PeerAddress),
    ) -> Self {
        let cookie = read_cookie(headers, cookie_name(grants.is_https()));
        let browser = cookie.and_then(|cookie| grants.browsers().find(cookie));
        // A client that was taken out of the configuration has no page any more.
        let is_served = |browser: &KnownBrowser| {
            browser.owner.as_ref().is_none_or(|owner| is_configured(owner, &snapshot.config))
        };
        let is_near = peer.addr.ip().to_canonical().is_loopback();
        Visitor {
            grants,
            snapshot,
            browser: browser.filter(is_served),
            is_sole_user: is_near && !grants.knows_clients(),
        }
    }

    /// The browser, which may be new, and the cookie that a new one gets.
    pub(super) fn meet(&self) -> Result<(KnownBrowser, Option<HeaderValue>), LoginFault> {
        match &self.browser {
            Some(browser) => Ok((browser.clone(), None)),
            None => self.admit(None),
        }
    }

    /// A browser that belongs to this owner from now on. Its cookie is a new one: one that somebody
    /// else has put there is worth nothing.
    pub(super) fn admit(
        &self,
        owner: Option<GrantOwner>,
    ) -> Result<(KnownBrowser, Option<HeaderValue>), LoginFault> {
        let NewBrowser { cookie, browser } = self.grants.browsers().meet(owner)?;
        if let Some(known) = &self.browser {
            self.grants.browsers().forget(known.id);
        }
        Ok((browser, Some(write_cookie(&cookie, self.grants.is_https()))))
    }

    /// Whose connections the browser manages. On this machine the only user needs no link.
    pub(super) fn sign_in(
        &self,
    ) -> Result<Option<(KnownBrowser, GrantOwner, Option<HeaderValue>)>, LoginFault> {
        if let Some(browser) = &self.browser
            && let Some(owner) = &browser.owner
        {
            return Ok(Some((browser.clone(), owner.clone(), None)));
        }
        if !self.is_sole_user {
            return Ok(None);
        }
        let (browser, cookie) = self.admit(Some(GrantOwner::Gateway))?;
        Ok(Some((browser, GrantOwner::Gateway, cookie)))
    }

    /// The browser, if it has sent a form of one of its own pages.
    pub(super) fn sender_of(&self, headers: &HeaderMap, form_key: &str) -> Option<&KnownBrowser> {
        let browser = self.browser.as_ref()?;
        (is_same_site(headers) && browser.has_sent(form_key)).then_some(browser)
    }
}

/// Whether an owner is still one of the configuration's.
fn is_configured(owner: &GrantOwner, config: &Config) -> bool {
    match owner {
        GrantOwner::Gateway | GrantOwner::Client(Principal::Anonymous) => true,
        GrantOwner::Client(Principal::Client(name)) => {
            config.clients.iter().any(|client| *client.name == **name)
        }
        GrantOwner::Client(principal @ Principal::User(_)) => {
            let issuer = principal.issuer();
            config.issuers.iter().any(|known| Some(known.name.as_str()) == issuer)
        }
    }
}

/// Whether a request comes from a page of the gateway, as far as the browser says.
fn is_same_site(headers: &HeaderMap) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text(&HeaderName::from_static("sec-fetch-site"));
    let origin = text(&header::ORIGIN).and_then(|origin| origin.split_once("://"));
    let is_own = match (text(&header::ORIGIN), origin, text(&header::HOST)) {
        // HTTP/2 has the host elsewhere; the guard of the listener has judged the origin.
        (None, ..) | (Some(_), Some(_), None) => true,
        (Some(_), Some((_, place)), Some(host)) => place.eq_ignore_ascii_case(host),
        (Some(_), None, _) => false,
    };
    is_own && site.is_none_or(|site| site == "same-origin")
}

/// The name of the cookie. Browsers accept the first one by HTTPS and from the gateway's own host
/// only (RFC 6265bis, 4.1.3.2); a gateway without TLS is one of the user's own machine.
fn cookie_name(is_https: bool) -> &'static str {
    if is_https { "__Host-trunkline" } else { "trunkline" }
}

fn write_cookie(value: &str, is_https: bool) -> HeaderValue {
    let name = cookie_name(is_https);
    let secure = if is_https { "; Secure" } else { "" };
    // Lax: the browser comes back from another site to the callback.
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}");
    let mut cookie = HeaderValue::try_from(cookie).unwrap_or_else(|_| HeaderValue::from_static(""));
    cookie.set_sensitive(true);
    cookie
}

fn read_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).map(str::trim);
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn a_cookie_is_the_hosts_own_by_https() {
        let cookie = write_cookie("v", true);
        let expected = "__Host-trunkline=v; Path=/; HttpOnly; SameSite=Lax; Secure";
        assert!(cookie == expected && cookie.is_sensitive());
        assert_eq!(write_cookie("v", false), "trunkline=v; Path=/; HttpOnly; SameSite=Lax");
        let sent = headers(&[("cookie", "a=b; xtrunkline=no; trunkline=v1; __Host-trunkline=v2")]);
        assert_eq!(read_cookie(&sent, cookie_name(false)), Some("v1"));
        assert_eq!(read_cookie(&sent, cookie_name(true)), Some("v2"));
    }

    #[test]
    fn a_form_of_another_site_is_told_from_an_own_one() {
        let host = ("host", "g.test:8443");
        for (lines, expected) in [
            (&[host][..], true),
            (&[host, ("origin", "https://g.test:8443")], true),
            (&[host, ("origin", "https://g.test:8443"), ("sec-fetch-site", "same-origin")], true),
            (&[host, ("origin", "https://g.test")], false),
            (&[host, ("origin", "https://evil.test")], false),
            (&[host, ("origin", "null")], false),
            (&[host, ("sec-fetch-site", "cross-site")], false),
            (&[host, ("sec-fetch-site", "same-site")], false),
        ] {
            assert_eq!(is_same_site(&headers(lines)), expected, "{lines:?}");
        }
    }
}
