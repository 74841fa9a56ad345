//! All grants and open logins of the gateway. They outlive snapshots: a reload keeps them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;
use url::Url;

use crate::call::{CallerToken, ServerName};
use crate::clock;

use super::authorization::{AnswerRefusal, AuthorizationAnswer};
use super::challenge::BearerChallenge;
use super::fault::LoginFault;
use super::grant::{GrantOwner, OauthGrant, TokenSource};
use super::metadata::IssAdvertised;
use super::pkce::CodeVerifier;
use super::registration::OauthClient;
use super::token::TokenGrant;

/// All grants and open logins.
#[derive(Default)]
pub struct GrantBook {
    slots: Mutex<HashMap<GrantKey, Arc<GrantSlot>>>,
    /// The logins that wait for their user, by `state`.
    logins: Mutex<HashMap<String, OpenLogin>>,
    /// The clients that the gateway has registered.
    clients: Mutex<HashMap<ClientPlace, OauthClient>>,
    /// Where browsers come back to.
    callback: ArcSwapOption<Url>,
    /// Whether clients are told apart.
    knows_clients: AtomicBool,
}

/// The server and the owner of a grant. The URL is part of it: a server that moves is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GrantKey {
    pub(super) server: ServerName,
    pub(super) url: Url,
    pub(super) owner: GrantOwner,
}

/// What a registered client is for: credentials of one issuer are never shown to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ClientPlace {
    pub(super) server: ServerName,
    pub(super) issuer: String,
    pub(super) redirect: Url,
}

/// One owner's grant at one server.
pub(super) struct GrantSlot {
    pub(super) grant: ArcSwapOption<OauthGrant>,
    /// Counts the logins that have ended, with a grant or without.
    pub(super) ended: watch::Sender<u64>,
    /// Held while the grant is renewed or a login is prepared: one at a time.
    pub(super) turn: AsyncMutex<()>,
    /// The link that was given out last.
    pub(super) link: Mutex<Option<LoginLink>>,
    /// The token that the owner has sent last, where it is exchanged.
    pub(super) caller: Mutex<Option<CallerToken>>,
    /// What the authorization server was given and has refused, as its SHA-256.
    pub(super) refused: Mutex<Option<[u8; 32]>>,
}

impl Default for GrantSlot {
    fn default() -> Self {
        Self {
            grant: ArcSwapOption::empty(),
            ended: watch::Sender::new(0),
            turn: AsyncMutex::default(),
            link: Mutex::default(),
            caller: Mutex::default(),
            refused: Mutex::default(),
        }
    }
}

impl GrantSlot {
    /// Stores a grant.
    pub(super) fn store(&self, grant: OauthGrant) -> Arc<OauthGrant> {
        let grant = Arc::new(grant);
        self.grant.store(Some(Arc::clone(&grant)));
        grant
    }

    /// Whether a link is out, used or not.
    pub(super) fn has_login(&self) -> bool {
        self.link.lock().as_ref().is_some_and(|link| link.until > clock::now())
    }

    /// Forgets the link, and notifies those that wait for its login.
    fn end_login(&self) {
        *self.link.lock() = None;
        self.ended.send_modify(|ended| *ended += 1);
    }
}

/// A link to log in by.
#[derive(Debug, Clone)]
pub(super) struct LoginLink {
    pub(super) url: Arc<str>,
    pub(super) state: String,
    pub(super) until: Instant,
    /// What the server had asked for.
    pub(super) challenge: BearerChallenge,
}

/// A login that waits for its user.
pub(super) struct OpenLogin {
    pub(super) server: ServerName,
    pub(super) slot: Arc<GrantSlot>,
    pub(super) source: TokenSource,
    pub(super) iss: IssAdvertised,
    pub(super) verifier: CodeVerifier,
    pub(super) redirect: Url,
    pub(super) until: Instant,
}

impl GrantBook {
    /// The path that browsers come back to, below the gateway's URL.
    pub const CALLBACK_PATH: &'static str = "/oauth/callback";

    /// Says where the gateway is for browsers; `None` if they cannot reach it.
    pub fn set_base(&self, base: Option<Url>) {
        let callback = base.map(|mut url| {
            let path = format!("{}{}", url.path().trim_end_matches('/'), Self::CALLBACK_PATH);
            url.set_path(&path);
            Arc::new(url)
        });
        self.callback.store(callback);
    }

    /// Whether a path is the one that browsers come back to. A proxy may have taken the beginning
    /// of the gateway's path away.
    pub fn is_callback(&self, path: &str) -> bool {
        let callback = self.callback.load();
        let is_whole = |url: &Arc<Url>| path == url.path() || path == Self::CALLBACK_PATH;
        callback.as_ref().is_some_and(is_whole)
    }

    /// Says whether the configuration tells clients apart.
    pub(in crate::upstream) fn set_knows_clients(&self, knows: bool) {
        self.knows_clients.store(knows, Ordering::Relaxed);
    }

    pub(super) fn knows_clients(&self) -> bool {
        self.knows_clients.load(Ordering::Relaxed)
    }

    pub(super) fn callback(&self) -> Result<Arc<Url>, LoginFault> {
        self.callback.load_full().ok_or(LoginFault::NoCallback)
    }

    /// The slot of an owner, which may be new.
    pub(super) fn slot(&self, key: GrantKey) -> Arc<GrantSlot> {
        let mut slots = self.slots.lock();
        if !slots.contains_key(&key) && slots.len() >= MOST_SLOTS {
            // Those without a grant are only there for a login that did not come about.
            slots.retain(|_, slot| slot.grant.load().is_some() || Arc::strong_count(slot) > 1);
        }
        Arc::clone(slots.entry(key).or_default())
    }

    /// The slot of an owner, if there is one.
    pub(super) fn find_slot(&self, key: &GrantKey) -> Option<Arc<GrantSlot>> {
        self.slots.lock().get(key).cloned()
    }

    /// Whether a login still waits for its user.
    pub(super) fn is_open(&self, link: &LoginLink) -> bool {
        link.until > clock::now() && self.logins.lock().contains_key(&link.state)
    }

    /// Opens a login.
    pub(super) fn open_login(&self, state: String, login: OpenLogin) -> Result<(), LoginFault> {
        let now = clock::now();
        let mut logins = self.logins.lock();
        logins.retain(|_, open| open.until > now && !Arc::ptr_eq(&open.slot, &login.slot));
        if logins.len() >= MOST_LOGINS {
            return Err(LoginFault::TooMany { limit: MOST_LOGINS });
        }
        logins.insert(state, login);
        Ok(())
    }

    pub(super) fn find_client(&self, place: &ClientPlace) -> Option<OauthClient> {
        self.clients.lock().get(place).cloned()
    }

    pub(super) fn keep_client(&self, place: ClientPlace, client: OauthClient) {
        let mut clients = self.clients.lock();
        if clients.len() >= MOST_CLIENTS {
            // A server that names another authorization server each time.
            clients.retain(|known, _| known.server != place.server);
        }
        clients.insert(place, client);
    }

    /// Forgets a client that its authorization server does not know any more: the next login
    /// registers anew.
    fn forget_client(&self, source: &TokenSource) {
        let is_meant = |place: &ClientPlace, client: &OauthClient| {
            place.issuer == source.issuer && client.id == source.client.id
        };
        self.clients.lock().retain(|place, client| !is_meant(place, client));
    }

    /// Takes the answer of an authorization server, which the user's browser brings, exchanges its
    /// code, and stores the grant. Returns the server that can be used from now on.
    ///
    /// # Errors
    /// [`LoginFault`] if no login waits for the answer, or if there is no token for it.
    pub async fn finish_login(&self, query: &str) -> Result<ServerName, LoginFault> {
        let answer = AuthorizationAnswer::parse(query)?;
        let state = answer.state.as_deref().unwrap_or_default();
        // Taken out: a state is good for one answer.
        let login = self.logins.lock().remove(state);
        let login = login.filter(|login| login.until > clock::now());
        let OpenLogin { server, slot, source, iss, verifier, redirect, .. } =
            login.ok_or(AnswerRefusal::UnknownState)?;
        let exchange = async {
            let code = answer.into_code(&source.issuer, iss)?;
            let code =
                TokenGrant::Code { code: &code, verifier: &verifier, redirect: redirect.as_str() };
            source.ask(code).await
        };
        let tokens = exchange.await.inspect_err(|fault| {
            let reason = crate::text::error_chain(fault);
            tracing::warn!(%server, reason, "a login did not succeed");
            if fault.is_unknown_client() {
                self.forget_client(&source);
            }
            slot.end_login();
        })?;
        slot.store(OauthGrant::new(tokens, source));
        slot.end_login();
        tracing::info!(%server, "a login succeeded");
        Ok(server)
    }
}

/// The most logins that are open at once.
const MOST_LOGINS: usize = 10_000;
/// The most clients that are kept.
const MOST_CLIENTS: usize = 1000;
/// The most owners that are kept without a grant.
const MOST_SLOTS: usize = 100_000;
