//! Audit records and access log lines of requests that were refused before they became calls.
//!
//! A response that refuses carries its [`RefusalReason`]. Its request is recorded here, once,
//! whichever path the response took.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, Response};

use crate::call::{Failure, Params, PeerAddress};
use crate::identity::Credential;
use crate::jsonrpc::{self, Frame};
use crate::mcp::{Method, header};
use crate::pipeline::{Gateway, RefusedRequest, log_refused_request};
use crate::telemetry::CallRecord;

use super::request::{Posted, transport_of};
use crate::downstream::access::caller::{RequestSender, VerifiedCaller};
use crate::downstream::legacy::read_introduction;
use crate::downstream::modern::read_modern_client;
use crate::downstream::{Body, McpService};

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
            ..RefusedRequest::default()
        };
        gateway.audit_refusal(&request, failure);
    }
}

/// A message that was refused before it became a call.
pub(crate) struct RefusedMessage<'a> {
    headers: &'a HeaderMap,
    caller: &'a VerifiedCaller,
    peer: PeerAddress,
    transport: &'static str,
    frame: Option<&'a Frame>,
}

impl<'a> RefusedMessage<'a> {
    /// A message of a request that was read, and its frame if it could be parsed.
    pub(crate) fn of_posted(posted: &'a Posted, frame: Option<&'a Frame>) -> Self {
        let Posted { headers, caller, peer, transport, .. } = posted;
        Self { headers, caller, peer: *peer, transport, frame }
    }

    /// A request of which only the head was read.
    pub(crate) fn unread(head: &'a Parts, from: &'a RequestSender) -> Self {
        let transport = transport_of(head.version, from.peer);
        Self {
            headers: &head.headers,
            caller: &from.caller,
            peer: from.peer,
            transport,
            frame: None,
        }
    }
}

impl McpService {
    /// Writes the line of a refused message to the access log.
    pub(crate) fn log_refused_message(&self, message: &RefusedMessage<'_>, failure: &Failure) {
        if !CallRecord::is_logged() {
            return;
        }
        let RefusedMessage { headers, caller, peer, transport, frame } = *message;
        let (method, params) = match frame {
            Some(Frame::Request { method, params, .. }) => (Some(&**method), params.clone()),
            Some(Frame::Notification { method, .. }) => (Some(&**method), None),
            _ => (None, None),
        };
        let method = method.map(Method::parse);
        let read = Params::read(params.clone()).ok();
        let session = self.session_of(headers, caller).ok();
        let client = match (&session, &method) {
            (Some(session), _) => Some(Arc::clone(session.client())),
            (None, Some(Method::Initialize)) => read_introduction(params).ok().map(Arc::new),
            (None, _) => read.as_ref().and_then(read_modern_client),
        };
        let name = read.as_ref().and_then(|params| params.name().or_else(|| params.uri()));
        let request = RefusedRequest {
            address: peer.socket().map(|peer| peer.ip()),
            profile: caller.endpoint().profile(),
            method,
            name,
            client: client.as_deref(),
            transport,
            ..RefusedRequest::default()
        };
        log_refused_request(Some(caller.principal()), &request, failure);
    }
}

/// Limit of the nesting of a message that is parsed for its record.
const MAX_RECORDED_DEPTH: usize = 64;
