//! The browsers that the gateway knows: each by a cookie, whose digest is kept. A browser belongs to
//! one owner of grants from the moment its user has agreed on the gateway's page.

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock;
use crate::crypto::sha256;
use crate::policy::{EntryLifetime, FairTable, TableBounds};

use super::grant::GrantOwner;
use super::pkce::{NoRandomness, draw_text};

/// The browsers.
pub struct BrowserBook {
    known: Mutex<FairTable<BrowserId, KnownBrowser>>,
}

impl Default for BrowserBook {
    fn default() -> Self {
        Self { known: Mutex::new(FairTable::new(BROWSER_BOUNDS)) }
    }
}

/// A browser: the digest of its cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BrowserId([u8; 32]);

/// What is known of a browser.
#[derive(Clone)]
pub struct KnownBrowser {
    /// Which it is.
    pub id: BrowserId,
    /// Whose connections it manages; `None` until its user has agreed to be somebody.
    pub owner: Option<GrantOwner>,
    /// What its forms have to bring: no page of another site knows it.
    pub form_key: String,
    /// What its next page tells.
    notice: Option<String>,
}

/// The reason for which a browser is met.
#[derive(Debug, Clone, Copy)]
pub struct BrowserVisit<'a> {
    /// The owner that the browser was given a link of, or whose connections it shows.
    pub link_owner: &'a GrantOwner,
    /// The address that it comes from.
    pub address: IpAddr,
}

/// A browser that was just met, and the cookie that tells it.
pub struct NewBrowser {
    /// The value of the cookie. Not for a log.
    pub cookie: String,
    /// What is known of it.
    pub browser: KnownBrowser,
}

impl BrowserBook {
    /// Meets a browser. It counts towards the share of the one whose link has led it here.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn meet(
        &self,
        owner: Option<GrantOwner>,
        visit: BrowserVisit<'_>,
    ) -> Result<NewBrowser, NoRandomness> {
        let (cookie, form_key) = (draw_text()?, draw_text()?);
        let (id, now) = (BrowserId::of(&cookie), clock::now());
        let lasts = if owner.is_some() { SIGNED_IN } else { UNKNOWN };
        let browser = KnownBrowser { id, owner, form_key, notice: None };
        let entry = visit.link_owner.entry_at(visit.address, OWNER_SHARE);
        let lifetime = EntryLifetime { now, until: now + lasts };
        self.known.lock().insert(id, browser.clone(), entry, lifetime);
        Ok(NewBrowser { cookie, browser })
    }

    /// The browser with this cookie.
    pub fn find(&self, cookie: &str) -> Option<KnownBrowser> {
        self.known.lock().get(&BrowserId::of(cookie), clock::now()).cloned()
    }

    /// Forgets a browser: its cookie is worth nothing from now on.
    pub fn forget(&self, id: BrowserId) {
        self.known.lock().remove(&id);
    }

    /// Has the next page of a browser tell something.
    pub fn leave_notice(&self, id: BrowserId, notice: String) {
        if let Some(browser) = self.known.lock().get_mut(&id, clock::now()) {
            browser.notice = Some(notice);
        }
    }

    /// What the next page of a browser tells.
    pub fn take_notice(&self, id: BrowserId) -> Option<String> {
        self.known.lock().get_mut(&id, clock::now())?.notice.take()
    }
}

impl BrowserId {
    fn of(cookie: &str) -> Self {
        Self(sha256(cookie.as_bytes()))
    }
}

impl KnownBrowser {
    /// Whether a form is one of this browser's pages.
    pub fn has_sent(&self, form_key: &str) -> bool {
        // By digest, so that the time tells nothing.
        sha256(form_key.as_bytes()) == sha256(self.form_key.as_bytes())
    }
}

/// How long a browser manages connections.
const SIGNED_IN: Duration = Duration::from_hours(1);
/// How long a browser is known whose user has not agreed to anything.
const UNKNOWN: Duration = Duration::from_mins(10);
/// The most browsers that are known at once.
const BROWSER_BOUNDS: TableBounds = TableBounds { all: 20_000, each_address: 5000 };
/// The most browsers that the links of one owner have led to the gateway.
const OWNER_SHARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Principal;

    #[test]
    fn browsers_with_the_link_of_one_client_leave_those_of_others_alone() {
        let book = BrowserBook::default();
        let owner = |name: &str| GrantOwner::Client(Principal::Client(name.into()));
        let (attacker, bystander) = (owner("attacker"), owner("bystander"));
        let visit = |link_owner| BrowserVisit { link_owner, address: [192, 0, 2, 1].into() };
        let known = book.meet(Some(bystander.clone()), visit(&bystander)).unwrap();
        for _ in 0..25_000 {
            book.meet(None, visit(&attacker)).unwrap();
        }
        assert!(book.find(&known.cookie).is_some());
        let another = book.meet(None, visit(&bystander)).unwrap();
        assert!(book.find(&another.cookie).is_some());
        assert!(book.known.lock().len() <= OWNER_SHARE + 2);
    }
}
