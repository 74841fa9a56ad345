//! What in a definition is meant to deceive a person or to steer a model.
//!
//! Pure and linear in the definition, which is bounded. Each rule adds its weight; what is found
//! counts from [`REPORTED`] on, and is grave from [`GRAVE`] on. Rules that honest definitions break,
//! too, count only together, and rules about words only within one passage: the documentation of a
//! large API has most of these words somewhere.

mod characters;
mod confusables;
mod instructions;
mod payloads;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use super::item::MAX_ITEM_DEPTH;
use crate::jsonrpc::parse_strict;
use crate::text::clip;

pub use confusables::ConfusableNames;
use instructions::FoundOrders;

/// A rule that a definition breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScanRule {
    /// Characters of the tags block, which repeat ASCII invisibly.
    TagCharacters,
    /// Controls that reverse the reading direction of text without right-to-left letters.
    BidiControls,
    /// Invisible characters within words, or many in a row.
    InvisibleCharacters,
    /// Escape sequences of terminals.
    TerminalEscapes,
    /// Letters of several alphabets in one word of the name.
    MixedAlphabets,
    /// A name that looks like that of another server's tool or prompt.
    ConfusableName,
    /// Tells the model to ignore its instructions.
    Override,
    /// Tells the model to keep something from the user.
    Concealment,
    /// Mentions where credentials are stored, as something to read or send.
    Secrets,
    /// Markup of prompts: `<system>`, `<IMPORTANT>`.
    PromptMarkup,
    /// Gives the model another role, or removes restrictions.
    Persona,
    /// Asks for the conversation or the system prompt.
    Conversation,
    /// Sends a copy of data to somebody else.
    Redirection,
    /// Claims to come before other tools, or steers the model away from them.
    Precedence,
    /// Threatens that the tool fails unless it is obeyed.
    Pressure,
    /// Gives orders about a tool of another server.
    ForeignTool,
    /// Commands for a shell.
    ShellCommand,
    /// Text that is encoded in Base64 or hexadecimal digits.
    EncodedText,
    /// Encoded text that gives orders.
    EncodedOrders,
    /// More text than is searched for orders.
    TooLong,
}

impl ScanRule {
    /// How much the rule counts.
    fn weight(self) -> u32 {
        match self {
            Self::TagCharacters
            | Self::BidiControls
            | Self::InvisibleCharacters
            | Self::TerminalEscapes
            | Self::MixedAlphabets
            | Self::Override
            | Self::EncodedOrders => GRAVE,
            Self::ConfusableName
            | Self::Concealment
            | Self::Secrets
            | Self::PromptMarkup
            | Self::Persona
            | Self::Conversation
            | Self::Redirection
            | Self::ShellCommand
            | Self::TooLong
            | Self::EncodedText => REPORTED,
            Self::Precedence | Self::Pressure | Self::ForeignTool => 1,
        }
    }

    /// Whether the rule is about words, which mean something together if they are near each other.
    fn is_about_words(self) -> bool {
        matches!(
            self,
            Self::Override
                | Self::Concealment
                | Self::Secrets
                | Self::PromptMarkup
                | Self::Persona
                | Self::Conversation
                | Self::Redirection
                | Self::Precedence
                | Self::Pressure
                | Self::ForeignTool
                | Self::ShellCommand
        )
    }

    /// Its name in logs and `/status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::TagCharacters => "invisible tag characters",
            Self::BidiControls => "reversed reading direction",
            Self::InvisibleCharacters => "invisible characters",
            Self::TerminalEscapes => "terminal escape sequences",
            Self::MixedAlphabets => "letters of several alphabets in the name",
            Self::ConfusableName => "a name like that of another server's",
            Self::Override => "tells the model to ignore instructions",
            Self::Concealment => "tells the model to keep something from the user",
            Self::Secrets => "asks for credentials",
            Self::PromptMarkup => "markup of prompts",
            Self::Persona => "gives the model another role",
            Self::Conversation => "asks for the conversation",
            Self::Redirection => "sends copies to others",
            Self::Precedence => "claims to come before other tools",
            Self::Pressure => "threatens to fail",
            Self::ForeignTool => "gives orders about other servers' tools",
            Self::ShellCommand => "shell commands",
            Self::EncodedText => "encoded text",
            Self::TooLong => "more text than a scan reads",
            Self::EncodedOrders => "encoded orders for the model",
        }
    }
}

/// What a scan has found in one definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanFindings {
    rules: Vec<ScanRule>,
    /// The weight of the passage that breaks most rules about words.
    passage: u32,
}

impl ScanFindings {
    /// Scans an element of a server's list: every text in it, keys included.
    pub fn scan(name: &str, raw: &[u8]) -> Self {
        let mut texts = Vec::new();
        match parse_strict(raw, MAX_ITEM_DEPTH) {
            Ok(value) => collect_texts(value, &mut texts),
            Err(_) => texts.push(String::from_utf8_lossy(raw).into_owned()),
        }
        let mut found = Self::default();
        if confusables::mixes_alphabets(name) {
            found.add(ScanRule::MixedAlphabets);
        }
        let mut orders = FoundOrders::default();
        let mut read = 0;
        for text in &texts {
            characters::find_hidden(text, &mut found);
            let searched = clip(text, MOST_TEXT - read);
            orders.search(searched, read);
            payloads::find_encoded(searched, &mut found);
            read += searched.len();
            if searched.len() < text.len() {
                found.add(ScanRule::TooLong);
            }
        }
        found.passage = orders.heaviest_passage();
        orders.rules().for_each(|rule| found.add(rule));
        found
    }

    /// Whether a rule is broken.
    fn has(&self, rule: ScanRule) -> bool {
        self.rules.contains(&rule)
    }

    /// Adds a broken rule; each counts once.
    pub fn add(&mut self, rule: ScanRule) {
        if !self.has(rule) {
            self.rules.push(rule);
        }
    }

    /// The broken rules, if they count together.
    pub fn rules(&self) -> &[ScanRule] {
        if self.weight() >= REPORTED { &self.rules } else { &[] }
    }

    /// Whether the definition is to be held. A long one is not for its length: resources of
    /// Kubernetes take a megabyte.
    pub fn is_grave(&self) -> bool {
        let length = if self.has(ScanRule::TooLong) { ScanRule::TooLong.weight() } else { 0 };
        self.weight() - length >= GRAVE
    }

    fn weight(&self) -> u32 {
        let others = self.rules.iter().filter(|rule| !rule.is_about_words());
        others.map(|rule| rule.weight()).sum::<u32>() + self.passage
    }
}

impl fmt::Display for ScanFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.rules().iter().map(|rule| rule.name()).collect();
        f.write_str(&names.join(", "))
    }
}

/// All texts in a value. The depth is bounded by the parser.
fn collect_texts(value: Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.into_iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(members) => {
            for (key, value) in members {
                texts.push(key);
                collect_texts(value, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// How many bytes of a definition's texts are searched for orders. Hidden characters are found in all.
const MOST_TEXT: usize = 256 * 1024;
/// From which weight on findings are reported.
const REPORTED: u32 = 2;
/// From which weight on a definition is held.
const GRAVE: u32 = 4;
