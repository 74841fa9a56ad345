//! Conditions about URIs, in spellings that servers read alike.

use super::*;

/// Decides about a resource of a server, by its native URI.
fn decide_uri(text: &str, native: &str) -> AccessDecision {
    decide(&rules(text), &caller("ann", &[], &[]), (Kind::Resources, "t", native))
}

#[test]
fn a_condition_that_denies_holds_for_every_spelling_of_its_uri() {
    let secret = "item.native == 'file:///secret.txt'";
    let begins = "item.native.startsWith('db://Prod/')";
    for (when, native, is_denied) in [
        (secret, "file:///secret.txt", true),
        (secret, "FILE:///secret.txt", true),
        (secret, " file:////%73ecret.txt", true),
        (secret, "file:///secret.txt?x#y", true),
        (secret, "file:///Secret.txt", false),
        (begins, "db://Prod/7", true),
        // The host in any case, as for patterns.
        (begins, "db://PROD/7", true),
        (begins, "DB://%70rod/7", true),
        (begins, "db://Production/7", false),
        ("item.name.contains('://Prod/')", "DB://Prod/7", true),
        ("item.native != 'db://Prod/7'", "db://prod/7", true),
    ] {
        let text =
            format!("[policy.rules.no]\neffect = \"deny\"\nwhen = {when:?}\n[policy.rules.all]\n");
        let expected = if is_denied { DENIED(0) } else { ALLOWED(1) };
        assert_eq!(decide_uri(&text, native), expected, "{when} {native}");
    }
}

#[test]
fn a_condition_that_allows_holds_for_the_spelling_that_it_names() {
    let begins = "item.native.startsWith('db://Prod/')";
    for (when, native, is_allowed) in [
        ("item.native == 'file:///a%20b'", "file:///a%20b", true),
        ("item.native == 'file:///a'", "FILE:///a", false),
        ("item.native != 'file:///a'", "FILE:///a", false),
        ("item.native != 'file:///a'", "file:///%61", false),
        ("item.native != 'file:///a'", "file:///b", true),
        (begins, "db://Prod/7", true),
        (begins, "db://prod/7", false),
        (begins, "DB://Prod/7", false),
    ] {
        let expected = if is_allowed { ALLOWED(0) } else { BY_DEFAULT };
        let text = format!("[policy.rules.some]\nwhen = {when:?}\n");
        assert_eq!(decide_uri(&text, native), expected, "{when} {native}");
    }
}
