//! Arguments of other types than a condition expects.

use super::*;
use crate::captured_log::CapturedLog;

/// The outcome of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evaluated {
    True,
    False,
    /// It fails to evaluate.
    Fault,
}

use Evaluated::{False, Fault, True};

/// Evaluates a condition by the decisions of a rule that allows and of one that denies.
fn evaluate(when: &str, arguments: &str) -> (Evaluated, Option<String>) {
    let allowing = rules(&format!("[policy.rules.one]\nwhen = {when:?}\n"));
    let denying = rules(&format!(
        "[policy.rules.one]\neffect = \"deny\"\nwhen = {when:?}\n[policy.rules.all]\n"
    ));
    let [allowed, denied] =
        [allowing, denying].map(|rules| judge_tool(&rules, "s", "{}", Some(arguments)));
    let outcome = match (allowed.decision, denied.decision) {
        (AccessDecision::Allowed { .. }, AccessDecision::Denied { rule: Some(0) }) => True,
        (BY_DEFAULT, AccessDecision::Allowed { rule: Some(1) }) => False,
        (BY_DEFAULT, AccessDecision::Denied { rule: Some(0) }) => Fault,
        other => panic!("{when} {arguments}: {other:?}"),
    };
    assert_eq!(allowed.fault, denied.fault, "{when} {arguments}");
    (outcome, allowed.fault.map(|fault| fault.fault.to_string()))
}

type Case<'a> = (&'a str, &'a [(&'a str, Evaluated)]);

/// Evaluates conditions about the argument `x`, each with some values of it.
fn check(cases: &[Case<'_>]) {
    for (when, values) in cases {
        for (value, expected) in *values {
            let (found, _) = evaluate(when, &format!(r#"{{"x":{value}}}"#));
            assert_eq!(found, *expected, "{when} with {value}");
        }
    }
}

#[test]
fn a_comparison_of_different_types_allows_nothing_and_denies() {
    check(&[
        (
            "arguments.x == 42",
            &[
                ("42", True),
                ("42.0", True),
                ("4.2e1", True),
                ("43", False),
                ("42.5", False),
                (r#""42""#, Fault),
                (r#""forty""#, Fault),
                ("[42]", Fault),
                ("true", Fault),
                ("null", Fault),
                ("{}", Fault),
                (r#"{"x":42}"#, Fault),
                ("1e400", Fault),
            ],
        ),
        ("42 == arguments.x", &[("42", True), (r#""42""#, Fault), ("null", Fault)]),
        ("arguments.x == 42u", &[("42", True), ("42.0", True), (r#""42""#, Fault)]),
        ("arguments.x != 42", &[("42", False), ("41", True), (r#""42""#, Fault)]),
        ("!(arguments.x == 42)", &[("42", False), ("41", True), (r#""41""#, Fault)]),
        (
            "arguments.x != 'main'",
            &[
                (r#""main""#, False),
                (r#""dev""#, True),
                (r#"["main"]"#, Fault),
                (r#"{"0":"main"}"#, Fault),
                ("null", Fault),
                ("0", Fault),
                ("false", Fault),
            ],
        ),
        (
            "arguments.x in ['main', 'release']",
            &[
                (r#""main""#, True),
                (r#""dev""#, False),
                (r#"["main"]"#, Fault),
                (r#"[["main"]]"#, Fault),
                ("null", Fault),
                ("7", Fault),
            ],
        ),
        ("!(arguments.x in ['main'])", &[(r#""dev""#, True), (r#"["main"]"#, Fault)]),
        // A literal list may mix types: the value's type has to be among them.
        (
            "arguments.x in [42, '42']",
            &[("42", True), (r#""42""#, True), ("7", False), (r#""7""#, False), ("[42]", Fault)],
        ),
    ]);
}

#[test]
fn a_null_that_is_written_compares_with_any_value() {
    check(&[
        ("arguments.x == null", &[("null", True), ("7", False), (r#"["a"]"#, False)]),
        ("null != arguments.x", &[("null", False), ("7", True)]),
        (
            "arguments.x in [null, 'main']",
            &[("null", True), (r#""main""#, True), (r#""dev""#, False), (r#"["main"]"#, Fault)],
        ),
        ("arguments.x in [null]", &[("null", True), ("7", False)]),
        ("null in arguments.x", &[("[1,null]", True), (r#"["a"]"#, False)]),
        ("arguments.x == [null, 1]", &[("[null,1]", True), ("[7,1]", False), ("[7,true]", False)]),
        // On either side.
        ("[null, 1] == arguments.x", &[("[null,1]", True), ("[7,1]", False), ("[7,2]", False)]),
    ]);
}

#[test]
fn values_within_values_are_compared_by_their_types() {
    check(&[
        (
            "arguments.x == [1, 2]",
            &[
                ("[1,2]", True),
                ("[1.0,2]", True),
                ("[1,3]", False),
                ("[1]", False),
                (r#"["1",2]"#, Fault),
                (r#"["1",3]"#, False),
                ("[[1],2]", Fault),
                ("1", Fault),
                (r#"{"0":1,"1":2}"#, Fault),
            ],
        ),
        (
            "arguments.x == {'a': {'b': 'c'}}",
            &[
                (r#"{"a":{"b":"c"}}"#, True),
                (r#"{"a":{"b":"d"}}"#, False),
                (r#"{"a":{"c":"c"}}"#, False),
                (r#"{"a":{"b":["c"]}}"#, Fault),
                (r#"{"a":"c"}"#, Fault),
                (r#"[["a","c"]]"#, Fault),
            ],
        ),
        ("arguments.x == {1: 'a'}", &[(r#"{"1":"a"}"#, Fault)]),
    ]);
}

#[test]
fn lists_and_loops_compare_each_element_by_its_type() {
    check(&[
        (
            "'main' in arguments.x",
            &[
                (r#"["main"]"#, True),
                (r#"["dev"]"#, False),
                ("[]", False),
                (r#"[["main"],"dev"]"#, Fault),
                (r#"[["main"],"main"]"#, True),
                ("[1]", Fault),
                ("[null]", Fault),
                (r#""main""#, Fault),
                ("{}", False),
                (r#"{"main":1}"#, True),
            ],
        ),
        ("1 in arguments.x", &[(r#"{"1":1}"#, Fault), ("[1]", True), (r#"["1"]"#, Fault)]),
        // Loops.
        (
            "arguments.x.exists(one, one == 'main')",
            &[
                (r#"["main"]"#, True),
                (r#"["dev"]"#, False),
                (r#"[["main"]]"#, Fault),
                (r#"[["main"],"dev"]"#, Fault),
                (r#"[["main"],"main"]"#, True),
                (r#""main""#, Fault),
            ],
        ),
        (
            "arguments.x.all(one, one != 'main')",
            &[
                (r#"["dev"]"#, True),
                (r#"["main"]"#, False),
                (r#"[7,"dev"]"#, Fault),
                (r#"[7,"main"]"#, False),
            ],
        ),
        ("arguments.x.exists_one(one, one == 1)", &[("[1,2]", True), (r#"["1",1]"#, Fault)]),
        (
            "arguments.x.filter(one, one == 'main').size() == 0",
            &[(r#"["dev"]"#, True), (r#"["main"]"#, False), (r#"[["main"]]"#, Fault)],
        ),
        ("arguments.x.map(one, one == 1) == [true]", &[("[1]", True), (r#"["1"]"#, Fault)]),
        // A list in a list with another type within it, beside one that fits.
        (
            "arguments.x in [[1], [2, 3]]",
            &[("[1]", True), ("[5]", False), (r#"["1"]"#, Fault), ("7", Fault)],
        ),
        // Comparisons within maps.
        ("{'k': arguments.x == 42}['k']", &[("42", True), ("43", False), (r#""42""#, Fault)]),
        ("{'k': arguments.x == 42}.k", &[("42", True), ("43", False), (r#""42""#, Fault)]),
    ]);
}

#[test]
fn an_operand_of_another_type_matters_only_where_the_others_do_not_decide() {
    check(&[
        ("arguments.x == 42 && tool.native == 'z'", &[(r#""42""#, False), ("42", False)]),
        ("arguments.x == 42 || tool.native == 't'", &[(r#""42""#, True), ("41", True)]),
        ("arguments.x == 42 || tool.native == 'z'", &[(r#""42""#, Fault), ("41", False)]),
        ("arguments.x == 42 ? true : false", &[(r#""42""#, Fault), ("42", True)]),
        ("arguments.x == 42 ? false : true", &[(r#""42""#, Fault), ("41", True)]),
        ("has(arguments.y) && arguments.y == 1", &[("7", False)]),
    ]);
}

#[test]
fn numbers_that_a_server_cannot_tell_apart_are_not_compared() {
    check(&[
        (
            "arguments.x == 9007199254740993",
            &[
                ("9007199254740993", True),
                ("9007199254740992", Fault),
                ("9007199254740992.0", Fault),
                ("9007199254740994", False),
            ],
        ),
        ("arguments.x == 18446744073709551615u", &[("18446744073709551615", True), ("-1", False)]),
        ("arguments.x == -0.0", &[("0", True), ("-0", True), ("-0.0", True), ("1", False)]),
        ("double(arguments.x) != 5.0", &[(r#""NaN""#, Fault), (r#""6""#, True)]),
    ]);
}

#[test]
fn other_functions_refuse_other_types() {
    check(&[
        ("arguments.x < 5", &[("4", True), (r#""4""#, Fault), ("[4]", Fault), ("null", Fault)]),
        ("arguments.x >= 'b'", &[(r#""c""#, True), ("7", Fault), (r#"["c"]"#, Fault)]),
        ("arguments.x.contains('a')", &[(r#""a""#, True), (r#"["a"]"#, Fault), ("7", Fault)]),
        ("arguments.x.startsWith('a')", &[(r#""a""#, True), (r#"["a"]"#, Fault), ("{}", Fault)]),
        ("arguments.x.matches('^a$')", &[(r#""a""#, True), (r#"["a"]"#, Fault), ("7", Fault)]),
        ("size(arguments.x) < 2", &[(r#""a""#, True), ("[]", True), ("1", Fault), ("null", Fault)]),
        ("arguments.x", &[("true", True), (r#""true""#, Fault), ("1", Fault)]),
        ("!arguments.x", &[("false", True), ("0", Fault), ("null", Fault), (r#""""#, Fault)]),
        ("arguments.x.y == 1", &[(r#"{"y":1}"#, True), (r#"[{"y":1}]"#, Fault), ("1", Fault)]),
        ("arguments.x[0] == 1", &[("[1]", True), (r#"{"0":1}"#, Fault), (r#""1""#, Fault)]),
    ]);
}

#[test]
fn arguments_and_claims_of_different_types_are_no_match() {
    for (when, value, expected) in [
        ("arguments.x == claims.level", "3", True),
        ("arguments.x == claims.level", r#""3""#, Fault),
        ("arguments.x == principal.name", r#""ann""#, True),
        ("arguments.x == principal.name", r#"["ann"]"#, Fault),
        ("arguments.x in principal.groups", r#""web""#, True),
        ("arguments.x in principal.groups", r#"["web"]"#, Fault),
        ("principal.name in arguments.x", r#"[{"name":"ann"}]"#, Fault),
        ("arguments.x == claims.team", r#"{"name":"web"}"#, True),
        ("arguments.x == claims.team", r#"{"name":["web"]}"#, Fault),
        ("claims.team == 'web'", "1", Fault),
    ] {
        let (found, _) = evaluate(when, &format!(r#"{{"x":{value}}}"#));
        assert_eq!(found, expected, "{when} with {value}");
    }
}

#[test]
fn a_fault_without_a_log_leaves_the_warning_to_the_next_one() {
    let rules = rules("[policy.rules.one]\nwhen = \"arguments.n == 1\"");
    let decide_once = || {
        let decision = decide(&rules, &caller("ci", &[], &[]), (Kind::Tools, "s", "s__t"));
        assert_eq!(decision, BY_DEFAULT);
    };
    let silent = tracing::subscriber::NoSubscriber::default();
    tracing::subscriber::with_default(silent, decide_once);
    let log = CapturedLog::start();
    decide_once();
    decide_once();
    let text = log.text();
    assert_eq!(text.matches("the condition of a rule could not be evaluated").count(), 1, "{text}");
}

#[test]
fn a_fault_names_the_arguments() {
    for (when, arguments, expected) in [
        ("arguments.x == 42", r#"{"x":"42"}"#, "unexpected type of arguments.x"),
        ("arguments['x y'] == 42", r#"{"x y":"42"}"#, "unexpected type of arguments.x y"),
        ("arguments.x == 42", "{}", "arguments.x is missing"),
        ("arguments.x.y == 42", r#"{"x":{}}"#, "arguments.x.y is missing"),
        ("arguments.x.y == 42", r#"{"x":7}"#, "unexpected type of arguments.x.y"),
        ("arguments.x == 1", r#"{"x":1e400}"#, "arguments.x cannot be read"),
        ("arguments.x == 1", r#"{"x":{"a":1,"a":2}}"#, "arguments.x cannot be read"),
        ("arguments.x == 1", r#"{"x":1,"x":2}"#, "arguments cannot be read"),
        ("principal.name == arguments.x", r#"{"x":7}"#, "unexpected type of arguments.x"),
        ("arguments.x == arguments.y", r#"{"x":7,"y":"7"}"#, "type of arguments.x, arguments.y"),
        ("arguments.x in [1, 2]", r#"{"x":"1"}"#, "unexpected type of arguments.x"),
        ("arguments.x.list[0] == 1", r#"{"x":{"list":["1"]}}"#, "of arguments.x.list[0]"),
        ("arguments.x.exists(one, one == 1)", r#"{"x":["1"]}"#, "of arguments.x"),
        ("arguments.x.startsWith('a')", r#"{"x":1}"#, "of arguments.x"),
        ("!arguments.x", r#"{"x":1}"#, "of arguments.x"),
        ("arguments.y == 1 && (arguments.x < 5 || false)", r#"{"x":"1","y":1}"#, "of arguments.x"),
        ("arguments.y == 1 ? arguments.x == 1 : true", r#"{"x":"1","y":1}"#, "of arguments.x"),
        ("claims.nothing == 1 && size(arguments) > 0", r#"{"x":1}"#, "claims.nothing is missing"),
    ] {
        let (found, told) = evaluate(when, arguments);
        let told = told.unwrap_or_default();
        assert_eq!(found, Fault, "{when} {arguments}");
        assert!(told.contains(expected), "{when} {arguments}: {told}");
    }
}

#[test]
fn a_fault_belongs_to_the_rule_that_decides() {
    let rules = rules(
        r#"
        [policy.rules.first]
        when = "arguments.x == 1"
        [policy.rules.second]
        when = "arguments.y == 1"
        [policy.rules.never]
        effect = "deny"
        when = "arguments.z == 1"
        "#,
    );
    let place = |arguments: &str| {
        let judged = judge_tool(&rules, "s", "{}", Some(arguments));
        (judged.decision, judged.fault.map(|fault| fault.place))
    };
    assert_eq!(place(r#"{"x":"1","y":1,"z":2}"#), (ALLOWED(1), None));
    assert_eq!(place(r#"{"x":"1","y":2,"z":2}"#), (BY_DEFAULT, Some(0)));
    assert_eq!(place(r#"{"x":"1","y":1,"z":"1"}"#), (DENIED(2), Some(2)));
    assert_eq!(place(r#"{"x":"1","y":"1","z":1}"#), (DENIED(2), None));
}
