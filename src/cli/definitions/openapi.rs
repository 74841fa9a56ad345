//! `trunkline openapi`: the operations of an API, and the lines that add it to a configuration.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use url::Url;

use crate::cli::{
    CONFIG_FAULT, json_text, print_error, report_error, write_to_stderr, write_to_stdout,
};
use crate::config::{
    Config, ConfigSource, OpenApiConfig, ServerConfig, ServerKind, SystemEnvironment,
};
use crate::openapi::MANY_TOOLS;
use crate::text::escape_controls;
use crate::upstream::{ApiSurvey, SurveyedTool, UpstreamError, survey_api};

use super::report::toml_text;

/// Show the operations of a plain HTTP API, the tool for each, and the settings to configure
#[derive(Debug, Args)]
pub(crate) struct OpenApiArgs {
    /// The OpenAPI document, a URL or a file; or the URL of a server without a path, to search its
    /// document at the usual places
    #[arg(value_name = "URL|FILE")]
    document: String,
    /// The name of the server in the configuration
    #[arg(long, value_name = "NAME", default_value = "api")]
    name: String,
    /// The URL that requests go to, if the document names one of another origin
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Only these operations: an operationId, "METHOD /path", "/path" or "tag:NAME", with * and ?
    #[arg(long, value_name = "OPERATION")]
    include: Vec<String>,
    /// All but these operations
    #[arg(long, value_name = "OPERATION")]
    exclude: Vec<String>,
    /// A header for the document's server; ${env:NAME} is replaced by the variable's value
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Print the operations and the settings as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn show_api(args: &OpenApiArgs) -> ExitCode {
    let lines = args.lines(str::to_owned);
    let folder = std::env::current_dir().unwrap_or_default();
    let source = ConfigSource { name: "options".into(), folder, bytes: lines.into_bytes() };
    let config = match Config::read(&source, &SystemEnvironment) {
        Ok(config) => config,
        Err(faults) => {
            write_to_stderr(&format!("{}\n", faults.render(crate::cli::terminal_color())));
            return CONFIG_FAULT.into_code();
        }
    };
    let Some((server, api)) = apis_of(&config).next() else {
        print_error("the options name no document");
        return CONFIG_FAULT.into_code();
    };
    match survey_now(server, api) {
        Ok(survey) => {
            let text = if args.json {
                args.to_json(&survey)
            } else {
                [list_tools(&survey), list_left_out(&survey), args.suggest(&survey)].concat()
            };
            write_to_stdout(&server.secrets.hide_in(&text))
        }
        Err(fault) => {
            let _ = report_error(&fault);
            CONFIG_FAULT.into_code()
        }
    }
}

/// The plain HTTP APIs of a configuration.
pub(crate) fn apis_of(
    config: &Config,
) -> impl Iterator<Item = (&Arc<ServerConfig>, &OpenApiConfig)> {
    config.servers.iter().filter_map(|server| match &server.target {
        ServerKind::OpenApi(api) => Some((server, &**api)),
        ServerKind::Command(_) | ServerKind::Http(_) => None,
    })
}

/// Reads an API's document on a runtime of its own.
pub(crate) fn survey_now(
    server: &Arc<ServerConfig>,
    api: &OpenApiConfig,
) -> Result<ApiSurvey, UpstreamError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| UpstreamError::Connect(Arc::new(error)))?;
    runtime.block_on(survey_api(server, api))
}

impl OpenApiArgs {
    /// Returns the lines of configuration for these options. `write_header` returns the text for
    /// the value of a header.
    fn lines(&self, write_header: impl Fn(&str) -> String) -> String {
        let document = quote(&self.document);
        let document = if self.is_server() {
            format!("url = {document}\nkind = \"openapi\"")
        } else {
            format!("openapi = {document}")
        };
        let mut lines = format!("[servers.{}]\n{document}\n", self.name);
        if let Some(base) = &self.base_url {
            let _ = writeln!(lines, "base_url = {}", quote(base));
        }
        if !self.header.is_empty() {
            let pairs = self.header.iter().map(|header| {
                let (name, value) = header.split_once(':').unwrap_or((header, ""));
                format!("{} = {}", quote(name.trim()), quote(&write_header(value.trim())))
            });
            let _ = writeln!(lines, "headers = {{ {} }}", pairs.collect::<Vec<_>>().join(", "));
        }
        for (key, rules) in [("include", &self.include), ("exclude", &self.exclude)] {
            if !rules.is_empty() {
                let rules: Vec<_> = rules.iter().map(|rule| quote(rule)).collect();
                let _ = writeln!(lines, "{key} = [{}]", rules.join(", "));
            }
        }
        lines
    }

    /// Returns true if the URL is a server's, so that its document is searched.
    fn is_server(&self) -> bool {
        let url = Url::parse(&self.document).ok();
        url.is_some_and(|url| url.has_host() && url.path() == "/" && url.query().is_none())
    }

    /// Returns the survey as a JSON document, with the lines to paste as `configuration`.
    fn to_json(&self, survey: &ApiSurvey) -> String {
        let tools = survey.tools.iter().map(|tool| {
            let arguments = tool.arguments.iter();
            let arguments =
                arguments.map(|(name, required)| json!({ "name": name, "is_required": required }));
            json!({
                "name": tool.name, "operation": tool.label, "tokens": tokens_of(tool.bytes),
                "arguments": arguments.collect::<Vec<_>>(),
            })
        });
        let left_out = survey.left_out.iter();
        let left_out =
            left_out.map(|(label, reason)| json!({ "operation": label, "reason": reason }));
        json_text(&json!({
            "title": survey.title, "version": survey.version, "base_url": survey.base,
            "tools": tools.collect::<Vec<_>>(), "left_out": left_out.collect::<Vec<_>>(),
            "missing_schemes": survey.missing_schemes, "remarks": survey.remarks,
            "configuration": self.suggest(survey),
        }))
    }

    /// Returns the lines to paste. Omits the values of headers, which the terminal must not show.
    fn suggest(&self, survey: &ApiSurvey) -> String {
        let as_variable = |value: &str| {
            if value.contains("${") { value.to_owned() } else { "${env:HEADER}".to_owned() }
        };
        let mut text = format!("\n# For gateway.toml:\n\n{}", self.lines(as_variable));
        if self.base_url.is_none() && !self.document.contains("://") {
            // Credentials go to the address in the configuration, not to one in the file.
            let _ = writeln!(text, "base_url = {}", quote(&survey.base));
        }
        if !survey.missing_schemes.is_empty() {
            let _ = writeln!(text, "\n[servers.{}.auth]", self.name);
        }
        for scheme in &survey.missing_schemes {
            let upper =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            let variable: String = scheme.chars().map(upper).collect();
            let is_bare = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
            let key = if is_bare && !scheme.is_empty() { scheme.clone() } else { quote(scheme) };
            let _ = writeln!(text, "{key} = \"${{env:{variable}}}\"");
        }
        text
    }
}

/// Quotes a text of the document as TOML, on one line of the terminal.
fn quote(text: &str) -> String {
    toml_text(text).to_string()
}

/// Lists the tools as a table.
fn list_tools(survey: &ApiSurvey) -> String {
    let head = format!("{} {} at {}", survey.title, survey.version, survey.base);
    let mut text = format!("{}\n\n", escape_controls(&head));
    let width = |of: fn(&SurveyedTool) -> &str| {
        survey.tools.iter().map(|tool| escape_controls(of(tool)).chars().count()).max().unwrap_or(0)
    };
    let (names, labels) = (width(|tool| &tool.name), width(|tool| &tool.label));
    for tool in &survey.tools {
        let arguments = tool.arguments.iter();
        let arguments = arguments.map(|(name, required)| match required {
            true => format!("{name}*"),
            false => name.clone(),
        });
        let arguments = escape_controls(&arguments.collect::<Vec<_>>().join(", "));
        let (name, label) = (escape_controls(&tool.name), escape_controls(&tool.label));
        let tokens = tokens_of(tool.bytes);
        let _ =
            writeln!(text, "{name:names$}  {label:labels$}  about {tokens:>5} tokens  {arguments}");
    }
    let bytes: usize = survey.tools.iter().map(|tool| tool.bytes).sum();
    let (tools, tokens) = (survey.tools.len(), tokens_of(bytes));
    let _ = writeln!(
        text,
        "\nTools: {tools}, about {tokens} tokens in each client's context; * is required"
    );
    if tools > MANY_TOOLS {
        let _ = writeln!(text, "Models choose better among fewer: see `include` and `exclude`.");
    }
    text
}

fn list_left_out(survey: &ApiSurvey) -> String {
    if survey.left_out.is_empty() {
        return String::new();
    }
    let lines = survey.left_out.iter();
    let lines = lines.map(|(label, reason)| escape_controls(&format!("{label}: {reason}")) + "\n");
    format!("\nLeft out:\n{}", lines.collect::<String>())
}

/// Estimates tokens: a token is about four bytes of JSON.
fn tokens_of(bytes: usize) -> usize {
    bytes.div_ceil(4)
}
