//! The rules of a scan, their weights and names.

use super::{HELD_WEIGHT, REPORTED_WEIGHT};

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
    /// Orders the model to ignore its instructions.
    Override,
    /// Orders the model to conceal something from the user.
    Concealment,
    /// Mentions the location of credentials, as something to read or send.
    Secrets,
    /// Markup of prompts: `<system>`, `<IMPORTANT>`.
    PromptMarkup,
    /// Gives the model another role, or removes restrictions.
    Persona,
    /// Asks for the conversation or the system prompt.
    Conversation,
    /// Sends a copy of data to others.
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
    /// Orders that a reader of the text does not see: lookalike letters, escapes, separated
    /// letters.
    DisguisedOrders,
    /// More text than is searched for orders.
    TooLong,
}

impl ScanRule {
    /// Returns the weight of the rule.
    pub(super) fn weight(self) -> u32 {
        match self {
            Self::TagCharacters
            | Self::BidiControls
            | Self::InvisibleCharacters
            | Self::TerminalEscapes
            | Self::MixedAlphabets
            | Self::Override
            | Self::EncodedOrders => HELD_WEIGHT,
            Self::ConfusableName
            | Self::Concealment
            | Self::Secrets
            | Self::PromptMarkup
            | Self::Persona
            | Self::Conversation
            | Self::Redirection
            | Self::ShellCommand
            | Self::TooLong
            | Self::DisguisedOrders
            | Self::EncodedText => REPORTED_WEIGHT,
            Self::Precedence | Self::Pressure | Self::ForeignTool => 1,
        }
    }

    /// Returns true for a rule about words. Such rules are significant together if they are near
    /// each other.
    pub(super) fn is_about_words(self) -> bool {
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

    /// Returns its name in logs and `/status`.
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
            Self::DisguisedOrders => "disguised orders for the model",
        }
    }
}
