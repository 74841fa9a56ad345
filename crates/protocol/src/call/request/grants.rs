//! Grants of a principal besides its name: groups, scopes and the claims of its token.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::successors;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use trunkline_core::text::clip;

/// Facts from the credential of a principal, and the additions of `[clients.NAME]`.
///
/// Rules of `policy` read them. They are sent to a server only if so configured.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The groups that the principal belongs to.
    pub groups: BTreeSet<Arc<str>>,
    /// The scopes of the credential.
    pub scopes: BTreeSet<Arc<str>>,
    /// The claims of a verified token; empty for any other credential.
    pub claims: Map<String, Value>,
    /// The verified token itself, if it is exchanged at a server's authorization server; otherwise
    /// `None`.
    pub token: Option<CallerToken>,
}

/// The text of a verified token of a user. It prints as `***`.
#[derive(Clone)]
pub struct CallerToken {
    text: SecretString,
    digest: [u8; 32],
}

impl CallerToken {
    /// Creates a token with its SHA-256.
    #[inline]
    pub fn new(text: String, digest: [u8; 32]) -> Self {
        Self { text: text.into(), digest }
    }

    /// Returns the token itself: for the authorization server that exchanges it, never for a log.
    #[inline]
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }

    /// Returns its SHA-256.
    #[inline]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl PartialEq for CallerToken {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for CallerToken {}

impl fmt::Debug for CallerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Grants {
    /// Returns the actors for the principal (RFC 8693, 4.1): the current one first, then its
    /// predecessors, each from the `act` claim of its successor. Those beyond [`MAX_ACTORS`] are
    /// left out.
    pub fn actors(&self) -> impl Iterator<Item = &str> {
        let acts = successors(self.claims.get("act"), |act| act.get("act"));
        acts.take_while(|act| act.is_object()).take(MAX_ACTORS).map(|act| {
            let name = ["sub", "client_id"].iter().find_map(|name| act.get(*name)?.as_str());
            clip(name.unwrap_or(UNNAMED_ACTOR), MAX_ACTOR)
        })
    }
}

/// Finds a claim by its name, or otherwise by a dotted path of names: names of claims may contain
/// dots.
pub fn find_claim<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(claim) = claims.get(path) {
        return Some(claim);
    }
    let (first, rest) = path.split_once('.')?;
    rest.split('.').try_fold(claims.get(first)?, |claim, name| claim.get(name))
}

/// Limit of the actors of a principal.
const MAX_ACTORS: usize = 8;
/// Limit of the bytes of an actor's name: the same as of a principal.
const MAX_ACTOR: usize = 255;
/// The name of an actor without one in the token.
const UNNAMED_ACTOR: &str = "unknown";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn actors(act: Value) -> Vec<String> {
        let claims = Map::from_iter([("act".to_owned(), act)]);
        Grants { claims, ..Grants::default() }.actors().map(str::to_owned).collect()
    }

    #[test]
    fn actors_are_read_from_the_current_one_to_the_first() {
        let chain =
            json!({ "sub": "agent", "act": { "client_id": "desk", "act": { "iss": "x" } } });
        assert_eq!(actors(chain), ["agent", "desk", "unknown"]);
        for none in [json!("agent"), json!(null), json!([{ "sub": "agent" }])] {
            assert!(actors(none.clone()).is_empty(), "{none}");
        }
        assert_eq!(actors(json!({ "sub": 7, "act": "agent" })), ["unknown"]);
        assert!(Grants::default().actors().next().is_none());
    }

    #[test]
    fn the_chain_and_its_names_are_bounded() {
        let chain = (0..20).rev().fold(Value::Null, |before, number| {
            json!({ "sub": format!("{number}{}", "x".repeat(300)), "act": before })
        });
        let named = actors(chain);
        assert_eq!(named.len(), MAX_ACTORS);
        assert!(named.iter().all(|name| name.len() == MAX_ACTOR));
        assert!(named[0].starts_with("0x") && named[7].starts_with("7x"), "{named:?}");
    }
}
