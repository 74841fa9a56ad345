//! Generated spellings of URIs.

use std::fmt::Write as _;

use fastrand::Rng;

/// Returns one of the texts.
pub(super) fn pick<'t>(rng: &mut Rng, all: &[&'t str]) -> &'t str {
    all[rng.usize(..all.len())]
}

/// Returns a spelling of a URI that some server reads as the same resource.
pub(super) fn respell(rng: &mut Rng, uri: &str) -> String {
    let mut out = uri.to_owned();
    for _ in 0..rng.usize(..4) {
        out = respell_once(rng, &out);
    }
    out
}

/// Adds a fragment or a query, or changes the text: some server may still serve the same.
pub(super) fn extend(rng: &mut Rng, uri: &str) -> String {
    match rng.u8(..7) {
        0 => format!("{uri}#{}", pick(rng, &["", "part"])),
        1 => format!("{uri}?{}", pick(rng, &["", "q=1"])),
        // A full stop is any character in a regular expression, and the one before `?` is optional.
        2 => uri.replacen('.', "-", 1),
        3 => uri.replacen("f?", "", 1),
        // Part of a percent code.
        4 => uri.replacen('%', "%%", 1),
        5 => uri.rsplit_once('/').map_or_else(|| uri.to_owned(), |(path, _)| format!("{path}/")),
        _ => uri.replacen('%', "%25", 1),
    }
}

fn respell_once(rng: &mut Rng, uri: &str) -> String {
    let (scheme, rest) = uri.split_once(':').unwrap_or(("", uri));
    let slashes = rest.strip_prefix("//");
    let (host, path) = slashes.map_or(("", rest), |after| {
        after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len()))
    });
    match rng.u8(..14) {
        0 if !scheme.is_empty() => format!("{}:{rest}", scheme.to_ascii_uppercase()),
        1 if slashes.is_some() => format!("{scheme}://{}{path}", host.to_ascii_uppercase()),
        2 if slashes.is_some() => format!("{scheme}://{}{path}", encode(rng, host)),
        3 | 4 if slashes.is_some() => format!("{scheme}://{host}{}", encode(rng, path)),
        5 if scheme == "file" && host.is_empty() => format!("file://localhost{path}"),
        6 if scheme == "file" && host.is_empty() => format!("file:{path}"),
        7 if scheme == "file" && host.is_empty() => format!("file:///{path}"),
        8 if scheme == "https" && !host.contains([':', '@']) => format!("https://{host}:443{path}"),
        9 if scheme == "https" && !host.contains('@') => format!("{scheme}://@{host}{path}"),
        10 if scheme == "https" && host.starts_with('e') => {
            format!("{scheme}://\u{ff45}{}{path}", &host[1..])
        }
        11 => format!(" {uri}"),
        12 if path.starts_with('/') => format!("{scheme}://{host}/x/..{path}"),
        13 if path.starts_with('/') => format!("{scheme}://{host}/%2e{path}"),
        _ => uri.to_owned(),
    }
}

/// Writes one letter or digit in percent-encoding.
fn encode(rng: &mut Rng, text: &str) -> String {
    // Outside of existing percent codes.
    let is_free = |at: usize| !text[..at].chars().rev().take(2).any(|before| before == '%');
    let places = text.char_indices().filter(|(at, it)| it.is_alphanumeric() && is_free(*at));
    let places: Vec<_> = places.collect();
    if places.is_empty() {
        return text.to_owned();
    }
    let (at, found) = places[rng.usize(..places.len())];
    let mut out = text[..at].to_owned();
    for byte in found.to_string().bytes() {
        let _ = if rng.bool() { write!(out, "%{byte:02x}") } else { write!(out, "%{byte:02X}") };
    }
    out + &text[at + found.len_utf8()..]
}

/// Returns a URI that a template expands to.
pub(super) fn expand(rng: &mut Rng, template: &str) -> String {
    let (mut out, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, behind) = after.split_once('}').unwrap();
        let value = pick(rng, &VALUES);
        out += before;
        out += if inside == "?q" { "?q=" } else { "" };
        out += value;
        rest = behind;
    }
    out + rest
}

/// Values of variables.
const VALUES: [&str; 11] = [
    "7",
    "x",
    "a.txt",
    "secret.txt",
    "My%20File.txt",
    "prod",
    "Prod",
    "b,c",
    "x/y",
    "example.com",
    "",
];
