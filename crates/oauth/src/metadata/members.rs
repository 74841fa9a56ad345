//! Members of OAuth documents, read as the official SDKs read them: `null` means absent, and some
//! members have alternative forms that authorization servers are known to write.

use serde::{Deserialize, Deserializer};

/// Reads an optional member. `null` means absent.
pub(crate) fn null_as_absent<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a list of words, which may be one text with spaces between them, or `null`.
pub(crate) fn word_list<'de, D>(deserializer: D) -> Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(optional_words(deserializer)?.unwrap_or_default())
}

/// Like [`word_list`], but returns `None` for `null`.
pub(crate) fn optional_words<'de, D>(deserializer: D) -> Result<Option<Vec<String>>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum WordsForm {
        Text(String),
        List(Vec<String>),
    }
    Ok(Option::deserialize(deserializer)?.map(|words| match words {
        WordsForm::Text(text) => text.split_ascii_whitespace().map(str::to_owned).collect(),
        WordsForm::List(list) => list,
    }))
}

/// Reads a flag, which may be its text, or `null`. Anything else is an error: an unreadable promise
/// must not count as none.
pub(crate) fn flag<'de, D>(deserializer: D) -> Result<bool, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum FlagForm {
        Flag(bool),
        Text(String),
    }
    match Option::deserialize(deserializer)? {
        None => Ok(false),
        Some(FlagForm::Flag(flag)) => Ok(flag),
        Some(FlagForm::Text(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(FlagForm::Text(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(FlagForm::Text(_)) => Err(serde::de::Error::custom("expected true or false")),
    }
}

/// Reads a number of seconds, which may be its text. Any other value counts as absent: the token is
/// valid without it, and its server refuses the token once it has expired.
pub(crate) fn seconds<'de, D>(deserializer: D) -> Result<Option<f64>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SecondsForm {
        Number(f64),
        Text(String),
        Other(serde::de::IgnoredAny),
    }
    let number = match SecondsForm::deserialize(deserializer)? {
        SecondsForm::Number(number) => Some(number),
        SecondsForm::Text(text) => text.trim().parse().ok(),
        SecondsForm::Other(_) => None,
    };
    Ok(number.filter(|number: &f64| number.is_finite() && *number >= 0.0))
}
