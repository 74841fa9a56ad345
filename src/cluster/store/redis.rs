//! The store in a Redis or Valkey server, or in a cluster of them.
//!
//! A value is a key that expires, and its name is in a set of its collection, so that a list needs no
//! scan of the database. A name whose value has expired is removed from the set by the next reader,
//! and so is anything that is no name. Redis returns members of a set whole, so their length is that of
//! the programs that may write to the store: a user of its own for the gateways keeps others out.

use std::time::Duration;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use redis::{FromRedisValue, Pipeline, RedisError, RedisResult};

use super::connection::StoreConnection;
use super::records::{RecordChange, RecordKey, RecordStore};
use super::sessions::SESSION_COLLECTION;
use super::{
    ClusterStore, ClusterStoreError, MAX_VALUE_BYTES, StoredValue, ValueFault, ValueFaultLog,
};
use crate::clock;
use crate::cluster::membership::REPLICA_COLLECTION;
use crate::config::{StoreKind, StoreUrl};
use crate::crypto::random_bytes;
use crate::telemetry::metrics::{AccessOutcome, ClusterCounts, StoreOperation};

/// A connection to the server, which is established again after a failure.
pub struct RedisStore {
    connection: StoreConnection,
    place: String,
    is_cluster: bool,
    faults: ValueFaultLog,
    counts: ClusterCounts,
}

impl RedisStore {
    /// Creates a store that connects at its first use. Needs a runtime.
    ///
    /// # Errors
    /// [`ClusterStoreError::Url`].
    pub fn new(url: &StoreUrl) -> Result<Self, ClusterStoreError> {
        let unusable = |error: RedisError| ClusterStoreError::Url(Box::new(error));
        let connection = StoreConnection::new(url).map_err(unusable)?;
        let is_cluster = matches!(url.kind(), StoreKind::Cluster);
        let place = url.place();
        let faults = ValueFaultLog::new(place.clone());
        Ok(Self { connection, place, is_cluster, faults, counts: ClusterCounts::default() })
    }

    /// Records the durations of requests in `counts`.
    #[must_use]
    pub fn counting(self, counts: ClusterCounts) -> Self {
        Self { counts, ..self }
    }

    /// Writes a value, reads it and removes it, as a replica does.
    ///
    /// # Errors
    /// [`ClusterStoreError`].
    pub async fn probe(&self) -> Result<(), ClusterStoreError> {
        let name = HEXLOWER.encode(&random_bytes::<8>().map_err(|_| ClusterStoreError::Seal)?);
        self.put(PROBE_COLLECTION, &name, b"probe".to_vec(), PROBE_LEASE).await?;
        let listed = self.list(PROBE_COLLECTION, MAX_PROBES).await?;
        self.remove(PROBE_COLLECTION, &name).await?;
        let key = RecordKey::new(PROBE_COLLECTION, &name);
        let written = RecordChange::Write { bytes: b"probe", lifetime: Some(PROBE_LEASE) };
        let is_written = self.replace_record(key, None, written).await?;
        let is_removed = self.replace_record(key, Some(b"probe"), RecordChange::Remove).await?;
        let is_listed = listed.iter().any(|value| value.name == name);
        (is_listed && is_written && is_removed).then_some(()).ok_or(ClusterStoreError::Reply)
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedisStore({})", self.place)
    }
}

#[async_trait]
impl ClusterStore for RedisStore {
    async fn put(
        &self,
        collection: &str,
        name: &str,
        bytes: Vec<u8>,
        lease: Duration,
    ) -> Result<(), ClusterStoreError> {
        let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let mut commands = Pipeline::new();
        commands.pset_ex(self.member_key(collection, name), bytes, lease).ignore();
        commands.sadd(self.names_key(collection), name).ignore();
        self.run(StoreOperation::Put, &commands).await
    }

    async fn list(
        &self,
        collection: &str,
        most: usize,
    ) -> Result<Vec<StoredValue>, ClusterStoreError> {
        let count = isize::try_from(most).unwrap_or(isize::MAX);
        let mut commands = Pipeline::new();
        commands.srandmember_multiple(self.names_key(collection), count);
        // Bytes: members of other programs are no text, and must not hide the names.
        let (members,): (Vec<Vec<u8>>,) = self.run(StoreOperation::List, &commands).await?;
        let (mut names, mut useless) = (Vec::new(), Pipeline::new());
        for member in members.into_iter().take(most) {
            match read_name(&member) {
                Some(name) => names.push(name),
                None => _ = useless.srem(self.names_key(collection), member).ignore(),
            }
        }
        let mut commands = Pipeline::new();
        commands.ignore_errors();
        for name in &names {
            // One byte more than a value may have shows that it is too long.
            let end = isize::try_from(MAX_VALUE_BYTES).unwrap_or(isize::MAX);
            commands.getrange(self.member_key(collection, name), 0, end);
            commands.pttl(self.member_key(collection, name));
        }
        let values: Vec<RedisResult<redis::Value>> = match names.len() {
            0 => Vec::new(),
            _ => self.run(StoreOperation::List, &commands).await?,
        };
        let mut stored = Vec::new();
        let (values, _) = values.as_chunks::<2>();
        for (name, [bytes, lease_left]) in names.into_iter().zip(values) {
            let bytes = read_reply::<Vec<u8>>(bytes);
            match bytes {
                Some(bytes) if bytes.is_empty() => {
                    useless.srem(self.names_key(collection), name).ignore();
                }
                Some(bytes) if bytes.len() <= MAX_VALUE_BYTES => {
                    let lease_left = read_reply::<i64>(lease_left).unwrap_or_default();
                    let lease_left = Duration::from_millis(lease_left.try_into().unwrap_or(0));
                    stored.push(StoredValue { name, bytes, lease_left });
                }
                Some(_) => self.faults.note(collection, ValueFault::TooLong),
                None => self.faults.note(collection, ValueFault::OtherType),
            }
        }
        if !useless.is_empty() {
            self.run::<()>(StoreOperation::List, &useless).await?;
        }
        Ok(stored)
    }

    async fn remove(&self, collection: &str, name: &str) -> Result<(), ClusterStoreError> {
        let mut commands = Pipeline::new();
        commands.del(self.member_key(collection, name)).ignore();
        commands.srem(self.names_key(collection), name).ignore();
        self.run(StoreOperation::Remove, &commands).await
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}

impl RedisStore {
    /// Returns the key of the names of a collection. In a cluster, it has the slot of its values: one
    /// request is for one slot.
    fn names_key(&self, collection: &str) -> String {
        if self.is_cluster {
            format!("{KEY_PREFIX}:{{{collection}}}")
        } else {
            format!("{KEY_PREFIX}:{collection}")
        }
    }

    /// Returns the key of a value of a collection.
    pub(super) fn member_key(&self, collection: &str, name: &str) -> String {
        format!("{}:{name}", self.names_key(collection))
    }

    /// Returns the key of a record. In a cluster, sessions have the slot of the leases, which one script
    /// reads with them.
    pub(super) fn record_key(&self, collection: &str, name: &str) -> String {
        if self.is_cluster && collection == SESSION_COLLECTION {
            return format!("{}:{collection}:{name}", self.names_key(REPLICA_COLLECTION));
        }
        format!("{KEY_PREFIX}:{collection}:{name}")
    }

    /// Sends commands in one request.
    pub(super) async fn run<T: redis::FromRedisValue>(
        &self,
        operation: StoreOperation,
        commands: &Pipeline,
    ) -> Result<T, ClusterStoreError> {
        let start = clock::now();
        let answered = self.connection.query(commands).await;
        let outcome =
            if answered.is_ok() { AccessOutcome::Answered } else { AccessOutcome::Failed };
        self.counts.observe_access(operation, outcome, start);
        answered.map_err(read_error)
    }
}

/// Returns a member of a set if it is a name: hexadecimal digits.
fn read_name(member: &[u8]) -> Option<String> {
    let is_name =
        (1..=MAX_NAME_BYTES).contains(&member.len()) && member.iter().all(u8::is_ascii_hexdigit);
    std::str::from_utf8(member).ok().filter(|_| is_name).map(str::to_owned)
}

/// Returns the reason that commands failed.
fn read_error(error: RedisError) -> ClusterStoreError {
    if error.is_timeout() {
        return ClusterStoreError::Timeout;
    }
    // A request with several commands has an error for each.
    let errors = error.clone().into_server_errors().unwrap_or_default();
    let has_other_type = errors.iter().any(|(_, error)| error.code() == OTHER_TYPE_CODE);
    if has_other_type || error.code() == Some(OTHER_TYPE_CODE) {
        return ClusterStoreError::Value(ValueFault::OtherType);
    }
    ClusterStoreError::Failed(Box::new(error))
}

/// Returns a reply of the expected type.
pub(super) fn read_reply<T: FromRedisValue>(reply: &RedisResult<redis::Value>) -> Option<T> {
    T::from_redis_value_ref(reply.as_ref().ok()?).ok()
}

/// The code of the error for a value of another type than the command expects.
const OTHER_TYPE_CODE: &str = "WRONGTYPE";
/// The prefix of all keys.
pub(super) const KEY_PREFIX: &str = "trunkline";
/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 64;
/// The collection of [`RedisStore::probe`].
const PROBE_COLLECTION: &str = "probes";
/// Lifetime of a value that a probe leaves behind.
const PROBE_LEASE: Duration = Duration::from_secs(10);
/// The most values of probes at a time.
const MAX_PROBES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_few_hexadecimal_digits() {
        let long = "a".repeat(MAX_NAME_BYTES);
        for name in ["0", "00ffAB", &long] {
            assert_eq!(read_name(name.as_bytes()).as_deref(), Some(name));
        }
        let longer = format!("{long}a");
        for member in [&b""[..], b"xyz", b"00 ff", b"00\xff", b"00\n", longer.as_bytes()] {
            assert_eq!(read_name(member), None, "{member:?}");
        }
    }
}
