//! Storage of notes: in memory, and optionally in a file.
//!
//! The file is read once. Each change replaces the whole file, so that it is never partial. Two
//! processes on one file do not see each other's changes: the last write wins.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use trunkline_core::codec::replace_file::replace_file;

/// A note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Note {
    /// Id for `read` and `delete`.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) text: String,
    pub(super) tags: Vec<String>,
    /// Time at which it was added, by RFC 3339.
    pub(super) created: String,
}

/// The notes, oldest first.
#[derive(Debug)]
pub(super) struct Store {
    file: Option<PathBuf>,
    content: Content,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Content {
    /// The number of the next note: numbers of deleted notes are not reused.
    next: u64,
    notes: Vec<Note>,
}

impl Store {
    /// Opens the notes in `file`; empty if it does not exist yet.
    pub(super) fn open(file: Option<PathBuf>) -> io::Result<Self> {
        let content = file.as_deref().map_or(Ok(None), load)?;
        let content = content.unwrap_or(Content { next: 1, notes: Vec::new() });
        Ok(Self { file, content })
    }

    pub(super) fn notes(&self) -> &[Note] {
        &self.content.notes
    }

    /// Adds `note` under a new id.
    pub(super) fn add(&mut self, note: Note) -> io::Result<Note> {
        let mut content = self.content.clone();
        let note = Note { id: format!("n{}", content.next), ..note };
        content.next += 1;
        content.notes.push(note.clone());
        self.replace(content)?;
        Ok(note)
    }

    /// Removes and returns a note, if the id exists.
    pub(super) fn remove(&mut self, id: &str) -> io::Result<Option<Note>> {
        let Some(at) = self.content.notes.iter().position(|note| note.id == id) else {
            return Ok(None);
        };
        let mut content = self.content.clone();
        let note = content.notes.remove(at);
        self.replace(content)?;
        Ok(Some(note))
    }

    /// Replaces the content. A change that cannot be written is not applied.
    fn replace(&mut self, content: Content) -> io::Result<()> {
        if let Some(file) = &self.file {
            save(file, &content)?;
        }
        self.content = content;
        Ok(())
    }
}

fn load(file: &Path) -> io::Result<Option<Content>> {
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot read the notes in {}: {error}", file.display()),
        )
    };
    match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(error)),
        Ok(found) if found.len() > MAX_FILE => {
            return Err(named(io::ErrorKind::FileTooLarge.into()));
        }
        Ok(_) => {}
    }
    let text = fs::read(file).map_err(named)?;
    serde_json::from_slice(&text).map(Some).map_err(|error| named(error.into()))
}

fn save(file: &Path, content: &Content) -> io::Result<()> {
    // Only the owner may read the notes.
    replace_file(file, &serde_json::to_vec_pretty(content)?, 0o600)
}

/// Larger than the largest store.
const MAX_FILE: u64 = 256 * 1024 * 1024;
