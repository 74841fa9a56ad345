//! The faults of `[search.embeddings]`.

use crate::EmbeddingModelFault;

/// A fault of `[search.embeddings]`.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddingSettingsFault {
    /// The folder of the model cannot be used.
    #[cfg_attr(
        feature = "embedding-models",
        error("not a static embedding model: {}", trunkline_core::text::error_chain(.0))
    )]
    #[cfg_attr(not(feature = "embedding-models"), error(transparent))]
    Model(EmbeddingModelFault),
    /// Neither a model nor a service is configured.
    #[error("there is neither `model` nor `url`")]
    NoSource,
    /// Both are configured.
    #[error("there are both `model` and `url`")]
    TwoSources,
    /// A service without the name of a model.
    #[error("`model_name` is missing")]
    NoModelName,
    /// A setting of a service beside a model.
    #[error("this setting is only for embeddings with `url`")]
    OtherSource,
}

impl EmbeddingSettingsFault {
    /// Returns the correction, as an imperative.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            Self::Model(_) => EmbeddingModelFault::HELP,
            Self::NoSource => "add model = \"FOLDER\", or url = \"https://…/v1/embeddings\"",
            Self::TwoSources => "keep one of them",
            Self::NoModelName => {
                "add model_name = \"text-embedding-3-small\", or the name of the model at \
                     your service"
            }
            Self::OtherSource => "remove it, or use the service at `url` instead of `model`",
        }
    }
}
