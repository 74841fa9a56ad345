//! HTML of the pages: all foreign text is escaped, scripts are disabled, and framing is denied.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::crypto::sha256;
use crate::oauth::LoginFault;
use crate::text::error_chain;

use super::super::Body;
use super::status_of;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A page.
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    /// The HTML that follows the title, with all foreign text escaped.
    pub(crate) content: String,
    /// The targets of its forms besides the gateway itself: sources of a content security policy,
    /// each with a space before it.
    pub(crate) leads_to: String,
    pub(crate) cookie: Option<HeaderValue>,
}

impl Page {
    pub(crate) fn new(title: &'static str, content: String) -> Self {
        Self { status: StatusCode::OK, title, content, leads_to: String::new(), cookie: None }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let Self { status, title, content, leads_to, cookie } = self;
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{content}</main>\n\
             </body>\n</html>\n"
        );
        let mut response = Response::new(Body::Whole(html.into()));
        *response.status_mut() = status;
        let style = STANDARD.encode(sha256(PAGE_STYLE.as_bytes()));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; \
             form-action 'self'{leads_to}; frame-ancestors 'none'"
        );
        let headers = response.headers_mut();
        if let Ok(policy) = HeaderValue::try_from(policy) {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
        }
        add_page_headers(headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        if let Some(cookie) = cookie {
            headers.insert(SET_COOKIE, cookie);
        }
        response
    }
}

fn add_page_headers(headers: &mut http::HeaderMap) {
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        // The URL of a page may contain a ticket or a code. The pages' own forms still send their
        // origin.
        (REFERRER_POLICY, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Redirects a browser after it has sent a form.
pub(crate) fn lead_to(place: &str, cookie: Option<HeaderValue>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    add_page_headers(headers);
    if let Ok(place) = HeaderValue::try_from(place) {
        headers.insert(LOCATION, place);
    }
    if let Some(cookie) = cookie {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

/// Shows a fault, without any input from the browser.
pub(super) fn fault_page(fault: &LoginFault) -> Response<Body> {
    tracing::info!(fault = error_chain(fault), "a login cannot continue");
    let text = escape_html(&fault.to_string());
    let content = format!("<p>{text}. Make the call again to get another link.</p>\n");
    let page = Page { status: status_of(fault), ..Page::new("You are not logged in", content) };
    page.into_response()
}

/// Escapes text for HTML.
pub(crate) fn escape_html(text: &str) -> String {
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

const PAGE_STYLE: &str = "\
body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:42rem;padding:0 1rem;\
color:#1b1b1b;background:#fff}\
h1{font-size:1.5rem}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.5rem;border-bottom:1px solid #ccc;vertical-align:top;\
overflow-wrap:anywhere}form{display:inline}\
button{font:inherit;padding:.4rem .9rem;border:1px solid #555;border-radius:.3rem;\
background:#f4f4f4;color:#1b1b1b}button.main{background:#0b57d0;border-color:#0b57d0;color:#fff}\
button:focus-visible,a:focus-visible{outline:3px solid #e08a00;outline-offset:2px}\
.notice{padding:.6rem 1rem;border-left:4px solid #0b57d0;background:#eef3fc}\
.warning{padding:.6rem 1rem;border-left:4px solid #b3261e;background:#fbeeed}\
@media (prefers-color-scheme:dark){body{color:#eee;background:#1b1b1b}\
th,td{border-color:#555}button{background:#333;color:#eee}\
.notice{background:#1d2a40}.warning{background:#40201d}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_text_as_text_and_can_be_neither_framed_nor_scripted() {
        let content = escape_html("<script>alert(\"'&'\")</script>");
        let response = Page::new("a", content).into_response();
        let Body::Whole(body) = response.body() else { panic!("it is one piece") };
        let text = std::str::from_utf8(body).unwrap();
        assert!(text.contains("&lt;script&gt;alert(&quot;&#39;&amp;&#39;&quot;)"), "{text}");
        let policy = response.headers().get(CONTENT_SECURITY_POLICY).unwrap().to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        for part in ["frame-ancestors 'none'", "base-uri 'none'", "form-action 'self';"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert_eq!(response.headers().get(REFERRER_POLICY).unwrap(), "same-origin");
        assert_eq!(response.headers().get(X_FRAME_OPTIONS).unwrap(), "DENY");
    }
}
