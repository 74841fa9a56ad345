//! Ids of requests to a server: unique per connection and not predictable.
//!
//! A response is matched by its id. If ids were sequential, a server, or an intermediary that can
//! make it write one response too many, could prepare a response for the next request, which may be
//! another client's.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Issues ids: an encrypted counter.
///
/// The ids have 32 bits, although JSON numbers could have 53: servers on older releases of the
/// Rust SDK read no larger ones.
#[derive(Debug, Default)]
pub(crate) struct RequestIds {
    issued: AtomicU64,
    /// From the system's random source.
    key: RandomState,
}

impl RequestIds {
    /// Returns an id that differs from the last 2^32 ones.
    pub(crate) fn draw(&self) -> u64 {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let [.., a, b, c, d] = number.to_be_bytes();
        u64::from(self.encrypt([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]))
    }

    /// Returns the number of ids issued. A request with a higher count is newer.
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Relaxed)
    }

    /// A Feistel network, which permutes the 32-bit numbers; its round function is the keyed
    /// SipHash of the standard library.
    fn encrypt(&self, [mut left, mut right]: [u16; 2]) -> u32 {
        for round in 0..PERMUTATION_ROUNDS {
            let [.., a, b] = self.key.hash_one(join_halves(round, right)).to_be_bytes();
            (left, right) = (right, left ^ u16::from_be_bytes([a, b]));
        }
        join_halves(left, right)
    }
}

fn join_halves(left: u16, right: u16) -> u32 {
    u32::from(left) << 16 | u32::from(right)
}

/// Three rounds of a pseudorandom function make a pseudorandom permutation (Luby and Rackoff). A
/// fourth round would protect against attackers who can have ids of their choice decrypted, which
/// the gateway never does.
const PERMUTATION_ROUNDS: u16 = 3;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_do_not_repeat() {
        let ids = RequestIds::default();
        let drawn: HashSet<u64> = (0..100_000).map(|_| ids.draw()).collect();
        assert_eq!((drawn.len(), ids.issued()), (100_000, 100_000));
        assert!(drawn.iter().all(|id| u32::try_from(*id).is_ok()));
    }

    #[test]
    fn no_id_follows_from_the_one_before() {
        let [one, two] = [(); 2].map(|()| {
            let ids = RequestIds::default();
            (0..10_000).map(|_| ids.draw()).collect::<Vec<_>>()
        });
        let same = one.iter().zip(&two).filter(|(one, two)| one == two).count();
        assert!(same < 10, "each connection has its own key: {same}");
        let steps: HashSet<u64> = one.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
        assert!(steps.len() > 9_900, "{}", steps.len());
    }
}
