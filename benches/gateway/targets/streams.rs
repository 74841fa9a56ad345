//! Ten thousand Legacy sessions with open streams, and calls at the same time.
//!
//! A stream has 240 keep-alives per hour, one every 15 seconds. Here they are
//! sent thirty times as fast, so that an hour takes two minutes, or longer if
//! the machine cannot write and read 20,000 of them a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trunkline::bench::{Interrupt, Load, LoadPace, run};
use trunkline::mcp::Era;

use super::Row;
use super::memory::limits;
use super::sessions::{raise_files, sessions, streams};
use crate::plan::{BASICS, Span, Way, behind, configured, load, ready, servers};
use crate::process::{Process, Wrapper};
use crate::watch::Line;

pub async fn rows(span: &Span) -> Vec<Row> {
    let quick = span.rounds < crate::FULL.rounds;
    let (wanted, keep_alives) = if quick { (1_000, 20) } else { (10_000, HOUR) };
    let files = usize::try_from(raise_files()).unwrap_or(usize::MAX);
    let count = wanted.min(files.saturating_sub(500));
    let folder = tempfile::tempdir().unwrap();
    let mock = Process::mock(&[]);
    let basics = format!("{BASICS}{}", limits(count)).replacen(
        "reload",
        &format!("keep_alive = \"{}ms\"\nreload", EVERY.as_millis()),
        1,
    );
    let text = format!("{basics}{}", servers(&mock.url, ""));
    let gateway = configured(folder.path(), "streams.toml", &text, &Wrapper::none());
    ready(&gateway, behind(Era::Legacy)).await;
    ready(&gateway, behind(Era::Modern)).await;

    let ids = sessions(&gateway.url, count).await;
    let open = streams(&gateway.url, &ids).await;
    let before: Vec<usize> = open.iter().map(|seen| seen.comments.get()).collect();
    let lasts = EVERY * keep_alives;
    let (mut done, mut failed, mut unsent) = (0, 0, 0);
    let mut p99 = 0.0_f64;
    // Calls of one era for half of the time, and of the other for the other
    // half.
    for era in [Era::Modern, Era::Legacy] {
        let way = Way::new("gateway", gateway.url.clone(), era, behind(era));
        let load = Load {
            pace: LoadPace::Open { per_second: 200.0 },
            duration: Some(lasts / 2),
            warmup: Duration::ZERO,
            ..load(8, span)
        };
        let script = Arc::new(way.script(&load).await.expect("the way leads there"));
        let mut line = Line::new("streams", 2);
        let outcome = run(&script, &load, None, &Interrupt::new(), &mut line).await;
        let outcome = outcome.expect("a run");
        let whole = outcome.tally.whole();
        (done, failed) = (done + whole.done, failed + whole.failed);
        unsent += outcome.unsent;
        p99 = p99.max(outcome.micros(0.99).unwrap_or(f64::NAN));
    }
    let heard = || {
        let heard = open.iter().zip(&before).map(|(seen, before)| seen.comments.get() - before);
        heard.min().unwrap_or(0)
    };
    let begun = Instant::now();
    while heard() < keep_alives as usize && begun.elapsed() < lasts {
        tokio::time::sleep(EVERY).await;
    }
    let least = heard();
    let ended = open.iter().filter(|seen| seen.ended.get()).count();
    let right = ended == 0 && failed == 0 && done > 0 && least >= keep_alives as usize;
    vec![Row::new(
        format!("{count} Legacy sessions with open streams, {keep_alives} keep-alives each"),
        "10,000, an hour's worth (240), no call failed",
        format!(
            "{ended} ended, at least {least} keep-alives on each; {done} calls beside them, \
             {failed} failed ({unsent} were not sent in time), p99 {:.1} ms",
            p99 / 1e3
        ),
        Some(right && (quick || count == wanted)),
    )]
}

const EVERY: Duration = Duration::from_millis(500);
/// Keep-alives per hour, by default.
const HOUR: u32 = 240;
