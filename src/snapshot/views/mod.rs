//! Views: the catalog as clients with one key see it, their lists, and the cache of views.

pub(crate) mod departed_tools;
pub(crate) mod discovery;
pub(crate) mod known_clients;
pub(crate) mod listing;
pub(crate) mod view;
pub(crate) mod view_cache;
