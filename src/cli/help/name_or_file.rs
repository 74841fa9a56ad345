//! An argument that is a name or the bare FILE of a configuration.

use std::path::PathBuf;

use crate::call::ServerName;

/// The first argument of a command that accepts a name, or a bare FILE. A file whose name could be one
/// is written with its folder: `./7`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameOrFile {
    /// A server, or the number of a version.
    Name(String),
    /// The configuration.
    File(PathBuf),
}

/// Id of the argument.
pub(crate) const NAME_OR_FILE: &str = "name_or_file";

impl NameOrFile {
    /// Reads a server or a file: a word that no server can be named is a file.
    #[allow(clippy::unnecessary_wraps, reason = "clap expects a result")]
    pub(crate) fn read_server(text: &str) -> Result<Self, String> {
        Ok(match ServerName::new(text) {
            Ok(_) => Self::Name(text.to_owned()),
            Err(_) => Self::File(text.into()),
        })
    }

    /// Reads the number of a version or a file.
    pub(crate) fn read_version(text: &str) -> Result<Self, String> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self::File(text.into()));
        }
        let number: Result<u64, _> = text.parse();
        number.map_or_else(
            |fault| Err(fault.to_string()),
            |number| Ok(Self::Name(number.to_string())),
        )
    }

    /// Returns the name and the file of the argument.
    pub(crate) fn split(argument: Option<&Self>) -> (Option<&str>, Option<PathBuf>) {
        match argument {
            None => (None, None),
            Some(Self::Name(name)) => (Some(name), None),
            Some(Self::File(file)) => (None, Some(file.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_cannot_be_a_name_is_a_file() {
        let name = |text: &str| Ok(NameOrFile::Name(text.to_owned()));
        let file = |text: &str| Ok(NameOrFile::File(text.into()));
        for (text, server, version) in [
            ("git", name("git"), file("git")),
            ("7", name("7"), name("7")),
            ("gateway.toml", file("gateway.toml"), file("gateway.toml")),
            ("./7", file("./7"), file("./7")),
        ] {
            assert_eq!(NameOrFile::read_server(text), server, "{text}");
            assert_eq!(NameOrFile::read_version(text), version, "{text}");
        }
        assert!(NameOrFile::read_version("99999999999999999999").is_err());
    }
}
