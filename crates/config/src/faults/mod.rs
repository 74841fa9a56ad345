//! Faults of a configuration: their positions, order and rendering. The faults of single settings are
//! here, too, so that the reader can report each without knowing its section.

pub(crate) mod cluster;
pub(crate) mod condition;
pub(crate) mod embeddings;
pub(crate) mod expression;
pub(crate) mod help;
pub(crate) mod issuer;
pub(crate) mod oauth;
pub(crate) mod problem;
pub(crate) mod syntax;
mod syntax_texts;
pub(crate) mod url;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use problem::SettingFault;

/// One fault of a configuration.
#[derive(Debug)]
pub struct ConfigFault {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The setting, such as `servers.github.url`; empty for the whole file.
    pub key: String,
    /// The violated rule, with its help.
    pub problem: SettingFault,
    excerpt: SourceExcerpt,
}

/// The excerpt of a faulty line, without secrets.
#[derive(Debug, Clone)]
struct SourceExcerpt {
    line: String,
    /// The byte range of the fault within the line.
    span: Range<usize>,
}

/// The use of terminal colours in a rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// Plain text.
    Never,
    /// ANSI styles.
    Always,
}

/// All faults of one configuration, sorted by line.
///
/// `Display` prints one line per fault, for logs:
/// `gateway.toml:42: servers.github.url: PROBLEM; HELP`. [`ConfigFaults::render`] draws them below
/// their source lines, for people.
#[derive(Debug)]
pub struct ConfigFaults {
    /// The name of the file in messages.
    name: String,
    list: Vec<ConfigFault>,
    files: Vec<PathBuf>,
}

/// A fault that appears when a setting is used: of a certificate, a key or a host name. The value of
/// its setting is shown, so the setting must not hold a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateFault {
    /// The setting, such as `gateway.tls.cert`.
    pub key: String,
    /// The violated rule.
    pub text: String,
    /// The correction, as an imperative.
    pub help: String,
}

/// `gateway.tls.cert: PROBLEM; HELP`.
impl fmt::Display for LateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.key, self.text, self.help)
    }
}

/// A fault before its line is known.
#[derive(Debug)]
pub(crate) struct FoundProblem {
    pub(crate) span: Range<usize>,
    /// The part of the text that an excerpt may show in quotes: the span, or more around it.
    pub(crate) shown: Range<usize>,
    pub(crate) key: String,
    pub(crate) problem: SettingFault,
}

impl FoundProblem {
    /// A fault with an excerpt that shows no other text in quotes.
    pub(crate) fn located(span: Range<usize>, key: String, problem: SettingFault) -> Self {
        Self { shown: span.clone(), span, key, problem }
    }
}

/// The faults of one reading, with the context to report them.
pub(crate) struct Findings<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    pub(crate) found: Vec<FoundProblem>,
    /// The byte ranges of secrets in the text.
    pub(crate) hidden: Vec<Range<usize>>,
    pub(crate) files: Vec<PathBuf>,
}

impl ConfigFaults {
    /// The most faults that are reported at once.
    pub const MAX: usize = 100;

    pub(crate) fn new(mut findings: Findings<'_>) -> Self {
        findings.found.sort_by_key(|found| found.span.start);
        let left_out = findings.found.len().saturating_sub(Self::MAX);
        findings.found.truncate(Self::MAX);
        let lines = LineIndex::index_lines(findings.text);
        let text = hide_secrets(findings.text, &findings.hidden);
        let place = |found| locate_problem(found, &text, &lines);
        let mut list: Vec<_> = findings.found.into_iter().map(place).collect();
        if let Some(last) = list.last().filter(|_| left_out > 0) {
            let (key, excerpt) = (String::new(), last.excerpt.clone());
            list.push(ConfigFault {
                key,
                problem: SettingFault::More { count: left_out },
                excerpt,
                ..*last
            });
        }
        Self { name: findings.name.to_owned(), list, files: findings.files }
    }

    /// The faults, sorted by line: at most [`ConfigFaults::MAX`], and one with the number of
    /// further faults.
    pub fn list(&self) -> &[ConfigFault] {
        &self.list
    }

    /// Every file that `${file:…}` names, readable or not: a change of one may correct the
    /// configuration.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Draws the faults below their source lines, with secrets masked.
    pub fn render(&self, color: Color) -> String {
        let renderer = match color {
            Color::Never => Renderer::plain(),
            Color::Always => Renderer::styled(),
        };
        let drawn: Vec<_> =
            self.list.iter().map(|fault| self.render_fault(fault, &renderer)).collect();
        drawn.join("\n\n")
    }

    fn render_fault(&self, fault: &ConfigFault, renderer: &Renderer) -> String {
        let (title, help) = (fault.titled_message(), fault.problem.help_text());
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

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let (line, title, help) =
                (fault.line, fault.titled_message(), fault.problem.help_text());
            write!(f, "{}:{line}: {title}; {help}", self.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}

impl ConfigFault {
    /// `servers.github.url: PROBLEM`.
    fn titled_message(&self) -> String {
        let what = self.problem.to_string().replace(char::is_control, " ");
        if self.key.is_empty() { what } else { format!("{}: {what}", self.key) }
    }
}

/// The byte at which each line begins.
pub(crate) struct LineIndex(Vec<usize>);

impl LineIndex {
    pub(crate) fn index_lines(text: &str) -> Self {
        let later = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(later).collect())
    }

    /// The number of the line with this byte, counted from 1.
    pub(crate) fn line_number(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at).max(1)
    }

    /// The offset of a line's first byte.
    fn line_start(&self, number: usize) -> usize {
        self.0.get(number - 1).copied().unwrap_or(0)
    }
}

/// Locates a fault, and keeps an excerpt. The excerpt is limited to one line: a broken multi-line
/// string would bury the message.
fn locate_problem(found: FoundProblem, text: &str, lines: &LineIndex) -> ConfigFault {
    let line = lines.line_number(found.span.start);
    let start = lines.line_start(line);
    let column = text.get(start..found.span.start).map_or(0, |before| before.chars().count()) + 1;
    let shown = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or("");
    let from = (found.span.start - start).min(shown.len());
    let to = found.span.end.saturating_sub(start).clamp(from, shown.len());
    let within = |at: usize| at.saturating_sub(start).min(shown.len());
    let kept = within(found.shown.start)..within(found.shown.end);
    let excerpt = excerpt_around(&hide_quoted_text(shown, kept), from, to);
    ConfigFault { line, column, key: found.key, problem: found.problem, excerpt }
}

/// Masks every hidden range with `*`, byte for byte, so that all spans stay valid.
fn hide_secrets(text: &str, hidden: &[Range<usize>]) -> String {
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

/// Masks the quoted strings of a line except those at `own`: valid strings need not be shown, and a
/// mistyped `header = { … }` may contain a secret that the reader did not recognise.
fn hide_quoted_text(line: &str, own: Range<usize>) -> String {
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

/// The part of a line around the fault, so that a message stays readable.
fn excerpt_around(line: &str, from: usize, to: usize) -> SourceExcerpt {
    const SHOWN_AROUND: usize = 100;
    let start = line.floor_char_boundary(from.saturating_sub(SHOWN_AROUND));
    let end = line.ceil_char_boundary(to.min(from + SHOWN_AROUND) + SHOWN_AROUND);
    let from = line.floor_char_boundary(from);
    let to = line.ceil_char_boundary(to).clamp(from, end.max(from));
    let line = line.get(start..end).unwrap_or("").to_owned();
    SourceExcerpt { line, span: from - start..to - start }
}
