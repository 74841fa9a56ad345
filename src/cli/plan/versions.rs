//! `trunkline history` and `trunkline rollback`: the versions of the configuration file that were
//! applied, and the way back to one of them.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use clap::Args;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{PlanText, ReloadText};
use crate::cli::columns::wrap_text;
use crate::cli::running::{GatewayOption, GatewayRequest, report_other_version, report_unanswered};
use crate::cli::{
    BareFile, FAILURE_EXIT, NAME_OR_FILE, NameOrFile, WRONG_USE, json_text, print_error, printable,
    write_to_stdout,
};

/// Show the last versions of the configuration file that were applied
///
/// With a number: the text of the version, and the changes that a rollback to it makes. Literal
/// secrets are hidden. The gateway keeps ten versions in `gateway.state_dir`.
///
/// Exit codes: 0, 1 if there is no such version or versions are not kept, 2 for an invalid command
/// line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = HISTORY_EXAMPLES)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    /// The version to show, by default all are listed; or the configuration file, like --config
    #[arg(id = NAME_OR_FILE, value_name = "NUMBER|FILE", value_parser = NameOrFile::read_version)]
    subject: Option<NameOrFile>,
    #[command(flatten)]
    file: BareFile,
    /// Print the text of the version instead of its changes
    #[arg(long)]
    text: bool,
    /// Print the whole document as JSON
    #[arg(long)]
    json: bool,
}

/// Go back to an earlier version of the configuration file
///
/// Shows the consequences first, and asks. The file is replaced by the version with its comments, and
/// its present text is kept beside it. Values of ${env:…}, ${file:…} and ${command:…} are the present
/// ones, and files that the configuration names, such as certificates, stay as they are.
///
/// Exit codes: 0 if the version is applied, or runs already, 1 if not, 2 for an invalid command line,
/// or without a terminal and --yes, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = HISTORY_EXAMPLES)]
pub(crate) struct RollbackArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    /// The number of the version in `trunkline history`
    number: u64,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// The past days whose recorded calls are decided again
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Wait until each server has listed its tools or failed
    #[arg(long)]
    wait: bool,
    /// Print the gateway's answer as JSON, and no consequences
    #[arg(long, requires = "yes")]
    json: bool,
}

const HISTORY_EXAMPLES: &str = "\
Examples:
  trunkline history                # the versions that were applied
  trunkline history 7              # what a rollback to version 7 changes
  trunkline history /etc/trunkline/gateway.toml
  trunkline rollback 7             # its consequences, and then the question
  trunkline rollback 7 --yes --wait";

#[derive(Debug, Deserialize)]
struct VersionsText {
    versions: Vec<VersionLine>,
    running: String,
}

#[derive(Debug, Deserialize)]
struct VersionLine {
    number: u64,
    digest: String,
    applied_at: Timestamp,
    applied_by: ActorText,
    summary: String,
}

#[derive(Debug, Deserialize)]
struct ActorText {
    kind: String,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct VersionText {
    #[serde(flatten)]
    version: VersionLine,
    text: String,
    diff: String,
    references: Vec<String>,
}

pub(crate) fn show_history(args: &HistoryArgs) -> ExitCode {
    let (first, second) = (args.subject.as_ref(), args.file.path.as_deref());
    let (number, file) = match NameOrFile::pair(first, second, NameOrFile::read_version) {
        Ok(subject) => subject,
        Err(problem) => {
            print_error(&problem);
            return WRONG_USE.into_code();
        }
    };
    let gateway = args.gateway.clone().or_file(file);
    let path = match &number {
        Some(number) => format!("/configuration/history/{number}"),
        None if args.text => {
            print_error("--text: expected the number of a version");
            return WRONG_USE.into_code();
        }
        None => "/configuration/history".to_owned(),
    };
    let document = match gateway.request(&GatewayRequest::get(&path)) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    let text = match number {
        _ if args.json => Some(json_text(&document)),
        Some(_) => VersionText::deserialize(&document).ok().map(|it| it.describe(args.text)),
        None => VersionsText::deserialize(&document).ok().map(|it| it.describe()),
    };
    text.map_or_else(report_other_version, |text| write_to_stdout(&text))
}

impl VersionsText {
    fn describe(&self) -> String {
        let mut text = String::new();
        for version in &self.versions {
            let is_running = version.digest == self.running;
            text.push_str(&version.describe(if is_running { "* " } else { "  " }));
        }
        if self.versions.is_empty() {
            text.push_str("No version has been applied since versions are kept.\n");
        } else {
            text.push_str("\n* runs now. `trunkline rollback N` goes back to version N.\n");
        }
        text
    }
}

impl VersionLine {
    /// Describes the version in a line, and its changes below.
    fn describe(&self, mark: &str) -> String {
        let Self { number, applied_at, digest, summary, .. } = self;
        let digest: String = printable(digest).chars().take(12).collect();
        let actor = self.applied_by.describe();
        let line = format!("{applied_at:.0}  {digest}  by {actor}");
        let text = wrap_text(&format!("{mark}{number:>3}  "), &line);
        text + &wrap_text("       ", &printable(summary))
    }
}

impl ActorText {
    fn describe(&self) -> String {
        match (self.kind.as_str(), &self.name) {
            ("start", _) => "the start".to_owned(),
            ("watch", _) => "the watcher".to_owned(),
            ("signal", _) => "SIGHUP".to_owned(),
            (_, Some(name)) => printable(name),
            (kind, None) => printable(kind),
        }
    }
}

impl VersionText {
    fn describe(&self, shows_text: bool) -> String {
        if shows_text {
            return printable_lines(&self.text);
        }
        let mut text = self.version.describe("");
        if !self.references.is_empty() {
            let names = printable(&self.references.join(", "));
            let note = format!("a rollback uses the present values of {names}");
            text.push_str(&wrap_text("note: ", &note));
        }
        if self.diff.is_empty() {
            text.push_str("\nIts text runs now.\n");
        } else {
            text.push_str("\nA rollback to it changes:\n\n");
            text.push_str(&printable_lines(&self.diff));
        }
        text
    }
}

/// Returns a text of several lines for a terminal.
fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(line) + "\n").collect()
}

pub(crate) fn roll_back(args: &RollbackArgs) -> ExitCode {
    let number = args.number;
    let body = json!({ "days": args.days, "version": number });
    let document = match post(&args.gateway, "/configuration/plan", &body) {
        Ok(document) => document,
        Err(exit) => return exit,
    };
    let Ok(plan) = PlanText::deserialize(&document) else { return report_other_version() };
    if !args.json {
        write_to_stdout(&plan.describe(&format!("Version {number}"), args.days));
    }
    let Some(digest) = &plan.digest else {
        print_error(&format!("version {number} cannot be applied any more"));
        return FAILURE_EXIT.into_code();
    };
    match if args.yes { Ok(true) } else { confirm(number) } {
        Ok(true) => {}
        Ok(false) => {
            print_error("nothing was changed");
            return FAILURE_EXIT.into_code();
        }
        Err(exit) => return exit,
    }
    let body = json!({ "digest": digest, "wait": args.wait });
    match post(&args.gateway, &format!("/configuration/rollback/{number}"), &body) {
        Ok(document) => report_rollback(args, &document),
        Err(exit) => exit,
    }
}

fn post(gateway: &GatewayOption, path: &str, body: &Value) -> Result<Value, ExitCode> {
    let request = GatewayRequest { method: Method::POST, path, body: Some(body.to_string()) };
    gateway.request(&request).map_err(|error| report_unanswered(&error))
}

/// Asks at the terminal; without one, `--yes` is needed.
fn confirm(number: u64) -> Result<bool, ExitCode> {
    if !io::stdin().is_terminal() {
        print_error("standard input is no terminal: add --yes to apply exactly this");
        return Err(WRONG_USE.into_code());
    }
    print_question(&format!("\nGo back to version {number}? [y/N] "));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    Ok(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn print_question(text: &str) {
    use io::Write as _;
    let mut terminal = io::stderr();
    // If standard error is gone, the question is not seen, and the answer is no.
    let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
}

fn report_rollback(args: &RollbackArgs, document: &Value) -> ExitCode {
    let Ok(answer) = ReloadText::deserialize(document) else { return report_other_version() };
    if args.json {
        return answer.print_document(document);
    }
    let number = args.number;
    for fault in &answer.faults {
        print_error(&printable(fault));
    }
    if !answer.is_running() {
        let outcome = printable(&answer.outcome);
        print_error(&format!("the running configuration is kept: version {number} is {outcome}"));
        return FAILURE_EXIT.into_code();
    }
    let mut text = format!("version {number} is applied\n");
    if let Some(backup) = &answer.backup {
        let _ = writeln!(text, "before: {}", printable(backup));
    }
    write_to_stdout(&text)
}
