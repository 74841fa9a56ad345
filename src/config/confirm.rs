//! `confirm`: before which calls the user is asked.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::reader::{ConfigNode, ConfigReader};
use super::setting::Setting;

/// Before which calls the user is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfirmChoice {
    /// Before none.
    Never,
    /// Before each.
    Always,
    /// Before each of a tool that may destroy something: all but those of which a `trusted` server
    /// says that they do not.
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
            DESTRUCTIVE => Some(Self::Destructive),
            other => {
                node.refuse_choice(other, &[DESTRUCTIVE], reader);
                None
            }
        }
    }

    fn json_schema() -> Json {
        json!({ "enum": [true, false, DESTRUCTIVE] })
    }

    fn allowed_words() -> &'static [(&'static str, &'static str)] {
        &[(
            DESTRUCTIVE,
            " before calls of all tools but those whose annotations say `readOnlyHint = true` or \
             `destructiveHint = false`, if the server is `trusted`",
        )]
    }
}

const DESTRUCTIVE: &str = "destructive";
