//! Edits `gateway.toml` on behalf of a person: comments and order stay, the result is checked as
//! `trunkline check` does before anything is written, and a file that changed meanwhile is not
//! touched.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use similar::TextDiff;
use toml_edit::{DocumentMut, Item, Table};

use crate::codec::file::FileError;
use crate::config::{
    Color, Config, ConfigFaults, ConfigSource, Environment, Secret, SystemEnvironment,
};

use super::replace_file::{ReplaceError, read_existing, replace_file};
use super::serve::settings;

/// Why the file was not edited.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayFileError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] ReplaceError),
    /// The file is not UTF-8.
    #[error("{}: expected text in UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
    },
    /// The file is not TOML; `trunkline check` tells more.
    #[error("{}: invalid TOML: run `trunkline check --config {}` first", path.display(), path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
    },
    /// The section is not a table that entries can be added to.
    #[error("{}: `{section}` is an inline table; write [{section}.NAME] tables instead", path.display())]
    InlineSection {
        /// The file.
        path: PathBuf,
        /// `servers` or `profiles`.
        section: &'static str,
    },
    /// The configuration would be invalid.
    #[error("nothing was written, because the configuration would be invalid:\n{faults}")]
    Invalid {
        /// All faults, below their lines.
        faults: String,
    },
}

/// A configuration file while it is edited.
#[derive(Debug)]
pub(super) struct GatewayFile {
    path: PathBuf,
    /// The bytes as they were read, `None` if there was no file.
    before: Option<Vec<u8>>,
    document: DocumentMut,
}

/// A section whose entries are tables with names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatewaySection {
    Servers,
    Profiles,
}

impl GatewaySection {
    /// The key of the section.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Servers => "servers",
            Self::Profiles => "profiles",
        }
    }
}

impl GatewayFile {
    /// Opens the file; one that does not exist is empty.
    ///
    /// # Errors
    /// [`GatewayFileError`].
    pub(super) fn open(path: &Path) -> Result<Self, GatewayFileError> {
        let before = read_existing(path, ConfigSource::MAX_LEN)?;
        let bytes = before.clone().unwrap_or_default();
        let text = String::from_utf8(bytes)
            .map_err(|_| GatewayFileError::NotUtf8 { path: path.to_owned() })?;
        let document =
            text.parse().map_err(|_| GatewayFileError::Syntax { path: path.to_owned() })?;
        Ok(Self { path: path.to_owned(), before, document })
    }

    /// The folder of the file, absolute: paths in the configuration are relative to it.
    pub(super) fn folder(&self) -> PathBuf {
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        path.parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// Whether a section has an entry of this name.
    pub(super) fn has_entry(&self, section: GatewaySection, name: &str) -> bool {
        let entries = self.document.get(section.key()).and_then(Item::as_table_like);
        entries.is_some_and(|entries| entries.contains_key(name))
    }

    /// The text as edited.
    pub(super) fn text(&self) -> String {
        self.document.to_string()
    }

    /// Adds the entry that a block of TOML contains, behind the others of its section. Comments
    /// above it come along.
    ///
    /// # Errors
    /// [`GatewayFileError`].
    pub(super) fn add_entry(
        &mut self,
        section: GatewaySection,
        name: &str,
        block: &str,
    ) -> Result<(), GatewayFileError> {
        let syntax = || GatewayFileError::Syntax { path: self.path.clone() };
        let mut block: DocumentMut = block.parse().map_err(|_| syntax())?;
        let entry = block.get_mut(section.key()).and_then(Item::as_table_mut);
        let Some(Item::Table(mut entry)) = entry.and_then(|entries| entries.remove(name)) else {
            return Err(syntax());
        };
        // Without a position of its own it follows the entry before it.
        forget_positions(&mut entry);
        let is_first = self.document.is_empty();
        let entries = self.section_table(section)?;
        if is_first {
            trim_prefix(&mut entry);
        }
        entries.insert(name, Item::Table(entry));
        Ok(())
    }

    /// Adds lines of comments at the end.
    pub(super) fn add_comment(&mut self, lines: &str) {
        let trailing = self.document.trailing().as_str().unwrap_or_default().to_owned();
        let gap = if self.document.is_empty() && trailing.is_empty() { "" } else { "\n" };
        let break_line = if trailing.is_empty() || trailing.ends_with('\n') { "" } else { "\n" };
        self.document.set_trailing(format!("{trailing}{break_line}{gap}{}\n", lines.trim_end()));
    }

    /// Removes an entry with the comments above it. `false` if there is none.
    ///
    /// # Errors
    /// [`GatewayFileError::InlineSection`].
    pub(super) fn remove_entry(
        &mut self,
        section: GatewaySection,
        name: &str,
    ) -> Result<bool, GatewayFileError> {
        if !self.has_entry(section, name) {
            return Ok(false);
        }
        Ok(self.section_table(section)?.remove(name).is_some())
    }

    fn section_table(&mut self, section: GatewaySection) -> Result<&mut Table, GatewayFileError> {
        let key = section.key();
        let error = GatewayFileError::InlineSection { path: self.path.clone(), section: key };
        let entries = self.document.entry(key).or_insert_with(|| {
            let mut entries = Table::new();
            entries.set_implicit(true);
            Item::Table(entries)
        });
        entries.as_table_mut().ok_or(error)
    }

    /// The edited configuration, read as `serve` reads it.
    ///
    /// # Errors
    /// All faults.
    pub(super) fn read_config(&self, pending: &PendingFiles) -> Result<Config, ConfigFaults> {
        read_text(&self.source_name(), &self.folder(), self.text(), pending)
    }

    /// Reads a piece of configuration as if it were in a file of this folder.
    ///
    /// # Errors
    /// All faults.
    pub(super) fn read_piece(
        &self,
        text: String,
        pending: &PendingFiles,
    ) -> Result<Config, ConfigFaults> {
        read_text(&self.source_name(), &self.folder(), text, pending)
    }

    fn source_name(&self) -> String {
        self.path.display().to_string()
    }

    /// Checks the edited configuration as `trunkline check` does.
    ///
    /// # Errors
    /// [`GatewayFileError::Invalid`].
    pub(super) fn check(&self, pending: &PendingFiles) -> Result<Config, GatewayFileError> {
        let config = self
            .read_config(pending)
            .map_err(|faults| GatewayFileError::Invalid { faults: faults.render(Color::Never) })?;
        match settings::of(&config) {
            Ok(_) => Ok(config),
            Err(faults) => Err(GatewayFileError::Invalid { faults: faults.join("\n") }),
        }
    }

    /// Writes the edited file.
    ///
    /// # Errors
    /// [`ReplaceError`].
    pub(super) fn write(&self) -> Result<(), ReplaceError> {
        replace_file(&self.path, self.before.as_deref(), self.text().as_bytes())
    }
}

/// The lines that differ between two versions of a file.
pub(super) fn unified_diff(name: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    let mut unified = diff.unified_diff();
    unified.context_radius(2).header(name, name).to_string()
}

fn read_text(
    name: &str,
    folder: &Path,
    text: String,
    pending: &PendingFiles,
) -> Result<Config, ConfigFaults> {
    let (name, folder) = (name.to_owned(), folder.to_owned());
    Config::read(&ConfigSource { name, folder, bytes: text.into_bytes() }, pending)
}

/// Files that are to be written together with the configuration: the configuration is checked as if
/// they existed.
#[derive(Debug, Default)]
pub(super) struct PendingFiles {
    texts: HashMap<PathBuf, Secret>,
}

impl PendingFiles {
    /// Adds a file by its absolute path.
    pub(super) fn insert(&mut self, path: PathBuf, text: Secret) {
        self.texts.insert(path, text);
    }
}

impl Environment for PendingFiles {
    fn variable(&self, name: &str) -> Option<OsString> {
        SystemEnvironment.variable(name)
    }

    fn text(&self, path: &Path) -> Result<String, FileError> {
        match self.texts.get(path) {
            Some(text) => Ok(text.expose().to_owned()),
            None => SystemEnvironment.text(path),
        }
    }

    fn executable(&self) -> Option<PathBuf> {
        SystemEnvironment.executable()
    }
}

fn forget_positions(table: &mut Table) {
    table.set_position(None);
    for (_, item) in table.iter_mut() {
        if let Item::Table(inner) = item {
            forget_positions(inner);
        }
    }
}

/// The first entry of a file begins at its top.
fn trim_prefix(table: &mut Table) {
    let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    let prefix = prefix.trim_start().to_owned();
    table.decor_mut().set_prefix(prefix);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> (tempfile::TempDir, GatewayFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, text).unwrap();
        let file = GatewayFile::open(&path).unwrap();
        (folder, file)
    }

    const BLOCK: &str =
        "\n# new\n[servers.b]\ncommand = \"b\"\n\n[servers.b.tools.t]\nname = \"u\"\n";

    #[test]
    fn an_entry_is_added_behind_the_others_and_everything_else_stays() {
        let text = "# top\n[servers.a] # a\ncommand = \"a\" # c\n\n[servers.a.tools]\ndeny = [ ]\n\n# log\n[log]\n";
        let (_folder, mut file) = open(text);
        file.add_entry(GatewaySection::Servers, "b", BLOCK).unwrap();
        assert_eq!(file.text(), text.replace("\n# log", &format!("{BLOCK}\n# log")));
        assert!(file.remove_entry(GatewaySection::Servers, "b").unwrap());
        assert_eq!(file.text(), text);
        assert!(!file.remove_entry(GatewaySection::Servers, "b").unwrap());
    }

    #[test]
    fn a_file_that_is_empty_or_ends_without_a_line_end_can_be_added_to() {
        let (_folder, mut file) = open("");
        file.add_entry(GatewaySection::Servers, "b", BLOCK).unwrap();
        assert_eq!(file.text(), BLOCK.trim_start());
        let (_folder, mut file) = open("[log]\nlevel = \"info\"");
        file.add_comment("#x");
        assert_eq!(file.text(), "[log]\nlevel = \"info\"\n\n#x\n");
    }

    #[test]
    fn what_would_be_invalid_is_not_accepted() {
        let (_folder, mut file) = open("servers = { a = { command = \"a\" } }\n");
        let error = file.add_entry(GatewaySection::Servers, "b", BLOCK).unwrap_err();
        assert!(error.to_string().contains("inline table"), "{error}");
        let (_folder, mut file) = open("");
        file.add_entry(GatewaySection::Servers, "b", "[servers.b]\nurl = \"ftp://x\"\n").unwrap();
        let error = file.check(&PendingFiles::default()).unwrap_err().to_string();
        assert!(error.contains("servers.b.url") && error.contains("invalid"), "{error}");
    }
}
