//! The owner of a browser, by its cookie, and the check of its forms.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use crate::call::{PeerAddress, Principal};
use crate::config::Config;
use crate::oauth::{BrowserVisit, GrantBook, GrantOwner, KnownBrowser, LoginFault, NewBrowser};
use crate::snapshot::Snapshot;

use super::cookie::{PageCookie, PageScheme, is_same_site};

/// A person with a browser.
pub(super) struct Visitor<'a> {
    pub(super) grants: &'a Arc<GrantBook>,
    pub(super) snapshot: &'a Arc<Snapshot>,
    pub(super) browser: Option<KnownBrowser>,
    /// The browser's address.
    pub(super) address: IpAddr,
    /// True if a person on this machine needs no link: there is only one user.
    is_sole_user: bool,
}

impl<'a> Visitor<'a> {
    pub(super) async fn find(
        grants: &'a Arc<GrantBook>,
        snapshot: &'a Arc<Snapshot>,
        headers: &HeaderMap,
        peer: PeerAddress,
    ) -> Result<Self, LoginFault> {
        let browser = match PageCookie::BROWSER.read(headers, scheme_of_pages(grants)) {
            Some(cookie) => grants.find_browser(cookie).await?,
            None => None,
        };
        // A client that was removed from the configuration has no page any more.
        let is_served = |browser: &KnownBrowser| {
            browser.owner.as_ref().is_none_or(|owner| is_configured(owner, &snapshot.config))
        };
        let address = peer.addr.ip();
        let is_near = address.to_canonical().is_loopback();
        Ok(Visitor {
            grants,
            snapshot,
            browser: browser.filter(is_served),
            address,
            is_sole_user: is_near && !grants.knows_clients(),
        })
    }

    /// Returns the browser that opens a link of this owner, and the cookie if the browser is new.
    pub(super) async fn meet(
        &self,
        link_owner: &GrantOwner,
    ) -> Result<(KnownBrowser, Option<HeaderValue>), LoginFault> {
        match &self.browser {
            Some(browser) => Ok((browser.clone(), None)),
            None => self.admit(None, link_owner).await,
        }
    }

    /// Creates a browser of this owner in place of the visitor's. Its cookie is new, so a cookie
    /// that an attacker has planted is worthless.
    pub(super) async fn admit(
        &self,
        owner: Option<GrantOwner>,
        link_owner: &GrantOwner,
    ) -> Result<(KnownBrowser, Option<HeaderValue>), LoginFault> {
        let visit = BrowserVisit { link_owner, address: self.address };
        let NewBrowser { cookie, browser, .. } = self.grants.meet_browser(owner, visit).await?;
        if let Some(known) = &self.browser {
            self.grants.forget_browser(known.id).await?;
        }
        let cookie = PageCookie::BROWSER.write(&cookie, scheme_of_pages(self.grants));
        Ok((browser, Some(cookie)))
    }

    /// Returns the browser with the owner of its connections. The only user of this machine needs
    /// no link.
    pub(super) async fn sign_in(
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
        let (browser, cookie) = self.admit(Some(GrantOwner::Gateway), &GrantOwner::Gateway).await?;
        Ok(Some((browser, GrantOwner::Gateway, cookie)))
    }

    /// Returns the browser, if it has sent a form of one of its own pages.
    pub(super) fn sender_of(&self, headers: &HeaderMap, form_key: &str) -> Option<&KnownBrowser> {
        let browser = self.browser.as_ref()?;
        (is_same_site(headers) && browser.has_sent(form_key)).then_some(browser)
    }
}

/// Returns true if an owner is still in the configuration.
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

fn scheme_of_pages(grants: &GrantBook) -> PageScheme {
    if grants.is_https() { PageScheme::Https } else { PageScheme::Http }
}
