//! Items that all replicas together use once, such as the consent to a call.
//!
//! The replica that writes the record of an item has used it; all others find the record. An item that
//! was used and not needed is given back. Nothing is used while the store cannot be reached, whatever
//! `cluster.degrade` says: another replica may have used the item.
//!
//! The name of a record is a digest. It has no key: items are random, and while keys are being
//! replaced, two replicas would write two records for one item.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;

#[cfg(test)]
use super::ClusterStore;
#[cfg(test)]
use super::shared_rates::SharedRates;
use super::store::{RecordChange, RecordKey, StoreHealth};
#[cfg(test)]
use crate::config::DegradeChoice;
use crate::crypto::{random_bytes, sha256};

/// The items that replicas have used.
#[derive(Debug)]
pub struct UsedItems {
    health: Arc<StoreHealth>,
}

/// An item that may be used once.
#[derive(Debug, Clone, Copy)]
pub struct SingleUseItem<'a> {
    /// The kind. Items of different kinds are different.
    pub kind: &'a str,
    /// The item, which contains at least 12 random bytes.
    pub item: &'a [u8],
    /// The time until it expires.
    pub valid_for: Duration,
}

/// Reasons that an item cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpendRefusal {
    /// It was used before.
    Used,
    /// The store cannot be reached.
    Unavailable,
}

/// An item that was used here, given back if it is dropped before it is kept.
#[derive(Debug)]
pub struct SpentItem {
    health: Arc<StoreHealth>,
    /// The name of the record; `None` if the item is kept.
    name: Option<String>,
    /// The value of the record, which no other use of the item has.
    value: [u8; 16],
}

impl UsedItems {
    pub(super) fn new(health: Arc<StoreHealth>) -> Self {
        Self { health }
    }

    /// Uses an item.
    ///
    /// # Errors
    /// [`SpendRefusal`]. If the store fails during the request, the item may be used up.
    pub async fn spend(&self, item: SingleUseItem<'_>) -> Result<SpentItem, SpendRefusal> {
        let value: [u8; 16] = random_bytes().map_err(|_| SpendRefusal::Unavailable)?;
        let name = name_of(&item);
        let lifetime = Some(item.valid_for.saturating_add(CLOCK_MARGIN).min(MAX_LIFETIME));
        let change = RecordChange::Write { bytes: &value, lifetime };
        let writing = self.health.store().replace_record(key_of(&name), None, change);
        match self.health.access_record(ITEM_COLLECTION, writing).await {
            Some(true) => {
                Ok(SpentItem { health: Arc::clone(&self.health), name: Some(name), value })
            }
            Some(false) => Err(SpendRefusal::Used),
            None => Err(SpendRefusal::Unavailable),
        }
    }
}

#[cfg(test)]
impl UsedItems {
    /// Creates the items of a replica with this store.
    pub(crate) fn in_tests(store: Arc<dyn ClusterStore>) -> Arc<Self> {
        Arc::new(Self::new(StoreHealth::in_tests(store, DegradeChoice::Local)))
    }

    /// Returns the shared rates of the same replica.
    pub(crate) fn rates(&self) -> Arc<SharedRates> {
        SharedRates::sharing(Arc::clone(&self.health))
    }
}

impl SpentItem {
    /// Keeps the item as used.
    pub fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for SpentItem {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        let (health, value) = (Arc::clone(&self.health), self.value);
        self.health.runtime().spawn(async move {
            let change = RecordChange::Remove;
            let removing = health.store().replace_record(key_of(&name), Some(&value), change);
            // Without the store, the item is used up.
            let _ = health.access_record(ITEM_COLLECTION, removing).await;
        });
    }
}

fn name_of(item: &SingleUseItem<'_>) -> String {
    let SingleUseItem { kind, item, .. } = item;
    HEXLOWER.encode(&sha256(&[NAME_PURPOSE, kind.as_bytes(), b" ", item].concat()))
}

fn key_of(name: &str) -> RecordKey<'_> {
    RecordKey::new(ITEM_COLLECTION, name)
}

/// The collection of the records.
const ITEM_COLLECTION: &str = "used";
/// Purpose of the digests that name records.
const NAME_PURPOSE: &[u8] = b"trunkline used item ";
/// Time for which a record outlives its item: twice the most that the clocks of two replicas may differ.
const CLOCK_MARGIN: Duration = Duration::from_secs(10);
/// Limit of the lifetime of a record. All items expire before.
const MAX_LIFETIME: Duration = Duration::from_hours(24 * 366);

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::cluster::MemoryStore;

    const MINUTE: Duration = Duration::from_mins(1);

    fn item<'a>(kind: &'a str, item: &'a [u8]) -> SingleUseItem<'a> {
        SingleUseItem { kind, item, valid_for: MINUTE }
    }

    fn replicas() -> (Arc<MemoryStore>, [Arc<UsedItems>; 3]) {
        let store = Arc::new(MemoryStore::default());
        let replicas = std::array::from_fn(|_| UsedItems::in_tests(Arc::clone(&store) as _));
        (store, replicas)
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_three_replicas_uses_an_item_until_it_has_expired() {
        let (_store, [a, b, c]) = replicas();
        let one = item("consent", b"1");
        let (a_spent, b_spent, c_spent) = tokio::join!(a.spend(one), b.spend(one), c.spend(one));
        let (spent, refused): (Vec<_>, Vec<_>) =
            [a_spent, b_spent, c_spent].into_iter().partition(Result::is_ok);
        assert_eq!((spent.len(), refused.len()), (1, 2));
        for refusal in refused {
            assert_eq!(refusal.unwrap_err(), SpendRefusal::Used);
        }
        spent.into_iter().flatten().for_each(SpentItem::keep);
        // The clock of another replica may be late.
        advance(MINUTE + Duration::from_millis(9_999)).await;
        assert_eq!(b.spend(one).await.map(drop), Err(SpendRefusal::Used));
        for other in [item("consent", b"2"), item("link", b"1")] {
            b.spend(other).await.unwrap().keep();
        }
        advance(Duration::from_millis(1)).await;
        b.spend(one).await.unwrap().keep();
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_that_was_not_needed_is_given_back() {
        let (_store, [a, b, _]) = replicas();
        let one = item("consent", b"1");
        drop(a.spend(one).await.unwrap());
        tokio::task::yield_now().await;
        let spent = b.spend(one).await.unwrap();
        assert_eq!(a.spend(one).await.map(drop), Err(SpendRefusal::Used));
        spent.keep();
        tokio::task::yield_now().await;
        assert_eq!(a.spend(one).await.map(drop), Err(SpendRefusal::Used));
    }

    #[tokio::test(start_paused = true)]
    async fn the_record_of_an_item_expires_within_a_bounded_time() {
        let (_store, [a, b, _]) = replicas();
        let endless = SingleUseItem { valid_for: Duration::MAX, ..item("consent", b"1") };
        a.spend(endless).await.unwrap().keep();
        advance(MAX_LIFETIME).await;
        b.spend(endless).await.unwrap().keep();
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_used_while_the_store_fails() {
        let (store, [a, b, _]) = replicas();
        store.fail(true);
        for _ in 0..2 {
            let refused = a.spend(item("consent", b"1")).await.map(drop);
            assert_eq!(refused, Err(SpendRefusal::Unavailable));
        }
        store.fail(false);
        b.spend(item("consent", b"1")).await.unwrap().keep();
        // The store is tried every second.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(a.spend(item("consent", b"1")).await.map(drop), Err(SpendRefusal::Used));
    }
}
