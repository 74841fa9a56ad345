//! The forms of the lists that one client reads: the tools of the gateway itself, shorter elements,
//! texts without hidden names, and the elements as search sees them.

pub(crate) mod hidden_names;
pub(crate) mod hidden_tools;
pub(crate) mod identities;
pub(crate) mod meta_tools;
pub(crate) mod own_tools;
pub(crate) mod searched;
pub(crate) mod slim;
