//! `trunkline top`: servers, rates, latency, errors, queues and tokens of the running gateway, on the
//! whole terminal.
//!
//! It polls one document, `GET /activity`, and computes rates from two of them (`sample`). A frame
//! (`screen`) is a function of these and of the state of the view (`state`), which keys change; only
//! `terminal` knows a terminal. With `--once` the same frame is printed.

mod details;
mod figures;
mod sample;
mod sampler;
mod screen;
mod state;
mod terminal;

use std::io::{IsTerminal as _, stdin, stdout};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::running::{GatewayOption, GatewayRequest, report_unanswered};
use super::{BareFile, WRONG_USE, json_text, print_error, write_to_stdout};
use sample::MeasuredActivity;
use sampler::ActivitySampler;
use screen::{TopPalette, TopScreen};
use state::{ServerOrder, TopState};

/// Watch the servers of the running gateway: rates, latency, errors, queues and tokens
///
/// Exit codes: 0 when it is quit, 2 without a terminal, 3 if no gateway answers at the start.
#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub(super) struct TopArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    #[command(flatten)]
    file: BareFile,
    /// Print one frame as text, with the rates of one interval
    #[arg(long, conflicts_with = "json")]
    once: bool,
    /// Print one document of totals and levels
    #[arg(long)]
    json: bool,
    /// Seconds between two samples, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = read_interval)]
    interval: Duration,
    /// The order of servers at the start
    #[arg(long, value_enum, default_value_t)]
    sort: ServerOrder,
    /// Show only servers with this in their name or state
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// The width of a frame that is printed
    #[arg(long, value_name = "COLUMNS", default_value_t = 80, requires = "once",
        value_parser = clap::value_parser!(u16).range(20..=500))]
    width: u16,
}

/// Runs the command.
pub(super) fn run(args: TopArgs) -> ExitCode {
    let gateway = args.gateway.or_file(args.file);
    if args.json {
        return match gateway.request(&GatewayRequest::get("/activity")) {
            Ok(document) => write_to_stdout(&json_text(&document)),
            Err(error) => report_unanswered(&error),
        };
    }
    let is_terminal = stdin().is_terminal() && stdout().is_terminal();
    if !args.once && !is_terminal {
        print_error("top needs a terminal: use --once for one frame as text, or --json");
        return WRONG_USE.into_code();
    }
    let mut sampler = ActivitySampler::new(gateway, args.interval);
    let first = match sampler.take() {
        Ok(sample) => sample,
        Err(error) => return report_unanswered(&error),
    };
    let state = TopState { order: args.sort, filter: args.filter, ..TopState::default() };
    if !args.once {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let palette = if is_plain { TopPalette::Plain } else { TopPalette::Colored };
        return terminal::show(sampler, first, state, palette);
    }
    wait(args.interval);
    let second = match sampler.take() {
        Ok(sample) => sample,
        Err(error) => return report_unanswered(&error),
    };
    let measured = Some(&MeasuredActivity::of(second, Some(&first)));
    let palette = TopPalette::Plain;
    let screen = TopScreen { measured, state: &state, fault: None, palette };
    write_to_stdout(&screen.to_text(args.width))
}

#[expect(clippy::disallowed_methods, reason = "the command has no runtime")]
fn wait(interval: Duration) {
    thread::sleep(interval);
}

fn read_interval(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let usable = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    let usable = usable.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    usable.ok_or_else(|| "expected a number of seconds from 0.1 to 3600".to_owned())
}

const TOP_EXAMPLES: &str = "Examples:
  trunkline top                               # q quits, ? lists the keys
  trunkline top --sort errors --interval 5
  trunkline top --once --filter failed        # one frame, for scripts
  trunkline top --json                        # totals: two of them give rates";
