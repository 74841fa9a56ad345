//! Configuration text: any bytes are a configuration or a list of faults.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use trunkline::codec::file::FileError;
use trunkline::config::{Color, Config, ConfigSource, Environment};

/// Any text is read without a panic, and the same way each time. Faults name a line of the text,
/// and none quotes a substituted value.
pub fn config(data: &[u8]) {
    let source =
        ConfigSource { name: "fuzz.toml".into(), folder: "/fuzz".into(), bytes: data.to_vec() };
    let read = Config::read(&source, &SameSecret);
    match (read, Config::read(&source, &SameSecret)) {
        (Ok(config), Ok(again)) => assert_eq!(config, again),
        (Err(faults), Err(again)) => {
            assert!(!faults.list().is_empty(), "a configuration is refused for a reason");
            assert_eq!(faults.to_string(), again.to_string());
            let lines = data.split(|byte| *byte == b'\n').count();
            assert!(faults.list().iter().all(|fault| fault.line <= lines), "{faults}");
            let written = faults.render(Color::Never);
            let quotes = data.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(quotes || !written.contains(SECRET), "a fault quotes a secret:\n{written}");
        }
        _ => panic!("the same text is a configuration at one time only"),
    }
}

/// An environment with the same secret in every variable and every file.
struct SameSecret;

impl Environment for SameSecret {
    fn variable(&self, name: &str) -> Option<OsString> {
        (name != "UNSET").then(|| SECRET.into())
    }

    fn text(&self, path: &Path) -> Result<String, FileError> {
        let known = path.starts_with("/fuzz");
        if known { Ok(SECRET.into()) } else { Err(FileError::NotText) }
    }

    fn model_file(&self, _: &Path, _: usize) -> Result<Vec<u8>, FileError> {
        Err(FileError::NotText)
    }

    fn executable(&self) -> Option<PathBuf> {
        Some("/bin/trunkline".into())
    }
}

const SECRET: &str = "s3cret-of-the-environment";
