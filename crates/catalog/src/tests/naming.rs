//! Naming: the resolution of duplicate names in each scheme, and golden values that must never
//! change.

use super::*;
use crate::lists::naming::NameForm;

#[test]
fn a_name_once_given_is_given_for_ever() {
    let long = "x".repeat(60);
    let server = ServerName::new("git").unwrap();
    let naming: Naming = NamingChoice::Prefix.into();
    for (form, native, expected) in [
        (NameForm::Prefixed, "search", "git__search"),
        (NameForm::Prefixed, "a.b", "git__a_b_pziw4foi"),
        (NameForm::Prefixed, "a_b", "git__a_b"),
        (NameForm::Prefixed, "日本", "git_____ff7ykr5a"),
        (
            NameForm::Prefixed,
            long.as_str(),
            "git__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_hhgfyniu",
        ),
        (NameForm::Plain, "search", "search"),
        (NameForm::Plain, "a.b", "a_b_pziw4foi"),
        (NameForm::Plain, long.as_str(), long.as_str()),
        (NameForm::Hashed, "search", "git__search_vkwlmnlr"),
        (NameForm::Native, "a.b 日本", "a.b 日本"),
    ] {
        assert_eq!(naming.public_name(form, &server, native), expected, "{form:?} {native}");
    }
}

#[test]
fn a_prefix_stands_before_every_name() {
    let servers = [server("b", &["x", "y"]), server("a", &["x"])];
    assert_eq!(names(NamingChoice::Prefix, &servers), ["b__x=b/x", "b__y=b/y", "a__x=a/x"]);
}

#[test]
fn only_names_that_clash_get_a_prefix() {
    let servers = [server("a", &["x", "y"]), server("b", &["x", "z"])];
    assert_eq!(names(NamingChoice::Conflict, &servers), ["a__x=a/x", "y=a/y", "b__x=b/x", "z=b/z"]);
}

#[test]
fn a_server_that_never_answered_holds_no_name_but_those_given_to_it() {
    let servers = [server("a", &["x"]).silent(), server("b", &["x"])];
    assert_eq!(names(NamingChoice::Conflict, &servers), ["x=b/x"]);
    let servers = [server("a", &["y"]).renaming(&[("y", "x")]).silent(), server("b", &["x"])];
    assert_eq!(names(NamingChoice::Conflict, &servers), ["b__x=b/x"]);
}

#[test]
fn a_prefixed_name_that_meets_a_plain_one_moves_both() {
    let servers = [server("a", &["x"]), server("b", &["x"]), server("c", &["a__x"])];
    assert_eq!(
        names(NamingChoice::Conflict, &servers),
        ["a__x_rodlz3iq=a/x", "b__x=b/x", "c__a__x=c/a__x"]
    );
}

#[test]
fn two_spellings_of_one_prefixed_name_stay_distinct() {
    let servers = [server("a", &["__b"]), server("a_", &["_b"])];
    assert_eq!(
        names(NamingChoice::Prefix, &servers),
        ["a____b_pe6ribtk=a/__b", "a____b_bisyr32a=a_/_b"]
    );
}

#[test]
fn names_that_differ_in_replaced_or_cut_characters_never_meet() {
    let long = "x".repeat(70);
    let (one, two) = (format!("{long}1"), format!("{long}2"));
    for naming in [NamingChoice::Prefix, NamingChoice::Conflict] {
        let all = names(naming, &[server("s", &["a.b", "a b", "a_b", &one, &two])]);
        let public: HashSet<_> = all.iter().filter_map(|name| name.split('=').next()).collect();
        assert_eq!(public.len(), 5, "{all:?}");
    }
}

#[test]
fn a_given_name_wins_over_any_other() {
    for (naming, expected) in
        [(NamingChoice::Conflict, vec!["a__x=a/x", "x=b/y"]), (NamingChoice::None, vec!["x=b/y"])]
    {
        let servers = [server("a", &["x"]), server("b", &["y"]).renaming(&[("y", "x")])];
        assert_eq!(names(naming, &servers), expected, "{naming:?}");
    }
    let servers = [server("a", &["x"]), server("b", &["y"]).renaming(&[("y", "a__x")])];
    assert_eq!(names(NamingChoice::Prefix, &servers), ["a__x_rodlz3iq=a/x", "a__x=b/y"]);
}

#[test]
fn a_name_given_twice_goes_to_the_first_in_the_file() {
    let servers = [
        server("a", &["x"]).renaming(&[("x", "find")]),
        server("b", &["y", "z"]).renaming(&[("y", "find")]),
    ];
    assert_eq!(names(NamingChoice::Prefix, &servers), ["find=a/x", "b__z=b/z"]);
    let said: Vec<_> =
        merge(NamingChoice::Prefix, &servers).1.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            r#"duplicate public name "find": tool "x" of server a keeps it, tool "y" of server b is left out"#
        ]
    );
}

#[test]
fn without_naming_names_stay_and_the_later_server_loses_clashing_ones() {
    let servers = [server("b", &["x.y", "日"]), server("a", &["x.y", "z"])];
    assert_eq!(names(NamingChoice::None, &servers), ["x.y=b/x.y", "日=b/日", "z=a/z"]);
    let (_, warnings) = merge(NamingChoice::None, &servers);
    let origin = |server, native| ElementOrigin {
        server: ServerName::new(server).unwrap(),
        native: NativeName::new(native),
    };
    let (public, winner, loser) = (PublicName::new("x.y"), origin("b", "x.y"), origin("a", "x.y"));
    assert_eq!(warnings, [MergeFault::NameTaken { kind: Kind::Tools, public, winner, loser }]);
}

#[test]
fn the_first_server_of_the_file_keeps_the_plain_name() {
    let servers = [server("b", &["x", "y"]), server("a", &["x"]), server("c", &["x", "b__x"])];
    assert_eq!(
        names(NamingChoice::First, &servers),
        ["x=b/x", "y=b/y", "a__x=a/x", "c__x=c/x", "b__x=c/b__x"]
    );
    let first = [server("b", &["x", "x2"]), server("a", &["x"])];
    let silent = [server("b", &["x", "x2"]).silent(), server("a", &["x"])];
    assert_eq!(names(NamingChoice::First, &first), ["x=b/x", "x2=b/x2", "a__x=a/x"]);
    assert_eq!(names(NamingChoice::First, &silent), ["x=a/x"]);
}

#[test]
fn a_first_name_that_a_later_prefixed_one_would_have_is_kept() {
    let servers = [server("c", &["a__x"]), server("b", &["x"]), server("a", &["x"])];
    assert_eq!(names(NamingChoice::First, &servers), ["a__x=c/a__x", "x=b/x", "a__x_rodlz3iq=a/x"]);
    let given = [server("b", &["x"]), server("a", &["y"]).renaming(&[("y", "x")])];
    assert_eq!(names(NamingChoice::First, &given), ["b__x=b/x", "x=a/y"]);
}

#[test]
fn a_format_and_a_case_make_the_names_that_a_provider_wants() {
    let snake = "name_format = \"mcp_{server}_{tool}\"\nname_case = \"snake\"";
    let servers = [
        server("aviation-atis", &["getATIS", "get.taf", "HTTPServer2Log", "日本"]),
        server("S", &["a-b", "a_b"]),
    ];
    assert_eq!(
        names(naming(snake), &servers),
        [
            "mcp_aviation_atis_get_atis=aviation-atis/getATIS",
            "mcp_aviation_atis_get_taf=aviation-atis/get.taf",
            "mcp_aviation_atis_http_server2_log=aviation-atis/HTTPServer2Log",
            "mcp_aviation_atis__n3ivvnlr=aviation-atis/日本",
            "mcp_s_a_b_eo5jv2cz=S/a-b",
            "mcp_s_a_b_t3x3ir2d=S/a_b",
        ]
    );
    let first = "naming = \"first\"\nname_format = \"mcp_{server}_{tool}\"";
    let servers = [server("files", &["read", "Read"]), server("sqlite", &["read"])];
    assert_eq!(
        names(naming(first), &servers),
        ["read=files/read", "Read=files/Read", "mcp_sqlite_read=sqlite/read"]
    );
    let last = "name_format = \"{tool}-{server}\"";
    assert_eq!(
        names(naming(last), &[server("a", &["{server}"])])[..],
        ["_server_-a_lfpeppsx=a/{server}"]
    );
}

#[test]
fn a_reserved_name_is_given_to_no_tool() {
    let reserved = |scheme| format!("naming = {scheme:?}\nreserved_names = [\"x\", \"b__y\"]");
    let servers = [server("a", &["x", "y"]), server("b", &["y"])];
    for (scheme, expected) in [
        ("first", ["a__x=a/x", "y=a/y", "b__y_kt5ogawy=b/y"]),
        ("conflict", ["a__x=a/x", "a__y=a/y", "b__y_kt5ogawy=b/y"]),
        ("prefix", ["a__x=a/x", "a__y=a/y", "b__y_kt5ogawy=b/y"]),
    ] {
        assert_eq!(names(naming(&reserved(scheme)), &servers), expected, "{scheme}");
    }
    let (_, warnings) = merge(naming(&reserved("first")), &servers);
    let said: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(said, [r#"the name "x" is reserved: tool "x" of server a is named "a__x""#]);
    let given = [server("a", &["y"]).renaming(&[("y", "x")])];
    assert_eq!(names(naming(&reserved("first")), &given), ["x=a/y"], "said outright");
}

#[test]
fn only_servers_with_a_common_start_of_names_have_a_prefix() {
    let server = ServerName::new("myServer").unwrap();
    for (settings, expected) in [
        ("", Some("myServer__")),
        ("name_format = \"mcp_{server}_{tool}\"\nname_case = \"snake\"", Some("mcp_my_server_")),
        ("name_format = \"{tool}_{server}\"", None),
        ("naming = \"first\"", None),
    ] {
        assert_eq!(naming(settings).prefix_of(&server).as_deref(), expected, "{settings}");
    }
}
