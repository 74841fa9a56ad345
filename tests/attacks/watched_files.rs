//! Files named by the configuration that are replaced by endless ones: a named pipe, a device, a
//! file on a system that does not answer.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::json;
use trunkline::cli::CommonArgs;
use trunkline::codec::file::FileError;
use trunkline::config::{Environment, SystemEnvironment};
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::gateway::{Builder, key_digest};
use crate::support::{Gateway, within};

#[tokio::test]
async fn a_pipe_or_a_device_in_place_of_a_file_is_a_fault_and_blocks_nothing() {
    let gateway = with_clock().start().await;
    let traps = Traps::new();
    let file = |path: &Path| format!("[clients.a]\nkey = \"${{file:{}}}\"\n", path.display());
    let tls = |cert: &Path, key: &Path| format!("[gateway.tls]\ncert = {cert:?}\nkey = {key:?}\n");
    let pem = gateway.folder().join("pair.pem");
    std::fs::write(&pem, self_signed()).unwrap();
    for (path, kind) in [(&traps.pipe, "a named pipe"), (&traps.device, "a device")] {
        for lines in [file(path), tls(path, &pem), tls(&pem, path)] {
            let outcome = within(gateway.reload(with_clock().toml(&lines))).await;
            assert_eq!(outcome, ReloadOutcome::Rejected, "{lines}");
            assert_fault(&gateway, kind).await;
        }
        let config = CommonArgs::with_config(path.clone());
        let reloader = gateway.running.reloader(config, None);
        assert_eq!(within(reloader.reload()).await, ReloadOutcome::Rejected);
        assert_fault(&gateway, kind).await;
        assert_called(&gateway).await;
    }
}

#[tokio::test]
async fn a_pipe_in_place_of_root_certificates_fails_its_server_alone() {
    let traps = Traps::new();
    for path in [&traps.pipe, &traps.device] {
        let lines = format!("url = \"https://127.0.0.1:9/mcp\"\nca = {path:?}\n");
        let gateway = with_clock().server("trapped", lines);
        let gateway = gateway.start().await;
        let failed = |status: &serde_json::Value| !status["servers"][1]["last_error"].is_null();
        let status = gateway.wait_for(failed).await;
        let error = status["servers"][1]["last_error"]["message"].as_str().unwrap();
        assert!(error.contains("expected a regular file"), "{error}");
        assert_called(&gateway).await;
    }
}

#[tokio::test]
async fn a_reload_that_hangs_is_a_fault_and_the_next_one_waits_for_it() {
    let gateway = with_clock().start().await;
    let (release, hang) = mpsc::sync_channel::<()>(0);
    let environment = Arc::new(HangingFiles(Mutex::new(hang)));
    let path = gateway.folder().join("gateway.toml");
    std::fs::write(&path, with_clock().toml("[clients.a]\nkey = \"${file:key}\"\n").text())
        .unwrap();
    let reloader = gateway.running.reloader(CommonArgs::with_config(path), None);
    let reloader = reloader.with_environment(environment, Duration::from_millis(200));
    for _ in 0..2 {
        assert_eq!(within(reloader.reload()).await, ReloadOutcome::Rejected);
        assert_fault(&gateway, "takes longer than 200ms").await;
        assert_called(&gateway).await;
    }
    drop(release);
    let outcome = within(reloader.reload()).await;
    assert_eq!(outcome, ReloadOutcome::Applied, "{}", gateway.status().await["configuration"]);
}

/// Files that hang until the sender is dropped.
struct HangingFiles(Mutex<mpsc::Receiver<()>>);

impl Environment for HangingFiles {
    fn variable(&self, name: &str) -> Option<OsString> {
        SystemEnvironment.variable(name)
    }

    fn text(&self, _: &Path) -> Result<String, FileError> {
        let _ = self.0.lock().recv();
        Ok(key_digest("key"))
    }

    fn executable(&self) -> Option<PathBuf> {
        SystemEnvironment.executable()
    }
}

/// Paths that block readers forever or supply bytes forever.
struct Traps {
    _folder: tempfile::TempDir,
    pipe: PathBuf,
    device: PathBuf,
}

impl Traps {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, device] = ["pipe", "device"].map(|name| folder.path().join(name));
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        symlink("/dev/zero", &device).unwrap();
        Self { _folder: folder, pipe, device }
    }
}

async fn assert_fault(gateway: &Gateway, part: &str) {
    let status = gateway.status().await;
    let faults = status["configuration"]["last_reload"]["faults"].to_string();
    assert!(faults.contains(part), "{faults}");
}

async fn assert_called(gateway: &Gateway) {
    let said = gateway.modern().call("clock__now", json!({})).await;
    assert!(!said.is_error(), "{said:?}");
}

fn with_clock() -> Builder {
    Gateway::alone().example("clock")
}

/// Returns a certificate and its key.
fn self_signed() -> String {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    certificate.self_signed(&key).unwrap().pem() + &key.serialize_pem()
}
