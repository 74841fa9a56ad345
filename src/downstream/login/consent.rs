//! The gateway's own question before a login continues with a client id that several programs share
//! (MCP 2026-07-28, Authorization, "Confused Deputy Problem").
//!
//! The authorization server sees one client and may have the user's consent for it already, so it
//! would issue a code to any program of that client without a question. The gateway asks once for
//! each browser, client and redirect URI. The browser keeps its consents in a sealed cookie. The
//! gateway stores nothing, so strangers cannot exhaust its memory by opening the page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Response};
use serde_json::json;
use url::{Url, form_urlencoded};

use crate::call::{Failure, InternalFault};
use crate::crypto::{random_bytes, sha256};
use crate::oauth::{LoginConsent, LoginRelay, PassedAuthorization};
use crate::pipeline::{ConsentBinding, ConsentStep, Gateway};

use super::super::Body;
use super::super::connect::{
    Page, PageCookie, PageScheme, bold, escape_html, foreign_form, is_same_site, lead_to,
    name_place,
};

/// A browser with a login that needs its user's consent.
pub(super) struct ConsentVisit<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) relay: &'a LoginRelay,
    pub(super) headers: &'a HeaderMap,
    /// The base URL for passed-on logins of the issuer.
    pub(super) own: &'a str,
}

/// The form of the page.
#[derive(Debug, Default)]
pub(super) struct ConsentForm {
    form_key: String,
    /// The query of the authorization request.
    pub(super) request: String,
    answer: String,
}

/// The content of a browser's cookie: its random name, and the consents of its user, newest first.
struct ConsentCookie<'a> {
    browser: &'a str,
    consents: Vec<&'a str>,
}

impl ConsentForm {
    pub(super) fn parse(body: &str) -> Self {
        let mut form = Self::default();
        for (name, value) in form_urlencoded::parse(body.as_bytes()) {
            let field = match &*name {
                "form_key" => &mut form.form_key,
                "request" => &mut form.request,
                "answer" => &mut form.answer,
                _ => continue,
            };
            *field = value.into_owned();
        }
        form
    }
}

impl<'a> ConsentCookie<'a> {
    fn read(headers: &'a HeaderMap, scheme: PageScheme) -> Option<Self> {
        let mut parts = PageCookie::CONSENTS.read(headers, scheme)?.split('.');
        let browser = parts.next().filter(|browser| !browser.is_empty())?;
        Some(Self { browser, consents: parts.take(MAX_CONSENTS).collect() })
    }
}

impl ConsentVisit<'_> {
    fn scheme(&self) -> PageScheme {
        PageScheme::of_url(self.own)
    }

    /// Returns true if the user of this browser has agreed before.
    pub(super) fn has_agreed(&self, consent: &LoginConsent) -> bool {
        let Some(cookie) = ConsentCookie::read(self.headers, self.scheme()) else { return false };
        let subject = self.subject_of(consent);
        let by = ConsentBinding { browser: cookie.browser, subject: &subject };
        let mut consents = cookie.consents.iter();
        consents.any(|sealed| self.gateway.is_consent(sealed, ConsentStep::Agreed, by))
    }

    /// Builds the page with the question.
    pub(super) fn ask(
        &self,
        query: &str,
        url: &Url,
        consent: &LoginConsent,
    ) -> Result<Response<Body>, Failure> {
        let known = ConsentCookie::read(self.headers, self.scheme());
        let (browser, cookie) = if let Some(known) = &known {
            (known.browser.to_owned(), None)
        } else {
            let browser = draw_browser()?;
            let cookie = PageCookie::CONSENTS.write(&browser, self.scheme());
            (browser, Some(cookie))
        };
        let subject = self.digest_request(query);
        let by = ConsentBinding { browser: &browser, subject: &subject };
        let form_key = self.gateway.seal_consent(ConsentStep::Asked, by)?;
        let html = self.write_page(query, url, consent, &form_key);
        let leads_to = leads_to(url, consent);
        let page = Page::new("Sign in through this gateway", html);
        Ok(Page { leads_to, cookie, ..page }.into_response())
    }

    fn write_page(&self, query: &str, url: &Url, consent: &LoginConsent, form_key: &str) -> String {
        let action = Url::parse(self.own).map(|own| own.path().to_owned()).unwrap_or_default();
        let scopes = match &*consent.scopes {
            "" => String::new(),
            scopes => format!("<p>It asks for: <code>{}</code></p>\n", escape_html(scopes)),
        };
        format!(
            "<p>A program wants to sign you in at {place} as the client {client}. Your browser goes \
             there next.</p>\n\
             <p>When you have signed in, the login is handed to {receiver}:</p>\n\
             <p><code>{redirect}</code></p>\n{scopes}\
             <p class=\"warning\">The program then uses this gateway with <strong>your</strong> \
             account. Continue only if you have just started this login yourself, and know the \
             address that receives it.</p>\n\
             <form method=\"post\" action=\"{action}/consent\">\
             <input type=\"hidden\" name=\"form_key\" value=\"{form_key}\">\
             <input type=\"hidden\" name=\"request\" value=\"{query}\">\
             <button class=\"main\" name=\"answer\" value=\"accept\" autofocus>Continue</button> \
             <button name=\"answer\" value=\"decline\">Cancel</button></form>\n",
            place = bold(&name_place(url)),
            client = bold(&consent.client_id),
            receiver = name_receiver(consent),
            redirect = escape_html(&consent.redirect),
            action = escape_html(&action),
            form_key = escape_html(form_key),
            query = escape_html(query),
        )
    }

    /// Returns true if a form comes from the page that this browser was shown for this request.
    pub(super) fn has_sent(&self, form: &ConsentForm) -> bool {
        let Some(cookie) = ConsentCookie::read(self.headers, self.scheme()) else { return false };
        let subject = self.digest_request(&form.request);
        let by = ConsentBinding { browser: cookie.browser, subject: &subject };
        is_same_site(self.headers)
            && self.gateway.is_consent(&form.form_key, ConsentStep::Asked, by)
    }

    /// Acts on the answer of the user.
    pub(super) fn judge(
        &self,
        form: &ConsentForm,
        passed: &PassedAuthorization,
    ) -> Result<Response<Body>, Failure> {
        if form.answer != "accept" {
            let content = "<p>Nothing was done. You can close this page.</p>\n".to_owned();
            return Ok(Page::new("Cancelled", content).into_response());
        }
        let Some(consent) = &passed.consent else { return Ok(foreign_form()) };
        let cookie = self.remember(consent)?;
        Ok(lead_to(passed.url.as_str(), cookie))
    }

    /// Builds the cookie with one more consent.
    fn remember(&self, consent: &LoginConsent) -> Result<Option<HeaderValue>, Failure> {
        let scheme = self.scheme();
        let Some(cookie) = ConsentCookie::read(self.headers, scheme) else { return Ok(None) };
        let subject = self.subject_of(consent);
        let by = ConsentBinding { browser: cookie.browser, subject: &subject };
        let new = self.gateway.seal_consent(ConsentStep::Agreed, by)?;
        let others = cookie.consents.iter().copied().take(MAX_CONSENTS - 1);
        let parts: Vec<_> = [cookie.browser, &new].into_iter().chain(others).collect();
        Ok(Some(PageCookie::CONSENTS.write(&parts.join("."), scheme)))
    }

    fn subject_of(&self, consent: &LoginConsent) -> [u8; 32] {
        let issuer = self.relay.issuer().as_str();
        sha256(json!([issuer, consent.client_id, consent.redirect]).to_string().as_bytes())
    }

    fn digest_request(&self, query: &str) -> [u8; 32] {
        sha256(json!([self.relay.issuer().as_str(), query]).to_string().as_bytes())
    }
}

fn draw_browser() -> Result<String, Failure> {
    let bytes = random_bytes::<32>().map_err(|_| InternalFault::Seal)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns the name of the program that gets the code, in HTML.
fn name_receiver(consent: &LoginConsent) -> String {
    match Url::parse(&consent.redirect) {
        Ok(url) if url.scheme() == "https" => bold(&name_place(&url)),
        Ok(url) if url.scheme() == "http" => {
            "<strong>a program on this computer</strong>".to_owned()
        }
        Ok(url) => format!("the program that opens {} links", bold(&format!("{}:", url.scheme()))),
        Err(_) => bold(&consent.redirect),
    }
}

/// Returns the targets of the page's form: the authorization server, which may redirect the browser
/// to the redirect URI at once.
fn leads_to(url: &Url, consent: &LoginConsent) -> String {
    let mut schemes = vec!["https".to_owned(), url.scheme().to_owned()];
    schemes.extend(Url::parse(&consent.redirect).ok().map(|url| url.scheme().to_owned()));
    schemes.dedup();
    schemes.iter().flat_map(|scheme| [" ", scheme, ":"]).collect()
}

/// Limit of a cookie's consents; browsers keep 4 KiB.
const MAX_CONSENTS: usize = 12;
