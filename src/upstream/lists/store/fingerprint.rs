//! What the lists of a server may depend on in its configuration.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aws_lc_rs::hmac::{Context, Key};
use http::HeaderName;
use url::Url;

use crate::config::{
    AwsConfig, CapabilitiesChoice, CommandConfig, DocumentSource, HttpConfig, OpenApiConfig,
    SchemeCredential, Secret, ServerConfig, ServerKind, child_inherits,
};

/// The keyed digest of a configuration.
pub(super) type Fingerprint = [u8; 32];

/// The digest of everything in a server's configuration that may change what
/// it lists, and of the environment that a child inherits by `pass_env`.
pub(super) fn fingerprint(key: &Key, config: &ServerConfig) -> Fingerprint {
    // Every setting is named, so that a new one is decided about.
    let ServerConfig {
        name,
        target,
        era,
        client_capabilities,
        max_instances,
        max_response,
        max_tools,
        max_pages,
        // What the server was given is in `target`.
        secrets: _,
        // When and how often it runs, and how its calls are handled.
        start: _,
        idle_stop: _,
        isolation: _,
        instance_idle: _,
        capability_idle: _,
        max_restarts: _,
        restart_window: _,
        timeout: _,
        max_timeout: _,
        connect_timeout: _,
        start_timeout: _,
        stop_timeout: _,
        rate: _,
        rate_each: _,
        quota_each: _,
        in_flight: _,
        queue: _,
        queue_timeout: _,
        scopes: _,
        read_cache: _,
        forward_headers: _,
        call_headers: _,
        arguments: _,
        // Applied to the lists when they are merged.
        resource_vars: _,
        check_output: _,
        result: _,
        retries: _,
        interceptors: _,
        slow_after: _,
        slow_message: _,
        tools: _,
        definitions: _,
        confirm: _,
        breaker: _,
    } = config;
    let mut digest = FieldDigest(Context::with_key(key));
    digest.feed(env!("CARGO_PKG_VERSION"));
    digest.feed(name.as_str());
    digest.feed(era.as_str());
    digest.feed(format!("{max_response} {max_tools} {max_pages}"));
    let is_hidden = *max_instances == Some(0) || *client_capabilities == CapabilitiesChoice::Hide;
    digest.feed(if is_hidden { "hidden" } else { "declared" });
    match target {
        ServerKind::Command(command) => digest.feed_command(command),
        ServerKind::Http(http) => digest.feed_http(http),
        ServerKind::OpenApi(openapi) => digest.feed_openapi(openapi),
    }
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest.0.sign().as_ref());
    fingerprint
}

/// Feeds fields, each with its length: no two configurations feed the same
/// bytes.
struct FieldDigest(Context);

impl FieldDigest {
    fn feed(&mut self, field: impl AsRef<[u8]>) {
        let field = field.as_ref();
        self.0.update(&field.len().to_be_bytes());
        self.0.update(field);
    }

    fn feed_count(&mut self, count: usize) {
        self.feed(count.to_be_bytes());
    }

    fn feed_command(&mut self, command: &CommandConfig) {
        // A sandbox may keep a server from finding what it lists.
        let CommandConfig { program, args, env, pass_env, cwd, sandbox } = command;
        self.feed(format!("{sandbox:?}"));
        self.feed("command");
        self.feed(program);
        self.feed_count(args.len());
        for argument in args {
            self.feed(argument);
        }
        self.feed_count(env.len());
        for (name, value) in env {
            self.feed(name);
            self.feed(value.expose());
        }
        let passed = passed_variables(pass_env);
        self.feed_count(passed.len());
        for (name, value) in passed {
            self.feed(name.as_bytes());
            self.feed(value.as_bytes());
        }
        let folder = cwd.clone().or_else(|| std::env::current_dir().ok());
        self.feed(folder.as_deref().unwrap_or(Path::new("")).as_os_str().as_bytes());
    }

    fn feed_http(&mut self, http: &HttpConfig) {
        let HttpConfig { url, headers, ca, transport, oauth, aws } = http;
        self.feed("url");
        self.feed(url.as_str());
        self.feed_headers(headers);
        self.feed(ca.as_deref().unwrap_or(Path::new("")).as_os_str().as_bytes());
        self.feed(transport.as_str());
        // Whose account it is, and what it may do, may change what the server lists.
        self.feed(format!("{oauth:?}"));
        self.feed_aws(aws.as_ref());
    }

    fn feed_aws(&mut self, aws: Option<&AwsConfig>) {
        self.feed_count(aws.map_or(0, |_| 1));
        if let Some(AwsConfig { region, service, access_key_id, .. }) = aws {
            self.feed(region);
            self.feed(service);
            // The account. Its secrets change more often than what it may see.
            self.feed(access_key_id.expose());
        }
    }

    fn feed_headers(&mut self, headers: &[(HeaderName, Secret)]) {
        self.feed_count(headers.len());
        for (name, value) in headers {
            self.feed(name.as_str());
            self.feed(value.expose());
        }
    }

    fn feed_openapi(&mut self, openapi: &OpenApiConfig) {
        let OpenApiConfig {
            document,
            // When the document is read, not what is in it.
            refresh: _,
            base_url,
            server_variables,
            headers,
            ca,
            auth,
            oauth,
            aws,
            include,
            exclude,
            empty_strings,
            output_schemas,
        } = openapi;
        self.feed("openapi");
        self.feed(format!("{oauth:?}"));
        self.feed_aws(aws.as_ref());
        match document {
            DocumentSource::Url(url) => self.feed(url.as_str()),
            DocumentSource::Search(url) => self.feed(format!("search {url}")),
            DocumentSource::File(path) => self.feed(path.as_os_str().as_bytes()),
        }
        self.feed(base_url.as_ref().map_or("", Url::as_str));
        self.feed_count(server_variables.len());
        for (name, value) in server_variables {
            self.feed(name);
            self.feed(value);
        }
        self.feed_headers(headers);
        self.feed(ca.as_deref().unwrap_or(Path::new("")).as_os_str().as_bytes());
        self.feed_count(auth.len());
        for (name, credential) in auth {
            self.feed(name);
            match credential {
                SchemeCredential::Value(value) => self.feed(value.expose()),
                SchemeCredential::Login(login) => {
                    self.feed(&login.username);
                    self.feed(login.password.expose());
                }
            }
        }
        self.feed(format!("{include:?} {exclude:?}"));
        self.feed(empty_strings.as_str());
        self.feed(output_schemas.as_str());
    }
}

/// The variables that the configuration passes on, sorted. Those that every
/// child inherits differ from one login to the next.
fn passed_variables(pass_env: &[String]) -> Vec<(OsString, OsString)> {
    if pass_env.is_empty() {
        return Vec::new();
    }
    let is_passed = |name: &OsString| {
        let name = name.to_str();
        name.is_some_and(|name| child_inherits(pass_env, name) && !child_inherits(&[], name))
    };
    let mut passed: Vec<_> = std::env::vars_os().filter(|(name, _)| is_passed(name)).collect();
    passed.sort();
    passed
}
