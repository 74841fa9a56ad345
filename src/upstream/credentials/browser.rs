//! The browsers that the gateway knows: each by a cookie, whose digest is kept. A browser belongs to
//! one owner of grants from the moment its user has agreed on the gateway's page.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::crypto::sha256;

use super::fault::LoginFault;
use super::grant::GrantOwner;
use super::pkce::draw_text;

/// The browsers.
#[derive(Default)]
pub struct BrowserBook {
    known: Mutex<HashMap<BrowserId, KnownBrowser>>,
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
    until: Instant,
}

/// A browser that was just met, and the cookie that tells it.
pub struct NewBrowser {
    /// The value of the cookie. Not for a log.
    pub cookie: String,
    /// What is known of it.
    pub browser: KnownBrowser,
}

impl BrowserBook {
    /// Meets a browser.
    ///
    /// # Errors
    /// [`LoginFault`] if there are too many, or no random bytes.
    pub fn meet(&self, owner: Option<GrantOwner>) -> Result<NewBrowser, LoginFault> {
        let (cookie, form_key) = (draw_text()?, draw_text()?);
        let (id, now) = (BrowserId::of(&cookie), clock::now());
        let lasts = if owner.is_some() { SIGNED_IN } else { UNKNOWN };
        let browser = KnownBrowser { id, owner, form_key, notice: None, until: now + lasts };
        let mut known = self.known.lock();
        if known.len() >= MOST_BROWSERS {
            known.retain(|_, browser| browser.until > now);
        }
        if known.len() >= MOST_BROWSERS {
            return Err(LoginFault::TooMany { limit: MOST_BROWSERS });
        }
        known.insert(id, browser.clone());
        Ok(NewBrowser { cookie, browser })
    }

    /// The browser with this cookie.
    pub fn find(&self, cookie: &str) -> Option<KnownBrowser> {
        let known = self.known.lock();
        known.get(&BrowserId::of(cookie)).filter(|it| it.until > clock::now()).cloned()
    }

    /// Forgets a browser: its cookie is worth nothing from now on.
    pub fn forget(&self, id: BrowserId) {
        self.known.lock().remove(&id);
    }

    /// Has the next page of a browser tell something.
    pub fn leave_notice(&self, id: BrowserId, notice: String) {
        if let Some(browser) = self.known.lock().get_mut(&id) {
            browser.notice = Some(notice);
        }
    }

    /// What the next page of a browser tells.
    pub fn take_notice(&self, id: BrowserId) -> Option<String> {
        self.known.lock().get_mut(&id)?.notice.take()
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
const MOST_BROWSERS: usize = 10_000;
