//! Faults: where they are, in which order they are told, and how they look.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::problem::Problem;

/// One thing wrong with a configuration.
#[derive(Debug)]
pub struct Fault {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The setting, such as `servers.github.url`; empty where it is the file.
    pub key: String,
    /// What is wrong; its help says what would be right.
    pub problem: Problem,
    /// Where it is, in bytes of the text.
    span: Range<usize>,
}

/// Whether a rendering may use terminal colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// Plain text.
    Never,
    /// ANSI styles.
    Always,
}

/// Everything wrong with one configuration, in the order of its lines.
///
/// `Display` is one line a fault, for logs: `gateway.toml:42: servers.github.url:
/// WHAT; HELP`. [`Faults::render`] draws them under their source lines, for people.
#[derive(Debug)]
pub struct Faults {
    /// What the file is called in messages.
    name: String,
    /// The text, its secrets starred out.
    text: String,
    list: Vec<Fault>,
    files: Vec<PathBuf>,
}

/// A fault before its line is known.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) span: Range<usize>,
    pub(super) key: String,
    pub(super) problem: Problem,
}

/// What a reading found, with what is needed to tell of it.
pub(super) struct Findings<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    pub(super) found: Vec<Found>,
    /// Where secrets stand in the text.
    pub(super) hidden: Vec<Range<usize>>,
    pub(super) files: Vec<PathBuf>,
}

impl Faults {
    /// The most faults that are told at once.
    pub const MAX: usize = 100;

    pub(super) fn new(mut findings: Findings<'_>) -> Self {
        findings.found.sort_by_key(|found| found.span.start);
        let count = findings.found.len();
        findings.found.truncate(Self::MAX);
        let lines = line_starts(findings.text);
        let mut list: Vec<_> =
            findings.found.into_iter().map(|found| place(found, findings.text, &lines)).collect();
        if let Some(last) = list.last().filter(|_| count > Self::MAX) {
            let more = Problem::More { count: count - Self::MAX };
            list.push(Fault {
                key: String::new(),
                problem: more,
                span: last.span.clone(),
                ..*last
            });
        }
        Self {
            name: findings.name.to_owned(),
            text: starred(findings.text, &findings.hidden),
            list,
            files: findings.files,
        }
    }

    /// The faults, in line order. At most [`Faults::MAX`] and one that says how
    /// many are left out.
    pub fn list(&self) -> &[Fault] {
        &self.list
    }

    /// Every file that `${file:…}` named, readable or not: when one changes,
    /// the configuration may be right.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The faults drawn under their source lines, secrets starred out.
    pub fn render(&self, color: Color) -> String {
        let renderer = match color {
            Color::Never => Renderer::plain(),
            Color::Always => Renderer::styled(),
        };
        let drawn: Vec<_> = self.list.iter().map(|fault| self.draw(fault, &renderer)).collect();
        drawn.join("\n\n")
    }

    fn draw(&self, fault: &Fault, renderer: &Renderer) -> String {
        let title = fault.titled();
        let help = fault.problem.help();
        // Only the fault's own line: the renderer reads all that it is given, and
        // a long value (a broken multi-line string) would bury the message.
        let start = self
            .text
            .get(..fault.span.start)
            .map_or(0, |before| before.rfind('\n').map_or(0, |newline| newline + 1));
        let line = self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("");
        let from = fault.span.start.saturating_sub(start).min(line.len());
        let to = fault.span.end.saturating_sub(start).clamp(from, line.len());
        let (line, from, to) = window(line, from, to);
        let snippet = Snippet::source(line)
            .line_start(fault.line)
            .path(self.name.as_str())
            .annotation(AnnotationKind::Primary.span(from..to));
        let group = Level::ERROR
            .primary_title(title.as_str())
            .element(snippet)
            .element(Level::HELP.message(help.as_str()));
        renderer.render(&[group])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let (line, title, help) = (fault.line, fault.titled(), fault.problem.help());
            write!(f, "{}:{line}: {title}; {help}", self.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl Fault {
    /// `servers.github.url: WHAT`.
    fn titled(&self) -> String {
        let what = self.problem.to_string().replace(char::is_control, " ");
        if self.key.is_empty() { what } else { format!("{}: {what}", self.key) }
    }
}

/// The byte at which each line begins.
fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

fn place(found: Found, text: &str, lines: &[usize]) -> Fault {
    let line = lines.partition_point(|start| *start <= found.span.start).max(1);
    let start = lines.get(line - 1).copied().unwrap_or(0);
    let column = text.get(start..found.span.start).map_or(0, |before| before.chars().count()) + 1;
    Fault { line, column, key: found.key, problem: found.problem, span: found.span }
}

/// The text with every hidden stretch replaced by as many bytes of `*`, so that
/// all spans keep their places.
fn starred(text: &str, hidden: &[Range<usize>]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in hidden {
        for byte in bytes.get_mut(range.clone()).unwrap_or_default() {
            if *byte != b'\n' {
                *byte = b'*';
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A piece of a long line around what is wrong, so that a message stays readable.
fn window(line: &str, from: usize, to: usize) -> (&str, usize, usize) {
    const AROUND: usize = 100;
    let start = line.floor_char_boundary(from.saturating_sub(AROUND));
    let end = line.ceil_char_boundary(to.min(from + AROUND).saturating_add(AROUND).min(line.len()));
    let from = line.floor_char_boundary(from);
    let to = line.ceil_char_boundary(to).min(end);
    (line.get(start..end).unwrap_or(""), from - start, to.max(from) - start)
}
