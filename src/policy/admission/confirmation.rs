//! Confirmation: calls that need the user's consent, and the question to the user.
//!
//! The question is asked after the rules and the arguments were checked, so that it never concerns
//! a call that cannot be made, and before a slot is taken, because a question must not hold one. A
//! sealed state, bound to the caller and to the digest of the request, proves the user's consent:
//! `pipeline` opens it. It is valid for one call at all replicas ([`ClaimedConsent`]).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};

use crate::call::{
    Call, ConfirmationError, Context, Failure, Named, NativeName, Question, ServerName, StateError,
};
use crate::catalog::Tool;
use crate::clock;
use crate::cluster::{SingleUseItem, SpendRefusal, SpentItem, UsedItems};
use crate::config::{Config, ConfirmChoice, ServerConfig};
use crate::era::state::StateId;
use crate::mcp::question::ELICITATION;
use crate::policy::target::{ArgumentsSeen, CallTarget, Confirmation};
use crate::shares::{ConsentClaim, Holder, Patience};
use crate::telemetry::audit::{ArgumentBounds, RedactionRules, RenderFault};
use crate::text::{clip, escape_invisible};

use super::Policy;

/// Calls that need the user's consent.
#[derive(Debug)]
pub struct ConfirmRules {
    servers: Named<ServerName, ServerConfirm>,
    redaction: RedactionRules,
}

#[derive(Debug)]
struct ServerConfirm {
    choice: ConfirmChoice,
    /// Settings of the tools that have their own.
    own: Named<NativeName, ConfirmChoice>,
    /// True if its annotations are trusted.
    is_trusted: bool,
}

impl ConfirmRules {
    /// Compiles the rules of a configuration; `None` if no call needs consent.
    pub fn compile(config: &Config) -> Option<Self> {
        let asks = |server: &ServerConfig| {
            let own = server.tools.overrides.iter().filter_map(|(_, tool)| tool.confirm);
            own.chain([server.confirm]).any(|choice| choice != ConfirmChoice::Never)
        };
        let asking = config.servers.iter().filter(|server| asks(server));
        let servers: Named<_, _> =
            asking.map(|server| (server.name.clone(), ServerConfirm::of(server))).collect();
        if servers.is_empty() {
            return None;
        }
        let audit = &config.audit;
        // The expressions were checked when the configuration was read.
        let redaction = RedactionRules::new(&audit.redact_keys, &audit.redact_values)
            .or_else(|_| RedactionRules::new(&[], &[]));
        Some(Self { servers, redaction: redaction.ok()? })
    }

    /// Returns true if calls of this tool need the user's consent.
    fn asks_for(&self, server: &ServerName, tool: &Tool) -> bool {
        let Some(server) = self.servers.get(server) else { return false };
        match server.own.get(&tool.native).unwrap_or(&server.choice) {
            ConfirmChoice::Never => false,
            ConfirmChoice::Always => true,
            ConfirmChoice::Destructive => !(server.is_trusted && is_harmless(tool)),
        }
    }

    /// Writes the question about a call.
    ///
    /// # Errors
    /// The arguments cannot be shown: the user would agree to another call.
    fn question(&self, call: &Call) -> Result<Question, ConfirmationError> {
        let name = clip(call.params.name().unwrap_or_default(), MAX_NAME);
        let arguments = match call.params.arguments() {
            None | Some(b"{}") => "without arguments".to_owned(),
            Some(raw) => format!("with these arguments: {}", self.show_arguments(raw)?),
        };
        let message = format!("Allow the call of the tool {} {arguments}", escape_invisible(name));
        let params = json!({
            "mode": "form",
            "message": message,
            "requestedSchema": { "type": "object", "properties": Map::new() },
        });
        Ok(Question { method: ELICITATION.into(), params: Some(params.to_string().into()) })
    }

    /// Returns the arguments for the user. All of them are shown, some only by name and a part of
    /// the value.
    fn show_arguments(&self, raw: &[u8]) -> Result<String, ConfirmationError> {
        let shown = self.redaction.show_arguments(raw, SHOWN_ARGUMENTS);
        let shown = shown.map_err(|fault| match fault {
            RenderFault::Unreadable => ConfirmationError::UnreadableArguments,
            RenderFault::TooMany => ConfirmationError::TooManyArguments,
        })?;
        if shown.has_all { Ok(shown.json) } else { Err(ConfirmationError::TooManyArguments) }
    }
}

impl ServerConfirm {
    fn of(server: &ServerConfig) -> Self {
        let own = server.tools.overrides.iter();
        let own = own.filter_map(|(native, tool)| Some((native.clone(), tool.confirm?)));
        Self { choice: server.confirm, own: own.collect(), is_trusted: server.definitions.trusted }
    }
}

/// The user's consent to a call, which no other call of this gateway can use meanwhile. Once the call
/// has passed all other checks, the consent is used at all replicas. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct ClaimedConsent {
    state: StateId,
    /// `None` if another replica has used the consent.
    claim: Option<ConsentClaim>,
    /// The use at all replicas; `None` before it, and if the gateway is alone.
    spent: Option<SpentItem>,
}

impl ClaimedConsent {
    /// Uses the consent at all replicas.
    ///
    /// # Errors
    /// [`Failure::InvalidState`] if another replica has used it, [`Failure::StoreUnavailable`] if that
    /// is unknown.
    pub(super) async fn spend(&mut self, items: &UsedItems) -> Result<(), Failure> {
        let valid_for = Duration::from_secs(self.state.until).saturating_sub(clock::unix_now());
        let item = SingleUseItem { kind: CONSENT_ITEM, item: &self.state.nonce, valid_for };
        match items.spend(item).await {
            Ok(spent) => {
                self.spent = Some(spent);
                Ok(())
            }
            Err(SpendRefusal::Used) => {
                // The next call with it is refused without a request to the store.
                self.claim.take().into_iter().for_each(ConsentClaim::keep);
                Err(StateError::Used.into())
            }
            Err(SpendRefusal::Unavailable) => Err(Failure::StoreUnavailable),
        }
    }

    /// Keeps the consent as used: the call is sent.
    #[inline]
    pub(super) fn keep(self) {
        self.claim.into_iter().for_each(ConsentClaim::keep);
        self.spent.into_iter().for_each(SpentItem::keep);
    }
}

/// Returns true if the server annotates its tool as read-only or not destructive.
fn is_harmless(tool: &Tool) -> bool {
    let hints = tool.hints();
    hints.read_only == Some(true) || hints.destructive == Some(false)
}

impl Policy {
    /// Returns true if any calls need the user's consent.
    #[inline]
    pub fn asks_users(&self) -> bool {
        self.confirmation.is_some()
    }

    /// Returns the question to ask the user before a call, once the rules and the arguments were
    /// checked; `None` if the call needs no consent, or has it.
    ///
    /// # Errors
    /// Those of [`Policy::admit`], except for limits: a question is not charged to them.
    pub async fn question_before(
        &self,
        call: &mut Call,
        target: &mut CallTarget,
    ) -> Result<Option<Question>, Failure> {
        let Some(rules) = self.confirmation.as_ref().filter(|_| self.needs_consent(target)) else {
            return Ok(None);
        };
        self.authorize(call, target).await?;
        let seen = target.see_arguments(&call.params);
        if seen == ArgumentsSeen::Valid {
            return self.write_question(rules, call).await.map(Some);
        }
        // On copies: the arguments are judged again when the call is admitted.
        let (mut final_call, mut final_target) = (call.clone(), target.clone());
        self.judge_arguments(&mut final_call, &mut final_target, seen).await?;
        self.write_question(rules, &final_call).await.map(Some)
    }

    /// Writes the question about a call. For a large one this happens away from the threads that
    /// serve clients.
    async fn write_question(
        &self,
        rules: &Arc<ConfirmRules>,
        call: &Call,
    ) -> Result<Question, Failure> {
        if call.params.arguments().is_none_or(|raw| raw.len() <= LARGE_ARGUMENTS) {
            return rules.question(call).map_err(Failure::NotConfirmed);
        }
        let failure =
            Failure::OverLimit { limit: "confirmations".into(), retry_after: CONFIRMATION_RETRY };
        let patience = Patience { longest: MAX_QUESTIONS_WAIT, failure };
        let (holder, rules, call) =
            (Holder::of_context(&call.context), Arc::clone(rules), call.clone());
        let asked = self.large_work().run(&holder, patience, move || rules.question(&call)).await?;
        asked.map_err(Failure::NotConfirmed)
    }

    /// Returns true if a call needs the user's consent and does not have it.
    fn needs_consent(&self, target: &CallTarget) -> bool {
        target.confirmation == Confirmation::Missing && self.asks_about(target)
    }

    /// Returns true if calls of a tool need the user's consent.
    pub(super) fn asks_about(&self, target: &CallTarget) -> bool {
        let Some(rules) = &self.confirmation else { return false };
        let tool = target.tool.as_deref();
        tool.is_some_and(|tool| rules.asks_for(&target.server, tool.as_listed()))
    }

    /// Claims the consent to a call, so that no other call can use it; `None` if the call needs
    /// none.
    ///
    /// # Errors
    /// [`Failure::NotConfirmed`] if the user has not agreed, [`Failure::InvalidState`] if another
    /// call has used this consent, and [`Failure::OverLimit`].
    pub(super) fn claim_consent(
        &self,
        context: &Context,
        target: &CallTarget,
    ) -> Result<Option<Box<ClaimedConsent>>, Failure> {
        if !self.asks_about(target) {
            return Ok(None);
        }
        let Confirmation::Given(state) = &target.confirmation else {
            return Err(Failure::NotConfirmed(ConfirmationError::NotAsked));
        };
        let (consents, holder) = (&self.limits.consents, Holder::of_context(context));
        let claim = Some(consents.claim(&holder, **state, clock::unix_now())?);
        Ok(Some(Box::new(ClaimedConsent { state: **state, claim, spent: None })))
    }
}

/// Kind of the consents among the items that replicas use once.
const CONSENT_ITEM: &str = "consent";
/// Limit of a name in a question.
const MAX_NAME: usize = 128;
/// Limits of the bytes of the arguments that a question shows.
const SHOWN_ARGUMENTS: ArgumentBounds = ArgumentBounds { usual: 2000, most: 8000 };
/// Size in bytes from which arguments are formatted away from the threads that serve clients.
const LARGE_ARGUMENTS: usize = 64 << 10;
/// Limit of the wait for the questions of other calls with large arguments.
pub(super) const MAX_QUESTIONS_WAIT: Duration = Duration::from_secs(10);
/// Time after which such a call may be tried again.
const CONFIRMATION_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Params;
    use crate::catalog::HeaderRules;
    use crate::cluster::MemoryStore;
    use crate::policy::{LimitRegistry, SharedLimits};
    use crate::upstream::tests::{call, config, target};

    fn asks(settings: &str, annotations: &str) -> bool {
        let config = config(&[("s", settings)]);
        let raw = format!(
            r#"{{"name":"t","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#
        );
        let tool = Tool::parse(raw.as_bytes(), HeaderRules::Ignore).unwrap();
        let rules = ConfirmRules::compile(&config);
        rules.is_some_and(|rules| rules.asks_for(&ServerName::new("s").unwrap(), &tool))
    }

    #[test]
    fn who_asks_is_configured_and_only_a_trusted_server_can_say_that_nothing_is_destroyed() {
        let reads = r#"{"readOnlyHint":true}"#;
        let mild = r#"{"destructiveHint":false}"#;
        let trusted = "confirm = \"destructive\"\ntrusted = true";
        for (settings, annotations, expected) in [
            ("", "{}", false),
            ("confirm = true", reads, true),
            ("confirm = true\ntools.t.confirm = false", "{}", false),
            ("tools.t.confirm = true", reads, true),
            ("tools.u.confirm = true", "{}", false),
            ("confirm = \"destructive\"", "{}", true),
            ("confirm = \"destructive\"", reads, true),
            ("confirm = \"destructive\"", mild, true),
            (trusted, "{}", true),
            (trusted, r#"{"readOnlyHint":"yes"}"#, true),
            (trusted, r#"{"destructiveHint":true}"#, true),
            (trusted, reads, false),
            (trusted, mild, false),
        ] {
            assert_eq!(asks(settings, annotations), expected, "{settings} {annotations}");
        }
    }

    #[tokio::test]
    async fn a_call_without_consent_is_not_admitted() {
        let config = config(&[("s", "confirm = true")]);
        let policy = Policy::new(LimitRegistry::default().limits(&config))
            .with_confirmation(ConfirmRules::compile(&config));
        let server = ServerName::new("s").unwrap();
        let admit = async |confirmation| {
            let target = CallTarget { confirmation, ..target(&server, "t") };
            policy.admit(Box::new(call("t")), target).await.map(drop)
        };
        let refused = Failure::NotConfirmed(ConfirmationError::NotAsked);
        assert_eq!(admit(Confirmation::Missing).await, Err(refused));
        let given = |nonce| {
            let state = StateId { until: u64::MAX, nonce: [nonce; 12] };
            Confirmation::Given(Box::new(state))
        };
        assert_eq!(admit(given(1)).await, Ok(()));
        assert_eq!(admit(given(1)).await, Err(StateError::Used.into()), "it is good for one call");
        assert_eq!(admit(given(2)).await, Ok(()));
    }

    #[tokio::test]
    async fn consent_to_a_call_that_was_not_admitted_is_kept() {
        let config = config(&[("s", "confirm = true\nquota_each = \"1/day\"")]);
        let policy = Policy::new(LimitRegistry::default().limits(&config))
            .with_confirmation(ConfirmRules::compile(&config));
        let server = ServerName::new("s").unwrap();
        let admit = async |nonce| {
            let state = StateId { until: u64::MAX, nonce: [nonce; 12] };
            let confirmation = Confirmation::Given(Box::new(state));
            let target = CallTarget { confirmation, ..target(&server, "t") };
            policy.admit(Box::new(call("t")), target).await.map(drop)
        };
        assert_eq!(admit(1).await, Ok(()));
        // The quota is checked after the consent, and refuses both times.
        for _ in 0..2 {
            assert!(matches!(admit(2).await, Err(Failure::OverLimit { .. })));
        }
    }

    /// Returns the policy of a replica with this store.
    fn replica(store: &Arc<MemoryStore>, settings: &str) -> Policy {
        let config = config(&[("s", settings)]);
        let items = UsedItems::in_tests(Arc::clone(store) as _);
        let shared = SharedLimits { rates: items.rates(), items };
        let registry = LimitRegistry::default().sharing(Some(shared));
        Policy::new(registry.limits(&config)).with_confirmation(ConfirmRules::compile(&config))
    }

    async fn admit_with(policy: &Policy, nonce: u8) -> Result<(), Failure> {
        let state = StateId { until: u64::MAX, nonce: [nonce; 12] };
        let confirmation = Confirmation::Given(Box::new(state));
        let server = ServerName::new("s").unwrap();
        let target = CallTarget { confirmation, ..target(&server, "t") };
        policy.admit(Box::new(call("t")), target).await.map(drop)
    }

    #[tokio::test]
    async fn one_of_three_replicas_uses_a_consent_and_a_refused_call_leaves_it_to_others() {
        let store = Arc::new(MemoryStore::default());
        let [a, b, c] = [(); 3].map(|()| replica(&store, "confirm = true"));
        let (a_said, b_said, c_said) =
            tokio::join!(admit_with(&a, 1), admit_with(&b, 1), admit_with(&c, 1));
        let said = [a_said, b_said, c_said];
        assert_eq!(said.iter().filter(|said| said.is_ok()).count(), 1, "{said:?}");
        let used = |said: &&Result<(), Failure>| **said == Err(StateError::Used.into());
        assert_eq!(said.iter().filter(used).count(), 2, "{said:?}");
        let limited = replica(&store, "confirm = true\nquota_each = \"1/day\"");
        assert_eq!(admit_with(&limited, 2).await, Ok(()));
        assert!(matches!(admit_with(&limited, 3).await, Err(Failure::OverLimit { .. })));
        assert_eq!(admit_with(&a, 3).await, Ok(()));
    }

    #[tokio::test]
    async fn a_consent_that_is_known_as_used_needs_no_store_and_others_are_refused_without_it() {
        let store = Arc::new(MemoryStore::default());
        let [a, b] = [(); 2].map(|()| replica(&store, "confirm = true"));
        assert_eq!(admit_with(&a, 1).await, Ok(()));
        assert_eq!(admit_with(&b, 1).await, Err(StateError::Used.into()));
        store.fail(true);
        for replica in [&a, &b] {
            assert_eq!(admit_with(replica, 1).await, Err(StateError::Used.into()));
            assert_eq!(admit_with(replica, 2).await, Err(Failure::StoreUnavailable));
        }
        let alone = config(&[("s", "")]);
        let shared = SharedLimits {
            rates: UsedItems::in_tests(Arc::clone(&store) as _).rates(),
            items: UsedItems::in_tests(Arc::clone(&store) as _),
        };
        let registry = LimitRegistry::default().sharing(Some(shared));
        let policy = Policy::new(registry.limits(&alone));
        assert_eq!(admit_with(&policy, 3).await, Ok(()), "a call without consent needs no store");
    }

    fn ask(arguments: &str) -> Result<String, ConfirmationError> {
        let rules = ConfirmRules::compile(&config(&[("s", "confirm = true")])).unwrap();
        let params = format!(r#"{{"name":"s__t","arguments":{arguments}}}"#);
        let params = Params::parse(Some(params.into())).unwrap();
        let question = rules.question(&Call { params, ..call("t") })?;
        let params: serde_json::Value = serde_json::from_slice(&question.params.unwrap()).unwrap();
        Ok(params["message"].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_question_shows_the_arguments_without_secrets() {
        let asked = |arguments: &str| ask(arguments).unwrap();
        assert_eq!(asked("{}"), "Allow the call of the tool s__t without arguments");
        assert_eq!(
            asked(r#"{"path":"/tmp/x","api_key":"hunter2"}"#),
            "Allow the call of the tool s__t with these arguments: \
             {\"path\":\"/tmp/x\",\"api_key\":\"[redacted]\"}"
        );
        let long = asked(&json!({ "text": "x y".repeat(5000), "last": "z" }).to_string());
        assert!(long.len() < 3000 && long.ends_with(r#""last":"z"}"#), "{long}");
        let hidden = asked("{\"a\":\"x\u{202e}y\"}");
        assert!(!hidden.contains('\u{202e}') && hidden.contains("x⟨U+202E⟩y"), "{hidden}");
    }

    #[test]
    fn arguments_that_cannot_be_shown_are_not_asked_about() {
        let many: Vec<String> = (0..2000).map(|n| format!(r#""argument{n}":1"#)).collect();
        for (arguments, refusal) in [
            (r#"{"x":1e400}"#.to_owned(), ConfirmationError::UnreadableArguments),
            (r#"{"x":1,"x":2}"#.to_owned(), ConfirmationError::UnreadableArguments),
            (
                r#"{"x":{"a":[{"b":1,"\u0062":2}]}}"#.to_owned(),
                ConfirmationError::UnreadableArguments,
            ),
            (format!("{{{}}}", many.join(",")), ConfirmationError::TooManyArguments),
            (
                format!(r#"{{"x":[{}1]}}"#, "1,".repeat(200_000)),
                ConfirmationError::TooManyArguments,
            ),
        ] {
            let begin: String = arguments.chars().take(60).collect();
            assert_eq!(ask(&arguments), Err(refusal), "{begin}");
        }
    }
}
