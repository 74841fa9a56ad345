//! Forms of URIs and templates, without regard to servers: the normal form, its spellings, the URIs
//! that a template matches, and those within a result.
//!
//! `uris` differs: it decides about the public form of a server's resource.

pub(crate) mod barred;
pub(crate) mod climbing;
pub(crate) mod normal_form;
pub(crate) mod rewrite;
pub(crate) mod template;

pub(crate) use barred::BarredTemplate;
pub use normal_form::{UriSpellings, fold_authority, normal_form};
pub use rewrite::{ResultShape, hide_children, rewrite_uris};
pub use template::{BoundTemplate, UriTemplate};
