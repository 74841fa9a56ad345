//! The cookies of the gateway's pages, and the check that a form comes from one of these pages.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// A cookie of the gateway's pages.
pub(crate) struct PageCookie {
    /// Its name at a gateway without TLS, which is on the user's own machine.
    local: &'static str,
    /// Its name over HTTPS. Browsers accept it by HTTPS and from the gateway's own host only
    /// (RFC 6265bis, 4.1.3.2).
    secure: &'static str,
    /// Its lifetime in browsers; `None` for as long as they run.
    lasts: Option<Duration>,
}

/// The scheme of the pages' URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageScheme {
    Http,
    Https,
}

impl PageScheme {
    /// Returns the scheme of a URL of the gateway.
    pub(crate) fn of_url(url: &str) -> Self {
        if url.starts_with("https:") { Self::Https } else { Self::Http }
    }
}

impl PageCookie {
    /// Identifies browsers at `/connect`.
    pub(super) const BROWSER: Self =
        Self { local: "trunkline", secure: "__Host-trunkline", lasts: None };
    /// Holds the consents to logins that are passed on.
    pub(crate) const CONSENTS: Self = Self {
        local: "trunkline-consents",
        secure: "__Host-trunkline-consents",
        lasts: Some(Duration::from_hours(30 * 24)),
    };

    fn name(&self, scheme: PageScheme) -> &'static str {
        match scheme {
            PageScheme::Http => self.local,
            PageScheme::Https => self.secure,
        }
    }

    /// Returns the header that sets the cookie.
    pub(crate) fn write(&self, value: &str, scheme: PageScheme) -> HeaderValue {
        let name = self.name(scheme);
        let secure = if scheme == PageScheme::Https { "; Secure" } else { "" };
        let lasts = self.lasts.map(|lasts| format!("; Max-Age={}", lasts.as_secs()));
        let lasts = lasts.unwrap_or_default();
        // Lax: the browser comes back from another site to the callback.
        let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{lasts}");
        let cookie = HeaderValue::try_from(cookie);
        let mut cookie = cookie.unwrap_or_else(|_| HeaderValue::from_static(""));
        cookie.set_sensitive(true);
        cookie
    }

    /// Returns the value of the cookie in a request.
    pub(crate) fn read<'a>(&self, headers: &'a HeaderMap, scheme: PageScheme) -> Option<&'a str> {
        let values = headers.get_all(header::COOKIE).into_iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';')).map(str::trim);
        pairs.find_map(|pair| pair.strip_prefix(self.name(scheme))?.strip_prefix('='))
    }
}

/// Returns true if a request comes from a page of the gateway, according to the browser's headers.
pub(crate) fn is_same_site(headers: &HeaderMap) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text(&HeaderName::from_static("sec-fetch-site"));
    let origin = text(&header::ORIGIN).and_then(|origin| origin.split_once("://"));
    let is_own = match (text(&header::ORIGIN), origin, text(&header::HOST)) {
        // HTTP/2 has the host elsewhere; the guard of the listener has checked the origin.
        (None, ..) | (Some(_), Some(_), None) => true,
        (Some(_), Some((_, place)), Some(host)) => place.eq_ignore_ascii_case(host),
        (Some(_), None, _) => false,
    };
    is_own && site.is_none_or(|site| site == "same-origin")
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
        let (https, http) = (PageScheme::Https, PageScheme::Http);
        let cookie = PageCookie::BROWSER.write("v", https);
        let expected = "__Host-trunkline=v; Path=/; HttpOnly; SameSite=Lax; Secure";
        assert!(cookie == expected && cookie.is_sensitive());
        let expected = "trunkline=v; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(PageCookie::BROWSER.write("v", http), expected);
        let expected = "__Host-trunkline-consents=v; Path=/; HttpOnly; SameSite=Lax; Secure; \
                        Max-Age=2592000";
        assert_eq!(PageCookie::CONSENTS.write("v", https), expected);
        let sent = headers(&[(
            "cookie",
            "a=b; xtrunkline=no; trunkline-consents=v3; trunkline=v1; __Host-trunkline=v2",
        )]);
        assert_eq!(PageCookie::BROWSER.read(&sent, http), Some("v1"));
        assert_eq!(PageCookie::BROWSER.read(&sent, https), Some("v2"));
        assert_eq!(PageCookie::CONSENTS.read(&sent, http), Some("v3"));
        assert_eq!(PageCookie::CONSENTS.read(&sent, https), None);
    }

    #[test]
    fn a_form_of_another_site_differs_from_an_own_one() {
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
