//! The variables and functions of conditions, and their types.

/// The type of an expression, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CelType {
    Bool,
    Number,
    Text,
    Bytes,
    /// A list of texts.
    Texts,
    List,
    Map,
    Null,
    /// A variable with fixed members.
    RecordForm(&'static RecordForm),
    /// Any.
    Dynamic,
}

/// A variable with fixed members.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordForm {
    pub(super) name: &'static str,
    pub(super) members: &'static [(&'static str, CelType)],
}

impl CelType {
    /// The type in messages.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Bytes => "bytes",
            Self::Texts | Self::List => "a list",
            Self::Map | Self::RecordForm(_) => "a map",
            Self::Null => "null",
            Self::Dynamic => "a value",
        }
    }

    /// Returns true if all values of the type have one type, and so have all values in them.
    /// Numbers have several: a large one is not exact in each.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Bool | Self::Text | Self::Bytes | Self::Texts)
    }

    /// Returns true if two values can be equal.
    pub(super) fn may_equal(self, other: Self) -> bool {
        let kind = |one| match one {
            Self::Texts => Self::List,
            Self::RecordForm(_) => Self::Map,
            other => other,
        };
        // Everything may be compared with null: the value may be missing.
        let any = [Self::Dynamic, Self::Null];
        any.contains(&self) || any.contains(&other) || kind(self) == kind(other)
    }
}

const PRINCIPAL_FORM: RecordForm = RecordForm {
    name: "principal",
    members: &[
        ("name", CelType::Text),
        ("kind", CelType::Text),
        ("groups", CelType::Texts),
        ("scopes", CelType::Texts),
        ("actors", CelType::Texts),
    ],
};
const TOOL_FORM: RecordForm = RecordForm {
    name: "tool",
    members: &[("name", CelType::Text), ("native", CelType::Text), ("server", CelType::Text)],
};
const ITEM_FORM: RecordForm = RecordForm {
    name: "item",
    members: &[
        ("kind", CelType::Text),
        ("name", CelType::Text),
        ("native", CelType::Text),
        ("server", CelType::Text),
    ],
};
const CLIENT_FORM: RecordForm = RecordForm {
    name: "client",
    members: &[("name", CelType::Text), ("version", CelType::Text), ("era", CelType::Text)],
};
const REQUEST_FORM: RecordForm = RecordForm {
    name: "request",
    members: &[
        ("method", CelType::Text),
        ("profile", CelType::Text),
        ("address", CelType::Text),
        ("transport", CelType::Text),
    ],
};

/// The variables.
pub(super) const CONDITION_VARIABLES: [(&str, CelType); 8] = [
    ("principal", CelType::RecordForm(&PRINCIPAL_FORM)),
    ("claims", CelType::Map),
    ("tool", CelType::RecordForm(&TOOL_FORM)),
    ("item", CelType::RecordForm(&ITEM_FORM)),
    ("annotations", CelType::Map),
    ("arguments", CelType::Map),
    ("client", CelType::RecordForm(&CLIENT_FORM)),
    ("request", CelType::RecordForm(&REQUEST_FORM)),
];

/// One function: its name, its target, the types of its arguments, and its result.
pub(super) struct FunctionForm {
    pub(super) name: &'static str,
    pub(super) target: Option<CelType>,
    pub(super) arguments: &'static [CelType],
    pub(super) result: CelType,
}

const fn method(name: &'static str, result: CelType) -> FunctionForm {
    FunctionForm { name, target: Some(CelType::Text), arguments: &[CelType::Text], result }
}

const fn conversion(name: &'static str, result: CelType) -> FunctionForm {
    FunctionForm { name, target: None, arguments: &[CelType::Dynamic], result }
}

/// The functions, besides the macros `has`, `all`, `exists`, `exists_one`, `map` and `filter`.
pub(super) const CONDITION_FUNCTIONS: [FunctionForm; 13] = [
    method("contains", CelType::Bool),
    method("startsWith", CelType::Bool),
    method("endsWith", CelType::Bool),
    method("matches", CelType::Bool),
    FunctionForm {
        name: "size",
        target: Some(CelType::Dynamic),
        arguments: &[],
        result: CelType::Number,
    },
    conversion("size", CelType::Number),
    conversion("int", CelType::Number),
    conversion("uint", CelType::Number),
    conversion("double", CelType::Number),
    conversion("string", CelType::Text),
    conversion("bytes", CelType::Bytes),
    conversion("bool", CelType::Bool),
    conversion("dyn", CelType::Dynamic),
];
