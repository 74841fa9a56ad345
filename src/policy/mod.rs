//! Admission: rules, rates, concurrency and argument checks, in one fixed order, before a server
//! sees a call.
//!
//! [`Policy::admit`] shows the order. The proof that a call was admitted is a type: an upstream
//! accepts only a [`Permitted`] call, and only this module can make one. Replies
//! pass two parts of this module, which `pipeline` calls: `interceptors`, and for results of tools
//! `transforms`. `definitions` compares the definitions of servers with their baselines when a
//! snapshot is compiled. `identity` authenticates the caller, and `catalog` hides the elements that
//! the caller may not see.

mod admission;
mod authorization;
mod definitions;
mod interceptors;
mod limits;
mod quotas;
mod scopes;
mod target;
mod transforms;
mod unmatched;

pub(crate) use admission::MAX_ADMISSION_WAIT;
pub use admission::Policy;
pub use admission::confirmation::ConfirmRules;
pub use admission::dry_run::{DryRun, GateOutcome, GateVerdict};
pub use admission::passage::CallGate;
pub use admission::permit::Permitted;
pub use admission::registry::{LimitRegistry, PolicyLimits, ServerLimits, SharedLimits};
pub use authorization::{
    AccessDecision, AccessTarget, Authorization, CallerRights, DeniedPattern, ElementStanding,
    ExplainedRule, KnownElement, NamedRuleFault, RecordedDecision, RecordedElement, RequestBasis,
    RequestedElement, RuleMismatch, RuleRemark, RuleSetting, RulesExplanation, TrialCall,
    TrialElement, TrialOutcome, TrialResult, survey_denials, survey_rules,
};
pub use definitions::{
    BaselineError, BaselineFolder, BaselineRecord, BaselineStorage, DefinitionGuard,
    DefinitionNews, DefinitionScreen, PendingForm, PinBasis, PinDecision, PinnedDefinition,
    PinnedForm, ScreenReason, ScreenedDefinition, SharedBaselines, pins_of, scan_of,
};
pub use interceptors::{NoticeTreatment, ReplyInterceptors};
pub use limits::breaker::{Breaker, BreakerView};
pub use limits::gate::{Gate, GateSettings};
pub use limits::retry_budget::RetryBudget;
pub use limits::taking::LimitLevel;
pub use quotas::QuotaLedger;
pub use quotas::quota_file::{QuotaFile, QuotaFileError};
pub use scopes::{ScopeRules, ScopedCaller, ToolAddress};
pub use target::{CallTarget, Confirmation};
pub use transforms::{
    KeepWhole, KeptResource, WholeText, shape_result, shape_task, text_of, value_text,
};
pub use unmatched::{UnmatchedPattern, survey_patterns};
