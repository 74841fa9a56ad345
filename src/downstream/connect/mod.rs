//! Pages for people: links of the gateway, answers of authorization servers (RFC 6749, 4.1.2), and
//! `/connect`, which lists a user's logins at servers and ends them.
//!
//! They are served before authentication, because browsers have no key. A link, which only its
//! principal receives, admits a person. The person first agrees on a page of the gateway, and the
//! login continues in that browser only. Each form carries a key that no page of another site
//! knows, and no page may be framed or has a script. The pages differ from those of `admin`, which
//! are for operators and on a listener of their own.

mod cookie;
mod form;
mod html;
mod pages;
mod visitor;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use serde_json::json;
use tokio::time::timeout;

use crate::call::{Client, Failure, Meta, PeerAddress, Principal};
use crate::codec::body::collect;
use crate::mcp::{MediaType, ProtocolVersion};
use crate::oauth::{GrantBook, GrantOwner, LinkRequest, LoginFault};
use crate::telemetry::audit::RecordRoom;

use super::requests::request::Posted;
use super::responses::response;
use super::{Authenticated, Body, McpService, Unauthenticated, refusal};

use form::{FORM_TIME, MAX_FORM_BYTES, PageForm};
use visitor::Visitor;

pub(super) use cookie::{PageCookie, PageScheme, is_same_site};
pub(super) use html::{Page, escape_html, lead_to};
pub(super) use pages::{bold, find_parameter, foreign_form, name_place};

/// A parsed request of a browser.
struct PageRequest {
    method: Method,
    query: String,
    headers: HeaderMap,
    form: PageForm,
    /// Room for the record of a login.
    room: Option<RecordRoom>,
}

impl McpService {
    /// Returns true if a path belongs to one of the pages.
    pub fn has_page(&self, path: &str) -> bool {
        self.gateway.snapshots.grants().find_page(path).is_some()
    }

    /// Answers a request for one of the pages.
    pub async fn answer_page<B>(&self, request: Request<B>, peer: PeerAddress) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let grants = Arc::clone(self.gateway.snapshots.grants());
        let own = grants.find_page(request.uri().path()).map(str::to_owned);
        let is_post = request.method() == Method::POST;
        if !is_post && request.method() != Method::GET {
            return response::empty(StatusCode::METHOD_NOT_ALLOWED);
        }
        // Limited like other requests without credentials: each may cause requests to other hosts.
        let snapshot = self.gateway.snapshots.load_full();
        if let Err(failure) = snapshot.policy.admit_unauthenticated(peer.addr.ip()) {
            return refusal(&failure);
        }
        // Access ends in any case.
        let ends_access = pages::ends_access(own.as_deref());
        let reserved = if ends_access { Ok(None) } else { self.gateway.reserve_record() };
        let room = match reserved {
            Ok(room) => room,
            Err(failure) => return refusal(&failure),
        };
        if is_post
            && own.as_deref() == Some(GrantBook::CONNECT_PATH)
            && !request.headers().contains_key(header::COOKIE)
        {
            return self.give_link(request, peer, room).await;
        }
        let (head, body) = request.into_parts();
        let Ok(Ok(body)) = timeout(FORM_TIME, collect(body, MAX_FORM_BYTES)).await else {
            return response::empty(StatusCode::BAD_REQUEST);
        };
        let page = PageRequest {
            query: head.uri.query().unwrap_or_default().to_owned(),
            form: PageForm::parse(&body),
            method: head.method,
            headers: head.headers,
            room,
        };
        let visitor = match Visitor::find(&grants, &snapshot, &page.headers, peer).await {
            Ok(visitor) => visitor,
            Err(fault) => return html::fault_page(&fault),
        };
        visitor.answer(own.as_deref().unwrap_or_default(), page).await
    }

    /// Returns a link to the page with a client's connections, for a client with a key or token.
    /// The page shows the servers that it may use, in the profile that the query names.
    async fn give_link<B: Send>(
        &self,
        request: Request<B>,
        peer: PeerAddress,
        room: Option<RecordRoom>,
    ) -> Response<Body> {
        let mut request = request.map(drop);
        let profile = find_parameter(request.uri().query().unwrap_or_default(), "profile");
        let endpoint = match &*profile {
            "" => Ok(Uri::from_static("/mcp")),
            profile => Uri::try_from(format!("/mcp/{profile}")),
        };
        let Ok(endpoint) = endpoint else { return refusal(&Failure::UnknownEndpoint) };
        *request.uri_mut() = endpoint;
        let authenticated = match self.authenticate(request, peer) {
            Ok(authenticated) => Ok(authenticated),
            Err(Unauthenticated::Refused(response)) => Err(response),
            Err(Unauthenticated::Waiting(waiting)) => self.authenticate_later(*waiting, peer).await,
        };
        let Authenticated { head, from, .. } = match authenticated {
            Ok(authenticated) => authenticated,
            Err(response) => return *response,
        };
        let grants = self.gateway.snapshots.grants();
        let owner = match from.caller.principal() {
            Principal::Anonymous => GrantOwner::Gateway,
            principal => GrantOwner::Client(principal.clone()),
        };
        let (snapshot, visit) = (Arc::clone(&from.snapshot), Posted::without_body(head, from));
        let client = Client::new(ProtocolVersion::LATEST_MODERN, None, Bytes::from_static(b"{}"));
        let context = visit.context(Arc::new(client), Meta::default());
        self.gateway.offer_connections(&snapshot, &context, &owner);
        match grants.make_visit_link(owner, LinkRequest { address: peer.addr.ip(), room }).await {
            Ok(link) => {
                let lasts = GrantBook::VISIT_TIME.as_secs();
                let told = json!({ "link": link.as_str(), "expires_in": lasts });
                let mut response = Response::new(Body::Whole(format!("{told}\n").into()));
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, MediaType::JSON);
                headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
                response
            }
            Err(fault) => html::fault_page(&fault),
        }
    }
}

/// Returns the HTTP status of a fault.
fn status_of(fault: &LoginFault) -> StatusCode {
    match fault {
        LoginFault::OtherBrowser => StatusCode::FORBIDDEN,
        fault if fault.is_store_unavailable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}
