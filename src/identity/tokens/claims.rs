//! Checks of a token's claims against its issuer's configuration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::call::{TokenFault, find_claim};
use crate::config::IssuerConfig;
use crate::identity::resource::ProtectedResource;

use super::jwt::ParsedToken;

/// Accepted claims of a token.
pub(super) struct CheckedClaims {
    pub(super) subject: String,
    pub(super) audiences: Vec<String>,
    /// The end of the token's validity, as time since 1970.
    pub(super) ends: Duration,
}

/// Checks the claims that do not depend on the resource.
///
/// # Errors
/// [`TokenFault`].
pub(super) fn check(
    config: &IssuerConfig,
    token: &ParsedToken<'_>,
    now: Duration,
) -> Result<CheckedClaims, TokenFault> {
    let claims = &token.claims;
    let expires = time_claim(claims, "exp").ok_or(TokenFault::NoExpiry)?;
    let ends = expires.saturating_add(config.clock_skew);
    if ends <= now {
        return Err(TokenFault::Expired);
    }
    let begins = match claims.get("nbf") {
        Some(_) => time_claim(claims, "nbf").ok_or(TokenFault::NotYetValid)?,
        None => Duration::ZERO,
    };
    if begins > now.saturating_add(config.clock_skew) {
        return Err(TokenFault::NotYetValid);
    }
    // RFC 7800: the token is bound to a key, which a bearer does not prove.
    if claims.contains_key("cnf") {
        return Err(TokenFault::Bound);
    }
    // RFC 8417, 4.6: a security event, such as a logout token, is not an access token.
    if claims.contains_key("events") {
        return Err(TokenFault::Kind);
    }
    // Keycloak states the kind of an otherwise equal token here.
    if token.text_claim("typ").is_some_and(|kind| OTHER_KINDS.contains(&kind)) {
        return Err(TokenFault::Kind);
    }
    let subject = subject(claims, &config.principal_claim).ok_or(TokenFault::Subject)?;
    Ok(CheckedClaims { subject, audiences: words(claims.get("aud"), Separator::None), ends })
}

/// Checks that a token with these audiences is meant for a resource.
///
/// # Errors
/// [`TokenFault::Audience`] and [`TokenFault::Profile`].
pub(super) fn check_audience(
    config: &IssuerConfig,
    audiences: &[String],
    resource: &ProtectedResource,
) -> Result<(), TokenFault> {
    let is_meant = match &config.audience[..] {
        [] => audiences.iter().any(|said| resource.is_named(said)),
        accepted => audiences.iter().any(|said| accepted.contains(said)),
    };
    if !is_meant {
        return Err(TokenFault::Audience);
    }
    let allowed = config.allows_profile(&resource.profile);
    if allowed { Ok(()) } else { Err(TokenFault::Profile) }
}

/// Returns the groups in a token.
pub(super) fn groups(config: &IssuerConfig, claims: &Map<String, Value>) -> BTreeSet<Arc<str>> {
    let claim = config.groups_claim.as_deref().and_then(|path| find_claim(claims, path));
    words(claim, Separator::Space).into_iter().map(Arc::from).collect()
}

/// Returns the scopes in a token, by the names of its issuer.
pub(super) fn scopes(config: &IssuerConfig, claims: &Map<String, Value>) -> Vec<String> {
    let claims = config.scope_claims.iter().filter_map(|path| find_claim(claims, path));
    claims.flat_map(|claim| words(Some(claim), Separator::Space)).collect()
}

/// Separator of the words in one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    None,
    Space,
}

/// Returns the texts of a claim that is a list, or one text.
fn words(claim: Option<&Value>, separator: Separator) -> Vec<String> {
    match claim {
        Some(Value::String(text)) if separator == Separator::Space => {
            text.split_ascii_whitespace().take(MAX_CLAIM_WORDS).map(str::to_owned).collect()
        }
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => {
            let texts = items.iter().filter_map(Value::as_str);
            texts.take(MAX_CLAIM_WORDS).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// Parses a time in seconds since 1970, possibly with a fraction (RFC 7519, 2, "NumericDate").
fn time_claim(claims: &Map<String, Value>, name: &str) -> Option<Duration> {
    let value = claims.get(name)?;
    match value.as_u64() {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => Duration::try_from_secs_f64(value.as_f64()?).ok(),
    }
}

/// Returns the name of the principal. It is visible in logs, so it must not have control
/// characters.
fn subject(claims: &Map<String, Value>, claim: &str) -> Option<String> {
    let subject = find_claim(claims, claim)?.as_str()?;
    let usable = (1..=MAX_SUBJECT).contains(&subject.len());
    (usable && !subject.chars().any(char::is_control)).then(|| subject.to_owned())
}

/// Values of the claim `typ` of tokens that are not access tokens.
const OTHER_KINDS: [&str; 4] = ["ID", "Refresh", "Offline", "Logout"];
/// Limit of the bytes of a principal's name (OpenID Connect Core, 2: 255 for `sub`).
const MAX_SUBJECT: usize = 255;
/// Limit of the scopes, groups or audiences of a token.
const MAX_CLAIM_WORDS: usize = 512;
