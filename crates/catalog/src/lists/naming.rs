//! Public names, made from a server and a native name.
//!
//! Users configure these names and agents remember them, so the results must never change; golden
//! values in the tests enforce that.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use trunkline_config::{GatewayConfig, NameCase, NameFormat, NamingChoice};
use trunkline_core::crypto::sha256;
use trunkline_protocol::call::{PublicName, ServerName};

/// The longest public name, in characters: the strictest model providers allow
/// no more.
pub const MAX_PUBLIC_NAME: usize = 64;

/// The scheme of public names: `naming`, `name_format`, `name_case` and `reserved_names` of the
/// configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Naming {
    scheme: NamingChoice,
    format: NameFormat,
    case: NameCase,
    reserved: HashSet<PublicName>,
}

impl Naming {
    /// The scheme of this configuration.
    pub fn new(settings: &GatewayConfig) -> Self {
        Self {
            scheme: settings.naming,
            format: settings.name_format.clone(),
            case: settings.name_case,
            reserved: settings.reserved_names.iter().cloned().collect(),
        }
    }

    /// The text that all public names of a server begin with, if there is one.
    pub fn prefix_of(&self, server: &ServerName) -> Option<String> {
        let prefixed = self.scheme == NamingChoice::Prefix && self.format.ends_with_tool();
        prefixed.then(|| self.format.render(&self.in_case(server.as_str()), ""))
    }

    /// Returns true if tools of two servers can have the same name with a prefix, so that each can
    /// change the other's name.
    pub fn is_ambiguous(&self, one: &ServerName, other: &ServerName) -> bool {
        const PROBE_TOOL: &str = "\0";
        let [one, other] = [one, other]
            .map(|server| self.format.render(&self.in_case(server.as_str()), PROBE_TOOL));
        let ends =
            |name: &'_ str| name.split_once(PROBE_TOOL).map(|(a, b)| (a.to_owned(), b.to_owned()));
        let (Some((start, end)), Some((other_start, other_end))) = (ends(&one), ends(&other))
        else {
            return false;
        };
        (start.starts_with(&other_start) || other_start.starts_with(&start))
            && (end.ends_with(&other_end) || other_end.ends_with(&end))
    }

    /// The first form of a name to try.
    pub(crate) fn first_form(&self) -> NameForm {
        match self.scheme {
            NamingChoice::Prefix => NameForm::Prefixed,
            NamingChoice::Conflict | NamingChoice::First => NameForm::Plain,
            NamingChoice::None => NameForm::Native,
        }
    }

    /// Returns true if the first of several elements with one name keeps it.
    pub(crate) fn is_first_come(&self) -> bool {
        self.scheme == NamingChoice::First
    }

    /// Returns true if the clients have a tool of their own with this name.
    pub(crate) fn is_reserved(&self, name: &str) -> bool {
        self.reserved.contains(name)
    }

    /// Every name besides the native one that a naming scheme makes of an element: in the
    /// configured format and case and in the default ones, in all forms, and in full where a public
    /// name is cut or changed.
    pub(crate) fn possible_names(&self, server: &ServerName, native: &str) -> Vec<String> {
        let mut names = Vec::new();
        for naming in [self, &*DEFAULT_NAMING] {
            let tool = naming.in_case(native);
            names.push(naming.format.render(&naming.in_case(server.as_str()), &tool));
            names.push(tool.into_owned());
            let forms = [NameForm::Plain, NameForm::Prefixed, NameForm::Hashed];
            names.extend(forms.map(|form| naming.public_name(form, server, native)));
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The public name of a server's element in this form.
    pub(crate) fn public_name(&self, form: NameForm, server: &ServerName, native: &str) -> String {
        if form == NameForm::Native {
            return native.to_owned();
        }
        let tool = self.in_case(native);
        let text = match form {
            NameForm::Plain => tool.to_string(),
            _ => self.format.render(&self.in_case(server.as_str()), &tool),
        };
        let usable = form != NameForm::Hashed && !tool.is_empty() && is_safe_name(&text);
        if usable { text } else { hashed_name(&text, server, native) }
    }

    fn in_case<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.case {
            NameCase::Keep => Cow::Borrowed(text),
            NameCase::Snake => Cow::Owned(snake_case(text)),
        }
    }
}

/// The forms of a name, shortest first. A duplicate name takes the next form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameForm {
    /// The native name.
    Native,
    /// The native name with unsafe characters replaced.
    Plain,
    /// Server and native name in the configured format, with unsafe characters
    /// replaced.
    Prefixed,
    /// Like `Prefixed`, always with a hash at the end.
    Hashed,
}

impl NameForm {
    /// The next form to try, if there is one.
    pub(crate) fn next(self) -> Option<Self> {
        match self {
            Self::Plain => Some(Self::Prefixed),
            Self::Prefixed => Some(Self::Hashed),
            Self::Native | Self::Hashed => None,
        }
    }
}

/// Returns true if the text is a valid public name.
fn is_safe_name(text: &str) -> bool {
    (1..=MAX_PUBLIC_NAME).contains(&text.len()) && text.chars().all(is_safe_char)
}

/// The words of a text in lower case, separated by single underscores: `getATIS`
/// and `get-atis` are `get_atis`. Words are made of ASCII letters and digits; a
/// capital after a small letter or before one begins a word.
fn snake_case(text: &str) -> String {
    let mut snake = String::with_capacity(text.len() + 4);
    let mut before = '_';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let begins_word = c.is_ascii_uppercase()
            && (before.is_ascii_lowercase()
                || before.is_ascii_digit()
                || before.is_ascii_uppercase()
                    && chars.peek().is_some_and(char::is_ascii_lowercase));
        if !snake.is_empty() && !snake.ends_with('_') && (begins_word || !c.is_ascii_alphanumeric())
        {
            snake.push('_');
        }
        if c.is_ascii_alphanumeric() {
            snake.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    if snake.ends_with('_') {
        snake.pop();
    }
    snake
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

/// The default scheme.
static DEFAULT_NAMING: LazyLock<Naming> = LazyLock::new(|| Naming {
    scheme: NamingChoice::Prefix,
    format: NameFormat::default(),
    case: NameCase::Keep,
    reserved: HashSet::new(),
});

/// Characters of a hash in a name: 40 bits.
const HASH_CHARS: usize = 8;
