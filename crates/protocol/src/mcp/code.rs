//! Error codes, of JSON-RPC 2.0 and of MCP (2026-07-28, Base Protocol, "Error Codes").

/// JSON-RPC: invalid JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON-RPC: not a valid request.
pub const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: unknown method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: invalid parameters.
pub const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC: internal error of the responder.
pub const INTERNAL_ERROR: i64 = -32603;
/// MCP, up to 2025-11-25: unknown resource. Modern servers send [`INVALID_PARAMS`] instead and must
/// not send this code.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// MCP `HeaderMismatch`: headers and body disagree.
pub const HEADER_MISMATCH: i64 = -32020;
/// MCP `MissingRequiredClientCapability`.
pub const MISSING_CAPABILITY: i64 = -32021;
/// MCP `UnsupportedProtocolVersion`.
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// MCP, Legacy: the user has to open a URL first.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Trunkline: the key or token is missing or not valid. Allocated outside the range that JSON-RPC reserves, as
/// MCP requires of codes that it does not define.
pub const UNAUTHENTICATED: i64 = 40_100;
/// Trunkline: the principal lacks a scope.
pub const INSUFFICIENT_SCOPE: i64 = 40_300;
/// Trunkline: a rate or concurrency limit is exceeded.
pub const OVER_LIMIT: i64 = 42_900;
/// Trunkline: the server behind the gateway is unreachable or closed the connection.
pub const SERVER_UNAVAILABLE: i64 = 50_300;
/// Trunkline: the server behind the gateway did not answer in time.
pub const SERVER_TIMEOUT: i64 = 50_400;

/// Returns true if only Modern servers send this code (2026-07-28, Versioning, "Backward
/// Compatibility": a recognised modern error identifies a Modern server).
#[inline]
pub fn is_modern_code(code: i64) -> bool {
    matches!(code, HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION)
}
