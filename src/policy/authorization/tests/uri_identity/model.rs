//! Models of servers: the elements that they serve for a URI.
//!
//! They follow the code of the official SDKs (TypeScript 1.32 and 2.4, Python 1.30 and 2.3) and use
//! nothing of the gateway's own normal form.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::LazyLock;

use percent_encoding::percent_decode_str;
use regex::Regex;
use url::Url;

/// A server, by the way in which it finds the element for a URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ServerModel {
    /// `new URL(uri).toString()`, then the text of resources, then templates as regular expressions.
    TypeScript,
    /// Parses both sides with pydantic, then templates as regular expressions, including their
    /// literal text.
    PythonOne,
    /// Text; values of templates may be empty, and a query's variables are optional.
    PythonTwo,
    /// A custom server, by RFC 3986 and RFC 8089: `file:` URIs are paths, percent-encoding is
    /// decoded, and neither the case of the authority nor a fragment matters.
    Rfc,
}

impl ServerModel {
    pub(super) const ALL: [Self; 4] =
        [Self::TypeScript, Self::PythonOne, Self::PythonTwo, Self::Rfc];

    /// Returns the URI as the server compares it; `None` if the server refuses it.
    pub(super) fn read(self, uri: &str) -> Option<Rc<str>> {
        UriReadings::of(uri).by_model[self as usize].clone()
    }

    fn parse(self, uri: &str) -> Option<String> {
        match self {
            Self::PythonTwo => Some(uri.to_owned()),
            Self::TypeScript | Self::PythonOne => Some(Url::parse(uri).ok()?.to_string()),
            Self::Rfc => {
                let mut url = Url::parse(uri).ok()?;
                url.set_fragment(None);
                let is_file = url.scheme() == "file";
                if is_file || url.query() == Some("") {
                    url.set_query(None);
                }
                let mut read = decode(url.as_str());
                while is_file && read["file://".len()..].contains("//") {
                    read = format!("file://{}", read["file://".len()..].replace("//", "/"));
                }
                Some(fold_authority(&read))
            }
        }
    }

    /// Returns true if a resource with this text matches a URI.
    pub(super) fn is_resource(self, text: &str, uri: &str) -> bool {
        let Some(read) = self.read(uri) else { return false };
        match self {
            Self::TypeScript | Self::PythonTwo => text == &*read,
            Self::PythonOne | Self::Rfc => self.read(text) == Some(read),
        }
    }

    /// Returns true if a template can be expanded to a URI.
    pub(super) fn is_expansion(self, template: &str, uri: &str) -> bool {
        let Some(read) = self.read(uri) else { return false };
        let compiled = CompiledTemplate::of(template);
        compiled.by_model[self as usize].as_ref().is_some_and(|one| one.is_match(&read))
    }

    fn compile(self, template: &str) -> Option<Regex> {
        let folded = fold_authority(&decode(template));
        let text = if self == Self::Rfc { &folded } else { template };
        let literal = |text: &str| match self {
            Self::PythonOne => text.to_owned(),
            _ => regex::escape(text),
        };
        let value = |inside: &str| {
            let (operator, name) = split_operator(inside);
            Some(match (self, operator) {
                (Self::TypeScript, None) => "[^/,]+".to_owned(),
                (Self::TypeScript | Self::Rfc, Some('+')) => ".+".to_owned(),
                (Self::TypeScript, _) => format!(r"\?{name}=[^&]+"),
                (Self::PythonOne, None) => "[^/]+".to_owned(),
                // Not a regular expression.
                (Self::PythonOne, _) => return None,
                (Self::PythonTwo, None) => "[^/?#&,]*".to_owned(),
                (Self::PythonTwo, Some('+')) => "[^?#]*".to_owned(),
                (Self::PythonTwo, _) => r"(\?[^#]*)?(#.*)?".to_owned(),
                (Self::Rfc, None) => "[^/?]+".to_owned(),
                (Self::Rfc, _) => r"(\?.*)?".to_owned(),
            })
        };
        expression(text, literal, value)
    }
}

/// The readings of one URI at all servers, cached because worlds repeat them often.
#[derive(Debug)]
struct UriReadings {
    by_model: [Option<Rc<str>>; 4],
    /// The URI, decoded, and each without fragment and empty query, as each model reads it.
    alike: Vec<(ServerModel, Rc<str>)>,
    /// Decoded twice, without fragment and empty query.
    decoded: String,
    /// The forms that templates of unknown servers are compared with.
    wide: Vec<String>,
}

impl UriReadings {
    fn of(uri: &str) -> Rc<Self> {
        thread_local! {
            static KNOWN: RefCell<HashMap<String, Rc<UriReadings>>> = RefCell::default();
        }
        KNOWN.with_borrow_mut(|known| {
            if let Some(found) = known.get(uri) {
                return found.clone();
            }
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.entry(uri.to_owned()).or_insert(Rc::new(Self::read(uri))).clone()
        })
    }

    fn read(uri: &str) -> Self {
        let parse = |model: ServerModel, text: &str| model.parse(text).map(Rc::<str>::from);
        let by_model = ServerModel::ALL.map(|model| parse(model, uri));
        let decoded = decode(uri);
        let mut texts = vec![uri, &decoded, without_end(uri), without_end(&decoded)];
        texts.sort_unstable();
        texts.dedup();
        let read = |text: &str| ServerModel::ALL.map(|model| Some((model, parse(model, text)?)));
        let alike = texts.iter().flat_map(|text| read(text)).flatten().collect();
        let mut wide: Vec<_> = [uri, &decoded].into_iter().flat_map(read_widely).collect();
        wide.sort_unstable();
        wide.dedup();
        let decoded = fold_authority(without_end(&decode(&decoded)));
        Self { by_model, alike, decoded, wide }
    }
}

/// Returns the forms of a URI at an unknown server, each with and without query and fragment.
fn read_widely(uri: &str) -> Vec<String> {
    let parsed = [ServerModel::Rfc, ServerModel::TypeScript].map(|model| model.parse(uri));
    let forms = parsed.into_iter().flatten().chain([uri.to_owned()]);
    let forms = forms.map(|form| fold_authority(&form)).flat_map(|form| {
        let cut = form.find(['?', '#']).map(|end| form[..end].to_owned());
        cut.into_iter().chain([form])
    });
    forms.collect()
}

/// The expressions of one template.
struct CompiledTemplate {
    by_model: [Option<Regex>; 4],
    strict: Option<Regex>,
    /// At an unknown server: the text that matches begin with, and the rest as text and as an expression.
    wide: (String, [Option<Regex>; 2]),
}

impl CompiledTemplate {
    fn of(template: &str) -> Rc<Self> {
        thread_local! {
            static KNOWN: RefCell<HashMap<String, Rc<CompiledTemplate>>> = RefCell::default();
        }
        KNOWN.with_borrow_mut(|known| {
            if let Some(found) = known.get(template) {
                return found.clone();
            }
            known.entry(template.to_owned()).or_insert(Rc::new(Self::compile(template))).clone()
        })
    }

    fn compile(template: &str) -> Self {
        let strict = |inside: &str| {
            let pattern = match split_operator(inside).0 {
                None => "[^/?#]+",
                Some('+') => ".+",
                Some(_) => r"(\?[^#]*)?",
            };
            Some(pattern.to_owned())
        };
        let wide = |inside: &str| match split_operator(inside).0 {
            None => Some("[^/]*".to_owned()),
            Some(_) => Some(".*".to_owned()),
        };
        let folded = fold_authority(&decode(template));
        let literals: [fn(&str) -> String; 2] = [regex::escape, str::to_owned];
        let wide = literals.map(|literal| expression(&folded, literal, wide));
        let prefix = folded.split('{').next().unwrap_or_default().to_owned();
        Self {
            by_model: ServerModel::ALL.map(|model| model.compile(template)),
            strict: expression(template, regex::escape, strict),
            wide: (prefix, wide),
        }
    }
}

/// Returns true if RFC 6570 expands a template to a URI, with values that no server reads as an absolute
/// path.
pub(super) fn is_strict_expansion(template: &str, uri: &str) -> bool {
    let prefix = template.split('{').next().unwrap_or_default();
    let is_folder = prefix.ends_with('/') && !prefix.ends_with("://");
    let value = uri.get(prefix.len()..).unwrap_or_default().to_ascii_lowercase();
    let is_absolute = is_folder && (value.starts_with('/') || value.starts_with("%2f"));
    let compiled = CompiledTemplate::of(template);
    !is_absolute && compiled.strict.as_ref().is_some_and(|one| one.is_match(uri))
}

/// Returns true if any server might serve a URI by a template, even an unknown one.
pub(super) fn is_wide_expansion(template: &str, uri: &str) -> bool {
    let compiled = CompiledTemplate::of(template);
    let (prefix, [escaped, raw]) = &compiled.wide;
    let is_match =
        |one: &Option<Regex>, form: &str| one.as_ref().is_some_and(|it| it.is_match(form));
    UriReadings::of(uri)
        .wide
        .iter()
        .any(|form| form.starts_with(prefix) && is_match(escaped, form) || is_match(raw, form))
}

/// Returns true if two URIs can be the same resource at some server, even at one that decodes twice
/// or ignores the end of any text.
pub(super) fn is_like(one: &str, other: &str) -> bool {
    let (one, other) = (UriReadings::of(one), UriReadings::of(other));
    one.decoded == other.decoded || one.alike.iter().any(|read| other.alike.contains(read))
}

/// Returns true if a URI is written in the one form that documents and official servers agree on: as the
/// WHATWG URL standard writes it, with no needless percent-encoding and no empty segments of a path.
pub(super) fn is_canonical(uri: &str) -> bool {
    static NEEDLESS: LazyLock<Regex> = LazyLock::new(|| {
        let unreserved = "2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE]";
        let not_capital = "[a-f].|.[a-f]";
        let no_code = "([^0-9a-fA-F]|.[^0-9a-fA-F]|.?$)";
        Regex::new(&format!("%({unreserved}|{not_capital}|{no_code})")).unwrap()
    });
    let is_parsed = Url::parse(uri).is_ok_and(|url| url.as_str() == uri);
    let has_empty = uri.strip_prefix("file://").is_some_and(|path| path.contains("//"));
    is_parsed && !has_empty && !NEEDLESS.is_match(uri)
}

/// Returns true if a URI has dot segments, encoded or not.
pub(super) fn may_lead_out(uri: &str) -> bool {
    let decoded = decode(uri);
    let mut segments = decoded.split(['/', '?', '#', '&', '=', ',', ':', ';']);
    segments.any(|segment| matches!(segment.trim_matches(' '), "." | ".."))
}

pub(super) fn decode(uri: &str) -> String {
    percent_decode_str(uri).decode_utf8_lossy().into_owned()
}

/// Returns a URI with its scheme and authority in lower case.
pub(super) fn fold_authority(uri: &str) -> String {
    let start = uri.find("://").map_or_else(|| uri.find(':').unwrap_or(0), |at| at + 3);
    let length =
        if uri[..start].ends_with('/') { uri[start..].find(['/', '?', '#']) } else { Some(0) };
    let end = start + length.unwrap_or(uri.len() - start);
    uri[..end].to_ascii_lowercase() + &uri[end..]
}

fn split_operator(inside: &str) -> (Option<char>, &str) {
    let name = inside.trim_start_matches(['+', '?']);
    (inside.chars().next().filter(|_| name.len() < inside.len()), name)
}

/// Returns the anchored expression of a template; `None` if it is not valid.
fn expression(
    text: &str,
    literal: impl Fn(&str) -> String,
    value: impl Fn(&str) -> Option<String>,
) -> Option<Regex> {
    let (mut out, mut rest) = (String::from("^"), text);
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, behind) = after.split_once('}')?;
        out += &literal(before);
        out += &value(inside)?;
        rest = behind;
    }
    Regex::new(&(out + &literal(rest) + "$")).ok()
}

/// Returns a URI without a fragment and an empty query.
fn without_end(uri: &str) -> &str {
    let whole = uri.split_once('#').map_or(uri, |(before, _)| before);
    whole.strip_suffix('?').unwrap_or(whole)
}

/// Limit of the URIs with cached readings.
const MAX_KNOWN: usize = 4096;
