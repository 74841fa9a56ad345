//! Orders for a model, in the words that attacks use.
//!
//! Each pattern takes time linear in the text, from which invisible characters are left out.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use super::ScanRule;
use crate::text::is_invisible;

/// The orders in the texts of a definition, and where they are.
#[derive(Debug, Default)]
pub(super) struct FoundOrders(Vec<(usize, ScanRule)>);

impl FoundOrders {
    /// Adds the orders in a text that begins at this position among the texts.
    pub(super) fn search(&mut self, text: &str, start: usize) {
        if text.len() < SHORTEST {
            return;
        }
        let text = if text.is_ascii() {
            text.to_ascii_lowercase()
        } else {
            text.chars().filter(|c| !is_invisible(*c)).flat_map(char::to_lowercase).collect()
        };
        for (rule, pattern) in PATTERNS.iter() {
            // Most texts match nothing, which is found out faster than where they match.
            if pattern.is_match(text.as_bytes()) {
                let places = pattern.find_iter(text.as_bytes()).take(MOST_PLACES);
                self.0.extend(places.map(|place| (start + place.start(), *rule)));
            }
        }
    }

    /// The weight of the passage that breaks most rules, each of which counts once.
    pub(super) fn heaviest_passage(&mut self) -> u32 {
        self.0.sort_unstable();
        let mut near: HashMap<ScanRule, usize> = HashMap::new();
        let (mut weight, mut heaviest) = (0, 0);
        let mut begins = self.0.iter().peekable();
        for (place, rule) in &self.0 {
            let times = near.entry(*rule).or_default();
            *times += 1;
            if *times == 1 {
                weight += rule.weight();
            }
            while let Some((_, left)) = begins.next_if(|(begin, _)| begin + PASSAGE <= *place) {
                let times = near.entry(*left).or_default();
                *times -= 1;
                if *times == 0 {
                    weight -= left.weight();
                }
            }
            heaviest = heaviest.max(weight);
        }
        heaviest
    }

    /// The rules that are broken.
    pub(super) fn rules(&self) -> impl Iterator<Item = ScanRule> {
        self.0.iter().map(|(_, rule)| *rule)
    }
}

static PATTERNS: LazyLock<Vec<(ScanRule, Regex)>> = LazyLock::new(|| {
    let compile = |(rule, pattern): &(ScanRule, &str)| {
        // Words of every alphabet, repeated, make automata that take ten times as long to build:
        // only patterns of languages that need them have them.
        let compiled = RegexBuilder::new(pattern)
            .unicode(!pattern.is_ascii())
            .dot_matches_new_line(true)
            .build();
        // A test compiles all of them.
        compiled.ok().map(|pattern| (*rule, pattern))
    };
    RULES.iter().filter_map(compile).collect()
});

/// The patterns of each rule, in lower case, as the text is that they search. A dot matches line
/// ends, too.
static RULES: &[(ScanRule, &str)] = &[
    // Ignore what you were told.
    (
        ScanRule::Override,
        r"\b(ignor(e|ing)|disregard(ing)?|forget|overrid(e|es|ing)|supersed(e|es|ing)|bypass)\b\W+(\w+\W+){0,4}(previous|prior|earlier|preceding|above|foregoing|former|original|initial|system|safety|developer)\b\W+(\w+\W+){0,3}(instruct|guid|prompt|rule|direct|command|polic|restrict|told|constraint)",
    ),
    // Parameters of honest APIs override a system's default message.
    (
        ScanRule::Override,
        r"\b(ignor(e|ing)|disregard(ing)?|forget)\b\W+(\w+\W+){0,4}(previous|prior|earlier|preceding|above|original|initial|system|safety|developer)\b\W+(\w+\W+){0,3}message",
    ),
    (
        ScanRule::Override,
        r"\b(ignore|disregard|forget|override|bypass)\b\W+(all|any|your|every|the|everything)\b\W+(\w+\W+){0,2}(instructions|guidelines|guidance|guardrails|restrictions|training|safety)\b",
    ),
    (
        ScanRule::Override,
        r"\b(disregard|forget|ignore) everything\b.{0,40}\b(above|before|told|said|earlier|previous)",
    ),
    (
        ScanRule::Override,
        r"\b(takes?|has|have) (precedence|priority) over\b.{0,40}\b((system|user|developer|your)('s)? (\w+ )?(message|rule|request|polic|wish|setting)|instructions?\b|(system )?prompts?\b|guidelines?\b)",
    ),
    (ScanRule::Override, r"\bignorier\w*\b\W+(\w+\W+){0,4}(anweisung|instruktion|vorgabe|befehl)"),
    (ScanRule::Override, r"\b(vergiss|missachte)\b\W+(\w+\W+){0,4}(anweisung|instruktion|vorgabe)"),
    (
        ScanRule::Override,
        r"\b(ignor(e|ez|er)|oublie[rz]?)\b\W+(\w+\W+){0,4}(instructions|consignes|directives)",
    ),
    (
        ScanRule::Override,
        r"\b(ignor(a|e|ar|ad)|olvida)\b.{1,50}\b(instrucciones|indicaciones|instruções|istruzioni)",
    ),
    (
        ScanRule::Override,
        r"\b(ignor(a|e|are|ar)|dimentica|esqueça)\b.{1,50}\b(istruzioni|instruções)",
    ),
    (ScanRule::Override, r"(игнорируй|забудь|игнорировать).{1,50}\b(инструкци|указани|правил)"),
    (ScanRule::Override, r"(忽略|无视|無視|忘记|忽視).{0,12}(指令|指示|说明|說明|提示|命令)"),
    (ScanRule::Override, r"(以前|これまで|上記|すべて).{0,10}(指示|命令).{0,6}(無視|忘れ)"),
    (ScanRule::Override, r"(이전|위의|모든).{0,12}(지시|명령|지침).{0,6}(무시|잊)"),
    // Do not tell the user.
    (
        ScanRule::Concealment,
        r"\b(do not|don'?t|never|must not|should not|without|avoid|need not|no need to|not)\b[^\w.!?;]+(\w+[^\w.!?;]+){0,3}(tell|inform|mention|reveal|disclos|notify|alert|explain|telling|warn|let)\w*\b[^\w.!?;]+(\w+[^\w.!?;]+){0,8}(user|human|customer|operator|them|him|anyone)\b",
    ),
    (
        ScanRule::Concealment,
        r"\b(hid(e|den)|conceal(ed)?|keep|kept|invisible|secret(ly)?|silently|quietly)\b\W+(\w+\W+){0,5}(from|to|without)\b\W+(\w+\W+){0,2}(user|human|customer|operator)\b",
    ),
    (
        ScanRule::Concealment,
        r"\b(user|human|customer)s?\b.{0,30}\b(does not need to|doesn'?t need to|must not|should not|need not|must never|should never|cannot) (know|see|learn|notice|be told|be informed)",
    ),
    (
        ScanRule::Concealment,
        r"\bwithout (the )?(user|human)'?s? (knowledge|knowing|noticing|consent|approval)",
    ),
    (
        ScanRule::Concealment,
        r"\b(do not|don'?t|never)\b\W+(mention|reveal|disclose|discuss|log|display)\b.{0,25}\b(this (step|instruction|parameter|tool|note|request|behaviou?r)|these (steps|instructions))",
    ),
    (
        ScanRule::Concealment,
        r"\b(benutzer|nutzer|anwender)\w*\b.{0,30}\b(nicht|nichts|niemals)\b|\b(sage?|teile|informiere|erwähne)\b.{0,30}\b(benutzer|nutzer|anwender)\w*\b.{0,20}\b(nicht|nichts|niemals)\b",
    ),
    (
        ScanRule::Concealment,
        r"n['’](informe|avertis|dis|mentionne)\w* (pas|jamais|rien).{0,30}utilisateur|ne (dis|dites|mentionne\w*|préviens|révèle\w*) (pas|rien|jamais).{0,30}utilisateur",
    ),
    (
        ScanRule::Concealment,
        r"\bno\b.{0,12}\b(digas|informes|menciones|reveles|cuentes)\b.{0,20}\busuario|\b(não|non)\b.{0,12}\b(diga|informe|mencione|dire|informare|rivelare)\b.{0,20}\b(usuário|utente)",
    ),
    (ScanRule::Concealment, r"не (сообщай|говори|рассказывай|упоминай)\w*.{0,20}пользовател"),
    (
        ScanRule::Concealment,
        r"(不要|请勿|切勿|別|不得).{0,4}(告诉|告知|告訴|通知|透露|提及).{0,6}(用户|用戶|使用者)|ユーザー.{0,6}(言わない|知らせない|伝えない|秘密)|사용자.{0,8}(알리지|말하지)",
    ),
    // Read where credentials are.
    (
        ScanRule::Secrets,
        r"\b(read|open|cat|load|access|include|copy|send|attach|pass|append|put|upload|fetch|collect|extract|paste|supply|provide|contents?|dump|print|encode)\b.{0,80}(\.ssh\b|\bid_(rsa|ed25519|ecdsa|dsa)\b|\.aws/|\.netrc\b|\.npmrc\b|\.git-credentials|\.kube/config|\.gnupg|/etc/(passwd|shadow)|\.env\b (file|and|into|as)|mcp\.json\b|\.docker/config|keychain|wallet\.dat|\.bash_history|\.zsh_history)",
    ),
    (
        ScanRule::Secrets,
        r"\b(send|include|attach|pass|append|put|upload|forward|paste|transmit|leak|report|exfiltrate)\b.{0,50}\b(api[ _-]?keys?|passwords?|access tokens?|private keys?|environment variables|credentials|secrets|session cookies?|seed phrase)\b.{0,60}\b(argument|parameter|field|with (each|every)|to (the|this) (server|tool|url|endpoint)|as|in the|into)\b",
    ),
    // Markup of prompts.
    (
        ScanRule::PromptMarkup,
        r"</?\s*(system|important|instructions?|secret|hidden|admin|sys|critical|override|assistant|priority)[\w -]{0,20}>|\[/?(inst|system|sys|important instructions?)\]|<\|(im_start|im_end|system|user|assistant)[^>]{0,12}\|?>|<<\s*/?sys\s*>>|###\s*(system|instruction)\b",
    ),
    (
        ScanRule::PromptMarkup,
        r"<!--.{0,400}(assistant|model|agent|ai\b|must|instruction|send|read).{0,400}-->|(^|\n)\s*(system|assistant)\s*(prompt|message|note|notice|instruction)?\s*:",
    ),
    // Another role.
    (
        ScanRule::Persona,
        r"\byou are (now|no longer)\b.{0,60}\b(mode|restrict|assistant|unrestricted|admin|root|bound|free|limit)|\b(developer|god|dan|jailbreak|unrestricted|admin(istrator)?|debug|maintenance) mode\b.{0,60}\b(enabled|without|no restrictions?|unrestricted|activated|active|bypass)|\bact as (an? )?(unrestricted|jailbroken|root|different)",
    ),
    (
        ScanRule::Persona,
        r"\bwithout (asking|confirm(ing|ation)|requesting (permission|approval)|prompting)\b.{0,40}\b(user|permission|anyone|first|for)\b|\b(approve|execute|run|accept)\b.{0,60}\bwithout (asking|question|confirmation|hesitation)",
    ),
    // The conversation.
    (
        ScanRule::Conversation,
        r"\b(send|include|pass|copy|attach|forward|append|put|provide|summari[sz]e|paste|with|add|supply|fill|repeat|upload|transmit|report|log)\b.{0,60}\b((full|entire|complete|whole|previous|all|last|earlier) (\w+ ){0,3}(conversation|chat|messages|dialogue|prompts?|e-?mails?|context)|(conversation|chat|message) (history|log|transcript|so far)|system prompt|user'?s? (last|previous|original) (\w+ ){0,2}(message|prompt|email|question)s?)\b",
    ),
    (
        ScanRule::Conversation,
        r"\b(reveal|print|output|repeat|disclose|leak|return)\b.{0,30}\b(system|hidden|developer|initial) (prompt|instructions|message)",
    ),
    // Copies for others.
    (
        ScanRule::Redirection,
        r"\b(bcc|cc|forward|redirect|copy|send|sent|copied|forwarded|duplicate|post|mirror)\b.{0,60}\b(all|every|each|any|also|a copy|copies)\b.{0,60}(@[\w-]+\.[a-z]|https?://)|\b(also|always|additionally|silently|secretly)\b.{0,30}\b(bcc|cc|forward|send|sent|copy|post|upload|report|transmit)\b.{0,80}(@[\w-]+\.[a-z]|https?://)",
    ),
    (
        ScanRule::Redirection,
        r"\b(change|replace|rewrite|substitute|swap|alter)\b.{0,30}\b(recipient|address|account number|iban|phone number|destination|payee|wallet)\b",
    ),
    // Before all others.
    (
        ScanRule::Precedence,
        r"\b(before|prior to)\b.{0,20}\b(using|calling|invoking|running|executing)?\s*(this|any|any other|every|other|all other|another) tools?\b|\b(must|should)( always)? be (called|used|invoked|run) (first|before|every)|\balways (call|use|run|invoke) this tool\b|\bbefore (any|every) (other )?(tool|action|answer|response)",
    ),
    (
        ScanRule::Precedence,
        r"\b(instead of|rather than|never use|do not use|don'?t use|refuse|avoid)\b.{0,40}\b(any|all|every|other|another|that|the other) (\w+ )?(tools?|servers?|one)\b|\beven if the user\b",
    ),
    (
        ScanRule::Precedence,
        r"\bfirst\b,?\s+(read|open|send|load|fetch|cat|collect|copy)\b|\bprior to calling this\b|\bbefore (using|calling|running|reviewing|answering)\b.{0,25}\b(read|open|send|load|collect)\b",
    ),
    // Or else.
    (
        ScanRule::Pressure,
        r"\b(otherwise|or else|fails? otherwise|will (fail|break|not work|be wrong|be blocked|crash)( unless| otherwise)?|unless you|if you do not|required for (compliance|security|audit|verification)|mandatory|non-negotiable|it is (critical|crucial|vital) that you)\b",
    ),
    // Tools of others.
    (
        ScanRule::ForeignTool,
        r"\b(when|whenever|if|after|before|each time|every time)\b.{0,40}\b[a-z0-9-]{2,32}__[a-z0-9_]{2,}\b|\b(when|whenever|if|each time|every time)\b.{0,30}\b(the )?[a-z0-9_-]{3,40} (tool|server)\b.{0,30}\b(is|are|gets?|was)\b.{0,20}\b(used|called|present|available|invoked|connected|enabled)",
    ),
    // A shell.
    (
        ScanRule::ShellCommand,
        r"\b(curl|wget)\b[^\n]{0,120}(\|\s*(ba|z)?sh\b|--data|-d\s|-f\s|\$\()|\brm -rf\b|base64 -d|\bnc -e\b|/dev/tcp/|\beval\(|powershell(\.exe)? -e(nc)?\b|\bcat\b[^\n]{0,60}\|\s*(curl|nc|base64)\b",
    ),
];

/// The fewest bytes of an order; most keys and types are shorter.
const SHORTEST: usize = 8;
/// The bytes within which rules count together.
const PASSAGE: usize = 1024;
/// The most places of one pattern in one text.
const MOST_PLACES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(PATTERNS.len(), RULES.len());
    }

    #[test]
    fn no_pattern_asks_for_an_upper_case_letter() {
        for (_, pattern) in RULES {
            let classes = pattern.replace("\\W", "").replace("\\S", "").replace("\\D", "");
            assert_eq!(classes, classes.to_lowercase());
        }
    }
}
