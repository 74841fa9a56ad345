//! Plain HTTP APIs of others: published documents, and servers that judge what the gateway sends.
//!
//! `tests/apis` holds both; its `setup.sh` installs them.

mod documents;
mod servers;

use std::path::{Path, PathBuf};

/// A file of `tests/apis`, which `setup.sh` installs or the repository has.
#[track_caller]
fn file(path: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apis").join(path);
    assert!(file.exists(), "{} is missing: run tests/apis/setup.sh", file.display());
    file
}
