//! Files of one document, and the targets of `$ref` in them.
//!
//! Nothing is fetched here. [`external_files`] returns the files to which a tree refers, and
//! `transport::openapi` reads them before any reference is resolved. Only files of the document's own
//! origin, or below its own folder, are ever named: a document must not make the gateway read other
//! addresses or files.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use percent_encoding::percent_decode_str;
use serde_json::Value;
use url::Url;

use trunkline_core::text::clip;

/// Error while resolving a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceFault {
    /// The target does not exist.
    #[error("the reference {target:?} leads nowhere")]
    Dangling {
        /// The reference, clipped.
        target: String,
    },
    /// The file cannot be read.
    #[error("the file of the reference {target:?} cannot be read: {reason}")]
    Unreadable {
        /// The reference, clipped.
        target: String,
        /// The reason, clipped.
        reason: String,
    },
    /// The file has another origin, or is outside the document's folder.
    #[error("the reference {target:?} is outside of the document's own origin or folder")]
    Outside {
        /// The reference, clipped.
        target: String,
    },
    /// The references form a cycle.
    #[error("the reference {target:?} leads to itself, or through too many others")]
    Endless {
        /// The reference, clipped.
        target: String,
    },
}

/// A document with the files to which it refers.
#[derive(Debug)]
pub struct DocumentSet {
    /// The document itself comes first.
    files: Vec<DocumentFile>,
    /// Files that the document names and that cannot be read, and the reasons.
    unreadable: HashMap<Url, String>,
    /// Number of values that may still be read. References make it possible to read each value any
    /// number of times, so this limits the time that a document takes.
    looks: Cell<usize>,
}

/// One file of a document.
#[derive(Debug)]
struct DocumentFile {
    /// URL by which references name it.
    named: Url,
    /// URL from which it was read. Its own references are relative to this one.
    address: Url,
    tree: Value,
}

impl DocumentSet {
    /// Creates a set from a document and the address from which it was read.
    pub fn new(address: Url, tree: Value) -> Self {
        let main = DocumentFile { named: address.clone(), address, tree };
        Self { files: vec![main], unreadable: HashMap::new(), looks: Cell::new(MAX_LOOKS) }
    }

    /// Adds a file that the document names as `named`, and that was read at `address`.
    pub fn add(&mut self, named: Url, address: Url, tree: Value) {
        self.files.push(DocumentFile { named, address, tree });
    }

    /// Records that a file cannot be read. Operations that refer to it cannot be used.
    pub fn add_unreadable(&mut self, address: Url, reason: &str) {
        self.unreadable.insert(address, clip(reason, MAX_SHOWN_TARGET_BYTES).to_owned());
    }

    /// Sets the number of values that may be read.
    #[cfg(test)]
    pub(crate) fn limit_looks(&mut self, looks: usize) {
        self.looks = Cell::new(looks);
    }

    /// Returns true if the limit of values is reached. Results from after that may be incomplete.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.looks.get() == 0
    }

    /// Counts reads of values. Returns false if the limit is reached.
    fn look(&self, times: usize) -> bool {
        self.looks.set(self.looks.get().saturating_sub(times));
        !self.is_exhausted()
    }

    /// Returns the document's root.
    pub(crate) fn root(&self) -> Node<'_> {
        let value = self.files.first().map_or(&Value::Null, |file| &file.tree);
        Node { set: self, file: 0, value }
    }

    /// Returns true if it may be a document, rather than another page of the server.
    pub fn is_openapi(&self) -> bool {
        self.root().find("openapi").or_else(|| self.root().find("swagger")).is_some()
    }

    /// Returns the address from which the document was read.
    pub fn address(&self) -> Option<&Url> {
        self.files.first().map(|file| &file.address)
    }

    /// Returns the target of a reference in `file`: the file, and the pointer in it.
    fn locate(&self, file: usize, target: &str) -> Result<SchemaPlace, ReferenceFault> {
        let (at, fragment) = target.split_once('#').unwrap_or((target, ""));
        let file = if at.is_empty() { file } else { self.find_file(file, at, target)? };
        let pointer = percent_decode_str(fragment).decode_utf8_lossy().into_owned();
        Ok(SchemaPlace { file, pointer })
    }

    fn find_file(&self, from: usize, at: &str, target: &str) -> Result<usize, ReferenceFault> {
        let outside = || ReferenceFault::Outside { target: clip_target(target) };
        let from = self.files.get(from).ok_or_else(outside)?;
        let url = from.address.join(at).map_err(|_| outside())?;
        let main = self.address().ok_or_else(outside)?;
        if !is_within(main, &url) {
            return Err(outside());
        }
        let found = self.files.iter().position(|file| file.named == url || file.address == url);
        let target = || clip_target(target);
        found.ok_or_else(|| match self.unreadable.get(&url) {
            Some(reason) => ReferenceFault::Unreadable { target: target(), reason: reason.clone() },
            None => ReferenceFault::Dangling { target: target() },
        })
    }
}

/// A place in a set of files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SchemaPlace {
    file: usize,
    /// The JSON pointer, unescaped as a fragment.
    pub(crate) pointer: String,
}

/// A value in one of the files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a> {
    set: &'a DocumentSet,
    file: usize,
    pub(crate) value: &'a Value,
}

impl<'a> Node<'a> {
    /// Returns a node of the same file with another value.
    pub(crate) fn with(self, value: &'a Value) -> Self {
        Self { value, ..self }
    }

    /// Returns a member of an object.
    pub(crate) fn find(self, key: &str) -> Option<Self> {
        self.value.get(key).map(|value| self.with(value))
    }

    /// Returns a member of an object, with references followed.
    pub(crate) fn follow(self, key: &str) -> Result<Option<Self>, ReferenceFault> {
        self.find(key).map(Self::resolve).transpose()
    }

    /// Returns the text of a member.
    pub(crate) fn text(self, key: &str) -> Option<&'a str> {
        self.value.get(key).and_then(Value::as_str)
    }

    /// Returns true if a member is `true`.
    pub(crate) fn flag(self, key: &str) -> bool {
        self.value.get(key) == Some(&Value::Bool(true))
    }

    /// Returns the items of an array. Other values have none. Ends early if the set is exhausted.
    pub(crate) fn items(self) -> impl Iterator<Item = Self> {
        let items = self.value.as_array().into_iter().flatten();
        items.take_while(move |_| self.set.look(1)).map(move |value| self.with(value))
    }

    /// Returns the members of an object. Other values have none. Ends early if the set is
    /// exhausted.
    pub(crate) fn members(self) -> impl Iterator<Item = (&'a str, Self)> {
        let members = self.value.as_object().into_iter().flatten();
        let members = members.take_while(move |_| self.set.look(1));
        members.map(move |(key, value)| (key.as_str(), self.with(value)))
    }

    /// Counts more reads of values. Returns false if the set is exhausted.
    pub(crate) fn count_looks(self, times: usize) -> bool {
        self.set.look(times)
    }

    /// Returns a copy of the value, if it is nested no deeper than `depth`. Counts all values in
    /// it.
    pub(crate) fn copy_within(self, depth: usize) -> Option<Value> {
        let (looks, deepest) = weigh(self.value);
        (self.set.look(looks) && deepest <= depth).then(|| self.value.clone())
    }

    /// Returns the reference, if the object is one.
    pub(crate) fn reference(self) -> Option<&'a str> {
        self.text("$ref")
    }

    /// Returns the target of a reference of this object, and its value.
    pub(crate) fn target(self, target: &str) -> Result<(SchemaPlace, Self), ReferenceFault> {
        self.set.look(1 + target.len() / BYTES_PER_LOOK);
        let place = self.set.locate(self.file, target)?;
        let dangling = || ReferenceFault::Dangling { target: clip_target(target) };
        let file = self.set.files.get(place.file).ok_or_else(dangling)?;
        let value = file.tree.pointer(&place.pointer).ok_or_else(dangling)?;
        let node = Self { set: self.set, file: place.file, value };
        Ok((place, node))
    }

    /// Returns the value itself, or the target of its reference.
    pub(crate) fn resolve(self) -> Result<Self, ReferenceFault> {
        let mut node = self;
        let mut last = "";
        for _ in 0..MAX_HOPS {
            let Some(target) = node.reference() else { return Ok(node) };
            last = target;
            (_, node) = node.target(target)?;
        }
        Err(ReferenceFault::Endless { target: clip_target(last) })
    }
}

/// Returns the number of values in a value, itself included, and its depth. The tree is of limited
/// depth.
fn weigh(value: &Value) -> (usize, usize) {
    fn weigh_all<'a>(all: impl Iterator<Item = &'a Value>) -> (usize, usize) {
        all.map(weigh)
            .fold((1, 1), |(looks, deepest), (more, depth)| (looks + more, deepest.max(depth + 1)))
    }
    match value {
        Value::Array(items) => weigh_all(items.iter()),
        Value::Object(members) => weigh_all(members.values()),
        Value::String(text) => (1 + text.len() / BYTES_PER_LOOK, 0),
        _ => (1, 0),
    }
}

/// Returns the files to which a tree refers besides itself, as far as the document's address allows
/// them. `from` is the address of the tree, `main` that of the document.
pub fn external_files(tree: &Value, from: &Url, main: &Url) -> BTreeSet<Url> {
    let mut found = BTreeSet::new();
    let mut open = vec![(tree, "")];
    while let Some((value, key)) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, ""))),
            Value::Object(members) => {
                let target = members.get("$ref").and_then(Value::as_str);
                let file = target.and_then(|target| target.split('#').next());
                let url = file.filter(|file| !file.is_empty()).and_then(|at| from.join(at).ok());
                found.extend(url.filter(|url| is_within(main, url) && url != main));
                let members = members.iter().map(|(key, value)| (value, key.as_str()));
                open.extend(members.filter(|(_, member)| !is_data(key, member)));
            }
            _ => {}
        }
    }
    found
}

/// Returns true if the gateway does not read a member: examples and extensions. Below these keys,
/// members have names of the document's own.
fn is_data(parent: &str, member: &str) -> bool {
    let is_named = matches!(parent, "properties" | "patternProperties" | "schemas" | "$defs");
    !is_named && (member.starts_with("x-") || matches!(member, "example" | "examples"))
}

/// Returns true if a file belongs to a document: the same origin, or below the folder of a local
/// document.
pub(crate) fn is_within(main: &Url, url: &Url) -> bool {
    if main.scheme() != "file" {
        return main.origin() == url.origin();
    }
    let folder = main.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    let below = url.path().strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    // `Url` has resolved `..`, but percent-encoding must not hide another one.
    let path = url.path().to_ascii_lowercase();
    let hides = ["%2e", "%2f", "%5c"].iter().any(|escape| path.contains(escape));
    url.scheme() == "file" && url.host().is_none() && below && !hides
}

fn clip_target(target: &str) -> String {
    clip(target, MAX_SHOWN_TARGET_BYTES).to_owned()
}

/// Maximum number of values that are read from one document, counted each time a reference leads to
/// them. GitHub's document, one of the largest, takes a twentieth of it.
const MAX_LOOKS: usize = 20_000_000;
/// Number of bytes of a reference that cost as much as one value.
const BYTES_PER_LOOK: usize = 16;
/// Maximum number of references that lead from one to the next.
const MAX_HOPS: usize = 32;
/// Maximum length in bytes of a reference in an error.
const MAX_SHOWN_TARGET_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_reference_leads_to_its_place_through_others_and_files() {
        let tree = json!({
            "a": { "$ref": "#/b" }, "b": { "$ref": "parts/more.yaml#/x~1y%20z" },
            "loop": { "$ref": "#/loop" }, "none": { "$ref": "#/absent" },
            "away": { "$ref": "http://169.254.169.254/x" },
        });
        let mut set = DocumentSet::new(url("http://a.test/api/openapi.json"), tree);
        let part = json!({ "x/y z": { "$ref": "#/end" }, "end": 7 });
        let named = url("http://a.test/api/parts/more.yaml");
        set.add(named.clone(), named, part);
        let root = set.root();
        assert_eq!(root.find("a").unwrap().resolve().unwrap().value, &json!(7));
        for (key, words) in
            [("loop", "itself"), ("none", "nowhere"), ("away", "outside of the document's own")]
        {
            let fault = root.find(key).unwrap().resolve().unwrap_err().to_string();
            assert!(fault.contains(words), "{fault}");
        }
    }

    #[test]
    fn references_in_a_redirected_file_are_relative_to_where_it_was_read() {
        let tree = json!({ "a": { "$ref": "parts/a.json#/x" } });
        let mut set = DocumentSet::new(url("http://a.test/openapi.json"), tree);
        let (named, address) = ("http://a.test/parts/a.json", "http://a.test/v2/parts/a.json");
        set.add(url(named), url(address), json!({ "x": { "$ref": "b.json#/y" } }));
        let part = url("http://a.test/v2/parts/b.json");
        set.add(part.clone(), part, json!({ "y": 7 }));
        assert_eq!(set.root().find("a").unwrap().resolve().unwrap().value, &json!(7));
    }

    #[test]
    fn a_document_is_looked_at_so_often_and_no_more() {
        let tree = json!({ "list": [1, 2, 3], "again": { "$ref": "#/list" } });
        let set = DocumentSet::new(url("http://a.test/"), tree);
        let again = set.root().find("again").unwrap();
        assert_eq!(again.resolve().unwrap().items().count(), 3);
        set.looks.set(3);
        assert!(again.resolve().unwrap().items().count() < 3);
        assert!(set.is_exhausted() && set.root().copy_within(9).is_none());
    }

    #[test]
    fn only_files_of_the_documents_origin_or_folder_are_read() {
        let tree = json!([
            { "$ref": "#/x" }, { "$ref": "more.json#/x" }, { "$ref": "/other.json" },
            { "$ref": "http://b.test/x" }, { "$ref": "file:///etc/passwd" },
            { "$ref": "http://a.test:81/x" }, { "$ref": "../../up.json" },
            { "example": { "$ref": "a.json" }, "x-own": { "$ref": "b.json" } },
            { "examples": { "one": { "$ref": "c.json" } } },
        ]);
        let of = |main: &str| -> Vec<String> {
            let main = url(main);
            external_files(&tree, &main, &main).into_iter().map(Into::into).collect()
        };
        assert_eq!(
            of("http://a.test/v/openapi.json"),
            ["http://a.test/other.json", "http://a.test/up.json", "http://a.test/v/more.json"]
        );
        assert_eq!(of("file:///srv/api/openapi.json"), ["file:///srv/api/more.json"]);
    }

    #[test]
    fn a_file_of_a_local_document_is_below_its_folder() {
        let main = url("file:///home/me/My%20API/openapi.yaml");
        for (text, expected) in [
            ("file:///home/me/My%20API/parts/a%25.yaml", true),
            ("file:///home/me/My%20API/%2e%2E/secret", false),
            ("file:///home/me/My%20API/%2E%2e%2fsecret", false),
            ("file:///home/me/My%20API/..%5Csecret", false),
            ("file:///home/me/My%20APIs/a.yaml", false),
            ("file://host/home/me/My%20API/a.yaml", false),
            ("http://127.0.0.1/home/me/My%20API/a.yaml", false),
        ] {
            assert_eq!(is_within(&main, &url(text)), expected, "{text}");
        }
    }
}
