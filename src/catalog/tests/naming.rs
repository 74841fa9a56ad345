//! Naming: how each scheme resolves duplicate names, and golden values that
//! must never change.

use super::super::naming::NameForm;
use super::*;

#[test]
fn a_name_once_given_is_given_for_ever() {
    let long = "x".repeat(60);
    let server = ServerName::new("git").unwrap();
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
        assert_eq!(form.public_name(&server, native), expected, "{form:?} {native}");
    }
}

#[test]
fn a_prefix_stands_before_every_name() {
    let servers = [server("b", &["x", "y"]), server("a", &["x"])];
    assert_eq!(names(NamingScheme::Prefix, &servers), ["b__x=b/x", "b__y=b/y", "a__x=a/x"]);
}

#[test]
fn only_names_that_clash_get_a_prefix() {
    let servers = [server("a", &["x", "y"]), server("b", &["x", "z"])];
    assert_eq!(names(NamingScheme::Conflict, &servers), ["a__x=a/x", "y=a/y", "b__x=b/x", "z=b/z"]);
}

#[test]
fn a_server_that_never_answered_holds_no_name_but_those_given_to_it() {
    let servers = [server("a", &["x"]).silent(), server("b", &["x"])];
    assert_eq!(names(NamingScheme::Conflict, &servers), ["x=b/x"]);
    let servers = [server("a", &["y"]).renaming(&[("y", "x")]).silent(), server("b", &["x"])];
    assert_eq!(names(NamingScheme::Conflict, &servers), ["b__x=b/x"]);
}

#[test]
fn a_prefixed_name_that_meets_a_plain_one_moves_both() {
    let servers = [server("a", &["x"]), server("b", &["x"]), server("c", &["a__x"])];
    assert_eq!(
        names(NamingScheme::Conflict, &servers),
        ["a__x_rodlz3iq=a/x", "b__x=b/x", "c__a__x=c/a__x"]
    );
}

#[test]
fn two_ways_to_write_one_prefixed_name_are_told_apart() {
    let servers = [server("a", &["__b"]), server("a_", &["_b"])];
    assert_eq!(
        names(NamingScheme::Prefix, &servers),
        ["a____b_pe6ribtk=a/__b", "a____b_bisyr32a=a_/_b"]
    );
}

#[test]
fn names_that_differ_in_replaced_or_cut_characters_never_meet() {
    let long = "x".repeat(70);
    let (one, two) = (format!("{long}1"), format!("{long}2"));
    for naming in [NamingScheme::Prefix, NamingScheme::Conflict] {
        let all = names(naming, &[server("s", &["a.b", "a b", "a_b", &one, &two])]);
        let public: HashSet<_> = all.iter().filter_map(|name| name.split('=').next()).collect();
        assert_eq!(public.len(), 5, "{all:?}");
    }
}

#[test]
fn a_given_name_wins_over_any_other() {
    for (naming, expected) in
        [(NamingScheme::Conflict, vec!["a__x=a/x", "x=b/y"]), (NamingScheme::None, vec!["x=b/y"])]
    {
        let servers = [server("a", &["x"]), server("b", &["y"]).renaming(&[("y", "x")])];
        assert_eq!(names(naming, &servers), expected, "{naming:?}");
    }
    let servers = [server("a", &["x"]), server("b", &["y"]).renaming(&[("y", "a__x")])];
    assert_eq!(names(NamingScheme::Prefix, &servers), ["a__x_rodlz3iq=a/x", "a__x=b/y"]);
}

#[test]
fn a_name_given_twice_goes_to_the_first_in_the_file() {
    let servers = [
        server("a", &["x"]).renaming(&[("x", "find")]),
        server("b", &["y", "z"]).renaming(&[("y", "find")]),
    ];
    assert_eq!(names(NamingScheme::Prefix, &servers), ["find=a/x", "b__z=b/z"]);
    let said: Vec<_> =
        merge(NamingScheme::Prefix, &servers).1.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            r#"duplicate public name "find": tool "x" of server a keeps it, tool "y" of server b is left out"#
        ]
    );
}

#[test]
fn without_naming_names_stay_and_the_later_server_loses_what_clashes() {
    let servers = [server("b", &["x.y", "日"]), server("a", &["x.y", "z"])];
    assert_eq!(names(NamingScheme::None, &servers), ["x.y=b/x.y", "日=b/日", "z=a/z"]);
    let (_, warnings) = merge(NamingScheme::None, &servers);
    let origin = |server, native| ElementOrigin {
        server: ServerName::new(server).unwrap(),
        native: NativeName::new(native),
    };
    let (public, winner, loser) = (PublicName::new("x.y"), origin("b", "x.y"), origin("a", "x.y"));
    assert_eq!(warnings, [MergeWarning::NameTaken { kind: Kind::Tools, public, winner, loser }]);
}
