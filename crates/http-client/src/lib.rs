//! Outgoing requests: connections to servers over HTTP/1.1 and HTTP/2.
//!
//! An [`HttpClient`] sends requests to one server of the configuration: with its fixed headers and
//! its TLS roots, on connections that are kept, with redirects inside its origin only, and signed for
//! AWS if the configuration asks for it. Headers that depend on a call are written straight into the
//! request ([`RequestHeaders`]); those that depend on the whole request, such as a proof of
//! possession, come from a [`RequestSigner`] of the caller. A [`ResponseBody`] returns its connection to
//! the pool at its end, and is decoded on demand ([`decode_body`]).
//!
//! [`outbound`] sends requests to URLs that are learned at run time. Its guard is here, because the
//! addresses of a name are judged where the connection to one of them is opened.
//!
//! A [`JsonService`] is a service that the operator names: an interceptor, or one for embeddings.
//!
//! Nothing here knows MCP's messages, calls or tokens: errors are of transport ([`HttpError`]), and
//! the caller gives them their meaning.

#![warn(unreachable_pub)]

pub mod outbound;
mod json_service;
mod client;
mod aws;
mod request;
mod pool;
mod target;
mod resolver;
mod body;
mod idle;
mod connect_fault;
mod connection;
mod error;

pub use body::{HeldValue, ResponseBody, decode_body};
pub use client::{HttpClient, RedirectedTo};
pub use error::{HttpError, HttpSetupFault, SignatureFault, TransportError};
pub use json_service::{JsonService, JsonServiceFault};
pub use request::{OutgoingRequest, RequestHeaders, RequestSigner, SignableRequest};
pub use target::RequestTarget;
pub use trunkline_https::TlsSetupError;
