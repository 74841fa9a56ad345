//! The state of one server, in sentences.

use std::fmt::Write as _;

use serde::Deserialize;

/// The part of a server's state that is printed.
#[derive(Debug, Deserialize)]
pub(super) struct ServerStateText {
    pub(super) name: String,
    state: String,
    tools: usize,
    in_flight: usize,
    last_error: Option<ServerErrorText>,
    cure: Option<String>,
    login: Option<String>,
    disabled: Option<ServerDisabledText>,
}

#[derive(Debug, Deserialize)]
struct ServerErrorText {
    message: String,
}

#[derive(Debug, Deserialize)]
struct ServerDisabledText {
    by: String,
    survives_restart: bool,
}

impl ServerStateText {
    /// Describes a server that has been started.
    ///
    /// # Errors
    /// The reason that it does not take calls.
    pub(super) fn describe_start(&self) -> Result<String, String> {
        let Self { name, tools, .. } = self;
        match self.state.as_str() {
            "ready" => Ok(format!("{name} is ready, with {tools} tools")),
            "idle" => Ok(format!("{name} is idle: its first call starts it")),
            "connecting" => Err(format!("{name} is still starting: see `trunkline status`")),
            "login" => {
                let link = self.login.as_ref().map(|link| format!(", or open {link}"));
                let link = link.unwrap_or_default();
                Err(format!("{name} requires a login: `trunkline login {name}`{link}"))
            }
            state => {
                let error = self.last_error.as_ref().map_or("", |error| error.message.as_str());
                let cure = self.cure.as_ref().map(|cure| format!("; {cure}")).unwrap_or_default();
                Err(format!("{name} is not ready ({state}): {error}{cure}"))
            }
        }
    }

    /// Describes a server that has been disabled.
    pub(super) fn describe_disabled(&self) -> String {
        let Self { name, in_flight, .. } = self;
        let by = self.disabled.as_ref().map_or("an operator", |it| it.by.as_str());
        let mut text = format!("{name} is disabled by {by}: clients do not see its tools");
        if *in_flight > 0 {
            let _ = write!(text, ", and {in_flight} call(s) in flight finish");
        }
        if self.disabled.as_ref().is_some_and(|it| !it.survives_restart) {
            text.push_str("; a restart of the gateway enables it (gateway.state_dir is not set)");
        }
        text
    }
}
