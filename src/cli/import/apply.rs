//! The plan of an import is printed, or checked and written.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::cli::gateway_file::{GatewayFile, PendingFiles};
use crate::cli::replace_file::create_file;
use crate::text::escape_controls;

use super::ImportError;
use super::plan::{ImportPlan, SECRETS_FOLDER};

/// What would be added, as TOML.
pub(super) fn preview_plan(plan: &ImportPlan, config: &Path) -> String {
    let mut text = String::new();
    for note in &plan.notes {
        let _ = writeln!(text, "# {}", escape_controls(note));
    }
    for entry in &plan.entries {
        let _ = write!(text, "{}{}", if text.is_empty() { "" } else { "\n" }, entry.block);
    }
    if !plan.secrets.is_empty() {
        text.push_str(SECRET_FILES);
    }
    for secret in &plan.secrets {
        let _ = writeln!(text, "#   {}", secret.path);
    }
    if plan.entries.is_empty() {
        let _ = writeln!(text, "# nothing to add to {}", config.display());
    }
    text
}

const SECRET_FILES: &str =
    "\n# With --write, these files get the secrets; only their owner can read them:\n";

/// Checks and writes everything: secrets first, so that a gateway that watches the configuration
/// finds them.
pub(super) fn write_plan(
    plan: &ImportPlan,
    gateway: &mut GatewayFile,
    config: &Path,
) -> Result<String, ImportError> {
    let mut pending = PendingFiles::default();
    for secret in &plan.secrets {
        pending.insert(gateway.folder().join(&secret.path), secret.text.clone());
    }
    for entry in &plan.entries {
        if entry.inactive.is_some() {
            gateway.add_comment(&entry.block);
        } else {
            gateway.add_entry(entry.section, &entry.name, &format!("\n{}", entry.block))?;
        }
    }
    gateway.check(&pending)?;
    if !plan.entries.is_empty() {
        let folder = gateway.folder();
        let mut written = Vec::new();
        let done = write_secrets(plan, &folder, &mut written)
            .and_then(|()| gateway.write().map_err(ImportError::from));
        if done.is_err() {
            // Files that no configuration names would only be secrets left lying about.
            for path in written {
                let _ = fs::remove_file(path);
            }
        }
        done?;
    }
    Ok(report_written(plan, config))
}

/// Writes the files with secrets, and notes each that was written.
fn write_secrets(
    plan: &ImportPlan,
    folder: &Path,
    written: &mut Vec<PathBuf>,
) -> Result<(), ImportError> {
    if plan.secrets.is_empty() {
        return Ok(());
    }
    let secrets = folder.join(SECRETS_FOLDER);
    let created = DirBuilder::new().mode(0o700).recursive(true).create(&secrets);
    created.map_err(|source| ImportError::Secret { path: secrets, source })?;
    for secret in &plan.secrets {
        let path = folder.join(&secret.path);
        create_file(&path, secret.text.expose().as_bytes(), 0o600)
            .map_err(|source| ImportError::Secret { path: path.clone(), source })?;
        written.push(path);
    }
    Ok(())
}

fn report_written(plan: &ImportPlan, config: &Path) -> String {
    let mut text = String::new();
    for note in &plan.notes {
        let _ = writeln!(text, "{}", escape_controls(note));
    }
    let config = config.display();
    for entry in &plan.entries {
        let table = entry.section.key();
        let state = if entry.inactive.is_some() { ", as a comment that says why" } else { "" };
        let _ = writeln!(text, "{config}: added [{table}.{}]{state}", entry.name);
    }
    for secret in &plan.secrets {
        let _ = writeln!(text, "{}: written, for its owner only", secret.path);
    }
    if plan.entries.is_empty() {
        let _ = writeln!(text, "{config}: nothing to add");
    }
    text
}
