//! Warns of profiles with tools that exceed their token `budget`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::call::ProfileName;
use crate::snapshot::{ProfileTokens, Snapshots};
use crate::text::{clip, escape_controls};

/// Counts the tokens of profiles at the start, and again whenever a list or the configuration
/// changes. Counts only while a profile has a budget.
pub(super) fn watch_budgets(snapshots: &Arc<Snapshots>) -> JoinHandle<()> {
    tokio::spawn(follow_changes(Arc::clone(snapshots)))
}

async fn follow_changes(snapshots: Arc<Snapshots>) {
    let (mut lists, mut loads) = (snapshots.changes(), snapshots.load_count());
    let mut told = HashMap::new();
    loop {
        if has_budgets(&snapshots) {
            // Wait for servers that have not listed yet, and for simultaneous changes.
            let _ = timeout(FIRST_LISTS_TIMEOUT, snapshots.settle()).await;
            sleep(LISTS_SETTLE_TIME).await;
            let snapshot = snapshots.load_full();
            // Fails only if counting panics, which is then in the log.
            if let Ok(report) = spawn_blocking(move || snapshot.report_tokens()).await {
                warn_of_new(&report.profiles, &mut told);
            }
        }
        let changed = tokio::select! {
            changed = lists.changed() => changed,
            changed = loads.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

fn has_budgets(snapshots: &Snapshots) -> bool {
    snapshots.load().config.profiles.iter().any(|profile| profile.budget.is_some())
}

/// Warns of the profiles without a warning so far, or with a different count.
fn warn_of_new(profiles: &[ProfileTokens], told: &mut HashMap<ProfileName, usize>) {
    for profile in profiles {
        let tokens = profile.listed_tokens();
        if !profile.is_over_budget() {
            told.remove(&profile.name);
        } else if told.insert(profile.name.clone(), tokens) != Some(tokens) {
            let dearest = profile.dearest(MAX_NAMED_TOOLS).into_iter();
            let dearest = dearest
                .map(|(name, tokens)| format!("{} {tokens}", escape_controls(clip(name, 128))));
            tracing::warn!(
                profile = profile.name.as_str(),
                tokens,
                budget = profile.budget,
                dearest = dearest.collect::<Vec<_>>().join(", "),
                "the tools that clients list take more tokens than the profile's budget: use \
                 discovery = \"search\", slim or fewer tools"
            );
        }
    }
}

/// Time for further lists that change together.
const LISTS_SETTLE_TIME: Duration = Duration::from_millis(300);
/// Time limit for servers that have not listed yet.
const FIRST_LISTS_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of tools in a warning, the most expensive first.
const MAX_NAMED_TOOLS: usize = 10;
