//! Large results that a client has received in its session.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Digests of the large results of one session: the latest of each call, for a limited number of
/// calls.
#[derive(Debug, Default)]
pub struct SentResults(Mutex<VecDeque<SentResult>>);

/// The first half of a SHA-256.
pub type ResultDigest = [u8; 16];

#[derive(Debug)]
struct SentResult {
    /// Digest of the tool and its arguments.
    call: ResultDigest,
    content: ResultDigest,
    /// True if the client got a reference instead of the result.
    was_reference: bool,
}

impl SentResults {
    /// Notes the next result of a call. Returns true if a reference replaces it: the client's
    /// previous result of this call was the same, and was sent in full. A client that calls again
    /// after a reference no longer has the result, and gets it.
    pub fn note(&self, call: ResultDigest, content: ResultDigest) -> bool {
        let mut sent = self.0.lock();
        let earlier = sent.iter().position(|one| one.call == call).and_then(|at| sent.remove(at));
        let was_reference = earlier.is_some_and(|one| one.content == content && !one.was_reference);
        if sent.len() >= MAX_REMEMBERED_CALLS {
            sent.pop_front();
        }
        sent.push_back(SentResult { call, content, was_reference });
        was_reference
    }
}

/// Limit of the calls with remembered results.
const MAX_REMEMBERED_CALLS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_result_is_referred_to_every_other_time() {
        let sent = SentResults::default();
        let noted = [7, 7, 7, 7, 8, 8].map(|content| sent.note([1; 16], [content; 16]));
        assert_eq!(noted, [false, true, false, true, false, true]);
        assert!(!sent.note([2; 16], [8; 16]));
    }

    #[test]
    fn the_results_of_the_latest_calls_are_remembered() {
        let sent = SentResults::default();
        let note = |call: usize| sent.note([u8::try_from(call).unwrap(); 16], [0; 16]);
        assert!((0..=MAX_REMEMBERED_CALLS).all(|call| !note(call)));
        assert_eq!(sent.0.lock().len(), MAX_REMEMBERED_CALLS);
        assert!(note(1) && !note(0));
    }
}
