//! Browsers that the gateway knows, each identified by the digest of a cookie. A browser belongs to
//! one owner of grants once its user has agreed on the gateway's page.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use trunkline_core::clock;
use trunkline_core::crypto::sha256;
use trunkline_shares::{EntryLifetime, FairTable, TableBounds};

use super::grant::GrantOwner;
use crate::proofs::pkce::{RandomnessError, draw_text};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BrowserId([u8; 32]);

/// State of a known browser.
#[derive(Clone)]
pub struct KnownBrowser {
    /// Id of the browser.
    pub id: BrowserId,
    /// Owner of the connections that it manages. `None` until its user has agreed to act as an
    /// owner.
    pub owner: Option<GrantOwner>,
    /// Secret that its forms must contain. Pages of other sites do not know it.
    pub form_key: String,
    /// Text for its next page.
    pub(crate) notice: Option<String>,
    /// The end of its time.
    pub(crate) until: Instant,
}

/// Circumstances in which a browser is met.
#[derive(Debug, Clone, Copy)]
pub struct BrowserVisit<'a> {
    /// Owner of the browser's link, or of the connections that it shows.
    pub link_owner: &'a GrantOwner,
    /// Address of the browser.
    pub address: IpAddr,
}

/// A browser that was just met, and the cookie that identifies it.
pub struct NewBrowser {
    /// Value of the cookie. Must not be logged.
    pub cookie: String,
    /// State of the browser.
    pub browser: KnownBrowser,
    /// Browsers that made room.
    pub(crate) displaced: Vec<BrowserId>,
}

impl BrowserBook {
    /// Meets a browser. It counts towards the share of the owner of the link that led it here.
    ///
    /// # Errors
    /// [`RandomnessError`].
    pub fn meet(
        &self,
        owner: Option<GrantOwner>,
        visit: BrowserVisit<'_>,
    ) -> Result<NewBrowser, RandomnessError> {
        let (cookie, form_key) = (draw_text()?, draw_text()?);
        let (id, now) = (BrowserId::of(&cookie), clock::now());
        let lasts = if owner.is_some() { SIGNED_IN } else { UNKNOWN_BROWSER_TIME };
        let browser = KnownBrowser { id, owner, form_key, notice: None, until: now + lasts };
        let entry = visit.link_owner.entry_at(visit.address, OWNER_SHARE);
        let lifetime = EntryLifetime { now, until: now + lasts };
        let removed = self.known.lock().insert(id, browser.clone(), entry, lifetime);
        let displaced = removed.into_iter().map(|old| old.id).collect();
        Ok(NewBrowser { cookie, browser, displaced })
    }

    /// Returns the browser with this cookie.
    pub fn find(&self, cookie: &str) -> Option<KnownBrowser> {
        self.known.lock().get(&BrowserId::of(cookie), clock::now()).cloned()
    }

    /// Forgets a browser, which invalidates its cookie.
    pub fn forget(&self, id: BrowserId) {
        self.known.lock().remove(&id);
    }

    /// Sets a text for a browser's next page.
    pub fn leave_notice(&self, id: BrowserId, notice: String) {
        if let Some(browser) = self.known.lock().get_mut(&id, clock::now()) {
            browser.notice = Some(notice);
        }
    }

    /// Takes the text for a browser's next page.
    pub fn take_notice(&self, id: BrowserId) -> Option<String> {
        self.known.lock().get_mut(&id, clock::now())?.notice.take()
    }
}

impl BrowserId {
    pub(crate) fn of(cookie: &str) -> Self {
        Self(sha256(cookie.as_bytes()))
    }

    /// Returns its digits.
    pub(crate) fn to_text(self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

impl KnownBrowser {
    /// Returns true if a form comes from one of this browser's pages.
    pub fn has_sent(&self, form_key: &str) -> bool {
        // Compared by digest, so that the timing reveals nothing.
        sha256(form_key.as_bytes()) == sha256(self.form_key.as_bytes())
    }
}

/// Time for which a browser manages connections.
const SIGNED_IN: Duration = Duration::from_hours(1);
/// Time for which a browser is known before its user has agreed to anything.
const UNKNOWN_BROWSER_TIME: Duration = Duration::from_mins(10);
/// Maximum number of browsers that are known at once.
const BROWSER_BOUNDS: TableBounds = TableBounds { all: 20_000, each_address: 5000 };
/// Maximum number of browsers that the links of one owner have led to the gateway.
const OWNER_SHARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_protocol::call::Principal;

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
