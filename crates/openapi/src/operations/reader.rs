//! State that the operations of a document share while they are read.

use url::Url;

use trunkline_config::OpenApiConfig;

use crate::schemas::conversion::{Direction, SchemaBook, SchemaDialect};
use crate::schemas::references::Node;
use crate::values::security::SecuritySchemes;

/// State that a document's operations share while they are read.
pub(crate) struct DocumentReader<'a> {
    pub(crate) config: &'a OpenApiConfig,
    pub(crate) base: &'a Url,
    pub(crate) schemes: SecuritySchemes<'a>,
    pub(crate) requests: SchemaBook<'a>,
    pub(crate) responses: SchemaBook<'a>,
}

impl<'a> DocumentReader<'a> {
    pub(crate) fn new(
        config: &'a OpenApiConfig,
        base: &'a Url,
        root: Node<'a>,
        dialect: SchemaDialect,
    ) -> Self {
        Self {
            config,
            base,
            schemes: SecuritySchemes::new(root, config),
            requests: SchemaBook::new(dialect, Direction::Request),
            responses: SchemaBook::new(dialect, Direction::Response),
        }
    }
}
