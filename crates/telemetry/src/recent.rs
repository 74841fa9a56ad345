//! A ring of the last items of a kind, and a live stream of new ones.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// The last items of a kind. Items of different classes have bounds of their own, so that one class
/// does not displace another. Each observer has a bounded queue: a slow one misses items, and learns
/// how many.
#[derive(Debug)]
pub struct RecentItems<T> {
    kept: Mutex<KeptItems<T>>,
    live: broadcast::Sender<Arc<Numbered<T>>>,
}

/// An item with its number: later items have larger ones.
#[derive(Debug)]
pub struct Numbered<T> {
    /// The number.
    pub number: u64,
    /// The item.
    pub item: T,
}

/// Bounds of one class of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentBounds {
    /// Limit of their number.
    pub items: usize,
    /// Limit of their bytes.
    pub bytes: usize,
}

#[derive(Debug)]
struct KeptItems<T> {
    /// The number of the next item.
    next: u64,
    classes: Vec<ItemClass<T>>,
}

#[derive(Debug)]
struct ItemClass<T> {
    bounds: RecentBounds,
    bytes: usize,
    /// The oldest first, with their bytes.
    items: VecDeque<(Arc<Numbered<T>>, usize)>,
}

/// The items that an observer receives.
#[derive(Debug)]
pub struct LiveItems<T> {
    /// Items from before the observation, the oldest first.
    past: VecDeque<Arc<Numbered<T>>>,
    live: broadcast::Receiver<Arc<Numbered<T>>>,
}

/// A step of an observation.
#[derive(Debug)]
pub enum LiveItem<T> {
    /// The next item.
    Item(Arc<Numbered<T>>),
    /// Number of items that were lost because the observer is slow.
    Missed(u64),
}

/// There are as many observers as allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {MAX_OBSERVERS} observers already: end one of them first")]
pub struct TooManyObserversError;

impl<T: Send + Sync> RecentItems<T> {
    /// Creates an empty ring with these classes.
    pub fn new(classes: &[RecentBounds]) -> Self {
        let class =
            |bounds: &RecentBounds| ItemClass { bounds: *bounds, bytes: 0, items: VecDeque::new() };
        let classes = classes.iter().map(class).collect();
        let (live, _) = broadcast::channel(MAX_QUEUED_ITEMS);
        Self { kept: Mutex::new(KeptItems { next: 1, classes }), live }
    }

    /// Adds an item of a class, and removes the oldest ones of the class beyond its bounds.
    pub fn push(&self, class: usize, item: T, bytes: usize) {
        let mut kept = self.kept.lock();
        let number = kept.next;
        kept.next += 1;
        let item = Arc::new(Numbered { number, item });
        if let Some(class) = kept.classes.get_mut(class) {
            class.items.push_back((Arc::clone(&item), bytes));
            class.bytes += bytes;
            class.enforce();
        }
        // Within the lock, so that observers receive items in the order of their numbers. Without
        // observers the item is not sent.
        let _ = self.live.send(item);
    }

    /// Sets the bounds of a class.
    pub fn set_bounds(&self, class: usize, bounds: RecentBounds) {
        if let Some(class) = self.kept.lock().classes.get_mut(class) {
            class.bounds = bounds;
            class.enforce();
        }
    }

    /// Returns the matching items before the one with this number, the newest first, up to a limit.
    pub fn select(
        &self,
        before: Option<u64>,
        limit: usize,
        matches: impl Fn(&T) -> bool,
    ) -> Vec<Arc<Numbered<T>>> {
        self.kept.lock().select(before, limit, matches)
    }

    /// Returns the newest item that matches.
    pub fn find(&self, matches: impl Fn(&T) -> bool) -> Option<Arc<Numbered<T>>> {
        self.kept.lock().select(None, 1, matches).pop()
    }

    /// Observes all new items, after the last matching ones up to a limit.
    ///
    /// # Errors
    /// [`TooManyObserversError`].
    pub fn observe(
        &self,
        limit: usize,
        matches: impl Fn(&T) -> bool,
    ) -> Result<LiveItems<T>, TooManyObserversError> {
        // One lock for both: no item is between the past ones and the new ones.
        let kept = self.kept.lock();
        if self.live.receiver_count() >= MAX_OBSERVERS {
            return Err(TooManyObserversError);
        }
        let live = self.live.subscribe();
        let past = kept.select(None, limit, matches).into_iter().rev().collect();
        Ok(LiveItems { past, live })
    }

    /// Returns the number of observers.
    pub fn observers(&self) -> usize {
        self.live.receiver_count()
    }
}

impl<T> KeptItems<T> {
    fn select(
        &self,
        before: Option<u64>,
        limit: usize,
        matches: impl Fn(&T) -> bool,
    ) -> Vec<Arc<Numbered<T>>> {
        let mut found = Vec::new();
        for class in &self.classes {
            let newest = class.items.iter().rev().map(|(item, _)| item);
            let earlier = newest.filter(|it| before.is_none_or(|before| it.number < before));
            found.extend(earlier.filter(|it| matches(&it.item)).take(limit).cloned());
        }
        found.sort_by_key(|it| std::cmp::Reverse(it.number));
        found.truncate(limit);
        found
    }
}

impl<T> ItemClass<T> {
    fn enforce(&mut self) {
        while self.items.len() > self.bounds.items || self.bytes > self.bounds.bytes {
            let Some((_, bytes)) = self.items.pop_front() else { return };
            self.bytes -= bytes;
        }
        if self.items.is_empty() {
            self.items.shrink_to_fit();
        }
    }
}

impl<T: Send + Sync> LiveItems<T> {
    /// Waits for the next item; `None` if no more can follow.
    ///
    /// # Cancel safety
    /// Safe: no item is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<LiveItem<T>> {
        if let Some(item) = self.past.pop_front() {
            return Some(LiveItem::Item(item));
        }
        match self.live.recv().await {
            Ok(item) => Some(LiveItem::Item(item)),
            Err(RecvError::Lagged(missed)) => Some(LiveItem::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Limit of the observers of one kind at a time. Those of all kinds together leave places on the
/// private socket for other requests.
const MAX_OBSERVERS: usize = 8;
/// Limit of the items that wait for the slowest observer.
const MAX_QUEUED_ITEMS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(items: usize, bytes: usize) -> RecentItems<u32> {
        RecentItems::new(&[RecentBounds { items, bytes }, RecentBounds { items: 2, bytes: 100 }])
    }

    fn found(ring: &RecentItems<u32>, before: Option<u64>, limit: usize) -> Vec<u32> {
        ring.select(before, limit, |_| true).iter().map(|it| it.item).collect()
    }

    #[test]
    fn the_oldest_items_of_a_class_leave_beyond_its_number_or_bytes() {
        let ring = ring(3, 100);
        ring.push(1, 100, 1);
        for item in 0..5 {
            ring.push(0, item, 10);
        }
        assert_eq!(found(&ring, None, 10), [4, 3, 2, 100], "another class is not displaced");
        ring.push(0, 5, 85);
        assert_eq!(found(&ring, None, 10), [5, 4, 100]);
        ring.push(0, 6, 101);
        assert_eq!(found(&ring, None, 10), [100], "larger than the whole ring");
        ring.push(0, 7, 1);
        ring.set_bounds(0, RecentBounds { items: 0, bytes: 100 });
        assert_eq!(found(&ring, None, 10), [100]);
    }

    #[test]
    fn pages_follow_each_other_by_number() {
        let ring = ring(10, 1000);
        for item in 0..6 {
            ring.push((item % 2) as usize, item, 1);
        }
        let first = ring.select(None, 2, |item| *item != 4);
        assert_eq!(first.iter().map(|it| it.item).collect::<Vec<_>>(), [5, 3]);
        assert_eq!(found(&ring, Some(first[1].number), 2), [2, 0], "only two of the other class");
    }

    #[tokio::test]
    async fn a_slow_observer_misses_items_and_learns_how_many() {
        let ring = ring(3000, 1 << 20);
        ring.push(0, 1, 1);
        ring.push(0, 2, 1);
        let mut live = ring.observe(1, |_| true).unwrap();
        for item in 0..=u32::try_from(MAX_QUEUED_ITEMS).unwrap() {
            ring.push(0, 10 + item, 1);
        }
        let next = async |live: &mut LiveItems<u32>| live.next().await.unwrap();
        assert!(matches!(next(&mut live).await, LiveItem::Item(it) if it.item == 2));
        assert!(matches!(next(&mut live).await, LiveItem::Missed(1)));
        assert!(matches!(next(&mut live).await, LiveItem::Item(it) if it.item == 11));
    }

    #[test]
    fn the_number_of_observers_is_bounded() {
        let ring = ring(1, 1);
        let all: Vec<_> = (0..MAX_OBSERVERS).map(|_| ring.observe(0, |_| true).unwrap()).collect();
        assert_eq!(ring.observe(0, |_| true).err(), Some(TooManyObserversError));
        drop(all);
        assert!(ring.observe(0, |_| true).is_ok());
    }
}
