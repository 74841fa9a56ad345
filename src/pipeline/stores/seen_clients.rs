//! Clients without a session that were served lately, for operators.
//!
//! A Modern client has no session that could be listed, so its requests are noted here. Each thread
//! remembers the clients that it has noted within the last seconds, so that a request of a known
//! client costs a hash and no lock.

use std::cell::Cell;
use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::{Context, Principal};
use crate::clock;
use crate::crypto::sha256;
use crate::shares::{EntryLifetime, EntryOwner, FairTable, Holder, TableBounds, network};
use crate::text::one_line;

/// Clients without a session that were served within the last hour, within limits.
pub(crate) struct SeenClients {
    table: Mutex<FairTable<SeenClient, SightingTimes>>,
    hasher: RandomState,
}

/// A client as its requests describe it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeenClient {
    /// The client or user.
    pub principal: Principal,
    /// Its address, or the /64 network of an IPv6 address.
    pub address: IpAddr,
    /// The profile.
    pub profile: String,
    /// The client's name for its software; empty if it sent none.
    pub software: String,
    /// The version of that software.
    pub version: String,
    /// The protocol version.
    pub protocol_version: &'static str,
}

impl SeenClient {
    /// Describes the sender of a request.
    pub fn of(context: &Context) -> Self {
        let (software, version) = context.client.name_and_version();
        Self {
            principal: context.principal.clone(),
            address: network(context.address),
            profile: context.endpoint.profile().to_owned(),
            software: one_line(&software, MAX_SOFTWARE_CHARS),
            version: one_line(&version, MAX_SOFTWARE_CHARS),
            protocol_version: context.client.version.as_str(),
        }
    }

    /// Returns the digits that identify the client to operators.
    pub fn digest(&self) -> String {
        let Self { principal, address, profile, software, version, protocol_version } = self;
        let kind = match principal {
            Principal::Anonymous => "anonymous",
            Principal::Client(_) => "client",
            Principal::User(_) => "user",
        };
        let address = address.to_string();
        let parts =
            [kind, principal.as_str(), &address, profile, software, version, protocol_version];
        let digest = sha256(parts.join("\0").as_bytes());
        HEXLOWER.encode(digest.first_chunk::<CLIENT_DIGEST_BYTES>().unwrap_or(&[0; 8]))
    }
}

/// A client, and the times of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSighting {
    /// The client.
    pub client: SeenClient,
    /// The time of its first request within the hour before the last one.
    pub first_at: SystemTime,
    /// The time of its last request, to [`NOTE_INTERVAL`].
    pub last_at: SystemTime,
}

/// The times of the first and the last request.
struct SightingTimes {
    first_at: SystemTime,
    last_at: SystemTime,
}

thread_local! {
    /// Hashes of the clients that this thread has noted, with the time. A client has one place.
    static NOTED: [Cell<Option<(u64, Instant)>>; NOTED_PLACES] =
        const { [const { Cell::new(None) }; NOTED_PLACES] };
}

impl Default for SeenClients {
    fn default() -> Self {
        let bounds = TableBounds { all: MAX_SEEN_CLIENTS, each_address: MAX_SEEN_OF_ADDRESS };
        Self { table: Mutex::new(FairTable::new(bounds)), hasher: RandomState::default() }
    }
}

impl SeenClients {
    /// Notes the sender of a request.
    #[inline]
    pub(crate) fn note(&self, context: &Context) {
        let (hash, now) = (self.hash(context), clock::now());
        if !is_noted(hash, now) {
            self.insert(context, now);
        }
    }

    fn hash(&self, context: &Context) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        context.principal.hash(&mut hasher);
        context.address.hash(&mut hasher);
        context.endpoint.profile().hash(&mut hasher);
        context.client.info.as_deref().hash(&mut hasher);
        hasher.finish()
    }

    fn insert(&self, context: &Context, now: Instant) {
        let client = SeenClient::of(context);
        let holder = Holder::of_context(context);
        let owner =
            EntryOwner { holder, share: MAX_SEEN_OF_HOLDER, address: Some(context.address) };
        let lifetime = EntryLifetime { now, until: now + SEEN_TIME };
        let mut table = self.table.lock();
        let first = table.get(&client, now).map(|sighting| sighting.first_at);
        let last_at = clock::wall_now();
        let sighting = SightingTimes { first_at: first.unwrap_or(last_at), last_at };
        table.insert(client, sighting, owner, lifetime);
    }

    /// Returns the clients of the last hour, the last one first.
    pub(crate) fn sightings(&self) -> Vec<ClientSighting> {
        let table = self.table.lock();
        let sighting = |(client, times): (&SeenClient, &SightingTimes)| ClientSighting {
            client: client.clone(),
            first_at: times.first_at,
            last_at: times.last_at,
        };
        let mut all: Vec<_> = table.live_entries(clock::now()).map(sighting).collect();
        drop(table);
        all.sort_by_key(|sighting| std::cmp::Reverse(sighting.last_at));
        all
    }
}

/// Returns true if this thread has noted a client within the last seconds. Otherwise it is taken as
/// noted from now on.
#[inline]
fn is_noted(hash: u64, now: Instant) -> bool {
    NOTED.with(|noted| {
        let place = usize::try_from(hash % NOTED_PLACES as u64).unwrap_or_default();
        let Some(cell) = noted.get(place) else { return false };
        let is_noted = cell.get().is_some_and(|(known, at)| {
            known == hash && now.saturating_duration_since(at) < NOTE_INTERVAL
        });
        if !is_noted {
            cell.set(Some((hash, now)));
        }
        is_noted
    })
}

/// Bytes of the digest that identifies a client.
const CLIENT_DIGEST_BYTES: usize = 8;
/// Limit of the clients.
const MAX_SEEN_CLIENTS: usize = 1000;
/// Limit of the clients of one address.
const MAX_SEEN_OF_ADDRESS: usize = 200;
/// Limit of the clients of one holder, such as the programs that share a key.
const MAX_SEEN_OF_HOLDER: usize = 20;
/// Time for which a client is listed after its last request.
const SEEN_TIME: Duration = Duration::from_hours(1);
/// The least time between two notes of one client by one thread.
pub(crate) const NOTE_INTERVAL: Duration = Duration::from_secs(5);
/// Clients that a thread remembers.
const NOTED_PLACES: usize = 64;
/// Limit of the characters of a client's software and its version.
const MAX_SOFTWARE_CHARS: usize = 64;
