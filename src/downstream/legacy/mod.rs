//! Legacy clients: a session opened by `initialize`, and requests within it.

mod batch;
mod call;
mod inherited_state;
mod outbox;
mod registry;
mod resumption;
mod revival;
mod server_requests;
mod session;
mod session_state;
mod session_stream;

pub(super) use call::LegacyCall;
pub(super) use outbox::{Piece, ReplayStart};
pub use registry::SessionOverview;
pub(super) use registry::{Sessions, unguessable};
pub(super) use resumption::{ResumingSession, answer_resumable};
pub(super) use revival::session_key;
pub(super) use session::ClientSession;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::call::{Call, Client, Context, Failure, MAX_DECLARATION, Meta, Params, ParamsFault};
use crate::catalog::Kind;
use crate::jsonrpc::{self, Frame, Id, Payload, Spot};
use crate::mcp::{Era, Method, ProtocolVersion, header, notification};
use crate::pipeline::{Introduction, SubscribeAnswer, log_refused_stream};

use crate::text::clip;

use super::access::caller::VerifiedCaller;
use super::requests::dispatch::{PendingResponse, answered};
use super::requests::era::refuse_duplicates;
use super::requests::refused_requests::RefusedMessage;
use super::requests::request::{self, Posted, log_level};
use super::responses::response::{self, AcceptedForm};
use crate::downstream::{Body, EMPTY_RESULT, McpService};
use call::CallBasis;
use server_requests::Inquiry;

impl McpService {
    /// Answers one Legacy message.
    pub(super) fn legacy(
        &self,
        frame: Frame,
        posted: &Posted,
        wants: AcceptedForm,
    ) -> PendingResponse {
        if let Frame::Request { id, method, params } = &frame
            && Method::parse(method) == Method::Initialize
        {
            return match self.initialize(id, params.clone(), posted, wants) {
                Ok((response, _)) if posted.ends_with_stream() => answered(response),
                Ok((response, session)) => self.record_session(session, response),
                Err(failure) => {
                    let refused = RefusedMessage::of_posted(posted, Some(&frame));
                    self.log_refused_message(&refused, &failure);
                    answered(response::refusal(Some(id), &failure))
                }
            };
        }
        let session = match self.session_of(&posted.headers, &posted.caller) {
            Ok(session) => session,
            Err(failure) => {
                let id = request::id_of(&frame);
                return answered(response::refusal(id, &failure));
            }
        };
        match frame {
            Frame::Request { id, method, params } => {
                let asked = SessionRequest { id, method: Method::parse(&method), params, wants };
                self.serve_legacy(&session, asked, posted)
            }
            Frame::Notification { method, params } => {
                notice(&session, &method, params.as_ref());
                answered(response::empty(StatusCode::ACCEPTED))
            }
            Frame::Response { id, response } => {
                answered(match session.responded(id.as_ref(), response) {
                    Ok(()) => response::empty(StatusCode::ACCEPTED),
                    Err(failure) => response::refusal(None, &failure),
                })
            }
        }
    }

    /// Returns the session of a request, if it is open and belongs to this principal.
    pub(super) fn session_of(
        &self,
        headers: &HeaderMap,
        caller: &VerifiedCaller,
    ) -> Result<Arc<ClientSession>, Failure> {
        refuse_duplicates(headers)?;
        let id = headers.get(header::SESSION_ID).ok_or(Failure::SessionRequired)?;
        let id = id.to_str().map_err(|_| Failure::SessionLost)?;
        check_version(headers)?;
        self.sessions.find(id, caller).ok_or_else(|| self.absence_of(id, caller))
    }

    /// Returns the failure of a request for a session that is not here. One that this replica had a
    /// moment ago may have moved: only a session without a record is lost.
    fn absence_of(&self, id: &str, caller: &VerifiedCaller) -> Failure {
        match &self.cluster {
            Some(cluster)
                if cluster.has_session_id(session_key(id, caller))
                    && !cluster.is_known_lost(id) =>
            {
                Failure::ReplicaUnreachable
            }
            _ => Failure::SessionLost,
        }
    }

    fn initialize(
        &self,
        id: &Id,
        params: Option<Payload>,
        posted: &Posted,
        wants: AcceptedForm,
    ) -> Result<(Response<Body>, Arc<ClientSession>), Failure> {
        let client = read_introduction(params)?;
        let session = self.sessions.open(client, posted.caller.clone(), posted.address())?;
        let context = in_session(&session, posted, Meta::default());
        self.gateway.meet_client(&context.client);
        session.introduced(&context, self.gateway.shown(&context));
        let version = session.client().version;
        let introduction = Introduction::Initialize(version);
        let raw = self.gateway.introduce(introduction, &context);
        let mut response = response::result(id, raw, wants);
        if let Ok(value) = HeaderValue::from_str(session.id()) {
            response.headers_mut().insert(header::SESSION_ID, value);
        }
        Ok((response, session))
    }

    /// Answers `initialize` when other replicas can revive the session.
    fn record_session(
        &self,
        session: Arc<ClientSession>,
        response: Response<Body>,
    ) -> PendingResponse {
        if self.cluster.is_none() {
            return answered(response);
        }
        let sessions = Arc::clone(&self.sessions);
        Box::pin(async move {
            sessions.record(&session).await;
            response
        })
    }

    fn serve_legacy(
        &self,
        session: &Arc<ClientSession>,
        asked: SessionRequest,
        posted: &Posted,
    ) -> PendingResponse {
        let SessionRequest { id, method, params, wants } = asked;
        session.note_request();
        let read = Params::read(params).and_then(|params| Ok((params.meta()?, params)));
        let (meta, params) = match read {
            Ok(read) => read,
            Err(fault) => return answered(refuse(&id, &fault.into())),
        };
        let token = meta.progress_token.clone();
        let context = in_session(session, posted, meta);
        if let Some(kind) = Kind::listed_by(&method) {
            let (gateway, session) = (Arc::clone(&self.gateway), Arc::clone(session));
            return Box::pin(async move {
                let patience = Some(session.list_patience());
                match gateway.list(kind, &context, params.cursor(), patience).await {
                    Ok(listed) => {
                        session.listed(kind, &listed.shown);
                        response::result(&id, listed.result, wants)
                    }
                    Err(failure) => refuse(&id, &failure),
                }
            });
        }
        let done = match method {
            Method::ResourcesSubscribe => {
                let (gateway, session) = (Arc::clone(&self.gateway), Arc::clone(session));
                let sessions = Arc::clone(&self.sessions);
                return Box::pin(async move {
                    let Some(uri) = params.uri() else { return refuse(&id, &uri_missing()) };
                    match gateway.subscribe(session.subscriber(), &context, uri).await {
                        Ok(SubscribeAnswer::Subscribed) => {
                            sessions.note_change(&session);
                            response::result(&id, EMPTY_RESULT, wants)
                        }
                        Ok(SubscribeAnswer::RefusedByServer(error)) => {
                            response::json(StatusCode::OK, jsonrpc::error(Some(&id), error.raw()))
                        }
                        Err(failure) => {
                            let method = Some(Method::ResourcesSubscribe);
                            log_refused_stream(method, &context, &failure);
                            refuse(&id, &failure)
                        }
                    }
                });
            }
            method if method.is_answered_by_servers() => {
                let withdrawal = match session.begin(id.clone()) {
                    Ok(withdrawal) => withdrawal,
                    Err(failure) => return answered(refuse(&id, &failure)),
                };
                let mut writer = self.writer(id, Era::Legacy, wants, &posted.snapshot);
                writer.token = token;
                writer.method.clone_from(&method);
                let watch = self.watch_call(&posted.caller);
                let resuming = ResumingSession { session: Arc::clone(session), standing: watch };
                writer.session = Some(Box::new(resuming));
                let call = Box::new(Call { method, params, context, input: None });
                // Messages in the middle of a call need a stream.
                let inquiry = Inquiry::new(session, wants.stream());
                let basis = CallBasis { gateway: &self.gateway, snapshot: &posted.snapshot };
                let call = LegacyCall::start(basis, call, withdrawal, inquiry);
                return response::call(call, writer);
            }
            Method::Ping => Ok(()),
            Method::ResourcesUnsubscribe => params
                .uri()
                .map(|uri| {
                    session.unsubscribe(uri);
                    self.sessions.note_change(session);
                })
                .ok_or_else(uri_missing),
            Method::SetLevel => {
                set_level(session, &params).inspect(|()| self.sessions.note_change(session))
            }
            other => {
                let method = clip(other.as_str(), 128).to_owned();
                Err(Failure::MethodNotFound { method })
            }
        };
        answered(match done {
            Ok(()) => response::result(&id, EMPTY_RESULT, wants),
            Err(failure) => refuse(&id, &failure),
        })
    }
}

fn refuse(id: &Id, failure: &Failure) -> Response<Body> {
    response::refusal_in_session(id, failure)
}

/// Builds the context of a request within a session.
fn in_session(session: &ClientSession, posted: &Posted, meta: Meta) -> Context {
    let mut context = posted.context(Arc::clone(session.client()), meta);
    context.session = Some(Arc::clone(session.id()));
    context.sent = Some(Arc::clone(session.sent_results()));
    context.log = session.log_level();
    context
}

/// A request within a session.
struct SessionRequest {
    id: Id,
    method: Method,
    params: Option<Payload>,
    wants: AcceptedForm,
}

/// Parses the client's description of itself in `initialize`.
pub(super) fn read_introduction(params: Option<Payload>) -> Result<Client, ParamsFault> {
    let params = params.unwrap_or_else(|| EMPTY_RESULT.into()).read()?;
    let [version, capabilities, info] =
        params.members(&["protocolVersion", "capabilities", "clientInfo"])?;
    let version = version.ok_or(ParamsFault::Missing { member: "protocolVersion" })?;
    let version = params
        .text_at(version)
        .ok_or(ParamsFault::Kind { member: "protocolVersion", kind: "a string" })?;
    // Any other version is answered with the newest that both may speak (2025-11-25, Lifecycle,
    // "Version Negotiation").
    let version = ProtocolVersion::parse(&version)
        .filter(|version| version.era() == Era::Legacy)
        .unwrap_or(ProtocolVersion::LATEST_LEGACY);
    let object = |member, spot: Option<Spot>| {
        let raw = spot.map(|spot| params.raw_at(spot)).filter(|raw| raw.starts_with(b"{"));
        match raw {
            Some(raw) if raw.len() > MAX_DECLARATION => {
                Err(ParamsFault::TooLarge { member, limit: MAX_DECLARATION })
            }
            raw => Ok(raw.map(Bytes::copy_from_slice)),
        }
    };
    let capabilities = object("capabilities", capabilities)?.unwrap_or(EMPTY_RESULT);
    Ok(Client::new(version, object("clientInfo", info)?, capabilities))
}

/// Checks that a version header contains a Legacy version. Without one the request is 2025-03-26;
/// the session's version was negotiated when it was opened.
fn check_version(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(said) = headers.get(header::PROTOCOL_VERSION) else { return Ok(()) };
    let said = said.to_str().unwrap_or_default();
    match ProtocolVersion::parse(said) {
        Some(_) => Ok(()),
        None => Err(Failure::UnsupportedVersion { requested: clip(said, 64).to_owned() }),
    }
}

fn notice(session: &ClientSession, method: &str, params: Option<&Bytes>) {
    if method == notification::CANCELLED
        && let Some(id) = params.and_then(notification::cancelled_request)
    {
        session.withdraw(id.raw());
    }
}

/// Sets the minimum level of log messages for the session (2025-11-25, Logging, "Setting Log
/// Level").
fn set_level(session: &ClientSession, params: &Params) -> Result<(), Failure> {
    let level = params.level().ok_or(ParamsFault::Missing { member: "level" })?;
    session.set_log_level(log_level(level)?);
    Ok(())
}

fn uri_missing() -> Failure {
    ParamsFault::Missing { member: "uri" }.into()
}
