//! `trunkline bench`: a load tester for any MCP server or gateway.

mod own;
mod progress;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::bench::report::Report;
use crate::bench::{
    BenchFault, Contender, Contest, Expect, Interrupt, Load, Meter, Mix, Op, Pace, Rules, Script,
    Target,
};
use crate::mcp::Era;

use super::{FAILURE, WRONG_USE, complain, fail, print};
use own::Stage;
use progress::Progress;

/// Put a load on an MCP server or gateway, check every answer, and tell how long they took
///
/// Speaks both protocol eras over HTTP, and finds out which one the server speaks. Without --tool it
/// calls the first tool that says it only reads, with arguments made from its schema.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The endpoint, such as http://127.0.0.1:8080/mcp
    #[arg(value_name = "URL", required_unless_present_any = ["compare", "own"], conflicts_with_all = ["compare", "own"])]
    url: Option<Url>,
    /// Test two endpoints in turn, A B A B …, and print what B costs beside A
    #[arg(long, value_names = ["URL_A", "URL_B"], num_args = 2)]
    compare: Vec<Url>,
    /// Test the gateway itself: a mock server, a bare proxy before it and the gateway before it, all
    /// started here, in turn; prints what the gateway costs beside the proxy
    #[arg(long = "self", conflicts_with_all = ["compare", "header", "ca", "pid", "tool"])]
    own: bool,

    /// What to do: call a tool, ask for the list of tools, open and end sessions, or what --mix says
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "call",
        help_heading = "What is sent"
    )]
    scenario: Scenario,
    /// Weights of the operations of a mixed load, such as call=8,list=1,session=1
    #[arg(long, value_name = "WEIGHTS", value_parser = Mix::parse, help_heading = "What is sent")]
    mix: Option<Mix>,
    /// The tool to call; its name behind a gateway's prefix is found, too
    #[arg(long, value_name = "NAME", help_heading = "What is sent")]
    tool: Option<String>,
    /// The arguments to call it with; @FILE reads them; the string "{{n}}" in them is a number that
    /// no other call has
    #[arg(long, value_name = "JSON|@FILE", help_heading = "What is sent")]
    args: Option<String>,
    /// Send arguments even if they break the tool's schema
    #[arg(long, requires = "args", help_heading = "What is sent")]
    unchecked: bool,
    /// Count a call as failed whose answer does not contain this; {{n}} is the call's number
    #[arg(long, value_name = "TEXT", help_heading = "What is sent")]
    expect: Option<String>,
    /// Generated arguments and mixtures are the same for the same seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "What is sent")]
    seed: u64,
    /// A header for each request; ${env:NAME} in it is a variable's value
    #[arg(short = 'H', long, value_name = "NAME: VALUE", help_heading = "What is sent")]
    header: Vec<String>,
    /// The era to speak; without it the one that the server speaks
    #[arg(long, value_name = "ERA", value_enum, help_heading = "What is sent")]
    era: Option<EraName>,
    /// Certificates to trust besides the system's, as PEM
    #[arg(long, value_name = "FILE", help_heading = "What is sent")]
    ca: Option<PathBuf>,

    /// How many connections; each has one call under way at a time, and a session of its own if the
    /// server has such
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "How much of it")]
    connections: u32,
    /// Send so many a second, whatever the answers do (open loop), and time each from when it was
    /// due; without it each connection waits for its answer (closed loop)
    #[arg(short, long, value_name = "N/s", value_parser = per_second, help_heading = "How much of it")]
    rate: Option<f64>,
    /// How long [default: 10s; 3s for each turn with --compare]
    #[arg(short, long, value_name = "TIME", value_parser = time, help_heading = "How much of it")]
    duration: Option<Duration>,
    /// How many, instead of how long
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "How much of it")]
    requests: Option<u64>,
    /// How long calls are made that do not count, before those that do
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", help_heading = "How much of it")]
    warmup: Duration,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s", help_heading = "How much of it")]
    timeout: Duration,
    /// How many times two endpoints take turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "How much of it")]
    rounds: u16,
    /// On how many threads the load is made
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "How much of it")]
    threads: u16,

    /// Tell CPU and memory of this process as well, or of several: PID,PID; once for each endpoint
    #[arg(long, value_name = "PID", value_parser = pids, help_heading = "What is told")]
    pid: Vec<Pids>,
    /// Print JSON instead of the table
    #[arg(long, help_heading = "What is told")]
    json: bool,
    /// Write a page with curves, which needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "What is told")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  trunkline bench http://127.0.0.1:8080/mcp
      any server: a harmless tool, made-up arguments, 16 connections, 10 seconds
  trunkline bench http://127.0.0.1:8080/mcp --tool search --args '{\"query\":\"x\"}' --rate 500
      500 calls a second, timed from when each was due
  trunkline bench https://mcp.example.com/mcp -H 'Authorization: Bearer ${env:TOKEN}' --scenario list
  trunkline bench http://127.0.0.1:8080/mcp --mix call=8,list=1,session=1 --html report.html
  trunkline bench --compare http://127.0.0.1:9000/mcp http://127.0.0.1:8080/mcp --pid 123 --pid 456
      what a gateway costs beside the server behind it

To have something to test: trunkline example load --listen 127.0.0.1:9000";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// `tools/call`
    Call,
    /// `tools/list`
    List,
    /// `initialize`, a call, `DELETE`
    Session,
    /// What --mix says
    Mix,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EraName {
    /// Stateless: 2026-07-28 and later
    Modern,
    /// Sessions: up to 2025-11-25
    Legacy,
}

/// Processes that are watched together.
#[derive(Debug, Clone)]
struct Pids(Vec<u32>);

pub(super) fn run(args: &Args) -> ExitCode {
    let load = match load(args) {
        Ok(load) => load,
        Err(fault) => return wrong_use(&fault),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let told = runtime.block_on(hold(args, &load));
    // A look-up of a name cannot be called off.
    runtime.shutdown_background();
    match told {
        Ok(contest) => tell(args, &Report { contest: &contest, load: &load }),
        Err(fault) if is_wrong_use(&fault) => wrong_use(&fault),
        Err(fault) => fail(&fault),
    }
}

async fn hold(args: &Args, load: &Load) -> Result<Contest, BenchFault> {
    let interrupt = Interrupt::new();
    let ending = tokio::spawn(until_told(interrupt.clone()));
    let contest = if args.own {
        own(args, load, &interrupt).await
    } else {
        let rounds = if args.compare.is_empty() { 1 } else { args.rounds.into() };
        let rules = Rules { rounds, base: 0, direct: None };
        match contenders(args, load).await {
            Ok(contenders) => take_turns(contenders, load, rules, &interrupt).await,
            Err(fault) => Err(fault),
        }
    };
    ending.abort();
    contest
}

async fn own(args: &Args, load: &Load, interrupt: &Interrupt) -> Result<Contest, BenchFault> {
    let stage = Stage::set(load.era.unwrap_or_else(|| own::era(&load.mix))).await?;
    let rules = Rules { rounds: args.rounds.into(), base: 1, direct: Some(0) };
    let contest = match stage.contenders(load).await {
        Ok(contenders) => take_turns(contenders, load, rules, interrupt).await,
        Err(fault) => Err(fault),
    };
    stage.end().await;
    contest
}

async fn take_turns(
    contenders: Vec<Contender>,
    load: &Load,
    rules: Rules,
    interrupt: &Interrupt,
) -> Result<Contest, BenchFault> {
    let mut progress = Progress::new(load, contenders.len() * rules.rounds);
    Contest::hold(contenders, load, rules, interrupt, &mut progress).await
}

/// Whoever presses Ctrl-C wants the figures so far; who does so twice does not.
async fn until_told(interrupt: Interrupt) {
    super::serve::signals::told_to_stop().await;
    interrupt.ask();
    super::serve::signals::told_to_stop().await;
    std::process::exit(130);
}

async fn contenders(args: &Args, load: &Load) -> Result<Vec<Contender>, BenchFault> {
    let headers: Result<Vec<_>, _> = args.header.iter().map(|text| header(text)).collect();
    let headers = headers.map_err(BenchFault::Header)?;
    let urls = args.url.iter().chain(&args.compare);
    if args.pid.len() > urls.clone().count() {
        return Err(BenchFault::Options("--pid: at most one for each endpoint".into()));
    }
    let mut contenders = Vec::new();
    for (place, url) in urls.enumerate() {
        let target = Target::new(url, &headers, args.ca.as_deref()).await?;
        let meter = args.pid.get(place).map(|pids| Meter::new(pids.0.clone())).transpose()?;
        let name = match (args.url.is_some(), place) {
            (true, _) => String::new(),
            (false, 0) => "A".to_owned(),
            (false, _) => "B".to_owned(),
        };
        let script = Arc::new(Script::prepare(target, load).await?);
        contenders.push(Contender { name, script, meter });
    }
    Ok(contenders)
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, secret) = super::stdio::header(text)?;
    let value = HeaderValue::from_str(secret.expose());
    value.map(|value| (name, value)).map_err(|_| "the value cannot be sent".into())
}

fn load(args: &Args) -> Result<Load, BenchFault> {
    let mix = match (args.scenario, &args.mix) {
        (Scenario::Call | Scenario::Mix, Some(mix)) => mix.clone(),
        (_, Some(_)) => {
            return Err(BenchFault::Options("--mix goes with --scenario mix".into()));
        }
        (Scenario::Mix, None) => {
            let text = "--scenario mix wants its weights: --mix call=8,list=1,session=1";
            return Err(BenchFault::Options(text.into()));
        }
        (Scenario::Call, None) => Mix::only(Op::Call),
        (Scenario::List, None) => Mix::only(Op::List),
        (Scenario::Session, None) => Mix::only(Op::Session),
    };
    let turn = if args.compare.is_empty() && !args.own { ALONE } else { IN_TURN };
    let duration = match (args.duration, args.requests) {
        (None, None) => Some(turn),
        (duration, _) => duration,
    };
    let era = args.era.map(|era| match era {
        EraName::Modern => Era::Modern,
        EraName::Legacy => Era::Legacy,
    });
    let given = args.args.as_deref().map(arguments).transpose()?;
    let (tool, arguments, expect) = if args.own && given.is_none() {
        (Some(own::TOOL), Some(own::arguments()), Some(own::EXPECTED))
    } else if args.own {
        (Some(own::TOOL), given, args.expect.as_deref())
    } else {
        (args.tool.as_deref(), given, args.expect.as_deref())
    };
    Ok(Load {
        // Behind the gateway the server speaks the same era as before it.
        era: if args.own { era.or(Some(own::era(&mix))) } else { era },
        mix,
        tool: tool.map(str::to_owned),
        arguments,
        unchecked: args.unchecked,
        seed: args.seed,
        expect: expect.map(Expect::new),
        pace: args.rate.map_or(Pace::Closed, |per_second| Pace::Open { per_second }),
        connections: args.connections as usize,
        threads: args.threads.into(),
        warmup: args.warmup,
        duration,
        requests: args.requests,
        timeout: args.timeout,
    })
}

/// What was given, or what stands in the file that was.
fn arguments(text: &str) -> Result<String, BenchFault> {
    match text.strip_prefix('@') {
        None => Ok(text.to_owned()),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| BenchFault::Args(format!("cannot read {file}: {error}"))),
    }
}

fn tell(args: &Args, report: &Report<'_>) -> ExitCode {
    if let Some(file) = &args.html
        && let Err(error) = std::fs::write(file, report.html())
    {
        complain(&format!("cannot write {}: {error}", file.display()));
        return FAILURE.into_code();
    }
    let told = if args.json { format!("{:#}\n", report.json()) } else { report.table() };
    let printed = print(&told);
    // A load that nobody answered is no success.
    let answered = report.contest.rounds.iter().flatten().any(|leg| leg.tally.whole().done > 0);
    if answered { printed } else { FAILURE.into_code() }
}

fn is_wrong_use(fault: &BenchFault) -> bool {
    matches!(
        fault,
        BenchFault::Url { .. }
            | BenchFault::Header(_)
            | BenchFault::Args(_)
            | BenchFault::Options(_)
            | BenchFault::Process { .. }
            | BenchFault::Tls(_)
    )
}

fn wrong_use(fault: &BenchFault) -> ExitCode {
    complain(&fault.to_string());
    WRONG_USE.into_code()
}

/// Reads `10s`, `500ms`, `2m`; a number alone is seconds.
fn time(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let worth = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is a number with us, ms, s, m or h".into()),
    };
    let number: f64 = number.parse().map_err(|_| "a time is a number with ms, s, m or h")?;
    let seconds = number * worth;
    if seconds > 86_400.0 {
        return Err("a day is the longest".into());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Reads `500`, `500/s`, `30/m`.
fn per_second(text: &str) -> Result<f64, String> {
    let (number, per) = text.split_once('/').unwrap_or((text, "s"));
    let number: f64 = number.trim().parse().map_err(|_| "a rate is a number, such as 500/s")?;
    let rate = match per.trim() {
        "s" => number,
        "m" | "min" => number / 60.0,
        _ => return Err("a rate is by the second or the minute: 500/s, 30/m".into()),
    };
    let fine = (1e-3..=1e7).contains(&rate);
    if fine { Ok(rate) } else { Err("a rate is from 0.001 to 10000000 a second".into()) }
}

fn pids(text: &str) -> Result<Pids, String> {
    let all: Result<Vec<u32>, _> = text.split(',').map(|pid| pid.trim().parse()).collect();
    all.map(Pids).map_err(|_| "a process id, or several with commas between them".into())
}

/// How long one endpoint is tested.
const ALONE: Duration = Duration::from_secs(10);
/// How long a turn is where two take turns.
const IN_TURN: Duration = Duration::from_secs(3);
