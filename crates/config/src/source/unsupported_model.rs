//! The embedding model of a build without the feature `embedding-models`: none can be loaded.

use std::path::Path;
use std::sync::Arc;

use super::Environment;

/// A model in memory, which this build cannot have.
#[derive(Debug, PartialEq)]
pub enum UnsupportedModel {}

/// Reason why no folder is a usable model.
#[derive(Debug, thiserror::Error)]
#[error("this build cannot read embedding models")]
pub struct UnsupportedModelFault;

impl UnsupportedModelFault {
    /// The correction, as an imperative.
    pub(crate) const HELP: &str = "use the image, build with `cargo build --release --features \
                                   embedding-models`, or name a service with `url`";
}

impl UnsupportedModel {
    /// Rejects every folder.
    ///
    /// # Errors
    /// [`UnsupportedModelFault`].
    pub fn load(_: &Path, _: &dyn Environment) -> Result<Arc<Self>, UnsupportedModelFault> {
        Err(UnsupportedModelFault)
    }

    /// The numbers of a text's vector.
    pub fn embed(&self, _: &str) -> Vec<f32> {
        match *self {}
    }

    /// The number of dimensions of its vectors.
    pub fn dimensions(&self) -> usize {
        match *self {}
    }
}
