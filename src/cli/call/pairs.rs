//! Arguments of a call on the command line.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

/// Reason that texts are not arguments.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PairError {
    /// A text has no sign.
    #[error("{text:?}: expected KEY=VALUE")]
    NoSign {
        /// The text.
        text: String,
    },
    /// Two texts have the same key.
    #[error("the argument {key:?} is given twice")]
    Duplicate {
        /// The key.
        key: String,
    },
}

/// The arguments by their names, as they are written: numbers keep all their digits.
pub(crate) type ArgumentPairs = BTreeMap<String, Box<RawValue>>;

/// Reads `KEY=VALUE`: a value is JSON if it can be read as such, and a text otherwise.
///
/// # Errors
/// [`PairError`].
pub(crate) fn read_pairs(pairs: &[String]) -> Result<ArgumentPairs, PairError> {
    let mut read = ArgumentPairs::new();
    for pair in pairs {
        let no_sign = || PairError::NoSign { text: pair.clone() };
        let (key, value) = pair.split_once('=').ok_or_else(no_sign)?;
        // Not as a tree of values, which has no number like 1E400.
        let value = serde_json::from_str(value).or_else(|_| to_raw_value(value));
        let value: Box<RawValue> = value.map_err(|_| no_sign())?;
        if read.insert(key.to_owned(), value).is_some() {
            return Err(PairError::Duplicate { key: key.to_owned() });
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_json_if_they_can_be() {
        let pairs = ["n=1", "b=true", "s=main", "q=\"1\"", "o={\"a\":[1]}", "e=", "u=a=b"];
        let read = read_pairs(&pairs.map(str::to_owned)).unwrap();
        let expected = json!({
            "n": 1, "b": true, "s": "main", "q": "1", "o": { "a": [1] }, "e": "", "u": "a=b",
        });
        assert_eq!(json!(read), expected);
        assert!(read_pairs(&["x".to_owned()]).is_err());
        let twice = ["x=1", "y=1", "x=1"].map(str::to_owned);
        let duplicate = PairError::Duplicate { key: "x".to_owned() };
        assert_eq!(read_pairs(&twice).unwrap_err(), duplicate);
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        let read = read_pairs(&["id=123456789012345678901".to_owned(), "x=1E400".to_owned()]);
        let written = serde_json::to_string(&read.unwrap()).unwrap();
        assert_eq!(written, r#"{"id":123456789012345678901,"x":1E400}"#);
    }
}
