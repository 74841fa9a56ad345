//! Each way to write a file, as a sequence of looks.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::super::files::{FileEnding, FileStamp, WatchedFile, WatchedFiles};
use super::{GateDecision, ReloadGate, SETTLE_TIME};
use crate::clock;

const CONFIG: &str = "/f/gateway.toml";
const SECRET: &str = "/f/secret";

fn file(inode: u64, version: u8) -> WatchedFile {
    WatchedFile {
        stamp: Some(FileStamp::for_test(PathBuf::from(CONFIG), inode, u64::from(version))),
        digest: Some([version; 32]),
        ending: FileEnding::WholeLine,
        is_renamed: false,
    }
}

/// A gate, and the time since its start.
struct Looks {
    gate: ReloadGate,
    start: Instant,
}

impl Looks {
    fn start(loaded: WatchedFiles) -> Self {
        Self { gate: ReloadGate::new(CONFIG.into(), loaded), start: clock::now() }
    }

    /// The decision after some milliseconds.
    fn at(&mut self, milliseconds: u64, files: &WatchedFiles) -> GateDecision {
        self.gate.decide(files, self.start + Duration::from_millis(milliseconds))
    }

    /// The decision to wait until some milliseconds after the start.
    fn wait(&self, milliseconds: u64) -> GateDecision {
        GateDecision::Wait(self.start + Duration::from_millis(milliseconds))
    }
}

fn alone(file: WatchedFile) -> WatchedFiles {
    [(PathBuf::from(CONFIG), file)].into()
}

#[test]
fn a_file_that_is_written_in_place_loads_when_it_has_settled() {
    let mut looks = Looks::start(alone(file(1, 0)));
    assert_eq!(looks.at(0, &alone(file(1, 0))), GateDecision::Unchanged);
    assert_eq!(looks.at(50, &alone(file(1, 1))), looks.wait(1050));
    // Another piece has arrived, and then no more.
    assert_eq!(looks.at(1049, &alone(file(1, 2))), looks.wait(2049));
    assert_eq!(looks.at(2048, &alone(file(1, 2))), looks.wait(2049));
    assert_eq!(looks.at(2049, &alone(file(1, 2))), GateDecision::Load);
    assert_eq!(SETTLE_TIME, Duration::from_secs(1));
    // It is not loaded a second time.
    looks.gate.settle(alone(file(1, 2)));
    assert_eq!(looks.at(9000, &alone(file(1, 2))), GateDecision::Unchanged);
}

#[test]
fn a_file_of_the_same_contents_and_another_stamp_is_still_being_written() {
    let mut looks = Looks::start(alone(file(1, 0)));
    let touched = WatchedFile { digest: Some([1; 32]), ..file(1, 2) };
    assert_eq!(looks.at(0, &alone(file(1, 1))), looks.wait(1000));
    assert_eq!(looks.at(1000, &alone(touched)), looks.wait(2000));
}

#[test]
fn a_renamed_file_and_another_target_of_a_link_load_at_once() {
    let renamed = WatchedFile { is_renamed: true, ending: FileEnding::PartialLine, ..file(2, 1) };
    let mut looks = Looks::start(alone(file(1, 0)));
    assert_eq!(looks.at(0, &alone(renamed)), GateDecision::Load);
    let linked = FileStamp::for_test("/f/..2/gateway.toml".into(), 2, 1);
    let linked = WatchedFile { stamp: Some(linked), ..file(2, 1) };
    assert_eq!(looks.at(0, &alone(linked)), GateDecision::Load);
}

#[test]
fn a_new_file_that_was_not_renamed_and_a_renamed_one_that_is_written_to_settle() {
    let mut looks = Looks::start(alone(file(1, 0)));
    // As vim writes: the old file is moved away.
    assert_eq!(looks.at(0, &alone(file(2, 1))), looks.wait(1000));
    assert_eq!(looks.at(1000, &alone(file(2, 1))), GateDecision::Load);
    // The evidence of an earlier rename is not enough for the inode that was loaded then.
    looks.gate.settle(alone(file(2, 1)));
    let written = WatchedFile { is_renamed: true, ..file(2, 2) };
    assert_eq!(looks.at(1000, &alone(written)), looks.wait(2000));
}

#[test]
fn a_file_that_is_gone_for_a_moment_is_waited_for() {
    let gone =
        WatchedFile { stamp: None, digest: None, ending: FileEnding::Nothing, is_renamed: false };
    let mut looks = Looks::start(alone(file(1, 0)));
    assert_eq!(looks.at(0, &alone(gone.clone())), looks.wait(1000));
    assert_eq!(looks.at(500, &alone(file(1, 0))), GateDecision::Unchanged);
    assert_eq!(looks.at(600, &alone(gone.clone())), looks.wait(1600));
    assert_eq!(looks.at(1600, &alone(gone)), GateDecision::Load, "which reports it");
}

#[test]
fn the_last_line_of_the_configuration_needs_its_end_and_that_of_a_secret_if_it_had_one() {
    let partial =
        |inode, version| WatchedFile { ending: FileEnding::PartialLine, ..file(inode, version) };
    let both = |config: WatchedFile, secret: WatchedFile| -> WatchedFiles {
        [(PathBuf::from(CONFIG), config), (PathBuf::from(SECRET), secret)].into()
    };
    for (before, after, incomplete) in [
        (both(partial(1, 0), file(2, 0)), both(partial(1, 1), file(2, 0)), Some(CONFIG)),
        (both(file(1, 0), partial(2, 0)), both(file(1, 0), partial(2, 1)), None),
        (both(file(1, 0), file(2, 0)), both(file(1, 0), partial(2, 1)), Some(SECRET)),
    ] {
        let mut looks = Looks::start(before);
        assert_eq!(looks.at(0, &after), looks.wait(1000));
        let expected = match incomplete {
            Some(path) => GateDecision::Incomplete(vec![path.into()]),
            None => GateDecision::Load,
        };
        assert_eq!(looks.at(1000, &after), expected);
    }
}

#[test]
fn a_renamed_file_waits_for_another_that_is_still_written() {
    let both = |config: WatchedFile, secret: WatchedFile| -> WatchedFiles {
        [(PathBuf::from(CONFIG), config), (PathBuf::from(SECRET), secret)].into()
    };
    let renamed = WatchedFile { is_renamed: true, ..file(3, 1) };
    let mut looks = Looks::start(both(file(1, 0), file(2, 0)));
    let changed = both(renamed, file(2, 1));
    assert_eq!(looks.at(0, &changed), looks.wait(1000));
    assert_eq!(looks.at(1000, &changed), GateDecision::Load);
}
