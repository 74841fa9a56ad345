//! The whole subject of a certificate, as text.

use std::fmt::{self, Write as _};

/// The subject of a certificate: a distinguished name (RFC 4514), the most special part first, as in
/// `CN=ci,OU=Build,O=Example`. Kept in one form, so that equal names are equal texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SubjectName(String);

/// An attribute of a distinguished name: its type, such as `CN` or `2.5.4.5`, and its value.
type NameAttribute = (String, String);

impl SubjectName {
    /// Makes a name of its parts, the most special first, each with its attributes.
    pub fn from_parts(parts: impl IntoIterator<Item = Vec<NameAttribute>>) -> Self {
        let mut text = String::new();
        for (place, mut part) in parts.into_iter().enumerate() {
            // A part with several attributes is a set.
            part.sort_unstable();
            for (at, (kind, value)) in part.into_iter().enumerate() {
                text.push_str(match (place, at) {
                    (0, 0) => "",
                    (_, 0) => ",",
                    _ => "+",
                });
                let _ = write!(text, "{}=", kind.to_ascii_uppercase());
                for character in value.chars() {
                    if ESCAPED_CHARACTERS.contains(&character) {
                        text.push('\\');
                    }
                    text.push(character);
                }
            }
        }
        Self(text)
    }

    /// Reads a name as `openssl x509 -noout -subject -nameopt RFC2253,-esc_msb` prints it; `None`
    /// if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = vec![Vec::new()];
        let mut characters = text.chars().peekable();
        loop {
            let kind: String = characters.by_ref().take_while(|it| *it != '=').collect();
            let kind = kind.trim();
            let is_type = |it: char| it.is_ascii_alphanumeric() || it == '.' || it == '-';
            if kind.is_empty() || !kind.chars().all(is_type) {
                return None;
            }
            let (value, end) = read_value(&mut characters)?;
            parts.last_mut()?.push((kind.to_owned(), value));
            match end {
                Some('+') => {}
                Some(_) => parts.push(Vec::new()),
                None => return Some(Self::from_parts(parts)),
            }
        }
    }
}

impl fmt::Display for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a value up to the character that ends it, which is consumed as well; `None` if it is empty
/// or malformed.
fn read_value(characters: &mut impl Iterator<Item = char>) -> Option<(String, Option<char>)> {
    let (mut value, mut end) = (Vec::new(), None);
    while let Some(character) = characters.next() {
        match character {
            ',' | '+' => {
                end = Some(character);
                break;
            }
            '\\' => value.extend(read_escaped(characters)?),
            '"' | ';' | '<' | '>' => return None,
            plain => value.extend(plain.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    let value = String::from_utf8(value).ok()?;
    (!value.trim().is_empty()).then_some((value, end))
}

/// Reads the characters after a backslash: a special character, or a byte in hexadecimal.
fn read_escaped(characters: &mut impl Iterator<Item = char>) -> Option<Vec<u8>> {
    let first = characters.next()?;
    let Some(high) = first.to_digit(16) else {
        let is_special = ESCAPED_CHARACTERS.contains(&first) || first == ' ';
        return is_special.then(|| first.encode_utf8(&mut [0; 4]).as_bytes().to_vec());
    };
    let low = characters.next()?.to_digit(16)?;
    Some(vec![u8::try_from(high * 16 + low).ok()?])
}

/// The characters that are written with a backslash before them.
const ESCAPED_CHARACTERS: [char; 9] = ['\\', ',', '+', '"', ';', '<', '>', '=', '#'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        for (text, expected) in [
            ("CN=ci", Some("CN=ci")),
            ("cn=ci, ou=Build,O=Example", Some("CN=ci,OU=Build,O=Example")),
            (r"CN=a\,OU=b,O=x", Some(r"CN=a\,OU\=b,O=x")),
            (r"CN=J\C3\B6rg", Some("CN=Jörg")),
            ("CN=Jörg", Some("CN=Jörg")),
            ("UID=7+CN=ann,O=x", Some("CN=ann+UID=7,O=x")),
            ("2.5.4.5=12,CN=x", Some("2.5.4.5=12,CN=x")),
            ("", None),
            ("CN=", None),
            ("CN=x,", None),
            ("CN", None),
            ("=x", None),
            (r"CN=x\", None),
            (r"CN=x\F", None),
            (r"CN=\FF", None),
            ("C N=x", None),
            ("CN=\"x\"", None),
            ("CN=x;O=y", None),
        ] {
            let parsed = SubjectName::parse(text);
            assert_eq!(parsed.as_ref().map(|it| &*it.0), expected, "{text}");
            if let Some(name) = parsed {
                assert_eq!(SubjectName::parse(&name.to_string()), Some(name), "{text}");
            }
        }
    }

    #[test]
    fn text_within_a_value_is_not_a_part_of_the_name() {
        let one = |kind: &str, value: &str| vec![(kind.to_owned(), value.to_owned())];
        let forged = SubjectName::from_parts([one("CN", "ci,OU=Build"), one("O", "x")]);
        assert_ne!(Some(forged), SubjectName::parse("CN=ci,OU=Build,O=x"));
    }
}
