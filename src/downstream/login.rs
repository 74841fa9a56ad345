//! The callback of logins at servers: the user's browser brings the answer of an authorization
//! server (RFC 6749, 4.1.2).
//!
//! Served before authentication: browsers have no key. What admits a request is its `state`, which
//! only the user who was given the link can have.

use std::sync::Arc;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use crate::call::{PeerAddress, ServerName};
use crate::upstream::{GrantBook, LoginFault};

use super::{Body, McpService, refusal, response};

/// A request that brings the answer of a login.
pub struct LoginAnswer {
    grants: Arc<GrantBook>,
    query: String,
}

impl McpService {
    /// The answer of a login that a request brings; `None` for any other request.
    ///
    /// # Errors
    /// The response to a request that is refused.
    pub fn find_login_answer<B>(
        &self,
        request: &Request<B>,
        peer: PeerAddress,
    ) -> Option<Result<LoginAnswer, Box<Response<Body>>>> {
        let path = request.uri().path();
        if !path.ends_with(GrantBook::CALLBACK_PATH) {
            return None;
        }
        let grants = self.gateway.snapshots.grants();
        if !grants.is_callback(path) {
            return None;
        }
        if request.method() != Method::GET {
            return Some(Err(response::empty(StatusCode::METHOD_NOT_ALLOWED).into()));
        }
        // As often as anything else without credentials: each answer may cause a request.
        let snapshot = self.gateway.snapshots.load();
        if let Err(failure) = snapshot.policy.admit_unauthenticated(peer.addr.ip()) {
            return Some(Err(refusal(&failure).into()));
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        Some(Ok(LoginAnswer { grants: Arc::clone(grants), query }))
    }
}

impl LoginAnswer {
    /// Exchanges the answer for a grant, and tells the user.
    pub async fn finish(self) -> Response<Body> {
        // A task of its own: the code is good for one exchange, whether the browser waits or not.
        let finishing = tokio::spawn(async move { self.grants.finish_login(&self.query).await });
        match finishing.await {
            Ok(Ok(server)) => success_page(&server),
            Ok(Err(fault)) => fault_page(&fault),
            Err(_) => page(StatusCode::INTERNAL_SERVER_ERROR, "The login failed", "Try again."),
        }
    }
}

fn success_page(server: &ServerName) -> Response<Body> {
    let text = format!("The gateway can use {server} now. You can close this page.");
    page(StatusCode::OK, "You are logged in", &text)
}

/// The page says what is wrong, and nothing that the answer has brought.
fn fault_page(fault: &LoginFault) -> Response<Body> {
    tracing::info!(%fault, "the answer of a login is not used");
    let text = format!("{fault}. Make the call again to get another link.");
    page(StatusCode::BAD_REQUEST, "You are not logged in", &text)
}

fn page(status: StatusCode, title: &str, text: &str) -> Response<Body> {
    let (title, text) = (escape_html(title), escape_html(text));
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n<p>{text}</p>\n</html>\n"
    );
    let mut response = Response::new(Body::Whole(html.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        // The URL of the page has a code in it.
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_text_as_text_and_can_be_neither_framed_nor_scripted() {
        let response = page(StatusCode::OK, "a", "<script>alert(\"'&'\")</script>");
        let Body::Whole(body) = response.body() else { panic!("it is one piece") };
        let text = std::str::from_utf8(body).unwrap();
        assert!(text.contains("&lt;script&gt;alert(&quot;&#39;&amp;&#39;&quot;)"), "{text}");
        let policy = response.headers().get(CONTENT_SECURITY_POLICY).unwrap();
        assert_eq!(policy, "default-src 'none'; frame-ancestors 'none'");
        assert_eq!(response.headers().get(REFERRER_POLICY).unwrap(), "no-referrer");
    }
}
