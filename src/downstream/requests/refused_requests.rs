//! Audit records of requests that were refused before they became calls.
//!
//! A response that refuses carries its [`RefusalReason`]. Its request is recorded here, once,
//! whichever path the response took.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Response};

use crate::call::{Failure, Params, PeerAddress};
use crate::identity::Credential;
use crate::jsonrpc::{self, Frame};
use crate::mcp::{Method, header};
use crate::pipeline::{Gateway, RefusedRequest};

use crate::downstream::Body;
use crate::downstream::access::caller::VerifiedCaller;

/// The reason that a response refuses its request.
#[derive(Debug, Clone)]
struct RefusalReason(Failure);

/// Marks a response as a refusal.
pub(crate) fn mark_refusal(extensions: &mut Extensions, failure: &Failure) {
    extensions.insert(RefusalReason(failure.clone()));
}

/// A request that may be refused, with the data of its audit record.
pub(crate) struct AuditedRequest {
    sender: Credential,
    address: Option<IpAddr>,
    profile: String,
    session: Option<String>,
    body: Bytes,
}

impl AuditedRequest {
    pub(crate) fn new(
        headers: &HeaderMap,
        body: &Bytes,
        caller: &VerifiedCaller,
        peer: PeerAddress,
    ) -> Self {
        let session = headers.get(header::SESSION_ID).and_then(|id| id.to_str().ok());
        Self {
            sender: caller.credential().clone(),
            address: peer.socket().map(|peer| peer.ip()),
            profile: caller.endpoint().profile().to_owned(),
            session: session.map(str::to_owned),
            body: body.clone(),
        }
    }

    /// Records the request if the response refuses it.
    pub(crate) fn audit_response(&self, gateway: &Gateway, response: &Response<Body>) {
        if let Some(RefusalReason(failure)) = response.extensions().get() {
            self.audit_failure(gateway, &self.body, failure);
        }
    }

    /// Records one message of the request if its response refuses it.
    pub(crate) fn audit_message(
        &self,
        gateway: &Gateway,
        message: &Bytes,
        response: &Response<Body>,
    ) {
        if let Some(RefusalReason(failure)) = response.extensions().get() {
            self.audit_failure(gateway, message, failure);
        }
    }

    /// Records that a message was refused.
    pub(crate) fn audit_failure(&self, gateway: &Gateway, message: &Bytes, failure: &Failure) {
        // Parsed a second time: refusals are rare, and most of them happen before anything is
        // parsed.
        let (method, params) = match jsonrpc::parse(message, MAX_RECORDED_DEPTH) {
            Ok(Frame::Request { method, params, .. }) => {
                (Some(Method::parse(&method)), Params::read(params).ok())
            }
            Ok(Frame::Notification { method, .. }) => (Some(Method::parse(&method)), None),
            _ => (None, None),
        };
        let name = params.as_ref().and_then(|params| params.name().or_else(|| params.uri()));
        let request = RefusedRequest {
            sender: Some(&self.sender),
            address: self.address,
            profile: &self.profile,
            method,
            name,
            session: self.session.as_deref(),
            bytes: Some(message.len()),
        };
        gateway.audit_refusal(&request, failure);
    }
}

/// Limit of the nesting of a message that is parsed for its record.
const MAX_RECORDED_DEPTH: usize = 64;
