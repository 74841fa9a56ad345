//! Orders for a model in languages other than English.
//!
//! Each language names the words of an order; the rules combine them. Words are in lower case and
//! without accents, like the searched texts.

use super::latin_words::LATIN_LANGUAGES;
use super::script_words::SCRIPT_LANGUAGES;
use crate::scan::ScanRule;

/// The words of one language, each field alternatives of a pattern.
pub(crate) struct LanguageWords {
    /// Verbs that ask to ignore something.
    pub(crate) ignore: &'static str,
    /// Adjectives of a model's instructions: previous, all, its own.
    pub(crate) earlier: &'static str,
    /// Instructions of a model.
    pub(crate) orders: &'static str,
    /// Phrases that ask for silence about something.
    pub(crate) hush: &'static str,
    /// The user.
    pub(crate) user: &'static str,
    /// Verbs that ask to read or pass something on.
    pub(crate) send: &'static str,
    /// Credentials.
    pub(crate) secrets: &'static str,
    /// The conversation, or the system prompt.
    pub(crate) talk: &'static str,
    /// Phrases that ask to act without a question.
    pub(crate) unasked: &'static str,
    /// The order of words.
    pub(crate) verbs: VerbPlace,
}

/// The position of a verb in an order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerbPlace {
    BeforeObject,
    AfterObject,
    Either,
}

/// Returns the patterns of languages that are written in Latin letters.
pub(crate) fn latin_rules() -> impl Iterator<Item = (ScanRule, String)> {
    let copies = (ScanRule::Redirection, HIDDEN_COPIES.to_owned());
    list_rules(LATIN_LANGUAGES).chain([copies])
}

/// Returns the patterns of languages with letters of their own. No ASCII text matches them.
pub(crate) fn script_rules() -> impl Iterator<Item = (ScanRule, String)> {
    list_rules(SCRIPT_LANGUAGES)
}

fn list_rules(languages: &[LanguageWords]) -> impl Iterator<Item = (ScanRule, String)> {
    languages.iter().flat_map(|words| {
        [
            (ScanRule::Override, words.combine(words.ignore, &words.describe_orders(), 80)),
            (ScanRule::Concealment, join_either(words.hush, words.user, 80)),
            (ScanRule::Secrets, words.combine(words.send, &words.list_secrets(), 120)),
            (ScanRule::Conversation, words.combine(words.send, words.talk, 120)),
            (ScanRule::Persona, format!("(?:{})", words.unasked)),
        ]
    })
}

impl LanguageWords {
    /// The instructions of a model, with the adjective on either side.
    fn describe_orders(&self) -> String {
        format!("{}|{SYSTEM_PROMPTS}", join_either(self.earlier, self.orders, 60))
    }

    /// The credentials, and their files.
    fn list_secrets(&self) -> String {
        format!("{}|{SECRET_FILES}", self.secrets)
    }

    /// Combines a verb and its object within a sentence.
    fn combine(&self, verb: &str, object: &str, most: usize) -> String {
        match self.verbs {
            VerbPlace::BeforeObject => join_words(verb, object, most),
            VerbPlace::AfterObject => join_words(object, verb, most),
            VerbPlace::Either => join_either(verb, object, most),
        }
    }
}

fn join_words(first: &str, second: &str, most: usize) -> String {
    format!(r"(?:{first})[^.!?;]{{0,{most}}}?(?:{second})")
}

fn join_either(first: &str, second: &str, most: usize) -> String {
    format!("{}|{}", join_words(first, second, most), join_words(second, first, most))
}

/// The system prompt, which needs no adjective.
const SYSTEM_PROMPTS: &str = "system-?prompt|prompt (?:du |de |do |del )?(?:systeme|sistema)\
    |systeemprompt|prompt\\S* systemow|sistem prompt|prompt sistem|系统提示|系統提示|系统指令\
    |システムプロンプト|시스템 프롬프트|системн\\S* промпт";

/// Files with credentials.
const SECRET_FILES: &str = r"\.ssh/|\bid_rsa|\bid_ed25519|\.aws/|\.kube/config|/etc/passwd|/etc/shadow|\.netrc|\.npmrc|\.git-credentials|\.pypirc";

/// Copies that the user does not see, with an address.
const HIDDEN_COPIES: &str = r"(?:\bbcc\b|\bcco\b|\bcci\b|\bccn\b|blindkopie|blind kopi|copie cachee|copia oculta|copia nascosta|kopie verborgen|ukryt\S* kopi|skryt\S* kopi|gizli kopya|salinan tersembunyi|скрыт\S* копи|прихован\S* копі|скрито копие|κρυφη κοινοποιηση|نسخة مخفية|نسخة سرية|رونوشت مخفي|עותק מוסתר|密送|密件|密抄|숨은 참조|비밀 참조|गुप्त प्रति|สำเนาลับ)[^!?]{0,120}?(?:@|https?:)|@[^!?;]{0,80}?(?:\bbcc\b|密送|密件|密抄|숨은 참조|gizli kopya)";
