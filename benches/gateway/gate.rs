//! The gate: no change affects the cost of a call without a documented reason.
//!
//! `instructions.toml` has the instructions per call of every measured path, and the reason of each
//! figure's last change. The paths are the gateway between the eras, in front of a child process,
//! with an API key, with few and many tools, with `trunkline top` open, with two replicas, and with
//! all checks switched on; and both bare proxies. A figure that changes by more than [`TOLERANCE`] fails, in
//! both directions and for the proxies as well. More instructions may be a mistake. Fewer must be
//! recorded, or the next change may lose them again. A changed figure of a proxy or an unrelated
//! path indicates another cause: a crate, the compiler, a profile, or the way of counting. One
//! command updates all figures, with the reason.
//!
//! The program is the release build, as the README's first command builds it. The distribution
//! build uses link-time optimization, which takes fewer instructions and longer than the gate
//! itself; CI would build it for this purpose only. A change of the code affects both alike, and
//! figures of one are never compared with figures of the other.
//!
//! The counts are the same on every machine as far as possible: valgrind emulates one kind of
//! processor, the compiler and the crates are pinned, and copies do not depend on the C library's
//! choice of instructions (`Wrapper::callgrind`). The C library and valgrind itself remain, so the
//! file records the versions with which the figures were counted, and a failure reports different
//! ones.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use trunkline::mcp::Era;

use crate::checks;
use crate::instructions::{CountedWay, other};
use crate::process::Process;

/// The contents of the file.
#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct HeldCounts {
    /// The versions of the tools that counted the figures.
    tools: String,
    #[serde(default, rename = "way")]
    ways: Vec<HeldCount>,
}

/// The figure of one path.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct HeldCount {
    name: String,
    /// User instructions per call.
    instructions: u64,
    /// Reason of its last change.
    reason: String,
}

/// A path, and its current instructions per call.
type Counted = (String, u64);

/// Counts and compares. Returns false if a figure changed.
pub async fn check() -> bool {
    let held = read();
    let counted = count().await;
    println!("| way | instructions | held | moved by |\n|---|--:|--:|--:|");
    for (name, now) in &counted {
        let then = held.of(name);
        let moved = then.map_or_else(|| "–".into(), |then| format!("{:+.1} %", share(*now, then)));
        let then = then.map_or_else(|| "–".into(), |then| then.to_string());
        println!("| {name} | {now} | {then} | {moved} |");
    }
    println!();
    let faults = faults(&held, &counted);
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        let here = tools();
        if here != held.tools {
            println!("The figures were counted with {}, and here with {here}.", held.tools);
        }
        println!("If this is what a call has to take, write all figures anew: {REBASE}");
    }
    println!("instructions per call: {}", if faults.is_empty() { "held" } else { "NOT held" });
    faults.is_empty()
}

/// Counts, and records every figure that changed by 1 % or more, with the reason.
pub async fn write(reason: &str) {
    assert!(!reason.trim().is_empty(), "{REBASE}");
    let held = read();
    let mut ways = Vec::new();
    for (name, now) in count().await {
        let known = held.ways.iter().find(|known| known.name == name);
        let kept = known.filter(|known| share(now, known.instructions).abs() < 1.0);
        match (kept, known) {
            (Some(kept), _) => println!("{name}: {} stays", kept.instructions),
            (None, Some(known)) => println!("{name}: {} → {now}", known.instructions),
            (None, None) => println!("{name}: {now}"),
        }
        ways.push(kept.cloned().unwrap_or_else(|| HeldCount {
            name,
            instructions: now,
            reason: reason.trim().to_owned(),
        }));
    }
    let text = toml::to_string(&HeldCounts { tools: tools(), ways }).unwrap();
    std::fs::write(file(), format!("{HEAD}\n{text}")).unwrap();
}

async fn count() -> Vec<Counted> {
    let mock = Process::mock(&[]);
    let mut counted = Vec::new();
    for way in ways() {
        counted.push((way.name(), way.count(&mock.url).await));
    }
    counted.push(checks::count_all(&mock.url).await);
    counted
}

fn ways() -> Vec<CountedWay> {
    let mut ways = Vec::new();
    for client in [Era::Modern, Era::Legacy] {
        ways.extend([CountedWay::Proxy(client), CountedWay::InlineProxy(client)]);
        ways.extend([client, other(client)].map(|server| CountedWay::Gateway { client, server }));
    }
    ways.extend([CountedWay::WithTop, CountedWay::Stdio, CountedWay::ApiKey, FEW, MANY]);
    ways.extend([CountedWay::AtOwner, CountedWay::Forwarded]);
    ways
}

/// Returns the faults of the figures, one sentence each.
fn faults(held: &HeldCounts, counted: &[Counted]) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, now) in counted {
        let tolerance = tolerance_of(name);
        match held.of(name).map(|then| share(*now, then)) {
            None => faults.push(format!("{name}: no figure is held for it.")),
            Some(moved) if moved > tolerance => faults.push(format!(
                "{name}: a call takes {moved:.1} % more instructions than the figure."
            )),
            Some(moved) if moved < -tolerance => faults.push(format!(
                "{name}: a call takes {:.1} % fewer instructions than the figure. What was won \
                 has to be held, and what was not meant to be has to be explained.",
                -moved
            )),
            Some(_) => {}
        }
    }
    for known in &held.ways {
        if !counted.iter().any(|(name, _)| *name == known.name) {
            faults.push(format!("{}: it is held and not counted any more.", known.name));
        }
    }
    let of = |way: CountedWay| counted.iter().find(|(name, _)| *name == way.name());
    for (less, more, limit) in GROWTH {
        let (Some((base, less)), Some((name, more))) = (of(less), of(more)) else { continue };
        let growth = share(*more, *less);
        if growth > limit {
            faults.push(format!(
                "{name}: a call takes {growth:.1} % more instructions than on the way {base:?}."
            ));
        }
    }
    if let Some((name, now)) = of(PLAIN).filter(|(_, now)| *now > UNOBSERVED_LIMIT) {
        faults.push(format!(
            "{name}: a call takes {now} instructions, and without observers at most \
             {UNOBSERVED_LIMIT}."
        ));
    }
    faults
}

/// Returns the change in per cent that a figure may have.
fn tolerance_of(name: &str) -> f64 {
    let of_replicas =
        [CountedWay::AtOwner, CountedWay::Forwarded].iter().any(|it| it.name() == name);
    if of_replicas { REPLICA_TOLERANCE } else { TOLERANCE }
}

impl HeldCounts {
    fn of(&self, name: &str) -> Option<u64> {
        self.ways.iter().find(|known| known.name == name).map(|known| known.instructions)
    }
}

/// Returns the increase in per cent.
fn share(now: u64, then: u64) -> f64 {
    100.0 * (now as f64 / then as f64 - 1.0)
}

/// Returns the tools that affect the counts besides the code.
fn tools() -> String {
    let first_line = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().map(|output| output.stdout);
        let text = String::from_utf8_lossy(&output.unwrap_or_default()).into_owned();
        text.lines().next().unwrap_or("unknown").trim().to_owned()
    };
    let rustc = first_line("rustc", &["--version"]);
    let valgrind = first_line("valgrind", &["--version"]);
    let libc = first_line("getconf", &["GNU_LIBC_VERSION"]);
    format!("{rustc}, {valgrind}, {libc}")
}

fn read() -> HeldCounts {
    match std::fs::read_to_string(file()) {
        Ok(text) => toml::from_str(&text).expect("benches/gateway/instructions.toml"),
        Err(_) => HeldCounts::default(),
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/gateway/instructions.toml")
}

/// Checks the comparison itself, on invented figures. The bench has no test harness: this runs with
/// its few calls of each kind.
pub fn try_out() {
    let held = |figures: &[(&str, u64)]| HeldCounts {
        tools: "these".into(),
        ways: figures
            .iter()
            .map(|(name, instructions)| HeldCount {
                name: (*name).into(),
                instructions: *instructions,
                reason: String::new(),
            })
            .collect(),
    };
    let faults_of = |then: &[(&str, u64)], now: &[(&str, u64)]| {
        let now: Vec<_> = now.iter().map(|(name, now)| ((*name).to_owned(), *now)).collect();
        let mut text = String::new();
        for fault in faults(&held(then), &now) {
            writeln!(text, "{fault}").unwrap();
        }
        text
    };
    let then = [("proxy", 1000), ("way", 2000)];
    assert_eq!(faults_of(&then, &[("proxy", 990), ("way", 2050)]), "");
    for (now, fault) in [
        ([("proxy", 1000), ("way", 2070)], "way: a call takes 3.5 % more"),
        ([("proxy", 1000), ("way", 1900)], "way: a call takes 5.0 % fewer"),
        ([("proxy", 1100), ("way", 2000)], "proxy: a call takes 10.0 % more"),
        ([("proxy", 1000), ("new way", 2000)], "new way: no figure is held"),
        ([("proxy", 1000), ("new way", 2000)], "way: it is held and not counted"),
    ] {
        let faults = faults_of(&then, &now);
        assert!(faults.contains(fault), "{fault:?} in {faults:?}");
    }
    let tools = [(&*FEW.name(), 1000), (&*MANY.name(), 1040)];
    assert!(faults_of(&tools, &tools).contains("4.0 % more"), "growth with tools");
    let top = [(&*PLAIN.name(), 1000), (&*CountedWay::WithTop.name(), 1031)];
    assert!(faults_of(&top, &top).contains("3.1 % more"), "the cost of top");
    for (way, limit) in [(CountedWay::AtOwner, 40), (CountedWay::Forwarded, 1900)] {
        let name = way.name();
        for (more, fails) in [(limit - 1, false), (limit + 1, true)] {
            let figures = [(&*ALONE.name(), 1000), (&*name, 1000 + more)];
            let faults = faults_of(&figures, &figures);
            assert_eq!(faults.contains("more instructions than on the way"), fails, "{faults}");
        }
    }
    let slow = [(&*PLAIN.name(), UNOBSERVED_LIMIT + 1)];
    assert!(faults_of(&slow, &slow).contains("without observers"), "a limit of its own");
    let file = held(&then);
    assert_eq!(toml::from_str::<HeldCounts>(&toml::to_string(&file).unwrap()).unwrap(), file);
    let held: Vec<_> = read().ways.into_iter().map(|way| way.name).collect();
    let counted = ways().into_iter().map(CountedWay::name);
    let counted: Vec<_> = counted.chain([checks::ALL.to_owned()]).collect();
    assert_eq!(held, counted, "instructions.toml has every way: {REBASE}");
}

/// A change by more than this many per cent fails.
const TOLERANCE: f64 = 3.0;
/// Limit for a call that nobody observes: 1 % more than the 93,729 instructions that it took before
/// the gateway could be observed.
const UNOBSERVED_LIMIT: u64 = 94_666;
/// The way that `top` is compared with, and that has the limit.
const PLAIN: CountedWay = CountedWay::Gateway { client: Era::Modern, server: Era::Modern };
/// The way without replicas that replicas are compared with.
const ALONE: CountedWay = CountedWay::Gateway { client: Era::Legacy, server: Era::Legacy };
/// The same for replicas, whose renewals of leases are subtracted by their time.
const REPLICA_TOLERANCE: f64 = 6.0;
/// Ways, others that may take more, and the limits in per cent. The goals for replicas are 3 % at the owner
/// and 100 % for a forwarded call; the limits hold what is reached.
const GROWTH: [(CountedWay, CountedWay, f64); 4] = [
    (FEW, MANY, TOLERANCE),
    (PLAIN, CountedWay::WithTop, TOLERANCE),
    (ALONE, CountedWay::AtOwner, 4.0),
    (ALONE, CountedWay::Forwarded, 190.0),
];
/// Growth with the number of tools.
const FEW: CountedWay = CountedWay::Tools(10);
const MANY: CountedWay = CountedWay::Tools(1000);
const REBASE: &str = "cargo bench --bench gateway -- --gate --write \"the reason\"";
const HEAD: &str = "# User instructions per `tools/call` (0.6 KB, answered by 1 KB) of the release build with its\n\
    # default policy, as callgrind counts them. A change that moves a figure by more than 3 %, up or\n\
    # down, fails in CI until the figures are written anew, with the reason:\n\
    #\n\
    #     cargo bench --bench gateway -- --gate --write \"the reason\"\n";
