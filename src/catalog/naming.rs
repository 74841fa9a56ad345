//! Public names: how they are made from a server and a native name.
//!
//! Users configure these names and agents remember them, so the results must
//! never change; golden values in the tests enforce that.

use crate::call::ServerName;
use crate::crypto::sha256;

/// The longest public name, in characters: the strictest model providers allow
/// no more.
pub const MAX_PUBLIC_NAME: usize = 64;

/// How public names are made (`naming` in the configuration).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamingScheme {
    /// Always `SERVER__TOOL`. A name depends only on its own server and tool,
    /// except for duplicates.
    Prefix,
    /// `TOOL`, and `SERVER__TOOL` for duplicates. A server that lists a new tool
    /// can thereby rename another server's tool: the price of short names.
    Conflict,
    /// Native names, byte for byte. Of duplicates, the first server in the file
    /// keeps its tool.
    None,
}

/// The forms of a name, shortest first. A duplicate name takes the next form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameForm {
    /// The native name as it is.
    Native,
    /// The native name with unsafe characters replaced.
    Plain,
    /// Server and native name, with unsafe characters replaced.
    Prefixed,
    /// Like `Prefixed`, always with a hash at the end.
    Hashed,
}

impl NameForm {
    /// The first form to try.
    pub(super) fn first_for(naming: NamingScheme) -> Self {
        match naming {
            NamingScheme::Prefix => Self::Prefixed,
            NamingScheme::Conflict => Self::Plain,
            NamingScheme::None => Self::Native,
        }
    }

    /// The next form to try, if there is one.
    pub(super) fn next(self) -> Option<Self> {
        match self {
            Self::Plain => Some(Self::Prefixed),
            Self::Prefixed => Some(Self::Hashed),
            Self::Native | Self::Hashed => None,
        }
    }

    /// The public name of a server's tool in this form.
    pub(super) fn public_name(self, server: &ServerName, native: &str) -> String {
        let whole = || format!("{server}__{native}");
        match self {
            Self::Native => native.to_owned(),
            Self::Plain => {
                as_safe_name(native).unwrap_or_else(|| hashed_name(native, server, native))
            }
            Self::Prefixed => {
                let whole = whole();
                as_safe_name(&whole).unwrap_or_else(|| hashed_name(&whole, server, native))
            }
            Self::Hashed => hashed_name(&whole(), server, native),
        }
    }
}

/// The text itself, if it is a valid public name.
fn as_safe_name(text: &str) -> Option<String> {
    let fits = (1..=MAX_PUBLIC_NAME).contains(&text.len());
    (fits && text.chars().all(is_safe_char)).then(|| text.to_owned())
}

/// The text made safe and truncated, then `_` and a hash of the whole original:
/// names that differ only in the replaced or truncated part stay distinct.
fn hashed_name(text: &str, server: &ServerName, native: &str) -> String {
    let replaced = text.chars().map(|c| if is_safe_char(c) { c } else { '_' });
    let mut name: String = replaced.take(MAX_PUBLIC_NAME - HASH_CHARS - 1).collect();
    name.push('_');
    name.extend(short_hash(server, native));
    name
}

fn is_safe_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// The first 40 bits of SHA-256 over `server NUL native`, in lower-case base32
/// (RFC 4648). The NUL keeps the pair unambiguous: no server name has one.
fn short_hash(server: &ServerName, native: &str) -> impl Iterator<Item = char> {
    let whole = format!("{server}\0{native}");
    let hash = sha256(whole.as_bytes());
    let bits = hash.iter().take(5).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    (0..HASH_CHARS).rev().map(move |place| {
        let five = u8::try_from(bits >> (5 * place) & 31).unwrap_or_default();
        char::from(if five < 26 { b'a' + five } else { b'2' + (five - 26) })
    })
}

/// Characters of a hash in a name: 40 bits.
const HASH_CHARS: usize = 8;
