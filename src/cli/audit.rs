//! `trunkline audit`: reads audit logs.

pub(crate) mod pages;
pub(crate) mod records;
mod separate;
mod show;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::telemetry::audit::{
    ChainFault, ChainKey, ChainMode, ChainReport, LogBeginning, LogVerifier, rotated_file,
};
use crate::text::error_chain;

use super::{CommonArgs, ReportForm, json_text, print_error, report_error, write_to_stdout};

/// The commands on audit logs.
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Verify that no record of a chained audit log was altered, removed or moved
    ///
    /// Give all files of the log, in any order: audit.jsonl audit.jsonl.*. The logs of several replicas
    /// are verified together with --separate. Each fault is printed as FILE:LINE and a description. The last line of the output has the number and the hash of the
    /// last record. Keep them elsewhere: given as --last, they later reveal a log that was cut off.
    ///
    /// Exit codes: 0 if the chain is intact, 1 if it is not, 2 for an invalid command line, such as
    /// one without the key of a keyed chain, and if a file cannot be read.
    Verify(VerifyArgs),
    /// Show the newest records of the running gateway that match
    ///
    /// Exit codes: 0, 1 if the log is not a file, 2 for an invalid command line, 3 if no gateway
    /// answers.
    Show(show::ShowArgs),
    /// Show the last records of the running gateway, and new ones as they come
    ///
    /// Exit codes: 0, 1 if the log is not a file, 2 for an invalid command line, 3 if no gateway
    /// answers.
    Tail(show::TailArgs),
}

/// Arguments of the verification.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The files of the log; by default those of the configuration
    #[arg(required_unless_present = "config", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Verify the log of this configuration, with its key
    #[arg(short, long, value_name = "FILE", conflicts_with = "key_file")]
    config: Option<PathBuf>,
    /// The file with the key of the chain (`audit.chain_key`); a line end after it does not count
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The last record known from elsewhere, such as `/status`: its `seq` and its hash
    #[arg(long, value_name = "SEQ:HASH", value_parser = parse_last)]
    last: Option<(u64, String)>,
    /// Verify each file, with its rotated ones (FILE.1, FILE.2), as a log of its own, such as those of
    /// several replicas
    #[arg(long, conflicts_with = "last")]
    separate: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The document of a verification.
#[derive(Debug, Serialize)]
struct VerifyReport {
    is_intact: bool,
    /// Records read.
    records: u64,
    /// The numbers of the first and the last record.
    first: Option<u64>,
    last: u64,
    last_hash: Option<String>,
    /// The lost records that the log itself reports.
    lost: u64,
    /// The number of faults.
    fault_count: usize,
    /// The first 1000 of them.
    faults: Vec<VerifyFault>,
}

/// A fault of the chain. One of the whole log has no place.
#[derive(Debug, Serialize)]
struct VerifyFault {
    file: Option<String>,
    line: Option<u64>,
    text: String,
}

pub(super) fn run(command: &AuditCommand) -> ExitCode {
    match command {
        AuditCommand::Verify(args) => verify_log(args),
        AuditCommand::Show(args) => show::show_records(args),
        AuditCommand::Tail(args) => show::tail_records(args),
    }
}

fn verify_log(args: &VerifyArgs) -> ExitCode {
    let log = match &args.config {
        Some(config) => match find_configured_log(config, &args.files) {
            Ok(log) => Ok(log),
            Err(exit) => return exit,
        },
        None => find_named_log(args),
    };
    let log = match log {
        Ok(log) => log,
        Err(error) => return report_unverified(&error),
    };
    if args.separate {
        return separate::verify_logs(&log, args);
    }
    let mut faults = FoundFaults::new(args.json.into());
    let mut verifier = LogVerifier::new(log.mode.clone());
    let outcome = verify_files(&log, args, &mut verifier, &mut faults);
    let report = verifier.report().clone();
    match outcome {
        Ok(()) => print_verified(report, faults),
        Err(error) => {
            // The faults before the error are findings, too.
            if args.json && faults.count > 0 {
                faults.add(None, &error_chain(&error));
                print_verified(report, faults);
            }
            report_unverified(&error)
        }
    }
}

/// Reports an error that ends the verification.
fn report_unverified(error: &AuditCommandError) -> ExitCode {
    let _ = report_error(error);
    let exit = match error {
        AuditCommandError::KeyNeeded { .. } | AuditCommandError::NotKeyed { .. } => {
            super::WRONG_USE
        }
        AuditCommandError::Read { .. } | AuditCommandError::ShortKey { .. } => super::CONFIG_FAULT,
    };
    exit.into_code()
}

fn print_verified(report: ChainReport, found: FoundFaults) -> ExitCode {
    let (form, count) = (found.form, found.count);
    let is_intact = count == 0;
    let text = match form {
        ReportForm::Json => {
            let document = VerifyReport::new(report, found);
            json_text(&serde_json::to_value(document).unwrap_or_default())
        }
        ReportForm::Text if is_intact => describe_report(&report),
        ReportForm::Text => {
            print_error(&format!("the chain is broken: {count} fault(s)"));
            String::new()
        }
    };
    let written = write_to_stdout(&text);
    if is_intact { written } else { super::FAILURE_EXIT.into_code() }
}

impl VerifyReport {
    fn new(report: ChainReport, found: FoundFaults) -> Self {
        let ChainReport { records, first, last, last_hash, lost } = report;
        let FoundFaults { count, listed, .. } = found;
        Self {
            is_intact: count == 0,
            records,
            first,
            last,
            last_hash,
            lost,
            fault_count: count,
            faults: listed,
        }
    }
}

/// The faults of a chain: printed as they are found, or kept for the document.
struct FoundFaults {
    form: ReportForm,
    count: usize,
    listed: Vec<VerifyFault>,
}

impl FoundFaults {
    fn new(form: ReportForm) -> Self {
        Self { form, count: 0, listed: Vec::new() }
    }

    fn add(&mut self, place: Option<(&Path, u64)>, fault: &dyn std::fmt::Display) {
        self.count += 1;
        match (self.form, place) {
            (ReportForm::Text, Some((path, line))) => {
                print_error(&format!("{}:{line}: {fault}", path.display()));
            }
            (ReportForm::Text, None) => print_error(&fault.to_string()),
            (ReportForm::Json, _) => self.list(place, fault.to_string()),
        }
    }

    /// Keeps a fault for the document.
    fn list(&mut self, place: Option<(&Path, u64)>, text: String) {
        if self.listed.len() < MAX_LISTED_FAULTS {
            let file = place.map(|(path, _)| path.display().to_string());
            self.listed.push(VerifyFault { file, line: place.map(|(_, line)| line), text });
        }
    }
}

/// Error of a log that cannot be verified.
#[derive(Debug, thiserror::Error)]
enum AuditCommandError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the key in {} has fewer than {} bytes", path.display(), ChainKey::MIN_BYTES)]
    ShortKey { path: PathBuf },
    #[error("{} is chained with a key: give the file of the key with --key-file", path.display())]
    KeyNeeded { path: PathBuf },
    #[error(
        "{} is chained without a key, as anyone could have written it: leave out --key-file if its \
         gateway has no `audit.chain_key`",
        path.display()
    )]
    NotKeyed { path: PathBuf },
}

/// The files of a log, and the way in which its records are chained.
struct ChainedLog {
    files: Vec<PathBuf>,
    mode: ChainMode,
}

fn find_named_log(args: &VerifyArgs) -> Result<ChainedLog, AuditCommandError> {
    Ok(ChainedLog { files: args.files.clone(), mode: chain_mode(args.key_file.as_deref())? })
}

/// Finds the log of a configuration: its file and the rotated ones, or the named files.
fn find_configured_log(config: &Path, named: &[PathBuf]) -> Result<ChainedLog, ExitCode> {
    let audit = CommonArgs::with_config(config.to_owned()).read_config()?.audit;
    let key = audit.chain_key.as_ref().map(|key| ChainKey::new(key.expose().as_bytes()));
    // The configuration has checked the length of the key.
    let mode = key.flatten().map_or(ChainMode::Plain, ChainMode::Keyed);
    if !named.is_empty() {
        return Ok(ChainedLog { files: named.to_vec(), mode });
    }
    let Some(file) = audit.file else {
        let config = config.display();
        print_error(&format!(
            "{config} has no `audit.file`: give the files of the log as arguments"
        ));
        return Err(super::WRONG_USE.into_code());
    };
    let rotated = (1..=audit.keep).map(|number| rotated_file(&file, number));
    let rotated: Vec<_> = rotated.filter(|path| path.exists()).collect();
    Ok(ChainedLog { files: [file].into_iter().chain(rotated).collect(), mode })
}

/// Verifies the files, and adds each fault.
fn verify_files(
    log: &ChainedLog,
    args: &VerifyArgs,
    verifier: &mut LogVerifier,
    faults: &mut FoundFaults,
) -> Result<(), AuditCommandError> {
    let files = read_beginnings(&log.files)?;
    check_key(&log.mode, &files)?;
    for (_, path) in files {
        let unreadable = |source| AuditCommandError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let mut needs_key = false;
        let tell = |line: u64, fault| {
            // A key was configured within the file: every record behind would be one more fault.
            needs_key |= matches!(fault, ChainFault::OtherKind { keyed: true });
            if !needs_key {
                faults.add(Some((path, line)), &fault);
            }
        };
        verifier.read_file(BufReader::new(file), tell).map_err(unreadable)?;
        if needs_key {
            return Err(AuditCommandError::KeyNeeded { path: path.to_owned() });
        }
    }
    if verifier.report().records == 0 {
        faults.add(None, &"there are no records");
    }
    if let Some((number, hash)) = args.last.as_ref()
        && let Some(fault) = verifier.expect_end(*number, hash)
    {
        faults.add(None, &fault);
    }
    Ok(())
}

/// Returns the files with their first records, the earliest first.
fn read_beginnings(files: &[PathBuf]) -> Result<Vec<(LogBeginning, &Path)>, AuditCommandError> {
    let begun = files.iter().map(|path| {
        let first = File::open(path).and_then(|file| LogBeginning::read(BufReader::new(file)));
        let first =
            first.map_err(|source| AuditCommandError::Read { path: path.clone(), source })?;
        Ok((first, path.as_path()))
    });
    let mut begun: Vec<_> = begun.collect::<Result<_, AuditCommandError>>()?;
    begun.sort_by_key(|(first, _)| first.number);
    Ok(begun)
}

/// Checks that a key is given for a keyed log, and for no other: every record would be faulty. A log
/// with records of both kinds is verified with the key.
fn check_key(mode: &ChainMode, files: &[(LogBeginning, &Path)]) -> Result<(), AuditCommandError> {
    let find = |keyed: bool| files.iter().find(|(first, _)| first.is_keyed == Some(keyed));
    match (mode, find(true), find(false)) {
        (ChainMode::Plain, Some((_, path)), _) => {
            Err(AuditCommandError::KeyNeeded { path: (*path).to_owned() })
        }
        (ChainMode::Keyed(_), None, Some((_, path))) => {
            Err(AuditCommandError::NotKeyed { path: (*path).to_owned() })
        }
        _ => Ok(()),
    }
}

fn chain_mode(key_file: Option<&Path>) -> Result<ChainMode, AuditCommandError> {
    let Some(path) = key_file else { return Ok(ChainMode::Plain) };
    let read = std::fs::read(path);
    let key = read.map_err(|source| AuditCommandError::Read { path: path.to_owned(), source })?;
    let key = ChainKey::new(key.trim_ascii_end());
    key.map(ChainMode::Keyed).ok_or_else(|| AuditCommandError::ShortKey { path: path.to_owned() })
}

fn describe_report(report: &ChainReport) -> String {
    let ChainReport { records, first, last, last_hash, lost } = report;
    let mut text = format!(
        "the chain is intact: {records} record(s), from {} to {last}\n",
        first.unwrap_or(0)
    );
    if *lost > 0 {
        let _ = writeln!(text, "the log itself reports {lost} lost record(s)");
    }
    let _ = writeln!(text, "last: {last}:{}", last_hash.as_deref().unwrap_or_default());
    text
}

fn parse_last(text: &str) -> Result<(u64, String), &'static str> {
    let (number, hash) = text.split_once(':').ok_or(LAST_FORM)?;
    Ok((number.parse().map_err(|_| LAST_FORM)?, hash.to_owned()))
}

/// Limit of the faults in a document.
const MAX_LISTED_FAULTS: usize = 1000;
const LAST_FORM: &str = "expected SEQ:HASH, such as 7:9f86d08…";
