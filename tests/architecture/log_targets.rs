//! Holds the targets of log lines, which are in users' filters.

use super::libraries;
use super::paths::{is_word, line_of};
use super::sources::{root, sources_below};

#[test]
fn each_log_line_of_a_library_has_the_target_of_its_module_in_the_gateway() {
    let mut count = 0;
    for library in libraries() {
        for file in sources_below(&root().join("crates").join(&library).join("src")) {
            let module = [library.replace('-', "_")].into_iter().chain(file.parts());
            let module = module.collect::<Vec<_>>().join("::");
            let former = FORMER_PATHS
                .iter()
                .find_map(|(path, former)| Some(format!("{former}{}", module.strip_prefix(path)?)));
            let expected = format!("\"trunkline::{}\"", former.unwrap_or(module));
            for (line, target) in log_targets(&file.text) {
                count += 1;
                assert!(
                    target == Some(&*expected)
                        || target.is_some_and(|own| OWN_TARGETS.contains(&own)),
                    "{}:{line}: filters of users expect the target {expected}: found {target:?}",
                    file.path.display()
                );
            }
        }
    }
    assert!(count > 10, "the log lines were found");
}

#[test]
fn the_reader_of_log_lines_sees_their_targets() {
    let text = "\
tracing::warn!(
    target: CallRecord::TARGET, %error, \"x\"
);
// tracing::warn!(\"a comment\");
tracing::debug!(target: \"a::b\", \"x\");
info!(\"without\");
";
    let found = log_targets(text);
    assert_eq!(
        found,
        [(1, Some("CallRecord::TARGET")), (6, None), (5, Some("\"a::b\""))],
        "in the order of levels"
    );
}

/// Targets of the access log and of servers' standard error, which belong to no module.
const OWN_TARGETS: [&str; 2] = ["CallRecord::TARGET", "\"trunkline::server\""];

/// Modules of libraries that have another path in the gateway, and this path.
const FORMER_PATHS: [(&str, &str); 8] = [
    ("config::source::command_output", "config::command_output"),
    ("https::tls", "upstream::transport::http::client"),
    ("http_client", "upstream::transport::http"),
    ("oauth::vault", "vault"),
    ("oauth::relay", "upstream::login_relay"),
    ("oauth", "upstream::credentials"),
    ("sandbox::child", "upstream::child"),
    ("sandbox::code_mode", "code_mode"),
];

/// Returns the line and the target of each log line, `None` for one that leaves it to `tracing`.
fn log_targets(text: &str) -> Vec<(usize, Option<&str>)> {
    let is_code = |at: usize| {
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        !text[start..at].contains("//") && !text[..at].ends_with(is_word)
    };
    let levels = ["error!(", "warn!(", "info!(", "debug!(", "trace!(", "event!(", "span!("];
    let found = levels.iter().flat_map(|level| text.match_indices(level));
    let found = found.filter(|(at, _)| is_code(*at)).map(|(at, level)| {
        let target = text[at + level.len()..].trim_start().strip_prefix("target: ");
        (line_of(text, at), target.and_then(|rest| rest.split(',').next()))
    });
    found.collect()
}
