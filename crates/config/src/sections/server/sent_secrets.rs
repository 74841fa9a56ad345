//! The secrets that a server received at run time, such as access tokens: the configuration does
//! not have them, and they change while the gateway runs.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::server_secrets::hidden_forms;
use crate::source::secret::Secret;

/// The last secrets that a server received. Bounded: the oldest is forgotten first, and noted again
/// when it is sent again.
#[derive(Debug, Default)]
pub(crate) struct SentSecrets(Mutex<VecDeque<Arc<SentSecret>>>);

/// A value that was sent.
#[derive(Debug)]
pub(crate) struct SentSecret {
    value: Secret,
    /// The forms to hide. Computed when first needed: few values are ever searched for.
    forms: OnceLock<Vec<Secret>>,
}

impl SentSecrets {
    /// Notes a value that is sent now.
    pub(crate) fn note(&self, value: &str) {
        let mut sent = self.0.lock();
        // A value that was sent a moment ago is at the end.
        if sent.iter().rev().any(|known| known.value.expose() == value) {
            return;
        }
        if sent.len() >= MAX_SENT_SECRETS {
            sent.pop_front();
        }
        let value = Secret::new(value.to_owned());
        sent.push_back(Arc::new(SentSecret { value, forms: OnceLock::new() }));
    }

    /// The values, without the lock.
    pub(crate) fn list(&self) -> Vec<Arc<SentSecret>> {
        self.0.lock().iter().cloned().collect()
    }
}

impl SentSecret {
    /// The forms to hide, the longest first.
    pub(crate) fn forms(&self) -> &[Secret] {
        self.forms.get_or_init(|| hidden_forms([self.value.expose()]))
    }
}

/// The most values that are remembered for a server.
const MAX_SENT_SECRETS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_value_is_forgotten_and_none_is_kept_twice() {
        let sent = SentSecrets::default();
        for number in 0..=MAX_SENT_SECRETS {
            sent.note(&format!("token-{number}"));
            sent.note(&format!("token-{number}"));
        }
        let values: Vec<_> = sent.list().iter().map(|one| one.value.clone()).collect();
        assert_eq!(values.len(), MAX_SENT_SECRETS);
        assert_eq!(values.first().map(Secret::expose), Some("token-1"));
    }
}
