//! Use of the gateway: its activity, its clients and their sessions, and logins at servers.

pub(in crate::admin::api) mod activity;
pub(in crate::admin::api) mod clients;
pub(in crate::admin::api) mod logins;
