//! Records of operations on the gateway itself: logins at servers, relayed logins, reloads and
//! administrative changes.
//!
//! An operation names its elements by their names in the configuration. Links, codes, tokens, keys
//! and the texts of configurations are never an input.

use std::net::IpAddr;

use trunkline_core::text::clip;

use super::record::{RecordId, RecordTime, RecordWriter};
use crate::MAX_CLIENT_TEXT_BYTES;
use crate::batch_queue::QueueShare;

/// An operation, with its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOperation<'a> {
    /// A link was issued to its owner: for a login at a server, or for the page of the owner's
    /// logins.
    LoginLink {
        /// Owner of the login; `None` for the account of the gateway itself.
        owner: Option<&'a str>,
        /// The server.
        server: Option<&'a str>,
    },
    /// A browser brought the response to a login, or one that belongs to no login.
    Login {
        /// Owner of the login.
        owner: Option<&'a str>,
        /// The server.
        server: Option<&'a str>,
    },
    /// The login of an owner at a server was revoked.
    Revocation {
        /// Owner of the login.
        owner: Option<&'a str>,
        /// The server.
        server: &'a str,
    },
    /// A request of a relayed login.
    Relay {
        /// The issuer, by its name.
        issuer: &'a str,
        /// The endpoint.
        endpoint: &'static str,
        /// The id of the client at the issuer, as the request names it.
        client_id: Option<&'a str>,
    },
    /// The configuration was read again.
    Reload {
        /// Digest of the file in force before.
        before: &'a str,
        /// Digest of the new file; `None` if it could not be read.
        after: Option<&'a str>,
        /// Number of protections that the new file removes or weakens.
        losses: usize,
    },
    /// An operator has sent a request that may change something.
    Change {
        /// The HTTP method.
        method: &'a str,
        /// The path, and its query if there is one.
        path: &'a str,
        /// The digests of the definitions that were decided about.
        digests: &'a [String],
        /// The client that a refused call names as its caller.
        client: Option<&'a str>,
    },
}

/// The party that began an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationActor<'a> {
    /// A client, by the name of its principal.
    Client(&'a str),
    /// A person with a browser, or a program without credentials.
    Visitor,
    /// An operator, by name if operators are distinguished.
    Operator(Option<&'a str>),
    /// The gateway, such as its watcher of files.
    Gateway,
}

/// Outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationOutcome {
    /// It was done.
    Ok,
    /// The gateway refused it.
    Refused,
    /// It failed.
    Failed,
}

/// The record of an operation.
#[derive(Debug, Clone, Copy)]
pub struct OperationRecord<'a> {
    /// The operation.
    pub operation: AuditOperation<'a>,
    /// The party that began it.
    pub actor: OperationActor<'a>,
    /// The address of that party, if it is known.
    pub address: Option<IpAddr>,
    /// The outcome.
    pub outcome: OperationOutcome,
    /// The reason of a refusal or failure, without foreign text.
    pub reason: Option<&'a str>,
}

impl OperationRecord<'_> {
    /// Returns the share of the queue: requests of strangers may not displace other records.
    pub(super) fn share(&self) -> QueueShare {
        match self.operation {
            AuditOperation::Relay { .. } | AuditOperation::Login { server: None, .. } => {
                QueueShare::Half
            }
            _ => QueueShare::Whole,
        }
    }

    /// Appends the record as one JSON object, like those of requests.
    pub(super) fn write_json(&self, id: RecordId<'_>, time: RecordTime<'_>, out: &mut Vec<u8>) {
        let mut json = RecordWriter { out };
        json.write_start(id, time);
        json.write_word(",\"event\":\"", "operation");
        json.write_word(",\"operation\":\"", self.operation.label());
        json.write_word(",\"actor\":{\"kind\":\"", self.actor.kind());
        json.write_optional(",\"name\":", self.actor.name());
        json.write_raw("}");
        json.write_address(self.address);
        self.operation.write_members(&mut json);
        json.write_word(",\"outcome\":\"", self.outcome.label());
        json.write_optional(",\"reason\":", self.reason);
        json.write_raw("}");
    }
}

impl AuditOperation<'_> {
    fn label(self) -> &'static str {
        match self {
            Self::LoginLink { .. } => "login_link",
            Self::Login { .. } => "login",
            Self::Revocation { .. } => "revocation",
            Self::Relay { .. } => "relay",
            Self::Reload { .. } => "reload",
            Self::Change { .. } => "change",
        }
    }

    fn write_members(self, json: &mut RecordWriter<'_>) {
        match self {
            Self::LoginLink { owner, server } | Self::Login { owner, server } => {
                json.write_optional(",\"principal\":", owner);
                json.write_optional(",\"server\":", server);
            }
            Self::Revocation { owner, server } => {
                json.write_optional(",\"principal\":", owner);
                json.write_member(",\"server\":", server);
            }
            Self::Relay { issuer, endpoint, client_id } => {
                json.write_member(",\"issuer\":", issuer);
                json.write_word(",\"endpoint\":\"", endpoint);
                let client_id = client_id.map(|id| clip(id, MAX_CLIENT_TEXT_BYTES));
                json.write_optional(",\"client_id\":", client_id);
            }
            Self::Reload { before, after, losses } => {
                json.write_member(",\"digest_before\":", before);
                json.write_optional(",\"digest_after\":", after);
                json.write_number(",\"losses\":", Some(losses as u64));
            }
            Self::Change { method, path, digests, client } => {
                json.write_member(",\"method\":", method);
                json.write_member(",\"path\":", clip(path, MAX_PATH_BYTES));
                if !digests.is_empty() {
                    let recorded = digests.get(..MAX_RECORDED_DIGESTS).unwrap_or(digests);
                    json.write_list(",\"digests\":[", recorded);
                    json.write_number(",\"digest_count\":", Some(digests.len() as u64));
                }
                if let Some(client) = client {
                    json.write_member(",\"client\":", clip(client, MAX_CLIENT_TEXT_BYTES));
                }
            }
        }
    }
}

impl<'a> OperationActor<'a> {
    fn kind(self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Visitor => "visitor",
            Self::Operator(_) => "operator",
            Self::Gateway => "gateway",
        }
    }

    fn name(self) -> Option<&'a str> {
        match self {
            Self::Client(name) => Some(name),
            Self::Operator(name) => name,
            Self::Visitor | Self::Gateway => None,
        }
    }
}

impl OperationOutcome {
    fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Limit of the bytes of a path.
const MAX_PATH_BYTES: usize = 512;
/// Limit of the digests in a record.
const MAX_RECORDED_DIGESTS: usize = 100;
