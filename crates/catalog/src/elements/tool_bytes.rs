//! The bytes of a tool as its server wrote it, and the positions in them that a list replaces.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use trunkline_jsonrpc::{Splice, span_of, string, text};
use trunkline_protocol::call::NativeName;

use super::item::{ItemError, ItemFields};
use super::offers::{ServerOffers, TaskForm};
use super::tool::TaskSupport;
use crate::kind::Kind;
use crate::uri_forms::rewrite::find_interface;

/// A tool object and its positions. The bytes never change; a public name and an overriding
/// description are spliced in when a list is prepared.
#[derive(Debug)]
pub(crate) struct ToolBytes {
    native: NativeName,
    /// The object, without surrounding whitespace.
    raw: Bytes,
    /// The span of the name's value in `raw`, quotes included.
    name: Range<usize>,
    /// The span of the description's value in `raw`, if it is present.
    description: Option<Range<usize>>,
    /// The URIs of its user interface (MCP Apps), and their spans.
    interface: Vec<(Range<usize>, String)>,
    /// `taskSupport` and its span, if it is present.
    tasks: Option<(Range<usize>, TaskSupport)>,
}

impl ToolBytes {
    /// Reads a tool object.
    ///
    /// # Errors
    /// [`ItemError`] names the violated rule.
    pub(crate) fn parse(raw: Vec<u8>) -> Result<Self, ItemError> {
        let raw = Bytes::from(raw);
        Self::locate(&raw, &ItemFields::read(&raw)?)
    }

    /// Finds the positions in an object that was read.
    ///
    /// # Errors
    /// [`ItemError`] names the violated rule.
    pub(crate) fn locate(raw: &Bytes, fields: &ItemFields<'_>) -> Result<Self, ItemError> {
        let (native, name) = fields.check(Kind::Tools)?;
        let span = |part: &str| span_of(raw, part.as_bytes()).unwrap_or_default();
        let interface = fields.find("_meta").map(find_interface).unwrap_or_default();
        let tasks = fields.find("execution").and_then(parse_task_support);
        Ok(Self {
            native,
            name: span(name),
            description: fields.find("description").map(span),
            interface: interface.into_iter().map(|(at, uri)| (span(at), uri)).collect(),
            tasks: tasks.map(|(at, support)| (span(at), support)),
            raw: raw.clone(),
        })
    }

    /// The native name.
    pub(crate) fn native(&self) -> &NativeName {
        &self.native
    }

    /// The object.
    pub(crate) fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The native name as JSON, in the server's own spelling.
    pub(crate) fn name_json(&self) -> Bytes {
        self.raw.slice(self.name.clone())
    }

    /// The support of tasks by calls, if the server supports tasks.
    pub(crate) fn task_support(&self) -> TaskSupport {
        self.tasks.as_ref().map(|(_, support)| *support).unwrap_or_default()
    }

    /// The resources that are its user interface (MCP Apps).
    pub(crate) fn interface(&self) -> impl Iterator<Item = &str> {
        self.interface.iter().map(|(_, uri)| uri.as_str())
    }

    /// Appends the tool under its public name, with an overriding description if there is one, and
    /// with public URIs. If its server does not support the tasks of 2025-11-25, the listing does
    /// not offer them. Every other byte is unchanged.
    pub(crate) fn splice<'a>(
        &'a self,
        public: &str,
        description: Option<&str>,
        public_uri: impl Fn(&'a str) -> Cow<'a, str>,
        offers: &ServerOffers,
        out: &mut Vec<u8>,
    ) {
        let mut splice = Splice::new(&self.raw);
        // An unchanged name keeps the server's own spelling (escapes).
        if public != self.native.as_str() {
            splice.replace(self.name.clone(), string(public));
        }
        if let Some(text) = description {
            match &self.description {
                Some(span) => splice.replace(span.clone(), string(text)),
                None => splice.replace(self.name.end..self.name.end, description_member(text)),
            };
        }
        for (place, uri) in &self.interface {
            if let Cow::Owned(public) = public_uri(uri) {
                splice.replace(place.clone(), string(&public));
            }
        }
        if let Some((place, support)) = &self.tasks
            && *support != TaskSupport::Forbidden
            && offers.task_form() != Some(TaskForm::Legacy)
        {
            splice.replace(place.clone(), string("forbidden"));
        }
        splice.put(out);
    }
}

/// The raw value of `taskSupport` in an `execution`, and its meaning.
fn parse_task_support(execution: &str) -> Option<(&str, TaskSupport)> {
    #[derive(Deserialize)]
    struct Execution<'a> {
        #[serde(borrow, rename = "taskSupport")]
        support: &'a RawValue,
    }
    let raw = serde_json::from_str::<Execution<'_>>(execution).ok()?.support;
    let support = match text(raw).as_deref() {
        Some("optional") => TaskSupport::Optional,
        Some("required") => TaskSupport::Required,
        _ => TaskSupport::Forbidden,
    };
    Some((raw.get(), support))
}

fn description_member(text: &str) -> String {
    format!(",\"description\":{}", string(text))
}
