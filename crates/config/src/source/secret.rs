//! Secret values.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

/// A value that prints as `***` everywhere and is wiped from memory when dropped. Only
/// [`Secret::expose`] returns it.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Wraps a value.
    pub fn new(value: String) -> Self {
        Self(value.into())
    }

    /// The value itself: for the wire or a child's environment, never for a log.
    #[inline]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Configured headers as they are sent, marked as sensitive. Invalid header values were rejected
/// with the configuration.
pub fn sensitive_headers(configured: &[(HeaderName, Secret)]) -> HeaderMap {
    let headers = configured.iter().filter_map(|(name, secret)| {
        let mut value = HeaderValue::from_str(secret.expose()).ok()?;
        value.set_sensitive(true);
        Some((name.clone(), value))
    });
    headers.collect()
}

impl PartialEq for Secret {
    // Compares both sides of a reload, both of which are the operator's: not constant in time.
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}
