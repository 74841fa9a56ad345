//! A call that waits for its client's input.

use super::ActiveCall;

/// A call that waits for its client. Dropping it cancels the call at its server.
pub struct CallAwaitingClient(pub Option<Box<ActiveCall>>);

impl Drop for CallAwaitingClient {
    fn drop(&mut self) {
        if let Some(active) = &mut self.0 {
            active.cancel_parked();
        }
    }
}
