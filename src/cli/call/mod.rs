//! `trunkline call`: makes a call through the running gateway, with every gate.

pub(super) mod pairs;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::running::{GatewayOption, GatewayRequest, report_other_version, report_unanswered};
use super::{FAILURE_EXIT, WRONG_USE, escape_json, print_error, printable, write_to_stdout};
use crate::text::clip;
use pairs::{ArgumentPairs, read_pairs};

/// Make a call through the running gateway, with every gate of a client's call
///
/// By default the caller is the operator: the client of the key, or on this machine a client without
/// credentials, to which no scopes apply. Rules, limits and the audit log apply to it. --as applies the
/// profile, rules and limits of a client, never its logins, secrets or tokens: a server that needs
/// those refuses the call. The audit log has both names.
///
/// Ctrl-C cancels the call. Questions of servers are printed, not answered.
///
/// Exit codes: 0 for a result, 1 for a refused or failed call or a result that is an error, 2 for an
/// invalid command line, 3 if no gateway answers.
#[derive(Debug, Args)]
#[command(after_help = CALL_EXAMPLES)]
pub(super) struct CallArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    /// The tool, by its public name
    tool: String,
    /// The arguments: a value is JSON if it can be read as such, and a text otherwise
    #[arg(value_name = "KEY=VALUE")]
    arguments: Vec<String>,
    /// The arguments as one JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "arguments")]
    json_arguments: Option<String>,
    /// The profile; by default the first one that the caller may use
    #[arg(short, long, value_name = "NAME")]
    profile: Option<String>,
    /// Call with the profile, rules and limits of this client of [clients]; needs the role `admin`
    #[arg(long = "as", value_name = "CLIENT")]
    client: Option<String>,
    /// Cancel the call after this number of seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Print the whole result as JSON
    #[arg(long)]
    json: bool,
}

const CALL_EXAMPLES: &str = "\
Examples:
  trunkline call clock__now zone=UTC
  trunkline call git__push --as ci branch=main force=true
  trunkline call search --json-arguments '{\"limit\": 3}' --json";

/// The part of a report that is printed.
#[derive(Debug, Deserialize)]
struct ReportText {
    result: Option<ResultText>,
    error: Option<ErrorText>,
}

#[derive(Debug, Deserialize)]
struct ErrorText {
    #[serde(default)]
    message: String,
}

/// The result of a tool.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResultText {
    content: Vec<Value>,
    structured_content: Option<Box<RawValue>>,
    is_error: bool,
    result_type: Option<String>,
    input_requests: Map<String, Value>,
}

pub(super) fn call_tool(args: &CallArgs) -> ExitCode {
    let body = match describe_call(args) {
        Ok(body) => body,
        Err(fault) => {
            print_error(&fault);
            return WRONG_USE.into_code();
        }
    };
    let request = GatewayRequest { method: Method::POST, path: "/calls", body: Some(body) };
    let answered =
        args.gateway.request_as::<Box<RawValue>>(&request, Duration::from_secs(args.timeout));
    let document = match answered {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    let Ok(report) = serde_json::from_str::<ReportText>(document.get()) else {
        return report_other_version();
    };
    if args.json {
        write_to_stdout(&format!(
            "{}
",
            escape_json(document.get())
        ));
    }
    print_report(&report, args.json)
}

/// The body of the request.
#[derive(Debug, Serialize)]
struct CallBody<'a> {
    tool: &'a str,
    arguments: ArgumentPairs,
    profile: Option<&'a str>,
    r#as: Option<&'a str>,
}

fn describe_call(args: &CallArgs) -> Result<String, String> {
    let arguments = match &args.json_arguments {
        Some(text) => serde_json::from_str::<ArgumentPairs>(text)
            .map_err(|fault| format!("--json-arguments: expected a JSON object: {fault}"))?,
        None => read_pairs(&args.arguments).map_err(|fault| fault.to_string())?,
    };
    let CallArgs { tool, profile, client, .. } = args;
    let (profile, r#as) = (profile.as_deref(), client.as_deref());
    let body = CallBody { tool, arguments, profile, r#as };
    serde_json::to_string(&body).map_err(|fault| fault.to_string())
}

/// Prints the outcome, unless the whole document is printed, and returns the exit code.
fn print_report(report: &ReportText, is_printed: bool) -> ExitCode {
    let Some(result) = &report.result else {
        let message = report.error.as_ref().map_or("there is no result", |error| &error.message);
        print_error(&printable(clip(message, MAX_PRINTED_BYTES)));
        return FAILURE_EXIT.into_code();
    };
    if result.result_type.as_deref() == Some("input_required") {
        print_error(&describe_questions(&result.input_requests));
        return FAILURE_EXIT.into_code();
    }
    let written =
        if is_printed { ExitCode::SUCCESS } else { write_to_stdout(&describe_result(result)) };
    if !result.is_error {
        return written;
    }
    print_error("the result is an error of the tool");
    FAILURE_EXIT.into_code()
}

/// Describes the questions of a server, which are not answered here.
fn describe_questions(questions: &Map<String, Value>) -> String {
    let mut text = "the server asks for input, which this command cannot give:".to_owned();
    for question in questions.values().take(MAX_QUESTIONS) {
        let method = question.get("method").and_then(Value::as_str).unwrap_or_default();
        let message =
            question.pointer("/params/message").and_then(Value::as_str).unwrap_or_default();
        let line = printable(clip(message, MAX_QUESTION_BYTES));
        let _ = write!(text, "\n  {}: {line}", printable(clip(method, MAX_QUESTION_BYTES)));
    }
    text + "\ncall the tool from a client that can answer"
}

/// Describes the content of a result, for people.
fn describe_result(result: &ResultText) -> String {
    let mut text = String::new();
    for block in &result.content {
        text.push_str(&describe_block(block));
    }
    if result.content.is_empty()
        && let Some(value) = &result.structured_content
    {
        text = describe_lines(&describe_json(value));
    }
    text
}

/// Returns true if the text of a value keeps each digit.
fn is_written_as(value: &Value, raw: &RawValue) -> bool {
    let written = value.to_string();
    written == raw.get()
}

/// Returns a value with its members on lines of their own, unless that changes its numbers.
fn describe_json(raw: &RawValue) -> String {
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(value) if is_written_as(&value, raw) => format!("{value:#}"),
        _ => raw.get().to_owned(),
    }
}

fn describe_block(block: &Value) -> String {
    let member = |pointer: &str| block.pointer(pointer).and_then(Value::as_str);
    let kind = member("/type").unwrap_or_default();
    if let (true, Some(text)) = (kind == "text", member("/text")) {
        return describe_lines(text);
    }
    if let (true, Some(text)) = (kind == "resource", member("/resource/text")) {
        return describe_lines(text);
    }
    let address = ["/uri", "/resource/uri", "/mimeType"].into_iter().find_map(member);
    let size = ["/data", "/resource/blob"].into_iter().find_map(member).map(str::len);
    let size = size.map(|size| format!(", {size} characters of base64")).unwrap_or_default();
    let (kind, address) = (printable(kind), printable(address.unwrap_or("unknown")));
    format!("[{kind}: {address}{size}; --json prints it]\n")
}

/// Returns a text line by line, without control characters.
fn describe_lines(text: &str) -> String {
    let clipped = clip(text, MAX_PRINTED_BYTES);
    let mut lines: String = clipped.lines().map(|line| printable(line) + "\n").collect();
    if clipped.len() < text.len() {
        let _ = writeln!(lines, "… {} more bytes; --json prints all", text.len() - clipped.len());
    }
    lines
}

/// Limit of the bytes of a text that are printed for people.
const MAX_PRINTED_BYTES: usize = 1 << 20;
/// Limit of the questions that are printed.
const MAX_QUESTIONS: usize = 16;
/// Limit of the bytes of a question that are printed.
const MAX_QUESTION_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(result: Value) -> String {
        describe_result(&serde_json::from_value(result).unwrap())
    }

    #[test]
    fn the_content_of_a_result_is_printed_for_people() {
        let text = json!({ "type": "text", "text": "one\n\u{1b}[31mtwo" });
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" });
        let link = json!({ "type": "resource_link", "uri": "file:///a" });
        let said = described(json!({ "content": [text, image, link] }));
        assert!(said.starts_with("one\n") && !said.contains('\u{1b}'), "{said}");
        assert!(said.contains("[image: image/png, 4 characters"), "{said}");
        assert!(said.contains("[resource_link: file:///a;"), "{said}");
        assert_eq!(described(json!({ "content": [], "structuredContent": 7 })), "7\n");
        let long =
            described(json!({ "content": [{ "type": "text", "text": "x".repeat(2 << 20) }] }));
        assert!(long.ends_with("1048576 more bytes; --json prints all\n"));
    }

    #[test]
    fn structured_content_keeps_the_digits_of_its_numbers() {
        let said = |raw: &str| describe_json(&RawValue::from_string(raw.to_owned()).unwrap());
        assert_eq!(said(r#"{"id":123456789012345678901}"#), r#"{"id":123456789012345678901}"#);
        assert_eq!(said(r#"{"id":7}"#), "{\n  \"id\": 7\n}");
    }

    #[test]
    fn questions_are_bounded() {
        let question =
            json!({ "method": "elicitation/create", "params": { "message": "x".repeat(9999) } });
        let questions = (0..100).map(|key| (key.to_string(), question.clone())).collect();
        let text = describe_questions(&questions);
        assert!(text.contains("elicitation/create: xxx") && text.len() < 20_000, "{}", text.len());
        let long = json!({ "method": "m".repeat(9999) });
        let text = describe_questions(&Map::from_iter([("a".to_owned(), long)]));
        assert!(text.len() < 2000, "{}", text.len());
    }
}
