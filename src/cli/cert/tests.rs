use std::{os::unix::fs::PermissionsExt as _, sync::Arc};

use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::aws_lc_rs,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};

use super::*;

#[test]
fn keys_are_for_their_owner_alone_even_where_they_were_not() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("server.key");
    fs::write(&key, "old").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o666)).unwrap();
    let client = Some("agent".to_owned());
    let args = CertArgs { dir: dir.path().into(), client, force: true, ..CertArgs::default() };

    write_certificates(&args, &mut io::sink()).unwrap();

    let mut found: Vec<_> = fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
    found.sort_by_key(fs::DirEntry::file_name);
    let names: Vec<_> = found.iter().map(|it| it.file_name().into_string().unwrap()).collect();
    let wanted = ["ca.key", "ca.pem", "client.key", "client.pem", "server.key", "server.pem"];
    assert_eq!(names, wanted);
    for file in found.iter().filter(|it| it.path().extension().unwrap() == "key") {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.path());
        assert!(fs::read_to_string(file.path()).unwrap().contains("PRIVATE KEY"));
    }
}

#[test]
fn the_server_certificate_is_good_for_its_names_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["gw.test", "*.apps.test", "10.0.0.7"].map(String::from).to_vec();
    write_certificates(
        &CertArgs { dir: dir.path().into(), names, ..CertArgs::default() },
        &mut io::sink(),
    )
    .unwrap();

    let read = |file| CertificateDer::from_pem_file(dir.path().join(file)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(read("ca.pem")).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let (verifier, server) = (builder.build().unwrap(), read("server.pem"));
    let good = |name: &'static str| {
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(&server, &[], &name, &[], UnixTime::now()).is_ok()
    };
    for name in ["localhost", "127.0.0.1", "::1", "gw.test", "a.apps.test", "10.0.0.7"] {
        assert!(good(name), "{name}");
    }
    for name in ["a.gw.test", "apps.test", "127.0.0.2", "example.com"] {
        assert!(!good(name), "{name}");
    }
}

#[test]
fn existing_files_are_not_overwritten_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let args = CertArgs { dir: dir.path().join("new"), ..CertArgs::default() };
    write_certificates(&args, &mut io::sink()).unwrap();
    let before = fs::read(args.dir.join("ca.key")).unwrap();
    fs::remove_file(args.dir.join("ca.pem")).unwrap();

    let refused = write_certificates(&args, &mut io::sink()).unwrap_err();

    assert!(matches!(refused, CertError::Exists { file } if file.ends_with("ca.key")));
    assert!(!args.dir.join("ca.pem").exists(), "nothing at all is written");
    assert_eq!(fs::read(args.dir.join("ca.key")).unwrap(), before);
}

#[test]
fn a_name_that_is_none_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["", "https://gw", "a..b", "a b", "gw:8080", "*.*.x", "10.0.0.0/8"] {
        let names = vec![name.to_owned()];
        let args = CertArgs { dir: dir.path().join("certs"), names, ..CertArgs::default() };
        let refused = write_certificates(&args, &mut io::sink()).unwrap_err();
        assert!(matches!(refused, CertError::Name { .. }), "{name:?}");
    }
    assert!(!dir.path().join("certs").exists());
}

#[test]
fn the_output_names_the_next_steps() {
    let dir = tempfile::tempdir().unwrap();
    let args = CertArgs { dir: dir.path().into(), ..CertArgs::default() };
    let mut out = Vec::new();
    write_certificates(&args, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    let key = dir.path().join("server.key");
    assert!(out.contains(&format!("key = \"{}\"", key.display())), "{out}");
    assert!(!out.contains("client.pem"), "{out}");
}
