//! Lists for callers who may not use all tools: listed texts do not name the hidden ones.

use std::collections::HashSet;
use std::sync::Arc;

use trunkline_protocol::call::{Named, ServerName};

use super::hidden_names::HiddenNames;
use crate::elements::item::CatalogItem;
use crate::elements::tool::Tool;
use crate::elements::tool_bytes::ToolBytes;
use crate::kind::Kind;
use crate::lists::merge::{MergeSource, NameCandidate};

/// The tools of servers that a caller does not see. Each server's texts are searched for the names
/// of its own tools only: it does not know other servers' tools.
#[derive(Debug, Default)]
pub(crate) struct HiddenTools<'a>(Named<&'a ServerName, HiddenNames<'a>>);

impl<'a> HiddenTools<'a> {
    /// The tools that the servers list and that are not among those shown.
    pub(crate) fn collect(sources: &[MergeSource<'a>], shown: &[NameCandidate<'_, Tool>]) -> Self {
        let shown: HashSet<_> =
            shown.iter().map(|one| (one.server, one.item.native.as_str())).collect();
        let lists = sources.iter().filter_map(|source| Some((source.server, source.list?)));
        let hidden = lists.map(|(server, list)| {
            let names = list.tools.iter().map(|tool| tool.native.as_str());
            (server, names.filter(|native| !shown.contains(&(server, *native))).collect())
        });
        Self(hidden.collect())
    }

    /// Removes texts that name hidden tools from the listed form of these tools. Calls are still
    /// checked with the full definitions.
    pub(crate) fn leave_out_of_tools(&self, tools: &mut [NameCandidate<'_, Tool>]) {
        for one in tools {
            let edited = self.leave_out(Kind::Tools, one.server, one.item.shown());
            // It has lost texts only, so it parses like the whole.
            one.other_bytes = edited.and_then(|raw| ToolBytes::parse(raw).ok());
        }
    }

    /// An element of another kind without the texts that name hidden tools.
    pub(crate) fn leave_out_of_item(
        &self,
        kind: Kind,
        server: &ServerName,
        item: &mut Arc<CatalogItem>,
    ) {
        let edited = self.leave_out(kind, server, item.shown());
        if let Some(edited) = edited.and_then(|raw| CatalogItem::parse(kind, &raw).ok()) {
            *item = Arc::new(edited);
        }
    }

    fn leave_out(&self, kind: Kind, server: &ServerName, raw: &[u8]) -> Option<Vec<u8>> {
        self.0.get(server)?.leave_out_of_definition(kind, raw)
    }
}
