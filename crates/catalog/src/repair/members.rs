//! The members that the MCP schema defines for entries of lists, and the repair of malformed ones.
//!
//! The tables have the optional members, with the values that every revision and every SDK accepts.
//! Members that no revision defines are ignored, and so is everything within `_meta`.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use trunkline_jsonrpc::{Members, object_of, text};

use super::date_time::is_date_time;
use super::dialect::{SchemaRole, repair_schema};
use super::{RepairKind, Repairs};
use crate::kind::Kind;

/// The form of a member's value.
pub(super) enum MemberForm {
    /// A string.
    Text,
    /// `true` or `false`.
    Flag,
    /// A number without a fraction.
    Integer,
    /// A number from 0 to 1.
    Share,
    /// A date and time with an offset.
    DateTime,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// An object with any contents.
    Object,
    /// An array of such values.
    List(&'static MemberForm),
    /// An object with these members.
    Record(&'static [MemberRule]),
    /// A JSON Schema.
    Schema(SchemaRole),
}

/// A member that the MCP schema defines.
pub(super) struct MemberRule {
    name: &'static str,
    presence: Presence,
    form: MemberForm,
}

/// The need of an object for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It may be absent.
    Optional,
    /// Without it the object is malformed.
    Required,
    /// The entry is left out without it. [`crate::elements::item`] has the reason.
    Judged,
}

/// A repaired value.
enum Repaired<'a> {
    /// It is valid.
    Same,
    /// The repaired value.
    Changed(Cow<'a, str>),
    /// It cannot be repaired.
    Malformed,
}

const fn optional(name: &'static str, form: MemberForm) -> MemberRule {
    MemberRule { name, presence: Presence::Optional, form }
}

const fn required(name: &'static str, form: MemberForm) -> MemberRule {
    MemberRule { name, presence: Presence::Required, form }
}

/// The members of an entry.
pub(super) fn entry_members(kind: Kind) -> &'static [MemberRule] {
    match kind {
        Kind::Tools => TOOL_MEMBERS,
        Kind::Prompts => PROMPT_MEMBERS,
        Kind::Resources => RESOURCE_MEMBERS,
        Kind::Templates => TEMPLATE_MEMBERS,
        // An extension defines them, and hosts check them against it.
        Kind::Skills => &[],
    }
}

/// Repairs the members of an object; `None` if it needs no repair, or is no object.
pub(super) fn repair_object(
    raw: &[u8],
    rules: &'static [MemberRule],
    repairs: &mut Repairs,
) -> Option<Vec<u8>> {
    if !raw.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let members = Members::parse_with_duplicates(raw).ok()?;
    let mut has_changed = false;
    let mut kept = Vec::with_capacity(members.0.len());
    for (name, value) in &members.0 {
        let rule = rules.iter().find(|rule| rule.name == name);
        let value: Cow<'_, str> = match rule.map(|rule| repair_member(rule, value, repairs)) {
            None | Some(Repaired::Same) => value.get().into(),
            Some(Repaired::Changed(changed)) => {
                has_changed = true;
                changed
            }
            Some(Repaired::Malformed) => {
                has_changed = true;
                continue;
            }
        };
        kept.push((&**name, value));
    }
    has_changed.then(|| object_of(kept))
}

/// Repairs one member; [`Repaired::Malformed`] drops it.
fn repair_member<'a>(
    rule: &'static MemberRule,
    value: &'a RawValue,
    repairs: &mut Repairs,
) -> Repaired<'a> {
    let is_optional = rule.presence == Presence::Optional;
    if value.get() == "null" && is_optional {
        return Repaired::Malformed;
    }
    let repaired = repairs.within(rule.name, |repairs| repair_value(&rule.form, value, repairs));
    match repaired {
        Repaired::Malformed if rule.presence == Presence::Judged => Repaired::Same,
        Repaired::Malformed => {
            repairs.note(RepairKind::Dropped, rule.name);
            Repaired::Malformed
        }
        other => other,
    }
}

fn repair_value<'a>(
    form: &'static MemberForm,
    raw: &'a RawValue,
    repairs: &mut Repairs,
) -> Repaired<'a> {
    let is_valid = match form {
        MemberForm::Text => raw.get().starts_with('"'),
        MemberForm::Flag => matches!(raw.get(), "true" | "false"),
        MemberForm::Integer => number(raw).is_some_and(|number| number.fract() == 0.0),
        MemberForm::Share => number(raw).is_some_and(|number| (0.0..=1.0).contains(&number)),
        MemberForm::DateTime => text(raw).is_some_and(|text| is_date_time(&text)),
        MemberForm::OneOf(all) => text(raw).is_some_and(|text| all.contains(&&*text)),
        MemberForm::Object => raw.get().starts_with('{'),
        MemberForm::List(form) => return repair_list(form, raw, repairs),
        MemberForm::Record(rules) => return repair_record(rules, raw, repairs),
        MemberForm::Schema(role) => {
            return match repair_schema(*role, raw.get(), repairs) {
                Ok(None) => Repaired::Same,
                Ok(Some(schema)) => Repaired::Changed(schema.into()),
                Err(_) => Repaired::Malformed,
            };
        }
    };
    if is_valid { Repaired::Same } else { Repaired::Malformed }
}

/// Repairs an array: malformed elements are dropped.
fn repair_list<'a>(
    form: &'static MemberForm,
    raw: &'a RawValue,
    repairs: &mut Repairs,
) -> Repaired<'a> {
    let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else {
        return Repaired::Malformed;
    };
    let mut has_changed = false;
    let mut kept: Vec<Cow<'_, str>> = Vec::with_capacity(elements.len());
    for (position, element) in elements.into_iter().enumerate() {
        let position = position.to_string();
        match repairs.within(&position, |repairs| repair_value(form, element, repairs)) {
            Repaired::Same => kept.push(element.get().into()),
            Repaired::Changed(changed) => {
                has_changed = true;
                kept.push(changed);
            }
            Repaired::Malformed => {
                has_changed = true;
                repairs.note(RepairKind::Dropped, &position);
            }
        }
    }
    if has_changed {
        Repaired::Changed(format!("[{}]", kept.join(",")).into())
    } else {
        Repaired::Same
    }
}

fn repair_record<'a>(
    rules: &'static [MemberRule],
    raw: &'a RawValue,
    repairs: &mut Repairs,
) -> Repaired<'a> {
    if !raw.get().starts_with('{') {
        return Repaired::Malformed;
    }
    let repaired = repair_object(raw.get().as_bytes(), rules, repairs);
    let repaired = repaired.and_then(|repaired| String::from_utf8(repaired).ok());
    let now = repaired.as_deref().unwrap_or(raw.get());
    if !has_required_members(rules, now) {
        return Repaired::Malformed;
    }
    repaired.map_or(Repaired::Same, |repaired| Repaired::Changed(repaired.into()))
}

/// Returns true if an object has the members that it needs. Malformed ones were dropped.
fn has_required_members(rules: &[MemberRule], object: &str) -> bool {
    let mut needed = rules.iter().filter(|rule| rule.presence == Presence::Required).peekable();
    if needed.peek().is_none() {
        return true;
    }
    let members = Members::parse_with_duplicates(object.as_bytes());
    members.is_ok_and(|members| needed.all(|rule| members.find(rule.name).is_some()))
}

fn number(raw: &RawValue) -> Option<f64> {
    serde_json::from_str::<Value>(raw.get()).ok()?.as_f64()
}

const TEXT_FORM: MemberForm = MemberForm::Text;
const ICONS_FORM: MemberForm = MemberForm::List(&MemberForm::Record(&[
    required("src", TEXT_FORM),
    optional("mimeType", TEXT_FORM),
    optional("sizes", MemberForm::List(&TEXT_FORM)),
    optional("theme", MemberForm::OneOf(&["light", "dark"])),
]));
/// The annotations of resources and of content.
const ANNOTATIONS_FORM: MemberForm = MemberForm::Record(&[
    optional("audience", MemberForm::List(&MemberForm::OneOf(&["user", "assistant"]))),
    optional("priority", MemberForm::Share),
    optional("lastModified", MemberForm::DateTime),
]);
const TOOL_MEMBERS: &[MemberRule] = &[
    optional("title", TEXT_FORM),
    optional("description", TEXT_FORM),
    optional("_meta", MemberForm::Object),
    optional("icons", ICONS_FORM),
    optional(
        "annotations",
        MemberForm::Record(&[
            optional("title", TEXT_FORM),
            optional("readOnlyHint", MemberForm::Flag),
            optional("destructiveHint", MemberForm::Flag),
            optional("idempotentHint", MemberForm::Flag),
            optional("openWorldHint", MemberForm::Flag),
        ]),
    ),
    optional(
        "execution",
        MemberForm::Record(&[optional(
            "taskSupport",
            MemberForm::OneOf(&["forbidden", "optional", "required"]),
        )]),
    ),
    MemberRule {
        name: "inputSchema",
        presence: Presence::Judged,
        form: MemberForm::Schema(SchemaRole::Input),
    },
    optional("outputSchema", MemberForm::Schema(SchemaRole::Output)),
];
const PROMPT_MEMBERS: &[MemberRule] = &[
    optional("title", TEXT_FORM),
    optional("description", TEXT_FORM),
    optional("_meta", MemberForm::Object),
    optional("icons", ICONS_FORM),
    optional(
        "arguments",
        MemberForm::List(&MemberForm::Record(&[
            required("name", TEXT_FORM),
            optional("title", TEXT_FORM),
            optional("description", TEXT_FORM),
            optional("required", MemberForm::Flag),
        ])),
    ),
];
const RESOURCE_MEMBERS: &[MemberRule] = &[
    optional("title", TEXT_FORM),
    optional("description", TEXT_FORM),
    optional("mimeType", TEXT_FORM),
    optional("size", MemberForm::Integer),
    optional("_meta", MemberForm::Object),
    optional("icons", ICONS_FORM),
    optional("annotations", ANNOTATIONS_FORM),
];
const TEMPLATE_MEMBERS: &[MemberRule] = &[
    optional("title", TEXT_FORM),
    optional("description", TEXT_FORM),
    optional("mimeType", TEXT_FORM),
    optional("_meta", MemberForm::Object),
    optional("icons", ICONS_FORM),
    optional("annotations", ANNOTATIONS_FORM),
];
