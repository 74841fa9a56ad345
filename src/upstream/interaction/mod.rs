//! Server requests to clients during a call: sampling, elicitation, roots.
//!
//! A request of a Legacy server is matched to the one call that can have caused it ([`questions`]).
//! While the client answers, the rest of the reply is parked ([`parking`]) and the call's
//! [`deadline`] is paused. [`sizes`] limits each message that waits for a client, and
//! [`side_queue`] their sum. This module does not depend on the transport of a request: it sends
//! responses through a [`server_link`].

pub(super) mod deadline;
pub(super) mod cancelled_calls;
pub mod parking;
pub(super) mod questions;
pub(super) mod server_link;
pub(super) mod side_queue;
pub(super) mod sizes;
