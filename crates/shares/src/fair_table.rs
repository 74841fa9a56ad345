//! A bounded table in which no holder takes the room of the others.
//!
//! [`SharedAmount`](crate::SharedAmount) differs: it refuses a holder that has used up its share.
//! Entries of this table lose worth with age, so a new entry of such a holder replaces its oldest one.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use tokio::time::Instant;

use crate::rate::network;
use crate::share::Holder;

/// A bounded table with entries that expire.
#[derive(Debug)]
pub struct FairTable<K, V> {
    bounds: TableBounds,
    entries: HashMap<K, FairEntry<V>>,
    /// The keys of each holder and of each address, oldest first.
    holders: HashMap<Holder, BTreeMap<u64, K>>,
    addresses: HashMap<IpAddr, BTreeMap<u64, K>>,
    /// Number of the next entry.
    next: u64,
}

/// Limits of a table's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableBounds {
    /// Limit for all together.
    pub all: usize,
    /// Limit of one address, or of one /64 network.
    pub each_address: usize,
}

/// The owner of an entry.
#[derive(Debug, Clone)]
pub struct EntryOwner {
    /// Its owner.
    pub holder: Holder,
    /// Limit of this holder's entries.
    pub share: usize,
    /// The address of the request that it was made for; `None` without a request.
    pub address: Option<IpAddr>,
}

/// The lifetime of an entry.
#[derive(Debug, Clone, Copy)]
pub struct EntryLifetime {
    /// The present.
    pub now: Instant,
    /// The end.
    pub until: Instant,
}

#[derive(Debug)]
struct FairEntry<V> {
    value: V,
    number: u64,
    owner: EntryOwner,
    until: Instant,
}

impl<K: Clone + Eq + Hash, V> FairTable<K, V> {
    /// Creates an empty table.
    pub fn new(bounds: TableBounds) -> Self {
        let (entries, holders, addresses) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { bounds, entries, holders, addresses, next: 0 }
    }

    /// Returns the number of entries, expired ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns an entry that has not expired.
    pub fn get(&self, key: &K, now: Instant) -> Option<&V> {
        self.entries.get(key).filter(|entry| entry.until > now).map(|entry| &entry.value)
    }

    /// Returns an entry that has not expired, for changes.
    pub fn get_mut(&mut self, key: &K, now: Instant) -> Option<&mut V> {
        let entry = self.entries.get_mut(key).filter(|entry| entry.until > now);
        entry.map(|entry| &mut entry.value)
    }

    /// Returns the entries that have not expired, in no order.
    pub fn live_entries(&self, now: Instant) -> impl Iterator<Item = (&K, &V)> {
        let live = self.entries.iter().filter(move |(_, entry)| entry.until > now);
        live.map(|(key, entry)| (key, &entry.value))
    }

    /// Adds an entry. Returns the entries that it evicts: the oldest of its own holder or address
    /// if that has reached its limit, otherwise the oldest of the holder with the most.
    pub fn insert(
        &mut self,
        key: K,
        value: V,
        owner: EntryOwner,
        lifetime: EntryLifetime,
    ) -> Vec<V> {
        let EntryLifetime { now, until } = lifetime;
        let owner = EntryOwner { address: owner.address.map(network), ..owner };
        let mut removed: Vec<_> = self.remove(&key).into_iter().collect();
        while let Some(oldest) = find_oldest(self.holders.get(&owner.holder), owner.share) {
            removed.extend(self.remove(&oldest));
        }
        let of_address = |table: &Self| {
            let entries = owner.address.and_then(|address| table.addresses.get(&address));
            find_oldest(entries, table.bounds.each_address)
        };
        while let Some(oldest) = of_address(self) {
            removed.extend(self.remove(&oldest));
        }
        if self.entries.len() >= self.bounds.all {
            removed.extend(self.remove_expired(now));
        }
        while self.entries.len() >= self.bounds.all {
            let fullest = self.holders.values().max_by_key(|entries| entries.len());
            // Its own, if no other holder has more.
            let most = fullest.map_or(1, BTreeMap::len);
            let own = self.holders.get(&owner.holder);
            let own = own.filter(|entries| entries.len() >= most);
            let Some(oldest) = find_oldest(own.or(fullest), 0) else { break };
            removed.extend(self.remove(&oldest));
        }
        let number = self.next;
        self.next += 1;
        self.holders.entry(owner.holder.clone()).or_default().insert(number, key.clone());
        if let Some(address) = owner.address {
            self.addresses.entry(address).or_default().insert(number, key.clone());
        }
        self.entries.insert(key, FairEntry { value, number, owner, until });
        removed
    }

    /// Removes an entry, expired or not, and returns it.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let FairEntry { value, number, owner, .. } = self.entries.remove(key)?;
        forget(&mut self.holders, &owner.holder, number);
        if let Some(address) = &owner.address {
            forget(&mut self.addresses, address, number);
        }
        Some(value)
    }

    /// Removes the entries of a holder for which `keep` is false.
    pub fn retain_of(&mut self, holder: &Holder, keep: impl Fn(&V) -> bool) {
        let keys: Vec<K> =
            self.holders.get(holder).into_iter().flat_map(BTreeMap::values).cloned().collect();
        for key in keys {
            if self.entries.get(&key).is_some_and(|entry| !keep(&entry.value)) {
                self.remove(&key);
            }
        }
    }

    fn remove_expired(&mut self, now: Instant) -> Vec<V> {
        let expired = self.entries.iter().filter(|(_, entry)| entry.until <= now);
        let expired: Vec<K> = expired.map(|(key, _)| key.clone()).collect();
        expired.iter().filter_map(|key| self.remove(key)).collect()
    }
}

/// Returns the oldest entry if there are `share` or more.
fn find_oldest<K: Clone>(entries: Option<&BTreeMap<u64, K>>, share: usize) -> Option<K> {
    let entries = entries.filter(|entries| entries.len() >= share)?;
    entries.first_key_value().map(|(_, key)| key.clone())
}

fn forget<H: Eq + Hash, K>(of: &mut HashMap<H, BTreeMap<u64, K>>, holder: &H, number: u64) {
    if let Some(entries) = of.get_mut(holder) {
        entries.remove(&number);
        if entries.is_empty() {
            of.remove(holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use trunkline_core::clock;

    const BOUNDS: TableBounds = TableBounds { all: 10, each_address: 6 };
    const SHARE: usize = 4;

    struct Fixture {
        table: FairTable<u32, u32>,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { table: FairTable::new(BOUNDS), now: clock::now() }
        }

        fn add(&mut self, key: u32, holder: &str, address: Option<&str>) -> Vec<u32> {
            let address = address.map(|address| address.parse().unwrap());
            let owner = EntryOwner { holder: Holder::Client(holder.into()), share: SHARE, address };
            let until = self.now + Duration::from_mins(1);
            self.table.insert(key, key, owner, EntryLifetime { now: self.now, until })
        }

        fn has(&self, key: u32) -> bool {
            self.table.get(&key, self.now).is_some()
        }
    }

    #[test]
    fn a_holder_that_has_its_share_loses_its_own_oldest_entry() {
        let mut fixture = Fixture::new();
        fixture.add(1000, "other", None);
        for key in 0..4 {
            assert!(fixture.add(key, "a", None).is_empty());
        }
        for key in 4..100 {
            assert_eq!(fixture.add(key, "a", None), [key - 4]);
        }
        assert!(fixture.has(1000) && fixture.has(99) && fixture.table.len() == 5);
    }

    #[test]
    fn an_address_with_many_holders_has_its_share_too() {
        let mut fixture = Fixture::new();
        fixture.add(1000, "other", Some("192.0.2.9"));
        for key in 0..100 {
            // One IPv6 network counts as one address.
            let address = format!("2001:db8::{key:x}");
            fixture.add(key, &format!("a{key}"), Some(&address));
        }
        assert!(fixture.has(1000) && fixture.has(99) && !fixture.has(93));
        assert_eq!(fixture.table.len(), 7);
    }

    #[test]
    fn a_full_table_makes_room_where_the_most_is_held() {
        let mut fixture = Fixture::new();
        for key in 0..3 {
            fixture.add(1000 + key, &format!("single{key}"), None);
        }
        for key in 0..100 {
            fixture.add(key, &format!("a{}", key % 2), None);
            fixture.add(2000 + key, "another", None);
        }
        assert_eq!(fixture.table.len(), 10);
        assert!((1000..1003).all(|key| fixture.has(key)), "those with one entry keep it");
    }

    #[test]
    fn expired_entries_are_gone_and_are_the_first_to_make_room() {
        let mut fixture = Fixture::new();
        for key in 0..10 {
            fixture.add(key, &format!("a{key}"), None);
        }
        fixture.now += Duration::from_mins(1);
        assert!(!fixture.has(1) && fixture.table.get_mut(&1, fixture.now).is_none());
        fixture.add(10, "b", None);
        assert_eq!(fixture.table.len(), 1);
        fixture.add(11, "b", None);
        fixture.table.retain_of(&Holder::Client("b".into()), |value| *value != 10);
        assert!(!fixture.has(10) && fixture.has(11));
        assert_eq!(fixture.table.remove(&11), Some(11));
        assert!(fixture.table.is_empty() && fixture.table.holders.is_empty());
    }
}
