//! Tests of the pages of the audit log.

use super::*;

const LIMITS: PageLimits = PageLimits { records: 3, bytes: 1 << 20, searched: 1 << 20 };

fn numbers(page: &AuditPage) -> Vec<u64> {
    let number = |text: &RawValue| read_record(text.get().as_bytes()).unwrap().0.seq.unwrap();
    page.records.iter().map(|record| number(record)).collect()
}

fn record(number: u64) -> String {
    let client = if number.is_multiple_of(2) { "ann" } else { "bob" };
    let seconds = number % 60;
    format!(
        "{{\"seq\":{number},\"time\":\"2026-11-28T10:00:{seconds:02}.5Z\",\"id\":\"r-{number}\",\
         \"event\":\"call\",\"principal\":\"{client}\",\"tool\":\"s__t\",\"decision\":\"allow\"}}\n"
    )
}

#[test]
fn pages_go_back_through_all_files_also_if_they_are_renamed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let files = [path("log"), path("log.1"), path("log.2")];
    fs::write(&files[1], [record(1), "no record\n".to_owned(), record(2)].concat()).unwrap();
    let newest = [record(3), record(4), record(5), record(6), "{\"seq\":7,".to_owned()];
    fs::write(&files[0], newest.concat()).unwrap();
    let filter = AuditFilter::default();
    let page = read_page(&files, &filter, None, LIMITS).unwrap();
    assert_eq!(numbers(&page), [6, 5, 4], "the last line is incomplete");
    assert_eq!(page.oldest_at.map(|at| at.to_string()).as_deref(), Some("2026-11-28T10:00:04.5Z"));
    fs::rename(&files[1], &files[2]).unwrap();
    fs::rename(&files[0], &files[1]).unwrap();
    fs::write(&files[0], record(8)).unwrap();
    let cursor = AuditCursor::parse(&page.next.unwrap()).unwrap();
    let page = read_page(&files, &filter, Some(cursor), LIMITS).unwrap();
    assert_eq!((numbers(&page), page.unreadable_lines), (vec![3, 2, 1], 1));
    let cursor = AuditCursor::parse(&page.next.unwrap()).unwrap();
    let page = read_page(&files, &filter, Some(cursor), LIMITS).unwrap();
    assert_eq!((numbers(&page), page.next), (vec![], None));
    let gone = AuditCursor { file: 1, offset: 7 };
    let page = read_page(&files, &filter, Some(gone), LIMITS).unwrap();
    assert_eq!((numbers(&page), page.next, page.newest), (vec![], None, None));
}

#[test]
fn a_record_with_an_odd_member_is_shown_and_does_not_match_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().join("log")];
    let odd = [
        "{\"seq\":1,\"event\":\"call\",\"actor\":\"ann\",\"tool\":\"s__t\"}",
        "{\"seq\":2,\"event\":\"call\",\"time\":1764547200,\"tool\":\"s__t\"}",
        "{\"seq\":3,\"event\":\"call\",\"tool\":[\"s__t\"]}",
        "{\"seq\":4,\"event\":\"call\",\"actor\":{\"name\":7},\"tool\":\"s__t\"}",
        "{\"seq\":5,\"event\":\"call\",\"server\":\"\\ud800\",\"tool\":\"s__t\"}",
    ];
    fs::write(&files[0], format!("{}\n", odd.join("\n"))).unwrap();
    let wide = PageLimits { records: 9, ..LIMITS };
    let found = |filter: AuditFilter| {
        let page = read_page(&files, &filter, None, wide).unwrap();
        assert_eq!(page.unreadable_lines, 0);
        numbers(&page)
    };
    assert_eq!(found(AuditFilter::default()), [5, 4, 3, 2, 1]);
    let tool = AuditFilter { tool: Some("s__t".into()), ..AuditFilter::default() };
    assert_eq!(found(tool), [5, 4, 2, 1]);
    let client = AuditFilter { client: Some("ann".into()), ..AuditFilter::default() };
    assert!(found(client).is_empty());
    // The number of a record may be odd, too.
    fs::write(&files[0], "{\"seq\":-1,\"event\":\"call\"}\n").unwrap();
    let page = read_page(&files, &AuditFilter::default(), None, wide).unwrap();
    assert_eq!((page.records.len(), page.newest, page.unreadable_lines), (1, None, 0));
}

#[test]
fn numbers_of_a_record_keep_all_their_digits() {
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().join("log")];
    let call =
        "{\"seq\":1,\"event\":\"call\",\"arguments\":{\"id\":123456789012345678901,\"x\":1E400}}";
    fs::write(&files[0], format!("{call}\n")).unwrap();
    let page = read_page(&files, &AuditFilter::default(), None, LIMITS).unwrap();
    let answer = serde_json::to_string(&page).unwrap();
    assert!(answer.starts_with(&format!("{{\"records\":[{call}],")), "{answer}");
    assert_eq!(page.unreadable_lines, 0);
}

#[test]
fn a_page_continues_after_the_log_was_copied_and_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["log", "log.1"].map(|name| folder.path().join(name));
    fs::write(&files[0], [record(1), record(2), record(3), record(4), record(5)].concat()).unwrap();
    let all = AuditFilter::default();
    let page = read_page(&files, &all, None, LIMITS).unwrap();
    assert_eq!(numbers(&page), [5, 4, 3]);
    // The new file has the inode of the old one.
    fs::copy(&files[0], &files[1]).unwrap();
    fs::write(&files[0], (6..20).map(record).collect::<String>()).unwrap();
    let cursor = AuditCursor::parse(&page.next.unwrap()).unwrap();
    let page = read_page(&files, &all, Some(cursor), LIMITS).unwrap();
    assert_eq!(numbers(&page), [2, 1]);
}

#[test]
fn files_follow_each_other_though_they_are_rotated_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..5).map(|it| folder.path().join(format!("log.{it}"))).collect();
    for (file, text) in files.iter().zip(["new", "older"]) {
        fs::write(file, text).unwrap();
    }
    let rotate = |text: &str| {
        for (from, to) in files.iter().zip(files.iter().skip(1)).rev() {
            let _ = fs::rename(from, to);
        }
        fs::write(&files[0], text).unwrap();
    };
    let mut log = LogFiles::new(&files);
    let read = |log: &mut LogFiles<'_>| {
        let file = log.open_next().unwrap();
        file.map(|file| std::io::read_to_string(file).unwrap())
    };
    assert_eq!(read(&mut log).as_deref(), Some("new"));
    rotate("newer");
    rotate("newest");
    assert_eq!(read(&mut log).as_deref(), Some("older"));
    assert_eq!(read(&mut log), None);
    // The last file was removed.
    let mut log = LogFiles::new(&files);
    assert_eq!(read(&mut log).as_deref(), Some("newest"));
    for text in ["1", "2", "3", "4", "5"] {
        rotate(text);
    }
    assert_eq!(read(&mut log), None);
}

#[test]
fn a_filter_finds_its_records_and_ends_at_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().join("log")];
    let operation = "{\"seq\":21,\"time\":\"2026-11-28T10:00:21Z\",\"event\":\"operation\",\
        \"operation\":\"reload\",\"actor\":{\"kind\":\"operator\",\"name\":\"client ops\"},\
        \"outcome\":\"ok\"}\n";
    let all: Vec<_> = (1..=20).map(record).chain([operation.to_owned()]).collect();
    fs::write(&files[0], all.concat()).unwrap();
    let some = |text: &str| Some(text.to_owned());
    let time = |text: &str| Some(text.parse().unwrap());
    let all = AuditFilter::default;
    for (filter, expected) in [
        (AuditFilter { id: some("r-7"), ..all() }, vec![7]),
        (AuditFilter { client: some("ann"), ..all() }, vec![20, 18, 16]),
        (AuditFilter { client: some("client ops"), ..all() }, vec![21]),
        (AuditFilter { tool: some("s__t"), ..all() }, vec![20, 19, 18]),
        (AuditFilter { tool: some("other"), ..all() }, vec![]),
        (AuditFilter { server: some("s"), ..all() }, vec![]),
        (AuditFilter { decision: some("ok"), ..all() }, vec![21]),
        (AuditFilter { kind: some("reload"), ..all() }, vec![21]),
        (AuditFilter { until: time("2026-11-28T10:00:03Z"), ..all() }, vec![2, 1]),
        (AuditFilter { since: time("2026-11-28T10:00:20Z"), ..all() }, vec![21, 20]),
        (AuditFilter { after: Some(19), ..all() }, vec![21, 20]),
    ] {
        let page = read_page(&files, &filter, None, LIMITS).unwrap();
        assert_eq!(numbers(&page), expected, "{filter:?}");
        assert_eq!(page.newest, Some(21), "{filter:?}");
    }
}

#[test]
fn each_limit_ends_a_page_and_long_lines_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().join("log")];
    let long = format!("{{\"seq\":2,\"x\":\"{}\"}}\n", "y".repeat(MAX_LINE_BYTES + 1));
    fs::write(&files[0], [record(1), long, record(3)].concat()).unwrap();
    let all = AuditFilter::default();
    let wide = PageLimits { searched: u64::MAX, ..LIMITS };
    assert_eq!(numbers(&read_page(&files, &all, None, wide).unwrap()), [3, 1]);
    for limits in [
        PageLimits { records: 1, ..wide },
        PageLimits { bytes: 1, ..wide },
        PageLimits { searched: 1, ..wide },
    ] {
        let page = read_page(&files, &all, None, limits).unwrap();
        assert_eq!((numbers(&page), page.next.is_some()), (vec![3], true), "{limits:?}");
    }
}

#[test]
fn observed_records_are_known_up_to_the_newest_of_the_file_and_until_another_log_begins() {
    let has = |newest, observed: &[u64]| -> Vec<bool> {
        let mut known = KnownRecords::until(newest);
        observed.iter().map(|seq| known.has(&numbered(*seq))).collect()
    };
    assert_eq!(has(None, &[1, 2]), [false, false]);
    assert_eq!(has(Some(7), &[6, 7, 8, 9]), [true, true, false, false]);
    assert_eq!(has(Some(7), &[7, 1, 2]), [true, false, false]);
}

#[test]
fn a_pipe_and_a_missing_file_have_no_records() {
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().join("pipe"), folder.path().join("none"), folder.path().join("log")];
    let made = std::process::Command::new("mkfifo").arg(&files[0]).status().unwrap();
    assert!(made.success());
    fs::write(&files[2], record(1)).unwrap();
    // Opening the pipe would wait for a writer.
    let (done, waits) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let _ = done.send(read_page(&files, &AuditFilter::default(), None, LIMITS));
    });
    let page = waits.recv_timeout(std::time::Duration::from_secs(30)).unwrap().unwrap();
    assert_eq!((numbers(&page), page.next), (vec![1], None));
}

#[test]
fn a_long_line_at_the_end_and_one_without_an_end_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().join("log")];
    let long = "y".repeat(2 * MAX_LINE_BYTES + 5);
    let wide = PageLimits { searched: u64::MAX, ..LIMITS };
    for text in [format!("{}{long}", record(1)), format!("{}{long}\n", record(1)), long.clone()] {
        let expected = if text.starts_with('y') { vec![] } else { vec![1] };
        fs::write(&files[0], &text).unwrap();
        let page = read_page(&files, &AuditFilter::default(), None, wide).unwrap();
        assert_eq!(numbers(&page), expected, "{}", text.len());
        // A cursor beyond the end, of a file that was cut, is at its end.
        let Some(file) = first_record_digest(&fs::File::open(&files[0]).unwrap()).unwrap() else {
            continue;
        };
        let cursor = Some(AuditCursor { file, offset: u64::MAX });
        let page = read_page(&files, &AuditFilter::default(), cursor, wide).unwrap();
        assert_eq!(numbers(&page), expected, "{}", text.len());
    }
}

fn numbered(seq: u64) -> FilteredMembers {
    FilteredMembers { seq: Some(seq), ..FilteredMembers::default() }
}
