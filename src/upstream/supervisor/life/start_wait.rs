//! Waits between the starts of an instance: their length, their announcement in the log, and the
//! events that end them early.

use std::time::Duration;

use http::StatusCode;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};

use crate::call::ServerName;
use crate::child::ChildSpec;
use crate::clock;
use crate::config::ServerKind;
use crate::http_client::outbound::shown_url;
use crate::upstream::UpstreamError;
use crate::upstream::journal::NewFault;
use crate::upstream::supervisor::restart::RestartDecision;
use crate::upstream::supervisor::state::{FailedWait, LifeState};

use super::{Life, enter};
use crate::child::SpawnError;
use crate::cluster::ServerLeaseFault;
use crate::oauth::LoginFault;

/// Wait of an instance before its next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartWait {
    /// For a login, or until its link has expired.
    Login,
    /// For this long, or until a client needs the server.
    Backoff(Duration),
    /// For this long, or until an operator has acted. Calls fail at once in the meantime.
    Failed(Duration, FailureReason),
}

/// Reason that further starts of a server are of little use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureReason {
    /// The program does not exist.
    MissingProgram,
    /// The server has refused the gateway's credentials.
    RefusedCredentials,
    /// The gateway cannot become a client of the authorization server.
    RefusedRegistration,
    /// The server failed too often.
    Restarts,
}

impl FailureReason {
    /// Returns the reason for a fault that no further attempt can mend.
    fn of(fault: &UpstreamError) -> Option<Self> {
        match fault {
            UpstreamError::Spawn(error) if matches!(**error, SpawnError::NotFound { .. }) => {
                Some(Self::MissingProgram)
            }
            UpstreamError::Status { status, note } if matches!(status.as_u16(), 401 | 403) => {
                // With `Retry-After`, the status is that of a rate limit.
                let is_limit = note.as_ref().is_some_and(|note| note.retry_after.is_some());
                (!is_limit).then_some(Self::RefusedCredentials)
            }
            UpstreamError::Login(fault) => match &**fault {
                LoginFault::Registration(fault) if fault.is_permanent() => {
                    Some(Self::RefusedRegistration)
                }
                fault if fault.is_refused_client() => Some(Self::RefusedCredentials),
                _ => None,
            },
            _ => None,
        }
    }

    /// Describes the events that end the wait.
    fn cure(self, server: &ServerName) -> String {
        let cure = match self {
            Self::MissingProgram => "install the program, or correct `command` and reload",
            Self::RefusedCredentials => "correct the server's credentials and reload, or log in",
            Self::RefusedRegistration => "set `client_id` and reload",
            Self::Restarts => "correct the server's configuration and reload",
        };
        format!("{cure}; `trunkline restart {server}` tries it at once")
    }
}

impl Life<'_> {
    /// Records a failure and waits before the next start.
    pub(super) async fn recover(&mut self, fault: &UpstreamError) {
        let instance = self.instance;
        let wait = self.plan_wait(fault);
        self.note_failure(fault, wait);
        if instance.is_main() {
            instance.shared().note_account(Some(fault));
        }
        if instance.owner().lists() && !instance.is_main() {
            instance.give_up_on_list();
        }
        match wait {
            StartWait::Login => self.await_login().await,
            StartWait::Backoff(wait) => {
                enter(instance, LifeState::Backoff { until: clock::now() + wait });
                self.back_off(wait).await;
            }
            StartWait::Failed(wait, reason) => self.stay_failed(wait, reason).await,
        }
    }

    /// Decides about the next start. Only the main instance stays failed for a fault that no further
    /// attempt can mend: the others exist for clients that use them. A server that was ready before
    /// has a second attempt: a proxy may answer for it while it restarts.
    fn plan_wait(&mut self, fault: &UpstreamError) -> StartWait {
        if matches!(fault, UpstreamError::LoginNeeded(_)) {
            return StartWait::Login;
        }
        if matches!(fault, UpstreamError::Replica(_)) {
            // The child itself has not failed.
            return StartWait::Backoff(PLACE_RETRY);
        }
        let (now, ready_since) = (clock::now().into_std(), self.ready_since);
        let is_main = self.instance.is_main();
        let reason = FailureReason::of(fault).filter(|_| is_main);
        let is_certain = !self.has_been_ready || self.last_reason == reason;
        self.last_reason = reason;
        if let Some(reason) = reason.filter(|_| is_certain) {
            return StartWait::Failed(self.restarts.after_permanent_failure(ready_since), reason);
        }
        match self.restarts.after_failure(ready_since, now, &mut self.dice) {
            RestartDecision::After(wait) => StartWait::Backoff(wait),
            RestartDecision::GiveUp => {
                StartWait::Failed(self.instance.config().restart_window, FailureReason::Restarts)
            }
        }
    }

    /// Records a failure in the history and in the log.
    fn note_failure(&mut self, fault: &UpstreamError, wait: StartWait) {
        let instance = self.instance;
        let text = self.record(fault);
        let (name, owner) = (instance.name(), self.further_owner());
        let (state, pause) = match wait {
            StartWait::Login => (LifeState::AwaitsLogin.as_str(), None),
            StartWait::Backoff(pause) => ("backoff", Some(pause)),
            StartWait::Failed(pause, _) => (LifeState::Failed.as_str(), Some(pause)),
        };
        let next_retry = pause.map(|pause| clock::wall_now() + pause);
        instance.shared().journal().note_fault(NewFault { state, owner, text: &text, next_retry });
        if let StartWait::Failed(wait, reason) = wait {
            let cure = reason.cure(name);
            let until = clock::now() + wait;
            instance.life().history().failed_wait = Some(FailedWait { until, cure: cure.clone() });
            if !instance.has_failed() {
                self.faults.clear();
                let prefix = match reason {
                    FailureReason::Restarts => "it failed too often: ",
                    _ => "",
                };
                let wait = show_wait(wait);
                // Counts from here on.
                let _ = self.faults.note(&text, clock::now());
                tracing::error!(server = %name, owner, "{prefix}{text}; next try in {wait}: {cure}");
                return;
            }
        }
        let Some(line) = self.faults.note(&text, clock::now()) else { return };
        match wait {
            StartWait::Login => tracing::warn!(server = %name, owner, "{line}"),
            StartWait::Backoff(wait) | StartWait::Failed(wait, _) => {
                let wait = show_wait(wait);
                tracing::warn!(server = %name, owner, "{line}; next try in {wait}");
            }
        }
    }

    /// Records that the child was ended with its lease.
    pub(crate) fn note_lost_lease(&mut self, fault: ServerLeaseFault) {
        self.note_failure(&fault.into(), StartWait::Backoff(PLACE_RETRY));
    }

    /// Records a fault of a server that stays ready.
    pub(super) fn note_fault(&mut self, fault: &UpstreamError) {
        let text = self.record(fault);
        let (state, owner) = (LifeState::Ready.as_str(), self.further_owner());
        let new = NewFault { state, owner, text: &text, next_retry: None };
        self.instance.shared().journal().note_fault(new);
        if let Some(line) = self.faults.note(&text, clock::now()) {
            let owner = self.further_owner();
            tracing::warn!(server = %self.instance.name(), owner, "{line}");
        }
    }

    /// Records a fault in the history, and returns its text.
    fn record(&self, fault: &UpstreamError) -> String {
        let secrets = &self.instance.config().secrets;
        let text = self.explain_missing_path(fault, fault.chain_without(secrets));
        let told = fault.without(secrets).public();
        let mut notes = self.instance.life().history();
        notes.told = Some(told);
        notes.last_error = Some((clock::wall_now(), text.clone()));
        text
    }

    /// Adds the URL to a 404, which is usually that of another path.
    fn explain_missing_path(&self, fault: &UpstreamError, text: String) -> String {
        let config = self.instance.config();
        match (fault, &config.target) {
            (UpstreamError::Status { status, .. }, ServerKind::Http(http))
                if *status == StatusCode::NOT_FOUND =>
            {
                let url = shown_url(&http.url);
                format!("{text}: {}", config.secrets.hide_in(&url))
            }
            _ => text,
        }
    }

    /// Waits until the owner of the instance's grant has logged in, or until the link to log in by
    /// has expired. The next start creates a new link.
    async fn await_login(&self) {
        let instance = self.instance;
        let authorizer = instance.shared().authorizer();
        let Some((authorizer, owner)) = authorizer.zip(instance.grant_owner()) else { return };
        let mut ended = authorizer.login_ends(&owner);
        if authorizer.has_grant(&owner) && authorizer.open_login(&owner).is_none() {
            return;
        }
        enter(instance, LifeState::AwaitsLogin);
        let _ = timeout(authorizer.login_time(), ended.changed()).await;
    }

    /// Waits before the next start. The wait ends early if a client calls the server or lists, but
    /// at most one start a second is made for clients.
    async fn back_off(&self, wait: Duration) {
        let needed = async {
            self.instance.demand().start_requested().await;
            sleep_until(self.tried_at + MIN_START_INTERVAL).await;
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = needed => {}
        }
    }

    /// Waits before the next start of a failed server. Afterwards the server is still marked as
    /// failed, unless an operator has ended the wait: then calls wait for the start.
    async fn stay_failed(&mut self, wait: Duration, reason: FailureReason) {
        let instance = self.instance;
        let login_ends = self.login_ends.take();
        if !instance.has_failed() {
            enter(instance, LifeState::Failed);
        }
        tokio::select! {
            () = sleep(wait) => return,
            () = instance.demand().retry_requested() => {}
            () = login_ended(login_ends) => {}
            () = self.program_appeared(), if reason == FailureReason::MissingProgram => {}
        }
        self.restarts.restore();
        enter(instance, LifeState::Connecting);
    }

    /// Begins to watch the logins of the owner of the instance's grant, before an attempt that uses
    /// the grant.
    pub(super) fn watch_logins(&mut self) {
        let instance = self.instance;
        let grant = instance.shared().authorizer().zip(instance.grant_owner());
        self.login_ends = grant.map(|(authorizer, owner)| authorizer.login_ends(&owner));
    }

    /// Waits until the program exists. Waits forever if it exists already: then the interpreter of
    /// a script is missing.
    async fn program_appeared(&self) {
        let config = self.instance.config();
        if let ServerKind::Command(command) = &config.target {
            let is_found = async || {
                let spec = ChildSpec::for_server(config, command);
                let found = self.instance.shared().files().run(move || spec.finds_program()).await;
                found.unwrap_or(false)
            };
            if !is_found().await {
                while !is_found().await {
                    sleep(PROGRAM_CHECK_INTERVAL).await;
                }
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

impl<'a> Life<'a> {
    /// Returns the owner of an instance other than the main one, for the log.
    fn further_owner(&self) -> Option<&'a str> {
        let instance = self.instance;
        (!instance.is_main()).then(|| instance.owner().whose.as_str())
    }
}

/// Waits until a login has ended since the attempt began.
async fn login_ended(ends: Option<watch::Receiver<u64>>) {
    if let Some(mut ends) = ends
        && ends.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Writes a wait for people: `30 s`, `2 min`. Waits below a second are rounded up.
fn show_wait(wait: Duration) -> String {
    let seconds = wait.as_secs_f64().ceil();
    if seconds < 120.0 {
        format!("{seconds} s")
    } else {
        format!("{} min", (seconds / 60.0).round())
    }
}

/// Time between two starts of a server in backoff that clients need.
const MIN_START_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two attempts to place a server whose child runs at one replica.
const PLACE_RETRY: Duration = Duration::from_secs(1);
/// Interval at which the gateway looks for a missing program.
const PROGRAM_CHECK_INTERVAL: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::call::StatusNote;

    #[test]
    fn only_faults_that_an_operator_has_to_mend_are_permanent() {
        let spawn = |error| UpstreamError::Spawn(Arc::new(error));
        let program = || "x".to_owned();
        let system = std::io::Error::other("out of processes");
        let login = |fault| UpstreamError::Login(Box::new(fault));
        let login_status =
            |status| login(LoginFault::Status { url: "https://idp.example/".to_owned(), status });
        let rate_limit = StatusNote { text: None, retry_after: Some("5".to_owned()) };
        for (fault, reason) in [
            (
                spawn(SpawnError::NotFound { program: program() }),
                Some(FailureReason::MissingProgram),
            ),
            (spawn(SpawnError::Denied { program: program() }), None),
            (spawn(SpawnError::Io { program: program(), source: system }), None),
            (
                UpstreamError::of_status(StatusCode::UNAUTHORIZED),
                Some(FailureReason::RefusedCredentials),
            ),
            (
                UpstreamError::of_status(StatusCode::FORBIDDEN),
                Some(FailureReason::RefusedCredentials),
            ),
            (
                UpstreamError::Status {
                    status: StatusCode::FORBIDDEN,
                    note: Some(Box::new(rate_limit)),
                },
                None,
            ),
            (UpstreamError::of_status(StatusCode::NOT_FOUND), None),
            (UpstreamError::of_status(StatusCode::TOO_MANY_REQUESTS), None),
            (UpstreamError::of_status(StatusCode::SERVICE_UNAVAILABLE), None),
            (UpstreamError::Login(Box::new(LoginFault::NoCallerToken)), None),
            (login_status(StatusCode::UNAUTHORIZED), Some(FailureReason::RefusedCredentials)),
            (login_status(StatusCode::FORBIDDEN), Some(FailureReason::RefusedCredentials)),
            (login_status(StatusCode::TOO_MANY_REQUESTS), None),
            (UpstreamError::NoAnswer, None),
        ] {
            assert_eq!(FailureReason::of(&fault), reason, "{fault:?}");
        }
    }

    #[test]
    fn a_wait_is_written_in_seconds_or_minutes() {
        for (millis, text) in
            [(1, "1 s"), (2_000, "2 s"), (29_100, "30 s"), (60_000, "60 s"), (120_000, "2 min")]
        {
            assert_eq!(show_wait(Duration::from_millis(millis)), text);
        }
    }
}
