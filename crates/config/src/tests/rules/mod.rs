//! Each rule, the text that breaks it, and the fault that is reported.

use std::path::Path;

use super::{World, faults};
use crate::ServerKind;

mod cluster;
mod file;
mod server;

#[test]
fn each_rule_reports_line_key_and_help() {
    for (text, told) in file::RULES {
        assert_eq!(faults(text), [*told], "{text}");
    }
}

#[test]
fn each_rule_for_a_server_reports_line_key_and_help() {
    for (lines, told) in server::RULES {
        let found = faults(&format!("[servers.x]\n{lines}"));
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert!(found[0].starts_with(told), "{lines}:\n{}\n{told}", found[0]);
    }
}

#[test]
fn each_rule_for_replicas_reports_line_key_and_help() {
    let text = |[store, listen, advertise, gateway]: &[&str; 4]| {
        format!(
            "[cluster]\nstore = \"{store}\"\nlisten = \"{listen}\"\nadvertise = \"{advertise}\"\n\
             {gateway}\n"
        )
    };
    for (settings, told) in cluster::RULES {
        assert_eq!(faults(&text(settings)), [*told], "{settings:?}");
    }
    let right = [
        [
            "redis://127.0.0.1:6379",
            "127.0.0.1:7070",
            "127.0.0.1:7070",
            "[gateway]\nstate_keys = [\"x\"]",
        ],
        [
            "rediss://valkey",
            "0.0.0.0:7070",
            "gateway-0:7070\"\ncert = \"c\"\nkey = \"k\"\nca = \"a",
            "[gateway]\nstate_keys = [\"x\"]",
        ],
    ];
    for settings in &right {
        let read = World::new().read(&text(settings));
        assert!(read.is_ok_and(|config| config.cluster.is_some()), "{settings:?}");
    }
}

#[test]
fn the_key_between_replicas_is_withheld_from_children() {
    let text = "[gateway]\nstate_keys = [\"x\"]\n[cluster]\nstore = \"redis://127.0.0.1\"\n\
                listen = \"127.0.0.1:7070\"\nadvertise = \"127.0.0.1:7070\"\ncert = \"/pki/peer.pem\"\n\
                key = \"/secrets/peer.key\"\nca = \"/pki/ca.pem\"\n[servers.s]\ncommand = \"x\"\n\
                sandbox = true\n";
    let config = World::new().read(text).unwrap();
    let ServerKind::Command(command) = &config.servers[0].target else { panic!("a command") };
    let files = &command.sandbox.as_ref().unwrap().gateway_files;
    assert!(files.are_in(Path::new("/secrets")));
    assert!(!files.are_in(Path::new("/pki")), "certificates are no secrets");
}
