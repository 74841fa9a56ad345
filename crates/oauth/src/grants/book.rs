//! All grants and open logins of the gateway. They outlive snapshots, so a reload keeps them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;
use url::Url;

use trunkline_config::ClientConfig;
use trunkline_core::clock;
use trunkline_core::shared_records::{SharedRecord, SharedRecords};
use trunkline_protocol::call::{CallerToken, Named, Principal, ServerName};
use trunkline_telemetry::audit::{AuditTrail, OperationRecord, RecordRoom};

use crate::vault::Vault;

use super::authorizer::ServerAuthorizer;
use super::browser::BrowserBook;
use super::endpoints::EndpointBook;
use super::grant::{GrantOwner, OauthGrant, TokenSource};
use super::stored::{RestingGrant, StoredClient};
use super::ticket_book::TicketBook;
use crate::fault::LoginFault;
use crate::metadata::challenge::BearerChallenge;
use crate::metadata::registration::OauthClient;
use crate::proofs::client_keys::ClientKeyBook;

/// All grants and open logins.
#[derive(Default)]
pub struct GrantBook {
    pub(crate) slots: Mutex<Named<GrantKey, Arc<GrantSlot>>>,
    accounts: Arc<AccountChanges>,
    /// Links that have been issued.
    pub(crate) tickets: TicketBook,
    /// Authorization endpoints of earlier logins.
    pub(crate) endpoints: EndpointBook,
    /// Keys of the clients with logins.
    pub(crate) client_keys: ClientKeyBook,
    /// Grants of removed clients, until the vault has deleted them.
    pub(crate) abandoned: Mutex<HashSet<GrantKey>>,
    /// Clients that the gateway has registered.
    pub(crate) clients: Mutex<HashMap<ClientPlace, OauthClient>>,
    /// URL to which browsers return.
    callback: ArcSwapOption<Url>,
    /// True if the configuration distinguishes clients.
    knows_clients: AtomicBool,
    browsers: BrowserBook,
    /// Storage of grants and clients beyond the process.
    pub(crate) vault: OnceLock<Arc<Vault>>,
    /// Storage of grants for several replicas; empty if the gateway is alone.
    pub(crate) shared: OnceLock<Arc<dyn SharedRecords>>,
    /// Set while the vault has grants that belong into the shared store.
    pub(crate) has_unmoved: AtomicBool,
    /// Grants in the vault for servers that have not been started yet.
    pub(crate) resting: Mutex<HashMap<GrantKey, RestingGrant>>,
    /// The audit log; missing in commands.
    audit: OnceLock<AuditTrail>,
    /// Authorizers, by server, which convert rows of the vault to grants.
    pub(crate) authorizers: Mutex<HashMap<Arc<GrantPlace>, Weak<ServerAuthorizer>>>,
}

/// The server and the owner of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GrantKey {
    pub(crate) place: Arc<GrantPlace>,
    pub(crate) owner: GrantOwner,
}

/// A server that a grant is for. The URL is part of it: a server with a new URL is a different one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct GrantPlace {
    pub(crate) server: ServerName,
    pub(crate) url: Url,
}

/// Scope of a registered client. Credentials of one issuer are never shown to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientPlace {
    pub(crate) server: ServerName,
    pub(crate) issuer: String,
    pub(crate) redirect: Url,
}

/// Counts gains and losses of clients' own accounts at servers.
#[derive(Default)]
struct AccountChanges(AtomicU64);

/// One owner's grant at one server.
pub(crate) struct GrantSlot {
    pub(crate) key: GrantKey,
    accounts: Arc<AccountChanges>,
    pub(crate) grant: ArcSwapOption<OauthGrant>,
    /// Set while the vault has a row for the grant. If the row is missing, another process has
    /// deleted it.
    pub(crate) is_kept: AtomicBool,
    /// The grant's record in the shared store, as it was read or written last.
    pub(crate) record: Mutex<Option<SharedRecord>>,
    /// The time of the last comparison with it.
    pub(crate) compared_at: Mutex<Option<Instant>>,
    /// Set while the grant is newer than its record.
    pub(crate) is_unshared: AtomicBool,
    /// Counts the logins that have ended, with a grant or without.
    pub(crate) ended: watch::Sender<u64>,
    /// Held during the renewal of the grant or the preparation of a login: one at a time.
    pub(crate) turn: AsyncMutex<()>,
    /// The link that was issued last.
    pub(crate) link: Mutex<Option<LoginLink>>,
    /// The address of the client's last request; `None` for the gateway's own grant.
    pub(crate) address: Mutex<Option<IpAddr>>,
    /// The owner's last token, if it is exchanged.
    pub(crate) caller: Mutex<Option<CallerToken>>,
    /// SHA-256 of the token that the authorization server has refused.
    pub(crate) refused: Mutex<Option<[u8; 32]>>,
    /// True if the owner has shown a key or token that permits it to use the server.
    pub(crate) is_offered: AtomicBool,
    /// Number of the server's requests for other scopes since the grant was new.
    step_ups: AtomicUsize,
}

impl GrantSlot {
    fn new(key: GrantKey, accounts: Arc<AccountChanges>) -> Self {
        let (grant, ended) = (ArcSwapOption::empty(), watch::Sender::new(0));
        Self {
            key,
            accounts,
            grant,
            is_kept: AtomicBool::new(false),
            record: Mutex::default(),
            compared_at: Mutex::default(),
            is_unshared: AtomicBool::new(false),
            ended,
            turn: AsyncMutex::default(),
            link: Mutex::default(),
            address: Mutex::default(),
            caller: Mutex::default(),
            refused: Mutex::default(),
            is_offered: AtomicBool::new(false),
            step_ups: AtomicUsize::new(0),
        }
    }

    /// Stores a grant.
    pub(crate) fn store(&self, grant: OauthGrant) -> Arc<OauthGrant> {
        let grant = Arc::new(grant);
        let before = self.grant.swap(Some(Arc::clone(&grant)));
        self.count_change(before.is_none());
        grant
    }

    /// Counts a server's request for other scopes.
    ///
    /// # Errors
    /// [`LoginFault::StepUps`] beyond the limit, until there is another login.
    pub(crate) fn count_step_up(&self) -> Result<(), LoginFault> {
        if self.step_ups.fetch_add(1, Ordering::Relaxed) < MAX_STEP_UPS {
            return Ok(());
        }
        self.step_ups.store(MAX_STEP_UPS, Ordering::Relaxed);
        Err(LoginFault::StepUps { limit: MAX_STEP_UPS })
    }

    /// Drops the grant.
    pub(crate) fn drop_grant(&self) {
        let before = self.grant.swap(None);
        self.step_ups.store(0, Ordering::Relaxed);
        self.count_change(before.is_some());
    }

    /// Drops a grant that another process has revoked, unless it has been replaced.
    pub(crate) fn forget_revoked(&self, known: Option<&Arc<OauthGrant>>) -> bool {
        let Some(known) = known else { return false };
        let before = self.grant.compare_and_swap(&Some(Arc::clone(known)), None);
        if !before.as_ref().is_some_and(|before| Arc::ptr_eq(before, known)) {
            return false;
        }
        self.is_kept.store(false, Ordering::Relaxed);
        *self.record.lock() = None;
        self.is_unshared.store(false, Ordering::Relaxed);
        self.step_ups.store(0, Ordering::Relaxed);
        self.count_change(true);
        tracing::info!(
            target: "trunkline::upstream::credentials::grants::book",
            server = %self.key.place.server,
            "a login was revoked by another process"
        );
        true
    }

    /// Remembers the owner's token.
    pub(crate) fn note_caller(&self, token: &CallerToken) {
        let mut noted = self.caller.lock();
        if noted.as_ref() != Some(token) {
            let before = noted.replace(token.clone());
            self.count_change(before.is_none());
        }
    }

    fn count_change(&self, is_change: bool) {
        if is_change && self.key.owner != GrantOwner::Gateway {
            self.accounts.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns true if a link has been issued and is still valid, used or not.
    pub(crate) fn has_login(&self) -> bool {
        self.link.lock().as_ref().is_some_and(|link| link.until > clock::now())
    }

    /// Forgets the link, and notifies the tasks that wait for its login.
    pub(crate) fn end_login(&self) {
        *self.link.lock() = None;
        self.ended.send_modify(|ended| *ended += 1);
    }
}

/// A link to log in by.
#[derive(Debug, Clone)]
pub(crate) struct LoginLink {
    pub(crate) url: Arc<str>,
    pub(crate) ticket: String,
    pub(crate) until: Instant,
    /// The server's challenge.
    pub(crate) challenge: BearerChallenge,
}

impl GrantBook {
    /// Records links, logins and revocations in the audit log from now on.
    pub fn set_audit(&self, trail: AuditTrail) {
        // The first one stays: a process has one log.
        let _ = self.audit.set(trail);
    }

    pub(crate) fn record_operation(&self, record: &OperationRecord<'_>) {
        self.record_operation_in(None, record);
    }

    pub(crate) fn record_operation_in(
        &self,
        room: Option<RecordRoom>,
        record: &OperationRecord<'_>,
    ) {
        if let Some(trail) = self.audit.get() {
            trail.record_operation_in(room, record);
        }
    }

    /// Returns true if clients have, or have had, accounts of their own at servers.
    #[inline]
    pub fn has_accounts(&self) -> bool {
        self.version() > 0
    }

    /// Returns the principal, if clients have, or have had, accounts of their own.
    #[inline]
    pub fn account_of(&self, principal: &Principal) -> Option<Principal> {
        self.has_accounts().then(|| principal.clone())
    }

    /// Expects clients to have accounts from their first request on, because of their tokens.
    pub(crate) fn expect_accounts(&self) {
        self.accounts.0.fetch_max(1, Ordering::AcqRel);
    }

    /// Returns a number that changes when a client gains or loses an account of its own at a
    /// server.
    #[inline]
    pub fn version(&self) -> u64 {
        self.accounts.0.load(Ordering::Acquire)
    }

    /// Path to which browsers return, below the gateway's URL.
    pub const CALLBACK_PATH: &'static str = "/oauth/callback";
    /// Path of a user's connections, below the gateway's URL.
    pub const CONNECT_PATH: &'static str = "/connect";
    /// Path of the gateway's links, below its URL.
    pub const LINK_PATH: &'static str = "/connect/link";
    /// Lifetime of a link to a user's connections.
    pub const VISIT_TIME: Duration = Duration::from_mins(10);

    /// Sets the gateway's URL for browsers, or `None` if they cannot reach it.
    pub fn set_base(&self, base: Option<Url>) {
        let callback = base.map(|mut url| {
            let path = format!("{}{}", url.path().trim_end_matches('/'), Self::CALLBACK_PATH);
            url.set_path(&path);
            Arc::new(url)
        });
        self.callback.store(callback);
    }

    /// Returns the path of one of the gateway's pages, as browsers see it.
    pub fn page_path(&self, own: &str) -> String {
        let callback = self.callback.load();
        let base = callback.as_ref().and_then(|url| url.path().strip_suffix(Self::CALLBACK_PATH));
        format!("{}{own}", base.unwrap_or_default())
    }

    /// Returns the gateway's own page at a path, or `None` if browsers cannot reach the gateway. A
    /// proxy may have removed the beginning of the gateway's path.
    pub fn find_page<'a>(&self, path: &'a str) -> Option<&'a str> {
        let callback = self.callback.load();
        let base = callback.as_ref()?.path().strip_suffix(Self::CALLBACK_PATH)?;
        let own = path.strip_prefix(base).unwrap_or(path);
        let is_page = Self::is_callback(own)
            || own
                .strip_prefix(Self::CONNECT_PATH)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        is_page.then_some(own)
    }

    /// Returns true for a callback path: of all servers, or of one of them.
    pub fn is_callback(own: &str) -> bool {
        own.strip_prefix(Self::CALLBACK_PATH).is_some_and(|rest| {
            let server = rest.strip_prefix('/').map(ServerName::new);
            rest.is_empty() || server.is_some_and(|server| server.is_ok())
        })
    }

    /// Returns true if browsers reach the gateway by HTTPS only.
    pub fn is_https(&self) -> bool {
        self.callback.load().as_ref().is_some_and(|url| url.scheme() == "https")
    }

    /// Returns the link with a ticket.
    pub(crate) fn link_of(&self, ticket: &str) -> Result<Url, LoginFault> {
        let mut url = (*self.callback()?).clone();
        url.set_path(&self.page_path(Self::LINK_PATH));
        url.query_pairs_mut().append_pair("ticket", ticket);
        Ok(url)
    }

    /// Returns the browsers that the gateway knows.
    pub fn browsers(&self) -> &BrowserBook {
        &self.browsers
    }

    /// Sets whether the configuration distinguishes clients.
    pub fn set_knows_clients(&self, knows: bool) {
        self.knows_clients.store(knows, Ordering::Relaxed);
    }

    /// Returns true if the configuration distinguishes clients.
    pub fn knows_clients(&self) -> bool {
        self.knows_clients.load(Ordering::Relaxed)
    }

    /// Sets the issuers that the configuration names.
    pub fn set_configured_issuers(&self, issuers: Vec<String>) {
        self.endpoints.set_configured(issuers);
    }

    /// Sets the configured clients. Drops the logins of a removed client if a different client has
    /// its name.
    pub fn set_clients(&self, clients: &[ClientConfig]) {
        for name in self.client_keys.follow(clients) {
            tracing::warn!(
                target: "trunkline::upstream::credentials::grants::book",
                client = %name,
                "the logins of an earlier client of this name are dropped"
            );
            self.abandon_grants(&GrantOwner::Client(Principal::Client(name)));
        }
    }

    fn abandon_grants(&self, owner: &GrantOwner) {
        let mut abandoned: Vec<GrantKey> = Vec::new();
        self.resting.lock().retain(|key, _| {
            let is_of_owner = key.owner == *owner;
            if is_of_owner {
                abandoned.push(key.clone());
            }
            !is_of_owner
        });
        let slots: Vec<_> =
            self.slots.lock().values().filter(|slot| slot.key.owner == *owner).cloned().collect();
        for slot in slots {
            abandoned.push(slot.key.clone());
            slot.drop_grant();
            slot.is_kept.store(false, Ordering::Relaxed);
            self.tickets.end_logins(&slot);
            slot.end_login();
        }
        if self.vault.get().is_some() || self.shared.get().is_some() {
            self.abandoned.lock().extend(abandoned);
        }
    }

    pub(crate) fn callback(&self) -> Result<Arc<Url>, LoginFault> {
        self.callback.load_full().ok_or(LoginFault::NoCallback)
    }

    /// Returns the URL to which browsers return from logins at one server.
    pub(crate) fn callback_of(&self, server: &ServerName) -> Result<Url, LoginFault> {
        let mut url = (*self.callback()?).clone();
        url.set_path(&format!("{}/{server}", url.path()));
        Ok(url)
    }

    /// Returns the slot of an owner, and creates it if necessary.
    pub(crate) fn slot(&self, key: GrantKey) -> Arc<GrantSlot> {
        let mut slots = self.slots.lock();
        if slots.len() >= MAX_GRANT_SLOTS && !slots.contains_key(&key) {
            // A slot without a grant only belonged to an unfinished login.
            slots.retain(|_, slot| slot.grant.load().is_some() || Arc::strong_count(slot) > 1);
        }
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let slot = Arc::new(GrantSlot::new(key.clone(), Arc::clone(&self.accounts)));
        slots.insert(key, Arc::clone(&slot));
        slot
    }

    /// Returns the slot of an owner, if there is one.
    pub(crate) fn find_slot(&self, key: &GrantKey) -> Option<Arc<GrantSlot>> {
        self.slots.lock().get(key).cloned()
    }

    /// Returns true if a login still waits for its user.
    pub(crate) fn is_open(&self, link: &LoginLink) -> bool {
        link.until > clock::now() && self.tickets.is_open(&link.ticket)
    }

    pub(crate) fn find_client(&self, place: &ClientPlace) -> Option<OauthClient> {
        self.clients.lock().get(place).cloned()
    }

    pub(crate) async fn keep_client(&self, place: ClientPlace, client: OauthClient) {
        if let Ok(value) = serde_json::to_vec(&StoredClient::of(&client)) {
            let _ = self.write_row(place.row_name(), value).await;
        }
        let mut clients = self.clients.lock();
        let of_server = clients.keys().filter(|known| known.server == place.server);
        if of_server.count() >= MAX_CLIENTS_EACH {
            // A server may name another authorization server each time.
            clients.retain(|known, _| known.server != place.server);
        }
        clients.insert(place, client);
    }

    /// Forgets a client that its authorization server no longer knows. The next login registers
    /// again.
    pub(crate) async fn forget_client(&self, source: &TokenSource) {
        let is_meant = |place: &ClientPlace, client: &OauthClient| {
            place.issuer == source.issuer && client.id == source.client.id
        };
        let mut places = Vec::new();
        self.clients.lock().retain(|place, client| {
            let is_meant = is_meant(place, client);
            if is_meant {
                places.push(place.row_name());
            }
            !is_meant
        });
        for place in places {
            let _ = self.delete_row(place).await;
        }
    }
}

/// Maximum number of times that a server may request scopes beyond those of a grant.
const MAX_STEP_UPS: usize = 10;
/// Maximum number of clients that are kept for one server.
const MAX_CLIENTS_EACH: usize = 16;
/// Maximum number of owners before those without a grant are dropped.
const MAX_GRANT_SLOTS: usize = 100_000;
