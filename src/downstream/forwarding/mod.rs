//! Requests for Legacy sessions of other replicas.
//!
//! [`forward`] sends a request on to the owner of its session; [`receive`] is the owner's side. The
//! owner authenticates the client itself and answers like any other request, so a forwarded request
//! has no rights of its own.

mod bounds;
mod forward;
mod receive;

pub(super) use forward::keep_credentials;
use receive::ForwardedHere;
