//! Arguments of a call on the command line.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// A text that is not `KEY=VALUE`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: expected KEY=VALUE")]
pub(crate) struct PairError {
    text: String,
}

/// The arguments by their names, as they are written: numbers keep all their digits.
pub(crate) type ArgumentPairs = BTreeMap<String, Box<RawValue>>;

/// Reads `KEY=VALUE`: a value is JSON if it can be read as such, and a text otherwise.
pub(crate) fn read_pairs(pairs: &[String]) -> Result<ArgumentPairs, PairError> {
    let read = |pair: &String| {
        let fault = || PairError { text: pair.clone() };
        let (key, value) = pair.split_once('=').ok_or_else(fault)?;
        let is_json = serde_json::from_str::<Value>(value).is_ok();
        let read = if is_json { serde_json::from_str(value) } else { to_raw_value(value) };
        Ok((key.to_owned(), read.map_err(|_| fault())?))
    };
    pairs.iter().map(read).collect()
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
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        let read = read_pairs(&["id=123456789012345678901".to_owned()]).unwrap();
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(written, r#"{"id":123456789012345678901}"#);
    }
}
