//! Arguments that are not plainly valid: large ones, which are checked away from the threads that
//! serve clients, and invalid ones, which are treated as configured.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use crate::call::{ArgumentsError, Call, Context, Failure, Params};
use crate::catalog::{CoercedArguments, Tool};
use crate::config::ArgumentsChoice;
use crate::policy::scopes::ToolAddress;
use crate::policy::target::{ArgumentsSeen, CallTarget};
use crate::policy::transforms::{complete_arguments, explain_to_client};
use crate::shares::{Holder, Patience};
use crate::telemetry::log::SharedFaultLog;
use crate::text::clip;

use super::Policy;
use super::registry::ServerLimits;

impl Policy {
    /// Checks arguments that are not plainly valid, and replaces those that are coerced: the
    /// checked arguments are the ones sent.
    ///
    /// # Errors
    /// [`Failure::InvalidArguments`], and [`Failure::OverLimit`] after a long wait for other calls'
    /// large arguments.
    pub(super) async fn judge_arguments(
        &self,
        call: &mut Call,
        target: &mut CallTarget,
        seen: ArgumentsSeen,
    ) -> Result<(), Failure> {
        let Some(tool) = target.tool.clone() else { return Ok(()) };
        let limits = self.limits.server(&target.server);
        let choice =
            limits.map_or(ArgumentsChoice::Strict, |it| ServerLimits::arguments(it, &tool.native));
        if choice == ArgumentsChoice::Off && seen != ArgumentsSeen::Incomplete {
            return Ok(());
        }
        let params = call.params.clone();
        let checked = match seen {
            ArgumentsSeen::Valid => return Ok(()),
            ArgumentsSeen::Invalid(violations) => coerce(&tool, &params, choice, violations),
            ArgumentsSeen::Large => {
                let tool = Arc::clone(&tool);
                let check = move || check_whole(&tool, &params, choice);
                self.run_check(&call.context, check).await?
            }
            ArgumentsSeen::Incomplete => {
                let (tool, headers) = (Arc::clone(&tool), Arc::clone(&call.context.headers));
                let is_large = is_large(&tool, &params);
                let complete = move || complete_checked(&tool, &params, choice, &headers);
                if is_large { self.run_check(&call.context, complete).await? } else { complete() }
            }
        };
        let (server, name) = (&target.server, &tool.native);
        match checked {
            Ok(None) => Ok(()),
            Ok(Some(CoercedArguments { raw, paths })) => {
                if !paths.is_empty() {
                    let paths = paths.join(" ");
                    let paths = clip(&paths, 512);
                    tracing::info!(%server, tool = %name, ?paths, "arguments were coerced");
                }
                replace_arguments(call, target, &raw)
            }
            Err(violations) => {
                let lines = violations.lines.join("; ");
                tracing::info!(
                    %server, tool = %name, violations = lines, arguments = choice.as_str(),
                    "arguments were refused: if the server is lenient, set `arguments = \
                     \"coerce\"` or \"off\" for it or the tool"
                );
                Err(Failure::InvalidArguments(violations))
            }
        }
    }

    /// Replaces the arguments by those of an interceptor, if they fit the server's own schema.
    ///
    /// # Errors
    /// As for arguments of a client.
    pub(super) async fn take_changed_arguments(
        &self,
        call: &mut Call,
        target: &mut CallTarget,
        raw: Vec<u8>,
    ) -> Result<(), Failure> {
        let Some(tool) = target.tool.clone() else { return replace_arguments(call, target, &raw) };
        let limits = self.limits.server(&target.server);
        let choice =
            limits.map_or(ArgumentsChoice::Strict, |it| ServerLimits::arguments(it, &tool.native));
        if choice == ArgumentsChoice::Off {
            return replace_arguments(call, target, &raw);
        }
        let listed = tool.transform.as_ref().map_or(&tool, |transform| &transform.listed);
        let listed = Arc::clone(listed);
        let check = move || (listed.arguments.check(Some(&raw)), raw);
        let (checked, raw) = self.run_check(&call.context, check).await?;
        checked.map_err(Failure::InvalidArguments)?;
        replace_arguments(call, target, &raw)
    }

    /// Admits a call of a tool of the gateway itself: checks the rules, the scopes of the tools
    /// that it needs, and its arguments, since no server checks them again.
    ///
    /// # Errors
    /// As for calls of servers' tools.
    pub async fn admit_own_tool(
        &self,
        tool: &Arc<Tool>,
        call: &Call,
        needed: &[ToolAddress],
    ) -> Result<(), Failure> {
        if let Some(authorization) = self.authorization() {
            let (name, large_work) = (tool.native.as_str(), self.large_work());
            Box::pin(authorization.authorize_own_tool(call, name, large_work)).await?;
        }
        if let Some(scopes) = &self.scopes {
            scopes.check_all(&call.context, needed)?;
        }
        let (tool, params) = (Arc::clone(tool), call.params.clone());
        let is_large = is_large(&tool, &params);
        let check = move || tool.arguments.check(params.arguments());
        let checked = if is_large { self.run_check(&call.context, check).await? } else { check() };
        checked.map_err(Failure::InvalidArguments)
    }

    /// Runs a check of large arguments away from the threads that serve clients.
    async fn run_check<T: Send + 'static>(
        &self,
        context: &Context,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let failure = Failure::OverLimit {
            limit: "arguments".into(),
            retry_after: ARGUMENT_CHECK_RETRY_AFTER,
        };
        let patience = Patience { longest: MAX_CHECKS_WAIT, failure };
        self.limits.large_work.run(&Holder::of_context(context), patience, check).await
    }
}

/// Returns true if arguments that are completed take long to check.
fn is_large(tool: &Tool, params: &Params) -> bool {
    let listed = tool.transform.as_ref().map_or(tool, |transform| &transform.listed);
    let cheap = tool.arguments.cheap_length().min(listed.arguments.cheap_length());
    params.arguments().is_some_and(|raw| raw.len() > cheap)
}

/// Checks the client's arguments against the schema that it sees, and the completed arguments
/// against the server's own.
fn complete_checked(
    tool: &Tool,
    params: &Params,
    choice: ArgumentsChoice,
    headers: &HeaderMap,
) -> Result<Option<CoercedArguments>, ArgumentsError> {
    let Some(transform) = &tool.transform else { return check_whole(tool, params, choice) };
    let coerced = match choice {
        ArgumentsChoice::Off => None,
        _ => check_whole(tool, params, choice)?,
    };
    let client = coerced.as_ref().map(|coerced| &coerced.raw[..]).or(params.arguments());
    let raw = complete_arguments(transform, client, headers)?;
    let paths = coerced.map(|coerced| coerced.paths).unwrap_or_default();
    if choice == ArgumentsChoice::Off {
        return Ok(Some(CoercedArguments { raw, paths }));
    }
    let own = &transform.listed.arguments;
    let Err(violations) = own.check(Some(&raw)) else {
        return Ok(Some(CoercedArguments { raw, paths }));
    };
    // The configured schema of the tool takes precedence.
    if transform.settings.input_schema.is_some() {
        return Ok(Some(CoercedArguments { raw, paths }));
    }
    let (tool, lines) = (&tool.native, violations.lines.join("; "));
    let text = format!("completed arguments do not fit the server's schema: {lines}");
    if let Some(line) = COMPLETION_FAULTS.note_about(tool.as_str(), &text) {
        tracing::warn!(%tool, "{line}");
    }
    Err(explain_to_client(transform, violations))
}

/// Checks arguments, and coerces those that violate the schema if so configured.
fn check_whole(
    tool: &Tool,
    params: &Params,
    choice: ArgumentsChoice,
) -> Result<Option<CoercedArguments>, ArgumentsError> {
    match tool.arguments.check(params.arguments()) {
        Ok(()) => Ok(None),
        Err(violations) => coerce(tool, params, choice, violations),
    }
}

/// Coerces arguments that violate the schema, if so configured.
fn coerce(
    tool: &Tool,
    params: &Params,
    choice: ArgumentsChoice,
    violations: ArgumentsError,
) -> Result<Option<CoercedArguments>, ArgumentsError> {
    let coerced = match (choice, params.arguments()) {
        (ArgumentsChoice::Coerce, Some(raw)) => tool.arguments.coerce(raw),
        _ => None,
    };
    coerced.map(Some).ok_or(violations)
}

/// Replaces the arguments of a call, and shifts the edits behind them.
fn replace_arguments(call: &mut Call, target: &mut CallTarget, raw: &[u8]) -> Result<(), Failure> {
    let (params, span, length) = call.params.with_arguments(raw)?;
    call.params = params;
    for (at, _) in target.edits.iter_mut().filter(|(at, _)| at.start >= span.end) {
        let moved = |place: usize| place - span.len() + length;
        *at = moved(at.start)..moved(at.end);
    }
    Ok(())
}

/// Limit of a call's wait for the checks of other calls' large arguments.
pub(super) const MAX_CHECKS_WAIT: Duration = Duration::from_secs(10);
/// Time after which such a call may be tried again.
const ARGUMENT_CHECK_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Tools whose completed arguments do not fit, in the log.
static COMPLETION_FAULTS: SharedFaultLog = SharedFaultLog::new();

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::call::ServerName;
    use crate::captured_log::CapturedLog;
    use crate::catalog::HeaderRules;
    use crate::policy::LimitRegistry;
    use crate::upstream::tests::{call, config};

    const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer"},
        "e":{"enum":["a","b"]},"c":{"const":7},"p":{"type":"string","pattern":"^x"},
        "l":{"type":"array","items":{"type":"boolean"},"maxItems":2},
        "none":{"not":{"type":"string"}},"some":{"anyOf":[{"type":"object"},{"minimum":5}]}}}"#;

    fn target(edits: Box<crate::call::Edits>) -> CallTarget {
        let raw = format!(r#"{{"name":"t","inputSchema":{SCHEMA}}}"#);
        let tool = Tool::parse(raw.as_bytes(), HeaderRules::Ignore).unwrap();
        CallTarget::tool(&ServerName::new("s").unwrap(), &Arc::new(tool), edits)
    }

    fn call_with(params: &str) -> Box<Call> {
        let params = Params::parse(Some(Bytes::copy_from_slice(params.as_bytes()))).unwrap();
        Box::new(Call { params, ..call("t") })
    }

    fn coercing() -> Policy {
        let config = config(&[("s", "arguments = \"coerce\"")]);
        Policy::new(LimitRegistry::default().limits(&config))
    }

    #[tokio::test]
    async fn edits_stay_at_their_places_when_arguments_are_coerced() {
        let params = r#"{"first":1,"arguments":{"n":"3","e":null},"name":"s__t","last":2}"#;
        let place = |text: &str| {
            let at = params.find(text).unwrap();
            at..at + text.len()
        };
        let edits = ["1", "\"s__t\"", "2"].map(|text| (place(text), Bytes::from("0")));
        let admitted = coercing().admit(call_with(params), target(Box::new(edits))).await.unwrap();
        let raw = admitted.get().params.raw();
        assert_eq!(raw, r#"{"first":1,"arguments":{"n":3},"name":"s__t","last":2}"#);
        let edits = admitted.target().edits.iter().map(|(at, _)| raw.slice(at.clone()));
        assert_eq!(edits.collect::<Vec<_>>(), ["1", "\"s__t\"", "2"]);
    }

    #[tokio::test]
    async fn the_log_of_arguments_names_paths_rules_and_kinds_but_no_values() {
        let log = CapturedLog::start();
        let mut read = 0;
        let secret = "hunter2";
        let large = "hunter2 ".repeat(20_000);
        let mut logged_by = async |arguments: serde_json::Value| {
            let call = call_with(&json!({ "name": "t", "arguments": arguments }).to_string());
            let admitted = coercing().admit(call, target(Box::default())).await.is_ok();
            let lines = log.text().split_off(read);
            read += lines.len();
            (admitted, lines)
        };
        for (arguments, words) in [
            (json!({ "n": secret }), &["/n: type: expected integer, got string"][..]),
            (json!({ "n": large }), &["/n: type: expected integer, got string"]),
            (json!({ "e": secret, "c": secret }), &["/e: enum: ", "/c: const: "]),
            (json!({ "p": secret, "none": secret }), &["/p: pattern: ", "/none: not: "]),
            (json!({ "l": [true, true, secret] }), &["/l: maxItems: ", "/l/2: type: "]),
            (json!({ "some": [secret], "n": [secret] }), &["/n: type: "]),
            (json!({ "n": "31337", "e": "hunter2" }), &["/n: type: ", "/e: enum: "]),
        ] {
            let (admitted, logged) = logged_by(arguments).await;
            assert!(!admitted && logged.contains("arguments were refused"), "{logged}");
            for word in words {
                assert!(logged.contains(word), "{word}: {logged}");
            }
            assert!(!logged.contains("hunter2") && !logged.contains("31337"), "{logged}");
        }
        let (admitted, logged) =
            logged_by(json!({ "n": "31337", "p": "xhunter2", "e": null })).await;
        assert!(admitted && logged.contains("arguments were coerced"), "{logged}");
        assert!(logged.contains("/e /n"), "{logged}");
        assert!(!logged.contains("hunter2") && !logged.contains("31337"), "{logged}");
    }
}
