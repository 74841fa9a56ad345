//! Logins of a client's user at a server: the question, the wait for its answer, and the failure of
//! a call for an element of a server that requires a login first.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::call::{Call, Context, Failure, Question, ResultBody, ServerName};
use crate::config::{GrantKind, GrantOwnership, NamingChoice, ServerConfig, forwarded_credentials};
use crate::era::state::RequestState;
use crate::mcp::Method;
use crate::mcp::question::ELICITATION;
use crate::oauth::GrantOwner;
use crate::pipeline::Gateway;
use crate::pipeline::client_view::ClientView;
use crate::pipeline::input::{Requester, check_accepted, read_input};
use crate::snapshot::Snapshot;

use super::active_call::ActiveCall;

impl Requester {
    /// Returns true if the client can open links for its user in this request, and the limit of
    /// links is not reached. A second login, such as for more scopes, is requested like the first
    /// one.
    pub(super) fn can_ask_to_log_in(&self) -> bool {
        let may_ask =
            matches!(self.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
        may_ask && self.abilities().url && self.login_links < MAX_LOGIN_LINKS
    }

    /// Builds the result that asks the user to log in. The client's retry is a new call.
    pub(super) fn ask_to_log_in(
        &self,
        server: &ServerName,
        link: &str,
    ) -> Result<ResultBody, Failure> {
        let message = format!("Log in to {server}, so that the call can be made.");
        let params = json!({ "mode": "url", "message": message, "url": link });
        let params = Some(params.to_string().into());
        let question = Question { method: ELICITATION.to_owned(), params };
        let confirmed = self.confirmation.is_given();
        let links = self.login_links.saturating_add(1);
        let state = RequestState::Login { server: server.to_string(), confirmed, links };
        self.build_question_result([(LOGIN_KEY, &question)], state)
    }
}

impl Gateway {
    /// Makes the connections page of an owner show the servers that its client may use at its
    /// endpoint.
    pub fn offer_connections(&self, snapshot: &Snapshot, context: &Context, owner: &GrantOwner) {
        let view = snapshot.view(&self.view_key(context), context);
        let servers = snapshot.servers();
        let offered = servers.filter(|member| view.scope().is_about_server(&member.config.name));
        offered.for_each(|member| member.server.offer_connection(owner));
    }
}

/// Returns true if a call may be the retry of one that waited for a login.
pub(super) fn may_await_login(call: &Call) -> bool {
    call.input.is_some() || call.params.state().is_some()
}

/// Waits for a login if the call is the retry of one that requires it. Returns the client's view
/// for the rest of the call.
///
/// # Errors
/// [`Failure::InputRefused`] if the user has not opened the link.
pub(super) async fn resume_login(
    client: Box<ClientView>,
    call: &Call,
    active: &mut ActiveCall,
) -> Result<Box<ClientView>, Failure> {
    let Some(awaited) = awaited_server(call, active.asker())? else { return Ok(client) };
    let ClientView { snapshot, mut key, .. } = *client;
    let snapshot = await_login(snapshot, awaited, &call.context, active).await;
    // This may have been the client's first login.
    key.account = snapshot.grants.account_of(&call.context.principal);
    Ok(Box::new(ClientView::find(snapshot, key, &call.context)))
}

/// The login that the retry of a call waits for.
struct AwaitedLogin {
    server: ServerName,
    /// Number of links that the call was answered with.
    links: u8,
}

/// Returns the login that the retry of a call waits for; `None` if it waits for none.
fn awaited_server(call: &Call, asker: &Requester) -> Result<Option<AwaitedLogin>, Failure> {
    // The attempt reports faults of the input or its state.
    let Some(input) = read_input(call).ok().flatten() else { return Ok(None) };
    let opened = input.state.as_deref().and_then(|state| asker.open(state).ok());
    let Some(RequestState::Login { server, links, .. }) = opened.map(|opened| opened.state) else {
        return Ok(None);
    };
    check_accepted(&input)?;
    Ok(ServerName::new(&server).ok().map(|server| AwaitedLogin { server, links }))
}

/// Waits until the user has logged in and the server has listed, within limits. Returns the snapshot
/// that has the list.
async fn await_login(
    snapshot: Arc<Snapshot>,
    AwaitedLogin { server, links }: AwaitedLogin,
    context: &Context,
    active: &mut ActiveCall,
) -> Arc<Snapshot> {
    let Some(member) = snapshot.server(&server) else { return snapshot };
    member.server.await_login(context, LOGIN_TIMEOUT).await;
    let snapshots = Arc::clone(active.wait_for_login(links));
    snapshots.catch_up().await;
    snapshots.load_full()
}

/// Returns the failure of a call of an unknown name, if a server that may have it waits for a
/// login.
pub(super) async fn explain_missing_login(
    failure: Failure,
    client: &ClientView,
    call: &Call,
) -> Failure {
    let ClientView { snapshot, view, .. } = client;
    let unknown = matches!(
        failure,
        Failure::UnknownTool { .. }
            | Failure::UnknownPrompt { .. }
            | Failure::UnknownResource { .. }
    );
    if !unknown || !snapshot.lacks_lists() {
        return failure;
    }
    let is_prefixed = snapshot.config.gateway.naming == NamingChoice::Prefix;
    let may_have = |server: &ServerName| match call.params.name().filter(|_| is_prefixed) {
        Some(name) => name.strip_prefix(server.as_str()).is_some_and(|rest| rest.starts_with("__")),
        None => true,
    };
    // A client must not learn of servers that it may not use.
    let may_hear_of = |server: &ServerName| view.scope().is_about_server(server);
    let servers = snapshot.servers().map(|member| (member, &member.config.name));
    let servers = servers.filter(|(_, name)| may_have(name) && may_hear_of(name));
    for (member, server) in servers {
        let is_withheld = call.context.by_operator && uses_client_credentials(&member.config);
        // The tools of a server that has listed are known.
        if is_withheld && member.server.list().is_none() {
            return Failure::CredentialsWithheld { server: server.clone() };
        }
        if let Some(missing) = member.server.login_failure(&call.context).await {
            return missing;
        }
    }
    failure
}

/// Checks that a call of an operator as a client needs no credentials of the client.
///
/// # Errors
/// [`Failure::CredentialsWithheld`].
pub(super) fn withhold_credentials(call: &Call, config: &ServerConfig) -> Result<(), Failure> {
    if !call.context.by_operator || !uses_client_credentials(config) {
        return Ok(());
    }
    Err(Failure::CredentialsWithheld { server: config.name.clone() })
}

/// Returns true if calls of a server use a login, a token or a credential header of their client.
fn uses_client_credentials(config: &ServerConfig) -> bool {
    let uses_client = config.oauth().is_some_and(|oauth| {
        let has_logins =
            oauth.grant == GrantKind::AuthorizationCode && oauth.per == GrantOwnership::User;
        has_logins || oauth.grant.exchanges_callers()
    });
    uses_client || forwarded_credentials(config).next().is_some()
}

/// Limit of links as questions for one call; after that, its client gets the link as text.
const MAX_LOGIN_LINKS: u8 = 3;
/// The key of the question.
const LOGIN_KEY: &str = "login";
/// Limit of a retry's wait for the login: shorter than the timeout of usual clients.
pub(crate) const LOGIN_TIMEOUT: Duration = Duration::from_secs(45);
