//! Finds the endpoint of a request.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::endpoints::{API_ENDPOINTS, ApiEndpoint, ApiMethod, ArgumentPlace};
use super::problem::ApiProblem;
use super::unknown_path;

/// An endpoint, and the values of its parameters.
pub(super) struct FoundEndpoint {
    pub(super) endpoint: &'static ApiEndpoint,
    pub(super) arguments: Vec<(String, String)>,
}

/// Finds the endpoint for a path below the API's own.
///
/// # Errors
/// [`ProblemCode::UnknownPath`](super::problem::ProblemCode::UnknownPath) and
/// [`ProblemCode::MethodNotAllowed`](super::problem::ProblemCode::MethodNotAllowed).
pub(super) fn find_endpoint(
    method: Option<ApiMethod>,
    path: &str,
) -> Result<FoundEndpoint, ApiProblem> {
    let mut allowed = Vec::new();
    for endpoint in API_ENDPOINTS {
        let Some(arguments) = match_path(endpoint.path, path) else { continue };
        if method == Some(endpoint.method) {
            return Ok(FoundEndpoint { endpoint, arguments });
        }
        if allowed.contains(&endpoint.method.as_str()) {
            continue;
        }
        allowed.push(endpoint.method.as_str());
        if endpoint.method == ApiMethod::Get {
            allowed.push("HEAD");
        }
    }
    if allowed.is_empty() {
        return Err(unknown_path());
    }
    Err(ApiProblem::method_not_allowed(&allowed.join(", ")))
}

/// Returns the values of a template's parameters; `None` if the path is another one.
fn match_path(template: &str, path: &str) -> Option<Vec<(String, String)>> {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    let mut arguments = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(arguments),
            (Some(wanted), Some(given)) => match parameter_name(wanted) {
                Some(name) => arguments.push((name.to_owned(), decode_segment(given)?)),
                None if wanted == given => {}
                None => return None,
            },
            _ => return None,
        }
    }
}

/// Returns the name of a parameter's segment.
fn parameter_name(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn decode_segment(segment: &str) -> Option<String> {
    let text = percent_decode_str(segment).decode_utf8().ok()?;
    Some(text).filter(|text| !text.is_empty()).map(Cow::into_owned)
}

/// Reads the query. A parameter that the endpoint does not have is refused, and so is a duplicate.
///
/// # Errors
/// [`ProblemCode::InvalidRequest`](super::problem::ProblemCode::InvalidRequest).
pub(super) fn read_query(
    endpoint: &ApiEndpoint,
    query: &str,
) -> Result<Vec<(String, String)>, ApiProblem> {
    let mut arguments: Vec<(String, String)> = Vec::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let known = endpoint.parameters.iter().filter(|it| it.place == ArgumentPlace::Query);
        let names: Vec<_> = known.map(|it| it.name).collect();
        if !names.contains(&name.as_ref()) {
            let expected = match &names[..] {
                [] => "no parameters".to_owned(),
                names => format!("one of {}", names.join(", ")),
            };
            let detail = format!("unknown parameter {name:?}: expected {expected}");
            return Err(ApiProblem::invalid(detail));
        }
        if arguments.iter().any(|(other, _)| *other == *name) {
            return Err(ApiProblem::invalid(format!("duplicate parameter {name:?}")));
        }
        arguments.push((name.into_owned(), value.into_owned()));
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::api::problem::ProblemCode;

    #[test]
    fn a_path_has_the_parameters_of_its_template() {
        let template = "/servers/{server}/restart";
        let one = |path: &str| match_path(template, path);
        let named = |name: &str| Some(vec![("server".to_owned(), name.to_owned())]);
        assert_eq!(one("/servers/a/restart"), named("a"));
        assert_eq!(one("/servers/a%2Fb%20c/restart"), named("a/b c"));
        for other in
            ["/servers//restart", "/servers/a", "/servers/a/restart/", "/servers/%ff/restart"]
        {
            assert_eq!(one(other), None, "{other}");
        }
    }

    #[test]
    fn every_parameter_of_a_path_is_described_and_no_path_has_two_functions() {
        for (index, endpoint) in API_ENDPOINTS.iter().enumerate() {
            let (path, method) = (endpoint.path, endpoint.method);
            let named: Vec<_> = path.split('/').filter_map(parameter_name).collect();
            let places = endpoint.parameters.iter();
            let described: Vec<_> =
                places.filter(|it| it.place == ArgumentPlace::Path).map(|it| it.name).collect();
            assert_eq!(named, described, "{path}");
            let is_other = |other: &&ApiEndpoint| other.method == method && other.path == path;
            assert_eq!(API_ENDPOINTS.iter().position(|it| is_other(&it)), Some(index), "{path}");
        }
    }

    #[test]
    fn an_unknown_path_and_another_method_are_told_apart() {
        let fault = |method, path| find_endpoint(method, path).map(drop).unwrap_err();
        assert_eq!(fault(Some(ApiMethod::Get), "/stats").code, ProblemCode::UnknownPath);
        let refused = fault(Some(ApiMethod::Post), "/status");
        assert_eq!(refused.code, ProblemCode::MethodNotAllowed);
        let (name, value) = refused.header.unwrap();
        assert_eq!((name.as_str(), value.as_str()), ("allow", "GET, HEAD"));
        assert_eq!(fault(None, "/status").code, ProblemCode::MethodNotAllowed);
        assert!(find_endpoint(Some(ApiMethod::Get), "/status").is_ok());
    }
}
