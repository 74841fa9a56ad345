//! Requests that other replicas answer: those for their Legacy sessions, event streams of 2024-11-05,
//! parked calls and kept results.
//!
//! [`placement`] decides where a request of a session is answered, [`stream_messages`] finds the replica
//! of an event stream, and [`continuation`] that of a Modern client's request. [`forward`] sends a
//! request on, and [`receive`] is the owner's side. [`server_requests`] serves a server whose child runs
//! here to the other replicas. The owner authenticates the client itself and answers
//! like any other request, so a forwarded request has no rights of its own.

mod bounds;
mod continuation;
mod forward;
mod placement;
mod receive;
mod server_requests;
mod stream_messages;

pub(super) use forward::keep_credentials;
pub(super) use placement::OtherPlace;
use receive::ForwardedHere;
pub(super) use server_requests::ServerServices;
