//! Sources of an import: a client by its name, a file, or standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use trunkline_core::codec::file::{FileError, read_file};

use super::clients::{KnownClient, UserFolders};
use super::shapes::{ConfigShape, ShapeContext};
use crate::documents::fields::FieldFault;
use crate::documents::imported::{
    ImportedFile, ImportedServer, ImportedTarget, SandboxPermissions, SettingText,
};
use crate::documents::references::{ReferenceContext, ReferenceNotation};
use crate::documents::{DocumentError, MAX_DOCUMENT, Notation, parse_bytes};

/// Contents of one file.
#[derive(Debug)]
pub struct FoundConfig {
    /// Name of the file, for people; `None` for the command line.
    pub(crate) label: Option<String>,
    pub(crate) contents: ImportedFile,
}

impl FoundConfig {
    /// Wraps a server from the command line.
    pub fn typed(name: &str, target: ImportedTarget) -> Self {
        let servers = vec![ImportedServer::new(name, target)];
        Self { label: None, contents: ImportedFile { servers, ..ImportedFile::default() } }
    }

    /// Confines its servers.
    #[must_use]
    pub fn sandboxed(mut self, permissions: &SandboxPermissions) -> Self {
        for server in &mut self.contents.servers {
            server.settings.push(("sandbox", SettingText::Sandbox(permissions.clone())));
        }
        self
    }
}

/// A file to read.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// `None` for standard input.
    path: Option<PathBuf>,
    /// The program that it belongs to, if that is known.
    client: Option<&'static KnownClient>,
    form: FormChoice,
}

/// Permitted forms of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormChoice {
    /// Only the form of its program: a person named the program for this file.
    Given,
    /// Also another form: people paste the entries of one program into the file of another.
    Detected,
}

impl ConfigFile {
    /// Returns a file of a client. It may contain entries of another program.
    pub fn of_client(client: &'static KnownClient, path: PathBuf) -> Self {
        Self { path: Some(path), client: Some(client), form: FormChoice::Detected }
    }

    /// Returns a file by its path; the path may identify the program.
    pub(crate) fn at_path(path: &Path, from: Option<&'static KnownClient>) -> Self {
        let client = from.or_else(|| KnownClient::by_path(path));
        Self { path: Some(path.to_owned()), client, form: FormChoice::of(from) }
    }

    pub(crate) fn standard_input(from: Option<&'static KnownClient>) -> Self {
        Self { path: None, client: from, form: FormChoice::of(from) }
    }

    /// Returns its name, for people: below the home folder it begins with `~`.
    pub(crate) fn label(&self, folders: &UserFolders) -> String {
        let Some(path) = &self.path else { return "standard input".to_owned() };
        match folders.home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
            Some(rest) => format!("~/{}", rest.display()),
            None => path.display().to_string(),
        }
    }

    /// Reads the file and its servers.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub(crate) fn read(&self, folders: &UserFolders) -> Result<FoundConfig, DocumentError> {
        let label = self.label(folders);
        let bytes = self
            .read_bytes()
            .map_err(|error| DocumentError::Unreadable { file: label.clone(), error })?;
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        let document = parse_bytes(&label, &bytes, |text| Notation::detect(path, text))?;
        let contents = self
            .read_document(&document, folders)
            .ok_or_else(|| DocumentError::Unknown { file: label.clone() })?;
        let contents =
            contents.map_err(|fault| DocumentError::Field { file: label.clone(), fault })?;
        Ok(FoundConfig { label: Some(label), contents })
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

    /// Returns `None` if the form is unknown.
    fn read_document(
        &self,
        document: &Json,
        folders: &UserFolders,
    ) -> Option<Result<ImportedFile, FieldFault>> {
        let references = self.references(folders);
        let context = ShapeContext { references: &references, file: self.path.as_deref() };
        let read = |shape: ConfigShape| shape.read_document(document, &context);
        let own = self.client.map(|client| read(client.shape));
        let detected = || ConfigShape::detect(document).map(read);
        match own {
            Some(own) if self.form == FormChoice::Given => Some(own),
            Some(Ok(own)) if own.servers.is_empty() && own.notes.is_empty() => {
                Some(detected().unwrap_or(Ok(own)))
            }
            Some(own) => Some(own),
            None => detected(),
        }
    }

    /// Returns the context for references in the file.
    pub fn references(&self, folders: &UserFolders) -> ReferenceContext {
        let path = self.path.as_deref();
        let project = self.client.zip(path);
        let path = path.and_then(|path| std::path::absolute(path).ok());
        ReferenceContext {
            notation: self.client.map_or(ReferenceNotation::Any, |client| client.references),
            home: folders.home.clone(),
            project: project.and_then(|(client, path)| client.project_of(path, folders)),
            folder: path.and_then(|path| path.parent().map(Path::to_path_buf)),
            is_set: |name| std::env::var_os(name).is_some(),
        }
    }
}

impl FormChoice {
    fn of(from: Option<&KnownClient>) -> Self {
        from.map_or(Self::Detected, |_| Self::Given)
    }
}
