//! Modern clients: every request is self-contained.

mod listen;
pub(super) mod stream_register;

use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};

use crate::call::{
    Call, Client, Event, Failure, HeaderFault, Meta, Params, ParamsFault, RequestFault, boxed,
};
use crate::catalog::Kind;
use crate::jsonrpc::{Frame, Id};
use crate::mcp::header::{DuplicateHeaderError, MessageHeaders, SentHeader};
use crate::mcp::{
    Era, HeaderValueError, Method, ProtocolVersion, decode_value, header, is_encoded_value, meta,
};
use crate::pipeline::{ActiveCall, Introduction, StartingCall};

use crate::text::clip;

use super::access::caller::AccessWatch;
use super::requests::dispatch::{PendingResponse, answered};
use super::requests::request::{Posted, log_level};
use super::responses::event_stream::{Steps, StreamStep};
use super::responses::response::{self, AcceptedForm};
use crate::downstream::McpService;

/// A request with checked headers and metadata.
struct ModernRequest {
    id: Id,
    method: Method,
    params: Params,
    meta: Meta,
    wants: AcceptedForm,
}

impl McpService {
    /// Answers one Modern message.
    pub(super) fn modern(
        &self,
        frame: Frame,
        headers: &MessageHeaders<'_>,
        posted: &Posted,
        wants: AcceptedForm,
    ) -> PendingResponse {
        let (id, method, params) = match frame {
            Frame::Request { id, method, params } => (id, Method::parse(&method), params),
            // This revision defines no notifications over HTTP; accept them all.
            Frame::Notification { .. } => {
                return answered(response::empty(StatusCode::ACCEPTED));
            }
            Frame::Response { .. } => {
                let failure = RequestFault::ModernResponse.into();
                return answered(response::refusal(None, &failure));
            }
        };
        let checked = Params::read(params)
            .map_err(Failure::InvalidMeta)
            .and_then(|params| check(headers, &method, &params).map(|meta| (params, meta)));
        match checked {
            Ok((params, meta)) => {
                self.serve_modern(ModernRequest { id, method, params, meta, wants }, posted)
            }
            Err(Failure::HeaderMismatch(fault))
                if method == Method::Discover && is_of_a_legacy_transport(&fault) =>
            {
                answered(response::refusal(Some(&id), &Failure::SessionRequired))
            }
            Err(failure) => answered(response::refusal(Some(&id), &failure)),
        }
    }

    fn serve_modern(&self, request: ModernRequest, posted: &Posted) -> PendingResponse {
        let ModernRequest { id, method, params, meta, wants } = request;
        let refuse = |id: &Id, failure: &Failure| response::refusal(Some(id), failure);
        let token = meta.progress_token.clone();
        let context = posted.context(client(&meta), meta);
        self.gateway.meet_client(&context.client);
        self.gateway.see_client(&context);
        if let Some(kind) = Kind::listed_by(&method) {
            let gateway = Arc::clone(&self.gateway);
            return Box::pin(async move {
                match gateway.list(kind, &context, params.cursor(), None).await {
                    Ok(listed) => response::result(&id, listed.result, wants),
                    Err(failure) => refuse(&id, &failure),
                }
            });
        }
        match method {
            Method::Discover => {
                let raw = self.gateway.introduce(Introduction::Discover, &context);
                answered(response::result(&id, raw, wants))
            }
            Method::Listen => {
                let opened = self.listen(&id, &params, context, &posted.caller);
                answered(opened.unwrap_or_else(|failure| refuse(&id, &failure)))
            }
            method if method.is_answered_by_servers() => {
                let mut writer = self.writer(id, Era::Modern, wants, &posted.snapshot);
                writer.token = token;
                writer.method.clone_from(&method);
                let standing = self.watch_call(&posted.caller);
                let call = boxed(|| Call { method, params, context, input: None });
                let starting = self.gateway.call(Arc::clone(&posted.snapshot), call);
                let call = ModernCall { stage: ModernStage::Starting(starting), standing };
                response::call(call, writer)
            }
            other => {
                let method = clip(other.as_str(), 128).to_owned();
                answered(refuse(&id, &Failure::MethodNotFound { method }))
            }
        }
    }
}

/// A Modern client's call: it ends with the client's connection, or its access.
pub(super) struct ModernCall {
    stage: ModernStage,
    standing: AccessWatch,
}

/// Stages of a call.
enum ModernStage {
    /// Being sent to the server; no answer yet.
    Starting(StartingCall),
    /// The answer has begun.
    Coming(Box<ActiveCall>),
}

impl ModernStage {
    async fn next(&mut self) -> Option<Event> {
        loop {
            match self {
                Self::Starting(starting) => *self = Self::Coming(starting.await),
                Self::Coming(exchange) => return exchange.next().await,
            }
        }
    }
}

impl Steps for ModernCall {
    async fn next(&mut self) -> Option<StreamStep> {
        let event = tokio::select! {
            biased;
            event = self.stage.next() => event,
            () = self.standing.revoked() => Some(Event::Answer(Err(self.standing.revocation()))),
        };
        event.map(StreamStep::Event)
    }
}

fn client(meta: &Meta) -> Arc<Client> {
    let capabilities =
        meta.capabilities.clone().unwrap_or_else(|| crate::downstream::EMPTY_RESULT.clone());
    Arc::new(Client::new(ProtocolVersion::LATEST_MODERN, meta.client_info.clone(), capabilities))
}

/// Reads the client of a Modern request from its params; `None` if they are not those of one.
pub(super) fn read_modern_client(params: &Params) -> Option<Arc<Client>> {
    let meta = params.meta().ok()?;
    meta.version.is_some().then(|| client(&meta))
}

/// Checks the required members of every Modern request, in `_meta` and, repeated, in its headers
/// (2026-07-28, Streamable HTTP, "Server Validation").
fn check(headers: &MessageHeaders<'_>, method: &Method, params: &Params) -> Result<Meta, Failure> {
    let meta = params.meta().map_err(Failure::InvalidMeta)?;
    let said = single(headers.version, &header::PROTOCOL_VERSION)?;
    let missing = |key| Failure::InvalidMeta(ParamsFault::MissingMeta { key });
    let Some(version) = meta.version.as_deref() else {
        return Err(match said {
            // In an unknown version, `_meta` may differ.
            Some(said) if ProtocolVersion::parse(said).is_none() => unsupported(said),
            _ => missing(meta::PROTOCOL_VERSION),
        });
    };
    same(&header::PROTOCOL_VERSION, said, version)?;
    if ProtocolVersion::parse(version).map(ProtocolVersion::era) != Some(Era::Modern) {
        return Err(unsupported(version));
    }
    if meta.capabilities.is_none() {
        return Err(missing(meta::CLIENT_CAPABILITIES));
    }
    if let Some(level) = &meta.log_level {
        log_level(level).map_err(Failure::InvalidMeta)?;
    }
    same(&header::METHOD, single(headers.method, &header::METHOD)?, method.as_str())?;
    let named = match method.name_param() {
        Some("uri") => params.uri(),
        Some("taskId") => params.task(),
        Some(_) => params.name(),
        None => None,
    };
    if let Some(named) = named {
        check_name(single(headers.name, &header::NAME)?, named)?;
    }
    Ok(meta)
}

/// Returns true if the header fault of a `server/discover` may come from a client with a Legacy
/// transport: some send it without the headers of this revision, or with a Legacy version. A
/// mismatch error would indicate to such a client that the gateway speaks the Modern era only;
/// after any error that is not a Modern one it continues with `initialize` (2026-07-28, Versioning,
/// "Backward Compatibility with Initialization-Based Versions").
fn is_of_a_legacy_transport(fault: &HeaderFault) -> bool {
    match fault {
        HeaderFault::Mismatch { name, header, .. } if *name == header::PROTOCOL_VERSION => {
            ProtocolVersion::parse(header).map(ProtocolVersion::era) == Some(Era::Legacy)
        }
        fault => matches!(fault, HeaderFault::Missing { .. } | HeaderFault::Mismatch { .. }),
    }
}

fn check_name(said: Option<&str>, named: &str) -> Result<(), Failure> {
    // The header may be encoded: it is decoded before the comparison.
    if said == Some(named) && !is_encoded_value(named) {
        return Ok(());
    }
    let said = said.map(decode_value).transpose();
    let said = said.map_err(|fault| HeaderFault::Encoding { name: header::NAME, fault })?;
    Ok(same(&header::NAME, said.as_deref(), named)?)
}

fn same(name: &HeaderName, said: Option<&str>, body: &str) -> Result<(), HeaderFault> {
    let (name, quote) = (|| name.clone(), |value| clip(value, 128).to_owned());
    match said {
        Some(said) if said == body => Ok(()),
        Some(said) => {
            Err(HeaderFault::Mismatch { name: name(), header: quote(said), body: quote(body) })
        }
        None => Err(HeaderFault::Missing { name: name(), body: quote(body) }),
    }
}

/// Returns a header that occurs once, or not at all.
fn single<'a>(sent: SentHeader<'a>, name: &HeaderName) -> Result<Option<&'a str>, HeaderFault> {
    let value = sent
        .single()
        .map_err(|DuplicateHeaderError| HeaderFault::Duplicate { name: name.clone() })?;
    value.map(HeaderValue::to_str).transpose().map_err(|_| HeaderFault::Encoding {
        name: name.clone(),
        fault: HeaderValueError::Characters,
    })
}

fn unsupported(requested: &str) -> Failure {
    Failure::UnsupportedVersion { requested: clip(requested, 64).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn checked(headers: &[(&str, &str)], params: String) -> Result<Meta, Failure> {
        let params = Params::parse(Some(Bytes::from(params))).unwrap();
        let map: http::HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        check(&MessageHeaders::read(&map), &Method::ToolsCall, &params)
    }

    #[test]
    fn headers_and_body_have_to_agree() {
        let version = ("mcp-protocol-version", "2026-07-28");
        let method = ("mcp-method", "tools/call");
        let named = format!(r#"{{"name":"é",{META}}}"#);
        let encoded = ("mcp-name", "=?base64?w6k=?=");
        assert!(checked(&[version, method, encoded], named.clone()).is_ok());
        for headers in [
            vec![method, encoded],
            vec![version, encoded],
            vec![version, method],
            vec![version, method, ("mcp-name", "e")],
            vec![version, version, method, encoded],
            vec![version, ("mcp-method", "tools/list"), encoded],
            vec![("mcp-protocol-version", "2025-11-25"), method, encoded],
        ] {
            let failure = checked(&headers, named.clone()).unwrap_err();
            assert_eq!(failure.wire().code, crate::mcp::code::HEADER_MISMATCH, "{headers:?}");
        }
    }

    #[test]
    fn an_unknown_version_differs_from_a_missing_one() {
        let other = META.replace("2026-07-28", "v999");
        let failure = checked(&[("mcp-protocol-version", "v999")], format!("{{{other}}}"));
        assert_eq!(failure.unwrap_err().wire().code, crate::mcp::code::UNSUPPORTED_VERSION);
        let failure = checked(&[("mcp-protocol-version", "2026-07-28")], "{}".into()).unwrap_err();
        assert_eq!((failure.wire().code, failure.wire().status), (-32602, 400));
    }
}
