//! Programs with known configurations: the locations and the formats of their files.

pub(crate) mod claude_code;
pub(crate) mod codex;
pub(crate) mod goose;
pub mod opencode;
pub(crate) mod programs;
pub(crate) mod server_map;

use std::path::{Path, PathBuf};

use super::shapes::ConfigShape;
use crate::documents::references::ReferenceNotation;

/// A program with a configuration of MCP servers.
#[derive(Debug)]
pub struct KnownClient {
    /// Its id in `trunkline import` and `trunkline export`.
    pub id: &'static str,
    /// Its own name.
    pub title: &'static str,
    /// Its files; an export goes to the first one of the user.
    pub places: &'static [ClientPlace],
    pub(crate) shape: ConfigShape,
    pub(crate) references: ReferenceNotation,
}

/// Location of a file.
#[derive(Debug, Clone, Copy)]
pub enum ClientPlace {
    /// Below the user's home folder.
    Home(&'static str),
    /// Below `XDG_CONFIG_HOME`, by default `~/.config`.
    Config(&'static str),
    /// Below the folder in an environment variable.
    Variable(&'static str, &'static str),
    /// Below the current folder.
    Project(&'static str),
}

/// Folders that places are relative to.
#[derive(Debug, Clone)]
pub struct UserFolders {
    pub(crate) home: Option<PathBuf>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) project: PathBuf,
}

impl UserFolders {
    /// Returns the folders of this process: `HOME`, `XDG_CONFIG_HOME` and the current folder.
    pub fn from_environment() -> Self {
        let home = absolute_variable("HOME");
        let config = absolute_variable("XDG_CONFIG_HOME");
        let config = config.or_else(|| Some(home.as_ref()?.join(".config")));
        Self { home, config, project: std::env::current_dir().unwrap_or_default() }
    }
}

/// Returns the folder in an environment variable. A relative one is invalid (XDG Base Directory
/// Specification).
fn absolute_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

impl ClientPlace {
    /// Returns the path of the file.
    pub fn path(self, folders: &UserFolders) -> Option<PathBuf> {
        match self {
            Self::Home(path) => Some(folders.home.as_ref()?.join(path)),
            Self::Config(path) => Some(folders.config.as_ref()?.join(path)),
            Self::Variable(name, path) => Some(absolute_variable(name)?.join(path)),
            Self::Project(path) => Some(folders.project.join(path)),
        }
    }

    /// Returns the path below the folder.
    fn suffix(self) -> &'static str {
        match self {
            Self::Home(path)
            | Self::Config(path)
            | Self::Variable(_, path)
            | Self::Project(path) => path,
        }
    }

    /// Returns the folder of the project that a file belongs to. Relative paths in its
    /// configuration begin there.
    fn project_of(self, file: &Path) -> Option<PathBuf> {
        let Self::Project(path) = self else { return None };
        let depth = Path::new(path).components().count();
        file.ancestors().nth(depth).map(Path::to_path_buf)
    }
}

impl KnownClient {
    /// Returns the client with this id.
    pub fn by_id(id: &str) -> Option<&'static Self> {
        KNOWN_CLIENTS.iter().find(|client| client.id == id)
    }

    /// Returns the client that a file belongs to by its path.
    pub(crate) fn by_path(file: &Path) -> Option<&'static Self> {
        // Any program may have a path like the one below a variable's folder.
        let specific = |place: &ClientPlace| {
            !matches!(place, ClientPlace::Variable(..)) && file.ends_with(place.suffix())
        };
        KNOWN_CLIENTS.iter().find(|client| client.places.iter().any(specific))
    }

    /// Returns its files that exist.
    pub fn existing_files(&self, folders: &UserFolders) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = Vec::new();
        for path in self.places.iter().filter_map(|place| place.path(folders)) {
            if path.exists() && !files.contains(&path) {
                files.push(path);
            }
        }
        files
    }

    /// Returns the folder of the project that a file belongs to, if it is a project's.
    pub(crate) fn project_of(&self, file: &Path, folders: &UserFolders) -> Option<PathBuf> {
        let place = self.places.iter().find(|place| match place {
            ClientPlace::Project(path) => file.ends_with(path),
            other => other.path(folders).is_some_and(|path| path == file),
        })?;
        place.project_of(&std::path::absolute(file).ok()?)
    }

    /// Lists the ids of all clients.
    pub(crate) fn ids() -> String {
        join_ids(|_| true)
    }

    /// Lists the ids of the clients that an export can point at the gateway.
    pub fn export_ids() -> String {
        join_ids(Self::takes_exports)
    }

    /// Returns true for a client, and false for a system that only its operators configure.
    pub fn takes_exports(&self) -> bool {
        use ConfigShape::{ActionServers, Ava, OpenLegion, SignalWire};
        !matches!(self.shape, ActionServers | Ava | OpenLegion | SignalWire)
    }
}

fn join_ids(is_listed: impl Fn(&KnownClient) -> bool) -> String {
    let ids = KNOWN_CLIENTS.iter().filter(|client| is_listed(client)).map(|client| client.id);
    ids.collect::<Vec<_>>().join(", ")
}

use ClientPlace::{Config, Home, Project, Variable};

/// All known programs. Where two have the same form, the more specific path decides.
pub const KNOWN_CLIENTS: &[KnownClient] = &[
    KnownClient {
        id: "claude-desktop",
        title: "Claude Desktop",
        places: &[
            Config("Claude/claude_desktop_config.json"),
            Home("Library/Application Support/Claude/claude_desktop_config.json"),
        ],
        shape: ConfigShape::ServerMap("mcpServers"),
        references: ReferenceNotation::None,
    },
    KnownClient {
        id: "claude-code",
        title: "Claude Code",
        places: &[Home(".claude.json"), Project(".mcp.json")],
        shape: ConfigShape::ClaudeCode,
        references: ReferenceNotation::Braced,
    },
    KnownClient {
        id: "cursor",
        title: "Cursor",
        places: &[Home(".cursor/mcp.json"), Project(".cursor/mcp.json")],
        shape: ConfigShape::ServerMap("mcpServers"),
        references: ReferenceNotation::Prefixed,
    },
    KnownClient {
        id: "vscode",
        title: "VS Code",
        places: &[
            Config("Code/User/mcp.json"),
            Home("Library/Application Support/Code/User/mcp.json"),
            Project(".vscode/mcp.json"),
        ],
        shape: ConfigShape::VsCode,
        references: ReferenceNotation::Prefixed,
    },
    KnownClient {
        id: "windsurf",
        title: "Windsurf",
        places: &[Home(".codeium/windsurf/mcp_config.json")],
        shape: ConfigShape::ServerMap("mcpServers"),
        references: ReferenceNotation::Prefixed,
    },
    KnownClient {
        id: "codex",
        title: "Codex",
        places: &[
            Variable("CODEX_HOME", "config.toml"),
            Home(".codex/config.toml"),
            Project(".codex/config.toml"),
        ],
        shape: ConfigShape::Codex,
        references: ReferenceNotation::None,
    },
    KnownClient {
        id: "gemini",
        title: "Gemini CLI",
        places: &[Home(".gemini/settings.json"), Project(".gemini/settings.json")],
        shape: ConfigShape::Gemini,
        references: ReferenceNotation::Shell,
    },
    KnownClient {
        id: "zed",
        title: "Zed",
        places: &[Config("zed/settings.json"), Project(".zed/settings.json")],
        shape: ConfigShape::ServerMap("context_servers"),
        references: ReferenceNotation::None,
    },
    KnownClient {
        id: "opencode",
        title: "OpenCode",
        places: &[
            Config("opencode/opencode.json"),
            Config("opencode/opencode.jsonc"),
            // The longer path goes first, because both have the same ending.
            Project(".opencode/opencode.json"),
            Project("opencode.json"),
            Project("opencode.jsonc"),
        ],
        shape: ConfigShape::OpenCode,
        references: ReferenceNotation::Bare,
    },
    KnownClient {
        id: "goose",
        title: "Goose",
        places: &[Config("goose/config.yaml")],
        shape: ConfigShape::Goose,
        references: ReferenceNotation::Braced,
    },
    KnownClient {
        id: "cline",
        title: "Cline",
        places: &[
            Config(
                "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ),
            Home(
                "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ),
            Home(".cline/data/settings/cline_mcp_settings.json"),
        ],
        shape: ConfigShape::Cline,
        references: ReferenceNotation::Prefixed,
    },
    KnownClient {
        id: "lm-studio",
        title: "LM Studio",
        places: &[Home(".lmstudio/mcp.json")],
        shape: ConfigShape::ServerMap("mcpServers"),
        references: ReferenceNotation::None,
    },
    KnownClient {
        id: "signalwire",
        title: "SignalWire",
        places: &[],
        shape: ConfigShape::SignalWire,
        references: ReferenceNotation::Braced,
    },
    KnownClient {
        id: "ava",
        title: "AVA",
        places: &[Project("config/ai-agent.yaml")],
        shape: ConfigShape::Ava,
        references: ReferenceNotation::Braced,
    },
    KnownClient {
        id: "action-servers",
        title: "an agents framework with action servers",
        places: &[Project("action_servers.json")],
        shape: ConfigShape::ActionServers,
        references: ReferenceNotation::Braced,
    },
    KnownClient {
        id: "openlegion",
        title: "OpenLegion",
        places: &[Project("config/agents.yaml")],
        shape: ConfigShape::OpenLegion,
        references: ReferenceNotation::Braced,
    },
];
