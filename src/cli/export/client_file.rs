//! The file that an export edits.

use std::path::PathBuf;

use serde_json::Value as Json;

use trunkline_import::{
    ClientPlace, EditedFile, KnownClient, MAX_DOCUMENT, Notation, UserFolders, parse_document,
};

use super::ExportError;

/// A client's file in its current state.
pub(super) struct ClientFile {
    pub(super) file: EditedFile,
    pub(super) notation: Notation,
    pub(super) document: Json,
}

impl ClientFile {
    /// Opens a file, by default the client's file in the user's own folder.
    pub(super) fn open(
        path: Option<PathBuf>,
        client: &KnownClient,
        folders: &UserFolders,
    ) -> Result<Self, ExportError> {
        let path = path.or_else(|| user_file(client, folders));
        let path = path.ok_or(ExportError::NoClientFile { title: client.title })?;
        let file = EditedFile::open(&path, MAX_DOCUMENT)?;
        let notation = Notation::detect(&path, file.text());
        let document = parse_document(&path.display().to_string(), file.text(), notation)?;
        Ok(Self { file, notation, document })
    }

    /// Returns the path of the file, for people.
    pub(super) fn label(&self) -> String {
        self.file.path().display().to_string()
    }
}

/// Returns the user's own file of a client: the first that exists, or the default of this system.
fn user_file(client: &KnownClient, folders: &UserFolders) -> Option<PathBuf> {
    let is_mac = |place: &ClientPlace| matches!(place, ClientPlace::Home(path) if path.starts_with("Library/"));
    let places: Vec<_> =
        client.places.iter().filter(|place| !matches!(place, ClientPlace::Project(_))).collect();
    let existing = places.iter().filter_map(|place| place.path(folders)).find(|path| path.exists());
    existing.or_else(|| {
        let native = places.iter().filter(|place| is_mac(place) == cfg!(target_os = "macos"));
        let any = places.iter();
        native.chain(any).find_map(|place| place.path(folders))
    })
}
