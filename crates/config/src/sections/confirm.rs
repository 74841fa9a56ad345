//! `confirm`: the calls that need the user's consent.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};

/// The calls that need the user's consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfirmChoice {
    /// None.
    Never,
    /// All.
    Always,
    /// Calls of tools that may destroy something: all tools except those that a `trusted` server
    /// declares harmless.
    Destructive,
}

impl Setting for ConfirmChoice {
    type Value = Self;

    fn kind_word() -> String {
        "boolean or `\"destructive\"`".into()
    }

    fn example_value() -> String {
        "true, false or \"destructive\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if let DeValue::Boolean(value) = node.value {
            return Some(if *value { Self::Always } else { Self::Never });
        }
        match node.expect_plain_string::<Self>(reader)? {
            DESTRUCTIVE_WORD => Some(Self::Destructive),
            other => {
                node.refuse_choice(other, &[DESTRUCTIVE_WORD], reader);
                None
            }
        }
    }

    fn json_schema() -> Json {
        json!({ "enum": [true, false, DESTRUCTIVE_WORD] })
    }

    fn allowed_words() -> &'static [(&'static str, &'static str)] {
        &[(
            DESTRUCTIVE_WORD,
            " before calls of all tools except those annotated with `readOnlyHint = true` or \
             `destructiveHint = false`, if the server is `trusted`",
        )]
    }
}

const DESTRUCTIVE_WORD: &str = "destructive";
