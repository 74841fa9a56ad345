//! A server that requires a token, and the authorization server that issues it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use url::Url;

use crate::process::Process;

/// The mock server, which refuses requests without a token.
pub struct ProtectedMock {
    pub mock: Process,
    issuer: Url,
}

impl ProtectedMock {
    /// Starts both. The authorization server ends with this program.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let resource = Arc::new(OnceLock::new());
        let pages = IssuerPages { issuer: issuer.clone(), resource: Arc::clone(&resource) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                pages.answer(stream);
            }
        });
        let mock = Process::mock(&["--challenge", &format!("{issuer}/resource")]);
        resource.set(mock.url.to_string()).unwrap();
        Self { mock, issuer: issuer.parse().unwrap() }
    }

    /// Returns the table `oauth` of a server with this name.
    pub fn table_for(&self, server: &str) -> String {
        format!(
            "[servers.{server}.oauth]\ngrant = \"client_credentials\"\nissuer = \"{}\"\n\
             client_id = \"bench\"\nclient_secret = \"secret-of-the-bench\"\n",
            self.issuer.as_str().trim_end_matches('/')
        )
    }
}

/// Responses of the authorization server, and the metadata of the resource.
struct IssuerPages {
    issuer: String,
    resource: Arc<OnceLock<String>>,
}

impl IssuerPages {
    /// Answers one request, and closes the connection.
    fn answer(&self, mut stream: TcpStream) {
        let Some(path) = read_request(&stream) else { return };
        let page = match path.as_str() {
            "/resource" => json!({
                "resource": self.resource.wait(), "authorization_servers": [self.issuer],
            }),
            "/token" => json!({
                "access_token": "a-token-of-the-bench-".repeat(10), "token_type": "Bearer",
                "expires_in": 86_400,
            }),
            "/.well-known/oauth-authorization-server" => json!({
                "issuer": self.issuer,
                "token_endpoint": format!("{}/token", self.issuer),
                "authorization_endpoint": format!("{}/authorize", self.issuer),
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "grant_types_supported": ["client_credentials"],
            }),
            _ => Value::Null,
        };
        let status = if page.is_null() { "404 Not Found" } else { "200 OK" };
        let body = page.to_string();
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        );
    }
}

/// Reads a request with its body; returns its path.
fn read_request(stream: &TcpStream) -> Option<String> {
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        input.read_line(&mut line).ok()?;
        let (name, value) = match line.trim_end().split_once(':') {
            Some((name, value)) => (name, value.trim()),
            None => break,
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().ok()?;
        }
    }
    input.read_exact(&mut vec![0; length]).ok()?;
    Some(path)
}
