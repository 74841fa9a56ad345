//! `[admin]`: the admin listener, the private socket, and the roles of operators.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::network::{OperatorHostSetting, OriginSetting, is_reachable_by_others};
use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::macros::{choice, section};
use crate::reader::setting::TextSetting;
use crate::reader::values::numbers::CountSetting;

section! {
    /// The admin listener: the [admin API](api.md), `/healthz`, `/readyz`, `/status`, `/definitions`,
    /// `/tools`, `/metrics` and `POST /servers/NAME/refresh`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct AdminConfig {
        settings {
            /// Its address, different from `gateway.listen`.
            listen: Option<SocketAddr> = "127.0.0.1:8081",
            /// The hosts accepted in the `Host` header: names, addresses, blocks of addresses such
            /// as `10.0.0.0/8`, or `*` for any. Loopback names are always allowed, and `/healthz`
            /// and `/readyz` answer with a status code for any host.
            allowed_hosts: Vec<String> as Vec<OperatorHostSetting> = [],
            /// The origins of web pages that may read its pages. By default none, not even pages of
            /// this machine.
            allowed_origins: Vec<String> as Vec<OriginSetting> = [],
            /// Serves HTTPS, with the certificates and the client CAs of `gateway.tls`. Operators can
            /// then have client certificates, and probes use `https` too.
            tls: bool = false,
            /// The Unix socket for commands such as `trunkline status`: a path, `"auto"`, or `"off"`.
            /// Only the gateway's own user and root can connect to it. `"auto"` is a file in
            /// `$XDG_RUNTIME_DIR/trunkline/`, in `/run/trunkline/` for a service, or else in a folder
            /// of the user for temporary files, with a name made from the path of the configuration.
            /// Read at the start.
            socket: SocketPlace as SocketPlaceSetting = "auto",
            /// The recent calls that are kept in memory for operators (`trunkline logs --calls`), without
            /// arguments and results. With 0, calls are kept only while an operator looks at them.
            recent: usize as CountSetting<0, 10_000> = 0,
        }
    }
}

impl AdminConfig {
    /// Returns true if a web page with a name that is rebound to this machine can read the admin
    /// pages: they accept any host.
    pub fn is_rebindable(&self) -> bool {
        self.listen.is_some() && self.allowed_hosts.iter().any(|host| host == "*")
    }

    /// Returns true if other machines can reach the listener, and keys can be read on the way.
    pub fn is_reachable_without_tls(&self) -> bool {
        !self.tls && self.listen.is_some_and(is_reachable_by_others)
    }
}

choice! {
    /// The rights of an operator at the [admin API](api.md). Each role includes those before it.
    pub enum AdminRole {
        /// reads everything but login links
        "viewer" => Viewer,
        /// also acts on servers, sessions and logins: restarts, refreshes, disables, ends
        "operator" => Operator,
        /// also changes configuration and definitions
        "admin" => Admin,
    }
}

impl AdminRole {
    /// Returns true if the role includes the rights of another.
    pub fn includes(self, other: Self) -> bool {
        self as u8 >= other as u8
    }
}

/// The place of the private socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketPlace {
    /// A place made from the path of the configuration.
    Auto,
    /// Nowhere.
    Off,
    /// At this path.
    Path(PathBuf),
}

/// A path, `"auto"` or `"off"`.
pub(crate) struct SocketPlaceSetting;

impl TextSetting for SocketPlaceSetting {
    type Value = SocketPlace;
    const WORD: &'static str = "path";
    const EXAMPLE: &'static str = "\"/run/trunkline/gateway.sock\"";

    fn parse_text(
        text: &str,
        reader: &ConfigReader<'_>,
    ) -> Result<Option<SocketPlace>, SettingFault> {
        Ok(match text {
            "auto" => Some(SocketPlace::Auto),
            "off" => Some(SocketPlace::Off),
            path => PathBuf::parse_text(path, reader)?.map(SocketPlace::Path),
        })
    }
}
