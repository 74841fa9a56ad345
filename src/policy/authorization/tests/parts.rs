//! Conditions that are partly decided before there is a call.

use super::*;

/// A part about arguments, and arguments for which it holds, does not hold and fails to evaluate.
struct CallPart {
    text: &'static str,
    holds: &'static str,
    fails: &'static str,
    faulty: &'static str,
}

const CALL_PARTS: [CallPart; 4] = [
    CallPart {
        text: "arguments.x == 1",
        holds: r#"{"x":1}"#,
        fails: r#"{"x":2}"#,
        faulty: r#"{"y":1}"#,
    },
    CallPart {
        text: "size(arguments) < 2",
        holds: r#"{"x":{"a":1}}"#,
        fails: r#"{"x":1,"y":2}"#,
        faulty: r#"{"x":1,"x":2}"#,
    },
    CallPart {
        text: "'ab' in arguments && arguments.all(n, n != 'z')",
        holds: r#"{"a\u0062":1}"#,
        fails: r#"{"b":1}"#,
        faulty: r#"{"ab":1,"a\u0062":1}"#,
    },
    CallPart {
        text: "arguments.all(n, arguments[n] == [1, {'b': null}, 'c'])",
        holds: r#"{"x":[1,{"b":null},"\u0063"]}"#,
        fails: r#"{"x":[1,{"b":null},"c"],"y":[true]}"#,
        faulty: r#"{"x":[1,{"b":null,"b":null},"c"]}"#,
    },
];

#[test]
fn a_condition_of_two_parts_decides_as_a_whole() {
    for part in &CALL_PARTS {
        for (before, holds) in [
            ("principal.name == 'ann' && tool.native == 't'", Some(true)),
            ("principal.name == 'bob' && tool.native == 't'", Some(false)),
            ("claims.missing == 1", None),
        ] {
            let text = part.text;
            for when in [format!("{before} && {text}"), format!("{text} && {before}")] {
                check_rule(&when, part, holds);
            }
        }
    }
}

/// Checks a rule with this condition, as a permission and as a denial; `holds` is the result of its
/// first part.
fn check_rule(when: &str, part: &CallPart, holds: Option<bool>) {
    for (effect, met, not_met) in
        [("allow", ALLOWED(0), BY_DEFAULT), ("deny", DENIED(0), ALLOWED(1))]
    {
        let rules = rules(&format!(
            "[policy.rules.one]\neffect = {effect:?}\nwhen = {when:?}\n\
             [policy.rules.all]\ntools = [{:?}]\n",
            if effect == "allow" { "none" } else { "*" }
        ));
        let decide = |arguments| decide_tool(&rules, "s", "{}", Some(arguments));
        // A condition that fails to evaluate allows nothing, and denies.
        let unknown = if effect == "allow" { not_met } else { met };
        let expected = match holds {
            Some(true) => met,
            Some(false) => not_met,
            None => unknown,
        };
        assert_eq!(decide(part.holds), expected, "{effect} {when}");
        assert_eq!(decide(part.fails), not_met, "{effect} {when}");
        if holds != Some(false) {
            assert_eq!(decide(part.faulty), unknown, "{effect} {when}");
        }
    }
}
