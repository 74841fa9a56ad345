//! Calls that operators make through the admin API: real ones, with every gate, record and limit.
//!
//! Unlike an explanation, such a call reaches the server. By default the operator is the caller: the
//! client of its key or token, or on the private socket a client without credentials, like the parent
//! process of `trunkline stdio`. With `as` the caller is a client, with its profile, rules and limits,
//! but without its credentials: the call has a session of its own with servers that tell clients
//! apart, and servers that need a login, a token or a credential header of the client are refused.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::call::{
    Answer, AuditCredential, AuditNotes, Call, Client, Context, Endpoint, Failure, Grants, Params,
    PeerAddress, Principal,
};
use crate::identity::Credential;
use crate::jsonrpc::WrittenObject;
use crate::mcp::Method;
use crate::policy::ScopedCaller;
use crate::snapshot::Snapshot;
use crate::text::clip;

use super::Gateway;
use super::calls::{InnerCallFault, await_answer};
use super::entry::named_caller::{NamedCaller, usual_profile};
use super::record::answered::log_refused_request;
use super::record::audit::{RefusedRequest, audit_notes};

/// A call that an operator makes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorCall {
    /// The public name of the tool.
    pub tool: String,
    /// The arguments.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub arguments: Option<WrittenObject>,
    /// The profile; by default the first one that the caller may use.
    pub profile: Option<String>,
    /// The client `NAME` of `[clients.NAME]`, or `anonymous`, whose profile, rules and limits apply;
    /// by default the operator is the caller. It needs the role `admin`.
    pub r#as: Option<String>,
}

/// The operator who makes a call.
#[derive(Debug, Clone)]
pub struct CallingOperator {
    /// Its name in records.
    pub name: String,
    /// Its address, over TCP.
    pub address: Option<IpAddr>,
    /// Its credential; `None` on the private socket.
    pub credential: Option<Credential>,
}

/// The outcome of a call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct OperatorCallReport {
    /// The operator.
    pub operator: String,
    /// The caller.
    pub client: String,
    /// The profile.
    pub profile: String,
    /// The public name of the tool.
    pub tool: String,
    /// The result, as a client gets it; `None` if the call was refused, or has failed.
    #[schemars(with = "Option<Value>")]
    pub result: Option<Box<RawValue>>,
    /// The error of a call that was refused, or has failed.
    #[schemars(with = "Option<Value>")]
    pub error: Option<Box<RawValue>>,
}

/// Reason that a call cannot be made at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorCallError {
    /// The configuration has no such client.
    #[error("there is no client {name:?}: expected NAME of [clients.NAME], or `anonymous`")]
    UnknownClient {
        /// The name.
        name: String,
    },
    /// The rights of a user are in its token.
    #[error("{name:?} is a user: its rights are in its token, so name a client")]
    User {
        /// The name.
        name: String,
    },
    /// The caller may not use the profile.
    #[error("there is no profile {profile:?} that {client} may use")]
    Profile {
        /// The caller.
        client: String,
        /// The profile.
        profile: String,
    },
    /// The call has no valid form.
    #[error("{0}")]
    Invalid(Failure),
}

/// A call before its gates.
#[derive(Clone, Copy)]
struct EarlyCall<'a> {
    operator: &'a CallingOperator,
    request: &'a OperatorCall,
    caller: &'a AssumedCaller,
    profile: &'a str,
}

/// A call with its parameters.
struct ReadCall<'a> {
    operator: &'a CallingOperator,
    request: &'a OperatorCall,
    params: Params,
}

/// The caller of a call, and its rights.
struct AssumedCaller {
    principal: Principal,
    grants: Option<Arc<Grants>>,
    by_operator: bool,
    /// The refusal of each of its requests.
    refusal: Option<Failure>,
}

impl Gateway {
    /// Makes a call for an operator, and waits for its result.
    ///
    /// # Errors
    /// [`OperatorCallError`]. A call that a gate refuses, or that fails, is a report with an error.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn call_for_operator(
        self: &Arc<Self>,
        operator: &CallingOperator,
        request: &OperatorCall,
    ) -> Result<OperatorCallReport, OperatorCallError> {
        let snapshot = self.snapshots.load_full();
        let caller = find_caller(&snapshot, operator, request.r#as.as_deref())?;
        let who = &caller.principal;
        let profile = request.profile.clone().unwrap_or_else(|| usual_profile(&snapshot, who));
        let endpoint = snapshot.endpoint(who, &profile, None).map_err(|failure| {
            let early = EarlyCall { operator, request, caller: &caller, profile: &profile };
            self.record_early_refusal(&snapshot, early, &failure);
            let (client, profile) = (who.as_str().to_owned(), profile.clone());
            OperatorCallError::Profile { client, profile }
        })?;
        let mut report = OperatorCallReport {
            operator: operator.name.clone(),
            client: who.as_str().to_owned(),
            profile,
            tool: request.tool.clone(),
            result: None,
            error: None,
        };
        let params = Params::parse(Some(describe_params(request).into()));
        let params = params.map_err(|fault| OperatorCallError::Invalid(fault.into()))?;
        let read = ReadCall { operator, request, params };
        match self.make_call(snapshot, caller, endpoint, read).await {
            Ok(Answer::Result(result)) => report.result = read_json(result.raw()),
            Ok(Answer::Error(error)) => report.error = read_json(error.raw()),
            Err(error) => report.error = error,
        }
        Ok(report)
    }

    /// Passes the gates before the call, and makes it. An error is a JSON-RPC error.
    async fn make_call(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        caller: AssumedCaller,
        endpoint: Endpoint,
        read: ReadCall<'_>,
    ) -> Result<Answer, Option<Box<RawValue>>> {
        let ReadCall { operator, request, params } = read;
        let address = address_of(operator);
        let scoped =
            ScopedCaller { principal: &caller.principal, grants: caller.grants.as_deref() };
        if let Some(prepared) = snapshot.policy.prepare_request(&caller.principal, address) {
            prepared.await;
        }
        let admitted = caller.refusal.clone().map_or(Ok(()), Err);
        let admitted = admitted
            .and_then(|()| snapshot.policy.admit_entry(scoped, endpoint.profile(), None))
            .and_then(|()| snapshot.policy.admit_request(&caller.principal, address));
        if let Err(failure) = admitted {
            let profile = endpoint.profile();
            let early = EarlyCall { operator, request, caller: &caller, profile };
            self.record_early_refusal(&snapshot, early, &failure);
            return Err(describe_failure(&failure));
        }
        let context = make_context(&snapshot, operator, caller, endpoint);
        let _session = OperatorSession { gateway: Arc::clone(self), id: context.session.clone() };
        let call = Call { method: Method::ToolsCall, params, context, input: None };
        let mut active = self.call(snapshot, Box::new(call)).await;
        let (total, limit) = (AtomicUsize::new(0), MAX_RESULT_BYTES);
        // A large result comes in pieces.
        let hold = |bytes| match total.fetch_add(bytes, Ordering::Relaxed) + bytes {
            all if all > limit => Err(InnerCallFault::TooLarge { limit }),
            _ => Ok(()),
        };
        await_answer(&mut active, hold).await.map_err(|fault| match fault {
            InnerCallFault::Failed(failure) => describe_failure(&failure),
            fault @ InnerCallFault::TooLarge { .. } => {
                to_raw_value(&json!({ "message": fault.to_string() })).ok()
            }
        })
    }

    /// Records that a call was refused before it began, like a request of a client. With a required
    /// audit log that cannot record, nothing more is refused: the call is not made.
    fn record_early_refusal(&self, snapshot: &Snapshot, early: EarlyCall<'_>, failure: &Failure) {
        let EarlyCall { operator, request, caller, profile } = early;
        let who = &caller.principal;
        self.count_refusal_of(snapshot, who, failure);
        let notes = notes_of(operator, caller.by_operator);
        let refused = RefusedRequest {
            address: operator.address,
            profile: clip(profile, MAX_PROFILE_BYTES),
            method: Some(Method::ToolsCall),
            name: Some(&request.tool),
            ..RefusedRequest::default()
        };
        self.audit_refusal_of((Some(who.as_str()), &notes), &refused, failure);
        let logged = RefusedRequest { address: Some(address_of(operator)), ..refused };
        log_refused_request(Some(who), &logged, failure);
    }
}

/// Finds the caller: the operator, or the client that it names.
fn find_caller(
    snapshot: &Snapshot,
    operator: &CallingOperator,
    client: Option<&str>,
) -> Result<AssumedCaller, OperatorCallError> {
    let Some(name) = client else {
        let credential = operator.credential.as_ref();
        let principal = credential.map_or(Principal::Anonymous, |own| own.principal().clone());
        let grants = credential.and_then(|own| own.grants().cloned());
        return Ok(AssumedCaller { principal, grants, by_operator: false, refusal: None });
    };
    let caller = NamedCaller::find(snapshot, name);
    let refusal = caller.refusal(&snapshot.config);
    let (principal, grants) = match caller {
        NamedCaller::Anonymous => (Principal::Anonymous, None),
        NamedCaller::Client { principal, access } => (principal, access.grants),
        NamedCaller::User(_) => return Err(OperatorCallError::User { name: name.to_owned() }),
        NamedCaller::Unknown(_) => {
            return Err(OperatorCallError::UnknownClient { name: name.to_owned() });
        }
    };
    Ok(AssumedCaller { principal, grants, by_operator: true, refusal })
}

/// Returns the context of the call: of a Modern client without capabilities that waits for tasks.
fn make_context(
    snapshot: &Snapshot,
    operator: &CallingOperator,
    caller: AssumedCaller,
    endpoint: Endpoint,
) -> Context {
    let AssumedCaller { principal, grants, by_operator, .. } = caller;
    let audit = snapshot.config.audit.is_on().then(|| notes_of(operator, by_operator));
    let assumed = Context::assumed(principal, grants, endpoint);
    let client: Arc<Client> = Arc::new(assumed.client.awaiting_tasks());
    let address = operator.address.unwrap_or(assumed.address);
    // The client's own instances of servers may be logged in, or keep its state.
    let session = by_operator.then(next_session);
    Context {
        client,
        address,
        session,
        audit,
        by_operator,
        transport: OPERATOR_TRANSPORT,
        ..assumed
    }
}

/// Returns the notes for the audit record: the caller is its principal, and an operator who calls as
/// a client is its actor.
fn notes_of(operator: &CallingOperator, by_operator: bool) -> Arc<AuditNotes> {
    let own = operator.credential.as_ref().map(audit_notes);
    match own {
        Some(notes) if !by_operator => notes,
        Some(notes) => AuditNotes::new(notes.credential().clone(), [operator.name.clone()].into()),
        None => {
            let credential = AuditCredential { kind: "operator", id: None };
            AuditNotes::new(credential, [operator.name.clone()].into())
        }
    }
}

fn next_session() -> Arc<str> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("operator-{}", NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// The session of a call with its servers. It ends with the call, also one that is cancelled.
struct OperatorSession {
    gateway: Arc<Gateway>,
    id: Option<Arc<str>>,
}

impl Drop for OperatorSession {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.gateway.client_left(id);
        }
    }
}

fn address_of(operator: &CallingOperator) -> IpAddr {
    operator.address.unwrap_or_else(|| PeerAddress::parent().addr.ip())
}

/// Returns the params of a call, with the arguments as they are written.
fn describe_params(request: &OperatorCall) -> String {
    let arguments = request.arguments.as_ref().map_or("{}", WrittenObject::get);
    format!("{{\"name\":{},\"arguments\":{arguments}}}", json!(request.tool))
}

fn describe_failure(failure: &Failure) -> Option<Box<RawValue>> {
    read_json(&failure.to_error())
}

fn read_json(raw: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(raw).ok()
}

/// The transport of these calls in the access log.
const OPERATOR_TRANSPORT: &str = "admin";
/// Limit of the bytes of a profile's name in the record of a refusal.
const MAX_PROFILE_BYTES: usize = 256;
/// Limit of the bytes of a result.
const MAX_RESULT_BYTES: usize = 16 << 20;
