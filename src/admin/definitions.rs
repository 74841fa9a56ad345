//! `/definitions`: the digest of every definition that servers list, under an entity tag, so that a
//! program that polls them gets a short answer while nothing has changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::json;
use crate::call::NativeName;
use crate::catalog::{Catalog, Kind, ListedDefinition, ServerList};
use crate::crypto::sha256;
use crate::downstream::Body;
use crate::snapshot::{Snapshot, SnapshotServer};
use crate::text::{clip, escape_controls, escape_invisible};

/// A definition that a server lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DefinitionDigestStatus {
    /// The server.
    pub server: String,
    /// Its kind: `tools`, `prompts`, `resources`, `resourceTemplates`, `skills`, `instructions` or
    /// `serverInfo`.
    pub kind: &'static str,
    /// The server's own name for it, or its URI.
    pub name: String,
    /// SHA-256 of its canonical form.
    pub sha256: String,
    /// True if clients do not see it.
    pub held: bool,
}

/// The page.
#[derive(Serialize)]
struct DefinitionsPage {
    definitions: Vec<DefinitionDigestStatus>,
}

/// Returns the definitions in all lists of a server, each form once.
pub(super) fn definition_digests(
    snapshot: &Snapshot,
    member: &SnapshotServer,
) -> BTreeSet<DefinitionDigestStatus> {
    let lists = member.server.known_lists();
    let of_list = |list: &Arc<ServerList>| {
        let held = snapshot.screen.held_in(list);
        let is_held = |one: &ListedDefinition<'_>| match one.kind.listed() {
            Some(kind) => held.holds(kind, one.native.as_str()),
            None => snapshot.screen.holds_words(list, one.kind),
        };
        let digest = |one: ListedDefinition<'_>| DefinitionDigestStatus {
            server: list.server.to_string(),
            kind: one.kind.member(),
            name: shown_name(one.native),
            sha256: one.digest().to_string(),
            held: is_held(&one),
        };
        list.definitions().map(digest).collect::<Vec<_>>()
    };
    lists.iter().flat_map(of_list).collect()
}

/// Returns a server's own name for a page: clipped, and without invisible characters.
pub(super) fn shown_name(native: &NativeName) -> String {
    escape_invisible(&escape_controls(clip(native.as_str(), MAX_SHOWN_NAME_BYTES)))
}

/// Returns the page, or `304 Not Modified` for a client that has it. The order in which servers
/// list makes no difference.
pub(super) fn answer_definitions(
    headers: &HeaderMap,
    mut definitions: Vec<DefinitionDigestStatus>,
) -> Response<Body> {
    definitions.sort();
    let page = DefinitionsPage { definitions };
    // The tag identifies the content, regardless of whitespace.
    let tag = entity_tag(&serde_json::to_vec(&page).unwrap_or_default());
    let mut response = json(StatusCode::OK, &page);
    if has_tag(headers, &tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(CONTENT_TYPE);
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    let headers = response.headers_mut();
    // May be stored, but has to be revalidated each time.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Returns a strong entity tag (RFC 9110, 8.8.3).
fn entity_tag(content: &[u8]) -> String {
    quoted_tag(&sha256(content))
}

/// Returns the entity tag of a list as clients without a profile see it, with its kind.
pub(super) fn list_tag(catalog: &Catalog, kind: Kind) -> (&'static str, String) {
    (kind.member(), quoted_tag(catalog.list(kind).digest()))
}

/// Returns one digest over all lists.
pub(super) fn catalog_digest(catalog: &Catalog) -> String {
    let all = Kind::ALL.map(|kind| *catalog.list(kind).digest());
    HEXLOWER.encode(&sha256(&all.concat()))
}

/// Returns a digest as an entity tag.
fn quoted_tag(digest: &[u8]) -> String {
    format!("\"{}\"", HEXLOWER.encode(digest))
}

/// Returns true if a client has the page with this tag (RFC 9110, 13.1.2: weak comparison).
fn has_tag(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    let mut known = values.flat_map(|value| value.split(',')).map(str::trim);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

/// Limit of the bytes of a name on a page.
const MAX_SHOWN_NAME_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn one(name: &str, sha256: &str) -> DefinitionDigestStatus {
        let (server, kind, name) = ("s".to_owned(), "tools", name.to_owned());
        DefinitionDigestStatus { server, kind, name, sha256: sha256.to_owned(), held: false }
    }

    fn ask(known: &[&str], definitions: &[DefinitionDigestStatus]) -> Response<Body> {
        let known = known.iter().map(|tag| (IF_NONE_MATCH, HeaderValue::from_str(tag).unwrap()));
        let headers: Vec<(HeaderName, HeaderValue)> = known.collect();
        answer_definitions(&HeaderMap::from_iter(headers), definitions.to_vec())
    }

    fn tag_of(definitions: &[DefinitionDigestStatus]) -> String {
        ask(&[], definitions).headers()[ETAG].to_str().unwrap().to_owned()
    }

    #[test]
    fn a_tag_is_of_the_definitions_and_not_of_their_order() {
        let (a, b) = (one("a", "01"), one("b", "02"));
        let tag = tag_of(&[a.clone(), b.clone()]);
        assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() == 66, "{tag}");
        assert_eq!(tag_of(&[b.clone(), a.clone()]), tag);
        let held = DefinitionDigestStatus { held: true, ..a.clone() };
        for other in [vec![], vec![a.clone()], vec![a.clone(), one("b", "03")], vec![held, b]] {
            assert_ne!(tag_of(&other), tag, "{other:?}");
        }
    }

    #[test]
    fn a_client_with_the_current_page_gets_not_modified_and_no_other_does() {
        let page = [one("a", "01")];
        let tag = tag_of(&page);
        let weak = format!("W/{tag}");
        let list = format!("\"x\", {tag}");
        for (known, status) in [
            (&[][..], 200),
            (&[&*tag][..], 304),
            (&[&*weak], 304),
            (&[&*list], 304),
            (&["\"x\"", &*tag], 304),
            (&["*"], 304),
            (&["\"x\""], 200),
            (&[tag.trim_matches('"')], 200),
            (&[""], 200),
        ] {
            let answer = ask(known, &page);
            assert_eq!(answer.status(), status, "{known:?}");
            assert_eq!(answer.headers()[ETAG], tag, "{known:?}");
            assert_eq!(answer.headers()[CACHE_CONTROL], "no-cache", "{known:?}");
            assert_eq!(answer.headers().contains_key(CONTENT_LENGTH), status == 200, "{known:?}");
        }
    }
}
