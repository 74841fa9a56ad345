//! Files: their metadata, which Landlock does not restrict, programs without a file, and devices.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::{attempt, sandbox};

#[tokio::test]
async fn metadata_of_files_outside_cannot_be_changed() {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    std::fs::write(&file, "x").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let before = std::fs::metadata(&file).unwrap();
    let (path, folder) = (file.display(), outside.path().display());
    let modes = [
        format!("os.chmod('{path}', 0o600)"),
        format!("libc(452, -100, b'{path}', 0o600, 0)"),
        format!("os.utime('{path}', (1, 1))"),
        "os.utime(os.open('/usr/bin/env', os.O_RDONLY))".into(),
        "os.fchmod(os.open('/usr/bin/env', os.O_RDONLY), 0o755)".into(),
    ];
    let owners = [
        format!("os.chown('{path}', -1, -1)"),
        format!("os.lchown('{path}', -1, -1)"),
        "os.fchown(os.open('/usr/bin/env', os.O_RDONLY), -1, -1)".into(),
        format!("os.setxattr('{path}', 'user.x', b'1')"),
        format!("os.setxattr('{path}', 'user.x', b'1', follow_symlinks=False)"),
        "os.setxattr(os.open('/usr/bin/env', os.O_RDONLY), 'user.x', b'1')".into(),
        format!("os.removexattr('{path}', 'user.x')"),
        format!("libc(463, -100, b'{path}', 0, b'user.x', bytes(16), 16)"),
        format!("libc(466, -100, b'{path}', 0, b'user.x')"),
        format!("libc(469, -100, b'{path}', bytes(24), 24, 0)"),
        "import fcntl; fcntl.ioctl(os.open('/usr/bin/env', os.O_RDONLY), 0x40086602, bytes(8))"
            .into(),
    ];
    let writing = format!("{{ write = [\"{folder}\"] }}");
    let closed = format!("{{ write = [\"{folder}\"], metadata = false }}");
    for code in &modes {
        assert_eq!(attempt(code, sandbox("true")).await, "PermissionError", "{code}");
        assert_eq!(attempt(code, sandbox(&closed)).await, "PermissionError", "{code}");
    }
    for code in &owners {
        assert_eq!(attempt(code, sandbox("true")).await, "PermissionError", "{code}");
        assert_eq!(attempt(code, sandbox(&writing)).await, "PermissionError", "{code}");
    }
    let after = std::fs::metadata(&file).unwrap();
    assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    let [chmod, _, utime, ..] = &modes;
    for code in [chmod, utime] {
        assert_eq!(attempt(code, sandbox(&writing)).await, "done", "{code}");
    }
    assert_eq!(attempt(&owners[0], sandbox("{ metadata = true }")).await, "done");
}

#[tokio::test]
async fn a_program_in_memory_cannot_be_run() {
    let run = "f = os.memfd_create('x'); os.write(f, open('/bin/true', 'rb').read()); \
               pid = os.fork(); pid or os.execv(f'/proc/self/fd/{f}', ['x']); \
               status = os.waitpid(pid, 0)[1]; status and sys.exit('not run')";
    let sealed = "os.memfd_create('x', 8)";
    for (config, code, expected) in
        [("true", run, "OSError"), ("true", sealed, "done"), ("{ memfd = true }", run, "done")]
    {
        assert_eq!(attempt(code, sandbox(config)).await, expected, "{config} {code}");
    }
}

#[tokio::test]
async fn no_device_can_be_made_in_a_folder_that_is_writable() {
    let make = |kind: &str| {
        format!("os.mknod(os.environ['TMPDIR'] + '/d', 0o600 | {kind}, os.makedev(1, 3))")
    };
    for (code, expected) in [
        (make("0o020000"), "PermissionError"),
        (make("0o060000"), "PermissionError"),
        ("os.mkfifo(os.environ['TMPDIR'] + '/p')".into(), "done"),
    ] {
        assert_eq!(attempt(&code, sandbox("true")).await, expected, "{code}");
    }
}
