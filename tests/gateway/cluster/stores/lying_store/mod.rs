//! A store that returns wrong and old values: they are refused and logged.

mod leases;
mod limits;
mod logins;
mod session_records;
mod shared_records;

use data_encoding::HEXLOWER;
use trunkline::crypto::sha256;

use crate::cluster::{RedisServer, STATE_KEY};
use crate::refused_logins::warnings;
use crate::support::poll_for;

/// Lies of a store about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Bytes that no replica has sealed.
    Garbage,
    /// Fewer bytes than a version has.
    Fragment,
    /// The value of another name.
    Moved,
    /// More bytes than a replica writes.
    TooLong,
    /// A list.
    OtherType,
}

impl Lie {
    const ALL: [Self; 5] =
        [Self::Garbage, Self::Fragment, Self::Moved, Self::TooLong, Self::OtherType];

    /// Replaces the value of a key. `other` is the key of another value of the same kind.
    async fn tell(self, redis: &RedisServer, key: &str, other: &str) {
        let commands = match self {
            Self::Garbage => vec![format!("SET {key} {}", "garbage-".repeat(8))],
            Self::Fragment => vec![format!("SET {key} x")],
            Self::Moved => vec![format!("COPY {other} {key} REPLACE")],
            Self::TooLong => vec![format!("SETRANGE {key} {LONGEST_VALUE} x")],
            Self::OtherType => vec![format!("DEL {key}"), format!("LPUSH {key} x")],
        };
        for command in commands {
            let answer = redis.command(&command).await;
            assert!(!answer.starts_with('-'), "{command}: {answer}");
        }
    }

    /// Returns the reason for which the value is refused.
    fn reason(self) -> &'static str {
        match self {
            Self::Garbage | Self::Fragment | Self::Moved => "it was changed",
            Self::TooLong => "it is longer than any value",
            Self::OtherType => "it has another type",
        }
    }

    /// Waits for the line about a refused value of this kind.
    async fn expect_line(self, redis: &RedisServer, kind: &str) {
        expect_line_about(redis, &format!("({kind}) is refused: {}", self.reason())).await;
    }
}

/// Returns the key of a shared record.
fn key_of_record(kind: &str, name: &str) -> String {
    let name = sha256(format!("trunkline shared record {kind} {name}").as_bytes());
    format!("trunkline:{kind}:{}", HEXLOWER.encode(&name))
}

/// Waits for a line about a store that contains a text. It has no names and no keys.
async fn expect_line_about(redis: &RedisServer, text: &str) {
    let place = format!("redis://127.0.0.1:{}", redis.port);
    let line = poll_for(async || {
        let log = std::fs::read_to_string(warnings().path()).unwrap();
        let found = log.lines().find(|line| line.contains(&place) && line.contains(text));
        found.map(ToOwned::to_owned)
    })
    .await;
    assert!(
        !line.replace("trunkline::", "").contains("trunkline:") && !line.contains(STATE_KEY),
        "{line}"
    );
}

/// Returns the keys of the values of a kind, without those that are known.
async fn keys_besides(redis: &RedisServer, kind: &str, known: &[&str]) -> Vec<String> {
    let answer = redis.command(&format!("KEYS trunkline:{kind}:*")).await;
    let keys = answer.lines().filter(|line| line.starts_with("trunkline:"));
    keys.filter(|key| !known.contains(key)).map(str::to_owned).collect()
}

/// Waits for the key of one more value of a kind.
async fn next_key(redis: &RedisServer, kind: &str, known: &[&str]) -> String {
    poll_for(async || {
        let keys = keys_besides(redis, kind, known).await;
        (keys.len() == 1).then(|| keys[0].clone())
    })
    .await
}

/// The limit of the largest kind of values.
const LONGEST_VALUE: usize = 4 << 20;
