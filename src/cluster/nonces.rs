//! Nonces of envelopes that were opened: each is accepted once.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::EnvelopeFault;
use super::envelope::{EnvelopeNonce, MAX_VALIDITY};

/// The used nonces. A nonce is remembered for at least as long as an envelope is valid.
#[derive(Debug, Default)]
pub(super) struct UsedNonces(Mutex<NonceGenerations>);

/// Two generations: nonces are forgotten by generation, which costs nothing for each of them.
#[derive(Debug, Default)]
struct NonceGenerations {
    current: HashSet<EnvelopeNonce>,
    previous: HashSet<EnvelopeNonce>,
    begun: Option<Instant>,
}

impl UsedNonces {
    /// Uses a nonce.
    ///
    /// # Errors
    /// [`EnvelopeFault::Replayed`] the second time, [`EnvelopeFault::TooMany`] if the table is full:
    /// without its nonce, an envelope could be used again.
    pub(super) fn spend(&self, nonce: EnvelopeNonce, now: Instant) -> Result<(), EnvelopeFault> {
        let mut used = self.0.lock();
        used.forget(now);
        if used.previous.contains(&nonce) || used.current.contains(&nonce) {
            return Err(EnvelopeFault::Replayed);
        }
        if used.current.len() >= MAX_NONCES {
            return Err(EnvelopeFault::TooMany);
        }
        used.current.insert(nonce);
        Ok(())
    }
}

impl NonceGenerations {
    /// Begins another generation when the current one is old enough.
    fn forget(&mut self, now: Instant) {
        let begun = *self.begun.get_or_insert(now);
        let age = now.saturating_duration_since(begun);
        if age >= NONCE_GENERATION {
            self.previous = mem::take(&mut self.current);
            if age >= NONCE_GENERATION * 2 {
                self.previous.clear();
            }
            self.begun = Some(now);
        }
    }
}

/// Age of a generation when the next one begins: longer than an envelope is valid.
const NONCE_GENERATION: Duration = MAX_VALIDITY.saturating_add(Duration::from_secs(5));
/// The most nonces of a generation: about 10,000 forwarded requests a second.
const MAX_NONCES: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn nonce(number: usize) -> EnvelopeNonce {
        let mut nonce = EnvelopeNonce::default();
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        nonce
    }

    #[test]
    fn a_nonce_is_accepted_once_while_its_envelope_is_valid() {
        let (used, start) = (UsedNonces::default(), clock::now());
        let late = NONCE_GENERATION.saturating_sub(Duration::from_millis(1));
        for (number, begun) in [Duration::ZERO, late, NONCE_GENERATION * 7].into_iter().enumerate()
        {
            let (nonce, now) = (nonce(number), start + begun);
            assert_eq!(used.spend(nonce, now), Ok(()));
            for later in [Duration::ZERO, MAX_VALIDITY / 2, MAX_VALIDITY] {
                assert_eq!(used.spend(nonce, now + later), Err(EnvelopeFault::Replayed));
            }
        }
        let kept = used.0.lock();
        assert!(kept.current.len() + kept.previous.len() <= 2, "old nonces are forgotten");
    }

    #[test]
    fn a_full_table_refuses_until_nonces_are_forgotten() {
        let (used, now) = (UsedNonces::default(), clock::now());
        for number in 0..MAX_NONCES {
            assert_eq!(used.spend(nonce(number), now), Ok(()));
        }
        assert_eq!(used.spend(nonce(MAX_NONCES), now), Err(EnvelopeFault::TooMany));
        assert_eq!(used.spend(nonce(MAX_NONCES), now + NONCE_GENERATION), Ok(()));
    }
}
