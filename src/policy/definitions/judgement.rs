//! The judgement of one definition, and the comparison of a server's lists with its baseline.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::call::NativeName;
use crate::catalog::{
    ConfusableNames, DefinitionDigest, DefinitionKind, Kind, ListedDefinition, ScanFindings,
    ScanRule, ServerList,
};
use crate::config::{PinsChoice, ScanChoice};

use super::BaselineState;
use super::record::{BaselineChange, DefinitionKey, PinBasis, PinnedDefinition};
use super::screen::ScreenSettings;

/// Reasons to hold or report a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScreenReason {
    /// It differs from the accepted form.
    Changed,
    /// The server did not have it when it was first listed.
    Added,
    /// The server is not trusted, and the definition is not approved.
    Unapproved,
    /// The baseline cannot be used.
    NoBaseline,
    /// It is the first one, and the store of the replicas does not have it yet.
    Unrecorded,
    /// A scan has findings.
    Scan(ScanFindings),
    /// An operator has rejected it.
    Rejected,
}

impl fmt::Display for ScreenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("changed"),
            Self::Added => f.write_str("added"),
            Self::Unapproved => f.write_str("not approved"),
            Self::NoBaseline => f.write_str("the baseline cannot be used"),
            Self::Unrecorded => f.write_str("not recorded in the store of the replicas yet"),
            Self::Scan(findings) => fmt::Display::fmt(findings, f),
            Self::Rejected => f.write_str("rejected"),
        }
    }
}

/// A definition that is held or reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenedDefinition {
    /// Its kind.
    pub kind: DefinitionKind,
    /// Its native name.
    pub native: NativeName,
    /// The digest of its canonical form.
    pub digest: DefinitionDigest,
    /// True if clients do not see it.
    pub held: bool,
    /// True if an operator has rejected it: nothing has to be decided.
    pub rejected: bool,
    /// The reasons, at least one.
    pub reasons: Vec<ScreenReason>,
}

impl ScreenedDefinition {
    /// Returns true if it is held only until the store of the replicas has it.
    pub(super) fn is_unrecorded(&self) -> bool {
        self.reasons == [ScreenReason::Unrecorded]
    }
}

/// Judges a definition; `None` if there is nothing to report.
pub(super) fn judge(
    settings: ScreenSettings,
    baseline: &BaselineState,
    one: &ListedDefinition<'_>,
    is_confusable: bool,
) -> Option<ScreenedDefinition> {
    let reason = match settings.pins {
        PinsChoice::Off => None,
        PinsChoice::Warn | PinsChoice::Hold => compare_form(settings, baseline, one),
    };
    // A rejected form is held also where others are only reported.
    let rejected = is_rejected(baseline, one);
    let mut held = rejected || (reason.is_some() && settings.pins == PinsChoice::Hold);
    let mut reasons: Vec<_> = reason.into_iter().collect();
    if settings.scan != ScanChoice::Off && !is_approved(baseline, one) {
        let findings = scan_form(one, is_confusable);
        held |= settings.scan == ScanChoice::Hold && findings.is_grave();
        reasons.extend((!findings.rules().is_empty()).then_some(ScreenReason::Scan(findings)));
    }
    if reasons.is_empty() {
        reasons.extend(rejected.then_some(ScreenReason::Rejected));
    }
    if reasons.is_empty() {
        return None;
    }
    let (kind, native, digest) = (one.kind, one.native.clone(), one.digest());
    Some(ScreenedDefinition { kind, native, digest, held, rejected, reasons })
}

/// Returns true if an operator has rejected this form.
fn is_rejected(baseline: &BaselineState, one: &ListedDefinition<'_>) -> bool {
    let BaselineState::Known(record) = baseline else { return false };
    let known = record.find(one.kind, one.native.as_str());
    known.is_some_and(|known| known.find_rejected(one.digest()).is_some())
}

/// Returns the findings of a scan in a definition and, compared with those of other servers, in its
/// name.
fn scan_form(one: &ListedDefinition<'_>, is_confusable: bool) -> ScanFindings {
    let mut findings = one.findings().clone();
    if is_confusable {
        findings.add(ScanRule::ConfusableName);
    }
    findings
}

/// Returns true if an operator has approved this form; scans are skipped then.
fn is_approved(baseline: &BaselineState, one: &ListedDefinition<'_>) -> bool {
    let BaselineState::Known(record) = baseline else { return false };
    let known = record.find(one.kind, one.native.as_str());
    let form = known.and_then(|known| known.find_accepted(one.digest()));
    form.is_some_and(|form| form.basis == PinBasis::Approved)
}

/// Compares a definition with the baseline, and returns the reason against it.
fn compare_form(
    settings: ScreenSettings,
    baseline: &BaselineState,
    one: &ListedDefinition<'_>,
) -> Option<ScreenReason> {
    let BaselineState::Known(record) = baseline else { return Some(ScreenReason::NoBaseline) };
    let needs_approval = settings.pins == PinsChoice::Hold && !settings.is_trusted;
    let known = record.find(one.kind, one.native.as_str());
    let accepted = known.map(|known| (known, known.find_accepted(one.digest())));
    match accepted {
        Some((_, Some(form))) if form.basis == PinBasis::Approved || !needs_approval => None,
        Some((_, Some(_))) => Some(ScreenReason::Unapproved),
        Some((known, None)) if !known.accepted.is_empty() => Some(ScreenReason::Changed),
        _ if needs_approval => Some(ScreenReason::Unapproved),
        _ if is_first_sight(baseline, one.kind) => {
            // The acceptance of resources does not depend on the first list.
            let is_resource = one.kind == DefinitionKind::Listed(Kind::Resources);
            let awaits = settings.awaits_record && settings.pins == PinsChoice::Hold;
            (awaits && !is_resource).then_some(ScreenReason::Unrecorded)
        }
        _ => Some(ScreenReason::Added),
    }
}

/// Returns true if unknown definitions of this kind are accepted as they are: the first ones, and
/// resources, because servers list files and records as they come and go. A server's instructions
/// and description count as first ones only in its first list: later they are an addition.
fn is_first_sight(baseline: &BaselineState, kind: DefinitionKind) -> bool {
    let BaselineState::Known(record) = baseline else { return false };
    match kind {
        DefinitionKind::Listed(Kind::Resources) => true,
        DefinitionKind::Listed(_) => !record.has_kind(kind),
        DefinitionKind::Instructions | DefinitionKind::ServerInfo => record.is_empty(),
    }
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub(super) struct ComparedLists {
    /// Changes for the baseline.
    pub(super) changes: Vec<BaselineChange>,
    /// Definitions to report that were not reported before.
    pub(super) found: Vec<ScreenedDefinition>,
    /// The digests of all definitions.
    pub(super) listed: HashSet<DefinitionDigest>,
}

/// Settings of a comparison.
#[derive(Clone, Copy)]
pub(super) struct ListComparison<'a> {
    pub(super) settings: ScreenSettings,
    pub(super) confusable: &'a ConfusableNames,
    /// Adds the texts of definitions to the changes.
    pub(super) keeps_texts: bool,
}

/// Compares all lists of a server with its baseline. The first list is the main one, which makes
/// the baseline.
pub(super) fn compare_lists(
    comparison: ListComparison<'_>,
    baseline: &BaselineState,
    lists: &[Arc<ServerList>],
) -> ComparedLists {
    let ListComparison { settings, confusable, keeps_texts } = comparison;
    let mut compared = ComparedLists::default();
    let BaselineState::Known(record) = baseline else { return compared };
    let mut names = HashSet::new();
    for (position, list) in lists.iter().enumerate() {
        for one in list.definitions() {
            let digest = one.digest();
            if !names.insert((one.kind, one.native, digest)) {
                continue;
            }
            compared.listed.insert(digest);
            let known = record.find(one.kind, one.native.as_str());
            let key = || key_of(&one, keeps_texts);
            let is_main = position == 0 || one.kind == DefinitionKind::Listed(Kind::Resources);
            if settings.pins != PinsChoice::Off
                && !known.is_some_and(PinnedDefinition::has_forms)
                && is_main
                && is_first_sight(baseline, one.kind)
            {
                compared.changes.push(BaselineChange::Accept(key()));
            }
            let is_confusable = is_confusable(confusable, list, &one);
            let screened = judge(settings, baseline, &one, is_confusable);
            let is_held = screened.as_ref().is_some_and(|screened| screened.held);
            let is_known = known.is_some_and(|known| known.served);
            if !is_held && !is_known && one.kind.listed().is_some() {
                let name = one.native.to_string();
                compared.changes.push(BaselineChange::Serve(one.kind, name));
            }
            let Some(screened) = screened.filter(|one| !one.is_unrecorded()) else { continue };
            let is_pending = known.is_some_and(|known| {
                known.pending.iter().any(|form| form.sha256 == screened.digest)
            });
            if !is_pending {
                let reasons = screened.reasons.iter().map(ToString::to_string).collect();
                compared.changes.push(BaselineChange::Await(key(), reasons));
                compared.found.push(screened);
            }
        }
    }
    compared
}

/// Returns true if the name of an element looks like one of another server.
pub(super) fn is_confusable(
    confusable: &ConfusableNames,
    list: &ServerList,
    one: &ListedDefinition<'_>,
) -> bool {
    one.kind.listed().is_some_and(|kind| confusable.has(&list.server, kind, one.native))
}

fn key_of(one: &ListedDefinition<'_>, keeps_texts: bool) -> DefinitionKey {
    let definition = keeps_texts.then(|| {
        let canonical = one.canonical();
        serde_json::from_str(&canonical).unwrap_or(Value::String(canonical))
    });
    DefinitionKey { kind: one.kind, name: one.native.to_string(), sha256: one.digest(), definition }
}
