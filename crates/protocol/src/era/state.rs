//! The sealed state of a call that waits for input: a client can return it, but
//! cannot read, forge or change it, nor use it for anything else.
//!
//! MCP 2026-07-28, Multi Round-Trip Requests, "Server Requirements": a state is
//! attacker-controlled input, and is bound to its principal, its expiry and its
//! request.

use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use trunkline_core::crypto::{NONCE_LEN, SealError, Sealer};
use trunkline_jsonrpc::{MAX_CLIENT_DEPTH, Members, parse_strict};

use crate::call::StateError;

/// The content of a state: how to continue the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestState {
    /// A parked call.
    Parked(ParkedCallId),
    /// A server that keeps no state of its own, and the state that it sent.
    Server {
        /// The server's name.
        server: String,
        /// The state that the server sent.
        state: String,
    },
    /// A call to make anew, once the user has opened the URLs that it named.
    Anew,
    /// A call to make anew, once the user has logged in to its server.
    Login {
        /// The server's name.
        server: String,
        /// True if the user agreed to the call before.
        confirmed: bool,
        /// The number of links that the call was answered with.
        #[serde(default)]
        links: u8,
    },
    /// A call that is made once the user has agreed to it.
    Confirm,
    /// A call to which the user has agreed, of a server that keeps no state and sent none.
    Confirmed,
}

/// Identifies a parked call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedCallId {
    /// The number of the call in its gateway.
    pub number: u64,
    /// The id of the gateway, if it is one of several replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<[u8; 8]>,
}

/// A state that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedState {
    /// Its content.
    pub state: RequestState,
    /// Distinguishes it from all other states.
    pub id: StateId,
}

/// Identifies one sealed state, even among those with the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateId {
    /// The expiry, in seconds since 1970.
    pub until: u64,
    /// The random number that it was sealed with.
    pub nonce: [u8; NONCE_LEN],
}

/// The principal and the request that a state is bound to.
#[derive(Debug, Clone, Copy)]
pub struct StateBinding<'a> {
    /// The principal, as a text that no other principal has.
    pub principal: &'a str,
    /// The request's digest.
    pub request: &'a Digest,
}

/// The digest of a request.
pub type Digest = [u8; 32];

/// Seals and opens states.
pub struct Seals {
    sealer: Sealer,
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    /// The expiry, in seconds since 1970.
    until: u64,
    request: String,
    state: RequestState,
}

impl Seals {
    /// Seals with the first secret, opens with any of them.
    ///
    /// # Errors
    /// If the cryptographic library rejects a key, which should not happen.
    pub fn new<'a>(
        secrets: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
    ) -> Result<Self, SealError> {
        let secrets = secrets.into_iter();
        let sealer = Sealer::new(KEY_PURPOSE, secrets.clone())?;
        Ok(Self { sealer: sealer.accepting_sha256(EARLIER_KEY_PURPOSE, secrets)? })
    }

    /// Seals a state that expires `lasting` after `now`, the time since 1970.
    ///
    /// # Errors
    /// If there is no key, or the cryptographic library has no random numbers.
    pub fn seal(
        &self,
        state: RequestState,
        bound: StateBinding<'_>,
        now: Duration,
        lasting: Duration,
    ) -> Result<String, SealError> {
        let request = URL_SAFE_NO_PAD.encode(bound.request);
        let until = now.saturating_add(lasting).as_secs();
        let state = Sealed { until, request, state };
        let state = serde_json::to_vec(&state).map_err(|_| SealError)?;
        let sealed = self.sealer.seal(&purpose(bound.principal), state)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a state that this principal returned with a request of this digest, which is computed
    /// only for states that this gateway has sealed.
    ///
    /// # Errors
    /// [`StateError`], with the reason to reject the state.
    pub fn open(
        &self,
        text: &str,
        principal: &str,
        request: impl FnOnce() -> Digest,
        now: Duration,
    ) -> Result<OpenedState, StateError> {
        let sealed = URL_SAFE_NO_PAD.decode(text).map_err(|_| StateError::Invalid)?;
        let nonce = *sealed.first_chunk::<NONCE_LEN>().ok_or(StateError::Invalid)?;
        let opened = self.sealer.open(&purpose(principal), &sealed).ok_or(StateError::Invalid)?;
        let sealed: Sealed = serde_json::from_slice(&opened).map_err(|_| StateError::Invalid)?;
        if now.as_secs() >= sealed.until {
            return Err(StateError::Expired);
        }
        if sealed.request != URL_SAFE_NO_PAD.encode(request()) {
            return Err(StateError::OtherRequest);
        }
        let id = StateId { until: sealed.until, nonce };
        Ok(OpenedState { state: sealed.state, id })
    }
}

impl Seals {
    /// Returns the content of a state of this principal, whatever its request and its age: enough to
    /// find the replica that will check them. `None` if it is no such state.
    pub fn read_content(&self, text: &str, principal: &str) -> Option<RequestState> {
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let opened = self.sealer.open(&purpose(principal), &sealed)?;
        let sealed: Sealed = serde_json::from_slice(&opened).ok()?;
        Some(sealed.state)
    }
}

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Seals").field(&self.sealer).finish()
    }
}

/// The associated data: separates states from anything else sealed with the
/// key, and from other principals' states.
fn purpose(principal: &str) -> Vec<u8> {
    [STATE_PURPOSE, principal.as_bytes()].concat()
}

/// The digest of a request, which is the same for its retries: it covers the
/// method and the params, except for members that a retry adds or may change.
/// The order of members does not matter, nor does the form of their values unless they are large.
pub fn digest(method: &str, params: &[u8]) -> Digest {
    let mut hash = Context::new(&SHA256);
    hash.update(method.as_bytes());
    hash.update(b"\n");
    let members = Members::parse_with_duplicates(params).map(|members| members.0);
    if members.is_err() {
        feed_raw(&mut hash, params);
    }
    let mut members: Vec<_> = members
        .unwrap_or_default()
        .into_iter()
        .filter(|(key, _)| !OF_THE_RETRY.contains(&&**key))
        .collect();
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    let is_small = members.iter().map(|(_, raw)| raw.get().len()).sum::<usize>() <= MAX_CANONICAL;
    for (key, raw) in members {
        feed(&mut hash, &Value::String(key.into_owned()));
        hash.update(b":");
        let raw = raw.get().as_bytes();
        match is_small.then(|| parse_strict(raw, MAX_CLIENT_DEPTH as usize)) {
            Some(Ok(value)) if has_exact_numbers(raw) => feed(&mut hash, &value),
            // Values that have no canonical form equal only themselves. No canonical form begins
            // with this letter.
            _ => feed_raw(&mut hash, raw),
        }
        hash.update(b",");
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(hash.finish().as_ref());
    digest
}

/// Returns true if all numbers of a JSON text are so short that different ones are different once
/// parsed: an `f64` keeps fifteen digits, and no exponent makes a short number large.
fn has_exact_numbers(json: &[u8]) -> bool {
    let (mut in_string, mut is_escaped, mut digits) = (false, false, 0);
    json.iter().all(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            // The `e` of `true` and `false` follows no digit.
            b'e' | b'E' if digits > 0 => return false,
            b'0'..=b'9' => digits += 1,
            b'.' => {}
            _ => digits = 0,
        }
        digits <= EXACT_DIGITS
    })
}

/// Feeds bytes as they are, so that they differ from all canonical JSON.
fn feed_raw(hash: &mut Context, raw: &[u8]) {
    hash.update(format!("raw {} ", raw.len()).as_bytes());
    hash.update(raw);
}

/// Feeds canonical JSON straight into the digest. The depth is bounded by the
/// envelope's.
fn feed(hash: &mut Context, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            hash.update(b"{");
            for (key, value) in members {
                feed(hash, &Value::String(key.clone()));
                hash.update(b":");
                feed(hash, value);
                hash.update(b",");
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            for item in items {
                feed(hash, item);
                hash.update(b",");
            }
            hash.update(b"]");
        }
        plain => hash.update(plain.to_string().as_bytes()),
    }
}

/// The most bytes of params that are brought into canonical form, which takes a hundred times as long
/// as hashing them.
const MAX_CANONICAL: usize = 64 * 1024;
/// Number of decimal digits that an `f64` always keeps.
const EXACT_DIGITS: usize = 15;
/// The members of params that a retry adds, or may change.
pub const OF_THE_RETRY: [&str; 3] = ["_meta", "inputResponses", "requestState"];
const KEY_PURPOSE: &[u8] = b"trunkline requestState sealing key\n";
/// Purpose of the keys of versions before the common sealer. Their states are opened until those
/// versions are no longer in use.
const EARLIER_KEY_PURPOSE: &[u8] = b"trunkline requestState key\n";
const STATE_PURPOSE: &[u8] = b"trunkline requestState\n";

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_hours(500_000);
    const LASTING: Duration = Duration::from_mins(10);
    const REQUEST: Digest = [1; 32];

    fn seals(secrets: &[&str]) -> Seals {
        Seals::new(secrets.iter().map(|secret| secret.as_bytes())).unwrap()
    }

    fn bound(principal: &str) -> StateBinding<'_> {
        StateBinding { principal, request: &REQUEST }
    }

    /// The content of a state.
    fn open(
        seals: &Seals,
        text: &str,
        principal: &str,
        request: impl FnOnce() -> Digest,
        now: Duration,
    ) -> Result<RequestState, StateError> {
        seals.open(text, principal, request, now).map(|opened| opened.state)
    }

    #[test]
    fn states_of_the_same_content_differ() {
        let seals = seals(&["one"]);
        let id = || {
            let text = seals.seal(RequestState::Confirm, bound("ann"), NOW, LASTING).unwrap();
            let of = || seals.open(&text, "ann", || REQUEST, NOW).unwrap().id;
            assert_eq!(of(), of());
            of()
        };
        let (one, other) = (id(), id());
        assert_ne!(one, other);
        assert_eq!(one.until, (NOW + LASTING).as_secs());
    }

    #[test]
    fn a_request_is_digested_only_for_a_state_that_was_sealed() {
        let digest = || -> Digest { panic!("digested") };
        let opened = open(&seals(&["one"]), "made up by the client", "ann", digest, NOW);
        assert_eq!(opened, Err(StateError::Invalid));
    }

    #[test]
    fn large_params_are_hashed_as_they_are() {
        let params = |spaces: &str, more: &str| {
            let numbers = format!("1,{spaces}").repeat(MAX_CANONICAL);
            digest("tools/call", format!("{{\"arguments\":[{numbers}2]{more}}}").as_bytes())
        };
        let first = params("", "");
        assert_eq!(params("", ",\"requestState\":\"x\""), first, "a retry is the same request");
        assert_ne!(params(" ", ""), first, "no value is parsed");
    }

    fn parked(number: u64, replica: Option<[u8; 8]>) -> RequestState {
        RequestState::Parked(ParkedCallId { number, replica })
    }

    #[test]
    fn a_replica_reads_the_content_of_its_principals_states() {
        let seals = seals(&["one"]);
        let state = parked(7, Some([1; 8]));
        let text = seals.seal(state.clone(), bound("ann"), NOW, LASTING).unwrap();
        assert_eq!(seals.read_content(&text, "ann"), Some(state));
        assert_eq!(seals.read_content(&text, "bob"), None);
        assert_eq!(seals.read_content(&text[1..], "ann"), None);
    }

    #[test]
    fn a_state_leads_back_for_whom_it_was_made() {
        let seals = seals(&["one"]);
        for state in [
            parked(u64::MAX, None),
            parked(1, Some([255; 8])),
            RequestState::Server { server: "s".into(), state: "é\"".into() },
            RequestState::Anew,
        ] {
            let text = seals.seal(state.clone(), bound("ann"), NOW, LASTING).unwrap();
            assert_eq!(open(&seals, &text, "ann", || REQUEST, NOW), Ok(state));
            assert_eq!(open(&seals, &text, "bob", || REQUEST, NOW), Err(StateError::Invalid));
            let late = NOW + LASTING;
            assert_eq!(open(&seals, &text, "ann", || REQUEST, late), Err(StateError::Expired));
            let opened = open(&seals, &text, "ann", || [2; 32], NOW);
            assert_eq!(opened, Err(StateError::OtherRequest));
        }
    }

    #[test]
    fn a_state_that_was_changed_or_made_elsewhere_is_refused() {
        let seals = seals(&["one"]);
        let text = seals.seal(parked(7, None), bound("ann"), NOW, LASTING).unwrap();
        for place in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open(&seals, &changed, "ann", || REQUEST, NOW), Err(StateError::Invalid));
        }
        for text in ["", "x", "!!", &text[..20], &format!("{text}-TAMPERED")] {
            assert_eq!(open(&seals, text, "ann", || REQUEST, NOW), Err(StateError::Invalid));
        }
    }

    /// The state is of a gateway of the version before the common sealer.
    #[test]
    fn a_state_that_was_sealed_by_an_earlier_version_is_opened() {
        let key = "a state key of at least thirty-two bytes";
        let request = URL_SAFE_NO_PAD.decode(EARLIER_REQUEST).unwrap().try_into().unwrap();
        let now = Duration::from_mins(29_929_850);
        let reads = |secrets: &[&str], principal: &str| {
            open(&seals(secrets), EARLIER_STATE, principal, || request, now)
        };
        let client = "anonymous at default?";
        assert_eq!(reads(&["a newer key", key], client), Ok(RequestState::Confirm));
        assert_eq!(reads(&[key], "anonymous at other?"), Err(StateError::Invalid));
        assert_eq!(reads(&["a newer key"], client), Err(StateError::Invalid));
    }

    const EARLIER_REQUEST: &str = "zZ7YodULJF2bVSbn1KbRNOZCk_DvBWGCNpqtKq-W7vM";
    const EARLIER_STATE: &str = "\
        pAP9DCpNUcYKhIP2hmtzEdqRyfq2bxXkVzzpKCcd88XZxOHAGYeFrh8uoS_lIAs-IQ_CDlNQ\
        dgeYMkWpu6AclSapXYNBBr3IDYyt4TwFM61RQx_wXd0Juoc6miCefj-znV57mYRNz9gd-3bL\
        bk0xaeOmc8sP4wdUmI0";

    #[test]
    fn keys_rotate() {
        let (old, both, new) = (seals(&["one"]), seals(&["two", "one"]), seals(&["two"]));
        let by_old = old.seal(RequestState::Anew, bound("ann"), NOW, LASTING).unwrap();
        let by_both = both.seal(RequestState::Anew, bound("ann"), NOW, LASTING).unwrap();
        assert_eq!(open(&both, &by_old, "ann", || REQUEST, NOW), Ok(RequestState::Anew));
        assert_eq!(open(&new, &by_both, "ann", || REQUEST, NOW), Ok(RequestState::Anew));
        assert_eq!(open(&new, &by_old, "ann", || REQUEST, NOW), Err(StateError::Invalid));
        assert_eq!(open(&old, &by_both, "ann", || REQUEST, NOW), Err(StateError::Invalid));
    }

    #[test]
    fn a_retry_has_the_digest_of_its_request() {
        let first = digest("tools/call", br#"{"name":"a","arguments":{"x":1,"y":[2]},"_meta":{}}"#);
        let retry =
            br#"{"requestState":"s","arguments":{ "y":[2],"x":1 },"inputResponses":{},"name":"a"}"#;
        assert_eq!(digest("tools/call", retry), first);
        for (method, params) in [
            ("prompts/get", r#"{"name":"a","arguments":{"x":1,"y":[2]}}"#),
            ("tools/call", r#"{"name":"b","arguments":{"x":1,"y":[2]}}"#),
            ("tools/call", r#"{"name":"a","arguments":{"x":1,"y":[2,2]}}"#),
            ("tools/call", r#"{"name":"a","arguments":{"x":"1","y":[2]}}"#),
            ("tools/call", r#"{"name":"a","arguments":{"x":1,"y":[2]},"z":1}"#),
            ("tools/call", r#"{"name":"a"}"#),
        ] {
            assert_ne!(digest(method, params.as_bytes()), first, "{method} {params}");
        }
    }

    #[test]
    fn numbers_that_parse_alike_and_differ_have_different_digests() {
        let numbers = [
            "9007199254740992",
            "9007199254740992.0",
            "9007199254740993",
            "9007199254740993.0",
            "0.1",
            "0.1000000000000000055511151231257827",
            "1e400",
            "1e401",
            "1e2",
            "100.0",
            "18446744073709551616",
            "18446744073709551617",
            "0",
            "0.0",
            "-0.0",
            "1e-400",
            "-1e-400",
            "0.0000000000000000000000000000001",
        ];
        let arguments = |number: &str| format!(r#"{{"arguments":{{"x":["\\\"1",{number}]}}}}"#);
        let of = |number: &&str| digest("tools/call", arguments(number).as_bytes());
        let all: std::collections::HashSet<_> = numbers.iter().map(of).collect();
        assert_eq!(all.len(), numbers.len());
    }

    #[test]
    fn params_that_cannot_be_parsed_equal_no_others() {
        let texts = [
            r#"{"arguments":{"x":1e999}}"#,
            r#"{"arguments":{"x":1e998}}"#,
            r#"{"arguments":{"x":1,"x":2}}"#,
            r#"{"arguments":{"x":2}}"#,
            r#"{"arguments":null}"#,
            "{}",
            "[1",
            "[2",
        ];
        let all: std::collections::HashSet<_> =
            texts.iter().map(|params| digest("tools/call", params.as_bytes())).collect();
        assert_eq!(all.len(), texts.len());
        assert_eq!(digest("x", texts[0].as_bytes()), digest("x", texts[0].as_bytes()));
    }
}
