//! A server's era, version and capabilities, and the interpretation of its responses to
//! `server/discover` and `initialize`.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::{Abilities, Answer, ErrorBody, Question, ResultBody, VersionFault};
use crate::catalog::ServerOffers;
use crate::jsonrpc::{self, Id, MAX_SERVER_DEPTH, object, parse_strict};
use crate::mcp::question::{ELICITATION, ROOTS, SAMPLING};
use crate::mcp::{Era, ProtocolVersion, code, meta};
use crate::text::{clip, escape_controls};

use crate::upstream::UpstreamError;

/// Identity that a server declared.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The negotiated version, which implies the era.
    pub version: ProtocolVersion,
    /// Its raw `serverInfo`.
    pub info: Bytes,
    /// The changes that the server announces.
    pub tells: ChangeCapabilities,
    /// Its capabilities, and its instructions for models.
    pub offers: Arc<ServerOffers>,
    /// Lists that a server without a capability for lists returned nevertheless.
    pub assumed: Arc<OnceLock<AssumedLists>>,
}

/// Lists of a server that declares none, as it returned them to the first request.
#[derive(Debug)]
pub struct AssumedLists {
    /// The server's capabilities, including those for its undeclared lists.
    pub offers: Arc<ServerOffers>,
    /// Remark for the operator, one sentence.
    pub remark: String,
}

/// Changes that a server announces with notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own")]
pub struct ChangeCapabilities {
    /// Changes of its list of tools.
    pub tools: bool,
    /// Changes of its list of prompts.
    pub prompts: bool,
    /// Changes of its list of resources.
    pub resources: bool,
    /// Updates of single resources, to subscribers.
    pub updates: bool,
    /// The status of tasks, to subscribers.
    pub tasks: bool,
}

impl ChangeCapabilities {
    fn of(capabilities: &Value) -> Self {
        let says = |kind: &str, what: &str| {
            capabilities.get(kind).and_then(|kind| kind.get(what)) == Some(&Value::Bool(true))
        };
        let extensions = capabilities.get("extensions");
        Self {
            tools: says("tools", "listChanged"),
            prompts: says("prompts", "listChanged"),
            resources: says("resources", "listChanged"),
            updates: says("resources", "subscribe"),
            tasks: extensions.and_then(|all| all.get(meta::TASKS)).is_some_and(Value::is_object),
        }
    }

    /// Returns true if the server announces changes of any list.
    pub fn changes(self) -> bool {
        self.tools || self.prompts || self.resources
    }

    /// Returns true if the server announces any change.
    pub fn anything(self) -> bool {
        self != Self::default()
    }
}

impl Peer {
    /// Returns the server's era.
    pub fn era(&self) -> Era {
        self.version.era()
    }

    /// Returns the server's capabilities, including undeclared ones that it was found to have.
    pub fn known_offers(&self) -> &Arc<ServerOffers> {
        self.assumed.get().map_or(&self.offers, |assumed| &assumed.offers)
    }

    /// Returns true if each list has to be requested, because the server declares none.
    pub fn awaits_assumption(&self) -> bool {
        self.assumed.get().is_none() && !self.offers.declares_lists()
    }

    /// Returns the name and version from `serverInfo`, for status and logs.
    pub fn name_and_version(&self) -> (String, String) {
        let info: Value = serde_json::from_slice(&self.info).unwrap_or_default();
        let text = |key: &str| {
            let text = info.get(key).and_then(Value::as_str).unwrap_or_default();
            escape_controls(clip(text, MAX_PEER_NAME_BYTES))
        };
        (text("name"), text("version"))
    }
}

/// The verdict on a response to `server/discover`.
#[derive(Debug)]
pub(super) enum DiscoverVerdict {
    /// The server speaks this Modern version.
    Modern(Box<Peer>),
    /// The server is Modern, but demands this version.
    Retry(ProtocolVersion),
    /// The server is Modern, and has no version in common with the gateway.
    Incompatible(UpstreamError),
    /// The server is Legacy: `initialize` comes next.
    Legacy,
}

/// Interprets the response to `server/discover`. Any response means Legacy, except a result or an
/// error that only Modern servers send. No single code decides (2026-07-28, stdio, "Backward
/// Compatibility").
pub(super) fn judge_discover(answer: &Answer) -> DiscoverVerdict {
    match answer {
        Answer::Result(result) => judge_result(result),
        Answer::Error(error) if code::is_modern_code(error.code()) => judge_refusal(error),
        Answer::Error(_) => DiscoverVerdict::Legacy,
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DiscoverResult {
    supported_versions: Vec<String>,
    protocol_version: Option<String>,
    #[serde(deserialize_with = "without_duplicates")]
    capabilities: Value,
    server_info: Option<Value>,
    instructions: Option<String>,
    #[serde(rename = "_meta")]
    metadata: Value,
}

/// Deserialises a value that is used for decisions, and refuses duplicate keys.
fn without_duplicates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    parse_strict(raw.get().as_bytes(), MAX_SERVER_DEPTH).map_err(D::Error::custom)
}

impl DiscoverResult {
    fn into_peer(self, version: ProtocolVersion) -> Peer {
        let info = self.metadata.get(meta::SERVER_INFO).cloned().or(self.server_info);
        let info = info.unwrap_or_else(|| json!({ "name": "unknown", "version": "0" }));
        let mut capabilities = self.capabilities;
        // Each era has its own form of tasks and does not use the other's (SEP-2663, "Backward
        // Compatibility").
        match (version.era(), capabilities.as_object_mut()) {
            (Era::Modern, Some(all)) => drop(all.remove("tasks")),
            (Era::Legacy, Some(all)) => {
                if let Some(Value::Object(extensions)) = all.get_mut("extensions") {
                    extensions.remove(meta::TASKS);
                }
            }
            (_, None) => {}
        }
        let tells = ChangeCapabilities::of(&capabilities);
        let offers = ServerOffers::new(&capabilities, self.instructions.as_deref());
        let info = bound_info(&info);
        let offers = Arc::new(offers.with_info(&info));
        Peer { version, info, tells, offers, assumed: Arc::default() }
    }
}

/// Returns the raw `serverInfo`, or only its name and version if it is too large. It is kept as
/// long as the server, and is sent with each result of a Legacy server.
fn bound_info(info: &Value) -> Bytes {
    let raw = info.to_string();
    if raw.len() <= MAX_SERVER_INFO_BYTES {
        return raw.into();
    }
    let text = |key: &str| clip(info.get(key).and_then(Value::as_str).unwrap_or("unknown"), 256);
    json!({ "name": text("name"), "version": text("version") }).to_string().into()
}

fn judge_result(result: &ResultBody) -> DiscoverVerdict {
    let Ok(introduction) = object::<DiscoverResult>(result.raw()) else {
        return DiscoverVerdict::Legacy;
    };
    if introduction.supported_versions.is_empty() {
        return DiscoverVerdict::Legacy;
    }
    match common_modern(&introduction.supported_versions) {
        Some(version) => DiscoverVerdict::Modern(Box::new(introduction.into_peer(version))),
        // A dual-era server that lists only Legacy versions.
        None if introduction
            .supported_versions
            .iter()
            .any(|v| ProtocolVersion::parse(v).is_some()) =>
        {
            DiscoverVerdict::Legacy
        }
        None => DiscoverVerdict::Incompatible(unsupported(&introduction.supported_versions)),
    }
}

fn judge_refusal(error: &ErrorBody) -> DiscoverVerdict {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct VersionRefusal {
        data: VersionRefusalData,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct VersionRefusalData {
        supported: Vec<String>,
    }
    let supported = object::<VersionRefusal>(error.raw()).unwrap_or_default().data.supported;
    match common_modern(&supported) {
        Some(version) if version != ProtocolVersion::LATEST_MODERN => {
            DiscoverVerdict::Retry(version)
        }
        None if supported.iter().any(|v| ProtocolVersion::parse(v).is_some()) => {
            DiscoverVerdict::Legacy
        }
        _ if error.code() == code::UNSUPPORTED_VERSION => {
            DiscoverVerdict::Incompatible(unsupported(&supported))
        }
        _ => DiscoverVerdict::Incompatible(refused(error)),
    }
}

fn common_modern(theirs: &[String]) -> Option<ProtocolVersion> {
    ProtocolVersion::ALL
        .into_iter()
        .filter(|version| version.era() == Era::Modern)
        .find(|version| theirs.iter().any(|their| their == version.as_str()))
}

/// Reads the response to `initialize`.
pub(super) fn judge_initialize(answer: &Answer) -> Result<Peer, UpstreamError> {
    let result = match answer {
        Answer::Result(result) => result,
        Answer::Error(error) => return Err(refused(error)),
    };
    let introduction: DiscoverResult =
        object(result.raw()).map_err(|error| UpstreamError::Shape(Arc::new(error)))?;
    let theirs = introduction.protocol_version.as_deref().and_then(ProtocolVersion::parse);
    match theirs.filter(|version| version.era() == Era::Legacy) {
        Some(version) => Ok(introduction.into_peer(version)),
        None => Err(unsupported(introduction.protocol_version.as_slice())),
    }
}

/// Maximum length in bytes of a name or version in the log and in the status.
const MAX_PEER_NAME_BYTES: usize = 256;
/// Maximum size in bytes of a `serverInfo` that is forwarded whole.
const MAX_SERVER_INFO_BYTES: usize = 16 * 1024;

/// Builds the error for a server that offers only versions that the gateway does not support.
fn unsupported(offered: &[String]) -> UpstreamError {
    let offered =
        offered.iter().take(MAX_SHOWN_VERSIONS).map(|version| clip(version, 32).to_owned());
    UpstreamError::Versions(VersionFault::Unsupported { offered: offered.collect() })
}

/// Builds the error for a JSON-RPC error in place of a required result.
pub(super) fn refused(error: &ErrorBody) -> UpstreamError {
    let message = clip(error.message(), 200).to_owned();
    UpstreamError::Refused { code: error.code(), message }
}

/// Returns the params of `initialize`, with these raw client capabilities.
pub(super) fn initialize_params(told: &[u8]) -> Bytes {
    json!({
        "protocolVersion": ProtocolVersion::LATEST_LEGACY.as_str(),
        "capabilities": value(told),
        "clientInfo": own_info(),
    })
    .to_string()
    .into()
}

/// Returns the params of the gateway's own requests to a Modern server: `members`, and the `_meta`
/// that every request carries.
pub(super) fn modern_params(version: ProtocolVersion, members: Value) -> Bytes {
    modern_params_for(version, b"{}", members)
}

/// Like [`modern_params`], on behalf of clients with these raw capabilities.
pub(super) fn modern_params_for(
    version: ProtocolVersion,
    capabilities: &[u8],
    members: Value,
) -> Bytes {
    modern_params_of(version, members, &value(capabilities))
}

/// Like [`modern_params_for`], with parsed capabilities.
pub(super) fn modern_params_of(
    version: ProtocolVersion,
    mut members: Value,
    capabilities: &Value,
) -> Bytes {
    if let Some(object) = members.as_object_mut() {
        object.insert(
            meta::META.into(),
            json!({
                meta::PROTOCOL_VERSION: version.as_str(),
                meta::CLIENT_INFO: own_info(),
                meta::CLIENT_CAPABILITIES: capabilities,
            }),
        );
    }
    members.to_string().into()
}

/// Returns the response to a server request that reaches no client: an empty result for `ping`, an
/// error otherwise.
pub(super) fn answer_to_server(id: &Id, method: &str) -> Bytes {
    if method == "ping" {
        return jsonrpc::response(id, b"{}");
    }
    let text = match method {
        SAMPLING | ELICITATION | ROOTS => format!(
            "{method} belongs to no call in progress, or to calls of more than one client: send \
             it during a call"
        ),
        _ => format!(
            "the gateway does not support {} for servers",
            clip(method, MAX_SHOWN_METHOD_BYTES)
        ),
    };
    jsonrpc::error(Some(id), &jsonrpc::error_object(code::METHOD_NOT_FOUND, &text))
}

/// Returns the error for a server request that the client left unanswered.
pub(super) fn unanswered(id: &Id) -> Bytes {
    let text = "the client did not answer before the call ended or timed out";
    jsonrpc::error(Some(id), &jsonrpc::error_object(code::INTERNAL_ERROR, text))
}

/// Returns the error for a server request of more than `limit` bytes.
pub(super) fn too_large(id: &Id, limit: usize) -> Bytes {
    let text = format!("the request is too large for a client: the limit is {limit} bytes");
    jsonrpc::error(Some(id), &jsonrpc::error_object(code::INVALID_PARAMS, &text))
}

/// Returns the error for a server request beyond the number that a call may have pending.
pub(super) fn too_many(id: &Id) -> Bytes {
    let text = "too many open requests in this call, or duplicate request id";
    jsonrpc::error(Some(id), &jsonrpc::error_object(code::INVALID_REQUEST, text))
}

/// Returns the error for a server request to a client that cannot answer any.
pub(super) fn not_offered(id: &Id, question: &Question) -> Bytes {
    let missing = question.missing_capability(&Abilities::none());
    let text = missing.map(|missing| question.not_offered(missing));
    let text = text.unwrap_or_else(|| format!("the client does not support {}", question.method));
    jsonrpc::error(Some(id), &jsonrpc::error_object(code::METHOD_NOT_FOUND, &text))
}

fn own_info() -> Value {
    json!({ "name": "trunkline", "version": env!("CARGO_PKG_VERSION") })
}

/// Parses raw JSON that is known to be an object.
fn value(raw: &[u8]) -> Value {
    serde_json::from_slice(raw).unwrap_or_else(|_| json!({}))
}

/// Maximum length in bytes of a server's method in an error.
const MAX_SHOWN_METHOD_BYTES: usize = 200;
/// Maximum number of a server's versions in an error.
const MAX_SHOWN_VERSIONS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Kind;
    use crate::jsonrpc::Response;

    fn answer(text: &str) -> Answer {
        let raw = Bytes::copy_from_slice(text.as_bytes());
        let response = if text.contains("\"code\"") {
            Response::Error(raw.into())
        } else {
            Response::Result(raw.into())
        };
        Answer::parse(response).unwrap()
    }

    #[test]
    fn only_a_recognised_modern_answer_means_modern() {
        for (text, modern) in [
            (r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#, true),
            (r#"{"code":-32601,"message":"no"}"#, false),
            (r#"{"code":-32602,"message":"no"}"#, false),
            (r#"{"code":-1,"message":"no"}"#, false),
            ("{}", false),
        ] {
            let verdict = judge_discover(&answer(text));
            assert_eq!(matches!(verdict, DiscoverVerdict::Modern(_)), modern, "{text}");
            assert_eq!(matches!(verdict, DiscoverVerdict::Legacy), !modern, "{text}");
        }
    }

    #[test]
    fn a_modern_refusal_never_falls_back() {
        let text = r#"{"code":-32022,"message":"no","data":{"supported":["2030-01-01"]}}"#;
        assert!(matches!(judge_discover(&answer(text)), DiscoverVerdict::Incompatible(_)));
        let text = r#"{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}"#;
        assert!(matches!(judge_discover(&answer(text)), DiscoverVerdict::Legacy));
    }

    #[test]
    fn a_legacy_server_introduces_itself() {
        let peer = judge_initialize(&answer(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"x","version":"1"}}"#,
        ))
        .unwrap();
        assert_eq!(peer.era(), Era::Legacy);
        assert!(peer.offers.offers_list(Kind::Tools) && !peer.offers.offers_list(Kind::Prompts));
        assert!(peer.tells.changes() && !peer.tells.updates);
        assert_eq!(peer.name_and_version(), ("x".into(), "1".into()));
    }
}
