//! `trunkline tools`: the tools that clients list, and the space that they take up in a model's
//! context.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::listed::{unlisted_servers, with_listed_servers};
use crate::call::ProfileName;
use crate::catalog::ToolSignature;
use crate::cli::{
    CommonArgs, ConfigOption, FAILURE_EXIT, WRONG_USE, print_error, printable, report_error,
    write_to_stdout,
};
use crate::snapshot::{ProfileTokens, Snapshot, TokenReport};

/// List the tools that clients see, and the tokens that they take up
///
/// Starts all servers of the configuration, lists their tools and stops them again.
#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    #[command(flatten)]
    config: ConfigOption,
    /// The profile of the clients
    #[arg(long, value_name = "NAME", default_value = ProfileName::DEFAULT, value_parser = ProfileName::new)]
    profile: ProfileName,
    /// The tokens of each tool, the most expensive first, instead of its signature; an estimate, by
    /// the vocabulary o200k_base
    #[arg(long)]
    tokens: bool,
}

pub(crate) fn list_tools(args: &ToolsArgs) -> ExitCode {
    let common = CommonArgs::with_config(args.config.path.clone());
    let config = match common.read_config() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let name = args.profile.as_str();
    if name != ProfileName::DEFAULT && config.profiles.iter().all(|one| one.name != args.profile) {
        print_error(&format!("the configuration has no profile {name:?}"));
        return WRONG_USE.into_code();
    }
    let listed = with_listed_servers(config, |snapshot| {
        let text = if args.tokens {
            let report = snapshot.report_tokens();
            describe_tokens(&report, &args.profile)
        } else {
            describe_tools(snapshot, &args.profile)
        };
        (text, unlisted_servers(snapshot))
    });
    match listed {
        Ok((text, silent)) => {
            let exit = write_to_stdout(&text);
            for line in &silent {
                print_error(line);
            }
            if text.is_empty() && silent.is_empty() {
                print_error("the configuration has no tools");
            }
            if silent.is_empty() { exit } else { FAILURE_EXIT.into_code() }
        }
        Err(error) => report_error(&error),
    }
}

/// Returns the signature of each tool that clients of a profile list.
fn describe_tools(snapshot: &Snapshot, profile: &ProfileName) -> String {
    let tools = snapshot.usual_tools(profile);
    tools.iter().fold(String::new(), |all, raw| format!("{all}{}\n", ToolSignature::from_raw(raw)))
}

fn describe_tokens(report: &TokenReport, profile: &ProfileName) -> String {
    let mut text = String::new();
    let found = report.profiles.iter().find(|one| one.name == *profile);
    let Some(found) = found else { return text };
    for (name, tokens) in found.dearest(usize::MAX) {
        let _ = writeln!(text, "{tokens:>8}  {}", printable(name));
    }
    describe_profile(found, &mut text);
    if report.servers.len() > 1 {
        text.push('\n');
        let mut servers: Vec<_> = report.servers.iter().collect();
        servers.sort_by_key(|server| std::cmp::Reverse(server.tokens));
        for server in servers {
            let (name, tools, tokens) = (&server.name, server.tools, server.tokens);
            let _ = writeln!(text, "{tokens:>8}  server {name}, {tools} tool(s)");
        }
    }
    text.push_str("\nTokens are an estimate, by the vocabulary o200k_base.\n");
    text
}

fn describe_profile(profile: &ProfileTokens, text: &mut String) {
    let (listed, all) = (profile.listed_tokens(), profile.all_tokens);
    let count = profile.listed.len();
    let _ = write!(text, "{listed:>8}  profile {}, {count} tool(s)", profile.name);
    if listed != all {
        let _ = write!(text, "; {all} with all {} in full", profile.tools);
    }
    if let Some(budget) = profile.budget {
        let _ = write!(text, "; the budget is {budget}");
    }
    text.push('\n');
}
