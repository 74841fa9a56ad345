//! Prints the plan of an import, or checks and writes it.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use trunkline_core::crypto::sha256;
use trunkline_core::text::escape_controls;

use crate::edited_file::{CreatedFile, WriteOutcome, create_file};
use crate::gateway_file::{GatewayFile, GatewayFileError, NewEntry, PendingFiles};

use super::ImportPlan;
use super::secret_files::SECRETS_FOLDER;
use crate::ImportError;

/// Returns the additions as TOML.
pub(crate) fn preview_plan(plan: &ImportPlan, gateway: &GatewayFile) -> String {
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
        let _ = writeln!(text, "# nothing to add to {}", gateway.label());
    }
    text
}

const SECRET_FILES: &str =
    "\n# With --write, these files get the secrets; only their owner can read them:\n";

/// Returns the command that writes the shown plan, or the reason that it would be refused.
pub(crate) fn offer_write(plan: &ImportPlan, gateway: &GatewayFile) -> String {
    if plan.entries.is_empty() {
        return String::new();
    }
    let file = gateway.label();
    let checked = gateway.check(&pending_files(plan, gateway));
    if let Err(error @ GatewayFileError::TooLarge { .. }) = &checked {
        return format!("\n# It cannot be written: {error}\n");
    }
    let Ok(warnings) = checked else {
        return format!(
            "\n# It cannot be written: the rest of {file} is not valid; run `trunkline check --config \
             {file}`\n"
        );
    };
    let mut text = String::from("\n");
    for warning in warnings {
        let _ = writeln!(text, "# warning: {}", escape_controls(&warning));
    }
    let hash = gateway.file().hash_change(&expected_text(plan, gateway));
    let _ = writeln!(text, "# To write exactly this, add: --write --expect {hash}");
    text
}

/// Returns the text that `--expect` covers: the configuration, and the secrets that move to files
/// beside it.
pub(crate) fn expected_text(plan: &ImportPlan, gateway: &GatewayFile) -> String {
    let mut text = gateway.text();
    for secret in &plan.secrets {
        let digest = HEXLOWER.encode(&sha256(secret.text.expose().as_bytes()));
        let _ = writeln!(text, "{} {digest}", secret.path);
    }
    text
}

fn pending_files(plan: &ImportPlan, gateway: &GatewayFile) -> PendingFiles {
    let mut pending = PendingFiles::default();
    for secret in &plan.secrets {
        pending.insert(gateway.folder().join(&secret.path), secret.text.clone());
    }
    pending
}

/// Edits the configuration by the plan, without writing it.
pub(crate) fn apply_plan(plan: &ImportPlan, gateway: &mut GatewayFile) -> Result<(), ImportError> {
    let (comments, entries): (Vec<_>, Vec<_>) =
        plan.entries.iter().partition(|entry| entry.inactive.is_some());
    let blocks: Vec<_> = entries.iter().map(|entry| format!("\n{}", entry.block)).collect();
    let added = entries.iter().zip(&blocks).map(|(entry, block)| NewEntry {
        section: entry.section,
        name: &entry.name,
        block,
    });
    gateway.add_entries(&added.collect::<Vec<_>>())?;
    let comments: Vec<_> = comments.iter().map(|entry| entry.block.trim_matches('\n')).collect();
    if !comments.is_empty() {
        gateway.add_comment(&comments.join("\n\n"));
    }
    Ok(())
}

/// Checks and writes the plan. Secrets go first, so that a gateway that watches the configuration
/// finds them.
pub(crate) fn write_plan(plan: &ImportPlan, gateway: &GatewayFile) -> Result<String, ImportError> {
    if plan.entries.is_empty() {
        return Ok(report_notes(plan) + &format!("{}: nothing to add\n", gateway.label()));
    }
    let warnings = gateway.check(&pending_files(plan, gateway))?;
    let mut written = Vec::new();
    let secrets = plan.secrets.iter();
    let created: Vec<_> = secrets
        .map(|secret| CreatedFile::new(&secret.path, secret.text.expose().as_bytes()))
        .collect();
    let done = write_secrets(plan, &gateway.folder(), &mut written)
        .and_then(|()| gateway.write(&created).map_err(ImportError::from));
    if done.is_err() {
        // Files without a reference in the configuration would only be forgotten secrets.
        for path in written {
            let _ = fs::remove_file(path);
        }
    }
    let mut text = report_written(plan, gateway, &done?);
    text.extend(warnings.iter().map(|warning| format!("warning: {warning}\n")));
    Ok(text)
}

/// Writes the files with secrets, and adds each to the list of written files.
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

fn report_notes(plan: &ImportPlan) -> String {
    plan.notes.iter().map(|note| escape_controls(note) + "\n").collect()
}

fn report_written(plan: &ImportPlan, gateway: &GatewayFile, file: &WriteOutcome) -> String {
    let mut text = report_notes(plan);
    let config = gateway.label();
    for entry in &plan.entries {
        let table = entry.section.key();
        let state = if entry.inactive.is_some() { ", as a comment with the reason" } else { "" };
        let _ = writeln!(text, "{config}: added [{table}.{}]{state}", entry.name);
    }
    for secret in &plan.secrets {
        let _ = writeln!(text, "{}: written, for its owner only", secret.path);
    }
    text + &gateway.describe_backup(file)
}
