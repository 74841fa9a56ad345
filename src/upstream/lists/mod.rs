//! Lists of one server: one for the gateway itself, which has no client capabilities, and one for
//! each declaration of clients. A declaration consists of capabilities and, at a server that speaks
//! both eras, the era.
//!
//! A Modern server receives all list requests on its one connection. A Legacy server receives the
//! capabilities when a connection is opened, so each set needs its own instance for listing.

pub(super) mod dependence;
pub(super) mod listing;
mod offered;
pub(super) mod pace;
pub(super) mod store;

use tokio::time::Instant;

use crate::catalog::{ByKind, HeaderRules, SchemaExemption};
use crate::config::{ArgumentsChoice, ServerConfig};
use crate::mcp::Era;

pub(super) use offered::{ListFreshness, MAX_DECLARATIONS, MAX_LISTS_PER_CLIENT, OfferedLists};

/// Result of a list request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListingOutcome {
    pub(super) part: ListingPart,
    /// True if clients see other lists than before.
    pub(super) has_changed: bool,
}

/// End of a list request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FinishedListing {
    pub(super) begun: Instant,
    pub(super) has_succeeded: bool,
}

/// Completeness of a server's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListingPart {
    /// All of them.
    Whole,
    /// All except these, which a retry may return.
    Without(ByKind<bool>),
}

/// Returns the part of a tool's schema that the configuration makes unnecessary.
pub(crate) fn schema_exemption(config: &ServerConfig, native: &str) -> SchemaExemption {
    let own = config.tools.overrides.iter().find(|(name, _)| name.as_str() == native);
    let own = own.map(|(_, tool)| &tool.transforms);
    let choice = own.and_then(|own| own.arguments.choice).unwrap_or(config.arguments);
    if own.is_some_and(|own| own.input_schema.is_some()) {
        SchemaExemption::Replaced
    } else if choice == ArgumentsChoice::Off {
        SchemaExemption::Unchecked
    } else {
        SchemaExemption::None
    }
}

/// Returns the rules for mirrored parameters in a list from a server of this era. Modern clients
/// call tools of Modern servers through the gateway over HTTP, where the rules apply.
pub(crate) fn header_rules(era: Era) -> HeaderRules {
    match era {
        Era::Modern => HeaderRules::Enforce,
        Era::Legacy => HeaderRules::Ignore,
    }
}

/// All lists of a server.
pub(super) const EVERY_KIND: ByKind<bool> =
    ByKind { tools: true, prompts: true, resources: true, templates: true, skills: true };
