//! The tools of `trunkline example notes`.

use std::cell::RefCell;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::stdio::ExampleCall;
use super::store::{Note, Store};
use super::tool::{Effect, ToolFault, Toolbox, read, tool, within, written};

/// Stores short notes.
pub(super) struct NotesTools {
    store: RefCell<Store>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// The note's subject, in one line.
    #[schemars(length(min = 1, max = 200))]
    title: String,
    /// The text of the note.
    #[schemars(length(max = 20_000))]
    text: String,
    /// Keywords for searches.
    #[serde(default)]
    #[schemars(length(max = 10), inner(length(min = 1, max = 40)))]
    tags: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListNotes {
    /// Only notes with this tag; all when empty.
    #[serde(default)]
    tag: String,
    /// Maximum number of notes to return.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 200))]
    limit: u32,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchNotes {
    /// Words that must all occur in the title, the text or the tags.
    query: String,
    /// Maximum number of notes to return.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 200))]
    limit: u32,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ById {
    /// The note's id, such as `n1`.
    id: String,
}

#[derive(Serialize, JsonSchema)]
struct FoundNotes {
    /// The notes found, newest first, without their text.
    notes: Vec<Summary>,
    /// Number of notes found; at most `limit` are returned.
    total: usize,
}

#[derive(Serialize, JsonSchema)]
struct Summary {
    /// Id for `read` and `delete`.
    id: String,
    title: String,
    tags: Vec<String>,
    /// Time at which it was added, by RFC 3339.
    created: String,
}

impl NotesTools {
    pub(super) fn new(store: Store) -> Self {
        Self { store: RefCell::new(store) }
    }

    fn add(&self, new: Add) -> Result<Note, ToolFault> {
        bounded("title", &new.title, 1, MAX_TITLE)?;
        bounded("text", &new.text, 0, MAX_TEXT)?;
        if new.tags.len() > MAX_TAGS {
            return Err(ToolFault::refused(format_args!("`tags` may be at most {MAX_TAGS}")));
        }
        for tag in &new.tags {
            bounded("tags", tag, 1, MAX_TAG)?;
        }
        let mut store = self.store.borrow_mut();
        if store.notes().len() >= MAX_NOTES {
            let full = format_args!("there are {MAX_NOTES} notes already: delete some first");
            return Err(ToolFault::refused(full));
        }
        let created = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Add { title, text, tags } = new;
        store.add(Note { id: String::new(), title, text, tags, created }).map_err(unwritten)
    }

    fn find(&self, limit: u32, matches: impl Fn(&Note) -> bool) -> Result<FoundNotes, ToolFault> {
        within("limit", limit, 1..=200)?;
        let store = self.store.borrow();
        let found: Vec<_> = store.notes().iter().rev().filter(|note| matches(note)).collect();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let notes = found.iter().take(limit).map(|note| summary(note)).collect();
        Ok(FoundNotes { notes, total: found.len() })
    }

    fn read(&self, id: &str) -> Result<Note, ToolFault> {
        let store = self.store.borrow();
        store.notes().iter().find(|note| note.id == id).cloned().ok_or_else(|| no_note(id))
    }

    fn delete(&self, id: &str) -> Result<Note, ToolFault> {
        self.store.borrow_mut().remove(id).map_err(unwritten)?.ok_or_else(|| no_note(id))
    }
}

impl Toolbox for NotesTools {
    const NAME: &'static str = "notes";
    const INSTRUCTIONS: &'static str = "Keeps short notes. `list` and `search` return summaries; \
        `read` returns a note's text by its id.";

    fn tools(&self) -> Vec<Value> {
        vec![
            tool::<Add, Note>(
                "add",
                "Add a note",
                Effect::Adds,
                "Keep a note with a title, a text and tags. Returns it with its id.",
            ),
            tool::<ListNotes, FoundNotes>(
                "list",
                "List notes",
                Effect::Reads,
                "List notes, newest first, all or those with a tag.",
            ),
            tool::<SearchNotes, FoundNotes>(
                "search",
                "Search notes",
                Effect::Reads,
                "Find notes by words in title, text or tags, in any case.",
            ),
            tool::<ById, Note>("read", "Read a note", Effect::Reads, "Read a note by its id."),
            tool::<ById, Note>(
                "delete",
                "Delete a note",
                Effect::Deletes,
                "Delete a note by its id, for good. Returns the deleted note.",
            ),
        ]
    }

    async fn call(
        &self,
        name: &str,
        arguments: Value,
        _call: &ExampleCall,
    ) -> Result<Value, ToolFault> {
        match name {
            "add" => written(self.add(read(arguments)?)?),
            "list" => {
                let ListNotes { tag, limit } = read(arguments)?;
                written(self.find(limit, |note| tag.is_empty() || note.tags.contains(&tag))?)
            }
            "search" => {
                let SearchNotes { query, limit } = read(arguments)?;
                let words: Vec<_> = query.split_whitespace().map(str::to_lowercase).collect();
                written(self.find(limit, |note| has_all(note, &words))?)
            }
            "read" => written(self.read(&read::<ById>(arguments)?.id)?),
            "delete" => written(self.delete(&read::<ById>(arguments)?.id)?),
            _ => Err(ToolFault::UnknownTool),
        }
    }
}

fn has_all(note: &Note, words: &[String]) -> bool {
    let text = format!("{}\n{}\n{}", note.title, note.text, note.tags.join("\n")).to_lowercase();
    words.iter().all(|word| text.contains(word))
}

fn summary(note: &Note) -> Summary {
    let Note { id, title, tags, created, .. } = note.clone();
    Summary { id, title, tags, created }
}

fn bounded(name: &str, text: &str, least: usize, most: usize) -> Result<(), ToolFault> {
    let length = text.chars().count();
    if (least..=most).contains(&length) {
        return Ok(());
    }
    Err(ToolFault::refused(format_args!(
        "`{name}` must have {least} to {most} characters, not {length}"
    )))
}

fn no_note(id: &str) -> ToolFault {
    ToolFault::refused(format_args!("there is no note `{id}`: `list` shows the ids"))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn unwritten(error: std::io::Error) -> ToolFault {
    ToolFault::refused(format_args!("the notes cannot be written to their file: {error}"))
}

fn fifty() -> u32 {
    50
}

const MAX_NOTES: usize = 1000;
const MAX_TITLE: usize = 200;
const MAX_TEXT: usize = 20_000;
const MAX_TAGS: usize = 10;
const MAX_TAG: usize = 40;
