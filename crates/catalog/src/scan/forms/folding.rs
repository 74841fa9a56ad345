//! The forms of a text that the rules search: without accents and invisible characters, and with
//! each letter read as the Latin letter that it resembles.

use std::iter::once;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_canonical, is_combining_mark};
use unicode_security::confusable_detection::skeleton;

use trunkline_core::text::is_invisible;

/// Returns the text in lower case, without accents and invisible characters.
pub(crate) fn fold_text(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut folded = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !is_invisible(*c)).nfc().flat_map(char::to_lowercase) {
        push_plain(c, &mut folded);
    }
    folded
}

/// Returns a pattern in the form of the texts that it searches. Its ASCII characters are unchanged.
pub(crate) fn fold_pattern(pattern: &str) -> String {
    let mut folded = String::with_capacity(pattern.len());
    for c in pattern.chars().nfc() {
        if c.is_ascii() { folded.push(c) } else { push_plain(c, &mut folded) }
    }
    folded
}

/// Returns the text with compatibility characters and lookalike letters replaced (NFKC and the
/// confusables of UTS 39), or `None` if that is the text itself.
pub(crate) fn fold_lookalikes(text: &str) -> Option<String> {
    if text.is_ascii() {
        return None;
    }
    let plain = fold_text(text);
    if plain.is_ascii() {
        return None;
    }
    let visible = text.chars().filter(|c| !is_invisible(*c)).nfkc();
    let mut folded = String::with_capacity(text.len());
    let mut word = Vec::new();
    for c in visible.chain(once(' ')) {
        if c.is_alphanumeric() || read_symbol(c).is_some() {
            word.push(c);
        } else if !is_stripped_mark(c) {
            push_word(&word, &mut folded);
            word.clear();
            push_plain(c, &mut folded);
        }
    }
    folded.pop();
    (folded != plain).then_some(folded)
}

/// Appends a word in the alphabet that most of its letters resemble.
fn push_word(word: &[char], folded: &mut String) {
    if !word.iter().all(char::is_ascii) {
        let latin: Option<String> = word.iter().map(|c| read_as_latin(*c)).collect();
        if let Some(latin) = latin {
            return folded.push_str(&latin);
        }
    }
    let is_cyrillic = word.iter().any(|c| matches!(c, '\u{400}'..='\u{52f}'));
    for c in word.iter().flat_map(|c| c.to_lowercase()) {
        let cyrillic = if is_cyrillic { read_as_cyrillic(c) } else { None };
        push_plain(cyrillic.unwrap_or(c), folded);
    }
}

/// Appends a character in lower case, without its accents.
fn push_plain(c: char, folded: &mut String) {
    match c {
        c if c.is_ascii() => folded.push(c.to_ascii_lowercase()),
        'ß' => folded.push_str("ss"),
        'æ' => folded.push_str("ae"),
        'œ' => folded.push_str("oe"),
        'ø' => folded.push('o'),
        'ł' => folded.push('l'),
        'đ' | 'ð' => folded.push('d'),
        'ı' => folded.push('i'),
        'ё' => folded.push('е'),
        'ς' => folded.push('σ'),
        'ά' => folded.push('α'),
        'έ' => folded.push('ε'),
        'ή' => folded.push('η'),
        'ί' => folded.push('ι'),
        'ό' => folded.push('ο'),
        'ύ' => folded.push('υ'),
        'ώ' => folded.push('ω'),
        'أ' | 'إ' | 'آ' | 'ٱ' => folded.push('ا'),
        'ى' | 'ی' => folded.push('ي'),
        'ک' => folded.push('ك'),
        'ـ' => {}
        '’' | '‘' | 'ʼ' | '´' => folded.push('\''),
        c if c.is_whitespace() => folded.push(' '),
        c if is_stripped_mark(c) => {}
        '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => {
            let mut base = c;
            let mut is_first = true;
            decompose_canonical(c, |part| {
                if is_first {
                    base = part;
                }
                is_first = false;
            });
            folded.push(base);
        }
        c => folded.push(c),
    }
}

/// Returns true for accents and vowel points that are not needed to read a text.
fn is_stripped_mark(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5c7}' | '\u{64b}'..='\u{65f}'
        | '\u{670}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}'
        | '\u{fe20}'..='\u{fe2f}')
}

/// Returns the Latin letter that a character resembles, in lower case.
fn read_as_latin(c: char) -> Option<char> {
    if c.is_ascii() {
        return Some(c.to_ascii_lowercase());
    }
    let lower = c.to_lowercase().next().unwrap_or(c);
    let sources = [read_prototype(c), read_prototype(lower)];
    // The prototype of the capital I is the small L, so the letter of the lower case is better.
    let prototype = sources.into_iter().flatten().find(|letter| c == lower || *letter != 'l');
    read_symbol(c).or(prototype).or_else(|| read_loosely(lower))
}

/// Returns the ASCII letter or digit with the same prototype in the table of confusables.
fn read_prototype(c: char) -> Option<char> {
    let mut buffer = [0; 4];
    let prototype = skeleton(c.encode_utf8(&mut buffer));
    let prototype: String = prototype.filter(|c| !is_combining_mark(*c)).collect();
    let mut chars = prototype.chars();
    match (chars.next(), chars.next()) {
        (Some(letter), None) if letter.is_ascii_alphanumeric() => Some(letter.to_ascii_lowercase()),
        _ => {
            let letters = &*LETTERS_BY_PROTOTYPE;
            letters.iter().find(|(known, _)| *known == prototype).map(|(_, letter)| *letter)
        }
    }
}

/// The small letters with another text as their prototype, such as `rn` for `m`.
static LETTERS_BY_PROTOTYPE: LazyLock<Vec<(String, char)>> = LazyLock::new(|| {
    let prototype = |letter: char| skeleton(&letter.to_string()).collect::<String>();
    let letters = ('a'..='z').map(|letter| (prototype(letter), letter));
    letters.filter(|(known, letter)| *known != letter.to_string()).collect()
});

/// Returns the letter of a symbol that spells words: a flag, a sign, a small capital or Braille.
fn read_symbol(c: char) -> Option<char> {
    if c.is_ascii() {
        return None;
    }
    let from = |first: char| char::from_u32(u32::from(c) - u32::from(first) + u32::from('a'));
    match c {
        '\u{1f1e6}'..='\u{1f1ff}' => from('\u{1f1e6}'),
        '\u{1f150}'..='\u{1f169}' => from('\u{1f150}'),
        '\u{1f170}'..='\u{1f189}' => from('\u{1f170}'),
        _ => SYMBOL_ALPHABETS.iter().find_map(|symbols| {
            let at = symbols.chars().position(|symbol| symbol == c)?;
            char::from_u32(u32::from('a') + u32::try_from(at).ok()?)
        }),
    }
}

/// Returns the Latin letter that a reader sees in a letter within a Latin word, although the table
/// of confusables does not have the pair.
fn read_loosely(c: char) -> Option<char> {
    LOOSE_PAIRS.iter().find(|(from, _)| *from == c).map(|(_, to)| *to)
}

/// Returns the Cyrillic letter that a Latin letter resembles.
fn read_as_cyrillic(c: char) -> Option<char> {
    let at = "aceopxykmhtbi".chars().position(|from| from == c)?;
    "асеорхукмнтві".chars().nth(at)
}

/// The alphabet in small capitals and in Braille.
const SYMBOL_ALPHABETS: [&str; 2] = ["ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡ⨯ʏᴢ", "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵"];
/// Pairs of letters that only resemble each other within a word.
const LOOSE_PAIRS: &[(char, char)] = &[
    ('к', 'k'),
    ('т', 't'),
    ('п', 'n'),
    ('г', 'r'),
    ('и', 'n'),
    ('в', 'b'),
    ('н', 'h'),
    ('м', 'm'),
    ('ь', 'b'),
    ('я', 'r'),
    ('у', 'y'),
    ('х', 'x'),
    ('ш', 'w'),
    ('α', 'a'),
    ('β', 'b'),
    ('γ', 'y'),
    ('δ', 'd'),
    ('ε', 'e'),
    ('η', 'n'),
    ('ι', 'i'),
    ('κ', 'k'),
    ('λ', 'l'),
    ('μ', 'u'),
    ('ν', 'v'),
    ('π', 'n'),
    ('ρ', 'p'),
    ('σ', 'o'),
    ('τ', 't'),
    ('υ', 'u'),
    ('χ', 'x'),
    ('ω', 'w'),
    ('ς', 's'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accents_and_invisible_characters_are_left_out() {
        for (text, folded) in [
            ("Instruções Précédentes", "instrucoes precedentes"),
            ("i\u{336}g\u{336}n\u{200b}ore", "ignore"),
            ("Güvenliği Łódź Weiß", "guvenligi lodz weiss"),
            ("ещё йод", "еще йод"),
            ("أَرْسِل", "ارسل"),
        ] {
            assert_eq!(fold_text(text), folded);
        }
    }

    #[test]
    fn lookalike_letters_are_read_as_the_letters_that_they_resemble() {
        for (text, folded) in [
            ("іgnоrе аll", "ignore all"),
            ("Ｉｇｎｏｒｅ", "ignore"),
            ("𝐢𝐠𝐧𝐨𝐫𝐞 𝔞𝔩𝔩", "ignore all"),
            ("ⓘⓖⓝⓞⓡⓔ", "ignore"),
            ("ɪɢɴᴏʀᴇ", "ignore"),
            ("ΙGΝΟRΕ", "ignore"),
            ("🅘🅖🅝🅞🅡🅔", "ignore"),
            ("⠊⠛⠝⠕⠗⠑", "ignore"),
            ("игнoрируй", "игнорируй"),
            ("ігпоrе", "irnore"),
            ("ргеvіоυѕ", "previous"),
        ] {
            assert_eq!(fold_lookalikes(text).as_deref(), Some(folded), "{text}");
        }
        assert_eq!(fold_lookalikes("Prévisions météo"), None);
        assert_eq!(fold_lookalikes("Погода"), None);
    }
}
