//! What servers ask of clients in the middle of a call: sampling, elicitation,
//! roots.
//!
//! A request of a Legacy server is tied to the one call that can have caused
//! it ([`questions`], [`outside`]), or refused. While its client answers, the
//! rest of the reply is parked ([`parking`]) and the call's [`deadline`] stands
//! still. Nothing here knows by which transport a request came.

pub(in crate::upstream) mod deadline;
pub(in crate::upstream) mod given_up;
pub(in crate::upstream) mod outside;
pub mod parking;
pub(in crate::upstream) mod questions;
