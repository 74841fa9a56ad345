//! Detection of lists that have changed since a client last saw them.

use crate::mcp::notification;
use crate::snapshot::Digests;

/// Lists with changes that a client wants to be notified of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WantedLists {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
}

impl WantedLists {
    /// All lists, for Legacy clients.
    pub(crate) const ALL: Self = Self { tools: true, prompts: true, resources: true };
}

/// The lists as last announced on one stream.
#[derive(Debug)]
pub(crate) struct ListChanges {
    wanted: WantedLists,
    told: Digests,
}

impl ListChanges {
    /// Starts from the lists that the client knows, by their digests.
    pub(crate) fn since(told: Digests, wanted: WantedLists) -> Self {
        Self { wanted, told }
    }

    /// Returns the notifications that are due now.
    pub(crate) fn to(&mut self, now: Digests) -> impl Iterator<Item = &'static str> + use<> {
        let before = std::mem::replace(&mut self.told, now);
        let wanted = self.wanted;
        [
            (wanted.tools && before.tools != now.tools, notification::TOOLS_CHANGED),
            (wanted.prompts && before.prompts != now.prompts, notification::PROMPTS_CHANGED),
            (
                wanted.resources && before.resources != now.resources,
                notification::RESOURCES_CHANGED,
            ),
        ]
        .into_iter()
        .filter_map(|(changed, method)| changed.then_some(method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wanted_changes_are_reported_and_only_once() {
        let old = Digests { tools: [0; 32], prompts: [0; 32], resources: [[0; 32]; 2] };
        let new = Digests { tools: [1; 32], prompts: [1; 32], resources: [[0; 32], [1; 32]] };
        let told = |changes: &mut ListChanges, now| changes.to(now).collect::<Vec<_>>();
        let mut all = ListChanges::since(old, WantedLists::ALL);
        assert_eq!(told(&mut all, new).len(), 3);
        assert!(told(&mut all, new).is_empty());
        let mut some = ListChanges::since(old, WantedLists { tools: false, ..WantedLists::ALL });
        let both = [notification::PROMPTS_CHANGED, notification::RESOURCES_CHANGED];
        assert_eq!(told(&mut some, new), both);
        assert_eq!(told(&mut some, old), both, "back again is another change");
    }
}
