//! Each rule, the text that breaks it, and the fault that is reported.

use super::faults;

mod file;
mod server;

#[test]
fn each_rule_reports_line_key_and_help() {
    for (text, told) in file::RULES {
        assert_eq!(faults(text), [*told], "{text}");
    }
}

#[test]
fn each_rule_for_a_server_reports_line_key_and_help() {
    for (lines, told) in server::RULES {
        let found = faults(&format!("[servers.x]\n{lines}"));
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert!(found[0].starts_with(told), "{lines}:\n{}\n{told}", found[0]);
    }
}
