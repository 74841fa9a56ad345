//! The view of the running gateway: printed, and on a terminal.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::process::{Process, TRUNKLINE, Tag, eventually, text};
use super::running::{UNREACHABLE, beside};
use super::{DONE, WRONG_USE, clock, file, trunkline};

#[test]
fn a_frame_is_printed_with_every_server() {
    let tag = Tag::new();
    let more = "[servers.down]\ncommand = \"no-such-program-anywhere\"\n";
    let gateway = Process::start(&format!("{}{more}", clock(&tag)));
    gateway.ready(&["clock"]);
    eventually("the start has failed", || gateway.server("down")["state"] == "failed");
    let config = gateway.config();
    for place in [&["top"][..], &["top", config.to_str().unwrap()]] {
        let args = [place, &["--once", "--interval", "0.2"]].concat();
        let frame = beside(&gateway, &args).exits_with(DONE);
        let frame = frame.prints(&["Trunkline ", "1 of 2 servers ready", "refused: none"]).said();
        assert!(frame.lines().all(|line| line.chars().count() <= 80), "{frame}");
        let row = |name: &str| {
            let found = frame.lines().find(|line| line.starts_with(name));
            found
                .unwrap_or_else(|| panic!("{name}: {frame}"))
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(row("clock")[..3], ["clock", "ready", "0"], "{frame}");
        // The first sample has had them counted.
        assert!(row("clock")[8].parse::<usize>().unwrap() > 10, "{frame}");
        assert_eq!(row("down")[..2], ["down", "failed"], "{frame}");
    }
    let filtered = ["top", "--once", "--interval", "0.1", "--filter", "fail", "--width", "60"];
    let frame = beside(&gateway, &filtered).exits_with(DONE).said();
    assert!(frame.contains("\ndown ") && !frame.contains("\nclock "), "{frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 60), "{frame}");
    let json = beside(&gateway, &["top", "--json"]).exits_with(DONE).said();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["servers"][0]["name"], "clock");
}

#[test]
fn without_a_terminal_or_a_gateway_there_is_no_view() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "");
    trunkline(&["top", &config]).exits_with(WRONG_USE).complains_of(&["--once", "--json"]);
    for option in ["--once", "--json"] {
        let args = ["top", option, &config];
        trunkline(&args).exits_with(UNREACHABLE).complains_of(&["no gateway runs with"]);
    }
    let usage = ["top", "--once", "--interval", "0", &config];
    trunkline(&usage).exits_with(WRONG_USE).complains_of(&["0.1 to 3600"]);
}

#[test]
fn on_a_terminal_keys_change_the_view_and_q_quits() {
    let tag = Tag::new();
    let gateway = Process::start(&clock(&tag));
    gateway.ready(&["clock"]);
    let mut view = View::open(&gateway, &[]);
    view.shows("the table", |lines| lines.iter().any(|line| line.starts_with("clock ")));
    view.press("?");
    view.shows("the keys", |lines| lines.iter().any(|line| line.contains("order: file, calls")));
    view.press("?");
    view.press("j\r");
    view.shows("details", |lines| lines.iter().any(|line| line.starts_with("restarts  0")));
    view.press("q");
    assert_eq!(view.ended(), 0);
    let output = view.output();
    assert!(output.contains(ALTERNATE_SCREEN) && output.ends_with(RESTORED), "{output:?}");
}

#[test]
fn a_signal_ends_the_view_and_restores_the_terminal() {
    let gateway = Process::start("");
    let mut view = View::open(&gateway, &[]);
    view.shows("the table", |lines| lines.iter().any(|line| line.contains("no servers")));
    kill_process(Pid::from_raw(view.pid()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(view.ended(), 128 + 15);
    assert!(view.output().ends_with(RESTORED), "{:?}", view.output());
}

#[test]
fn a_gateway_that_goes_and_comes_back_is_shown_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let socket = format!("[admin]\nsocket = \"{}/a.sock\"\n", folder.path().display());
    std::fs::write(&config, text("").replace("[admin]\n", &socket)).unwrap();
    let start = || Process::start_with(tempfile::tempdir().unwrap(), &config, &[]);
    let mut gateway = start();
    let args = ["-c", config.to_str().unwrap(), "--interval", "0.2"];
    let mut view = View::open(&gateway, &args);
    view.shows("the table", |lines| lines.iter().any(|line| line.contains("no servers")));
    gateway.signal(Signal::TERM);
    gateway.ended();
    let is_gone = |lines: &[String]| lines.iter().any(|line| line.contains("trying again"));
    view.shows("the fault", is_gone);
    let _gateway = start();
    view.shows("no fault", |lines| !is_gone(lines) && lines[0].starts_with("Trunkline "));
    view.press("\u{3}");
    assert_eq!(view.ended(), 0);
}

/// The command on a terminal with 24 rows and 80 columns.
struct View {
    script: Child,
    output: Arc<Mutex<Vec<u8>>>,
    pid: std::path::PathBuf,
}

impl View {
    fn open(gateway: &Process, args: &[&str]) -> Self {
        let pid = gateway.folder().join("view.pid");
        let command = format!(
            "stty rows 24 cols 80; echo $$ > {}; exec {TRUNKLINE} top {}",
            pid.display(),
            args.join(" ")
        );
        let mut script = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("XDG_RUNTIME_DIR", gateway.folder())
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env_remove("TRUNKLINE_CONFIG")
            .current_dir(gateway.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut from, into) = (script.stdout.take().unwrap(), Arc::clone(&output));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut piece) {
                into.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        });
        Self { script, output, pid }
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.script.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    fn pid(&self) -> i32 {
        std::fs::read_to_string(&self.pid).unwrap().trim().parse().unwrap()
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until the screen is like this.
    #[track_caller]
    fn shows(&self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        eventually(&format!("the view shows {what}"), || is_so(&screen(&self.output())));
    }

    fn ended(&mut self) -> i32 {
        let mut status = None;
        eventually("the view ends", || {
            status = self.script.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code().unwrap()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Returns the lines of a screen after an output: text at places, and erasures of everything.
fn screen(output: &str) -> Vec<String> {
    let mut cells = vec![vec![' '; 80]; 24];
    let (mut row, mut column) = (0, 0);
    let mut rest = output.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '\u{1b}' if rest.next_if_eq(&'[').is_some() => {
                let mut parameters = String::new();
                let end = loop {
                    match rest.next() {
                        Some(letter) if letter.is_ascii_alphabetic() => break letter,
                        Some(letter) => parameters.push(letter),
                        None => break ' ',
                    }
                };
                match (end, parameters.as_str()) {
                    ('H', place) => {
                        let mut numbers = place.split(';').map(|it| it.parse().unwrap_or(1_usize));
                        row = numbers.next().unwrap_or(1) - 1;
                        column = numbers.next().unwrap_or(1) - 1;
                    }
                    ('J', _) => cells.iter_mut().flatten().for_each(|cell| *cell = ' '),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            letter => {
                if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = letter;
                }
                column += 1;
            }
        }
    }
    cells
        .into_iter()
        .map(|line| line.into_iter().collect::<String>().trim_end().to_owned())
        .collect()
}

/// The sequences that begin and end the view.
const ALTERNATE_SCREEN: &str = "\u{1b}[?1049h";
const RESTORED: &str = "\u{1b}[?1049l\u{1b}[?25h";
