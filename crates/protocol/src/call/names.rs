//! Server, public, native and profile names, each with its own type, so that the compiler
//! distinguishes them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Faults of a server name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerNameError {
    /// The name is the empty string.
    #[error("a server name must not be empty")]
    Empty,
    /// The name has more than [`ServerName::MAX_LEN`] bytes.
    #[error("a server name has at most {max} characters, this one has {len}", max = ServerName::MAX_LEN)]
    TooLong {
        /// The number of bytes.
        len: usize,
    },
    /// A character outside `[a-zA-Z0-9_-]`.
    #[error("a server name is made of a-z, A-Z, 0-9, `-` and `_`, not {found:?}")]
    Character {
        /// The first character that is not allowed.
        found: char,
    },
    /// Two underscores in a row: in a public name they separate server and
    /// tool.
    #[error("a server name must not contain `__`, which separates server and tool")]
    Separator,
}

/// The name of a server: the `NAME` of `[servers.NAME]`.
///
/// Shape: 1 to 32 characters of `[a-zA-Z0-9_-]`, without `__`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ServerName(Arc<str>);

impl ServerName {
    /// The maximum length of a name, in bytes: leaves space for a tool name
    /// within 64.
    pub const MAX_LEN: usize = 32;

    /// Validates a name.
    ///
    /// # Errors
    /// [`ServerNameError`] with the rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, ServerNameError> {
        if text.is_empty() {
            return Err(ServerNameError::Empty);
        }
        if let Some(found) =
            text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
        {
            return Err(ServerNameError::Character { found });
        }
        if text.len() > Self::MAX_LEN {
            return Err(ServerNameError::TooLong { len: text.len() });
        }
        if text.contains("__") {
            return Err(ServerNameError::Separator);
        }
        Ok(Self(text.into()))
    }

    /// Returns the name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text as it is.
            #[inline]
            pub fn new(text: &str) -> Self {
                Self(text.into())
            }

            /// Returns the name as text.
            #[inline]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}

/// The text is not a valid profile name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a profile's name is 1 to 64 characters of a-z, A-Z, 0-9, `-` and `_`")]
pub struct ProfileNameError;

/// The name of a profile: the `NAME` of `[profiles.NAME]`.
///
/// Shape: 1 to 64 characters of `[a-zA-Z0-9_-]`, so that it can be a path
/// segment without escaping.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ProfileName(Arc<str>);

impl ProfileName {
    /// The name of the default profile, which `/mcp` serves.
    pub const DEFAULT: &str = "default";

    /// Validates a name.
    ///
    /// # Errors
    /// [`ProfileNameError`].
    pub fn new(text: &str) -> Result<Self, ProfileNameError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let valid = (1..=64).contains(&text.len()) && text.chars().all(plain);
        if valid { Ok(Self(text.into())) } else { Err(ProfileNameError) }
    }

    /// Returns the name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ProfileName {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

text_name! {
    /// The name that clients see and call: unique in the catalog.
    PublicName
}
text_name! {
    /// A server's own name for its tool, sent to that server and no other.
    NativeName
}

macro_rules! name_traits {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl Borrow<str> for $name {
            #[inline]
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl AsRef<str> for $name {
            #[inline]
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    )*};
}

name_traits!(ServerName, ProfileName, PublicName, NativeName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_is_short_plain_and_free_of_the_separator() {
        assert!(ServerName::new("git-hub_2").is_ok());
        for (text, error) in [
            ("", ServerNameError::Empty),
            ("a b", ServerNameError::Character { found: ' ' }),
            ("a__b", ServerNameError::Separator),
            (&"x".repeat(33), ServerNameError::TooLong { len: 33 }),
        ] {
            assert_eq!(ServerName::new(text), Err(error), "{text:?}");
        }
    }
}
