//! Counters of names and words in code and comments.

use super::VAGUE_WORDS;

/// The structs, enums and traits that are defined in a piece of code.
pub fn type_names(code: &str) -> Vec<String> {
    let kinds = ["struct ", "enum ", "trait "];
    code.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let rest = kinds.iter().find_map(|kind| public_or_not(line).strip_prefix(kind))?;
            Some(rest.chars().take_while(|c| is_word(*c)).collect())
        })
        .filter(|name: &String| !name.is_empty()) // a macro's `$name`
        .collect()
}

/// A definition without its `pub` or `pub(…)`.
fn public_or_not(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |r| r.1);
    rest.strip_prefix(' ').unwrap_or(line)
}

pub fn function_names(code: &str) -> Vec<String> {
    let names = code.match_indices("fn ").filter_map(|(at, _)| {
        let begins = code[..at].chars().next_back().is_none_or(|c| !is_word(c));
        let name: String = code[at + 3..].chars().take_while(|c| is_word(*c)).collect();
        (begins && name.starts_with(|c: char| c.is_lowercase() || c == '_')).then_some(name)
    });
    names.collect()
}

/// Counts of words in comments.
#[derive(Default)]
pub struct WordCounts {
    pub words: usize,
    pub vague: [usize; VAGUE_WORDS.len()],
    pub doc_comments: usize,
    pub questions: usize,
}

impl WordCounts {
    /// Counts the comments that are lines of their own.
    pub fn add(&mut self, code: &str) {
        let mut is_within_doc = false;
        for line in code.lines().map(str::trim) {
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(comment) = doc.or_else(|| line.strip_prefix("//")) {
                self.add_words(comment);
            }
            if let Some(first) = doc.filter(|_| !is_within_doc) {
                self.doc_comments += 1;
                let first = first.trim_start().split(|c| !is_word(c)).next().unwrap_or_default();
                self.questions += usize::from(QUESTION_WORDS.contains(&first));
            }
            is_within_doc = doc.is_some();
        }
    }

    fn add_words(&mut self, comment: &str) {
        for word in comment.split(|c: char| !c.is_ascii_alphabetic() && c != '\'') {
            let word = word.to_ascii_lowercase();
            self.words += usize::from(!word.is_empty());
            for (count, (vague, _)) in self.vague.iter_mut().zip(&VAGUE_WORDS) {
                *count += usize::from(vague.contains(&word.as_str()));
            }
        }
    }
}

/// The parameters of functions that are tuple patterns.
pub fn tuple_parameters(code: &str) -> usize {
    let definitions = code
        .match_indices("fn ")
        .filter(|(at, _)| code[..*at].chars().next_back().is_none_or(|before| !is_word(before)));
    definitions.map(|(at, _)| tuples_among(&code[at + 3..])).sum()
}

/// The tuple patterns in the parameter list of a definition that begins with the function's name.
fn tuples_among(definition: &str) -> usize {
    let (mut depth, mut generics, mut tuples, mut is_at_start) = (0, 0, 0, false);
    let mut before = ' ';
    for c in definition.chars() {
        match c {
            '<' if depth == 0 => generics += 1,
            '>' if depth == 0 && before != '-' => generics -= 1,
            _ if generics > 0 => {}
            '(' | '[' | '{' => {
                tuples += usize::from(c == '(' && depth == 1 && is_at_start);
                depth += 1;
                is_at_start = depth == 1;
            }
            ')' | ']' | '}' => {
                depth -= 1;
                if depth == 0 {
                    return tuples;
                }
            }
            ',' => is_at_start = depth == 1,
            ';' if depth == 0 => return tuples,
            c => is_at_start &= c.is_whitespace(),
        }
        before = c;
    }
    tuples
}

/// The constants of modules, not of types or functions, with a name of one word.
pub fn one_word_constants(code: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = public_or_not(line);
        let rest = line.strip_prefix("const ").or_else(|| line.strip_prefix("static "))?;
        let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
        (!name.contains('_') && name.starts_with(char::is_uppercase)).then_some(name)
    };
    code.lines().filter_map(name).collect()
}

/// The constants, also of types and functions, whose name begins with a superlative.
pub fn superlative_constants(code: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = public_or_not(line.trim_start());
        let rest = line.strip_prefix("const ").or_else(|| line.strip_prefix("static "))?;
        let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
        let first = name.split('_').next()?;
        ["MOST", "LONGEST", "LARGEST", "SHORTEST", "LEAST"].contains(&first).then_some(name)
    };
    code.lines().filter_map(name).collect()
}

/// The results whose value is a result, perhaps an optional one, without the spaces in them.
pub fn nested_results(code: &str) -> Vec<String> {
    let text: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    let inner = ["Result<Result<", "Result<Option<Result<"];
    let found = inner.iter().flat_map(|inner| text.match_indices(inner));
    found.map(|(at, _)| text[at..].chars().take(60).collect()).collect()
}

/// The types that implement `Error`, by derivation or by hand.
pub fn error_types(code: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| is_word(*c)).collect::<String>();
    let derived = code.match_indices("thiserror::Error").filter_map(|(at, _)| {
        let rest = &code[at..];
        let items = ["struct ", "enum "].into_iter().filter_map(|kind| {
            let at = rest.find(kind)?;
            Some((at, &rest[at + kind.len()..]))
        });
        items.min_by_key(|(at, _)| *at).map(|(_, item)| name(item))
    });
    let by_hand = code.lines().filter_map(|line| {
        let (before, of) = line.trim_start().split_once("Error for ")?;
        let is_trait = before.ends_with("error::") || before.ends_with(' ');
        (before.starts_with("impl") && is_trait).then(|| name(of))
    });
    derived.chain(by_hand).collect()
}

/// Words that doc comments do not begin with.
const QUESTION_WORDS: [&str; 5] = ["What", "Whether", "How", "Why", "Whose"];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
