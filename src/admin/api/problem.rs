//! Errors of the API: `application/problem+json` (RFC 9457), with a stable code each.

use std::fmt;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::downstream::Body;
use crate::listener::AdmissionError;

/// The codes, with their status and meaning. Clients rely on the names: they never change.
macro_rules! problem_codes {
    ($( $(#[doc = $doc:literal])* $Code:ident = $name:literal, $status:ident; )*) => {
        /// A kind of error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
        pub(crate) enum ProblemCode {
            $( $(#[doc = $doc])* #[serde(rename = $name)] $Code, )*
        }

        impl ProblemCode {
            /// All codes, with their meanings.
            pub(crate) const ALL: &'static [(Self, &'static str)] =
                &[$( (Self::$Code, concat!($($doc),*)), )*];

            /// Returns the name.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $( Self::$Code => $name, )* }
            }

            /// Returns the status of the response.
            pub(crate) fn status(self) -> StatusCode {
                match self { $( Self::$Code => StatusCode::$status, )* }
            }
        }
    };
}

problem_codes! {
    /// There is no such path.
    UnknownPath = "unknown_path", NOT_FOUND;
    /// The path has other methods: see `Allow`.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    /// A parameter or the body is invalid.
    InvalidRequest = "invalid_request", BAD_REQUEST;
    /// A body has to be JSON.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE;
    /// The body has more bytes than the API accepts.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE;
    /// The request has no valid key, token or certificate.
    Unauthenticated = "unauthenticated", UNAUTHORIZED;
    /// The address has sent too many requests with wrong credentials: see `Retry-After`.
    TooManyAttempts = "too_many_attempts", TOO_MANY_REQUESTS;
    /// The role of the client does not include this request.
    RoleNeeded = "role_needed", FORBIDDEN;
    /// The request comes from a web page of another site.
    ForeignPage = "foreign_page", FORBIDDEN;
    /// The request names a host that is not allowed: add it to `admin.allowed_hosts`.
    ForeignHost = "foreign_host", FORBIDDEN;
    /// The request has a transfer coding other than `chunked`.
    UnknownCoding = "unknown_coding", NOT_IMPLEMENTED;
    /// The headers are too many, or have too many bytes.
    HeadTooLarge = "head_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE;
    /// The configuration has no such server.
    UnknownServer = "unknown_server", NOT_FOUND;
    /// The configuration has no such client.
    UnknownClient = "unknown_client", NOT_FOUND;
    /// The configuration has no such profile.
    UnknownProfile = "unknown_profile", NOT_FOUND;
    /// The plan is unknown, or the configuration has changed since: make a new one.
    PlanOutdated = "plan_outdated", CONFLICT;
    /// The request needs an audit log in a file: set `audit.file`.
    AuditFileNeeded = "audit_file_needed", CONFLICT;
    /// There is no such version of the configuration.
    UnknownVersion = "unknown_version", NOT_FOUND;
    /// The configuration file cannot be written: see `detail`.
    FileNotWritten = "file_not_written", CONFLICT;
    /// There is no such session.
    UnknownSession = "unknown_session", NOT_FOUND;
    /// The call is not among the recent ones.
    UnknownCall = "unknown_call", NOT_FOUND;
    /// As many operators observe as allowed.
    TooManyObservers = "too_many_observers", SERVICE_UNAVAILABLE;
    /// There is no such login.
    UnknownLogin = "unknown_login", NOT_FOUND;
    /// Nothing waits for approval in exactly these forms.
    NotPending = "not_pending", CONFLICT;
    /// The request needs a folder for the gateway's state: set `gateway.state_dir`.
    StateDirNeeded = "state_dir_needed", CONFLICT;
    /// An operator has disabled the server: enable it first.
    ServerDisabled = "server_disabled", CONFLICT;
    /// The server cannot do that now: see `detail`.
    ServerUnavailable = "server_unavailable", SERVICE_UNAVAILABLE;
    /// The store of the gateway's replicas cannot be reached: try again later.
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE;
    /// The store of the gateway's replicas takes no record of this size: see `detail`.
    RecordTooLarge = "record_too_large", CONFLICT;
    /// The gateway cannot answer: see its log.
    Internal = "internal", INTERNAL_SERVER_ERROR;
}

/// Reason that a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiProblem {
    /// Its kind.
    pub(crate) code: ProblemCode,
    /// One sentence for people.
    pub(crate) detail: String,
    /// A header that tells more to programs.
    pub(crate) header: Option<ProblemHeader>,
}

/// A header of a refusal, with its value.
pub(crate) type ProblemHeader = (HeaderName, String);

/// The members of the document.
#[derive(Serialize, JsonSchema)]
pub(super) struct ProblemDocument {
    /// `urn:trunkline:problem:` and the code.
    r#type: String,
    /// The meaning of the code.
    title: &'static str,
    /// The status of the response.
    status: u16,
    /// One sentence about this request.
    detail: String,
    /// The stable code.
    code: ProblemCode,
}

impl ApiProblem {
    /// Creates a problem.
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), header: None }
    }

    /// Creates the problem of a request that is not valid.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::InvalidRequest, detail)
    }

    /// Creates the problem of a request that the guard of the listener refuses.
    fn of_admission(refusal: &AdmissionError) -> Self {
        let code = match refusal {
            AdmissionError::MissingHost
            | AdmissionError::AmbiguousHost
            | AdmissionError::MalformedHost
            | AdmissionError::AmbiguousFraming => ProblemCode::InvalidRequest,
            AdmissionError::ForeignHost(_) => ProblemCode::ForeignHost,
            AdmissionError::OpaqueOrigin | AdmissionError::ForeignOrigin(_) => {
                ProblemCode::ForeignPage
            }
            AdmissionError::UnknownCoding => ProblemCode::UnknownCoding,
            AdmissionError::HeadersTooLarge { .. } | AdmissionError::TooManyHeaders { .. } => {
                ProblemCode::HeadTooLarge
            }
        };
        Self::new(code, refusal.describe_for_operators())
    }

    /// Creates the problem of a method that a path does not have.
    pub(super) fn method_not_allowed(allowed: &str) -> Self {
        let detail = format!("expected one of the methods {allowed}");
        let header = Some((ALLOW, allowed.to_owned()));
        Self { header, ..Self::new(ProblemCode::MethodNotAllowed, detail) }
    }

    /// Creates the problem of a request without a valid credential.
    pub(super) fn unauthenticated(detail: impl Into<String>) -> Self {
        let header = Some((WWW_AUTHENTICATE, "Bearer".to_owned()));
        Self { header, ..Self::new(ProblemCode::Unauthenticated, detail) }
    }

    /// Creates the problem of an address with too many wrong credentials.
    pub(super) fn too_many_attempts(detail: impl Into<String>, seconds: u64) -> Self {
        let header = Some((RETRY_AFTER, seconds.to_string()));
        Self { header, ..Self::new(ProblemCode::TooManyAttempts, detail) }
    }

    /// Returns the response.
    pub(crate) fn respond(self) -> Response<Body> {
        let Self { code, detail, header } = self;
        let document = ProblemDocument {
            r#type: format!("urn:trunkline:problem:{}", code.as_str()),
            title: code.title(),
            status: code.status().as_u16(),
            detail,
            code,
        };
        let mut body = serde_json::to_vec_pretty(&document).unwrap_or_default();
        body.push(b'\n');
        let length = HeaderValue::from(body.len());
        let mut response = Response::new(Body::Whole(Bytes::from(body)));
        *response.status_mut() = code.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        headers.insert(CONTENT_LENGTH, length);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some((name, value)) = header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            headers.insert(name, value);
        }
        response
    }
}

/// Answers a request that the guard of the listener refuses.
pub fn refuse_admission(refusal: &AdmissionError) -> Response<Body> {
    ApiProblem::of_admission(refusal).respond()
}

impl ProblemCode {
    /// Returns the meaning.
    fn title(self) -> &'static str {
        let found = Self::ALL.iter().find(|(code, _)| *code == self);
        found.map_or("", |(_, meaning)| meaning.trim())
    }
}

impl fmt::Display for ApiProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.detail)
    }
}

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
