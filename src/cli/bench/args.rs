//! The arguments of `trunkline bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use url::Url;

use crate::bench::Mix;

/// Put a load on an MCP server or gateway, check every answer, and tell how long they took
///
/// Speaks both protocol eras over HTTP, and finds out which one the server speaks. Without --tool it
/// calls the first tool that says it only reads, with arguments made from its schema.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct BenchArgs {
    /// The endpoint, such as http://127.0.0.1:8080/mcp
    #[arg(value_name = "URL", required_unless_present_any = ["compare", "own"], conflicts_with_all = ["compare", "own"])]
    pub(super) url: Option<Url>,
    /// Test two endpoints in turn, A B A B …, and print what B costs beside A
    #[arg(long, value_names = ["URL_A", "URL_B"], num_args = 2)]
    pub(super) compare: Vec<Url>,
    /// Test the gateway itself: a mock server, a bare proxy before it and the gateway before it, all
    /// started here, in turn; prints what the gateway costs beside the proxy
    #[arg(long = "self", conflicts_with_all = ["compare", "header", "ca", "pid", "tool"])]
    pub(super) own: bool,

    /// What to do: call a tool, ask for the list of tools, open and end sessions, or what --mix says
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "call",
        help_heading = "What is sent"
    )]
    pub(super) scenario: Scenario,
    /// Weights of the operations of a mixed load, such as call=8,list=1,session=1
    #[arg(long, value_name = "WEIGHTS", value_parser = Mix::parse, help_heading = "What is sent")]
    pub(super) mix: Option<Mix>,
    /// The tool to call; its name behind a gateway's prefix is found, too
    #[arg(long, value_name = "NAME", help_heading = "What is sent")]
    pub(super) tool: Option<String>,
    /// The arguments to call it with; @FILE reads them; the string "{{n}}" in them is a number that
    /// no other call has
    #[arg(long = "args", value_name = "JSON|@FILE", help_heading = "What is sent")]
    pub(super) arguments: Option<String>,
    /// Send arguments even if they break the tool's schema
    #[arg(long, requires = "arguments", help_heading = "What is sent")]
    pub(super) unchecked: bool,
    /// Count a call as failed whose answer does not contain this; {{n}} is the call's number
    #[arg(long, value_name = "TEXT", help_heading = "What is sent")]
    pub(super) expect: Option<String>,
    /// Generated arguments and mixtures are the same for the same seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "What is sent")]
    pub(super) seed: u64,
    /// A header for each request; ${env:NAME} in it is a variable's value
    #[arg(short = 'H', long, value_name = "NAME: VALUE", help_heading = "What is sent")]
    pub(super) header: Vec<String>,
    /// The era to speak; without it the one that the server speaks
    #[arg(long, value_name = "ERA", value_enum, help_heading = "What is sent")]
    pub(super) era: Option<EraName>,
    /// Certificates to trust besides the system's, as PEM
    #[arg(long, value_name = "FILE", help_heading = "What is sent")]
    pub(super) ca: Option<PathBuf>,

    /// How many connections; each has one call under way at a time, and a session of its own if the
    /// server has such
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "How much of it")]
    pub(super) connections: u32,
    /// Send so many a second, whatever the answers do (open loop), and time each from when it was
    /// due; without it each connection waits for its answer (closed loop)
    #[arg(short, long, value_name = "N/s", value_parser = per_second, help_heading = "How much of it")]
    pub(super) rate: Option<f64>,
    /// How long [default: 10s; 3s for each turn with --compare]
    #[arg(short, long, value_name = "TIME", value_parser = time, help_heading = "How much of it")]
    pub(super) duration: Option<Duration>,
    /// How many, instead of how long
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "How much of it")]
    pub(super) requests: Option<u64>,
    /// How long calls are made that do not count, before those that do
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", help_heading = "How much of it")]
    pub(super) warmup: Duration,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s", help_heading = "How much of it")]
    pub(super) timeout: Duration,
    /// How many times two endpoints take turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "How much of it")]
    pub(super) rounds: u16,
    /// On how many threads the load is made
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "How much of it")]
    pub(super) threads: u16,

    /// Tell CPU and memory of this process as well, or of several: PID,PID; once for each endpoint
    #[arg(long, value_name = "PID", value_parser = pids, help_heading = "What is told")]
    pub(super) pid: Vec<Pids>,
    /// Print JSON instead of the table
    #[arg(long, help_heading = "What is told")]
    pub(super) json: bool,
    /// Write a page with curves, which needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "What is told")]
    pub(super) html: Option<PathBuf>,
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
pub(super) enum Scenario {
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
pub(super) enum EraName {
    /// Stateless: 2026-07-28 and later
    Modern,
    /// Sessions: up to 2025-11-25
    Legacy,
}

/// Processes that are measured together.
#[derive(Debug, Clone)]
pub(super) struct Pids(pub(super) Vec<u32>);

/// Parses `10s`, `500ms`, `2m`; a bare number is seconds.
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

/// Parses `500`, `500/s`, `30/m`.
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
