//! Replicas: several gateways with the same clients, behind one address.
//!
//! State that lives in one process (Legacy sessions with their streams) has an owner. The id of a
//! session names its owner, sealed together with the principal and the endpoint ([`session_ids`]).
//! Another replica forwards a request for it once, over one HTTP/2 connection to the owner
//! ([`PeerLink`]), with an [`Envelope`] that names the client. The replicas find each other
//! through leases in a store ([`membership`]). A call at its owner accesses no store,
//! except for shared limits ([`shared_rates`], [`shared_quotas`]), a consent that is used once
//! ([`UsedItems`]), and grants ([`sealed_records`]).
//!
//! This module knows neither MCP nor authentication, which the owner repeats: `downstream` decides
//! which requests are forwarded, and `listener` accepts those of other replicas. Without `[cluster]`
//! nothing here exists.

mod envelope;
mod membership;
mod nonces;
mod peer_link;
mod replica_id;
mod sealed_records;
mod session_ids;
mod shared_quotas;
mod shared_rates;
mod store;
mod used_items;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http::Response;
use hyper::body::Incoming;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use trunkline_https::TlsSetupError;

use crate::call::{Endpoint, Principal};
use crate::clock;
use crate::config::{ClusterConfig, Secret};
use crate::crypto::{SealError, Sealer, random_bytes};
use crate::oauth::SharedRecords;
use crate::telemetry::metrics::{ClusterCounts, ForwardResult};

use membership::{Membership, MembershipKeys};
use nonces::UsedNonces;
use peer_link::{PeerLinkSettings, PeerTls};
use sealed_records::{SHARED_RECORD_PURPOSE, SealedRecords};
use session_ids::SessionIds;
use shared_rates::SharedRateParts;

pub use envelope::{ENVELOPE_HEADER, Envelope, EnvelopeFault, RequestLine, ShownCredentials};
pub use membership::{LEASE_TIME, RENEWAL_INTERVAL, ReplicaView, SkewedReplica};
pub use peer_link::{ForwardError, ForwardedRequest, MAX_FORWARDED, PeerLink};
pub use replica_id::ReplicaId;
pub use shared_quotas::{QuotaLease, QuotaRefusal, SharedQuota, SharedQuotas};
pub use shared_rates::SharedRates;
pub use store::{
    ClusterStore, ClusterStoreError, MAX_RECORD_BYTES, MemoryStore, PermitDemand, PermitGrant,
    PermitStore, QuotaDemand, QuotaGrant, QuotaStore, RecordChange, RecordKey, RecordStore,
    RedisStore, StoredValue,
};
pub use used_items::{SingleUseItem, SpendRefusal, SpentItem, UsedItems};

/// The reasons that a gateway cannot be a replica.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The system provides no random bytes.
    #[error("the system has no random bytes")]
    Random(#[from] std::io::Error),
    /// The keys cannot be used.
    #[error("the keys between replicas cannot be derived")]
    Keys(#[from] SealError),
    /// The certificates between replicas cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// The URL of the store cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] ClusterStoreError),
}

/// This gateway as one of several replicas.
#[derive(Debug)]
pub struct Cluster {
    id: ReplicaId,
    session_ids: SessionIds,
    envelopes: Sealer,
    nonces: UsedNonces,
    membership: Arc<Membership>,
    shared_rates: Arc<SharedRates>,
    shared_quotas: Arc<SharedQuotas>,
    used_items: Arc<UsedItems>,
    records: Arc<SealedRecords>,
    counts: ClusterCounts,
    tls: PeerTls,
}

/// The parts of a [`Cluster`] that are not settings.
pub struct ClusterParts<'a> {
    /// `gateway.state_keys`.
    pub keys: &'a [Secret],
    /// The store.
    pub store: Arc<dyn ClusterStore>,
    /// TLS for connections to other replicas; `None` if all are on this machine.
    pub tls: Option<ClientConfig>,
    /// Counts forwarded requests and faults of the store.
    pub counts: ClusterCounts,
}

/// The owner of a session, a parked call or a kept result.
#[derive(Debug)]
pub enum SessionOwner {
    /// This replica, or the id is of none.
    Here,
    /// Another replica.
    Replica(Arc<PeerLink>),
    /// Another replica, which is gone.
    Gone,
}

/// The cluster, as operators see it.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// The id of this replica.
    pub id: ReplicaId,
    /// The address where others reach it.
    pub address: String,
    /// The fault of the last access to the store; `None` if it succeeded.
    pub store_error: Option<String>,
    /// The time of the last renewal of this replica's lease.
    pub renewed_at: Option<SystemTime>,
    /// True while the store cannot be used for rates.
    pub degraded: bool,
    /// The other replicas.
    pub replicas: Vec<ReplicaView>,
    /// Further ones, which are ignored because of their clocks.
    pub skewed: Vec<SkewedReplica>,
}

impl Cluster {
    /// Creates a replica with a random id. Needs a runtime, which will drive the connections to other
    /// replicas.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn new(
        settings: &ClusterConfig,
        parts: ClusterParts<'_>,
    ) -> Result<Arc<Self>, ClusterError> {
        let id = ReplicaId::new(random_bytes()?);
        let sealer = |purpose: &[u8]| {
            Sealer::new(purpose, parts.keys.iter().map(|key| key.expose().as_bytes()))
        };
        let keys = MembershipKeys { records: sealer(RECORD_PURPOSE)?, id };
        let tls = Arc::new(ArcSwapOption::from_pointee(parts.tls));
        let links = PeerLinkSettings { tls: Arc::clone(&tls), runtime: Handle::current() };
        let secret = parts.keys.first().map_or(&[][..], |key| key.expose().as_bytes());
        let shared_rates = SharedRates::new(SharedRateParts {
            store: Arc::clone(&parts.store),
            secret,
            degrade: settings.degrade,
            counts: parts.counts.clone(),
        });
        let records = sealer(SHARED_RECORD_PURPOSE)?;
        let membership = Membership::new(settings.advertise.clone(), keys, parts.store, links)
            .counting(parts.counts.clone());
        Ok(Arc::new(Self {
            id,
            session_ids: SessionIds::new(id, sealer(SESSION_PURPOSE)?),
            envelopes: sealer(ENVELOPE_PURPOSE)?,
            nonces: UsedNonces::default(),
            membership: Arc::new(membership),
            shared_quotas: Arc::new(SharedQuotas::new(Arc::clone(&shared_rates))),
            used_items: Arc::new(UsedItems::new(Arc::clone(&shared_rates))),
            records: Arc::new(SealedRecords::new(Arc::clone(&shared_rates), records)),
            shared_rates,
            counts: parts.counts,
            tls,
        }))
    }

    /// Uses other certificates for connections that are opened from now on.
    pub fn renew_tls(&self, tls: ClientConfig) {
        self.tls.store(Some(Arc::new(tls)));
    }

    /// Returns the rates that this replica shares with the others.
    pub fn shared_rates(&self) -> Arc<SharedRates> {
        Arc::clone(&self.shared_rates)
    }

    /// Returns the quotas that this replica shares with the others.
    pub fn shared_quotas(&self) -> Arc<SharedQuotas> {
        Arc::clone(&self.shared_quotas)
    }

    /// Returns the items that replicas use once.
    pub fn used_items(&self) -> Arc<UsedItems> {
        Arc::clone(&self.used_items)
    }

    /// Returns the records that replicas share, such as grants.
    pub fn shared_records(&self) -> Arc<dyn SharedRecords> {
        Arc::clone(&self.records) as Arc<dyn SharedRecords>
    }

    /// Returns the id of this replica.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Renews the lease and reads the other replicas until it is dropped. `digest` returns the digest
    /// of the running configuration.
    pub async fn keep_lease(self: Arc<Self>, digest: impl Fn() -> String + Send) {
        self.membership.keep_lease(digest).await;
    }

    /// Removes the lease: other replicas forward nothing any more. Returns unused calls of quotas.
    pub async fn leave(&self) {
        self.shared_quotas.return_unused().await;
        self.membership.leave().await;
    }

    /// Creates the id of a session that this replica owns.
    ///
    /// # Errors
    /// [`ClusterError`] without random bytes.
    pub fn new_session_id(
        &self,
        principal: &Principal,
        endpoint: &Endpoint,
    ) -> Result<Arc<str>, ClusterError> {
        self.session_ids.create(principal, endpoint)
    }

    /// Returns the owner of the session with this id. An id of another principal or endpoint does not
    /// open: it has no owner elsewhere, and no session here.
    pub fn find_owner(&self, id: &str, principal: &Principal, endpoint: &Endpoint) -> SessionOwner {
        match self.session_ids.owner_of(id, principal, endpoint) {
            Some(owner) => self.find_replica(owner),
            None => SessionOwner::Here,
        }
    }

    /// Returns the replica with this id, which a parked call or a kept result names.
    pub fn find_replica(&self, id: ReplicaId) -> SessionOwner {
        if id == self.id {
            return SessionOwner::Here;
        }
        self.membership.link(id).map_or(SessionOwner::Gone, SessionOwner::Replica)
    }

    /// Counts a request for a session of a replica that is gone.
    pub fn count_lost(&self) {
        self.counts.count_forwarded(ForwardResult::OwnerGone);
    }

    /// Forwards a request to the owner of its session, with the envelope in its header. Dropping the
    /// response resets its stream.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn forward(
        &self,
        link: &PeerLink,
        request: ForwardedRequest,
        envelope: Envelope,
    ) -> Result<Response<Incoming>, ForwardError> {
        let answered = match self.seal_envelope(link.id(), envelope) {
            Ok(sealed) => link.send(request, &sealed).await,
            Err(error) => Err(ForwardError::Seal(error)),
        };
        self.counts.count_forwarded(match &answered {
            Ok(_) => ForwardResult::Answered,
            Err(error) if error.was_sent() => ForwardResult::Broken,
            Err(_) => ForwardResult::OwnerGone,
        });
        answered
    }

    /// Seals an envelope for another replica.
    ///
    /// # Errors
    /// [`ClusterError`] without random bytes.
    pub fn seal_envelope(
        &self,
        target: ReplicaId,
        envelope: Envelope,
    ) -> Result<String, ClusterError> {
        let addressed = envelope.addressed_to(target, random_bytes()?, clock::unix_now());
        Ok(addressed.seal(&self.envelopes)?)
    }

    /// Opens the envelope of a request from another replica. The body is not checked yet: see
    /// [`Envelope::covers_body`].
    ///
    /// # Errors
    /// [`EnvelopeFault`]: the request is not to be served.
    pub fn open_envelope(
        &self,
        sealed: &[u8],
        request: RequestLine<'_>,
    ) -> Result<Envelope, EnvelopeFault> {
        let envelope = Envelope::open(sealed, &self.envelopes)?;
        envelope.check(self.id, request, clock::unix_now())?;
        self.nonces.spend(envelope.nonce(), clock::now())?;
        Ok(envelope)
    }

    /// Counts a refused request at the address for replicas.
    pub fn count_refused(&self) {
        self.counts.count_forwarded(ForwardResult::Refused);
    }

    /// Returns the cluster as operators see it.
    pub fn view(&self) -> ClusterView {
        ClusterView { degraded: self.shared_rates.is_degraded(), ..self.membership.view() }
    }
}

/// Purpose of the keys that seal envelopes.
pub const ENVELOPE_PURPOSE: &[u8] = b"trunkline forwarded request";
/// Purposes of the other keys.
const RECORD_PURPOSE: &[u8] = b"trunkline replica record";
const SESSION_PURPOSE: &[u8] = b"trunkline session id";

/// Time limit of one access to the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
