//! `trunkline key`: a client's key, and the hash of it that the configuration
//! holds.
//!
//! A key is 256 random bits: nobody guesses it, so that its plain SHA-256 may
//! stand in a file that others read. The prefix lets scanners for leaked
//! secrets know one when they see it.

use std::io::{self, Read as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::config::KeyHash;
use crate::crypto::{random_bytes, sha256};

/// Make a key for a client, and the hash of it that the configuration holds
///
/// The key is for the client alone and is shown this once; the hash goes into gateway.toml. A client
/// sends its key as `Authorization: Bearer KEY` or as `X-API-Key: KEY`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct KeyArgs {
    /// What the client is to be called
    #[arg(value_name = "NAME", default_value = "NAME", hide_default_value = true)]
    name: String,
    /// Print the key and nothing else
    #[arg(long, conflicts_with_all = ["hash", "name"])]
    plain: bool,
    /// Make none: print the hash of the key on standard input
    #[arg(long, conflicts_with = "name")]
    hash: bool,
}

const EXAMPLES: &str = "\
Examples:
  trunkline key ci                                   # a key, and what to write into gateway.toml

  umask 077
  trunkline key --plain > ci.key                     # for the client
  trunkline key --hash < ci.key > ci.sha256          # for gateway.toml: key = \"${file:ci.sha256}\"";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The machine gives no randomness.
    #[error("no key could be made")]
    Random,
    /// Standard input cannot be read.
    #[error("cannot read the key from standard input")]
    Read(#[source] io::Error),
    /// What came on standard input is no key that a client could send.
    #[error("standard input has no key: it is one line of 1 to 512 visible ASCII characters")]
    NoKey,
}

/// Makes what is to be printed.
///
/// # Errors
/// [`KeyError`].
pub fn make_key(args: &KeyArgs) -> Result<String, KeyError> {
    if args.hash {
        let mut text = String::new();
        io::stdin().take(MOST_READ).read_to_string(&mut text).map_err(KeyError::Read)?;
        return Ok(format!("{}\n", hash(validate_key(&text)?)));
    }
    let key = random_key()?;
    if args.plain {
        return Ok(format!("{key}\n"));
    }
    let (name, hash) = (quote_name(&args.name), hash(&key));
    Ok(format!(
        "\
The key, for the client alone. It is shown this once:

  {key}

For gateway.toml:

  [clients.{name}]
  key = \"{hash}\"
"
    ))
}

fn random_key() -> Result<String, KeyError> {
    let bytes = random_bytes::<32>().map_err(|_| KeyError::Random)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// The key of a text without the line end behind it.
fn validate_key(text: &str) -> Result<&str, KeyError> {
    let key = text.trim_end_matches(['\r', '\n']);
    let sendable = key.bytes().all(|byte| byte.is_ascii_graphic());
    if sendable && (1..=512).contains(&key.len()) { Ok(key) } else { Err(KeyError::NoKey) }
}

fn hash(key: &str) -> KeyHash {
    KeyHash::new(sha256(key.as_bytes()))
}

/// A name as TOML takes it for a key.
fn quote_name(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(bare) { name.into() } else { format!("{name:?}") }
}

/// What every key begins with.
const PREFIX: &str = "tlk_";
/// How much of standard input is read: a little more than the longest key.
const MOST_READ: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_the_same() {
        let keys = [random_key().unwrap(), random_key().unwrap()];
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|key| key.len() == 47 && key.starts_with(PREFIX)), "{keys:?}");
    }

    #[test]
    fn a_key_is_hashed_without_its_line_end_and_nothing_else_is_a_key() {
        assert_eq!(validate_key("tlk_x\r\n").unwrap(), "tlk_x");
        for text in ["", "\n", "two words", "two\nlines", "é", &"x".repeat(513)] {
            assert!(validate_key(text).is_err(), "{text:?}");
        }
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash("abc").to_string(), abc);
    }
}
