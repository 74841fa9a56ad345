//! The four kinds of elements that servers list.

use serde::{Deserialize, Serialize};

use trunkline_protocol::mcp::Method;

use crate::schema::MAX_SCHEMA_DEPTH;

/// The kind of a list's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Resource templates.
    Templates,
    /// Skills (extension `io.modelcontextprotocol/skills`).
    Skills,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::Templates, Self::Skills];

    /// The kind that a request lists; `None` for other requests.
    pub fn listed_by(method: &Method) -> Option<Self> {
        match method {
            Method::ToolsList => Some(Self::Tools),
            Method::PromptsList => Some(Self::Prompts),
            Method::ResourcesList => Some(Self::Resources),
            Method::TemplatesList => Some(Self::Templates),
            Method::SkillsList => Some(Self::Skills),
            _ => None,
        }
    }

    /// The request that lists this kind.
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::TemplatesList,
            Self::Skills => Method::SkillsList,
        }
    }

    /// The member of a result that holds the list.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Skills => "skills",
        }
    }

    /// The capability that a server with such a list declares; `None` if that is an extension.
    pub fn capability(self) -> Option<&'static str> {
        match self {
            Self::Tools => Some("tools"),
            Self::Prompts => Some("prompts"),
            Self::Resources | Self::Templates => Some("resources"),
            Self::Skills => None,
        }
    }

    /// The field that identifies an element.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources | Self::Skills => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// The noun for one element.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "resource template",
            Self::Skills => "skill",
        }
    }
}

/// The kind of a definition, as pins and scans know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DefinitionKind {
    /// An element of a list.
    Listed(Kind),
    /// The server's instructions, which every model reads.
    Instructions,
    /// The server's name, title, description, version, icons and website.
    ServerInfo,
}

impl DefinitionKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Listed(Kind::Tools),
        Self::Listed(Kind::Prompts),
        Self::Listed(Kind::Resources),
        Self::Listed(Kind::Templates),
        Self::Listed(Kind::Skills),
        Self::Instructions,
        Self::ServerInfo,
    ];

    /// The kind of an element; `None` for a server's description of itself.
    #[inline]
    pub fn listed(self) -> Option<Kind> {
        match self {
            Self::Listed(kind) => Some(kind),
            Self::Instructions | Self::ServerInfo => None,
        }
    }

    /// The member of a result that holds it.
    #[inline]
    pub fn member(self) -> &'static str {
        match self {
            Self::Listed(kind) => kind.member(),
            Self::Instructions => "instructions",
            Self::ServerInfo => "serverInfo",
        }
    }

    /// The noun for one definition.
    #[inline]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Listed(kind) => kind.noun(),
            Self::Instructions | Self::ServerInfo => "server's own",
        }
    }
}

/// One value for each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByKind<T> {
    /// For tools.
    pub tools: T,
    /// For prompts.
    pub prompts: T,
    /// For resources.
    pub resources: T,
    /// For templates.
    pub templates: T,
    /// For skills.
    pub skills: T,
}

impl<T> ByKind<T> {
    /// Makes a value for each kind.
    pub fn from_fn(mut make: impl FnMut(Kind) -> T) -> Self {
        Self {
            tools: make(Kind::Tools),
            prompts: make(Kind::Prompts),
            resources: make(Kind::Resources),
            templates: make(Kind::Templates),
            skills: make(Kind::Skills),
        }
    }

    /// The value for a kind.
    pub fn get(&self, kind: Kind) -> &T {
        match kind {
            Kind::Tools => &self.tools,
            Kind::Prompts => &self.prompts,
            Kind::Resources => &self.resources,
            Kind::Templates => &self.templates,
            Kind::Skills => &self.skills,
        }
    }

    /// The value for a kind, mutable.
    pub fn get_mut(&mut self, kind: Kind) -> &mut T {
        match kind {
            Kind::Tools => &mut self.tools,
            Kind::Prompts => &mut self.prompts,
            Kind::Resources => &mut self.resources,
            Kind::Templates => &mut self.templates,
            Kind::Skills => &mut self.skills,
        }
    }
}

/// The deepest nesting of one element: a tool's schema, and two levels around it.
pub(crate) const MAX_ITEM_DEPTH: usize = MAX_SCHEMA_DEPTH + 2;
