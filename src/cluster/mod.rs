//! Replicas: several gateways with the same clients, behind one address.
//!
//! State that lives in one process (Legacy sessions with their streams) has an owner. The id of a
//! session names its owner, sealed together with the principal and the endpoint ([`session_ids`]).
//! Another replica forwards a request for it once, over an HTTP/2 connection to the owner
//! ([`PeerLink`]), with an [`Envelope`] that names the client. The replicas find each other
//! through leases in a store ([`membership`]). A call at its owner accesses no store,
//! except for shared limits ([`shared_rates`], [`shared_quotas`]), a consent that is used once
//! ([`UsedItems`]), and grants. The store has a record of each session ([`SessionRecords`]), from which
//! another replica revives it when its owner is gone ([`session_places`]), and records of other modules
//! ([`sealed_records`]). A server whose child may run only once has a lease, too ([`server_leases`]).
//!
//! This module knows neither MCP nor authentication, which the owner repeats: `downstream` decides
//! which requests are forwarded, and `listener` accepts those of other replicas. Without `[cluster]`
//! nothing here exists.

mod envelope;
mod lease;
mod membership;
mod nonces;
mod peer_link;
mod replica_id;
mod sealed_records;
mod server_leases;
mod session_ids;
mod session_places;
mod session_records;
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
use tokio::time::{MissedTickBehavior, interval, timeout};
use trunkline_https::TlsSetupError;

use crate::call::{Endpoint, Principal};
use crate::clock;
use crate::config::{ClusterConfig, DegradeChoice, Secret};
use crate::crypto::{SealError, Sealer, random_bytes};
use crate::shared_records::SharedRecords;
use crate::telemetry::metrics::{ClusterCounts, ForwardResult, RevivalResult, StoreLatency};

use membership::{Membership, MembershipKeys};
use nonces::UsedNonces;
use peer_link::PeerTls;
use sealed_records::{SHARED_RECORD_PURPOSE, SealedRecords};
use session_ids::SessionIds;
use session_places::KnownPlaces;
use session_records::SessionRecordParts;

pub use envelope::{
    ENVELOPE_HEADER, Envelope, EnvelopeFault, OpenedEnvelope, RefusedEnvelope, RequestLine,
    ShownCredentials, server_of_path, server_path,
};
pub use lease::LeaseStatus;
pub use membership::{LEASE_TIME, RENEWAL_INTERVAL, ReplicaView, SkewedReplica};
pub use peer_link::{ForwardError, ForwardedRequest, MAX_FORWARDED, PeerLink};
pub use replica_id::ReplicaId;
#[cfg(test)]
pub(crate) use sealed_records::SealedRecords as SealedRecordsInTests;
pub use server_leases::{LeaseEnd, ServerDigest, ServerLease, ServerLeaseFault, ServerPlace};
pub use session_places::{SessionPlace, SessionTurn};
pub use session_records::{
    ClaimOutcome, ClaimedSession, FoundSession, MAX_SESSION_STATE, RecordedSessions, SessionKey,
    SessionRecord, SessionRecords,
};
pub use shared_quotas::{QuotaLease, QuotaRefusal, SharedQuota, SharedQuotas};
pub use shared_rates::SharedRates;
pub use store::{
    ClusterStore, ClusterStoreError, MAX_RECORD_BYTES, MemoryStore, PermitDemand, PermitGrant,
    PermitStore, QuotaDemand, QuotaGrant, QuotaStore, RecordChange, RecordKey, RecordStore,
    RecordVersion, RedisStore, SessionStore, SessionWrite, SessionWritten, StoreFailure,
    StoreHealth, StoredValue, ValueFault,
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
    stream_ids: SessionIds,
    envelopes: Sealer,
    nonces: UsedNonces,
    membership: Arc<Membership>,
    health: Arc<StoreHealth>,
    shared_rates: Arc<SharedRates>,
    shared_quotas: Arc<SharedQuotas>,
    used_items: Arc<UsedItems>,
    records: Arc<SealedRecords>,
    session_records: SessionRecords,
    places: KnownPlaces,
    degrade: DegradeChoice,
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
    /// Time since which the store cannot be used for limits and records; `None` while it can.
    pub degraded_since: Option<SystemTime>,
    /// The last failed access for a limit or a record.
    pub last_failure: Option<StoreFailure>,
    /// Latency of the store; `None` without an answer in the last minute.
    pub store_latency: Option<StoreLatency>,
    /// Number of sessions that this replica owns and records.
    pub sessions: usize,
    /// The other replicas.
    pub replicas: Vec<ReplicaView>,
    /// Further ones, which are ignored because of their clocks.
    pub skewed: Vec<SkewedReplica>,
}

impl Cluster {
    /// Creates a replica with a random id. Needs a runtime, which will drive the requests to the store.
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
        let secret = parts.keys.first().map_or(&[][..], |key| key.expose().as_bytes());
        let health =
            StoreHealth::new(Arc::clone(&parts.store), settings.degrade, parts.counts.clone());
        let shared_rates = SharedRates::new(Arc::clone(&health), secret, parts.counts.clone());
        let records = sealer(SHARED_RECORD_PURPOSE)?;
        let session_records = SessionRecordParts {
            own: id,
            sealer: sealer(SESSION_RECORD_PURPOSE)?,
            store: Arc::clone(&parts.store),
            counts: parts.counts.clone(),
        };
        let membership =
            Membership::new(settings.advertise.clone(), keys, parts.store, Arc::clone(&tls))
                .counting(parts.counts.clone());
        Ok(Arc::new(Self {
            id,
            session_ids: SessionIds::new(id, sealer(SESSION_PURPOSE)?),
            stream_ids: SessionIds::new(id, sealer(STREAM_PURPOSE)?),
            envelopes: sealer(ENVELOPE_PURPOSE)?,
            nonces: UsedNonces::default(),
            membership: Arc::new(membership),
            shared_quotas: Arc::new(SharedQuotas::new(Arc::clone(&shared_rates))),
            used_items: Arc::new(UsedItems::new(Arc::clone(&health))),
            records: Arc::new(SealedRecords::new(Arc::clone(&health), records)),
            shared_rates,
            health,
            session_records: SessionRecords::new(session_records),
            places: KnownPlaces::default(),
            degrade: settings.degrade,
            counts: parts.counts,
            tls,
        }))
    }

    /// Uses other certificates from now on: the next request to a replica opens a new connection, and
    /// the earlier one ends with its last request.
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

    /// Renews the lease, reads the other replicas and records sessions until it is dropped. `digest`
    /// returns the digest of the running configuration.
    pub async fn keep_lease(self: Arc<Self>, digest: impl Fn() -> String + Send) {
        tokio::join!(self.keep_renewing(digest), self.session_records.keep());
    }

    async fn keep_renewing(&self, digest: impl Fn() -> String + Send) {
        let mut every = interval(RENEWAL_INTERVAL);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.membership.renewal_due(&mut every).await;
            self.renew_lease(digest()).await;
        }
    }

    /// Renews the lease once. After a gap, another replica may have revived sessions of this one: they
    /// end before the lease counts.
    async fn renew_lease(&self, digest: String) {
        self.membership.begin_attempt();
        let was_failing = self.membership.is_store_failing();
        let sessions = self.session_records.len();
        self.membership.note_sessions(sessions);
        self.counts.set_owned_sessions(sessions);
        if let Some(start) = self.membership.renew(digest).await {
            // Asked after the reply: the store may have received this lease when the last one was over.
            let has_gap = was_failing || self.membership.lease() == LeaseStatus::Lapsed;
            if !has_gap || self.session_records.verify().await.is_ok() {
                self.membership.confirm(start);
            }
        }
        self.membership.end_attempt();
    }

    /// Hands the sessions over: records their last changes and removes the lease, so that the other
    /// replicas revive them. Calls in progress go on. Requests are answered here until the most is
    /// recorded, and go to other replicas before the rest is, so that no session is opened after its
    /// record could be written.
    pub async fn hand_over(&self) {
        let _ = timeout(STORE_TIMEOUT, self.session_records.write_changes()).await;
        self.membership.begin_leaving().await;
        let _ = timeout(STORE_TIMEOUT, self.session_records.write_changes()).await;
        self.membership.remove_lease().await;
    }

    /// Returns unused calls of quotas, and removes the lease.
    pub async fn leave(&self) {
        self.shared_quotas.return_unused().await;
        if self.membership.lease() != LeaseStatus::Left {
            self.hand_over().await;
        }
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

    /// Creates the id of an event stream of 2024-11-05 that this replica has.
    ///
    /// # Errors
    /// [`ClusterError`] without random bytes.
    pub fn new_stream_id(
        &self,
        principal: &Principal,
        endpoint: &Endpoint,
    ) -> Result<Arc<str>, ClusterError> {
        self.stream_ids.create(principal, endpoint)
    }

    /// Returns the other replica with this id, which a parked call or a kept result names; `None` if it
    /// is this one, or gone.
    pub fn find_replica(&self, id: ReplicaId) -> Option<Arc<PeerLink>> {
        (id != self.id).then(|| self.membership.link(id)).flatten()
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
        Ok(envelope.addressed_to(target, clock::unix_now()).seal(&self.envelopes)?)
    }

    /// Opens the envelope of a request from another replica. The body is not checked yet: see
    /// [`Self::check_body`].
    ///
    /// # Errors
    /// [`RefusedEnvelope`]: the request is not to be served.
    pub fn open_envelope(
        &self,
        sealed: &[u8],
        request: RequestLine<'_>,
    ) -> Result<OpenedEnvelope, RefusedEnvelope> {
        let envelope = OpenedEnvelope::open(sealed, &self.envelopes)
            .map_err(|fault| RefusedEnvelope { fault, client: None })?;
        let checked = envelope
            .check(self.id, request, clock::unix_now())
            .and_then(|()| self.nonces.spend(envelope.nonce, clock::now()));
        let client = envelope.client();
        checked.map(|()| envelope).map_err(|fault| RefusedEnvelope { fault, client })
    }

    /// Checks that the body of a request is the one that was forwarded with this envelope.
    ///
    /// # Errors
    /// [`EnvelopeFault::OtherBody`].
    pub fn check_body(&self, envelope: &OpenedEnvelope, body: &[u8]) -> Result<(), EnvelopeFault> {
        envelope.check_body(body, &self.envelopes)
    }

    /// Counts an event in the life of a session of a lost replica.
    pub fn count_revival(&self, result: RevivalResult) {
        self.counts.count_revival(result);
    }

    /// Counts a refused request at the address for replicas.
    pub fn count_refused(&self) {
        self.counts.count_forwarded(ForwardResult::Refused);
    }

    /// Returns the cluster as operators see it.
    pub fn view(&self) -> ClusterView {
        ClusterView {
            degraded_since: self.health.degraded_since(),
            last_failure: self.health.last_failure(),
            store_latency: self.counts.store_latency(),
            sessions: self.session_records.len(),
            ..self.membership.view()
        }
    }
}

/// Purpose of the keys that seal envelopes.
pub const ENVELOPE_PURPOSE: &[u8] = b"trunkline forwarded request";
/// Purposes of the other keys.
const RECORD_PURPOSE: &[u8] = b"trunkline replica record";
const SESSION_PURPOSE: &[u8] = b"trunkline session id";
const STREAM_PURPOSE: &[u8] = b"trunkline event stream id";
const SESSION_RECORD_PURPOSE: &[u8] = b"trunkline session record";

/// Time limit of one access to the store.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(2);
