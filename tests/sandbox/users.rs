//! Separate users for the children of a gateway that runs as root.

use std::path::Path;

use trunkline::child::{ChildSpec, probe_sandbox};
use trunkline::config::{Config, ConfigSource, ServerKind, SystemEnvironment};

use crate::{TRUNKLINE, run};

/// Returns Python as a server of this name, with a home in `folder`.
fn server(name: &str, range: &str, folder: &Path, code: &str) -> ChildSpec {
    let text = format!(
        "[gateway]\nsandbox_uids = \"{range}\"\nsandbox_dir = {folder:?}\n\
         [servers.{name}]\ncommand = \"/usr/bin/python3\"\nsandbox = true\n"
    );
    let source =
        ConfigSource { name: "gateway.toml".into(), folder: "/".into(), bytes: text.into_bytes() };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let ServerKind::Command(command) = &config.servers[0].target else { panic!("a command") };
    let spec = ChildSpec::for_server(&config.servers[0], command);
    ChildSpec { args: vec!["-c".into(), code.into()], ..spec }
}

/// Returns a folder that other users can traverse.
fn shared_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

const RANGE: &str = "64200-64299";
const WHO: &str = "import os\n\
    print(os.getuid(), os.getgid(), os.getgroups(), os.environ['HOME'], os.environ['XDG_CACHE_HOME'])";

#[tokio::test]
async fn each_server_has_a_user_and_a_home_of_its_own_at_every_start() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = shared_folder();
    let homes = folder.path().join("homes");
    let mut seen = Vec::new();
    for name in ["one", "two", "one", "two"] {
        let (printed, _, words) = run(&server(name, RANGE, &homes, WHO)).await;
        let user: u32 = printed.split(' ').next().unwrap().parse().unwrap_or_default();
        assert!((64200..=64299).contains(&user), "{printed} {words}");
        let home = homes.join(name).display().to_string();
        assert_eq!(printed, format!("{user} {user} [] {home} {home}/.cache"));
        seen.push(user);
    }
    assert_eq!(seen[..2], seen[2..]);
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_home_keeps_files_and_no_other_server_reads_them() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = shared_folder();
    let homes = folder.path().join("homes");
    let write = "import os, shutil\n\
        path = os.environ['HOME'] + '/program'\n\
        shutil.copy('/bin/echo', path); os.chmod(path, 0o700)\nprint('written')";
    assert_eq!(run(&server("one", RANGE, &homes, write)).await.0, "written");
    let again = "import os, sys\nos.execv(os.environ['HOME'] + '/program', ['echo', 'ran'])";
    assert_eq!(run(&server("one", RANGE, &homes, again)).await.0, "ran");
    let file = homes.join("one/program").display().to_string();
    for attempt in ["open(f).read()", "os.chmod(f, 0o777)", "os.rename(f, f + '2')"] {
        let code = format!(
            "import os\nf = {file:?}\ntry:\n    {attempt}\n    print('done')\n\
             except OSError as e:\n    print(type(e).__name__)"
        );
        let (printed, ..) = run(&server("two", RANGE, &homes, &code)).await;
        assert_eq!(printed, "PermissionError", "{attempt}");
    }
}

#[tokio::test]
async fn a_server_without_a_number_does_not_start() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = shared_folder();
    let homes = folder.path().join("homes");
    assert!(run(&server("one", "64200-64200", &homes, WHO)).await.0.starts_with("64200 64200"));
    for (name, range, fault) in
        [("two", "64200-64200", "no user id left"), ("one", "64300-64399", "belongs to user 64200")]
    {
        let spec = server(name, range, &homes, WHO);
        let found = probe_sandbox(&spec, Path::new(TRUNKLINE)).unwrap_err();
        assert!(found.contains(fault), "{found}");
    }
}
