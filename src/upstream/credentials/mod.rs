//! Credentials for servers: the gateway as an OAuth client.
//!
//! A server with `[servers.NAME.oauth]` has a [`ServerAuthorizer`]. It chooses the token for a
//! request, and reacts when the server refuses it: the token is renewed, or the owner of the grant
//! receives a link and has to log in. The response of the login arrives at the gateway's callback,
//! and [`GrantBook::finish_login`] turns it into a grant.
//!
//! The parts with decisions are pure, each in a file of its own: `challenge`, `metadata`,
//! `registration`, `scopes`, `authorization`, `parameters`, `members`, `provider_error`, `token`,
//! `pkce`, `assertion`, `dpop`. The parts with I/O are `discovery`, `login`, `exchange`,
//! `held_token`, `refusal`, `grant` and `book`. All of them reach other hosts only through
//! `outbound`. `identity` differs: it verifies the tokens of the gateway's own clients, which are
//! never forwarded.

mod assertion;
mod authorization;
mod authorizer;
mod book;
mod browser;
mod challenge;
mod client_keys;
mod connection;
mod discovery;
mod dpop;
mod endpoints;
mod exchange;
mod fault;
mod form_post;
mod grant;
mod held_token;
mod keeping;
mod login;
mod members;
mod metadata;
mod parameters;
mod pkce;
mod provider_error;
mod refusal;
mod registration;
mod revocation;
mod scopes;
mod stored;
mod terminal;
mod ticket;
mod token;

pub(super) use authorizer::ServerAuthorizer;
pub use authorizer::{LinkAudience, LoginDemand};
pub use book::GrantBook;
pub use browser::{BrowserBook, BrowserId, BrowserVisit, KnownBrowser, NewBrowser};
pub(super) use challenge::find_challenge;
pub use connection::{Connection, ConnectionState, RevocationOutcome};
pub(super) use discovery::{NO_DOCUMENT, find_auth_server, metadata_places};
pub(super) use dpop::DPOP;
pub use fault::LoginFault;
pub use grant::GrantOwner;
pub(super) use grant::OauthGrant;
pub(super) use metadata::{AuthServerMetadata, ExpectedIssuer, MetadataFault, PkceDemand};
pub use parameters::ParameterFault;
pub(super) use parameters::{OauthParameters, RESOURCE};
pub(super) use refusal::{AfterRefusal, MOST_TRIES, RequestRefusal};
pub use terminal::{TerminalLogin, begin_terminal_login};
pub use ticket::{BrowserAnswer, OfferedLogin, TicketOffer};
pub(super) use token::FORM;
