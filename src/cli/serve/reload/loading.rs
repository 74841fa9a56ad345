//! Reads a configuration, and the files that it names, without an effect.

use std::path::{Path, PathBuf};

use crate::cli::CommonArgs;
use crate::cli::serve::settings::Listeners;
use crate::cli::serve::{memory, settings};
use crate::config::{Config, ConfigFaults, ConfigSource, Environment, LateFault};

/// A loaded configuration, with the certificates that it names.
pub(super) struct LoadedFiles {
    pub(super) config: Config,
    pub(super) listeners: Listeners,
    pub(super) source: ConfigSource,
}

/// Faults of a rejected configuration, and the files that it names.
pub(super) struct RejectedFiles {
    pub(super) faults: Vec<String>,
    pub(super) files: Vec<PathBuf>,
    /// Digest of the file, if it could be read.
    pub(super) digest: Option<String>,
}

/// Reads the configuration file and the files that it names, and checks them together.
pub(super) fn load_files(
    common: &CommonArgs,
    environment: &dyn Environment,
) -> Result<LoadedFiles, RejectedFiles> {
    let path = &common.config.path;
    let source = ConfigSource::open(path).map_err(|error| RejectedFiles {
        faults: vec![format!("cannot read {}: {error}", path.display())],
        files: Vec::new(),
        digest: None,
    })?;
    load_source(source, common, environment)
}

/// Reads a text in place of the file.
pub(super) fn load_text(
    text: String,
    common: &CommonArgs,
    environment: &dyn Environment,
) -> Result<LoadedFiles, RejectedFiles> {
    load_source(source_of(&common.config.path, text), common, environment)
}

/// Returns a text as the content of a file.
pub(super) fn source_of(path: &Path, text: String) -> ConfigSource {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().map(Path::to_path_buf).unwrap_or_default();
    ConfigSource { name: path.display().to_string(), folder, bytes: text.into_bytes() }
}

fn load_source(
    source: ConfigSource,
    common: &CommonArgs,
    environment: &dyn Environment,
) -> Result<LoadedFiles, RejectedFiles> {
    let digest = Some(source.digest());
    let rejected = |faults| RejectedFiles { faults, files: Vec::new(), digest: digest.clone() };
    // A configuration without a setting is valid, but an empty file is usually one in the middle of
    // a write.
    if source.bytes.trim_ascii().is_empty() {
        let fault = format!("{}: the file is empty: expected a configuration", source.name);
        return Err(rejected(vec![fault]));
    }
    let mut config = Config::read(&source, environment).map_err(|faults| RejectedFiles {
        faults: faults.to_string().lines().map(str::to_owned).collect(),
        files: faults.files().to_vec(),
        digest: digest.clone(),
    })?;
    common.apply_overrides(&mut config).map_err(|problem| rejected(vec![problem]))?;
    memory::fit_control_group(&mut config);
    let listeners =
        settings::of(&config).map_err(|faults| rejected(located_lines(&source, faults)))?;
    Ok(LoadedFiles { config, listeners, source })
}

/// Returns faults with their lines, one each.
pub(super) fn located_lines(source: &ConfigSource, faults: Vec<LateFault>) -> Vec<String> {
    ConfigFaults::of_late(source, faults).to_string().lines().map(str::to_owned).collect()
}
