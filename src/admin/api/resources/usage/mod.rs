//! Use of the gateway: its activity, its clients and their sessions, and logins at servers.

pub(crate) mod activity;
pub(crate) mod clients;
pub(crate) mod logins;
