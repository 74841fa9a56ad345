//! Temporary files: their size is limited, and none remains after a gateway was killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::waiting::until_blocking;
use crate::{TRUNKLINE, python, run, sandbox};

#[tokio::test]
async fn a_child_with_too_large_temporary_files_is_ended() {
    let fill = "import os, time\n\
                folder = os.environ['TMPDIR']\n\
                data = bytes(1 << 20)\n";
    for code in [
        "[open(f'{folder}/{n}', 'wb').write(data) for n in range(9)]",
        // Many empty files.
        "[open(f'{folder}/{n}', 'wb').close() for n in range(2000)]",
        // Deleted, and still open.
        "f = open(folder + '/x', 'wb'); os.unlink(folder + '/x'); \
         [f.write(data) for n in range(9)]; f.flush()",
        // By another process, which has left the group.
        "os.fork() or (os.setsid(), [open(f'{folder}/{n}', 'wb').write(data) for n in range(9)])",
    ] {
        let code = format!("{fill}{code}\ntime.sleep(600)");
        let spec = python(&code, Some(sandbox("{ tmp_size = \"4MiB\" }")));
        let (_, status, words) = run(&spec).await;
        assert_eq!(status, Some(137), "{code} {words}");
        assert!(words.contains("its temporary files take more than 4194304 bytes"), "{words}");
    }
    let small = format!("{fill}[open(f'{{folder}}/{{n}}', 'wb').write(data) for n in range(2)]");
    // Each check opens the folder (`IN_OPEN`).
    let checks = "import ctypes\n\
                  libc = ctypes.CDLL(None)\n\
                  watch = libc.inotify_init1(0)\n\
                  assert libc.inotify_add_watch(watch, folder.encode(), 0x20) > 0\n\
                  for _ in range(3): assert os.read(watch, 4096)";
    let code = format!("{small}\n{checks}");
    let spec = python(&code, Some(sandbox("{ tmp_size = \"4MiB\" }")));
    assert_eq!(run(&spec).await.1, Some(0));
}

/// A gateway with a child that writes a temporary file.
struct KilledGateway {
    process: Child,
    folder: PathBuf,
}

impl KilledGateway {
    fn start(place: &Path) -> Self {
        let code = "import os, time\nopen(os.environ['TMPDIR'] + '/file', 'w').write('x')\n\
                    open(os.environ['NOTE'], 'w').write(os.environ['TMPDIR'])\ntime.sleep(600)\n";
        let (program, note) = (place.join("program/server.py"), place.join("notes/note"));
        let _before = std::fs::remove_file(&note);
        for file in [&program, &note] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        std::fs::write(&program, code).unwrap();
        let config = place.join("gateway.toml");
        let text = format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [servers.s]\ncommand = \"/usr/bin/python3\"\nargs = [{program:?}]\n\
             env = {{ NOTE = {note:?} }}\n\
             sandbox = {{ read = [\"program\"], write = [\"notes\"] }}\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut gateway = Command::new(TRUNKLINE);
        gateway.args(["serve", "-c"]).arg(&config).env("TMPDIR", place);
        let process = gateway.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let read = || std::fs::read_to_string(&note).unwrap_or_default();
        until_blocking(|| !read().is_empty());
        Self { process, folder: read().into() }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn the_next_start_removes_the_temporary_files_of_a_gateway_that_was_killed() {
    let place = tempfile::tempdir().unwrap();
    let first = KilledGateway::start(place.path());
    let left = first.folder.clone();
    assert!(left.starts_with(place.path()) && left.join("file").exists());
    first.kill();
    assert!(left.exists());
    let second = KilledGateway::start(place.path());
    assert!(!left.exists());
    second.kill();
}
