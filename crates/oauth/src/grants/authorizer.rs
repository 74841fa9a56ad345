//! Tokens of one server: the choice of the token for a request, and the renewal of tokens.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use url::Url;

use trunkline_config::{
    GrantKind, GrantOwnership, OauthConfig, ServerConfig, ServerKind, ServerSecrets,
};
use trunkline_core::clock;
use trunkline_core::codec::file::FileReader;
use trunkline_core::text::error_chain;
use trunkline_http_client::outbound::{OutboundClient, Remedy};
use trunkline_protocol::call::{CallerToken, Principal};
use trunkline_telemetry::metrics::ServerMetrics;

use super::book::{GrantBook, GrantKey, GrantPlace, GrantSlot, LoginLink};
use super::exchange::{HeldTokens, TokenSeeker};
use super::grant::{GrantOwner, OauthGrant};
use super::keeping::KeptGrant;
use crate::fault::LoginFault;
use crate::metadata::scopes::ScopeSet;
use crate::proofs::assertion::AssertionKey;

/// The tokens of one server.
pub struct ServerAuthorizer {
    /// For tasks that continue if the request that began them is dropped.
    own: Weak<Self>,
    /// The server, as a part of grants' keys.
    pub(crate) place: Arc<GrantPlace>,
    pub(crate) oauth: OauthConfig,
    /// Records the tokens that are sent to the server.
    secrets: ServerSecrets,
    pub(crate) scopes: ScopeSet,
    pub(crate) outbound: OutboundClient,
    pub(crate) book: Arc<GrantBook>,
    /// The issuer with which the configured client was first used.
    pub(crate) first_issuer: OnceLock<String>,
    /// Tokens in the configuration, and the reader of their files.
    pub(crate) held: HeldTokens,
    pub(crate) files: FileReader,
    /// Counts the server's requests for more scopes. `None` outside a gateway.
    pub(crate) metrics: Option<Arc<ServerMetrics>>,
}

/// A login that a server requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginDemand {
    /// Link to log in by.
    pub link: Arc<str>,
    /// Recipient of the link.
    pub audience: LinkAudience,
}

/// Permitted recipient of a link to log in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkAudience {
    /// The client that made the call.
    Caller,
    /// Only the operator, because all clients would use the account that logs in.
    Operator,
}

/// A server that requires OAuth tokens.
struct OauthTarget<'a> {
    oauth: &'a OauthConfig,
    url: Url,
    /// The file with the trusted CA certificates.
    ca: Option<&'a PathBuf>,
}

impl ServerAuthorizer {
    /// Returns the authorizer of a server, or `None` for a server without OAuth.
    pub fn of(
        config: &ServerConfig,
        book: &Arc<GrantBook>,
        metrics: Option<Arc<ServerMetrics>>,
    ) -> Option<Arc<Self>> {
        let oauth = config.oauth()?;
        let (url, ca) = match &config.target {
            ServerKind::Http(http) => (http.url.clone(), &http.ca),
            ServerKind::OpenApi(api) => (api.resource()?, &api.ca),
            ServerKind::Command(_) => return None,
        };
        let target = OauthTarget { oauth, url, ca: ca.as_ref() };
        Some(Self::new(config, target, book, metrics))
    }

    fn new(
        config: &ServerConfig,
        target: OauthTarget<'_>,
        book: &Arc<GrantBook>,
        metrics: Option<Arc<ServerMetrics>>,
    ) -> Arc<Self> {
        let OauthTarget { oauth, url, ca } = target;
        let oauth = oauth.clone();
        let has_accounts = oauth.per == GrantOwnership::User && oauth.grant.exchanges_callers();
        let ca = oauth.ca.clone().or_else(|| ca.cloned());
        let issuer = oauth.issuer.as_deref().and_then(|issuer| Url::parse(issuer).ok());
        let idp = oauth.idp.as_ref().map(|idp| &idp.token_endpoint);
        let configured = [&url].into_iter().chain(&issuer).chain(idp);
        let outbound =
            OutboundClient::new(ca, configured, &oauth.allow_addresses, Remedy::AllowAddress);
        let authorizer = Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            place: Arc::new(GrantPlace { server: config.name.clone(), url }),
            secrets: config.secrets.clone(),
            scopes: oauth.scopes.iter().map(String::as_str).collect(),
            held: HeldTokens::new(&oauth),
            files: FileReader::default(),
            oauth,
            outbound,
            book: Arc::clone(book),
            first_issuer: OnceLock::new(),
            metrics,
        });
        if has_accounts {
            book.expect_accounts();
        }
        book.meet_authorizer(&authorizer);
        authorizer
    }

    /// Records a credential of a request as secret, because the server may repeat it in texts that
    /// the gateway logs or shows.
    pub fn note_sent(&self, value: &HeaderValue) {
        self.secrets.note_header(value);
    }

    /// Returns the owner of the grant for a principal's requests. Without a principal, the gateway
    /// is the owner.
    pub fn owner_of(&self, principal: Option<&Principal>) -> GrantOwner {
        match (self.oauth.per, principal) {
            (GrantOwnership::Gateway, _) | (_, None | Some(Principal::Anonymous)) => {
                GrantOwner::Gateway
            }
            (GrantOwnership::User, Some(principal)) => GrantOwner::Client(principal.clone()),
        }
    }

    /// Returns true if clients have grants of their own.
    pub fn tells_clients_apart(&self) -> bool {
        self.oauth.per == GrantOwnership::User && self.book.knows_clients()
    }

    /// Returns true if a client has an account of its own, and is logged in to it or has sent a
    /// token to be exchanged.
    pub fn has_account(&self, client: &Principal) -> bool {
        if !self.tells_clients_apart() {
            return false;
        }
        let slot = self.book.find_slot(&self.key_of(&self.owner_of(Some(client))));
        slot.is_some_and(|slot| slot.grant.load().is_some() || slot.caller.lock().is_some())
    }

    /// Returns true if the grants of persons are in a store that replicas share.
    pub(crate) fn shares_grants(&self) -> bool {
        self.oauth.grant == GrantKind::AuthorizationCode && self.book.shared().is_some()
    }

    /// Returns the lifetime of a link.
    pub fn login_time(&self) -> Duration {
        self.oauth.login_time
    }

    pub(crate) fn key_of(&self, owner: &GrantOwner) -> GrantKey {
        GrantKey { place: Arc::clone(&self.place), owner: owner.clone() }
    }

    /// Returns true if an owner has a grant.
    pub fn has_grant(&self, owner: &GrantOwner) -> bool {
        let slot = self.book.find_slot(&self.key_of(owner));
        slot.is_some_and(|slot| slot.grant.load().is_some())
    }

    /// Notifies of the ends of an owner's logins.
    pub fn login_ends(&self, owner: &GrantOwner) -> watch::Receiver<u64> {
        self.book.slot(self.key_of(owner)).ended.subscribe()
    }

    /// Returns the link that an owner has received and not used yet.
    pub fn open_login(&self, owner: &GrantOwner) -> Option<LoginDemand> {
        let slot = self.book.find_slot(&self.key_of(owner))?;
        let link = slot.link.lock().clone().filter(|link| self.book.is_open(link))?;
        Some(self.demand(owner, &link))
    }

    pub(crate) fn demand(&self, owner: &GrantOwner, link: &LoginLink) -> LoginDemand {
        let is_of_all = *owner == GrantOwner::Gateway && self.book.knows_clients();
        let audience = if is_of_all { LinkAudience::Operator } else { LinkAudience::Caller };
        LoginDemand { link: Arc::clone(&link.url), audience }
    }

    /// Waits until an owner with a link has logged in, or for `patience`.
    pub async fn await_login(&self, owner: &GrantOwner, patience: Duration) {
        let slot = self.book.slot(self.key_of(owner));
        let mut ended = slot.ended.subscribe();
        if slot.has_login() {
            let _ = timeout(patience, ended.changed()).await;
        }
    }

    /// Returns true if an owner's login has been answered, and its code is being exchanged.
    pub fn is_exchanging(&self, owner: &GrantOwner) -> bool {
        let slot = self.book.find_slot(&self.key_of(owner));
        slot.is_some_and(|slot| slot.has_login()) && self.open_login(owner).is_none()
    }

    /// Returns the grant for an owner's next request, renewed if it is about to expire, or `None`
    /// if there is none. `caller` is the call's token, if there is a call.
    pub async fn grant_for(
        &self,
        owner: &GrantOwner,
        caller: Option<&CallerToken>,
    ) -> Option<Arc<OauthGrant>> {
        if self.shares_grants() {
            Box::pin(self.follow_login(owner)).await;
        }
        let slot = self.book.find_slot(&self.key_of(owner))?;
        let grant = slot.grant.load_full().filter(|grant| grant.is_for(caller))?;
        if grant.is_due(clock::now()) {
            let seeker = TokenSeeker { owner, caller, slot: &slot };
            return Box::pin(self.renew_before_expiry(&seeker)).await;
        }
        Some(grant)
    }

    /// Returns a handle for a task of its own.
    pub(crate) fn own(&self) -> Option<Arc<Self>> {
        self.own.upgrade()
    }

    /// Renews a grant that is about to expire, unless another request has done so. The renewal is a
    /// task of its own: a refresh token is valid for one request, and the response must not be lost
    /// with a caller.
    async fn renew_before_expiry(&self, seeker: &TokenSeeker<'_>) -> Option<Arc<OauthGrant>> {
        let (owner, caller) = (seeker.owner.clone(), seeker.caller.cloned());
        let renewal = self.own()?.spawn_renewal(owner, caller, Arc::clone(seeker.slot));
        renewal.await.ok().flatten()
    }

    // Not `async`, so that its result has a concrete type: a renewal sends requests itself.
    fn spawn_renewal(
        self: Arc<Self>,
        owner: GrantOwner,
        caller: Option<CallerToken>,
        slot: Arc<GrantSlot>,
    ) -> JoinHandle<Option<Arc<OauthGrant>>> {
        tokio::spawn(async move {
            let seeker = TokenSeeker { owner: &owner, caller: caller.as_ref(), slot: &slot };
            self.renew_due(&seeker).await
        })
    }

    async fn renew_due(&self, seeker: &TokenSeeker<'_>) -> Option<Arc<OauthGrant>> {
        let slot = seeker.slot;
        let _turn = slot.turn.lock().await;
        let is_for_caller = |grant: &Arc<OauthGrant>| grant.is_for(seeker.caller);
        let is_usable =
            |grant: &Arc<OauthGrant>| is_for_caller(grant) && !grant.is_due(clock::now());
        if let Some(newer) = slot.grant.load_full().filter(is_usable) {
            return Some(newer);
        }
        match self.book.compare_kept(slot, self).await {
            Ok(KeptGrant::Newer(newer)) if is_usable(&newer) => return Some(newer),
            Ok(KeptGrant::Revoked) => return None,
            // Without the store, it is not renewed.
            Ok(KeptGrant::Newer(_) | KeptGrant::Same) | Err(_) => {}
        }
        let grant = slot.grant.load_full().filter(is_for_caller)?;
        match self.renew(&grant, seeker).await {
            Ok(renewed) => renewed,
            Err(fault) => {
                let reason = error_chain(&fault);
                tracing::debug!(
                    target: "trunkline::upstream::credentials::grants::authorizer",
                    server = %self.place.server,
                    reason,
                    "a token is not renewed"
                );
                // The token may still be valid. If it is not, the server refuses it.
                Some(grant)
            }
        }
    }

    /// Stores a renewed grant. Only a grant from a person's login is written to the vault. Returns
    /// `None` if it was revoked meanwhile.
    pub(crate) async fn keep_renewed(
        &self,
        slot: &GrantSlot,
        grant: OauthGrant,
    ) -> Option<Arc<OauthGrant>> {
        match self.oauth.grant {
            GrantKind::AuthorizationCode => self.book.store_renewed(slot, grant).await,
            _ => Some(slot.store(grant)),
        }
    }

    async fn renew(
        &self,
        grant: &OauthGrant,
        seeker: &TokenSeeker<'_>,
    ) -> Result<Option<Arc<OauthGrant>>, LoginFault> {
        if self.oauth.grant == GrantKind::AuthorizationCode {
            return self.refresh_kept(seeker.slot, grant).await;
        }
        let renewed = self.obtain_alone(seeker, grant.source.clone()).await?;
        Ok(self.keep_renewed(seeker.slot, renewed).await)
    }

    /// Returns the key with which the configured client signs.
    pub(crate) fn assertion_key(&self) -> Option<AssertionKey> {
        let pem = self.oauth.private_key.clone()?;
        Some(AssertionKey { pem, algorithm: self.oauth.key_algorithm })
    }
}
