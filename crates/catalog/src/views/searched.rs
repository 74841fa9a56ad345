//! The catalog's elements, as search sees them.

use std::sync::Arc;

use trunkline_search::{AnalysedElement, Analyser};

use trunkline_jsonrpc::{Members, text};
use trunkline_protocol::call::ServerName;

use crate::Catalog;
use crate::kind::Kind;

/// One element as search sees it.
pub struct SearchedElement<'a> {
    /// The analysis of its definition.
    pub element: Arc<AnalysedElement>,
    /// Its server; `None` for the gateway's own.
    pub server: Option<ServerName>,
    /// Its public name, if that is not made of its native one.
    pub renamed: Option<&'a str>,
}

impl Catalog {
    /// The elements of a kind, in the order of its list. The definition of a tool is analysed once
    /// for all catalogs that have it.
    pub fn searched_elements<'a>(
        &'a self,
        kind: Kind,
        analyser: &mut Analyser,
    ) -> Vec<SearchedElement<'a>> {
        let list = self.list(kind);
        if kind != Kind::Tools {
            let items = list.items().map(|raw| SearchedElement {
                server: self.server_of(kind, &raw),
                element: Arc::new(analyser.analyse(&raw)),
                renamed: None,
            });
            return items.collect();
        }
        let own = self.own.iter().map(|tool| (tool, None));
        let entries = self.entries.iter().map(|entry| (&entry.tool, Some(entry)));
        let tools = own.chain(entries).zip(list.items());
        let searched = tools.map(|((tool, entry), listed)| {
            let is_redescribed = entry.is_some_and(|entry| entry.is_redescribed);
            let element = if is_redescribed {
                Arc::new(analyser.analyse(&listed))
            } else {
                tool.analyse_words(analyser)
            };
            let public = entry.map(|entry| entry.public.as_str());
            let renamed = public.filter(|public| !public.ends_with(tool.native.as_str()));
            SearchedElement { element, server: entry.map(|entry| entry.server.clone()), renamed }
        });
        searched.collect()
    }

    /// The server of the element of a kind at a position of its list, which is `raw` there; `None`
    /// for the gateway's own elements.
    pub fn find_server(&self, kind: Kind, place: usize, raw: &[u8]) -> Option<ServerName> {
        if kind != Kind::Tools {
            return self.server_of(kind, raw);
        }
        let entry = self.entries.get(place.checked_sub(self.own.len())?)?;
        Some(entry.server.clone())
    }

    /// The server of a listed prompt, resource, template or skill.
    fn server_of(&self, kind: Kind, raw: &[u8]) -> Option<ServerName> {
        let key = text(Members::parse(raw).ok()?.find(kind.key())?)?;
        match kind {
            Kind::Prompts => self.prompts.get(&*key).map(|origin| origin.server.clone()),
            _ => self.uris.find_origin(&key).map(|origin| origin.server),
        }
    }
}
