use super::Kind::{Prompts, Resources, Templates, Tools};
use super::*;
use proptest::prelude::*;

#[test]
fn a_query_lists_the_shown_elements() {
    let of = |query: &str| Selection::parse(query).unwrap();
    let server = |name| ServerName::new(name).unwrap();
    let all = of("");
    assert!(all.is_everything() && all.admits(Tools, "x") && all.admits(Resources, "x:y"));
    let two = of("servers=a,b*");
    assert!(two.admits_server(&server("a")) && two.admits_server(&server("bc")));
    assert!(!two.admits_server(&server("c")) && two.admits(Prompts, "p"));
    assert_eq!(two.named_servers().collect::<Vec<_>>(), ["a"]);
    let tools = of("tools=git__*,clock__now");
    assert!(tools.admits(Tools, "git__log") && !tools.admits(Tools, "clock__countdown"));
    assert!(!tools.admits(Prompts, "git__p") && !tools.admits(Templates, "mcp://git/{x}"));
    let both = of("tools=x&prompts=*");
    assert!(both.admits(Prompts, "p") && !both.admits(Resources, "r"));
    let none = of("tools=");
    assert!(!none.admits(Tools, "") && !none.admits(Tools, "x"));
    let uris = of("resources=mcp://a/f:///%7B+path%7D,mcp://a/x%2Cy,mcp://a/?q=1");
    for uri in ["mcp://a/f:///{+path}", "mcp://a/x,y", "mcp://a/?q=1"] {
        assert!(uris.admits(Resources, uri), "{uri} {uris}");
    }
}

#[test]
fn a_scope_shows_the_intersection_of_its_selections() {
    let scope =
        |queries: &[&str]| Scope::new(queries.iter().map(|query| Selection::parse(query).unwrap()));
    let (a, b) = (ServerName::new("a").unwrap(), ServerName::new("b").unwrap());
    let two = scope(&["servers=a,b&tools=*x*", "", "servers=b&tools=*y*"]);
    assert!(two.admits(&b, Tools, "xy") && !two.admits(&a, Tools, "xy"));
    assert!(!two.admits(&b, Tools, "x") && !two.admits(&b, Tools, "y"));
    assert!(two.may_show(Tools) && !two.may_show(Prompts) && !scope(&["tools="]).may_show(Tools));
    assert!(!two.admits_unlisted(&b) && scope(&["servers=b"]).admits_unlisted(&b));
    assert!(scope(&[""]).is_everything() && !two.is_everything());
}

#[test]
fn no_uri_climbs_out_of_a_pattern() {
    let scope = Scope::new([Selection::parse("resources=mcp://a/docs/*").unwrap()]);
    let server = ServerName::new("a").unwrap();
    for (uri, may) in [
        ("mcp://a/docs/x", true),
        ("mcp://a/docs/x..y", true),
        ("mcp://a/docs/../secret", false),
        ("mcp://a/docs/%2E%2e/secret", false),
        ("mcp://a/docs/..%2fsecret", false),
        ("mcp://a/docs/..\\secret", false),
        ("mcp://a/secret", false),
    ] {
        assert_eq!(scope.admits_uri(&server, uri, |_| false), may, "{uri}");
    }
    assert!(scope.admits_uri(&server, "mcp://a/secret", |_| true), "its template is shown");
    assert!(!scope.admits(&server, Resources, "mcp://a/docs/../x"), "listed or not");
}

#[test]
fn invalid_selections_are_distinguished() {
    use QueryFault::{Duplicate, Pattern as Wrong, TooLong, TooManyPatterns, UnknownParameter};
    let long = "x".repeat(129);
    let name = "tools";
    for (query, fault) in [
        ("tool=x".to_owned(), UnknownParameter { name: "tool".into() }),
        ("x".into(), UnknownParameter { name: "x".into() }),
        ("=x".into(), UnknownParameter { name: String::new() }),
        ("tools=a&tools=b".into(), Duplicate { name }),
        ("tools=a,,b".into(), Wrong { name, pattern: String::new() }),
        ("tools=%ff".into(), Wrong { name, pattern: "\u{fffd}".into() }),
        (format!("tools={long}"), Wrong { name, pattern: long[..64].into() }),
        (format!("tools=x{}", ",x".repeat(64)), TooManyPatterns { limit: 64 }),
        ("x".repeat(2049), TooLong { len: 2049, limit: 2048 }),
    ] {
        assert_eq!(Selection::parse(&query), Err(fault), "{query}");
    }
}

#[test]
fn queries_that_mean_the_same_have_one_text() {
    for (query, text) in [
        ("tools=b,a,b&servers=s&", "servers=s&tools=a,b"),
        ("resources=%6Dcp://x/a%2Cb+", "resources=mcp%3A%2F%2Fx%2Fa%2Cb%2B"),
        ("prompts", "prompts="),
        ("tools=a%20b", "tools=a%20b"),
        ("", ""),
    ] {
        assert_eq!(Selection::parse(query).unwrap().to_string(), text, "{query}");
    }
}

proptest! {
    #[test]
    fn the_text_of_a_selection_reads_as_the_same_one(query in "(servers|tools|prompts|resources)=[a-z*?,%0-9+:/{}é= ]{0,40}") {
        if let Ok(selection) = Selection::parse(&query) {
            let text = selection.to_string();
            let again = Selection::parse(&text).unwrap();
            prop_assert_eq!(again.to_string(), text);
        }
    }

    #[test]
    fn any_query_is_read_without_panic(query: String) {
        let _ = Selection::parse(&query);
    }
}
