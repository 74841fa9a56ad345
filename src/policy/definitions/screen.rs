//! The one state that decides which definitions of a snapshot clients see.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use crate::call::ServerName;
use crate::catalog::{
    ConfusableNames, DefinitionKind, HeldDefinitions, HeldName, ListedDefinition, ServerList,
};
use crate::config::{Config, PinsChoice, ScanChoice, ServerConfig};

use super::judgement::{ScreenedDefinition, is_confusable, judge};
use super::{BaselineState, pins_of, scan_of};

/// The settings and baselines to screen one snapshot's definitions. Immutable.
#[derive(Debug, Default)]
pub struct DefinitionScreen {
    /// Servers with definitions that are compared or scanned.
    servers: HashMap<ServerName, ServerScreen>,
    /// Names that look like those of other servers.
    confusable: ConfusableNames,
}

/// Settings and baseline of one server.
#[derive(Debug)]
pub(super) struct ServerScreen {
    settings: ScreenSettings,
    baseline: Arc<BaselineState>,
}

/// Settings for a server's definitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScreenSettings {
    pub(super) is_trusted: bool,
    pub(super) pins: PinsChoice,
    pub(super) scan: ScanChoice,
    /// True if a definition at first sight is held until the store of the replicas has it: another
    /// replica may have accepted another form.
    pub(super) awaits_record: bool,
}

impl ScreenSettings {
    /// Returns true if definitions are neither compared nor scanned.
    pub(super) fn is_off(self) -> bool {
        self.pins == PinsChoice::Off && self.scan == ScanChoice::Off
    }
}

impl ServerScreen {
    pub(super) fn new(settings: ScreenSettings, baseline: Arc<BaselineState>) -> Self {
        Self { settings, baseline }
    }

    pub(super) fn settings_of(config: &Config, server: &ServerConfig) -> ScreenSettings {
        ScreenSettings {
            is_trusted: server.definitions.trusted,
            pins: pins_of(config, server),
            scan: scan_of(config, server),
            awaits_record: false,
        }
    }
}

impl DefinitionScreen {
    pub(super) fn new(
        servers: HashMap<ServerName, ServerScreen>,
        confusable: ConfusableNames,
    ) -> Self {
        Self { servers, confusable }
    }

    /// Returns the definitions in a server's list that clients do not see.
    pub fn held_in(&self, list: &ServerList) -> Arc<HeldDefinitions> {
        let Some(screen) = self.servers.get(&list.server) else { return Arc::default() };
        let judged = list.definitions().filter_map(|one| self.judge(screen, list, &one));
        let name_of = |one: &ScreenedDefinition| match &*screen.baseline {
            BaselineState::Known(record)
                if !record.was_served(one.kind, one.native.as_str()) && !one.is_unrecorded() =>
            {
                HeldName::Unclaimed
            }
            // If the baseline cannot be used, every element may have been served. One that is not
            // recorded yet is served in a moment.
            BaselineState::Known(_) | BaselineState::Unusable(_) => HeldName::Reserved,
        };
        let held = judged.filter(|one| one.held).filter_map(|one| {
            let name = name_of(&one);
            Some(((one.kind.listed()?, one.native), name))
        });
        let held: HeldDefinitions = held.collect();
        match screen.settings.pins {
            PinsChoice::Hold => Arc::new(held.holding_unapproved()),
            PinsChoice::Off | PinsChoice::Warn => Arc::new(held),
        }
    }

    /// Like [`Self::held_in`], for a server that has not listed yet.
    pub fn held_before_list(&self, server: &ServerName) -> Arc<HeldDefinitions> {
        let pins = self.servers.get(server).map(|screen| screen.settings.pins);
        match pins {
            Some(PinsChoice::Hold) => Arc::new(HeldDefinitions::default().holding_unapproved()),
            _ => Arc::default(),
        }
    }

    /// Returns true if clients do not see a server's instructions or description.
    pub fn holds_words(&self, list: &ServerList, kind: DefinitionKind) -> bool {
        let Some(screen) = self.servers.get(&list.server) else { return false };
        let words = list.offers.find_words(kind).map(ListedDefinition::of_server);
        words.and_then(|one| self.judge(screen, list, &one)).is_some_and(|found| found.held)
    }

    /// Returns the raw `serverInfo` that replaces the one in a server's results: its name in the
    /// configuration if its description of itself is held, and the accepted one if changes are
    /// held. `None` if results may have any.
    pub fn info_instead(&self, list: &ServerList) -> Option<Bytes> {
        let screen = self.servers.get(&list.server)?;
        if self.holds_words(list, DefinitionKind::ServerInfo) {
            let named = json!({ "name": list.server.as_str(), "version": "0" });
            return Some(named.to_string().into());
        }
        let words = list.offers.find_words(DefinitionKind::ServerInfo);
        words.filter(|_| screen.settings.pins == PinsChoice::Hold).map(|words| words.raw().clone())
    }

    /// Returns the definitions in a server's list that are held or reported.
    pub fn findings_in(&self, list: &ServerList) -> Vec<ScreenedDefinition> {
        let Some(screen) = self.servers.get(&list.server) else { return Vec::new() };
        let all = list.definitions();
        all.filter_map(|one| self.judge(screen, list, &one)).collect()
    }

    fn judge(
        &self,
        screen: &ServerScreen,
        list: &ServerList,
        one: &ListedDefinition<'_>,
    ) -> Option<ScreenedDefinition> {
        let is_confusable = is_confusable(&self.confusable, list, one);
        judge(screen.settings, &screen.baseline, one, is_confusable)
    }

    /// Returns the reason that a server's baseline cannot be used, if there is one.
    pub fn fault_of(&self, server: &ServerName) -> Option<&str> {
        match &*self.servers.get(server)?.baseline {
            BaselineState::Unusable(reason) => Some(reason),
            BaselineState::Known(_) => None,
        }
    }
}
