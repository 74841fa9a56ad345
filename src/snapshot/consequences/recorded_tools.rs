//! The tools of recorded calls, found by their public names.
//!
//! The record of a call that was refused by its name, because a rule or a setting hides the tool or
//! nothing has the name, contains neither the server nor the server's own name for the tool.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::call::{NativeName, ServerName};
use crate::catalog::Naming;
use crate::snapshot::views::view_cache::{ViewLimits, profile};
use crate::snapshot::{Snapshot, SnapshotServer, View};

/// A tool of a recorded call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedTool {
    /// A tool of the gateway itself.
    Own,
    /// A tool of a server.
    OfServer {
        /// The server.
        server: ServerName,
        /// The server's own name for the tool.
        native: NativeName,
    },
}

/// Finds tools by the public names that calls requested.
pub trait RecordedToolNames {
    /// Returns the tool that a name means in a profile; `None` if no server has it.
    fn find(&self, profile: &str, public: &str) -> Option<RecordedTool>;
}

/// The tools of the running servers: as the profile shows them without rules, or else as the servers
/// list them, with those that a setting hides.
pub(super) struct RunningTools<'a> {
    snapshot: &'a Snapshot,
    naming: Naming,
    /// Views of profiles without rules.
    views: RefCell<HashMap<String, Rc<View>>>,
}

impl<'a> RunningTools<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let naming = Naming::new(&snapshot.config.gateway);
        Self { snapshot, naming, views: RefCell::default() }
    }

    fn view_of(&self, name: &str) -> Rc<View> {
        if let Some(view) = self.views.borrow().get(name) {
            return Rc::clone(view);
        }
        let config = &self.snapshot.config;
        let limits = ViewLimits { profile: profile(config, name), ..ViewLimits::default() };
        let view = Rc::new(self.snapshot.hypothetical_view(config, limits));
        // Callers may have requested any number of profiles that do not exist.
        if limits.profile.is_some() {
            self.views.borrow_mut().insert(name.to_owned(), Rc::clone(&view));
        }
        view
    }

    fn find_listed(&self, public: &str) -> Option<RecordedTool> {
        self.snapshot.servers().find_map(|member| {
            let native = member.native_name(&self.naming, public)?;
            let server = member.config.name.clone();
            member.lists_tool(&native).then_some(RecordedTool::OfServer { server, native })
        })
    }
}

impl RecordedToolNames for RunningTools<'_> {
    fn find(&self, profile: &str, public: &str) -> Option<RecordedTool> {
        let of_profile = self.view_of(profile);
        let views = [&*of_profile, &*self.snapshot.plain];
        let shown = views.into_iter().find_map(|view| view.catalog.find_tool(public));
        let shown = shown.map(|entry| RecordedTool::OfServer {
            server: entry.server.clone(),
            native: entry.native().clone(),
        });
        shown.or_else(|| self.find_listed(public))
    }
}

impl SnapshotServer {
    /// Returns the native name that a public name means at the server, if it can be one of its names.
    pub fn native_name(&self, naming: &Naming, public: &str) -> Option<NativeName> {
        let mut overrides = self.config.tools.overrides.iter();
        let renamed = overrides
            .find(|(_, tool)| tool.name.as_ref().is_some_and(|name| name.as_str() == public));
        if let Some((native, _)) = renamed {
            return Some(native.clone());
        }
        if let Some(prefix) = naming.prefix_of(&self.config.name) {
            return public.strip_prefix(&*prefix).map(NativeName::new);
        }
        let list = self.server.list()?;
        let tool = list.tools.iter().find(|tool| tool.native.as_str() == public)?;
        Some(tool.native.clone())
    }

    /// Returns true if one of the server's lists has a tool, also one that is hidden or held.
    fn lists_tool(&self, native: &NativeName) -> bool {
        let lists = self.server.known_lists();
        lists.iter().any(|list| list.tools.iter().any(|tool| tool.native == *native))
    }
}
