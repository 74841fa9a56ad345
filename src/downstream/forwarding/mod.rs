//! Requests that other replicas answer: those for their Legacy sessions, parked calls and kept results.
//!
//! [`forward`] sends a request on to the owner of its session, [`continuation`] finds the owner of a
//! Modern client's request, and [`receive`] is the owner's side. The
//! owner authenticates the client itself and answers like any other request, so a forwarded request
//! has no rights of its own.

mod bounds;
mod continuation;
mod forward;
mod receive;

pub(super) use forward::keep_credentials;
use receive::ForwardedHere;
