//! The place of a session: the replica that has it, or this one if its owner is gone.
//!
//! The id of a session names the replica that opened it. A known replica is asked without an access to
//! the store. Otherwise the record of the session decides: it names the owner, and a session whose owner
//! has no lease is claimed.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::session_records::{
    ClaimOutcome, ClaimedSession, FoundSession, SessionKey, SessionRecords,
};
use super::{Cluster, ClusterStoreError, LeaseStatus, PeerLink, ReplicaId, ValueFault};
use crate::clock;
use crate::config::DegradeChoice;

/// The place of a session that is not here.
#[derive(Debug)]
pub enum SessionPlace {
    /// Another replica has it.
    Replica(Arc<PeerLink>),
    /// Its owner was gone: it is this replica's now, which has to open it.
    Claimed(Box<ClaimedSession>),
    /// Its owner has a lease, but cannot be reached.
    Unreachable,
    /// No replica has it.
    Lost,
}

/// Places of sessions that were learned from their records.
#[derive(Debug)]
pub(super) struct KnownPlaces {
    known: Mutex<HashMap<Arc<str>, KnownPlace>>,
    turns: [tokio::sync::Mutex<Option<MissedSession>>; SESSION_TURNS],
}

/// A session whose owner had a lease and could not be reached. Requests that wait for the same turn
/// share this outcome.
#[derive(Debug)]
struct MissedSession {
    id: Box<str>,
    at: Instant,
}

#[derive(Debug, Clone, Copy)]
enum KnownPlace {
    /// Another replica than the one that the id names.
    Moved { owner: ReplicaId, generation: u64 },
    /// There was no record at that time.
    Lost { at: Instant },
}

/// The turn of a request to find the place of its session: one for each session at a time.
#[derive(Debug)]
pub struct SessionTurn<'a> {
    missed: MutexGuard<'a, Option<MissedSession>>,
}

impl SessionTurn<'_> {
    /// Returns true if a request for this session has found its owner unreachable a moment ago.
    fn has_missed(&self, id: &str) -> bool {
        self.missed.as_ref().is_some_and(|missed| {
            &*missed.id == id && clock::now().saturating_duration_since(missed.at) < MISSED_TIME
        })
    }

    fn note_missed(&mut self, id: &str) {
        *self.missed = Some(MissedSession { id: id.into(), at: clock::now() });
    }
}

impl Default for KnownPlaces {
    fn default() -> Self {
        let turns = std::array::from_fn(|_| tokio::sync::Mutex::default());
        Self { known: Mutex::default(), turns }
    }
}

impl KnownPlaces {
    fn get(&self, id: &str) -> Option<KnownPlace> {
        self.known.lock().get(id).copied()
    }

    fn note(&self, id: &str, place: KnownPlace) {
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN_PLACES && !known.contains_key(id) {
            // They are read again from the store.
            known.clear();
        }
        known.insert(id.into(), place);
    }

    /// Notes the owner that a record names. Returns false if a later record was seen: the store has
    /// returned an old one.
    fn note_owner(&self, id: &str, found: &FoundSession) -> bool {
        if let Some(KnownPlace::Moved { generation, .. }) = self.get(id)
            && found.generation() < generation
        {
            return false;
        }
        let (owner, generation) = (found.owner(), found.generation());
        self.note(id, KnownPlace::Moved { owner, generation });
        true
    }
}

impl Cluster {
    /// Returns the records of this replica's sessions.
    pub fn session_records(&self) -> &SessionRecords {
        &self.session_records
    }

    /// Returns true if an id was created by a replica for this principal and endpoint.
    pub fn has_session_id(&self, key: SessionKey<'_>) -> bool {
        self.session_ids.owner_of(key.id, key.principal, key.endpoint).is_some()
    }

    /// Returns true if this replica may answer for its sessions without asking the store.
    pub fn holds_lease(&self) -> bool {
        matches!(self.membership.lease(), LeaseStatus::Held | LeaseStatus::Never)
    }

    /// Returns true if this replica has handed its sessions over, or is about to: requests for them go to
    /// other replicas.
    pub fn has_left(&self) -> bool {
        self.membership.lease() == LeaseStatus::Left
    }

    /// Returns true if the last access to the leases failed.
    pub fn is_store_failing(&self) -> bool {
        self.membership.is_store_failing()
    }

    /// Returns true if the store had no record of this session when it was looked for.
    pub fn is_known_lost(&self, id: &str) -> bool {
        matches!(self.places.get(id), Some(KnownPlace::Lost { .. }))
    }

    /// Returns the state of the lease, after an attempt to renew it if it has lapsed, or to get the first
    /// one: a replica that has just started may be asked for a session that it can only own with a lease.
    pub async fn confirm_lease(&self) -> LeaseStatus {
        for _ in 0..MAX_RENEWALS {
            let may_change =
                matches!(self.membership.lease(), LeaseStatus::Lapsed | LeaseStatus::Never);
            if !may_change || self.membership.has_just_failed() {
                break;
            }
            self.membership.hurry_renewal().await;
        }
        self.membership.lease()
    }

    /// Returns true if this replica answers for its sessions while the store cannot be reached, and
    /// others may have revived them.
    pub fn answers_alone(&self) -> bool {
        self.degrade == DegradeChoice::Local
    }

    /// Waits for the turn to find the place of a session.
    pub async fn take_turn(&self, id: &str) -> SessionTurn<'_> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % SESSION_TURNS as u64).unwrap_or_default();
        // The index is below the length.
        let turn = self.places.turns.get(index).unwrap_or(&self.places.turns[0]);
        SessionTurn { missed: turn.lock().await }
    }

    /// Returns the replica that should have a session, if it is known without the store.
    pub fn known_place(
        &self,
        key: SessionKey<'_>,
        unreached: Option<ReplicaId>,
    ) -> Option<Arc<PeerLink>> {
        let named = self.session_ids.owner_of(key.id, key.principal, key.endpoint)?;
        let supposed = match self.places.get(key.id) {
            Some(KnownPlace::Moved { owner, .. }) => owner,
            _ => named,
        };
        self.link_to(supposed, unreached)
    }

    /// Returns the other replica that has an event stream of 2024-11-05; `None` if the id is of no
    /// stream of this principal and endpoint, or its replica is this one, or gone.
    ///
    /// # Errors
    /// [`ClusterStoreError`]: its replica is not known here, and the store cannot be read.
    pub async fn find_stream(
        &self,
        key: SessionKey<'_>,
    ) -> Result<Option<Arc<PeerLink>>, ClusterStoreError> {
        let owner = self.stream_ids.owner_of(key.id, key.principal, key.endpoint);
        let Some(owner) = owner.filter(|owner| *owner != self.id) else { return Ok(None) };
        if self.membership.link(owner).is_none() {
            // It may have started a moment ago.
            self.membership.refresh().await?;
        }
        Ok(self.membership.link(owner))
    }

    fn link_to(&self, owner: ReplicaId, unreached: Option<ReplicaId>) -> Option<Arc<PeerLink>> {
        let is_other = owner != self.id && Some(owner) != unreached;
        is_other.then(|| self.membership.link(owner)).flatten()
    }

    /// Returns the replica that a request for a session is forwarded to after this one has left: the
    /// owner that its record names, or one that may claim it. `None` if there is no other replica.
    /// `unreached` does not have it, or cannot be reached.
    pub async fn find_heir(
        &self,
        key: SessionKey<'_>,
        unreached: Option<ReplicaId>,
    ) -> Option<Arc<PeerLink>> {
        // The first replica that was asked may have found another owner.
        if unreached.is_some()
            && let Ok(Some(found)) = self.find_recorded(key).await
            && let Some(owner) = self.link_to(found.owner(), unreached)
        {
            return Some(owner);
        }
        self.membership.choose_heir(key.id, unreached)
    }

    /// Returns a replica that opens new sessions after this one has left.
    pub fn find_successor(&self) -> Option<Arc<PeerLink>> {
        self.membership.choose_heir("", None)
    }

    /// Finds a session that is not here, in the turn of its request. `unreached` is a replica that does
    /// not have it, or cannot be reached.
    ///
    /// # Errors
    /// [`ClusterStoreError`]: the place is not known.
    pub async fn find_place(
        &self,
        turn: &mut SessionTurn<'_>,
        key: SessionKey<'_>,
        unreached: Option<ReplicaId>,
    ) -> Result<SessionPlace, ClusterStoreError> {
        if turn.has_missed(key.id) {
            return Ok(SessionPlace::Unreachable);
        }
        let place = self.read_place(key, unreached).await?;
        if matches!(place, SessionPlace::Unreachable) {
            turn.note_missed(key.id);
        }
        Ok(place)
    }

    async fn read_place(
        &self,
        key: SessionKey<'_>,
        unreached: Option<ReplicaId>,
    ) -> Result<SessionPlace, ClusterStoreError> {
        if let Some(KnownPlace::Lost { at }) = self.places.get(key.id)
            && clock::now().saturating_duration_since(at) < LOST_TIME
        {
            return Ok(SessionPlace::Lost);
        }
        self.membership.refresh().await?;
        if let Some(link) = self.known_place(key, unreached) {
            return Ok(SessionPlace::Replica(link));
        }
        for _ in 0..MAX_CLAIMS {
            let asked = clock::now();
            let Some(found) = self.find_recorded(key).await? else {
                return self.find_unrecorded(key, unreached, asked).await;
            };
            if let Some(link) = self.link_to(found.owner(), unreached) {
                return Ok(SessionPlace::Replica(link));
            }
            let owner = found.owner();
            // A replica without a lease cannot own a session.
            if self.confirm_lease().await != LeaseStatus::Held {
                return Err(ClusterStoreError::NoLease);
            }
            match self.session_records.claim(found).await? {
                ClaimOutcome::Claimed(claimed) => {
                    let moved =
                        KnownPlace::Moved { owner: self.id, generation: claimed.generation };
                    self.places.note(key.id, moved);
                    return Ok(SessionPlace::Claimed(claimed));
                }
                // The owner may have its first lease since the last reading.
                ClaimOutcome::OwnerLives if Some(owner) != unreached => {
                    self.membership.refresh_since(asked).await?;
                }
                ClaimOutcome::OwnerLives => return Ok(SessionPlace::Unreachable),
                ClaimOutcome::NoLease => return Err(ClusterStoreError::NoLease),
                ClaimOutcome::Changed => {}
            }
        }
        Ok(SessionPlace::Unreachable)
    }

    /// Reads the record of a session, and notes its owner.
    async fn find_recorded(
        &self,
        key: SessionKey<'_>,
    ) -> Result<Option<FoundSession>, ClusterStoreError> {
        let Some(found) = self.session_records.find(key).await? else { return Ok(None) };
        if !self.places.note_owner(key.id, &found) {
            self.session_records.note_value(ValueFault::Outdated);
            return Err(ClusterStoreError::Reply);
        }
        Ok(Some(found))
    }

    /// Returns the place of a session that had no record at `asked` or later. A replica that has just
    /// started may not have written it yet.
    async fn find_unrecorded(
        &self,
        key: SessionKey<'_>,
        unreached: Option<ReplicaId>,
        asked: Instant,
    ) -> Result<SessionPlace, ClusterStoreError> {
        self.membership.refresh_since(asked).await?;
        if let Some(link) = self.known_place(key, unreached) {
            return Ok(SessionPlace::Replica(link));
        }
        self.places.note(key.id, KnownPlace::Lost { at: clock::now() });
        Ok(SessionPlace::Lost)
    }
}

/// Attempts to renew a lease that a request needs.
const MAX_RENEWALS: usize = 2;
/// Attempts to claim a session that other replicas claim, too.
const MAX_CLAIMS: usize = 3;
/// Time for which an absent record is not looked for again.
const LOST_TIME: Duration = Duration::from_secs(1);
/// Time for which an owner that could not be reached is not looked for again.
const MISSED_TIME: Duration = Duration::from_millis(50);
/// Limit of the places that are remembered.
const MAX_KNOWN_PLACES: usize = 10_000;
/// Sessions whose places are looked for at a time.
const SESSION_TURNS: usize = 64;

#[cfg(test)]
pub(super) mod tests;
