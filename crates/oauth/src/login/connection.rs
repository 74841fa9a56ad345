//! A server as one of a user's connections: the state of its grant, and the ways to get and to end
//! it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};
use serde_json::json;

use trunkline_config::{GrantKind, GrantOwnership};
use trunkline_core::text::error_chain;
use trunkline_http_client::outbound::OutboundRequest;
use trunkline_protocol::call::ServerName;
use trunkline_protocol::mcp::MediaType;
use trunkline_telemetry::audit::{OperationActor, RecordRoom};

use crate::fault::LoginFault;
use crate::grants::authorizer::ServerAuthorizer;
use crate::grants::grant::GrantOwner;
use crate::metadata::challenge::{BearerChallenge, RequestedScopes, find_challenge};

/// A server with logins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The server.
    pub server: ServerName,
    /// State of the grant.
    pub state: ConnectionState,
    /// True if the owner has shown a key or token that permits it to use the server.
    pub is_offered: bool,
}

/// State of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    /// There is no grant.
    Missing,
    /// There is no grant, but a link has been issued.
    Awaited,
    /// There is a grant.
    Connected {
        /// The authorization server.
        issuer: String,
        /// Granted scopes, as far as is known, separated by spaces.
        scopes: String,
    },
}

/// The party that revokes a grant.
#[derive(Debug, Clone, Copy)]
pub struct LoginRevoker<'a> {
    /// Its name in records.
    pub actor: OperationActor<'a>,
    /// Its address, if it is known.
    pub address: Option<IpAddr>,
}

/// Outcome of the revocation of a grant. The gateway has deleted the grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevocationOutcome {
    /// There was no grant.
    Missing,
    /// The authorization server has revoked it.
    Revoked,
    /// The authorization server has no revocation endpoint.
    NoEndpoint,
    /// The authorization server has not revoked it.
    Refused {
        /// The reason.
        reason: String,
    },
}

impl ServerAuthorizer {
    /// Returns the server as a connection of this owner, or `None` if this owner cannot log in to
    /// it.
    pub fn connection(&self, owner: &GrantOwner) -> Option<Connection> {
        let is_for_all = self.oauth.per == GrantOwnership::Gateway;
        if self.oauth.grant != GrantKind::AuthorizationCode
            || (is_for_all && *owner != GrantOwner::Gateway)
        {
            return None;
        }
        let slot = self.book.find_slot(&self.key_of(owner));
        let is_offered = slot.as_ref().is_some_and(|slot| slot.is_offered.load(Ordering::Relaxed));
        let grant = slot.and_then(|slot| slot.grant.load_full());
        let state = match grant {
            Some(grant) => ConnectionState::Connected {
                issuer: grant.source.issuer.clone(),
                scopes: grant.given.to_string(),
            },
            None if self.open_login(owner).is_some() => ConnectionState::Awaited,
            None => ConnectionState::Missing,
        };
        Some(Connection { server: self.place.server.clone(), state, is_offered })
    }

    /// Shows the server among the owner's connections, if the owner may log in to it.
    pub fn offer_connection(&self, owner: &GrantOwner) {
        if self.connection(owner).is_some() {
            self.book.slot(self.key_of(owner)).is_offered.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the link by which an owner logs in: the open one, or a new one, which is recorded in
    /// the room that was reserved for it.
    ///
    /// # Errors
    /// [`LoginFault`] if there can be no login.
    pub async fn begin_login(
        &self,
        owner: &GrantOwner,
        room: Option<RecordRoom>,
    ) -> Result<Arc<str>, LoginFault> {
        if let Some(open) = self.open_login(owner) {
            return Ok(open.link);
        }
        self.begin_login_for(owner, &self.provoke_challenge().await, room).await
    }

    /// Creates a link by which an owner logs in, for the server's challenge.
    async fn begin_login_for(
        &self,
        owner: &GrantOwner,
        challenge: &BearerChallenge,
        room: Option<RecordRoom>,
    ) -> Result<Arc<str>, LoginFault> {
        let slot = self.book.slot(self.key_of(owner));
        let _turn = slot.turn.lock().await;
        let found = self.discover(challenge).await?;
        let current = slot.grant.load_full();
        let known = current.filter(|grant| grant.source.issuer == found.metadata.issuer);
        let asked = known.map(|grant| grant.source.scopes.clone()).unwrap_or_default();
        let known = RequestedScopes { challenge, asked: &asked };
        let link = self.start_login(&slot, &found, known, room).await?;
        Ok(link.url)
    }

    /// Sends a request without a token and returns the server's challenge. Returns an empty one if
    /// the server sends none, or if a plain HTTP request to it is not allowed.
    async fn provoke_challenge(&self) -> BearerChallenge {
        let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, MediaType::JSON),
            (ACCEPT, MediaType::JSON_OR_EVENTS),
        ]);
        let body = Bytes::from(ping.to_string());
        let request = OutboundRequest { method: Method::POST, url: &self.place.url, headers, body };
        let answer = self.outbound.send(request).await.ok();
        answer.and_then(|answer| find_challenge(&answer.headers)).unwrap_or_default()
    }

    /// Revokes an owner's grant at its authorization server, and deletes it.
    ///
    /// # Errors
    /// [`LoginFault::Vault`] if the vault still has it.
    pub async fn revoke_grant(
        &self,
        owner: &GrantOwner,
        by: LoginRevoker<'_>,
    ) -> Result<RevocationOutcome, LoginFault> {
        let slot = match self.book.find_slot(&self.key_of(owner)) {
            Some(slot) => slot,
            // Another replica may have it.
            None if self.shares_grants() => self.book.slot(self.key_of(owner)),
            None => return Ok(RevocationOutcome::Missing),
        };
        let _turn = slot.turn.lock().await;
        self.book.tickets.end_logins(&slot);
        if self.shares_grants() {
            // The tokens to revoke are those of the last renewal. Without the store, the deletion below
            // fails as well.
            let _ = self.book.compare_kept(&slot, self).await;
        }
        let grant = slot.grant.load_full();
        // First here: the gateway stops using the grant, whatever the authorization server
        // responds.
        slot.drop_grant();
        let dropped = self.book.delete_grant(&slot.key).await;
        if dropped.is_ok() {
            *slot.record.lock() = None;
        }
        let fault = dropped.as_ref().err();
        self.book.audit_revocation(&slot.key, by.actor, by.address, fault);
        dropped?;
        slot.end_login();
        let Some(grant) = grant else { return Ok(RevocationOutcome::Missing) };
        tracing::info!(
            target: "trunkline::upstream::credentials::login::connection",
            server = %self.place.server,
            "a login is revoked"
        );
        Ok(match grant.revoke_tokens().await {
            Ok(true) => RevocationOutcome::Revoked,
            Ok(false) => RevocationOutcome::NoEndpoint,
            Err(fault) => {
                let reason = error_chain(&fault);
                tracing::warn!(
                    target: "trunkline::upstream::credentials::login::connection",
                    server = %self.place.server,
                    reason,
                    "a login is not revoked at its issuer"
                );
                RevocationOutcome::Refused { reason }
            }
        })
    }
}
