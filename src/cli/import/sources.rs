//! Where an import reads from: a client by its name, a file, or standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::codec::file::{FileError, read_file};

use super::clients::{KnownClient, UserFolders};
use super::document::{DocumentError, MAX_DOCUMENT, Notation, decode_text, parse_document};
use super::imported::ImportedFile;
use super::references::{ReferenceContext, ReferenceNotation};
use super::shapes::{ConfigShape, ShapeContext};

/// What one file contains.
#[derive(Debug)]
pub(super) struct FoundConfig {
    /// The file, for people.
    pub(super) label: String,
    pub(super) contents: ImportedFile,
}

/// A file to read.
#[derive(Debug, Clone)]
pub(super) struct ConfigFile {
    /// `None` for standard input.
    path: Option<PathBuf>,
    /// The program that it belongs to, if that is known.
    client: Option<&'static KnownClient>,
}

impl ConfigFile {
    pub(super) fn of_client(client: &'static KnownClient, path: PathBuf) -> Self {
        Self { path: Some(path), client: Some(client) }
    }

    /// A file by its path; the path may tell the program.
    pub(super) fn at_path(path: &Path, from: Option<&'static KnownClient>) -> Self {
        let client = from.or_else(|| KnownClient::by_path(path));
        Self { path: Some(path.to_owned()), client }
    }

    pub(super) fn standard_input(from: Option<&'static KnownClient>) -> Self {
        Self { path: None, client: from }
    }

    /// Its name, for people: below the home folder it begins with `~`.
    pub(super) fn label(&self, folders: &UserFolders) -> String {
        let Some(path) = &self.path else { return "standard input".to_owned() };
        match folders.home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
            Some(rest) => format!("~/{}", rest.display()),
            None => path.display().to_string(),
        }
    }

    /// Reads the file, and what it contains.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub(super) fn read(&self, folders: &UserFolders) -> Result<FoundConfig, DocumentError> {
        let label = self.label(folders);
        let bytes = self
            .read_bytes()
            .map_err(|error| DocumentError::Unreadable { file: label.clone(), error })?;
        let text = decode_text(&label, &bytes)?;
        let path = self.path.as_deref();
        let notation = Notation::detect(path.unwrap_or(Path::new("")), text);
        let document = parse_document(&label, text, notation)?;
        let contents = self
            .read_document(&document, folders)
            .ok_or_else(|| DocumentError::Unknown { file: label.clone() })?;
        let contents = contents.map_err(|rule| DocumentError::Syntax {
            file: label.clone(),
            line: 1,
            rule,
        })?;
        Ok(FoundConfig { label, contents })
    }

    fn read_bytes(&self) -> Result<Vec<u8>, FileError> {
        if let Some(path) = &self.path {
            return read_file(path, MAX_DOCUMENT);
        }
        let mut bytes = Vec::new();
        let max = u64::try_from(MAX_DOCUMENT).unwrap_or(u64::MAX);
        std::io::stdin().lock().take(max.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() > MAX_DOCUMENT {
            return Err(FileError::TooLarge { max: MAX_DOCUMENT });
        }
        Ok(bytes)
    }

    /// `None` if the form is not known.
    fn read_document(
        &self,
        document: &Json,
        folders: &UserFolders,
    ) -> Option<Result<ImportedFile, String>> {
        let path = self.path.as_deref();
        let project =
            self.client.zip(path).and_then(|(client, path)| client.project_of(path, folders));
        let references = ReferenceContext {
            notation: self.client.map_or(ReferenceNotation::Any, |client| client.references),
            home: folders.home.clone(),
            project,
            is_set: |name| std::env::var_os(name).is_some(),
        };
        let context = ShapeContext { references: &references, file: path };
        let read = |shape: ConfigShape| shape.read_document(document, &context);
        let own = self.client.map(|client| read(client.shape));
        match (own, ConfigShape::detect(document)) {
            // People paste the entries of one program into the file of another.
            (Some(Ok(own)), Some(detected)) if own.servers.is_empty() && own.notes.is_empty() => {
                Some(read(detected))
            }
            (Some(own), _) => Some(own),
            (None, detected) => detected.map(read),
        }
    }
}
