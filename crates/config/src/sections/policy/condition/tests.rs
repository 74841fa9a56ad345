//! Conditions that are accepted, refused, and bounded.

use std::collections::HashMap;
use std::time::Duration;

use cel::common::types::{CelList, CelMap, CelString};

use super::*;
use crate::{Config, ConfigSource, SystemEnvironment};

fn refusal(text: &str) -> String {
    match Condition::compile(text) {
        Ok(_) => String::new(),
        Err(LocatedFault { fault, at }) => {
            format!("{fault} at {:?}", text.get(at).unwrap_or("(nowhere)"))
        }
    }
}

#[test]
fn the_vocabulary_and_the_types_of_a_condition_are_checked() {
    for (text, expected) in [
        ("true", ""),
        ("tool.name == 'x' && principal.kind != \"anonymous\"", ""),
        ("'admins' in principal.groups || principal.groups.exists(g, g.startsWith('x'))", ""),
        ("has(arguments.repo) && arguments.repo.matches('^acme/[a-z]+$')", ""),
        ("arguments['n'] <= 10 && size(arguments.list) < 3", ""),
        ("claims.team.name == tool.server", ""),
        ("annotations.readOnlyHint", ""),
        ("request.method == 'tools/call' ? true : client.era == 'modern'", ""),
        ("[1, 2].all(x, x > 0) && {'a': 1}.a == 1", ""),
        ("int(arguments.n) + 1 > 2 && string(arguments.n).endsWith('0')", ""),
        ("arguments.list.map(x, x.id).exists_one(id, id == 7)", ""),
        ("arguments.note == null", ""),
        ("principle.name == 'x'", "unknown variable `principle`"),
        ("tool.nmae == 'x'", "`tool` has no member `nmae`"),
        ("tool.name.startswith('x')", "unknown function `startswith`"),
        ("lower(tool.name) == 'x'", "unknown function `lower`"),
        ("tool.name.contains()", "`contains` takes 1 argument(s)"),
        ("tool.name", "expected bool, found a text"),
        ("principal.groups", "expected bool, found a list"),
        ("1 + 2", "expected bool, found a number"),
        ("tool.name == 7", "a text and a number cannot be compared"),
        ("principal.groups == 'admins'", "a list and a text cannot be compared"),
        ("tool.name > null", "cannot be compared"),
        ("tool.name && true", "expected bool, found a text"),
        ("!tool.name", "expected bool, found a text"),
        ("'x' in tool.name", "expected a list, found a text"),
        ("tool.name.all(c, true)", "expected a list, found a text"),
        ("tool.name.size.x", "expected a map, found a text"),
        ("principal.groups.contains('x')", "expected a text, found a list"),
        ("tool.name.matches(arguments.pattern)", "the pattern of `matches`"),
        ("tool.name.matches('(')", "not a regular expression"),
        ("tool.name ==", "at"),
        ("tool.name = 'x'", "at"),
        ("", "at"),
        ("arguments.?x == 1", "at"),
        ("Foo{a: 1} == Foo{}", "cannot be used here"),
        ("[1].exists(tool, tool > 0)", "`tool` is already the name of a variable"),
    ] {
        let told = refusal(text);
        assert_eq!(told.is_empty(), expected.is_empty(), "{text}: {told}");
        assert!(told.contains(expected), "{text}: {told}");
    }
}

#[test]
fn the_inputs_of_a_condition_are_known() {
    let reads = |text: &str| Condition::compile(text).unwrap().reads().clone();
    let some = reads("arguments.a == 1 && has(arguments.b) && arguments['c'] in principal.groups");
    assert!(["a", "b", "c"].iter().all(|name| some.of("arguments").has(name)));
    assert!(!some.of("arguments").has("d") && some.of("principal").has("groups"));
    assert!(!some.of("principal").has("name") && some.needs_call() && some.needs_element());
    assert!(reads("arguments.all(name, arguments[name] != 'x')").of("arguments").has("anything"));
    assert!(reads("arguments == {}").of("arguments").has("anything"));
    for keys in ["arguments.all(name, name != 'x')", "size(arguments) < 3", "'x' in arguments"] {
        let reads = reads(&format!("{keys} && arguments.a == 1"));
        let of_arguments = reads.of("arguments");
        assert!(of_arguments.has_keys() && of_arguments.has("a"), "{keys}");
        assert!(!of_arguments.has("x"), "{keys}");
    }
    assert!(
        reads("arguments.size() < 3 && arguments.all(x, arguments[x] == 1)")
            .of("arguments")
            .has("anything")
    );
    assert!(reads("claims.x == 1").of("claims").is_some());
    assert!(!reads("claims.x == 1").needs_element());
    assert!(reads("request.method == 'x'").needs_call());
    assert!(!reads("request.profile == 'x'").needs_call());
    assert!(reads("annotations.readOnlyHint").needs_element());
    // The variable of a loop does not hide the variables that are read around it.
    assert!(reads("[1].exists(x, tool.server == 'a')").of("tool").has("server"));
}

#[test]
fn the_part_before_a_call_is_split_off() {
    let split = |text: &str| Condition::compile(text).unwrap().split().cloned();
    for whole in [
        "arguments.x == 1",
        "principal.name == 'a' && tool.native == 'b'",
        "principal.name == 'a' || arguments.x == 1",
        "!(principal.name == 'a' && arguments.x == 1)",
        "request.method == 'x' && arguments.x == 1",
    ] {
        assert!(split(whole).is_none(), "{whole}");
    }
    for text in [
        "principal.name == 'a' && arguments.x == 1",
        "arguments.x == 1 && (tool.native == 'b' && principal.name == 'a')",
        "(tool.native == 'b' && arguments.x == 1) && (principal.name == 'a' && arguments.x < 2)",
    ] {
        let SplitCondition { before_call, of_call } = split(text).unwrap();
        assert!(before_call.reads().of("principal").has("name"), "{text}");
        assert!(!before_call.reads().needs_call(), "{text}");
        assert!(of_call.reads().of("arguments").has("x"), "{text}");
        assert!(!of_call.reads().of("principal").is_some(), "{text}");
    }
}

#[test]
fn bombs_are_refused_when_the_configuration_is_read() {
    let long = format!("tool.name == '{}'", "x".repeat(Condition::MAX_LEN));
    let brackets = format!("{}true{}", "(".repeat(900), ")".repeat(900));
    let open = "(".repeat(2000);
    let prefixes = format!("{}true", "!".repeat(2000));
    let minus = format!("{}1 == 1", "- ".repeat(1000));
    let sum = format!("{}1 > 1", "1+".repeat(900));
    let ternaries = format!("{}true", "true?true:".repeat(190));
    let selects = format!("arguments{} == 1", ".a".repeat(900));
    let wide = format!("[{}1].size() > 1", "1,".repeat(1000));
    let nested = "[1].all(a, [1].all(b, [1].all(c, true)))".to_owned();
    let ten: String = ["1"; 90].join(",");
    let product = format!("[{ten}].all(a, [{ten}].map(b, [{ten}]).size() > a)");
    let doubling = format!("['{}']{}.size() == 1", "x".repeat(64), ".map(x, x + x)".repeat(60));
    let pattern = format!("tool.name.matches('({})')", "a{1000}".repeat(50));
    let unclosed = "'".repeat(2000);
    let escapes = format!("'{}' == tool.name", "\\u00e9".repeat(300));
    for (bomb, text) in [
        ("long", &long),
        ("brackets", &brackets),
        ("open brackets", &open),
        ("prefixes", &prefixes),
        ("minus signs", &minus),
        ("a sum", &sum),
        ("ternaries", &ternaries),
        ("selects", &selects),
        ("a wide list", &wide),
        ("nested loops", &nested),
        ("a product of lists", &product),
        ("doubled texts", &doubling),
        ("a large pattern", &pattern),
        ("quotes", &unclosed),
    ] {
        let (text, started) = (text.clone(), trunkline_core::clock::real_now());
        // As much stack as a worker has.
        let compiled = std::thread::Builder::new().stack_size(2 << 20);
        let compiled = compiled.spawn(move || Condition::compile(&text).is_err()).unwrap().join();
        assert_eq!(compiled.ok(), Some(true), "{bomb}");
        assert!(started.elapsed() < Duration::from_secs(10), "{bomb}: {:?}", started.elapsed());
    }
    assert_eq!(refusal(&escapes), "");
}

#[test]
fn the_cost_of_an_evaluation_is_bounded_by_the_sizes_of_its_values() {
    // Texts of nine bytes.
    let steps = |text: &str, elements: u64| {
        let size = ValueSize { bytes: elements * 10, elements };
        Condition::compile(text).unwrap().estimate(|_| size).steps
    };
    // A comparison is linear, a loop too, and a loop within a loop is not.
    let compare = "arguments.a == 'x'";
    let one = "arguments.l.all(x, x != 'y')";
    let two = "arguments.l.all(x, arguments.l.all(y, x != y))";
    assert!(steps(compare, 10_000) < 300_000);
    assert!(steps(one, 10_000) < ConditionCost::MAX_STEPS);
    assert!(steps(two, 10_000) > ConditionCost::MAX_STEPS);
    assert!(
        steps(two, 100) < ConditionCost::MAX_STEPS && steps(two, 1000) > ConditionCost::MAX_STEPS
    );
    // Texts that double with each loop.
    let doubling = format!("arguments.l{}.size() > 1", ".map(x, x + x)".repeat(8));
    assert!(steps(&doubling, 10) < ConditionCost::MAX_STEPS);
    assert!(steps(&doubling, 10_000) > ConditionCost::MAX_STEPS);
}

#[test]
fn the_estimate_is_not_below_the_cost_of_an_evaluation() {
    let texts = |count: usize| -> ConditionValue<'static> {
        let all = (0..count).map(|n| Box::new(CelString::from(format!("text {n}"))) as _);
        Box::new(CelList::from(all.collect::<Vec<_>>()))
    };
    let condition = Condition::compile("claims.all(x, claims.all(y, x != '' && y != ''))").unwrap();
    for count in [10, 100, 300] {
        let steps = condition
            .estimate(|_| ValueSize { bytes: (count * 9) as u64, elements: count as u64 })
            .steps;
        let started = trunkline_core::clock::real_now();
        assert_eq!(condition.evaluate([("claims", texts(count))]), Ok(true));
        let taken = started.elapsed();
        assert!(taken < Duration::from_micros(20) * u32::try_from(steps).unwrap(), "{taken:?}");
    }
}

#[test]
fn an_unknown_value_matters_only_where_the_others_do_not_decide() {
    let server = |name: &'static str| -> [(&'static str, ConditionValue<'static>); 1] {
        let members = [("server", name)].map(|(key, value)| {
            (
                cel::common::types::CelMapKey::from(key.to_owned()),
                Box::new(CelString::from(value)) as _,
            )
        });
        let map = std::collections::HashMap::from(members);
        [("tool", Box::new(cel::common::types::CelMap::from(map)))]
    };
    let condition = Condition::compile("arguments.n == 1 && tool.server == 'git'").unwrap();
    assert_eq!(condition.evaluate(server("other")), Ok(false));
    let missing = Err(EvaluationFault::Missing { value: "arguments".into() });
    assert_eq!(condition.evaluate(server("git")), missing);
    let any = Condition::compile("arguments.n == 1 || tool.server == 'git'").unwrap();
    assert_eq!(any.evaluate(server("git")), Ok(true));
    assert_eq!(any.evaluate(server("other")), missing);
}

#[test]
fn a_fault_is_shown_at_its_place_in_the_file() {
    for (line, caret) in [
        ("when = \"tool.nmae == 'x'\"", ".nmae"),
        ("when = 'tool.name == \"x\" && principle.name == \"y\"'", "principle"),
    ] {
        let text = format!("[policy.rules.one]\n{line}\n");
        let source = ConfigSource {
            name: "gateway.toml".into(),
            folder: ".".into(),
            bytes: text.clone().into(),
        };
        let faults = Config::read(&source, &SystemEnvironment).unwrap_err();
        let [fault] = faults.list() else { panic!("{faults}") };
        assert_eq!((fault.line, fault.key.as_str()), (2, "policy.rules.one.when"), "{faults}");
        let place = line.find(caret).unwrap() + 1;
        assert_eq!(fault.column, place, "{faults}");
        assert!(faults.to_string().contains("did you mean"), "{faults}");
    }
}

#[test]
fn the_first_term_that_does_not_hold_is_found_with_its_text() {
    let failing = |text: &str| {
        let condition = Condition::compile(text).unwrap();
        let names = [CelString::from("ann".to_owned()), CelString::from("git__push".to_owned())];
        let [principal, tool] = names.map(|name| {
            let entries = [("name".to_owned(), Box::new(name) as ConditionValue<'static>)];
            let entries = entries.into_iter().map(|(key, value)| (key.into(), value));
            Box::new(CelMap::from(entries.collect::<HashMap<_, _>>())) as ConditionValue<'static>
        });
        let known = [("principal", principal), ("tool", tool)];
        let term = condition.find_failing_term(known);
        term.map_or(String::new(), |term| match term.fault {
            Some(fault) => format!("{}: {fault}", term.text),
            None => term.text.into(),
        })
    };
    for (text, term) in [
        ("principal.name == 'ann' && tool.name == 'git__push'", ""),
        ("principal.name == 'bob'", "principal.name == 'bob'"),
        ("principal.name == 'ann' && tool.name == 'x'", "tool.name == 'x'"),
        ("(principal.name == 'bob' && true) && tool.name == 'x'", "principal.name == 'bob'"),
        ("true && (tool.name in ['a && b', 'c'])", "(tool.name in ['a && b', 'c'])"),
        ("principal.name == 'ann' || tool.name == 'x'", ""),
        // A term that is false decides, wherever another one fails.
        ("tool.native == 'x' && tool.name == 'x'", "tool.name == 'x'"),
        ("tool.name != 'x' && tool.native == 'é'", "tool.native == 'é': tool.native is missing"),
        ("principal.name != 'é' && tool.name == 'x' && true", "tool.name == 'x'"),
    ] {
        assert_eq!(failing(text), term, "{text}");
    }
}
