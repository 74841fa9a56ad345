use std::ops::ControlFlow;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

#[test]
fn a_socket_below_a_folder_of_all_users_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir_all(shared.join("own")).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(is_below_shared_folder(&shared.join("a.sock")));
    assert!(is_below_shared_folder(&shared.join("own/a.sock")));
    assert!(is_below_shared_folder(Path::new("/no/such/folder/a.sock")));
    assert!(!is_below_shared_folder(Path::new("/usr/a.sock")));
}

#[test]
fn the_socket_is_read_from_a_file_that_need_not_be_valid() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let place = |text: &str| {
        fs::write(&config, text).unwrap();
        written_place(&config)
    };
    let own = stable_path(&config).parent().unwrap().join("a.sock");
    assert_eq!(place("\u{feff}[admin]\nsocket = \"off\"\n"), SocketPlace::Off);
    assert_eq!(place("x = 1\n[admin]\nsocket = \"a.sock\"\n"), SocketPlace::Path(own));
    for text in ["", "[admin]\nsocket = \"auto\"\n", "not TOML", "[admin]\nsocket = 7\n"] {
        assert_eq!(place(text), SocketPlace::Auto, "{text}");
    }
    assert_eq!(written_place(&folder.path().join("none.toml")), SocketPlace::Auto);
}

#[test]
fn a_key_is_one_word_of_bounded_length() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let read = |text: &str| {
        fs::write(&file, text).unwrap();
        read_key(&file)
    };
    assert_eq!(read("the-key\r\n"), Ok("the-key".to_owned()));
    let long = "x".repeat(MAX_KEY_FILE_BYTES + 1);
    for wrong in ["", " \n", "two words", "two\nlines", "k\u{e9}y", &long] {
        assert!(read(wrong).unwrap_err().contains("key"), "{wrong:.20}");
    }
}

/// Follows a gateway that sends this and then nothing, with the connection open.
async fn follow_silence(sent: &str) -> Result<Option<(StatusCode, Bytes)>, String> {
    let (own, mut other) = UnixStream::pair().unwrap();
    let request = GatewayRequest::get("/log/live");
    let mut on_event = |_| ControlFlow::Continue(());
    let answering = async move {
        let mut asked = [0; 3];
        other.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"GET");
        other.write_all(sent.as_bytes()).await.unwrap();
        other
    };
    let following = follow_over_socket(own, &request, "/api/v1/log/live", &mut on_event);
    let (followed, _open) = tokio::join!(following, answering);
    followed
}

#[tokio::test(start_paused = true)]
async fn a_follower_leaves_a_gateway_that_is_silent() {
    for sent in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 403 No\r\ncontent-length: 9\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n: \n\n\r\n",
    ] {
        let reason = follow_silence(sent).await.unwrap_err();
        assert!(["it takes too long", "it sends nothing any more"].contains(&&*reason), "{reason}");
    }
}
