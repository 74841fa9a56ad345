//! Seals people's consents to logins that the gateway passes on. Browsers store them, so that a
//! flood of them cannot fill a table of the gateway.

use std::time::Duration;

use crate::call::Failure;
use crate::era::state::{Digest, RequestState, StateBinding};
use crate::pipeline::Gateway;

/// A step of a consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsentStep {
    /// The page has asked the user; the form returns this seal.
    Asked,
    /// The user has agreed.
    Agreed,
}

impl ConsentStep {
    fn state(self) -> RequestState {
        match self {
            Self::Asked => RequestState::Confirm,
            Self::Agreed => RequestState::Confirmed,
        }
    }

    fn lasting(self) -> Duration {
        match self {
            Self::Asked => QUESTION_TIME,
            Self::Agreed => CONSENT_TIME,
        }
    }
}

/// The browser and the subject that a consent is bound to.
#[derive(Debug, Clone, Copy)]
pub struct ConsentBinding<'a> {
    /// The random name of the browser.
    pub browser: &'a str,
    /// The digest of the subject of the consent.
    pub subject: &'a Digest,
}

impl ConsentBinding<'_> {
    /// Returns the browser as a text that differs from every principal of a call.
    fn principal(&self) -> String {
        format!("browser {}", self.browser)
    }
}

impl Gateway {
    /// Seals a step of this browser for this subject.
    ///
    /// # Errors
    /// [`Failure::Internal`] if sealing fails.
    pub fn seal_consent(
        &self,
        step: ConsentStep,
        by: ConsentBinding<'_>,
    ) -> Result<String, Failure> {
        let bound = StateBinding { principal: &by.principal(), request: by.subject };
        self.inputs.seal_state(step.state(), bound, step.lasting())
    }

    /// Returns true if a text is the seal of this step, by this browser, for this subject, and has
    /// not expired.
    pub fn is_consent(&self, sealed: &str, step: ConsentStep, by: ConsentBinding<'_>) -> bool {
        let opened = self.inputs.open_state(sealed, &by.principal(), by.subject);
        opened.is_some_and(|opened| opened.state == step.state())
    }
}

/// Time limit to answer the page's question.
const QUESTION_TIME: Duration = Duration::from_mins(10);
/// The lifetime of a consent.
const CONSENT_TIME: Duration = Duration::from_hours(30 * 24);
