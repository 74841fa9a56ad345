//! Foreign plain HTTP APIs: published documents, and servers that check the gateway's requests.
//!
//! `tests/apis` holds both; its `setup.sh` installs them.

mod documents;
mod servers;

use std::path::{Path, PathBuf};

/// Returns a file of `tests/apis`, installed by `setup.sh` or part of the repository.
#[track_caller]
fn file(path: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apis").join(path);
    assert!(file.exists(), "{} is missing: run tests/apis/setup.sh", file.display());
    file
}
