//! Edits `gateway.toml` on behalf of a person. Comments and order stay, the result is checked like
//! in `trunkline check` before the file is written, and a file that changed meanwhile is not
//! touched. Rules that only a gateway can check come from the caller ([`SettingsCheck`]).

mod error;
mod pending;

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table};

use trunkline_config::{Color, Config, ConfigFaults, ConfigSource, Environment, SettingFault};

use crate::edited_file::{
    CreatedFile, EditedFile, EditedFileError, FileMode, WriteOutcome, WriteRules,
};
use crate::toml_entry::remove_entry_text;
pub use error::GatewayFileError;
pub use pending::{CompleteEnvironment, PendingFiles};

/// A configuration file while it is edited.
#[derive(Debug)]
pub struct GatewayFile {
    file: EditedFile,
    /// The edited text. `document` would write dotted keys in another order.
    text: String,
    document: DocumentMut,
    check_settings: SettingsCheck,
}

/// Checks the settings of a valid configuration that have to work when they are used, such as
/// certificates. Returns the faults, one sentence each.
pub type SettingsCheck = fn(&Config) -> Result<(), Vec<String>>;

/// A section with named tables as entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewaySection {
    /// `[servers.NAME]`.
    Servers,
    /// `[profiles.NAME]`.
    Profiles,
}

impl GatewaySection {
    /// The key of the section.
    pub fn key(self) -> &'static str {
        match self {
            Self::Servers => "servers",
            Self::Profiles => "profiles",
        }
    }
}

/// An entry to add.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub(crate) section: GatewaySection,
    pub(crate) name: &'a str,
    /// TOML of the entry, with the comments above it.
    pub(crate) block: &'a str,
}

impl GatewayFile {
    /// Opens the file; one that does not exist is empty. [`check`](Self::check) uses
    /// `check_settings`.
    ///
    /// # Errors
    /// [`GatewayFileError`].
    pub fn open(path: &Path, check_settings: SettingsCheck) -> Result<Self, GatewayFileError> {
        let file = EditedFile::open(path, ConfigSource::MAX_LEN)?;
        let document = file.text().parse();
        let document = document.map_err(|_| GatewayFileError::Syntax { path: path.to_owned() })?;
        let text = file.text().to_owned();
        Ok(Self { file, text, document, check_settings })
    }

    /// The file before the edits.
    pub fn file(&self) -> &EditedFile {
        &self.file
    }

    /// Returns the path of the file, for people.
    pub fn label(&self) -> String {
        self.file.path().display().to_string()
    }

    fn path(&self) -> PathBuf {
        self.file.path().to_owned()
    }

    /// Returns the absolute folder of the file: paths in the configuration are relative to it.
    pub(crate) fn folder(&self) -> PathBuf {
        let path = std::path::absolute(self.file.path()).unwrap_or_else(|_| self.path());
        path.parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// Returns the entries of a section, in the order of the file.
    pub(crate) fn entries(&self, section: GatewaySection) -> Vec<(String, toml::Table)> {
        let document: toml::Table = self.text().parse().unwrap_or_default();
        let entries = document.get(section.key()).and_then(toml::Value::as_table);
        let entries = entries
            .into_iter()
            .flatten()
            .filter_map(|(name, entry)| Some((name.clone(), entry.as_table()?.clone())));
        entries.collect()
    }

    /// Returns the configuration reduced to one of its sections.
    pub(crate) fn section_text(&self, section: &str) -> String {
        let mut document: toml::Table = self.text().parse().unwrap_or_default();
        document.retain(|key, _| key == section);
        document.to_string()
    }

    /// Returns true if a section has an entry of this name.
    pub(crate) fn has_entry(&self, section: GatewaySection, name: &str) -> bool {
        let entries = self.document.get(section.key()).and_then(Item::as_table_like);
        entries.is_some_and(|entries| entries.contains_key(name))
    }

    /// Returns the edited text.
    pub fn text(&self) -> String {
        self.text.clone()
    }

    /// Adds entries behind the others of their sections, in one edit, together with the comments
    /// above them.
    ///
    /// # Errors
    /// [`GatewayFileError`].
    pub(crate) fn add_entries(&mut self, entries: &[NewEntry<'_>]) -> Result<(), GatewayFileError> {
        for entry in entries {
            self.insert_entry(*entry)?;
        }
        let edited = self.document.to_string();
        self.text = if has_lines_of(&edited, &self.text) {
            edited
        } else {
            let blocks = entries.iter().map(|entry| entry.block);
            blocks.fold(self.text.clone(), |text, block| append_block(&text, block))
        };
        let path = self.path();
        self.document = self.text.parse().map_err(|_| GatewayFileError::Syntax { path })?;
        Ok(())
    }

    /// Adds an entry to the document only, not to the text.
    fn insert_entry(&mut self, new: NewEntry<'_>) -> Result<(), GatewayFileError> {
        let NewEntry { section, name, block } = new;
        let syntax = |path| GatewayFileError::Syntax { path };
        let mut block: DocumentMut = block.parse().map_err(|_| syntax(self.path()))?;
        let entry = block.get_mut(section.key()).and_then(Item::as_table_mut);
        let Some(Item::Table(mut entry)) = entry.and_then(|entries| entries.remove(name)) else {
            return Err(syntax(self.path()));
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
    pub(crate) fn add_comment(&mut self, lines: &str) {
        self.text = append_block(&self.text, lines);
        // Comments affect only the end of the document.
        if let Ok(document) = self.text.parse() {
            self.document = document;
        }
    }

    /// Removes an entry with the comments directly above it. Returns false if it does not exist.
    ///
    /// # Errors
    /// [`GatewayFileError::InlineSection`] and [`GatewayFileError::Form`].
    pub fn remove_entry(
        &mut self,
        section: GatewaySection,
        name: &str,
    ) -> Result<bool, GatewayFileError> {
        if !self.has_entry(section, name) {
            return Ok(false);
        }
        self.section_table(section)?;
        let (path, key) = (self.path(), section.key());
        let edited = remove_entry_text(&self.text, &[key], name);
        let edited = edited.and_then(|edited| Some((edited.parse().ok()?, edited)));
        let Some((document, text)) = edited else {
            return Err(GatewayFileError::Form { path, section: key, name: name.to_owned() });
        };
        (self.document, self.text) = (document, text);
        Ok(true)
    }

    fn section_table(&mut self, section: GatewaySection) -> Result<&mut Table, GatewayFileError> {
        let key = section.key();
        let error = GatewayFileError::InlineSection { path: self.path(), section: key };
        let entries = self.document.entry(key).or_insert_with(|| {
            let mut entries = Table::new();
            entries.set_implicit(true);
            Item::Table(entries)
        });
        entries.as_table_mut().ok_or(error)
    }

    /// Reads the edited configuration in the same way as `serve`.
    ///
    /// # Errors
    /// All faults.
    pub(crate) fn read_config(&self, pending: &PendingFiles) -> Result<Config, ConfigFaults> {
        self.read_piece(self.text(), pending)
    }

    /// Reads a piece of configuration as if it were in a file of this folder.
    ///
    /// # Errors
    /// All faults.
    pub fn read_piece(
        &self,
        text: String,
        environment: &dyn Environment,
    ) -> Result<Config, ConfigFaults> {
        let source =
            ConfigSource { name: self.label(), folder: self.folder(), bytes: text.into_bytes() };
        Config::read(&source, environment)
    }

    /// Checks the edited configuration like `trunkline check`. Returns warnings about unset
    /// variables, because the environment of this command may differ from the gateway's.
    ///
    /// # Errors
    /// [`GatewayFileError::Invalid`].
    pub fn check(&self, pending: &PendingFiles) -> Result<Vec<String>, GatewayFileError> {
        if self.text.len() > ConfigSource::MAX_LEN {
            return Err(GatewayFileError::TooLarge {
                path: self.path(),
                len: self.text.len(),
                max: ConfigSource::MAX_LEN,
            });
        }
        match self.read_config(pending) {
            Ok(config) => match (self.check_settings)(&config) {
                Ok(()) => Ok(Vec::new()),
                Err(faults) => Err(GatewayFileError::Invalid { faults: faults.join("\n") }),
            },
            Err(faults) => match unset_variables(&faults) {
                Some(names) => Ok(names.iter().map(|name| self.warn_unset(name)).collect()),
                None => Err(GatewayFileError::Invalid { faults: faults.render(Color::Never) }),
            },
        }
    }

    fn warn_unset(&self, name: &str) -> String {
        format!(
            "{}: the environment variable {name} is not set here; the gateway needs it",
            self.label()
        )
    }

    /// Describes the location of the previous version, if there was one.
    pub fn describe_backup(&self, written: &WriteOutcome) -> String {
        if self.file.exists() {
            format!("before: {}\n", written.backup.display())
        } else {
            String::new()
        }
    }

    /// Writes the edited file, and keeps the previous version. `created` has the files that were
    /// created for it.
    ///
    /// # Errors
    /// [`EditedFileError`].
    pub fn write(&self, created: &[CreatedFile]) -> Result<WriteOutcome, EditedFileError> {
        let rules = WriteRules { mode: FileMode::Kept, max_backups: MAX_GATEWAY_BACKUPS, created };
        self.file.write_with(&self.text(), &rules)
    }
}

/// Replaces a configuration file by exactly this text, and keeps the previous version. The caller has
/// checked the text. The previous one need not be valid, but has this digest; `None` if there is no
/// file.
///
/// # Errors
/// [`EditedFileError`]; [`EditedFileError::Changed`] for another digest.
pub fn replace_gateway_text(
    path: &Path,
    digest: Option<&str>,
    text: &str,
) -> Result<WriteOutcome, EditedFileError> {
    let file = EditedFile::open(path, ConfigSource::MAX_LEN)?;
    file.check_digest(digest)?;
    let max_backups = MAX_GATEWAY_BACKUPS;
    let rules = WriteRules { mode: FileMode::Kept, max_backups, created: &[] };
    file.write_bytes(text.as_bytes(), &rules)
}

/// Maximum number of previous versions of the configuration that are kept.
const MAX_GATEWAY_BACKUPS: usize = 5;

/// Returns the unset variables, if these are the only faults.
fn unset_variables(faults: &ConfigFaults) -> Option<Vec<String>> {
    let names = faults.list().iter().map(|fault| match &fault.problem {
        SettingFault::EnvUnset { name } => Some(name.clone()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect::<Option<_>>()?;
    names.sort();
    names.dedup();
    Some(names)
}

fn forget_positions(table: &mut Table) {
    table.set_position(None);
    for (_, item) in table.iter_mut() {
        if let Item::Table(inner) = item {
            forget_positions(inner);
        }
    }
}

/// Returns true if `text` contains all lines of `other`, in the same order.
fn has_lines_of(text: &str, other: &str) -> bool {
    let mut lines = text.lines();
    other.lines().all(|line| lines.any(|found| found == line))
}

/// Returns a text with lines at its end, after a blank one.
fn append_block(text: &str, block: &str) -> String {
    let block = block.trim_matches('\n');
    let gap = match text {
        _ if text.is_empty() || text.ends_with("\n\n") => "",
        _ if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{gap}{block}\n")
}

/// Moves the first entry of a file to its top.
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
        let file = GatewayFile::open(&path, |_| Ok(())).unwrap();
        (folder, file)
    }

    const BLOCK: &str =
        "\n# new\n[servers.b]\ncommand = \"b\"\n\n[servers.b.tools.t]\nname = \"u\"\n";
    const NEW: NewEntry<'static> =
        NewEntry { section: GatewaySection::Servers, name: "b", block: BLOCK };

    #[test]
    fn an_entry_is_added_behind_the_others_and_everything_else_stays() {
        let text = "# top\n[servers.a] # a\ncommand = \"a\" # c\n\n[servers.a.tools]\ndeny = [ ]\n\n# log\n[log]\n";
        let (_folder, mut file) = open(text);
        file.add_entries(&[NEW]).unwrap();
        assert_eq!(file.text(), text.replace("\n# log", &format!("{BLOCK}\n# log")));
        assert!(file.remove_entry(GatewaySection::Servers, "b").unwrap());
        assert_eq!(file.text(), text);
        assert!(!file.remove_entry(GatewaySection::Servers, "b").unwrap());
    }

    #[test]
    fn dotted_keys_stay_where_they_are() {
        let text = "log.level = \"info\"\ngateway.listen = \"127.0.0.1:1\"\n# format\nlog.format = \"json\"\n";
        let (_folder, mut file) = open(text);
        file.add_entries(&[NEW]).unwrap();
        assert_eq!(file.text(), format!("{text}{BLOCK}"));
        file.add_comment("# end");
        assert_eq!(file.text(), format!("{text}{BLOCK}\n# end\n"));
        assert!(file.remove_entry(GatewaySection::Servers, "b").unwrap());
        assert_eq!(file.text(), format!("{text}\n# end\n"));
    }

    #[test]
    fn a_variable_that_is_not_set_here_is_a_warning_only() {
        let text =
            "[servers.a]\nurl = \"https://a/mcp\"\nheaders = { X = \"${env:NOT_SET_HERE}\" }\n";
        let (_folder, file) = open(text);
        let warnings = file.check(&PendingFiles::default()).unwrap();
        assert!(matches!(&warnings[..], [one] if one.contains("NOT_SET_HERE")), "{warnings:?}");
        let (_folder, file) = open(&text.replace("url", "urll"));
        assert!(file.check(&PendingFiles::default()).is_err());
    }

    #[test]
    fn a_file_that_is_empty_or_ends_without_a_line_end_can_be_added_to() {
        let (_folder, mut file) = open("");
        file.add_entries(&[NEW]).unwrap();
        assert_eq!(file.text(), BLOCK.trim_start());
        let (_folder, mut file) = open("[log]\nlevel = \"info\"");
        file.add_comment("#x");
        assert_eq!(file.text(), "[log]\nlevel = \"info\"\n\n#x\n");
    }

    #[test]
    fn a_replaced_text_keeps_its_own_bytes_and_replaces_the_known_file_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        let digest = || ConfigSource::open(&path).ok().map(|source| source.digest());
        let versions = ["a = 1\r\nb = 2\r\n", "\u{feff}a = 1\n", "\u{feff}a = 2\r\n", "a = 3\n"];
        for text in versions.into_iter().chain(versions) {
            replace_gateway_text(&path, digest().as_deref(), text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let known = digest();
        std::fs::write(&path, "# by hand\n").unwrap();
        for digest in [known.as_deref(), None] {
            let error = replace_gateway_text(&path, digest, "a = 4\n").unwrap_err();
            assert!(matches!(error, EditedFileError::Changed { .. }), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# by hand\n");
    }

    #[test]
    fn invalid_edits_are_not_accepted() {
        let (_folder, mut file) = open("servers = { a = { command = \"a\" } }\n");
        let error = file.add_entries(&[NEW]).unwrap_err();
        assert!(error.to_string().contains("inline table"), "{error}");
        let (_folder, mut file) = open("");
        let block = "[servers.b]\nurl = \"ftp://x\"\n";
        file.add_entries(&[NewEntry { block, ..NEW }]).unwrap();
        let error = file.check(&PendingFiles::default()).unwrap_err().to_string();
        assert!(error.contains("servers.b.url") && error.contains("invalid"), "{error}");
    }
}
