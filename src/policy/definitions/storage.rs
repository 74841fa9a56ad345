//! The place where decisions about definitions are recorded: the files of one gateway, or the store that
//! replicas share.

use tokio::task::spawn_blocking;

use crate::call::ServerName;
use crate::catalog::DefinitionKind;

use super::record::{BaselineRecord, PinDecision};
use super::{BaselineError, BaselineFolder, SharedBaselines};

/// The baselines in which operators decide.
#[derive(Debug, Clone)]
pub enum BaselineStorage {
    /// The files of a gateway that is alone.
    Files(BaselineFolder),
    /// The store of the replicas.
    Shared(SharedBaselines),
}

impl BaselineStorage {
    /// Reads the baseline of a server; an empty one if there is none.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub async fn read(&self, server: &ServerName) -> Result<BaselineRecord, BaselineError> {
        match self {
            Self::Files(folder) => {
                let (folder, server) = (folder.clone(), server.clone());
                in_background(move || folder.read(&server)).await
            }
            Self::Shared(shared) => Ok(shared.read(server).await?.record),
        }
    }

    /// Approves or rejects the pending forms of a server with these digests, in hexadecimal digits.
    /// Returns the kinds and names of the definitions, none if another replica has decided before.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub async fn decide(
        &self,
        decision: PinDecision,
        server: &ServerName,
        digests: Vec<String>,
    ) -> Result<Vec<(DefinitionKind, String)>, BaselineError> {
        match self {
            Self::Files(folder) => {
                let (folder, server) = (folder.clone(), server.clone());
                in_background(move || folder.decide(decision, &server, &digests)).await
            }
            Self::Shared(shared) => {
                let edit = |record: &mut BaselineRecord| record.decide(decision, &digests);
                shared.edit(server, edit).await.map(|(_, decided)| decided)
            }
        }
    }
}

/// Reads or writes files on a blocking thread.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BaselineError> + Send + 'static,
) -> Result<T, BaselineError> {
    spawn_blocking(work).await.map_err(|error| BaselineError::Interrupted(error.into()))?
}
