//! `trunkline bench`: a load tester for any MCP server or gateway.

mod args;
mod command_line;
mod own;
mod progress;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::bench::report::{BenchMachine, BenchReport, BenchSetting};
use crate::bench::{
    BenchFault, BenchTarget, Contender, Contest, ContestRules, Expect, Interrupt, Load, LoadPace,
    Meter, Mix, Op, Script,
};
use crate::clock;
use crate::mcp::Era;

use super::{FAILURE_EXIT, WRONG_USE, print_error, report_error, write_to_stdout};
pub(super) use args::BenchArgs;
use args::{EraName, Scenario};
use command_line::mask_command_line;
use own::ComparedProcesses;
use progress::Progress;

pub(super) fn run(args: &BenchArgs) -> ExitCode {
    let load = match load(args) {
        Ok(load) => load,
        Err(fault) => return wrong_use(&fault),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error),
    };
    let setting = observe_setting(args);
    let told = runtime.block_on(hold(args, &load));
    // A name lookup cannot be cancelled.
    runtime.shutdown_background();
    match told {
        Ok(contest) => {
            tell(args, &BenchReport { contest: &contest, load: &load, setting: &setting })
        }
        Err(fault) if is_wrong_use(&fault) => wrong_use(&fault),
        Err(fault) => report_error(&fault),
    }
}

/// Returns the date, the command and the machine of the run that begins.
fn observe_setting(args: &BenchArgs) -> BenchSetting {
    let now = jiff::Timestamp::try_from(clock::wall_now()).unwrap_or_default();
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    BenchSetting {
        at: format!("{now:.0}"),
        command: mask_command_line(args, words),
        machine: BenchMachine::observe(),
    }
}

async fn hold(args: &BenchArgs, load: &Load) -> Result<Contest, BenchFault> {
    let interrupt = Interrupt::new();
    let ending = tokio::spawn(until_told(interrupt.clone()));
    let contest = if args.own {
        own(args, load, &interrupt).await
    } else {
        let rounds = if args.compare.is_empty() { 1 } else { args.rounds.into() };
        let rules = ContestRules { rounds, base: 0, direct: None };
        match contenders(args, load).await {
            Ok(contenders) => take_turns(contenders, load, rules, &interrupt).await,
            Err(fault) => Err(fault),
        }
    };
    ending.abort();
    contest
}

async fn own(args: &BenchArgs, load: &Load, interrupt: &Interrupt) -> Result<Contest, BenchFault> {
    let stage = ComparedProcesses::set(load.era.unwrap_or_else(|| own::era(&load.mix))).await?;
    let rules = ContestRules { rounds: args.rounds.into(), base: 1, direct: Some(0) };
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
    rules: ContestRules,
    interrupt: &Interrupt,
) -> Result<Contest, BenchFault> {
    let mut progress = Progress::new(load, contenders.len() * rules.rounds);
    Contest::hold(contenders, load, rules, interrupt, &mut progress).await
}

/// Ctrl-C ends the run and prints the results so far; a second Ctrl-C ends the
/// process at once.
async fn until_told(interrupt: Interrupt) {
    super::serve::signals::told_to_stop().await;
    interrupt.ask();
    super::serve::signals::told_to_stop().await;
    std::process::exit(130);
}

async fn contenders(args: &BenchArgs, load: &Load) -> Result<Vec<Contender>, BenchFault> {
    let headers: Result<Vec<_>, _> = args.header.iter().map(|text| header(text)).collect();
    let headers = headers.map_err(BenchFault::Header)?;
    let urls = args.url.iter().chain(&args.compare);
    if args.pid.len() > urls.clone().count() {
        return Err(BenchFault::Options("--pid: at most one for each endpoint".into()));
    }
    let mut contenders = Vec::new();
    for (place, url) in urls.enumerate() {
        let target = BenchTarget::new(url, &headers, args.ca.as_deref()).await?;
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
    let (name, secret) = super::stdio::parse_header(text)?;
    let value = HeaderValue::from_str(secret.expose());
    value.map(|value| (name, value)).map_err(|_| "the value cannot be sent".into())
}

fn load(args: &BenchArgs) -> Result<Load, BenchFault> {
    let mix = match (args.scenario, &args.mix) {
        (Scenario::Call | Scenario::Mix, Some(mix)) => mix.clone(),
        (_, Some(_)) => {
            return Err(BenchFault::Options("--mix requires --scenario mix".into()));
        }
        (Scenario::Mix, None) => {
            let text = "--scenario mix requires weights, such as --mix call=8,list=1,session=1";
            return Err(BenchFault::Options(text.into()));
        }
        (Scenario::Call, None) => Mix::only(Op::Call),
        (Scenario::List, None) => Mix::only(Op::List),
        (Scenario::Session, None) => Mix::only(Op::Session),
    };
    let turn =
        if args.compare.is_empty() && !args.own { SINGLE_ENDPOINT_DURATION } else { IN_TURN };
    let duration = match (args.duration, args.requests) {
        (None, None) => Some(turn),
        (duration, _) => duration,
    };
    let era = args.era.map(|era| match era {
        EraName::Modern => Era::Modern,
        EraName::Legacy => Era::Legacy,
    });
    let given = args.arguments.as_deref().map(arguments).transpose()?;
    let (tool, arguments, expect) = if args.own && given.is_none() {
        (Some(own::BENCH_TOOL), Some(own::arguments()), Some(own::EXPECTED_TEXT))
    } else if args.own {
        (Some(own::BENCH_TOOL), given, args.expect.as_deref())
    } else {
        (args.tool.as_deref(), given, args.expect.as_deref())
    };
    Ok(Load {
        // Behind the gateway the server speaks the same era as when called
        // directly.
        era: if args.own { era.or(Some(own::era(&mix))) } else { era },
        mix,
        tool: tool.map(str::to_owned),
        arguments,
        unchecked: args.unchecked,
        seed: args.seed,
        expect: expect.map(Expect::new),
        pace: args.rate.map_or(LoadPace::Closed, |per_second| LoadPace::Open { per_second }),
        connections: args.connections as usize,
        threads: args.threads.into(),
        warmup: args.warmup,
        duration,
        requests: args.requests,
        timeout: args.timeout,
    })
}

/// Returns the given arguments, or the contents of the given file.
fn arguments(text: &str) -> Result<String, BenchFault> {
    match text.strip_prefix('@') {
        None => Ok(text.to_owned()),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| BenchFault::Args(format!("cannot read {file}: {error}"))),
    }
}

fn tell(args: &BenchArgs, report: &BenchReport<'_>) -> ExitCode {
    if let Some(file) = &args.html
        && let Err(error) = std::fs::write(file, report.html())
    {
        print_error(&format!("cannot write {}: {error}", file.display()));
        return FAILURE_EXIT.into_code();
    }
    let told = if args.json { format!("{:#}\n", report.json()) } else { report.table() };
    let printed = write_to_stdout(&told);
    // A load without any successful answer is a failure, and so is one with many errors.
    let answered = report.contest.rounds.iter().flatten().any(|leg| leg.tally.whole().done > 0);
    if answered && !report.is_void() { printed } else { FAILURE_EXIT.into_code() }
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
    print_error(&fault.to_string());
    WRONG_USE.into_code()
}

/// Duration of the test of a single endpoint.
const SINGLE_ENDPOINT_DURATION: Duration = Duration::from_secs(10);
/// Duration of each turn when endpoints take turns.
const IN_TURN: Duration = Duration::from_secs(3);
