//! References to environment variables, in the notation of each program, as pieces of a text.

use std::path::{Path, PathBuf};

use super::imported::{ImportedPiece, ImportedText};

/// The references that a program replaces in its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceNotation {
    /// None: every text is literal.
    None,
    /// `${env:NAME}`, `${input:ID}`, `${userHome}`, `${workspaceFolder}`, `${/}`.
    Prefixed,
    /// `${NAME}` and `${NAME:-DEFAULT}`.
    Braced,
    /// `${NAME}`, `${NAME:-DEFAULT}` and `$NAME`.
    Shell,
    /// `{env:NAME}` and `{file:PATH}`.
    Bare,
    /// The gateway's own: `${env:NAME}` and `${file:PATH}`.
    Own,
    /// An unknown program: `${env:NAME}`, `${NAME}` and `${NAME:-DEFAULT}`.
    Any,
}

/// Context for resolving references.
#[derive(Debug, Clone)]
pub struct ReferenceContext {
    pub(crate) notation: ReferenceNotation,
    /// The user's home folder.
    pub(crate) home: Option<PathBuf>,
    /// The folder of the project that the file belongs to, if it belongs to one.
    pub(crate) project: Option<PathBuf>,
    /// The folder of the file itself, to which `{file:PATH}` is relative.
    pub(crate) folder: Option<PathBuf>,
    /// Returns true if an environment variable is set here.
    pub(crate) is_set: fn(&str) -> bool,
}

impl ReferenceContext {
    /// Returns the context of a text without a file.
    pub fn without_folders(notation: ReferenceNotation) -> Self {
        Self { notation, home: None, project: None, folder: None, is_set: |_| true }
    }

    /// Splits a text into its pieces. A reference without a counterpart becomes a variable, and is
    /// named in `notes`.
    pub fn split_text(&self, text: &str, notes: &mut Vec<String>) -> ImportedText {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, reference, after)) = self.find_reference(rest) {
            push_plain(&mut pieces, before);
            self.push_reference(&mut pieces, reference, notes);
            rest = after;
        }
        push_plain(&mut pieces, rest);
        ImportedText(pieces)
    }

    /// Finds the first reference of a text. Returns the text before it, the reference, and the
    /// rest.
    fn find_reference<'t>(
        &self,
        text: &'t str,
    ) -> Option<(&'t str, ForeignReference<'t>, &'t str)> {
        let (opening, closing) = match self.notation {
            ReferenceNotation::None => return None,
            ReferenceNotation::Bare => ("{", '}'),
            _ => ("${", '}'),
        };
        let braced = text.match_indices(opening).find_map(|(at, _)| {
            let inside = text.get(at + opening.len()..)?;
            let end = inside.find(closing)?;
            let (inside, after) = (inside.get(..end)?, inside.get(end + 1..)?);
            let reference = self.read_reference(inside)?;
            Some((text.get(..at)?, reference, after))
        });
        if self.notation != ReferenceNotation::Shell {
            return braced;
        }
        match (find_dollar_name(text), braced) {
            (Some(dollar), Some(braced)) if dollar.0.len() < braced.0.len() => Some(dollar),
            (dollar, None) => dollar,
            (_, braced) => braced,
        }
    }

    /// Parses a reference from the text within its braces.
    fn read_reference<'t>(&self, inside: &'t str) -> Option<ForeignReference<'t>> {
        let prefixed = || match inside.split_once(':') {
            Some(("env", name)) => Some(ForeignReference::Variable { name, default: None }),
            Some(("input", id)) => Some(ForeignReference::Input(id)),
            Some(("file", path)) if self.has_files() => Some(ForeignReference::File(path)),
            None if matches!(inside, "userHome") => Some(ForeignReference::Home),
            None if matches!(inside, "workspaceFolder" | "workspaceRoot") => {
                Some(ForeignReference::Project)
            }
            None if inside == "workspaceFolderBasename" => Some(ForeignReference::ProjectName),
            None if matches!(inside, "/" | "pathSeparator") => Some(ForeignReference::Separator),
            _ => None,
        };
        let braced = || {
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inside, None),
            };
            is_variable(name).then_some(ForeignReference::Variable { name, default })
        };
        match self.notation {
            ReferenceNotation::None => None,
            ReferenceNotation::Prefixed => prefixed().or(Some(ForeignReference::Unknown(inside))),
            ReferenceNotation::Bare | ReferenceNotation::Own => prefixed().filter(|reference| {
                matches!(reference, ForeignReference::Variable { .. } | ForeignReference::File(_))
            }),
            ReferenceNotation::Braced | ReferenceNotation::Shell => {
                braced().or(Some(ForeignReference::Unknown(inside)))
            }
            ReferenceNotation::Any => {
                prefixed().or_else(braced).or(Some(ForeignReference::Unknown(inside)))
            }
        }
    }

    fn has_files(&self) -> bool {
        use ReferenceNotation::{Bare, Own, Prefixed};
        matches!(self.notation, Bare | Own | Prefixed)
    }

    fn push_reference(
        &self,
        pieces: &mut Vec<ImportedPiece>,
        reference: ForeignReference<'_>,
        notes: &mut Vec<String>,
    ) {
        match reference {
            ForeignReference::Variable { name, default: Some(default) } if !(self.is_set)(name) => {
                notes.push(format!("the variable {name} is not set here: its default is used"));
                push_plain(pieces, default);
            }
            ForeignReference::Variable { name, .. } => {
                pieces.push(ImportedPiece::Variable(name.to_owned()));
            }
            ForeignReference::Input(id) => {
                let name = variable_name(id);
                notes.push(format!("the value of the input `{id}` is read from {name}"));
                pieces.push(ImportedPiece::Variable(name));
            }
            ForeignReference::File(path) => {
                let path = match (path.strip_prefix("~/"), &self.home) {
                    (Some(rest), Some(home)) => home.join(rest).display().to_string(),
                    _ => absolute_path(path, self.folder.as_deref()),
                };
                pieces.push(ImportedPiece::File(path));
            }
            ForeignReference::Home => {
                self.push_folder(pieces, self.home.as_deref(), "userHome", notes);
            }
            ForeignReference::Project => {
                self.push_folder(pieces, self.project.as_deref(), "workspaceFolder", notes);
            }
            ForeignReference::ProjectName => {
                let name = self.project.as_deref().and_then(Path::file_name).map(Path::new);
                self.push_folder(pieces, name, "workspaceFolderBasename", notes);
            }
            ForeignReference::Separator => push_plain(pieces, "/"),
            ForeignReference::Unknown(inside) => {
                let name = variable_name(inside.rsplit(['.', ':']).next().unwrap_or(inside));
                notes.push(format!(
                    "`${{{inside}}}` has no counterpart: one value for all calls is read from {name}"
                ));
                pieces.push(ImportedPiece::Variable(name));
            }
        }
    }

    fn push_folder(
        &self,
        pieces: &mut Vec<ImportedPiece>,
        folder: Option<&Path>,
        word: &str,
        notes: &mut Vec<String>,
    ) {
        match folder {
            Some(folder) => push_plain(pieces, &folder.display().to_string()),
            None => self.push_reference(pieces, ForeignReference::Unknown(word), notes),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum ForeignReference<'t> {
    Variable {
        name: &'t str,
        default: Option<&'t str>,
    },
    /// A value that an editor requests from its user.
    Input(&'t str),
    File(&'t str),
    Home,
    Project,
    /// The last part of the project's folder.
    ProjectName,
    Separator,
    /// A reference of a kind that the gateway does not support.
    Unknown(&'t str),
}

/// Finds the first `$NAME` of a text.
fn find_dollar_name(text: &str) -> Option<(&str, ForeignReference<'_>, &str)> {
    text.match_indices('$').find_map(|(at, _)| {
        let name = text.get(at + 1..)?;
        let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, after) = name.split_at(end.unwrap_or(name.len()));
        is_variable(name).then_some((
            text.get(..at)?,
            ForeignReference::Variable { name, default: None },
            after,
        ))
    })
}

/// Returns a path of another program's file, resolved against its project.
pub(crate) fn absolute_path(path: &str, project: Option<&Path>) -> String {
    match project {
        Some(project) => project.join(path).display().to_string(),
        None => path.to_owned(),
    }
}

fn push_plain(pieces: &mut Vec<ImportedPiece>, text: &str) {
    match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(ImportedPiece::Plain(last)) => last.push_str(text),
        _ => pieces.push(ImportedPiece::Plain(text.to_owned())),
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Derives the name of an environment variable from the id of an input.
fn variable_name(id: &str) -> String {
    let name: String = id
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    if is_variable(&name) { name } else { format!("INPUT_{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(notation: ReferenceNotation, text: &str) -> (ImportedText, Vec<String>) {
        let context = ReferenceContext {
            notation,
            home: Some("/home/ann".into()),
            project: Some("/srv/site".into()),
            folder: Some("/srv/site/.tool".into()),
            is_set: |name| name == "SET",
        };
        let mut notes = Vec::new();
        (context.split_text(text, &mut notes), notes)
    }

    fn plain(text: &str) -> ImportedPiece {
        ImportedPiece::Plain(text.into())
    }

    fn variable(name: &str) -> ImportedPiece {
        ImportedPiece::Variable(name.into())
    }

    #[test]
    fn references_are_found_in_the_notation_of_their_program() {
        use ReferenceNotation::{Any, Bare, Braced, None, Prefixed, Shell};
        for (notation, text, pieces) in [
            (None, "a ${X} $Y", vec![plain("a ${X} $Y")]),
            (Prefixed, "Bearer ${env:X}!", vec![plain("Bearer "), variable("X"), plain("!")]),
            (Prefixed, "${input:api-key}", vec![variable("API_KEY")]),
            (Prefixed, "${userHome}${/}x", vec![plain("/home/ann/x")]),
            (Prefixed, "${workspaceFolder}/x", vec![plain("/srv/site/x")]),
            (Braced, "${X}/${SET:-d}", vec![variable("X"), plain("/"), variable("SET")]),
            (Braced, "${UNSET:-d} $X", vec![plain("d $X")]),
            (Shell, "$X-${Y}", vec![variable("X"), plain("-"), variable("Y")]),
            (Shell, "${Y}$X 5$", vec![variable("Y"), variable("X"), plain(" 5$")]),
            (Bare, "{env:X}", vec![variable("X")]),
            (
                Bare,
                "{file:~/t} {x}",
                vec![ImportedPiece::File("/home/ann/t".into()), plain(" {x}")],
            ),
            (Bare, "{file:./t}", vec![ImportedPiece::File("/srv/site/.tool/./t".into())]),
            (Prefixed, "${workspaceFolderBasename}", vec![plain("site")]),
            (Any, "${env:X}${Y}", vec![variable("X"), variable("Y")]),
            (Any, "open ${", vec![plain("open ${")]),
        ] {
            assert_eq!(split(notation, text).0.0, pieces, "{text}");
        }
    }

    #[test]
    fn a_reference_without_a_counterpart_becomes_a_variable_and_is_named() {
        let (text, notes) = split(ReferenceNotation::Braced, "${global_data.token}");
        assert_eq!(text.0, [variable("TOKEN")]);
        assert!(notes[0].contains("${global_data.token}") && notes[0].contains("TOKEN"));
    }
}
