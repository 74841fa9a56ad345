//! Common parts of the readers of all clients: the program of a server, and durations.

use crate::documents::fields::{FieldFault, ForeignFields};
use crate::documents::imported::{
    ImportedPiece, ImportedServer, ImportedTarget, ImportedText, SettingText,
};
use crate::documents::references::ReferenceContext;

/// Reads a program with `args`, `env` and `cwd`, in the folder of its project.
pub(crate) fn read_program(
    fields: &mut ForeignFields<'_>,
    key: &str,
) -> Result<ImportedTarget, FieldFault> {
    let Some(command) = fields.take_text(key)? else {
        return Err(fields.report_missing(key, "a command or a URL, found neither"));
    };
    let args = fields.take_texts("args")?;
    let env = fields.take_pairs("env")?;
    read_in_project(fields, command, args, env)
}

/// Reads a command given as a list of the program and its arguments.
pub(crate) fn read_command_line(
    fields: &mut ForeignFields<'_>,
    env: &str,
) -> Result<ImportedTarget, FieldFault> {
    let mut words = fields.take_texts("command")?.into_iter();
    let Some(program) = words.next() else {
        return Err(fields.report_missing("command", "a command or a URL, found neither"));
    };
    let args = words.chain(fields.take_texts("args")?).collect();
    let env = fields.take_pairs(env)?;
    read_in_project(fields, program, args, env)
}

fn read_in_project(
    fields: &mut ForeignFields<'_>,
    command: ImportedText,
    args: Vec<ImportedText>,
    env: Vec<(String, ImportedText)>,
) -> Result<ImportedTarget, FieldFault> {
    let references = fields.references();
    let command = resolve_home(command, references);
    // A bare name is searched in `PATH`.
    let command = match command.0.first() {
        Some(ImportedPiece::Plain(text)) if text.contains('/') => in_project(command, references),
        _ => command,
    };
    let cwd = match fields.take_text("cwd")? {
        Some(cwd) => Some(in_project(resolve_home(cwd, references), references)),
        // Clients start the servers of a project there.
        None => references
            .project
            .as_ref()
            .map(|project| ImportedText::plain(project.display().to_string())),
    };
    Ok(ImportedTarget::Command { command, args, env, pass_env: Vec::new(), cwd })
}

/// Replaces `HOME` in a path by the user's home folder, because `command` and `cwd` support no
/// variables.
fn resolve_home(text: ImportedText, references: &ReferenceContext) -> ImportedText {
    let Some(home) = &references.home else { return text };
    let is_home =
        |piece: &ImportedPiece| matches!(piece, ImportedPiece::Variable(name) if name == "HOME");
    if !text.0.iter().any(is_home) {
        return text;
    }
    let pieces = text.0.into_iter().map(|piece| {
        if is_home(&piece) { ImportedPiece::Plain(home.display().to_string()) } else { piece }
    });
    pieces.fold(ImportedText::default(), ImportedText::with_piece)
}

/// Returns an absolute path for one that is relative to the project, if the file belongs to a
/// project.
fn in_project(mut path: ImportedText, references: &ReferenceContext) -> ImportedText {
    if let (Some(project), Some(ImportedPiece::Plain(first))) =
        (&references.project, path.0.first_mut())
    {
        *first = project.join(&*first).display().to_string();
    }
    path
}

/// The unit of a `timeout`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimeUnit {
    Milliseconds,
    Seconds,
}

/// Adds a timeout, and raises the default maximum if the timeout exceeds it.
pub(crate) fn push_timeout(
    server: &mut ImportedServer,
    setting: &'static str,
    value: f64,
    unit: TimeUnit,
) {
    let text = duration_text(value, unit);
    if setting == "timeout" && unit.to_milliseconds(value) > DEFAULT_MAX_TIMEOUT {
        server.settings.push(("max_timeout", SettingText::Text(text.clone())));
    }
    server.settings.push((setting, SettingText::Text(text)));
}

/// Returns a duration in the notation of the configuration.
pub(crate) fn duration_text(value: f64, unit: TimeUnit) -> String {
    // A year exceeds the timeout of any program.
    let milliseconds = unit.to_milliseconds(value).clamp(1.0, 31_536_000_000.0).round();
    if milliseconds % 1000.0 == 0.0 {
        format!("{}s", milliseconds / 1000.0)
    } else {
        format!("{milliseconds}ms")
    }
}

impl TimeUnit {
    fn to_milliseconds(self, value: f64) -> f64 {
        match self {
            Self::Milliseconds => value,
            Self::Seconds => value * 1000.0,
        }
    }
}

/// The default of `max_timeout`, in milliseconds.
const DEFAULT_MAX_TIMEOUT: f64 = 600_000.0;
