//! Result of the comparison of lists between clients: see `supervisor::lists::dependence`.

/// Dependence of a server's lists on the capabilities and the era of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListDependence {
    /// The lists have not been compared.
    #[default]
    Unknown,
    /// All clients have the same lists.
    Independent,
    /// Clients may have other lists, or the comparison failed.
    Dependent,
}

/// Result of the comparison, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DependenceVerdict {
    /// The result.
    pub found: ListDependence,
    /// Time of the comparison, in seconds since 1970.
    pub since: Option<u64>,
}
