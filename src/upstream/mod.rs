//! The upstream side: the connections to servers and everything that they need.
//!
//! A [`Server`] is one configured server with its whole life cycle: started, probed for its era,
//! listed, called, lost, restarted, stopped. This is the life cycle of its main instance. If one
//! child or session cannot serve all clients, because their capabilities differ or because they
//! must be isolated ([`InstanceKey`]), the server has further instances. [`supervisor`] runs the
//! instances, and [`transport`] carries messages to them in both eras. [`lists`] reads their lists,
//! [`interaction`] handles their requests to clients during a call, and [`notifications`] their
//! messages outside responses. [`embedding_service`] calls the service that computes embeddings. The
//! tokens for requests come from the crate `oauth`. The modules above see none of this: they hand
//! over a permitted call and receive a reply.

mod embedding_service;
mod fault;
mod interaction;
mod issuer_fetch;
mod journal;
mod lists;
mod notifications;
mod owner;
mod peer;
mod quoted_output;
mod read_cache;
mod response_memory;
mod server;
mod supervisor;
mod transport;

pub use embedding_service::{EmbeddingFault, EmbeddingService};
pub use fault::{ChildExit, ExitCause, SetupFault, UpstreamError};
pub use interaction::parking;
pub use issuer_fetch::{follow_issuers, try_issuer_keys};
pub use journal::{FaultEntry, Journals, ServerJournal};
pub use lists::dependence::{DependenceVerdict, ListDependence};
pub use lists::store::{ListStore, StoreError, StoreSettings};
pub use notifications::{
    ClientNotice, Mailbox, NoticeSubject, QuestionableSession, SubscriptionGuard, SubscriptionHub,
    SubscriptionRefusal, Subscriptions, Topic,
};
pub use owner::{ClientDeclaration, InstanceKey, InstanceScope};
pub use peer::{ChangeCapabilities, Peer};
pub(crate) use quoted_output::hide_output;
pub use server::{ElementChanges, RefreshError, Server, ServerAccess};
pub use supervisor::lists::due_listing::DueListing;
pub use supervisor::lists::first_list::{FirstList, ListPatience};
pub use supervisor::restart;
pub use supervisor::shared::{ServerContext, StopGuard};
pub use supervisor::state::{FailedWait, InstanceView, LifeState, ServerOverview};
pub use transport::http::{SessionCell, is_session_lost};
pub use transport::openapi::{ApiSurvey, SurveyedTool, survey_api};

#[cfg(test)]
pub(crate) mod tests;
