//! Arguments that are not plainly valid: large ones, which are checked away from the threads that
//! serve clients, and invalid ones, which are treated as the configuration says.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{ArgumentViolations, Call, Failure, Params};
use crate::catalog::{CoercedArguments, Tool};
use crate::config::ArgumentsChoice;
use crate::text::clip;

use super::{CallTarget, Patience, Policy, ServerLimits, charged};

/// What a first look at the arguments of a call has shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ArgumentsSeen {
    /// They fit the schema, or there is none.
    Valid,
    /// They are large for their schema, and have to be checked.
    Large,
    /// They violate the schema.
    Invalid(ArgumentViolations),
}

impl Policy {
    /// Checks arguments that are not plainly valid, and replaces those that are coerced: what was
    /// checked is what is sent.
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
        if choice == ArgumentsChoice::Off {
            return Ok(());
        }
        let params = call.params.clone();
        let checked = match seen {
            ArgumentsSeen::Valid => return Ok(()),
            ArgumentsSeen::Invalid(violations) => coerce(&tool, &params, choice, violations),
            ArgumentsSeen::Large => {
                let failure = Failure::OverLimit { limit: "arguments".into(), retry_after: SOON };
                let patience = Patience { longest: LONGEST_WAIT_FOR_CHECKS, failure };
                let tool = Arc::clone(&tool);
                let check = move || match tool.arguments.check(params.arguments()) {
                    Ok(()) => Ok(None),
                    Err(violations) => coerce(&tool, &params, choice, violations),
                };
                self.limits.large_work.run(&charged(&call.context), patience, check).await?
            }
        };
        let (server, name) = (&target.server, &tool.native);
        match checked {
            Ok(None) => Ok(()),
            Ok(Some(CoercedArguments { raw, paths })) => {
                let paths = paths.join(" ");
                let paths = clip(&paths, 512);
                tracing::info!(%server, tool = %name, ?paths, "arguments were coerced");
                replace_arguments(call, target, raw)
            }
            Err(violations) => {
                let lines = violations.lines.join("; ");
                tracing::info!(
                    %server, tool = %name, violations = lines, arguments = choice.as_str(),
                    "arguments were refused: `arguments = \"coerce\"` or \"off\", of the server or the \
                     tool, is for servers that are lenient"
                );
                Err(Failure::InvalidArguments(violations))
            }
        }
    }
}

/// Coerces arguments that violate the schema, where the configuration says so.
fn coerce(
    tool: &Tool,
    params: &Params,
    choice: ArgumentsChoice,
    violations: ArgumentViolations,
) -> Result<Option<CoercedArguments>, ArgumentViolations> {
    let coerced = match (choice, params.arguments()) {
        (ArgumentsChoice::Coerce, Some(raw)) => tool.arguments.coerce(raw),
        _ => None,
    };
    coerced.map(Some).ok_or(violations)
}

/// Puts other arguments into a call, and moves the edits behind them.
fn replace_arguments(
    call: &mut Call,
    target: &mut CallTarget,
    raw: Vec<u8>,
) -> Result<(), Failure> {
    let Some(span) = call.params.arguments_span() else { return Ok(()) };
    let length = raw.len();
    call.params = call.params.with_arguments(raw)?;
    for (at, _) in target.edits.iter_mut().filter(|(at, _)| at.start >= span.end) {
        let moved = |place: usize| place - span.len() + length;
        *at = moved(at.start)..moved(at.end);
    }
    Ok(())
}

/// How long a call waits for the checks of other calls' large arguments.
const LONGEST_WAIT_FOR_CHECKS: Duration = Duration::from_secs(10);
/// When a call that has waited for too long may be tried again.
const SOON: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::call::ServerName;
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
        Policy::new(LimitRegistry::default().limits(&config(&[("s", "arguments = \"coerce\"")])))
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
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        tracing::callsite::rebuild_interest_cache();
        let secret = "hunter2";
        let large = "hunter2 ".repeat(20_000);
        let mut logged_by = async |arguments: serde_json::Value| {
            let call = call_with(&json!({ "name": "t", "arguments": arguments }).to_string());
            let admitted = coercing().admit(call, target(Box::default())).await.is_ok();
            let mut lines = String::new();
            log.read_to_string(&mut lines).unwrap();
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
