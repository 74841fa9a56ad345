//! The table of targets: the promised value, the measured value, and the verdict.
//!
//! Each row is measured separately, and can be selected by name. A row that cannot be measured
//! contains the reason, and the others continue.

mod bulk;
mod calls;
mod growth;
mod memory;
mod sessions;
mod start;
mod stdio;
mod streams;
mod syscalls;

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use tokio::task::LocalSet;
use trunkline::bench::{Contest, Leg, Spread};

use crate::plan::Span;

/// One row of the table.
pub struct Row {
    what: String,
    target: String,
    figure: String,
    /// True if the target is met; `None` if that cannot be decided.
    holds: Option<bool>,
}

impl Row {
    /// A ratio with a maximum.
    fn ratio(what: impl Into<String>, most: f64, found: Option<Spread>) -> Self {
        let (figure, holds) = match found {
            // Zero or less: other activity of the machine was larger.
            Some(it) if it.median <= 0.0 => ("lost in the noise".to_owned(), None),
            Some(it) => (
                format!("{:.2} × ({:.2}–{:.2})", it.median, it.least, it.most),
                Some(it.median <= most),
            ),
            None => ("what it is compared with is too small to be measured".to_owned(), None),
        };
        Self { what: what.into(), target: format!("≤ {most} ×"), figure, holds }
    }

    /// A ratio without a target.
    fn told(what: impl Into<String>, found: Option<Spread>) -> Self {
        let row = Self::ratio(what, f64::INFINITY, found);
        Self { target: "–".to_owned(), holds: None, ..row }
    }

    /// Any other figure.
    fn new(
        what: impl Into<String>,
        target: impl Into<String>,
        figure: impl Into<String>,
        holds: Option<bool>,
    ) -> Self {
        Self { what: what.into(), target: target.into(), figure: figure.into(), holds }
    }

    fn line(&self) -> String {
        let Self { what, target, figure, holds } = self;
        let holds = match holds {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        format!("| {what} | {target} | {figure} | {holds} |\n")
    }
}

/// Measures the rows of these names, or all, and prints each when it is
/// complete. Returns the whole table.
pub async fn table(names: &[String], span: &Span) -> String {
    for name in names {
        assert!(
            NAMES.contains(&name.as_str()),
            "unknown row {name}: expected {}",
            NAMES.join(", ")
        );
    }
    let mut text = String::new();
    let mut tell = |part: &str| {
        print!("{part}");
        std::io::stdout().flush().unwrap();
        text += part;
    };
    tell("| what | target | measured | holds |\n|---|---|---|---|\n");
    for name in NAMES {
        if !names.is_empty() && !names.iter().any(|asked| asked == name) {
            continue;
        }
        let begun = Instant::now();
        for row in measured(name, *span).await {
            tell(&row.line());
        }
        eprintln!("{name}: {} s", begun.elapsed().as_secs());
    }
    text
}

/// Measures the rows of one name. A panic in one ends only that one.
async fn measured(name: &'static str, span: Span) -> Vec<Row> {
    let local = LocalSet::new();
    let rows = local.spawn_local(rows(name, span));
    match local.run_until(rows).await {
        Ok(rows) => rows,
        Err(error) => {
            let why = error.try_into_panic().ok();
            let why = why.as_deref().and_then(|why| {
                why.downcast_ref::<String>()
                    .cloned()
                    .or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            });
            let why = why.unwrap_or_default().replace(['\n', '|'], " ");
            vec![Row::new(name, "", format!("could not be measured: {why}"), None)]
        }
    }
}

async fn rows(name: &'static str, span: Span) -> Vec<Row> {
    match name {
        "instructions" => calls::instructions().await,
        "cpu" => calls::cpu(&span).await,
        "system-calls" => syscalls::rows(&span).await,
        "added" => calls::added(&span).await,
        "eras" => calls::eras(&span).await,
        "list" => bulk::list(&span).await,
        "large" => bulk::large(&span).await,
        "memory" => memory::rows().await,
        "streams" => streams::rows(&span).await,
        "threads" => calls::threads(&span).await,
        "growth" => growth::rows().await,
        "start" => start::rows(&span).await,
        "stdio" => stdio::rows(&span).await,
        other => unreachable!("{other}"),
    }
}

/// The ratio of one figure to another, by round.
pub fn beside(
    contest: &Contest,
    place: usize,
    base: usize,
    read: impl Fn(&Leg) -> Option<f64>,
) -> Option<Spread> {
    let (own, base) = (contest.figures(place, &read), contest.figures(base, &read));
    Spread::of(own.into_iter().zip(base).map(|(own, base)| own / base).collect())
}

/// A figure with the spread of its rounds.
fn spread(values: Vec<f64>, unit: &str) -> String {
    let mut text = String::new();
    if let Some(it) = Spread::of(values) {
        write!(text, "{:.1} {unit} ({:.1}–{:.1})", it.median, it.least, it.most).unwrap();
    }
    text
}

/// The rows, in the order of the table.
const NAMES: [&str; 13] = [
    "instructions",
    "cpu",
    "system-calls",
    "added",
    "eras",
    "list",
    "large",
    "memory",
    "streams",
    "threads",
    "growth",
    "start",
    "stdio",
];
