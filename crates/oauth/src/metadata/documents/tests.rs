use serde_json::json;

use super::*;

fn url(text: &str) -> Url {
    text.parse().unwrap()
}

#[test]
fn the_metadata_of_a_server_is_looked_for_below_its_path_first() {
    for (server, places) in [
        (
            "https://a.test/mcp",
            &[
                "https://a.test/.well-known/oauth-protected-resource/mcp",
                "https://a.test/.well-known/oauth-protected-resource",
            ][..],
        ),
        (
            "https://a.test:8443/x/mcp/?q=1",
            &[
                "https://a.test:8443/.well-known/oauth-protected-resource/x/mcp",
                "https://a.test:8443/.well-known/oauth-protected-resource",
            ],
        ),
        ("https://a.test/", &["https://a.test/.well-known/oauth-protected-resource"]),
    ] {
        let found: Vec<_> =
            resource_metadata_places(&url(server)).iter().map(ToString::to_string).collect();
        assert_eq!(found, places, "{server}");
    }
}

#[test]
fn a_document_is_used_only_if_it_is_about_the_server() {
    for (resource, server, accepted) in [
        ("https://a.test/mcp", "https://a.test/mcp", true),
        ("https://A.test:443/mcp", "https://a.test/mcp", true),
        ("https://a.test", "https://a.test/", true),
        ("https://a.test/mcp?tenant=1", "https://a.test/mcp?tenant=1", true),
        ("https://a.test/mcp", "https://a.test/mcp?tenant=1", true),
        ("https://a.test/mcp?tenant=2", "https://a.test/mcp?tenant=1", false),
        // A token for the parent would be valid for the other servers of the host.
        ("https://a.test", "https://a.test/mcp", false),
        ("https://a.test/", "https://a.test/mcp", false),
        ("https://a.test/mcp", "https://a.test/mcp/", false),
        ("https://a.test/mc", "https://a.test/mcp", false),
        ("https://a.test/mcp", "https://a.test/", false),
        ("https://a.test/other", "https://a.test/mcp", false),
        ("https://b.test/mcp", "https://a.test/mcp", false),
        ("http://a.test/mcp", "https://a.test/mcp", false),
        ("https://a.test:8443/mcp", "https://a.test/mcp", false),
        ("https://a.test/mcp#x", "https://a.test/mcp", false),
        ("mcp", "https://a.test/mcp", false),
    ] {
        let document = json!({ "resource": resource, "authorization_servers": ["https://i.test"] });
        let read = ResourceMetadata::parse(document.to_string().as_bytes(), &url(server), None);
        assert_eq!(read.is_ok(), accepted, "{resource} at {server}");
    }
}

#[test]
fn a_parent_of_the_server_is_its_resource_only_if_the_configuration_names_it() {
    for (named, resource, accepted) in [
        ("https://a.test", "https://a.test/", true),
        ("https://a.test/x", "https://a.test/x", true),
        ("https://a.test", "https://a.test/x", false),
        ("https://a.test", "https://a.test/x/mcp", true),
        ("https://b.test", "https://b.test", false),
        ("https://a.test/other", "https://a.test/other", false),
        // The path begins with the same text, but not with the same segment.
        ("https://a.test/x/m", "https://a.test/x/m", false),
        ("https://a.test:8443", "https://a.test:8443", false),
    ] {
        let document = json!({ "resource": resource, "authorization_servers": ["https://i.test"] });
        let (server, named) = (url("https://a.test/x/mcp"), url(named));
        let document = document.to_string();
        let read = ResourceMetadata::parse(document.as_bytes(), &server, Some(&named));
        assert_eq!(read.is_ok(), accepted, "{resource} named {named}");
    }
}

#[test]
fn authorization_servers_that_others_can_listen_to_are_left_out() {
    let issuers = ["http://i.test", "ftp://i.test", "x", "https://i.test/", "http://127.0.0.1:1"];
    let document = json!({ "resource": "https://a.test", "authorization_servers": issuers });
    let read =
        ResourceMetadata::parse(document.to_string().as_bytes(), &url("https://a.test"), None);
    let expected = ["https://i.test/", "http://127.0.0.1:1"].map(str::to_owned).to_vec();
    assert_eq!(read.unwrap().issuers, Some(expected));
}

fn issuer_document(issuer: &str) -> serde_json::Value {
    json!({
        "issuer": issuer,
        "authorization_endpoint": "https://i.test/authorize",
        "token_endpoint": "https://i.test/token",
        "code_challenge_methods_supported": ["plain", "S256"],
    })
}

fn read_issuer(
    document: &serde_json::Value,
    issuer: &str,
) -> Result<AuthServerMetadata, MetadataFault> {
    let expected = ExpectedIssuer::Configured(issuer);
    AuthServerMetadata::parse(document.to_string().as_bytes(), expected, PkceDemand::Required)
}

#[test]
fn an_issuer_is_compared_byte_for_byte() {
    for (found, expected, same) in [
        ("https://i.test", "https://i.test", true),
        ("https://i.test/", "https://i.test", false),
        ("https://i.test", "https://i.test/", false),
        ("https://I.test", "https://i.test", false),
        ("https://i.test:443", "https://i.test", false),
        ("https://evil.test", "https://i.test", false),
    ] {
        let read = read_issuer(&issuer_document(found), expected);
        assert_eq!(read.is_ok(), same, "{found} for {expected}: {read:?}");
    }
}

#[test]
fn an_authorization_server_without_pkce_is_refused_where_codes_are_used() {
    for methods in [json!(null), json!([]), json!(["plain"])] {
        let mut document = issuer_document("https://i.test");
        match methods {
            serde_json::Value::Null => {
                document.as_object_mut().unwrap().remove("code_challenge_methods_supported");
            }
            methods => document["code_challenge_methods_supported"] = methods,
        }
        assert_eq!(read_issuer(&document, "https://i.test"), Err(MetadataFault::NoPkce));
        let bytes = document.to_string();
        let unneeded = PkceDemand::Unneeded;
        let issuer = ExpectedIssuer::Configured("https://i.test");
        assert!(AuthServerMetadata::parse(bytes.as_bytes(), issuer, unneeded).is_ok());
    }
}

#[test]
fn an_issuer_that_a_server_names_may_differ_by_the_slash_of_an_empty_path() {
    for (found, named, accepted) in [
        ("https://i.test", "https://i.test", true),
        ("https://i.test/", "https://i.test", true),
        ("https://i.test", "https://i.test/", true),
        ("https://i.test:8443", "https://i.test:8443/", true),
        ("https://i.test//", "https://i.test/", false),
        ("https://i.test/", "https://i.test//", false),
        ("https://i.test/tenant/", "https://i.test/tenant", false),
        ("https://i.test/tenant", "https://i.test/tenant/", false),
        ("https://i.test?a/", "https://i.test?a", false),
        ("https://i.test#/", "https://i.test#", false),
        ("https://I.test/", "https://i.test", false),
        ("https://i.test:443/", "https://i.test", false),
        ("https://i.test.evil/", "https://i.test", false),
        ("", "/", false),
    ] {
        let document = issuer_document(found).to_string();
        let expected = ExpectedIssuer::Named(named);
        let read = AuthServerMetadata::parse(document.as_bytes(), expected, PkceDemand::Required);
        assert_eq!(read.is_ok(), accepted, "{found} for {named}: {read:?}");
        if let Ok(metadata) = read {
            assert_eq!(metadata.issuer, found, "`iss` is compared with the document's form");
        }
    }
}

#[test]
fn optional_members_may_be_null_and_scopes_one_text() {
    let optional = json!({
        "registration_endpoint": null,
        "revocation_endpoint": null,
        "scopes_supported": null,
        "token_endpoint_auth_methods_supported": null,
        "authorization_response_iss_parameter_supported": null,
        "client_id_metadata_document_supported": null,
        "dpop_signing_alg_values_supported": null,
    });
    let plain = read_issuer(&issuer_document("https://i.test"), "https://i.test").unwrap();
    for (name, value) in optional.as_object().unwrap() {
        let mut document = issuer_document("https://i.test");
        document[name] = value.clone();
        assert_eq!(read_issuer(&document, "https://i.test").as_ref(), Ok(&plain), "{name}");
    }
    for (scopes, read) in [
        (json!("a b"), "a b"),
        (json!(""), ""),
        (json!(["a", "b"]), "a b"),
        (json!([]), ""),
        (json!(null), ""),
    ] {
        let mut document = issuer_document("https://i.test");
        document["scopes_supported"] = scopes.clone();
        let metadata = read_issuer(&document, "https://i.test").unwrap();
        assert_eq!(metadata.scopes.to_string(), read, "{scopes}");
        let document =
            json!({ "resource": "https://a.test", "scopes_supported": scopes }).to_string();
        let metadata = ResourceMetadata::parse(document.as_bytes(), &url("https://a.test"), None);
        assert_eq!(metadata.unwrap().scopes.to_string(), read, "{scopes}");
    }
}

#[test]
fn a_flag_is_read_in_every_known_form_and_an_unreadable_one_is_an_error() {
    for (flag, promised) in [
        (json!(true), Some(IssAdvertised::Yes)),
        (json!("true"), Some(IssAdvertised::Yes)),
        (json!("True"), Some(IssAdvertised::Yes)),
        (json!(false), Some(IssAdvertised::No)),
        (json!("false"), Some(IssAdvertised::No)),
        (json!(null), Some(IssAdvertised::No)),
        (json!("yes"), None),
        (json!(""), None),
        (json!(1), None),
        (json!([true]), None),
    ] {
        let mut document = issuer_document("https://i.test");
        document["authorization_response_iss_parameter_supported"] = flag.clone();
        let read = read_issuer(&document, "https://i.test");
        assert_eq!(read.ok().map(|metadata| metadata.iss_in_answers), promised, "{flag}");
    }
}

#[test]
fn a_resource_may_have_null_for_optional_members() {
    for issuers in [json!(null), json!([])] {
        let document = json!({
            "resource": "https://a.test", "authorization_servers": issuers,
            "scopes_supported": null, "dpop_bound_access_tokens_required": null,
        });
        let document = document.to_string();
        let read = ResourceMetadata::parse(document.as_bytes(), &url("https://a.test"), None);
        let read = read.unwrap();
        assert_eq!((read.issuers, read.wants), (None, TokenUse::Bearer));
    }
}

#[test]
fn endpoints_that_others_can_listen_to_are_not_used() {
    let mut document = issuer_document("https://i.test");
    document["authorization_endpoint"] = json!("http://i.test/authorize");
    document["registration_endpoint"] = json!("javascript:alert(1)");
    let read = read_issuer(&document, "https://i.test").unwrap();
    assert_eq!((read.authorization_endpoint, read.registration_endpoint), (None, None));
    document["token_endpoint"] = json!("http://i.test/token");
    let missing = MetadataFault::Endpoint { member: "token_endpoint" };
    assert_eq!(read_issuer(&document, "https://i.test"), Err(missing));
}

#[test]
fn endpoints_that_set_a_parameter_of_the_login_are_not_used() {
    for query in ["client_id=evil", "client%5Fid=evil", "redirect_uri=https://evil.test", "a[]=1"] {
        let mut document = issuer_document("https://i.test");
        document["authorization_endpoint"] = json!(format!("https://i.test/authorize?{query}"));
        let read = read_issuer(&document, "https://i.test").unwrap();
        assert_eq!(read.authorization_endpoint, None, "{query}");
    }
    let mut document = issuer_document("https://i.test");
    document["authorization_endpoint"] = json!("https://i.test/authorize?p=policy");
    assert!(read_issuer(&document, "https://i.test").unwrap().authorization_endpoint.is_some());
    document["token_endpoint"] = json!("https://i.test/token?grant_type=password");
    let missing = MetadataFault::Endpoint { member: "token_endpoint" };
    assert_eq!(read_issuer(&document, "https://i.test"), Err(missing));
}
