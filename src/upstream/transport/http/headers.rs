//! Request headers, written straight into the request.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use crate::call::{Call, Context};
use crate::mcp::{self, Era, ProtocolVersion, encode_value, header};
use crate::policy::CallTarget;
use crate::upstream::UpstreamError;

use super::HttpShared;

/// The headers of one request, besides the fixed ones. They are written straight into the request,
/// and once more for each redirect.
pub(crate) trait RequestHeaders {
    /// Adds the headers, and replaces those of the same name.
    fn add_to(&self, headers: &mut HeaderMap);

    /// Returns the context of the call that causes the request, if there is one.
    fn caller(&self) -> Option<&Context> {
        None
    }

    /// Adds headers that depend on the whole request and all its other headers, such as a
    /// signature.
    ///
    /// # Errors
    /// [`UpstreamError`] if such a header cannot be made.
    fn sign(&self, _: &SignableRequest<'_>, _: &mut HeaderMap) -> Result<(), UpstreamError> {
        Ok(())
    }
}

/// A request without its headers, as signatures and proofs name it.
pub(crate) struct SignableRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) host: &'a HeaderValue,
    pub(crate) body: &'a [u8],
}

impl RequestHeaders for HeaderMap {
    fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// A request's headers together with those of its session. The session's headers prevail.
impl<H: RequestHeaders, S: RequestHeaders> RequestHeaders for (&H, Option<&S>) {
    fn add_to(&self, headers: &mut HeaderMap) {
        let (own, session) = self;
        own.add_to(headers);
        if let Some(session) = session {
            session.add_to(headers);
        }
    }

    fn caller(&self) -> Option<&Context> {
        self.0.caller()
    }
}

/// The headers of a client's call to a plain HTTP API.
pub(crate) struct ApiHeaders<'a> {
    pub(crate) headers: HeaderMap,
    pub(crate) call: &'a Call,
}

impl RequestHeaders for ApiHeaders<'_> {
    fn add_to(&self, headers: &mut HeaderMap) {
        self.headers.add_to(headers);
    }

    fn caller(&self) -> Option<&Context> {
        Some(&self.call.context)
    }
}

/// The headers of a client's call.
pub(super) struct CallHeaders<'a> {
    pub(super) shared: &'a HttpShared,
    pub(super) call: &'a Call,
    pub(super) target: &'a CallTarget,
    /// Tool parameters sent as headers.
    pub(super) mirrored: Vec<(HeaderName, HeaderValue)>,
}

impl RequestHeaders for CallHeaders<'_> {
    fn add_to(&self, headers: &mut HeaderMap) {
        let Self { shared, call, target, mirrored } = self;
        if shared.peer.era() == Era::Modern {
            add_modern(headers, shared.peer.version, &call.method);
            if let Some(name) = name_header(&call.method, target) {
                headers.insert(header::NAME, name);
            }
        }
        shared.caller_headers.add_to(headers, call);
        for (name, value) in mirrored {
            headers.insert(name.clone(), value.clone());
        }
    }

    fn caller(&self) -> Option<&Context> {
        Some(&self.call.context)
    }
}

impl HttpShared {
    /// Returns the client's headers for a Legacy server's call.
    pub(super) fn clients_own(&self, call: &Call) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.caller_headers.add_to(&mut headers, call);
        headers
    }
}

/// Returns the value of `Mcp-Name`, for a method that has a subject.
fn name_header(method: &mcp::Method, target: &CallTarget) -> Option<HeaderValue> {
    if let Some(tool) = &target.tool {
        return Some(tool.name_header.clone());
    }
    let name = target.native.as_ref().filter(|_| method.name_param().is_some());
    name.map(|name| encode_value(name.as_str()))
}

/// Returns the headers of a request without a subject to a Modern server.
pub(super) fn modern_headers(version: ProtocolVersion, method: &mcp::Method) -> HeaderMap {
    let mut headers = HeaderMap::new();
    add_modern(&mut headers, version, method);
    headers
}

/// Adds the headers of every Modern request (2026-07-28, Streamable HTTP,
/// "Standard Request Headers").
fn add_modern(headers: &mut HeaderMap, version: ProtocolVersion, method: &mcp::Method) {
    headers.insert(header::PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
    headers.insert(header::METHOD, method.to_header());
}
