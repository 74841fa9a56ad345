//! The part of a revived session that it has from its earlier owners.

use parking_lot::Mutex;

use super::outbox::EventId;

/// Numbers and subscriptions from earlier owners; none in a session that was opened here.
#[derive(Debug)]
pub(super) struct InheritedState {
    /// The streams of earlier owners, and their requests to the client, have lower numbers than those
    /// of this one.
    first_number: u64,
    /// Resources that the client has subscribed to, and that are not subscribed to here yet.
    unrenewed: Mutex<Vec<String>>,
}

impl InheritedState {
    /// `generation` is the number of owners so far.
    pub(super) fn new(generation: u64) -> Self {
        let earlier = generation.saturating_sub(1).min(MAX_EARLIER_OWNERS);
        Self { first_number: earlier << NUMBER_BITS, unrenewed: Mutex::default() }
    }

    /// Returns the number of the session's own stream. Other streams, and requests, have higher ones.
    pub(super) fn first_number(&self) -> u64 {
        self.first_number
    }

    /// Returns true if an event is of an earlier owner's stream.
    pub(super) fn has_event(&self, id: EventId) -> bool {
        id.stream < self.first_number
    }

    /// Returns true if a request to the client was one of an earlier owner.
    pub(super) fn has_request(&self, number: u64) -> bool {
        self.first_number > 0 && number <= self.first_number
    }

    /// Sets the resources that are to be subscribed to again.
    pub(super) fn set_unrenewed(&self, uris: Vec<String>) {
        *self.unrenewed.lock() = uris;
    }

    /// Returns the resources that are not subscribed to again yet.
    pub(super) fn unrenewed(&self) -> Vec<String> {
        self.unrenewed.lock().clone()
    }

    /// Notes that a resource is subscribed to again, or not any more. Returns false if the client has
    /// ended the subscription meanwhile.
    pub(super) fn settle(&self, uri: &str) -> bool {
        let mut unrenewed = self.unrenewed.lock();
        let place = unrenewed.iter().position(|it| it == uri);
        place.map(|place| unrenewed.swap_remove(place)).is_some()
    }
}

/// Bits of the numbers of one owner's streams, and of its requests to the client.
const NUMBER_BITS: u32 = 24;
/// The largest number of earlier owners that is counted: numbers stay exact in any JSON library.
const MAX_EARLIER_OWNERS: u64 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_each_owner_are_its_own() {
        let (first, second) = (InheritedState::new(1), InheritedState::new(2));
        let at = |stream| EventId { stream, number: 1 };
        assert!(!first.has_request(1) && !first.has_event(at(0)));
        for number in [0, 1, 1 << 20] {
            assert!(second.has_request(number) && second.has_event(at(number)), "{number}");
            let own = second.first_number() + number;
            assert!(!second.has_event(at(own)) && !second.has_request(own + 1), "{number}");
        }
        let last = InheritedState::new(u64::MAX);
        assert!(last.first_number() < 1 << 53, "an integer in any JSON library");
    }

    #[test]
    fn a_subscription_that_its_client_ends_is_not_renewed() {
        let state = InheritedState::new(2);
        state.set_unrenewed(vec!["a".into(), "b".into()]);
        assert!(state.settle("a"));
        assert!(!state.settle("a"));
        assert_eq!(state.unrenewed(), ["b"]);
    }
}
