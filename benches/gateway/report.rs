//! Writes `docs/benchmarks.md`: measurements between markers are replaced; the
//! text around them stays.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::plan::Span;
use crate::{instructions, measure, nginx, peers, replica_cost, targets};

/// Measures all parts, and writes the report part by part: completed parts are kept if a later one
/// fails.
pub async fn write(span: &Span) {
    put("machine", &machine());
    put("instructions", &instructions::table().await);
    put("targets", &targets::table(&[], span).await);
    put("times", &measure(span).await);
    put("replicas", &replica_cost::table(span).await);
    put("peers", &peers::table(&[], span).await);
}

/// Describes hardware, programs and commit.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    let cpu = value(&read("/proc/cpuinfo"), "model name");
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let dirty =
        !said("git", &["status", "--porcelain", "--", "src", "crates", "Cargo.lock"]).is_empty();
    format!(
        "- Machine: {cores} × {cpu}, {memory}, Linux {}; load {load} when this began\n\
         - Code: commit {}{}, {}, dist build (linked as one)\n\
         - nginx {}; {}; Node.js {}\n",
        kernel.trim(),
        said("git", &["rev-parse", "--short", "HEAD"]),
        if dirty { " with changes" } else { "" },
        said("rustc", &["--version"]),
        nginx::version().unwrap_or_else(|| "is not installed".to_owned()),
        said("python3", &["--version"]),
        said("node", &["--version"]),
    )
}

fn said(program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

fn put(part: &str, text: &str) {
    let page = std::fs::read_to_string(file()).unwrap();
    std::fs::write(file(), replaced(&page, part, text).expect(part)).unwrap();
}

/// Returns the page with a replaced text between a part's markers.
fn replaced(page: &str, part: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- measured: {part} -->\n"), format!("<!-- end: {part} -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks.md")
}

/// Checks that all parts have markers in the page, and that only they change.
pub fn try_out() {
    let page = std::fs::read_to_string(file()).unwrap();
    for part in ["machine", "instructions", "targets", "times", "replicas", "peers"] {
        let once = replaced(&page, part, "a figure").expect(part);
        assert!(once.contains("a figure"));
        assert_eq!(replaced(&once, part, "a figure").as_deref(), Some(once.as_str()));
    }
}
