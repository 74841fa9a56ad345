//! Headers of requests to servers, written straight into the request.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::call::{Call, Context};
use crate::http_client::RequestHeaders;
use crate::mcp::{self, Era, ProtocolVersion, add_modern_headers, encode_value};
use crate::policy::CallTarget;

use super::HttpShared;

/// The headers of a request to a server.
pub(crate) trait ServerHeaders: RequestHeaders {
    /// Returns the context of the call that causes the request, if there is one.
    fn caller(&self) -> Option<&Context> {
        None
    }
}

impl ServerHeaders for HeaderMap {}

/// A request's headers together with those of its session.
impl<H: ServerHeaders, S: RequestHeaders> ServerHeaders for (&H, Option<&S>) {
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
}

impl ServerHeaders for ApiHeaders<'_> {
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
            let version = Some(shared.peer.version.to_header());
            let name = name_header(&call.method, target);
            add_modern_headers(headers, version, &call.method, name);
        }
        shared.caller_headers.add_to(headers, call);
        for (name, value) in mirrored {
            headers.insert(name.clone(), value.clone());
        }
    }
}

impl ServerHeaders for CallHeaders<'_> {
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
    add_modern_headers(&mut headers, Some(version.to_header()), method, None);
    headers
}
