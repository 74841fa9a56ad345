//! Browsers that the gateway knows, at one replica or at all of them.
//!
//! Without a shared store, [`BrowserBook`](crate::BrowserBook) has them. With one, its records decide,
//! and the book only bounds the number of those that this replica has met.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use trunkline_core::clock;
use trunkline_core::shared_records::{
    NewRecord, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords,
};

use crate::fault::LoginFault;
use crate::grants::book::GrantBook;
use crate::grants::browser::{BrowserId, BrowserVisit, KnownBrowser, NewBrowser};
use crate::grants::grant::GrantOwner;

/// Stored form of a browser.
#[derive(Serialize, Deserialize)]
struct StoredBrowser {
    /// Kind and name of the owner.
    owner: Option<[String; 2]>,
    form_key: String,
    notice: Option<String>,
    /// The end of its time, in seconds since 1970.
    until: u64,
}

impl StoredBrowser {
    fn of(browser: &KnownBrowser) -> Self {
        let wait = browser.until.saturating_duration_since(clock::now());
        Self {
            owner: browser.owner.as_ref().map(|owner| owner.parts().map(str::to_owned)),
            form_key: browser.form_key.clone(),
            notice: browser.notice.clone(),
            until: (clock::unix_now() + wait).as_secs(),
        }
    }

    fn left(&self) -> Duration {
        Duration::from_secs(self.until).saturating_sub(clock::unix_now())
    }

    /// Restores a browser; `None` if its time is over. The store removes records; this refuses old ones
    /// that a store returns all the same.
    fn revive(self, id: BrowserId) -> Option<KnownBrowser> {
        let left = self.left();
        if left.is_zero() {
            return None;
        }
        let until = clock::now() + left;
        let owner = match &self.owner {
            Some([kind, name]) => Some(GrantOwner::of_parts([kind, name])?),
            None => None,
        };
        Some(KnownBrowser { id, owner, form_key: self.form_key, notice: self.notice, until })
    }
}

impl GrantBook {
    /// Returns the browser with a cookie.
    ///
    /// # Errors
    /// [`LoginFault::Shared`] if the store that replicas share cannot be reached.
    pub async fn find_browser(&self, cookie: &str) -> Result<Option<KnownBrowser>, LoginFault> {
        let Some(records) = self.shared() else { return Ok(self.browsers().find(cookie)) };
        Ok(read(records, BrowserId::of(cookie)).await?.map(|(browser, _)| browser))
    }

    /// Meets a browser. It counts towards the share of the owner of the link that led it here.
    ///
    /// # Errors
    /// [`LoginFault`] without random bytes, or if the store that replicas share cannot be reached.
    pub async fn meet_browser(
        &self,
        owner: Option<GrantOwner>,
        visit: BrowserVisit<'_>,
    ) -> Result<NewBrowser, LoginFault> {
        let new = self.browsers().meet(owner, visit)?;
        let Some(records) = self.shared() else { return Ok(new) };
        write(records, &new.browser, None).await?;
        for old in &new.displaced {
            forget(records, *old).await?;
        }
        Ok(new)
    }

    /// Forgets a browser, which invalidates its cookie.
    ///
    /// # Errors
    /// [`LoginFault::Shared`] if the store that replicas share cannot be reached.
    pub async fn forget_browser(&self, id: BrowserId) -> Result<(), LoginFault> {
        self.browsers().forget(id);
        match self.shared() {
            Some(records) => forget(records, id).await,
            None => Ok(()),
        }
    }

    /// Sets a text for a browser's next page.
    ///
    /// # Errors
    /// [`LoginFault::Shared`] if the store that replicas share cannot be reached.
    pub async fn leave_notice(&self, id: BrowserId, notice: String) -> Result<(), LoginFault> {
        let Some(records) = self.shared() else {
            self.browsers().leave_notice(id, notice);
            return Ok(());
        };
        if let Some((browser, record)) = read(records, id).await? {
            let browser = KnownBrowser { notice: Some(notice), ..browser };
            write(records, &browser, Some(&record)).await?;
        }
        Ok(())
    }

    /// Takes the text for a browser's next page.
    ///
    /// # Errors
    /// [`LoginFault::Shared`] if the store that replicas share cannot be reached.
    pub async fn take_notice(&self, id: BrowserId) -> Result<Option<String>, LoginFault> {
        let Some(records) = self.shared() else { return Ok(self.browsers().take_notice(id)) };
        let Some((mut browser, record)) = read(records, id).await? else { return Ok(None) };
        let notice = browser.notice.take();
        if notice.is_some() {
            write(records, &browser, Some(&record)).await?;
        }
        Ok(notice)
    }
}

async fn read(
    records: &Arc<dyn SharedRecords>,
    id: BrowserId,
) -> Result<Option<(KnownBrowser, SharedRecord)>, LoginFault> {
    let Some(record) = records.read(place_of(&id.to_text())).await? else { return Ok(None) };
    let stored: Option<StoredBrowser> = serde_json::from_slice(&record.value).ok();
    Ok(stored.and_then(|stored| stored.revive(id)).map(|browser| (browser, record)))
}

async fn write(
    records: &Arc<dyn SharedRecords>,
    browser: &KnownBrowser,
    expected: Option<&SharedRecord>,
) -> Result<(), LoginFault> {
    let stored = StoredBrowser::of(browser);
    let value = serde_json::to_vec(&stored).map_err(|_| LoginFault::Interrupted)?;
    let new = NewRecord { value: &value, lifetime: Some(stored.left()) };
    records.write(place_of(&browser.id.to_text()), expected, new).await?;
    Ok(())
}

async fn forget(records: &Arc<dyn SharedRecords>, id: BrowserId) -> Result<(), LoginFault> {
    let name = id.to_text();
    if let Some(record) = records.read(place_of(&name)).await? {
        records.remove(place_of(&name), &record).await?;
    }
    Ok(())
}

fn place_of(name: &str) -> RecordPlace<'_> {
    RecordPlace { kind: SharedRecordKind::Browser, name }
}
