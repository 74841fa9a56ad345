//! The OpenAPI 3.1 document, made from the table of endpoints.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::API_PATH;
use super::endpoints::{
    API_ENDPOINTS, ApiEndpoint, ArgumentForm, ArgumentPlace, EndpointParameter,
};
use super::problem::ProblemDocument;
use super::request::{EndpointAnswer, answer};

/// Answers with the document.
pub(super) fn answer_document() -> EndpointAnswer {
    answer(&openapi_document())
}

/// Returns the document.
pub(super) fn openapi_document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<ProblemDocument>().to_value();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in API_ENDPOINTS {
        let operation = describe_operation(endpoint, &problem, &mut generator);
        let path = paths.entry(format!("{API_PATH}{}", endpoint.path)).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trunkline admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "On the admin listener, and on the private socket of the commands."
        },
        "security": [{ "key": [] }, { "token": [] }, { "certificate": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
                "token": { "type": "http", "scheme": "bearer" },
                "certificate": { "type": "mutualTLS" }
            }
        }
    })
}

fn describe_operation(
    endpoint: &ApiEndpoint,
    problem: &Value,
    generator: &mut SchemaGenerator,
) -> Value {
    let response = (endpoint.response)(generator);
    let mut operation = json!({
        "summary": endpoint.summary,
        "x-trunkline-role": endpoint.role.as_str(),
        "parameters": endpoint.parameters.iter().map(describe_parameter).collect::<Vec<_>>(),
        "responses": {
            "200": {
                "description": "The answer",
                "content": { endpoint.media: { "schema": response } }
            },
            "default": {
                "description": "A problem (RFC 9457)",
                "content": { "application/problem+json": { "schema": problem } }
            }
        }
    });
    if let (Some(body), Some(members)) = (endpoint.body, operation.as_object_mut()) {
        let schema = body(generator);
        let content = json!({ "application/json": { "schema": schema } });
        let required = !endpoint.is_body_optional;
        members.insert("requestBody".into(), json!({ "required": required, "content": content }));
    }
    operation
}

fn describe_parameter(parameter: &EndpointParameter) -> Value {
    let is_path = parameter.place == ArgumentPlace::Path;
    json!({
        "name": parameter.name,
        "in": if is_path { "path" } else { "query" },
        "required": is_path,
        "description": parameter.meaning,
        "schema": describe_form(parameter.form)
    })
}

fn describe_form(form: ArgumentForm) -> Value {
    match form {
        ArgumentForm::Text => json!({ "type": "string" }),
        ArgumentForm::Count => json!({ "type": "integer", "minimum": 0 }),
        ArgumentForm::Time => json!({ "type": "string", "format": "date-time" }),
        ArgumentForm::Flag => json!({ "type": "boolean" }),
        ArgumentForm::Word(words) => json!({ "type": "string", "enum": words }),
    }
}
