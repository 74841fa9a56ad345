//! Opens `gateway.toml` for commands that edit it. An edit is checked as `serve` would check the
//! file.

use std::path::Path;

use trunkline_import::{EditedFileError, GatewayFile, GatewayFileError};

use crate::cli::serve::settings;
use crate::cli::{CONFIG_FAULT, FAILURE_EXIT, FailureExit};

/// Opens the file; one that does not exist is empty.
///
/// # Errors
/// [`GatewayFileError`].
pub(crate) fn open_gateway_file(path: &Path) -> Result<GatewayFile, GatewayFileError> {
    GatewayFile::open(path, |config| {
        let loaded = settings::of(config).map(drop);
        loaded.map_err(|faults| faults.iter().map(ToString::to_string).collect())
    })
}

/// Returns the exit code of a command that has not edited the file.
pub(crate) fn gateway_file_exit(error: &GatewayFileError) -> FailureExit {
    match error {
        GatewayFileError::Syntax { .. }
        | GatewayFileError::Invalid { .. }
        | GatewayFileError::TooLarge { .. }
        | GatewayFileError::File(EditedFileError::NotUtf8 { .. } | EditedFileError::Read { .. }) => {
            CONFIG_FAULT
        }
        _ => FAILURE_EXIT,
    }
}
