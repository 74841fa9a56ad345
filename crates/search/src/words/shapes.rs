//! The meaning of a word's shape: `#general` is a channel, `ABC-12` an issue, `example.com` a site.
//!
//! Such words are in no definition, but indicate the kind of thing that a query is about.

/// The words for the shapes in a query, each once, with the text that has the shape.
pub(crate) fn find_shapes(question: &str) -> Vec<(&str, &'static [&'static str])> {
    let mut found: Vec<(&str, &'static [&'static str])> = Vec::new();
    for token in question.split_whitespace().take(MAX_TOKENS) {
        let opening = |c: char| matches!(c, '(' | '[' | '"' | '\'' | '`' | '“' | '„' | '«' | '<');
        let closing = |c: char| {
            matches!(
                c,
                ')' | ']'
                    | '"'
                    | '\''
                    | '`'
                    | '”'
                    | '“'
                    | '»'
                    | '>'
                    | ','
                    | '.'
                    | ';'
                    | ':'
                    | '?'
                    | '!'
            )
        };
        let token = token.trim_start_matches(opening).trim_end_matches(closing);
        if let Some(words) = classify_token(token)
            && !found.iter().any(|(_, known)| *known == words)
        {
            found.push((token, words));
        }
    }
    found
}

fn classify_token(token: &str) -> Option<&'static [&'static str]> {
    if !token.is_ascii() || token.len() < 2 || token.len() > MAX_TOKEN {
        return None;
    }
    if let Some(rest) = token.strip_prefix('#') {
        let is_number = rest.bytes().all(|byte| byte.is_ascii_digit());
        return Some(if is_number { ISSUE_TERMS } else { CHANNEL_TERMS });
    }
    if token.contains("://") || token.starts_with("www.") {
        return Some(URL_TERMS);
    }
    if let Some((name, domain)) = token.split_once('@') {
        let is_email = !name.is_empty() && domain.contains('.');
        return if is_email { Some(EMAIL_TERMS) } else { name.is_empty().then_some(USER_TERMS) };
    }
    if let Some((_, ending)) = token.rsplit_once('.') {
        let ending = ending.to_ascii_lowercase();
        if let Some((_, words)) = FILE_ENDINGS.iter().find(|(all, _)| all.contains(&&*ending)) {
            return Some(words);
        }
    }
    if is_issue_key(token) {
        return Some(ISSUE_TERMS);
    }
    if is_cell(token) {
        return Some(CELL_TERMS);
    }
    if is_flight(token) {
        return Some(FLIGHT_TERMS);
    }
    if is_coordinate(token) {
        return Some(COORDINATE_TERMS);
    }
    if token.starts_with('/') || token.starts_with("~/") || token.starts_with("./") {
        return Some(PATH_TERMS);
    }
    None
}

/// `ABC-12`
fn is_issue_key(token: &str) -> bool {
    token.split_once('-').is_some_and(|(project, number)| {
        let is_project = project.bytes().all(|byte| byte.is_ascii_uppercase());
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        (2..=10).contains(&project.len()) && is_project && !number.is_empty() && is_number
    })
}

/// `B2`, `A1:C9`
fn is_cell(token: &str) -> bool {
    token.split(':').count() <= 2
        && token.split(':').all(|cell| {
            let digits = cell.trim_start_matches(|c: char| c.is_ascii_uppercase());
            let letters = cell.len() - digits.len();
            let is_row = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            letters == 1 && is_row && digits.len() <= 4
        })
}

/// `LH441`
fn is_flight(token: &str) -> bool {
    token.split_at_checked(2).is_some_and(|(airline, number)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        airline.bytes().all(|byte| byte.is_ascii_uppercase())
            && (2..=4).contains(&number.len())
            && is_number
    })
}

/// `46.55`
fn is_coordinate(token: &str) -> bool {
    token.trim_start_matches('-').split_once('.').is_some_and(|(degrees, rest)| {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (1..=3).contains(&degrees.len()) && rest.len() >= 2 && is_number(degrees) && is_number(rest)
    })
}

const ISSUE_TERMS: &[&str] = &["issue", "jira"];
const CHANNEL_TERMS: &[&str] = &["channel", "slack"];
const URL_TERMS: &[&str] = &["url", "page"];
const SITE_TERMS: &[&str] = &["url", "site", "domain"];
const EMAIL_TERMS: &[&str] = &["email", "user"];
const USER_TERMS: &[&str] = &["user"];
const FILE_TERMS: &[&str] = &["file"];
const SPREADSHEET_TERMS: &[&str] = &["spreadsheet", "excel", "file"];
const IMAGE_TERMS: &[&str] = &["image", "file"];
const DOCUMENT_TERMS: &[&str] = &["document", "file"];
const SLIDE_TERMS: &[&str] = &["presentation", "powerpoint"];
const MEDIA_TERMS: &[&str] = &["video", "audio", "media"];
const CELL_TERMS: &[&str] = &["cell"];
const FLIGHT_TERMS: &[&str] = &["flight"];
const COORDINATE_TERMS: &[&str] = &["coordinates", "latitude", "location"];
const PATH_TERMS: &[&str] = &["file", "directory", "path"];

/// The meaning of the endings of names.
const FILE_ENDINGS: [(&[&str], &[&str]); 7] = [
    (&["xlsx", "xls", "csv", "ods"], SPREADSHEET_TERMS),
    (&["png", "jpg", "jpeg", "gif", "svg", "webp"], IMAGE_TERMS),
    (&["pdf", "docx", "doc", "odt"], DOCUMENT_TERMS),
    (&["pptx", "ppt", "odp"], SLIDE_TERMS),
    (&["mp3", "mp4", "wav", "mov", "avi", "mkv", "webm"], MEDIA_TERMS),
    (
        &["com", "org", "net", "io", "dev", "de", "fr", "es", "it", "uk", "eu", "jp", "cn"],
        SITE_TERMS,
    ),
    (
        &[
            "txt", "md", "json", "yaml", "yml", "toml", "xml", "html", "css", "js", "ts", "py",
            "rs", "go", "java", "c", "h", "cpp", "rb", "php", "sh", "sql", "log", "ini", "conf",
            "env", "lock",
        ],
        FILE_TERMS,
    ),
];

/// The longest word that is checked for a shape.
const MAX_TOKEN: usize = 100;
/// The most words that are checked for a shape.
const MAX_TOKENS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_reveal_the_subject_of_a_question() {
        for (question, word) in [
            ("what is new in #general?", "channel"),
            ("close #123", "issue"),
            ("who works on ABC-12?", "issue"),
            ("read https://example.com/a", "url"),
            ("is example.com down?", "site"),
            ("write to ana@example.com", "email"),
            ("ask @ana", "user"),
            ("open notes.txt.", "file"),
            ("sum of B2:B9", "cell"),
            ("has LH441 landed?", "flight"),
            ("how high is 46.55, 7.98", "coordinates"),
            ("what is in /srv/docs", "directory"),
        ] {
            let found = find_shapes(question);
            assert!(found.iter().any(|(_, words)| words.contains(&word)), "{question}: {found:?}");
        }
    }

    #[test]
    fn ordinary_words_have_none() {
        for question in [
            "create an issue",
            "read-only access",
            "v1.2 of it",
            "e.g. 12.",
            "C++ and C#",
            "",
            "état",
        ] {
            assert_eq!(find_shapes(question), [], "{question}");
        }
    }
}
