//! Keys of `_meta` (2026-07-28, Base Protocol, "`_meta`").

/// The member of params and results that holds metadata.
pub const META: &str = "_meta";
/// Opts a request into progress notifications.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// Modern: the protocol version of a request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Modern: the sender of a request.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Modern: the capabilities of a request's sender.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Modern: the minimum severity of log messages that the request asks for.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Modern: the `subscriptions/listen` request a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Modern: the sender of a result.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// W3C Trace Context.
pub const TRACEPARENT: &str = "traceparent";
/// W3C Trace Context.
pub const TRACESTATE: &str = "tracestate";
/// The extension for tasks, among the capabilities of both sides.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The extension for skills, among the capabilities of servers.
pub const SKILLS: &str = "io.modelcontextprotocol/skills";
/// 2025-11-25: the task that a message belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Trunkline: the digests of the large results that a client holds.
pub const HELD_RESULTS: &str = "dev.trunkline/heldResults";
/// Trunkline: the digest of a large result.
pub const RESULT_DIGEST: &str = "dev.trunkline/resultDigest";
