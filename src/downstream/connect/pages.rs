//! The content of each page, and the actions of its forms.

use std::fmt::Write as _;
use std::sync::Arc;

use http::{Method, Response, StatusCode};

use crate::call::{Principal, ServerName};
use crate::oauth::{
    BrowserAnswer, Connection, ConnectionState, GrantBook, GrantOwner, KnownBrowser, LinkRequest,
    LoginFault, LoginRevoker, OfferedLogin, RevocationOutcome, TicketOffer,
};
use crate::snapshot::SnapshotServer;
use crate::telemetry::audit::{OperationActor, RecordRoom};
use crate::telemetry::log::SharedFaultLog;

use super::PageRequest;
use super::html::{Page, escape_html, fault_page, lead_to};
use super::visitor::Visitor;
use crate::downstream::Body;
use crate::downstream::responses::response;

impl Visitor<'_> {
    /// Answers a request for a page of the gateway.
    pub(super) async fn answer(&self, own: &str, mut request: PageRequest) -> Response<Body> {
        let is_get = request.method == Method::GET;
        let answered = match own {
            own if GrantBook::is_callback(own) && is_get => {
                let room = request.room.take();
                self.finish_login(own, &request, room).await
            }
            GrantBook::LINK_PATH if is_get => self.show_offer(&request).await,
            GrantBook::LINK_PATH => self.judge_answer(&request).await,
            GrantBook::CONNECT_PATH if is_get => self.show_connections().await,
            START_PATH if !is_get => {
                let room = request.room.take();
                self.start_login(&request, room).await
            }
            REVOKE_PATH if !is_get => self.revoke_login(&request).await,
            LEAVE_PATH if !is_get => self.leave(&request).await,
            CONNECT_AS_FORM => return response::empty(StatusCode::METHOD_NOT_ALLOWED),
            _ => return response::empty(StatusCode::NOT_FOUND),
        };
        answered.unwrap_or_else(|fault| fault_page(&fault))
    }

    /// Shows the page behind a link: its recipient, and the offered login.
    async fn show_offer(&self, request: &PageRequest) -> Result<Response<Body>, LoginFault> {
        let ticket = find_parameter(&request.query, "ticket");
        let before = self.browser.as_ref().map(|browser| browser.id);
        let offer = self.grants.read_ticket(&ticket, before).await?;
        let (browser, cookie) = self.meet(&offer.owner).await?;
        if let Some(other) = browser.owner.as_ref().filter(|owner| **owner != offer.owner) {
            return Ok(self.refuse_other_owner(&browser, other, &offer.owner));
        }
        let fields = hidden_fields(&browser, &[("ticket", &ticket)]);
        let action = self.grants.page_path(GrantBook::LINK_PATH);
        let (told, leads_to) = match &offer.login {
            Some(login) => (self.tell_login(&offer, login), scheme_of(login).to_owned()),
            None => (self.tell_visit(&offer), String::new()),
        };
        let content = format!(
            "{told}<form method=\"post\" action=\"{action}\">{fields}\
             <button class=\"main\" name=\"answer\" value=\"accept\" autofocus>Continue</button> \
             <button name=\"answer\" value=\"decline\">Cancel</button></form>\n",
            action = escape_html(&action),
        );
        let title = if offer.login.is_some() { "Log in to a server" } else { "Your connections" };
        Ok(Page { leads_to, cookie, ..Page::new(title, content) }.into_response())
    }

    fn tell_login(&self, offer: &TicketOffer, login: &OfferedLogin) -> String {
        let (server, owner) = (bold(login.server.as_str()), self.name_owner(&offer.owner));
        let issuer = bold(&login.issuer);
        let place = bold(&name_place(&login.endpoint));
        let issuer_url = url::Url::parse(&login.issuer).ok();
        let is_elsewhere =
            issuer_url.is_none_or(|issuer| issuer.host_str() != login.endpoint.host_str());
        let elsewhere = if is_elsewhere {
            " This is another host than that of the provider: cancel if you do not know it."
        } else {
            ""
        };
        let scopes = match &*login.scopes {
            "" => String::new(),
            scopes => format!("<p>It asks for: <code>{}</code></p>\n", escape_html(scopes)),
        };
        format!(
            "<p>The link was given to {owner}, to use the server {server} with your account at \
             {issuer}.</p>\n<p>Your browser goes to {place} next.{elsewhere}</p>\n{scopes}<p \
             class=\"warning\">If you continue, {owner} acts at {server} with \
             <strong>your</strong> account. Continue only if you asked for this link yourself. If \
             you received it from someone else, cancel.</p>\n"
        )
    }

    fn tell_visit(&self, offer: &TicketOffer) -> String {
        let owner = self.name_owner(&offer.owner);
        format!(
            "<p>The link was given to {owner}. If you continue, this browser shows the logins of \
             {owner} at servers for an hour, and can add and revoke them.</p>\n\
             <p class=\"warning\">Continue only if you asked for this link yourself: the accounts \
             that you log in to will be used by {owner}.</p>\n"
        )
    }

    /// Refuses a link of another owner than the browser's: an attacker may want this user to log in
    /// on their behalf.
    fn refuse_other_owner(
        &self,
        browser: &KnownBrowser,
        own: &GrantOwner,
        other: &GrantOwner,
    ) -> Response<Body> {
        let (own, other) = (self.name_owner(own), self.name_owner(other));
        let content = format!(
            "<p class=\"warning\">This browser belongs to {own}, and the link was given to \
             {other}. Another person may be trying to make you log in for them. Nothing was \
             done.</p>\n<p>If the link is yours, sign out first, and open it again.</p>\n{}",
            self.leave_form(browser),
        );
        let page = Page::new("The link is not yours", content);
        Page { status: StatusCode::FORBIDDEN, ..page }.into_response()
    }

    /// Handles a person's answer on the page behind a link.
    async fn judge_answer(&self, request: &PageRequest) -> Result<Response<Body>, LoginFault> {
        let form = &request.form;
        let Some(browser) = self.sender_of(&request.headers, &form.form_key) else {
            return Ok(foreign_form());
        };
        let offer = self.grants.read_ticket(&form.ticket, Some(browser.id)).await?;
        if let Some(other) = browser.owner.as_ref().filter(|owner| **owner != offer.owner) {
            return Ok(self.refuse_other_owner(browser, other, &offer.owner));
        }
        if form.answer != "accept" {
            self.grants.decline_ticket(&form.ticket, Some(browser.id)).await?;
            let content = "<p>Nothing was done, and the link is used up.</p>\n".to_owned();
            return Ok(Page::new("Cancelled", content).into_response());
        }
        let (own, cookie) = if browser.owner.is_some() {
            (browser.id, None)
        } else {
            let (own, cookie) = self.admit(Some(offer.owner.clone()), &offer.owner).await?;
            (own.id, cookie)
        };
        let accepted = self.grants.accept_ticket(&form.ticket, Some(own), Some(browser.id)).await;
        let place = accepted?;
        let connections = self.grants.page_path(GrantBook::CONNECT_PATH);
        Ok(lead_to(place.as_ref().map_or(&connections, |url| url.as_str()), cookie))
    }

    /// Handles the answer of an authorization server.
    async fn finish_login(
        &self,
        own: &str,
        request: &PageRequest,
        room: Option<RecordRoom>,
    ) -> Result<Response<Body>, LoginFault> {
        let browser = self.browser.as_ref().map(|browser| browser.id);
        let (grants, query) = (Arc::clone(self.grants), request.query.clone());
        let (path, address) = (own.to_owned(), Some(self.address));
        // A task of its own: the code is valid for one exchange, even if the browser disconnects.
        let finishing = tokio::spawn(async move {
            let answer = BrowserAnswer { path: &path, query: &query, browser, address, room };
            grants.finish_login(answer).await
        });
        let server = finishing.await.unwrap_or(Err(LoginFault::Interrupted))?;
        let content = format!(
            "<p>The gateway can use {} now. You can close this page, or see \
             <a href=\"{}\">your connections</a>.</p>\n",
            bold(server.as_str()),
            escape_html(&self.grants.page_path(GrantBook::CONNECT_PATH)),
        );
        Ok(Page::new("You are logged in", content).into_response())
    }

    /// Shows a user's connections.
    async fn show_connections(&self) -> Result<Response<Body>, LoginFault> {
        let Some((browser, owner, cookie)) = self.sign_in().await? else {
            return Ok(unknown_visitor());
        };
        self.follow_logins(&owner).await;
        let mut content = String::new();
        if let Some(notice) = self.grants.take_notice(browser.id).await? {
            let notice = escape_html(&notice);
            let _ = writeln!(content, "<p class=\"notice\" role=\"status\">{notice}</p>");
        }
        let _ = writeln!(content, "<p>This browser belongs to {}.</p>", self.name_owner(&owner));
        let connections = self.connections_of(&owner);
        if connections.is_empty() {
            content.push_str("<p>No server needs a login of yours.</p>\n");
        } else {
            content.push_str(
                "<table>\n<thead><tr><th scope=\"col\">Server</th><th scope=\"col\">Login</th>\
                 <th scope=\"col\">Action</th></tr></thead>\n<tbody>\n",
            );
            for connection in &connections {
                content.push_str(&self.connection_row(&browser, connection));
            }
            content.push_str("</tbody>\n</table>\n");
        }
        content.push_str("<p></p>\n");
        content.push_str(&self.leave_form(&browser));
        Ok(Page { cookie, ..Page::new("Your connections", content) }.into_response())
    }

    fn connection_row(&self, browser: &KnownBrowser, connection: &Connection) -> String {
        let server = connection.server.as_str();
        let (state, actions): (String, &[(&str, &str)]) = match &connection.state {
            ConnectionState::Missing => ("none".to_owned(), &[(START_PATH, "Connect")]),
            ConnectionState::Awaited => ("waits for you".to_owned(), &[(START_PATH, "Connect")]),
            ConnectionState::Connected { issuer, scopes } => {
                let scopes = match &**scopes {
                    "" => String::new(),
                    scopes => format!("<br>for <code>{}</code>", escape_html(scopes)),
                };
                (format!("at {}{scopes}", escape_html(issuer)), &[(REVOKE_PATH, "Revoke")])
            }
        };
        let fields = hidden_fields(browser, &[("server", server)]);
        let name = escape_html(server);
        let buttons = actions.iter().map(|(action, word)| {
            let action = escape_html(&self.grants.page_path(action));
            format!(
                "<form method=\"post\" action=\"{action}\">{fields}\
                 <button aria-label=\"{word} {name}\">{word}</button></form>"
            )
        });
        let buttons: String = buttons.collect();
        format!("<tr><th scope=\"row\">{name}</th><td>{state}</td><td>{buttons}</td></tr>\n")
    }

    fn leave_form(&self, browser: &KnownBrowser) -> String {
        let (action, fields) = (self.grants.page_path(LEAVE_PATH), hidden_fields(browser, &[]));
        let action = escape_html(&action);
        format!(
            "<form method=\"post\" action=\"{action}\">{fields}<button>Sign out</button></form>\n"
        )
    }

    /// Redirects to the page behind a login link.
    async fn start_login(
        &self,
        request: &PageRequest,
        room: Option<RecordRoom>,
    ) -> Result<Response<Body>, LoginFault> {
        let (browser, owner) = match self.sender_with_owner(request) {
            Ok(sender) => sender,
            Err(refusal) => return Ok(*refusal),
        };
        let Some(member) = self.find_server(&owner, &request.form.server) else {
            return Ok(response::empty(StatusCode::NOT_FOUND));
        };
        let link = LinkRequest { address: self.address, room };
        match member.server.begin_login(&owner, link).await {
            Ok(link) => {
                // The same page by a path: the browser may have another name for the gateway.
                let ticket = link.split_once('?').map_or("", |(_, query)| query);
                let path = self.grants.page_path(GrantBook::LINK_PATH);
                Ok(lead_to(&format!("{path}?{ticket}"), None))
            }
            Err(fault) => {
                let server = &request.form.server;
                let reason = crate::text::error_chain(&fault);
                let text = format!("a login cannot begin: {reason}");
                if let Some(line) = LOGIN_FAULTS.note_about(server, &text) {
                    tracing::warn!(server, "{line}");
                }
                let notice = format!("You cannot log in to {server} now: {fault}.");
                self.grants.leave_notice(browser.id, notice).await?;
                Ok(lead_to(&self.grants.page_path(GrantBook::CONNECT_PATH), None))
            }
        }
    }

    async fn revoke_login(&self, request: &PageRequest) -> Result<Response<Body>, LoginFault> {
        let (browser, owner) = match self.sender_with_owner(request) {
            Ok(sender) => sender,
            Err(refusal) => return Ok(*refusal),
        };
        self.follow_logins(&owner).await;
        let Some(member) = self.find_server(&owner, &request.form.server) else {
            return Ok(response::empty(StatusCode::NOT_FOUND));
        };
        let (server, name) = (Arc::clone(&member.server), request.form.server.clone());
        let by = LoginRevoker { actor: OperationActor::Visitor, address: Some(self.address) };
        // A task of its own: a revocation is finished even if the browser disconnects.
        let revoking = tokio::spawn(async move { server.revoke_grant(&owner, by).await });
        let outcome = revoking.await.unwrap_or(Err(LoginFault::Interrupted));
        let notice = match outcome {
            Ok(RevocationOutcome::Revoked | RevocationOutcome::Missing) => {
                format!("The login at {name} is revoked.")
            }
            Ok(RevocationOutcome::NoEndpoint) => format!(
                "The gateway has deleted the login at {name}. The provider offers no revocation: \
                 end the login in the settings of your account there."
            ),
            Ok(RevocationOutcome::Refused { reason }) => format!(
                "The gateway has deleted the login at {name}. The provider has not revoked it \
                 ({reason}): end it in the settings of your account there."
            ),
            Err(fault) => format!(
                "The login at {name} is not used any more, but it is not deleted: {fault}. Tell \
                 the operator of the gateway."
            ),
        };
        self.grants.leave_notice(browser.id, notice).await?;
        Ok(lead_to(&self.grants.page_path(GrantBook::CONNECT_PATH), None))
    }

    async fn leave(&self, request: &PageRequest) -> Result<Response<Body>, LoginFault> {
        match self.sender_of(&request.headers, &request.form.form_key) {
            Some(browser) => self.grants.forget_browser(browser.id).await?,
            None => return Ok(foreign_form()),
        }
        let content = "<p>You can close this page.</p>\n".to_owned();
        Ok(Page::new("Signed out", content).into_response())
    }

    /// Notices the logins of an owner at other replicas.
    async fn follow_logins(&self, owner: &GrantOwner) {
        for member in self.snapshot.servers() {
            member.server.follow_login(owner).await;
        }
    }

    /// Returns the browser that has sent a form, and the owner of its connections; or the refusal.
    fn sender_with_owner(
        &self,
        request: &PageRequest,
    ) -> Result<(&KnownBrowser, GrantOwner), Box<Response<Body>>> {
        let sender = self.sender_of(&request.headers, &request.form.form_key);
        let sender = sender.ok_or_else(|| Box::new(foreign_form()))?;
        let owner = sender.owner.clone().ok_or_else(|| Box::new(unknown_visitor()))?;
        Ok((sender, owner))
    }

    /// Returns the connections of an owner. With profiles or rules, only those that the owner has a
    /// link for, or has shown a key or token for.
    fn connections_of(&self, owner: &GrantOwner) -> Vec<Connection> {
        let is_open = *owner == GrantOwner::Gateway
            || (self.snapshot.config.profiles.is_empty()
                && self.snapshot.policy.authorization().is_none());
        let connections = self.snapshot.servers().filter_map(|it| it.server.connection(owner));
        let is_shown =
            |it: &Connection| is_open || it.is_offered || it.state != ConnectionState::Missing;
        connections.filter(is_shown).collect()
    }

    fn find_server(&self, owner: &GrantOwner, name: &str) -> Option<&SnapshotServer> {
        let name = ServerName::new(name).ok()?;
        let is_shown = self.connections_of(owner).iter().any(|it| it.server == name);
        self.snapshot.server(&name).filter(|_| is_shown)
    }

    /// Returns an owner's name for pages.
    fn name_owner(&self, owner: &GrantOwner) -> String {
        match owner {
            GrantOwner::Gateway if self.grants.knows_clients() => {
                "<strong>all clients of this gateway</strong>".to_owned()
            }
            GrantOwner::Gateway | GrantOwner::Client(Principal::Anonymous) => {
                "<strong>the user of this gateway</strong>".to_owned()
            }
            GrantOwner::Client(Principal::Client(name)) => format!("the client {}", bold(name)),
            GrantOwner::Client(Principal::User(name)) => format!("the user {}", bold(name)),
        }
    }
}

/// Returns true for the pages that revoke a login, or sign out.
pub(super) fn ends_access(own: Option<&str>) -> bool {
    matches!(own, Some(REVOKE_PATH | LEAVE_PATH))
}

/// Builds the page for a browser without an owner.
fn unknown_visitor() -> Response<Body> {
    let content = "<p>The gateway cannot identify you. Open a link that it has given to you: the \
                   one in the answer to a call that needs a login, or one that your client gets \
                   with its key:</p>\n<pre>curl -X POST -H \"Authorization: Bearer KEY\" \
                   GATEWAY/connect</pre>\n";
    let page = Page::new("Who are you?", content.to_owned());
    Page { status: StatusCode::UNAUTHORIZED, ..page }.into_response()
}

/// Builds the refusal of a form that none of the browser's own pages has sent.
pub(crate) fn foreign_form() -> Response<Body> {
    let content = "<p>The form does not come from a page that the gateway has shown to this \
                   browser, or it is too old. Nothing was done. Open the link again.</p>\n";
    let page = Page::new("Nothing was done", content.to_owned());
    Page { status: StatusCode::FORBIDDEN, ..page }.into_response()
}

fn hidden_fields(browser: &KnownBrowser, fields: &[(&str, &str)]) -> String {
    let own = [("form_key", browser.form_key.as_str())];
    let field = |(name, value): &(&str, &str)| {
        let value = escape_html(value);
        format!("<input type=\"hidden\" name=\"{name}\" value=\"{value}\">")
    };
    own.iter().chain(fields).map(field).collect()
}

pub(crate) fn bold(text: &str) -> String {
    format!("<strong>{}</strong>", escape_html(text))
}

/// Returns the host of a URL for display, with its port if it is not the default.
pub(crate) fn name_place(url: &url::Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns the schemes that the form of a page may lead to: browsers check the authorization
/// server's redirects, too.
fn scheme_of(login: &OfferedLogin) -> &'static str {
    if login.endpoint.scheme() == "https" { " https:" } else { " https: http:" }
}

pub(crate) fn find_parameter(query: &str, name: &str) -> String {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// Servers at which logins cannot begin, in the log.
static LOGIN_FAULTS: SharedFaultLog = SharedFaultLog::new();

/// Action pages below `/connect`.
const START_PATH: &str = "/connect/start";
const REVOKE_PATH: &str = "/connect/revoke";
const LEAVE_PATH: &str = "/connect/leave";
/// Form to the page itself, which only clients with a key send.
const CONNECT_AS_FORM: &str = GrantBook::CONNECT_PATH;
