//! An argument that is a name or the bare FILE of a configuration.

use std::path::{Path, PathBuf};

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

    /// Returns the name and the file of two arguments in either order. `read` reads a word as the first
    /// of them.
    ///
    /// # Errors
    /// The text for people, if both are names or both are files.
    pub(crate) fn pair(
        first: Option<&Self>,
        second: Option<&Path>,
        read: fn(&str) -> Result<Self, String>,
    ) -> Result<NameAndFile, String> {
        let Some(second) = second else {
            let (name, file) = Self::split(first);
            return Ok((name.map(str::to_owned), file));
        };
        let word = second.to_str().map_or_else(|| Ok(Self::File(second.to_owned())), read)?;
        match (first, word) {
            (Some(Self::File(file)), Self::Name(name)) => Ok((Some(name), Some(file.clone()))),
            (Some(Self::File(file)), Self::File(_)) => Err(describe_repeated_file(&file.display())),
            (Some(Self::Name(first)), Self::Name(second)) => Err(format!(
                "{first:?} and {second:?} are read as names, and one is expected: a file with such a \
                 name is written with its folder, ./{second}"
            )),
            (None, Self::Name(_)) => Ok((None, Some(second.to_owned()))),
            (first, Self::File(file)) => {
                let (name, _) = Self::split(first);
                Ok((name.map(str::to_owned), Some(file)))
            }
        }
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

/// A name, and the file of a configuration.
pub(crate) type NameAndFile = (Option<String>, Option<PathBuf>);

/// Describes a configuration that is named more than once.
pub(crate) fn describe_repeated_file(file: &dyn std::fmt::Display) -> String {
    format!("the configuration is named twice: as FILE \"{file}\", and once more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_file_are_told_apart_in_either_order() {
        let pair = |first: &str, second: &str, read: fn(&str) -> Result<NameOrFile, String>| {
            NameOrFile::pair(Some(&read(first).unwrap()), Some(Path::new(second)), read)
        };
        let both = |name: &str, file: &str| Ok((Some(name.to_owned()), Some(file.into())));
        let (server, version) =
            (NameOrFile::read_server as fn(&str) -> _, NameOrFile::read_version);
        assert_eq!(pair("git", "g.toml", server), both("git", "g.toml"));
        assert_eq!(pair("g.toml", "git", server), both("git", "g.toml"));
        assert_eq!(pair("7", "gateway", version), both("7", "gateway"));
        assert_eq!(pair("gateway", "7", version), both("7", "gateway"));
        assert_eq!(pair("git", "./gateway", server), both("git", "./gateway"));
        for (first, second, words) in
            [("git", "gateway", "./gateway"), ("g.toml", "h.toml", "named twice")]
        {
            let fault = pair(first, second, server).unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
    }

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
