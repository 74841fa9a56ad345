//! Input that a server requests in the middle of a call: the sealed state that the client returns
//! with its retry, and the parked calls.

pub(super) mod kept_results;
pub(super) mod refusal;
pub(super) mod released_uris;
mod requester;
pub(super) mod task_at;
pub(super) mod task_ids;
pub(super) mod task_questions;
pub(super) mod unknown;

pub(super) use requester::Requester;
pub use requester::StateSender;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;

use crate::call::{
    Call, Client, Failure, Input, InputError, InternalFault, MAX_QUESTIONS, Params, ParamsFault,
    Principal,
};
use crate::catalog::SealedCursors;
use crate::clock;
use crate::cluster::ReplicaId;
use crate::config::GatewayConfig as Config;
use crate::crypto::{SealError, random_bytes};
use crate::era::state::{Digest, OpenedState, ParkedCallId, RequestState, Seals, StateBinding};
use crate::era::tasks::ids::TaskIds;
use crate::era::{lift, lower};
use crate::jsonrpc::{JsonError, Members, Response, object, string};
use crate::mcp::{Era, Method};
use crate::policy::{KeptResource, WholeText};
use crate::shares::{Holder, ShareBounds};
use crate::snapshot::Snapshots;
use crate::telemetry::metrics::Metrics;
use crate::text::clip;
use crate::upstream::parking::{Parking, ParkingLimits, Ticket};

use kept_results::{KeptBounds, KeptResults, ResultOrigin};
use released_uris::ReleasedUris;
use task_ids::OwnTasks;
use task_questions::TaskQuestions;

/// State that outlives calls: those that request input, and results that can be read later.
pub(crate) struct InputStore {
    pub(super) parking: Arc<Parking>,
    /// Input requests by tasks of Legacy servers, for Modern clients.
    pub(super) questions: TaskQuestions,
    /// Results that clients can read later.
    pub(super) kept: KeptResults,
    /// URIs in results that clients have received.
    pub(super) released: ReleasedUris,
    pub(super) snapshots: Arc<Snapshots>,
    /// The id of this gateway among several replicas; empty if it is alone.
    replica: Arc<OnceLock<ReplicaId>>,
    /// A random key, used if none is configured.
    made: OnceLock<[u8; 32]>,
    /// Set if clients get the states of servers as they are.
    passes_states: OnceLock<()>,
}

impl InputStore {
    pub(super) fn new(snapshots: Arc<Snapshots>, metrics: &Arc<Metrics>) -> Arc<Self> {
        let (parking, questions) = (Parking::new(metrics), TaskQuestions::default());
        let replica = Arc::new(OnceLock::new());
        let kept = KeptResults::of_replica(Arc::clone(&replica));
        let (released, made) = (ReleasedUris::default(), OnceLock::new());
        let passes_states = OnceLock::new();
        Arc::new(Self {
            parking,
            questions,
            kept,
            released,
            snapshots,
            replica,
            made,
            passes_states,
        })
    }

    /// Passes the states of servers as they are from now on.
    pub(super) fn pass_states(&self) {
        let _set = self.passes_states.set(());
    }

    /// Returns true if clients get the states of servers as they are: the client is a replica, which
    /// seals them.
    pub(super) fn passes_states(&self) -> bool {
        self.passes_states.get().is_some()
    }

    /// Makes the states of parked calls and the URIs of kept results name this replica.
    pub(super) fn join_replicas(&self, own: ReplicaId) {
        // A second call would be for the same gateway.
        let _set = self.replica.set(own);
    }

    /// Returns the state of a call that was parked here.
    pub(super) fn parked_state(&self, ticket: &Ticket) -> RequestState {
        let replica = self.replica.get().map(|own| *own.as_bytes());
        RequestState::Parked(ParkedCallId { number: ticket.id, replica })
    }

    /// Returns the replica where a sender's request goes on: that of a parked call, or of a kept result.
    /// `None` if it may go on anywhere.
    pub(super) fn find_replica(
        &self,
        sender: StateSender<'_>,
        method: &Method,
        params: &Params,
    ) -> Option<ReplicaId> {
        if *method == Method::ResourcesRead
            && let Some(replica) = params.uri().and_then(kept_results::replica_in)
        {
            return Some(replica);
        }
        let state = params.state()?;
        match self.seals().ok()?.read_content(state, &sender.binding())? {
            RequestState::Parked(parked) => parked.replica.map(ReplicaId::new),
            _ => None,
        }
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
        self.kept.keep(text, origin, holder, bounds)
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

    /// Returns the sealer of list cursors. All replicas have the configured keys, so a cursor opens at
    /// each of them.
    pub(super) fn cursors(&self) -> Result<SealedCursors, Failure> {
        self.with_keys(|keys| SealedCursors::new(keys.iter().copied()).map_err(sealing_failed))
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
    if members.len() > MAX_QUESTIONS {
        return Err(ParamsFault::TooManyResponses { limit: MAX_QUESTIONS }.into());
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

/// Replaces the client of a call, and the capabilities that the params declare.
///
/// # Errors
/// [`Failure::Internal`] if the client's capabilities are not JSON.
pub(crate) fn replace_client(call: &mut Call, client: Arc<Client>) -> Result<(), Failure> {
    if client.capabilities != call.context.client.capabilities
        && let Some(declared) = lift::declare_capabilities(&call.params, &client.capabilities)
    {
        call.params = parse_params(declared)?;
    }
    call.context.client = client;
    Ok(())
}
