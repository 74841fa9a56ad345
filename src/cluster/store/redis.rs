//! The store in a Redis or Valkey server.
//!
//! A value is a key that expires, and its name is in a set of its collection, so that a list needs no
//! scan of the database. A name whose value has expired is removed from the set by the next reader,
//! and so is anything that is no name. Redis returns members of a set whole, so their length is that of
//! the programs that may write to the store: a user of its own for the gateways keeps others out.

use std::time::Duration;

use async_trait::async_trait;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Pipeline, RedisError, RedisResult};

use super::{ClusterStore, ClusterStoreError, MAX_VALUE_BYTES, StoredValue};
use crate::config::StoreUrl;

/// A connection to the server, which is established again after a failure.
pub struct RedisStore {
    connection: ConnectionManager,
    place: String,
}

impl RedisStore {
    /// Creates a store that connects at its first use. Needs a runtime.
    ///
    /// # Errors
    /// [`ClusterStoreError::Url`].
    pub fn new(url: &StoreUrl) -> Result<Self, ClusterStoreError> {
        let unusable = |error: RedisError| ClusterStoreError::Url(Box::new(error));
        let client = Client::open(url.expose()).map_err(unusable)?;
        // A renewal that fails is repeated by the next one.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_connection_timeout(Some(COMMAND_TIMEOUT))
            .set_response_timeout(Some(COMMAND_TIMEOUT));
        let connection = ConnectionManager::new_lazy_with_config(client, config);
        Ok(Self { connection: connection.map_err(unusable)?, place: url.place().to_owned() })
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
        commands.pset_ex(value_key(collection, name), bytes, lease).ignore();
        commands.sadd(names_key(collection), name).ignore();
        self.run(&commands).await
    }

    async fn list(
        &self,
        collection: &str,
        most: usize,
    ) -> Result<Vec<StoredValue>, ClusterStoreError> {
        let count = isize::try_from(most).unwrap_or(isize::MAX);
        let mut commands = Pipeline::new();
        commands.srandmember_multiple(names_key(collection), count);
        // Bytes: members of other programs are no text, and must not hide the names.
        let (members,): (Vec<Vec<u8>>,) = self.run(&commands).await?;
        let (mut names, mut useless) = (Vec::new(), Pipeline::new());
        for member in members.into_iter().take(most) {
            match read_name(&member) {
                Some(name) => names.push(name),
                None => _ = useless.srem(names_key(collection), member).ignore(),
            }
        }
        let mut commands = Pipeline::new();
        commands.ignore_errors();
        for name in &names {
            // One byte more than a value may have shows that it is too long.
            let end = isize::try_from(MAX_VALUE_BYTES).unwrap_or(isize::MAX);
            commands.getrange(value_key(collection, name), 0, end);
        }
        let values: Vec<RedisResult<Vec<u8>>> =
            if names.is_empty() { Vec::new() } else { self.run(&commands).await? };
        let mut stored = Vec::new();
        for (name, bytes) in names.into_iter().zip(values) {
            match bytes {
                Ok(bytes) if bytes.is_empty() => {
                    useless.srem(names_key(collection), name).ignore();
                }
                Ok(bytes) if bytes.len() <= MAX_VALUE_BYTES => {
                    stored.push(StoredValue { name, bytes });
                }
                // Too long, or a value of another kind than bytes.
                Ok(_) | Err(_) => {}
            }
        }
        if !useless.is_empty() {
            self.run::<()>(&useless).await?;
        }
        Ok(stored)
    }

    async fn remove(&self, collection: &str, name: &str) -> Result<(), ClusterStoreError> {
        let mut commands = Pipeline::new();
        commands.del(value_key(collection, name)).ignore();
        commands.srem(names_key(collection), name).ignore();
        self.run(&commands).await
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}

impl RedisStore {
    pub(super) async fn run<T: redis::FromRedisValue>(
        &self,
        commands: &Pipeline,
    ) -> Result<T, ClusterStoreError> {
        let mut connection = self.connection.clone();
        let answered = commands.query_async(&mut connection).await;
        answered.map_err(|error: RedisError| {
            if error.is_timeout() {
                ClusterStoreError::Timeout
            } else {
                ClusterStoreError::Failed(Box::new(error))
            }
        })
    }
}

/// Returns a member of a set if it is a name: hexadecimal digits.
fn read_name(member: &[u8]) -> Option<String> {
    let is_name =
        (1..=MAX_NAME_BYTES).contains(&member.len()) && member.iter().all(u8::is_ascii_hexdigit);
    std::str::from_utf8(member).ok().filter(|_| is_name).map(str::to_owned)
}

pub(super) fn value_key(collection: &str, name: &str) -> String {
    format!("{KEY_PREFIX}:{collection}:{name}")
}

fn names_key(collection: &str) -> String {
    format!("{KEY_PREFIX}:{collection}")
}

/// The prefix of all keys.
pub(super) const KEY_PREFIX: &str = "trunkline";
/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 64;
/// Time limit of a connection, and of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

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
