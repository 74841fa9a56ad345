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
                tracing::info!(%server, tool = %name, ?paths, "strings in arguments were coerced");
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
