//! Digest of the settings of a server that may affect its lists.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use http::HeaderName;
use url::Url;

use crate::config::{
    AwsConfig, CapabilitiesChoice, CommandConfig, DocumentSource, HttpConfig, InstancesChoice,
    OpenApiConfig, SchemeCredential, Secret, ServerConfig, ServerKind, child_inherits,
};

/// Keyed digest of a configuration.
pub(super) type Fingerprint = [u8; 32];

/// Returns the digest of all settings of a server that may change its lists, and of the environment
/// that a child inherits by `pass_env`.
pub(super) fn fingerprint(key: &Key, config: &ServerConfig) -> Fingerprint {
    let mut digest = FieldDigest(Context::with_key(key));
    digest.feed(env!("CARGO_PKG_VERSION"));
    digest.feed_server(config);
    digest.finish()
}

/// Returns the digest of the settings with which a child of the server is started. Replicas compare it,
/// also those of another version.
pub(crate) fn settings_digest(config: &ServerConfig) -> Fingerprint {
    let mut digest = FieldDigest(Context::with_key(&Key::new(HMAC_SHA256, SETTINGS_PURPOSE)));
    digest.feed_server(config);
    digest.finish()
}

/// Hashes fields, each with its length, so that no two configurations produce the same input.
struct FieldDigest(Context);

impl FieldDigest {
    fn finish(self) -> Fingerprint {
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(self.0.sign().as_ref());
        fingerprint
    }

    fn feed_server(&mut self, config: &ServerConfig) {
        // Every setting is named, so that each new one needs a decision.
        let ServerConfig {
            name,
            target,
            era,
            client_capabilities,
            max_instances,
            instances,
            max_response,
            max_tools,
            max_pages,
            // The values that the server receives are in `target`.
            secrets: _,
            // Start, restarts and handling of calls.
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
            // Applied when the lists are merged.
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
        self.feed(name.as_str());
        self.feed(era.as_str());
        self.feed(format!("{max_response} {max_tools} {max_pages}"));
        let is_hidden = *max_instances == Some(0)
            || *instances == InstancesChoice::One
            || *client_capabilities == CapabilitiesChoice::Hide;
        self.feed(if is_hidden { "hidden" } else { "declared" });
        match target {
            ServerKind::Command(command) => self.feed_command(command),
            ServerKind::Http(http) => self.feed_http(http),
            ServerKind::OpenApi(openapi) => self.feed_openapi(openapi),
        }
    }

    fn feed(&mut self, field: impl AsRef<[u8]>) {
        let field = field.as_ref();
        self.0.update(&field.len().to_be_bytes());
        self.0.update(field);
    }

    fn feed_count(&mut self, count: usize) {
        self.feed(count.to_be_bytes());
    }

    fn feed_command(&mut self, command: &CommandConfig) {
        // A sandbox may hide the content of lists from a server.
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
        // The account and its rights may change the server's lists.
        self.feed(format!("{oauth:?}"));
        self.feed_aws(aws.as_ref());
    }

    fn feed_aws(&mut self, aws: Option<&AwsConfig>) {
        self.feed_count(aws.map_or(0, |_| 1));
        if let Some(AwsConfig { region, service, access_key_id, .. }) = aws {
            self.feed(region);
            self.feed(service);
            // Identifies the account. Its secrets change more often than its rights.
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
            // The time of reading the document, not its content.
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

/// Purpose of the digest that replicas compare.
const SETTINGS_PURPOSE: &[u8] = b"trunkline settings of a child";

/// Returns the variables that the configuration passes to the child, sorted. Variables that every
/// child inherits are left out, because they differ from one login to the next.
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
