//! Arguments of a call on the command line.

use serde_json::{Map, Value};

/// A text that is not `KEY=VALUE`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: expected KEY=VALUE")]
pub(in crate::cli) struct PairError {
    text: String,
}

/// Reads `KEY=VALUE`: a value is JSON if it can be read as such, and a text otherwise.
pub(in crate::cli) fn read_pairs(pairs: &[String]) -> Result<Map<String, Value>, PairError> {
    let read = |pair: &String| {
        let fault = || PairError { text: pair.clone() };
        let (key, value) = pair.split_once('=').ok_or_else(fault)?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        Ok((key.to_owned(), value))
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
        assert_eq!(Value::Object(read), expected);
        assert!(read_pairs(&["x".to_owned()]).is_err());
    }
}
