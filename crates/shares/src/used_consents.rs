//! Used consents of users: each is valid for one call.
//!
//! A sealed state, which the client keeps, proves a consent. The state is bound to one request.
//! Without this table, a client could repeat the call with it until it expires. A used state is
//! remembered until it expires, within bounds, in this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use trunkline_protocol::call::{Failure, StateError};
use trunkline_protocol::era::state::StateId;

use crate::share::{Holder, Share, ShareBounds, SharedAmount};

/// Used consents that have not expired.
#[derive(Debug, Default)]
pub struct UsedConsents {
    /// In the order of their expiry.
    used: Mutex<BTreeMap<StateId, Share>>,
    amount: Arc<SharedAmount>,
}

/// A consent that one call has claimed, given back if it is dropped before it is kept.
#[derive(Debug)]
pub struct ConsentClaim {
    of: Arc<UsedConsents>,
    state: Option<StateId>,
}

impl UsedConsents {
    /// Claims a consent for a call.
    ///
    /// # Errors
    /// [`Failure::InvalidState`] if it is used, or claimed by a call that is about to be made, and
    /// [`Failure::OverLimit`] if this holder, or all together, have used too many.
    pub fn claim(
        self: &Arc<Self>,
        holder: &Holder,
        state: StateId,
        since_1970: Duration,
    ) -> Result<ConsentClaim, Failure> {
        let now = since_1970.as_secs();
        let mut used = self.used.lock();
        while let Some(oldest) = used.first_entry()
            && oldest.key().until <= now
        {
            oldest.remove();
        }
        if used.contains_key(&state) {
            return Err(StateError::Used.into());
        }
        let share = self.amount.take(holder, 1, USED_CONSENT_BOUNDS).map_err(|_| {
            let soonest = used.keys().next().map_or(now, |oldest| oldest.until);
            let retry_after = Duration::from_secs(soonest.saturating_sub(now).max(1));
            Failure::OverLimit { limit: CONFIRMATIONS_LIMIT.into(), retry_after }
        })?;
        used.insert(state, share);
        Ok(ConsentClaim { of: Arc::clone(self), state: Some(state) })
    }
}

impl ConsentClaim {
    /// Keeps the claim: the call is sent.
    #[inline]
    pub fn keep(mut self) {
        self.state = None;
    }
}

impl Drop for ConsentClaim {
    fn drop(&mut self) {
        if let Some(state) = self.state {
            self.of.used.lock().remove(&state);
        }
    }
}

/// Limits of the remembered consents: of all clients, and of each.
const USED_CONSENT_BOUNDS: ShareBounds = ShareBounds { all: 65_536, each: 1024 };
/// Name of the limit in errors and metrics.
const CONFIRMATIONS_LIMIT: &str = "confirmations";

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_hours(500_000);

    fn state(number: u32, lasting: u64) -> StateId {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&number.to_be_bytes());
        StateId { until: NOW.as_secs() + lasting, nonce }
    }

    fn client(name: &str) -> Holder {
        Holder::Client(name.into())
    }

    #[test]
    fn a_consent_is_good_for_one_call_and_given_back_if_that_is_not_made() {
        let (all, ann) = (Arc::new(UsedConsents::default()), client("ann"));
        let one = state(1, 10);
        let claimed = all.claim(&ann, one, NOW).unwrap();
        let used = || Failure::from(StateError::Used);
        assert_eq!(all.claim(&ann, one, NOW).map(drop), Err(used()), "another call is about to be");
        drop(claimed);
        all.claim(&ann, one, NOW).unwrap().keep();
        assert_eq!(all.claim(&ann, one, NOW).map(drop), Err(used()));
        all.claim(&ann, state(2, 10), NOW).unwrap().keep();
        assert_eq!(all.amount.total(), 2);
    }

    #[test]
    fn expired_consents_are_forgotten_in_any_order() {
        let (all, ann) = (Arc::new(UsedConsents::default()), client("ann"));
        for (number, lasting) in [(1, 30), (2, 10), (3, 20)] {
            all.claim(&ann, state(number, lasting), NOW).unwrap().keep();
        }
        let later = NOW + Duration::from_secs(20);
        all.claim(&ann, state(4, 60), later).unwrap().keep();
        assert_eq!((all.used.lock().len(), all.amount.total()), (2, 2));
        assert!(all.claim(&ann, state(1, 30), later).is_err());
    }

    #[test]
    fn one_client_can_neither_fill_the_memory_nor_keep_others_from_theirs() {
        let (all, ann) = (Arc::new(UsedConsents::default()), client("ann"));
        let each = u32::try_from(USED_CONSENT_BOUNDS.each).unwrap();
        for number in 0..each {
            all.claim(&ann, state(number, 60), NOW).unwrap().keep();
        }
        let over = all.claim(&ann, state(each, 60), NOW).map(drop);
        let retry_after = Duration::from_mins(1);
        assert_eq!(
            over,
            Err(Failure::OverLimit { limit: CONFIRMATIONS_LIMIT.into(), retry_after })
        );
        assert_eq!(all.used.lock().len(), USED_CONSENT_BOUNDS.each);
        all.claim(&client("bob"), state(each + 1, 60), NOW).unwrap().keep();
        all.claim(&ann, state(each, 120), NOW + retry_after).unwrap().keep();
        assert_eq!(all.amount.total(), 1);
    }

    #[test]
    fn all_clients_together_are_bounded() {
        let all = Arc::new(UsedConsents::default());
        let most = u32::try_from(USED_CONSENT_BOUNDS.all).unwrap();
        for number in 0..most {
            all.claim(&client(&(number / 1000).to_string()), state(number, 60), NOW)
                .unwrap()
                .keep();
        }
        assert!(all.claim(&client("late"), state(most, 60), NOW).is_err());
    }
}
