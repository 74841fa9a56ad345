//! Input that a server requests in the middle of a call: the sealed state that the client returns
//! with its retry, and the parked calls.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call::{
    Abilities, Answer, Call, Client, Endpoint, ErrorBody, Failure, Input, InputError,
    InternalFault, MOST_QUESTIONS, Params, ParamsFault, Principal, Question, ResultBody,
    ServerFault, ServerName, StateError,
};
use crate::clock;
use crate::config::GatewayConfig as Config;
use crate::crypto::{SealError, random_bytes};
use crate::era::state::{Digest, OpenedState, RequestState, Seals, StateBinding, digest};
use crate::era::tasks::ids::TaskIds;
use crate::era::{lift, lower};
use crate::jsonrpc::{JsonError, Members, Response, Splice, object, string};
use crate::mcp::question::ELICITATION;
use crate::mcp::{Era, Method};
use crate::policy::{Confirmation, Holder, KeptResource, ShareBounds, WholeText};
use crate::snapshot::Snapshots;
use crate::telemetry::metrics::Metrics;
use crate::text::clip;
use crate::upstream::parking::{Parking, ParkingLimits};

use super::kept_results::{KeptBounds, KeptResults, ResultOrigin};
use super::released_uris::ReleasedUris;
use super::tasks::{OwnTasks, TaskQuestions};

/// State that outlives calls: those that request input, and results that can be read later.
pub(super) struct InputStore {
    pub(super) parking: Arc<Parking>,
    /// Input requests by tasks of Legacy servers, for Modern clients.
    pub(super) questions: TaskQuestions,
    /// Results that clients can read later.
    pub(super) kept: KeptResults,
    /// URIs in results that clients have received.
    pub(super) released: ReleasedUris,
    pub(super) snapshots: Arc<Snapshots>,
    /// A random key, used if none is configured.
    made: OnceLock<[u8; 32]>,
}

impl InputStore {
    pub(super) fn new(snapshots: Arc<Snapshots>, metrics: &Arc<Metrics>) -> Arc<Self> {
        let (parking, questions) = (Parking::new(metrics), TaskQuestions::default());
        let (kept, released) = (KeptResults::default(), ReleasedUris::default());
        Arc::new(Self { parking, questions, kept, released, snapshots, made: OnceLock::new() })
    }

    /// Returns the bounds on the number of parked calls, and their lifetime.
    pub(super) fn bounds(&self) -> ParkingLimits {
        let config = Arc::clone(&self.snapshots.load().config);
        let limits = &config.gateway.limits;
        let amount = ShareBounds { all: limits.parked, each: limits.parked_each };
        ParkingLimits { amount, lasting: limits.parked_time }
    }

    /// Keeps a whole result for its client.
    pub(super) fn keep_result(
        &self,
        text: WholeText,
        origin: ResultOrigin,
        holder: Holder,
    ) -> Option<KeptResource> {
        let bounds = KeptBounds::of(&self.snapshots.load().config);
        self.kept.keep(text, (origin, holder), bounds)
    }

    /// Returns the task ids of this principal.
    pub(super) fn tasks(&self, owner: &Principal) -> Result<OwnTasks, Failure> {
        let ids = self.with_keys(|keys| Ok(TaskIds::new(keys.iter().copied())))?;
        Ok(OwnTasks { ids, owner: owner.clone(), tool: None })
    }

    /// Built for each use: keys change with the configuration, and sealing happens only where a
    /// person answers, so it is rare.
    fn seals(&self) -> Result<Seals, Failure> {
        self.with_keys(|keys| Seals::new(keys.iter().copied()).map_err(sealing_failed))
    }

    /// Seals a state that lasts this long.
    pub(super) fn seal_state(
        &self,
        state: RequestState,
        bound: StateBinding<'_>,
        lasting: Duration,
    ) -> Result<String, Failure> {
        self.seals()?.seal(state, bound, clock::unix_now(), lasting).map_err(sealing_failed)
    }

    /// Opens a state of this principal and request; `None` if it is too old or was sealed for
    /// another.
    pub(super) fn open_state(
        &self,
        sealed: &str,
        principal: &str,
        request: &Digest,
    ) -> Option<OpenedState> {
        self.seals().ok()?.open(sealed, principal, || *request, clock::unix_now()).ok()
    }

    fn with_keys<T>(
        &self,
        with: impl FnOnce(&[&[u8]]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let config: &Config = &Arc::clone(&self.snapshots.load().config).gateway;
        if !config.state_keys.is_empty() {
            let keys = config.state_keys.iter().map(|key| key.expose().as_bytes());
            return with(&keys.collect::<Vec<_>>());
        }
        let made = if let Some(made) = self.made.get() {
            made
        } else {
            let key = random_bytes().map_err(|_| InternalFault::Seal)?;
            self.made.get_or_init(|| key)
        };
        with(&[made.as_slice()])
    }
}

fn sealing_failed(_: SealError) -> Failure {
    InternalFault::Seal.into()
}

/// The sender and the content of a request: a sealed state is bound to both.
pub(super) struct Requester {
    pub(super) inputs: Arc<InputStore>,
    pub(super) client: Arc<Client>,
    pub(super) principal: Principal,
    address: IpAddr,
    /// Names may have other meanings at another profile's URL.
    endpoint: Endpoint,
    /// The server of the call, once it is routed.
    pub(super) server: Option<ServerName>,
    /// The user's confirmation of the call.
    pub(super) confirmation: Confirmation,
    /// Number of login links that the call was answered with so far.
    pub(super) login_links: u8,
    pub(super) method: Method,
    params: Bytes,
}

impl Requester {
    pub(super) fn bind(inputs: &Arc<InputStore>, call: &Call) -> Self {
        Self {
            inputs: Arc::clone(inputs),
            client: Arc::clone(&call.context.client),
            principal: call.context.principal.clone(),
            address: call.context.address,
            endpoint: call.context.endpoint.clone(),
            server: None,
            confirmation: Confirmation::Missing,
            login_links: 0,
            method: call.method.clone(),
            params: call.params.raw().clone(),
        }
    }

    /// Returns the task ids as this client knows them.
    pub(super) fn tasks(&self) -> Result<OwnTasks, Failure> {
        self.inputs.tasks(&self.principal)
    }

    /// Returns the holder that parked calls are charged to.
    pub(super) fn holder(&self) -> Holder {
        Holder::identify(&self.principal, self.address)
    }

    /// Returns true if this client has received a server's URI in a result.
    pub(super) fn has_seen(&self, server: &ServerName, native: &str) -> bool {
        self.inputs.released.has(&self.holder(), server, native)
    }

    /// Removes the client's capabilities from this requester and its call.
    pub(super) fn hide_capabilities(&mut self, call: &mut Call) -> Result<(), Failure> {
        self.client = Arc::new(self.client.without_capabilities());
        call.context.client = Arc::clone(&self.client);
        let declare = || lift::declare_capabilities(&call.params, b"{}");
        let declared = self.is_modern().then(declare).flatten();
        if let Some(raw) = declared {
            call.params = parse_params(raw)?;
        }
        Ok(())
    }

    pub(super) fn abilities(&self) -> &Abilities {
        self.client.abilities()
    }

    pub(super) fn is_modern(&self) -> bool {
        self.client.version.era() == Era::Modern
    }

    pub(super) fn server(&self) -> Result<&ServerName, Failure> {
        Ok(self.server.as_ref().ok_or(InternalFault::NoServer)?)
    }

    /// Seals a state for this request.
    pub(super) fn seal_state(&self, state: RequestState) -> Result<String, Failure> {
        let (principal, request) = (self.binding(), self.digest());
        let bound = StateBinding { principal: &principal, request: &request };
        let lasting = self.inputs.bounds().lasting;
        let sealed = self.inputs.seals()?.seal(state, bound, clock::unix_now(), lasting);
        sealed.map_err(sealing_failed)
    }

    /// Opens a state that this request carries.
    pub(super) fn open(&self, state: &str) -> Result<OpenedState, Failure> {
        let digest = || self.digest();
        Ok(self.inputs.seals()?.open(state, &self.binding(), digest, clock::unix_now())?)
    }

    /// Opens the state that a retry to this server carries.
    pub(super) fn open_state(
        &self,
        input: &Input,
        server: &ServerName,
    ) -> Result<Option<OpenedState>, Failure> {
        let Some(state) = input.state.as_deref() else { return Ok(None) };
        let opened = self.open(state)?;
        match &opened.state {
            RequestState::Server { server: other, .. } if other != server.as_str() => {
                Err(StateError::OtherRequest.into())
            }
            _ => Ok(Some(opened)),
        }
    }

    /// Returns the principal as sealed states contain it.
    fn binding(&self) -> String {
        let principal = match &self.principal {
            Principal::Anonymous => "anonymous",
            Principal::Client(name) => &format!("client {name}"),
            Principal::User(name) => &format!("user {name}"),
        };
        // The whole endpoint, because its narrowing limits the client's view: a state must not lead
        // from one view to another. Profile names contain no question mark.
        let narrowing = self.endpoint.narrowing.as_deref().unwrap_or_default();
        format!("{principal} at {}?{narrowing}", self.endpoint.profile())
    }

    fn digest(&self) -> Digest {
        digest(self.method.as_str(), &self.params)
    }

    /// Prepares an `InputRequiredResult` of the server for the client: checks that the client can
    /// answer every request, and seals the state.
    pub(super) fn relay_questions(&self, result: &ResultBody) -> Result<ResultBody, Failure> {
        let server = self.server()?;
        let bad = |fault| Failure::bad_answer(server.clone(), ServerFault::Answer(fault));
        let asked = result.asked().map_err(bad)?;
        let Some(asked) = asked else { return Ok(result.clone()) };
        let abilities = self.abilities();
        if let Some(needed) =
            asked.questions.iter().find_map(|(_, one)| one.missing_capability(abilities))
        {
            return Err(Failure::InputNeeded { needed });
        }
        let Some((state, span)) = asked.state else {
            return if self.confirmation.is_given() {
                self.add_confirmed_state(result)
            } else {
                Ok(result.clone())
            };
        };
        let sealed = self.seal_state(RequestState::Server { server: server.to_string(), state })?;
        let raw = Splice::new(result.raw()).replace(span, string(&sealed)).finish();
        result.with(raw).map_err(bad)
    }

    /// Adds a state to a result that requests input without one, so that the user does not have to
    /// confirm the call again.
    fn add_confirmed_state(&self, result: &ResultBody) -> Result<ResultBody, Failure> {
        let sealed = self.seal_state(RequestState::Confirmed)?;
        let raw = result.raw();
        let end = raw.iter().rposition(|byte| *byte == b'}').unwrap_or(raw.len());
        let member = format!(",\"requestState\":{}", string(&sealed));
        let raw = Splice::new(raw).replace(end..end, member).finish();
        Ok(result.with(raw).map_err(InternalFault::Result)?)
    }

    /// Turns a Legacy server's error that requires the user to open URLs first (2025-11-25,
    /// Elicitation, "URL Elicitation Required Error") into a request for input; the retry is a new
    /// call.
    pub(super) fn relay_url_elicitations(&self, error: ErrorBody) -> Result<Answer, Failure> {
        let Some(questions) = parse_url_elicitations(&error) else {
            return Ok(Answer::Error(error));
        };
        if let Some(needed) =
            questions.iter().find_map(|one| one.missing_capability(self.abilities()))
        {
            return Err(Failure::InputNeeded { needed });
        }
        let keys: Vec<_> = (1..=questions.len()).map(|number| format!("input-{number}")).collect();
        let asked = keys.iter().map(String::as_str).zip(&questions);
        self.build_question_result(asked, RequestState::Anew).map(Answer::Result)
    }

    /// Builds an `InputRequiredResult` with these input requests and this state.
    pub(super) fn build_question_result<'a>(
        &self,
        questions: impl IntoIterator<Item = (&'a str, &'a Question)>,
        state: RequestState,
    ) -> Result<ResultBody, Failure> {
        let state = self.seal_state(state)?;
        let mut raw = BytesMut::new();
        raw.put_slice(b"{\"resultType\":\"input_required\",\"inputRequests\":{");
        for (number, (key, question)) in questions.into_iter().enumerate() {
            if number > 0 {
                raw.put_u8(b',');
            }
            raw.put_slice(string(key).as_bytes());
            raw.put_slice(b":{\"method\":");
            raw.put_slice(string(&question.method).as_bytes());
            if let Some(params) = &question.params {
                raw.put_slice(b",\"params\":");
                raw.put_slice(params);
            }
            raw.put_u8(b'}');
        }
        raw.put_slice(b"},\"requestState\":");
        raw.put_slice(string(&state).as_bytes());
        raw.put_u8(b'}');
        Ok(ResultBody::parse(raw.freeze()).map_err(InternalFault::Result)?)
    }
}

/// Returns the elicitations that a URL elicitation error lists.
fn parse_url_elicitations(error: &ErrorBody) -> Option<Vec<Question>> {
    #[derive(Deserialize)]
    struct UrlElicitationError<'a> {
        #[serde(borrow)]
        data: UrlElicitations<'a>,
    }
    #[derive(Deserialize)]
    struct UrlElicitations<'a> {
        #[serde(borrow)]
        elicitations: Vec<&'a RawValue>,
    }
    let refusal: UrlElicitationError<'_> = object(error.raw()).ok()?;
    let question = |params: &RawValue| {
        let params = Some(Bytes::copy_from_slice(params.get().as_bytes()));
        lift::question(&Question { method: ELICITATION.into(), params })
    };
    let questions: Vec<_> = refusal.data.elicitations.into_iter().map(question).collect();
    let is_valid = (1..=MOST_QUESTIONS).contains(&questions.len())
        && !questions.iter().any(Question::is_ambiguous);
    is_valid.then_some(questions)
}

/// Checks that the user opened the server's URLs, before the call is made anew.
pub(super) fn check_accepted(input: &Input) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct ElicitationAnswer<'a> {
        #[serde(borrow)]
        action: Cow<'a, str>,
    }
    for (_, response) in &input.responses {
        let Response::Result(raw) = response else { return Err(input_refused_with(response)) };
        let said: Result<ElicitationAnswer<'_>, _> = object(raw);
        match said.as_ref().map(|said| &*said.action) {
            Ok("accept") => {}
            Ok("decline") => return Err(InputError::Declined.into()),
            _ => return Err(InputError::Dismissed.into()),
        }
    }
    Ok(())
}

/// Returns the client's answers and its state: from the params, or, for a Legacy client, from the
/// responses that `downstream` has gathered.
pub(super) fn read_input(call: &Call) -> Result<Option<Input>, Failure> {
    if call.method == Method::TasksUpdate {
        // The answers are for the task, regardless of the call that created it.
        return Ok(None);
    }
    if call.context.client.version.era() == Era::Legacy {
        return Ok(call.input.clone());
    }
    read_modern_input(call)
}

/// Returns the answers of a Modern client, from its params.
pub(super) fn read_modern_input(call: &Call) -> Result<Option<Input>, Failure> {
    let state = call.params.state().map(str::to_owned);
    let raw = call.params.responses_span().and_then(|span| call.params.raw().get(span));
    if state.is_none() && raw.is_none() {
        return Ok(None);
    }
    let members = match raw.map(Members::parse) {
        None => Vec::new(),
        Some(Ok(members)) => members.0,
        Some(Err(JsonError::DuplicateKey { key })) => {
            return Err(ParamsFault::DuplicateResponse { key }.into());
        }
        Some(Err(_)) => {
            let (member, kind) = ("inputResponses", "an object");
            return Err(ParamsFault::Kind { member, kind }.into());
        }
    };
    if members.len() > MOST_QUESTIONS {
        return Err(ParamsFault::TooManyResponses { limit: MOST_QUESTIONS }.into());
    }
    let mut responses = Vec::with_capacity(members.len());
    for (key, response) in members {
        let raw = Bytes::copy_from_slice(response.get().as_bytes());
        responses.push((key.into_owned(), Response::Result(raw.into())));
    }
    Ok(Some(Input { state, responses }))
}

/// Checks that every answer is an object, as results are.
pub(super) fn check_responses(input: &Input) -> Result<(), Failure> {
    let other = |(_, response): &&(String, Response)| match response {
        Response::Result(raw) => raw.first() != Some(&b'{'),
        Response::Error(_) => false,
    };
    match input.responses.iter().find(other) {
        Some((key, _)) => Err(ParamsFault::InputResponse { key: clip(key, 64).to_owned() }.into()),
        None => Ok(()),
    }
}

/// Returns the params of a retry as the server receives them: with the client's answers and the
/// server's own state.
pub(super) fn params_for_server(
    params: &Params,
    input: &Input,
    state: Option<&RequestState>,
) -> Result<Params, Failure> {
    let own = match state {
        Some(RequestState::Server { state, .. }) => Some(string(state)),
        Some(RequestState::Anew | RequestState::Login { .. }) => {
            check_accepted(input)?;
            let raw = lower::without_input(params.raw());
            return parse_params(raw);
        }
        Some(RequestState::Parked(_) | RequestState::Confirm | RequestState::Confirmed) | None => {
            None
        }
    };
    let mut responses = BytesMut::from(&b"{"[..]);
    for (number, (key, response)) in input.responses.iter().enumerate() {
        let Response::Result(raw) = response else { return Err(input_refused_with(response)) };
        if number > 0 {
            responses.put_u8(b',');
        }
        responses.put_slice(string(key).as_bytes());
        responses.put_u8(b':');
        responses.put_slice(raw);
    }
    responses.put_u8(b'}');
    parse_params(lower::with_input(params.raw(), &responses, own.as_deref()))
}

pub(super) fn parse_params(raw: Bytes) -> Result<Params, Failure> {
    Ok(Params::parse(Some(raw)).map_err(InternalFault::Params)?)
}

/// Returns the failure for a client's error response, with its message.
pub(super) fn input_refused_with(response: &Response) -> Failure {
    let (Response::Result(raw) | Response::Error(raw)) = response;
    let error: Value = serde_json::from_slice(raw).unwrap_or_default();
    let message = error.get("message").and_then(Value::as_str);
    InputError::Error { message: message.map(|message| clip(message, 200).to_owned()) }.into()
}
