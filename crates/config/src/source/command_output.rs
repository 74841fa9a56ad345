//! `${command:PROGRAM ARG…}`: a program's output, such as a secret of a password manager.
//!
//! A program runs once, and its output is kept: reading the configuration again does not run it
//! again. [`renew_outputs`] does, and [`retain_outputs`] forgets those of other commands.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use trunkline_core::clock;
use trunkline_core::text::{clip, describe_system_error, escape_controls};

use super::secret::Secret;

/// Reason why a program's output cannot be used as a value.
#[derive(Debug, thiserror::Error)]
pub enum CommandFault {
    /// There is no program.
    #[error("there is no program to run")]
    Empty,
    /// It cannot be started, or its output cannot be read.
    #[error("{}", describe_system_error(.0))]
    System(io::Error),
    /// It reports a failure.
    #[error("{status}; its last line was: {last_line:?}")]
    Failed {
        /// The exit status.
        status: std::process::ExitStatus,
        /// The last line of its standard error, clipped.
        last_line: String,
    },
    /// It takes too long.
    #[error("did not end within {}s", PROGRAM_TIMEOUT.as_secs())]
    Timeout,
    /// It writes too much.
    #[error("expected at most {MAX_OUTPUT} bytes, found more")]
    TooLarge,
    /// It writes no text.
    #[error("expected text in UTF-8")]
    NotText,
}

impl From<io::Error> for CommandFault {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// The known outputs, by command line.
static COMMAND_OUTPUTS: LazyLock<Mutex<BTreeMap<String, Secret>>> = LazyLock::new(Mutex::default);

/// The output of a command line, without the line ends at its end. The words of the line are
/// separated by spaces; no shell reads it. Blocks until the program ends.
///
/// # Errors
/// [`CommandFault`].
pub(crate) fn output_of(line: &str) -> Result<String, CommandFault> {
    if let Some(known) = COMMAND_OUTPUTS.lock().get(line) {
        return Ok(known.expose().to_owned());
    }
    let output = run(line)?;
    COMMAND_OUTPUTS.lock().insert(line.to_owned(), Secret::new(output.clone()));
    Ok(output)
}

/// Runs the commands again, and returns true if an output has changed. A command that fails keeps
/// its last output. Blocks until the programs end.
pub fn renew_outputs<'a>(lines: impl IntoIterator<Item = &'a String>) -> bool {
    let mut has_changed = false;
    for line in lines {
        match run(line) {
            Ok(output) => {
                let output = Secret::new(output);
                let before = COMMAND_OUTPUTS.lock().insert(line.clone(), output.clone());
                has_changed |= before != Some(output);
            }
            Err(fault) => {
                let program = program_of(line);
                tracing::warn!(
                    target: "trunkline::config::command_output",
                    program,
                    %fault,
                    "a command of the configuration failed: its last output is kept"
                );
            }
        }
    }
    has_changed
}

/// Forgets the outputs of all commands but these.
pub fn retain_outputs(lines: &BTreeSet<String>) {
    COMMAND_OUTPUTS.lock().retain(|line, _| lines.contains(line));
}

/// The program of a command line, for logs: its arguments may be secret.
pub(crate) fn program_of(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "on a blocking thread, and without a runtime at all")]
fn run(line: &str) -> Result<String, CommandFault> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or(CommandFault::Empty)?;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (told, ended) = sync_channel(2);
    for (at, pipe) in pipes_of(&mut child).into_iter().enumerate() {
        let told = told.clone();
        // Ends with the pipe, which the program's own children may hold open.
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = pipe.take(MAX_OUTPUT + 1).read_to_end(&mut bytes);
            let _ = told.send((at, read.map(|_| bytes)));
        });
    }
    let until = clock::real_now() + PROGRAM_TIMEOUT;
    let mut streams = [Vec::new(), Vec::new()];
    for _ in 0..streams.len() {
        let (at, read) =
            match ended.recv_timeout(until.saturating_duration_since(clock::real_now())) {
                Ok(read) => read,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(give_up(&mut child));
                }
            };
        let read = read?;
        if read.len() > usize::try_from(MAX_OUTPUT).unwrap_or(usize::MAX) {
            give_up(&mut child);
            return Err(CommandFault::TooLarge);
        }
        if let Some(stream) = streams.get_mut(at) {
            *stream = read;
        }
    }
    let [output, errors] = streams;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if clock::real_now() > until => return Err(give_up(&mut child)),
            None => thread::sleep(EXIT_POLL_INTERVAL),
        }
    };
    if !status.success() {
        return Err(CommandFault::Failed { status, last_line: last_line(&errors) });
    }
    let output = String::from_utf8(output).map_err(|_| CommandFault::NotText)?;
    Ok(output.trim_end_matches(['\r', '\n']).to_owned())
}

fn pipes_of(child: &mut Child) -> Vec<Box<dyn Read + Send>> {
    let output = child.stdout.take().map(|it| Box::new(it) as Box<dyn Read + Send>);
    let errors = child.stderr.take().map(|it| Box::new(it) as Box<dyn Read + Send>);
    output.into_iter().chain(errors).collect()
}

/// Kills a program that takes too long.
fn give_up(child: &mut Child) -> CommandFault {
    let _ = child.kill();
    let _ = child.wait();
    CommandFault::Timeout
}

fn last_line(errors: &[u8]) -> String {
    let errors = String::from_utf8_lossy(errors);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    escape_controls(clip(last, MAX_SHOWN_LINE_BYTES))
}

/// Time limit for a program: less than reading a configuration may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval of checks that it has ended, once it has closed its output.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The longest output, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;
/// The longest line in an error, in bytes.
const MAX_SHOWN_LINE_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_run_once_until_its_output_is_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("count");
        std::fs::write(&script, "echo x >> $1; wc -l < $1\n").unwrap();
        let count = folder.path().join("lines");
        let line = format!("sh {} {}", script.display(), count.display());
        let lines = [line.clone()];
        assert_eq!(output_of(&line).unwrap().trim(), "1");
        assert_eq!(output_of(&line).unwrap().trim(), "1");
        assert!(renew_outputs(&lines));
        assert_eq!(output_of(&line).unwrap().trim(), "2");
        // Commands that are no longer in force are run again.
        retain_outputs(&lines.iter().cloned().collect());
        assert_eq!(output_of(&line).unwrap().trim(), "2");
        retain_outputs(&BTreeSet::new());
        assert_eq!(output_of(&line).unwrap().trim(), "3");
        std::fs::remove_file(&script).unwrap();
        assert!(!renew_outputs(&lines), "one that fails changes nothing");
        assert_eq!(output_of(&line).unwrap().trim(), "3");
    }

    #[test]
    fn a_program_without_usable_output_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let script = |text: &str| {
            let path = folder.path().join("script");
            std::fs::write(&path, text).unwrap();
            run(&format!("sh {}", path.display())).unwrap_err().to_string()
        };
        assert_eq!(run(" ").unwrap_err().to_string(), "there is no program to run");
        assert!(run("/no/such/program").unwrap_err().to_string().contains("No such file"));
        let failed = script("echo secret; echo first >&2; echo not logged in >&2; exit 3");
        assert_eq!(failed, "exit status: 3; its last line was: \"not logged in\"");
        assert!(script("yes").contains("found more"));
        assert!(script("printf '\\377'").contains("UTF-8"));
    }

    #[test]
    fn a_program_that_does_not_end_is_given_up() {
        let began = clock::real_now();
        assert!(matches!(run("sleep 60").unwrap_err(), CommandFault::Timeout));
        assert!(began.elapsed() < PROGRAM_TIMEOUT * 2);
    }
}
