//! The sender of a call and the content of its request, to which sealed states are bound.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call::{
    Abilities, Answer, Call, Client, Endpoint, ErrorBody, Failure, Input, InternalFault,
    MAX_QUESTIONS, Principal, Question, ResultBody, ServerFault, ServerName, StateError,
};
use crate::clock;
use crate::crypto::NONCE_LEN;
use crate::era::lift;
use crate::era::state::{Digest, OpenedState, RequestState, StateBinding, StateId, digest};
use crate::jsonrpc::{Splice, object, string};
use crate::mcp::question::ELICITATION;
use crate::mcp::{Era, Method};
use crate::policy::Confirmation;
use crate::shares::Holder;

use super::task_ids::OwnTasks;
use super::{InputStore, parse_params, sealing_failed};

/// The sender of a request, to which a sealed state is bound.
#[derive(Debug, Clone, Copy)]
pub struct StateSender<'a> {
    /// The principal.
    pub principal: &'a Principal,
    /// The endpoint. Names may have other meanings at another profile's URL.
    pub endpoint: &'a Endpoint,
}

/// The sender and the content of a request: a sealed state is bound to both.
pub(crate) struct Requester {
    pub(crate) inputs: Arc<InputStore>,
    pub(crate) client: Arc<Client>,
    pub(crate) principal: Principal,
    address: IpAddr,
    /// Names may have other meanings at another profile's URL.
    endpoint: Endpoint,
    /// The server of the call, once it is routed.
    pub(crate) server: Option<ServerName>,
    /// The user's confirmation of the call.
    pub(crate) confirmation: Confirmation,
    /// Number of login links that the call was answered with so far.
    pub(crate) login_links: u8,
    pub(crate) method: Method,
    params: Bytes,
}

impl Requester {
    pub(crate) fn bind(inputs: &Arc<InputStore>, call: &Call) -> Self {
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
    pub(crate) fn tasks(&self) -> Result<OwnTasks, Failure> {
        self.inputs.tasks(&self.principal)
    }

    /// Returns the holder that parked calls are charged to.
    pub(crate) fn holder(&self) -> Holder {
        Holder::identify(&self.principal, self.address)
    }

    /// Returns true if this client has received a server's URI in a result.
    pub(crate) fn has_seen(&self, server: &ServerName, native: &str) -> bool {
        self.inputs.released.has(&self.holder(), server, native)
    }

    /// Removes the client's capabilities from this requester and its call.
    pub(crate) fn hide_capabilities(&mut self, call: &mut Call) -> Result<(), Failure> {
        self.client = Arc::new(self.client.without_capabilities());
        call.context.client = Arc::clone(&self.client);
        let declare = || lift::declare_capabilities(&call.params, b"{}");
        let declared = self.is_modern().then(declare).flatten();
        if let Some(raw) = declared {
            call.params = parse_params(raw)?;
        }
        Ok(())
    }

    pub(crate) fn abilities(&self) -> &Abilities {
        self.client.abilities()
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.client.version.era() == Era::Modern
    }

    pub(crate) fn server(&self) -> Result<&ServerName, Failure> {
        Ok(self.server.as_ref().ok_or(InternalFault::NoServer)?)
    }

    /// Seals a state for this request.
    pub(crate) fn seal_state(&self, state: RequestState) -> Result<String, Failure> {
        let (principal, request) = (self.binding(), self.digest());
        let bound = StateBinding { principal: &principal, request: &request };
        let lasting = self.inputs.bounds().lasting;
        let sealed = self.inputs.seals()?.seal(state, bound, clock::unix_now(), lasting);
        sealed.map_err(sealing_failed)
    }

    /// Opens a state that this request carries.
    pub(crate) fn open(&self, state: &str) -> Result<OpenedState, Failure> {
        let digest = || self.digest();
        Ok(self.inputs.seals()?.open(state, &self.binding(), digest, clock::unix_now())?)
    }

    /// Opens the state that a retry to this server carries.
    pub(crate) fn open_state(
        &self,
        input: &Input,
        server: &ServerName,
    ) -> Result<Option<OpenedState>, Failure> {
        let Some(state) = input.state.as_deref() else { return Ok(None) };
        let opened = match self.open(state) {
            Err(_) if self.inputs.passes_states() => {
                let state =
                    RequestState::Server { server: server.to_string(), state: state.into() };
                let id = StateId { until: 0, nonce: [0; NONCE_LEN] };
                return Ok(Some(OpenedState { state, id }));
            }
            opened => opened?,
        };
        match &opened.state {
            RequestState::Server { server: other, .. } if other != server.as_str() => {
                Err(StateError::OtherRequest.into())
            }
            _ => Ok(Some(opened)),
        }
    }

    /// Returns the sender as sealed states contain it.
    fn binding(&self) -> String {
        StateSender { principal: &self.principal, endpoint: &self.endpoint }.binding()
    }

    fn digest(&self) -> Digest {
        digest(self.method.as_str(), &self.params)
    }

    /// Prepares an `InputRequiredResult` of the server for the client: checks that the client can
    /// answer every request, and seals the state.
    pub(crate) fn relay_questions(&self, result: &ResultBody) -> Result<ResultBody, Failure> {
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
        if self.inputs.passes_states() {
            return Ok(result.clone());
        }
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
    pub(crate) fn relay_url_elicitations(&self, error: ErrorBody) -> Result<Answer, Failure> {
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
    pub(crate) fn build_question_result<'a>(
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

impl StateSender<'_> {
    /// Returns the sender as sealed states contain it.
    pub(super) fn binding(self) -> String {
        let principal = match self.principal {
            Principal::Anonymous => "anonymous",
            Principal::Client(name) => &format!("client {name}"),
            Principal::User(name) => &format!("user {name}"),
        };
        // The whole endpoint, because its narrowing limits the client's view: a state must not lead
        // from one view to another. Profile names contain no question mark.
        let narrowing = self.endpoint.narrowing.as_deref().unwrap_or_default();
        format!("{principal} at {}?{narrowing}", self.endpoint.profile())
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
    let is_valid = (1..=MAX_QUESTIONS).contains(&questions.len())
        && !questions.iter().any(Question::is_ambiguous);
    is_valid.then_some(questions)
}
