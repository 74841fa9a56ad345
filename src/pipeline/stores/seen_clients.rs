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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::call::test_support::make_context;
    use crate::call::{Client, Endpoint, ProfileName};
    use crate::mcp::ProtocolVersion;

    /// Returns a request of a client `NAME`, or of an anonymous one without a name.
    fn request(name: &str, software: &str, address: IpAddr) -> Context {
        let info = format!("{{\"name\":\"{software}\",\"version\":\"{software}\"}}");
        let version = ProtocolVersion::LATEST_MODERN;
        let client = Client::new(version, Some(Bytes::from(info)), Bytes::from_static(b"{}"));
        let principal = match name {
            "" => Principal::Anonymous,
            name => Principal::Client(name.into()),
        };
        Context { principal, address, ..make_context(client) }
    }

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn clients_are_listed_within_a_share_of_each_holder_and_address_and_in_total() {
        let seen = SeenClients::default();
        for number in 0..50 {
            seen.note(&request("ann", &format!("a{number}"), address(number)));
        }
        assert_eq!(seen.sightings().len(), MAX_SEEN_OF_HOLDER, "one holder");
        for number in 0..300 {
            seen.note(&request(&format!("of-office-{number}"), "x", address(7777)));
        }
        let of_office = |it: &ClientSighting| it.client.address == address(7777);
        let office = seen.sightings().into_iter().filter(of_office).count();
        assert_eq!(office, MAX_SEEN_OF_ADDRESS, "one address");
        for number in 0..1500 {
            seen.note(&request(&format!("c{number}"), "x", address(number)));
        }
        assert_eq!(seen.sightings().len(), MAX_SEEN_CLIENTS);
    }

    #[test]
    fn clients_that_differ_in_one_fact_are_told_apart() {
        let seen = SeenClients::default();
        let first = request("ann", "a", address(1));
        let profile = Endpoint { profile: ProfileName::new("small").ok(), narrowing: None };
        let others = [
            request("bob", "a", address(1)),
            request("ann", "b", address(1)),
            request("ann", "a", address(2)),
            Context { endpoint: profile, ..request("ann", "a", address(1)) },
        ];
        for context in [&first].into_iter().chain(&others).chain([&first]) {
            seen.note(context);
        }
        let all = seen.sightings();
        assert_eq!(all.len(), 5, "{all:#?}");
    }

    #[test]
    fn a_client_is_bounded_text_and_a_network() {
        let seen = SeenClients::default();
        let long = "x\\u001b".repeat(1000);
        for last in [1_u16, 2] {
            let address = IpAddr::from([0x2001, 0xdb8, 1, 2, 0, 0, 0, last]);
            seen.note(&request("ann", &long, address));
        }
        let all = seen.sightings();
        let [one] = &all[..] else { panic!("{all:#?}") };
        let client = &one.client;
        assert_eq!(client.address, IpAddr::from([0x2001, 0xdb8, 1, 2, 0, 0, 0, 0]));
        for text in [&client.software, &client.version] {
            assert!(text.chars().count() <= MAX_SOFTWARE_CHARS, "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_listed_for_an_hour_after_its_last_request() {
        let seen = Arc::new(SeenClients::default());
        let request = request("ann", "a", address(1));
        seen.note(&request);
        let first = seen.sightings().remove(0);
        tokio::time::advance(SEEN_TIME.saturating_sub(NOTE_INTERVAL)).await;
        seen.note(&request);
        let again = seen.sightings().remove(0);
        assert_eq!(again.first_at, first.first_at);
        tokio::time::advance(SEEN_TIME.saturating_sub(NOTE_INTERVAL)).await;
        assert_eq!(seen.sightings().len(), 1, "it was noted again");
        tokio::time::advance(NOTE_INTERVAL).await;
        assert!(seen.sightings().is_empty());
    }
}
