//! A server as one of a user's connections: whether there is a grant, how to get one, and how to end
//! it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};
use serde_json::json;

use crate::call::ServerName;
use crate::config::{GrantKind, GrantOwnership};
use crate::mcp::MediaType;
use crate::text::error_chain;
use crate::upstream::outbound::OutboundRequest;

use super::authorizer::ServerAuthorizer;
use super::challenge::{BearerChallenge, find_challenge};
use super::fault::LoginFault;
use super::grant::GrantOwner;

/// A server that somebody can log in to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The server.
    pub server: ServerName,
    /// Whether there is a grant.
    pub state: ConnectionState,
    /// Whether the owner has shown a key or token by which it may use the server.
    pub is_offered: bool,
}

/// Whether there is a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    /// There is none.
    Missing,
    /// There is none, and a link is out.
    Awaited,
    /// There is one.
    Connected {
        /// The authorization server.
        issuer: String,
        /// What was granted, as far as is known, with spaces in between.
        scopes: String,
    },
}

/// What happened to a grant that was to be revoked. The gateway has deleted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevocationOutcome {
    /// There was none.
    Missing,
    /// The authorization server has revoked it.
    Revoked,
    /// The authorization server has no endpoint for that.
    NoEndpoint,
    /// The authorization server has not revoked it.
    Refused {
        /// Why.
        reason: String,
    },
}

impl ServerAuthorizer {
    /// The server as a connection of this owner; `None` if it is not for the owner to log in.
    pub(in crate::upstream) fn connection(&self, owner: &GrantOwner) -> Option<Connection> {
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

    /// Has the connections of this owner show the server, if the owner may log in to it.
    pub(in crate::upstream) fn offer_connection(&self, owner: &GrantOwner) {
        if self.connection(owner).is_some() {
            self.book.slot(self.key_of(owner)).is_offered.store(true, Ordering::Relaxed);
        }
    }

    /// The link by which an owner logs in: the one that is out, or a new one.
    ///
    /// # Errors
    /// [`LoginFault`] if there can be no login.
    pub(in crate::upstream) async fn begin_login(
        &self,
        owner: &GrantOwner,
    ) -> Result<Arc<str>, LoginFault> {
        if let Some(open) = self.open_login(owner) {
            return Ok(open.link);
        }
        self.begin_login_for(owner, &self.provoke_challenge().await).await
    }

    /// A new link by which an owner logs in, for what the server asks for.
    async fn begin_login_for(
        &self,
        owner: &GrantOwner,
        challenge: &BearerChallenge,
    ) -> Result<Arc<str>, LoginFault> {
        let slot = self.book.slot(self.key_of(owner));
        let _turn = slot.turn.lock().await;
        let found = self.discover(challenge).await?;
        let current = slot.grant.load_full();
        let known = current.filter(|grant| grant.source.issuer == found.metadata.issuer);
        let asked = known.map(|grant| grant.source.scopes.clone()).unwrap_or_default();
        let link = self.start_login(&slot, &found, (challenge, &asked)).await?;
        Ok(link.url)
    }

    /// What the server asks for when it refuses a request without a token; nothing if it does not
    /// say, or may not be asked by HTTP.
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
    pub(in crate::upstream) async fn revoke_grant(
        &self,
        owner: &GrantOwner,
    ) -> Result<RevocationOutcome, LoginFault> {
        let Some(slot) = self.book.find_slot(&self.key_of(owner)) else {
            return Ok(RevocationOutcome::Missing);
        };
        let _turn = slot.turn.lock().await;
        self.book.tickets.end_logins(&slot);
        let grant = slot.grant.load_full();
        // First here: whatever the authorization server says, the gateway uses it no longer.
        self.book.drop_grant(&slot).await?;
        slot.end_login();
        let Some(grant) = grant else { return Ok(RevocationOutcome::Missing) };
        tracing::info!(server = %self.place.server, "a login is revoked");
        Ok(match grant.revoke_tokens().await {
            Ok(true) => RevocationOutcome::Revoked,
            Ok(false) => RevocationOutcome::NoEndpoint,
            Err(fault) => {
                let reason = error_chain(&fault);
                tracing::warn!(server = %self.place.server, reason, "a login is not revoked at its issuer");
                RevocationOutcome::Refused { reason }
            }
        })
    }
}
