//! The arguments of `trunkline bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use url::Url;

use crate::bench::Mix;
use crate::text::split_quantity;

/// Load-test an MCP server or gateway: check every answer and measure latency
///
/// Speaks both protocol eras over HTTP, and detects the era of the server. Without --tool it calls
/// the first tool with readOnlyHint, with arguments generated from its schema.
#[derive(Debug, clap::Args)]
#[command(after_help = BENCH_EXAMPLES)]
pub(crate) struct BenchArgs {
    /// The endpoint, such as http://127.0.0.1:8080/mcp
    #[arg(value_name = "URL", required_unless_present_any = ["compare", "own"], conflicts_with_all = ["compare", "own"])]
    pub(super) url: Option<Url>,
    /// Test two endpoints in turn, A B A B …, and print the cost of B relative to A
    #[arg(long, value_names = ["URL_A", "URL_B"], num_args = 2)]
    pub(super) compare: Vec<Url>,
    /// Test the gateway itself: start a mock server, a pass-through proxy and the gateway, test them
    /// in turn, and print the cost of the gateway relative to the proxy
    #[arg(long = "self", conflicts_with_all = ["compare", "header", "ca", "pid", "tool"])]
    pub(super) own: bool,

    /// The operation: call a tool, list the tools, open and end sessions, or the mix of --mix
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "call",
        help_heading = "Requests"
    )]
    pub(super) scenario: Scenario,
    /// Weights of the operations of a mixed load, such as call=8,list=1,session=1
    #[arg(long, value_name = "WEIGHTS", value_parser = Mix::parse, help_heading = "Requests")]
    pub(super) mix: Option<Mix>,
    /// The tool to call; a gateway's prefix before its name may be omitted
    #[arg(long, value_name = "NAME", help_heading = "Requests")]
    pub(super) tool: Option<String>,
    #[arg(long = "args", value_name = "JSON|@FILE", help = ARGUMENTS_HELP, help_heading = "Requests")]
    pub(super) arguments: Option<String>,
    /// Send arguments even if they violate the tool's schema
    #[arg(long, requires = "arguments", help_heading = "Requests")]
    pub(super) unchecked: bool,
    #[arg(long, value_name = "TEXT", help = EXPECTATION_HELP, help_heading = "Requests")]
    pub(super) expect: Option<String>,
    /// The seed of generated arguments and of the order of --mix
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Requests")]
    pub(super) seed: u64,
    /// A header for every request; ${env:NAME} is replaced by the variable's value
    #[arg(short = 'H', long, value_name = "NAME: VALUE", help_heading = "Requests")]
    pub(super) header: Vec<String>,
    /// The era to speak; detected if not given
    #[arg(long, value_name = "ERA", value_enum, help_heading = "Requests")]
    pub(super) era: Option<EraName>,
    /// A PEM file of certificates to trust in addition to the system's
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    pub(super) ca: Option<PathBuf>,

    /// The number of connections; each has one call in flight at a time, and its own session if the
    /// server has sessions
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Load")]
    pub(super) connections: u32,
    /// Send this many requests a second regardless of the answers (open loop), and time each from
    /// its due time; without it each connection waits for its answer (closed loop)
    #[arg(short, long, value_name = "N/s", value_parser = per_second, help_heading = "Load")]
    pub(super) rate: Option<f64>,
    /// The duration of the run [default: 10s; 3s for each turn with --compare]
    #[arg(short, long, value_name = "TIME", value_parser = time, help_heading = "Load")]
    pub(super) duration: Option<Duration>,
    /// The number of requests, instead of a duration
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Load")]
    pub(super) requests: Option<u64>,
    /// The duration of the warm-up; its calls do not count
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", help_heading = "Load")]
    pub(super) warmup: Duration,
    /// The time limit of an answer
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s", help_heading = "Load")]
    pub(super) timeout: Duration,
    /// The number of rounds in which endpoints take turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Load")]
    pub(super) rounds: u16,
    /// The number of threads that generate the load
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Load")]
    pub(super) threads: u16,

    /// Report CPU and memory of this process, or of several (PID,PID); once for each endpoint
    #[arg(long, value_name = "PID", value_parser = pids, help_heading = "Output")]
    pub(super) pid: Vec<Pids>,
    /// Print JSON instead of the table
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Write a self-contained HTML page with latency curves
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,
}

// Clap replaces `{n}` by a line break, and drops escape sequences where there is no terminal.
const ARGUMENTS_HELP: &str = "The arguments of the call, or @FILE to read them from a file; the string \
                         \"{{\u{1b}[0mn}}\" in them is replaced by a number unique to the call";
const EXPECTATION_HELP: &str = "Count a call as failed unless its answer contains this text; \
                           {{\u{1b}[0mn}} is the number of the call";

const BENCH_EXAMPLES: &str = "\
Examples:
  trunkline bench http://127.0.0.1:8080/mcp
      a read-only tool, generated arguments, 16 connections, 10 seconds
  trunkline bench http://127.0.0.1:8080/mcp --rate 500 \\
      --tool search --args '{\"query\":\"x\"}'
      500 calls a second, timed from when each was due
  trunkline bench https://mcp.example.com/mcp --scenario list \\
      -H 'Authorization: Bearer ${env:TOKEN}'
  trunkline bench http://127.0.0.1:8080/mcp --html report.html \\
      --mix call=8,list=1,session=1
  trunkline bench --pid 123 --pid 456 \\
      --compare http://127.0.0.1:9000/mcp http://127.0.0.1:8080/mcp
      the cost of a gateway relative to the server behind it

A server to test: trunkline example load --listen 127.0.0.1:9000";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    /// `tools/call`
    Call,
    /// `tools/list`
    List,
    /// `initialize`, a call, `DELETE`
    Session,
    /// The mix of --mix
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
    const DURATION_UNITS: [(&str, f64); 7] = [
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("", 1.0),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let quantity = split_quantity(text, &DURATION_UNITS)
        .and_then(|(number, worth)| Some(number.parse::<f64>().ok()? * worth));
    let seconds = quantity.ok_or("a time is a number with us, ms, s, m or h")?;
    if seconds > 86_400.0 {
        return Err("the longest time is a day".into());
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
