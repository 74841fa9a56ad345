//! Shares of limited resources between clients: memory, places, rates and table entries.
//!
//! A [`Holder`] is a client by its name, or the network of its address. A [`Share`] is its part of an
//! amount that all clients have together; a [`FairTable`] evicts by holder; [`Bucket`] and its relatives
//! bound rates, and a [`QuotaWindow`] is the time that a quota counts in; [`LargeWork`] gives each client one place for work whose cost it chooses. Refusals are
//! failures of the call. Nothing here knows a server, a rule or a connection.

#![warn(unreachable_pub)]

mod used_consents;
mod large_work;
mod holder_slots;
mod fair_table;
mod share;
mod rate;
mod bucket_store;
mod shared_store;
mod shared_permits;
mod quota_window;

pub use fair_table::{EntryLifetime, EntryOwner, FairTable, TableBounds};
pub use holder_slots::{HolderSlots, OwnSlots};
pub use large_work::{LargeWork, Patience};
pub use quota_window::QuotaWindow;
pub use rate::{AddressBuckets, Bucket, BucketLevel, KeyedBuckets, network};
pub use share::{Holder, Share, ShareBoundError, ShareBounds, SharedAmount};
pub use shared_permits::{
    LearnRefillTime, PermitSource, PermitTaking, PermitWait, SharedPermits, SharedRate,
};
pub use used_consents::{ConsentClaim, UsedConsents};
