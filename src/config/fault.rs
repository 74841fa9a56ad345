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
    excerpt: Excerpt,
}

/// What a fault shows of the text: its own line, without secrets.
#[derive(Debug, Clone)]
struct Excerpt {
    line: String,
    /// Where the fault is, in bytes of that line.
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
        let left_out = findings.found.len().saturating_sub(Self::MAX);
        findings.found.truncate(Self::MAX);
        let lines = Lines::of(findings.text);
        let text = starred(findings.text, &findings.hidden);
        let place = |found| place(found, &text, &lines);
        let mut list: Vec<_> = findings.found.into_iter().map(place).collect();
        if let Some(last) = list.last().filter(|_| left_out > 0) {
            let (key, excerpt) = (String::new(), last.excerpt.clone());
            list.push(Fault { key, problem: Problem::More { count: left_out }, excerpt, ..*last });
        }
        Self { name: findings.name.to_owned(), list, files: findings.files }
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
        let (title, help) = (fault.titled(), fault.problem.help());
        let snippet = Snippet::source(fault.excerpt.line.as_str())
            .line_start(fault.line)
            .path(self.name.as_str())
            .annotation(AnnotationKind::Primary.span(fault.excerpt.span.clone()));
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
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &str) -> Self {
        let later = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(later).collect())
    }

    /// The line that a byte is on, counted from 1.
    pub(super) fn number(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at).max(1)
    }

    /// The byte at which a line begins.
    fn start(&self, number: usize) -> usize {
        self.0.get(number - 1).copied().unwrap_or(0)
    }
}

/// Finds a fault's line, and keeps what may be shown of it. Only of that line:
/// a broken multi-line string would bury the message.
fn place(found: Found, text: &str, lines: &Lines) -> Fault {
    let line = lines.number(found.span.start);
    let start = lines.start(line);
    let column = text.get(start..found.span.start).map_or(0, |before| before.chars().count()) + 1;
    let shown = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("");
    let from = (found.span.start - start).min(shown.len());
    let to = found.span.end.saturating_sub(start).clamp(from, shown.len());
    let excerpt = window(&concealed(shown, from..to), from, to);
    Fault { line, column, key: found.key, problem: found.problem, excerpt }
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

/// A line without the strings on it that are not the fault's own: what is right
/// needs no showing, and a mistyped `header = { … }` may hold a secret that the
/// reader did not know for one.
fn concealed(line: &str, own: Range<usize>) -> String {
    let (mut bytes, mut quote, mut escaped) = (line.as_bytes().to_vec(), None, false);
    for (at, byte) in bytes.iter_mut().enumerate() {
        match quote {
            Some(open) if *byte == open && !escaped => quote = None,
            Some(open) => {
                escaped = open == b'"' && *byte == b'\\' && !escaped;
                if !own.contains(&at) {
                    *byte = b'*';
                }
            }
            None if matches!(*byte, b'"' | b'\'') => quote = Some(*byte),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The piece of a line around what is wrong, so that a message stays readable.
fn window(line: &str, from: usize, to: usize) -> Excerpt {
    const AROUND: usize = 100;
    let start = line.floor_char_boundary(from.saturating_sub(AROUND));
    let end = line.ceil_char_boundary(to.min(from + AROUND) + AROUND);
    let from = line.floor_char_boundary(from);
    let to = line.ceil_char_boundary(to).clamp(from, end.max(from));
    let line = line.get(start..end).unwrap_or("").to_owned();
    Excerpt { line, span: from - start..to - start }
}
