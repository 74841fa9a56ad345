//! `trunkline tools`: the tools that clients list, and the space that they take up in a model's
//! context.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::listed::{ask_running_gateway, print_unlisted, read_document, with_listed_servers};
use crate::admin::{ProfileListing, ToolListing};
use crate::call::ProfileName;
use crate::cli::running::{GatewayOption, report_unanswered};
use crate::cli::{
    BareFile, CommonArgs, FAILURE_EXIT, WRONG_USE, json_text, print_error, printable, report_error,
    write_to_stdout,
};
use crate::config::Config;

/// List the tools that clients see, and the tokens that they take up
///
/// Asks the running gateway. If none runs with the configuration, starts its servers, lists their tools
/// and stops them again.
///
/// Exit codes: 0 for the tools of all servers, 1 if a server cannot be listed, or the gateway does not
/// have the profile, 2 for an invalid command line or configuration, 3 if a gateway does not answer.
#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    #[command(flatten)]
    gateway: GatewayOption,
    #[command(flatten)]
    file: BareFile,
    /// The profile of the clients
    #[arg(long, value_name = "NAME", default_value = ProfileName::DEFAULT, value_parser = ProfileName::new)]
    profile: ProfileName,
    /// The tokens of each tool, the most expensive first, instead of its signature; an estimate, by
    /// the vocabulary o200k_base
    #[arg(long)]
    tokens: bool,
    /// Start the servers of the configuration, also if a gateway runs
    #[arg(long, visible_alias = "start", conflicts_with = "url")]
    offline: bool,
    /// Print the whole document as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn list_tools(args: &ToolsArgs) -> ExitCode {
    let gateway = args.gateway.clone().or_file(args.file.clone());
    let path = format!("/tools?profile={}", args.profile);
    let listing = match ask_running_gateway(&gateway, args.offline.into(), &path) {
        Ok(Some(document)) => read_document(&document).map_err(|error| report_unanswered(&error)),
        Ok(None) => list_started(&gateway, &args.profile),
        Err(error) => return report_unanswered(&error),
    };
    match listing {
        Ok(listing) => print_listing(args, &listing),
        Err(code) => code,
    }
}

/// Starts the servers of the configuration, and lists their tools.
fn list_started(gateway: &GatewayOption, profile: &ProfileName) -> Result<ToolListing, ExitCode> {
    let config = CommonArgs::with_config(gateway.config().to_owned()).read_config()?;
    check_profile(&config, profile)?;
    let listed = with_listed_servers(config, |it| ToolListing::of(it, Some(profile)));
    listed.map_err(|error| report_error(&error))
}

fn check_profile(config: &Config, profile: &ProfileName) -> Result<(), ExitCode> {
    let is_known = config.profiles.iter().any(|one| one.name == *profile);
    if is_known || profile.as_str() == ProfileName::DEFAULT {
        return Ok(());
    }
    print_error(&format!("the configuration has no profile {:?}", profile.as_str()));
    Err(WRONG_USE.into_code())
}

fn print_listing(args: &ToolsArgs, listing: &ToolListing) -> ExitCode {
    let text = match (args.json, args.tokens) {
        (true, _) => json_text(&serde_json::to_value(listing).unwrap_or(Value::Null)),
        (false, true) => describe_tokens(listing),
        (false, false) => describe_tools(listing),
    };
    let exit = write_to_stdout(&text);
    print_unlisted(&listing.unlisted);
    if text.is_empty() && listing.unlisted.is_empty() {
        print_error("the configuration has no tools");
    }
    if listing.unlisted.is_empty() { exit } else { FAILURE_EXIT.into_code() }
}

/// Returns the signature of each tool that clients of the profile list.
fn describe_tools(listing: &ToolListing) -> String {
    let tools = listing.profiles.iter().flat_map(|profile| &profile.listed);
    tools.fold(String::new(), |all, tool| all + &printable(&tool.signature) + "\n")
}

fn describe_tokens(listing: &ToolListing) -> String {
    let mut text = String::new();
    let Some(profile) = listing.profiles.first() else { return text };
    let mut tools: Vec<_> = profile.listed.iter().collect();
    tools.sort_by_key(|tool| Reverse(tool.tokens));
    for tool in tools {
        let _ = writeln!(text, "{:>8}  {}", tool.tokens, printable(&tool.name));
    }
    describe_profile(profile, &mut text);
    if listing.servers.len() > 1 {
        text.push('\n');
        let mut servers: Vec<_> = listing.servers.iter().collect();
        servers.sort_by_key(|server| Reverse(server.tokens));
        for server in servers {
            let (name, tools, tokens) = (printable(&server.name), server.tools, server.tokens);
            let _ = writeln!(text, "{tokens:>8}  server {name}, {tools} tool(s)");
        }
    }
    text.push_str("\nTokens are an estimate, by the vocabulary o200k_base.\n");
    text
}

fn describe_profile(profile: &ProfileListing, text: &mut String) {
    let (listed, all) = (profile.listed_tokens(), profile.all_tokens);
    let (name, count) = (printable(&profile.name), profile.listed.len());
    let _ = write!(text, "{listed:>8}  profile {name}, {count} tool(s)");
    if listed != all {
        let _ = write!(text, "; {all} with all {} in full", profile.tools);
    }
    if let Some(budget) = profile.budget {
        let _ = write!(text, "; the budget is {budget}");
    }
    text.push('\n');
}
