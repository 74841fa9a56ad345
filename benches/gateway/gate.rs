//! The gate: no change makes a call dearer by accident.
//!
//! `instructions.toml` says what a call takes in each of the four ways, and why
//! it last moved. A way that takes 3 % more than that fails, until somebody
//! moves the figure on purpose: `--gate --write "reason"`. One that takes 3 %
//! less asks to be moved, so that what was won is held.
//!
//! What is held is the gateway's own count, of the program as it is shipped. It
//! is the same on every machine as far as it can be: valgrind shows the program
//! one and the same kind of processor, the compiler and the crates are pinned,
//! and copies do not depend on the C library's taste (`Wrapper::callgrind`).
//! What remains is the C library itself, where another machine may have another
//! one. That is why the bare proxy is counted as well: a way has failed only if
//! it takes more than its figure *and* more than its figure in proportion to the
//! proxy. A machine on which everything takes more is told, and fails nobody.
//! The ratio alone would not do: it would hold the gateway to whatever becomes
//! of the proxy.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline::mcp::Era;

use crate::instructions::{Program, of, other};
use crate::plan::Access;
use crate::process::Process;

/// All that the file holds.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Held {
    #[serde(default, rename = "way")]
    ways: Vec<Figure>,
}

/// What one way takes.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    name: String,
    /// What the proxy took when this was written.
    proxy: u64,
    /// What the gateway took.
    gateway: u64,
    /// Why it last moved.
    reason: String,
}

/// What one way takes now.
pub struct Counted {
    pub name: String,
    pub proxy: u64,
    pub gateway: u64,
}

/// What is to be said of a way.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Held,
    /// It takes more.
    Failed,
    /// It takes less.
    Won,
    /// It takes more, and so does the proxy.
    Elsewhere,
    /// Nothing is held for it.
    Unknown,
}

/// Counts and compares; `false` where a way has failed.
pub async fn check() -> bool {
    let held = read();
    let counted = count().await;
    println!("| way | proxy | gateway | ratio | held | moved by |\n|---|--:|--:|--:|--:|--:|");
    let mut passed = true;
    let mut said = Vec::new();
    for now in &counted {
        let known = held.ways.iter().find(|figure| figure.name == now.name);
        let ratio = now.gateway as f64 / now.proxy as f64;
        let then = known.map_or_else(|| "–".to_owned(), |known| known.gateway.to_string());
        let moved = known.map_or(f64::NAN, |known| share(now.gateway, known.gateway));
        println!(
            "| {} | {} | {} | {ratio:.2} | {then} | {moved:+.1} % |",
            now.name, now.proxy, now.gateway
        );
        let verdict = judge(now, known);
        passed &= !matches!(verdict, Verdict::Failed | Verdict::Unknown);
        said.extend(sentence(now, &verdict));
    }
    println!();
    for line in said {
        println!("{line}");
    }
    println!("instructions per call: {}", if passed { "held" } else { "NOT held" });
    passed
}

/// Counts and writes down what moved by 1 % or more, with the reason.
pub async fn write(reason: &str) {
    assert!(!reason.trim().is_empty(), "--write \"why it moves\"");
    let mut held = read();
    for now in count().await {
        let new = Figure {
            name: now.name,
            proxy: now.proxy,
            gateway: now.gateway,
            reason: reason.trim().to_owned(),
        };
        match held.ways.iter_mut().find(|figure| figure.name == new.name) {
            None => {
                println!("{}: {}", new.name, new.gateway);
                held.ways.push(new);
            }
            Some(known) => {
                let moved = share(new.gateway, known.gateway);
                if moved.abs() >= 1.0 {
                    println!("{}: {} → {} ({moved:+.1} %)", new.name, known.gateway, new.gateway);
                    *known = new;
                } else {
                    println!("{}: {} stays ({moved:+.1} %)", new.name, known.gateway);
                }
            }
        }
    }
    let text = toml::to_string(&held).unwrap();
    std::fs::write(file(), format!("{HEAD}\n{text}")).unwrap();
}

/// What was held when the file was last written, for who does not count.
pub fn committed() -> String {
    let mut text =
        "| way | proxy | gateway | ratio | last moved |\n|---|--:|--:|--:|---|\n".to_owned();
    for Figure { name, proxy, gateway, reason } in read().ways {
        let ratio = gateway as f64 / proxy as f64;
        writeln!(text, "| {name} | {proxy} | {gateway} | **{ratio:.2}** | {reason} |").unwrap();
    }
    text
}

/// Counts all four ways.
pub async fn count() -> Vec<Counted> {
    let mock = Process::mock(&[]);
    let mut counted = Vec::new();
    for client in [Era::Modern, Era::Legacy] {
        let proxy = of(Program::Proxy, client, client, &mock.url).await;
        for server in [client, other(client)] {
            let gateway = of(Program::Gateway(Access::Line), client, server, &mock.url).await;
            let name = format!("{client:?} client, {server:?} server");
            counted.push(Counted { name, proxy, gateway });
        }
    }
    counted
}

fn judge(now: &Counted, held: Option<&Figure>) -> Verdict {
    let Some(held) = held else { return Verdict::Unknown };
    let own = share(now.gateway, held.gateway);
    let proxy = share(now.proxy, held.proxy);
    let beside = 100.0 * ((1.0 + own / 100.0) / (1.0 + proxy / 100.0) - 1.0);
    if own > MOST && beside > MOST {
        Verdict::Failed
    } else if own > MOST {
        Verdict::Elsewhere
    } else if own < -MOST {
        Verdict::Won
    } else {
        Verdict::Held
    }
}

fn sentence(now: &Counted, verdict: &Verdict) -> Option<String> {
    let name = &now.name;
    let move_it = "cargo bench --bench gateway -- --gate --write \"the reason\"";
    match verdict {
        Verdict::Held => None,
        Verdict::Failed => Some(format!(
            "{name}: a call takes more than {MOST} % more instructions than before. If that is \
             what it has to cost, move the figure: {move_it}"
        )),
        Verdict::Won => Some(format!(
            "{name}: a call takes more than {MOST} % fewer instructions than before. Please hold \
             what was won: {move_it}"
        )),
        Verdict::Elsewhere => Some(format!(
            "{name}: a call takes more instructions here, and so does one through the bare proxy: \
             that is the C library or a crate, not the gateway's own work. Not counted as a failure"
        )),
        Verdict::Unknown => Some(format!("{name}: no figure is held for it: {move_it}")),
    }
}

/// By how many per cent it is more.
fn share(now: u64, then: u64) -> f64 {
    100.0 * (now as f64 / then as f64 - 1.0)
}

fn read() -> Held {
    match std::fs::read_to_string(file()) {
        Ok(text) => toml::from_str(&text).expect("benches/gateway/instructions.toml"),
        Err(_) => Held::default(),
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/gateway/instructions.toml")
}

/// The judgement itself, tried on figures that are made up. The bench has no
/// test harness: this runs with its few calls of each kind.
pub fn try_out() {
    let held =
        |proxy, gateway| Figure { name: String::new(), proxy, gateway, reason: String::new() };
    let now = |proxy, gateway| Counted { name: String::new(), proxy, gateway };
    let held = held(1000, 2000);
    let judged = |proxy, gateway| judge(&now(proxy, gateway), Some(&held));
    assert_eq!(judged(1000, 2050), Verdict::Held);
    assert_eq!(judged(1000, 2070), Verdict::Failed);
    assert_eq!(judged(1020, 2120), Verdict::Failed);
    assert_eq!(judged(1100, 2200), Verdict::Elsewhere);
    assert_eq!(judged(900, 2050), Verdict::Held);
    assert_eq!(judged(1000, 1900), Verdict::Won);
    assert_eq!(judge(&now(1, 1), None), Verdict::Unknown);
    let kept: Held = toml::from_str(&toml::to_string(&Held { ways: vec![held] }).unwrap()).unwrap();
    assert_eq!(kept.ways[0].gateway, 2000);
    assert_eq!(read().ways.len(), 4, "instructions.toml has all four ways");
}

/// More than this many per cent are a move.
const MOST: f64 = 3.0;
const HEAD: &str = "# User instructions per `tools/call` (0.6 KB, answered by 1 KB) of the release build with its\n\
    # default policy, as callgrind counts them, beside the bare proxy's. A change that takes 3 % more\n\
    # fails in CI until its figure is moved, with a reason:\n\
    #\n\
    #     cargo bench --bench gateway -- --gate --write \"the reason\"\n";
