//! A POST, read within its bounds.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, Version, header};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::{sleep, timeout};

use crate::call::{
    AuditNotes, Client, Context, Failure, Meta, ParamsFault, PeerAddress, RequestFault, Trace,
};
use crate::codec::body::{BodyError, collect};
use crate::config::LimitsConfig;
use crate::jsonrpc::{Frame, Id};
use crate::mcp::{self, LogLevel, MediaType};
use crate::pipeline::audit_notes;
use crate::snapshot::Snapshot;

use super::budget::{BodyBudget, BudgetedBody, BudgetedBodyError, CountedEarly};
use crate::downstream::McpService;
use crate::downstream::access::caller::{RequestSender, VerifiedCaller};

/// A request's body, with its headers and sender.
pub(crate) struct Posted {
    pub(crate) headers: Arc<HeaderMap>,
    pub(crate) body: Bytes,
    pub(crate) caller: VerifiedCaller,
    extensions: Extensions,
    /// The snapshot that the request is answered under, to its end.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) peer: PeerAddress,
    pub(crate) transport: &'static str,
}

/// Marks a request that came through an event stream of 2024-11-05. Its session ends with the stream, so
/// no other replica revives it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndsWithStream;

impl Posted {
    /// Creates a request from its head and body.
    ///
    /// # Errors
    /// [`Failure::MediaType`] for a media type other than JSON.
    pub(crate) fn new(head: Parts, body: Bytes, from: RequestSender) -> Result<Self, Failure> {
        if !is_json(&head.headers) {
            return Err(Failure::MediaType);
        }
        Ok(Self { body, ..Self::without_body(head, from) })
    }

    /// Creates a request without its body.
    pub(crate) fn without_body(
        head: Parts,
        RequestSender { caller, peer, snapshot }: RequestSender,
    ) -> Self {
        let transport = transport_of(head.version, peer);
        let (headers, extensions) = (Arc::new(head.headers), head.extensions);
        Self { headers, body: Bytes::new(), caller, extensions, snapshot, peer, transport }
    }

    /// Returns the limits in force for this request.
    pub(crate) fn limits(&self) -> &LimitsConfig {
        &self.snapshot.config.gateway.limits
    }

    pub(crate) fn is_batch(&self) -> bool {
        self.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
    }

    /// Returns the result of counting the request towards its client's rate before its body was
    /// read, if it was counted.
    pub(crate) fn counted_early(&self) -> Option<Result<(), Failure>> {
        let CountedEarly { refusal } = self.extensions.get()?;
        Some(refusal.clone().map_or(Ok(()), Err))
    }

    /// Makes each of its messages count towards the rate, instead of the request alone.
    pub(crate) fn count_messages(&mut self) {
        self.extensions.remove::<CountedEarly>();
    }

    /// Returns true if its session ends with an event stream of 2024-11-05.
    pub(crate) fn ends_with_stream(&self) -> bool {
        self.extensions.get::<EndsWithStream>().is_some()
    }

    /// Returns the sender's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.peer.addr.ip()
    }

    /// Creates notes for the audit records of this request's calls, if there is an audit log.
    fn audit_notes(&self) -> Option<Arc<AuditNotes>> {
        let is_on = self.snapshot.config.audit.is_on();
        is_on.then(|| audit_notes(self.caller.credential()))
    }

    /// Builds the context of a call in this request.
    pub(crate) fn context(&self, client: Arc<Client>, meta: Meta) -> Context {
        let header = |name: &http::HeaderName| {
            mcp::header::text_value(&self.headers, name).map(str::to_owned)
        };
        let in_header = header(&mcp::header::TRACEPARENT);
        let state = match (&meta.traceparent, &in_header) {
            (None, Some(_)) => header(&mcp::header::TRACESTATE),
            _ => meta.tracestate,
        };
        Context {
            principal: self.caller.principal().clone(),
            grants: self.caller.credential().grants().cloned(),
            tokens: self.caller.tokens().cloned(),
            endpoint: self.caller.endpoint().clone(),
            session: None,
            sent: None,
            address: self.peer.addr.ip(),
            peer: self.peer.socket(),
            transport: self.transport,
            client,
            log: meta.log_level.as_deref().and_then(LogLevel::parse),
            progress_token: meta.progress_token,
            trace: Trace { parent: meta.traceparent, state, header: in_header, sent: None },
            headers: Arc::clone(&self.headers),
            audit: self.audit_notes(),
            by_operator: false,
        }
    }
}

/// Returns the id of a request; `None` for anything else.
pub(crate) fn id_of(frame: &Frame) -> Option<&Id> {
    match frame {
        Frame::Request { id, .. } => Some(id),
        _ => None,
    }
}

/// Returns the name of the transport of a request.
pub(crate) fn transport_of(version: Version, peer: PeerAddress) -> &'static str {
    match version {
        _ if peer.stdio => "stdio",
        Version::HTTP_2 => "http2",
        _ => "http1",
    }
}

/// Parses a log level by its name.
pub(crate) fn log_level(name: &str) -> Result<LogLevel, ParamsFault> {
    LogLevel::parse(name).ok_or_else(|| ParamsFault::log_level(name))
}

/// Returns true if a body is JSON by its media type, or has none. A media type with characters
/// outside visible ASCII is refused.
fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_none_or(|value| {
        MediaType::parse(value.as_bytes()) == MediaType::Json && value.to_str().is_ok()
    })
}

impl McpService {
    /// Reads a request's body within its limits of size, time and memory.
    pub(crate) async fn collect_body<B: Body<Data = Bytes> + Unpin>(
        &self,
        head: &mut Parts,
        body: B,
        from: &RequestSender,
    ) -> Result<Bytes, Failure> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let limits = &from.snapshot.config.gateway.limits;
        let mut body = BudgetedBody::new(body, BodyBudget::new(self, from, head));
        let collected = tokio::select! {
            // Biased: a body that has arrived already creates no timer.
            biased;
            collected = collect(&mut body, limits.body) => collected,
            () = async { sleep(patience(limits)).await } => {
                return Err(RequestFault::BodyTimeout.into());
            }
        };
        let failure = match collected {
            Ok(whole) => {
                let counted = body.counted();
                let bytes = body.hold(whole);
                if let Some(counted) = counted {
                    head.extensions.insert(counted);
                }
                return Ok(bytes);
            }
            Err(BodyError::Broken(BudgetedBodyError::Broken) | BodyError::Chatter { .. }) => {
                return Err(RequestFault::BodyIncomplete.into());
            }
            Err(BodyError::TooLarge { limit }) => Failure::BodyTooLarge { limit },
            Err(BodyError::Broken(BudgetedBodyError::OverLimit(failure))) => failure,
        };
        // A client that waits for 100 Continue has sent nothing yet.
        if !head.headers.contains_key(header::EXPECT) {
            Box::pin(pass_over(body.into_inner(), limits.body)).await;
        }
        Err(failure)
    }
}

/// Drains the rest of a refused body, within limits: a client that is still writing when its
/// connection closes would never see the refusal.
async fn pass_over<B: Body<Data = Bytes> + Unpin>(mut body: B, limit: usize) {
    let mut most = limit.saturating_mul(PASSED_OVER);
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let passed = frame.data_ref().map_or(0, Bytes::len);
            let Some(left) = most.checked_sub(passed) else { return };
            most = left;
        }
    };
    let _ = timeout(DRAIN_TIMEOUT, rest).await;
}

/// Refused bodies are drained up to this multiple of the body limit.
const PASSED_OVER: usize = 4;
/// Time limit of draining.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the time limit of a body: a slow client must not hold a connection for longer than an
/// idle one.
fn patience(limits: &LimitsConfig) -> Duration {
    limits.idle
}
