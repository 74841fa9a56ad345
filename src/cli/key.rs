//! `trunkline key`: creates a client's API key and its hash for the
//! configuration.
//!
//! A key has 256 random bits. It cannot be guessed, so its plain SHA-256 is safe
//! in a file that others can read. The prefix lets secret scanners recognise
//! leaked keys.

use std::io::{self, Read as _};
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::{CONFIG_FAULT, FAILURE_EXIT, FailureExit, json_text, report_error, write_to_stdout};
use crate::config::KeyHash;
use crate::crypto::{random_bytes, sha256};

/// Create an API key for a client, and its hash for the configuration
///
/// The key is for the client and is shown only once; the hash goes into gateway.toml. The client
/// sends its key as `Authorization: Bearer KEY` or as `X-API-Key: KEY`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = KEY_EXAMPLES)]
pub(super) struct KeyArgs {
    /// The client's name in the configuration
    #[arg(value_name = "NAME", default_value = "NAME", hide_default_value = true)]
    name: String,
    /// Print only the key
    #[arg(long, conflicts_with_all = ["hash", "name"])]
    plain: bool,
    /// Create no key; print the hash of the key on standard input
    #[arg(long, conflicts_with = "name")]
    hash: bool,
    /// Print the key and its hash as JSON
    #[arg(long, conflicts_with = "plain")]
    json: bool,
}

const KEY_EXAMPLES: &str = "\
Examples:
  trunkline key ci                         # a key, and its configuration

  umask 077
  trunkline key --plain > ci.key                     # for the client
  trunkline key --json ci | jq -r .hash
  trunkline key --hash < ci.key > ci.sha256
                                           # key = \"${file:ci.sha256}\"";

/// Error of creating or hashing a key.
#[derive(Debug, thiserror::Error)]
enum KeyError {
    /// The system provides no randomness.
    #[error("the system's random number generator failed")]
    Random,
    /// Standard input cannot be read.
    #[error("cannot read the key from standard input")]
    Read(#[source] io::Error),
    /// Standard input contains no valid key.
    #[error("no key on standard input, expected one line of 1 to 512 visible ASCII characters")]
    NoKey,
}

impl KeyError {
    fn exit(&self) -> FailureExit {
        match self {
            Self::Random => FAILURE_EXIT,
            Self::Read(_) | Self::NoKey => CONFIG_FAULT,
        }
    }
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
struct NewKeyDocument {
    /// The name of the client; `None` with `--hash`.
    client: Option<String>,
    /// The new key, which is shown this once; `None` with `--hash`.
    key: Option<String>,
    /// The hash for the configuration.
    hash: String,
}

pub(super) fn run(args: &KeyArgs) -> ExitCode {
    match make_key(args) {
        Ok(text) => write_to_stdout(&text),
        Err(error) => {
            let _ = report_error(&error);
            error.exit().into_code()
        }
    }
}

/// Returns the text to print.
///
/// # Errors
/// [`KeyError`].
fn make_key(args: &KeyArgs) -> Result<String, KeyError> {
    let document = |client, key, hash: KeyHash| {
        let document = NewKeyDocument { client, key, hash: hash.to_string() };
        json_text(&serde_json::to_value(document).unwrap_or_default())
    };
    if args.hash {
        let mut text = String::new();
        io::stdin().take(MAX_INPUT_BYTES).read_to_string(&mut text).map_err(KeyError::Read)?;
        let hash = hash(validate_key(&text)?);
        return Ok(if args.json { document(None, None, hash) } else { format!("{hash}\n") });
    }
    let key = random_key()?;
    if args.plain {
        return Ok(format!("{key}\n"));
    }
    if args.json {
        let hash = hash(&key);
        return Ok(document(Some(args.name.clone()), Some(key), hash));
    }
    let (name, hash) = (quote_name(&args.name), hash(&key));
    Ok(format!(
        "\
The key, for the client only. It is not shown again:

  {key}

For gateway.toml:

  [clients.{name}]
  key = \"{hash}\"
"
    ))
}

fn random_key() -> Result<String, KeyError> {
    let bytes = random_bytes::<32>().map_err(|_| KeyError::Random)?;
    Ok(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// Returns the key in a text, without the trailing line end.
fn validate_key(text: &str) -> Result<&str, KeyError> {
    let key = text.trim_end_matches(['\r', '\n']);
    let sendable = key.bytes().all(|byte| byte.is_ascii_graphic());
    if sendable && (1..=512).contains(&key.len()) { Ok(key) } else { Err(KeyError::NoKey) }
}

fn hash(key: &str) -> KeyHash {
    KeyHash::new(sha256(key.as_bytes()))
}

/// Returns a name as a TOML key, quoted if necessary.
fn quote_name(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(bare) { name.into() } else { format!("{name:?}") }
}

/// The prefix of every key.
const KEY_PREFIX: &str = "tlk_";
/// Maximum bytes of standard input: slightly more than the longest key.
const MAX_INPUT_BYTES: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_the_same() {
        let keys = [random_key().unwrap(), random_key().unwrap()];
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|key| key.len() == 47 && key.starts_with(KEY_PREFIX)), "{keys:?}");
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
